#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Machines with emulated cards, usable or not: what weft info lists, and the
# one sentence that weft train says before a run begins.
set -u
weft=$WEFT_BUILDDIR/weft
quick=$WEFT_SRCDIR/examples/quickstart
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

fail()
{
    echo "FAIL: $*"
    sed 's/^/    /' out err
    failed=1
}

refused() # VARIABLES 'sentence' words
{
    variables=$1 sentence=$2
    shift 2
    # shellcheck disable=SC2086
    env $variables "$weft" train -q "$quick/ppo.yaml" run_dir=run \
        iterations=1 runtime.devices=gpu "$@" >out 2>err
    [ $? = 1 ] || fail "$variables $*: status"
    [ "$(wc -l <err)" = 1 ] || fail "$variables $*: not one sentence"
    grep -qF -- "$sentence" err || fail "$variables $*: not '$sentence'"
    [ ! -s out ] || fail "$variables $*: output"
    [ ! -e run ] || fail "$variables $*: a run directory"
    rm -rf run
}

cpus="runtime.devices=0 runs on this machine's CPUs instead"
refused WEFT_CARDS=none "no GPU here: no CUDA driver; $cpus"
refused WEFT_CARDS=old "the driver serves CUDA 12.0, and this build needs 13.0; $cpus"
refused WEFT_CARDS=0 "no GPU here: no CUDA device; $cpus"
refused WEFT_CARDS=2 "'runtime.gpus' is 3, but this machine has 2" \
    runtime.gpus=3
refused WEFT_CARDS=17 "GPUs 0 to 16 of this machine are asked for, and Weft's \
StarPU was built for its first 16 (--enable-maxcudadev): set runtime.gpus to use \
fewer, or CUDA_VISIBLE_DEVICES to at most 16"
refused WEFT_CARDS_CAPABILITY=7.5 \
    "has compute capability 7.5, and Weft's kernels need 8.0 or later; $cpus"
card="Emulated card, compute capability"
unlike="WEFT_CARDS=2 WEFT_CARDS_CAPABILITY=9.0,8.0"
two_kinds="GPU 0 is '$card 9.0' and GPU 1 '$card 8.0', whose products may round \
otherwise: set"
refused "$unlike" "$two_kinds runtime.gpus to use only the first 1, or set \
CUDA_VISIBLE_DEVICES to those of one kind"
# shellcheck disable=SC2086
env $unlike "$weft" generate "$quick/model" --prompt 1 --devices gpu \
    >out 2>err && fail "generate on two kinds of GPU"
grep -qF "$two_kinds --gpus to use only the first 1" err ||
    fail "generate on two kinds of GPU"

"$weft" generate "$quick/model" --prompt 1 --devices gpu --gpus 3 >out 2>err &&
    fail "3 GPUs"
grep -qF "'--gpus' is 3, but this machine has 1" err || fail "--gpus 3"
"$weft" score "$quick/model" --text 1 --devices cpu >out 2>err
[ $? = 2 ] || fail "--devices cpu"
grep -qF "a number from 0 to 1000000, or gpu" err || fail "--devices cpu"

# A launch that is refused, and a card that is lost: one sentence, and the end.
"$weft" init --hidden 32 --layers 2 --heads 4 --kv-heads 1 --intermediate 72 \
    --max-positions 64 -o small >out 2>err || fail init
failing() # VARIABLES 'sentence' words
{
    variables=$1 sentence=$2
    shift 2
    # shellcheck disable=SC2086
    env $variables "$weft" train -q "$quick/sft.yaml" \
        model.actor="$dir/small" run_dir=run iterations=2 train.batch=4 \
        runtime.devices=gpu "$@" >out 2>err
    [ $? = 1 ] || fail "$variables: status"
    grep -q "$sentence" err || fail "$variables: not '$sentence'"
    [ "$(grep -c -e GPU -e starpu -e memory -e assert err)" = 1 ] ||
        fail "$variables: not one sentence"
    rm -rf run
}
for after in 100 600 1200; do # in the choice of products, in both steps
    for order in 0 1 3; do
        failing "WEFT_CARDS_LOST=$after WEFT_CARDS_ORDER=$order" \
            "GPU 0 has failed in or before .*: unknown error"
    done
    failing WEFT_CARDS_REFUSED=$after \
        "GPU 0: too many resources requested for launch"
