#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rules and reward programs on several ranks: each rank has programs of its own,
# which are asked about the samples that its instances end, while others are
# generated; the weights are those of one process; and a program that fails on
# one rank ends all with one sentence.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
quick=$WEFT_SRCDIR/examples/quickstart

# Answers with a number that the line makes. It leaves its rank and the sample in
# the file `asked`, its process in `started`, and a file for the rank.
cat >judge.sh <<'SH'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
echo "$rank $$" >>started
while read -r line; do
    index=${line#*: }
    echo "$rank ${index%%,*}" >>asked
    : >"asked.$rank"
    echo $((${#line} % 7))
done
SH

cat >run.yaml <<YAML
algorithm: ppo
run_dir: unset
iterations: 2
data: {path: $quick/prompts.jsonl}
model: {actor: $quick/model, critic: $quick/model}
reward: [{type: program, name: judge, command: [sh, judge.sh], timeout_s: 600},
         {type: exact_match}, {type: length, target: 3, weight: 0.1}]
rollout: {prompts: 12, max_new_tokens: 5, slots: 12}
runtime: {devices: 1}
checkpoint: {every: 0, dtype: f32}
samples_kept: -1
YAML

# run RANKS RUN words...
run()
{
    n=$1
    name=$2
    shift 2
    rm -f asked started asked.*
    on_ranks "$n" "$weft" train -q run.yaml "run_dir=$name" "$@" >log 2>&1 ||
        complain "$name: $?"
    [ "$(cut -d ' ' -f 1 started | sort -n)" = "$(seq 0 $((n - 1)))" ] ||
        complain "$name: not one program on each rank: $(cat started)"
    # all 12 samples, once in each of 2 iterations
    [ "$(cut -d ' ' -f 2 asked | sort -n)" = \
        "$(for i in 0 1 2 3 4 5 6 7 8 9 10 11; do echo $i; echo $i; done)" ] ||
        complain "$name: not each sample once: $(cat asked)"
}

same() # RUN REFERENCE
{
    [ -n "$(bits "$2")" ] && [ "$(bits "$1")" = "$(bits "$2")" ] ||
        complain "$1 has other bits than $2"
    cat "$1"/samples/*.jsonl >a
    cat "$2"/samples/*.jsonl >b
    if ! [ -s b ] || ! cmp -s a b; then
        complain "$1 has other samples than $2"
    fi
}

# asked_on EACH RANK...: samples are dealt to instances EACH by EACH, and
# asked on these ranks
asked_on()
{
    each=$1
    shift
    awk -v each="$each" -v ranks="$*" '
        BEGIN { split(ranks, rank, " ") }
        $1 != rank[int($2 / each) + 1] { bad = 1 }
        END { exit bad }' asked || complain "$name: asked elsewhere: $(cat asked)"
}

run 1 one
asked_on 12 0
[ "$(cut -d ' ' -f 2 asked | tr '\n' ' ')" = \
    "0 1 2 3 4 5 6 7 8 9 10 11 0 1 2 3 4 5 6 7 8 9 10 11 " ] ||
    complain "one rank asks in another order: $(cat asked)"
run 2 two
asked_on 6 0 1
same two one
run 3 three
asked_on 4 0 1 2
same three one
# Of an instance on several ranks, one: its last stage's first.
run 2 tp2 layout=tp2
asked_on 12 0
same tp2 one
run 4 pp2 layout=dp2pp2
asked_on 3 2 3 2 3
same pp2 one
# Mini-batches that train as they complete, and samples that move. The first one
# has a sample, which is not the last to leave in both iterations.
early="ppo.whiten_advantages=false ppo.mini_batches=12"
# shellcheck disable=SC2086
run 1 plain $early
early="$early train.as_completed=true layout=disaggregated rollout.slots=2 \
rollout.chunk_tokens=1"
trained_early() # RUN
{
    same "$1" plain
    grep -q '"train/early_mini_batches": [1-9]' "$1/metrics.jsonl" ||
        complain "$1: no mini-batch trained early"
}
# shellcheck disable=SC2086
run 1 alone $early runtime.devices=4
trained_early alone
# shellcheck disable=SC2086
run 4 early $early
trained_early early
run 3 moves rollout.inter_stage_fusion=true rollout.remaining=0.7 \
    rollout.chunk_tokens=1
same moves one

# The first rank's device generates only when the second's program was asked.
rm -f asked.*
on_ranks 2 "$WEFT_BUILDDIR/tests/run/test_rewards" "$dir/asked.1" run.yaml \
    run_dir=beside iterations=1 >log 2>&1 || complain "not asked early: $?"

# ---- Errors of one rank -----------------------------------------------------
cat >fails.sh <<'SH'
case ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} in
1) . ./script.sh ;;
*) while read -r line; do echo 1; done ;;
esac
SH

fails() # 'part of the sentence' SCRIPT words...: the script on rank 1
{
    part=$1
    echo "$2" >script.sh
    shift 2
    on_ranks 3 "$weft" train -q run.yaml run_dir=bad \
        "reward=[{type: program, name: judge, command: [sh, fails.sh], \
timeout_s: 600}]" "$@" >log 2>&1
    got=$?
    [ "$got" = 1 ] || complain "status $got, not 1"
    [ "$(grep -c '^weft train' log)" = 1 ] || complain "not one sentence"
    grep -q "rank 1: iteration [12]: reward 'judge': program 'sh fails.sh' $part" \
        log || complain "nobody says '$part'"
    rm -rf bad
}
fails 'ended with status 3 after answering 2 of' \
    'read -r line; echo 1; read -r line; echo 1; exit 3'
# shellcheck disable=SC2016
fails 'was ended by signal 9' 'read -r line; kill -9 $$'
fails 'wrote a line that is neither' 'read -r line; echo good'
# In the second iteration, whose samples the program does not take.
fails 'ended with status 0 after answering 0 of' \
    'for i in 1 2 3 4; do read -r line; echo 1; done'
# shellcheck disable=SC2086
fails 'wrote a line that is neither' 'read -r line; echo good' $early

# A program that is not there on rank 1.
mkdir bin
printf '#!/bin/sh\nexec sh judge.sh\n' >bin/weft-judge
chmod +x bin/weft-judge
reward='reward=[{type: program, name: judge, command: [weft-judge]}]'
on_ranks 1 env "PATH=$dir/bin:$PATH" "$weft" train -q run.yaml run_dir=bad \
    "$reward" : -n 1 "$weft" train -q run.yaml run_dir=bad "$reward" \
    >log 2>&1
got=$?
[ "$got" = 1 ] || complain "status $got, not 1"
grep -q "rank 1: reward 'judge': cannot start 'weft-judge'" log ||
    complain "nobody names the program that is not there"
exit $failed
