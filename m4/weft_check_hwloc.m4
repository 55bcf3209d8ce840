# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_HWLOC: cores, caches, NUMA nodes. Optional: without it the system's own counts.
#
# 2.0 moved memory out of the tree of cores (NUMA nodes became children of
# their own kind), which src/base/topology.c relies on; Debian 11 has 2.4.
AC_DEFUN([WEFT_CHECK_HWLOC],
    [WEFT_PKG([hwloc], [hwloc], [2.0], [hwloc.h], [hwloc_topology_load], [libhwloc-dev])])
