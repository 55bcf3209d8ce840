#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tests/run/random.sh [N [SEED [cards]]]
#
# Runs with inter-stage fusion, drawn at random: algorithms, ranks, devices,
# layouts and placements, some of them with frozen models in host memory, when
# samples move and to how many replicas, with their KV caches or
# without, said or chosen, once or several times, chunks, shared prefixes, KV
# caches that are too small for all, staleness, fused training. Each ends with
# the weights and samples of one device without fusion.
# Three of them with each push, 30 by `make check-long`. With "cards" the devices
# are emulated GPUs (`make check-cards-long`).
set -u
. "$WEFT_SRCDIR/tests/begin_ranks.sh"
. "$WEFT_SRCDIR/tests/layers_cluster.sh"
n=${1:-3}
seed=${2:-15}
kind=${3:-cpus}
size="--hidden 64 --layers 4 --heads 4 --intermediate 256 --vocab 300 --tied
      --max-positions 256"
# shellcheck disable=SC2086
"$weft" init $size --seed 1 -o actor >log 2>&1 || { cat log; exit 1; }
# shellcheck disable=SC2086
"$weft" init $size --seed 2 --scalar -o critic >log 2>&1 || { cat log; exit 1; }
awk 'BEGIN { for (i = 0; i < 12; i++) # they begin alike, and end otherwise
    printf "{\"prompt\": \"%.*s%d\"}\n", 3 + i * 5,
        "the same beginning of all prompts, which is shared by blocks of it",
        i * i }' >prompts.jsonl
cat >base.yaml <<END
seed: 7
iterations: 3
data: {path: prompts.jsonl, template: none}
reward: [{type: length, target: 20, method: around},
         {type: model, model: critic}]
rollout: {prompts: 12, samples_per_prompt: 2, max_new_tokens: 60,
          lengths: "lognormal:12:1"}
train: {micro_batch_tokens: 60}
ppo: {epochs: 1, mini_batches: 2}
numerics: {tensor_blocks: 4, gradient_groups: 4}
actor: {lr: 1e-3}
checkpoint: {every: 3, dtype: f32}
samples_kept: -1
END
layers_cluster 4 8
for from in 1 24 0; do # whose caches move: of all, of long ones, of none
    awk -v from="$from" 'BEGIN { for (i = 1; i <= 4; i++)
        printf "{\"iteration\": %d, \"call\": \"actor_generate\", %s%s}\n", i,
            "\"remaining\": 0.9, \"instances\": 3, \"most_batch\": 0, " \
            "\"later\": [[0.6, 2], [0.3, 1]]",
            from ? ", \"cached\": [[" from ", 4096]]" : "" }' >moves$from.jsonl
done
{
    echo "algorithm: ppo"
    cat base.yaml
    echo "model: {actor: actor, critic: critic, reference: actor}"
} >ppo.yaml
for algorithm in grpo rloo reinforce_pp; do
    {
        echo "algorithm: $algorithm"
        cat base.yaml
        echo "model: {actor: actor, reference: actor}"
    } >$algorithm.yaml
done

