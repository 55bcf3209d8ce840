#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: bench/tail.sh [key=value ...]
#
# `make bench-tail`: generation and inference with inter-stage fusion and
# without. Time is that from the first task of generation to the last of
# inference, and beside it that of the whole iteration, as training begins
# before all are inferred. ROWS are instances x processes: those of a process
# share its memory, so that any of its cores infers. PAIRS runs of ITERATIONS
# each with and without take turns; iteration k has the same lengths in all,
# log-normal (MEDIAN, SIGMA), cut at rollout.max_new_tokens, as the models' end
# of sequence ends nothing. The first iteration of a run is not counted. ON:
# keys of the runs with fusion, such as "rollout.remaining=0.5" or "costs=FILE";
# words are for both. Fusion can win what devices idle, and that the tail is
# decoded in one batch.
set -eu
. "$WEFT_SRCDIR/tests/on_ranks.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
weft=$WEFT_BUILDDIR/weft
size="--hidden 288 --layers 6 --heads 6 --intermediate 768 --vocab 32000
      --tied --max-positions 1024"
"$weft" init $size --seed 1 -o "$dir/actor" >"$dir/log" 2>&1
"$weft" init $size --seed 2 --scalar -o "$dir/critic" >>"$dir/log" 2>&1
"$weft" init $size --seed 3 --scalar -o "$dir/reward" >>"$dir/log" 2>&1
awk 'BEGIN { for (i = 0; i < 64; i++)
    printf "{\"prompt\": \"%0*d\"}\n", '"${PROMPT:-64}"', i * 7919 }' \
    >"$dir/prompts.jsonl"
cat >"$dir/ppo.yaml" <<END
algorithm: ppo
seed: 1
run_dir: $dir/run
iterations: ${ITERATIONS:-4}
data: {path: prompts.jsonl, template: none}
model: {actor: actor, critic: critic, reference: actor}
reward:
  - {type: model, model: reward}
rollout:
  prompts: 64
  max_new_tokens: 512
  slots: 32
  ignore_eos: true
  lengths: lognormal:${MEDIAN:-40}:${SIGMA:-1.2}
ppo: {epochs: 1, mini_batches: 1}
checkpoint: {every: 0}
runtime: {overlap: false}
END
word() # tag, line of metrics.jsonl
{
    expr "$2" : ".*\"$1\": \([0-9.e+-]*\)"
}

run() # on or off, pair, words...
{
    kind=$1 pair=$2
    shift 2
    rm -rf "$dir/run"
    on_ranks "$ranks" "$weft" train -q "$dir/ppo.yaml" \
        "layout=dp$instances" runtime.devices=$((instances / ranks)) "$@" \
        >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
    sed 1d "$dir/run/metrics.jsonl" | while read -r line; do
        number=$(word iteration "$line")
        chosen= # when samples move, and to how many instances at least
        [ "$kind" = off ] ||
            chosen=$(grep "\"iteration\": $number," "$dir/run/decisions.jsonl")
        echo "$kind $pair $number" \
            "$(word timing_s/gen "$line") $(word timing_s/gen_infer "$line")" \
            "$(word sched/overlap_ratio "$line")" \
            "$(word gen/long_tail_share "$line") $(word gen/migrated "$line")" \
            "$(word timing_s/step "$line")" \
            "$(word remaining "$chosen") $(word instances "$chosen")"
    done >>"$dir/table"
}

costs() # words...
{
    "$weft" profile --limit "${LIMIT:-40}" -o "$dir/costs.json" \
        "$dir/ppo.yaml" "layout=dp$instances" "runtime.devices=$instances" \
        "$@" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
    [ "$ranks" = 1 ] || on_ranks 2 "$weft" profile "$dir/ppo.yaml" "$@" \
        --messages "$dir/costs.json" >"$dir/log" 2>&1 ||
        { cat "$dir/log"; exit 1; }
}

row() # instances, processes, words...
{
    instances=$1 ranks=$2 pair=0
    shift 2
    costs "$@"
    : >"$dir/table"
    while [ $pair -lt "${PAIRS:-3}" ]; do
        pair=$((pair + 1))
        for turn in 0 1; do # each first in turn
            if [ $(((pair + turn) % 2)) = 1 ]; then
                run off $pair "$@"
            else
                # shellcheck disable=SC2086
                run on $pair rollout.inter_stage_fusion=true \
                    "costs=$dir/costs.json" ${ON:-} "$@"
            fi
        done
    done
    awk -v what="$instances instances, $ranks processes" -v name="lognormal:${MEDIAN:-40}:${SIGMA:-1.2}" '
function median(x, n,    i, k, t)
{
    for (i = 2; i <= n; i++)
        for (k = i; k > 1 && x[k - 1] > x[k]; k--) {
            t = x[k]; x[k] = x[k - 1]; x[k - 1] = t
        }
    return (x[int((n + 1) / 2)] + x[int(n / 2) + 1]) / 2
}
{ row[$1, $2, $3] = $0; if ($1 == "off") key[++n] = $2 SUBSEP $3 }
END {
    split(name, of, ":")
    tail = exp(3.09 * of[3]); tail = tail < 512 / of[2] ? tail : 512 / of[2]
    printf "%s, lengths %s, p99.9 %.1f medians; the last R_t of the samples " \
        "go on with m instances or more\n", what, name, tail
    print "pair iteration | off: gen    all overlap tail | on: gen    all overlap  R_t  m moved | ratio"
    for (i = 1; i <= n; i++) {
        split(row["off", key[i]], a, " "); split(row["on", key[i]], b, " ")
        off[i] = a[5]; on[i] = b[5]; ratio[i] = a[5] / b[5]
        whole[i] = a[9] / b[9]
        printf "%4d %9d | %8.3f %6.3f %7.2f %4.2f | %7.3f %6.3f %7.2f %4.2f %2d %5d | %5.3f\n",
            a[2], a[3], a[4], a[5], a[6], a[7], b[4], b[5], b[6], b[10], b[11],
            b[8], ratio[i]
    }
    x = median(off, n); y = median(on, n)
    printf "medians: off %.3f s, on %.3f s, %.3f times; of ratios %.3f, " \
        "of whole iterations %.3f%s\n\n", x, y, x / y, median(ratio, n),
        median(whole, n), what ~ /^2 / ? " (bar: 1.15)" : ""
}' "$dir/table"
}

for row in ${ROWS:-2x1 2x2 4x1 4x4}; do
    row "${row%x*}" "${row#*x}" "$@"
done
