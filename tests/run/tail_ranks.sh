#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that dies when its last samples begin to move: the job ends with its
# name and leaves whole checkpoints, and the run goes on exactly, on as many
# ranks or others.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
quick=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
words="rollout.prompts=8 rollout.max_new_tokens=24 rollout.chunk_tokens=2
    rollout.lengths=lognormal:8:1 iterations=3 checkpoint.every=1
    runtime.overlap=false"
fusion="rollout.inter_stage_fusion=true rollout.remaining=0.5
    rollout.instances=1 runtime.devices=1"

# shellcheck disable=SC2086
"$weft" train -q "$quick" run_dir=one $words runtime.devices=1 >log 2>&1 ||
    complain "one process"
for victim in 0 1; do
    run=dies$victim
    # shellcheck disable=SC2086
    on_ranks 2 "$WEFT_BUILDDIR/tests/run/test_tail" $victim "$quick" \
        run_dir=$run $words $fusion >log 2>&1 &&
        complain "rank $victim did not die"
    grep -q "rank $victim" log || complain "nobody names rank $victim"
    [ "$(wc -l <$run/metrics.jsonl)" = 1 ] ||
        complain "$run: not in the second iteration"
    for c in "$run"/checkpoints/iteration-*; do
        [ -s "$c/manifest.json" ] || complain "half a checkpoint: $c"
    done
    # shellcheck disable=SC2086
    on_ranks $((2 + victim)) "$weft" train -q "$quick" run_dir=$run $words \
        $fusion >log 2>&1 || complain "resume of $run: $?"
    [ -n "$(bits one)" ] && [ "$(bits $run)" = "$(bits one)" ] ||
        complain "$run has other bits than one process"
done
exit $failed
