#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: bench/searched.sh [SECONDS]
#
# `make bench-searched`: the layouts of RLHFuse's models (table 3; generation and
# inference by tp in a node) beside plans that a search finds in so many seconds
# (120), as ReaL's would, on RLHFuse's 256 GPUs: seconds of an iteration, as
# simulated with graphs on GPUs (doc/simulate.md); -: there was no time to.
# "apart": without fusion, where a critic may train beside the next generation;
# "inter": the last samples move; "both": training is fused, too. 512 samples,
# prompts of 256 tokens, responses lognormal:200:0.8 cut at MAX_NEW_TOKENS
# (1024), mini-batches of 64.
set -eu
weft=$WEFT_BUILDDIR/weft
cluster=$WEFT_SRCDIR/examples/clusters/rlhfuse_hopper.yaml
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

model() # name, hidden, layers, heads, intermediate
{
    for kind in "$1 LlamaForCausalLM" "$1-scalar LlamaForSequenceClassification"
    do
        name=${kind% *} arch=${kind#* }
        mkdir "$name"
        cat >"$name/config.json" <<END
{"architectures": ["$arch"], "model_type": "llama", "hidden_size": $2,
 "num_hidden_layers": $3, "num_attention_heads": $4,
 "num_key_value_heads": $4, "intermediate_size": $5, "vocab_size": 32000,
 "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false,
 "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
 "num_labels": 1}
END
    done
}
model 13B 5120 40 40 13824
model 33B 6656 60 52 17920
model 65B 8192 80 64 22016
cat >run.yaml <<END
algorithm: ppo
run_dir: unset
iterations: 10
data: {prompt_tokens: 256}
rollout: {prompts: 512, max_new_tokens: ${MAX_NEW_TOKENS:-1024}, slots: 64}
ppo: {mini_batches: 8}
train: {micro_batch_tokens: 1280}
numerics: {dtype: bf16, gradient_groups: 8}
runtime: {place: device, devices: gpu}
END

call() # name, dp, tp, pp
{
    away=false again=false
    case $1 in
    ref_infer | reward_infer) away=true ;;
    *_train) again=true ;;
    esac
    printf '%s"%s": {"mesh": {"node": 0, "nodes": 32, "device": 0, "devices": 8},
 "dp": %s, "tp": %s, "pp": %s, "offload": %s, "recompute": %s}' \
        "$between" "$1" "$2" "$3" "$4" $away $again
    between=", "
}

layout() # size, generates or trains: dp tp pp
{
    case $1-$2 in
    33B-generates) echo 64 4 1 ;;
    *-generates) echo 32 8 1 ;;
    13B-trains) echo 8 8 4 ;;
    33B-trains) echo 8 4 8 ;;
    65B-trains) echo 2 8 16 ;;
    esac
}

# shellcheck disable=SC2046
plan() # actor, critic, intra, inter
{
    between=
    printf '{"format": 1, "nodes": 32, "devices": 9, "gpus": 8,
 "intra_stage_fusion": %s, "inter_stage_fusion": %s, "calls": {' "$3" "$4"
    for c in actor_generate ref_infer; do
        call $c $(layout "$1" generates)
    done
    for c in reward_infer critic_infer; do
        call $c $(layout "$2" generates)
    done
    call actor_train $(layout "$1" trains)
    call critic_train $(layout "$2" trains)
    printf '}}\n'
}

weft() # command, words...
{
    command=$1
    shift
    "$weft" "$command" run.yaml --cluster "$cluster" --nodes 32 \
        --lengths lognormal:200:0.8 "model.actor=$actor" \
        "model.critic=$critic-scalar" "model.reference=$actor" \
        "reward=[{type: model, model: $critic-scalar}]" "$@" 2>log || {
        cat log
        exit 1
    }
}

seconds() # intra, inter
{
    plan "$actor" "$critic" "$1" "$2" >plan.json
    weft simulate --plan plan.json |
        sed -n 's/.* devices: \([0-9.]*\) s each.*/\1/p'
}

echo "actor/critic    apart    inter     both   searched"
for pair in 13B/33B 33B/13B 33B/65B 65B/33B; do
    actor=${pair%/*} critic=${pair#*/}
    printf '%-12s' $pair
    for fusion in "false false" "false true" "true true"; do
        # shellcheck disable=SC2086
        printf ' %8.2f' "$(seconds $fusion)"
    done
    weft plan --search --time-limit "${1:-120}" -o found.json >found
    awk '/ s an iteration within the model, not simulated/ { found = "-" }
        / s simulated as a whole/ { found = $8 }
        /^inter-stage fusion is taken/ { also = "  (samples move)" }
        END { printf "   %8s%s\n", found, also }' found
done
