# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_lanes
%C%_test_lanes_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_lanes_LDADD = $(sched_libs)
check_PROGRAMS += %D%/test_engine
%C%_test_engine_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_engine_LDADD = $(sched_libs)
