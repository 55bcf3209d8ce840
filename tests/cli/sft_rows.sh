# SPDX-License-Identifier: Apache-2.0
# Set-up of tests that compare the weights of SFT steps: a tiny model and a
# configuration in a temporary folder, which is the working directory. Read by
# tests that have set `data` and `batch`, keys of the configuration.
# shellcheck shell=sh
set -u
weft=$WEFT_BUILDDIR/weft
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0
fail() { echo "FAIL $*"; cat err; failed=1; }

"$weft" init --hidden 32 --layers 1 --heads 2 --intermediate 64 \
    --tokenizer bytes --max-positions 64 -o model >err 2>&1 || fail "init"
cat >sft.yaml <<Y
algorithm: sft
iterations: 1
data: {path: rows.jsonl, $data}
model: {actor: model}
train: {batch: $batch}
Y

# One step; the weights are then in name.safetensors.
train() # name, words...
{
    name=$1
    shift
    "$weft" train -q sft.yaml "run_dir=$dir/$name" "$@" >out 2>err ||
        return 1
    cp "$name"/checkpoints/iteration-*/actor/model.safetensors \
        "$name.safetensors"
}