done
failing WEFT_CARDS_MEMORY=16 "of a GPU's memory and it has 0.02 GiB; most of it"
# What other processes hold of a card is not there for a run, nor for a plan.
held="WEFT_CARDS_MEMORY=256 WEFT_CARDS_HELD=240"
failing "$held" "of a GPU's memory and other processes hold memory there, so that \
0.02 of its 0.25 GiB are free and tiles may have 0.01 GiB; most of it"
failing "$held" "GPU 0 has 0.01 GiB for tiles; the limit is 0.10 GiB \
(runtime.gpu_memory_gib): of its 0.25 GiB 0.02 are free, as other processes hold \
memory there, and CUDA needs some" runtime.gpu_memory_gib=0.1
failing WEFT_CARDS_MEMORY=256 "GPU 0 has 0.24 GiB for tiles; the limit is 0.25 \
GiB (runtime.gpu_memory_gib): of its 0.25 GiB 0.25 are free, and CUDA needs some" \
    runtime.gpu_memory_gib=0.25
# Host memory that cannot be pinned is no failure of the card.
"$weft" init --hidden 256 --layers 2 --heads 4 --max-positions 64 -o wide \
    >out 2>err || fail init
mv small thin && mv wide small
failing WEFT_CARDS_PINNED=36 "out of memory: 'actor .* on the host' wants .* MiB of \
this machine's memory" train.offload_optimizer=true
mv small wide && mv thin small
# Cards that do not get what they are sent send it by way of the host.
for peers in 1 2; do
    WEFT_CARDS=2 WEFT_CARDS_PEER=$peers "$weft" train -q "$quick/sft.yaml" \
        model.actor="$dir/small" run_dir=peers-$peers iterations=2 train.batch=4 \
        runtime.devices=gpu layout=tp2 numerics.tensor_blocks=2 >out 2>err ||
        fail "WEFT_CARDS_PEER=$peers: status"
    n=$(grep -c "does not get what GPU 0 sends it: what GPUs send one another passes \
through host memory" err)
    [ "$n" = $((peers - 1)) ] || fail "WEFT_CARDS_PEER=$peers: $n warnings"
done
for file in $(cd peers-1 && find checkpoints -name '*.safetensors'); do
    cmp "peers-1/$file" "peers-2/$file" >out 2>err || fail "by way of the host: $file"
done
# As many cards as StarPU has room for, and the bits of one.
for n in 1 16; do
    WEFT_CARDS=$n "$weft" train -q "$quick/sft.yaml" model.actor="$dir/small" \
        run_dir=cards-$n iterations=1 train.batch=16 numerics.gradient_groups=16 \
        runtime.devices=gpu >out 2>err || fail "$n cards: status"
done
[ "$(wc -l <err)" = 0 ] || fail "16 cards: not all train"
for file in $(cd cards-1 && find checkpoints -name '*.safetensors'); do
    cmp "cards-1/$file" "cards-16/$file" >out 2>err || fail "16 cards: $file"
done
rm -rf cards-1 cards-16
# A card that is lost in the second iteration: the next start goes on from the
# first one's checkpoint, and ends as a run that lost nothing. With fewer cards
# than its layout needs it says so.
three() # RUN words
{
    run=$1
    shift
    "$weft" train -q "$quick/sft.yaml" model.actor="$dir/small" \
        run_dir="$run" iterations=3 train.batch=4 checkpoint.every=1 \
        runtime.devices=gpu "$@" >out 2>err
}
three whole || fail "three iterations"
WEFT_CARDS_LOST=1200 three lost && fail "a lost card: status"
[ -d lost/checkpoints ] || fail "a lost card: no checkpoint to go on from"
three lost || fail "a run whose card was lost does not go on"
n=0
for file in $(cd whole && find checkpoints -name '*.safetensors'); do
    cmp "whole/$file" "lost/$file" >out 2>err || fail "a lost card: $file"
    n=$((n + 1))
done
[ $n -ge 3 ] || fail "a lost card: $n files"
rm -rf lost
WEFT_CARDS=2 three lost layout=tp2 iterations=1 numerics.tensor_blocks=2 ||
    fail "two cards"
WEFT_CARDS=1 three lost layout=tp2 numerics.tensor_blocks=2 &&
    fail "a card that is gone: status"
[ "$(wc -l <err)" = 1 ] || fail "a card that is gone: not one sentence"
rm -rf lost whole

if [ -n "${WEFT_MPIEXEC:-}" ] && "$weft" info | grep -q 'MPI  *yes'; then
    . "$WEFT_SRCDIR/tests/on_ranks.sh"
    export WEFT_CARDS=2
    on_ranks 2 env WEFT_CARDS_LOST=50 "$weft" train -q "$quick/sft.yaml" \
        model.actor="$dir/small" run_dir=run iterations=2 train.batch=4 \
        runtime.devices=gpu layout=dp2tp1pp1 >out 2>err &&
        fail "a lost card of a rank: status"
    grep -q "GPU [01] has failed" err || fail "a lost card of a rank"
    unset WEFT_CARDS
fi

