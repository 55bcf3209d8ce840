#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ctrl-C and SIGTERM while a search for a plan prices layouts and while it
# searches: `weft plan` takes the best plan so far, or says that there is none
# yet; a run with plan: auto ends, and leaves nothing. Searches are told to take
# far longer than a signal does, and only begin when they have said so.
set -u
weft=$WEFT_BUILDDIR/weft
quick=$WEFT_SRCDIR/examples/quickstart
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0
. "$WEFT_SRCDIR/tests/watched.sh"
long="rollout.prompts=512 ppo.mini_batches=8 ppo.epochs=2
    numerics.gradient_groups=16"
printf '%s\n' 'name: some' "kinds: [{name: node, nodes: 1, devices: 8," \
    'memory_gib: 8, tflops: {f32: 0.1}, memory_gbs: 20, task_us: 4,' \
    'inside: {gbs: 10, us: 1}, network: {rails: 1, gbs: 1, us: 20}}]' \
    >cluster.yaml

# search WORDS...: one that would take hours; it lets this script go first
search()
{
    rm -f plan.json
    start nice -n 19 "$weft" plan "$quick/ppo.yaml" --search --evaluations 2000000000 \
        -o plan.json cluster=cluster.yaml runtime.place=device "$@"
}

best_so_far() # WORDS of the search
{
    grep -q "; stopped before the end" out || complain "it does not say so"
    # shellcheck disable=SC2086
    "$weft" plan --check plan.json "$quick/ppo.yaml" --devices 8 $1 \
        >checked 2>>log ||
        complain "the plan is none"
}

for signal in INT TERM; do
    # shellcheck disable=SC2086
    search $long
    until_said "prices layouts" || exit 1
    kill -$signal $pid
    ended
    if [ $status = 0 ]; then
        best_so_far "$long"
    else
        [ $status = 1 ] && [ ! -e plan.json ] && grep -q \
            "stopped before it had a layout for .*: give it more time" log ||
            complain "pricing, $signal: status $status"
    fi

    search numerics.gradient_groups=16
    until_said "layouts priced; the search begins" || exit 1
    kill -$signal $pid
    ended 0
    best_so_far numerics.gradient_groups=16
done

# end SIGNAL STATUS: a run that is searched for
end()
{
    # shellcheck disable=SC2086
    start nice -n 19 "$weft" train "$quick/ppo.yaml" run_dir=run plan=auto $long \
        cluster=cluster.yaml runtime.place=device runtime.devices=8
    until_said "looks for a plan" || exit 1
    kill -"$1" $pid
    ended "$2"
    grep -q "weft train: stopped while it searched for a plan, before" log ||
        complain "run, $1: it does not say why it ends"
    [ ! -e run ] || complain "run, $1: it leaves something"
}
end INT 130
end TERM 143
exit $failed
