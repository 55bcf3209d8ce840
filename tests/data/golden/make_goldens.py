#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole small models and what PyTorch and Transformers make of them.

    python -m venv venv && venv/bin/pip install torch transformers safetensors
    venv/bin/python tests/data/golden/make_goldens.py

(here: torch 2.15.0, transformers 5.23.0) writes
tests/data/golden/<family>/: a Hugging Face folder (config.json,
generation_config.json, *.safetensors in f32) and, beside the folder,
<family>.safetensors:

  tokens      (n) packed samples, one after another (token ids as f32)
  lengths     (3) tokens of each sample
  weight      (n - 3) of every predicted token, sample after sample
  entropy_coef (1)
  logits      (8, vocab) of the last 8 positions of the last sample
  logp        (n - 3) log p(token i + 1 | its prefix), sample after sample
  entropy     (n - 3) of those distributions
  loss        (1) = sum of weight * -logp + entropy_coef * entropy
  grad_norm   (1) over all tensors (tied weights once)
  grad.<name>, step.<name>  samples of a tensor's gradient, and of its value
              after one step of clip_grad_norm_ and torch.optim.AdamW: element
              j * 7919 % size for j < min(size, 256)
  norm.<name> (1) 2-norm of the whole gradient
  adamw       (6) lr, beta1, beta2, eps, weight decay, clipping norm

Everything is f32 on the CPU, one thread, seeded. `llama` and `qwen2` get the
older spelling of config.json (torch_dtype, rope_theta, rope_scaling), the
others what Transformers writes today; `mistral` is sharded.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

LENGTHS = [5, 33, 70]  # the last crosses an attention segment of 64
ENTROPY_COEF = 0.01
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.1)
CLIP = 1.0
SAMPLES, STRIDE = 256, 7919

BASE = dict(vocab_size=260, hidden_size=64, intermediate_size=96,
            num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128,
            bos_token_id=256, eos_token_id=257, pad_token_id=258,
            attention_dropout=0.0, use_cache=True)

FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM, dict(
        rms_norm_eps=1e-5, tie_word_embeddings=False, head_dim=16,
        rope=dict(rope_theta=10000.0, rope_type="llama3", factor=4.0,
                  low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=32))),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, dict(
        rms_norm_eps=1e-6, tie_word_embeddings=True,
        use_sliding_window=False, rope=dict(rope_theta=1000000.0))),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, dict(
        rms_norm_eps=1e-6, tie_word_embeddings=True, head_dim=24,
        attention_bias=False, use_sliding_window=False,
        rope=dict(rope_theta=1000000.0))),
    "mistral": (MistralConfig, MistralForCausalLM, dict(
        rms_norm_eps=1e-5, tie_word_embeddings=False, head_dim=16,
        num_key_value_heads=1, sliding_window=None,
        rope=dict(rope_theta=10000.0))),
}


def make_config(cls, options):
    options = {**BASE, **options}
    rope = options.pop("rope")
    options["rope_parameters"] = {"rope_type": "default", **rope}
    config = cls(**options)
    config._attn_implementation = "eager"
    return config, rope


def spell_old(path, rope):
    with open(path) as f:
        config = json.load(f)
    config.pop("rope_parameters", None)
    rope = dict(rope)
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope or None
    config["torch_dtype"] = config.pop("dtype", "float32")
    with open(path, "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")


def sample(t):
    t = t.detach().reshape(-1)
    n = t.numel()
    index = [j * STRIDE % n if n > SAMPLES else j
             for j in range(min(n, SAMPLES))]
    return t[torch.tensor(index)].clone()


def make(family, folder):
    config_class, model_class, options = FAMILIES[family]
    torch.manual_seed(sum(map(ord, family)))
    config, rope = make_config(config_class, options)
    model = model_class(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("norm.weight"):
                p.copy_(1 + 0.2 * torch.randn_like(p))
            elif name.endswith("bias"):
                p.copy_(0.3 * torch.randn_like(p))
            else:
                p.copy_(0.12 * torch.randn_like(p))
    os.makedirs(folder, exist_ok=True)
    model.save_pretrained(
        folder, max_shard_size="200KB" if family == "mistral" else "5GB")
    if family in ("llama", "qwen2"):
        spell_old(os.path.join(folder, "config.json"), rope)

    samples = [torch.randint(0, 256, (n,)) for n in LENGTHS]
    weight = [torch.rand(n - 1) / sum(LENGTHS) for n in LENGTHS]
    logps, entropies, loss = [], [], torch.zeros(())
    for tokens, w in zip(samples, weight):
        logits = model(tokens[None]).logits[0]
        all_logp = torch.log_softmax(logits[:-1], -1)
        logp = all_logp.gather(-1, tokens[1:, None])[:, 0]
        entropy = -(all_logp.exp() * all_logp).sum(-1)
        loss = loss + (w * -logp + ENTROPY_COEF * entropy).sum()
        logps.append(logp.detach())
        entropies.append(entropy.detach())
    loss.backward()

    out = {"tokens": torch.cat(samples).float(),
           "lengths": torch.tensor(LENGTHS).float(),
           "weight": torch.cat(weight),
           "entropy_coef": torch.tensor([ENTROPY_COEF]),
           "logits": logits[-8:].detach().clone(),
           "logp": torch.cat(logps), "entropy": torch.cat(entropies),
           "loss": loss.detach().reshape(1),
           "adamw": torch.tensor([ADAMW["lr"], *ADAMW["betas"], ADAMW["eps"],
                                  ADAMW["weight_decay"], CLIP])}
    for name, p in model.named_parameters():
        out["grad." + name] = sample(p.grad)
        out["norm." + name] = p.grad.double().norm().float().reshape(1)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    out["grad_norm"] = norm.detach().reshape(1)
    torch.optim.AdamW(model.parameters(), **ADAMW).step()
    for name, p in model.named_parameters():
        out["step." + name] = sample(p)
    save_file(out, folder + ".safetensors")
    print(family, sum(p.numel() for p in model.parameters()), "parameters,",
          "loss", loss.item(), "gradient norm", norm.item())


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    here = os.path.dirname(os.path.abspath(__file__))
    for family in sys.argv[1:] or FAMILIES:
        make(family, os.path.join(here, family))


if __name__ == "__main__":
    main()
