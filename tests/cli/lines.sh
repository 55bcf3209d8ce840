#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft generate and weft score: lines in, lines out. The tokenizer has a token
# per byte, so that ids are bytes.
set -u
. "$WEFT_SRCDIR/tests/cli/expect.sh"
"$weft" init --preset nano --tokenizer bytes -o model >/dev/null || exit 1

# A zero byte ends no text that was generated: its line has \u0000 as often as
# it has the token 0.
"$weft" generate model --prompt x --n 40 --max-new-tokens 20 --temperature 1 \
    >lines 2>err || fail "generate"
zeros=$(sed 's/.*"tokens": \[\(.*\)\], "logprobs".*/\1/' lines |
    tr ',' '\n' | grep -cx ' *0')
written=$(grep -o 'u0000' lines | wc -l)
[ "$zeros" -gt 0 ] && [ "$zeros" = "$written" ] ||
    fail "generate: $zeros tokens 0, $written times \\u0000"

grep -q '^weft: 40 samples, [0-9]* tokens read, ' err || fail "what was done"
"$weft" generate model --prompt xyz --max-new-tokens 2 >lines 2>err
grep -q '^weft: 1 sample, 3 tokens read, ' err || fail "what was done for one"

# What cannot be written is refused before anything is generated, and what is no
# file stays what it is.
command=generate
mkfifo pipe
expect 1 "cannot write '.': it is a folder" model --prompt x -o .
expect 1 "cannot write 'pipe': it is no regular file" model --prompt x -o pipe
[ -p pipe ] || fail "the pipe is gone"
expect 1 "--stop '' is empty" model --prompt x --stop ''

# ... and none that is scored or that a prompt holds.
command=score
printf '%s\n' '{"text": "a\u0000b"}' >zero.jsonl
expect 0 '"tokens": [97, 0, 98]' model --data zero.jsonl
command=generate
printf '%s\n' '{"prompt": "a\u0000b"}' >zero.jsonl
"$weft" generate model --data zero.jsonl --max-new-tokens 1 >out 2>err
grep -qF '"prompt_tokens": [97, 0, 98]' out || fail "a prompt's zero byte"

# Tokens are ids in a list, or absent; never a text in silence.
command=score
tokens()
{
    printf '{"text": "a", "tokens": %s}\n' "$3" >tokens.jsonl
    expect "$1" "$2" model --data tokens.jsonl
}
tokens 1 "tokens.jsonl' line 1: 'tokens' must be a list of token ids, not a string" '"x"'
tokens 1 "not an object" '{}'
tokens 1 "not an integer" 7
tokens 1 "not an empty one" '[]'
tokens 1 "tokens[1] is no id below" '[97, "b"]'
tokens 0 '"tokens": [97, 98]' '[97, 98]'
tokens 0 '"tokens": [97]' null
# ... also beside an integer that 64 bits do not hold
printf '%s\n' '{"text": "a", "id": 99999999999999999999, "tokens": [97, 98]}' \
    >tokens.jsonl
expect 0 '"tokens": [97, 98]' model --data tokens.jsonl
printf '%s\n' '{"other": "\u0000", "tokens": [97, 99]}' >tokens.jsonl
expect 0 '"tokens": [97, 99]' model --data tokens.jsonl
exit $failed
