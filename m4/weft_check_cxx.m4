# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_CXX: a C++ compiler, for tests alone: with it the kernels for
# GPUs (C++, as nvcc wants it) run on the CPU. Automake and libtool need not
# know: tests/cuda/local.mk has the rules.
#
# Outputs: CXX, CXXFLAGS (overridable), CXX_FMA, WEFT_HAVE_CXX as automake
# conditional, weft_have_cxx, weft_why_cxx.
AC_DEFUN([WEFT_CHECK_CXX], [
    AC_ARG_VAR([CXX], [C++ compiler, for tests of kernels for GPUs])
    AC_ARG_VAR([CXXFLAGS], [its flags])
    AS_IF([test -z "$CXXFLAGS"], [CXXFLAGS="-g -O2"])
    weft_have_cxx=no
    weft_why_cxx="no C++ compiler; kernels for GPUs are not tested"
    AC_CHECK_PROGS([CXX], [g++ clang++ c++])
    AS_IF([test -n "$CXX"], [
        weft_cxx_v=`$CXX --version 2>/dev/null | head -n 1`
        AC_MSG_CHECKING([that $CXX compiles C++17])
        AS_ECHO(["inline int weft_two = 2;
int weft_add(int n) { if constexpr (sizeof n > 1) n += weft_two; return n; }"]) >conftest.cc
        AS_IF([AC_TRY_COMMAND([$CXX -std=c++17 $CXXFLAGS -c conftest.cc -o conftest_cc.o >&AS_MESSAGE_LOG_FD 2>&1])],
            [weft_have_cxx=yes; weft_why_cxx=$weft_cxx_v],
            [weft_why_cxx="$CXX does not compile C++17 (see config.log)"])
        rm -f conftest.cc conftest_cc.o
        AC_MSG_RESULT([$weft_have_cxx])
    ])
    # Tests run where they are built: fmaf() becomes an instruction there.
    CXX_FMA=
    AS_IF([grep -qw fma /proc/cpuinfo 2>/dev/null], [CXX_FMA=-mfma])
    AC_SUBST([CXX_FMA])
    AM_CONDITIONAL([WEFT_HAVE_CXX], [test $weft_have_cxx = yes])
])
