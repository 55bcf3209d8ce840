#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shipped model is what its recipe makes, bit for bit on the instruction
# set it was made with.
set -u
weft=$WEFT_BUILDDIR/weft
example=$WEFT_SRCDIR/examples/quickstart
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

cp "$example/make-data.sh" "$dir" && "$dir/make-data.sh" || exit 1
for f in sft.jsonl prompts.jsonl pairs.jsonl; do
    cmp "$dir/$f" "$example/$f" || { echo "FAIL: $f is not the script's"; exit 1; }
done
"$weft" init --hidden 128 --layers 2 --heads 4 --intermediate 384 \
    --tokenizer bytes --max-positions 64 -o "$dir/init" || exit 1
"$weft" train -q "$example/sft.yaml" "model.actor=$dir/init" \
    "run_dir=$dir/run" >"$dir/out" 2>&1 || { cat "$dir/out"; exit 1; }
made=$dir/run/checkpoints/iteration-000050/actor
cmp "$made/tokenizer.json" "$example/model/tokenizer.json" || exit 1
if cmp "$made/model.safetensors" "$example/model/model.safetensors"; then
    echo "the same bits"
    exit 0
fi
isa=$("$weft" info | sed -n 's/^ *chosen *//p')
case $isa in
avx512*)
    echo "FAIL: the recipe makes another model"
    exit 1 ;;
esac
echo "skipped: this CPU's kernels ($isa) round otherwise than avx512"
exit 77
