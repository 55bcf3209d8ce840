#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft train as several ranks: the checkpoints of one process on any number of
# ranks; a rank that dies, Ctrl-C and errors of one rank end the job, say why,
# leave nothing half-written, and the run goes on elsewhere.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
quick=$WEFT_SRCDIR/examples/quickstart
# Small: beside other work every message waits for its turn on a core.
common="rollout.prompts=8 rollout.max_new_tokens=5 iterations=4 \
checkpoint.every=2 checkpoint.keep=9"
# Judged by a program that the test can stop in the middle of an iteration.
reward="reward=[{type: program, command: [sh, hold.sh], directory: $dir, \
timeout_s: 600}]"
long="$common iterations=10"

# ppo RANKS RUN words...
ppo()
{
    n=$1
    run=$2
    shift 2
    # shellcheck disable=SC2086
    on_ranks "$n" "$weft" train -q "$quick/ppo.yaml" "run_dir=$run" $common \
        "$@" >log 2>&1
}

sft()
{
    n=$1
    run=$2
    shift 2
    on_ranks "$n" "$weft" train -q "$quick/sft.yaml" "run_dir=$run" \
        "model.actor=$quick/model" iterations=4 train.batch=9 "$@" >log 2>&1
}

# RUN [any]: no place took more of a class than was predicted; and what its
# iterations take when they are played again is within a tenth of it, but for
# records of tasks (column 8), in classes of more than 4 MiB. any: its order is
# not known, and another is played; gradients (column 3) may be more in it, but
# not more than predicted.
memory()
{
    "$weft" plan --explain "$1/plan.json" | awk -v any="${2:-}" '
        $1 == "device" { for (i = 3; i < 9; i++) most[i - 1] = $i }
        $1 == "measured" { for (i = 2; i < 8; i++) took[i] = $i }
        $1 == "replayed" {
            again = 1
            for (i = 2; i < 8; i++)
                if (took[i] > 4 && ($i < 0.9 * took[i] || $i > most[i] ||
                    (!(any && i == 3) && $i > 1.1 * took[i])))
                    bad = 1
        }
        /^  %/ { seen = 1; for (i = 2; i <= NF; i++) if ($i > 100.0) bad = 1 }
        END { exit bad || !seen || !again }' ||
        complain "$1 took other memory: $("$weft" plan --explain "$1/plan.json")"
}

same() # RUN REFERENCE [any]
{
    memory "$1" "${3:-}"
    [ -n "$(bits "$2")" ] && [ "$(bits "$1")" = "$(bits "$2")" ] ||
        complain "$1 has other bits than $2"
}

manifests() # RUN: whatever has a checkpoint's name is a whole checkpoint
{
    for c in "$1"/checkpoints/iteration-*; do
        [ ! -e "$c" ] || [ -s "$c/manifest.json" ] ||
            complain "half a checkpoint: $c"
    done
}

whole() # RUN: and nothing is half-written
{
    manifests "$1"
    [ -z "$(find "$1" -name '*.tmp*')" ] ||
        complain "$1 has temporary files: $(find "$1" -name '*.tmp*')"
}

# ---- What is recorded without running is what runs -------------------------
for n in 2 4; do
    on_ranks $n "$WEFT_BUILDDIR/tests/run/test_recorded" >log 2>&1 ||
        complain "recorded, $n ranks: $?"
done

# ---- The same bits ----------------------------------------------------------
# shellcheck disable=SC2086
"$weft" train -q "$quick/ppo.yaml" run_dir=one $common runtime.devices=1 \
    >log 2>&1 || complain "one process"
ppo 1 p1 runtime.devices=2 || complain "1 rank: $?"
same p1 one
ppo 2 p2 runtime.devices=2 layout=tp4 || complain "2 ranks: $?"
same p2 one
ppo 2 p2d runtime.devices=4 runtime.place=device \
    layout=dp2tp2pp2,zero=2,micro_batches=2 train.mini_batches_ahead=1 ||
    complain "2 ranks: $?"
same p2d one
# two replicas of a rank add their gradients before these go to the other rank
for zero in 0 1 3; do
    ppo 2 "p2z$zero" runtime.devices=2 runtime.place=device \
        layout=dp4,zero=$zero || complain "2 ranks, ZeRO $zero: $?"
    same "p2z$zero" one
done
# weights come to a rank once for all its replicas of a stage and micro-batches
ppo 4 p4r runtime.devices=2 runtime.place=device \
    layout=dp4pp2,zero=3,hpz,micro_batches=2 || complain "4 ranks, ZeRO 3: $?"
same p4r one
ppo 1 eight runtime.devices=1 numerics.gradient_groups=8 ||
    complain "eight groups: $?"
ppo 2 p2e runtime.devices=2 runtime.place=device layout=dp4,zero=2 \
    numerics.gradient_groups=8 || complain "2 ranks, eight groups: $?"
