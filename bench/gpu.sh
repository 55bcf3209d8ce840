#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bench-gpu`: bench/gpu; then runs of a tiny model, whose results are
# compared; then log-probs beside those of Transformers in files; then the
# training step and prefill by PyTorch and Transformers, and log-probs of a
# random model, where PYTHON (python3) can import them and they see the card;
# then a step of SFT by `weft train` beside the same kernels in bench/gpu's
# loop, iterations of PPO of 1.5B, GRPO also by TRL; then all kernels under
# compute-sanitizer; and at last the name of what was not measured, with the
# reason. Each part is ended after WEFT_BENCH_LIMIT_S seconds (300), and the
# rest goes on, until WEFT_BENCH_TOTAL_S seconds (600) have passed since
# WEFT_BENCH_BEGUN (now; for make when it began to build), in seconds since
# 1970. The status is 1 if a part has failed, or results differ. Models of a
# few GB are made under TMPDIR.
# Options are bench/gpu's; with --shape only what belongs to that shape.
set -u
bench=$WEFT_BUILDDIR/bench/gpu
weft=$WEFT_BUILDDIR/weft
python=${PYTHON:-python3}
[ -x "$bench" ] || {
    echo "bench/gpu: nothing is measured: this build has no CUDA" \
        "(configure says why)"
    exit 0
}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
table=$dir/table
missing=$dir/missing
: >"$missing"
: >"$dir/log"
failed=0
absent() # WHAT WHY
{
    printf -- '- %s: %s\n' "$1" "$2" >>"$missing"
}
broken() # WHAT: a part that should have been measured; the log says why
{
    absent "$1" "$(tail -n 1 "$dir/log")"
    failed=1
}
# A part that hangs does not take the time of the others, nor all of them more
# than there is.
limit_s=${WEFT_BENCH_LIMIT_S:-300}
total_s=${WEFT_BENCH_TOTAL_S:-600}
begun=${WEFT_BENCH_BEGUN:-$(date +%s)}
limited()
{
    within "$limit_s" "$@"
}
within() # SECONDS COMMAND
{
    left_s=$((begun + total_s - $(date +%s)))
    [ $left_s -gt 0 ] || {
        echo "no time was left of $total_s s" >&2
        return 124
    }
    most_s=$(awk "BEGIN { print $1 < $left_s ? $1 : $left_s }")
    shift
    timeout -k 10 "$most_s" "$@"
    rc=$?
    case $rc in
    124 | 137) echo "it was ended after $most_s s" >&2 ;;
    esac
    return $rc
}
# Each shape by itself, the one with most bars first: a kernel that fails ends its
# own rows alone.
only=$(printf '%s\n' "$@" | sed -n '/^--shape$/{n;p;}')
: >"$table"
for shape in ${only:-7b 1.5b 0.5b}; do
    limited "$bench" --shape "$shape" "$@" >"$dir/rows" 2>"$dir/log"
    status=$?
    if [ -s "$table" ]; then # the head of the table is there, and the probes
        grep "^| $shape" "$dir/rows"
    else
        cat "$dir/rows"
    fi >"$dir/new"
    cat "$dir/new"
    cat "$dir/new" >>"$table"
    cat "$dir/log" >&2
    case $status in
    0) ;;
    77) exit 0 ;;
    2) exit 2 ;; # usage
    *)
        [ -s "$dir/log" ] || echo "it ended with status $status" >"$dir/log"
        broken "the rows that bench/gpu had left of $shape"
        ;;
    esac
done
# Where PyTorch computes: WEFT_TORCH_DEVICE=cpu tries the rows without a card.
device=${WEFT_TORCH_DEVICE:-cuda}

# ---- Whole steps ------------------------------------------------------------

model() # FOLDER SHAPE
{
    case $2 in
    tiny) set -- "$1" --hidden 32 --layers 2 --heads 4 --kv-heads 2 \
        --intermediate 64 --vocab 320 ;;
    small) set -- "$1" --hidden 32 --layers 2 --heads 4 --kv-heads 2 \
        --intermediate 128 --vocab 320 ;;
    0.5b) set -- "$1" --hidden 896 --layers 24 --heads 14 --kv-heads 2 \
        --intermediate 4864 --vocab 151936 --tied ;;
    1.5b) set -- "$1" --hidden 1536 --layers 28 --heads 12 --kv-heads 2 \
        --intermediate 8960 --vocab 151936 --tied ;;
    7b) set -- "$1" --hidden 3584 --layers 28 --heads 28 --kv-heads 4 \
        --intermediate 18944 --vocab 152064 ;;
    esac
    folder=$1
    shift
    within "$total_s" "$weft" init --family qwen2 --max-positions 1032 --dtype bf16 \
        -o "$folder" "$@" >"$dir/log" 2>&1
}

