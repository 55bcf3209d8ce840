#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ctrl-C and SIGTERM while `weft generate` and `weft score` write a file: nothing
# of it is left, and what had its name before is as it was. They are given more
# to do than they ever end.
set -u
weft=$WEFT_BUILDDIR/weft
quick=$WEFT_SRCDIR/examples/quickstart
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

complain()
{
    echo "FAIL $*"
    ls -l
    cat err
    failed=1
}

i=0
while [ $i -lt 4000 ]; do
    echo '{"text": "The answer to this is what many have asked, and few say"}'
    i=$((i + 1))
done >some.jsonl
i=0
while [ $i -lt 100 ]; do
    cat some.jsonl
    i=$((i + 1))
done >texts.jsonl

# ends SIGNAL STATUS command...
ends()
{
    name=$1
    expected=$2
    shift 2
    echo before >out.jsonl
    nice -n 19 "$@" -o out.jsonl 2>err &
    pid=$!
    while [ ! -e out.jsonl.part ] && kill -0 $pid 2>/dev/null; do
        sleep 0.05
    done
    [ -e out.jsonl.part ] || complain "$* ends before it writes"
    kill -s "$name" $pid
    wait $pid
    status=$?
    [ $status = "$expected" ] || complain "$name: status $status of $*"
    [ ! -e out.jsonl.part ] || complain "$name: $* leaves out.jsonl.part"
    [ "$(cat out.jsonl)" = before ] || complain "$name: $* changes out.jsonl"
    rm -f out.jsonl out.jsonl.part
}

for signal in 'TERM 143' 'INT 130'; do
    # shellcheck disable=SC2086 # two words
    ends $signal "$weft" generate "$quick/model" --prompt 'Once' \
        --n 1000000 --max-new-tokens 8
    # shellcheck disable=SC2086 # two words
    ends $signal "$weft" score "$quick/model" --data texts.jsonl
done
exit $failed
