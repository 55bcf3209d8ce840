#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A rank that cannot go on by itself, in the middle of an iteration, ends all
# ranks with a sentence, whatever these were going to do: none waits for ever for
# what that one would have inserted or told.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
quick=$WEFT_SRCDIR/examples/quickstart
mkdir words
cp "$WEFT_SRCDIR/tests/data/tokenizer/gpt2.json" words/tokenizer.json
size='--hidden 64 --layers 2 --heads 4 --kv-heads 2 --scalar'
# shellcheck disable=SC2086
"$weft" init $size -o plain >log 2>&1 || complain "init plain: $?"
# shellcheck disable=SC2086
"$weft" init $size --tokenizer words -o judge >log 2>&1 ||
    complain "init judge: $?"
cat >run.yaml <<YAML
algorithm: ppo
run_dir: unset
iterations: 2
data: {path: $quick/prompts.jsonl}
model: {actor: $quick/model, critic: $quick/model}
reward: [{type: length, target: 3}]
rollout: {prompts: 12, max_new_tokens: 5, slots: 2, chunk_tokens: 1}
ppo: {whiten_advantages: false, mini_batches: 3}
runtime: {devices: 2}
checkpoint: {every: 0, dtype: f32}
YAML

# What a rank says goes to a file, as mpirun passes on nothing while it ends a
# job.
cat >rank.sh <<'SH'
exec "$@" 2>"err.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"
SH

fails() # RANK HOW FUNCTION CALL words..., as test_as_completed.c says
{
    what=$*
    victim=$1 how=$2 in=$3 call=$4
    shift 4
    on_ranks 2 sh rank.sh "$WEFT_BUILDDIR/tests/run/test_as_completed" \
        "$victim" "$how" "$in" "$call" run.yaml run_dir=run "$@" >log 2>&1
    got=$?
    [ "$got" = 1 ] || complain "$what: status $got, not 1"
    grep -q 'weft: .*error: .' err.* || complain "$what: no sentence"
    ! grep -q 'out of step' err.* || complain "$what: not the rank's own error"
    rm -rf run err.*
}
# One instance generates: which mini-batches train early depends on lengths
# alone, where several would take samples as they come to it.
early='layout=disaggregated runtime.devices=1 train.as_completed=true'
plain='reward=[{type: model, model: plain}]'
reads='reward=[{type: model, model: judge, own_tokenizer: true}]'
for when in before after; do
    for rank in 0 1; do
        for function in weft_scorer_expect weft_iteration_calls_add \
            weft_iteration_calls_flush weft_iteration_advantages \
            weft_iteration_train_next; do
            # shellcheck disable=SC2086
            fails $rank $when $function 2 $early
        done
        fails $rank $when weft_scorer_begin 2 layout=dp4
        fails $rank $when weft_iteration_moments 2 layout=dp4 \
            ppo.whiten_advantages=mini_batch train.mini_batches_ahead=1
        fails $rank $when weft_iteration_advantages 2 layout=dp4 "$plain"
        fails $rank $when weft_iteration_calls_add 7 layout=dp4 "$reads"
        # shellcheck disable=SC2086
        fails $rank $when weft_iteration_calls_flush 2 $early "$reads"
    done
done
# A rank that cannot read statuses, for which generation allocates twice; and one
# that cannot train, behind another failure.
for rank in 0 1; do
    fails $rank $((rank + 1)) weft_rollout_run_all 2 layout=dp4
    fails $rank second weft_iteration_moments 2 layout=dp4 \
        ppo.whiten_advantages=mini_batch train.mini_batches_ahead=1
done
# One in the middle of inserting tasks and copies, without memory for the next.
# What the N-th allocation is for depends on which tasks have ended.
for n in 21 73 91; do
    # shellcheck disable=SC2086
    fails 1 $n weft_iteration_train_next 2 $early
done
for n in 33 88 98; do
    fails 0 $n weft_rollout_run_all 2 layout=dp2tp2
done
exit $failed
