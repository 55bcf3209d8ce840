#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs on emulated cards hold, by the cards' own count, no more than weft plan
# predicts, and need no more: each has as much as is predicted for it.
set -u
weft=$WEFT_BUILDDIR/weft
quick=$WEFT_SRCDIR/examples/quickstart
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

fail()
{
    echo "FAIL: $*"
    sed 's/^/    /' out
    failed=1
}

# The most bytes of any of the first N devices, by a plan's file.
predicted() # FILE N
{
    sed -n '/"memory":/,/\]/p' "$1" | awk -v n="$2" '
        match($0, /"device": [0-9]*/) {
            device = substr($0, RSTART + 10, RLENGTH - 10) + 0
            match($0, /"all": [0-9]*/)
            all = substr($0, RSTART + 7, RLENGTH - 7) + 0
            if (device < n && all > most)
                most = all
        }
        END { printf "%d\n", most }'
}

within() # CARDS CONFIG words: a run in the memory that is predicted for it
{
    cards=$1 config=$2
    shift 2
    set -- "$config" runtime.devices=gpu "$@"
    WEFT_CARDS=$cards "$weft" plan "$@" -o plan.json >out 2>&1 ||
        { fail "plan $*: status"; return; }
    bytes=$(predicted plan.json "$cards")
    [ "$bytes" -gt 0 ] || fail "plan $*: no memory"
    gib=$(awk -v n="$bytes" 'BEGIN { printf "%.9f", (n + 1024) / 2^30 }')
    rm -rf run peaks
    WEFT_CARDS=$cards WEFT_CARDS_PEAKS=peaks "$weft" train -q "$@" \
        run_dir=run runtime.gpu_memory_gib="$gib" >out 2>&1 ||
        fail "$*: does not run in $bytes bytes"
    grep -q "were predicted" out && fail "$*: more memory"
    awk -v most="$bytes" '$1 > most || $1 < most / 4 { exit 1 }' peaks ||
        fail "$*: held $(cat peaks), $bytes were predicted"
}

"$weft" init --hidden 64 --layers 2 --heads 4 --kv-heads 1 \
    --intermediate 192 --max-positions 64 -o small >out 2>&1 || fail init
"$weft" init --hidden 256 --layers 4 --heads 4 --kv-heads 1 \
    --intermediate 1024 --max-positions 64 -o large >out 2>&1 || fail init
# StarPU measures the buses once, in memory of the cards.
WEFT_CARDS=2 "$weft" train -q "$quick/sft.yaml" model.actor="$dir/small" \
    run_dir=run iterations=1 train.batch=4 runtime.devices=gpu >out 2>&1 ||
    fail start

sft() # CARDS MODEL words
{
    cards=$1 model=$2
    shift 2
    within "$cards" "$quick/sft.yaml" model.actor="$dir/$model" \
        iterations=2 train.batch=4 "$@"
}
sft 1 small layout=dp1
sft 2 small layout=pp2
sft 1 small layout=dp1tp1pp1,offload_optimizer numerics.dtype=bf16
sft 2 large layout=tp2
sft 2 large layout=dp2tp1pp1,zero=3 train.recompute=true

ppo() # CARDS words
{
    cards=$1
    shift
    within "$cards" "$quick/ppo.yaml" model.actor="$dir/small" \
        model.critic="$dir/small" model.reference="$dir/small" iterations=2 \
        rollout.prompts=2 rollout.max_new_tokens=4 "$@"
}
ppo 1 layout=dp1
ppo 2 layout=tp2
ppo 2 layout=pp2
ppo 2 layout=disaggregated numerics.dtype=bf16
ppo 2 layout=dp2 rollout.chunk_tokens=1 rollout.inter_stage_fusion=true \
    rollout.remaining=0.5 rollout.instances=1
exit "$failed"
