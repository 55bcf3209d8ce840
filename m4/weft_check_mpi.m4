# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_MPI: several ranks. --disable-mpi switches it off.
#
# MPI 3.0 (2012) is the first with non-blocking collectives. The compiler
# stays ours: the wrapper mpicc is only asked for its flags.
#
# Outputs: MPI_CFLAGS, MPI_LIBS, MPIEXEC (substituted), WEFT_HAVE_MPI and
# HAVE_MPIX_QUERY_CUDA_SUPPORT in config.h, WEFT_HAVE_MPI as automake
# conditional, weft_have_mpi, weft_why_mpi. StarPU
# must have MPI as well: WEFT_CHECK_MPI_STARPU, after WEFT_CHECK_STARPU,
# takes it back if not.
AC_DEFUN([WEFT_CHECK_MPI], [
    AC_ARG_ENABLE([mpi], [AS_HELP_STRING([--disable-mpi],
        [one rank only])], [], [enable_mpi=guess])
    AC_ARG_VAR([MPICC], [MPI compiler wrapper, asked for its flags])
    AC_ARG_VAR([MPIEXEC], [program that starts ranks])
    weft_have_mpi=no
    weft_why_mpi="switched off by --disable-mpi"
    MPI_CFLAGS=
    MPI_LIBS=
    AS_IF([test "x$enable_mpi" != xno], [
        AC_PATH_PROGS([MPICC], [mpicc mpicc.openmpi mpicc.mpich])
        AC_PATH_PROGS([MPIEXEC], [mpiexec mpirun])
        weft_why_mpi="no mpicc (Debian: libopenmpi-dev openmpi-bin)"
        AS_IF([test -n "$MPICC"], [
            AS_IF([MPI_CFLAGS=`$MPICC -showme:compile 2>/dev/null`],
                [MPI_LIBS=`$MPICC -showme:link 2>/dev/null`],
                [weft_mpi=`$MPICC -show 2>/dev/null | cut -d' ' -f2-`
                 MPI_CFLAGS=`echo "$weft_mpi" | tr ' ' '\n' |
                     grep -e '^-[[ID]]' | tr '\n' ' '`
                 MPI_LIBS=`echo "$weft_mpi" | tr ' ' '\n' |
                     grep -e '^-[[lLW]]' | tr '\n' ' '`])
            MPI_CFLAGS=`echo "$MPI_CFLAGS" | sed -e 's/-I *\//-isystem \//g'`
            weft_save_CPPFLAGS=$CPPFLAGS
            weft_save_LIBS=$LIBS
            CPPFLAGS="$CPPFLAGS $MPI_CFLAGS"
            LIBS="$MPI_LIBS $LIBS"
            AC_MSG_CHECKING([that MPI compiles and links])
            AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#if MPI_VERSION < 3
#error "MPI 3.0 is needed"
#endif
]], [[return MPI_Init(NULL, NULL);]])], [
                weft_have_mpi=yes
                weft_why_mpi=$MPICC
                weft_mpi_v=`$MPICC -showme:version 2>/dev/null |
                    sed -n 's/.*Open MPI \([[0-9.]]*\).*/Open MPI \1/p'`
                test -n "$weft_mpi_v" && weft_why_mpi=$weft_mpi_v
            ], [weft_why_mpi="$MPICC is there but a program does not link"])
            AC_MSG_RESULT([$weft_have_mpi])
            dnl Whether it sends what lies in a GPU's memory; Open MPI has the
            dnl function in a header of its own.
            AC_CHECK_HEADERS([mpi-ext.h], [], [], [#include <mpi.h>])
            AC_CHECK_FUNCS([MPIX_Query_cuda_support])
            CPPFLAGS=$weft_save_CPPFLAGS
            LIBS=$weft_save_LIBS
        ])
        AS_CASE([$enable_mpi:$weft_have_mpi], [guess:*|*:yes], [],
            [AC_MSG_ERROR([--enable-mpi was asked for, but $weft_why_mpi])])
    ], [weft_distcheck_flags="$weft_distcheck_flags --disable-mpi"])
])

AC_DEFUN([WEFT_CHECK_MPI_STARPU], [
    AS_IF([test "$weft_have_mpi:$weft_starpu_mpi" = yes:no], [
        weft_have_mpi=no
        weft_why_mpi="StarPU was built without MPI"
        AS_IF([test "x$enable_mpi" = xyes],
            [AC_MSG_ERROR([--enable-mpi was asked for, but $weft_why_mpi])])
    ])
    AS_IF([test $weft_have_mpi = yes],
        [AC_DEFINE([WEFT_HAVE_MPI], [1], [MPI and StarPU-MPI are there])
         AC_DEFINE_UNQUOTED([WEFT_MPI_NAME], ["$weft_why_mpi"],
             [the MPI of the build])],
        [MPI_CFLAGS=; MPI_LIBS=])
    AC_SUBST([MPI_CFLAGS])
    AC_SUBST([MPI_LIBS])
    AM_CONDITIONAL([WEFT_HAVE_MPI], [test $weft_have_mpi = yes])
])
