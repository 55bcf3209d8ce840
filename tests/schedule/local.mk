# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_time
%C%_test_time_LDADD = $(schedule_libs)
check_PROGRAMS += %D%/test_compare
%C%_test_compare_LDADD = $(schedule_libs)
check_PROGRAMS += %D%/test_baseline
%C%_test_baseline_LDADD = $(schedule_libs)
check_PROGRAMS += %D%/test_exhaustive
%C%_test_exhaustive_SOURCES = %D%/test_exhaustive.c \
	%D%/exhaustive.c %D%/exhaustive.h
%C%_test_exhaustive_LDADD = $(schedule_libs)
check_PROGRAMS += %D%/test_problem
%C%_test_problem_LDADD = $(schedule_libs)
EXTRA_DIST += %D%/schedule_fixture.h
check_PROGRAMS += %D%/test_bounds
%C%_test_bounds_SOURCES = %D%/test_bounds.c \
	%D%/jobshop_fixture.h \
	%D%/exhaustive.c %D%/exhaustive.h
%C%_test_bounds_LDADD = $(schedule_libs)
check_PROGRAMS += %D%/test_search
%C%_test_search_SOURCES = %D%/test_search.c \
	%D%/jobshop_fixture.h \
	%D%/exhaustive.c %D%/exhaustive.h
%C%_test_search_LDADD = $(schedule_libs)
# Checks a schedule file; tests/cli/schedule.sh and the examples use it.
noinst_PROGRAMS += %D%/check_schedule
%C%_check_schedule_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
%C%_check_schedule_LDADD = $(JANSSON_LIBS) -lm
check_PROGRAMS += %D%/test_read
%C%_test_read_LDADD = $(schedule_libs)
check_PROGRAMS += %D%/test_search_until
%C%_test_search_until_LDADD = $(schedule_libs)
