#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The recipe of examples/gsm8k on GSM8K's questions, with a small random model
# and few steps: fine-tuning's loss falls, and PPO goes on from its model.
set -u
weft=$WEFT_BUILDDIR/weft
example=$WEFT_SRCDIR/examples/gsm8k
model=$WEFT_TEST_DATA/gsm8k/model
data=${WEFT_GSM8K:-$WEFT_SRCDIR/../shared/data/gsm8k}/test.jsonl
if [ ! -f "$data" ]; then
    echo "skipped: no '$data' here; WEFT_GSM8K names GSM8K's folder"
    exit 77
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# train FILE word...
train()
{
    file=$1
    shift
    "$weft" train -q "$example/$file.yaml" "run_dir=$dir/$file" \
        "data.path=$data" "$@" >"$dir/out" 2>&1 ||
        { echo "FAIL $file"; cat "$dir/out"; exit 1; }
    grep -E "^(loss|score)" "$dir/out"
}

train sft "model.actor=$model" iterations=10 train.batch=16 actor.lr=1e-2 \
    actor.warmup_steps=0
awk '$1 == "loss" { falls = $4 < $2 } END { exit !falls }' "$dir/out" ||
    { echo "FAIL the loss does not fall"; exit 1; }
actor=$(ls -d "$dir"/sft/checkpoints/*/actor)
train ppo "model.actor=$actor" "model.critic=$actor" iterations=1 \
    rollout.prompts=4 rollout.samples_per_prompt=2 rollout.max_new_tokens=16
for tag in reward/gsm8k/mean reward/form/mean; do
    grep -q "\"$tag\"" "$dir/ppo/metrics.jsonl" ||
        { echo "FAIL no $tag"; exit 1; }
done
