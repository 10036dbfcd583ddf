"""D2: stop strings over tokens: found wherever the text is cut, and nothing is ever taken back."""

import unittest

from case_harness import CaseTest, body_of, cut, steps_of, text_delta, text_of

PIECES = ["a E", "ND", "_", "X E", "ND", "! tail"]
WHOLE = "".join(PIECES).encode()
STOP = ["END_OF", "END!"]
TEXT = "a END_X "
BOTH = ("/v1/chat/completions", "/v1/completions")


class StopTest(CaseTest):
    script = {
        "case": steps_of(*PIECES),
        "slow": [*steps_of(PIECES[0]), *steps_of(PIECES[1], delay_ms=1500), *steps_of(*PIECES[2:])],
        "together": steps_of(*PIECES, together=True),
        "one": steps_of(WHOLE),
        "bytes": {"text": WHOLE.decode(), "cut": 1},
        "twice": steps_of("abab", "abac"),
        "ends": steps_of("text EN"),
        "think": steps_of("<think>", "END! is", " not it</think>", "yes END!", " no"),
        **{f"at{i}": steps_of(*cut(WHOLE, i)) for i in range(1, len(WHOLE))},
        **{f"at{i}.{j}": steps_of(*cut(WHOLE, i, j)) for i in range(1, len(WHOLE), 2) for j in range(i + 1, len(WHOLE), 3)},
    }

    def check(self, route, key, stop=STOP, text=TEXT, reason="stop"):
        body = body_of(route, "KEY:" + key, stop=stop)
        answer = self.ok(route, body)
        self.assertEqual(text_of(route, answer), text, key)
        self.assertEqual(answer["choices"][0]["finish_reason"], reason)
        deltas = self.stream_text(route, body)
        self.assertEqual("".join(deltas), text, key)
        return answer["choices"][0]

    def test_the_case(self):
        for route in BOTH:
            choice = self.check(route, "case")
            self.assertEqual(choice["stop_reason"], "END!")

    def test_cuts_and_steps_do_not_matter(self):
        for key in self.script:
            if key.startswith("at") or key in ("together", "one", "bytes"):
                self.check("/v1/chat/completions", key)
        for key in ("together", "one", "bytes", "at5"):
            self.check("/v1/completions", key)

    def test_only_what_may_begin_a_stop_is_held(self):
        for route in BOTH:
            body = body_of(route, "KEY:slow", stop=STOP)
            events = [e for e in self.stream(route, body) if text_delta(route, e.data)]
            self.assertEqual(text_delta(route, events[0].data), "a ")
            # Before the second step, which takes 1.5 s.
            self.assertGreater(events[1].seconds - events[0].seconds, 0.5)
            self.assertEqual([text_delta(route, e.data) for e in events], ["a ", "END_X "])

    def test_other_stops(self):
        self.check("/v1/chat/completions", "twice", ["abac"], "abab")
        self.check("/v1/chat/completions", "twice", "b", "a")
        self.check("/v1/chat/completions", "twice", ["zz"], "abababac")
        self.check("/v1/chat/completions", "twice", None, "abababac")
        self.check("/v1/chat/completions", "twice", [], "abababac")
        self.check("/v1/chat/completions", "case", ["END", "END_X"], "a ")
        # What was held is delivered when nothing follows.
        self.check("/v1/chat/completions", "ends", STOP, "text EN")
        self.check("/v1/chat/completions", "one", [*STOP, *(f"no{i}" for i in range(14))])

    def test_reasoning_is_not_searched(self):
        body = body_of("/v1/chat/completions", "KEY:think", stop="END!")
        message = self.ok("/v1/chat/completions", body)["choices"][0]["message"]
        self.assertEqual(message["content"], "yes ")
        self.assertEqual(message["reasoning_content"], "END! is not it")

    def test_the_stop_itself_when_asked_for(self):
        body = body_of("/v1/chat/completions", "KEY:case", stop=STOP, include_stop_str_in_output=True)
        answer = self.ok("/v1/chat/completions", body)
        self.assertEqual(answer["choices"][0]["message"]["content"], TEXT + "END!")
        self.assertEqual("".join(self.stream_text("/v1/chat/completions", body)), TEXT + "END!")

    def test_messages(self):
        body = body_of("/v1/messages", "KEY:case", stop_sequences=STOP)
        answer = self.ok("/v1/messages", body)
        self.assertEqual(text_of("/v1/messages", answer), TEXT)
        self.assertEqual((answer["stop_reason"], answer["stop_sequence"]), ("stop_sequence", "END!"))
        self.assertEqual("".join(self.stream_text("/v1/messages", body)), TEXT)

    def test_bad_stops(self):
        bad = ([str(i) for i in range(17)], "", ["a", ""], 3, [3], {"a": 1}, ["x" * 257], True)
        for route in BOTH:
            for stop in bad:
                error = self.error(route, body_of(route, "KEY:case", stop=stop))
                self.assertRegex(error["param"], r"^stop(\[\d+\])?$", stop)
            for stop in ([str(i) for i in range(17)], "", 3):  # as reported
                self.assertEqual(self.error(route, body_of(route, "KEY:case", stop=stop))["param"], "stop")
        self.error("/v1/messages", body_of("/v1/messages", "KEY:case", stop_sequences=[""]))


if __name__ == "__main__":
    unittest.main()
