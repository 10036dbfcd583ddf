r"""Masks against llguidance, an independent engine, with the same vocabulary.

Replies are drawn from what both allow, so that they write JSON without spaces between its parts. At each
token the two sets must be equal, but for what we allow and they do not: white space between the parts
(only a compact policy can be set there exactly), DEL in strings, "\/", surrogates as \u escapes and further
end tokens; and for what they allow and we do not: -0 as an integer, more than 19 digits, long exponents, and
\u escapes in values of enum.
ORACLE_FULL=1 takes all schemas; ORACLE_REPORT=1 prints what was compared.
"""

import collections
import json
import os
import random
import unittest
from pathlib import Path

import numpy
from corpus import all_schemas
from gguf import GGUFReader
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from probe import Probe
from tool_schemas import TOOLS
from validity import as_written, rewritten, without_nullable

FULL = os.environ.get("ORACLE_FULL") == "1"
REPORT = os.environ.get("ORACLE_REPORT") == "1"
STEPS = 40 if FULL else 25
# Compact JSON; a `oneOf` that we take is an `anyOf`.
POLICY = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":", "coerce_one_of": True}


def models_folder():
    if os.environ.get("INVAR_MODELS"):
        return Path(os.environ["INVAR_MODELS"])
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "invar" / "models"


MODEL = models_folder() / "smollm2-135m-instruct-q4_1.gguf"


