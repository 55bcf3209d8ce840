# SPDX-License-Identifier: Apache-2.0
# A test program is one line in the fragment of its room, and one that says
# what it links (see the list of *_libs in Makefile.am). Exit 77 skips.
#
#     check_PROGRAMS += %D%/test_hf
#     %C%_test_hf_LDADD = $(model_libs)

# hwloc's plug-ins for graphics cards leak, and load a whole X library.
AM_TESTS_ENVIRONMENT = \
	WEFT_TEST_DATA="$(abs_top_srcdir)/tests/data"; \
	WEFT_SRCDIR="$(abs_top_srcdir)"; \
	WEFT_BUILDDIR="$(abs_top_builddir)"; \
	WEFT_MPIEXEC="$(MPIEXEC)"; WEFT_CLANG="$(CLANG)"; \
	WEFT_CC="$(CC)"; WEFT_INSTRUMENT="$(WEFT_INSTRUMENT_CFLAGS)"; \
	WEFT_HEADERS="$(installed_headers:src/%=%)"; \
	WEFT_FUZZ_CFLAGS="$(FUZZ_CFLAGS)"; WEFT_FUZZ_LIBS="$(FUZZ_LIBS)"; \
	STARPU_HOME="$(abs_top_builddir)/starpu-home/$$b"; \
	STARPU_SILENT=1; STARPU_WORKERS_NOBIND=1; STARPU_MPI_NOBIND=1; \
	STARPU_FXT_TRACE=0; \
	OMPI_ALLOW_RUN_AS_ROOT=1; OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; \
	OMPI_MCA_rmaps_base_oversubscribe=1; \
	HWLOC_COMPONENTS=-gl,-opencl,-pci; export HWLOC_COMPONENTS; \
	LSAN_OPTIONS="print_suppressions=0"; \
	LSAN_OPTIONS="$$LSAN_OPTIONS:suppressions=$(abs_top_srcdir)/tools/lsan.supp"; \
	TSAN_OPTIONS="suppressions=$(abs_top_srcdir)/tools/tsan.supp"; \
	export LSAN_OPTIONS TSAN_OPTIONS WEFT_TEST_DATA WEFT_SRCDIR \
	    WEFT_BUILDDIR WEFT_MPIEXEC WEFT_CLANG WEFT_CC \
	    WEFT_INSTRUMENT WEFT_HEADERS \
	    WEFT_FUZZ_CFLAGS \
	    WEFT_FUZZ_LIBS STARPU_HOME STARPU_SILENT \
	    STARPU_WORKERS_NOBIND STARPU_MPI_NOBIND STARPU_FXT_TRACE \
	    OMPI_ALLOW_RUN_AS_ROOT \
	    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM \
	    OMPI_MCA_rmaps_base_oversubscribe; \
	$(MKDIR_P) "$$STARPU_HOME";
FUZZ_CFLAGS = $(HWLOC_CFLAGS) $(JANSSON_CFLAGS) $(YAML_CFLAGS) \
	$(XXHASH_CFLAGS) $(PCRE2_CFLAGS)
FUZZ_LIBS = $(HWLOC_LIBS) $(JANSSON_LIBS) $(YAML_LIBS) $(XXHASH_LIBS) \
	$(PCRE2_LIBS)
TEST_EXTENSIONS = .sh
SH_LOG_COMPILER = $(SHELL)

# Shell tests; long ones first.
sh_tests = \
	%D%/commands.sh \
	%D%/learns.sh \
	%D%/examples.sh \
	%D%/gsm8k_example.sh \
	%D%/recipe.sh \
	%D%/install.sh \
	%D%/library.sh \
	%D%/new_algorithm.sh \
	%D%/fuzz.sh \
	%D%/check-layers.sh

if WEFT_HAVE_CUNIT
include tests/base/local.mk
include tests/model/local.mk
include tests/text/local.mk
include tests/cuda/local.mk
include tests/kern/local.mk
include tests/config/local.mk
include tests/schedule/local.mk
include tests/plan/local.mk
include tests/rt/local.mk
include tests/sched/local.mk
include tests/codelets/local.mk
include tests/graphs/local.mk
include tests/reward/local.mk
include tests/record/local.mk
include tests/lm/local.mk
include tests/fuse/local.mk
include tests/run/local.mk
include tests/verify/local.mk
include tests/cli/local.mk
endif

TESTS += $(sh_tests) $(check_PROGRAMS)
EXTRA_DIST += $(sh_tests) %D%/begin_ranks.sh %D%/layers_cluster.sh \
	%D%/on_ranks.sh %D%/watched.sh %D%/calls.h %D%/folder.h %D%/harness.h \
	%D%/train_step.h %D%/data %D%/fuzz

# The fuzz targets, for long runs: build/fuzz/fuzz_x tests/fuzz/corpus/x
fuzz:
	$(AM_TESTS_ENVIRONMENT) WEFT_FUZZ_SECONDS=0 \
	    $(SHELL) $(srcdir)/%D%/fuzz.sh
if WEFT_FUZZ
all-local: fuzz
endif

# Tests that take too long for every push.
check-long: weft$(EXEEXT) tests/rt/test_ranks$(EXEEXT) \
		tests/plan/test_search$(EXEEXT) tests/run/test_find$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/%D%/run/random.sh 30
	@$(AM_TESTS_ENVIRONMENT) WEFT_LONG=1 $(SHELL) $(srcdir)/%D%/learns.sh
	@$(AM_TESTS_ENVIRONMENT) WEFT_LONG=1 $(SHELL) $(srcdir)/%D%/commands.sh
	@$(AM_TESTS_ENVIRONMENT) WEFT_LONG=1 tests/plan/test_search
	@$(AM_TESTS_ENVIRONMENT) WEFT_LONG=1 tests/run/test_find
	@$(AM_TESTS_ENVIRONMENT) WEFT_FUZZ_SECONDS=60 $(SHELL) $(srcdir)/%D%/fuzz.sh
.PHONY: check-cards check-cards-long check-long

clean-tests:
	rm -rf starpu-home fuzz
.PHONY: clean-tests fuzz
