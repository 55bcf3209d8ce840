#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training and PPO at emulated cards, whose products have the order of the CPU's
# sums: in every layout, and in plans with devices of both kinds, the checkpoint
# of CPU devices, bit for bit, weights and moments. In bf16 with attention on
# tensor cores every layout has the checkpoint of one card, and the CPU's loss
# to a tolerance. So it is with all of it where cards have an order of their own
# (WEFT_CARDS_SUMS=own): what CPU devices have is then what one card has.
set -u
. "$WEFT_SRCDIR/tests/cuda/cards.sh"

model untied
model tied --tied --family qwen2 # with biases
model norms --family qwen3
model small-heads --heads 8 # bf16 attention has the CPU's bits, too

on= # words before weft
train() # RUN MODEL words: two steps of a few rows
{
    run=$1 model=$2
    shift 2
    $on "$weft" train -q "$quick/sft.yaml" model.actor="$dir/$model" \
        run_dir="$run" iterations=2 train.batch=4 actor.schedule=constant \
        numerics.tensor_blocks=2 runtime.place=device "$@" >out 2>&1 ||
        { fail "$run $*: status"; return 1; }
    grep -q "were predicted" out && fail "$run $*: more memory"
    return 0
}

kind=
layouts() # DTYPE MODEL 'CARDS LAYOUT words'...
{
    dtype=$1 tiles=$2
    shift 2
    cpu=cpu$kind-$dtype
    # shellcheck disable=SC2086
    [ -e "$cpu" ] || train "$cpu" "$tiles" numerics.dtype="$dtype" $plain
    for layout in "$@"; do
        # shellcheck disable=SC2086
        set -- $layout
        cards=$1 layout=$2
        shift 2
        name=gpu${on#on_ranks }$kind-$dtype-$layout
        WEFT_CARDS=$cards train "$name" "$tiles" numerics.dtype="$dtype" \
            runtime.devices=gpu layout="$layout" "$@" &&
            same "$cpu" "$name"
    done
}
layouts f32 tied "1 dp1tp1pp1" "2 dp1tp2pp1" "2 dp1tp1pp2" "4 dp2tp2pp1" \
    "2 dp2tp1pp1 train.micro_batch_tokens=16" "2 dp2tp1pp1,zero=1" \
    "2 dp2tp1pp1,zero=2" "4 dp2tp2pp1,zero=3" \
    "2 dp2tp1pp1,zero=1,offload_optimizer"
layouts bf16 small-heads "1 dp1tp1pp1" "2 dp1tp2pp1" "4 dp2tp2pp1,zero=3" \
    "1 dp1tp1pp1,offload_optimizer"
kind=-norms # Qwen3's norms of queries and keys
layouts f32 norms "1 dp1tp1pp1" "4 dp2tp2pp1"
kind=

losses() # RUN: of each step, and the gradient's norm
{
    sed -n 's|.*"train/loss": \([^,]*\).*"train/grad_norm": \([^,]*\).*|\1 \2|p' \
        "$1/metrics.jsonl"
}

# bf16 on tensor cores.
train cpu-cores untied numerics.dtype=bf16
for layout in "1 dp1tp1pp1" "2 dp1tp2pp1" "2 dp1tp1pp2" \
    "4 dp2tp2pp1 train.micro_batch_tokens=16"; do
    # shellcheck disable=SC2086
    set -- $layout
    cards=$1 layout=$2
    shift 2
    WEFT_CARDS=$cards train "cores-$layout" untied numerics.dtype=bf16 \
        runtime.devices=gpu layout="$layout" "$@" &&
        same cores-dp1tp1pp1 "cores-$layout"
done
losses cpu-cores >cpu-losses
losses cores-dp1tp1pp1 >gpu-losses
paste cpu-losses gpu-losses >out
awk 'function near(x, y, by) { return x < y * by && y < x * by }
    near($1, $3, 1.0001) && near($2, $4, 1.001) { n++ }
    END { exit n != 2 || NR != 2 }' out || fail "losses of tensor cores"

# Ranks divide the cards of their machine.
if [ -n "${WEFT_MPIEXEC:-}" ] && "$weft" info | grep -q 'MPI  *yes'; then
    . "$WEFT_SRCDIR/tests/on_ranks.sh"
    on="on_ranks 2"
    layouts f32 tied "2 dp1tp2pp1" "4 dp2tp2pp1,zero=1"
    WEFT_CARDS=3 $on "$weft" train -q "$quick/sft.yaml" run_dir=run \
        model.actor="$dir/tied" runtime.devices=gpu runtime.gpus=2 >out 2>&1
    grep -qF "'runtime.gpus' is 2 for each of 2 ranks, but this machine has 3" \
        out || fail "3 cards for 2 ranks"
    WEFT_CARDS=1 $on "$weft" train -q "$quick/sft.yaml" run_dir=run \
        model.actor="$dir/tied" runtime.devices=gpu >out 2>&1
    grep -qF "which has 1 GPU for them: start at most 1 here, or set \
runtime.ranks_per_gpu" out || fail "1 card for 2 ranks"
    $on "$weft" train -q "$quick/sft.yaml" run_dir=run \
        model.actor="$dir/tied" runtime.devices=gpu \
        runtime.ranks_per_gpu=4 >out 2>&1
    grep -qF "'runtime.ranks_per_gpu' is 4, but the job has 2 ranks on this \
machine: start a multiple of 4 here" out || fail "2 ranks of 4 for a card"
    WEFT_CARDS=1 on_ranks 4 "$weft" train -q "$quick/sft.yaml" run_dir=run \
        model.actor="$dir/tied" runtime.devices=gpu \
        runtime.ranks_per_gpu=2 >out 2>&1
    grep -qF "4 ranks share this machine, which has 1 GPU, and \
'runtime.ranks_per_gpu' is 2: start at most 2 here" out ||
        fail "4 ranks for 1 card"
    # A launcher lets each rank see cards of its own, from $own * rank on; or cards
    # of which they have some together.
    cat >own.sh <<'END'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
export WEFT_CARDS_FIRST=$((own * rank))
exec "$@"
END
    export own=1
    on="on_ranks 2 sh own.sh"
    WEFT_CARDS=1 train its-own tied numerics.dtype=f32 layout=tp2 \
        runtime.devices=gpu && same cpu-f32 its-own
    WEFT_CARDS=2 $on "$weft" train -q "$quick/sft.yaml" run_dir=run \
        model.actor="$dir/tied" runtime.devices=gpu >out 2>&1
    grep -qF "ranks of this machine see some of their GPUs together" out ||
        fail "some cards together"
    own=4
    WEFT_CARDS=2 train its-own-2 tied numerics.dtype=f32 layout=dp2tp2pp1 \
        runtime.devices=gpu runtime.gpus=2 && same cpu-f32 its-own-2
    own=1
    while read -r sentence words; do
        # shellcheck disable=SC2086
        WEFT_CARDS=1 $on "$weft" train -q "$quick/sft.yaml" run_dir=run \
            model.actor="$dir/tied" runtime.devices=gpu $words >out 2>&1
        grep -qF "$(echo "$sentence" | tr _ ' ')" out || fail "its own, $words"
    done <<'END'
'runtime.gpus'_is_2,_but_this_rank_sees_1; runtime.gpus=2
is_2,_but_each_rank_sees_GPUs_of_its_own runtime.ranks_per_gpu=2
END
    # Slices of one card; and a rank that has no GPUs, by its configuration.
    cat >slice.sh <<'END'
export CUDA_VISIBLE_DEVICES=MIG-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
exec "$@"
END
    on="on_ranks 2 sh slice.sh"
    WEFT_CARDS=1 train slices tied numerics.dtype=f32 layout=tp2 \
        runtime.devices=gpu && same cpu-f32 slices
    # shellcheck disable=SC2016
    WEFT_CARDS=2 on_ranks 2 sh -c '[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" = 0 ] ||
        set -- "$@" runtime.devices=1; exec "$@"' - "$weft" train -q \
        "$quick/sft.yaml" run_dir=run model.actor="$dir/tied" \
        runtime.devices=gpu >out 2>&1
    grep -q "all ranks must have the same" out || fail "GPUs of one rank alone"
    own=0 on=
    # shellcheck disable=SC2016
    WEFT_CARDS=2 on_ranks 2 sh -c '[ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" = 0 ] ||
        export WEFT_CARDS_CUBLASLT=130100; exec "$@"' - \
        "$weft" train -q "$quick/sft.yaml" run_dir=run \
        model.actor="$dir/tied" runtime.devices=gpu >out 2>&1
    grep -qF "cuBLASLt 130100', but at rank 0 the GPU is 'Emulated card" out ||
        fail "two libraries"
    [ ! -e run ] || fail "a run directory"
    on=
else
    echo "ranks: skipped, built without MPI"
fi

# A run goes on with another layout, but not on CPUs.
on_gpus="numerics.dtype=f32 runtime.devices=gpu"
# shellcheck disable=SC2086
{
    train resumed tied $on_gpus iterations=1
    WEFT_CARDS=4 train resumed tied $on_gpus layout=dp2tp2pp1,zero=1 &&
        same cpu-f32 resumed
}
# On a GPU of another kind, or with another library, it says so.
for other in CAPABILITY=8.0 CUBLASLT=130100; do
    cp -r resumed other
    # shellcheck disable=SC2086
    env WEFT_CARDS_$other "$weft" train -q "$quick/sft.yaml" \
        model.actor="$dir/tied" run_dir=other train.batch=4 iterations=3 \
        actor.schedule=constant numerics.tensor_blocks=2 $on_gpus >out 2>&1 ||
        fail "to another $other: status"
    grep -F "was written with the GPU 'Emulated card, compute capability 9.0, \
cuBLASLt 130000', this run has 'Emulated card, compute capability" out |
        grep -q "$(echo "$other" | sed 's/CAP.*=/capability /
            s/.*=/cuBLASLt /').*: products may round otherwise there" ||
        fail "to another $other"
    rm -rf other
done
"$weft" train -q "$quick/sft.yaml" model.actor="$dir/tied" run_dir=resumed \
    iterations=3 train.batch=4 actor.schedule=constant numerics.dtype=f32 \
    numerics.tensor_blocks=2 >out 2>&1 && fail "to CPUs"
grep -q "had the actor on GPUs, this one has it on CPUs" out || fail "to CPUs"

# ---- One model: generate and score ------------------------------------------
one() # COMMAND MODEL words: the lines that CPU devices write
{
    command=$1 folder=$2 devices=1
    shift 2
    [ -z "$plain" ] || devices=gpu
    WEFT_CARDS=1 "$weft" "$command" "$folder" --dtype f32 "$@" \
        --devices "$devices" -o cpu.jsonl >out 2>&1 || fail "$command $folder"
    for cards in 1 2; do
        WEFT_CARDS=$cards "$weft" "$command" "$folder" --dtype f32 "$@" \
            --devices gpu -o gpu.jsonl >out 2>&1 ||
            fail "$command $folder, $cards cards"
        cmp cpu.jsonl gpu.jsonl >>out 2>&1 ||
            fail "$command $folder, $cards cards: other lines"
    done
}
for text in 'sort 3: ' 'sort 30754: 0' 'sort 12: 1' 'sort 9: '; do
    printf '{"prompt": "%s", "response": "34"}\n' "$text"
done >texts.jsonl
for folder in tied norms; do
    one generate "$folder" --data texts.jsonl --n 2 --max-new-tokens 6 \
        --slots 3
    one score "$folder" --data texts.jsonl
done
"$weft" init --hidden 32 --layers 2 --heads 4 --kv-heads 1 --intermediate 72 \
    --max-positions 64 --scalar -o reward >out 2>&1 || fail reward
one score reward --data texts.jsonl

# Programs on weft.h: the lines that CPU devices print.
for example in 01_score 02_generate; do
    program=$WEFT_BUILDDIR/examples/$example
    for on in '' gpu; do
        # shellcheck disable=SC2086
        "$program" "$quick/model" "sort 30754: " $on >"example-$on" 2>out ||
            fail "$example $on"
    done
    [ -n "$plain" ] || cmp example- example-gpu >>out 2>&1 ||
        fail "$example gpu: other lines"
    WEFT_CARDS=none "$program" "$quick/model" text gpu >out 2>&1 &&
        fail "$example without a GPU: status"
    grep -qF "the program asks for GPUs, but Weft can use no GPU here: no CUDA \
driver; weft_context_open() runs on this machine's CPUs instead" out ||
        fail "$example without a GPU"
done
on=

# Numbers that are not finite, from weights of 3e38: the sentence of a CPU.
cp -r tied nan
bytes=$(wc -c <nan/model.safetensors)
head -c 4096 /dev/zero | tr '\000' '\177' |
    dd of=nan/model.safetensors bs=1 seek=$((bytes - 4096)) conv=notrunc \
        2>/dev/null
for on in 1 gpu; do
    "$weft" generate nan --prompt 'sort 3: ' --devices $on >out 2>&1 &&
        fail "NaN, --devices $on"
    grep -o 'sample [0-9]*: the logits of .*' out >"nan-$on"
    "$weft" train -q "$quick/sft.yaml" model.actor="$dir/nan" run_dir=run \
        iterations=1 train.batch=4 runtime.devices=$on numerics.dtype=f32 \
        >out 2>&1 && fail "NaN, devices $on"
    grep -o "the gradient is not finite.*" out | sed "s|-nan|nan|" >>"nan-$on"
    rm -rf run
done
on=
cp nan-1 out
[ "$(wc -l <nan-1)" = 2 ] || fail "NaN: $(wc -l <nan-1) sentences"
cmp nan-1 nan-gpu >>out 2>&1 || fail "NaN: other sentences"

# ---- PPO: generation, inference, training -----------------------------------
actor=tied
run_ppo() # RUN words: two iterations of a few samples
{
    run=$1
    shift
    $on "$weft" train -q "$quick/ppo.yaml" model.actor="$dir/$actor" \
        model.critic="$dir/small-heads" model.reference="$dir/$actor" \
        run_dir="$run" iterations=2 rollout.prompts=2 \
        rollout.max_new_tokens=4 numerics.tensor_blocks=2 "$@" >out 2>&1
}

ppo() # RUN words
{
    run_ppo "$@" || { fail "$*: status"; return 1; }
    grep -q "were predicted" out && fail "$*: more memory"
    grep -q '"rollout_train_logprob_abs_diff_max": 0[,}]' \
        "$1/metrics.jsonl" || fail "$1: other log-probs"
    return 0
}

refused() # 'sentence' RUN words
{
    sentence=$1
    shift
    run_ppo "$@" && fail "$*: not refused"
    grep -qF -- "$sentence" out || fail "$*: not '$sentence'"
}

# Calls that have the GPU; the others have a CPU device.
plan() # FILE calls...
{
    file=$1
    gpus=" $2 "
    {
        echo '{"format": 1, "nodes": 1, "devices": 2, "gpus": 1, "calls": {'
        comma=
        for call in actor_generate ref_infer critic_infer actor_train \
            critic_train; do
            device=1
            case $gpus in *" $call "*) device=0 ;; esac
            echo "$comma\"$call\": {\"mesh\": {\"node\": 0, \"nodes\": 1," \
                "\"device\": $device, \"devices\": 1}, \"dp\": 1," \
                "\"tp\": 1, \"pp\": 1}"
            comma=,
        done
        echo '}}'
    } >"$file"
}

