# SPDX-License-Identifier: Apache-2.0
graphs_sources = \
	%D%/algorithms.c %D%/algorithms.h \
	%D%/cispo.c \
	%D%/dapo.c \
	%D%/dpo.c \
	%D%/dr_grpo.c \
	%D%/grpo.c \
	%D%/gspo.c \
	%D%/keys.h %D%/keys_data.c %D%/keys_policy.c %D%/keys_roles.c \
	%D%/keys_values.c \
	%D%/kto.c \
	%D%/metrics.c %D%/metrics.h \
	%D%/policy.c %D%/policy.h \
	%D%/ppo.c \
	%D%/preference.c %D%/preference.h \
	%D%/reinforce_pp.c \
	%D%/reinforce_pp_baseline.c \
	%D%/remax.c \
	%D%/reward_model.c \
	%D%/rloo.c \
	%D%/settings.c \
	%D%/sft.c \
	%D%/calls/calls.h \
	%D%/calls/copies.c %D%/calls/copies.h \
	%D%/calls/deal.c %D%/calls/deal.h \
	%D%/calls/follow.c \
	%D%/calls/gather.c %D%/calls/gather.h \
	%D%/calls/generate.c %D%/calls/generate_inside.h \
	%D%/calls/generate_instances.c %D%/calls/generate_move.c \
	%D%/calls/held.c \
	%D%/calls/infer.c \
	%D%/calls/layout.c %D%/calls/layout.h \
	%D%/calls/model.c \
	%D%/calls/offload.c \
	%D%/calls/pipeline.c %D%/calls/pipeline.h \
	%D%/calls/reallocate.c %D%/calls/reallocate_inside.h \
	%D%/calls/reallocate_tiles.c \
	%D%/calls/relays.c %D%/calls/relays.h \
	%D%/calls/shard.c %D%/calls/shard.h \
	%D%/calls/stage.c %D%/calls/stage.h \
	%D%/calls/stage_backward.c %D%/calls/stage_exchange.c \
	%D%/calls/stage_forward.c %D%/calls/stage_gang.c \
	%D%/calls/stage_value.c \
	%D%/calls/tiles.h \
	%D%/calls/train.c \
	%D%/calls/update.c %D%/calls/update.h \
	%D%/calls/update_inside.h \
	%D%/calls/update_weights.c
