#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What a program that uses the library meets: the names that library and
# program export are Weft's own, so that they replace nobody else's.

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
exit $failed
