# SPDX-License-Identifier: Apache-2.0
run_sources = \
	%D%/config.c %D%/config.h \
	%D%/config_check.c \
	%D%/config_keys.h \
	%D%/config_set.c \
	%D%/config_table.c \
	%D%/config_write.c \
	%D%/edit_distance.c %D%/edit_distance.h \
	%D%/reward.c %D%/reward.h \
	%D%/reward_boxed.c \
	%D%/reward_program.c %D%/reward_program.h \
	%D%/text.c %D%/text.h
