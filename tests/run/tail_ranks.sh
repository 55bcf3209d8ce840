#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that dies when its last samples begin to move, or when it has taken in
# part of a KV cache that another rank packed: the job ends with its name and
# leaves whole checkpoints, and the run goes on exactly, on as many ranks or
# others.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
quick=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
words="rollout.prompts=8 rollout.max_new_tokens=24 rollout.chunk_tokens=2
    rollout.lengths=lognormal:8:1 rollout.ignore_eos=true iterations=3
    checkpoint.every=1 runtime.overlap=false"
fusion="rollout.inter_stage_fusion=true runtime.devices=1"
in_turn 0.5 1 >read.jsonl
in_turn 0.9 1 '"cached": [[1, 4096]], ' >caches.jsonl

# shellcheck disable=SC2086
"$weft" train -q "$quick" run_dir=one $words runtime.devices=1 >log 2>&1 ||
    complain "one process"
dies() # WHEN VICTIM RANKS DECISIONS: a run dies, and goes on with so many ranks
{
    when=$1 victim=$2 ranks=$3 decisions=rollout.decisions=$4 run=$1-$2
    # shellcheck disable=SC2086
    on_ranks 2 "$WEFT_BUILDDIR/tests/run/test_tail" "$when" "$victim" "$quick" \
        run_dir=$run $words $fusion "$decisions" >log 2>&1 &&
        complain "rank $victim did not die"
    grep -q "rank $victim" log || complain "nobody names rank $victim"
    [ "$(wc -l <$run/metrics.jsonl)" = 1 ] ||
        complain "$run: not in the second iteration"
    for c in "$run"/checkpoints/iteration-*; do
        [ -s "$c/manifest.json" ] || complain "half a checkpoint: $c"
    done
    # shellcheck disable=SC2086
    on_ranks "$ranks" "$weft" train -q "$quick" run_dir=$run $words \
        $fusion "$decisions" >log 2>&1 || complain "resume of $run: $?"
    [ -n "$(bits one)" ] && [ "$(bits $run)" = "$(bits one)" ] ||
        complain "$run has other bits than one process"
}
moves() # RUN WHAT: in the iteration in which it died
{
    sed -n 2p "$1/metrics.jsonl" | grep -q "\"gen/$2\": [1-9]" ||
        complain "$1: $2 is 0"
}
dies decides 0 2 read.jsonl
moves decides-0 migrated
dies decides 1 3 read.jsonl
dies unpacks 0 2 caches.jsonl
moves unpacks-0 moved_caches
exit $failed