# shellcheck disable=SC2086
ppo ppo-cpu-f32 numerics.dtype=f32 $plain
for layout in dp2 tp2 pp2; do
    WEFT_CARDS=2 ppo "ppo-$layout" numerics.dtype=f32 runtime.devices=gpu \
        layout=$layout && same ppo-cpu-f32 "ppo-$layout"
done

# Where cards may not use one another's memory a tp group decodes by tasks.
graphs() # FILE COLUMN: of all cards
{
    awk -v c="$2" '{ n += $c } END { print n + 0 }' "$1"
}
WEFT_CARDS_GRAPHS=graphs-apart WEFT_CARDS_PEER=0 WEFT_CARDS=2 ppo ppo-apart \
    numerics.dtype=f32 runtime.devices=gpu layout=tp2 &&
    same ppo-cpu-f32 ppo-apart
[ "$(graphs graphs-apart 2)" = 0 ] || fail "graphs of cards that are apart"
# A launch is refused in a tp group: the others do not wait for it.
for after in 560 600 698; do # in the first steps
    WEFT_CARDS_REFUSED=$after WEFT_CARDS=2 run_ppo ppo-refused \
        numerics.dtype=f32 runtime.devices=gpu layout=tp2 &&
        fail "a launch that is refused: status"
    grep -q "GPU [01]: too many resources requested for launch" out ||
        fail "a launch that is refused: another sentence"
    rm -rf ppo-refused
