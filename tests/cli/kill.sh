#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kill -9 in the start, in an iteration, in the middle of a checkpoint and
# between them: the run always goes on from a checkpoint that loads, loses at
# most what came after it, and ends with the bits of a run that nobody killed.
set -u
weft=$WEFT_BUILDDIR/weft
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
config=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
words="iterations=8 checkpoint.every=1 checkpoint.keep=2 rollout.prompts=32
    ppo.epochs=2 runtime.devices=1"

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

newest() # iteration of the newest checkpoint; 0: none
{
    find "$dir/killed/checkpoints" -name 'iteration-*' -prune 2>/dev/null |
        sed 's/.*-0*//' | sort -n | tail -n 1 | grep . || echo 0
}

# come_to POINT: whether process $pid has come there
come_to()
{
    case $1 in
    start) ;;
    iteration) # its metrics are there, its checkpoint is not
        [ "$(wc -l 2>/dev/null <"$dir/killed/metrics.jsonl" || echo 0)" \
            -gt "$(newest)" ] ;;
    writing)
        [ -e "$dir/killed/checkpoints/.iteration-00000$(($(newest) + 1)).tmp-$pid" ] ;;
    written)
        [ "$(newest)" -gt "$before" ] ;;
    esac
}

kills=0
for point in start-0 written-0 writing-0 iteration-0 start-0.3 writing-0.01 \
    iteration-0.05 written-0.05 writing-0.02 start-0.1 written-0.1 writing-0; do
    before=$(newest)
    run killed >"$dir/log" 2>&1 &
    pid=$!
    until come_to "${point%-*}"; do
        grep -q '^State:.*zombie' "/proc/$pid/status" && break
        sleep 0.01
    done
    sleep "${point#*-}" # and a little further
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
    if [ $? = 137 ]; then
        kills=$((kills + 1))
        points="${points:-} ${point%-*}"
    fi
    # Whatever has a checkpoint's name is a whole checkpoint.
    for c in "$dir"/killed/checkpoints/iteration-*; do
        [ -e "$c" ] || continue
        [ -s "$c/manifest.json" ] && [ -s "$c/optimizer/critic/exp_avg_sq.safetensors" ] ||
            { echo "half a checkpoint: $c"; exit 1; }
    done
done
# The first point is always met, and the run is far from its end at the next.
[ "$kills" -ge 3 ] || { echo "only $kills runs were killed"; exit 1; }
(run killed) >"$dir/log" 2>&1 || { echo "does not resume:"; cat "$dir/log"; exit 1; }
[ "$(weights whole)" = "$(weights killed)" ] ||
    { echo "the killed run ended with other weights"; exit 1; }
lines=$(wc -l <"$dir/killed/metrics.jsonl")
[ "$lines" = 8 ] || { echo "metrics.jsonl has $lines lines, not 8"; exit 1; }
left=$(find "$dir/killed" -name '*.tmp*' | wc -l)
[ "$left" = 0 ] || { echo "$left temporary files are left"; exit 1; }
echo "$kills kills ($points ), the same bits"
