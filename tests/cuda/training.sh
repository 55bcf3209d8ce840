#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training at emulated cards, whose products have the order of the CPU's sums:
# the checkpoint of CPU devices, bit for bit, weights and moments.
set -u
weft=$WEFT_BUILDDIR/weft
quick=$WEFT_SRCDIR/examples/quickstart
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

fail()
{
    echo "FAIL: $*"
    sed 's/^/    /' out
    failed=1
}

# avx512_bf16 rounds otherwise, and c has no fused multiply-adds.
isa=$("$weft" info | sed -n 's/^ *chosen *//p')
case $isa in
avx2) ;;
avx512*) isa=avx512 ;;
*)
    echo "skipped: this CPU has no fused multiply-adds"
    exit 77
    ;;
esac

train() # RUN words: three steps of a few rows
{
    run=$1
    shift
    "$weft" train -q "$quick/sft.yaml" model.actor="$quick/model" \
        run_dir="$run" iterations=3 train.batch=8 train.micro_batch_tokens=64 \
        numerics.isa="$isa" runtime.place=device "$@" >out 2>&1 ||
        fail "$run $*: status"
    grep -q "were predicted" out && fail "$run $*: more memory"
}

same() # RUN RUN
{
    n=0
    for f in $(cd "$1" && find checkpoints -name '*.safetensors'); do
        cmp "$1/$f" "$2/$f" >>out 2>&1 || fail "$1 and $2: $f"
        n=$((n + 1))
    done
    [ $n -ge 3 ] || fail "$1: $n files" # weights, two moments
}

for dtype in f32 bf16; do
    train "cpu-$dtype" numerics.dtype=$dtype
    train "gpu-$dtype" numerics.dtype=$dtype runtime.devices=gpu
    same "cpu-$dtype" "gpu-$dtype"
done

"$weft" init --preset nano --family qwen3 -o norms >out 2>&1 || fail init
"$weft" train -q "$quick/sft.yaml" model.actor="$dir/norms" run_dir=run \
    runtime.devices=gpu >out 2>&1 && fail "norms of queries and keys"
grep -q "norms of queries and keys do not run on GPUs yet" out || fail "qwen3"
[ ! -e run ] || fail "a run directory"
exit "$failed"
