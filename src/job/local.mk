# SPDX-License-Identifier: Apache-2.0
job_sources = \
	%D%/as_completed.c %D%/as_completed.h \
	%D%/profile.c %D%/profile.h \
	%D%/profile_generate.c %D%/profile_inside.h \
	%D%/profile_memory.c %D%/profile_messages.c \
	%D%/profile_moves.c %D%/profile_samples.c \
	%D%/profile_train.c \
	%D%/cluster_info.c %D%/cluster_info.h \
	%D%/gpus.c %D%/gpus.h \
	%D%/inputs.c %D%/inputs.h \
	%D%/plan_needs.c %D%/plan_needs.h \
	%D%/run_config.c %D%/run_config.h \
	%D%/same.c %D%/same.h \
	%D%/trace.c %D%/trace.h