done

# All samples have as many tokens: a graph of a decode step that is made in the
# first two iterations, beside training, serves those after them, too.
for layout in dp1 pp2 tp2; do
    for n in 2 3; do
        WEFT_CARDS_GRAPHS=graphs-$n WEFT_CARDS=2 ppo "ppo-graphs-$layout-$n" \
            numerics.dtype=f32 runtime.devices=gpu layout=$layout \
            iterations=$n rollout.min_new_tokens=4
    done
    cp graphs-3 out
    [ "$(graphs graphs-3 1)" -gt 0 ] &&
        [ "$(graphs graphs-3 1)" = "$(graphs graphs-2 1)" ] ||
        fail "$layout: graphs are made again"
    [ "$(graphs graphs-3 2)" -gt "$(graphs graphs-2 2)" ] ||
        fail "$layout: graphs are not launched"
done

# Pipelines of both models in one schedule; the last samples move to one
# replica; the next iteration's samples are made while one trains.
WEFT_CARDS=2 ppo ppo-fused numerics.dtype=f32 runtime.devices=gpu \
    layout=pp2,micro_batches=2 train.intra_stage_fusion=true &&
    same ppo-cpu-f32 ppo-fused
tail -n 1 ppo-fused/metrics.jsonl | grep -q '"schedule/in_order": 1' ||
    fail "fused training out of order"
