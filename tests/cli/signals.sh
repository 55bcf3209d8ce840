#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ctrl-C and SIGTERM while a run is in the middle of an iteration: a first
# one leaves a checkpoint, a second one ends it at once. The reward program
# says when the iteration has come to it, and goes on when it is told to.
set -u
weft=$WEFT_BUILDDIR/weft
src=$WEFT_SRCDIR
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0
. "$WEFT_SRCDIR/tests/watched.sh"
mkfifo go
exec 4<>go # nobody who writes to it waits for a reader

cat >reward.sh <<'SH'
n=0
while read -r line; do
    n=$((n + 1))
    if [ $n = 4 ]; then echo here >&2; read -r word <go; fi
    echo 0.5
done
SH
cat >run.yaml <<YAML
algorithm: ppo
run_dir: run
iterations: 3
data: {path: $src/examples/quickstart/prompts.jsonl}
model: {actor: $src/examples/quickstart/model, critic: $src/examples/quickstart/model}
reward: [{type: program, command: [sh, reward.sh], timeout_s: 600}]
rollout: {prompts: 4, max_new_tokens: 4}
runtime: {devices: 1}
checkpoint: {every: 3}
YAML

# begin: a run that waits in its first iteration
begin()
{
    rm -rf run
    start "$weft" train -q run.yaml
    until_said here
}

for signal in INT TERM; do
    wanted=130
    [ $signal = INT ] || wanted=143
    begin || exit 1
    kill -$signal $pid
    until_said "stops after this iteration" || exit 1
    echo go >go
    ended $wanted
    grep -q "stopped after iteration 1;" log || complain "$signal: where?"
    [ -s run/checkpoints/iteration-000001/manifest.json ] ||
        complain "$signal leaves no checkpoint"
    [ "$(wc -l <run/metrics.jsonl)" = 1 ] || complain "$signal: iterations"

    begin || exit 1
    kill -TERM $pid
    until_said "stops after this iteration" || exit 1
    kill -$signal $pid
    ended $wanted # though the reward program never answers
    [ ! -e run/checkpoints/iteration-000001 ] || complain "$signal: not at once"
done

# The same command goes on from there.
begin || exit 1
kill -INT $pid
until_said "stops after this iteration" || exit 1
echo go >go
ended 130
echo go >&4
"$weft" train -q run.yaml >out 2>log || complain "does not go on"
[ "$(wc -l <run/metrics.jsonl)" = 3 ] || complain "the end is another"
exit $failed
