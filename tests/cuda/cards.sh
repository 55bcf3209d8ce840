# SPDX-License-Identifier: Apache-2.0
# Read by tests that train on emulated cards, in a folder of their own.
weft=$WEFT_BUILDDIR/weft
quick=$WEFT_SRCDIR/examples/quickstart
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

fail()
{
    echo "FAIL: $*"
    sed 's/^/    /' out
    failed=1
}

plain= # words of runs that others have the bits of: none, on CPU devices
[ -z "${WEFT_CARDS_SUMS:-}" ] || plain=runtime.devices=gpu
if [ -z "$plain" ] && "$weft" info | grep -q 'chosen  *c$'; then
    echo "skipped: this CPU has no fused multiply-adds"
    exit 77
fi

model() # FOLDER words
{
    folder=$1
    shift
    "$weft" init --hidden 32 --layers 2 --heads 4 --kv-heads 1 \
        --intermediate 72 --max-positions 64 -o "$folder" "$@" >out 2>&1 ||
        fail "$folder"
}

same() # RUN RUN
{
    n=0
    for f in $(cd "$1" && find checkpoints -name '*.safetensors'); do
        cmp "$1/$f" "$2/$f" >>out 2>&1 || fail "$1 and $2: $f"
        n=$((n + 1))
    done
    [ $n -ge 3 ] || fail "$1: $n files" # weights, two moments
}

on= # words before weft

# ---- Every algorithm, CPU devices beside cards ------------------------------
# The samples of a prompt have several lengths, and so several scores.
for i in 3 12 9 30754 88 2; do
    echo "{\"prompt\": \"sort the digits of $i: \"}"
done >prompts.jsonl
generated="data.path=$dir/prompts.jsonl rollout.prompts=3
    rollout.max_new_tokens=6 rollout.lengths=lognormal:3:1 ppo.mini_batches=2
    actor.schedule=constant"
scored="reward=[{type: length, target: 3, method: around}]"

short() # RUN ALGORITHM words: two iterations of a few rows
{
    run=$1 algorithm=$2
    shift 2
    words="iterations=2 numerics.dtype=f32 numerics.tensor_blocks=2 \
numerics.gradient_groups=4"
    case $algorithm in
    sft | dpo | kto | reward_model)
        # shellcheck disable=SC2086
        $on "$weft" train -q "$quick/$algorithm.yaml" run_dir="$run" $words \
            train.batch=6 "$@" >out 2>&1 ;;
    *)
        # shellcheck disable=SC2086
        $on "$weft" train -q "$quick/$algorithm.yaml" run_dir="$run" $words \
            $generated "$scored" "$@" >out 2>&1 ;;
    esac || { fail "$run $*: status"; return 1; }
    grep "were predicted" out | grep -qv ": host took" &&
        fail "$run $*: more memory"
    return 0
}

learns() # RUN: where nothing is learned both moments are zeros
{
    for f in "$1"/checkpoints/*/optimizer/*/exp_avg.safetensors; do
        cmp -s "$f" "${f%.safetensors}_sq.safetensors" &&
            fail "$1 learns nothing"
    done
}

# The run of CPU devices, once, and those of cards, which must be equal. A name
# is the algorithm's, with what tells apart runs of it behind.
ranks= # words before weft, at cards
both() # NAME MODEL 'words of all' 'CARDS words'...
{
    name=$1 actor=$2 common=$3
    shift 3
    case $name in
    reward_model*) common="model.reward_model=$dir/$actor $common" ;;
    ppo*) common="model.actor=$dir/$actor model.reference=$dir/$actor
        model.critic=$dir/scalar $common" ;;
    *) common="model.actor=$dir/$actor $common" ;;
    esac
    # shellcheck disable=SC2086
    [ -e "$name-cpu" ] || short "$name-cpu" "${name%%-*}" $common $plain ||
        return
    learns "$name-cpu"
    on=$ranks
    for how in "$@"; do
        rm -rf last
        # shellcheck disable=SC2086
        WEFT_CARDS=${how%% *} short last "${name%%-*}" $common \
            runtime.devices=gpu ${how#* } && same "$name-cpu" last
    done
    on=
}

# Ranks divide the cards: the same, if this build has them.
on_2_ranks() # as both
{
    [ -n "${WEFT_MPIEXEC:-}" ] && "$weft" info | grep -q 'MPI  *yes' ||
        { echo "ranks: skipped, built without MPI"; return 1; }
    . "$WEFT_SRCDIR/tests/on_ranks.sh"
    ranks="on_ranks 2"
    both "$@"
    ranks=
}

metric() # TAG: of the last run, over its iterations
{
    sed "s|.*\"$1\": \([0-9]*\).*|\1|" last/metrics.jsonl |
        awk '{ n += $1 } END { print n + 0 }'
}
