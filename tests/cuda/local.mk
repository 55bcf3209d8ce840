# SPDX-License-Identifier: Apache-2.0
# The kernels for GPUs, compiled as C++ and run on the CPU by emulated cards.
cuda_executor = %D%/libcuda_executor.a
emulator_sources = %D%/blaslt.cc %D%/copies.cc %D%/cudart.cc %D%/executor.cc \
	%D%/memory.cc %D%/streams.cc %D%/graphs.cc
cuda_executor_objects = $(emulator_sources:.cc=.o) \
	$(patsubst src/kern/%.cu,%D%/%.o,$(cuda_kernels)) \
	$(patsubst src/kern/%.c,%D%/host_%.o,$(cuda_host_sources))
cuda_executor_headers = %D%/cpu_bits.h %D%/emulator.h %D%/test_device.h \
	%D%/test_executor.h %D%/toolkit/include/cublasLt.h \
	%D%/toolkit/include/cublas_v2.h \
	%D%/toolkit/include/cuda.h %D%/toolkit/include/cuda_gl_interop.h \
	%D%/toolkit/include/cuda_runtime.h \
	%D%/toolkit/include/cuda_runtime_api.h \
	%D%/toolkit/include/cusparse.h
CUDA_EXECUTOR_FLAGS = -std=c++17 -ffp-contract=off -fno-exceptions \
	-fno-rtti -fno-threadsafe-statics -Wall -Wextra -Wno-unknown-pragmas \
	$(CXX_FMA) $(WEFT_WERROR) $(WEFT_INSTRUMENT_CFLAGS) -D_GNU_SOURCE \
	$(EMULATOR_CPPFLAGS) -I$(srcdir)/src -I.
EMULATOR_CPPFLAGS = -I$(srcdir)/tests/cuda \
	-I$(srcdir)/tests/cuda/toolkit/include
V_cxx = $(V_cxx_@AM_V@)
V_cxx_ = $(V_cxx_@AM_DEFAULT_V@)
V_cxx_0 = @echo "  CXX     " $@;
V_cxx_1 =

tests/cuda/%.o: $(srcdir)/src/kern/%.cu
	@$(MKDIR_P) $(@D)
	$(V_cxx)$(CXX) $(CUDA_EXECUTOR_FLAGS) $(CXXFLAGS) -MMD -MP -x c++ \
	    -c -o $@ $<
$(emulator_sources:.cc=.o): tests/cuda/%.o: $(srcdir)/tests/cuda/%.cc
	@$(MKDIR_P) $(@D)
	$(V_cxx)$(CXX) $(CUDA_EXECUTOR_FLAGS) $(CXXFLAGS) -MMD -MP -c -o $@ $<
