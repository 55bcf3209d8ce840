#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every example runs, and says what it promises.
set -u
bin=$WEFT_BUILDDIR/examples
src=$WEFT_SRCDIR/examples
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# expect 'text' command...
expect()
{
    text=$1
    shift
    "$@" >"$dir/out" 2>&1 || { echo "FAIL $*"; cat "$dir/out"; exit 1; }
    grep -qF -- "$text" "$dir/out" ||
        { echo "FAIL $*: no '$text' in"; cat "$dir/out"; exit 1; }
}

expect "log p of the text" "$bin/01_score" "$src/quickstart/model" \
    "sort 30754: 03457"
expect "the same seed again: the same bits" "$bin/02_generate" \
    "$src/quickstart/model" "sort 30754: "
expect "both micro-batches: the same bits" "$bin/03_layer_graph"
expect "48 samples scored" "$bin/04_reward" "$src/04_reward.yaml" \
    "run_dir=$dir/reward"
expect "stopping here" "$bin/05_ppo_loop" "$src/quickstart/ppo.yaml" 0.0001 \
    "run_dir=$dir/loop" rollout.prompts=16
[ -s "$dir"/loop/checkpoints/iteration-*/actor/model.safetensors ] ||
    { echo "FAIL 05_ppo_loop left no checkpoint"; exit 1; }
echo "five examples"
