#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two whole iterations of PPO in PyTorch, in float64, for many settings.

    pip install torch safetensors tokenizers
    python3 make_iterations.py BUILD/weft > iterations.txt

`weft init` makes the models (their weights are a function of the seed), this
program does everything else itself, from the definitions: Philox, the order
of prompts, sampling, log-probs, values, rewards, KL, advantages, losses with
autograd, clipping and AdamW of torch. tests/run/test_iterations runs Weft with
the same settings and compares.

A run that is close to a jump (a draw near the edge of two tokens, a ratio
near the clip range, ...) would make rounding visible; such a seed is refused.

The output: "run" and the words of the command line, then lines "iteration
tag number". The runs behind the first are the first with more words; but for
the weights they have only the numbers that differ, and "-" for those that they
lack.
"""
import copy
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

# ---- The runs: the first, and one for every key that changes numbers --------

BASE = {
    "seed": 7,
    "iterations": 2,
    "model.actor": "actor",
    "data.shuffle": True,
    "rollout.prompts": 4,
    "rollout.samples_per_prompt": 2,
    "rollout.refills": 0,
    "rollout.max_new_tokens": 7,
    "rollout.min_new_tokens": 0,
    "rollout.temperature": 0.9,
    "rollout.top_k": 0,
    "rollout.top_p": 1,
    "rollout.stop": "L",
    "rollout.ignore_eos": False,
    "ppo.epochs": 2,
    "ppo.mini_batches": 2,
    "ppo.gamma": 0.97,
    "ppo.lambda": 0.9,
    "ppo.whiten_advantages": True,
    "ppo.clip_low": 0.05,
    "ppo.clip_high": 0.08,
    "ppo.dual_clip": 0,
    "ppo.value_clip": 0.1,
    "ppo.entropy_coef": 0.02,
    "ppo.kl.place": "reward",
    "ppo.kl.kind": "k1",
    "ppo.kl.coef": 0.1,
    "ppo.kl.controller": "adaptive",
    "ppo.kl.target": 14,
    "ppo.kl.horizon": 20,
    "ppo.kl.stop": 0,
    "ppo.aggregation": "token-mean",
    "ppo.missing_eos_penalty": 0.3,
    "ppo.reward_clip": 0,
    "ppo.overlong.cache": 0,
    "ppo.overlong.factor": 1,
    "ppo.overlong.filter": False,
    "ppo.critic_warmup": 0,
    "actor.lr": 4e-3,
    "actor.schedule": "linear",
    "actor.warmup_steps": 2,
    "actor.min_lr_ratio": 0.1,
    "actor.beta1": 0.8,
    "actor.beta2": 0.95,
    "actor.eps": 1e-4,
    "actor.weight_decay": 0.5,
    "actor.grad_clip": 0.5,
    "critic.lr": 6e-3,
    "critic.schedule": "cosine",
    "critic.warmup_steps": 1,
    "critic.min_lr_ratio": 0.2,
    "critic.beta1": 0.7,
    "critic.beta2": 0.9,
    "critic.eps": 2e-4,
    "critic.weight_decay": 0.2,
    "critic.grad_clip": 0.7,
}

MINI_BATCH = "mini_batch"
PLAIN = {"ppo.kl.controller": "fixed"}
IN_LOSS = {"ppo.kl.place": "loss", "ppo.kl.controller": "fixed"}
RUNS = [
    {},
    {"seed": 8},
    {"iterations": 3},
    {"model.actor": "tied"},
    {"data.shuffle": False},
    {"rollout.prompts": 3},
    {"rollout.samples_per_prompt": 3},
    {"rollout.refills": 2, "rollout.top_k": 2, "rollout.max_new_tokens": 2},
    {"rollout.max_new_tokens": 5},
    {"rollout.ignore_eos": True, "rollout.temperature": 2,
     "rollout.max_new_tokens": 20},
    {"rollout.min_new_tokens": 6, "rollout.stop": "y"},
    {"rollout.min_new_tokens": 4, "rollout.temperature": 2},
    {"rollout.min_new_tokens": 2, "rollout.top_k": 25, "rollout.top_p": 0.8},
    {"rollout.temperature": 1.25},
    {"rollout.top_k": 9},
    {"rollout.top_p": 0.65},
    {"rollout.top_k": 25, "rollout.top_p": 0.8},
    {"rollout.stop": "y"},
    {"rollout.stop": "De"},
    {"rollout.staleness": 1},
    {"rollout.staleness": 1, "iterations": 3},
    {"ppo.epochs": 1},
    {"ppo.mini_batches": 3},
    {"ppo.gamma": 0.9},
    {"ppo.lambda": 0.6},
    {"ppo.whiten_advantages": False},
    {"ppo.whiten_advantages": MINI_BATCH},
    {"ppo.whiten_advantages": MINI_BATCH, "ppo.mini_batches": 3,
     "ppo.overlong.filter": True, "ppo.critic_warmup": 1},
    {"ppo.clip_low": 0.02},
    {"ppo.clip_high": 0.03},
    {"ppo.dual_clip": 1.02},
    {"ppo.value_clip": 0},
    {"ppo.value_clip": 0.03},
    {"ppo.entropy_coef": 0},
    {"ppo.kl.kind": "k2"},
    {"ppo.kl.kind": "k3"},
    {"ppo.kl.kind": "abs"},
    {"ppo.kl.coef": 0.3},
    {"ppo.kl.controller": "fixed"},
    {"ppo.kl.target": 16.5},
    {"ppo.kl.horizon": 40},
    {"ppo.kl.place": "none", **PLAIN},
    {"ppo.kl.kind": "k1", **IN_LOSS},
    {"ppo.kl.kind": "k2", **IN_LOSS},
    {"ppo.kl.kind": "k3", **IN_LOSS},
    {"ppo.kl.kind": "abs", **IN_LOSS},
    {"ppo.kl.stop": 0.001},
    {"ppo.aggregation": "seq-mean-token-sum"},
    {"ppo.aggregation": "seq-mean-token-mean"},
    {"ppo.aggregation": "seq-mean-token-sum-norm"},
    {"ppo.missing_eos_penalty": 0.8},
    {"ppo.reward_clip": 0.4},
    {"ppo.overlong.cache": 4},
    {"ppo.overlong.cache": 3, "ppo.overlong.factor": 0.4},
    {"ppo.overlong.filter": True},
    {"ppo.overlong.filter": True, "ppo.aggregation": "seq-mean-token-mean"},
    {"ppo.critic_warmup": 1},
    {"ppo.critic_warmup": 1, "actor.schedule": "cosine", "iterations": 3},
] + [{f"{who}.{key}": value} for who in ("actor", "critic")
     for key, value in (("lr", 2e-3), ("warmup_steps", 3),
                        ("min_lr_ratio", 0.5), ("beta1", 0.5), ("beta2", 0.8),
                        ("eps", 1e-3), ("weight_decay", 0),
                        ("grad_clip", 0.1))]
RUNS += [{"actor.schedule": "constant", "actor.min_lr_ratio": 0},
         {"critic.schedule": "constant", "critic.min_lr_ratio": 0},
         {"actor.schedule": "cosine"}, {"critic.schedule": "linear"},
         {"actor.grad_clip": 0, "critic.grad_clip": 0},
         {"reference.every": 1, "reference.mix": 0.5},
         {"reference.every": 1, "reference.mix": 1},
         {"reference.every": 2, "iterations": 3}]

# As the test: prompts.jsonl has these with their numbers as labels.
PROMPTS = ["a", "bee", "the sea", "to", "zero one", "xyz"]
# Options of weft init.
SHAPE = ["--family", "llama", "--hidden", "64", "--layers", "2", "--heads",
         "4", "--kv-heads", "2", "--head-dim", "16", "--intermediate", "128",
         "--std", "0.2"]
MODELS = {"actor": ["--seed", "3"], "reference": ["--seed", "4"],
          "critic": ["--seed", "5", "--scalar"],
          "tied": ["--seed", "9", "--tied"],
          "reward": ["--seed", "6", "--scalar", "--tokenizer", "none",
                     "--vocab", "259"]}
WEIGHT = {"rule": 0.5, "model": 0.2}


def rule(label, n_tokens, ended):
    """The callback of the test: depends on prompt and length alone."""
    return (label * 7 + n_tokens * 3) % 11 / 5 - 1 + (0.5 if ended else 0)


# ---- Randomness: src/base/rng.h ---------------------------------------------

SAMPLE, SHUFFLE, MINIBATCH = 1, 2, 4


def philox(counter, key):
    """Salmon et al. 2011: ten rounds of 4x32."""
    c, k, word = list(counter), list(key), 2**32 - 1
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & word,
             (p0 >> 32) ^ c[3] ^ k[1], p0 & word]
        k = [(k[0] + 0x9E3779B9) & word, (k[1] + 0xBB67AE85) & word]
    return c


def words(seed, purpose, a, b, c):
    return philox((a, b, c, purpose), (seed & (2**32 - 1), seed >> 32))


def permutation(seed, purpose, a, b, n):
    order = list(range(n))
    for i in range(n, 1, -1):
        j = words(seed, purpose, a, b, i)[0] * i >> 32
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


assert philox((0,) * 4, (0,) * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C,
                                      0x9B00DBD8]  # the authors' test vector


# ---- A llama ----------------------------------------------------------------


class Llama:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.p = {name: t.double().requires_grad_() for name, t in
                  load_file(folder / "model.safetensors").items()}
        self.first = {name: t.detach().clone() for name, t in self.p.items()}

    def norm(self, x, name):
        rms = (x * x).mean(-1, keepdim=True) + self.config["rms_norm_eps"]
        return x / rms.sqrt() * self.p[name]

    def hidden(self, tokens):
        """(T,) ids -> (T, H) after the last norm."""
        c, p = self.config, self.p
        t, d = len(tokens), c["head_dim"]
        heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
        angle = torch.arange(t)[:, None] * c["rope_theta"] ** (
            -torch.arange(0, d, 2) / d)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]

        def rotate(x):
            a, b = x[..., :d // 2], x[..., d // 2:]
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        x = p["model.embed_tokens.weight"][torch.tensor(tokens)]
        hide = torch.full((t, t), -math.inf).triu(1)
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."

            def linear(v, name):
                return v @ p[at + name + ".weight"].T

            n = self.norm(x, at + "input_layernorm.weight")
            q = rotate(linear(n, "self_attn.q_proj").view(t, heads, d))
            k = rotate(linear(n, "self_attn.k_proj").view(t, kv, d))
            v = linear(n, "self_attn.v_proj").view(t, kv, d)
            k, v = (z.repeat_interleave(heads // kv, 1) for z in (k, v))
            score = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(d) + hide
            mixed = torch.einsum("hij,jhd->ihd", score.softmax(-1), v)
            x = x + linear(mixed.reshape(t, heads * d), "self_attn.o_proj")
            n = self.norm(x, at + "post_attention_layernorm.weight")
            gate = linear(n, "mlp.gate_proj")
            x = x + linear(gate * gate.sigmoid() * linear(n, "mlp.up_proj"),
                           "mlp.down_proj")
        return self.norm(x, "model.norm.weight")

    def log_softmax(self, tokens, temperature):
        head = "model.embed_tokens.weight" \
            if self.config["tie_word_embeddings"] else "lm_head.weight"
        logits = self.hidden(tokens) @ self.p[head].T
        return (logits / temperature).log_softmax(-1)

    def scalar(self, tokens):
        return (self.hidden(tokens) @ self.p["score.weight"].T)[:, 0]


# ---- What must not be near a jump -------------------------------------------

margin = math.inf


def keep_away(x, edge=0.0):
    """Remembers how near x came to the edge."""
    global margin
    x = torch.as_tensor(x, dtype=torch.float64)
    if x.numel():
        margin = min(margin, float((x - edge).abs().min()))


# ---- The algorithm ----------------------------------------------------------


def draw(logp, c, iteration, sample, position):
    """One token: the largest top_k, of these the fewest that have top_p."""
    u = (words(c["seed"], SAMPLE, iteration, sample, position)[0] >> 8) / 2**24
    p = logp.exp()
    cut = c["rollout.top_k"] > 0 or c["rollout.top_p"] < 1
    ids = p.argsort(descending=True, stable=True) if cut \
        else torch.arange(len(p))
    p = p[ids]
    if c["rollout.top_k"] > 0:
        keep_away(p[c["rollout.top_k"] - 1] - p[c["rollout.top_k"]])
        p = p[:c["rollout.top_k"]]
    if c["rollout.top_p"] < 1:
        share = p.cumsum(0) / p.sum()
        keep_away(share, c["rollout.top_p"])
        p = p[:int((share < c["rollout.top_p"]).sum()) + 1]
    share = p.cumsum(0) / p.sum()
    keep_away(share[:-1], u)
    drawn = int((share <= u).sum())
    if cut:  # its place among its neighbours matters
        keep_away(p[drawn] - p[max(drawn - 1, 0):drawn])
        keep_away(p[drawn] - p[drawn + 1:drawn + 2])
    return int(ids[drawn])


def kl_estimate(kind, logp, ref):
    """Schulman 2020, and verl's bound of k3."""
    d = logp - ref
    if kind == "k1":
        return d
    if kind == "k2":
        return d * d / 2
    if kind == "abs":
        keep_away(d.detach())
        return d.abs()
    k = (-d).exp() - 1 + d
    keep_away(k.detach(), 10)
    return k.clamp(max=10)


