#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bench-layouts`: what layouts cost, as tables. On a quiet machine.
set -eu
bench=$WEFT_BUILDDIR/bench
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

ranks() # n command...
{
    n=$1
    shift
    "$WEFT_MPIEXEC" --oversubscribe --bind-to none -n "$n" "$@"
}

echo "== Reallocation, one process"
"$bench/layouts" moves
if [ -n "${WEFT_MPIEXEC:-}" ]; then
    echo "== Reallocation, two ranks"
    ranks 2 "$bench/layouts" moves
    echo "== Submission"
    for n in 1 2 4 8 16; do
        ranks $n "$bench/layouts" submit
    done
fi

echo "== Devices"
for dtype in f32 bf16; do
    for devices in 1 2; do
        "$bench/model" --size 1m --dtype $dtype --devices $devices
    done
done

echo "== Peak memory of a run, largest of 4 devices, MiB; 8 layers, f32"
echo "layout                  weights gradients optim.       kv  activat." \
    " samples      all predicted"
weft=$WEFT_BUILDDIR/weft
"$weft" init --hidden 128 --layers 8 --heads 8 --intermediate 512 \
    --tokenizer bytes --max-positions 64 -o "$dir/model" >"$dir/log" 2>&1
for layout in dp1 dp4 dp4,zero=1 dp4,zero=2 dp4,zero=3 tp4 pp4 dp2tp2 \
    tp2pp2 tp2pp2,recompute; do
    "$weft" train "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" \
        run_dir="$dir/run" iterations=1 rollout.prompts=32 rollout.slots=16 \
        model.actor="$dir/model" model.critic="$dir/model" \
        model.reference="$dir/model" runtime.devices=4 runtime.place=device \
        layout=$layout -q >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
    "$bench/layouts" memory $layout "$dir/run/plan.json"
    rm -rf "$dir/run"
done
