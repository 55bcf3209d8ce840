# SPDX-License-Identifier: Apache-2.0
"""Scores of a scalar head by Transformers, with padding at the end, in the
middle and alone, and without a padding token:

    build/weft init --family llama --hidden 32 --layers 2 --heads 2 \
        --intermediate 64 --vocab 50 --scalar --tokenizer none --std 0.3 -o DIR
    python3 tests/data/scalar/make_scores.py DIR >tests/data/scalar/scores.jsonl

Each line has the pad_token_id to set in DIR/config.json (null: none), the
tokens, and the score (Transformers 5.23, torch 2.15, float32).
"""
import json
import sys

import torch
from transformers import LlamaForSequenceClassification

TEXTS = [[5, 6, 7, 2], [5, 6, 7], [5, 2, 7, 2], [2, 2, 7], [2, 2, 2], [2],
         [9], [5, 6, 2, 2, 2]]

model = LlamaForSequenceClassification.from_pretrained(sys.argv[1]).eval()
for pad in (2, 0, None):
    model.config.pad_token_id = pad
    for text in TEXTS:
        with torch.no_grad():
            score = model(torch.tensor([text])).logits.item()
        print(json.dumps({"pad": pad, "tokens": text,
                          "score": round(score, 7)}))
