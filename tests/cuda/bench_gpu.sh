#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/gpu on the executor: a row for each bar of a tiny shape, and what it
# says where there is no card.
set -u
bench=$WEFT_BUILDDIR/tests/cuda/bench_gpu
table=$("$bench" --shape tiny --seconds 0) || { echo "FAIL: status"; exit 1; }
failed=0
for what in 'probe: bf16 product ' 'probe: copy, read and written ' \
    'training step, 2 layers, 32 tokens ' 'head and loss, share of the step ' \
    'AdamW, 28 bytes a parameter ' 'prefill, 2 x 16 tokens ' \
    'decode, batch 1, 8 tokens before ' 'decode, batch 2, 8 tokens before ' \
    'decode, batch 3, 8 tokens before '; do
    # a time, a rate and a share that are numbers above 0
    echo "$table" | grep -Eq "\| $what *\| +[0-9.]+ ms \| +[0-9.]+ [A-Z/a-z]+ *\| +[0-9]+\.[0-9] % \|" ||
        { echo "FAIL: no row '$what'"; failed=1; }
done
[ "$(echo "$table" | grep -Ec "one launch for the chunk's steps saves *\| +-?[0-9.]+ ms ")" = 3 ] ||
    { echo "FAIL: no gain of a loop"; failed=1; }
[ "$(echo "$table" | grep -Ec 'its CUDA graph, each of [0-9]+ kernels *\|')" = 3 ] ||
    { echo "FAIL: no graph"; failed=1; }
# each bar is met or missed, as its share says
echo "$table" | awk -F'|' '$7 ~ /[<>]=/ && $5 !~ /KiB/ {
        bar = substr($7, 5) + 0
        met = $7 ~ />=/ ? $6 + 0 >= bar : $6 + 0 <= bar
        n++
        if ($8 !~ (met ? " met " : " missed ")) { print; wrong = 1 }
    }
    END { exit wrong || n < 5 }' || { echo "FAIL: bars"; failed=1; }
[ $failed = 0 ] || echo "$table"
none=$(WEFT_CARDS=none "$bench")
[ $? = 77 ] && echo "$none" |
    grep -q "nothing is measured without a GPU: there is no CUDA driver" ||
    { echo "FAIL: without a card: $none"; failed=1; }
"$bench" --shape 70b 2>/dev/null
[ $? = 2 ] || { echo "FAIL: another shape"; failed=1; }
exit $failed
