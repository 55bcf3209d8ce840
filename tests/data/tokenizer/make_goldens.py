#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes goldens.json: what Hugging Face's library makes of hard texts.

    pip install tokenizers==0.23.3
    python3 make_tokenizers.py && python3 make_goldens.py

Of most texts only a hash of the ids (and of the decoded bytes) is kept:
FNV-1a over the ids as little-endian 32-bit numbers, 64 bits folded to 32. The
library says which characters exist, in the Unicode of its expressions.
"""
import glob
import json
import os
import random
import unicodedata

from tokenizers import Regex, Tokenizer, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
EXPLICIT = 6  # texts whose ids are listed in full


def fnv(data, h=0xcbf29ce484222325):
    for b in data:
        h = ((h ^ b) * 0x100000001b3) & 0xffffffffffffffff
    return h


def hash_ids(ids, h=0xcbf29ce484222325):
    return fnv(b"".join(i.to_bytes(4, "little") for i in ids), h)


def short(h):
    return "%08x" % ((h ^ h >> 32) & 0xffffffff)


SPECIALS = [
    "<|endoftext|>", "a<|endoftext|>b", "<|im_start|>user\nHi<|im_end|>\n",
    "<think>\nhm\n</think> <tool_call>{}</tool_call>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nx<|eot_id|>",
    "<|reserved_special_token_3|><|reserved_special_token_30|>",
    "<s>a</s> <s> b </s>", "<|im_start|<|im_start|>|>",
    " \t <mask> \n x", "x <r> \u3000\u2003 y", "a \t<lr>\n\n b", "<lr> <lr>",
    "a<word>", "a <word> b", "<word>é", "<word>\u0301", "_<word>", "<word>-",
    "[s]", "x[s]y", "x [s]  y", "<mask<mask>", "over overlap overlapping",
    "café cafe\u0301 caf\u00e9s", "raw e\u0301 raw \u00e9", "日本語 日本語で",
    "a  b   c    d", "\t\tx\t y", "é e\u0301", "\u00ad soft\u00adhyphen",
    "<r>  ", "<r>\t\ty", "  <mask>", "<|endoftext|><|endoftext|>",
]

TEXTS = [
    "Hello, world! It's 2024; she'll say \"we've\" won't.",
    "  leading and trailing  \n\n\n  spaces \t\t tabs\r\n\r\nend  ",
    "Größe naïve 日本語の文章 한국어 हिन्दी العربية 😀👩‍👩‍👧‍👦 e\u0301\u0323",
    "x = [i**2 for i in range(10)]  # comment\n\tif (a->b != NULL) { f(); }",
    "123 1234567 3.14159 1,000,000 ½ ² Ⅷ ٣٤٥ ①② 12ab34",
    "DON'T don't Don\u2019t 'S 's 'ſ 'RE 're 'Ve 'lL 'M 'd 'D'T",
    "unmergeable zyx 日本 the unmergeables",
    "\u00a0nbsp\u2003em\u3000wide\u180emvs\u200bzwsp\u0085nel\u2028ls\u2029ps"
    "\x0b\x0c\x1c\x1d\x1e\x1f\x7fdel",
    "\u212b \u2126 \ufb01 \u1e9b\u0323 \u0344 \u0958 \uac00\u11a8 "
    "\u1100\u1161\u11a8 \u0915\u093c \ufa0e \U0002f800 \u03d3",
    "a\u0316\u0301 a\u0301\u0316 q\u0307\u0323 \u05d0\u05b8\u05bc \u0e33 "
    "\u0345\u0301 \u0f71\u0f72\u0f74",
    "🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ❤️ ©️ 1️⃣ 🧑🏿‍🚀 \U0001fae0 \U000e0067\U000e007f",
    "\ue000\uf8ff\U000f0000\U0010fffd \ufdd0 \uffff \U0001ffff \ufffd",
    "ab abab xab cabd ab\u0301 aab, ab. x xx xxx  x\tab",
    "",
]
TEXTS += SPECIALS
TEXTS += [
    " ", "  ", "\n", " \n", "\n ", "\r\n", "\r", "\t", "\u3000", "a", "'",
    "''", "'s", "s'", "' s", "'x's", "...", "!!!\n\n", "?! \n", "a.b.c",
    "hello\n\n\nworld", "a \n b", "a  \n  b", "\n\n  x", "1 2  3   4",
    "\"quoted\" 'single' `back` «guil» “x” ‘y’", "a_b-c+d=e/f\\g|h~i^j&k%l$",
    "https://x.y/z?a=b&c=%20#frag", "user@example.org", "#### 72\n",
    "\\boxed{\\frac{1}{2}} $x^2$", "<html>\n  <p class=\"a\">b</p>\n</html>",
    "SELECT * FROM t WHERE a='b';", "0x1F 1e-5 .5 5.", "İIıi ſS ßẞ K ǅ",
    "ﷺ ﷽ 𝔘𝔫𝔦 𝟙𝟚 ᏣᎳᎩ ꓘ 𒀀 𓀀 𐍈", "אבג (דהו) ١٢٣", "ไทย ລາວ ខ្មែរ မြန်မာ",
    "Tiếng Việt: Đường phố", "e" + "\u0301" * 30, "\u0301", "\u200d", "\ufeffx",
    "a\u0300\u0301\u0302\u0303", "zero\u200bwidth\u200cnon\u200djoin",
    "\u1e9b\u0323\u0323", "\u0041\u030a\u0301", "ab" * 40, "x, " * 20,
]
REPEATED = [["a", 3000], [" ", 3000], ["\n", 2000], ["ab ", 1500], ["é", 999],
            ["e\u0301", 999], ["1", 1000], ["!", 2000], ["日", 800],
            ["\u0316\u0301", 500], [" \t", 800], ["<|endoftext|>", 99],
            ["the quick ", 300], ["\U0001f600", 400], ["'s", 500]]
INVALID = ["ff", "61ff62", "c3", "c328", "e282", "e28241", "f0908", "f0908080",
           "c080", "eda080", "edb080", "f4908080", "f8888080", "e0809f",
           "fefefffe", "80808080", "20e3812041", "f09f98", "f09f9862",
           "c3a9c3", "eda0bdedb880", "00ff00", "6100620063", "273fc5", "61cc", "e1bf41"]
INVALID = [h + "0" if len(h) % 2 else h for h in INVALID]


# Split patterns beyond the usual, put in front of gpt2.json's ByteLevel.
PATTERNS = [
    r"[\r\n]", r"\s+$", r"^\s*", r"[一-龥ࠀ-一가-퟿]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"[\p{Han}]+|[^\p{Han}\s]+", r"\p{Greek}+", r"\w+|[^\w\s]+", r"\W+",
    r"[\w\-]+", r"\d{1,3}(?=(?:\d{3})*(?!\d))", r"\p{Ll}+|\p{^Ll}{,2}",
    r"[\S]+", r"(?<=a)b|(?<!x)y", r"[^\n]*\n?", r".+", r"\x{e9}|\u65e5",
    r"[]a]+|[\]b-]", r"{|}|a{|x{2}", r"(?i)s|LL", r"a*?b|", r"(ab|a)(b?)",
    r"\A\s|\s\z", r"\v|\f|\t", r"(?>a+)b|\/|\-|\ ", r"\p{N}{3}|\P{N}",
    r"[\p{L}&&[^\p{Han}]]+|[a-c[x-z]]", r"(?-i:A)|(?i:b(?-i:b)b)|[^b[ ]]",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]


def with_pattern(pattern):
    with open(os.path.join(HERE, "gpt2.json"), encoding="utf-8") as f:
        data = json.load(f)
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern},
         "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False,
         "trim_offsets": True, "use_regex": False}]}
    return Tokenizer.from_str(json.dumps(data))


def random_texts(count):
    rng = random.Random(20240607)
    bits = ["".join(t) for t in (TEXTS[:13] + SPECIALS)]
    parts = sorted({p for b in bits for p in b.split(" ")})
    out = []
    while len(out) < count:
        kind = rng.random()
        if kind < 0.6:
            text = "".join(rng.choice(parts) + rng.choice(
                ["", " ", "  ", "\n", "\t "]) for _ in range(rng.randrange(9)))
        else:
            text = "".join(chr(rng.choice([
                rng.randrange(0x80), rng.randrange(0x250),
                rng.randrange(0x3000), rng.randrange(0xd800),
                rng.randrange(0xe000, 0x1f700)])) for _ in range(20))
        if "\0" not in text and all(unicodedata.category(c) != "Cn"
                                     for c in text):
            out.append(text)
    return out


def assigned():
    ranges = []
    split = pre_tokenizers.Split(Regex(r"\P{Cn}+"), "removed", invert=True)
    text = "".join(chr(c) for c in range(0x110000)
                   if not 0xd800 <= c < 0xe000)
    for c in (ord(c) for part, _ in split.pre_tokenize_str(text)
              for c in part):
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def planes(tok, ranges):
    """All characters, 64 to a text, each among letters, digits, blanks."""
    chars = [chr(c) for a, b in ranges for c in range(a, b + 1)]
    h = 0xcbf29ce484222325
    for i in range(0, len(chars), 64):
        text = "".join("a%sb %s1%s\n%s'%ss" % (c, c, c, c, c)
                       for c in chars[i:i + 64])
        h = hash_ids(tok.encode(text, add_special_tokens=False).ids, h)
    return short(h)


def encode(tok, text, flags):
    """flags as in tokenizer.h; None where the library itself gives up."""
    tok.encode_special_tokens = not flags & 1
    try:
        return tok.encode(text, add_special_tokens=bool(flags & 2)).ids
    except BaseException as e:  # its panics are no Exceptions
        if "Panic" not in type(e).__name__:
            raise
        return None


def main():
    texts = TEXTS + random_texts(60)
    ranges = assigned()
    out = {"texts": texts, "repeated": REPEATED, "invalid": INVALID,
           "assigned": ranges, "tokenizers": {}}
    rng = random.Random(7)
    for path in sorted(glob.glob(os.path.join(HERE, "*.json"))):
        name = os.path.basename(path)
        if name in ("goldens.json", "unicode.json"):
            continue
        tok = Tokenizer.from_file(path)
        everything = (texts + [a * n for a, n in REPEATED]
                      + [bytes.fromhex(h).decode("utf-8", "replace")
                         for h in INVALID])
        g = {"size": max(tok.get_vocab().values()) + 1, "ids": [], "hash": [],
             "decoded": []}
        for i, text in enumerate(everything):
            row, back = [], []
            for flags in (0, 1, 3):
                ids = encode(tok, text, flags)
                if i < EXPLICIT:
                    g["ids"].append(ids)
                row.append("-" if ids is None else short(hash_ids(ids)))
            if ids is not None:
                for skip in (False, True):
                    back.append(short(fnv(tok.decode(
                        ids, skip_special_tokens=skip).encode())))
            # Equal hashes in short: most texts hold no special token.
            g["hash"].append(" ".join(row if len(set(row)) > 1 else row[:1]))
            g["decoded"].append(" ".join(back if len(set(back)) > 1
                                         else back[:1]))
        g["decode"] = []
        while len(g["decode"]) < 12:
            ids = [rng.randrange(g["size"] + 2) for _ in range(12)]
            both = [tok.decode(ids, skip_special_tokens=s)
                    for s in (False, True)]
            if "\0" not in both[0]:
                g["decode"].append([ids] + both)
        if not name.startswith(("split", "holes")):
            tok.encode_special_tokens = False
            g["planes"] = planes(tok, ranges)
        out["tokenizers"][name] = g
    out["patterns"] = []
    for pattern in PATTERNS:
        tok = with_pattern(pattern)
        h = 0xcbf29ce484222325
        for text in texts:
            h = hash_ids(tok.encode(text).ids, h)
        out["patterns"].append([pattern, short(h)])
    with open(os.path.join(HERE, "goldens.json"), "w", encoding="ascii") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
