# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_advantage
%C%_test_advantage_LDADD = $(graphs_libs)
%C%_test_advantage_SOURCES = %D%/test_advantage.c %D%/task_fixture.h
check_PROGRAMS += %D%/test_emulate
%C%_test_emulate_LDADD = $(graphs_libs)
%C%_test_emulate_SOURCES = %D%/test_emulate.c %D%/task_fixture.h
check_PROGRAMS += %D%/test_gen
%C%_test_gen_LDADD = $(graphs_libs)
%C%_test_gen_SOURCES = %D%/test_gen.c
%C%_test_gen_CPPFLAGS = $(STARPU_CPPFLAGS)
check_PROGRAMS += %D%/test_group_advantage
%C%_test_group_advantage_LDADD = $(graphs_libs)
%C%_test_group_advantage_SOURCES = %D%/test_group_advantage.c \
	%D%/task_fixture.h
check_PROGRAMS += %D%/test_losses
%C%_test_losses_LDADD = $(graphs_libs)
%C%_test_losses_SOURCES = %D%/test_losses.c %D%/task_fixture.h
check_PROGRAMS += %D%/test_work
%C%_test_work_LDADD = $(graphs_libs)
%C%_test_work_SOURCES = %D%/test_work.c
%C%_test_work_CPPFLAGS = $(STARPU_CPPFLAGS)
gpus_headers = %D%/gpus_fixture.h %D%/task_fixture.h \
	tests/cuda/card_orders.h tests/cuda/cpu_bits.h
if WEFT_HAVE_CUDA
if WEFT_STARPU_CUDA
cards_tests += %D%/test_gpus
%C%_test_gpus_SOURCES = %D%/test_gpus.c $(gpus_headers)
%C%_test_gpus_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpus_LDADD = $(graphs_libs)
cards_tests += %D%/test_gpu_copies
%C%_test_gpu_copies_SOURCES = %D%/test_gpu_copies.c $(gpus_headers)
%C%_test_gpu_copies_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_copies_LDADD = $(graphs_libs)
cards_tests += %D%/test_gpu_messages
%C%_test_gpu_messages_SOURCES = %D%/test_gpu_messages.c $(gpus_headers)
%C%_test_gpu_messages_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_messages_LDADD = $(graphs_libs)
cards_tests += %D%/test_gpu_memory
%C%_test_gpu_memory_SOURCES = %D%/test_gpu_memory.c $(gpus_headers)
%C%_test_gpu_memory_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_memory_LDADD = $(graphs_libs)
cards_tests += %D%/test_gpu_bodies
%C%_test_gpu_bodies_SOURCES = %D%/test_gpu_bodies.c $(gpus_headers)
%C%_test_gpu_bodies_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_bodies_LDADD = $(graphs_libs)
cards_tests += %D%/test_gpu_gen
%C%_test_gpu_gen_SOURCES = %D%/test_gpu_gen.c $(gpus_headers)
%C%_test_gpu_gen_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_gen_LDADD = $(graphs_libs)
cards_tests += %D%/test_gpu_losses
%C%_test_gpu_losses_SOURCES = %D%/test_gpu_losses.c $(gpus_headers)
%C%_test_gpu_losses_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_losses_LDADD = $(graphs_libs)
cards_tests += %D%/test_gpu_training
%C%_test_gpu_training_SOURCES = %D%/test_gpu_training.c $(gpus_headers)
%C%_test_gpu_training_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_training_LDADD = $(graphs_libs)
endif
endif
EXTRA_DIST += %D%/test_gpus.c %D%/test_gpu_bodies.c %D%/test_gpu_copies.c \
	%D%/test_gpu_gen.c %D%/test_gpu_losses.c %D%/test_gpu_memory.c \
	%D%/test_gpu_messages.c %D%/test_gpu_training.c %D%/gpus_fixture.h
