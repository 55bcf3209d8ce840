# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_SIMGRID: a StarPU that simulates its machine with SimGrid, for one
# test, which plays graphs there and in the event engine. Run after
# WEFT_CHECK_STARPU. SimGrid 3.32 is Debian 12's; StarPU 1.3.10 wants 3.12 at
# least.
#
# --with-simgrid-starpu=PREFIX, else deps/starpu-simgrid like deps/starpu.
#
# Outputs: SIMGRID_CFLAGS, SIMGRID_LIBS, weft_have_simgrid, weft_why_simgrid;
# the conditional WEFT_HAVE_SIMGRID.
AC_DEFUN([WEFT_CHECK_SIMGRID], [
    AC_ARG_WITH([simgrid-starpu],
        [AS_HELP_STRING([--with-simgrid-starpu=PREFIX],
            [a StarPU built --enable-simgrid, for a test])],
        [], [with_simgrid_starpu=guess])
    weft_have_simgrid=no
    weft_why_simgrid="no StarPU with SimGrid; tools/build-starpu makes one where libsimgrid-dev is"
    weft_simgrid=$with_simgrid_starpu
    AS_CASE([$with_simgrid_starpu],
        [no], [weft_why_simgrid="switched off by --without-simgrid-starpu"],
        [guess|yes], [
            for weft_d in "`pwd`" "`cd $srcdir && pwd`/build"; do
                weft_simgrid=$weft_d/deps/starpu-simgrid
                AS_IF([test -d "$weft_simgrid"], [break])
            done
        ])
    AC_MSG_CHECKING([for a StarPU with SimGrid])
    SIMGRID_CFLAGS=
    SIMGRID_LIBS=
    AS_IF([test "x$with_simgrid_starpu" != xno], [
        for weft_v in 1.4 1.3; do
            weft_pc=$weft_simgrid/lib/pkgconfig/starpu-$weft_v.pc
            AS_IF([test $weft_have_simgrid = no && test -r "$weft_pc"], [
                weft_have_simgrid=yes
                weft_why_simgrid=$weft_simgrid
                SIMGRID_CFLAGS=`$PKG_CONFIG --cflags "$weft_pc" |
                    sed -e 's/-I *\//-isystem \//g'`
                SIMGRID_LIBS="`$PKG_CONFIG --libs "$weft_pc"` -lsimgrid -Wl,-rpath,$weft_simgrid/lib"
            ])
        done
    ])
    AC_MSG_RESULT([$weft_have_simgrid])
    AS_CASE([$with_simgrid_starpu:$weft_have_simgrid], [guess:*|no:*|*:yes], [],
        [AC_MSG_ERROR([--with-simgrid-starpu was asked for, but there is $weft_why_simgrid])])
    AC_SUBST([SIMGRID_CFLAGS])
    AC_SUBST([SIMGRID_LIBS])
    AM_CONDITIONAL([WEFT_HAVE_SIMGRID], [test $weft_have_simgrid = yes])
])