# A rank that is bound to fewer cores than its GPUs want says so, once.
few="a rank may use 1 of .* cores, and with 1 GPU and 1 CPU device wants 5: its \
threads wait for one another; start it with mpirun's --bind-to none, or srun's \
--cpus-per-task=5"
on_cores() # N words before weft: N lines say so
{
    n=$1
    shift
    "$@" "$weft" train -q "$quick/sft.yaml" model.actor="$dir/small" \
        run_dir=run iterations=1 train.batch=4 runtime.devices=gpu >out 2>err ||
        fail "$*: status"
    [ "$(grep -c "$few" err)" = "$n" ] || fail "$*: not $n times"
    rm -rf run
}
allowed=$(taskset -cp $$ 2>err | sed 's/.*: \([0-9]*\).*/\1/')
if [ -n "$allowed" ] && [ "$("$weft" info --json |
    sed 's/.*"cores": \([0-9]*\).*/\1/')" -gt 1 ]; then
    on_cores 0 env
    on_cores 1 taskset -c "$allowed"
    if command -v on_ranks >/dev/null; then
        export WEFT_CARDS=2
        on_cores 0 on_ranks 2
        ranks_bind=core:overload-allowed
        on_cores 1 on_ranks 2
        ranks_bind=none
        unset WEFT_CARDS
    fi
else
    echo "bound to a core: skipped, there is one, or no taskset"
fi

# weft profile: GPUs are measured, and the file is theirs alone.
profile() # STATUS 'sentence' VARIABLES words
{
    status=$1 sentence=$2 variables=$3
    shift 3
    # shellcheck disable=SC2086
    env $variables "$weft" profile "$quick/$run" \
        model.actor="$dir/small" "$@" >out 2>err
    [ $? = "$status" ] || fail "profile $variables $*: status"
    grep -qF -- "$sentence" out err || fail "profile $*: not '$sentence'"
}
gpu=runtime.devices=gpu run=ppo.yaml
all="every task of an iteration has a measured price"
profile 0 "2 GPUs: " WEFT_CARDS=2 $gpu --limit 1 -o ppo.json \
    model.critic="$dir/small" model.reference="$dir/small"
grep -q "$all" out || fail "profile: tasks of PPO without a price"
measured() # FILE OPERATION...
{
    file=$1
    shift
    for op; do
        grep -qF "\"name\": \"$op\"" "$file" || fail "profile: no $op"
    done
}
measured ppo.json gen_chunk gen_stage gen_last_stage gen_settle logprob \
    value loss adamw gen_retire gae
profile 0 "$all" "WEFT_CARDS=2 WEFT_CARDS_PEER=0" $gpu --limit 1 \
    -o apart.json model.critic="$dir/small" model.reference="$dir/small"
measured apart.json gen_draw logits_part
for run in kto.yaml grpo.yaml; do
    profile 0 "$all" WEFT_CARDS=1 $gpu --limit 1 -o one.json
done
run=sft.yaml
profile 0 "1 GPU: " WEFT_CARDS=1 $gpu --limit 1 -o one.json
profile 0 "from one GPU to the next" WEFT_CARDS=2 $gpu --limit 2 -o gpu.json
grep -q "$all" out || fail "profile: tasks without a price"
for words in '"device": "Emulated card, compute capability 9.0"' \
    '"devices": 2' '"name": "layer_backward"' '"name": "attention_part"'; do
    grep -qF "$words" gpu.json || fail "profile: no $words"
done
grep -q '"host": [1-9]' gpu.json || fail "profile: no rate to host memory"
grep -q '"inside": [1-9]' gpu.json || fail "profile: no rate between GPUs"
profile 0 "every task" WEFT_CARDS=2 $gpu --check gpu.json
profile 0 "1 device: " "" runtime.devices=1 --limit 1 -o cpu.json
profile 1 "'gpu.json' was measured with device '$card 9.0', and here it is \
'CPU'; run weft profile again" "" --check gpu.json
profile 1 "with device 'CPU', and here it is '$card 9.0'" "" $gpu \
    --check cpu.json
profile 1 "'$card 9.0', and here it is '$card 8.0'" \
    WEFT_CARDS_CAPABILITY=8.0 $gpu --check gpu.json
profile 1 "GPU 0 is '$card 9.0' and GPU 1 '$card 8.0', and measured costs are \
of one kind of GPU; set runtime.gpus to use only the first 1" \
    "$unlike" $gpu numerics.exact=false --check gpu.json
profile 1 "$two_kinds" "$unlike" $gpu --check gpu.json
profile 0 "$all" "$unlike" $gpu runtime.gpus=1 --check gpu.json
profile 1 "no GPU here: no CUDA driver; $cpus" WEFT_CARDS=none $gpu

