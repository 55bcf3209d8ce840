#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goldens of GAE, PPO's losses and the KL estimates, from verl's own code.

    pip install torch verl==0.9.1 --no-deps   (torch with its dependencies)
    python3 make_ppo_goldens.py > ppo.txt

verl's functions are taken from the installed source by name, so that its
dependencies are not needed; they run in float64 on numbers that are exact in
float32, and autograd gives the gradients. TRL's PPO trainer has the same
formulas (verl says so in each function).

A case is a line "policy|value|gae name n", lines "key number", lines
"key number*n", and "end".
"""
import ast
import importlib.util
import math
import pathlib
import types
from typing import Any, Optional

import torch

NAMES = ["agg_loss", "compute_policy_loss", "compute_value_loss",
         "compute_gae_advantage_return", "kl_penalty_forward"]


def verl_functions():
    root = pathlib.Path(importlib.util.find_spec("verl").origin).parent
    tree = ast.parse((root / "trainer/ppo/core_algos.py").read_text())
    body = [f for f in tree.body
            if isinstance(f, ast.FunctionDef) and f.name in NAMES]
    for f in body:
        f.decorator_list = []
    assert sorted(f.name for f in body) == sorted(NAMES)
    helpers = types.SimpleNamespace(
        masked_sum=lambda x, m: (x * m).sum(),
        masked_mean=lambda x, m: (x * m).sum() / m.sum(),
        clip_by_value=lambda x, lo, hi: torch.max(torch.min(x, hi), lo),
        masked_whiten=lambda x, m: x)  # the kernel whitens elsewhere
    space = {"torch": torch, "verl_F": helpers, "Optional": Optional,
             "Any": Any}
    exec(compile(ast.Module(body, []), "core_algos.py", "exec"), space)
    return types.SimpleNamespace(**{n: space[n] for n in NAMES})


verl = verl_functions()
generator = torch.Generator().manual_seed(20240607)


def f32(x):
    """float64 numbers that are exact in float32"""
    return x.to(torch.float32).to(torch.float64)


def normal(n, scale=1.0):
    return f32(torch.randn(n, generator=generator, dtype=torch.float64)
               * scale)


def out(key, values):
    values = values.detach().reshape(-1).tolist() \
        if isinstance(values, torch.Tensor) else [values]
    print(key, *(repr(float(v)) for v in values))


def exact(x):
    return float(torch.tensor(x, dtype=torch.float32))


def policy(name, n, low, high, dual, entropy_coef, kl_coef, kl, spread):
    low, high, dual, entropy_coef, kl_coef, w = map(
        exact, (low, high, dual, entropy_coef, kl_coef, 1 / 37))
    logp = f32(-normal(n).abs() * 2 - 0.01).requires_grad_()
    old = f32(logp.detach() + normal(n, spread))
    ref = f32(logp.detach() + normal(n, 2 * spread))
    if n > 4:  # far out: the clamps
        old[0] = logp.detach()[0] - 25
        old[1] = logp.detach()[1] + 25
        ref[2] = logp.detach()[2] + 3
        ref[3] = logp.detach()[3] + 30
        old[4] = logp.detach()[4]
    old, ref = f32(old), f32(ref)
    advantage = normal(n)
    entropy = f32(normal(n).abs()).requires_grad_()
    mask = torch.ones(1, n, dtype=torch.float64)
    pg, clipped, ppo_kl, lower = verl.compute_policy_loss(
        old[None], logp[None], advantage[None], mask, cliprange_low=low,
        cliprange_high=high, clip_ratio_c=dual if dual > 0 else math.inf)
    kl_sum = torch.zeros((), dtype=torch.float64)
    if kl != "none":
        kl_sum = verl.kl_penalty_forward(logp, ref, kl).sum()
    loss = w * (pg * n - entropy_coef * entropy.sum() + kl_coef * kl_sum)
    loss.backward()
    print("policy", name, n)
    for key, value in dict(low=low, high=high, dual=dual,
                           entropy_coef=entropy_coef, kl_coef=kl_coef,
                           kl=["none", "k1", "k2", "k3"].index(kl),
                           w=w, loss=loss, pg_loss=pg * n,
                           clipped=clipped * n, clipped_lower=lower * n,
                           ppo_kl=ppo_kl * n, kl_sum=kl_sum, logp=logp,
                           old=old, ref=ref, advantage=advantage,
                           entropy=entropy, dlogp=logp.grad,
                           dentropy=entropy.grad
                           if entropy.grad is not None
                           else torch.zeros(n)).items():
        out(key, value)
    print("end")


def value(name, n, clip):
    clip, w = exact(clip), exact(1 / 19)
    v = normal(n).requires_grad_()
    old, ret = f32(v.detach() + normal(n, 0.4)), normal(n)
    mask = torch.ones(1, n, dtype=torch.float64)
    loss, clipped = verl.compute_value_loss(
        v[None], ret[None], old[None], mask, clip if clip > 0 else math.inf)
    loss = loss * n * w
    loss.backward()
    print("value", name, n)
    for key, x in dict(clip=clip, w=w, loss=loss, clipped=clipped * n,
                       value=v, old=old, ret=ret, dvalue=v.grad).items():
        out(key, x)
    print("end")


def gae(name, n, gamma, lam):
    gamma, lam = exact(gamma), exact(lam)
    reward, v = normal(n, 0.3), normal(n)
    advantage, ret = verl.compute_gae_advantage_return(
        reward[None], v[None], torch.ones(1, n, dtype=torch.float64), gamma,
        lam)
    print("gae", name, n)
    for key, x in dict(gamma=gamma, lam=lam, reward=reward, value=v,
                       advantage=advantage, ret=ret).items():
        out(key, x)
    print("end")


policy("plain", 23, 0.2, 0.2, 0, 0, 0, "none", 0.3)
policy("asymmetric", 23, 0.2, 0.28, 0, 0, 0, "none", 0.3)
policy("dual", 41, 0.2, 0.2, 3.0, 0, 0, "none", 1.0)
policy("entropy", 17, 0.2, 0.2, 3.0, 0.01, 0, "none", 0.2)
policy("k1", 17, 0.2, 0.2, 0, 0, 0.05, "k1", 0.3)
policy("k2", 17, 0.2, 0.2, 0, 0, 0.05, "k2", 0.3)
policy("k3", 17, 0.2, 0.2, 3.0, 0.001, 0.05, "k3", 0.3)
policy("one", 1, 0.2, 0.2, 3.0, 0.01, 0.1, "k3", 0.1)
value("clipped", 31, 0.2)
value("free", 13, 0)
value("one", 1, 0.5)
gae("usual", 29, 1.0, 0.95)
gae("discounted", 29, 0.99, 0.9)
gae("td", 9, 0.9, 0.0)
gae("monte_carlo", 9, 1.0, 1.0)
gae("one", 1, 0.5, 0.5)
