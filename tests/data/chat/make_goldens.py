#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes goldens.json: what Jinja makes of this folder's templates.

    pip install jinja2
    python3 make_goldens.py

The templates are ours; each does in few words what its family's do. The
environment is set up as in transformers.
"""
import glob
import json
import os

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))


def say(*words):
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[w[0]], "content": w[2:]} for w in words]


CASES = [
    say("u:Hi"),
    say("s:Be brief.", "u:Hi"),
    say("u: Hi \n", "a: Hello\u00a0", "u:\tBye\n\n"),
    say("s: sys ", "u:a", "a:b", "u:c"),
    say("u:a", "a:b"),
    say("s:s", "u:x", "a:y"),
    say("u:Größe 日本 \u3000"),
    say("u:", "a:", "u:"),
    say("u:q", "a:<think>\nr1\n</think>\n\nans1", "u:q2"),
    say("u:q", "a:<think>\nr1\n</think>\n\nans1"),
    say("u:q", "a:x", "u:y", "a:<think>\n\n</think>\n\nz", "u:w", "a:v"),
    say("u:q", "a:a</think>b"),
    say("u:q", "a:\n\nans\n"),
    say("u:q", "a:<think>a<think>\nb\n\n</think>c</think>\n\nd", "a:e"),
    say("u:x", "s:mid", "u:y"),
    say("u:one", "u:two"),
    say("a:first", "u:u"),
]


def refuse(message):
    raise TemplateError(message)


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.globals["raise_exception"] = refuse
    out = {"cases": CASES, "templates": {}}
    for path in sorted(glob.glob(os.path.join(HERE, "*.jinja"))):
        with open(path, encoding="utf-8") as f:
            template = env.from_string(f.read())
        texts = []
        for case in CASES:
            for generate in (False, True):
                try:
                    texts.append(template.render(
                        messages=case, add_generation_prompt=generate,
                        bos_token="<B>", eos_token="<E>"))
                except TemplateError:
                    texts.append(None)
        out["templates"][os.path.basename(path)] = texts
    with open(os.path.join(HERE, "goldens.json"), "w", encoding="ascii") as f:
        json.dump(out, f, indent=0)
        f.write("\n")


main()
