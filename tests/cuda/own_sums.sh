#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Some tests of cards where products have an order of sums of their own, as
# cuBLASLt has: GPUs are compared with GPUs bit for bit, with CPUs to a
# tolerance. WEFT_CARDS_SUMS=own with check-cards runs all of them so.
set -u
failed=0
for test in codelets/test_gpu_training graphs/test_gpu_generate; do
    out=$(WEFT_CARDS_SUMS=own "$WEFT_BUILDDIR/tests/$test" 2>&1) || {
        echo "FAIL: $test"
        echo "$out"
        failed=1
    }
done
exit $failed
