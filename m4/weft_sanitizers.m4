# SPDX-License-Identifier: Apache-2.0
#
# WEFT_SANITIZERS: --enable-asan, --enable-ubsan, --enable-tsan,
# --enable-coverage, --enable-fuzz.
#
# The flags are kept out of CFLAGS, so that configure's own checks stay
# clean. asan and ubsan go together; tsan goes alone.
#
# Outputs: WEFT_INSTRUMENT_CFLAGS, WEFT_INSTRUMENT_LDFLAGS, weft_sanitizers
# (names), CLANG, automake conditionals WEFT_COVERAGE and WEFT_FUZZ.
AC_DEFUN([WEFT_SANITIZERS], [
    AC_ARG_ENABLE([asan], [AS_HELP_STRING([--enable-asan],
        [find memory errors at run time])])
    AC_ARG_ENABLE([ubsan], [AS_HELP_STRING([--enable-ubsan],
        [find undefined behaviour at run time])])
    AC_ARG_ENABLE([tsan], [AS_HELP_STRING([--enable-tsan],
        [find data races at run time])])
    AC_ARG_ENABLE([coverage], [AS_HELP_STRING([--enable-coverage],
        [count lines that tests run: make check-code-coverage])])
    AC_ARG_ENABLE([fuzz], [AS_HELP_STRING([--enable-fuzz],
        [build the libFuzzer targets of tests/fuzz (clang)])])
    weft_sanitizers=
    weft_instrument=
    AS_IF([test "x$enable_asan" = xyes], [
        weft_sanitizers="${weft_sanitizers:+$weft_sanitizers }asan"
        weft_instrument="$weft_instrument -fsanitize=address"])
    AS_IF([test "x$enable_ubsan" = xyes], [
        weft_sanitizers="${weft_sanitizers:+$weft_sanitizers }ubsan"
        weft_instrument="$weft_instrument -fsanitize=undefined"
        weft_instrument="$weft_instrument -fno-sanitize-recover=undefined"])
    AS_IF([test "x$enable_tsan" = xyes], [
        AS_IF([test "x$enable_asan" = xyes],
            [AC_MSG_ERROR([--enable-tsan and --enable-asan exclude each other])])
        weft_sanitizers="${weft_sanitizers:+$weft_sanitizers }tsan"
        weft_instrument="$weft_instrument -fsanitize=thread"])
    AS_IF([test -n "$weft_instrument"], [
        weft_instrument="$weft_instrument -fno-omit-frame-pointer"
        AC_MSG_CHECKING([whether $CC takes$weft_instrument])
        weft_save_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS $weft_instrument"
        AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no])
             AC_MSG_ERROR([$CC does not take$weft_instrument])])
        CFLAGS=$weft_save_CFLAGS
    ])
    AS_IF([test "x$enable_coverage" = xyes], [
        weft_instrument="$weft_instrument --coverage"
        weft_sanitizers="${weft_sanitizers:+$weft_sanitizers }coverage"
        AC_PATH_PROG([LCOV], [lcov])
        AC_PATH_PROG([GENHTML], [genhtml])
        AC_PATH_PROG([GCOVR], [gcovr])
        AS_IF([test -z "$LCOV$GCOVR"], [AC_MSG_ERROR(
            [--enable-coverage needs lcov or gcovr (Debian: lcov)])])
    ])
    AC_ARG_VAR([CLANG], [clang, for the fuzz targets])
    AC_PATH_PROGS([CLANG], [clang clang-19 clang-16 clang-15 clang-14])
    AS_IF([test "x$enable_fuzz" = xyes && test -z "$CLANG"],
        [AC_MSG_ERROR([--enable-fuzz needs clang (Debian: clang)])])
    WEFT_INSTRUMENT_CFLAGS=$weft_instrument
    WEFT_INSTRUMENT_LDFLAGS=$weft_instrument
    AC_SUBST([WEFT_INSTRUMENT_CFLAGS])
    AC_SUBST([WEFT_INSTRUMENT_LDFLAGS])
    AM_CONDITIONAL([WEFT_COVERAGE], [test "x$enable_coverage" = xyes])
    AM_CONDITIONAL([WEFT_FUZZ], [test "x$enable_fuzz" = xyes])
])
