#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goldens of group advantages, policy losses, losses over pairs, KTO and
reward models, from verl's and TRL's own code.

    pip install torch; pip install --no-deps verl==0.9.1 trl==1.16.0
    python3 make_goldens.py > goldens.txt

Functions, and branches of the methods that hold a loss, are taken from the
installed sources by name, so that their dependencies are not needed. They run
in float64 on numbers that are exact in float32, and autograd gives the
gradients. What neither library has is written out in torch and says so.

The form of goldens.txt is that of ../ppo/ppo.txt.
"""
import ast
import collections
import importlib.util
import pathlib
import types
import typing

import torch
import torch.nn.functional as F

F64 = torch.float64


def tree_of(package, path):
    root = pathlib.Path(importlib.util.find_spec(package).origin).parent
    return ast.parse((root / path).read_text())


class Config(types.SimpleNamespace):
    """Stands in for verl's ActorConfig."""


def verl_functions():
    names = ["agg_loss", "compute_policy_loss_gspo",
             "compute_policy_loss_cispo", "compute_grpo_outcome_advantage",
             "compute_rloo_outcome_advantage",
             "compute_reinforce_plus_plus_baseline_outcome_advantage",
             "compute_remax_outcome_advantage", "kl_penalty_forward"]
    body = [f for f in tree_of("verl", "trainer/ppo/core_algos.py").body
            if isinstance(f, ast.FunctionDef) and f.name in names]
    for f in body:
        f.decorator_list = []
        f.returns = None
        for a in f.args.args:
            a.annotation = None
    assert sorted(f.name for f in body) == sorted(names)
    helpers = types.SimpleNamespace(
        masked_sum=lambda x, m: (x * m).sum(),
        masked_mean=lambda x, m: (x * m).sum() / m.sum(),
        masked_whiten=lambda x, m: x)  # the batch is whitened elsewhere
    space = dict(torch=torch, verl_F=helpers, ActorConfig=Config,
                 defaultdict=collections.defaultdict, Any=typing.Any)
    exec(compile(ast.Module(body, []), "core_algos.py", "exec"), space)
    return types.SimpleNamespace(**{n: space[n] for n in names})


def mentions(node, text):
    return text in ast.unparse(node)


def branch(package, path, function, first, last, n):
    """Compiles the n statements of a method's body that begin with the one
    that mentions `first`; the last of them has to mention `last`."""
    f, = [x for x in ast.walk(tree_of(package, path))
          if isinstance(x, ast.FunctionDef) and x.name == function]
    for block in ast.walk(f):
        body = getattr(block, "body", None)
        if not isinstance(body, list):
            continue
        for i, s in enumerate(body):
            if ast.unparse(s).startswith(first):
                taken = body[i:i + n]
                assert mentions(taken[-1], last), ast.unparse(taken[-1])
                return compile(ast.Module(taken, []), path, "exec")
    raise SystemExit(f"{path}: {function} has no '{first}'")


verl = verl_functions()
TRL_PAIR = branch("trl", "trainer/dpo_trainer.py", "_compute_loss",
                  "if loss_type == 'sigmoid'", "sigmoid_norm", 1)
# The same loss with label smoothing is in TRL's CPO trainer; DPO has none.
TRL_SMOOTH = branch("trl", "experimental/cpo/cpo_trainer.py", "cpo_loss",
                    "if self.loss_type == 'simpo'", "hinge", 1)
TRL_KTO = branch("trl", "trainer/kto_trainer.py", "_compute_loss",
                 "if self.calculate_KL:\n    kl =", "losses = torch.cat", 4)
TRL_REWARD = branch("trl", "trainer/reward_trainer.py", "compute_loss",
                    "if 'margin' in inputs", "center_rewards", 2)
VERL_OVERLONG = branch("verl", "workers/reward_manager/dapo.py", "__call__",
                       "overlong_buffer_len =", "overlong_reward = min", 5)
torch.set_default_dtype(F64)
generator = torch.Generator().manual_seed(20260311)


def f32(x):
    """float64 numbers that are exact in float32"""
    return torch.as_tensor(x, dtype=torch.float32).to(F64)


def exact(x):
    return float(f32(x))


def normal(n, scale=1.0):
    return f32(torch.randn(n, generator=generator, dtype=F64) * scale)


