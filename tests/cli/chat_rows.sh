#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fine-tuning on a conversation trains, weight for weight, what it trains on
# the text that the template makes of it: all behind the opened turn is
# learned, the template's end of the turn is, and no EOS follows it.
# shellcheck disable=SC2034
data="shuffle: false" batch=1
. "$WEFT_SRCDIR/tests/cli/sft_rows.sh"

train_rows() # name, words...: the rows are in name.jsonl
{
    train "$@" "data.path=$1.jsonl" || fail "$1"
}

cat >chat.jsonl <<'R'
{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}
R
cp chat.jsonl folder.jsonl
cat >text.jsonl <<'R'
{"prompt": "[user] hi [end]\n[assistant] ", "response": "yo [end]\n"}
R
cp text.jsonl eos.jsonl

train_rows chat 'data.template="[{role}] {content} [end]\n"'
train_rows text data.template=none data.add_eos=false
cmp chat.safetensors text.safetensors || fail "a conversation is not its text"
train_rows eos data.template=none
cmp -s eos.safetensors text.safetensors && fail "the EOS makes no difference"

# The folder's own template, without being asked.
cat >model/chat_template.jinja <<'J'
{% for m in messages %}{{ '[' + m.role + '] ' + m.content }} [end]
{% endfor %}{% if add_generation_prompt %}{{ '[assistant] ' }}{% endif %}
J
train_rows folder
cmp chat.safetensors folder.safetensors || fail "the folder's template"
exit "$failed"
