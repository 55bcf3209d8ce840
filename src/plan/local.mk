# SPDX-License-Identifier: Apache-2.0
plan_sources = \
	%D%/deal.c %D%/deal.h \
	%D%/layout.c %D%/layout.h \
	%D%/layout_check.c \
	%D%/layout_idle.c \
	%D%/mesh.c \
	%D%/moves.c \
	%D%/order.c \
	%D%/plan_explain.c \
	%D%/plan_json.c \
	%D%/recording.c %D%/recording.h \
	%D%/recording_order.c \
	%D%/stages.c \
	%D%/schedule.h \
	%D%/schedule_baseline.c \
	%D%/schedule_compare.c \
	%D%/schedule_file.h \
	%D%/schedule_greedy.c \
	%D%/schedule_json.c \
	%D%/schedule_problem.c \
	%D%/schedule_read.c \
	%D%/schedule_summary.c \
	%D%/schedule_svg.c \
	%D%/schedule_tasks.c %D%/schedule_tasks.h \
	%D%/schedule_time.c \
	%D%/schedule_bounds.c \
	%D%/schedule_bounds_memory.c \
	%D%/schedule_refute.c %D%/schedule_refute.h \
	%D%/schedule_refute_rules.c \
	%D%/schedule_search.c \
	%D%/schedule_search_anneal.c \
	%D%/schedule_search_list.c \
	%D%/schedule_search_restart.c %D%/schedule_search_restart.h \
	%D%/schedule_search_rule.c \
	%D%/schedule_search_metropolis.c \
	%D%/schedule_search_swap.c \
	%D%/schedule_search_tabu.c \
	%D%/schedule_search_until.c \
	%D%/schedule_jobshop.c %D%/schedule_jobshop.h \
	%D%/schedule_jobshop_time.c \
	%D%/schedule_trace.c \
	%D%/task.c %D%/task.h
