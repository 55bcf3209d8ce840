# SPDX-License-Identifier: Apache-2.0
#
# WEFT_CHECK_FXT: a second StarPU, built with FxT, whose libraries a run with
# `trace: true` is given by LD_LIBRARY_PATH. Run after WEFT_CHECK_STARPU.
#
# --with-fxt-starpu=PREFIX, else deps/starpu-fxt like deps/starpu. Its
# headers must say the same limits as the StarPU of the build: the soname
# does not tell.
#
# Outputs: WEFT_FXT_LIBDIR and WEFT_FXT_BINDIR in config.h (empty strings
# when there is none), weft_have_fxt, weft_why_fxt; FXT_PREFIX, one that
# tools/build-starpu made, which `make install` takes along.
AC_DEFUN([WEFT_CHECK_FXT], [
    AC_ARG_WITH([fxt-starpu], [AS_HELP_STRING([--with-fxt-starpu=PREFIX],
        [a StarPU built --with-fxt, for runs with traces])],
        [], [with_fxt_starpu=guess])
    weft_have_fxt=no
    weft_why_fxt="no StarPU with FxT; tools/build-starpu makes one"
    weft_fxt_libdir=
    weft_fxt_bindir=
    weft_fxt=$with_fxt_starpu
    AS_CASE([$with_fxt_starpu],
        [no], [weft_why_fxt="switched off by --without-fxt-starpu"],
        [guess|yes], [
            for weft_d in "`pwd`" "`cd $srcdir && pwd`/build"; do
                weft_fxt=$weft_d/deps/starpu-fxt
                AS_IF([test -d "$weft_fxt"], [break])
            done
        ])
    AC_MSG_CHECKING([for a StarPU with FxT])
    AS_IF([test "x$with_fxt_starpu" != xno && test -x "$weft_fxt/bin/starpu_fxt_tool"], [
        weft_fxt_conf=`ls "$weft_fxt"/include/starpu/1.*/starpu_config.h 2>/dev/null`
        weft_conf=`echo "$STARPU_CFLAGS" | tr ' ' '\n' |
            sed -n 's,^\(/.*/starpu/1\..*\)$,\1/starpu_config.h,p' | head -n 1`
        AS_IF([grep -v -e USE_FXT "$weft_fxt_conf" >conftest.fxt &&
               grep -v -e USE_FXT "$weft_conf" >conftest.plain &&
               cmp -s conftest.fxt conftest.plain], [
            weft_have_fxt=yes
            weft_why_fxt=$weft_fxt
            weft_fxt_libdir=$weft_fxt/lib
            weft_fxt_bindir=$weft_fxt/bin
            AS_IF([test "x$with_fxt_starpu" != xguess],
                [weft_distcheck_flags="$weft_distcheck_flags --with-fxt-starpu=$weft_fxt"])
        ], [
            weft_why_fxt="$weft_fxt was configured otherwise than the StarPU of the build"
        ])
        rm -f conftest.fxt conftest.plain
    ])
    AC_MSG_RESULT([$weft_have_fxt])
    AS_CASE([$with_fxt_starpu:$weft_have_fxt], [guess:*|no:*|*:yes], [],
        [AC_MSG_ERROR([--with-fxt-starpu was asked for, but $weft_why_fxt])])
    FXT_PREFIX=
    AS_IF([test -r "$weft_fxt/.weft-stamp" && test $weft_have_fxt = yes],
        [FXT_PREFIX=$weft_fxt])
    AC_SUBST([FXT_PREFIX])
    AC_DEFINE_UNQUOTED([WEFT_FXT_LIBDIR], ["$weft_fxt_libdir"],
        [libraries of a StarPU with FxT; empty: none])
    AC_DEFINE_UNQUOTED([WEFT_FXT_BINDIR], ["$weft_fxt_bindir"],
        [programs of a StarPU with FxT (starpu_fxt_tool); empty: none])
])
