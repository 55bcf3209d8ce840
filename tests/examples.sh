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

# A layout per call on two ranks ends with the bits of one device.
weft=$WEFT_BUILDDIR/weft
short="iterations=2 rollout.prompts=16 checkpoint.every=0"
judged="reward=[{type: exact_match}, \
{type: model, model: $dir/judge, weight: 0.01}]"
if [ -z "${WEFT_MPIEXEC:-}" ] || ! "$weft" info | grep -q '^  MPI  *yes'; then
    echo "five examples; layouts skipped: built without MPI"
    exit 0
fi
. "$WEFT_SRCDIR/tests/on_ranks.sh"
expect "judge" "$weft" init --hidden 128 --layers 2 --heads 4 \
    --intermediate 384 --scalar --tokenizer "$src/quickstart/model" \
    -o "$dir/judge"
expect "2 iterations" on_ranks 2 "$weft" train "$src/layouts/ppo.yaml" \
    run_dir="$dir/ranks" $short "$judged"
expect "2 iterations" "$weft" train "$src/layouts/ppo.yaml" \
    run_dir="$dir/one" $short "$judged" plan= runtime.devices=1
expect "rank 1: KL" on_ranks 2 "$bin/05_ppo_loop" \
    "$src/quickstart/ppo.yaml" 0.0001 "run_dir=$dir/loop2" \
    rollout.prompts=16 layout=dp2 runtime.devices=1
for f in digests/000001.json digests/000002.json \
    checkpoints/iteration-000002/actor/model.safetensors \
    checkpoints/iteration-000002/critic/model.safetensors; do
    cmp "$dir/ranks/$f" "$dir/one/$f" || { echo "FAIL layouts: $f"; exit 1; }
done
echo "six examples"
