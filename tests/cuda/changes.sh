#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What changes while a run at emulated cards goes on: samples that are put off,
# that share blocks of the KV cache, that move to another card with their blocks
# or without; another plan between two iterations; another layout when a run
# goes on. Each has the checkpoint of CPU devices, bit for bit, as in
# training.sh.
set -u
. "$WEFT_SRCDIR/tests/cuda/cards.sh"

model tied --tied --family qwen2
model scalar --scalar --seed 3

# ---- Samples ----------------------------------------------------------------
# Texts that go on into a second block of the KV cache, where there is none for
# all of them; with the common beginning of two prompts, and without.
model long --max-positions 160 --family qwen3 --tied
for i in 1 2 3; do
    text="These are the words with which every prompt begins: $i."
    echo "{\"prompt\": \"$text\"}"
done >long.jsonl
blocks="data.path=$dir/long.jsonl data.template=none rollout.prompts=3
    rollout.samples_per_prompt=2 rollout.max_new_tokens=24
    rollout.lengths=lognormal:10:1"
both grpo-blocks long "$blocks" \
    "1 rollout.kv_blocks=4 rollout.prefix_sharing=false rollout.chunk_tokens=3"
put_off=$(metric gen/preempted)
both grpo-blocks long "$blocks" \
    "2 rollout.kv_blocks=3 layout=tp2 rollout.prefill_tokens=20"
[ "$put_off" -gt 0 ] && [ "$(metric gen/preempted)" -gt 0 ] ||
    fail "no sample was put off"
[ "$(metric gen/prefix_hit_tokens)" -gt 0 ] || fail "no shared prefix"

# Samples that move to another card with their KV cache, and without; in an
# order of statuses that is said, so that every run moves the same.
moves() # FILE 'how'
{
    for i in 1 2; do
        echo "{\"iteration\": $i, \"call\": \"actor_generate\"," \
            "\"remaining\": 0.9, \"instances\": 1, \"most_batch\": 0$2," \
            "\"order\": [0]}"
    done >"$1"
}
moves caches.jsonl ', "cached": [[1, 4096]]'
moves again.jsonl ''
fusion="rollout.inter_stage_fusion=true rollout.chunk_tokens=2"
for layout in dp2tp2 dp2pp2; do
    both grpo-blocks long "$blocks" \
        "4 layout=$layout $fusion rollout.decisions=$dir/caches.jsonl"
    [ "$(metric gen/moved_caches)" -gt 0 ] || fail "$layout: no cache moved"
done
on_2_ranks grpo-blocks long "$blocks" \
    "2 layout=dp2 $fusion rollout.decisions=$dir/caches.jsonl" &&
    [ "$(metric gen/moved_caches)" = 0 ] && fail "no cache moved to a rank"
both grpo-blocks long "$blocks" \
    "2 layout=dp2 $fusion rollout.decisions=$dir/again.jsonl"
[ "$(metric gen/migrated)" -gt 0 ] && [ "$(metric gen/moved_caches)" = 0 ] ||
    fail "no sample moved without its cache"

# ---- Plans that are found ---------------------------------------------------
# Responses are shorter than they may be, so that another plan is faster.
cat >cluster.yaml <<'END'
name: some
kinds: [{name: node, nodes: 1, devices: 4, memory_gib: 1, tflops: {f32: 0.001},
    memory_gbs: 0.1, task_us: 5, inside: {gbs: 0.05, us: 1},
    network: {rails: 1, gbs: 0.05, us: 1}}]
END
printf '%s\n' 1 2 2 2 2 2 2 2 >lengths.txt
both ppo-again long "iterations=3 rollout.prompts=6 rollout.max_new_tokens=120
    rollout.lengths=$dir/lengths.txt" \
    "4 plan=auto cluster=$dir/cluster.yaml plan_again.every=1
    plan_again.gain=0.05"
grep -q '"plan/replanned": 1' last/metrics.jsonl || fail "the plan is kept"

# ---- Runs that go on --------------------------------------------------------
# After one iteration, in another layout, with another option; and a model with
# GPUs, or without, must have them again.
go_on() # NAME ALGORITHM 'words of both' 'CARDS words' 'CARDS words'
{
    run=$1 algorithm=$2 common=$3 first=$4 then=$5
    # shellcheck disable=SC2086
    WEFT_CARDS=${first%% *} short "$run" "$algorithm" $common \
        runtime.devices=gpu ${first#* } iterations=1 &&
        WEFT_CARDS=${then%% *} short "$run" "$algorithm" $common \
            runtime.devices=gpu ${then#* } && same "$algorithm-cpu" "$run"
}
models="model.actor=$dir/tied model.reference=$dir/tied
    model.critic=$dir/scalar"
group=rollout.samples_per_prompt=3
both grpo tied $group "1 layout=dp1 rollout.slots=2"
both ppo tied "" "2 layout=pp2 rollout.chunk_tokens=1"
go_on ppo-resumed ppo "$models" "2 layout=tp2,offload" \
    "4 layout=dp2pp2,zero=3,recompute"
go_on grpo-resumed grpo "$group model.actor=$dir/tied" "1 layout=dp1" \
    "2 layout=dp2,zero=1 train.offload_optimizer=true"
for to in gpu 1; do
    from=gpu was=GPUs is=CPUs
    [ $to = 1 ] || from=1 was=CPUs is=GPUs
    # shellcheck disable=SC2086
    short other ppo $models runtime.devices=$from iterations=1
    # shellcheck disable=SC2086
    "$weft" train -q "$quick/ppo.yaml" run_dir=other $models $generated \
        "$scored" numerics.dtype=f32 numerics.tensor_blocks=2 \
        numerics.gradient_groups=4 iterations=2 runtime.devices=$to \
        numerics.exact=false >out 2>&1 && fail "from $was to $is: status"
    grep -q "had the actor on $was, this one has it on $is" out ||
        fail "from $was to $is"
    rm -rf other
done
exit $failed
