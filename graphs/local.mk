# SPDX-License-Identifier: Apache-2.0
graphs_sources = \
	%D%/algorithms.c %D%/algorithms.h \
	%D%/cispo.c \
	%D%/copies.c %D%/copies.h \
	%D%/dapo.c \
	%D%/deal.c %D%/deal.h \
	%D%/dpo.c \
	%D%/dr_grpo.c \
	%D%/gather.c %D%/gather.h \
	%D%/generate.c \
	%D%/graphs.h \
	%D%/grpo.c \
	%D%/gspo.c \
	%D%/infer.c \
	%D%/keys.h %D%/keys_data.c %D%/keys_policy.c %D%/keys_roles.c \
	%D%/keys_values.c \
	%D%/kto.c \
	%D%/layout.c %D%/layout.h \
	%D%/held.c \
	%D%/metrics.c %D%/metrics.h \
	%D%/model.c \
	%D%/offload.c \
	%D%/policy.c %D%/policy.h \
	%D%/preference.c %D%/preference.h \
	%D%/ppo.c \
	%D%/pipeline.c %D%/pipeline.h \
	%D%/reallocate.c \
	%D%/reinforce_pp.c \
	%D%/reinforce_pp_baseline.c \
	%D%/reward_model.c \
	%D%/rloo.c \
	%D%/settings.c \
	%D%/sft.c \
	%D%/shard.c %D%/shard.h \
	%D%/stage.c %D%/stage.h \
	%D%/stage_backward.c \
	%D%/tiles.h \
	%D%/train.c \
	%D%/update.c %D%/update.h \
	%D%/update_inside.h \
	%D%/update_weights.c
