# SPDX-License-Identifier: Apache-2.0
run_sources = \
	%D%/ahead.c %D%/ahead.h \
	%D%/checkpoint.c %D%/checkpoint.h \
	%D%/common.c %D%/common.h \
	%D%/digest.c %D%/digest.h \
	%D%/gpu_products.c %D%/gpu_products.h \
	%D%/info.c %D%/info.h \
	%D%/scorer.c %D%/scorer.h \
	%D%/iteration.c %D%/iteration.h \
	%D%/iteration_advantage.c \
	%D%/iteration_data.c \
	%D%/iteration_deal.c \
	%D%/iteration_early.c \
	%D%/iteration_generate.c \
	%D%/iteration_infer.c \
	%D%/iteration_left.c \
	%D%/iteration_metrics.c \
	%D%/iteration_reward.c \
	%D%/iteration_samples.c \
	%D%/iteration_text.c \
	%D%/iteration_times.c \
	%D%/iteration_train.c \
	%D%/plans.c %D%/plans.h \
	%D%/predict/again.c %D%/predict/again.h \
	%D%/predict/auto.c %D%/predict/auto.h \
	%D%/predict/batch.c %D%/predict/batch.h \
	%D%/predict/compare.c %D%/predict/compare.h \
	%D%/predict/divided.c %D%/predict/divided.h \
	%D%/predict/draw.c \
	%D%/predict/known.c %D%/predict/known.h \
	%D%/predict/largest.c %D%/predict/largest.h \
	%D%/predict/limit.c %D%/predict/limit.h \
	%D%/predict/memory.c %D%/predict/memory.h \
	%D%/predict/memory_check.c \
	%D%/predict/find.c %D%/predict/find_inside.h %D%/predict/find_problems.c \
	%D%/predict/moving.c %D%/predict/moving.h \
	%D%/predict/options.c %D%/predict/options.h \
	%D%/predict/spread.c %D%/predict/spread.h \
	%D%/predict/options_fused.c \
	%D%/predict/options_inside.h \
	%D%/predict/together.c %D%/predict/together.h \
	%D%/predict/weigh.c %D%/predict/weigh.h \
	%D%/predict/options_moved.c \
	%D%/predict/price.c %D%/predict/price.h %D%/predict/price_recorded.h \
	%D%/predict/price_least.c %D%/predict/price_sizes.c \
	%D%/predict/price_lengths.c \
	%D%/predict/pricer.c \
	%D%/predict/pricer_inside.h %D%/predict/candidates.c %D%/predict/candidates_inside.h \
	%D%/predict/candidates_price.c \
	%D%/predict/recorded.c %D%/predict/recorded.h \
	%D%/predict/replay.c %D%/predict/replay.h \
	%D%/predict/scale.c %D%/predict/scale.h \
	%D%/predict/enough.c %D%/predict/enough.h \
	%D%/predict/shortage.c %D%/predict/shortage.h \
	%D%/predict/simulate.c %D%/predict/simulate.h \
	%D%/predict/simulation.h \
	%D%/predict/simulate_run.c %D%/predict/simulate_run.h \
	%D%/predict/times.c %D%/predict/times.h \
	%D%/prompts.c %D%/prompts.h \
	%D%/prompts_row.c \
	%D%/reward_state.c %D%/reward_state.h \
	%D%/reward_text.c %D%/reward_text.h \
	%D%/run_dir.c %D%/run_dir.h \
	%D%/seen.c %D%/seen.h \
	%D%/tail.c %D%/tail.h %D%/tail_inside.h \
	%D%/tail_costs.c %D%/tail_file.c \
	%D%/trainer.c %D%/trainer.h \
	%D%/trainer_step.c \
	%D%/trainer_tiles.c

