# SPDX-License-Identifier: Apache-2.0
config_sources = \
	%D%/check.c \
	%D%/config.h \
	%D%/given.c \
	%D%/keys.h \
	%D%/names.c \
	%D%/read.c %D%/read.h \
	%D%/read_reward.c \
	%D%/schema.c %D%/schema.h \
	%D%/set.c \
	%D%/table.c \
	%D%/write.c