def learning_rate(c, who, step, n_steps):
    o = {k: c[f"{who}.{k}"] for k in ("lr", "schedule", "warmup_steps",
                                      "min_lr_ratio")}
    if step < o["warmup_steps"]:
        return o["lr"] * (step + 1) / o["warmup_steps"]
    done = (step - o["warmup_steps"]) / (n_steps - o["warmup_steps"])
    fall = {"constant": 1, "linear": 1 - done,
            "cosine": (1 + math.cos(math.pi * done)) / 2}[o["schedule"]]
    low = o["min_lr_ratio"] if o["schedule"] != "constant" else 0
    return o["lr"] * (low + (1 - low) * fall)


class Trained:
    """A model with its optimizer."""

    def __init__(self, c, who, model):
        self.c, self.who, self.model, self.step = c, who, model, 0
        self.params = list(model.p.values())
        self.optim = torch.optim.AdamW(
            self.params, lr=0, betas=(c[who + ".beta1"], c[who + ".beta2"]),
            eps=c[who + ".eps"], weight_decay=c[who + ".weight_decay"])

    def leave_out(self, n_steps):
        """A step that is not made, but counted."""
        rate = learning_rate(self.c, self.who, self.step, n_steps)
        self.step += 1
        for p in self.params:
            if p in self.optim.state:
                self.optim.state[p]["step"] += 1
        return 0, rate

    def update(self, loss, n_steps):
        """Returns the gradient's norm before clipping, and the rate."""
        clip = self.c[self.who + ".grad_clip"]
        rate = learning_rate(self.c, self.who, self.step, n_steps)
        self.optim.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(
            self.params, clip if clip > 0 else math.inf)
        for group in self.optim.param_groups:
            group["lr"] = rate
        self.optim.step()
        self.step += 1
        return float(norm), rate


