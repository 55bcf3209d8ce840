#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One optimizer step of TRL's DPO, KTO and reward trainers, in float32; of
its SFT trainer two epochs of ../sft/turns.jsonl, whose last step is smaller.

    pip install trl==1.16.0
    python3 make_trl.py BUILD/weft > trl.txt

The batch is the first rows of pairs.jsonl or rows.jsonl. The output has the
form of preferences.txt, which make_preferences.py describes. TRL does not
decay norms, and pads with the end of a text: Weft's weight_decay is 0 here.
"""
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

import pyarrow
import torch
from datasets import Dataset
from datasets.table import InMemoryTable
from transformers import (AutoModelForCausalLM,
                          AutoModelForSequenceClassification, AutoTokenizer)
from trl import (DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig,
                 RewardTrainer, SFTConfig, SFTTrainer)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "ppo"))
import make_iterations as m  # noqa: E402

torch.set_default_dtype(torch.float32)
N, LR, BETAS, EPS, CLIP = 4, 3e-3, (0.8, 0.95), 1e-4, 0.5

BASE = {"seed": 7, "iterations": 1, "train.batch": N, "data.shuffle": False}
OPTIMIZER = {"lr": LR, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS,
             "grad_clip": CLIP}
DPO = {"algorithm": "dpo", "data.path": "pairs.jsonl"}
KTO = {"algorithm": "kto", "data.path": "rows.jsonl"}
REWARD = {"algorithm": "reward_model", "data.path": "pairs.jsonl"}
# Conversations, of which every turn of the assistant is learned, or all.
SFT = {"algorithm": "sft", "data.path": "turns.jsonl", "iterations": 0,
       "epochs": 2, "train.batch": 2, "data.template": "[{role}]{content};",
       "actor.schedule": "linear"}
TEMPLATE = ("{%- for m in messages -%}[{{ m.role }}]"
            "{%- if m.role == 'assistant' -%}{%- generation -%}"
            "{{ m.content }};{%- endgeneration -%}"
            "{%- else -%}{{ m.content }};{%- endif -%}{%- endfor -%}")
RUNS = [  # Weft's words, TRL's
    (DPO, {}),
    ({**DPO, "dpo.beta": 0.5}, {"beta": 0.5}),
    ({**DPO, "dpo.loss": "robust", "dpo.label_smoothing": 0.1},
     {"loss_type": ["robust"], "label_smoothing": 0.1}),
    ({**DPO, "dpo.loss": "hinge", "dpo.beta": 0.3},
     {"loss_type": ["hinge"], "beta": 0.3}),
    ({**DPO, "dpo.loss": "ipo", "dpo.beta": 0.4},
     {"loss_type": ["ipo"], "beta": 0.4}),
    ({**DPO, "dpo.length_normalised": True, "dpo.beta": 2},
     {"loss_type": ["sigmoid_norm"], "beta": 2}),
    (KTO, {}),
    ({**KTO, "kto.beta": 0.03, "kto.desirable_weight": 1.5,
      "kto.undesirable_weight": 0.5},
     {"beta": 0.03, "desirable_weight": 1.5, "undesirable_weight": 0.5}),
    (REWARD, {}),
    ({**REWARD, "reward_model.center": 0.1},
     {"center_rewards_coefficient": 0.1}),
    ({**SFT, "data.learn": "assistant"}, {"assistant_only_loss": True}),
    ({**SFT, "data.learn": "all"}, {}),
]
TAGS = {"sft": ("epoch",), "dpo": ("rewards/chosen", "rewards/rejected", "rewards/margins",
                "rewards/accuracies", "logps/chosen", "logps/rejected"),
        "kto": ("rewards/chosen", "rewards/rejected", "rewards/margins",
                "logps/chosen", "logps/rejected", "kl"),
        "reward_model": ("accuracy", "margin", "mean_reward")}
COLUMNS = {"sft": ("messages",), "dpo": ("prompt", "chosen", "rejected"),
           "kto": ("prompt", "completion", "label"),
           "reward_model": ("prompt", "chosen", "rejected", "margin")}


def load(kind, folder):
    return kind.from_pretrained(str(folder), dtype=torch.float32)


def step(words, trl, folder):
    name = words["algorithm"]
    sft, size = name == "sft", words.get("train.batch", N)
    path = HERE / ("../sft" if sft else ".") / words["data.path"]
    rows = [json.loads(x) for x in path.read_text().splitlines()]
    rows = rows if sft else rows[:N]
    table = pyarrow.Table.from_pylist(
        [{k: row.get(k, 0.0) for k in COLUMNS[name]} for row in rows])
    data = Dataset(InMemoryTable(table), fingerprint=name)
    config, trainer = {"dpo": (DPOConfig, DPOTrainer),
                       "kto": (KTOConfig, KTOTrainer),
                       "sft": (SFTConfig, SFTTrainer),
                       "reward_model": (RewardConfig, RewardTrainer)}[name]
    args = config(
        output_dir=str(folder / "trl"), max_steps=-1 if sft else 1,
        num_train_epochs=2, logging_steps=1,
        per_device_train_batch_size=size, learning_rate=LR,
        lr_scheduler_type="linear" if sft else "constant", adam_beta1=BETAS[0],
        adam_beta2=BETAS[1], adam_epsilon=EPS, max_grad_norm=CLIP,
        weight_decay=0, bf16=False, use_cpu=True, report_to=[],
        save_strategy="no", gradient_checkpointing=False,
        train_sampling_strategy="sequential", max_length=None,
        disable_tqdm=True, **trl)
    tokenizer = AutoTokenizer.from_pretrained(str(folder / "actor"))
    more = {}
    if name == "reward_model":
        model = load(AutoModelForSequenceClassification, folder / "critic")
    else:
        model = load(AutoModelForCausalLM, folder / "actor")
        tokenizer.chat_template = TEMPLATE if sft else None
    if name in ("dpo", "kto"):
        more["ref_model"] = load(AutoModelForCausalLM, folder / "reference")
    first = {k: v.detach().clone() for k, v in model.named_parameters()}
    t = trainer(model=model, args=args, train_dataset=data,
                processing_class=tokenizer, **more)
    t.train()
    logs, out = [x for x in t.state.log_history if "loss" in x], []
    for i, log in enumerate(logs):
        out += [(i + 1, tag, log[tag]) for tag in TAGS[name]]
        out += [(i + 1, "train/" + tag, log[tag])
                for tag in ("loss", "grad_norm")]
        if sft:
            out.append((i + 1, "train/lr", log["learning_rate"]))
    now, moved = dict(t.model.named_parameters()), {}
    torch.set_default_dtype(torch.float64)  # of the probe's cosines
    m.probe(moved, "weights/" + ("reward_model" if name == "reward_model"
                                 else "actor"),
            [(now[k].detach() - first[k]).double() for k in sorted(first)])
    torch.set_default_dtype(torch.float32)
    return out + [(len(logs), tag, x) for tag, x in moved.items()]


def main():
    with tempfile.TemporaryDirectory() as temp:
        folder = pathlib.Path(temp)
        for name, options in m.MODELS.items():
            subprocess.run([sys.argv[1], "init", *m.SHAPE, *options, "-o",
                            str(folder / name)], check=True,
                           stdout=subprocess.DEVNULL)
        for words, trl in RUNS:
            who = "reward_model" if words["algorithm"] == "reward_model" \
                else "actor"
            c = {**BASE, **{f"{who}.{k}": v for k, v in OPTIMIZER.items()},
                 f"model.{who}": "actor" if who == "actor" else "critic",
                 **words}
            if words["algorithm"] in ("dpo", "kto"):
                c["model.reference"] = "reference"
            with contextlib.redirect_stdout(sys.stderr):
                lines = step(words, trl, folder)
            print("run", " ".join(f"{k}={json.dumps(v).strip(chr(34))}"
                                  for k, v in c.items()))
            for step_, tag, x in lines:
                print(step_, tag, f"{x:.9g}")


if __name__ == "__main__":
    main()
