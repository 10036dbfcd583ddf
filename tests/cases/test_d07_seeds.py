"""D7: a seed gives its text in whatever company it is asked for."""

import threading
import unittest

from case_harness import FULL, CaseTest, need_smollm2

TOKENS = 64 if FULL else 24


class SeedsTest(CaseTest):
    model = staticmethod(need_smollm2)
    flags = ("--context", "1024", "--parallel", "8")

    def body(self, text="Tell me a story.", **fields):
        message = {"role": "user", "content": text}
        return {"messages": [message], "temperature": 1, "max_tokens": TOKENS, **fields}

    def say(self, **fields):
        answer = self.ok("/v1/chat/completions", self.body(**fields))
        return answer["choices"][0]["message"]["content"], answer["invar"]

    def test_the_case(self):
        alone, facts = self.say(seed=42, cache_prompt=False)
        self.assertEqual(facts["seed"], 42)

        def beside(others, first):
            """The text of seed 42 while `others` run, sent before or after them."""
            answers = [None] * len(others)

            def ask(i):
                answers[i] = self.say(**others[i])

            mine = []
            threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(others))]
            threads.insert(0 if first else len(threads), threading.Thread(target=lambda: mine.append(self.say(seed=42))))
            for thread in threads:
                thread.start()
                threading.Event().wait(0.01)
            for thread in threads:
                thread.join()
            self.assertEqual(mine[0][0], alone)
            return answers

        unseeded = beside([{}] * 7, first=True)
        seeded = beside([{"seed": i} for i in range(7)], first=False)
        self.assertEqual(self.say(seed=42)[0], alone)  # the cache is warm now
        again = beside([{"seed": i, "text": "Another prompt, of other length. " * i} for i in range(7)], first=False)
        self.assertGreater(len({text for text, _ in unseeded}), 1)
        self.assertNotEqual([text for text, _ in seeded], [text for text, _ in again])
        self.assertEqual(self.say(seed=3)[0], seeded[3][0])

    def test_seeds_are_named_and_work_again(self):
        answers = [self.say(max_tokens=8) for _ in range(10)]
        self.assertGreater(len({text for text, _ in answers}), 1)
        self.assertEqual(len({facts["seed"] for _, facts in answers}), 10)
        for text, facts in answers[:3]:
            self.assertEqual(self.say(max_tokens=8, seed=facts["seed"])[0], text)

    def test_streams_and_choices(self):
        whole, facts = self.say(seed=7, max_tokens=8)
        body = self.body(seed=7, max_tokens=8)
        self.assertEqual("".join(self.stream_text("/v1/chat/completions", body)), whole)
        choices = self.ok("/v1/chat/completions", self.body(seed=7, max_tokens=8, n=3))["choices"]
        texts = [choice["message"]["content"] for choice in choices]
        self.assertEqual(texts[0], whole)
        self.assertEqual(texts[2], self.say(seed=9, max_tokens=8)[0])

    def test_other_routes_name_their_seed(self):
        body = {"prompt": "Once", "temperature": 1, "max_tokens": 8}
        first = self.ok("/v1/completions", body)
        again = self.ok("/v1/completions", {**body, "seed": first["invar"]["seed"]})
        self.assertEqual(first["choices"][0]["text"], again["choices"][0]["text"])


if __name__ == "__main__":
    unittest.main()