def follow(c, iteration, reference, actor):
    """TRL's SyncRefModelCallback, by iterations."""
    every, mix = c.get("reference.every", 0), c.get("reference.mix", 0.6)
    if every and (iteration + 1) % every == 0:
        for name, p in reference.p.items():
            p.data.mul_(1 - mix).add_(actor.p[name].data, alpha=mix)


class Sample:
    pass


def likeliest(logp):
    top = logp.exp().topk(2)
    keep_away(top.values[0] - top.values[1])
    return int(top.indices[0])


def respond(c, iteration, actor, prompts, stops, k, key):
    """A response to the run's k-th prompt; `key` None: the likeliest."""
    epoch, at = divmod(k, len(prompts))
    if c["data.shuffle"]:
        at = permutation(c["seed"], SHUFFLE, epoch, 0, len(prompts))[at]
    s = Sample()
    s.label, s.tokens = at, list(prompts[at])
    s.n_prompt, s.ended = len(s.tokens), False
    while len(s.tokens) - s.n_prompt < c["rollout.max_new_tokens"] \
            and not s.ended:
        logp = actor.log_softmax(s.tokens, c["rollout.temperature"])[-1]
        held = len(s.tokens) - s.n_prompt < c["rollout.min_new_tokens"]
        eos = -1 if c["rollout.ignore_eos"] else stops[0]
        if held and eos >= 0:
            logp[eos] = -math.inf
        s.tokens.append(likeliest(logp) if key is None else draw(
            logp, c, iteration, key, len(s.tokens)))
        text = bytes(t for t in s.tokens[s.n_prompt:] if t < 256)
        s.ended = not held and (
            s.tokens[-1] == eos
            or s.tokens[-1] < 256 and text.endswith(stops[1]))
    s.n = len(s.tokens) - s.n_prompt
    return s