imports() # STATEMENTS [ARGUMENT]: whether Python can
{
    left_out=
    limited "$python" -c "$@" 2>"$dir/log"
    rc=$?
    [ $rc != 124 ] || left_out=": $(tail -n 1 "$dir/log")"
    return $rc
}

made() # FOLDER SHAPE ROWS: a model for them
{
    model "$1" "$2" && return
    broken "$3 of $2"
    return 1
}

zeros() # N: so many bytes, each of which is a token
{
    printf "%0${1}d" 0
}

# Seconds of the fastest iteration but the first; nothing after an error.
best_s() # CONFIG
{
    rm -rf "$dir/run"
    limited "$weft" train -q "$1" run_dir="$dir/run" runtime.devices=gpu \
        runtime.gpus=1 numerics.dtype=bf16 checkpoint.every=0 \
        >"$dir/log" 2>&1 &&
        sed -n 's/.*"perf\/steps_per_s": \([0-9.e+-]*\).*/\1/p' \
            "$dir/run/metrics.jsonl" |
            awk 'NR > 1 && $1 > most { most = $1 }
                END { if (most > 0) print 1 / most }'
}

row() # SHAPE WHAT SECONDS RATE UNIT SHARE BAR
{
    awk -v s="$1" -v w="$2" -v t="$3" -v r="$4" -v u="$5" -v p="$6" \
        -v b="$7" 'BEGIN {
            met = b ~ /^>=/ ? p >= substr(b, 3) + 0 : p <= substr(b, 3) + 0
            share = b == "-" && p == 0 ? "" : sprintf("%5.1f %%", p)
            printf "| %-5s | %-38s | %9.3f ms | %8.1f %-7s | %7s | %-5s | %-6s " \
                "|\n",
                s, w, 1e3 * t, r, u, share, b, b == "-" ? "" : met ? "met" : "missed"
        }'
}

# Sets s to the seconds of a step of SFT: a model of random weights, and TEXTS of
# TOKENS bytes a step.
sft() # SHAPE TEXTS TOKENS STEPS 'more of the configuration'
{
    s=
    model "$dir/sft" "$1" || return
    i=0
    while [ $i -lt $(($4 * $2)) ]; do
        printf '{"text": "%s"}\n' "$(zeros "$3")"
        i=$((i + 1))
    done >"$dir/sft.jsonl"
    cat >"$dir/sft.yaml" <<END
algorithm: sft
iterations: $4
data: {path: sft.jsonl, template: none}
model: {actor: sft}
$5
END
    s=$(best_s "$dir/sft.yaml")
    rm -rf "$dir/sft"
}

# The graph's overhead: a step of SFT by weft train over the loop's.
overhead() # SHAPE TEXTS TOKENS
{
    loop=$(sed -n "s/^| $1 *| training step, .*| *\([0-9.]*\) ms .*/\1/p" \
        "$table")
    [ -n "$loop" ] || {
        absent "the graph's overhead, $1" "bench/gpu has no training step"
        return
    }
    sft "$1" "$2" "$3" 6 \
        "train: {batch: $2, micro_batch_tokens: $(($2 * $3 + 64))}"
    [ -n "$s" ] || broken "the graph's overhead, $1"
    [ -n "$s" ] && row "$1" "weft train: SFT, over the loop's step" "$s" \
        "$(awk "BEGIN { print $2 * $3 / $s }")" token/s \
        "$(awk "BEGIN { print 100 * (1e3 * $s / $loop - 1) }")" '<= 3'
}

