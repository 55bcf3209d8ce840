#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What a program that uses the library meets: the names that library and
# program export are Weft's own, so that they replace nobody else's; each
# installed header compiles alone, as C and as C++, and links as both.

set -u
failed=0

complain()
{
    echo "FAILED: $*"
    failed=1
}

# exported FILE: names; not the compiler's (_...), nor copies of a library's
# variables, which have its version (stderr@GLIBC).
exported()
{
    nm -D --defined-only "$1" | sed 's/.* //' | grep -v -e '^_' -e '@'
}

for file in .libs/libweft.so weft; do
    names=$(exported "$WEFT_BUILDDIR/$file" | grep -v '^weft_' | tr '\n' ' ')
    [ -z "$names" ] || complain "$file exports $names"
done
n=$(exported "$WEFT_BUILDDIR/.libs/libweft.so" | wc -l)
[ "$n" -gt 50 ] || complain "libweft.so exports only $n functions"

# compiles NAME compiler...: each header alone. It is included, as a file of
# its own would have functions that nobody calls.
compiles()
{
    what=$1
    shift
    for header in $WEFT_HEADERS; do
        echo "#include \"$header\"" >"$dir/one"
        "$@" -fsyntax-only -Wall -Wextra -Werror -I"$WEFT_SRCDIR" \
            -I"$WEFT_SRCDIR/src" "$dir/one" >"$dir/log" 2>&1 ||
            { cat "$dir/log"; complain "$header is no $what"; }
    done
}

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
[ "$(echo "$WEFT_HEADERS" | wc -w)" -gt 5 ] || complain "where are the headers?"
compiles C $WEFT_CC -x c -std=c11
if ! command -v c++ >/dev/null; then
    echo "C++ is left out: no compiler"
    exit $failed
fi
compiles C++ c++ -x c++ -std=c++11

# A C++ program that takes the address of all: one that is declared without
# C's linkage is not found.
for header in $WEFT_HEADERS; do
    echo "#include \"$header\""
done >"$dir/all.cc"
{
    echo 'static void (*const all[])(void) = {'
    exported "$WEFT_BUILDDIR/.libs/libweft.so" |
        sed 's/.*/    reinterpret_cast<void (*)(void)>(&),/'
    echo '}; int main() { return weft_version()[0] == 0 || !all[0]; }'
} >>"$dir/all.cc"
# shellcheck disable=SC2086
c++ $WEFT_INSTRUMENT -I"$WEFT_SRCDIR" -I"$WEFT_SRCDIR/src" -o "$dir/all" "$dir/all.cc" \
    "$WEFT_BUILDDIR/.libs/libweft.so" -Wl,-rpath,"$WEFT_BUILDDIR/.libs" \
    -Wl,--allow-shlib-undefined && "$dir/all" ||
    complain "a C++ program does not link or run"
exit $failed
