# SPDX-License-Identifier: Apache-2.0
#
# WEFT_PKG(NAME, PKG, MINIMUM, HEADER, FUNCTION, DEBIAN-PACKAGE)
#
# What the macros of single libraries share. --with-NAME=PATH looks in
# PATH/lib/pkgconfig first; --without-NAME does not look at all.
#
# Outputs: NAME_CFLAGS, NAME_LIBS (substituted), the shell variables
# weft_have_NAME (yes, no) and weft_why_NAME (the version, or the reason),
# and WEFT_HAVE_NAME in config.h.
AC_DEFUN([WEFT_PKG], [
    AC_REQUIRE([PKG_PROG_PKG_CONFIG])
    m4_pushdef([WEFT_UP], m4_toupper([$1]))
    AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1=PATH],
        [where $1 is installed; --without-$1 to leave it out])],
        [], [with_$1=guess])
    weft_have_$1=no
    weft_why_$1="switched off by --without-$1"
    AS_IF([test "x$with_$1" != xno], [
        weft_save_path=$PKG_CONFIG_PATH
        AS_CASE([$with_$1], [guess|yes], [], [
            PKG_CONFIG_PATH=$with_$1/lib/pkgconfig:$PKG_CONFIG_PATH
            weft_distcheck_flags="$weft_distcheck_flags --with-$1=$with_$1"
        ])
        export PKG_CONFIG_PATH
        PKG_CHECK_MODULES(WEFT_UP, [$2 >= $3], [
            weft_save_CPPFLAGS=$CPPFLAGS
            weft_save_LIBS=$LIBS
            CPPFLAGS="$CPPFLAGS $WEFT_UP[]_CFLAGS"
            LIBS="$WEFT_UP[]_LIBS $LIBS"
            AC_MSG_CHECKING([that $1 compiles and links])
            AC_LINK_IFELSE([AC_LANG_PROGRAM([[#define PCRE2_CODE_UNIT_WIDTH 8 /* pcre2.h wants to be told */
#include <stddef.h>
#include <stdio.h>
#include <$4>
]], [[void *volatile p = (void *) $5; return p == NULL;]])], [
                AC_MSG_RESULT([yes])
                weft_have_$1=yes
                weft_why_$1=`$PKG_CONFIG --modversion $2`
                AC_DEFINE([WEFT_HAVE_]WEFT_UP, [1], [$1 is there])
            ], [
                AC_MSG_RESULT([no])
                weft_why_$1="$2 is there but <$4> does not compile or link"
            ])
            CPPFLAGS=$weft_save_CPPFLAGS
            LIBS=$weft_save_LIBS
        ], [
            weft_why_$1="no $2 >= $3 by pkg-config (Debian: $6)"
        ])
        PKG_CONFIG_PATH=$weft_save_path
        AS_CASE([$with_$1:$weft_have_$1], [guess:*|*:yes], [],
            [AC_MSG_ERROR([--with-$1 was asked for, but $weft_why_$1])])
        AS_UNSET([weft_save_path])
        AS_UNSET([weft_save_CPPFLAGS])
        AS_UNSET([weft_save_LIBS])
    ])
    AC_SUBST(WEFT_UP[_CFLAGS])
    AC_SUBST(WEFT_UP[_LIBS])
    m4_popdef([WEFT_UP])
])

# WEFT_NEED(NAME, DEBIAN-PACKAGE): configure cannot succeed without NAME.
# The sentence comes once, for all that is missing, from WEFT_NEED_ALL.
AC_DEFUN([WEFT_NEED], [
    AS_IF([test "x$weft_have_$1" != xyes], [
        weft_missing="$weft_missing
    $1: $weft_why_$1"
        weft_missing_debs="$weft_missing_debs $2"
    ])
])

AC_DEFUN([WEFT_NEED_ALL], [
    AS_IF([test -n "$weft_missing"], [AC_MSG_ERROR([missing:$weft_missing
  on Debian: apt install$weft_missing_debs
  or let ./quickstart build do all of it])])
])