same p2e eight
ppo 4 p4 runtime.devices=1 layout=tp2pp2,recompute || complain "4 ranks: $?"
same p4 one
ppo 4 p4z runtime.devices=2 layout=dp4tp2,zero=3 \
    train.mini_batches_ahead=1 || complain "4 ranks: $?"
same p4z one
printf '%s\n' 'name: two' 'kinds: [{name: node, nodes: 2, devices: 1,' \
    'memory_gib: 1, tflops: {f32: 0.01}, memory_gbs: 10, task_us: 3,' \
    'network: {rails: 1, gbs: 1, us: 20}}]' >cluster.yaml
ppo 2 p2a runtime.devices=1 plan=auto cluster=cluster.yaml ||
    complain "2 ranks, a plan that is found: $?"
same p2a one
fused="train.intra_stage_fusion=true layout=pp2,micro_batches=2"
# shellcheck disable=SC2086
ppo 2 p2f runtime.devices=1 $fused train.mini_batches_ahead=1 ||
    complain "2 ranks, fused: $?"
same p2f one
tail -n 1 p2f/metrics.jsonl | grep -q '"schedule/in_order": 1' ||
    complain "fused training out of order: $(tail -n 1 p2f/metrics.jsonl)"
# shellcheck disable=SC2086
ppo 2 p2s runtime.devices=1 $fused train.schedule="$dir/p2f/schedule/fused.json" ||
    complain "2 ranks, a schedule's file: $?"
same p2s one
# The last samples move between ranks, and a run goes on with other ones.
# Long responses, so that some are left wherever an instance is at that moment.
moves="rollout.inter_stage_fusion=true rollout.chunk_tokens=1 \
rollout.prefill_tokens=2 rollout.max_new_tokens=24"
in_turn 0.7 1 >most.jsonl
in_turn 0.9 1 >nearly_all.jsonl
moved() # RUN
{
    same "$1" onem
    grep -q '"gen/migrated": [1-9]' "$1/metrics.jsonl" ||
        complain "$1 moves no samples"
}
# shellcheck disable=SC2086
ppo 1 onem runtime.devices=1 $moves || complain "1 rank, long responses: $?"
# shellcheck disable=SC2086
ppo 4 p4m runtime.devices=1 $moves rollout.decisions=most.jsonl \
    iterations=2 || complain "4 ranks, samples move: $?"
# shellcheck disable=SC2086
ppo 3 p4m runtime.devices=1 $moves rollout.prefill_tokens=3 \
    rollout.decisions=most.jsonl || complain "3 ranks, samples move: $?"
moved p4m
# shellcheck disable=SC2086
ppo 4 p4n runtime.devices=1 $moves layout=dp2pp2 \
    rollout.decisions=nearly_all.jsonl ||
    complain "4 ranks, samples move between replicas of stages: $?"
moved p4n
# The next iteration is generated while one trains, by other ranks, and goes on
# with the samples of a checkpoint. Its samples are made in the iteration before,
# so that the order of its tasks is not known.
stale="rollout.staleness=1 runtime.devices=1 checkpoint.every=2"
# shellcheck disable=SC2086
ppo 1 t1 $stale || complain "1 rank, staleness: $?"
# shellcheck disable=SC2086
ppo 4 t4 $stale layout=disaggregated iterations=3 ||
    complain "4 ranks, staleness: $?"
rm -r t4/checkpoints/iteration-000003
# shellcheck disable=SC2086
ppo 2 t4 $stale || complain "2 ranks go on with staleness: $?"
same t4 t1 any
# Mini-batches train on a rank while others generate.
in_turn 0 0 >none.jsonl
early="train.as_completed=true ppo.whiten_advantages=false runtime.devices=1 \
rollout.slots=2 rollout.chunk_tokens=1"
# shellcheck disable=SC2086
ppo 1 e1 $early || complain "1 rank, as completed: $?"
# shellcheck disable=SC2086
ppo 4 e4 $early layout=disaggregated rollout.inter_stage_fusion=true \
    rollout.decisions=none.jsonl || complain "4 ranks, as completed: $?"
same e4 e1
grep -q '"train/early_mini_batches": [1-9]' e4/metrics.jsonl ||
    complain "no mini-batch trained early"
# Reference and a reward model offloaded, each rank keeps what it computes with.
judge="reward=[{type: model, model: $dir/one/checkpoints/iteration-000004/critic}]"
ppo 1 j1 runtime.devices=1 "$judge" || complain "a reward model, 1 rank: $?"
ppo 2 j2 runtime.devices=2 layout=tp2pp2,offload "$judge" ||
    complain "offload, 2 ranks: $?"
same j2 j1
ppo 3 j3 runtime.devices=1 layout=dp3,offload "$judge" ||
    complain "offload, 3 ranks: $?"
