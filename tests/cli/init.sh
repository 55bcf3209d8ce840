#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft init: makes folders, says what they are, leaves nothing on failure.
set -u
weft=$WEFT_BUILDDIR/weft
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

# expect STATUS 'part of what it says' options...
expect()
{
    status=$1
    part=$2
    shift 2
    "$weft" init "$@" >out 2>err
    got=$?
    if [ "$got" != "$status" ] || ! cat out err | grep -qF -- "$part"; then
        echo "FAIL weft init $*"
        echo "  expected status $status and: $part"
        echo "  got $got:"
        cat out err | sed 's/^/    /'
        failed=1
    fi
}

check() # what, command...
{
    what=$1
    shift
    "$@" >/dev/null 2>&1 || { echo "FAIL $what"; failed=1; }
}

expect 0 "m: llama, 0.1M parameters, 259 tokens, f32" --preset nano -o m
for f in config.json generation_config.json model.safetensors \
    tokenizer.json tokenizer_config.json; do
    check "m/$f is there" test -s "m/$f"
done
expect 1 "'m' exists already" --preset nano -o m
expect 0 "" --preset nano -o again
check "one seed, one file" cmp m/model.safetensors again/model.safetensors
expect 0 "" --preset nano --seed 2 -o other
check "two seeds, two files" \
    sh -c '! cmp m/model.safetensors other/model.safetensors'
expect 0 '"parameters": ' --hidden 64 --layers 2 --heads 4 --family qwen3 \
    --kv-heads 2 --head-dim 32 --dtype bf16 --json -o q
expect 0 "with a scalar head" --preset nano --scalar --tokenizer m -o critic
check "the tokenizer is copied" cmp m/tokenizer.json critic/tokenizer.json
expect 0 "" --preset nano --max-shard-mib 1 --vocab 20000 -o shards
check "an index" test -s shards/model.safetensors.index.json

expect 2 "-o FOLDER is missing" --preset nano
expect 2 "unknown preset 'huge'" --preset huge -o x
expect 2 "--hidden, --layers and --heads are needed" --hidden 64 -o x
expect 2 "unknown family 'gpt2'" --family gpt2 --preset nano -o x
expect 2 "unknown dtype 'int8'" --dtype int8 --preset nano -o x
expect 2 "exclude each other" --tied --untied --preset nano -o x
expect 1 "is not a multiple of the 5 heads" --hidden 64 --layers 1 --heads 5 \
    -o x
expect 1 "a vocabulary of 100 is smaller than the tokenizer's 259" \
    --preset nano --vocab 100 -o x
expect 1 "it has no tokenizer.json" --preset nano --tokenizer nowhere -o x
expect 1 "disk full" --hidden 65536 --layers 1000 --heads 512 -o x
expect 1 "cannot create folder" --preset nano -o /dev/null/x
check "nothing is left" test ! -e x
check "no temporary folder" sh -c '! ls -d .x.tmp-* .*.tmp-*'
exit "$failed"
