"""Constraints against the JSON Schema test suite, tool definitions and schemas of well-known files.

Every schema is either enforced or refused by keyword and place within a second; what is enforced lets
through nothing that the suite or jsonschema calls invalid, and all that is valid but for what
docs/serving.md leaves out. ORACLE_FULL=1 draws more replies; ORACLE_REPORT=1 prints what was refused.
"""

import collections
import itertools
import json
import os
import re
import unittest

from corpus import all_schemas, suite_groups
from probe import Probe
from tool_schemas import TOOLS
from validity import fault, narrow_validator, validator

FULL = os.environ.get("ORACLE_FULL") == "1"
REPORT = os.environ.get("ORACLE_REPORT") == "1"
REPLIES = 40 if FULL else 3
STEPS = 300

# What a constraint may write is narrower than the schema here, by decision (ADR 6, specs/api.md 7.3).
NARROWER = {
    r"^optional/bignum.json: (integer|number)$": "numbers have at most 19 digits",
    r"^optional/ecmascript-regex.json: ECMA 262 \\[DW] matches": "engines disagree beyond ASCII",
    r"^optional/format/(date-time|time).json: ": "second 60 and small t and z are not written",
    r"^optional/format/email.json: ": "quoted names, address literals and ~ are not written",
    r"^optional/format/hostname.json: ": "names of more than one label of 63 characters",
    r"^optional/format/ipv6.json: ": "IPv4 in the last places is not written",
    r"^format.json: ": "formats are enforced; the suite calls them annotations here",
}
# Refused without a keyword to name.
NO_VALUE = "no value can satisfy the schema"


def spellings(value, limit=24):
    """JSON texts of a value: members in any order, whole numbers with and without a fraction."""
    if isinstance(value, float):
        texts = [json.dumps(value), format(value, ".15f").rstrip("0").rstrip(".")]
        if value.is_integer() and abs(value) < 1e18:
            texts.append(str(int(value)))
        return texts
    if type(value) is int:
        return [str(value), f"{value}.0"]
    if isinstance(value, list):
        product = itertools.product(*[spellings(item) for item in value])
        return ["[" + ",".join(items) + "]" for items in itertools.islice(product, limit)]
    if isinstance(value, dict):
        texts = []
        for members in itertools.permutations(value.items()):
            options = [[quoted(k) + ":" + text for text in spellings(v)] for k, v in members]
            for chosen in itertools.product(*options):
                texts.append("{" + ",".join(chosen) + "}")
                if len(texts) == limit:
                    return texts
        return texts
    return [quoted(value)]


def quoted(value):
    return json.dumps(value, ensure_ascii=False)


def place(schema, pointer):
    """What stands at #/a/b of the schema; KeyError: nothing."""
    for key in pointer.lstrip("#").split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        schema = schema[int(key)] if isinstance(schema, list) else schema[key]
    return schema


class SchemaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.probe = Probe()
        cls.addClassCleanup(cls.probe.close)

    def test_tools_are_enforced(self):
        for name, schema in TOOLS.items():
            with self.subTest(name):
                self.assertNotIn("error", self.probe.ask(schema))

    def test_suite_instances(self):
        """Invalid ones are never accepted; valid ones are, but for what is documented."""
        num_valid = num_invalid = 0
        narrowed = collections.Counter()
        for name, schema, tests in suite_groups():
            texts = [spellings(test["data"]) for test in tests]
            # A lone surrogate cannot be written to the probe; none is a string of ours.
            texts = [[t for t in some if t.isascii() or t.encode(errors="ignore").decode() == t] for some in texts]
            answer = self.probe.ask(schema, texts=list(itertools.chain(*texts)))
            if "error" in answer:
                continue
            accepted = iter(answer["accepted"])
            for test, some in zip(tests, texts):
                passes = any([next(accepted) for _ in some])
                with self.subTest(name, test=test["description"]):
                    if not test["valid"]:
                        num_invalid += 1
                        self.assertFalse(passes, "an invalid instance is accepted")
                    elif passes:
                        num_valid += 1
                    else:
                        why = next((w for p, w in NARROWER.items() if re.match(p, name)), None)
                        if not narrow_validator(schema).is_valid(test["data"]):
                            why = "types and members that the schema does not speak of"
                        self.assertIsNotNone(why, f"a valid instance is refused: {test['data']}")
                        narrowed[why] += 1
        if REPORT:
            print(f"suite: {num_valid} valid instances accepted, {num_invalid} invalid ones refused")
            for why, count in narrowed.most_common():
                print(f"  {count:4} not written: {why}")
        self.assertGreater(num_valid, 250)
        self.assertGreater(num_invalid, 350)

    def test_everything_is_enforced_or_refused_by_name(self):
        """Random replies of what is enforced validate."""
        num_accepted = num_replies = num_cut = 0
        refused = collections.Counter()
        for name, schema in all_schemas():
            wanted = {"seed": 1, "count": REPLIES, "steps": STEPS}
            answer = self.probe.ask(schema, replies=wanted)
            with self.subTest(name):
                self.assertLess(answer["ms"], 1000)
                if "error" in answer:
                    refused[self.check_refusal(schema, answer["error"])] += 1
                    continue
                num_accepted += 1
                checked_by = validator(schema)
                for text in answer["replies"]:
                    if text is None:
                        num_cut += 1
                        continue
                    num_replies += 1
                    self.assertIsNone(fault(checked_by, text), f"{text}\n{json.dumps(schema)[:2000]}")
        if REPORT:
            print(f"{num_accepted} schemas enforced, {num_replies} replies valid, {num_cut} cut")
            print("refused:", ", ".join(f"{k} {n}" for k, n in refused.most_common()))
        self.assertGreater(num_accepted, 500)
        self.assertGreater(num_replies, 2 * num_cut)

    def check_refusal(self, schema, message):
        """The keyword that the message names, or what else is wrong."""
        if message.startswith(NO_VALUE):
            return "no value"
        if message.startswith("schema too complex"):
            return "too complex"
        found = re.search(r"(?:keyword '([^']+)'|the schema) at (#\S*?)(?: \(|:| must| names)", message)
        self.assertIsNotNone(found, message)
        at = place(schema, found.group(2))
        if found.group(1) and isinstance(at, dict) and "hold together" not in message:
            self.assertIn(found.group(1), at, message)
        return found.group(1) or "not a schema"


if __name__ == "__main__":
    unittest.main()