$(patsubst src/kern/%.c,tests/cuda/host_%.o,$(cuda_host_sources)): \
    tests/cuda/host_%.o: $(srcdir)/src/kern/%.c
	@$(MKDIR_P) $(@D)
	$(AM_V_CC)$(CC) $(DEFS) -I. $(EMULATOR_CPPFLAGS) $(AM_CPPFLAGS) $(CPPFLAGS) \
	    $(AM_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(cuda_executor): $(cuda_executor_objects)
	$(AM_V_AR)rm -f $@ && $(AR) cr $@ $(cuda_executor_objects)
-include $(cuda_executor_objects:.o=.d)
CLEANFILES += $(cuda_executor) $(cuda_executor_objects) \
	$(cuda_executor_objects:.o=.d)
EXTRA_DIST += $(emulator_sources) $(cuda_executor_headers) %D%/no_cxx.sh \
	%D%/blas.c %D%/mpi.c %D%/toolkit/bin/nvcc

# A test of kernels runs under the executor, and once more, as card_..., on a
# GPU where the build has CUDA. Its source is the same.
cuda_test_flags = $(EMULATOR_CPPFLAGS) $(AM_CPPFLAGS)
cuda_test_libs = $(cuda_executor) $(kern_libs)
card_test_flags = $(AM_CPPFLAGS) $(CUDA_CFLAGS)

if WEFT_HAVE_CXX
check_PROGRAMS += %D%/test_executor
%C%_test_executor_SOURCES = %D%/test_executor.c
%C%_test_executor_CPPFLAGS = $(cuda_test_flags)
%C%_test_executor_LDADD = %D%/test_executor_kernels.o $(cuda_test_libs)
tests/cuda/test_executor_kernels.o: $(srcdir)/tests/cuda/test_executor_kernels.cu
	@$(MKDIR_P) $(@D)
	$(V_cxx)$(CXX) $(CUDA_EXECUTOR_FLAGS) $(CXXFLAGS) -MMD -MP -x c++ \
	    -c -o $@ $<
-include %D%/test_executor_kernels.d
CLEANFILES += %D%/test_executor_kernels.o %D%/test_executor_kernels.d
check_PROGRAMS += %D%/test_emulator
%C%_test_emulator_SOURCES = %D%/test_emulator.c
%C%_test_emulator_CPPFLAGS = $(cuda_test_flags)
%C%_test_emulator_LDADD = $(cuda_test_libs)
noinst_PROGRAMS += %D%/bench_gpu
%C%_bench_gpu_SOURCES = bench/gpu.c bench/card.h bench/gpu_decode.h \
	bench/gpu_model.h
%C%_bench_gpu_CPPFLAGS = $(cuda_test_flags)
%C%_bench_gpu_LDADD = $(cuda_test_libs)
sh_tests += %D%/bench_gpu.sh
else
sh_tests += %D%/no_cxx.sh
endif
EXTRA_DIST += %D%/test_executor_kernels.cu %D%/test_executor.c \
	%D%/test_emulator.c \
	%D%/test_cards.c %D%/card_orders.h

# Tests of StarPU on cards: of the machine, or emulated ones, where check-cards
# builds and runs them alone (tools/emulate-cards).
cards_tests =
cards_scripts = %D%/training.sh %D%/changes.sh %D%/bench.sh %D%/devices.sh \
	%D%/memory.sh %D%/messages.sh %D%/own_sums.sh %D%/verify.sh
EXTRA_DIST += $(cards_scripts) %D%/algorithms.sh %D%/cards.sh
if WEFT_HAVE_CUDA
if WEFT_STARPU_CUDA
cards_tests += %D%/test_cards
%C%_test_cards_SOURCES = %D%/test_cards.c %D%/card_orders.h
%C%_test_cards_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_cards_LDADD = $(kern_libs) $(starpu_deps)
endif
endif
check_PROGRAMS += $(cards_tests)
# What they are without all that only emulated cards have must compile, too. Of
# the programs the longest come first.
cards_first = $(filter %/test_gpu_stages %/test_gpu_chunks,$(cards_tests))
cards_in_order = $(cards_first) $(filter-out $(cards_first),$(cards_tests)) \
	$(cards_scripts)
check-cards: $(BUILT_SOURCES) weft$(EXEEXT) bench/gpu$(EXEEXT) \
    examples/01_score$(EXEEXT) examples/02_generate$(EXEEXT)
	for t in $(cards_tests); do \
	    $(CC) $(DEFS) -I. -DWEFT_CUDA_AS_ON_A_CARD $(AM_CPPFLAGS) \
	        $(STARPU_CPPFLAGS) $(CUDA_CFLAGS) $(CPPFLAGS) $(AM_CFLAGS) $(CFLAGS) \
	        -O0 -S -o /dev/null $(srcdir)/$$t.c || exit 1; \
	done
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS check_DATA= \
	    check_PROGRAMS='$(cards_tests)' \
	    TESTS='$(cards_in_order)'
# What takes too long for every push: each algorithm with a model, a layout and
# options of its own, runs drawn at random, and every row of weft verify on GPUs
# with every algorithm.
check-cards-long: weft$(EXEEXT) tests/rt/test_ranks$(EXEEXT)
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/%D%/algorithms.sh
	@$(AM_TESTS_ENVIRONMENT) $(SHELL) $(srcdir)/tests/run/random.sh 30 15 cards
	@$(AM_TESTS_ENVIRONMENT) WEFT_CARDS=8 ./weft$(EXEEXT) verify --rows 'gpu*' \
	    --mpiexec "$(MPIEXEC)"
# For tools/bundle-gpu: all that a machine with a card alone can run.
card_programs = weft$(EXEEXT) bench/gpu$(EXEEXT) $(cards_tests) \
	$(filter tests/kern/card_%,$(check_PROGRAMS))
card-programs: $(BUILT_SOURCES) $(card_programs)
card-programs-list:
	@echo $(card_programs)
