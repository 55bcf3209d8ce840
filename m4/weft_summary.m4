# SPDX-License-Identifier: Apache-2.0
#
# WEFT_SUMMARY: the box at the end, by topic, with the reason when "no";
# WEFT_CONFIGURE_SUMMARY in config.h holds the same lines for `weft info`.
AC_DEFUN([WEFT_SUMMARY_LINE], [
    weft_line=`printf '  %-12s %s' "$1" "$2"`
    weft_summary="$weft_summary
$weft_line"
    weft_summary_c="$weft_summary_c$weft_line\\n"
])

AC_DEFUN([WEFT_SUMMARY_HAVE], [
    AS_IF([test "x$weft_have_$2" = xyes],
        [WEFT_SUMMARY_LINE([$1], [yes ($weft_why_$2)])],
        [WEFT_SUMMARY_LINE([$1], [no: $weft_why_$2])])
])

AC_DEFUN([WEFT_SUMMARY], [
    weft_summary=
    weft_summary_c=
    weft_cc_v=`$CC --version | head -n 1`
    WEFT_SUMMARY_LINE([version], [$PACKAGE_VERSION])
    AS_IF([test "x$prefix" = xNONE], [weft_prefix=$ac_default_prefix],
        [weft_prefix=$prefix])
    WEFT_SUMMARY_LINE([prefix], [$weft_prefix])
    WEFT_SUMMARY_LINE([compiler], [$weft_cc_v])
    WEFT_SUMMARY_LINE([flags], [$CFLAGS $WEFT_OPT_CFLAGS $WEFT_WERROR])
    WEFT_SUMMARY_LINE([sanitizers], [${weft_sanitizers:-none}])
    WEFT_SUMMARY_HAVE([StarPU], [starpu])
    WEFT_SUMMARY_HAVE([FxT traces], [fxt])
    WEFT_SUMMARY_HAVE([SimGrid], [simgrid])
    WEFT_SUMMARY_HAVE([MPI], [mpi])
    WEFT_SUMMARY_HAVE([CUDA], [cuda])
    WEFT_SUMMARY_HAVE([C++ (tests)], [cxx])
    WEFT_SUMMARY_HAVE([hwloc], [hwloc])
    WEFT_SUMMARY_HAVE([jansson], [jansson])
    WEFT_SUMMARY_HAVE([libyaml], [yaml])
    WEFT_SUMMARY_HAVE([PCRE2], [pcre2])
    WEFT_SUMMARY_HAVE([xxHash], [xxhash])
    WEFT_SUMMARY_HAVE([CUnit], [cunit])
    AC_DEFINE_UNQUOTED([WEFT_CONFIGURE_SUMMARY], ["$weft_summary_c"],
        [what configure found, a line each])
])

# After AC_OUTPUT.
AC_DEFUN([WEFT_SUMMARY_PRINT], [
    AS_ECHO(["
Weft
$weft_summary"])
    AS_IF([test -n "$weft_warnings"], [AS_ECHO(["
  Please note:$weft_warnings"])])
    AS_ECHO(["
  Now: make && make check
"])
])