# A step of a whole model, whose optimizer state does not fit the card: it lies in
# host memory, and the gradient is one sum, as a sum for each group would not fit
# either. The share is that of the probed peak, with 6 FLOP a parameter and token.
whole() # SHAPE TEXTS TOKENS PARAMETERS
{
    peak=$(sed -n 's|.* probe: bf16 product .*ms *. *\([0-9.]*\) TFLOP/s.*|\1|p' \
        "$table")
    sft "$1" "$2" "$3" 2 "numerics: {gradient_groups: 1}
train: {batch: $2, micro_batch_tokens: $3, recompute: true,
        offload_optimizer: true}"
    [ -n "$s" ] || broken "whole $1 with offloaded optimizer state"
    [ -n "$s" ] && row "$1" "all layers, optimizer state offloaded" "$s" \
        "$(awk "BEGIN { print $2 * $3 / $s }")" token/s \
        "$(awk -v p="$peak" "BEGIN {
            print p > 0 ? 6e-10 * $4 * $2 * $3 / $s / p : 0 }")" -
}

# A model, prompts of TOKENS bytes that have nothing in common, and an iteration
# with as many new tokens.
iteration() # ALGORITHM SHAPE PROMPTS RESPONSES TOKENS 'more of the configuration'
{
    s=
    [ -d "$dir/actor" ] || made "$dir/actor" "$2" "$1" || return
    i=0
    while [ $i -lt "$3" ]; do
        printf '{"prompt": "%04d%s"}\n' $i "$(zeros $(($5 - 4)))"
        i=$((i + 1))
    done >"$dir/prompts.jsonl"
    cat >"$dir/run.yaml" <<END
algorithm: $1
iterations: 2
data: {path: prompts.jsonl, template: none, max_prompt_tokens: $(($5 + 4))}
reward: [{type: regex, pattern: "e"}]
rollout: {prompts: $3, samples_per_prompt: $4, max_new_tokens: $5,
          min_new_tokens: $5, slots: $(($3 * $4))}
$6
END
    n=$(($3 * $4))
    s=$(best_s "$dir/run.yaml")
    [ -n "$s" ] || broken "$1 of $2"
    [ -n "$s" ] && row "$2" "$1 iteration, $n x ($5 + $5) tokens" "$s" \
        "$(awk "BEGIN { print 2 * $n * $5 / $s }")" token/s 0 -
}

ppo() # SHAPE SAMPLES TOKENS
{
    iteration ppo "$1" "$2" 1 "$3" \
        'model: {actor: actor, critic: actor, reference: actor}
numerics: {gradient_groups: 4}' # as many sums of gradients as the bars are for
}