def are_equal(group):
    return all(s.raw == group[0].raw for s in group)


def roll_out(c, iteration, actor, prompts, stops, judge, greedy=False):
    """Prompts whose responses have one score are replaced by the next. With
    `greedy` a prompt's last response is the likeliest."""
    each = c["rollout.samples_per_prompt"]
    n, again, out = c["rollout.prompts"], range(c["rollout.prompts"]), {}
    c.setdefault("drawn", 0)
    c["refilled"] = -n
    with torch.no_grad():
        for round_ in range(c["rollout.refills"] + 1):
            for j, g in enumerate(again):
                out[g] = [respond(c, iteration, actor, prompts, stops,
                                  c["drawn"] + j,
                                  (round_ * n + j) * each + e)
                          for e in range(each)]
                if greedy:
                    out[g].append(respond(c, iteration, actor, prompts, stops,
                                          c["drawn"] + j, None))
                for s in out[g]:
                    s.model_score = float(judge.scalar(s.tokens)[-1])
                    s.raw = WEIGHT["rule"] * rule(s.label, s.n, s.ended) \
                        + WEIGHT["model"] * s.model_score
            c["drawn"] += len(again)
            c["refilled"] += len(again)
            again = [g for g in range(n) if are_equal(out[g])]
    return [s for g in range(n) for s in out[g]]


