#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole steps of SFT, DPO, KTO and reward models in PyTorch, in float64.

    pip install torch safetensors tokenizers
    python3 make_preferences.py BUILD/weft > preferences.txt

As ../ppo/make_iterations.py, whose model, order of rows and optimizer it uses:
losses are written from the papers, gradients are autograd's.
tests/run/test_preference runs Weft with the same words on pairs.jsonl and
rows.jsonl, and compares. "run" and a run's words, then lines "step tag
number".
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch.nn.functional import logsigmoid

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "ppo"))
import make_iterations as m  # noqa: E402

BASE = {"seed": 7, "iterations": 2, "train.batch": 4}
OPTIMIZER = {"lr": 4e-3, "schedule": "linear", "warmup_steps": 1,
             "min_lr_ratio": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 1e-4,
             "weight_decay": 0.5, "grad_clip": 0.5}
DPO = {"algorithm": "dpo", "data.path": "pairs.jsonl"}
KTO = {"algorithm": "kto", "data.path": "rows.jsonl"}
REWARD = {"algorithm": "reward_model", "data.path": "pairs.jsonl"}
SFT = {"algorithm": "sft", "data.path": "rows.jsonl"}
# The rows that are left at an epoch's end are a step of their own.
EPOCHS = {"iterations": 0, "epochs": 2}
RUNS = [
    {**DPO},
    {**DPO, "dpo.beta": 0.5},
    {**DPO, "dpo.label_smoothing": 0.2},
    {**DPO, "dpo.loss": "robust", "dpo.label_smoothing": 0.1},
    {**DPO, "dpo.loss": "hinge", "dpo.beta": 0.3},
    {**DPO, "dpo.loss": "ipo", "dpo.beta": 0.4},
    {**DPO, "dpo.loss": "ipo", "dpo.length_normalised": False},
    {**DPO, "dpo.length_normalised": True, "dpo.beta": 2},
    {**DPO, "dpo.reference_free": True},
    {**KTO},
    {**KTO, "kto.beta": 0.03, "train.batch": 5},
    {**KTO, "kto.desirable_weight": 1.5, "kto.undesirable_weight": 0.5},
    {**KTO, "data.path": "pairs.jsonl", "iterations": 3},
    {**REWARD},
    {**REWARD, "reward_model.margin": "scores"},
    {**REWARD, "reward_model.margin": "none", "data.shuffle": False},
    {**REWARD, "reward_model.center": 0.1},
    {**REWARD, "model.reward_model": "actor", "iterations": 3},
    {**SFT, "iterations": 3},
    {**SFT, **EPOCHS},
    {**DPO, **EPOCHS},
    {**KTO, **EPOCHS, "epochs": 1.5},
    {**REWARD, **EPOCHS, "data.shuffle": False},
    {**SFT, **EPOCHS, "train.batch": 9},
    {**DPO, "reference.every": 1, "reference.mix": 0.5, "iterations": 3},
    {**KTO, "reference.every": 2, "iterations": 3},
]


def texts(folder, path):
    """Units of (prompt's ids, response's ids, number) by row."""
    tokenizer = m.Tokenizer.from_file(str(folder / "actor/tokenizer.json"))
    eos = json.loads((folder / "actor/config.json").read_text())[
        "eos_token_id"]

    def text(row, key, label):
        s = m.Sample()
        prompt = tokenizer.encode(row["prompt"]).ids
        response = tokenizer.encode(row[key], add_special_tokens=False).ids
        s.response = response + [eos]
        s.tokens, s.n_prompt = prompt + s.response, len(prompt)
        s.n, s.label = len(s.response), label
        return s

    rows = map(json.loads, (HERE / path).read_text().splitlines())
    return [(row, [text(row, "chosen", True), text(row, "rejected", False)]
             if "chosen" in row else
             [text(row, "completion", row["label"])]) for row in rows]


def drawn(c, units, k):
    """The k-th unit of the run."""
    epoch, at = divmod(k, len(units))
    if c["data.shuffle"]:
        at = m.permutation(c["seed"], m.SHUFFLE, epoch, 0, len(units))[at]
    return units[at]


def log_prob(model, s):
    return m.picked(model, s, 1)[0].sum()