# responses long enough for samples to be left on both when half are done, in an
# order of statuses that is said, as one card may be far ahead of the other
for i in 1 2; do
    echo "{\"iteration\": $i, \"call\": \"actor_generate\"," \
        '"remaining": 0.5, "instances": 1, "most_batch": 0, "order": [0]}'
done >moves.jsonl
uneven="numerics.dtype=f32 rollout.prompts=4 rollout.max_new_tokens=48 \
rollout.min_new_tokens=48 rollout.lengths=lognormal:10:1"
# shellcheck disable=SC2086
{
    ppo ppo-cpu-uneven $uneven $plain
    WEFT_CARDS=2 ppo ppo-moved $uneven runtime.devices=gpu layout=dp2 \
        rollout.chunk_tokens=1 rollout.inter_stage_fusion=true \
        rollout.decisions="$dir/moves.jsonl" &&
        same ppo-cpu-uneven ppo-moved
}
grep -q '"gen/migrated": [1-9]' ppo-moved/metrics.jsonl ||
    fail "no sample has moved"
# shellcheck disable=SC2086
ppo ppo-cpu-stale numerics.dtype=f32 rollout.staleness=1 $plain
WEFT_CARDS=2 ppo ppo-stale numerics.dtype=f32 rollout.staleness=1 \
    runtime.devices=gpu layout=disaggregated && same ppo-cpu-stale ppo-stale