def picked(model, s, temperature):
    """Log-probs of the response's tokens, and the entropies there."""
    all_ = model.log_softmax(s.tokens[:-1], temperature)[s.n_prompt - 1:]
    chosen = torch.tensor(s.tokens[s.n_prompt:])
    return (all_.gather(1, chosen[:, None])[:, 0],
            -(all_.exp() * all_).sum(1))


def values_of(critic, s):
    """The value before each token of the response."""
    return critic.scalar(s.tokens[:-1])[s.n_prompt - 1:]


def rewards(c, s, kl_coef):
    """The reward of each token: KL penalties, and the score at the last."""
    s.score = s.raw - (0 if s.ended else c["ppo.missing_eos_penalty"])
    if c["ppo.overlong.cache"] > 0:  # DAPO, equation 13
        begin = c["rollout.max_new_tokens"] - c["ppo.overlong.cache"]
        s.score -= c["ppo.overlong.factor"] * max(0, s.n - begin) / c[
            "ppo.overlong.cache"]
    if c["ppo.reward_clip"] > 0:
        keep_away(abs(s.score), c["ppo.reward_clip"])
        s.score = max(-c["ppo.reward_clip"],
                      min(s.score, c["ppo.reward_clip"]))
    penalty = torch.zeros(s.n)
    if c["ppo.kl.place"] == "reward":
        penalty = kl_coef * kl_estimate(c["ppo.kl.kind"], s.logp, s.ref)
    reward = -penalty
    reward[-1] += s.score
    s.reward_sum = float(reward.sum())
    return reward


def advantages(c, s, kl_coef):
    """The sum over l of (gamma lambda)^l delta, written out."""
    reward = rewards(c, s, kl_coef)
    following = torch.cat([s.value[1:], torch.zeros(1)])
    delta = reward + c["ppo.gamma"] * following - s.value
    decay = c["ppo.gamma"] * c["ppo.lambda"]
    s.advantage = torch.stack([
        sum(decay ** (k - t) * delta[k] for k in range(t, s.n))
        for t in range(s.n)])
    s.ret = s.advantage + s.value


def whiten(c, samples, over=True):
    """Those of all samples, or of a mini-batch."""
    all_ = torch.cat([s.advantage for s in samples])
    for s in samples:
        s.white = s.advantage
        if c["ppo.whiten_advantages"] == over:
            s.white = (s.advantage - all_.mean()) / (
                all_.var() + 1e-8).sqrt()
        s.first_white = s.white


def next_kl_coef(c, samples, kl_coef):
    if c["ppo.kl.controller"] == "fixed":
        return kl_coef
    kl = sum(float((s.logp - s.ref).sum()) for s in samples) / len(samples)
    error = kl / c["ppo.kl.target"] - 1
    keep_away(abs(error), 0.2)
    return kl_coef * (1 + max(-0.2, min(error, 0.2)) * len(
        samples) / c["ppo.kl.horizon"])


def learned(c, batch):
    """Those that are learned from."""
    return [s for s in batch if s.ended or not c["ppo.overlong.filter"]]


def nothing(model):
    """A loss of 0 with gradients of 0."""
    return sum(0 * p.sum() for p in model.p.values())


def weight_of(c, batch, s):
    tokens = sum(x.n for x in batch)
    return {"token-mean": 1 / tokens,
            "seq-mean-token-sum": 1 / len(batch),
            "seq-mean-token-mean": 1 / (len(batch) * s.n),
            "seq-mean-token-sum-norm":
                1 / (len(batch) * c["rollout.max_new_tokens"])
            }[c["ppo.aggregation"]]


