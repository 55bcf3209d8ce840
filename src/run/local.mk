# SPDX-License-Identifier: Apache-2.0
run_sources = \
	%D%/checkpoint.c %D%/checkpoint.h \
	%D%/common.c %D%/common.h \
	%D%/compare.c %D%/compare.h \
	%D%/digest.c %D%/digest.h \
	%D%/info.c %D%/info.h \
	%D%/iteration_generate.c \
	%D%/iteration_text.c \
	%D%/reward_text.c %D%/reward_text.h \
	%D%/reward_state.c %D%/reward_state.h \
	%D%/gpu_products.c %D%/gpu_products.h \
	%D%/largest.c %D%/largest.h \
	%D%/memory.c %D%/memory.h \
	%D%/memory_check.c \
	%D%/iteration.c %D%/iteration.h \
	%D%/iteration_data.c \
	%D%/iteration_infer.c \
	%D%/iteration_metrics.c \
	%D%/iteration_reward.c \
	%D%/iteration_samples.c \
	%D%/iteration_times.c \
	%D%/iteration_train.c \
	%D%/prompts.c %D%/prompts.h \
	%D%/prompts_row.c \
	%D%/recorded.c %D%/recorded.h \
	%D%/replay.c %D%/replay.h \
	%D%/run_dir.c %D%/run_dir.h \
	%D%/simulate.c %D%/simulate.h \
	%D%/simulate_run.c %D%/simulate_run.h \
	%D%/trainer.c %D%/trainer.h \
	%D%/trainer_step.c

