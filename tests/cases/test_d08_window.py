"""D8: what does not fit the window is refused with the figures; nothing is cut away silently."""

import unittest

from case_harness import GENERATING, CaseTest, body_of, text_of

WINDOW = 256
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


class WindowTest(CaseTest):
    script = {
        "default": {"text": "y" * 1000, "cut": 1},
        # As long as its text: every token counts.
        "template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    flags = ("--context", str(WINDOW))

    def refused(self, route, prompt, max_tokens, asked, **fields):
        error = self.error(route, body_of(route, "p" * prompt, max_tokens, **fields))
        message = error["message"]
        self.assertIn(str(WINDOW), message)
        self.assertIn(str(prompt), message)
        if route != "/v1/messages":
            if asked:
                self.assertIn(f"asks for {asked}", message)
            self.assertEqual(error["code"], "context_length_exceeded")
        else:
            self.assertEqual(error["type"], "invalid_request_error")

    def test_the_case(self):
        for route in GENERATING:
            for stream in (True, False):
                with self.subTest(route, stream=stream):
                    self.refused(route, 300, None, None, stream=stream)
                    self.refused(route, 300, 10, 10, stream=stream)
                    if route != "/v1/messages":
                        self.refused(route, 200, 100, 100, stream=stream)
                    self.refused(route, 256, None, None, stream=stream)
                    self.refused(route, 256, 1, 1, stream=stream)

    def test_the_rest_of_the_window(self):
        for route in (CHAT, TEXT, "/v1/responses"):
            answer = self.ok(route, body_of(route, "p" * 200))
            self.assertEqual(len(text_of(route, answer)), 56)
            if route == "/v1/responses":
                self.assertEqual(answer["incomplete_details"]["reason"], "max_output_tokens")
                self.assertEqual(answer["usage"]["output_tokens"], 56)
            else:
                self.assertEqual(answer["choices"][0]["finish_reason"], "length")
                self.assertEqual(answer["usage"]["completion_tokens"], 56)
            self.assertEqual("".join(self.stream_text(route, body_of(route, "p" * 200))), "y" * 56)

    def test_what_fits_exactly(self):
        for route in GENERATING:
            answer = self.ok(route, body_of(route, "p" * 255, 1))
            self.assertEqual(text_of(route, answer), "y")
            answer = self.ok(route, body_of(route, "p" * 200, 56))
            self.assertEqual(text_of(route, answer), "y" * 56)

    def test_messages_end_at_the_window(self):
        answer = self.ok("/v1/messages", body_of("/v1/messages", "p" * 200, 100))
        self.assertEqual(answer["stop_reason"], "model_context_window_exceeded")
        self.assertEqual(answer["usage"]["output_tokens"], 56)

    def test_counts_do_not_cut(self):
        body = body_of(CHAT, "p" * 300)
        answer = self.ok(CHAT + "/input_tokens", body)
        self.assertEqual(answer["input_tokens"], 300)
        answer = self.ok("/v1/messages/count_tokens", body_of("/v1/messages", "p" * 300))
        self.assertEqual(answer["input_tokens"], 300)

    def test_several_prompts_and_choices(self):
        error = self.error(TEXT, {"prompt": ["short", "p" * 300], "max_tokens": 4})
        self.assertEqual(error["code"], "context_length_exceeded")
        self.refused(CHAT, 300, 1, 1, n=2)

    def test_fields_that_would_cut(self):
        for field, value in (("truncate_prompt_tokens", 100), ("truncation", "auto")):
            answer = self.server.post(CHAT, body_of(CHAT, "p" * 300, 4, **{field: value}))
            self.assertEqual(answer.status, 400, answer.raw)

    def test_the_next_request_works(self):
        self.refused(CHAT, 300, None, None)
        self.assertEqual(text_of(CHAT, self.ok(CHAT, body_of(CHAT, "x", 3))), "yyy")


class ClampTest(CaseTest):
    """--clamp-max-tokens lowers what is asked for and says so; a prompt is still never cut."""

    script = WindowTest.script
    flags = (*WindowTest.flags, "--clamp-max-tokens")

    def test_clamped(self):
        answer = self.ok(CHAT, body_of(CHAT, "p" * 200, 100))
        self.assertEqual(answer["usage"]["completion_tokens"], 56)
        self.assertTrue(answer["invar"]["warnings"])
        self.error(CHAT, body_of(CHAT, "p" * 256, 100))


if __name__ == "__main__":
    unittest.main()
