#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Log-probs of `weft score` beside Transformers', for bench/gpu.sh.

    gpu_logprobs.py MODEL SCORES.jsonl f32|bf16 [cuda|cpu]

SCORES.jsonl is what `weft score` wrote of the model folder. Transformers
computes the same tokens from the folder's weights in f32, the reference, and in
the data type. Prints the largest difference of a log-prob from the reference,
Weft's and Transformers' own, and what is allowed; exits with 1 if Weft's is
larger: 1e-5 in f32, 4e-3 in bf16 (seen on a CPU: 5e-7 and 1e-4; Transformers in
bf16 6e-4), of models with the random weights of `weft init`.
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM

TOLERANCE = {"f32": 1e-5, "bf16": 4e-3}


def logprobs(folder, dtype, device, rows):
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype).to(device).eval()
    out = []
    with torch.no_grad():
        for row in rows:
            tokens = torch.tensor([row["tokens"]], device=device)
            logits = model(input_ids=tokens).logits[0, :-1].float()
            at = torch.log_softmax(logits, -1)
            out += at.gather(1, tokens[0, 1:, None])[:, 0].tolist()
    return torch.tensor(out)


def main():
    folder, scores, name = sys.argv[1:4]
    device = sys.argv[4] if len(sys.argv) > 4 else "cuda"
    torch.backends.cuda.matmul.allow_tf32 = False
    rows = [json.loads(line) for line in open(scores)]
    ours = torch.tensor([x for row in rows for x in row["logprobs"][1:]])
    exact = logprobs(folder, torch.float32, device, rows)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[name]
    theirs = logprobs(folder, dtype, device, rows)
    most = (ours - exact).abs().max().item()
    print(f"{len(exact)} log-probs in {name}: Weft {most:.2e}, Transformers "
          f"{(theirs - exact).abs().max().item():.2e}, allowed "
          f"{TOLERANCE[name]:g}")
    sys.exit(0 if most <= TOLERANCE[name] else 1)


main()
