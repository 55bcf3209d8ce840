#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What commands that plan take, beside their bars.
set -u
usage()
{
    cat <<END
usage: bench/plans.sh [profile] [compare] [search]
Prints seconds, and those of the processor, of
  profile  weft profile of a 110M model on two CPU devices       (bar: 60 s)
  compare  weft plan examples/clusters/real_70b.yaml --compare   (bar: 60 s)
  search   a search for a plan of that run on 1,024 GPUs, and its gap
           (bar: 300 s)
and of all without a name. Bars are for a machine that does nothing else.
END
}

for part; do
    case $part in
    profile | compare | search) ;;
    -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
done
[ $# -gt 0 ] || set -- profile compare search
weft=$WEFT_BUILDDIR/weft
clusters=$WEFT_SRCDIR/examples/clusters
dir=$(mktemp -d "${TMPDIR:-/tmp}/weft-plans-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM

# run WHAT BAR command: its output is in $dir/log.
run()
{
    what=$1 bar=$2
    shift 2
    times >"$dir/before"
    begun=$(date +%s)
    "$@" >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
    took=$(($(date +%s) - begun))
    times >"$dir/after"
    # the second line is of commands: minutes and seconds, twice
    used=$(awk 'FNR == 2 { gsub(/[ms]/, " ")
            s[FILENAME] = $1 * 60 + $2 + $3 * 60 + $4 }
        END { printf "%.0f", s[ARGV[2]] - s[ARGV[1]] }' "$dir/before" \
        "$dir/after")
    echo "$what: $took s, $used s of the processor (bar: $bar s)"
}

profile()
{
    for model in actor critic; do
        [ $model = actor ] && head= || head=--scalar
        # shellcheck disable=SC2086
        "$weft" init --preset 110m $head -o "$dir/$model" >"$dir/log" 2>&1 ||
            { cat "$dir/log" >&2; exit 1; }
    done
    cat >"$dir/run.yaml" <<END
algorithm: ppo
run_dir: unset
iterations: 1
data: {prompt_tokens: 128}
model: {actor: actor, critic: critic, reference: actor}
reward: [{type: callback, name: none}]
rollout: {prompts: 64, max_new_tokens: 128}
END
    run "weft profile, 110M, 2 devices" 60 "$weft" profile "$dir/run.yaml" \
        --devices 2 -o "$dir/costs.json"
    grep -E "operations in|measured" "$dir/log" | sed 's/^/    /'
}

compare()
{
    run "weft plan real_70b.yaml --compare" 60 "$weft" plan \
        "$clusters/real_70b.yaml" --compare
}

search()
{
    sed 's/nodes: 16$/nodes: 128/' "$clusters/real_h100.yaml" >"$dir/cluster.yaml"
    run "weft plan real_70b.yaml --search, 128 x 8 devices" 300 "$weft" plan \
        "$clusters/real_70b.yaml" --cluster "$dir/cluster.yaml" --search \
        --time-limit 300 -o "$dir/plan.json"
    grep -oE "[0-9.]+ s an iteration.*gap [^)]*\)" "$dir/log" | sed 's/^/    /'
}

for part; do
    $part
done
