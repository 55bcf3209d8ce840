#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes goldens.json: what TRL's supervised fine-tuning makes of rows.

    pip install transformers jinja2
    python3 make_goldens.py

The ids of a row are those of apply_chat_template on prompt and completion; the
first n_prompt of them, those of the prompt with the generation prompt, are not
learned. Where the one does not begin with the other (TRL warns), n_prompt is
what both begin with, as in TRL's apply_chat_template; "cut" says so. The
templates are those of ../chat, the tokenizers those of ../tokenizer.
"""
import json
import os

from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.dirname(HERE)
TEMPLATES = [("qwen2", name) for name in (
    "chatml", "qwen25", "qwen3", "qwq", "deepseek_distill", "gemma", "phi3",
    "zephyr", "olmo")] + [("llama3", "llama3"), ("llama3", "llama2")]


def say(*words):
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[w[0]], "content": w[2:]} for w in words]


ROWS = [
    {"messages": say("u:What is two and two?", "a:Four.")},
    {"messages": say("s:Be kind.", "u: Hi ", "a:Hello", "u:Again", "a:And hello")},
    {"prompt": say("u:q"), "completion": say("a:answer")},
    {"prompt": say("u:q"), "completion": say("a:\n\nanswer\n")},
    {"prompt": say("u:q"), "completion": say(
        "a:<think>\nhm\n</think>\n\nThe answer")},
    {"messages": say("u:q", "a:<think>\nx\n</think>\n\ny", "u:r",
                     "a:<think>\n\n</think>\n\nz")},
    {"messages": say("u:Größe?", "a:日本 \u00e9")},
    {"prompt": "A plain question", "completion": "a plain answer"},
    {"question": "1+1?", "answer": "2"},
    {"prompt": say("u:q"), "completion": say("a:")},
]


def turns(row):
    """Prompt and completion as messages."""
    if "messages" in row:
        return row["messages"][:-1], row["messages"][-1:]
    prompt = row.get("prompt", row.get("question"))
    answer = row.get("completion", row.get("answer"))
    if isinstance(prompt, str):
        prompt, answer = say("u:" + prompt), say("a:" + answer)
    return prompt, answer


def ids(tokenizer, messages, generate):
    return tokenizer.apply_chat_template(
        messages, add_generation_prompt=generate, tokenize=True,
        return_dict=False)


def encode(tokenizer, row):
    prompt, answer = turns(row)
    try:
        before = ids(tokenizer, prompt, True)
        whole = ids(tokenizer, prompt + answer, False)
    except Exception:
        return None
    same = 0
    while same < min(len(before), len(whole)) and before[same] == whole[same]:
        same += 1
    return {"ids": whole, "n_prompt": same, "cut": same < len(before)}


def main():
    out = {"rows": ROWS, "templates": []}
    for file, name in TEMPLATES:
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=os.path.join(DATA, "tokenizer", file + ".json"))
        with open(os.path.join(DATA, "chat", name + ".jinja"),
                  encoding="utf-8") as f:
            template = f.read()
        # Tokens of no vocabulary: text here and there.
        tokenizer.chat_template = template.replace(
            "bos_token", "'<B>'").replace("eos_token", "'<E>'")
        out["templates"].append({
            "tokenizer": file, "template": name,
            "rows": [encode(tokenizer, row) for row in ROWS]})
    with open(os.path.join(HERE, "goldens.json"), "w", encoding="ascii") as f:
        json.dump(out, f)
        f.write("\n")


main()
