# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_lanes
%C%_test_lanes_CPPFLAGS = $(STARPU_CPPFLAGS)
%C%_test_lanes_LDADD = $(sched_libs)
