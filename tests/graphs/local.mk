# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_generate
%C%_test_generate_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_train
%C%_test_train_LDADD = $(graphs_libs)
check_PROGRAMS += %D%/test_layouts
%C%_test_layouts_LDADD = $(graphs_libs)
check_PROGRAMS += %D%/test_reallocate
%C%_test_reallocate_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_offload
%C%_test_offload_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_offload_LDADD = $(graphs_libs)
EXTRA_DIST += %D%/layout_fixture.h
check_PROGRAMS += %D%/test_gradient_tree
%C%_test_gradient_tree_LDADD = $(all_libs)
check_PROGRAMS += %D%/test_shards
%C%_test_shards_LDADD = $(graphs_libs)
if WEFT_HAVE_CUDA
if WEFT_STARPU_CUDA
cards_tests += %D%/test_gpu_moves
%C%_test_gpu_moves_SOURCES = %D%/test_gpu_moves.c \
	tests/codelets/gpus_fixture.h tests/codelets/task_fixture.h \
	tests/cuda/card_orders.h
%C%_test_gpu_moves_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_moves_LDADD = $(graphs_libs)
cards_tests += %D%/test_gpu_generate
%C%_test_gpu_generate_SOURCES = %D%/test_gpu_generate.c \
	%D%/generate_fixture.h tests/codelets/gpus_fixture.h \
	tests/codelets/task_fixture.h tests/cuda/card_orders.h
%C%_test_gpu_generate_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_generate_LDADD = $(all_libs)
cards_tests += %D%/test_gpu_chunks
%C%_test_gpu_chunks_SOURCES = %D%/test_gpu_chunks.c \
	%D%/chunks_fixture.h %D%/generate_fixture.h tests/codelets/gpus_fixture.h \
	tests/codelets/task_fixture.h tests/cuda/card_orders.h
%C%_test_gpu_chunks_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_chunks_LDADD = $(all_libs)
%C%_test_gpu_chunks_LDFLAGS = -Wl,--wrap=weft_gen_graph_nodes
cards_tests += %D%/test_gpu_stages
%C%_test_gpu_stages_SOURCES = %D%/test_gpu_stages.c \
	%D%/chunks_fixture.h %D%/generate_fixture.h \
	tests/codelets/gpus_fixture.h tests/codelets/task_fixture.h \
	tests/cuda/card_orders.h
%C%_test_gpu_stages_CPPFLAGS = $(STARPU_CPPFLAGS) $(CUDA_CFLAGS)
%C%_test_gpu_stages_LDADD = $(all_libs)
endif
endif
EXTRA_DIST += %D%/test_gpu_moves.c %D%/test_gpu_chunks.c \
	%D%/test_gpu_generate.c %D%/test_gpu_stages.c \
	%D%/chunks_fixture.h %D%/generate_fixture.h
