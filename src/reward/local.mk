# SPDX-License-Identifier: Apache-2.0
reward_sources = \
	%D%/boxed.c \
	%D%/process.c %D%/process.h \
	%D%/program.c %D%/program.h \
	%D%/reward.c %D%/reward.h
