#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step and a prefill by PyTorch and Transformers, for bench/gpu.sh.

    gpu_torch.py 0.5b|1.5b|7b|tiny LAYERS [SECONDS [cuda|cpu]]

Rows of the table of bench/gpu: masters in f32 under autocast to bf16, scaled
dot product attention, fused AdamW, four texts of 1024 tokens. The share is of
PyTorch's own product of 8192 x 8192 matrices.
"""
import sys
import time

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

# hidden, heads, KV heads, MLP, vocabulary, tied, texts, tokens
SHAPES = {"0.5b": (896, 14, 2, 4864, 151936, True, 4, 1024),
          "1.5b": (1536, 12, 2, 8960, 151936, True, 4, 1024),
          "7b": (3584, 28, 4, 18944, 152064, False, 4, 1024),
          "tiny": (32, 4, 2, 64, 160, False, 2, 16)}


def main():
    name, layers = sys.argv[1], int(sys.argv[2])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    device = sys.argv[4] if len(sys.argv) > 4 else "cuda"
    hidden, heads, kv, mlp, vocab, tied, texts, n = SHAPES[name]

    def best(run):
        run()
        least, spent = float("inf"), 0.0
        for i in range(1000):
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.monotonic()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            s = time.monotonic() - start
            least, spent = min(least, s), spent + s
            if i >= 2 and spent > seconds:
                break
        return least

    size = 8192 if device == "cuda" else 64
    a = torch.randn(size, size, dtype=torch.bfloat16, device=device)
    peak = 2 * size ** 3 / best(lambda: a @ a)
    model = Qwen2ForCausalLM(Qwen2Config(
        hidden_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv,
        intermediate_size=mlp, vocab_size=vocab, tie_word_embeddings=tied,
        attn_implementation="sdpa")).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6,
                                  fused=device == "cuda")
    tokens = torch.arange(texts * n, device=device).reshape(texts, n) % vocab

    def step():
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def prefill():
        with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16):
            model.model(input_ids=tokens, use_cache=True)

    d = hidden // heads
    layer = hidden * (2 * heads * d + 2 * kv * d + 3 * mlp)
    attention = 4 * heads * d * (n + 1) / 2
    for what, run, flop in (
            (f"PyTorch: training step, {layers} layers", step,
             texts * n * (layers * (6 * layer + 3.5 * attention)
                          + 6 * hidden * vocab)),
            ("PyTorch: prefill", prefill,
             texts * n * layers * (2 * layer + attention))):
        s = best(run)
        print(f"| {name:5} | {what:38} | {1e3 * s:9.3f} ms "
              f"| {flop / s / 1e12:8.1f} TFLOP/s | {100 * flop / s / peak:5.1f}"
              " % |       |        |", flush=True)


main()
