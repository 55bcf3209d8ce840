# SPDX-License-Identifier: Apache-2.0
#
# WEFT_WARNINGS: every flag is tried before it is used.
#
# Warnings are errors in a git checkout (a developer sees them at once), not
# in a tarball (a newer compiler must not stop a user), nor with sanitizers
# (which make gcc warn about what it then cannot see). `make WEFT_WERROR=`
# lifts it for one call.
#
# Outputs: WEFT_WARN_CFLAGS, WEFT_WERROR.
AC_DEFUN([WEFT_TRY_CFLAG], [
    AC_CACHE_CHECK([whether $CC takes $1],
        [AS_TR_SH([weft_cv_cflag_$1])], [
        weft_save_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS -Werror $1"
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
            [AS_TR_SH([weft_cv_cflag_$1])=yes],
            [AS_TR_SH([weft_cv_cflag_$1])=no])
        CFLAGS=$weft_save_CFLAGS
    ])
    AS_IF([test "$AS_TR_SH([weft_cv_cflag_$1])" = yes], [$2], [$3])
])

AC_DEFUN([WEFT_WARN], [WEFT_TRY_CFLAG([$1],
    [WEFT_WARN_CFLAGS="$WEFT_WARN_CFLAGS $1"])])

AC_DEFUN([WEFT_WARNINGS], [
    AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror],
        [warnings are errors (default: in a git checkout)])],
        [], [enable_werror=guess])
    WEFT_WARN_CFLAGS=
    WEFT_WARN([-Wall])
    WEFT_WARN([-Wextra])
    # A second variable of the same name: one of the two is read by mistake.
    WEFT_WARN([-Wshadow])
    # A size that silently loses bits; signs alone are too noisy.
    WEFT_WARN([-Wconversion])
    WEFT_WARN([-Wno-sign-conversion])
    # Functions nobody declared: a header forgotten, or a missing static.
    WEFT_WARN([-Wstrict-prototypes])
    WEFT_WARN([-Wmissing-prototypes])
    WEFT_WERROR=
    AS_CASE([$enable_werror],
        [yes], [WEFT_WERROR=-Werror],
        [guess], [AS_IF([test -e "$srcdir/.git" &&
            test -z "$weft_sanitizers"], [WEFT_WERROR=-Werror])])
    AC_SUBST([WEFT_WARN_CFLAGS])
    AC_SUBST([WEFT_WERROR])
])
