#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: bench/moves.sh [key=value ...]
#
# `make bench-moves-here`: what of an iteration is reallocation, transfer and
# swapping that nothing hides, on 2 ranks of a device each (doc/simulate.md). Runs
# of the quickstart's model and of one of 9M parameters, in layouts in which
# generation or inference is not where training is; the last also has reference
# and reward model in host memory between uses. Printed are medians of ITERATIONS
# but the first: seconds of an iteration, the share of it that was measured, and
# what the run predicted from costs that are measured here first; words are for
# all runs. The bar is 3 % (RLHFuse, section 7.2).
set -eu
. "$WEFT_SRCDIR/tests/on_ranks.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
weft=$WEFT_BUILDDIR/weft
size="--hidden 256 --layers 6 --heads 4 --intermediate 768 --vocab 16000
      --tied --max-positions 512"
# shellcheck disable=SC2086
for model in actor "critic --scalar" "judge --scalar"; do
    "$weft" init $size -o "$dir"/$model --seed 1 >"$dir/log" 2>&1 ||
        { cat "$dir/log"; exit 1; }
done
awk 'BEGIN { for (i = 0; i < 64; i++)
    printf "{\"prompt\": \"%064d\"}\n", i * 7919 }' >"$dir/prompts.jsonl"
cat >"$dir/9m.yaml" <<END
algorithm: ppo
seed: 1
run_dir: $dir/run
iterations: 10
data: {path: prompts.jsonl, template: none}
model: {actor: actor, critic: critic, reference: actor}
reward:
  - {type: model, model: judge}
rollout:
  prompts: ${PROMPTS:-32}
  max_new_tokens: 128
  ignore_eos: true
  lengths: lognormal:50:0.8
END

call() # name, key of the plan, value of dp, tp or pp; then more keys
{
    printf '  "%s": {"mesh": {"node": 0, "nodes": 2, "device": 0, "devices": 1},
   "dp": %s, "tp": %s, "pp": %s%s}' "$1" "$2" "$3" "$4" "${5:-}"
}

# plan FILE TP PP offload calls...: training by tp or pp, all else by dp 2
plan()
{
    file=$1 tp=$2 pp=$3 away=$4 between=
    shift 4
    printf '{"format": 1, "nodes": 2, "devices": 1, "calls": {\n' >"$file"
    for c in "$@"; do
        printf '%s' "$between" >>"$file"
        between=',
'
        case $c in
        *_train) call "$c" 1 "$tp" "$pp" ;;
        ref_infer | reward_infer) call "$c" 2 1 1 "$away" ;;
        *) call "$c" 2 1 1 ;;
        esac >>"$file"
    done
    printf '\n}}\n' >>"$file"
}
few="actor_generate ref_infer critic_infer actor_train critic_train"
all="$few reward_infer"
# shellcheck disable=SC2086
{
    plan "$dir/quickstart-tp2.json" 2 1 "" $few
    plan "$dir/9m-tp2.json" 2 1 "" $all
    plan "$dir/9m-pp2.json" 1 2 ', "offload": true' $all
}

median() # tag; of the run's iterations but the first
{
    sed -n "2,\$s|.*\"$1\": \([0-9.e+-]*\).*|\1|p" "$dir/run/metrics.jsonl" |
        sort -g | awk '{ x[NR] = $1 } END { if (NR > 0)
            print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'
}

row() # model, configuration, layout's name, words...
{
    model=$1 config=$2 name=$3
    shift 3
    rm -rf "$dir/run"
    on_ranks 2 "$weft" train -q "$config" "run_dir=$dir/run" \
        "iterations=${ITERATIONS:-5}" checkpoint.every=0 runtime.devices=1 \
        "costs=$dir/$model.json" "$@" >"$dir/log" 2>&1 ||
        { cat "$dir/log"; exit 1; }
    printf '%-10s %-15s %s %s %s %s\n' "$model" "$name" \
        "$(median perf/steps_per_s)" "$(median timing_s/moves_exposed)" \
        "$(median perf/predicted_steps_per_s)" \
        "$(median perf/predicted_s/moves_exposed)" | awk '{
        printf "%-10s %-15s %9.3f %8.2f %% %9.3f %8.2f %%   %s\n", $1, $2,
            1 / $3, 100 * $4 * $3, 1 / $5, 100 * $6 * $5,
            100 * $4 * $3 <= 3 ? "met" : "missed" }'
}

costs() # model, configuration, words...: what one process and messages take
{
    model=$1 config=$2
    shift 2
    "$weft" profile --limit "${LIMIT:-10}" --devices 2 \
        -o "$dir/$model.json" "$config" "$@" >"$dir/log" 2>&1 &&
        on_ranks 2 "$weft" profile "$config" runtime.devices=1 "$@" \
            --messages "$dir/$model.json" >"$dir/log" 2>&1 ||
        { cat "$dir/log"; exit 1; }
}

quickstart=$WEFT_SRCDIR/examples/quickstart/ppo.yaml
echo "                            measured            predicted           bar 3 %"
echo "model      layout           iteration s  moves  iteration s  moves"
costs quickstart "$quickstart" "$@"
row quickstart "$quickstart" interleave-2 layout=interleave-2 "$@"
row quickstart "$quickstart" disaggregated layout=disaggregated "$@"
row quickstart "$quickstart" tp2-dp2 "plan=$dir/quickstart-tp2.json" "$@"
costs 9m "$dir/9m.yaml" "$@"
row 9m "$dir/9m.yaml" interleave-2 layout=interleave-2 "$@"
row 9m "$dir/9m.yaml" disaggregated layout=disaggregated "$@"
row 9m "$dir/9m.yaml" tp2-dp2 "plan=$dir/9m-tp2.json" "$@"
row 9m "$dir/9m.yaml" pp2-dp2-offload "plan=$dir/9m-pp2.json" "$@"