same j3 j1
tail -n 1 j3/metrics.jsonl | grep -q '"perf/offload_hidden_ratio": [01]' ||
    complain "offload is not measured: $(tail -n 1 j3/metrics.jsonl)"
"$weft" plan --explain j3/plan.json | grep -q ' host$' ||
    complain "the plan does not say what the host keeps"
sft 1 s1 runtime.devices=1 || complain "sft, 1 rank: $?"
sft 2 s2 runtime.devices=2 layout=dp2tp2,zero=3 || complain "sft, 2 ranks: $?"
same s2 s1
sft 4 s4 runtime.devices=1 layout=dp2pp2,zero=1 || complain "sft, 4 ranks: $?"
same s4 s1

# ---- A rank that dies -------------------------------------------------------
# Every rank leaves its process id; `exec` makes it the very process. What it
# says goes to a file, as mpirun passes on nothing while it ends a job.
cat >rank.sh <<SH
rank=\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}
echo \$\$ >"$dir/pid.\$rank"
exec "$weft" "\$@" 2>"$dir/err.\$rank"
SH

# In the batch whose number is in the file `hold` it leaves a file `held`, and
# waits for a file `go`. Each batch has its first sample on one rank alone, whose
# program counts it for all.
cat >hold.sh <<'SH'
hold=$(cat hold)
while read -r line; do
    case $line in
    '{"index": 0,'*)
        echo >>batches
        if [ "$(wc -l <batches)" = "$hold" ]; then
            : >held
            while [ ! -e go ]; do sleep 0.1; done
        fi
        ;;
    esac
    echo $((${#line} % 7))
done
SH

# start RUN HOLD RANKS words...: in the background, until the program holds it
# in batch HOLD; $job is mpirun
start()
{
    run=$1
    echo "$2" >hold
    n=$3
    shift 3
    rm -f pid.* err.* held go batches
    # shellcheck disable=SC2086
    "$WEFT_MPIEXEC" --oversubscribe --bind-to none -n "$n" \
        sh rank.sh train -q "$quick/ppo.yaml" "run_dir=$run" $long "$reward" \
        "$@" >log 2>&1 </dev/null &
    job=$!
    until [ -e held ]; do
        kill -0 $job 2>/dev/null ||
            { complain "$run ends too early"; return; }
        sleep 0.1
    done
}

# until_said 'part of a line': by rank 0, or until the job ends
until_said()
{
    until grep -q "$1" err.0; do
        kill -0 $job 2>/dev/null || break
        sleep 0.1
    done
}

# $status of the job, whose processes are all gone then
ended()
{
    wait $job
    status=$?
    for file in pid.*; do # mpirun has killed them, but not waited
        tries=0
        while kill -0 "$(cat "$file")" 2>/dev/null; do
            tries=$((tries + 1))
            [ $tries -lt 6000 ] ||
                { complain "the process of rank ${file#pid.} is left"; break; }
            sleep 0.1
        done
    done
}

lines() # RUN: iterations done
{
    if [ -e "$1/metrics.jsonl" ]; then wc -l <"$1/metrics.jsonl"; else echo 0; fi
}

kill_rank() # RANK BATCH RANKS words...
{
    victim=$1
    shift
    start killed "$@"
    kill -9 "$(cat "pid.$victim")" || complain "rank $victim was not there"
    ended
    [ $status != 0 ] || complain "a job without rank $victim succeeds"
    grep -q "rank $victim" log || complain "nobody names rank $victim"
    manifests killed
}

echo 0 >hold
# shellcheck disable=SC2086
"$weft" train -q "$quick/ppo.yaml" run_dir=whole $long "$reward" \
    runtime.devices=2 >log 2>&1 || complain "one process"
kill_rank 1 3 2 runtime.devices=1 layout=tp2
[ "$(lines killed)" = 2 ] || complain "$(lines killed) iterations, not 2"
kill_rank 0 4 3 runtime.devices=1
kill_rank 3 3 4 runtime.devices=2 layout=dp2tp2pp2,zero=3
echo 0 >hold
ppo 2 killed iterations=10 runtime.devices=2 layout=dp2pp2,zero=1 "$reward" ||
    complain "resume: $?"
same killed whole
whole killed
[ "$(lines killed)" = 10 ] || complain "metrics.jsonl has $(lines killed) lines"

# ---- Signals ----------------------------------------------------------------
# mpirun passes SIGUSR1 on to the ranks and waits for them.
start stopped 3 3 runtime.devices=1
kill -USR1 $job
until_said "stops after this iteration"
: >go
ended
[ $status != 0 ] || complain "SIGUSR1: the job succeeds"
grep -q "stopped after iteration 3;" err.0 ||
    complain "nobody says where it stopped"
whole stopped
[ -s stopped/checkpoints/iteration-000003/manifest.json ] ||
    complain "SIGUSR1 leaves no checkpoint"
# Ctrl-C it turns into SIGTERM after a second, and SIGKILL after another.
start stopped 4 3 runtime.devices=1
kill -INT $job
ended
[ $status != 0 ] || complain "Ctrl-C: the job succeeds"
manifests stopped
[ "$(lines stopped)" = 6 ] || complain "Ctrl-C: $(lines stopped) iterations"
echo 0 >hold
ppo 1 stopped iterations=10 runtime.devices=2 "$reward" ||
    complain "does not go on after Ctrl-C: $?"
same stopped whole
whole stopped

# ---- Offload ----------------------------------------------------------------
# A folder that goes away while the ranks have its weights on the host.
cp -r "$quick/model" gone
start lost 3 2 runtime.devices=1 "model.reference=$dir/gone" \
    model.reference_offload=true
rm -rf gone
: >go
ended
[ $status = 0 ] || complain "a folder that goes away: $status"
same lost whole
whole lost

# ---- Errors of one rank -----------------------------------------------------
# two STATUS 'part of the sentence' words... -- words of rank 1
two()
{
    status=$1
    part=$2
    shift 2
    first=
    while [ "$1" != -- ]; do
        first="$first $1"
        shift
    done
    shift
    # shellcheck disable=SC2086
    on_ranks 1 "$weft" train -q $first "$@" : -n 1 "$weft" train -q $first \
        "$@" $second >log 2>&1
    got=$?
    [ "$got" = "$status" ] || complain "status $got, not $status"
    [ "$(grep -c '^weft train' log)" = 1 ] || complain "not one sentence"
    grep -q "$part" log || complain "nobody says '$part'"
}
base="$quick/ppo.yaml run_dir=bad runtime.devices=1 $common"
refused() # 'part of the sentence' words of rank 1
{
    part=$1
    second=$2
    # shellcheck disable=SC2086
    two 1 "$part" $base --
    [ ! -e bad ] || complain "a refused run leaves its folder"
    rm -rf bad
}

cp -r "$quick/model" torn
chmod -R u+w torn
head -c 3000 "$quick/model/model.safetensors" >torn/model.safetensors
refused "rank 1: .*there is no model folder '/nowhere'" model.critic=/nowhere
refused "rank 1: .*torn/model.safetensors" "model.reference=$dir/torn"
refused "rank 1: .*nothing.jsonl" "data.path=$dir/nothing.jsonl"
refused "rank 1: .*did you mean 'actor.lr'" actor.lrr=1
refused "rank 1: .*2 devices.*rank 0 has 1" runtime.devices=2

# Files of one rank that are not those of the others.
refused "rank 1: here 'seed' is 7, but at rank 0 'seed' is 1" seed=7
refused "rank 1: here 'rollout.slots' is 3" rollout.slots=3
refused "rank 1: here 'layout' is \"tp2\", but at rank 0 'layout' is not set" \
    layout=tp2
tac "$quick/prompts.jsonl" >prompts.jsonl
refused "rank 1: here the data has the checksum" "data.path=$dir/prompts.jsonl"
"$weft" init --preset nano --layers 3 --tokenizer "$quick/model" -o other >log 2>&1 ||
    complain "weft init"
refused "rank 1: here the critic's model has 3 layers" "model.critic=$dir/other"
# The same form with other weights is found by what is in the files.
cp -r "$quick/model" reference
chmod -R u+w reference
size=$(wc -c <reference/model.safetensors)
printf '\125' | dd of=reference/model.safetensors bs=1 seek=$((size - 4)) \
    conv=notrunc 2>log || complain "dd"
cmp -s reference/model.safetensors "$quick/model/model.safetensors" &&
    complain "the other reference is the same"
refused "rank 1: here 'model.safetensors' of model.reference (weights) has" \
    "model.reference=$dir/reference"

# A reward program that dies, on both ranks.
cat >program.yaml <<YAML
algorithm: ppo
run_dir: unset
iterations: 3
data: {path: $quick/prompts.jsonl}
model: {actor: $quick/model, critic: $quick/model}
reward: [{type: program, command: [sh, reward.sh], timeout_s: 600}]
rollout: {prompts: 4, max_new_tokens: 4}
runtime: {devices: 1, overlap: true}
checkpoint: {every: 1}
YAML
# the first iteration's two answers on each rank, and another one
echo 'for i in 1 2 3; do read line; echo 0.5; done; exit 4' >reward.sh
second=
two 1 "iteration 2: .* ended with status 4 after answering 1 of 2 samples" \
    program.yaml run_dir=bad --
whole bad
[ "$(ls bad/checkpoints)" = iteration-000001 ] || complain "no checkpoint is kept"
exit $failed
