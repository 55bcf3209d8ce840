#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make bench-gpu at an emulated card: a row for each part of a tiny shape.
set -u
PYTHON=false sh "$WEFT_SRCDIR/bench/gpu.sh" --shape tiny --seconds 0 \
    >bench-gpu.txt 2>&1 || { echo "FAIL: status"; cat bench-gpu.txt; exit 1; }
failed=0
for what in 'training step, 2 layers, 32 tokens' 'decode, batch 3' \
    "weft train: SFT, over the loop's step" \
    'PPO iteration, 2 x (8 + 8) tokens' 'Nothing beside it'; do
    grep -qF "$what" bench-gpu.txt || { echo "FAIL: no '$what'"; failed=1; }
done
[ $failed = 0 ] || cat bench-gpu.txt
rm -f bench-gpu.txt
exit $failed