def out(case, name, n, /, **rows):
    print(case, name, n)
    for key, values in rows.items():
        values = values.detach().reshape(-1).tolist() \
            if isinstance(values, torch.Tensor) else [values]
        print(key, *(repr(float(v)) for v in values))
    print("end")


# ---- Advantages ------------------------------------------------------------

def advantage(name, score, greedy=0.25):
    score = f32(score)
    n = len(score)
    one, index = torch.ones(n, 1, dtype=F64), ["prompt"] * n

    def of(f, *args, **kwargs):
        return f(score[:, None].clone(), *args, **kwargs)[0]
    grpo = verl.compute_grpo_outcome_advantage
    out("advantage", name, n, score=score, greedy=greedy,
        grpo=of(grpo, one, index),
        mean=of(grpo, one, index, norm_adv_by_std_in_grpo=False),
        mean_rf=of(
            verl.compute_reinforce_plus_plus_baseline_outcome_advantage,
            one, index),
        rloo=of(verl.compute_rloo_outcome_advantage, one, index),
        remax=of(verl.compute_remax_outcome_advantage,
                 torch.full((n,), greedy, dtype=F64), one))


# ---- Policy losses ---------------------------------------------------------

def policy(name, kind, logp, old, adv, low, high, entropy_coef=0.0,
           kl_coef=0.0, kl="none"):
    low, high, entropy_coef, kl_coef, w = map(
        exact, (low, high, entropy_coef, kl_coef, 1 / 37))
    n = len(logp)
    logp = f32(logp).requires_grad_()
    old, adv = f32(old), f32(adv)
    ref = f32(logp.detach() + normal(n, 0.5))
    if n > 2:
        ref[2] = logp.detach()[2]
    entropy = normal(n).abs().requires_grad_()
    config = Config(clip_ratio=low, clip_ratio_low=low, clip_ratio_high=high,
                    global_batch_info={})
    f = getattr(verl, "compute_policy_loss_" + kind)
    mask = torch.ones(1, n, dtype=F64)
    pg, metrics = f(old[None], logp[None], adv[None], mask,
                    loss_agg_mode="token-sum", config=config)
    kl_sum = torch.zeros((), dtype=F64)
    if kl != "none":
        kl_sum = verl.kl_penalty_forward(logp, ref, kl).sum()
    loss = w * (pg - entropy_coef * entropy.sum() + kl_coef * kl_sum)
    loss.backward()
    out("policy", name, n, kind=["ppo", "gspo", "cispo"].index(kind),
        low=low, high=high, entropy_coef=entropy_coef, kl_coef=kl_coef,
        kl=["none", "k1", "k2", "k3", "abs"].index(kl), w=w, loss=loss,
        pg_loss=pg, clipped=metrics["actor/pg_clipfrac"] * n, kl_sum=kl_sum,
        logp=logp, old=old, ref=ref, advantage=adv, entropy=entropy,
        dlogp=logp.grad,
        dentropy=entropy.grad if entropy.grad is not None
        else torch.zeros(n))


def spread(n, scale):
    logp = f32(-normal(n).abs() * 2 - 0.01)
    return logp, f32(logp + normal(n, scale))


def policies():
    for kind, low, high in [("gspo", 0.02, 0.03), ("cispo", 0.3, 0.2)]:
        logp, old = spread(23, 0.3)
        policy(kind, kind, logp, old, normal(23), low, high)
        # one advantage for all tokens: GSPO as it is in the paper
        for a in (1.5, -0.5, 0.0):
            logp, old = spread(11, 0.01)
            policy(f"{kind}_{a}", kind, logp, old, torch.full((11,), a), low,
                   high)
        # the ratio is beyond each limit
        for shift in (0.5, -0.5):
            logp, _ = spread(7, 0)
            policy(f"{kind}_clip{shift}", kind, logp, logp - shift,
                   normal(7), low, high)
        # the clamps: of the mean at 10, of tokens at 20
        policy(f"{kind}_far", kind, [-1, -2, -0.5], [-40, -30, -25.25],
               [-1, -0.5, 2], low, high)
        policy(f"{kind}_near10", kind, [-1, -1], [-10.5, -11.25], [-1, -2],
               low, high)
        policy(f"{kind}_lost", kind, [-40, -31, -25], [-1, -2, -0.5],
               [-1, 0.5, 2], low, high)
        policy(f"{kind}_one", kind, [-0.75], [-1.0], [-1.25], low, high, 0.01,
               0.1, "k3")
        logp, old = spread(9, 0.02)
        policy(f"{kind}_abs", kind, logp, old, normal(9), low, high, 0.01,
               0.05, "abs")


