#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Messages from one GPU's memory to another's, runtime.gpu_messages: mpi, with an MPI
# that knows emulated cards (tests/cuda/mpi.c), and with one that does not.
set -u
. "$WEFT_SRCDIR/tests/cuda/cards.sh"
if [ -z "${WEFT_MPIEXEC:-}" ] || ! "$weft" info | grep -q 'MPI  *yes'; then
    echo "skipped: built without MPI"
    exit 77
fi
. "$WEFT_SRCDIR/tests/on_ranks.sh"
library=$WEFT_BUILDDIR/../cuda/lib/libmpi_cards.so
[ -e "$library" ] || { echo "FAIL: no $library"; exit 1; }

knows_cards() # command...: with an MPI that does
{
    LD_PRELOAD=$library "$@"
}

# Bytes, order, memory and failures, tile by tile.
for n in 2 3; do
    knows_cards on_ranks $n "$WEFT_BUILDDIR/tests/codelets/test_gpu_messages" \
        >out 2>&1 || fail "$n ranks: status $?"
done

model small --kv-heads 2
words="model.actor=$dir/small model.critic=$dir/small model.reference=$dir/small
    iterations=2 rollout.prompts=4 rollout.max_new_tokens=6
    numerics.tensor_blocks=2 numerics.dtype=f32 runtime.devices=gpu"
direct=runtime.gpu_messages=mpi

ppo() # RUN words
{
    run=$1
    shift
    # shellcheck disable=SC2086
    $on "$weft" train -q "$quick/ppo.yaml" run_dir="$run" $words "$@" >out 2>&1 || {
        fail "$run $*: status"
        return 1
    }
    grep -q "were predicted" out && fail "$run $*: more memory"
    return 0
}

sent() # messages from cards
{
    awk '{ n += $1 } END { print n + 0 }' count
}

# In every layout the bits of one card; what lies on cards does not pass the host.
WEFT_CARDS=1 ppo alone
export WEFT_CARDS_MESSAGES="$dir/count"
while read -r n layout more; do
    rm -f count
    on="knows_cards on_ranks $n"
    # shellcheck disable=SC2086
    WEFT_CARDS=$n ppo "direct-$layout" $direct layout="$layout" $more &&
        same alone "direct-$layout"
    [ "$(sent)" -gt 0 ] || fail "$layout: nothing is sent"
done <<END
2 dp2,zero=1
2 tp2
2 pp2,micro_batches=2 train.intra_stage_fusion=true
4 dp2tp2pp1,zero=2
4 dp1tp2pp2
END
rm -f count
on="knows_cards on_ranks 2"
WEFT_CARDS=1 ppo shared $direct layout=tp2 runtime.ranks_per_gpu=2 &&
    same alone shared
[ "$(sent)" -gt 0 ] || fail "two ranks on a card: nothing is sent"

# Weights go to the cards of another rank, and KV caches with the samples that move.
stale="rollout.staleness=1 layout=disaggregated"
# shellcheck disable=SC2086
{
    on=
    WEFT_CARDS=2 ppo stale $stale
    on="knows_cards on_ranks 2"
    rm -f count
    WEFT_CARDS=2 ppo direct-stale $stale $direct && same stale direct-stale
    [ "$(sent)" -gt 0 ] || fail "no weights are sent"
}
for i in 1 2; do
    echo "{\"iteration\": $i, \"call\": \"actor_generate\"," \
        '"remaining": 0.9, "instances": 1, "most_batch": 0,' \
        '"cached": [[1, 4096]], "order": [0]}'
done >moves.jsonl
moved="rollout.max_new_tokens=24 rollout.min_new_tokens=24
    rollout.chunk_tokens=2"
# shellcheck disable=SC2086
{
    on=
    WEFT_CARDS=1 ppo long $moved
    on="knows_cards on_ranks 2"
    WEFT_CARDS=2 ppo direct-long $moved $direct layout=dp2 \
        rollout.lengths=lognormal:10:1 rollout.inter_stage_fusion=true \
        rollout.decisions="$dir/moves.jsonl"
}
grep -q '"gen/moved_caches": [1-9]' direct-long/metrics.jsonl ||
    fail "no cache has moved"

# A launch that is refused at one rank ends all with a sentence.
on="knows_cards on_ranks 2"
# shellcheck disable=SC2016,SC2086
WEFT_CARDS=2 $on sh -c '[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" = 0 ] ||
    export WEFT_CARDS_REFUSED=1000; exec "$@"' - "$weft" train -q \
    "$quick/ppo.yaml" run_dir=run $words $direct layout=tp2 >out 2>&1 &&
    fail "a refused launch: status"
grep -q "^weft train: rank 1: .*: GPU 1: " out || fail "no sentence"

# An MPI that does not know cards is refused before the run.
on="on_ranks 2"
# shellcheck disable=SC2086
WEFT_CARDS=2 $on "$weft" train -q "$quick/ppo.yaml" run_dir=none $words \
    $direct layout=tp2 >out 2>&1 && fail "an MPI without cards: status"
grep -q "does not send what lies in a GPU's memory: take one that was built with \
CUDA, or set runtime.gpu_messages to host" out || fail "an MPI without cards"
[ ! -e none ] || fail "a run directory"
exit $failed
