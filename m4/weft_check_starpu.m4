# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_STARPU: the task runtime. Run after WEFT_CHECK_MPI.
#
# 1.3.10 is what Debian 12 ships and what everything was measured on; 1.4 is
# accepted and preferred; 1.2 has no STARPU_WORKER_ORDER and no end deps.
# --with-starpu=PREFIX, else deps/starpu of the build folder or of build/
# (where ./quickstart puts it), else what pkg-config finds.
#
# One that tools/build-starpu made is private: `make install` takes its
# libraries along.
#
# Outputs: STARPU_CFLAGS (as -isystem: its headers are not ours to warn
# about), STARPU_LIBS, STARPU_RPATH (empty for a system's), STARPU_LIBDIR,
# STARPU_PC_LIBS (for weft.pc), weft_have_starpu, weft_why_starpu,
# weft_starpu_mpi, weft_starpu_cuda (yes, no), weft_starpu_libdir;
# WEFT_STARPU_NAME in config.h; the conditionals WEFT_PRIVATE_STARPU and
# WEFT_STARPU_CUDA.
AC_DEFUN([WEFT_CHECK_STARPU], [
    AC_REQUIRE([PKG_PROG_PKG_CONFIG])
    AC_ARG_WITH([starpu], [AS_HELP_STRING([--with-starpu=PREFIX],
        [where StarPU 1.3 or 1.4 is installed])], [], [with_starpu=guess])
    AS_CASE([$with_starpu],
        [no], [AC_MSG_ERROR([Weft cannot do without StarPU])],
        [guess|yes], [
            for weft_d in "`pwd`" "`cd $srcdir && pwd`/build"; do
                AS_IF([test -d "$weft_d/deps/starpu/lib/pkgconfig"],
                    [with_starpu=$weft_d/deps/starpu; break])
            done
        ])
    weft_save_path=$PKG_CONFIG_PATH
    AS_CASE([$with_starpu], [guess|yes], [], [
        AS_IF([test ! -d "$with_starpu/lib/pkgconfig"], [AC_MSG_ERROR(
            [--with-starpu: no lib/pkgconfig under '$with_starpu'])])
        PKG_CONFIG_PATH=$with_starpu/lib/pkgconfig:$PKG_CONFIG_PATH
        weft_distcheck_flags="$weft_distcheck_flags --with-starpu=$with_starpu"
    ])
    export PKG_CONFIG_PATH
    weft_have_starpu=no
    weft_why_starpu="no starpu-1.4 or starpu-1.3 by pkg-config"
    weft_starpu_mpi=no
    weft_starpu_cuda=no
    weft_starpu_module=
    weft_starpu_private=no
    STARPU_RPATH=
    AC_MSG_CHECKING([for StarPU])
    for weft_v in 1.4 1.3; do
        AS_IF([$PKG_CONFIG --exists "starpu-$weft_v >= 1.3.9"],
            [weft_starpu_module=$weft_v; break])
    done
    AS_IF([test -z "$weft_starpu_module"], [AC_MSG_RESULT([no])], [
        weft_why_starpu=`$PKG_CONFIG --modversion starpu-$weft_starpu_module`
        AC_MSG_RESULT([$weft_why_starpu])
        AS_IF([$PKG_CONFIG --exists starpumpi-$weft_starpu_module],
            [weft_starpu_mpi=yes])
        AS_IF([test "$weft_starpu_mpi:$weft_have_mpi" = yes:yes],
            [weft_modules="starpumpi-$weft_starpu_module starpu-$weft_starpu_module"],
            [weft_modules=starpu-$weft_starpu_module])
        weft_starpu_libdir=`$PKG_CONFIG --variable=libdir starpu-$weft_starpu_module`
        STARPU_CFLAGS=`$PKG_CONFIG --cflags $weft_modules |
            sed -e 's/-I *\//-isystem \//g'`
        STARPU_LIBS="`$PKG_CONFIG --libs $weft_modules`"
        # RUNPATH, which lets LD_LIBRARY_PATH choose the FxT library.
        AS_CASE([$weft_starpu_libdir], [/usr/lib|/usr/lib/*], [],
            [STARPU_RPATH="-Wl,-rpath,$weft_starpu_libdir"])
        AS_IF([test -r "$weft_starpu_libdir/../.weft-stamp"],
            [weft_starpu_private=yes])
        weft_save_CPPFLAGS=$CPPFLAGS
        weft_save_LIBS=$LIBS
        CPPFLAGS="$CPPFLAGS $STARPU_CFLAGS"
        LIBS="$STARPU_LIBS $STARPU_RPATH $LIBS"
        AC_MSG_CHECKING([that StarPU compiles and links])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <starpu.h>
#if STARPU_MAJOR_VERSION < 1
#error "headers without a version"
#endif
]], [[return starpu_init(NULL);]])], [
            AC_MSG_RESULT([yes])
            weft_have_starpu=yes
        ], [
            AC_MSG_RESULT([no])
            weft_why_starpu="starpu-$weft_starpu_module is there but a program does not link"
        ])
        AC_PREPROC_IFELSE([AC_LANG_PROGRAM([[#include <starpu_config.h>
#ifndef STARPU_USE_CUDA
#error no
#endif
]])], [weft_starpu_cuda=yes])
        AC_PREPROC_IFELSE([AC_LANG_PROGRAM([[#include <starpu_config.h>
#if STARPU_MAXCPUS < 8 || STARPU_NMAXBUFS < 16
#error no
#endif
]])], [], [weft_warnings="$weft_warnings
  - this StarPU has few workers or buffers compiled in (Debian's binary has
    4 CPU workers); tools/build-starpu makes a better one"])
        CPPFLAGS=$weft_save_CPPFLAGS
        LIBS=$weft_save_LIBS
        AC_DEFINE_UNQUOTED([WEFT_STARPU_NAME], ["StarPU $weft_why_starpu"],
            [the StarPU of the build])
    ])
    PKG_CONFIG_PATH=$weft_save_path
    STARPU_LIBDIR=$weft_starpu_libdir
    STARPU_PC_LIBS="$STARPU_LIBS $STARPU_RPATH"
    AS_IF([test $weft_starpu_private = yes], [
        STARPU_PC_LIBS=`AS_ECHO(["$STARPU_LIBS"]) |
            sed "s,-L$weft_starpu_libdir *,,"`
        STARPU_PC_LIBS="-L\${libdir}/weft -Wl,-rpath,\${libdir}/weft $STARPU_PC_LIBS"
    ])
    AM_CONDITIONAL([WEFT_PRIVATE_STARPU], [test $weft_starpu_private = yes])
    AM_CONDITIONAL([WEFT_STARPU_CUDA], [test $weft_starpu_cuda = yes])
    AC_SUBST([STARPU_CFLAGS])
    AC_SUBST([STARPU_LIBS])
    AC_SUBST([STARPU_RPATH])
    AC_SUBST([STARPU_LIBDIR])
    AC_SUBST([STARPU_PC_LIBS])
])
