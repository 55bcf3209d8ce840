#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generation beside llama.cpp, in one run on this machine.

    bench/llama.py LLAMA_BIN [WEFT_BENCH] [THREADS...]

LLAMA_BIN: the folder of llama.cpp's llama-bench and llama-batched-bench.
WEFT_BENCH: that of bench/model (build/bench). A model of random weights with
110M parameters (bench/model's) in f32 and bf16: tokens per second of decoding
batches of 1, 8 and 32, without their prompts, and of one prompt of 512 tokens,
the best of ROUNDS in turn; on several cores Weft's best division into
instances. A ratio meets its bar, or else decoding reads READS % of what a probe
on as many cores reads at the best in these rounds.
"""
import array
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

HIDDEN, LAYERS, HEADS, FFN, VOCAB, ROUNDS = 768, 12, 12, 2048, 32000, 3
BARS = {"batch 1": 1.15, "batch 8": 1.8, "batch 32": 1.5, "prefill": 1.35}
READS = 85


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def value(v):
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    return struct.pack("<II", 4, v)


def tensors():
    yield "token_embd.weight", (VOCAB, HIDDEN)
    yield "output_norm.weight", (HIDDEN,)
    for i in range(LAYERS):
        for name, shape in (("attn_norm", (HIDDEN,)), ("ffn_norm", (HIDDEN,)),
                            ("attn_q", (HIDDEN, HIDDEN)),
                            ("attn_k", (HIDDEN, HIDDEN)),
                            ("attn_v", (HIDDEN, HIDDEN)),
                            ("attn_output", (HIDDEN, HIDDEN)),
                            ("ffn_gate", (FFN, HIDDEN)),
                            ("ffn_up", (FFN, HIDDEN)),
                            ("ffn_down", (HIDDEN, FFN))):
            yield f"blk.{i}.{name}.weight", shape


def write_gguf(path, bf16):
    keys = {"general.architecture": "llama", "llama.context_length": 4096,
            "llama.embedding_length": HIDDEN, "llama.block_count": LAYERS,
            "llama.feed_forward_length": FFN,
            "llama.attention.head_count": HEADS,
            "llama.attention.head_count_kv": HEADS,
            "llama.attention.layer_norm_rms_epsilon": 1e-6,
            "llama.rope.dimension_count": HIDDEN // HEADS,
            "llama.vocab_size": VOCAB, "tokenizer.ggml.model": "no_vocab"}
    rng = random.Random(1)
    some = array.array("f", (rng.uniform(-.02, .02) for _ in range(1 << 16)))
    some = some.tobytes()
    half = b"".join(some[i + 2:i + 4] for i in range(0, len(some), 4))
    head, data, at = b"", [], 0
    for name, shape in tensors():
        vector, n = len(shape) == 1, math.prod(shape)
        kind = 30 if bf16 and not vector else 0
        block, size = (half, 2) if kind else (some, 4)
        raw = (array.array("f", [1] * n).tobytes() if vector
               else (block * (n * size // len(block) + 1))[:n * size])
        head += (text(name) + struct.pack("<I", len(shape))
                 + b"".join(struct.pack("<Q", n) for n in reversed(shape))
                 + struct.pack("<IQ", kind, at))
        data.append(raw + bytes(-len(raw) % 32))
        at += len(data[-1])
    with open(path, "wb") as f:
        head = (struct.pack("<IIQQ", 0x46554747, 3, len(data), len(keys))
                + b"".join(text(k) + value(v) for k, v in keys.items()) + head)
        f.write(head + bytes(-len(head) % 32))
        for raw in data:
            f.write(raw)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def llama(folder, model, threads):
    got = {}
    out = run(f"{folder}/llama-batched-bench", "-m", model, "-t", str(threads),
              "-tb", str(threads), "-c", "4096", "-npp", "16", "-ntg", "64",
              "-npl", "1,8,32", "--output-format", "jsonl")
    for line in out.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            got[f"batch {row['pl']}"] = row["speed_tg"]
    out = run(f"{folder}/llama-bench", "-m", model, "-t", str(threads), "-p",
              "512", "-n", "0", "-r", "1", "-o", "json")
    got["prefill"] = json.loads(out)[0]["avg_ts"]
    return got


def weft(folder, dtype, threads):
    """Of each row the best instances: (tokens/s, GB/s of decoding or 0); and
    GB/s that as many cores read."""
    got = {}
    out = run(f"{folder}/model", "--only", "generate", "--dtype", dtype,
              "--devices", str(threads))
    for line in out.splitlines():
        m = re.match(r"(decode|prefill) +(batch +\d+|\d+ tokens) +dp \d+ "
                     r"tp \d+ +([\d.]+) tok/s(?: +([\d.]+) GB/s)?", line)
        if m:
            name = "prefill" if m[1] == "prefill" else " ".join(m[2].split())
            row = float(m[3]), float(m[4] or 0)
            got[name] = max(got.get(name, row), row)
    got["reads"] = float(re.search(r"^reads ([\d.]+) GB/s", out, re.M)[1])
    return got


def best(rounds):
    return {k: max(r[k] for r in rounds) for k in rounds[0]}


def main():
    peer = sys.argv[1]
    own = sys.argv[2] if len(sys.argv) > 2 else "bench"
    threads = [int(a) for a in sys.argv[3:]] or [1, 2]
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("f32", "bf16"):
            path = os.path.join(folder, "model.gguf")
            write_gguf(path, dtype == "bf16")
            for n in threads:
                rows = [(weft(own, dtype, n), llama(peer, path, n))
                        for _ in range(ROUNDS)]
                a, b = best([r[0] for r in rows]), best([r[1] for r in rows])
                print(f"{dtype:4} {n} cores  reads {a['reads']:.1f} GB/s")
                for k, bar in BARS.items():
                    rate, ratio = a[k][0], a[k][0] / b[k]
                    share = 100 * a[k][1] / a["reads"]
                    met = ratio >= bar or share >= READS
                    print(f"{dtype:4} {n} cores  {k:8}  weft {rate:8.1f}  "
                          f"llama.cpp {b[k]:8.1f} tok/s  ratio {ratio:.2f} "
                          f"(bar {bar})"
                          + (f", {share:3.0f} % of reads" if share else "")
                          + ("" if met else "  missed"), flush=True)


if __name__ == "__main__":
    main()
