#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A start that is refused, and one that fails before its first iteration is
# done, says one sentence and leaves no run directory, nor the folders above
# it. What killed processes left half-written goes with the next start. A file
# larger than the process may write is an error like others.
set -u
weft=$WEFT_BUILDDIR/weft
config=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
dir=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

fail()
{
    echo "FAIL $1"
    sed 's/^/    /' err
    failed=1
}

train() # run_dir words...
{
    run=$1
    shift
    "$weft" train -q "$config" "run_dir=$run" iterations=2 rollout.prompts=8 \
        rollout.max_new_tokens=4 checkpoint.every=1 runtime.devices=1 "$@" \
        >out 2>err
}

refused() # 'part of the sentence' words...
{
    part=$1
    shift
    train runs/new "$@" && fail "$*: it worked"
    [ "$(grep -c . err)" = 1 ] || fail "$*: not one sentence"
    grep -qF -- "$part" err || fail "$*: no word of $part"
    [ ! -e runs ] || { fail "$*: leaves $(find runs)"; rm -rf runs; }
}

# ---- Before anything is computed -------------------------------------------
refused "memory_limit_gib" runtime.memory_limit_gib=0.001
refused "'/nowhere'" model.critic=/nowhere
refused "cannot start '/nowhere'" \
    'reward=[{type: program, command: [/nowhere]}]'
refused "pattern '('" 'reward=[{type: regex, pattern: "("}]'
refused "nothing.jsonl" "data.path=$dir/nothing.jsonl"
refused "tp4096" layout=tp4096 trace=true
echo x >file
train file/run && fail "a run below a file"
grep -q "file" err || fail "a run below a file: no word of it"

# ---- In the first iteration ------------------------------------------------
refused "is a callback" 'reward=[{type: callback}]'
refused "status 1" 'reward=[{type: program, command: ["false"]}]' \
    tensorboard=true trace=true
# A folder that was there stays, as empty as it was; then the run may begin
# with another configuration.
mkdir -p given/run
train given/run 'reward=[{type: program, command: ["false"]}]' &&
    fail "a reward that ends"
[ -d given/run ] && [ -z "$(ls given/run)" ] ||
    fail "a folder that was given holds $(ls given/run)"
train given/run iterations=1 || fail "a start after a refused one"

# ---- Leftovers -------------------------------------------------------------
# Of any process: its number may be another's by now, or 1 as in containers.
for pid in 1 $$ 999999; do
    mkdir -p "given/run/checkpoints/.iteration-000009.tmp-$pid/actor"
    echo half >"given/run/checkpoints/.iteration-000009.tmp-$pid/actor/f"
    echo half >"given/run/.config.yaml.tmp-$pid-3"
    echo half >"given/run/samples/.000009.jsonl.tmp-$pid"
done
echo mine >given/run/.mine
train given/run || fail "a start beside leftovers"
left=$(find given -name '*.tmp-*')
[ -z "$left" ] || fail "leftovers stay: $left"
[ -s given/run/.mine ] || fail "another's file went"

# ---- Files that are too large ----------------------------------------------
(
    ulimit -f 1000 # half a model
    train limited
) && fail "ulimit -f 1000: it worked"
grep -q "iteration 1: .*model.safetensors.*ulimit -f" err ||
    fail "ulimit -f: no sentence"
[ -z "$(ls limited/checkpoints)" ] || fail "ulimit -f: half a checkpoint"
train limited || fail "it does not go on without the limit"
exit $failed