# ---- Preferences -----------------------------------------------------------

def responses(n_chosen, n_rejected, shift):
    r = []
    for n, s in [(n_chosen, shift), (n_rejected, -shift)]:
        logp = f32(-normal(n).abs() - 0.01)
        ref = f32(logp + normal(n, 0.2) - s)
        r.append((logp.requires_grad_(), ref))
    return r


def pair(name, kind, n_chosen, n_rejected, beta=0.1, smooth=0.0, free=False,
         mean=False, shift=0.0):
    beta, smooth, w = exact(beta), exact(smooth), exact(1 / 7)
    (c, c_ref), (r, r_ref) = responses(n_chosen, n_rejected, shift)
    if kind == "hinge" and shift == 0 and n_chosen == 1:
        # beta h is 1 exactly: the corner of the hinge
        c.data[0], c_ref[0], r.data[0], r_ref[0] = -1, -3, -4, -2
    zero = torch.zeros(1, dtype=F64)
    score_c = (c.sum() - (zero if free else c_ref.sum())).reshape(1)
    score_r = (r.sum() - (zero if free else r_ref.sum())).reshape(1)
    ones = [torch.ones(len(x), dtype=F64) for x in (c, r)]
    mask = torch.nn.utils.rnn.pad_sequence(ones, batch_first=True)
    delta = score_c / n_chosen - score_r / n_rejected if mean \
        else score_c - score_r
    me = types.SimpleNamespace(beta=beta, label_smoothing=smooth,
                               loss_type=kind)
    space = dict(torch=torch, F=F, self=me, delta_score=delta, logits=delta,
                 chosen_scores=score_c, rejected_scores=score_r,
                 completion_mask=mask, loss_type=kind)
    if smooth > 0 and kind == "sigmoid" or kind == "ipo" and not mean:
        exec(TRL_SMOOTH, space)
        loss = w * space["losses"].sum()
    else:
        if mean and kind == "sigmoid":
            space["loss_type"] = "sigmoid_norm"
        exec(TRL_PAIR, space)
        loss = w * space["per_sequence_loss"].sum()
    loss.backward()
    reward = beta * score_c.detach(), beta * score_r.detach()
    n = max(n_chosen, n_rejected)
    out("pair", name, n, n_chosen=n_chosen, n_rejected=n_rejected,
        kind=["sigmoid", "robust", "hinge", "ipo"].index(kind), beta=beta,
        smooth=smooth, free=free, mean=mean, w=w, loss=loss,
        logp_c=F.pad(c, (0, n - n_chosen)),
        ref_c=F.pad(c_ref, (0, n - n_chosen)),
        logp_r=F.pad(r, (0, n - n_rejected)),
        ref_r=F.pad(r_ref, (0, n - n_rejected)),
        dlogp_c=F.pad(c.grad, (0, n - n_chosen)),
        dlogp_r=F.pad(r.grad, (0, n - n_rejected)),
        reward_c=reward[0], reward_r=reward[1],
        margin=reward[0] - reward[1], better=reward[0] > reward[1])


def pairs():
    for kind in ("sigmoid", "robust", "hinge", "ipo"):
        pair(kind, kind, 9, 6)
        pair(f"{kind}_one", kind, 1, 1, beta=0.25)
        pair(f"{kind}_free", kind, 5, 8, free=True)
        pair(f"{kind}_right", kind, 4, 3, beta=0.5, shift=3.0)
        pair(f"{kind}_wrong", kind, 3, 7, beta=0.5, shift=-3.0)
        pair(f"{kind}_far", kind, 5, 4, beta=2.0, shift=90.0)
        pair(f"{kind}_lost", kind, 5, 4, beta=2.0, shift=-90.0)
    for kind in ("sigmoid", "robust"):
        for smooth in (0.1, 0.4999):
            pair(f"{kind}_{smooth}", kind, 5, 6, smooth=smooth, shift=0.5)
    pair("sigmoid_norm", "sigmoid", 5, 8, beta=2.0, mean=True)
    pair("ipo_norm", "ipo", 5, 8, mean=True)


