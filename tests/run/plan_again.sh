#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run with plan: auto whose responses are shorter than they may be goes on by
# another plan: on one rank, on two, when it is resumed, when it was killed, and
# with staleness. And on nodes of two kinds, with shares. The checkpoint has the bits
# of one device.
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
quick=$WEFT_SRCDIR/examples/quickstart

# train RANKS RUN words...
train()
{
    n=$1
    run=$2
    shift 2
    on_ranks "$n" "$weft" train -q "$quick/ppo.yaml" "run_dir=$run" \
        iterations=6 rollout.prompts=16 rollout.max_new_tokens=50 \
        rollout.lengths=lengths.txt numerics.gradient_groups=4 \
        runtime.place=device "$reward" "$@" >log 2>&1
}

same() # RUN [ONE]
{
    [ "$(bits "$1")" = "$(bits "${2:-one}")" ] ||
        complain "$1 has other bits than ${2:-one}"
}

replanned() # RUN TIMES
{
    n=$(grep -c '"plan/replanned": 1' "$1/metrics.jsonl")
    [ "$n" = "$2" ] || complain "$1 changed its plan $n times, not $2"
    grep -q '"plan/gain": 0\.[0-9]' "$1/metrics.jsonl" ||
        complain "$1 has no plan/gain"
}

# What a run decided, but not how long it took to.
decided() # RUN
{
    grep -o '"iteration": [0-9]*\|"plan/[a-z]*": [^,}]*' "$1/metrics.jsonl"
}

cluster() # NODES DEVICES
{
    printf '%s\n' 'name: some' "kinds: [{name: node, nodes: $1, devices: $2," \
        'memory_gib: 1, tflops: {f32: 0.1}, memory_gbs: 0.1, task_us: 50,' \
        'inside: {gbs: 0.05, us: 1}, network: {rails: 1, gbs: 0.05, us: 1}}]' \
        >cluster.yaml
}

reward="reward=[{type: length, target: 20, method: around}]"
printf '%s\n' 1 2 2 2 2 2 2 2 >lengths.txt
again="plan=auto cluster=cluster.yaml plan_again.every=2"
train 1 one runtime.devices=1 || complain "one device: $?"
moments=one/checkpoints/iteration-000006/optimizer/actor/exp_avg
cmp -s $moments.safetensors ${moments}_sq.safetensors &&
    complain "one learns nothing" # both are zeros

cluster 1 4
# shellcheck disable=SC2086
train 1 four runtime.devices=4 $again checkpoint.every=3 ||
    complain "4 devices: $?"
same four
replanned four 1
grep -q 'goes on by a plan of' log || complain "four does not tell"
for plan in plans/iteration-000000 plans/iteration-000002 plan; do
    "$weft" plan --explain "four/$plan.json" >"${plan##*/}.txt" 2>&1 ||
        complain "four/$plan.json: $(cat "${plan##*/}.txt")"
done
cmp -s iteration-000000.txt iteration-000002.txt &&
    complain "both plans of four are the same"
grep -q 'were predicted' log && complain "four took more than was predicted"

# From the checkpoint after the change, by the plan that it had then. It looks for
# another one when it did before.
decided four >four.decided
mv four/checkpoints/iteration-000006 gone
# shellcheck disable=SC2086
train 1 four runtime.devices=4 $again checkpoint.every=3 ||
    complain "4 devices, resumed: $?"
grep -q 'resuming from .*four/checkpoints/iteration-000003' log ||
    complain "four was not resumed"
same four
decided four | cmp -s - four.decided || complain "four decides otherwise"

# The next iteration's samples, made with weights from before the last update, are
# taken along.
train 1 one-stale runtime.devices=1 rollout.staleness=1 ||
    complain "one device, staleness: $?"
# shellcheck disable=SC2086
train 1 stale runtime.devices=4 $again rollout.staleness=1 \
    checkpoint.every=1 checkpoint.keep=9 || complain "staleness: $?"
same stale one-stale
replanned stale 1
grep -q 'generated with the newest weights' log && complain "stale is not stale"

# What is left where it is killed when it has gone on by another plan, and before
# that is in a checkpoint: it goes on by the plan before, and decides the same again.
mkdir killed
cp -R stale/. killed
for i in 3 4 5 6; do
    rm -r killed/checkpoints/iteration-00000$i
done
# shellcheck disable=SC2086
train 1 killed runtime.devices=4 $again rollout.staleness=1 \
    checkpoint.every=1 || complain "killed, resumed: $?"
grep -q 'resuming from .*killed/checkpoints/iteration-000002' log ||
    complain "killed was not resumed where it was killed"
same killed one-stale
decided stale >stale.decided
decided killed | cmp -s - stale.decided || complain "killed decides otherwise"
for run in stale killed; do
    grep '"dp"\|_fusion' $run/plans/*.json | sed 's/^[a-z]*//' >$run.plans
done
cmp -s stale.plans killed.plans || complain "killed has other plans"
[ -s killed.plans ] || complain "killed has no plans"

cluster 2 2
# shellcheck disable=SC2086
train 2 ranks-stale runtime.devices=2 $again rollout.staleness=1 ||
    complain "2 ranks, staleness: $?"
same ranks-stale one-stale
replanned ranks-stale 1

# Nodes of two kinds, on all of which the search may not change that calls are.
kind='nodes: 1, devices: 2, memory_gib: 1, memory_gbs: 0.1, task_us: 50, inside:
    {gbs: 1, us: 1}, network: {rails: 1, gbs: 1, us: 1}, tflops:'
printf '%s\n' 'name: two' "kinds: [{name: fast, $kind {f32: 0.1}}," \
    "{name: slow, $kind {f32: 0.05}}]" >cluster.yaml
train 2 ranks runtime.devices=2 plan=auto cluster=cluster.yaml layout=dp4 ||
    complain "2 ranks of two kinds: $?"
same ranks
n=$(grep -c '"dp": 4, .*"shares": \[2, 2, 1, 1\]' ranks/plan.json)
[ "$n" = 2 ] || complain "$n calls infer with shares, not 2"
n=$(grep -c '"dp": 4' ranks/plan.json)
[ "$n" = 5 ] || complain "$n calls have dp4, not 5"

for words in plan_again.every=2 "$again plan_again.gain=2"; do
    # shellcheck disable=SC2086
    train 1 refused $words && complain "$words was not refused"
    grep -q "'plan_again\.[a-z]*' " log || complain "$words: refused otherwise"
done
exit $failed
