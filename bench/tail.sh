#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: bench/tail.sh [key=value ...]
#
# `make bench-tail`: generation and inference with inter-stage fusion and
# without, on 2 instances of a core each.
set -eu
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
iterations: 1000
data: {path: prompts.jsonl, template: none}
model: {actor: actor, critic: critic, reference: actor}
reward:
  - {type: model, model: reward}
rollout:
  prompts: 64
  max_new_tokens: 512
  slots: 32
  ignore_eos: true
ppo: {epochs: 1, mini_batches: 1}
checkpoint: {every: 0}
runtime: {devices: 2, overlap: false}
layout: dp2
END
"$WEFT_BUILDDIR/bench/tail" "$dir/ppo.yaml" "${MEDIAN:-100}" "${SIGMA:-0.8}" "${PAIRS:-5}" "$@"
