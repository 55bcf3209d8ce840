#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What decides in the middle of an iteration, as several ranks: prompts that are
# replaced, updates that end at a limit of the KL, reward models that read texts
# in tokens of their own; and epochs of data. One process and ranks, in several
# layouts, have the same bits.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"

above_zero() # RUN TAG: in some iteration
{
    awk -v tag="\"$2\": " '
        { at = index($0, tag); if (at) sum += substr($0, at + length(tag)) }
        END { exit !(sum > 0) }' "$1/metrics.jsonl" ||
        complain "$1 has no $2"
}

# compare NAME words...: one process, and each line of layouts
compare()
{
    name=$1
    shift
    "$weft" train -q "$name.yaml" "run_dir=$name-one" runtime.devices=1 "$@" \
        >log 2>&1 || complain "$name, one process: $?"
    while read -r n words; do
        run=$name-$n-$(echo "$words" | cksum | cut -d ' ' -f 1)
        # shellcheck disable=SC2086
        on_ranks "$n" "$weft" train -q "$name.yaml" "run_dir=$run" $words \
            "$@" >log 2>&1 || complain "$name, $n ranks, $words: $?"
        ! grep 'were predicted' log ||
            complain "$name, $n ranks, $words: more memory than predicted"
        if [ -z "$(bits "$name-one")" ] ||
            [ "$(bits "$run")" != "$(bits "$name-one")" ]; then
            complain "$name, $n ranks, $words: other bits than one process"
        fi
        diff -r "$name-one/samples" "$run/samples" >log ||
            complain "$name, $n ranks, $words: other samples or rewards"
    done <layouts
}

cat >layouts <<'TEXT'
2 runtime.devices=1 layout=tp2
2 runtime.devices=2 layout=dp2pp2,zero=2 runtime.place=device
4 runtime.devices=1 layout=tp2pp2,recompute
4 runtime.devices=2 layout=dp4tp2,zero=3
TEXT

init() # FOLDER words...
{
    out=$1
    shift
    "$weft" init --hidden 64 --layers 2 --heads 4 --kv-heads 2 --std 0.2 "$@" \
        -o "$out" >log 2>&1 || complain "init $out"
}
mkdir words
cp "$WEFT_SRCDIR/tests/data/tokenizer/gpt2.json" words/tokenizer.json
init model --seed 3
init reference --seed 4
init judge --seed 5 --scalar --tokenizer words
init trained --seed 6 --scalar
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do
    printf '{"prompt": "%.*s", "label": "%d"}\n' $((3 * i)) \
        'the quick brown fox jumps over the lazy dog' $i
done >prompts.jsonl
cp "$WEFT_SRCDIR"/tests/data/preference/*.jsonl \
    "$WEFT_SRCDIR"/tests/data/sft/turns.jsonl .

rollout='rollout: {prompts: 4, samples_per_prompt: 2, max_new_tokens: 9, slots: 2'
rest='train: {micro_batch_tokens: 64, mini_batches_ahead: 1}
data: {path: prompts.jsonl}
checkpoint: {every: 0, dtype: f32}'

# ---- Replaced prompts, an early end, a judge's own tokens -------------------
cat >refills.yaml <<YAML
algorithm: dapo
iterations: 3
model: {actor: model}
reward: [{type: regex, pattern: '^[ -O]'},
         {type: model, name: judge, model: judge, own_tokenizer: true, weight: 0}]
$rollout, refills: 3}
ppo: {epochs: 2, mini_batches: 2, kl: {stop: 1.0e-6}}
actor: {lr: 1.0e-3}
$rest
YAML
compare refills
above_zero refills-one rollout/refilled_prompts
above_zero refills-one actor/kl_stopped_mini_batches

# ---- ... that decides, beside a critic and a reference ----------------------
cat >judged.yaml <<YAML
algorithm: ppo
iterations: 2
model: {actor: model, critic: model, reference: reference}
reward: [{type: model, name: judge, model: judge, own_tokenizer: true,
          normalize: running, clip: 2},
         {type: model, name: own, model: trained}]
$rollout}
ppo: {epochs: 2, mini_batches: 2, kl: {stop: 1.0e-5, coef: 0.1}}
reference: {every: 1, mix: 0.5}
actor: {lr: 1.0e-3}
critic: {lr: 1.0e-3}
$rest
YAML
compare judged
above_zero judged-one actor/kl_stopped_mini_batches

# ---- ... as samples leave their instances, some of which move ---------------
mv layouts others
# so long a tail that some move in some run
long='s/max_new_tokens: 9, slots: 2/max_new_tokens: 48, slots: 8, chunk_tokens: 1, lengths: "lognormal:5:1.2"/'
turn=rollout.inter_stage_fusion=true
moves="$turn rollout.remaining=0.5 rollout.instances=1"
in_turn 0.5 1 >moves.jsonl
cat >layouts <<TEXT
1 runtime.devices=2 layout=dp2 $turn rollout.decisions=moves.jsonl
2 runtime.devices=1 layout=dp2 $moves
2 runtime.devices=2 layout=dp4 runtime.place=device $moves
2 runtime.devices=2 layout=dp4
TEXT
for name in refills judged; do
    sed "$long" $name.yaml >$name-tail.yaml
    compare $name-tail seed=6
done
mkdir moved
cat judged-tail-[0-9]*/metrics.jsonl >moved/metrics.jsonl
above_zero moved gen/migrated
mv others layouts

# ---- ... and train as they complete -----------------------------------------
mv layouts others
sed -e "$long" -e 's/normalize: running, clip: 2/weight: 1/' \
    -e 's/ppo: {/&whiten_advantages: false, /' judged.yaml >early.yaml
early='train.as_completed=true layout=disaggregated'
in_turn 0 0 >none.jsonl
cat >layouts <<TEXT
1 runtime.devices=4 $early $turn rollout.decisions=none.jsonl
2 runtime.devices=2 $early runtime.place=device
4 runtime.devices=1 $early
TEXT
compare early seed=6
mkdir completed
cat early-[0-9]*/metrics.jsonl >completed/metrics.jsonl
above_zero completed train/early_mini_batches
mv others layouts

# ---- Epochs, with a smaller step at their ends ------------------------------
data() # ALGORITHM BATCH MODELS DATA
{
    cat >"$1.yaml" <<YAML
algorithm: $1
epochs: 2
model: {$3}
data: {$4}
train: {batch: $2, micro_batch_tokens: 64}
numerics: {gradient_groups: 4}
checkpoint: {every: 0, dtype: f32}
YAML
    compare "$1"
}
# Every turn of the assistant is learned.
data sft 3 'actor: model' \
    'path: turns.jsonl, learn: assistant, template: "[{role}]{content};"'
data kto 5 'actor: model, reference: reference}
reference: {every: 1, mix: 1' 'path: rows.jsonl'
data reward_model 4 'reward_model: trained' 'path: pairs.jsonl'

exit $failed
