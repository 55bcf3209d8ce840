# SPDX-License-Identifier: Apache-2.0
graphs_sources = \
	%D%/generate.c \
	%D%/graphs.h \
	%D%/infer.c \
	%D%/micro_batch.c %D%/micro_batch.h \
	%D%/model.c \
	%D%/train.c