def kto(name, n, is_desirable, mismatched, beta=0.1, weights=(1.0, 1.0),
        shift=0.0):
    beta, w = exact(beta), exact(1 / 5)
    weights = [exact(x) for x in weights]
    (logp, ref), _ = responses(n, 1, shift)
    kl_ratio = f32(mismatched)
    none = torch.zeros(0, dtype=F64)
    one = logp.sum().reshape(1), ref.sum().reshape(1)
    me = types.SimpleNamespace(
        beta=beta, loss_type="kto", calculate_KL=True,
        desirable_weight=weights[0], undesirable_weight=weights[1],
        accelerator=types.SimpleNamespace(
            gather_for_metrics=lambda x: x.reshape(1), device="cpu"))
    chosen = one if is_desirable else (none, none)
    rejected = (none, none) if is_desirable else one
    space = dict(torch=torch, F=F, self=me, KL_logps=kl_ratio,
                 ref_KL_logps=torch.zeros_like(kl_ratio),
                 chosen_logps=chosen[0], ref_chosen_logps=chosen[1],
                 rejected_logps=rejected[0], ref_rejected_logps=rejected[1])
    exec(TRL_KTO, space)
    loss = w * space["losses"].sum()
    loss.backward()
    out("kto", name, n, desirable=is_desirable, beta=beta,
        weight_d=weights[0], weight_u=weights[1], w=w,
        n_kl=len(kl_ratio), kl_sum=kl_ratio.sum(), kl=space["kl"], loss=loss,
        logp=logp, ref=ref, dlogp=logp.grad,
        reward=beta * (one[0] - one[1]))


def ktos():
    for good in (True, False):
        name = "good" if good else "bad"
        kto(name, 9, good, [0.5, 1.25, -0.25])
        kto(f"{name}_negative", 7, good, [-1.5, 0.25, 0.5])
        kto(f"{name}_weights", 5, good, [0.75], 0.3, (1.5, 0.7), 0.5)
        kto(f"{name}_one", 1, good, [0.0, 2.0], 0.5)
        kto(f"{name}_far", 4, good, [3.0], 2.0, shift=60.0)
        kto(f"{name}_lost", 4, good, [3.0], 2.0, shift=-60.0)


def score(name, chosen, rejected, margin=0.0, center=0.0):
    chosen, rejected, margin, center, w = map(
        exact, (chosen, rejected, margin, center, 1 / 3))
    s = torch.tensor([chosen, rejected], dtype=F64, requires_grad=True)
    inputs = {"margin": torch.tensor([margin], dtype=F64)} if margin else {}
    me = types.SimpleNamespace(args=types.SimpleNamespace(
        center_rewards_coefficient=center if center else None))
    space = dict(torch=torch, nn=torch.nn, self=me, inputs=inputs,
                 rewards_chosen=s[:1], rewards_rejected=s[1:])
    exec(TRL_REWARD, space)
    (w * space["loss"]).backward()
    out("score", name, 2, center=center, margin=margin, w=w, score=s,
        loss=w * space["loss"], dscore=s.grad)


def overlong(name, top, cache, lengths):
    n = len(lengths)
    penalty = []
    for length in lengths:
        me = types.SimpleNamespace(
            max_resp_len=top, overlong_buffer_cfg=types.SimpleNamespace(
                len=cache, penalty_factor=1.0))
        space = dict(self=me, valid_response_length=length)
        exec(VERL_OVERLONG, space)
        # verl's responses are never longer than max; the paper says -1
        penalty.append(max(space["overlong_reward"], -1.0))
    out("overlong", name, n, max=top, cache=cache,
        length=torch.tensor(lengths, dtype=F64),
        penalty=torch.tensor(penalty, dtype=F64))


advantage("usual", [1, 0, 0, 1, 0, 0.5, 0, 0])
advantage("spread", normal(16, 3.0))
advantage("large", 1e6 + normal(5))
advantage("two", [0.1, -0.7])
advantage("one", [0.7])
policies()
pairs()
ktos()
score("plain", 1.25, -0.5)
score("wrong", -1.25, 0.5)
score("equal", 0.5, 0.5)
score("margin", 1.25, -0.5, margin=1.5)
score("center", 1.25, 0.5, center=0.01)
score("both", -0.25, 0.75, margin=0.5, center=0.1)
score("far", 300, -200, center=0.01)
score("lost", -300, 200, center=0.01)
overlong("dapo", 20480, 4096,
         [0, 1, 16383, 16384, 16385, 18432, 20479, 20480, 20481, 40000])
overlong("whole", 16, 16, [0, 1, 8, 15, 16, 17])
