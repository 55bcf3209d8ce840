#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make pictures`: draws the pictures of doc/algorithms.md, doc/layouts.md,
# doc/schedules.md, doc/simulate.md and doc/strategies.md anew; papers.svg and
# papers_curves.svg are what `make bench-papers` draws then. trust.svg is left as
# it is: `make bench-trust` on a quiet machine draws it.
set -eu
draw=$WEFT_BUILDDIR/doc/pictures/draw
out=$WEFT_SRCDIR/doc/pictures
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

for picture in mesh blocks layer groups zero moves; do
    "$draw" $picture >"$out/$picture.svg"
done

"$WEFT_BUILDDIR/weft" plan "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" \
    --nodes 2 --devices 4 --from layout=dp2tp2pp2 --svg "$out/graph.svg" \
    >"$dir/log"

"$WEFT_BUILDDIR/weft" simulate "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" \
    --cluster "$WEFT_SRCDIR/examples/clusters/cpu_2cores.yaml" \
    --from layout=dp2 --svg "$out/simulate.svg" >"$dir/log"

"$WEFT_BUILDDIR/weft" plan "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" \
    --cluster "$WEFT_SRCDIR/examples/clusters/cpu_2cores.yaml" \
    --compare --search --svg "$out/compared.svg" >"$dir/log"

# Three seeds of the quickstart on two devices, with staleness and without: some
# minutes.
curves=
for staleness in 0 1; do
    for seed in 1 2 3; do
        "$WEFT_BUILDDIR/weft" train -q \
            "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" seed=$seed \
            run_dir="$dir/$staleness-$seed" rollout.staleness=$staleness \
            layout=disaggregated runtime.devices=2 >"$dir/log"
        curves="$curves staleness-$staleness=$dir/$staleness-$seed/metrics.jsonl"
    done
done
# shellcheck disable=SC2086
"$draw" curves $curves >"$out/staleness.svg"

# Four instances on devices of their own, of which three leave their last
# samples to one.
"$WEFT_BUILDDIR/weft" train "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" -q \
    run_dir="$dir/tail" iterations=2 rollout.prompts=96 \
    rollout.samples_per_prompt=1 rollout.max_new_tokens=48 \
    rollout.min_new_tokens=48 rollout.lengths=lognormal:10:0.8 \
    rollout.slots=24 rollout.chunk_tokens=2 \
    rollout.inter_stage_fusion=true rollout.remaining=0.25 \
    rollout.instances=1 runtime.devices=4 layout=dp4 >"$dir/log"
"$WEFT_BUILDDIR/weft" report --svg "$out/generation.svg" "$dir/tail" >"$dir/log"

problem=$WEFT_SRCDIR/examples/schedules/65b_33b.json
"$WEFT_BUILDDIR/weft" schedule "$problem" \
    --svg "$out/schedule.svg" >"$dir/log"
"$WEFT_BUILDDIR/weft" schedule "$problem" --algorithm greedy \
    --svg "$out/schedule_greedy.svg" >"$dir/log"

# A run of two devices, planned and measured.
"$WEFT_BUILDDIR/weft" train "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" -q \
    run_dir="$dir/fused" iterations=12 runtime.devices=2 \
    runtime.overlap=false layout=pp2,micro_batches=2 ppo.mini_batches=4 \
    train.intra_stage_fusion=true train.joined_mini_batches=2 >"$dir/log"
for picture in planned measured; do
    cp "$dir/fused/schedule/$picture.svg" "$out/schedule_$picture.svg"
done

# A rank per core: the times are then those of work, not of taking turns.
[ -n "${WEFT_MPIEXEC:-}" ] || exit 0
"$WEFT_MPIEXEC" --oversubscribe --bind-to none -n 2 "$WEFT_BUILDDIR/weft" \
    train "$out/timeline.yaml" run_dir="$dir/run" -q >"$dir/log"
"$draw" timeline "$dir/run/trace/trace.json" >"$out/timeline.svg"