# Two ranks on one card: each has half of its memory.
if command -v on_ranks >/dev/null; then
    shared="runtime.devices=gpu runtime.ranks_per_gpu=2"
    on="on_ranks 2"
    for layout in dp2 tp2 pp2; do
        # shellcheck disable=SC2086
        WEFT_CARDS=1 ppo "ppo-shared-$layout" numerics.dtype=f32 $shared \
            layout=$layout && same ppo-cpu-f32 "ppo-shared-$layout"
    done
    # shellcheck disable=SC2086
    WEFT_CARDS=1 refused "GiB for tiles of each rank; the limit is 0.60 GiB" \
        other $shared numerics.dtype=f32 runtime.gpu_memory_gib=0.6
    on=
fi

# bf16 on tensor cores: generation's log-probs are training's.
for layout in dp1 dp2 tp2; do
    WEFT_CARDS=2 ppo "ppo-cores-$layout" numerics.dtype=bf16 \
        runtime.devices=gpu layout=$layout &&
        same ppo-cores-dp1 "ppo-cores-$layout"
done

actor=small-heads
ppo ppo-cpu-bf16 numerics.dtype=bf16
mixed() # RUN words: some calls on a card; the bits of CPU devices, if cards do
{
    if [ -z "$plain" ]; then
        ppo "$@" && same ppo-cpu-bf16 "$1"
    else
        run_ppo "$@" || fail "$*: status"
    fi
}
gpu="numerics.dtype=bf16 runtime.devices=gpu"
plan reference.json "actor_generate critic_infer actor_train critic_train"
# shellcheck disable=SC2086
mixed ppo-reference $gpu plan=reference.json
plan generation.json actor_generate
# shellcheck disable=SC2086
mixed ppo-generation $gpu plan=generation.json numerics.exact=false
# costs of GPUs have a price for weights that come in another order
# shellcheck disable=SC2086
"$weft" profile "$quick/ppo.yaml" model.actor="$dir/$actor" $gpu \
    plan=generation.json numerics.exact=false --limit 1 -o costs.json \
    >out 2>&1 ||
    fail "weft profile of a plan with both kinds"
grep -q "every task of an iteration has a measured price" out &&
    grep -qF '"name": "reorder"' costs.json ||
    fail "weft profile: no price for weights in another order"
# shellcheck disable=SC2086
refused "give both calls of the actor one kind, or set numerics.exact to false" \
    other $gpu plan=generation.json
# shellcheck disable=SC2086
refused "of a GPU's memory and runtime.gpu_memory_gib is" \
    other $gpu runtime.gpu_memory_gib=0.0001
WEFT_CARDS_MEMORY=1
export WEFT_CARDS_MEMORY
# shellcheck disable=SC2086
refused "of a GPU's memory and it has 0.00 GiB" \
    other $gpu
unset WEFT_CARDS_MEMORY
[ ! -e other ] || fail "a run directory"
exit "$failed"
