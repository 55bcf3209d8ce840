# SPDX-License-Identifier: Apache-2.0
check_PROGRAMS += %D%/test_topology
%C%_test_topology_LDADD = $(base_libs)
