#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft plan: made, written, explained, checked; what is wrong is one sentence
# and leaves no file.
set -u
command=plan
. "$WEFT_SRCDIR/tests/cli/expect.sh"
ppo=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
sft=$WEFT_SRCDIR/examples/quickstart/sft.yaml

row() # call nodes devices dp tp pp micro-batches zero recompute offload
{
    grep "^$1 " out | sed 's/by tokens/tokens/' | tr -s ' ' |
        grep -qx "$*" || fail "no row $*"
}

# ---- Made -----------------------------------------------------------------
# GPUs that this machine need not have; without CUDA not all is counted.
expect 0 "devices of each 3, of which the first 2 are GPUs" "$ppo" \
    runtime.devices=gpu --gpus 2
row actor_generate 0 0-1 2 1 1 - - - -
lacks="built without CUDA: what a task on a GPU takes beside its tiles is not \
counted"
case $("$weft" info) in
*'
  CUDA         yes'*) grep -qF "$lacks" out && fail "with CUDA all is counted" ;;
*) grep -qF "$lacks" out || fail "without CUDA: not said" ;;
esac
expect 0 "nodes 1, devices of each 2" "$ppo" runtime.devices=2
row actor_generate 0 0-1 2 1 1 - - - -
row ref_infer 0 0-1 2 1 1 tokens - - no
row actor_train 0 0-1 2 1 1 tokens 0 no -
expect 0 "nodes 2, devices of each 4" "$ppo" --nodes 2 --devices 4 \
    train.zero=1 train.recompute=true train.micro_batches=2
row actor_generate 0-1 0-3 8 1 1 - - - -
row critic_infer 0-1 0-3 8 1 1 tokens - - -
row critic_train 0 0-3 4 1 1 2 1 yes -
grep -q "4 of 8 devices train nothing: actor_train has dp 4, all that numerics.gradient_groups allows; a new run may set it to 8" out ||
    fail "devices are idle, and nobody says why"
expect 0 "" "$ppo" --devices 8 numerics.gradient_groups=8
row actor_train 0 0-7 8 1 1 tokens 0 no -
grep -q "train nothing" out && fail "no device is idle"
expect 0 "nodes 1" "$sft" "model.actor=${sft%/*}/model"
[ "$(grep -c '_[a-z]* ' out)" = 1 ] || fail "an SFT run trains, no more"
expect 0 "" "$ppo" --nodes 2 --devices 2 \
    --from layout=dp2pp2,zero=2,offload -o plan.json
row ref_infer 0-1 0-1 2 1 2 tokens - - yes
row critic_train 0-1 0-1 2 1 2 tokens 2 no -
mv out table
expect 0 "" "$ppo" --devices 4 layout=dp2tp2
row actor_train 0 0-3 2 2 1 tokens 0 no -
expect 0 "" "$ppo" --devices 4 layout=dp2tp2 --from layout=tp4
row actor_train 0 0-3 1 4 1 tokens 0 no -

expect 0 "" "$ppo" --devices 8 --from openrlhf
row actor_generate 0 4-7 4 1 1 - - - -
row critic_train 0 2-3 2 1 1 tokens 3 no -
expect 0 "" "$ppo" --devices 8 layout=interleave-2
row ref_infer 0 4-7 4 1 1 tokens - - no
expect 0 "" "$ppo" --devices 4 --from ratio=actor:1,critic:0.5,ref:0.25
row critic_train 0 0-1 2 1 1 tokens 3 no -
row ref_infer 0 2 1 1 1 tokens - - no
expect 0 "" --from list
grep -q "^flexrlhf-guideline  *interleave-1 or" out || fail "no names"

# ---- Read -----------------------------------------------------------------
expect 0 "" --explain plan.json
cmp -s table out || fail "the table of the file is another"
expect 0 "" "$ppo" --check plan.json
cmp -s table out || fail "the table of the checked file is another"
expect 0 "" --explain plan.json --json
cmp -s plan.json out || fail "the JSON of the file is another"
expect 0 "" "$ppo" --nodes 2 --devices 2 --from layout=dp2pp2,zero=2,offload \
    --json
cmp -s plan.json out || fail "printed and written JSON differ"
# The plan of the configuration is not read when a new one is made.
expect 0 "" "$ppo" --devices 1 plan=nowhere.json -o new.json
expect 0 "" "$ppo" --check new.json --nodes 1 --devices 1

# ---- Many devices ---------------------------------------------------------
# What calls are priced at says whether a plan fits, where there are prices.
. "$WEFT_SRCDIR/tests/layers_cluster.sh"
layers_cluster 32 4
many="--nodes 32 --from layout=dp4pp2"
# shellcheck disable=SC2086
expect 0 "it fits: by prices of its calls" "$ppo" $many --cluster cluster.yaml \
    runtime.devices=4 -o many.json