def mean(x):
    return sum(float(v) for v in x) / len(x) if len(x) else None


def dpo(c, batch, model, reference, out):
    beta, s = c["dpo.beta"], c["dpo.label_smoothing"]
    kind, normalise = c["dpo.loss"], c["dpo.length_normalised"]
    if normalise == "auto":
        normalise = kind == "ipo"
    losses, reward, logp = [], [], []
    for _, pair in batch:
        p = [log_prob(model, x) for x in pair]
        with torch.no_grad():
            q = [torch.tensor(0.0) if c["dpo.reference_free"]
                 else log_prob(reference, x) for x in pair]
        ratio = [a - b for a, b in zip(p, q)]
        reward.append([float(beta * x.detach()) for x in ratio])
        logp.append([x.detach() for x in p])
        a, b = (x / y.n if normalise else x for x, y in zip(ratio, pair))
        h = a - b
        right, wrong = -logsigmoid(beta * h), -logsigmoid(-beta * h)
        m.keep_away(1 - beta * h.detach() if kind == "hinge" else 1)
        losses.append({
            "sigmoid": (1 - s) * right + s * wrong,
            "robust": ((1 - s) * right - s * wrong) / (1 - 2 * s),
            "hinge": (1 - beta * h).clamp(min=0),
            "ipo": (h - 1 / (2 * beta)) ** 2}[kind])
    out["rewards/chosen"] = mean([r[0] for r in reward])
    out["rewards/rejected"] = mean([r[1] for r in reward])
    out["rewards/accuracies"] = mean([r[0] > r[1] for r in reward])
    out["rewards/margins"] = mean([r[0] - r[1] for r in reward])
    out["logps/chosen"] = mean([p[0] for p in logp])
    out["logps/rejected"] = mean([p[1] for p in logp])
    return torch.stack(losses).mean()


def kto(c, batch, model, reference, out):
    """The KL: over every prompt with the response of the sample before."""
    samples = [x for _, unit in batch for x in unit]
    beta, kl = c["kto.beta"], 0
    with torch.no_grad():
        for i, s in enumerate(samples):
            other = m.Sample()
            other.response = samples[i - 1].response
            other.tokens = s.tokens[:s.n_prompt] + other.response
            other.n_prompt, other.n = s.n_prompt, len(other.response)
            kl += log_prob(model, other) - log_prob(reference, other)
    kl = kl / len(samples)
    m.keep_away(kl)
    kl = max(float(kl), 0)
    losses, reward, logp = [], {True: [], False: []}, {True: [], False: []}
    for s in samples:
        p = log_prob(model, s)
        with torch.no_grad():
            ratio = p.detach() - log_prob(reference, s)
        gain = p - p.detach() + ratio - kl
        losses.append(
            c["kto.desirable_weight"] * (1 - torch.sigmoid(beta * gain))
            if s.label else
            c["kto.undesirable_weight"] * (1 - torch.sigmoid(-beta * gain)))
        reward[s.label].append(beta * ratio)
        logp[s.label].append(p.detach())
    names = {True: "chosen", False: "rejected"}
    for label, name in names.items():
        out["rewards/" + name] = mean(reward[label])
        out["logps/" + name] = mean(logp[label])
    out["rewards/margins"] = out["rewards/chosen"] - out["rewards/rejected"] \
        if reward[True] and reward[False] else None
    out["kl"] = kl
    return torch.stack(losses).mean()


def sft(c, batch, model, reference, out):
    losses = torch.stack([log_prob(model, s) for _, (s,) in batch])
    return -losses.sum() / sum(s.n for _, (s,) in batch)


def score(model, tokens):
    """Of the last token that is no padding, as Transformers has it."""
    pad = model.config.get("pad_token_id")
    last = max(i for i, x in enumerate(tokens) if x != pad)
    return model.scalar(tokens)[last]


