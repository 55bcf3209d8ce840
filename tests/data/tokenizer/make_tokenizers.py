#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tokenizers of this folder with Hugging Face's library.

    pip install tokenizers==0.23.3
    python3 make_tokenizers.py && python3 make_goldens.py

Small vocabularies trained on the text below, with the pre-tokenizers, the
options and the spellings that large models' files have.
"""
import json
import os

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

HERE = os.path.dirname(os.path.abspath(__file__))

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

TEXT = [
    "The quick brown fox jumps over the lazy dog. She's sure they'll go, "
    "we've been there; I'm not, he'd say. It isn't what you're after.",
    "In 1999 there were 365 days, 12 months, 31415926 digits and 2.71828.",
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72\n",
    "def add(a, b):\n    \"\"\"Sum.\"\"\"\n    return a + b\n\n\n"
    "for (int i = 0; i < n; i++) {\n\tx[i] += y[i] * 2.0f;\n}\n",
    "    if self.running:\r\n        self.stop()\r\n",
    "Größe, Straße, naïve café, déjà vu, Ærøskøbing, İstanbul, ſtrange",
    "Съешь ещё этих мягких французских булок, да выпей чаю.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "日本語の文章です。これはテストです。中文句子,测试一下。한국어 문장입니다.",
    "हिन्दी में एक वाक्य। العربية نص قصير. עברית משפט קצר. ภาษาไทย",
    "😀😃😄 👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ ☃ — … “quoted” ‘single’ €100",
    "https://example.org/a_b?c=d&e=%20 user@example.org {\"key\": [1, 2]}",
    "\\frac{1}{2} \\boxed{42} $x^2 + y^2 = z^2$ a\u0301 e\u0301 o\u0308",
    "HELLO WORLD Hello World helloWorld HelloWorld2 XMLHttpRequest",
]


def train(pre, normalizer, size):
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, show_progress=False, min_frequency=1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(sorted(TEXT * 3), trainer)
    return tok


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def save(tok, name, change=None):
    data = json.loads(tok.to_str())
    if change:
        change(data)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    Tokenizer.from_str(text)  # the library must take it
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        f.write(text + "\n")


def old_spelling(data):
    """As GPT-2's own file: no type, merges as strings, empty affixes."""
    model = data["model"]
    del model["type"]
    model["merges"] = ["#version: 0.2"] + [" ".join(m)
                                           for m in model["merges"]]
    model["continuing_subword_prefix"] = model["end_of_word_suffix"] = ""


def holes(data):
    """No token for some bytes, an unknown token, unmergeable tokens."""
    model = data["model"]
    for symbol in "Āāqz~":
        gone = [t for t in model["vocab"] if symbol in t]
        model["merges"] = [m for m in model["merges"]
                           if not any(symbol in h for h in m)]
        for t in gone:
            del model["vocab"][t]
    next_id = 0
    for t in sorted(model["vocab"], key=model["vocab"].get):
        model["vocab"][t] = next_id
        next_id += 1
    model["vocab"]["<unk>"] = next_id
    model["unk_token"] = "<unk>"
    data["added_tokens"] = []


def fused(data):
    holes(data)
    data["model"]["fuse_unk"] = True


def dropped(data):
    holes(data)
    data["model"]["unk_token"] = None


def main():
    nfc = normalizers.NFC()

    tok = train(pre_tokenizers.ByteLevel(add_prefix_space=False), None, 640)
    save(tok, "holes_drop.json", dropped)
    save(tok, "holes_unk.json", holes)
    save(tok, "holes_fuse.json", fused)
    tok.add_special_tokens([AddedToken("<|endoftext|>", normalized=True)])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    save(tok, "gpt2.json", old_spelling)

    tok = train(split(QWEN2), nfc, 700)
    tok.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tok.add_tokens([AddedToken(t, normalized=False)
                    for t in ("<tool_call>", "</tool_call>", "<think>",
                              "</think>")])
    tok.post_processor = processors.ByteLevel(
        add_prefix_space=False, trim_offsets=False, use_regex=False)
    save(tok, "qwen2.json")

    tok = train(split(LLAMA3), None, 700)
    tok.model.ignore_merges = True
    tok.add_special_tokens(
        ["<|begin_of_text|>", "<|end_of_text|>"]
        + ["<|reserved_special_token_%d|>" % i for i in range(4)]
        + ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"])
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="<|begin_of_text|> $A",
            pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
            special_tokens=[("<|begin_of_text|>",
                             tok.token_to_id("<|begin_of_text|>"))])])

    def unmerged(data):  # whole words that no merge makes
        model = data["model"]
        n = len(model["vocab"]) + len(data["added_tokens"])
        for i, word in enumerate(("Ġunmergeable", "zyx", "日本")):
            word = "".join(
                word if word.isascii() or word[0] == "Ġ" else
                "".join(symbols()[b] for b in word.encode()))
            model["vocab"][word] = n + i
        # The library counts the vocabulary to find an added token's id.
        for t in data["added_tokens"]:
            model["vocab"][t["content"]] = t["id"]
    save(tok, "llama3.json", unmerged)

    tok = train(split(GPT4O), normalizers.Sequence([nfc]), 500)
    tok.add_special_tokens([AddedToken("<s>"), AddedToken("</s>")])
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A $B </s>",
        special_tokens=[("<s>", tok.token_to_id("<s>")),
                        ("</s>", tok.token_to_id("</s>"))])
    save(tok, "gpt4o.json")

    # Everything that an added token may ask for.
    tok = train(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=True)]), nfc, 480)
    tok.add_special_tokens([
        AddedToken("<mask>", lstrip=True), AddedToken("<r>", rstrip=True),
        AddedToken("<lr>", lstrip=True, rstrip=True),
        AddedToken("<word>", single_word=True),
        AddedToken("[s]", single_word=True, lstrip=True, rstrip=True,
                   normalized=True)])
    tok.add_tokens([
        AddedToken("cafe\u0301"), AddedToken("raw e\u0301", normalized=False),
        AddedToken("over", single_word=True), AddedToken("overlap"),
        AddedToken("  "), AddedToken("\t", lstrip=True), AddedToken("é"),
        AddedToken("<mask"), AddedToken("日本語", single_word=True),
        AddedToken("\u00ad", normalized=False)])
    save(tok, "added.json")

    for behavior in ("removed", "merged_with_previous", "merged_with_next",
                     "contiguous", "isolated"):
        for invert in (False, True):
            tok = train(pre_tokenizers.ByteLevel(add_prefix_space=False,
                                                 use_regex=False), None, 300)
            tok.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(Regex(r"\s|[,.]|x*"), behavior, invert),
                pre_tokenizers.Split("ab", "merged_with_next"),
                pre_tokenizers.ByteLevel(add_prefix_space=False,
                                         use_regex=False)])
            save(tok, "split_%s%s.json" % (behavior,
                                           "_invert" if invert else ""))


def symbols():
    """GPT-2's characters for bytes."""
    keep = (list(range(0x21, 0x7f)) + list(range(0xa1, 0xad))
            + list(range(0xae, 0x100)))
    out, n = {}, 0
    for b in range(256):
        if b in keep:
            out[b] = chr(b)
        else:
            out[b] = chr(256 + n)
            n += 1
    return out


main()
