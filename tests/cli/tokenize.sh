#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft tokenize: lines of text and ids. (What ids are right is tested in
# tests/model; here the tokenizer has a token per byte.)
set -u
weft=$WEFT_BUILDDIR/weft
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0
"$weft" init --preset nano --tokenizer bytes -o "$dir/model" >/dev/null ||
    exit 1

# same NAME EXPECTED GOT
same()
{
    [ "$2" = "$3" ] && return
    printf 'FAIL %s\n  expected %s\n  got      %s\n' "$1" "$2" "$3"
    failed=1
}
t() { "$weft" tokenize "$@"; }

same encode "97 98 32 33" "$(echo 'ab !' | t "$dir/model")"
same file "97 98 32 33" "$(echo 'ab !' | t "$dir/model/tokenizer.json")"
same "no line feed at the end" "97" "$(printf a | t "$dir/model")"
same "empty lines" "97

98" "$(printf 'a\n\nb\n' | t "$dir/model")"
same utf8 "195 169" "$(printf '\303\251' | t "$dir/model")"
same json '{"tokens": [97, 98]}' "$(echo ab | t --json "$dir/model")"
same "json, nothing" '{"tokens": []}' "$(echo | t --json "$dir/model")"
same "json input" "97 10 98" "$(printf '%s\n' '"a\nb"' | t --json-input "$dir/model")"
same decode "ab" "$(echo 97 98 | t -d "$dir/model")"
same "decode a list" "ab" "$(echo '[97, 98]' | t --decode "$dir/model")"
same "decode json" '{"text": "a\n\"b"}' \
    "$(echo '97,10,34 98' | t -d --json "$dir/model")"
same "decode nothing" "" "$(echo | t -d "$dir/model")"
same "json input, zero byte" "97 0 98" \
    "$(printf '%s\n' '"a\u0000b"' | t --json-input "$dir/model")"
same "decode json, zero byte" '{"text": "a\u0000b\u0000"}' \
    "$(echo 97 0 98 0 | t -d --json "$dir/model")"
printf 'a\0b\0\n' >"$dir/zeros"
same "file, zero byte" "97 0 98 0" "$(t "$dir/model" "$dir/zeros")"

# A special token is one id, unless it is to be text.
special=$(sed -n 's/.*"content": *"\(<[^"]*>\)".*/\1/p' \
    "$dir/model/tokenizer.json" | head -n 1)
[ -n "$special" ] || { echo "FAIL no special token"; failed=1; }
same special 1 "$(echo "$special" | t "$dir/model" | wc -w | tr -d ' ')"
same "no special" "${#special}" \
    "$(echo "$special" | t --no-special "$dir/model" | wc -w | tr -d ' ')"
same "skip special" "a" \
    "$(echo "a$special" | t "$dir/model" | t -d --skip-special "$dir/model")"

# There and back: every byte that a line of text can hold.
printf 'tab\there \\ "q" \303\251\342\202\254\360\237\230\200 \177\n\n  x \n' \
    >"$dir/text"
t "$dir/model" "$dir/text" >"$dir/ids" && t -d "$dir/model" "$dir/ids" |
    cmp - "$dir/text" || { echo "FAIL there and back"; failed=1; }

# fails PART command...
fails()
{
    part=$1
    shift
    "$@" >"$dir/out" 2>"$dir/err"
    if [ $? != 1 ] || ! grep -qF -- "$part" "$dir/err" ||
        [ "$(wc -l <"$dir/err")" != 1 ]; then
        echo "FAIL '$part' is not what was said:"
        cat "$dir/err"
        failed=1
    fi
}
for bad in x '1 x' -1 '1.5' '[1' '1]' '[1] 2' 99999999999 '1,2;3'; do
    echo "$bad" >"$dir/bad"
    fails "$dir/bad:1: must be token ids" "$weft" tokenize -d "$dir/model" \
        "$dir/bad"
done
printf '97\00098\n' >"$dir/bad"
fails "$dir/bad:1: must be token ids from 0, not a zero byte" \
    "$weft" tokenize -d "$dir/model" "$dir/bad"
printf '"a"\n"b\n' >"$dir/bad"
fails "$dir/bad:2" "$weft" tokenize --json-input "$dir/model" "$dir/bad"
echo '[1]' >"$dir/bad"
fails "must be a JSON string" "$weft" tokenize --json-input "$dir/model" \
    "$dir/bad"
fails "$dir/none" "$weft" tokenize "$dir/none" "$dir/text"
fails "$dir/none" "$weft" tokenize "$dir/model" "$dir/none"
if [ -w /dev/full ]; then
    "$weft" tokenize "$dir/model" "$dir/text" >/dev/full 2>"$dir/err"
    [ $? = 1 ] && grep -q "No space" "$dir/err" ||
        { echo "FAIL full disk"; failed=1; }
fi
exit $failed