def reward_model(c, batch, model, reference, out):
    losses, scores = [], []
    for row, pair in batch:
        a, b = (score(model, x.tokens) for x in pair)
        margin = {"row": row.get("margin", 0), "none": 0,
                  "scores": row["score_chosen"] - row["score_rejected"]}[
                      c["reward_model.margin"]]
        losses.append(-logsigmoid(a - b - margin)
                      + c["reward_model.center"] * (a + b) ** 2)
        scores.append((float(a.detach()), float(b.detach())))
    out["accuracy"] = mean([a > b for a, b in scores])
    out["margin"] = mean([a - b for a, b in scores])
    out["mean_reward"] = mean([x for s in scores for x in s])
    out["rewards/chosen"] = mean([a for a, _ in scores])
    out["rewards/rejected"] = mean([b for _, b in scores])
    return torch.stack(losses).mean()


STANDARDS = {"data.shuffle": True, "dpo.loss": "sigmoid", "dpo.beta": 0.1,
             "dpo.label_smoothing": 0, "dpo.reference_free": False,
             "dpo.length_normalised": "auto", "kto.beta": 0.1,
             "kto.desirable_weight": 1, "kto.undesirable_weight": 1,
             "reward_model.margin": "row", "reward_model.center": 0}
LOSS = {"sft": sft, "dpo": dpo, "kto": kto, "reward_model": reward_model}


def batches(c, units):
    """Of each step, and how often the data has been gone through then."""
    n, size = c["train.batch"], len(units)
    if "epochs" not in c:
        return [([drawn(c, units, k * n + i) for i in range(n)],
                 (k + 1) * n / size) for k in range(c["iterations"])]
    steps, epoch = -(-size // n), 0
    out = []
    while len(out) < c["epochs"] * steps:
        order = [drawn(c, units, epoch * size + i) for i in range(size)]
        out += [(order[k * n:(k + 1) * n], epoch + (k + 1) / steps)
                for k in range(steps)]
        epoch += 1
    return out[:m.math.ceil(c["epochs"] * steps)]


def run(given, folder, who):
    c = {**STANDARDS, **given}
    units = texts(folder, c["data.path"])
    if c["algorithm"] == "kto":  # a pair's two are rows of their own
        units = [(row, [s]) for row, unit in units for s in unit]
    model = m.Llama(folder / c["model." + who])
    if who == "reward_model" and "lm_head.weight" in model.p:
        head = model.p.pop("lm_head.weight")  # a language model's trunk
        model.p["score.weight"] = torch.zeros(
            1, head.shape[1], requires_grad=True)
    reference = m.Llama(folder / "reference")
    trained, lines = m.Trained(c, who, model), []
    steps = batches(c, units)
    for step, (batch, epoch) in enumerate(steps):
        out = {"epoch": epoch}
        loss = LOSS[c["algorithm"]](c, batch, model, reference, out)
        out["train/loss"] = float(loss.detach())
        out["train/n_tokens"] = sum(s.n for _, unit in batch for s in unit)
        out["train/grad_norm"], out["train/lr"] = trained.update(
            loss, len(steps))
        m.follow(c, step, reference, model)
        lines += [(step + 1, tag, x) for tag, x in out.items()]
    moved = {}
    if set(model.p) != set(model.first):
        return lines
    m.probe(moved, who, [model.p[n].detach() - model.first[n]
                         for n in sorted(model.p)])
    lines += [(len(steps), "weights/" + tag, x)
              for tag, x in moved.items()]
    return lines


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp)
        for name, options in m.MODELS.items():
            subprocess.run([sys.argv[1], "init", *m.SHAPE, *options, "-o",
                            str(folder / name)], check=True,
                           stdout=subprocess.DEVNULL)
        for change in RUNS:
            m.margin = m.math.inf
            who = "reward_model" if change["algorithm"] == "reward_model" \
                else "actor"
            c = {**BASE, **{f"{who}.{k}": v for k, v in OPTIMIZER.items()},
                 f"model.{who}": "actor" if who == "actor" else "critic",
                 **change}
            if c["algorithm"] in ("dpo", "kto"):
                c["model.reference"] = "reference"
            print("run", " ".join(f"{k}={json.dumps(v).strip(chr(34))}"
                                  for k, v in c.items()))
            for step, tag, x in run(c, folder, who):
                if x is not None:
                    print(step, tag, f"{x:.9g}")
                else:
                    print(step, tag, "-")
            bad += m.margin < 1e-5
    if bad:
        sys.exit(f"{bad} runs are near a jump")


if __name__ == "__main__":
    main()
