#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rows that are too long, by their prompts or their responses: what is trained
# after `data.long_prompts` has cut or skipped them is, weight for weight, what
# is trained on data that are short to begin with.
# shellcheck disable=SC2034
data="max_prompt_tokens: 8, add_eos: false, shuffle: false" batch=3
. "$WEFT_SRCDIR/tests/cli/sft_rows.sh"

row() # prompt, response
{
    printf '{"prompt": "%s", "response": "%s"}\n' "$1" "$2"
}
many() { printf "%$2s" '' | tr ' ' "$1"; }

{ row ab cd; row pp "$(many x 80)"; row "$(many y 92)abcdefgh" zz; } >long.jsonl
{ row ab cd; row pp "$(many x 62)"; row abcdefgh zz; } >cut.jsonl
row ab cd >kept.jsonl

train long data.path=long.jsonl data.long_prompts=truncate || fail "truncate"
train cut data.path=cut.jsonl || fail "short rows"
cmp long.safetensors cut.safetensors || fail "cut rows train otherwise"
train skipped data.path=long.jsonl data.long_prompts=skip train.batch=1 ||
    fail "skip"
train kept data.path=kept.jsonl train.batch=1 || fail "one row"
cmp skipped.safetensors kept.safetensors || fail "skipped rows train"
cmp -s cut.safetensors kept.safetensors && fail "the rows make no difference"

refused() # rows, part of the sentence
{
    printf '%s\n' "$1" >rows.jsonl
    train refused data.path=rows.jsonl && fail "not refused: $2"
    grep -qF -- "$2" err || fail "$2"
}
refused "$(row pp "$(many x 80)")" "rows.jsonl' line 1: the text (prompt and \
response) has 82 tokens, the model's positions are 64; shorten it, or set \
data.long_prompts to skip or truncate"
refused "$(row "$(many y 100)" zz)" "rows.jsonl' line 1: the prompt has 100 \
tokens, data.max_prompt_tokens is 8; shorten it"
train all data.path=long.jsonl data.long_prompts=skip \
    data.max_prompt_tokens=1 && fail "every row is skipped"
grep -qF "every row is too long" err || fail "every row is too long"
exit "$failed"
