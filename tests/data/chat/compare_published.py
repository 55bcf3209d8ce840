#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Weft's renderings of published chat templates with Transformers'.

    pip install transformers jinja2
    make tests/text/render_jinja
    python3 compare_published.py FOLDER BUILD/tests/text/render_jinja

FOLDER holds templates (*.jinja) that others published; none of them is part
of Weft. Every template is rendered for conversations of 0 to 5 turns, with and
without a system message, a generation prompt, parts of text as contents, and
thinking. Prints what differs, and how many templates were equal throughout.
"""
import collections
import datetime
import glob
import json
import os
import subprocess
import sys

import transformers.utils.chat_template_utils as chat

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
          "unk_token": "<unk>"}


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


def conversations():
    say = ["  Hi there\n", "Hello!\n", "Größe 日本?", " <think>\nhm\n</think>\n\n4",
           "", "Bye \u00a0"]
    for turns in range(6):
        for system in (None, "Be kind. ", ""):
            m = [] if system is None else [{"role": "system", "content": system}]
            for i in range(turns):
                m.append({"role": ("user", "assistant")[i % 2],
                          "content": say[i]})
            yield m
    text = [{"type": "text", "text": "One. "}, {"type": "text", "text": "Two."}]
    yield [{"role": "user", "content": text}]
    yield [{"role": "system", "content": text[:1]},
           {"role": "user", "content": text},
           {"role": "assistant", "content": text[:1]},
           {"role": "user", "content": text}]
    yield [{"role": "user", "content": "q"},
           {"role": "assistant", "content": "a", "reasoning_content": "r"},
           {"role": "user", "content": "q2"}]
    yield [{"role": "user", "content": "q"},
           {"role": "assistant", "content": "a", "thinking": "r"}]
    yield [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
    yield [{"role": "assistant", "content": "first"},
           {"role": "user", "content": "u"}]
    yield [{"role": "user", "content": "x"}, {"role": "system", "content": "mid"},
           {"role": "user", "content": "y"}]
    yield [{"role": "user", "content": "a"}, {"role": "assistant", "content": None},
           {"role": "user", "content": "b"}]
    yield [{"role": "user", "content": "w"},
           {"role": "assistant", "content": "", "tool_calls": [
               {"type": "function", "id": "call_1234", "function": {
                   "name": "f", "arguments": {"x": 1, "s": "é\"<"}}}]},
           {"role": "tool", "name": "f", "tool_call_id": "call_1234",
            "content": "4"},
           {"role": "assistant", "content": "four"}]


def cases():
    for m in conversations():
        for generate in (False, True):
            yield m, generate, {}
    some = [{"role": "user", "content": "Hi"}]
    for more in ({"enable_thinking": False}, {"enable_thinking": True},
                 {"tools": [{"type": "function", "function": {
                     "name": "f", "description": "does \"it\" <b>",
                     "parameters": {"type": "object", "properties": {
                         "x": {"type": "number", "description": "a"},
                         "s": {"type": "string", "enum": ["u", "v"]}},
                         "required": ["x"]}}}]}):
        yield some, True, more


class Weft:
    def __init__(self, program):
        self.child = subprocess.Popen([program], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)

    def render(self, template, messages, generate, more):
        context = {"messages": chat._alias_reasoning_fields(messages),
                   "tools": None, "documents": None,
                   "add_generation_prompt": generate, **TOKENS, **more}
        json.dump({"template": template, "context": context,
                   "date": "2024-07-26"}, self.child.stdin)
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return json.loads(self.child.stdout.readline())


def reference(template, messages, generate, more):
    try:
        texts, _ = chat.render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=generate,
            **TOKENS, **more)
        return texts[0], None
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def main():
    chat.datetime = Fixed
    weft = Weft(sys.argv[2])
    outcome, reasons = collections.Counter(), collections.Counter()
    renders = 0
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*"))):
        with open(path, encoding="utf-8", newline="") as f:
            template = f.read()
        worst, shown = "equal", set()
        rendered = False
        for messages, generate, more in cases():
            wanted, why = reference(template, messages, generate, more)
            got = weft.render(template, messages, generate, more)
            renders += 1
            rendered = rendered or wanted is not None
            if got.get("text") == wanted:
                continue
            kind = "refused" if "error" in got else "different"
            if worst != "different":
                worst = kind
            said = got.get("error") or repr(got["text"][-150:])
            if (kind, said) not in shown and len(shown) < 3:
                shown.add((kind, said))
                print(f"{os.path.basename(path)}: {kind}: {said}\n"
                      f"    Transformers: {why or repr(wanted[-150:])}")
            if kind == "refused":
                reasons[said.split(": ", 1)[-1]] += 1
        if not rendered:
            worst = "never rendered by Transformers" if worst == "equal" else worst
        outcome[worst] += 1
    print(f"{sum(outcome.values())} templates, {renders} renderings:",
          ", ".join(f"{n} {k}" for k, n in outcome.most_common()))


if __name__ == "__main__":
    main()
