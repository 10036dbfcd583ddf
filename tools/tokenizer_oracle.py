#!/usr/bin/env python3
"""Token ids by Hugging Face's tokenizers for the vocabulary of a GGUF file: the oracle of
tests/tokenizer/oracle_test.cc.

usage: tokenizer_oracle.py MODEL.gguf [--variant NAME] --json OUT.json < TEXTS > IDS

Builds a tokenizer.json from the vocabulary as the model's own file is known to be (specs: section 5),
writes it to OUT.json, loads it with the `tokenizers` package and encodes each line of TEXTS, a JSON
string, without added BOS. IDS has one JSON list a line. --variant puts another pre-tokenizer or other
flags on the same vocabulary, to try what no small real model uses. Needs: tokenizers.
"""
import argparse
import json
import struct
import sys

from tokenizers import Tokenizer

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


# GGUF value type -> struct code
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def read_metadata(path):
    """The tokenizer.* keys of a GGUF file."""
    with open(path, "rb") as file:
        def take(fmt):
            return struct.unpack("<" + fmt, file.read(struct.calcsize("<" + fmt)))

        def text():
            return file.read(take("Q")[0]).decode("utf-8", "replace")

        def value(kind):
            if kind == 8:
                return text()
            if kind == 9:
                element, count = take("IQ")
                if element == 8:
                    return [text() for _ in range(count)]
                return list(take(f"{count}{SCALARS[element]}"))
            return take(SCALARS[kind])[0]

        magic, _, _, num_keys = take("4sIQQ")
        assert magic == b"GGUF", path
        found = {}
        for _ in range(num_keys):
            key = text()
            v = value(take("I")[0])
            if key.startswith("tokenizer.ggml."):
                found[key[len("tokenizer.ggml."):]] = v
        return found


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, use_regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


OWN_PRE = {
    "smollm": sequence({"type": "Digits", "individual_digits": True}, byte_level(use_regex=True)),
    "qwen2": sequence(split(QWEN2), byte_level()),
}
# variant -> pre_tokenizer, for byte-level vocabularies
VARIANTS = {
    "llama3": sequence(split(LLAMA3), byte_level()),
    "qwen35": sequence(split(QWEN35), byte_level()),
    "tekken": sequence(split(TEKKEN), byte_level()),
    "prefix": byte_level(prefix=True, use_regex=True),
    "digit-runs": sequence({"type": "Digits", "individual_digits": False}, byte_level(use_regex=True)),
    "removed": sequence(split(r"\s+", "Removed"), byte_level()),
    "previous": sequence(split(r"[aeiou ]", "MergedWithPrevious"), byte_level()),
    "next": sequence(split(r"[aeiou ]", "MergedWithNext"), byte_level()),
    "contiguous": sequence(split(r"[aeiou ]", "Contiguous"), byte_level()),
    "inverted": sequence(split(r"[a-zA-Zé中]+|[0-9]", "Removed", True), byte_level()),
    "ignore-merges": sequence(split(LLAMA3), byte_level()),
}


def byte_level_file(meta, variant, merges_as_pairs):
    tokens, types = meta["tokens"], meta["token_type"]
    merges = [[m[: (c := m.index(" ", 1))], m[c + 1:]] if merges_as_pairs else m for m in meta["merges"]]
    pre = meta["pre"]
    num_normal = sum(y == 1 for y in types)  # added tokens among them keep their ids only in the vocabulary
    return {
        "normalizer": {"type": "NFC"} if pre in ("qwen2", "qwen35") else None,
        "pre_tokenizer": VARIANTS[variant] if variant else OWN_PRE[pre],
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": variant == "ignore-merges",
            "vocab": {t: i for i, t in enumerate(tokens) if types[i] == 1 or i < num_normal}, "merges": merges,
        },
    }


def scored_file(meta):
    """Gemma's file: every way to put a token together from two others is a merge, best score first."""
    tokens, scores, types = meta["tokens"], meta["scores"], meta["token_type"]
    ids = {t: i for i, t in enumerate(tokens)}
    merges = []
    for token, i in ids.items():
        if types[i] != 1:
            continue
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                merges.append((-scores[i], ids[left], ids[right], left, right))
    merges.sort()
    return {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [ids["<bos>"]], "tokens": ["<bos>"]}},
        },
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
            "vocab": ids, "merges": [[m[3], m[4]] for m in merges],
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--variant", choices=sorted(VARIANTS), default=None)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    meta = read_metadata(arguments.model)
    if meta["model"] == "llama":
        document = scored_file(meta)
    else:
        document = byte_level_file(meta, arguments.variant, merges_as_pairs=meta["pre"] == "smollm")
    document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [
        {"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": y == 3}
        for i, (t, y) in enumerate(zip(meta["tokens"], meta["token_type"])) if y in (3, 4)
    ], **document}
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=False)
    tokenizer = Tokenizer.from_file(arguments.json)
    texts = [json.loads(line) for line in sys.stdin.buffer.read().decode("utf-8").split("\n") if line]
    for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
        print(json.dumps(encoding.ids))


if __name__ == "__main__":
    main()
