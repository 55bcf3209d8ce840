# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_recording
%C%_test_recording_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_deal
%C%_test_deal_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_layout
%C%_test_layout_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_mesh
%C%_test_mesh_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_moves
%C%_test_moves_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_order
%C%_test_order_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_stages
%C%_test_stages_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_layout_check
%C%_test_layout_check_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_plan_json
%C%_test_plan_json_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_plan_explain
%C%_test_plan_explain_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_schedule_time
%C%_test_schedule_time_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_schedule_compare
%C%_test_schedule_compare_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_schedule_baseline
%C%_test_schedule_baseline_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_schedule_exhaustive
%C%_test_schedule_exhaustive_SOURCES = %D%/test_schedule_exhaustive.c \
	%D%/schedule_exhaustive.c %D%/schedule_exhaustive.h
%C%_test_schedule_exhaustive_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_schedule_problem
%C%_test_schedule_problem_LDADD = $(plan_libs)
EXTRA_DIST += %D%/schedule_fixture.h
check_PROGRAMS += %D%/test_schedule_bounds
%C%_test_schedule_bounds_SOURCES = %D%/test_schedule_bounds.c \
	%D%/jobshop_fixture.h \
	%D%/schedule_exhaustive.c %D%/schedule_exhaustive.h
%C%_test_schedule_bounds_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_schedule_search
%C%_test_schedule_search_SOURCES = %D%/test_schedule_search.c \
	%D%/jobshop_fixture.h \
	%D%/schedule_exhaustive.c %D%/schedule_exhaustive.h
%C%_test_schedule_search_LDADD = $(plan_libs)
# Checks a schedule file; tests/cli/schedule.sh and the examples use it.
noinst_PROGRAMS += %D%/check_schedule
%C%_check_schedule_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_check_schedule_LDADD = $(JANSSON_LIBS) -lm
check_PROGRAMS += %D%/test_schedule_read
%C%_test_schedule_read_LDADD = $(plan_libs)
check_PROGRAMS += %D%/test_schedule_search_until
%C%_test_schedule_search_until_LDADD = $(plan_libs)