def ppo_term(c, s, logp):
    """Each token's loss, and which are clipped."""
    ratio = (logp - s.logp).exp()
    keep_away(ratio.detach(), 1 - c["ppo.clip_low"])
    keep_away(ratio.detach(), 1 + c["ppo.clip_high"])
    plain = -s.white * ratio
    clipped = -s.white * ratio.clamp(1 - c["ppo.clip_low"],
                                     1 + c["ppo.clip_high"])
    pg = torch.maximum(plain, clipped)
    lower = torch.zeros(s.n, dtype=torch.bool)
    if c["ppo.dual_clip"] > 0:
        bound = -s.white * c["ppo.dual_clip"]
        negative = s.white < 0
        keep_away((pg - bound).detach()[negative])
        lower = negative & (pg > bound)
        pg = torch.where(lower, bound, pg)
    return pg, clipped > plain, lower


def policy_loss(c, actor, batch, stat, term=ppo_term):
    total, batch = nothing(actor), learned(c, batch)
    for s in batch:
        logp, entropy = picked(actor, s, c["rollout.temperature"])
        pg, clipped, lower = term(c, s, logp)
        kl = torch.zeros(s.n)
        if c["ppo.kl.place"] == "loss":
            kl = kl_estimate(c["ppo.kl.kind"], logp, s.ref)
        total = total + weight_of(c, batch, s) * (
            pg - c["ppo.entropy_coef"] * entropy
            + c["ppo.kl.coef"] * kl).sum()
        for key, x in (("tokens", torch.ones(s.n)), ("pg_loss", pg),
                       ("pg_clipfrac", clipped),
                       ("pg_clipfrac_lower", lower),
                       ("ppo_kl", s.logp - logp), ("entropy", entropy),
                       ("kl_loss", kl)):
            stat[key] = stat.get(key, 0) + float(x.detach().sum())
        off = (logp - s.logp).detach()
        for key, x in ((FIRST_DIFF, off), (FIRST_RATIO, off.exp() - 1)):
            stat[key] = max(stat.get(key, 0), float(x.abs().max()))
    return total


def value_loss(c, critic, batch, stat):
    total, batch = nothing(critic), learned(c, batch)
    for s in batch:
        v = values_of(critic, s)
        plain = other = (v - s.ret) ** 2
        if c["ppo.value_clip"] > 0:
            move = (v - s.value).detach().abs()
            keep_away(move, c["ppo.value_clip"])
            kept = s.value + (v - s.value).clamp(-c["ppo.value_clip"],
                                                 c["ppo.value_clip"])
            other = (kept - s.ret) ** 2
            keep_away((other - plain).detach()[move > c["ppo.value_clip"]])
        worst = torch.maximum(plain, other)
        tokens = sum(x.n for x in batch)
        total = total + 0.5 / tokens * worst.sum()
        for key, x in (("tokens", torch.ones(s.n)), ("vpred_mean", v),
                       ("vf_clipfrac", other > plain)):
            stat[key] = stat.get(key, 0) + float(x.detach().sum())
    stat["vf_loss"] = stat.get("vf_loss", 0) + float(total.detach())
    return total


# Largest distances from the log-probs of rollouts, before the first update.
FIRST = FIRST_DIFF, FIRST_RATIO = ("rollout_train_logprob_abs_diff_max",
                                   "actor/first_ratio_abs_dev_max")


