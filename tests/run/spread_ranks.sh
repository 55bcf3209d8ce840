#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_spread as 2, 3 and 5 processes. There a rank asks for more memory than
# there can be.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
ASAN_OPTIONS=$ASAN_OPTIONS:allocator_may_return_null=1
for n in 2 3 5; do
    on_ranks $n "$WEFT_BUILDDIR/tests/run/test_spread" >log 2>&1 ||
        complain "$n ranks: status $?"
done
exit $failed
