#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two whole iterations of each algorithm without a critic, in PyTorch.

    pip install torch safetensors tokenizers
    python3 make_algorithms.py BUILD/weft > algorithms.txt

As make_iterations.py beside it, with advantages and losses from the papers.
What a paper sets (the place of the KL, how tokens' losses become one, ...) is
in STANDARDS and not among a run's words: Weft's defaults must be the same.
Where responses to a prompt are compared, a run without a prompt whose scores
are all equal, and without one whose scores differ, is refused.
"""
import functools

import torch

import make_iterations as m

GROUPS = ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline", "gspo", "cispo",
          "dapo")
CRITIC = ("critic.", "ppo.gamma", "ppo.lambda", "ppo.value_clip",
          "ppo.critic_warmup")
PAPERS = ("ppo.kl.place", "ppo.kl.kind", "ppo.aggregation",
          "ppo.whiten_advantages", "ppo.kl.controller")

BASE = {
    "algorithm": "grpo",
    **{k: v for k, v in m.BASE.items()
       if not k.startswith(CRITIC) and k not in PAPERS},
    "rollout.samples_per_prompt": 3,
    "ppo.reward_clip": 0.4,
}
for key in ("ppo.clip_low", "ppo.clip_high", "ppo.kl.target",
            "ppo.kl.horizon", "ppo.overlong.cache",
            "rollout.refills"):
    del BASE[key]

ANY = {"ppo.kl.controller": "fixed", "ppo.clip_low": 0.2,
       "ppo.clip_high": 0.2, "ppo.overlong.cache": 0,
       "rollout.refills": 0}
STANDARDS = {
    # arXiv 2402.03300, equations 3 and 4 (an unbiased std: torch, TRL, verl)
    "grpo": {"ppo.kl.place": "loss", "ppo.kl.kind": "k3",
             "ppo.aggregation": "seq-mean-token-mean",
             "ppo.whiten_advantages": False},
    # arXiv 2503.20783, section 3.2
    "dr_grpo": {"ppo.kl.place": "none", "ppo.kl.kind": "k1",
                "ppo.aggregation": "seq-mean-token-sum-norm",
                "ppo.whiten_advantages": False},
    # arXiv 2402.14740: KL is part of a whole response's reward
    "rloo": {"ppo.kl.place": "reward", "ppo.kl.kind": "k1",
             "ppo.aggregation": "seq-mean-token-sum",
             "ppo.whiten_advantages": False},
    # arXiv 2310.10505, algorithm 1; KL as in verl: a token has the rest of the
    # rewards, less the score of the greedy response
    "remax": {"ppo.kl.place": "reward", "ppo.kl.kind": "k1",
              "ppo.aggregation": "seq-mean-token-sum",
              "ppo.whiten_advantages": False},
    # arXiv 2501.03262: the k1 in a token's reward, whitened over the batch
    "reinforce_pp": {"ppo.kl.place": "reward", "ppo.kl.kind": "k1",
                     "ppo.aggregation": "token-mean", "ppo.gamma": 1,
                     "ppo.whiten_advantages": True},
    # there: the k2 in the loss
    "reinforce_pp_baseline": {"ppo.kl.place": "loss", "ppo.kl.kind": "k2",
                              "ppo.aggregation": "token-mean",
                              "ppo.whiten_advantages": True},
    # arXiv 2507.18071, equations 5 to 7, clip of section 5.1
    "gspo": {"ppo.kl.place": "none", "ppo.kl.kind": "k1",
             "ppo.aggregation": "seq-mean-token-mean",
             "ppo.whiten_advantages": False, "ppo.clip_low": 3e-4,
             "ppo.clip_high": 4e-4},
    # arXiv 2503.14476, section 4.1: a fifth of the longest is the cache
    "dapo": {"ppo.kl.place": "none", "ppo.kl.kind": "k1",
             "ppo.aggregation": "token-mean",
             "ppo.whiten_advantages": False, "ppo.clip_high": 0.28,
             "rollout.refills": 9,
             "ppo.overlong.cache": BASE["rollout.max_new_tokens"] // 5},
    # arXiv 2506.13585, equations 4 and 5; no lower limit
    "cispo": {"ppo.kl.place": "none", "ppo.kl.kind": "k1",
              "ppo.aggregation": "token-mean",
              "ppo.whiten_advantages": False, "ppo.clip_low": 1},
}

CLIP = {"ppo.clip_low": 0.05, "ppo.clip_high": 0.08}
TWO = {"rollout.samples_per_prompt": 2, "rollout.prompts": 6}
IN_REWARD = {"ppo.kl.place": "reward", "ppo.kl.kind": "k1"}
RUNS = [
    {},
    {"algorithm": "grpo", **IN_REWARD},
    {"algorithm": "grpo", **TWO, **CLIP},
    {"algorithm": "dr_grpo"},
    {"algorithm": "dr_grpo", **CLIP, **TWO},
    {"algorithm": "rloo"},
    {"algorithm": "rloo", "ppo.kl.place": "none", **CLIP,
     "rollout.samples_per_prompt": 4},
    {"algorithm": "remax"},
    {"algorithm": "remax", **CLIP, "ppo.kl.place": "none",
     "rollout.samples_per_prompt": 1, "rollout.prompts": 6,
     "rollout.temperature": 1.25, "rollout.top_k": 9},
    {"algorithm": "remax", "rollout.top_k": 3, "rollout.max_new_tokens": 2,
     "rollout.samples_per_prompt": 2, "rollout.refills": 1},
    {"algorithm": "reinforce_pp"},
    {"algorithm": "reinforce_pp", "ppo.whiten_advantages": m.MINI_BATCH},
    {"algorithm": "reinforce_pp", "ppo.gamma": 0.9, **CLIP,
     "rollout.samples_per_prompt": 1, "rollout.prompts": 6},
    {"algorithm": "reinforce_pp_baseline"},
    {"algorithm": "reinforce_pp_baseline", **CLIP, **TWO},
    {"algorithm": "reinforce_pp_baseline",
     "ppo.whiten_advantages": m.MINI_BATCH, "ppo.mini_batches": 3},
    {"algorithm": "gspo"},
    {"algorithm": "gspo", **CLIP,
     "ppo.aggregation": "token-mean"},
    {"algorithm": "cispo"},
    {"algorithm": "cispo", **CLIP, "ppo.kl.place": "loss",
     "ppo.kl.kind": "k3", "ppo.aggregation": "seq-mean-token-mean"},
    {"algorithm": "dapo"},
    {"algorithm": "dapo", **CLIP, "ppo.overlong.cache": 4,
     "ppo.overlong.filter": True},
    {"algorithm": "dapo", "rollout.top_k": 3, "rollout.max_new_tokens": 2,
     "rollout.samples_per_prompt": 2, "rollout.refills": 1,
     "ppo.overlong.cache": 0, "ppo.reward_clip": 0},
    {"algorithm": "grpo", "reference.every": 1, "reference.mix": 0.5},
    {"algorithm": "rloo", "reference.every": 1, "reference.mix": 1},
]


def compared(algorithm, r):
    """Advantages of the responses to one prompt from their scores."""
    if bool((r == r[0]).all()):
        return torch.zeros(len(r))  # without the rounding of the mean
    if algorithm in ("dr_grpo", "reinforce_pp_baseline"):
        return r - r.mean()
    if algorithm == "rloo":
        return torch.stack([x - torch.cat([r[:i], r[i + 1:]]).mean()
                            for i, x in enumerate(r)])
    return (r - r.mean()) / (r.std() + 1e-6)


equal = unequal = 0


def advantages(c, samples, kl_coef):
    """Sets every sample's; before whitening."""
    global equal, unequal
    reward = [m.rewards(c, s, kl_coef) for s in samples]
    for s, x in zip(samples, reward):
        s.ret = x.flip(0).cumsum(0).flip(0)
    if c["algorithm"] == "remax":
        for s in samples:
            m.rewards({**c, "ppo.kl.place": "none"}, s.greedy, 0)
            s.advantage = s.ret - s.greedy.score
        return
    if c["algorithm"] == "reinforce_pp":
        for s, x in zip(samples, reward):
            s.advantage = torch.stack([
                sum(c["ppo.gamma"] ** (k - t) * x[k] for k in range(t, s.n))
                for t in range(s.n)])
    else:
        n = c["rollout.samples_per_prompt"]
        for i in range(0, len(samples), n):
            r = torch.stack([x.sum() for x in reward[i:i + n]])
            same = bool((r == r[0]).all())
            equal, unequal = equal + same, unequal + (not same)
            for s, a in zip(samples[i:], compared(c["algorithm"], r)):
                s.advantage = a.expand(s.n)
    for s in samples:
        s.ret = s.advantage


def gspo_term(c, s, logp):
    """One ratio for the response: a root of the product of the tokens'."""
    low, high = 1 - c["ppo.clip_low"], 1 + c["ppo.clip_high"]
    ratio = (logp - s.logp).exp().prod() ** (1 / s.n)
    m.keep_away(ratio.detach(), low)
    m.keep_away(ratio.detach(), high)
    a = s.white[0]
    gain = torch.minimum(ratio * a, ratio.clamp(low, high) * a)
    return (-gain.expand(s.n), (gain < ratio * a).expand(s.n),
            torch.zeros(s.n))


def cispo_term(c, s, logp):
    """REINFORCE with a clipped weight, which has no gradient."""
    low, high = 1 - c["ppo.clip_low"], 1 + c["ppo.clip_high"]
    ratio = (logp - s.logp).exp().detach()
    m.keep_away(ratio, low)
    m.keep_away(ratio, high)
    return (-ratio.clamp(low, high) * s.white * logp,
            (ratio < low) | (ratio > high), torch.zeros(s.n))


def apart(c, responses):
    """The sampled responses, which know the greedy one to their prompt, and
    the greedy ones."""
    n = c["rollout.samples_per_prompt"] + 1
    groups = [responses[i:i + n] for i in range(0, len(responses), n)]
    for g in groups:
        for s in g[:-1]:
            s.greedy = g[-1]
    return [s for g in groups for s in g[:-1]], [g[-1] for g in groups]


def run(c, folder, each):
    global equal, unequal
    c = {**ANY, **STANDARDS[c["algorithm"]], **c}
    term = {"gspo": gspo_term, "cispo": cispo_term}.get(c["algorithm"],
                                                        m.ppo_term)
    model, prompts, stops = m.load(c, folder)
    actor = m.Trained(c, "actor", model[c["model.actor"]])
    kl_coef, out, equal, unequal = c["ppo.kl.coef"], {}, 0, 0
    for iteration in range(c["iterations"]):
        samples = m.roll_out(c, iteration, actor.model, prompts, stops,
                             model["reward"], c["algorithm"] == "remax")
        greedy = []
        if c["algorithm"] == "remax":
            samples, greedy = apart(c, samples)
        with torch.no_grad():
            for s in greedy:
                s.logp = m.picked(actor.model, s, 1)[0]
            for s in samples:
                s.logp, s.ref = (
                    m.picked(x, s, c["rollout.temperature"])[0]
                    for x in (actor.model, model["reference"]))
            advantages(c, samples, kl_coef)
        m.whiten(c, samples)
        trained = m.train(c, iteration, samples, actor,
                          functools.partial(m.policy_loss, term=term))
        m.follow(c, iteration, model["reference"], actor.model)
        found = m.record(c, samples, kl_coef, trained, None, greedy)
        if greedy:
            m.spread(found, "critic/baseline",
                     [s.greedy.raw for s in samples])
            m.probe(found, "samples/baseline_score",
                    [s.greedy.raw for s in samples])
        for tag, x in found.items():
            out[f"{iteration + 1} {tag}"] = x
    if c["algorithm"] in GROUPS and c["ppo.kl.place"] != "reward" \
            and not (equal and unequal):
        raise SystemExit(f"{c}: {equal} prompts with equal scores, "
                         f"{unequal} with others")
    weights = {}
    m.record_weights(weights, "actor", actor.model, each)
    if c.get("reference.every"):
        m.record_weights(weights, "reference", model["reference"], each)
    out.update((f"{c['iterations']} weights/{tag}", x)
               for tag, x in weights.items())
    return out


if __name__ == "__main__":
    m.main(BASE, RUNS, run)
