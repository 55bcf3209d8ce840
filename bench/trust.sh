#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: bench/trust.sh [-p PATTERN] [-i ITERATIONS] [-r REPEATS] [-d DIR] [-t]
#                       [-s] [-o FILE.svg]
#
# `make bench-trust`: predicted beside measured times of this machine. Profiles
# it, messages between two ranks too, then trains the quickstart's task with a
# made model of 10.8M parameters under many plans; each run predicts its own
# iterations with the lengths that its samples had (doc/simulate.md). Between
# runs a probe says how fast the machine is: a run before or after which it is
# more than 5 % off what it was around the profile is made again, and counted; so
# is a profile before and after which it differs.
#
#   -p PATTERN     only plans whose name has it (grep -E); default: all
#   -i ITERATIONS  of each run, the first of which does not count; default: 12
#   -r REPEATS     of a run beside other work, at most; default: 2
#   -d DIR         keeps the profile and the runs there, and uses the profile that
#                  is there: a part of the plans at a time; default: a folder that
#                  goes
#   -t             runs nothing: the table of what DIR has
#   -s             the quickstart's own model, of 0.5M parameters, whose tasks
#                  take 50 us: what is measured is mostly the runtime
#   -o FILE.svg    the picture; default: trust.svg
#
# Prints a line for each plan, with the largest error of calls that take a
# tenth of its iteration or more; medians and largest errors; how many pairs
# of plans whose measured times differ by more than 10 % are in the right order,
# and which are not. About 10 minutes on 2 cores; for a quiet machine.
set -eu
pattern=. iterations=12 repeats=2 svg=$PWD/trust.svg dir="" table="" small=""
while getopts p:i:r:d:tso: option; do
    case $option in
    p) pattern=$OPTARG ;;
    i) iterations=$OPTARG ;;
    r) repeats=$OPTARG ;;
    d) dir=$OPTARG ;;
    t) table=1 ;;
    s) small=1 ;;
    o) svg=$OPTARG ;;
    *) sed -n '3,30s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
