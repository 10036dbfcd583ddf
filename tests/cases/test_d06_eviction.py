"""D6: conversations that push each other out of a small prefix cache never see foreign text."""

import random
import tempfile
import threading
import unittest
from pathlib import Path

from case_harness import FULL, Server, need_smollm2
from test_verify import golden_model

TURNS, CLIENTS = 3, 4


class EvictionTest(unittest.TestCase):
    def check(self, model, conversations, rounds, cache_mib, context, vocabulary, first, more):
        """Conversations of `first` ids, `more` at each further turn, in a cache of `cache_mib`, which
        holds a few of their pages."""
        flags = ("--parallel", str(CLIENTS), "--cache-ram", str(cache_mib), "--context", str(context),
                 "--kv-bytes", str(512 << 20))  # fmt: skip
        server = Server(self, None, flags, model)
        rng = random.Random(6)

        def words(n):
            return [rng.randrange(vocabulary) for _ in range(n)]

        turns = [[words(first), *(words(more) for _ in range(TURNS - 1))] for _ in range(conversations)]

        def say(prompt, **fields):
            body = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "return_token_ids": True, **fields}
            answer = server.post("/v1/completions", body)
            self.assertEqual(answer.status, 200, answer.raw)
            return answer.json["choices"][0]["token_ids"], answer.json["usage"]

        def talk(conversation, **fields):
            prompt, replies, cached = [], [], 0
            for turn in conversation:
                prompt = prompt + turn
                reply, usage = say(prompt, **fields)
                prompt = prompt + reply
                replies.append(reply)
                cached += usage["prompt_tokens_details"]["cached_tokens"]
            return replies, cached

        alone = [talk(conversation, cache_prompt=False) for conversation in turns]
        self.assertEqual(sum(cached for _, cached in alone), 0)
        self.assertEqual(len({str(replies) for replies, _ in alone}), conversations)

        # The cache is used: a turn finds the one before, when nobody comes between them.
        replies, cached = talk(turns[0])
        self.assertEqual(replies, alone[0][0])
        self.assertGreater(cached, 0)

        found, worst, done = [], [0.0], threading.Event()

        def client(mine):
            for index in mine:
                replies, _ = talk(turns[index])
                if replies != alone[index][0]:
                    found.append(index)

        def sample():
            is_last = False
            while not is_last:
                is_last = done.wait(0.05)
                worst[0] = max(worst[0], server.metrics()["invar_prefix_cache_bytes"])

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            for _ in range(rounds):
                order = list(range(conversations))
                rng.shuffle(order)
                threads = [threading.Thread(target=client, args=(order[i::CLIENTS],)) for i in range(CLIENTS)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        finally:
            done.set()
            sampler.join()
        self.assertEqual(found, [])
        self.assertGreater(server.metrics()["invar_prefix_cache_evictions_total"], 0)
        self.assertGreater(worst[0], 0)
        self.assertLessEqual(worst[0], cache_mib << 20)

    def test_a_tiny_model(self):
        with tempfile.TemporaryDirectory() as folder:
            model = golden_model("qwen3", Path(folder) / "qwen3")
            self.check(model, 8, 200 if FULL else 12, 1, 512, 90, 280, 60)

    def test_the_case(self):
        self.check(need_smollm2(), 8 if FULL else 4, 200 if FULL else 1, 24, 1024, 40000, 300, 120)


if __name__ == "__main__":
    unittest.main()
