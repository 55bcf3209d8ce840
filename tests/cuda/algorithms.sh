#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every algorithm at emulated cards, each with another model, layout and
# options, so that every kind of layer, degree and option is with several of
# them; PPO with all that has a model; the quickstart's own model. Each has the
# checkpoint of CPU devices, bit for bit, as in training.sh.
set -u
. "$WEFT_SRCDIR/tests/cuda/cards.sh"

model untied
model tied --tied --family qwen2 # with biases
model norms --family qwen3
model scalar --scalar --seed 3

# ---- Algorithms -------------------------------------------------------------
group=rollout.samples_per_prompt
both grpo tied $group=3 "1 layout=dp1,recompute" "2 layout=dp2,zero=2"
[ "$(metric gen/prefix_hit_tokens)" -gt 0 ] || fail "grpo: no shared prefix"
both rloo norms $group=2 "2 layout=tp2,recompute"
both remax untied "" "2 layout=pp2,micro_batches=2"
both reinforce_pp untied "" "2 layout=dp2,zero=1,offload"
both reinforce_pp_baseline norms $group=2 "2 layout=dp2,zero=3,recompute"
both dr_grpo tied $group=2 "4 layout=tp2pp2,micro_batches=2"
both dapo untied "$group=2 rollout.refills=2" \
    "2 layout=tp2 train.offload_optimizer=true"
both gspo tied $group=2 "4 layout=dp2pp2,zero=2"
both cispo norms $group=2 "4 layout=dp2tp2,zero=3,offload"
both dpo tied "" "2 layout=pp2,recompute,offload" "4 layout=dp2tp2,zero=1"
both kto norms "" "2 layout=tp2 model.reference_offload=true" \
    "2 layout=dp2,zero=3"
on_2_ranks dpo tied "" "4 layout=dp2tp2,zero=2,recompute"
on_2_ranks grpo tied $group=3 "2 layout=tp2 runtime.ranks_per_gpu=1"
both reward_model tied "" "2 layout=tp2,recompute" "2 layout=pp2,offload"

# ---- PPO ---------------------------------------------------------------------
# A reward model, a reference that moves, a KL weight that moves; log-probs once
# more by inference.
judged='reward=[{"type":"length","target":3,"method":"around"},'
judged="$judged{\"type\":\"model\",\"model\":\"$dir/scalar\"}]"
both ppo-judged tied "$judged ppo.kl.controller=adaptive ppo.kl.horizon=10
    ppo.kl.target=0.5 ppo.entropy_coef=0.01 reference.every=1
    reference.mix=0.6" \
    "2 layout=tp2,offload ppo.recompute_logprobs=true" \
    "4 layout=dp2pp2,zero=3,recompute,offload"

# ---- The quickstart's model -------------------------------------------------
ln -s "$quick/model" quick
both sft-quick quick "train.batch=8" "2 layout=dp2" "2 layout=tp2"
both ppo-quick quick "data.path=$quick/prompts.jsonl rollout.max_new_tokens=8
    rollout.lengths=null reward=[{\"type\":\"exact_match\"}]" "2 layout=tp2"
exit $failed
