# SPDX-License-Identifier: Apache-2.0
graphs_sources = \
	%D%/algorithms.h \
	%D%/copies.c %D%/copies.h \
	%D%/gather.c %D%/gather.h \
	%D%/generate.c \
	%D%/graphs.h \
	%D%/infer.c \
	%D%/layout.c %D%/layout.h \
	%D%/memory.c \
	%D%/model.c \
	%D%/offload.c \
	%D%/ppo.c \
	%D%/pipeline.c %D%/pipeline.h \
	%D%/reallocate.c \
	%D%/sft.c \
	%D%/shard.c %D%/shard.h \
	%D%/stage.c %D%/stage.h \
	%D%/stage_backward.c \
	%D%/tiles.h \
	%D%/train.c \
	%D%/update.c %D%/update.h \
	%D%/update_inside.h \
	%D%/update_weights.c
