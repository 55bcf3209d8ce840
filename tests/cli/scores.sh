#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Scores of a scalar head are those of Transformers
# (tests/data/scalar/make_scores.py): read at the last token that is not the
# padding token of config.json. That of generation_config.json does not count.
set -u
. "$WEFT_SRCDIR/tests/cli/expect.sh"
golden=$WEFT_TEST_DATA/scalar/scores.jsonl
"$weft" init --family llama --hidden 32 --layers 2 --heads 2 \
    --intermediate 64 --vocab 50 --scalar --tokenizer none --std 0.3 \
    -o model >/dev/null || exit 1
cp model/config.json config.json

for pad in 2 0 null; do
    sed "s/\"pad_token_id\": null/\"pad_token_id\": $pad/" config.json \
        >model/config.json
    echo '{"pad_token_id": 2}' >model/generation_config.json
    grep "\"pad\": $pad," "$golden" >texts
    [ "$(wc -l <texts)" = 8 ] || fail "no texts for $pad"
    "$weft" score model --data texts >out 2>err || fail "pad $pad"
    sed 's/.*"score": *\([-0-9.e]*\)}$/\1/' texts >expected
    sed 's/.*"score": *\([-0-9.e]*\)}$/\1/' out | paste expected - |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d < 2e-5)) bad = 1 }
             END { exit bad || NR != 8 }' || {
        paste expected out
        fail "scores with pad $pad"
    }
done

# A file that may be absent is refused where it is something else.
command=score
echo '{"messages": [{"role": "user", "content": "a"}]}' >chat.jsonl
for name in generation_config.json tokenizer_config.json config.json \
    tokenizer.json; do
    rm -rf folder
    cp -r "$WEFT_SRCDIR/examples/quickstart/model" folder
    chmod -R u+w folder
    rm "folder/$name"
    mkdir "folder/$name"
    expect 1 "$name" folder --template auto --data chat.jsonl
    rmdir "folder/$name"
    ln -s nowhere "folder/$name"
    expect 1 "$name" folder --template auto --data chat.jsonl
done
exit $failed
