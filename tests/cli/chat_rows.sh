#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fine-tuning on a conversation trains, weight for weight, what it trains on
# the text that the template makes of it: all behind the opened turn is
# learned, the template's end of the turn is, and no EOS follows it.
set -u
weft=$WEFT_BUILDDIR/weft
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0
fail() { echo "FAIL $*"; cat err; failed=1; }

"$weft" init --hidden 32 --layers 1 --heads 2 --intermediate 64 \
    --tokenizer bytes --max-positions 128 -o model >err 2>&1 || fail "init"
cat >sft.yaml <<'Y'
algorithm: sft
iterations: 1
data: {path: rows.jsonl}
model: {actor: model}
train: {batch: 1}
Y

train() # name, words...
{
    name=$1
    shift
    "$weft" train -q sft.yaml "run_dir=$dir/$name" "data.path=$name.jsonl" \
        "$@" >out 2>err || fail "$name"
    cp "$name"/checkpoints/iteration-*/actor/model.safetensors \
        "$name.safetensors"
}

cat >chat.jsonl <<'R'
{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}
R
cp chat.jsonl folder.jsonl
cat >text.jsonl <<'R'
{"prompt": "[user] hi [end]\n[assistant] ", "response": "yo [end]\n"}
R
cp text.jsonl eos.jsonl

train chat 'data.template="[{role}] {content} [end]\n"'
train text data.template=none data.add_eos=false
cmp chat.safetensors text.safetensors || fail "a conversation is not its text"
train eos data.template=none
cmp -s eos.safetensors text.safetensors && fail "the EOS makes no difference"

# The folder's own template, without being asked.
cat >model/chat_template.jinja <<'J'
{% for m in messages %}{{ '[' + m.role + '] ' + m.content }} [end]
{% endfor %}{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}
J
train folder
cmp chat.safetensors folder.safetensors || fail "the folder's template"
exit "$failed"
