# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_CUNIT: the tests. Optional: without it `make check` runs the shell tests only.
#
# 2.1 is the interface of 2006; every distribution has it.
AC_DEFUN([WEFT_CHECK_CUNIT],
    [WEFT_PKG([cunit], [cunit], [2.1], [CUnit/Basic.h], [CU_basic_run_tests], [libcunit1-dev])])
