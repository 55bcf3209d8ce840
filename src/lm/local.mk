# SPDX-License-Identifier: Apache-2.0
lm_sources = \
	%D%/context.c %D%/context.h \
	%D%/init.c %D%/init.h \
	%D%/lm.c %D%/lm.h \
	%D%/lm_file.c %D%/lm_file.h \
	%D%/migration.c %D%/migration.h \
	%D%/passes.c %D%/passes.h \
	%D%/replicas.c %D%/replicas.h \
	%D%/rollout.c %D%/rollout.h %D%/rollout_inside.h \
	%D%/rollout_see.c \
	%D%/rollout_turns.c \
	%D%/steps.c %D%/steps.h \
	%D%/stops.c %D%/stops.h \
	%D%/store.c %D%/store.h \
	%D%/weights.c %D%/weights.h
