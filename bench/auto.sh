#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What 'plan: auto' finds on this machine beside every placement with a name:
# medians of runs in alternation. Prints a line for each configuration.
set -u
usage()
{
    cat <<END
usage: bench/auto.sh [-c PATTERN] [-i ITERATIONS] [-r ROUNDS] [-l SECONDS]
                     [-o FILE] [-v]
Profiles each configuration, lets a run find its plan, and trains with it and
with each placement that the configuration can have. A first run of each, of 3
iterations, is to leave out those that take more than 1.25 times the fastest's
seconds an iteration. The others run one after the other, round by round; of
each plan the median of all rounds counts.
  -c  configurations whose name begins so (all); "" for none
  -i  iterations of a run (10); the first is not counted
  -r  rounds (5)
  -l  seconds of each profile (20)
  -o  adds a line for each to FILE, and counts those that were there, so that
      configurations can be measured one at a time
  -v  prints the medians of all plans that went on, too, and of the found one
      and the best with a name what the last run predicted and measured
END
}

pattern=. iterations=10 rounds=5 limit=20 results= every=
while getopts c:i:r:l:o:vh o; do
    case $o in
    c) pattern=$OPTARG ;;
    i) iterations=$OPTARG ;;
    r) rounds=$OPTARG ;;
    l) limit=$OPTARG ;;
    o) results=$OPTARG ;;
    v) every=1 ;;
    h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
done
case $results in
'' | /*) ;;
*) results=$PWD/$results ;;
esac
weft=$WEFT_BUILDDIR/weft
examples=$(cd "$WEFT_SRCDIR/examples/quickstart" && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/weft-auto-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir" || exit 1
: "${results:=$dir/results}"

# name, configuration's file, words
configurations()
{
    cat <<END
ppo ppo rollout.prompts=64
long ppo rollout.prompts=32 rollout.max_new_tokens=48
short ppo rollout.prompts=128 rollout.max_new_tokens=4
many ppo rollout.prompts=64 ppo.mini_batches=8
apart ppo rollout.prompts=64 runtime.place=device
grpo grpo rollout.prompts=16
sft sft train.batch=256 model.actor=$examples/model
END
}

# train NAME ITERATIONS words...: its seconds of one are added to the file 'times'
train()
{
    name=$1 n=$2
    shift 2
    rm -rf run
    # shellcheck disable=SC2086
    "$weft" train -q "$config" run_dir=run iterations="$n" \
        checkpoint.every=0 runtime.devices=2 $words "$@" </dev/null \
        >log 2>&1 || return 1
    "$weft" plan --explain run/plan.json >"$name.ran"
    awk -v name="$name" '
        $1 == "seconds" { on = 1 }
        on && $1 == "iteration" { print name, $3; exit }' "$name.ran" >>times
}

# The calls' table of what weft plan printed.
calls()
{
    awk '$1 == "call" { on = 1 } on && !NF { exit } on' "$1"
}

# Writes the plans that the configuration can have, each once, as NAME.json. What
# is found may be one with a name: that is in the file 'same' then.
make_plans()
{
    train auto 3 plan=auto costs=costs.json || { cat log; exit 1; }
    cp run/plan.json auto.json
    calls auto.ran >auto.calls
    echo auto >plans
    : >same
    for name in $("$weft" plan --from list | awk '{ print $1 }') own; do
        from=${name#own}
        # shellcheck disable=SC2086
        "$weft" plan "$config" --devices 2 ${from:+--from "$from"} \
            -o "$name.json" runtime.devices=2 $words >log 2>&1 || continue
        calls log >"$name.calls"
        while read -r other; do
            cmp -s "$name.calls" "$other.calls" || continue
            [ "$other" != auto ] || echo "$name" >same
            continue 2
        done <plans
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

# all ITERATIONS: each plan runs once.
all()
{
    while read -r name <&3; do
        train "$name" "$1" plan="$name.json" || { cat log; exit 1; }
    done 3<plans
}

printf '%-13s %8s  %-20s %8s %7s %6s\n' configuration "auto: s" \
    "best with a name" s "auto's" plans
configurations | grep -E -- "^(${pattern:-none })" >chosen
while read -r label file words; do
    config=$examples/$file.yaml
    # shellcheck disable=SC2086
    "$weft" profile "$config" -o costs.json --devices 2 --limit "$limit" \
        $words >log 2>&1 || { cat log; exit 1; }
    make_plans
    found=$(wc -l <plans)
    : >times
    all 3
    medians | awk 'NR == 1 { most = 1.25 * $2 }
        $2 <= most || $1 == "auto" { print $1 }' >plans
    : >times
    round=0
    while [ "$round" -lt "$rounds" ]; do
        all "$iterations"
        round=$((round + 1))
    done
    medians >ended
    [ -z "$every" ] || cat ended auto.ran "$(awk '$1 != "auto" {
        print $1 ".ran"; exit }' ended)"
    awk -v label="$label" -v n="$found" -v same="$(cat same)" '
        $1 == "auto" { auto = $2 }
        !best && ($1 != "auto" || same) {
            name = $1 == "auto" ? same : $1
            best = $2
        }
        END {
            printf "%-13s %8.4f  %-20s %8.4f %7.3f %6d\n", label, auto, name,
                best, (best > 0 ? auto / best : 0), n }' ended |
        tee -a "$results"
done <chosen
[ -f "$results" ] || exit 0
awk '$5 > 0 && $5 <= 1.03 { good++ }
    END { printf "at most 3 %% slower than the best with a name: %d of %d\n",
        good, NR }' "$results"