expect 0 "it fits: by prices of its calls" "$ppo" --check many.json --nodes 32 \
    --cluster cluster.yaml runtime.devices=4
grep -q '^iteration  *[0-9]' out || fail "no predicted time"
sed 's/memory_gib: 8/memory_gib: 0.01/' cluster.yaml >small.yaml
expect 0 "it does not fit: by prices" "$ppo" --check many.json --nodes 32 \
    --cluster small.yaml runtime.devices=4
# A step of as few samples as there can be: one of 32 replicas has it.
expect 0 "it fits: by prices of its calls" "$ppo" --nodes 32 \
    --cluster cluster.yaml --from layout=dp32tp4 runtime.devices=4 \
    runtime.place=device numerics.gradient_groups=32 numerics.tensor_blocks=4 \
    rollout.prompts=32 rollout.samples_per_prompt=1 ppo.mini_batches=16
for word in "" train.intra_stage_fusion=true; do
    # shellcheck disable=SC2086
    expect 0 "its memory is not counted: with --cluster" "$ppo" $many \
        --devices 4 ${word:+$word --cluster cluster.yaml}
done
# shellcheck disable=SC2086
"$weft" plan "$ppo" $many --devices 4 --gangs >out 2>err
grep -q "memory is counted by instruction" err && grep -q "MiB at most" out ||
    fail "it is not counted with --gangs"

# ---- Refused --------------------------------------------------------------
expect 2 "give a configuration file"
expect 2 "'word' is no key=value word" "$ppo" word
expect 2 "'--from' must be layout=TEXT" "$ppo" --from dp2
expect 2 "--explain takes a plan alone" "$ppo" --explain plan.json
expect 2 "--explain takes a plan alone" --explain plan.json -o x
expect 2 "--check makes no plan" "$ppo" --check plan.json -o x
expect 2 "--nodes" "$ppo" --nodes 0
expect 1 "layout 'dp2tq2': 'tq2' must be dp, tp or pp" "$ppo" \
    --from layout=dp2tq2 -o x
expect 1 "'actr' is no role of the run; 'weft plan --graph' lists" "$ppo" \
    --from ratio=actr:1
expect 1 "actor_train: dp 8 is more than the 4 gradient groups" "$ppo" \
    --devices 8 --from verl
expect 1 "layout 'dp3' takes 3 devices" "$ppo" --devices 4 \
    --from layout=dp3 -o x
expect 1 "actor_generate: tp 8 is more than the model's 4 tensor blocks" \
    "$ppo" --devices 8 --from layout=tp8 -o x
expect 1 "take dp 4, or numerics.gradient_groups 8" "$ppo" --devices 8 \
    --from layout=dp8 -o x
expect 1 "'layout' and 'plan' exclude each other" "$ppo" layout=dp1 \
    plan=plan.json
expect 1 "nothing.yaml" nothing.yaml
expect 1 "nowhere" "$ppo" model.critic=nowhere
expect 1 "nothing.json" --explain nothing.json
expect 1 "nothing.json" "$ppo" --check nothing.json
expect 1 "plan.json: the plan is for 2 nodes of 2 devices, but the run has 1" \
    "$ppo" --check plan.json --nodes 1
expect 1 "cannot" "$ppo" -o nowhere/plan.json
sed 's/"zero"/"zeor"/' plan.json >bad.json
expect 1 "bad.json: calls.actor_generate: unknown key 'zeor'; did you mean" \
    --explain bad.json
sed 's/"dp": 2/"dp": 4/' plan.json >bad.json
expect 1 "bad.json: actor_generate: dp 4 x tp 1 x pp 2 is 8 devices" "$ppo" \
    --check bad.json
grep -v critic_infer plan.json >bad.json
expect 1 "bad.json: critic_infer: the run makes this call" "$ppo" \
    --check bad.json
head -c 300 plan.json >bad.json
expect 1 "bad.json:" --explain bad.json
if [ -w /dev/full ]; then
    "$weft" plan --explain plan.json >/dev/full 2>err
    [ $? = 1 ] || fail "a full disk"
fi
"$weft" plan --graph "$ppo" >graph || fail "plan --graph"
grep -q '^critic: trained, scalar head$' graph || fail "the graph's roles"
grep -A 2 '^actor_train: trains actor, version i to i + 1$' graph |
    grep -q 'reads  rollout, advantages$' || fail "the graph's calls"
expect 2 "--graph has no JSON" "$ppo" --graph --json
expect 2 "--graph makes no plan" "$ppo" --graph --devices 4
expect 2 "--explain takes a plan alone" --explain plan.json --svg x
expect 1 "nowhere" "$ppo" --svg nowhere/x
[ ! -e x ] || fail "a refused plan left a file"
exit "$failed"