# The same samples by GRPO, of eight responses, and by TRL's GRPOTrainer.
grpo() # SHAPE PROMPTS TOKENS AT_ONCE DEVICE
{
    iteration grpo "$1" "$2" 8 "$3" "model: {actor: actor}
ppo: {mini_batches: 1, kl: {place: none}}"
    ours=$s
    if ! imports 'import trl, datasets'; then
        absent "TRL's GRPO (bar: 3 times as fast)" "$python has no TRL$left_out"
    elif ! limited "$python" "$WEFT_SRCDIR/bench/grpo_trl.py" "$dir/actor" \
        "$dir/prompts.jsonl" 0 3 "$2" "$3" bf16 "$5" "$4" \
        >"$dir/trl" 2>"$dir/log"; then
        broken "TRL's GRPO of $1"
    else
        rate=$(tail -n 1 "$dir/trl" | "$python" -c 'import json, sys
r = json.load(sys.stdin)
print(r["tokens"] / r["seconds"])')
        n=$(($2 * 8 * 2 * $3))
        theirs=$(awk "BEGIN { print $n / $rate }")
        row "$1" "TRL: GRPO, $(($2 * 8)) x ($3 + $3) tokens" "$theirs" \
            "$rate" token/s 0 -
        [ -n "$ours" ] && row "$1" "GRPO: TRL's time over ours" 0 0 - \
            "$(awk "BEGIN { print 100 * $theirs / $ours }")" '>=300'
    fi
    rm -rf "$dir/actor"
}

# Log-probs of random weights beside those of Transformers.
logprobs() # SHAPE DEVICE
{
    made "$dir/scored" "$1" "log-probs beside Transformers" || return
    i=1
    while [ $i -le 6 ]; do
        printf '{"text": "%s"}\n' "$(zeros $((i * i * 5)))"
        i=$((i + 1))
    done >"$dir/texts.jsonl"
    for dtype in f32 bf16; do
        limited "$weft" score "$dir/scored" --data "$dir/texts.jsonl" \
            --devices gpu --gpus 1 --dtype $dtype -o "$dir/scores.jsonl" \
            >"$dir/log" 2>&1 &&
            limited "$python" "$WEFT_SRCDIR/bench/gpu_logprobs.py" \
                "$dir/scored" "$dir/scores.jsonl" $dtype "$2" \
                >"$dir/log" 2>&1
        verdict "log-probs beside Transformers, $dtype" $?
        sed -n "s/^\([0-9]* log-probs.*\)/  $1: \1/p" "$dir/log"
    done
    rm -rf "$dir/scored"
}

# Log-probs of small models of each family beside those that Transformers gave on
# a CPU, in files: family, limits : ends : prompt : response : its log-probs.
goldens()
{
    folder=$WEFT_SRCDIR/tests/data/golden
    for family in llama mistral qwen2 qwen3; do
        grep "^$family " "$folder/greedy.txt" >"$dir/golden"
        awk -F' : ' '{ tokens = $3 " " $4; gsub(/ /, ", ", tokens)
            print "{\"tokens\": [" tokens "]}" }' "$dir/golden" \
            >"$dir/texts.jsonl"
        limited "$weft" score "$folder/$family" --data "$dir/texts.jsonl" \
            --devices gpu --gpus 1 --dtype f32 -o "$dir/scores.jsonl" \
            >"$dir/log" 2>&1 || {
            broken "log-probs of Transformers' files, $family"
            continue
        }
        awk -F' : ' -v scores="$dir/scores.jsonl" '{
                if ((getline line <scores) != 1) exit 1
                sub(/.*"logprobs": \[/, "", line)
                n = split(line, ours, /[],]+ */) - 1 # behind it: "}"
                m = split($5, theirs, / /)
                for (i = 1; i <= m; i++) {
                    d = ours[n - m + i] - theirs[i]
                    if (d < 0) d = -d
                    if (d > most) most = d
                    k++
                }
            }
            END {
                printf "%d log-probs in f32: %.1e, allowed 1e-5\n", k, most
                exit !(k > 0 && most <= 1e-5)
            }' "$dir/golden" >"$dir/log"
        verdict "log-probs of Transformers' files, $family" $?
        sed -n "s/^\([0-9]* log-probs.*\)/  $family: \1/p" "$dir/log"
    done
}

# ---- The same results -------------------------------------------------------

verdict() # WHAT STATUS
{
    case $2 in
    0) is=met ;;
    124 | 137) # no time, which is no result
        broken "$1"
        return
        ;;
    *) is=RED ;;
    esac
    printf '| %-5s | %-38s | %12s | %16s | %7s | green | %-6s |\n' small "$1" - - \
        '' $is
    [ "$2" = 0 ] && return
    failed=1
    grep -m 1 "^weft" "$dir/log" || tail -n 3 "$dir/log"
}

# Two iterations of PPO of a tiny model; checkpoints say whether two runs are
# the same.
tiny_ppo() # RUN words before weft -- words of the configuration
{
    run=$1
    shift
    before=
    while [ "$1" != -- ]; do
        before="$before $1"
        shift
    done
    shift
    # shellcheck disable=SC2086
    limited $before "$weft" train -q "$dir/tiny.yaml" run_dir="$dir/$run" \
        runtime.devices=gpu runtime.gpus=1 "$@" >"$dir/log" 2>&1 </dev/null
}

equal() # RUN RUN: its weights and moments are the other's
{
    n=0
    for f in $(cd "$dir/$1" && find checkpoints -name '*.safetensors'); do
        cmp "$dir/$1/$f" "$dir/$2/$f" >>"$dir/log" 2>&1 || return 1
        n=$((n + 1))
    done
    [ $n -ge 3 ]
}

