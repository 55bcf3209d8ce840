#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# weft profile: of every algorithm, and in every kind of layout, each task that
# an iteration records has a measured price.
set -u
command=profile
. "$WEFT_SRCDIR/tests/cli/expect.sh"
quick=$WEFT_SRCDIR/examples/quickstart
all="every task of an iteration has a measured price"

priced() # ALGORITHM words
{
    yaml=$quick/$1.yaml
    shift
    "$weft" profile "$yaml" runtime.devices=2 "$@" >out 2>err || fail "$yaml $*: status"
    grep -qF "$all" out || fail "$yaml $*: not '$all'"
}

for yaml in "$quick"/*.yaml; do
    algorithm=$(basename "$yaml" .yaml)
    actor= # sft's is what another command makes
    [ "$algorithm" != sft ] || actor=model.actor=$quick/model
    # shellcheck disable=SC2086
    priced "$algorithm" --limit 1 -o "$algorithm.json" $actor
done
# one device has all gradient groups
priced kto --limit 1 runtime.devices=1
for words in layout=dp1tp2pp1 layout=dp1tp1pp2 ppo.kl.stop=1 \
    "runtime.place=device train.zero=3" model.reference_offload=true \
    rollout.inter_stage_fusion=true rollout.staleness=1; do
    # shellcheck disable=SC2086
    priced ppo --check ppo.json $words
done
for mix in 0.5 1; do
    priced grpo --limit 1 reference.every=1 reference.mix=$mix
done

# what was not measured has its name
expect 0 "not measured: gen_chunk, gen_retire, value (" "$quick/ppo.yaml" \
    runtime.devices=2 --check sft.json
exit "$failed"
