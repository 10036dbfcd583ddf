"""D9: a schema that cannot be enforced is refused within a second, by name and place; one that can
is, whatever the sampler draws."""

import json
import time
import unittest

from case_harness import CaseTest, body_of

CHAT = "/v1/chat/completions"
DRAWN = {"steps": [{"logits": [], "other_logits": 0, "repeat": 600}]}  # every token is as likely

STRICT = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog", "中"]},
        "legs": {"type": "integer", "minimum": -3, "maximum": 120},
        "tags": {
            "type": "array",
            "items": {"type": "string", "maxLength": 4},
            "minItems": 1,
            "maxItems": 3,
        },
        "at": {
            "type": "object",
            "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 7}, "far": {"type": "boolean"}},
            "required": ["x", "far"],
            "additionalProperties": False,
        },
    },
    "required": ["kind", "legs", "tags", "at"],
    "additionalProperties": False,
}


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


class SchemaTest(CaseTest):
    # No <think>: a reply that is drawn could begin with it, and think as long as it likes.
    script = {
        "specials": {"<|im_start|>": 256, "<|im_end|>": 257},
        "default": DRAWN,
        "hello": {"text": "hello"},
    }

    def form(self, schema):
        return {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}

    def refused(self, schema, *words):
        body = body_of(CHAT, "x", response_format=self.form(schema)) if not isinstance(schema, bytes) else schema
        times = []
        while len(times) < 3 and min(times, default=1) >= 1:
            begin = time.monotonic()
            error = self.error(CHAT, body)
            times.append(time.monotonic() - begin)
        self.assert_quick(times, 1)
        for word in words:
            self.assertIn(word, error["message"])
        answer = self.ok(CHAT, body_of(CHAT, "KEY:hello"))  # the next one works
        self.assertEqual(answer["choices"][0]["message"]["content"], "hello")
        return error

    def test_the_refusals(self):
        error = self.refused({"pattern": "(?<=x)+y"}, "pattern", "#")
        self.assertEqual(error["code"], "unsupported_schema")
        deep = json.dumps(body_of(CHAT, "x", response_format=self.form(0)))
        text = '{"type":"object","properties":{"a":' * 5000 + '{"type":"string"}' + "}}" * 5000
        self.assertIn('"schema": 0', deep)
        self.refused(deep.replace('"schema": 0', '"schema":' + text).encode(), "nested deeper than 64")
        self.refused(nested(60), "nested deeper than 64")
        self.refused({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "$ref", "/properties/a")
        self.refused({"type": "string", "pattern": "(ab|c){1,9}" * 9000 + "x"}, "pattern")

    def test_more_refusals(self):
        inside = {"type": "object", "properties": {"a": {"items": {"not": {"type": "string"}}}}}
        for schema, words in (
            (inside, ("not", "/properties/a/items")),
            ({"type": "string", "pattern": r"(a)\1"}, ("pattern",)),
            ({"type": "string", "pattern": "(a+)+$" + "(?=b)"}, ("pattern",)),
            ({"type": "string", "pattern": "["}, ("pattern",)),
            ({"$ref": "#"}, ("$ref",)),
            ({"$ref": "http://example.com/x.json"}, ("$ref",)),
            ({"type": "array", "minItems": 4, "maxItems": 3}, ("no value can satisfy",)),
            ({"type": "integer", "minimum": 5, "maximum": 4}, ("no value can satisfy",)),
            ({"enum": []}, ("no value can satisfy",)),
            ({"type": "nothing"}, ("type",)),
        ):
            with self.subTest(json.dumps(schema)):
                self.refused(schema, *words)

    def test_tools_and_other_routes(self):
        bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=x)+y"}}}
        tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": bad}}
        error = self.error(CHAT, body_of(CHAT, "x", tools=[tool]))
        self.assertIn("pattern", error["message"])
        form = {"format": {"type": "json_schema", "name": "x", "schema": {"pattern": "(?<=x)+y"}}}
        self.assertIn("pattern", self.error("/v1/responses", body_of("/v1/responses", "x", text=form))["message"])

    def test_what_is_enforced(self):
        for seed in range(200):
            body = body_of(CHAT, "x", 600, response_format=self.form(STRICT), temperature=2, seed=seed)
            choice = self.ok(CHAT, body)["choices"][0]
            text = choice["message"]["content"]
            self.assertEqual(choice["finish_reason"], "stop", text)
            self.assertEqual(text, text.strip())
            value = json.loads(text)
            self.assertEqual(list(value), STRICT["required"])
            self.assertIn(value["kind"], STRICT["properties"]["kind"]["enum"])
            self.assertIs(type(value["legs"]), int)
            self.assertTrue(-3 <= value["legs"] <= 120)
            self.assertTrue(1 <= len(value["tags"]) <= 3)
            self.assertTrue(all(type(tag) is str and len(tag) <= 4 for tag in value["tags"]))
            self.assertEqual(sorted(value["at"]), ["far", "x"])
            self.assertTrue(0 <= value["at"]["x"] <= 7 and type(value["at"]["far"]) is bool)


if __name__ == "__main__":
    unittest.main()
