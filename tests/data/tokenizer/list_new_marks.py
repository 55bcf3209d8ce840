#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table NEW_MARKS of src/model/unicode.c.

    pip install tokenizers==0.23.3 unicodedata2
    python3 list_new_marks.py

The tokenizers library normalises by the data of Unicode 9: what came later
neither combines nor moves. Lists those characters, asking the library.
"""
import unicodedata2 as unicode
from tokenizers import normalizers

NFC, NFD = normalizers.NFC(), normalizers.NFD()

new = set()
for c in range(0x300, 0x110000):
    if 0xd800 <= c < 0xe000:
        continue
    # U+0345 has the highest class: every mark must move before it.
    if (unicode.combining(chr(c)) not in (0, 240)
            and NFC.normalize_str("\u0345" + chr(c)) == "\u0345" + chr(c)):
        new.add(c)
    parts = unicode.normalize("NFD", chr(c))
    if NFD.normalize_str(chr(c)) != parts:
        new.add(c)
        # One of the parts is new as well; U+0307 is not.
        new.update(ord(p) for p in (parts[1:] if "\u0307" not in parts
                                    else parts[:1]))
ranges = []
for c in sorted(new):
    if ranges and ranges[-1][1] == c - 1:
        ranges[-1][1] = c
    else:
        ranges.append([c, c])
print(", ".join("{0x%x, 0x%x}" % tuple(r) for r in ranges))