# A line for each: algorithm, staleness, ranks, devices of each, a placement's
# name or "-" where the layout is among the words, words.
awk -v n="$n" -v seed="$seed" -v kind="$kind" '
function below(k) # 0 .. k - 1
{
    state = (state * 16807) % 2147483647
    return int(state / 2147483647 * k)
}
function pick(list,    x)
{
    return x[1 + below(split(list, x, " "))]
}
BEGIN {
    state = seed * 7919 + 1
    for (i = 0; i < 20; i++)
        below(2)
    for (i = 0; i < n; i++) {
        algorithm = pick("ppo grpo rloo reinforce_pp")
        stale = below(4) == 0
        ranks = 1 + below(4)
        devices = pick(ranks == 1 ? "2 4" : ranks == 2 ? "1 2 4" : "1 2")
        all = ranks * devices
        tp = 1; pp = 1
        if (all % 4 == 0 && below(3) == 0) { tp = 2 }
        if (all % (4 * tp) == 0 && below(3) == 0) { pp = 2 }
        dp = all / tp / pp
        while (dp > 4 || 4 % dp) dp-- # gradient groups
        layout = "dp" dp "tp" tp "pp" pp
        if (below(3) == 0) layout = layout ",zero=" 1 + below(3)
        else if (below(3) == 0) layout = layout ",recompute"
        if (layout ~ /zero=3/ && below(2)) layout = layout ",hpz"
        if (below(3) == 0) layout = layout ",offload"
        from = "-"
        if (all > 1 && below(3) == 0)
            from = pick(all == 2 ? "interleave-2 trlx-coexisted verl" : \
                        "interleave-2 disaggregated openrlhf nemo-aligner")
        words = kind == "cpus" ? "runtime.devices=" devices \
            : "runtime.devices=gpu runtime.gpus=" devices
        words = words " " (from == "-" ? "layout=" layout \
                                       : "plan=plan" i + 1 ".json")
        if (below(2)) words = words " runtime.place=device"
        words = words " rollout.chunk_tokens=" pick("1 2 3 5 16")
        words = words " rollout.prefill_tokens=" pick("1 7 64")
        words = words " rollout.prefix_sharing=" pick("true false")
        words = words " rollout.slots=" pick("3 6 24")
        words = words " rollout.kv_blocks=" pick("0 3 5")
        words = words " rollout.inter_stage_fusion=true"
        how = below(8)
        if (how > 4)
            words = words " rollout.decisions=moves" pick("1 1 24 0") ".jsonl"
        else if (how == 4)
            words = words " cluster=cluster.yaml"
        else
            words = words " rollout.remaining=" pick("0.1 0.3 0.5 0.7 0.95")
        if (how < 2 && dp > 1 && from == "-")
            words = words " rollout.instances=" 1 + below(dp - 1)
        if (algorithm == "ppo" && below(4) == 0 && from == "-")
            words = words " train.intra_stage_fusion=true"
        if (below(2)) words = words " runtime.overlap=false"
        print algorithm, stale, ranks, devices, from, words
    }
}' >drawn

sums() # RUN: of the last checkpoint, and of all samples
{
    find "$1/checkpoints/iteration-000003" "$1/samples" -name '*.safetensors' \
        -o -name '*.jsonl' | LC_ALL=C sort | while read -r file; do
        echo "${file#"$1"} $(cksum <"$file")"
    done
}

sum() # TAG: over the iterations of a run
{
    sed "s|.*\"$1\": \([0-9]*\).*|\1|" "run$i/metrics.jsonl" |
        awk '{ n += $1 } END { print n }'
}

i=0 moved=0 cached=0 put_off=0 shared=0
while read -r algorithm stale ranks devices from words; do
    i=$((i + 1))
    one=$algorithm-$stale
    [ -d "$one" ] ||
        "$weft" train -q "$algorithm.yaml" "run_dir=$one" runtime.devices=1 \
            rollout.staleness="$stale" >log 2>&1 </dev/null ||
        { cat log; exit 1; }
    of="--devices $devices"
    [ "$kind" = cpus ] || of="runtime.devices=gpu --gpus $devices"
    # shellcheck disable=SC2086
    [ "$from" = - ] ||
        "$weft" plan "$algorithm.yaml" --from "$from" --nodes "$ranks" \
            $of -o "plan$i.json" >log 2>&1 </dev/null ||
        { cat log; exit 1; }
    # shellcheck disable=SC2086
    WEFT_CARDS=$((ranks * devices)) on_ranks "$ranks" "$weft" train -q "$algorithm.yaml" "run_dir=run$i" \
        rollout.staleness="$stale" $words >log 2>&1 </dev/null ||
        { echo "FAILED: $i: $algorithm, staleness $stale, $ranks ranks, $words"
          cat log; failed=1; continue; }
    if grep -q "more memory" log || [ -z "$(sums "$one")" ] ||
        [ "$(sums "run$i")" != "$(sums "$one")" ]; then
        echo "FAILED: other bits: $i: $algorithm, staleness $stale, $ranks" \
            "ranks, $words"
        cat log
        failed=1
    fi
    here=$(sum gen/migrated)
    moved=$((moved + here))
    caches=$(sum gen/moved_caches)
    cached=$((cached + caches))
    put_off=$((put_off + $(sum gen/preempted)))
    shared=$((shared + $(sum gen/prefix_hit_tokens)))
    echo "$i: $algorithm, staleness $stale, $ranks ranks, $from, $words:" \
        "$here moved, $caches of them with their caches"
    rm -r "run$i"
done <drawn
# Of few runs it may be that statuses come so that nothing moves.
if [ "$n" -ge 30 ] &&
    { [ $moved = 0 ] || [ $cached = 0 ] || [ $cached = $moved ] ||
        [ $put_off = 0 ] || [ $shared = 0 ]; }; then
    echo "FAILED: no sample moved with its cache or without, none was put" \
        "off, or none shared a prefix"
    failed=1
fi
echo "$i runs: $moved samples moved, $cached with their caches, $put_off were" \
    "put off, $shared tokens shared"
exit $failed
