#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every kind of bad input: one sentence on stderr, exit 1 (2 for usage), and
# nothing left behind.
set -u
weft=$WEFT_BUILDDIR/weft
src=$WEFT_SRCDIR
dir=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
failed=0
n=0

# expect STATUS 'part of the sentence' command...
expect()
{
    status=$1
    part=$2
    shift 2
    "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    n=$((n + 1))
    lines=$(grep -vc '^weft: warning: ' "$dir/err")
    if [ "$got" != "$status" ] ||
        { [ -n "$part" ] && ! grep -qF -- "$part" "$dir/err"; } ||
        { [ "$status" = 1 ] && [ "$lines" != 1 ]; }; then
        echo "FAIL $*"
        echo "  expected status $status and one line with: $part"
        echo "  got $got and $lines lines:"
        sed 's/^/    /' "$dir/err"
        failed=1
    fi
}

ppo() # words...
{
    "$weft" train -q "$src/examples/quickstart/ppo.yaml" \
        "run_dir=$dir/run" iterations=1 "$@"
}

model() # a fresh copy of the shipped model: $dir/model
{
    rm -rf "$dir/model"
    cp -r "$src/examples/quickstart/model" "$dir/model"
    chmod -R u+w "$dir/model"
}

# ---- Usage ---------------------------------------------------------------
expect 2 "usage" "$weft"
expect 2 "did you mean 'train'" "$weft" trian
expect 2 "configuration file" "$weft" train
expect 2 "no key=value" "$weft" train x.yaml word
expect 2 "--data FILE or --prompt" "$weft" generate "$dir"

# ---- Configuration -------------------------------------------------------
expect 1 "nothing.yaml" "$weft" train "$dir/nothing.yaml"
expect 1 "did you mean 'ppo.lambda'" ppo ppo.lamda=1
expect 1 "actor.lr" ppo actor.lr=fast
expect 1 "rollout.prompts" ppo rollout.prompts=0
expect 1 "runtime.devices" ppo runtime.devices=100000
expect 1 "gradient_groups" ppo numerics.gradient_groups=3
expect 1 "tensor_blocks" ppo numerics.tensor_blocks=3
expect 1 "isa" ppo numerics.isa=mmx
printf 'algorithm: ppo\nalgorithm: sft\n' >"$dir/twice.yaml"
expect 1 "twice.yaml:2" "$weft" train "$dir/twice.yaml"
printf 'algorithm: [ppo\n' >"$dir/open.yaml"
expect 1 "open.yaml:" "$weft" train "$dir/open.yaml"

# ---- Data ----------------------------------------------------------------
: >"$dir/empty.jsonl"
expect 1 "empty.jsonl" ppo "data.path=$dir/empty.jsonl"
echo '{"prompt": "1+1="' >"$dir/torn.jsonl"
expect 1 "torn.jsonl" ppo "data.path=$dir/torn.jsonl"
echo '{"text_of_it": "1+1="}' >"$dir/key.jsonl"
expect 1 "key.jsonl" ppo "data.path=$dir/key.jsonl"
echo '{"prompt": "", "label": "2"}' >"$dir/blank.jsonl"
expect 1 "blank.jsonl" ppo "data.path=$dir/blank.jsonl"
awk 'BEGIN { printf "{\"label\": \"2\", \"prompt\": \""
    for (i = 0; i < 5000; i++) printf "9"; print "\"}" }' >"$dir/huge.jsonl"
expect 1 "the prompt has 5000 tokens, the model's positions less rollout" \
    ppo "data.path=$dir/huge.jsonl"
expect 1 "the prompt has 5000 tokens, data.max_prompt_tokens is 8;" \
    ppo "data.path=$dir/huge.jsonl" data.max_prompt_tokens=8
echo '{"prompt": [{"role": "user", "content": "1+1="}], "label": "2"}' \
    >"$dir/chat.jsonl"
expect 1 "set data.template to chatml, llama3, mistral, or a pattern" \
    ppo "data.path=$dir/chat.jsonl"
expect 1 "list of messages, which needs a chat template; set data.template" \
    ppo "data.path=$dir/chat.jsonl" data.template=none
model; expect 1 "chat.jsonl' line 1: the prompt is a list of messages, which needs" \
    "$weft" score "$dir/model" --data "$dir/chat.jsonl"
echo '{"prompt": "1+1="}' >"$dir/nolabel.jsonl"
expect 1 "label" ppo "data.path=$dir/nolabel.jsonl"

