#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Layouts and plans that cannot be: weft train says in one sentence which
# call, which number and what would do, exits 1, and leaves no run directory.
set -u
weft=$WEFT_BUILDDIR/weft
quick=$WEFT_SRCDIR/examples/quickstart
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0
n=0

# refused 'part of the sentence'... -- words
refused()
{
    n=$((n + 1))
    : >parts
    while [ "$1" != -- ]; do
        echo "$1" >>parts
        shift
    done
    shift
    "$weft" train -q "$quick/ppo.yaml" run_dir=run iterations=1 \
        runtime.devices=8 "$@" >out 2>err
    got=$?
    sed -i '/^weft: plan: auto: looks for a plan$/d' err
    wrong=
    [ "$got" = 1 ] || wrong="status $got, not 1"
    [ "$(wc -l <err)" = 1 ] || wrong="$wrong; not one sentence"
    [ ! -s out ] || wrong="$wrong; output"
    [ ! -e run ] || wrong="$wrong; a run directory"
    while read -r part; do
        grep -qF -- "$part" err || wrong="$wrong; nothing of '$part'"
    done <parts
    [ -z "$wrong" ] && return
    echo "FAIL $*: $wrong"
    sed 's/^/    /' err
    failed=1
    rm -rf run
}

# ---- layout ---------------------------------------------------------------
# The model has 4 heads (4 tensor blocks), 2 layers; G is 4.
refused "actor_generate: tp 8" "4 tensor blocks" "take tp 4" -- layout=tp8
refused "tp 4" "2 tensor blocks" "numerics.tensor_blocks 4" -- \
    layout=tp4 numerics.tensor_blocks=2
refused "actor_train: dp 8" "4 gradient groups" \
    "numerics.gradient_groups 8" -- layout=dp8
refused "actor_generate: dp 8" "4 samples" "take dp 4" "rollout.prompts" -- \
    layout=dp8 rollout.prompts=4 rollout.samples_per_prompt=1 \
    numerics.gradient_groups=8
refused "pp 4" "2 layers" "take pp 2" -- layout=pp4
refused "3 devices" "power of two" "2" -- layout=pp3
refused "'dp3tp3' takes 9 devices" "node's 8 devices" -- layout=dp3tp3
refused "'dp4tp4' takes 16 devices" "nearest below has 8" -- layout=dp4tp4
refused "3 devices" "2 devices" -- layout=dp3 runtime.devices=2
refused "1048576 devices" -- layout=dp99999999999
refused "zero 4 must be 0 to 3" "actor_train" -- layout=dp2,zero=4
refused "train.zero" "from 0 to 3" -- train.zero=4
refused "'foo'" "dp2tp2pp1" -- layout=foo
refused "'dp0'" "at least 1" -- layout=dp0
refused "gives tp twice" -- layout=dp2tp2tp2
refused "begins with no degree" -- layout=,zero=1
refused "'zero' must be zero=N" -- layout=dp2,zero
refused "'zeros=1' must be zero=N" -- layout=dp2,zeros=1
refused "'micro_batches=-1'" -- layout=dp2,micro_batches=-1
refused "exclude each other" -- layout=dp2 plan=plan.json
refused "runtime.devices" -- layout=dp2 runtime.devices=257
refused "'plan: auto' needs" "weft profile" "costs: costs.json" -- plan=auto
refused "'plan: auto' needs" -- layout=dp2 plan=auto
refused "nothing.json" -- plan=auto costs=nothing.json
refused "nothing.yaml" -- plan=auto cluster=nothing.yaml
# With plan: auto a layout says what the search may not change.
auto="plan=auto cluster=$WEFT_SRCDIR/examples/clusters/cpu_2cores.yaml
    runtime.devices=2"
# shellcheck disable=SC2086
{
    refused "layout 'tp0': 'tp0' must be" -- $auto layout=tp0
    refused "'verl' is a whole plan" "leave out plan: auto" -- $auto layout=verl
    refused "shares are not for a search" -- $auto layout=shares=2:1
    refused "'train' is no call of the run" "weft plan --graph" -- $auto \
        layout=train:tp2
    refused "'tp2 actor_train:dp4'" "actor_train has no such layout" \
        "1 nodes of 2 devices" -- $auto "layout=tp2 actor_train:dp4"
}

# ---- plan -----------------------------------------------------------------
"$weft" plan "$quick/ppo.yaml" --devices 8 --from layout=dp2tp2pp2 \
    -o good.json >out 2>err || { cat err; exit 1; }

# edited CALL KEY VALUE: plan.json is the good one with another number;
# CALL: all of them. A key that is not there yet is added.
edited()
{
    sed "/\"$1\"/s/\"$2\": [a-z0-9]*/\"$2\": $3/" good.json >plan.json
    ! cmp -s good.json plan.json || { echo "FAIL $* edits nothing"; failed=1; }
}
plan() # 'part of the sentence'...
{
    refused plan.json "$@" -- "plan=plan.json"
}

edited critic_train tp 8
plan "critic_train" "dp 2 x tp 8 x pp 2 is 32 devices" "has 8"
edited ref_infer pp 1
plan "ref_infer" "is 4 devices, but the mesh has 8"
edited actor_train devices 9
plan "actor_train" "9 devices" "8 devices of a node"
edited actor_train device 4
plan "actor_train" "8 devices from device 4 on"
edited actor_train nodes 2
plan "actor_train" "2 nodes from node 0 on" "1 nodes"
edited critic_infer node 3
plan "critic_infer" "from node 3 on"
edited critic_infer devices 3
plan "critic_infer" "devices 0 to 2 are no mesh" "0 to 1"
edited critic_train zero 4
plan "critic_train" "zero"
edited critic_infer zero 1
plan "critic_infer" "zero 1 is for calls that train"
edited critic_infer recompute true
plan "critic_infer" "recompute is for calls that train"
edited critic_infer offload true
plan "critic_infer" "offload is for calls that train, and for models"
edited actor_generate micro_batches 2
plan "actor_generate" "micro_batches 2"
edited actor_train dp 0
plan "actor_train" "dp"
edited actor_train dp true
plan "actor_train" "dp"
sed 's/"ref_infer"/"reference_infer"/' good.json >plan.json
plan "reference_infer"
sed '/"ref_infer"/d' good.json >plan.json
plan "ref_infer" "no place for it"
sed 's/"nodes": 1, "devices": 8,/"nodes": 2, "devices": 4,/' good.json \
    >plan.json
plan "2 nodes of 4 devices" "1 of 8"
sed 's/"dp": 2/"ddp": 2/' good.json >plan.json
plan "ddp"
sed 's/"format": 1/"format": 7/' good.json >plan.json
plan "format"
head -c 200 good.json >plan.json
plan ""
: >plan.json
plan ""
refused "nothing.json" -- plan=nothing.json
refused "1 nodes of 8 devices" "1 of 4" -- plan=good.json runtime.devices=4
refused "tp 2" "1 tensor blocks" "numerics.tensor_blocks 2" -- \
    plan=good.json numerics.tensor_blocks=1

[ "$failed" = 0 ] && echo "$n layouts that cannot be, one sentence each"
exit $failed
