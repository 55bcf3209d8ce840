#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes goldens.json: what Transformers makes of this folder's templates.

    pip install transformers jinja2
    python3 make_goldens.py

The templates are ours, in the formats of Llama 2 to 3.2, Qwen 1.5 to 3 (chatml,
qwen25, qwen3, qwq), Mistral, Gemma, Phi, DeepSeek's distilled models, Zephyr,
SmolLM, OLMo and Granite; `functions` uses what tool templates use. A text of
null says that rendering fails there. The day is 26 July 2024.
"""
import glob
import json
import os

import transformers.utils.chat_template_utils as chat

from compare_published import Fixed, cases

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = {"bos_token": "<B>", "eos_token": "<E>"}


def say(*words):
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[w[0]], "content": w[2:]} for w in words]


MORE = [
    say("u: Hi \n", "a: Hello\u00a0", "u:\tBye\n\n"),
    say("u:", "a:", "u:"),
    say("u:q", "a:<think>\nr1\n</think>\n\nans1", "u:q2"),
    say("u:q", "a:<think>\nr1\n</think>\n\nans1"),
    say("u:q", "a:x", "u:y", "a:<think>\n\n</think>\n\nz", "u:w", "a:v"),
    say("u:q", "a:a</think>b"),
    say("u:q", "a:\n\nans\n"),
    say("u:q", "a:<think>a<think>\nb\n\n</think>c</think>\n\nd", "a:e"),
    say("s:Obey. /no_think", "u:q", "a:e"),
    say("u:a\u0000b", "a:\u0000"),
]


def render(template, messages, generate, variables):
    try:
        texts, _ = chat.render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=generate,
            **TOKENS, **variables)
        return texts[0]
    except Exception:
        return None


def main():
    chat.datetime = Fixed
    asked = list(cases()) + [(m, g, {}) for m in MORE for g in (False, True)]
    out = {"cases": [{"messages": m, "generate": g, "variables": v}
                     for m, g, v in asked], "templates": {}}
    for path in sorted(glob.glob(os.path.join(HERE, "*.jinja"))):
        with open(path, encoding="utf-8") as f:
            template = f.read()
        texts = [render(template, *one) for one in asked]
        assert sum(t is not None for t in texts) > 10, path
        out["templates"][os.path.basename(path)] = texts
    with open(os.path.join(HERE, "goldens.json"), "w", encoding="ascii") as f:
        json.dump(out, f, indent=0)
        f.write("\n")


main()
