#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_tables.inc: character classes and NFC data as compact ranges.

usage: make_unicode_tables.py > src/tokenizer/unicode_tables.inc
needs: unicodedata2==16.0.0 and tokenizers==0.23.* (pip install --target FOLDER; PYTHONPATH=FOLDER)

Ids must equal those of Hugging Face's tokenizers, whose parts know different Unicode versions (found
by probing all code points): its regex engine has the categories of 16.0, its Digits splitter (Rust's
char::is_numeric) those of 17.0, and its NFC data ends at about 9.0. So categories are taken from
16.0, the 13 numbers that 17.0 added are named here, and of the NFC data only what the library itself
applies is kept, by asking it.
"""
import sys

import unicodedata2 as ucd
from tokenizers import normalizers

if ucd.unidata_version != "16.0.0":
    sys.exit(f"make_unicode_tables: unicodedata2 16.0.0 is needed, this is {ucd.unidata_version}")

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
NUMBERS_OF_17 = [*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)]
WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
# The bits of CharClass in unicode.h.
UPPER, LOWER, OTHER_LETTER, MARK, NUMBER, SPACE, NUMERIC, WORD = (1 << i for i in range(8))


def char_class(c):
    category = ucd.category(chr(c))
    bits = {"Lu": UPPER, "Lt": UPPER, "Ll": LOWER, "Lm": OTHER_LETTER, "Lo": OTHER_LETTER}.get(category, 0)
    if category[0] == "M":
        bits |= MARK
    if category[0] == "N":
        bits |= NUMBER | NUMERIC
    if c in NUMBERS_OF_17:
        bits |= NUMERIC
    if c in WHITE_SPACE:
        bits |= SPACE
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc") or 0x24B6 <= c <= 0x24E9 or c in (0x200C, 0x200D):
        bits |= WORD
    return bits


def ranges(value):
    """(first, last, value) for every maximal run of code points with a value that is not 0."""
    out = []
    for c in CODE_POINTS:
        v = value(c)
        if v == 0:
            continue
        if out and out[-1][1] == c - 1 and out[-1][2] == v:
            out[-1][1] = c
        else:
            out.append([c, c, v])
    return out


nfd, nfc = normalizers.NFD(), normalizers.NFC()


def combining(c):
    """The canonical combining class, 0 where the library does not reorder the character."""
    k = ucd.combining(chr(c))
    if k == 0:
        return 0
    other = "\u0345" if k < 240 else "\u0323"  # classes 240 and 220: one of the two orders is wrong
    pair = "a" + other + chr(c) if k < 240 else "a" + chr(c) + other
    return k if nfd.normalize_str(pair) != pair else 0


def decomposition(c):
    text = ucd.decomposition(chr(c))
    if not text or text[0] == "<" or nfd.normalize_str(chr(c)) == chr(c):
        return None
    return [int(x, 16) for x in text.split()]


def table(name, kind, rows):
    print(f"constexpr {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        cell = " {" + ", ".join(f"0x{x:X}" for x in row) + "},"
        if len(line) + len(cell) > 98:
            print(line)
            line = "   "
        line += cell
    print(line)
    print("};\n")


print("// Made by tools/make_unicode_tables.py; not edited by hand.\n")
print("// {first, last, bits of CharClass}")
table("kCharClassRanges", "ClassRange", ranges(char_class))
print("// {first, last, canonical combining class}")
table("kCombiningRanges", "ClassRange", ranges(combining))
pairs = [(c, d) for c in CODE_POINTS if (d := decomposition(c)) is not None]
print("// {composed, first, second or 0}: canonical decompositions, one step")
table("kDecompositions", "Decomposition", [(c, d[0], d[1] if len(d) > 1 else 0) for c, d in pairs])
composing = [(d[0], d[1], c) for c, d in pairs if len(d) == 2 and nfc.normalize_str(chr(d[0]) + chr(d[1])) == chr(c)]
print("// {first, second, composed}: the pairs that NFC joins")
table("kCompositions", "Composition", sorted(composing))
