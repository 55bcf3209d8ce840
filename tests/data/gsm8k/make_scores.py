# SPDX-License-Identifier: Apache-2.0
"""Makes scores.jsonl and prompts.sha256: what Transformers and PyTorch make of
model/ (see make_model.py).

    pip install torch==2.15.0 transformers==5.23.0
    python make_scores.py .../gsm8k/test.jsonl

scores.jsonl    texts of our own: ids, and the log-prob of each id after the
                ones before it (f32, CPU)
prompts.sha256  of the ids of all of GSM8K's questions as chats: blanks
                between ids, a line per question; the number of ids behind it
"""
import hashlib
import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

here = os.path.dirname(os.path.abspath(__file__))
folder = os.path.join(here, "model")
tok = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
model.eval()


def ask(text):
    return tok.apply_chat_template([{"role": "user", "content": text}],
                                   tokenize=False, add_generation_prompt=True)


def ids_of(text):
    return tok(text, add_special_tokens=False)["input_ids"]


texts = [
    ask("Omar needs 17 tickets and then 25 more. How many is that?")
    + "It is 17 + 25 = 42.\n#### 42<|im_end|>",
    "The farmer sells 1,200 eggs per day \u2014 \u00e0 $0.35 each:\n\n"
    "  price = 0.35 * 1200  # \U0001f95a\n#### 420",
]
with open(os.path.join(here, "scores.jsonl"), "w") as out:
    for text in texts:
        ids = ids_of(text)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0].double()
        logp = torch.log_softmax(logits, -1)
        row = [None] + [round(logp[i, t].item(), 6)
                        for i, t in enumerate(ids[1:])]
        out.write(json.dumps({"text": text, "tokens": ids, "logprobs": row})
                  + "\n")

total, digest = 0, hashlib.sha256()
with open(sys.argv[1]) as f:
    for line in f:
        ids = ids_of(ask(json.loads(line)["question"]))
        total += len(ids)
        digest.update((" ".join(map(str, ids)) + "\n").encode())
with open(os.path.join(here, "prompts.sha256"), "w") as out:
    out.write(f"{digest.hexdigest()} {total}\n")
