#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft verify at emulated cards: rows on GPUs beside those of CPU devices, near
# them and with bits of their own, fewer cards than a row needs, one that fails;
# and machines without a GPU that Weft can use.
set -u
. "$WEFT_SRCDIR/tests/cuda/cards.sh"
mkdir tmp
model tied --tied --family qwen2

verify() # STATUS VARIABLES words
{
    status=$1 variables=$2
    shift 2
    # shellcheck disable=SC2086
    env $variables "$weft" verify --dir tmp --iterations 1 \
        ${WEFT_MPIEXEC:+--mpiexec "$WEFT_MPIEXEC"} "$@" >out 2>&1
    got=$?
    [ $got = "$status" ] || fail "verify $variables $*: status $got"
    [ -z "$(ls tmp)" ] || { fail "left: $(ls tmp)"; rm -rf tmp/*; }
}

says() # 'part of the output'...
{
    for part in "$@"; do
        grep -qF -- "$part" out || fail "not '$part'"
    done
}

# The words of a short job of every kind.
grpo() # STATUS VARIABLES ROWS words
{
    status=$1 variables=$2 rows=$3
    shift 3
    verify "$status" "$variables" --rows "$rows" "$quick/grpo.yaml" \
        model.actor="$dir/tied" data.path="$dir/prompts.jsonl" \
        rollout.prompts=2 rollout.samples_per_prompt=2 \
        rollout.max_new_tokens=4 rollout.lengths=lognormal:2:1 \
        ppo.mini_batches=1 numerics.gradient_groups=4 "$scored" "$@"
}

# ---- Which rows -------------------------------------------------------------
# Every algorithm has some, where there is a GPU.
verify 0 WEFT_CARDS=1 --list --quick
for algorithm in $(cut -d / -f 1 out | sort -u); do
    for row in gpu gpu2-tp2; do
        grep -qx "$algorithm/f32/$row" out || fail "$algorithm has no $row"
    done
done
verify 0 WEFT_CARDS=none --list
grep gpu out && fail "a row on a GPU without one"
verify 2 WEFT_CARDS=none --list --rows 'gpu*'
says "no row matches 'gpu*'" \
    "rows on GPUs are left out: Weft can use no GPU here: no CUDA driver"

# ---- Near CPU devices, the same bits among GPUs ------------------------------
# Those that need more cards are skipped.
grpo 0 WEFT_CARDS=2 'f32/gpu*[dt]p2'
if "$weft" info | grep -q 'MPI  *yes'; then
    says "1 rows of the same bits, and 6 on GPUs, with theirs, 1 skipped"
else
    says "1 rows of the same bits, and 3 on GPUs, with theirs, 4 skipped"
fi
says "it needs 4 GPUs, and this machine has 2" \
    "beside CPU devices: log-probs to " ", the first gradient's norm to "
bits=$(grep '/gpu.* ok$' out | awk '{ print $4, $5, $6, $7 }' | sort -u)
[ "$(echo "$bits" | wc -l)" = 1 ] || fail "GPUs' bits"
cpu=$(awk '/reference/ { print $4, $5, $6, $7 }' out)
if [ -z "$plain" ]; then
    [ "$bits" = "$cpu" ] || fail "not the CPU's bits"
else
    [ "$bits" != "$cpu" ] || fail "the CPU's bits"
fi
grpo 0 "WEFT_CARDS=1 WEFT_CARDS_SUMS=own" f32/gpu --json
says '"logprobs_from_cpu": ' '"grad_norm_from_cpu": ' \
    '"ok": 2, "differs": 0, "failed": 0, "skipped": 0}'
[ "$(grep -o '"weights": "[^"]*"' out | sort -u | wc -l)" = 2 ] ||
    fail "sums of their own"
# A model that is trained, and responses of the data; in bf16 attention has
# other bits.
verify 0 WEFT_CARDS=1 --rows gpu "$quick/dpo.yaml" train.batch=4
says "2 rows of the same bits, and 2 on GPUs, with theirs"
[ "$(grep -c "beside CPU devices: the first gradient's norm to" out)" = 2 ] ||
    fail "DPO"

# ---- Other bits, no bits ----------------------------------------------------
# A reward that is another one in each run, not divided by its deviation.
cat >reward.sh <<'END'
echo x >>count
n=$(wc -l <count)
while read -r line; do i=$((${i:-0} + 1)); echo $((n * i)); done
END
chance="reward=[{type: program, directory: $dir, command: [sh, reward.sh]}]"
grpo 1 WEFT_CARDS=2 f32/gpu2-tp2 algorithm=dr_grpo "$chance"
says "2 DIFFER" "iteration 1: norms of the first gradient are up to" \
    "f32 may have 0.001" "iteration 1: advantages of sample 0 differ"
grpo 1 "WEFT_CARDS=1 WEFT_CARDS_REFUSED=100" f32/gpu-dec*
says "too many resources requested for launch" ", 1 FAILED" \
    "it is to be compared with row 'gpu', which did not end"

# ---- No GPU that Weft can use ------------------------------------------------
left="rows on GPUs are left out: "
grpo 0 WEFT_CARDS=none f32/dp2
says "2 rows of the same bits" "${left}Weft can use no GPU here: no CUDA driver"
grep gpu out && fail "a row on a GPU without one"
grpo 0 WEFT_CARDS_CAPABILITY=7.5 f32/dp2
says "${left}GPU 0, Emulated card, has compute capability 7.5, and Weft's \
kernels need 8.0 or later"
grpo 0 WEFT_CARDS=none f32/dp2 --json
says '"skipped": 0, "no_gpus": "Weft can use no GPU here: no CUDA driver"}'
exit $failed
