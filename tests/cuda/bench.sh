#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make bench-gpu at an emulated card: a row for each part of a tiny shape.
set -u
PYTHON=false sh "$WEFT_SRCDIR/bench/gpu.sh" --shape tiny --seconds 0 \
    >bench-gpu.txt 2>&1 || { echo "FAIL: status"; cat bench-gpu.txt; exit 1; }
failed=0
for what in 'training step, 2 layers, 32 tokens' 'decode, batch 3' \
    "weft train: SFT, over the loop's step" \
    'all layers, optimizer state offloaded' \
    'ppo iteration, 2 x (8 + 8) tokens' \
    'grpo iteration, 16 x (8 + 8) tokens' "rollout log-probs are training's" \
    'other batches and micro-batches' 'a run that goes on' 'Not measured:' \
    "PyTorch's training step and prefill: false has no PyTorch" \
    'compute-sanitizer: there is none' "TRL's GRPO (bar: 3 times as fast): false has no TRL" \
    'a peer of the PPO iteration: TRL has no PPO' \
    'log-probs beside Transformers: as PyTorch'; do
    grep -qF "$what" bench-gpu.txt || { echo "FAIL: no '$what'"; failed=1; }
done
if [ -n "${WEFT_MPIEXEC:-}" ]; then
    for layout in dp2 tp2 pp2; do
        grep -qF "2 ranks on one card, $layout" bench-gpu.txt ||
            { echo "FAIL: no $layout"; failed=1; }
    done
fi
grep RED bench-gpu.txt && failed=1
[ $failed = 0 ] || cat bench-gpu.txt
rm -f bench-gpu.txt
exit $failed
