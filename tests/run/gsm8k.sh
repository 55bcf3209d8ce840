#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A folder of Hugging Face's libraries on the command line: ids and log-probs
# are those of Transformers (tests/data/gsm8k/make_scores.py), and so are the
# ids of every question of GSM8K where its data is.
set -u
weft=$WEFT_BUILDDIR/weft
data=$WEFT_TEST_DATA/gsm8k
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAIL: $*"; exit 1; }

# list KEY FILE: what stands within the key's brackets, blanks between
list()
{
    sed -n "s/.*\"$1\": \[\([^]]*\)\].*/\1/p" "$2" | tr -d ,
}

list tokens "$data/scores.jsonl" >"$dir/ids"
[ "$(wc -l <"$dir/ids")" = 2 ] || fail "scores.jsonl has no two texts"
sed 's/^{"text": \(".*"\), "tokens".*/\1/' "$data/scores.jsonl" >"$dir/texts"
"$weft" tokenize --json-input "$data/model" "$dir/texts" >"$dir/out" ||
    exit 1
cmp "$dir/out" "$dir/ids" || fail "weft tokenize: other ids"

# compare LIMIT GOLDEN option...: ids, and log-probs within LIMIT, of all texts
compare()
{
    limit=$1 golden=$2
    shift 2
    "$weft" score "$data/model" "$@" -o "$dir/scores" || exit 1
    list tokens "$golden" >"$dir/ids"
    list tokens "$dir/scores" | cmp - "$dir/ids" || fail "weft score: ids"
    list logprobs "$golden" >"$dir/expected"
    list logprobs "$dir/scores" | paste -d ' ' "$dir/expected" - |
        awk -v limit="$limit" -v rows="$(wc -l <"$golden")" '
            NF % 2 || NF < 40 || $1 != "null" { bad = 1 }
            {
                for (i = 2; i <= NF / 2; i++) {
                    d = $i - $(NF / 2 + i)
                    d = d < 0 ? -d : d
                    most = d > most ? d : most
                    n++
                }
            }
            END {
                printf "%d log-probs, largest difference %.2g\n", n, most
                exit bad || NR != rows || !(most <= limit)
            }' || fail "weft score: other log-probs"
}
# f32: sums in another order, and six decimals in the file; bf16: weights and
# activations of 8 bits
compare 2e-5 "$data/scores.jsonl" --data "$data/scores.jsonl"
compare 0.05 "$data/scores.jsonl" --data "$data/scores.jsonl" --dtype bf16
# The same as texts; special tokens spelled in them become their ids.
sed 's/, "tokens".*/}/' "$data/scores.jsonl" >"$dir/text"
compare 2e-5 "$data/scores.jsonl" --data "$dir/text"

questions=${WEFT_GSM8K:-$WEFT_SRCDIR/../shared/data/gsm8k}/test.jsonl
if [ ! -f "$questions" ]; then
    echo "skipped: no '$questions' here; WEFT_GSM8K names GSM8K's folder"
    exit 77
fi
"$weft" generate "$data/model" --data "$questions" --template auto \
    --max-new-tokens 1 -o "$dir/prompts" || exit 1
list prompt_tokens "$dir/prompts" >"$dir/ids"
found="$(sha256sum <"$dir/ids" | cut -d ' ' -f 1) $(wc -w <"$dir/ids")"
echo "$(wc -l <"$dir/ids") questions, ${found#* } ids"
[ "$found" = "$(cat "$data/prompts.sha256")" ] ||
    fail "GSM8K's questions have other ids"
