"""`invar bench`: its report in every form, comparison with another command, and that sequences which
decode together are faster in total than one alone."""

import csv
import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
import unittest

from harness import INVAR, PATIENCE, CommandTest, need_smollm2

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHORT = ["--prefill", "16", "--decode", "4", "--repeat", "1"]


def key(result):
    return result["work"], result["tokens"], result["depth"], result["sequences"]


class BenchTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = need_smollm2()

    def bench(self, *arguments):
        result = self.run_invar("bench", self.model, *arguments, timeout=10 * PATIENCE)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout.decode()

    def test_json(self):
        flags = [*SHORT, "--depth", "0,24", "--batch", "1,3", "--kernels", "--json"]
        for _ in range(4):
            bench = json.loads(self.bench(*flags))
            # Ceiling and decode are measured one after the other, and other work may fall on one of them.
            if max(result["read_percent"] for result in bench["results"]) < 150:
                break
        self.assertEqual(
            [key(result) for result in bench["results"]],
            [
                ("prefill", 16, 0, 1),
                ("decode", 4, 0, 1),
                ("decode", 4, 0, 3),
                ("prefill", 24, 0, 1),
                ("decode", 4, 24, 1),
                ("decode", 4, 24, 3),
            ],
        )
        self.assertEqual(bench["threads"] > 0, True)
        self.assertRegex(bench["arithmetic_id"], r"^cpu-\d")
        by_key = {key(result): result for result in bench["results"]}
        for result in bench["results"]:
            self.assertEqual(len(result["runs"]), 1)
            self.assertGreater(result["tokens_per_second"], 0)
            self.assertGreater(result["read_percent"], 0)
            self.assertLess(result["read_percent"], 150)
        # Weights are read once a step for all sequences, keys and values once for each of them.
        weights, position = bench["streamed_bytes_per_token"], bench["kv_bytes_per_position"]
        self.assertEqual(position, 30 * 2 * 3 * 64 * 2)  # layers, k and v, heads, head_dim, fp16
        for depth in (0, 24):
            for sequences in (1, 3):
                result = by_key["decode", 4, depth, sequences]
                # Steps 2 to 5 of a reply see depth + 2 to depth + 5 positions (one more where the
                # first prompt was a single token and stood before).
                expected = weights / sequences + position * (max(depth, 1) + 3)
                self.assertLess(abs(result["bytes_per_token"] / expected - 1), 0.01)
        self.assertLess(
            abs(by_key["prefill", 16, 0, 1]["bytes_per_token"] * 16 - weights - 16 * position),
            weights * 0.01,
        )
        kernels = by_key["decode", 4, 0, 3]["kernels"]
        ops = {op["operation"]: op for op in kernels["operations"]}
        self.assertEqual(ops["attention"]["calls"], 30)
        self.assertEqual(ops["lm_head"]["calls"], 1)
        self.assertEqual(ops["lm_head"]["operations"], 2 * 3 * 49152 * 576)
        parts = sum(op["ms"] for op in kernels["operations"])
        parts += kernels["rest_of_forward_ms"] + kernels["outside_ms"]
        self.assertLess(abs(parts / kernels["step_ms"] - 1), 0.001)

    def test_table_and_csv(self):
        table = self.bench(*SHORT, "--batch", "1,2", "--kernels")
        self.assertLessEqual(max(map(len, table.splitlines())), 100)
        for word in ("prefill", "decode", "tokens/s", "GB/s", "gated_linear", "sampling"):
            self.assertIn(word, table)
        rows = list(csv.DictReader(io.StringIO(self.bench(*SHORT, "--batch", "1,2", "--csv"))))
        self.assertEqual([row["work"] for row in rows], ["prefill", "decode", "decode"])
        self.assertEqual([row["sequences"] for row in rows], ["1", "1", "2"])
        self.assertGreater(float(rows[0]["tokens_per_second"]), 0)

    def test_against(self):
        """The other command is a script that says 10 tokens/s, then 20, then 30."""
        with tempfile.TemporaryDirectory() as folder:
            state = os.path.join(folder, "round")
            script = (
                "import json,os,sys; f=sys.argv[1]; "
                "n=int(open(f).read())+1 if os.path.exists(f) else 1; open(f,'w').write(str(n)); "
                "print(json.dumps(dict(work='decode',tokens=4,tokens_per_second=10.0*n)));"
                "print(json.dumps(dict(work='decode',tokens=5,tokens_per_second=1.0)))"
            )
            command = shlex.join([sys.executable, "-c", script, state])
            flags = ["--prefill", "0", "--decode", "4", "--batch", "1", "--repeat", "3"]
            bench = json.loads(self.bench(*flags, "--against", command, "--json"))
        (comparison,) = bench["comparison"]
        self.assertEqual(comparison["theirs"], [10, 20, 30])
        ratios = [a / b for a, b in zip(comparison["ours"], comparison["theirs"])]
        self.assertAlmostEqual(comparison["ratio"], sorted(ratios)[1])
        self.assertEqual(
            comparison["ours"], [run["tokens_per_second"] for run in bench["results"][0]["runs"]]
        )

    def test_against_itself(self):
        other = shlex.join([INVAR, "bench", self.model, *SHORT, "--batch", "1", "--json"])
        table = self.bench(*SHORT, "--batch", "1", "--against", other)
        self.assertRegex(table, r"(?m)^decode +4 +0 +1 +[\d.]+ +[\d.]+ +[\d.]+x +[\d.]+x to ")

    def test_errors(self):
        def fails(code, text, *flags):
            lengths = [] if "--prefill" in flags else SHORT
            result = self.run_invar("bench", self.model, *lengths, "--batch", "1", *flags)
            self.assertEqual(result.returncode, code, result.stderr.decode())
            self.assertIn(text, result.stderr.decode())

        fails(2, "--depth", "--depth", "8192")
        fails(2, "'x' is not a whole number", "--depth", "0,x")
        fails(2, "nothing to measure", "--prefill", "0", "--decode", "0")
        fails(1, "failed with exit code 3", "--against", "exit 3")
        fails(1, "nothing was printed", "--against", "true")
        fails(1, "tokens_per_second", "--against", "echo {}")

    def test_sequences_together_are_faster_than_one(self):
        """The gate on batching: best of several runs in one process, so that other work on the
        machine, which slows both, does not decide."""
        flags = ["--prefill", "0", "--decode", "16", "--batch", "1,4", "--threads", "1"]
        for _ in range(4):
            bench = json.loads(self.bench(*flags, "--repeat", "5", "--json"))
            one, four = (
                max(run["tokens_per_second"] for run in result["runs"])
                for result in bench["results"]
            )
            if four >= 1.1 * one:
                break
        self.assertGreaterEqual(four, 1.1 * one)


