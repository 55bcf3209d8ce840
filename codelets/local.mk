# SPDX-License-Identifier: Apache-2.0
codelets_sources = \
	%D%/adamw.c \
	%D%/advantage.c \
	%D%/access_list.c %D%/access_list.h \
	%D%/codelets.h \
	%D%/data.c %D%/data.h \
	%D%/embed.c \
	%D%/embed_part.c \
	%D%/emulate.c \
	%D%/gang.c %D%/gang.h \
	%D%/gate.c \
	%D%/gen.c %D%/gen.h \
	%D%/gen_chunk.c %D%/gen_chunk_gpu.c \
	%D%/gen_gpu.c %D%/gen_gpu.h \
	%D%/gen_graphs.c \
	%D%/gen_group_gpu.c \
	%D%/gen_draw.c \
	%D%/gen_pages.c %D%/gen_pages.h \
	%D%/gen_prefix.c \
	%D%/gen_play.c \
	%D%/gen_member.c \
	%D%/gen_stage.c \
	%D%/gen_retire.c \
	%D%/gen_cache.c \
	%D%/gen_step.c \
	%D%/gpu.c %D%/gpu.h \
	%D%/gradient.c \
	%D%/generation.h \
	%D%/group.h \
	%D%/group_advantage.c \
	%D%/head.h \
	%D%/head_merge.c \
	%D%/head_part.c \
	%D%/infer.c %D%/infer_stage.c \
	%D%/layer.c \
	%D%/layer_part.c \
	%D%/layer_part_backward.c \
	%D%/loss.c %D%/loss.h \
	%D%/member.h \
	%D%/mix.c %D%/reorder.c \
	%D%/open.c \
	%D%/pack.c \
	%D%/parts.c %D%/parts.h \
	%D%/preference.c \
	%D%/score.c %D%/score.h \
	%D%/work.c %D%/work.h
