#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes goldens.json: what TRL's supervised fine-tuning makes of rows.

    pip install transformers jinja2
    python3 make_goldens.py

"marked" has the masks of return_assistant_tokens_mask.

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


# Templates that mark what the assistant says: where its turn begins and ends;
# where no token begins or ends; in a macro; in a part of what it says.
HEAD = "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\\n' }}"
TAIL = ("{%- endfor -%}{%- if add_generation_prompt -%}"
        "{{ '<|im_start|>assistant\\n' }}{%- endif -%}")
OTHERS = "{%- else -%}{{ m.content + '<|im_end|>\\n' }}{%- endif -%}"
IF = "{%- if m.role == 'assistant' -%}"
MARKED = [
    ("qwen2", HEAD + IF + "{%- generation -%}{{ m.content + '<|im_end|>\\n' }}"
     "{%- endgeneration -%}" + OTHERS + TAIL),
    ("qwen2", HEAD + IF + "{% generation %}{{ m.content }}{% endgeneration %}"
     "<|im_end|>\n" + OTHERS + TAIL),
    ("qwen2", "{%- for m in messages -%}" + IF + "a{% generation %}"
     "{{ m.content }}{% endgeneration %}b{%- else -%}{{ m.content }} "
     "{%- endif -%}{%- endfor -%}"),
    ("llama3", "{{ '<B>' }}{%- for m in messages -%}"
     "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}" + IF +
     "{%- generation -%}{{ m.content | trim + '<|eot_id|>' }}"
     "{%- endgeneration -%}{%- else -%}{{ m.content | trim + '<|eot_id|>' }}"
     "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}"
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
     "{%- endif -%}"),
    ("qwen2", "{%- macro say(x) -%}<{% generation %}{{ x }}{% endgeneration %}"
     "{% generation %}!{% endgeneration %}>{%- endmacro -%}" + HEAD + IF +
     "{{ say(m.content) }}" + OTHERS + TAIL),
    ("qwen2", HEAD + IF + "{% for part in m.content.split(' ') %}"
     "{% if loop.index0 % 2 %}{% generation %} {{ part }}{% endgeneration %}"
     "{% else %} {{ part }}{% endif %}{% endfor %}<|im_end|>" + OTHERS + TAIL),
]
MARKED_ROWS = ROWS[:2] + ROWS[4:7] + [
    {"messages": say("u:a", "a:b", "u:c", "a:d e f", "s:g", "u:h", "a:i j")},
    # Where a mark ends in a character that NFC joins to the one before,
    # Transformers marks all that follows, and Weft that character.
    {"messages": say("u:e\u0301", "a:o\u0308 e\u0301s so", "u:\u1100\u1161",
                     "a:\u1100\u1161\u11a8 cafe\u0301s ok")},
    {"messages": say("u:\u65e5\u672c", "a:\U0001f642\U0001f9d1\u200d\U0001f680",
                     "u:x", "a:\u0416\u0436")},
    {"messages": say("u:q", "a:", "u:r", "a:yes")},
    {"prompt": say("u:q", "a:first", "u:r"), "completion": say("a:last one")},
]


def encode_marked(tokenizer, row):
    """TRL's assistant_only_loss; of prompt and completion, the latter's."""
    prompt, answer = turns(row)
    out = tokenizer.apply_chat_template(
        prompt + answer, tokenize=True, return_dict=True,
        return_assistant_tokens_mask=True)
    mask = out["assistant_masks"]
    if "messages" not in row:
        n = encode(tokenizer, row)["n_prompt"]
        mask = [0] * n + mask[n:]
    return {"ids": out["input_ids"], "mask": mask}


def add_marked(out):
    out["marked_rows"], out["marked"] = MARKED_ROWS, []
    for file, template in MARKED:
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=os.path.join(DATA, "tokenizer", file + ".json"))
        tokenizer.chat_template = template
        out["marked"].append({
            "tokenizer": file, "template": template,
            "rows": [encode_marked(tokenizer, row) for row in MARKED_ROWS]})


def main():
    out = {"rows": ROWS, "templates": []}
    add_marked(out)
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
