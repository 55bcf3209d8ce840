# SPDX-License-Identifier: Apache-2.0
sched_sources = \
	%D%/heap.h \
	%D%/lanes.c \
	%D%/sched.h