# Ranks that share a GPU have their part of it, of its memory, and of those GPUs
# that must be alike: what a plan is found for, and costs are compared with.
"$weft" init --hidden 256 --layers 8 --heads 4 --kv-heads 1 \
    --intermediate 1024 --max-positions 64 -o big >out 2>err || fail init
if command -v on_ranks >/dev/null; then
    shared() # STATUS VARIABLES MODEL words
    {
        status=$1 variables=$2 model=$3
        shift 3
        # shellcheck disable=SC2086
        on_ranks 2 env $variables "$weft" train -q "$quick/sft.yaml" \
            model.actor="$dir/$model" run_dir=run iterations=1 train.batch=4 \
            runtime.devices=gpu runtime.ranks_per_gpu=2 costs=gpu.json "$@" \
            >out 2>err
        [ $? = "$status" ] || fail "shared $variables $*: status"
        rm -rf run
    }
    shared 1 "WEFT_CARDS=1 WEFT_CARDS_MEMORY=128" big plan=auto
    grep -q "no plan fits: .* GiB of device [0-9]*, which has 0.05859" err ||
        fail "half of a GPU's memory"
    shared 0 "$unlike" small runtime.gpus=1
fi

# What does not fit says what would help.
"$weft" train -q "$quick/sft.yaml" model.actor="$dir/big" run_dir=run \
    train.batch=4 runtime.devices=gpu runtime.gpu_memory_gib=0.15 \
    numerics.gradient_groups=1 >out 2>err && fail "too little memory: status"
grep -q "most of it, .* GiB, is optimizer: with train.offload_optimizer it \
would need 0.14 GiB" err || fail "too little memory"
profile 1 "'--devices' counts CPU devices" "" $gpu --devices 2
profile 1 "wants 64.0 MiB of activations; 51.2 of 51.2 MiB are left" "" $gpu \
    runtime.gpu_memory_gib=0.05 -o none.json
profile 1 "GPU 0 has failed in or before" WEFT_CARDS_LOST=300 $gpu \
    --limit 1 -o none.json
profile 1 "GPU 0: too many resources requested for launch" \
    WEFT_CARDS_REFUSED=200 $gpu --limit 1 -o none.json
[ ! -e none.json ] || fail "profile: a file of a GPU that failed"
"$weft" train -q "$quick/sft.yaml" model.actor="$dir/small" run_dir=run \
    iterations=1 train.batch=4 $gpu costs=cpu.json >out 2>err &&
    fail "a CPU's costs for a run on GPUs"
grep -qF "with device 'CPU'" err || fail "a CPU's costs: another sentence"
rm -rf run
WEFT_CARDS=2 "$weft" train -q "$quick/sft.yaml" model.actor="$dir/small" \
    run_dir=run iterations=1 train.batch=4 $gpu costs=gpu.json plan=auto \
    >out 2>err || fail "plan: auto with a GPU's costs"
rm -rf run

info() # VARIABLES 'line'
{
    # shellcheck disable=SC2086
    env $1 "$weft" info >out 2>err || fail "info $1"
    grep -qF -- "$2" out || fail "info $1: not '$2'"
}
info WEFT_CARDS=none "none: no CUDA driver"
info "WEFT_CARDS=2 WEFT_CARDS_MEMORY=2048" "1: Emulated card, compute \
capability 9.0, 1 multiprocessors, 2 GiB, free 2 GiB; usable"
info WEFT_CARDS=1 "serves CUDA 13.0; this build has 13.0"
info WEFT_CARDS=1 "can loop: a chunk of decode steps is one launch"
info WEFT_CARDS_CUBLASLT=130100 "products     cuBLASLt 130100"
info WEFT_CARDS=2 "  each may use the others' memory: a tp group decodes a step"
info "WEFT_CARDS=2 WEFT_CARDS_PEER=0" \
    "  not each may use the others' memory: a tp group decodes by tasks"
info WEFT_CARDS_CAPABILITY=7.5 "too old: Weft's kernels need compute capability 8.0"

# A run on CPU devices by default says that it could have a GPU.
told() # N VARIABLES words: N lines say so
{
    n=$1 variables=$2
    shift 2
    # shellcheck disable=SC2086
    env $variables "$weft" train "$quick/sft.yaml" model.actor="$dir/small" \
        run_dir=run iterations=1 train.batch=4 "$@" >out 2>err ||
        fail "$variables $*: status"
    [ "$(grep -cF "runtime.devices=gpu gives it the GPUs of this machine \
($card" err)" = "$n" ] || fail "$variables $*: not $n times"
    rm -rf run
}
told 1 WEFT_CARDS=2
told 0 WEFT_CARDS=2 runtime.devices=1
told 0 WEFT_CARDS=2 runtime.devices=gpu
told 0 WEFT_CARDS=none
told 0 WEFT_CARDS_CAPABILITY=7.5
exit "$failed"
