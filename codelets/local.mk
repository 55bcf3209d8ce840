# SPDX-License-Identifier: Apache-2.0
codelets_sources = \
	%D%/adamw.c \
	%D%/advantage.c \
	%D%/bag.c %D%/bag.h \
	%D%/codelets.h \
	%D%/data.c %D%/data.h \
	%D%/embed.c \
	%D%/gen_chunk.c \
	%D%/gen_retire.c \
	%D%/gradient.c \
	%D%/group.h \
	%D%/head.h \
	%D%/infer.c \
	%D%/layer.c \
	%D%/loss.c \
	%D%/pack.c
