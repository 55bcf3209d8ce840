#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode.json: what Hugging Face's library says of every code point.

    pip install tokenizers==0.23.3
    python3 make_unicode_goldens.py

classes     patterns of single characters; which characters of a text of all
            (of all up to U+3347F and U+E0000 to U+E01FF, when `some`) they
            match: FNV-1a over the first and the last of each run, as
            little-endian 32-bit numbers
single      which characters may not stand beside a token that must be a word
            of its own: the same hash
nfc         FNV-1a of the NFC, in UTF-8, of each code point among marks, and of
            each known pair of characters that is a canonical decomposition
"""
import json
import os
import unicodedata

from make_goldens import fnv, hash_ids, short
from tokenizers import (AddedToken, Regex, Tokenizer, models, normalizers,
                        pre_tokenizers)

HERE = os.path.dirname(os.path.abspath(__file__))
EVERY = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]
SOME = [c for c in EVERY if c < 0x33480 or 0xe0000 <= c < 0xe0200]
GENERAL = ("L LC Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po "
           "S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn Any").split()
PATTERNS = [r"\p{%s}" % g for g in GENERAL]
PATTERNS += [r"\P{L}", r"\p{^N}", r"\s", r"\S", r"\d", r"\D", r"\w", r"\W",
             r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{N}]", r"(?i:[a-z])",
             r"(?i:[^a-z])", r"(?i:k)", r"[\p{L}&&[^\p{Han}]]",
             r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[^\p{L}&&\p{Lu}\p{M}]",
             r"[\W&&\S]", r"[a-z[0-9][^\p{Lu}]&&[^b3]]", r"[\w]", r"[^\w\s]",
             r"[\d]", r"[\s]", r"[a\P{L}]", r"[^\P{L}\u03b2]", r"[\p{^L}\d]",
             r"[\S\s]", r"[[^a-z]&&\p{L}]",
             r"\p{Uppercase_Letter}", r"\p{ other punctuation}"]


def scripts():
    with open(os.path.join(HERE, "../../../tools/gen-unicode")) as f:
        words = f.read().split('SCRIPTS = """')[1].split('"""')[0].split()
    return [r"\p{%s}" % w for w in words]


def runs(numbers):
    out = []
    for c in numbers:
        if out and out[-1] == c - 1:
            out[-1] = c
        else:
            out += [c, c]
    return out


def class_hash(pattern, text):
    split = pre_tokenizers.Split(Regex(pattern + "+"), "removed", invert=True)
    ends = []
    for part, _ in split.pre_tokenize_str(text):
        ends += [ord(part[0]), ord(part[-1])]
    return short(hash_ids(ends))


def single_word():
    """Characters next to which the token is not found."""
    tok = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tok.add_tokens([AddedToken("[t]", single_word=True)])
    before = [e.ids == [] for e in
              tok.encode_batch_fast([chr(c) + "[t]" for c in EVERY])]
    after = [e.ids == [] for e in
             tok.encode_batch_fast(["[t]" + chr(c) for c in EVERY])]
    assert before == after
    return [c for c, hidden in zip(EVERY, before)
            if hidden or c == ord("a")]


def nfc_hashes():
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    h = 0xcbf29ce484222325
    for i in range(0, len(EVERY), 4096):
        text = "".join("A%c\u0316\u0301\u0345%c\u1161\u11a8" % (c, c)
                       for c in EVERY[i:i + 4096])
        h = fnv(nfc.normalize_str(text).encode(), h)
    pairs = ""
    for c in EVERY:
        parts = unicodedata.decomposition(chr(c))  # none of Hangul
        if (" " in parts and "<" not in parts
                and nfd.normalize_str(chr(c)) != chr(c)):
            pairs += "".join(chr(int(p, 16)) for p in parts.split()) + "x"
    return {"every": short(h),
            "pairs": short(fnv(nfc.normalize_str(pairs).encode()))}


def main():
    every, some = "".join(map(chr, EVERY)), "".join(map(chr, SOME))
    out = {"library": "tokenizers 0.23.3",
           "classes": [[p, class_hash(p, every)] for p in PATTERNS],
           "some": [[p, class_hash(p, some)] for p in scripts()],
           "single": short(hash_ids(runs(single_word()))),
           "nfc": nfc_hashes()}
    with open(os.path.join(HERE, "unicode.json"), "w", encoding="ascii") as f:
        json.dump(out, f, indent=0)
        f.write("\n")


main()