def train(c, iteration, samples, trained, loss_of):
    """All epochs and mini-batches; returns sums, norms and the last rate."""
    n, parts, stat, norms, rate = (len(samples), c["ppo.mini_batches"], {},
                                   [], 0)
    n_steps = c["ppo.epochs"] * parts * c["iterations"]
    stopped = False
    c.setdefault("left", 0)
    for epoch in range(c["ppo.epochs"]):
        order = permutation(c["seed"], MINIBATCH, iteration, epoch, n)
        for k in range(parts):
            batch = [samples[i]
                     for i in sorted(order[n * k // parts:
                                           n * (k + 1) // parts])]
            if c["ppo.whiten_advantages"] == MINI_BATCH \
                    and loss_of is not value_loss:
                first = [s.first_white for s in batch]
                whiten(c, batch, MINI_BATCH)
                for s, x in zip(batch, first if epoch else ()):
                    s.first_white = x
            if stopped:
                norm, rate = trained.leave_out(n_steps)
                c["left"] += 1
            else:
                own = {}
                norm, rate = trained.update(
                    loss_of(c, trained.model, batch, own), n_steps)
                for key, x in own.items():
                    stat[key] = stat.get(key, x if key in FIRST else 0) \
                        + (0 if key in FIRST else x)
                if c["ppo.kl.stop"] and "ppo_kl" in own:
                    kl = own["ppo_kl"] / own["tokens"]
                    keep_away(kl, c["ppo.kl.stop"])
                    stopped = kl > c["ppo.kl.stop"]
            norms.append(norm)
    return stat, norms, rate


# ---- What is recorded -------------------------------------------------------


def spread(out, tag, x):
    x = torch.as_tensor(x, dtype=torch.float64)
    out[tag + "/mean"] = float(x.mean())
    out[tag + "/max"] = float(x.max())
    out[tag + "/min"] = float(x.min())


def probe(out, tag, rows):
    """Size and direction of many numbers."""
    x = torch.cat([torch.as_tensor(r, dtype=torch.float64).reshape(-1)
                   for r in rows])
    size = float(x.norm())
    out[tag + ".size"] = size
    out[tag + ".probe"] = float(
        (x * torch.cos(0.7 * torch.arange(len(x)) + 0.3)).sum()) / size


def record(c, samples, kl_coef, actor, critic, greedy=()):
    """`critic` None: the algorithm has none."""
    out, cat = {}, lambda key: torch.cat([getattr(s, key) for s in samples])
    spread(out, "critic/score", [s.raw for s in samples])
    spread(out, "critic/rewards", [s.reward_sum for s in samples])
    spread(out, "critic/advantages", cat("first_white"))
    spread(out, "critic/returns", cat("ret"))
    if critic:
        spread(out, "critic/values", cat("value"))
    spread(out, "response_length", [s.n for s in samples])
    spread(out, "prompt_length", [s.n_prompt for s in samples])
    out["response_length/clip_ratio"] = sum(
        not s.ended for s in samples) / len(samples)
    if critic:
        out["critic/vf_explained_var"] = 1 - float(
            (cat("ret") - cat("value")).var(unbiased=False)
            / (cat("ret").var(unbiased=False) + 1e-5))
    each = c["rollout.samples_per_prompt"]
    if each > 1:
        out["rollout/equal_prompts"] = sum(
            are_equal(samples[i:i + each])
            for i in range(0, len(samples), each))
    if c["rollout.refills"]:
        out["rollout/refilled_prompts"] = c["refilled"]
    out["reward/rule/mean"] = sum(rule(s.label, s.n, s.ended)
                                  for s in samples) / len(samples)
    out["reward/model/mean"] = sum(s.model_score
                                   for s in samples) / len(samples)
    if c["ppo.kl.place"] != "none":
        k1 = [float((s.logp - s.ref).sum()) for s in samples]
        out["objective/kl"] = sum(k1) / len(samples)
        probe(out, "ref_logprobs", [s.ref for s in samples])
    if c["ppo.kl.place"] == "reward":
        out["actor/reward_kl_penalty"] = sum(k1) / len(cat("logp"))
        out["actor/reward_kl_penalty_coeff"] = kl_coef
    if critic:
        stat, norms, rate = critic
        out["critic/vf_loss"] = stat["vf_loss"] / len(norms)
        for key in ("vf_clipfrac", "vpred_mean"):
            out["critic/" + key] = stat[key] / stat["tokens"]
    for who, result in (("critic", critic), ("actor", actor)):
        if not result:
            continue
        stat, norms, rate = result
        out[who + "/grad_norm"] = sum(norms) / len(norms)
        out[who + "/lr"] = rate
        for k, norm in enumerate(norms):
            out[f"{who}_norm.{k}"] = norm
    if actor:
        stat = actor[0]
        for key in FIRST:  # of the weights that generated: 0, to the bit
            out[key] = stat[key] if c.get("rollout.staleness") else 0
        if c["ppo.kl.stop"]:
            out["actor/kl_stopped_mini_batches"] = c.pop("left")
        for key in ("pg_loss", "pg_clipfrac", "pg_clipfrac_lower", "ppo_kl",
                    "entropy"):
            out["actor/" + key] = stat[key] / stat["tokens"]
        if c["ppo.kl.place"] == "loss":
            out["actor/kl_loss"] = stat["kl_loss"] / stat["tokens"]
            out["actor/kl_coef"] = c["ppo.kl.coef"]
    probe(out, "samples/score", [s.raw for s in samples])
    probe(out, "samples/n_tokens", [s.n for s in samples])
    out["samples/stop"] = sum(s.ended for s in samples)
    probe(out, "samples/rule", [rule(s.label, s.n, s.ended) for s in samples])
    probe(out, "samples/model", [s.model_score for s in samples])
    probe(out, "tokens", [s.tokens for s in (*samples, *greedy)])
    probe(out, "logprobs", [s.logp for s in (*samples, *greedy)])
    if critic:
        probe(out, "values", [s.value for s in samples])
    probe(out, "advantages", [s.advantage for s in samples])
    return out


def record_weights(out, who, model, each):
    """What training has changed."""
    names = sorted(model.p)
    moved = [model.p[n].detach() - model.first[n] for n in names]
    probe(out, who, moved)
    for n, x in zip(names, moved) if each else ():
        probe(out, f"{who}.{n}", [x])


def load(c, folder):
    """The models, the prompts' tokens, and what ends: a token, a text."""
    tokenizer = Tokenizer.from_file(str(folder / "actor/tokenizer.json"))
    prompts = [tokenizer.encode(p).ids for p in PROMPTS]
    model = {name: Llama(folder / name) for name in MODELS}
    stops = model["actor"].config["eos_token_id"], c["rollout.stop"].encode()
    return model, prompts, stops


def run(c, folder, each):
    model, prompts, stops = load(c, folder)
    actor = Trained(c, "actor", model[c["model.actor"]])
    critic = Trained(c, "critic", model["critic"])
    kl_coef, out = c["ppo.kl.coef"], {}
    newest = actor.model, critic.model
    for iteration in range(c["iterations"]):
        (policy, judge), newest = newest, (actor.model, critic.model)
        if c.get("rollout.staleness"):  # the next has what this one begins with
            newest = copy.deepcopy(newest)
        samples = roll_out(c, iteration, policy, prompts, stops,
                           model["reward"])
        with torch.no_grad():
            for s in samples:
                s.logp = picked(policy, s, c["rollout.temperature"])[0]
                s.ref = picked(model["reference"], s,
                               c["rollout.temperature"])[0]
                s.value = values_of(judge, s)
                advantages(c, s, kl_coef)
        whiten(c, samples)
        used, kl_coef = kl_coef, next_kl_coef(c, samples, kl_coef)
        a = train(c, iteration, samples, actor, policy_loss) \
            if iteration >= c["ppo.critic_warmup"] else None
        b = train(c, iteration, samples, critic, value_loss)
        follow(c, iteration, model["reference"], actor.model)
        for tag, x in record(c, samples, used, a, b).items():
            out[f"{iteration + 1} {tag}"] = x
    weights = {}
    record_weights(weights, "actor", actor.model, each)
    record_weights(weights, "critic", critic.model, each)
    if c.get("reference.every"):
        record_weights(weights, "reference", model["reference"], each)
    out.update((f"{c['iterations']} weights/{tag}", x)
               for tag, x in weights.items())
    return out


def differs(a, b, by):
    return abs(a - b) > by * (1 + abs(a))


TOLERANCE = 1e-4  # of the test


def main(base, runs, run):
    """Prints the runs: `base`, and `base` with changes."""
    global margin
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp)
        for name, options in MODELS.items():
            subprocess.run([sys.argv[1], "init", *SHAPE, *options, "-o",
                            str(folder / name)], check=True,
                           stdout=subprocess.DEVNULL)
        first, bad = {}, 0
        for change in runs:
            margin = math.inf
            out = run({**base, **change}, folder, not change)
            print("run", " ".join(f"{k}={json.dumps(v).strip(chr(34))}"
                                  for k, v in (change or base).items()))
            for key, x in out.items():
                if key not in first or "weights" in key \
                        or differs(first[key], x, TOLERANCE / 100):
                    print(key, f"{x:.7g}")
            for key in first:
                if key not in out and "weights" not in key:
                    print(key, "-")
            far = sum(key not in first
                      or differs(first[key], x, 20 * TOLERANCE)
                      for key, x in out.items())
            first = first or out
            bad += margin < 2e-6 or far == 0
            print(f"{change}: {margin:.1e} from a jump, {far} of {len(out)} "
                  "numbers far from the first run's", file=sys.stderr)
    if bad:
        sys.exit(f"{bad} runs are near a jump or change nothing")


if __name__ == "__main__":
    main(BASE, RUNS, run)
