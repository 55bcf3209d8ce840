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
    "log-probs of Transformers' files, llama" \
    'log-probs beside Transformers, of random weights: as PyTorch'; do
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

# What has no time to end is told, and the rest goes on.
WEFT_BENCH_LIMIT_S=0.01 PYTHON=false sh "$WEFT_SRCDIR/bench/gpu.sh" \
    --shape tiny --seconds 0 >bench-gpu.txt 2>/dev/null
[ $? = 1 ] || { echo "FAIL: status without time"; failed=1; }
for what in 'the rows that bench/gpu had left of tiny: it was ended after 0.01 s' \
    "the graph's overhead, tiny: bench/gpu has no training step" \
    'whole tiny with offloaded optimizer state: it was ended' \
    'a run that goes on, bits: it was ended' \
    'ppo of tiny: it was ended' "TRL's GRPO (bar: 3 times as fast)"; do
    grep -qF -e "- $what" bench-gpu.txt ||
        { echo "FAIL: without time, no '$what'"; cat bench-gpu.txt; failed=1; }
done
grep 'RED' bench-gpu.txt && { echo "FAIL: without time, a result"; failed=1; }

# Nor do all parts together take more than there is: here since 1970.
WEFT_BENCH_BEGUN=1 PYTHON=false sh "$WEFT_SRCDIR/bench/gpu.sh" \
    --shape tiny --seconds 0 >bench-gpu.txt 2>/dev/null
[ $? = 1 ] || { echo "FAIL: status with no time left"; failed=1; }
for what in 'the rows that bench/gpu had left of tiny' 'the same results of small' \
    "log-probs of Transformers' files, qwen3" \
    'whole tiny with offloaded optimizer state' 'ppo of tiny' \
    "PyTorch's training step and prefill: false has no PyTorch with \
Transformers that sees this GPU (PYTHON=... for another)"; do
    grep -qF -e "- $what: no time was left of 600 s" bench-gpu.txt ||
        { echo "FAIL: no time left, no '$what'"; cat bench-gpu.txt; failed=1; }
done
rm -f bench-gpu.txt
sh "$WEFT_SRCDIR/bench/gpu.sh" --shape 70b 2>/dev/null
[ $? = 2 ] || { echo "FAIL: status of another shape"; failed=1; }
exit $failed
