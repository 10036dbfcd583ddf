"""D1: characters cut over tokens come out whole, each once, and the same whole or streamed."""

import json
import unittest

from case_harness import GENERATING, CaseTest, body_of, cut, steps_of, text_delta, text_of

BYTES = [bytes.fromhex(h) for h in ("e4", "b8", "ad", "f09f98", "8a", "ff", "41", "e282")]
TEXT = "中😊\ufffdA\ufffd"
WHOLE = b"".join(BYTES)


class CharactersTest(CaseTest):
    script = {
        "case": steps_of(*BYTES),
        "together": steps_of(*BYTES, together=True),
        "one": steps_of(WHOLE),
        # Ends by itself: the cut character is settled by the end token.
        "nothing": steps_of(b"\xe2\x82"),
        "surrogate": steps_of(b"\xed", b"\xa0", b"\x80", b"x"),
        "overlong": steps_of(b"\xc0", b"\xaf", b"\xf5"),
        "broken": steps_of(b"\xe2\x82", b"A", b"\xf0\x9f", b"\xe4\xb8", b"\xad"),
        **{f"at{i}": steps_of(*cut(WHOLE, i)) for i in range(1, len(WHOLE))},
    }

    def test_the_case(self):
        for route in GENERATING:
            with self.subTest(route):
                body = body_of(route, "KEY:case", 8)
                answer = self.ok(route, body)
                self.assertEqual(text_of(route, answer), TEXT)
                deltas = self.stream_text(route, body)
                if route == "/v1/chat/completions":
                    self.assertEqual(deltas.pop(0), "")  # beside the role
                if route == "/v1/completions":
                    self.assertEqual(deltas.pop(), "")  # beside finish_reason
                self.assertEqual(deltas, ["中", "😊", "\ufffd", "A", "\ufffd"])

    def test_what_the_ending_says(self):
        answer = self.ok("/v1/chat/completions", body_of("/v1/chat/completions", "KEY:case", 8))
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["usage"]["completion_tokens"], 8)
        body = body_of("/v1/chat/completions", "KEY:case", 8, stream_options={"include_usage": True})
        events = [e.data for e in self.stream("/v1/chat/completions", body)]
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 8)
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")
        answer = self.ok("/v1/messages", body_of("/v1/messages", "KEY:case", 8))
        self.assertEqual(answer["stop_reason"], "max_tokens")
        self.assertEqual(answer["usage"]["output_tokens"], 8)

    def test_no_chunk_for_a_byte_that_is_held(self):
        for route in ("/v1/chat/completions", "/v1/completions"):
            for fields in ({}, {"logprobs": True if "chat" in route else 1}):
                body = body_of(route, "KEY:case", 8, **fields)
                chunks = [e.data for e in self.stream(route, body)]
                texts = [text_delta(route, c) for c in chunks if c["choices"]]
                if "chat" in route:
                    texts.pop(0)  # the role
                texts.pop()  # the ending
                self.assertEqual(texts, ["中", "😊", "\ufffd", "A", "\ufffd"], route)

    def test_log_probabilities_keep_every_token(self):
        body = body_of("/v1/chat/completions", "KEY:case", 8, logprobs=True)
        whole = self.ok("/v1/chat/completions", body)["choices"][0]["logprobs"]["content"]
        self.assertEqual([bytes(entry["bytes"]) for entry in whole], BYTES)
        streamed = []
        for event in self.stream("/v1/chat/completions", body):
            for choice in event.data["choices"]:
                streamed += (choice["logprobs"] or {}).get("content") or []
        self.assertEqual(streamed, whole)

    def test_cuts_and_steps_do_not_matter(self):
        keys = ["together", "one", *(f"at{i}" for i in range(1, len(WHOLE)))]
        for key in keys:
            body = body_of("/v1/chat/completions", "KEY:" + key, 8)
            answer = self.ok("/v1/chat/completions", body)
            self.assertEqual(answer["choices"][0]["message"]["content"], TEXT, key)
            self.assertEqual("".join(self.stream_text("/v1/chat/completions", body)), TEXT, key)

    def test_other_broken_bytes(self):
        expected = {
            "nothing": "\ufffd",
            "surrogate": "\ufffd\ufffd\ufffdx",
            "overlong": "\ufffd\ufffd\ufffd",
            "broken": "\ufffdA\ufffd中",
        }
        for key, text in expected.items():
            for route in GENERATING:
                body = body_of(route, "KEY:" + key)
                self.assertEqual(text_of(route, self.ok(route, body)), text, (key, route))
                self.assertEqual("".join(self.stream_text(route, body)), text, (key, route))

    def test_a_stop_string_of_cut_characters(self):
        for stop, text in (("😊", "中"), ("\ufffdA", "中😊"), ("中😊\ufffd", "")):
            body = body_of("/v1/chat/completions", "KEY:case", 8, stop=stop)
            choice = self.ok("/v1/chat/completions", body)["choices"][0]
            self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (text, "stop"))
            self.assertEqual("".join(self.stream_text("/v1/chat/completions", body)), text)

    def test_json_is_ascii_safe(self):
        raw = self.server.post("/v1/completions", body_of("/v1/completions", "KEY:case", 8)).raw
        self.assertEqual(json.loads(raw.decode())["choices"][0]["text"], TEXT)


if __name__ == "__main__":
    unittest.main()
