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
mkfifo err go
exec 4<>go # nobody who writes to it waits for a reader

complain()
{
    echo "FAIL $*"
    cat log
    failed=1
}

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

# until 'part of a line': reads what the run says until then
until_said()
{
    while read -r line <&3; do
        echo "$line" >>log
        case $line in *"$1"*) return 0 ;; esac
    done
    complain "the run ends and does not say '$1'"
    return 1
}

# start: a run that waits in its first iteration; $pid
start()
{
    rm -rf run log
    : >log
    "$weft" train -q run.yaml >out 2>err &
    pid=$!
    exec 3<err
    until_said here
}

# ended STATUS
ended()
{
    cat <&3 >>log
    wait $pid
    got=$?
    [ $got = "$1" ] || complain "status $got, not $1"
    exec 3<&-
}

for signal in INT TERM; do
    status=130
    [ $signal = INT ] || status=143
    start || exit 1
    kill -$signal $pid
    until_said "stops after this iteration" || exit 1
    echo go >go
    ended $status
    grep -q "stopped after iteration 1;" log || complain "$signal: where?"
    [ -s run/checkpoints/iteration-000001/manifest.json ] ||
        complain "$signal leaves no checkpoint"
    [ "$(wc -l <run/metrics.jsonl)" = 1 ] || complain "$signal: iterations"

    start || exit 1
    kill -TERM $pid
    until_said "stops after this iteration" || exit 1
    kill -$signal $pid
    ended $status # though the reward program never answers
    [ ! -e run/checkpoints/iteration-000001 ] || complain "$signal: not at once"
done

# The same command goes on from there.
start || exit 1
kill -INT $pid
until_said "stops after this iteration" || exit 1
echo go >go
ended 130
echo go >&4
"$weft" train -q run.yaml >out 2>log || complain "does not go on"
[ "$(wc -l <run/metrics.jsonl)" = 3 ] || complain "the end is another"
exit $failed
