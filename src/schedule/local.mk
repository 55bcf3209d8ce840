# SPDX-License-Identifier: Apache-2.0
schedule_sources = \
	%D%/baseline.c \
	%D%/bounds.c \
	%D%/bounds_memory.c \
	%D%/compare.c \
	%D%/file.h \
	%D%/greedy.c \
	%D%/jobshop.c %D%/jobshop.h \
	%D%/jobshop_time.c \
	%D%/json.c \
	%D%/problem.c \
	%D%/read.c \
	%D%/refute.c %D%/refute.h \
	%D%/refute_rules.c \
	%D%/schedule.h \
	%D%/search/anneal.c \
	%D%/search/draw.c \
	%D%/search/list.c \
	%D%/search/metropolis.c \
	%D%/search/restart.c %D%/search/restart.h \
	%D%/search/rule.c \
	%D%/search/search.c %D%/search/search.h \
	%D%/search/swap.c \
	%D%/search/tabu.c \
	%D%/search/until.c \
	%D%/summary.c \
	%D%/svg.c \
	%D%/tasks.c %D%/tasks.h \
	%D%/time.c \
	%D%/trace.c
EXTRA_DIST += %D%/README
