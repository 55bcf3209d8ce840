# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_init
%C%_test_init_LDADD = libweft_lm.la $(text_libs) $(model_libs)
check_PROGRAMS += %D%/test_generate
%C%_test_generate_SOURCES = %D%/test_generate.c %D%/goldens.h
%C%_test_generate_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_rollout
%C%_test_rollout_SOURCES = %D%/test_rollout.c tests/graphs/generate_fixture.h
%C%_test_rollout_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_rollout_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_stops
%C%_test_stops_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_replicas
%C%_test_replicas_LDADD = $(all_libs)
if WEFT_HAVE_CUDA
if WEFT_STARPU_CUDA
cards_tests += %D%/test_gpu_goldens
%C%_test_gpu_goldens_SOURCES = %D%/test_gpu_goldens.c %D%/goldens.h
%C%_test_gpu_goldens_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_goldens_LDADD = $(all_libs)
cards_tests += %D%/test_gpu_context
%C%_test_gpu_context_SOURCES = %D%/test_gpu_context.c tests/folder.h \
	tests/cuda/cpu_bits.h
%C%_test_gpu_context_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_context_LDADD = $(all_libs)
endif
endif
EXTRA_DIST += %D%/test_gpu_context.c %D%/test_gpu_goldens.c %D%/goldens.h