results()
{
    made "$dir/ppo" small "the same results" || return
    for i in 1 2 3 4 5 6 7 8; do
        printf '{"prompt": "%s"}\n' "$(zeros $i)"
    done >"$dir/tiny.jsonl"
    cat >"$dir/tiny.yaml" <<END
algorithm: ppo
iterations: 2
data: {path: tiny.jsonl, template: none, max_prompt_tokens: 12}
model: {actor: ppo, critic: ppo, reference: ppo}
reward: [{type: regex, pattern: "e"}]
rollout: {prompts: 4, max_new_tokens: 12, slots: 3}
numerics: {dtype: bf16, tensor_blocks: 2, gradient_groups: 2}
END
    tiny_ppo one -- && ! grep -q \
        '"rollout_train_logprob_abs_diff_max": [^0]' "$dir/one/metrics.jsonl"
    verdict "rollout log-probs are training's, bits" $?
    tiny_ppo few -- train.micro_batch_tokens=16 rollout.slots=1 &&
        equal one few
    verdict "other batches and micro-batches, bits" $?
    tiny_ppo again -- iterations=1 && tiny_ppo again -- && equal one again
    verdict "a run that goes on, bits" $?
    if [ -z "${WEFT_MPIEXEC:-}" ]; then
        absent "2 ranks on one card" "this build has no MPI"
        return
    fi
    for layout in dp2 tp2 pp2; do
        tiny_ppo $layout "$WEFT_MPIEXEC" --oversubscribe --bind-to none -n 2 \
            -- runtime.ranks_per_gpu=2 layout=$layout && equal one $layout
        verdict "2 ranks on one card, $layout, bits" $?
    done
    rm -rf "$dir/ppo"
}

sanitized()
{
    PATH=$PATH:/usr/local/cuda/bin
    if ! command -v compute-sanitizer >/dev/null; then
        absent compute-sanitizer "there is none on PATH"
        return
    fi
    limited compute-sanitizer --error-exitcode 9 "$bench" --shape tiny \
        --seconds 0 >"$dir/log" 2>&1
    verdict "compute-sanitizer, all kernels of bench" $?
}
results

# ---- PyTorch ----------------------------------------------------------------

ms_of() # FILE SHAPE 'what'
{
    sed -n "s/^| $2 *| $3.*| *\([0-9.]*\) ms .*/\1/p" "$1" | head -n 1
}

# as many layers as fitted
beside()
{
    sed -n 's/^| \([^ ]*\) *| training step, \([0-9]*\) layers.*/\1 \2/p' \
        "$table" >"$dir/shapes"
    while read -r shape layers; do
        if ! limited "$python" "$WEFT_SRCDIR/bench/gpu_torch.py" "$shape" \
            "$layers" 1 "$device" >"$dir/torch" 2>"$dir/log"; then
            broken "PyTorch, $shape"
            continue
        fi
        cat "$dir/torch"
        ours=$(ms_of "$table" "$shape" "training step")
        theirs=$(ms_of "$dir/torch" "$shape" "PyTorch: training step")
        [ -n "$ours" ] && [ -n "$theirs" ] && row "$shape" \
            "training step: PyTorch's time over ours" 0 0 - \
            "$(awk "BEGIN { print 100 * $theirs / $ours }")" '>=120'
    done <"$dir/shapes"
}
goldens
if imports 'import sys, torch, transformers
assert sys.argv[1] == "cpu" or torch.cuda.is_available()' "$device"; then
    beside
    logprobs small "$device"
else
    absent "log-probs beside Transformers, of random weights" "as PyTorch; the \
files of Transformers are compared"
    absent "PyTorch's training step and prefill" "$python has no PyTorch with \
Transformers that sees this GPU (PYTHON=... for another)$left_out"
fi

# ---- What takes long --------------------------------------------------------


case $only in
tiny)
    overhead tiny 2 16
    whole tiny 2 16 32768
    ppo tiny 2 8
    grpo tiny 2 8 8 "$device"
    ;;
'')
    overhead 0.5b 4 1024
    ppo 1.5b 256 512
    grpo 1.5b 32 512 8 "$device"
    absent "whole 7B with offloaded optimizer state" "--shape 7b has it: its \
weights alone take minutes to make"
    ;;
7b) whole 7b 4 1024 7070619136 ;; # without the table of embeddings
0.5b) overhead 0.5b 4 1024 ;;
1.5b)
    ppo 1.5b 256 512
    grpo 1.5b 32 512 8 "$device"
    ;;
esac
sanitized

# ---- What is missing --------------------------------------------------------

absent "a peer of the PPO iteration" "TRL has no PPO any more (1.16); its GRPO \
has the same samples, without critic and reference"
absent "NCCL between cards" "it is not used"
absent "messages from card to card between ranks" "one card, or an MPI without CUDA"
echo
echo "Not measured:"
cat "$missing"
exit $failed
