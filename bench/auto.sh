#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What 'plan: auto' finds on this machine beside every placement with a name:
# medians of runs in alternation. Prints a line for each configuration.
set -u
usage()
{
    cat <<END
usage: bench/auto.sh [-c PATTERN] [-i ITERATIONS] [-r ROUNDS] [-l SECONDS]
Profiles each configuration, lets a run find its plan, and trains with it and
with each placement that the configuration can have, one after the other. After
the first round those go on that took at most 1.25 times the fastest's seconds
an iteration. Of each plan the median of all rounds counts.
  -c  configurations whose name begins so (all)
  -i  iterations of a run (4); the first is not counted
  -r  rounds (5)
  -l  seconds of each profile (20)
END
}

pattern=. iterations=4 rounds=5 limit=20
while getopts c:i:r:l:h o; do
    case $o in
    c) pattern=$OPTARG ;;
    i) iterations=$OPTARG ;;
    r) rounds=$OPTARG ;;
    l) limit=$OPTARG ;;
    h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
done
weft=$WEFT_BUILDDIR/weft
examples=$(cd "$WEFT_SRCDIR/examples/quickstart" && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/weft-auto-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir" || exit 1

# name, configuration's file, words
configurations()
{
    cat <<END
ppo ppo rollout.prompts=24
long ppo rollout.prompts=16 rollout.max_new_tokens=48
short ppo rollout.prompts=64 rollout.max_new_tokens=4
many ppo rollout.prompts=24 ppo.mini_batches=8
apart ppo rollout.prompts=24 runtime.place=device
grpo grpo rollout.prompts=8
sft sft train.batch=16 model.actor=$examples/model
END
}

# train NAME words...: its seconds an iteration are added to the file 'times'
train()
{
    name=$1
    shift
    rm -rf run
    # shellcheck disable=SC2086
    "$weft" train -q "$config" run_dir=run iterations="$iterations" \
        checkpoint.every=0 runtime.devices=2 $words "$@" </dev/null \
        >log 2>&1 || return 1
    "$weft" plan --explain run/plan.json | awk -v name="$name" '
        $1 == "seconds" { on = 1 }
        on && $1 == "iteration" { print name, $3; exit }' \
        >>times
}

# Writes the plans that the configuration can have, each once, as NAME.json.
make_plans()
{
    rm -f ./*.json.calls plans
    train auto plan=auto costs=costs.json || { cat log; exit 1; }
    cp run/plan.json auto.json
    echo auto >plans
    for name in $("$weft" plan --from list | awk '{ print $1 }') own; do
        from=${name#own}
        # shellcheck disable=SC2086
        "$weft" plan "$config" --devices 2 ${from:+--from "$from"} \
            -o "$name.json" runtime.devices=2 $words >log 2>&1 || continue
        awk '$1 == "call" { on = 1 } on && !NF { exit } on' log \
            >"$name.calls"
        for other in $(cat plans); do
            [ "$other" != auto ] && cmp -s "$name.calls" "$other.calls" &&
                continue 2
        done
        echo "$name" >>plans
    done
}

medians()
{
    sort -k1,1 -k2,2g times | awk '
        function tell()
        {
            if (n)
                print name, (x[int((n + 1) / 2)] + x[int(n / 2) + 1]) / 2
        }
        $1 != name { tell(); name = $1; n = 0 }
        { x[++n] = $2 }
        END { tell() }' | sort -k2,2g
}

printf '%-8s %10s  %-20s %10s %8s\n' configuration "auto: s" \
    "best with a name" s "auto's"
configurations | grep -E -- "^($pattern)" >chosen
missed=0 all=0
while read -r label file words; do
    config=$examples/$file.yaml
    # shellcheck disable=SC2086
    "$weft" profile "$config" -o costs.json --devices 2 --limit "$limit" \
        $words >log 2>&1 || { cat log; exit 1; }
    : >times
    make_plans
    : >times
    round=1
    while [ "$round" -le "$rounds" ]; do
        for name in $(cat plans); do
            train "$name" plan="$name.json" || { cat log; exit 1; }
        done
        medians | awk 'NR == 1 { most = 1.25 * $2 }
            $2 <= most || $1 == "auto" { print $1 }' >plans
        round=$((round + 1))
    done
    medians >ended
    awk -v label="$label" '
        $1 == "auto" { auto = $2; next }
        !best { name = $1; best = $2 }
        END { printf "%-8s %15.4f  %-20s %10.4f %7.2f\n", label, auto, name,
                  best, auto / best
              exit !(auto > 0 && auto <= 1.03 * best) }' ended || missed=$((missed + 1))
    all=$((all + 1))
done <chosen
echo "at most 3 % slower than the best with a name: $((all - missed)) of $all"
