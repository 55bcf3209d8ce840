#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kill -9 at random points: the run always goes on from a checkpoint that
# loads, loses at most what came after it, and ends with the bits of a run
# that nobody killed.
set -u
weft=$WEFT_BUILDDIR/weft
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
config=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
words="iterations=8 checkpoint.every=1 checkpoint.keep=2 ppo.epochs=8
    runtime.devices=1"

# exec: a run in the background must be the very process that is killed.
run() # name
{
    # shellcheck disable=SC2086
    exec "$weft" train -q "$config" "run_dir=$dir/$1" $words
}

weights() # name: checksums of the last checkpoint's tensors
{
    (cd "$dir/$1/checkpoints/iteration-000008" &&
        find . -name '*.safetensors' | LC_ALL=C sort | xargs cat | cksum)
}

(run whole) >/dev/null 2>"$dir/log" || { cat "$dir/log"; exit 1; }

# Delays that fall everywhere: start, iterations, checkpoints.
kills=0
for delay in 0.9 0.31 1.23 0.72 0.58 0.5 1.04 0.27 0.66 0.83 0.97 0.4; do
    run killed >"$dir/log" 2>&1 &
    pid=$!
    sleep "$delay"
    if kill -9 "$pid" 2>/dev/null; then kills=$((kills + 1)); fi
    wait "$pid" 2>/dev/null
    # Whatever has a checkpoint's name is a whole checkpoint.
    for c in "$dir"/killed/checkpoints/iteration-*; do
        [ -e "$c" ] || continue
        [ -s "$c/manifest.json" ] && [ -s "$c/optimizer/critic/exp_avg_sq.safetensors" ] ||
            { echo "half a checkpoint: $c"; exit 1; }
    done
done
[ "$kills" -ge 3 ] || { echo "only $kills runs were killed"; exit 1; }
(run killed) >"$dir/log" 2>&1 || { echo "does not resume:"; cat "$dir/log"; exit 1; }
[ "$(weights whole)" = "$(weights killed)" ] ||
    { echo "the killed run ended with other weights"; exit 1; }
lines=$(wc -l <"$dir/killed/metrics.jsonl")
[ "$lines" = 8 ] || { echo "metrics.jsonl has $lines lines, not 8"; exit 1; }
left=$(find "$dir/killed" -name '*.tmp*' | wc -l)
[ "$left" = 0 ] || { echo "$left temporary files are left"; exit 1; }
echo "$kills kills, the same bits"
