#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Transformers generates greedily from the folders beside this file, with
min_new_tokens and tokens that end a response.

    venv/bin/python tests/data/golden/make_greedy.py > tests/data/golden/greedy.txt

(here: torch 2.15.0, transformers 5.23.0). A line has

    family, min_new_tokens, max_new_tokens : ids that end : prompt : response
    : its log-probs

where the ids that end are those that the response without them would have as
its second, fourth and fifth token, and log-probs are of the logits as they
are, before anything is left out of them. A prompt with a choice between two
logits nearer than 1e-3 is replaced by another.
"""
import os
import warnings

import torch
from transformers import AutoModelForCausalLM, logging

MAX = 10


class Near(Exception):
    pass


def generate(model, prompt, eos, least):
    out = model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)),
        do_sample=False, max_new_tokens=MAX, min_new_tokens=least,
        eos_token_id=eos, pad_token_id=258, output_logits=True,
        output_scores=True, return_dict_in_generate=True)
    tokens = out.sequences[0, len(prompt):].tolist()
    for scores in out.scores:
        top = scores[0].topk(2).values
        if top[0] - top[1] < 1e-3:
            raise Near
    logp = [torch.log_softmax(x[0].double(), -1)[t].item()
            for x, t in zip(out.logits, tokens)]
    return tokens, logp


def of_prompt(model, prompt):
    prompt = prompt.tolist()
    free = generate(model, prompt, None, 0)[0]
    eos = sorted({free[1], free[3], free[4]})
    lines = []
    for least in 0, 1, 2, 3, MAX:
        tokens, logp = generate(model, prompt, eos, least)
        lines.append((least, MAX, ":", *eos, ":", *prompt, ":", *tokens, ":",
                      *(f"{x:.7g}" for x in logp)))
    return lines


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    torch.manual_seed(1)
    torch.set_num_threads(1)
    for family in "llama", "qwen2", "qwen3", "mistral":
        model = AutoModelForCausalLM.from_pretrained(
            os.path.join(here, family), dtype=torch.float32).eval()
        for n in 1, 64:
            lines = None
            while not lines:
                try:
                    lines = of_prompt(model, torch.randint(0, 256, (n,)))
                except Near:
                    pass
            for line in lines:
                print(family, *line)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    with torch.no_grad():
        main()