# ---- Models --------------------------------------------------------------
expect 1 "$dir/none" ppo "model.actor=$dir/none"
model; head -c 2000 "$dir/model/model.safetensors" >"$dir/x"
cp "$dir/x" "$dir/model/model.safetensors"
expect 1 "model.safetensors" ppo "model.actor=$dir/model"
model; printf '\377\377\377\377\377\377\377\177' |
    dd of="$dir/model/model.safetensors" conv=notrunc 2>/dev/null
expect 1 "model.safetensors" ppo "model.actor=$dir/model"
model; sed -i 's/"hidden_size": [0-9]*/"hidden_size": 64/' "$dir/model/config.json"
expect 1 "shape" ppo "model.actor=$dir/model"
model; sed -i 's/"llama"/"mamba"/' "$dir/model/config.json"
expect 1 "mamba" ppo "model.actor=$dir/model"
# four bytes of NaN at the end of the last tensor
model; size=$(wc -c <"$dir/model/model.safetensors")
printf '\377\377\377\377' | dd of="$dir/model/model.safetensors" bs=1 \
    seek=$((size - 4)) conv=notrunc 2>/dev/null
expect 1 "NaN" ppo "model.actor=$dir/model"
model; echo '{"model": {"type": "Unigram"}}' >"$dir/model/tokenizer.json"
expect 1 "Unigram" ppo "model.actor=$dir/model"
model; echo '{"model": ' >"$dir/model/tokenizer.json"
expect 1 "tokenizer.json" ppo "model.actor=$dir/model"
# no token is one z: "zz!" can be spelled, "az!" cannot
model; sed -i 's/^   "z": /   "zz": /' "$dir/model/tokenizer.json"
expect 1 "weft train: the tokens of '$dir/model' cannot spell rollout.stop 'az!'" \
    ppo "model.actor=$dir/model" rollout.stop=az!
generate() # words...
{
    "$weft" generate "$dir/model" --prompt 1+1= --max-new-tokens 2 \
        -o "$dir/lines" "$@"
}
expect 1 "weft generate: the tokens of '$dir/model' cannot spell --stop 'az!'" \
    generate --stop zz! --stop az!
[ -z "$(ls "$dir" | grep lines)" ] ||
    { echo "FAIL a refused weft generate left $(ls "$dir")"; failed=1; }
expect 0 "" generate --stop zz!

# ---- Machine -------------------------------------------------------------
expect 1 "needs" ppo runtime.memory_limit_gib=0.001
if [ "$(id -u)" != 0 ]; then
    mkdir "$dir/locked" && chmod a-w "$dir/locked"
    expect 1 "locked" ppo "run_dir=$dir/locked/run"
fi
: >"$dir/file"
expect 1 "$dir/file" ppo "run_dir=$dir/file/run"
expect 1 "holds other files" ppo "run_dir=$src/tests"
if [ -w /dev/full ]; then
    expect 1 "No space" sh -c "echo 1 |
        '$weft' tokenize '$src/examples/quickstart/model' >/dev/full"
fi

# A refused run leaves no run directory.
[ ! -e "$dir/run" ] || { echo "FAIL a refused run left $dir/run"; failed=1; }

# ---- Reward programs -----------------------------------------------------
timeout=600
program() # text of reward.sh
{
    echo "$1" >"$dir/reward.sh"
    rm -rf "$dir/run"
    cat >"$dir/program.yaml" <<YAML
algorithm: ppo
run_dir: unset
iterations: 1
data: {path: $src/examples/quickstart/prompts.jsonl}
model: {actor: $src/examples/quickstart/model, critic: $src/examples/quickstart/model}
reward: [{type: program, command: [sh, reward.sh], timeout_s: $timeout}]
rollout: {prompts: 4, max_new_tokens: 4}
YAML
    "$weft" train -q "$dir/program.yaml" "run_dir=$dir/run"
}
expect 1 "reward.sh" program 'exit 3'
expect 1 "reward.sh" program 'read line; echo "not a number"; cat >/dev/null'
expect 1 "reward.sh" program 'read line; echo "{\"index\": 0, \"score\": NaN}"; cat >/dev/null'
expect 1 "iteration 1: reward 'program': program 'sh reward.sh' gave sample 1" \
    program 'read line; echo 1; echo 1e39; cat >/dev/null'
expect 0 "" program 'while read line; do echo 0.5; done'
timeout=0.5
expect 1 "answered 0 of 4 samples in 0.5 s" program 'sleep 1000'

[ "$failed" = 0 ] && echo "$n kinds of bad input, one sentence each"
exit "$failed"
