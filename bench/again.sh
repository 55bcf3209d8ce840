#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What planning again gains where lengths of responses drift, as simulated. Prints a
# line for each distribution of lengths that a run comes to.
set -u
usage()
{
    cat <<END
usage: bench/again.sh [-k CLUSTER] [-g GAIN] [-l "LENGTHS ..."] [CONFIG [key=value ...]]
A run begins with the plan for the longest responses, as 'plan: auto' does. At each
of the lengths another plan is searched for, and taken if it saves GAIN of an
iteration, as with plan_again.gain.
  -k  a cluster's file (one node of 8 devices)
  -g  share of an iteration (0.03)
  -l  as 'weft simulate --lengths' takes them, one after the other
      (lognormal of 4, 8, 16, 32 tokens, then as long as can be)
default: the quickstart, 64 prompts, at most 48 tokens
END
}

cluster= gain=0.03
lengths="lognormal:4:0.6 lognormal:8:0.6 lognormal:16:0.6 lognormal:32:0.6 max"
while getopts k:g:l:h o; do
    case $o in
    k) cluster=$OPTARG ;;
    g) gain=$OPTARG ;;
    l) lengths=$OPTARG ;;
    h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
weft=$WEFT_BUILDDIR/weft
dir=$(mktemp -d "${TMPDIR:-/tmp}/weft-again-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
if [ $# -eq 0 ]; then
    set -- "$WEFT_SRCDIR/examples/quickstart/ppo.yaml" rollout.prompts=64 \
        rollout.max_new_tokens=48 numerics.gradient_groups=8
fi
if [ -z "$cluster" ]; then
    cluster=$dir/cluster.yaml
    cat >"$cluster" <<END
name: eight
kinds:
  - {name: node, nodes: 1, devices: 8, memory_gib: 8, tflops: {f32: 0.1, bf16: 0.2},
     memory_gbs: 20, task_us: 4, inside: {gbs: 10, us: 1}}
END
fi

# find LENGTHS PLAN: writes the plan that a search finds
find()
{
    length=$1 plan=$2
    shift 2
    "$weft" plan "$@" --cluster "$cluster" --search --lengths "$length" \
        -o "$plan" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
}

# seconds LENGTHS PLAN: of an iteration
seconds()
{
    length=$1 plan=$2
    shift 2
    "$weft" simulate "$@" --cluster "$cluster" --lengths "$length" \
        --plan "$plan" --json >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
    sed -n 's/.*"steady_s": \([^,]*\),.*/\1/p' "$dir/log"
}

find max "$dir/first.json" "$@"
cp "$dir/first.json" "$dir/now.json"
printf '%-18s %11s %11s %11s %7s\n' lengths "first plan" "plan before" \
    "found plan" "saves %"
for at in $lengths; do
    find "$at" "$dir/found.json" "$@"
    first=$(seconds "$at" "$dir/first.json" "$@") || exit 1
    now=$(seconds "$at" "$dir/now.json" "$@") || exit 1
    found=$(seconds "$at" "$dir/found.json" "$@") || exit 1
    takes=$(awk -v now="$now" -v found="$found" -v gain="$gain" \
        'BEGIN { print (found < now && now - found >= gain * now) }')
    awk -v at="$at" -v first="$first" -v now="$now" -v found="$found" \
        -v takes="$takes" 'BEGIN {
            printf "%-18s %11.4f %11.4f %11.4f %7.1f%s\n", at, first, now,
                found, 100 * (1 - found / now), takes == 1 ? " taken" : "" }'
    if [ "$takes" = 1 ]; then
        cp "$dir/found.json" "$dir/now.json"
        now=$found
    fi
    echo "$first $now" >>"$dir/all"
done
awk '{ first += $1; again += $2 }
    END { printf "an iteration of each: %.4f s by the first plan, %.4f s planning " \
        "again, %.1f %% less\n", first, again, 100 * (1 - again / first) }' "$dir/all"
