#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `make bench-grpo`: a step of GRPO beside TRL's GRPOTrainer, on the same
# weights, lengths and cores: 110M bf16, eight responses to each prompt, 32 + 96
# tokens. Tokens of prompts and responses by the time of the whole step. On a
# quiet machine, with WEFT_TRL_PYTHON, a python that has torch, trl,
# transformers and datasets. WEFT_STEPS (4) and WEFT_PROMPTS (2) make it longer;
# WEFT_DTYPE=f32 is for processors without bf16 instructions, on which torch
# takes minutes for a step in bf16.
set -eu
weft=$WEFT_BUILDDIR/weft
python=${WEFT_TRL_PYTHON:-python3}
steps=${WEFT_STEPS:-4}
prompts=${WEFT_PROMPTS:-2}
dtype=${WEFT_DTYPE:-bf16}
"$python" -c 'import trl, torch, transformers, datasets' 2>/dev/null || {
    echo "bench-grpo: '$python' has no torch, trl, transformers, datasets;" \
        "set WEFT_TRL_PYTHON" >&2
    exit 1
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$weft" init --preset 110m --dtype "$dtype" -o "$dir/model" >"$dir/log"
i=0
while [ $i -lt 64 ]; do # of 32 bytes, each of which is a token
    printf '{"prompt": "%032d"}\n' $((i * 7919))
    i=$((i + 1))
done >"$dir/prompts.jsonl"
cat >"$dir/grpo.yaml" <<END
algorithm: grpo
run_dir: $dir/run
iterations: $steps
data: {path: prompts.jsonl, template: none}
model: {actor: model}
reward: [{type: regex, pattern: "e"}]
rollout: {prompts: $prompts, samples_per_prompt: 8, max_new_tokens: 96,
          min_new_tokens: 96, slots: $((prompts * 8))}
ppo: {mini_batches: 1, kl: {place: loss, coef: 0.02}}
actor: {lr: 1e-6}
numerics: {dtype: $dtype}
checkpoint: {every: 0}
END

# ours words...: "tokens seconds states" of all steps. A step generates for the
# next one while it ends, so that the first generates twice and the last not.
ours()
{
    rm -rf "$dir/run"
    "$weft" train -q "$dir/grpo.yaml" "$@" >"$dir/log" 2>&1 ||
        { cat "$dir/log" >&2; exit 1; }
    "$python" - "$dir/run/metrics.jsonl" <<'END'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
print(sum(r["perf/total_num_tokens"] for r in rows),
      sum(1 / r["perf/steps_per_s"] for r in rows), "f32")
END
}

theirs() # BETA: the same, of all but the first
{
    "$python" "$WEFT_SRCDIR/bench/grpo_trl.py" "$dir/model" \
        "$dir/prompts.jsonl" "$1" "$steps" "$prompts" 96 "$dtype" \
        2>"$dir/log" |
        tail -n 1 | "$python" -c '
import json, sys
r = json.load(sys.stdin)
print(r["tokens"], r["seconds"], "+".join(r["states"]))' ||
        { cat "$dir/log" >&2; exit 1; }
}

printf '%-6s %-6s %8s %8s %9s  %s\n' beta who tokens seconds tokens/s states
for beta in 0.02 0; do
    place=loss
    [ $beta != 0 ] || place=none
    for who in weft TRL weft; do
        if [ $who = weft ]; then
            ours ppo.kl.place=$place >"$dir/row"
        else
            theirs $beta >"$dir/row"
        fi
        read -r tokens seconds states <"$dir/row"
        awk -v b=$beta -v w=$who -v n="$tokens" -v s="$seconds" \
            -v d="$states" 'BEGIN {
                printf "%-6s %-6s %8d %8.1f %9.1f  %s\n", b, w, n, s, n / s, d
            }'
    done
done
