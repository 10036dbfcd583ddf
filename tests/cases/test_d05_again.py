"""D5: the same prompt again, shorter and longer, with and without a prefix cache: equal texts, and
cached_tokens says what was found."""

import unittest

from case_harness import CaseTest, Server, need_smollm2

BLOCK = 256  # positions of a page


class AgainTest(CaseTest):
    model = staticmethod(need_smollm2)
    references = {}  # without a cache
    flags = ("--context", "1024", "--parallel", "2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.without = Server(cls, None, (*cls.flags, "--cache-ram", "0"), cls.model())
        text = "Rivers rise in hills, and lakes lie between them; seas are salt. " * 60
        cls.ids = cls.server.post("/tokenize", {"content": text}).json["tokens"]

    def say(self, server, ids, max_tokens=8):
        body = {"prompt": ids, "max_tokens": max_tokens, "temperature": 0}
        answer = server.post("/v1/completions", body)
        self.assertEqual(answer.status, 200, answer.raw)
        answer = answer.json
        self.assertEqual(answer["usage"]["prompt_tokens"], len(ids))
        self.assertNotEqual(answer["choices"][0]["text"], "")
        cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return answer["choices"][0]["text"], answer["invar"]["token_sha"], cached

    def prompt(self, first, length):
        """A prompt that shares nothing with those of other tests: its first id is its own."""
        return [1000 + first, *self.ids[: length - 1]]

    def check(self, ids, at_least):
        text, sha, cached = self.say(self.server, ids)
        if tuple(ids) not in self.references:
            self.references[tuple(ids)] = self.say(self.without, ids)
        self.assertEqual((text, sha, 0), self.references[tuple(ids)])
        self.assertGreaterEqual(cached, at_least)
        self.assertLessEqual(cached, max(0, len(ids) - 1))
        return cached

    def test_the_case(self):
        prompt = self.prompt(0, BLOCK + 100)
        self.assertEqual(self.check(prompt, 0), 0)
        self.check(prompt, BLOCK)
        self.check(prompt[:-5], BLOCK)
        self.check(prompt + self.ids[-20:], BLOCK)
        self.check(prompt, BLOCK)

    def test_whole_blocks_and_one_token(self):
        for first, length in ((1, BLOCK), (2, BLOCK + 1), (3, 1), (4, 2)):
            prompt = self.prompt(first, length)
            at_least = BLOCK - 1 if length >= BLOCK else 0  # the last token is always computed
            self.assertEqual(self.check(prompt, 0), 0, length)
            self.check(prompt, at_least)
            self.check(prompt + self.ids[-20:], at_least)
            self.check(prompt, at_least)

    def test_who_wants_no_cache(self):
        prompt = self.prompt(5, BLOCK + 20)
        self.check(prompt, 0)
        body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "cache_prompt": False}
        answer = self.ok("/v1/completions", body)
        self.assertEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(answer["choices"][0]["text"], self.say(self.without, prompt)[0])

    def test_salts_share_nothing(self):
        prompt = self.prompt(6, BLOCK + 20)
        self.check(prompt, 0)
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "cache_salt": "other"}
        for cached in (0, len(prompt) - 1):
            usage = self.ok("/v1/completions", body)["usage"]
            self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], cached)


if __name__ == "__main__":
    unittest.main()