def byte_of_letter():
    """GPT-2's letters for bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


class Vocabulary:
    """What llguidance asks of a tokenizer, read from the model file without any code of ours."""

    def __init__(self, path):
        fields = GGUFReader(path).fields
        letters = byte_of_letter()
        texts = fields["tokenizer.ggml.tokens"].contents()
        types = fields["tokenizer.ggml.token_type"].contents()
        self.eos_token_id = fields["tokenizer.ggml.eos_token_id"].contents()
        self.bos_token_id = None
        self.special_token_ids = [i for i, kind in enumerate(types) if kind != 1]
        self.tokens = [text.encode() if kind != 1 else bytes(letters[c] for c in text) for text, kind in zip(texts, types)]
        self.by_bytes = {token: i for i, token in enumerate(self.tokens)}

    def __call__(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        return [self.by_bytes[data[i : i + 1]] for i in range(len(data))]


THEIRS = {"number form", "unicode escape"}
# Its pattern leaves out the backslash, which llguidance allows; Python's re agrees with us.
THEIR_FAULT = "azure-pipelines: branchFilter"


class Place:
    """Where a JSON text stands: in a string, behind a backslash, in a number or between them."""

    def __init__(self, in_string=False, in_escape=False, num_hex=0, number=b""):
        self.in_string, self.in_escape, self.num_hex, self.number = in_string, in_escape, num_hex, number

    def after(self, token):
        """(the place after the token, policies that the token shows)"""
        in_string, in_escape, num_hex, number = self.in_string, self.in_escape, self.num_hex, self.number
        shown = {"unicode escape"} if num_hex else set()
        for byte in token:
            number = number + bytes([byte]) if not in_string and byte in b"+-.0123456789eE" else b""
            if number.startswith(b"-0") or len(number) > 15 or b"e" in number.lower():
                shown.add("number form")
            if num_hex:
                num_hex -= 1
            elif in_escape:
                in_escape = False
                num_hex = 4 if byte == ord("u") else 0
                shown |= {"escaped slash"} if byte == ord("/") else {"unicode escape"} if num_hex else set()
            elif byte == ord('"'):
                in_string = not in_string
            elif in_string:
                in_escape = byte == ord("\\")
                shown |= {"DEL"} if byte == 0x7F else set()
            elif byte in b" \n":
                shown.add("white space")
        return Place(in_string, in_escape, num_hex, number), shown


def without_format(schema):
    """Formats are compared with the test suite and jsonschema (test_schemas.py)."""
    return {key: value for key, value in schema.items() if key != "format"}


def bits_of(mask_hex, size):
    words = numpy.array([int(mask_hex[i : i + 16], 16) for i in range(0, len(mask_hex), 16)], dtype="<u8")
    return numpy.unpackbits(words.view(numpy.uint8), bitorder="little")[:size].astype(bool)


class MaskTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not MODEL.exists():
            raise AssertionError(f"{MODEL} is missing; run tools/fetch_models.py")
        cls.vocabulary = Vocabulary(MODEL)
        cls.tokenizer = LLTokenizer(TokenizerWrapper(cls.vocabulary))
        cls.probe = Probe(str(MODEL))
        cls.addClassCleanup(cls.probe.close)

    def their_bits(self, matcher):
        bits = numpy.unpackbits(numpy.frombuffer(matcher.compute_bitmask(), numpy.uint8), bitorder="little")
        return bits[: len(self.vocabulary.tokens)].astype(bool)

    def compare(self, schema, seed):
        """Steps compared, and differences by policy; None: llguidance refuses the schema."""
        with_policy = {**schema, "x-guidance": POLICY} if isinstance(schema, dict) else schema
        # no_forcing: all tokens, not only the one that a tokenizer would choose for a forced text.
        grammar = '%llguidance {"no_forcing": true}\nstart: %json ' + json.dumps(with_policy)
        matcher = LLMatcher(self.tokenizer, LLMatcher.grammar_from_lark(grammar))
        if matcher.is_error():
            return None
        rng, ids, place = random.Random(seed), [], Place()
        differences, num_steps = collections.Counter(), 0
        tokens = self.vocabulary.tokens
        ends = set(self.vocabulary.special_token_ids) - {self.vocabulary.eos_token_id}
        answer = self.probe.ask(schema, mask=True)
        while num_steps < STEPS:
            num_steps += 1
            ours = bits_of(answer["mask"], len(tokens))
            theirs = self.their_bits(matcher)
            for token in numpy.flatnonzero(ours != theirs):
                shown = place.after(tokens[token])[1]
                if token in ends:
                    shown = {"another end token"}
                if not (shown if ours[token] else shown & THEIRS):
                    text = b"".join(tokens[i] for i in ids)
                    who = "we allow" if ours[token] else "llguidance allows"
                    self.fail(f"only {who} {tokens[token]} after {text}\n{json.dumps(schema)[:2000]}")
                differences.update(shown)
            both = numpy.flatnonzero(ours & theirs)
            self.assertGreater(len(both), 0)
            closing = [t for t in both if tokens[t] and any(c in b'"}]' for c in tokens[t])]
            chosen = int(rng.choice(closing if closing and rng.random() < 0.4 else both))
            if chosen == self.vocabulary.eos_token_id:
                break
            ids.append(chosen)
            place = place.after(tokens[chosen])[0]
            self.assertTrue(matcher.consume_token(chosen))
            answer = self.probe.take(chosen)
            self.assertTrue(answer["taken"])
        return num_steps, differences

    def test_masks(self):
        differences, num_steps, num_schemas, num_refused = collections.Counter(), 0, 0, 0
        tools = [(f"tool: {name}", schema) for name, schema in TOOLS.items()]
        for index, (name, schema) in enumerate(all_schemas() if FULL else tools[::4]):
            # The same narrowing on both sides; formats are left to test_schemas.py.
            for change in (without_nullable, as_written, without_format):
                schema = rewritten(schema, change)
            if name.startswith(THEIR_FAULT) or "error" in self.probe.ask(schema):
                continue
            with self.subTest(name):
                result = self.compare(schema, index)
                if result is None:
                    num_refused += 1
                    continue
                num_schemas += 1
                num_steps += result[0]
                differences += result[1]
        if REPORT:
            print(f"{num_schemas} schemas, {num_steps} masks, {num_refused} schemas not taken by llguidance")
            print("tokens that only we allow:", dict(differences))
        self.assertGreater(num_steps, 5 * num_schemas)
        self.assertGreater(num_schemas, num_refused)


if __name__ == "__main__":
    unittest.main()
