"""Replies of a server under every schema that it takes, validated by Python's jsonschema.

The models are tiny random ones with the vocabulary of SmolLM2, and SmolLM2, at temperatures up to 2: what
they say is noise, and it must be valid. Only a reply that was cut by the limit may be anything else. ORACLE_FULL=1
asks for all schemas with several seeds on every model; ORACLE_REPORT=1 prints the counts.
"""

import collections
import concurrent.futures
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from corpus import ROOT, all_schemas
from test_masks import MODEL
from tool_schemas import TOOLS
from validity import fault, validator

sys.path.append(str(ROOT / "tests" / "apps"))
from harness import ServerProcess  # noqa: E402

FULL = os.environ.get("ORACLE_FULL") == "1"
REPORT = os.environ.get("ORACLE_REPORT") == "1"
FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")


class Server(ServerProcess):
    def __init__(self, owner, model):
        super().__init__(owner, model, "--parallel", "16", "--alias", "m", "--context", "1024")
        self.wait_ready()

    def token(self, text):
        """The one token of the text."""
        (token,) = self.post("/tokenize", content=text, add_special=False)[1]["tokens"]
        return token

    def post(self, path, **body):
        """(status, body)"""
        data = json.dumps({"model": "m", **body}).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)


class ReplyTest(unittest.TestCase):
    def check_model(self, model, schemas, seeds, max_tokens, bias):
        """`bias` helps tokens that close something: noise rarely ends a string by itself."""
        server = Server(self, model)
        closing = [server.token(text) for text in ('"', '",', '"}', "}", "]")]
        counts, refused = collections.Counter(), set()

        def ask(work):
            (name, schema), seed = work
            if name in refused:
                return None
            rng = random.Random(f"{name} {seed}")
            temperature = rng.choice([0.5, 1, 1.5, 2])
            return server.post(
                "/v1/completions",
                prompt="JSON:",
                max_tokens=max_tokens,
                seed=seed,
                temperature=temperature,
                logit_bias={str(token): bias * temperature for token in closing},
                response_format={"type": "json_schema", "schema": schema},
            )

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for seed in range(seeds):
                works = [(item, seed) for item in schemas]
                for ((name, schema), _), result in zip(works, pool.map(ask, works)):
                    if result is None:
                        continue
                    status, answer = result
                    with self.subTest(name, model=Path(model).name, seed=seed):
                        if status != 200:
                            refused.add(name)
                            counts["schemas refused"] += 1
                            self.check_refusal(status, answer)
                            continue
                        choice = answer["choices"][0]
                        if choice["finish_reason"] == "length":
                            counts["replies cut by the limit"] += 1
                            continue
                        counts["valid replies"] += 1
                        self.assertEqual(choice["finish_reason"], "stop")
                        self.assertIsNone(fault(validator(schema), choice["text"]), choice["text"])
        if REPORT:
            print(f"{Path(model).name}: {len(schemas)} schemas, {dict(counts)}")
        self.assertGreater(counts["valid replies"], len(schemas) / 4)

    def check_refusal(self, status, answer):
        self.assertEqual(status, 400)
        message = answer["error"]["message"]
        self.assertIn(answer["error"]["code"], ("unsupported_schema", "schema_too_complex"))
        self.assertTrue(re.search(r"'[^']+' at #|the schema at #|no value can|too complex", message), message)

    def test_tiny_models(self):
        folder = tempfile.TemporaryDirectory(prefix="invar-oracle-")
        self.addCleanup(folder.cleanup)
        for family in FAMILIES if FULL else FAMILIES[:1]:
            path = Path(folder.name) / f"tiny-{family}.gguf"
            maker = [sys.executable, ROOT / "tools/make_random_model.py", f"tiny-{family}", path]
            subprocess.run([*maker, "--tokenizer", MODEL], check=True, stdout=subprocess.DEVNULL)
            schemas = all_schemas() if FULL else [(f"tool: {n}", s) for n, s in TOOLS.items()]
            self.check_model(path, schemas, 3 if FULL and family == FAMILIES[0] else 1, 100, 6)
            path.unlink()

    def test_smollm2(self):
        if not MODEL.exists():
            raise AssertionError(f"{MODEL} is missing; run tools/fetch_models.py")
        tools = [(f"tool: {name}", schema) for name, schema in TOOLS.items()]
        self.check_model(MODEL, tools if FULL else tools[::8], 3 if FULL else 1, 200 if FULL else 60, 2)


if __name__ == "__main__":
    unittest.main()