class RandomModelTest(CommandTest):
    def test_families_load_and_reply(self):
        smollm2 = need_smollm2()
        with tempfile.TemporaryDirectory() as folder:
            for family in ("llama", "qwen2", "qwen3", "gemma3"):
                path = os.path.join(folder, family + ".gguf")
                tool = os.path.join(ROOT, "tools", "make_random_model.py")
                venv = os.path.join(ROOT, ".venv", "bin", "python")  # tools/setup.sh test makes it
                python = venv if os.path.exists(venv) else sys.executable
                command = [python, tool, "tiny-" + family, path, "--tokenizer", smollm2]
                made = subprocess.run(command, capture_output=True, check=False)
                self.assertEqual(made.returncode, 0, made.stderr.decode() + "\n(tools/setup.sh test installs packages)")
                info = self.run_invar("info", path, "--json")
                self.assertEqual(info.returncode, 0, info.stderr.decode())
                self.assertEqual(json.loads(info.stdout)["family"], family)
                flags = ["--prompt", "Hello", "--max-tokens", "4", "--temperature", "0", "--json"]
                run = self.run_invar("run", path, *flags, "--context", "256")
                self.assertEqual(run.returncode, 0, run.stderr.decode())
                self.assertGreaterEqual(len(json.loads(run.stdout)["token_ids"]), 1)


if __name__ == "__main__":
    unittest.main()
