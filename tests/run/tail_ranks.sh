#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that dies when its last samples begin to move, with their KV caches or
# without: the job ends with its name and leaves whole checkpoints, and the run
# goes on exactly, on as many ranks or others.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
quick=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
words="rollout.prompts=8 rollout.max_new_tokens=24 rollout.chunk_tokens=2
    rollout.lengths=lognormal:8:1 iterations=3 checkpoint.every=1
    runtime.overlap=false"
fusion="rollout.inter_stage_fusion=true runtime.devices=1"
read="rollout.remaining=0.5 rollout.instances=1"
caches="rollout.decisions=$PWD/caches.jsonl"
in_turn 0.9 1 '"cached": [[1, 4096]], ' >caches.jsonl

# shellcheck disable=SC2086
"$weft" train -q "$quick" run_dir=one $words runtime.devices=1 >log 2>&1 ||
    complain "one process"
dies() # VICTIM RANKS words...: a run dies, and goes on with so many ranks
{
    victim=$1 ranks=$2 run=dies$1-$2
    shift 2
    # shellcheck disable=SC2086
    on_ranks 2 "$WEFT_BUILDDIR/tests/run/test_tail" "$victim" "$quick" \
        run_dir=$run $words $fusion "$@" >log 2>&1 &&
        complain "rank $victim did not die"
    grep -q "rank $victim" log || complain "nobody names rank $victim"
    [ "$(wc -l <$run/metrics.jsonl)" = 1 ] ||
        complain "$run: not in the second iteration"
    for c in "$run"/checkpoints/iteration-*; do
        [ -s "$c/manifest.json" ] || complain "half a checkpoint: $c"
    done
    # shellcheck disable=SC2086
    on_ranks "$ranks" "$weft" train -q "$quick" run_dir=$run $words \
        $fusion "$@" >log 2>&1 || complain "resume of $run: $?"
    [ -n "$(bits one)" ] && [ "$(bits $run)" = "$(bits one)" ] ||
        complain "$run has other bits than one process"
}
# shellcheck disable=SC2086
dies 0 2 $read
# shellcheck disable=SC2086
dies 1 3 $read
dies 1 2 "$caches"
grep -q '"gen/moved_caches": [1-9]' dies1-2/metrics.jsonl ||
    complain "no cache moved"
exit $failed