case $svg in
/*) ;;
*) svg=$PWD/$svg ;;
esac
unset STARPU_WORKERS_NOBIND # which tests set
weft=$WEFT_BUILDDIR/weft
ppo=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
if [ -z "$dir" ]; then
    dir=$(mktemp -d)
    trap 'rm -rf "$dir"' EXIT
fi
mkdir -p "$dir"
cd "$dir"
dir=$PWD
models="" # words of a configuration
if [ -z "$small" ]; then
    [ -d model ] || "$weft" init --hidden 384 --layers 6 --heads 6 \
        --max-positions 64 --tokenizer "$WEFT_SRCDIR/examples/quickstart/model" \
        -o model
    models="model.actor=$dir/model model.critic=$dir/model
        model.reference=$dir/model"
fi

# name ranks devices words...
plans()
{
    cat <<END
1x1-dp1 1 1 layout=dp1
1x1-recompute 1 1 layout=dp1,recompute
1x1-parts4 1 1 layout=dp1,micro_batches=4
1x1-short 1 1 layout=dp1 rollout.max_new_tokens=4
1x1-long 1 1 layout=dp1 rollout.max_new_tokens=32
1x1-more 1 1 layout=dp1 rollout.prompts=48
1x2-dp2 1 2 layout=dp2
1x2-dp2-apart 1 2 layout=dp2 runtime.place=device
1x2-zero1 1 2 layout=dp2,zero=1
1x2-zero2 1 2 layout=dp2,zero=2
1x2-zero3 1 2 layout=dp2,zero=3 runtime.place=device
1x2-dp2-parts2 1 2 layout=dp2,micro_batches=2
1x2-dp2-short 1 2 layout=dp2 rollout.max_new_tokens=4
1x2-dp2-long 1 2 layout=dp2 rollout.max_new_tokens=32
1x2-dp2-more 1 2 layout=dp2 rollout.prompts=48
1x2-tp2 1 2 layout=tp2
1x2-tp2-apart 1 2 layout=tp2 runtime.place=device
1x2-tp2-short 1 2 layout=tp2 rollout.max_new_tokens=4
1x2-pp2 1 2 layout=pp2
1x2-pp2-parts4 1 2 layout=pp2,micro_batches=4
1x2-pp2-recompute 1 2 layout=pp2,micro_batches=2,recompute
1x2-halves 1 2 layout=interleave-2
1x2-shared 1 2 layout=interleave-1
1x2-groups 1 2 layout=openrlhf
2x1-dp2 2 1 layout=dp2
2x1-zero1 2 1 layout=dp2,zero=1
2x1-zero3 2 1 layout=dp2,zero=3
2x1-tp2 2 1 layout=tp2
2x1-pp2 2 1 layout=pp2,micro_batches=2
2x1-halves 2 1 layout=interleave-2
END
}

probe()
{
    "$WEFT_BUILDDIR/bench/speed" 2
}

# near SECONDS SECONDS: whether they differ by less than 5 %
near()
{
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < 1.05 * b && a > 0.95 * b) }'
}

# run NAME RANKS words...
run()
{
    run=run-$1
    ranks=$2
    shift 2
    rm -rf "$run"
    if [ "$ranks" -gt 1 ]; then
        "$WEFT_MPIEXEC" --oversubscribe --bind-to none -n "$ranks" \
            "$weft" train -q "$ppo" run_dir="$run" "$@" </dev/null >log 2>&1
    else
        "$weft" train -q "$ppo" run_dir="$run" "$@" </dev/null >log 2>&1
    fi
}

# middle KEY FILE: the seconds of which a metric says how many there are in one, in
# the median of all iterations but the first
middle()
{
    sed -n "s|.*\"$1\": \([^,}]*\).*|\1|p" "$2" | tail -n +2 | sort -g |
        awk '{ s[NR] = 1 / $1 }
            END { print (s[int((NR + 1) / 2)] + s[int(NR / 2) + 1]) / 2 }'
}

# Plan, call or "iteration", predicted and measured seconds; of calls means.
times_of()
{
    "$weft" plan --explain "run-$1/plan.json" | awk -v plan="$1" '
        $1 == "MiB" || $1 == "iteration" { on = 0 }
        on && $3 + 0 > 0 { print plan, $1, $2 + 0, $3 }
        $1 == "seconds" { on = 1 }'
    echo "$1 iteration $(middle perf/predicted_steps_per_s \
        "run-$1/metrics.jsonl") $(middle perf/steps_per_s \
        "run-$1/metrics.jsonl")"
}

# repeat COMMAND...: until the probe before and after it is near `reference`, or,
# where that is empty, the same; leaves how often it was made again, and whether
# there was other work beside it at last, in the file `counts`.
repeat()
{
    tries=0 off=0
    while :; do
        before=$(probe)
        "$@" || { echo "$*:"; cat log; exit 1; }
        after=$(probe)
        near "$before" "${reference:-$after}" &&
            near "$after" "${reference:-$before}" && break
        if [ $tries -ge "$repeats" ]; then
            off=1
            break
        fi
        tries=$((tries + 1))
    done
    echo "$tries $off" >counts
}

profile()
{
    for n in 1 2; do
        # shellcheck disable=SC2086
        "$weft" profile "$ppo" -o costs$n.json --devices $n --limit 40 \
            $models >log 2>&1 || return 1
        tail -n 4 log
    done
    # shellcheck disable=SC2086
    [ -z "${WEFT_MPIEXEC:-}" ] ||
        "$WEFT_MPIEXEC" --oversubscribe --bind-to none -n 2 \
            "$weft" profile "$ppo" --messages costs2.json $models </dev/null
}

if [ -z "$table" ]; then
    if [ ! -s reference ]; then
        reference=
        repeat profile
        mv counts profile.counts
        echo "$after" >reference
    fi
    reference=$(cat reference)
    plans | grep -E -- "^[^ ]*($pattern)" >chosen ||
        { echo "no plan"; exit 1; }
    while read -r name ranks devices words; do
        [ "$ranks" = 1 ] || [ -n "${WEFT_MPIEXEC:-}" ] || continue
        # shellcheck disable=SC2086
        repeat run "$name" "$ranks" rollout.prompts=24 \
            iterations="$iterations" checkpoint.every=0 \
            runtime.devices="$devices" \
            costs="$dir/costs$((ranks * devices)).json" $models $words
        mv counts "$name.counts"
    done <chosen
fi
plans | while read -r name _; do
    [ ! -e "$name.counts" ] || times_of "$name"
done >times
[ -s times ] || { echo "no plan was run"; exit 1; }
again=$(cat ./*.counts | awk '{ n += $1 } END { print n + 0 }')
off=$(cat ./*.counts | awk '{ n += $2 } END { print n + 0 }')

awk -v again=$again -v off=$off -v svg="$svg" '
function error(p, m) { return 100 * (p / m - 1) }
function size(x) { return x < 0 ? -x : x }
# of the first n of a list, sorted in place
function middle(list, n,    i, k, t)
{
    for (i = 2; i <= n; i++)
        for (k = i; k > 1 && list[k] < list[k - 1]; k--) {
            t = list[k]; list[k] = list[k - 1]; list[k - 1] = t
        }
    return n ? (list[int((n + 1) / 2)] + list[int(n / 2) + 1]) / 2 : 0
}
function at(x) { return 40 + 420 * (log(x) - low) / (high - low) }
function dot(p, m, class)
{
    if (p > 0)
        printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"/>\n",
            at(m), 500 - at(p), class ? 5 : 3,
            class ? "#1f4e79" : "#9dc3e6" >svg
}
function line(share, colour)
{
    printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" " \
        "stroke=\"%s\"/>\n",
        at(exp(low)), 500 - at(exp(low) * share), at(exp(high)),
        500 - at(exp(high) * share), colour >svg
}
$2 == "iteration" { name[++n] = $1; p[n] = $3; m[n] = $4; of[$1] = n }
{ plan[NR] = $1; call[NR] = $2; cp[NR] = $3; cm[NR] = $4 }
END {
    for (i = 1; i <= NR; i++) {
        k = of[plan[i]]
        if (call[i] == "iteration" || cp[i] <= 0 || cm[i] < 0.1 * m[k])
            continue
        calls[++nc] = size(error(cp[i], cm[i]))
        if (calls[nc] > worst[k]) { worst[k] = calls[nc]; who[k] = call[i] }
        if (calls[nc] > most_call) most_call = calls[nc]
    }
    printf "%-18s %11s %11s %8s  %s\n", "plan", "predicted s", "measured s",
        "error", "largest of its calls"
    for (i = 1; i <= n; i++) {
        e[i] = size(error(p[i], m[i]))
        if (e[i] > most) most = e[i]
        printf "%-18s %11.4f %11.4f %6.1f %%  %.1f %% %s\n", name[i], p[i],
            m[i], error(p[i], m[i]), worst[i], who[i]
    }
    for (i = 1; i <= n; i++)
        for (k = 1; k < i; k++)
            if (m[i] > 1.1 * m[k] || m[k] > 1.1 * m[i]) {
                pairs++
                right = (p[i] > p[k]) == (m[i] > m[k])
                kept += right
                if (!right)
                    wrong = wrong sprintf("  %s before %s\n",
                        m[i] < m[k] ? name[i] : name[k],
                        m[i] < m[k] ? name[k] : name[i])
            }
    printf "%d plans: median error %.1f %%, largest %.1f %%\n", n,
        middle(e, n), most
    printf "%d calls: median error %.1f %%, largest %.1f %%\n", nc,
        middle(calls, nc), most_call
    printf "order of %d of %d pairs kept; %d runs made again, %d counted " \
        "beside other work\n", kept, pairs, again, off
    if (wrong)
        printf "measured in another order than predicted:\n%s", wrong
    low = 1e9; high = -1e9
    for (i = 1; i <= NR; i++)
        if (cp[i] > 0) {
            a = log(cp[i] < cm[i] ? cp[i] : cm[i])
            b = log(cp[i] > cm[i] ? cp[i] : cm[i])
            if (a < low) low = a
            if (b > high) high = b
        }
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"500\" " \
        "height=\"500\" font-family=\"sans-serif\" font-size=\"13\">\n" \
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n" >svg
    line(1, "#808080"); line(1.2, "#d0d0d0"); line(1 / 1.2, "#d0d0d0")
    for (i = 1; i <= NR; i++)
        dot(cp[i], cm[i], call[i] == "iteration")
    printf "<text x=\"250\" y=\"476\" text-anchor=\"middle\">measured: " \
        "%.3g to %.3g s</text>\n<text x=\"250\" y=\"493\" " \
        "text-anchor=\"middle\" font-size=\"11\">dark: iterations, light: " \
        "calls; lines: equal, 20 %% more, less</text>\n" \
        "<text x=\"16\" y=\"250\" " \
        "transform=\"rotate(-90 16 250)\" text-anchor=\"middle\">predicted" \
        "</text>\n</svg>\n", exp(low), exp(high) >svg
}' times
