#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GRPO steps of TRL on a model folder, for bench/grpo.sh and bench/gpu.sh.

    grpo_trl.py MODEL PROMPTS.jsonl BETA STEPS PROMPTS NEW_TOKENS DTYPE
                [cpu|cuda [AT_ONCE]]

AT_ONCE responses are in a micro-batch of training (all). Needs torch, trl, transformers and datasets from PyPI. Eight responses to each
of PROMPTS in a step, weights in f32 or bf16, every response as long as it may
be. Prints one line of JSON: tokens of prompts and responses, seconds of all
steps but the first, and the data type of the optimizer's states.
"""
import json
import sys
import tempfile
import time

import torch
from datasets import Dataset
from transformers import (AutoModelForCausalLM, AutoTokenizer,
                          TrainerCallback)
from trl import GRPOConfig, GRPOTrainer

GENERATIONS = 8


class Clock(TrainerCallback):
    """When the first step and the last one ended."""

    def __init__(self):
        self.ends = []

    def on_step_end(self, *args, **kwargs):
        self.ends.append(time.monotonic())


def main():
    folder, prompts, beta, steps, n_prompts, new, dtype = sys.argv[1:8]
    steps, n_prompts, new = int(steps), int(n_prompts), int(new)
    device = sys.argv[8] if len(sys.argv) > 8 else "cpu"
    all_of_step = n_prompts * GENERATIONS
    at_once = int(sys.argv[9]) if len(sys.argv) > 9 else all_of_step
    torch.manual_seed(1)
    rows = [json.loads(line) for line in open(prompts)]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[dtype])
    clock = Clock()
    tokens = []

    def reward(completion_ids, **_):
        tokens.append(sum(len(ids) for ids in completion_ids))
        return [float(sum(ids) % 2) for ids in completion_ids]

    with tempfile.TemporaryDirectory() as out:
        trainer = GRPOTrainer(
            model=model, processing_class=tokenizer, reward_funcs=reward,
            train_dataset=Dataset.from_list(
                [{"prompt": row["prompt"]} for row in rows]),
            callbacks=[clock],
            args=GRPOConfig(
                output_dir=out, max_steps=steps, beta=float(beta),
                num_generations=GENERATIONS, max_completion_length=new,
                generation_kwargs={"min_new_tokens": new},
                per_device_train_batch_size=at_once,
                gradient_accumulation_steps=all_of_step // at_once,
                gradient_checkpointing=False, learning_rate=1e-6,
                save_strategy="no", report_to=[], bf16=False, use_cpu=device == "cpu",
                disable_tqdm=True, logging_strategy="no"))
        trainer.train()
        states = {str(v.dtype) for s in trainer.optimizer.state.values()
                  for v in s.values() if torch.is_tensor(v) and v.dim() > 0}
    n_prompt = len(tokenizer(rows[0]["prompt"])["input_ids"])
    n = sum(tokens[1:]) + n_prompt * all_of_step * (steps - 1)
    print(json.dumps({"tokens": n, "seconds": clock.ends[-1] - clock.ends[0],
                      "states": sorted(states)}))


if __name__ == "__main__":
    main()
