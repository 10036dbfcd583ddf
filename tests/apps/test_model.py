"""Commands on a real model: SmolLM2-135M-Instruct (tools/fetch_models.py)."""

import hashlib
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from harness import INVAR, PATIENCE, CommandTest, need_gemma, need_smollm2, until, without_progress

QUESTION = "What is the capital of Germany?"


def token_sha(ids):
    return hashlib.sha256(b"".join(struct.pack("<i", i) for i in ids)).hexdigest()


class ModelTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = need_smollm2()

    def answer(self, *arguments, prompt=QUESTION, **more):
        result = self.run_invar(
            "run", self.model, "--prompt", prompt, "--json", "--context", "512", *arguments, **more
        )
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return json.loads(result.stdout)


class RunTest(ModelTest):
    def test_json(self):
        reply = self.answer("--max-tokens", "8", "--temperature", "0")
        self.assertIn("Berlin", reply["text"])
        self.assertEqual(reply["token_sha"], token_sha(reply["token_ids"]))
        self.assertRegex(reply["arithmetic_id"], r"^cpu-\d")
        self.assertIn(reply["finish_reason"], ("stop", "length"))
        usage = reply["usage"]
        self.assertEqual(usage["completion_tokens"], len(reply["token_ids"]))
        self.assertEqual(
            usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"]
        )
        for key in ("load_ms", "queue_ms", "prefill_ms", "decode_ms", "decode_tokens_per_second"):
            self.assertGreaterEqual(reply["timings"][key], 0)
        self.assertEqual(reply["model"], self.model)

    def test_plain_piped_and_stats_agree(self):
        flags = ["--max-tokens", "8", "--temperature", "0", "--context", "512"]
        prompt = ["--prompt", QUESTION]
        plain = self.run_invar("run", self.model, *prompt, *flags, "--stats")
        piped = self.run_invar("run", self.model, *flags, stdin=QUESTION.encode() + b"\n")
        reply = self.answer("--max-tokens", "8", "--temperature", "0")
        self.assertEqual(plain.stdout, piped.stdout)
        self.assertEqual(plain.stdout.decode(), reply["text"].rstrip("\n") + "\n")
        self.assertIn(reply["token_sha"], plain.stderr.decode())
        self.assertRegex(plain.stderr.decode(), r"tokens/s")
        self.assertEqual(piped.stderr, b"")

    def test_seed_is_reported_and_repeats(self):
        flags = ["--max-tokens", "12", "--temperature", "1.5"]
        first = self.answer(*flags)
        again = self.answer(*flags, "--seed", str(first["seed"]))
        self.assertEqual(first["token_ids"], again["token_ids"])
        other = self.answer(*flags)
        self.assertNotEqual(first["seed"], other["seed"])
        plain = self.run_invar(
            "run", self.model, "--prompt", "Hi", "--context", "512", "--max-tokens", "2",
            "--temperature", "1",
        )
        self.assertRegex(plain.stderr.decode(), r"^seed \d+$")

    def test_stop_raw_and_bias(self):
        raw = self.answer("--raw", "--max-tokens", "6", "--temperature", "0", prompt="1, 2, 3, 4,")
        self.assertTrue(raw["text"].startswith(" 5"), raw["text"])
        stopped = self.answer(
            "--raw", "--max-tokens", "20", "--temperature", "0", "--stop", "7", prompt="1, 2, 3, 4,"
        )
        self.assertEqual((stopped["finish_reason"], stopped["stop_text"]), ("stop", "7"))
        self.assertNotIn("7", stopped["text"])
        first = raw["token_ids"][0]
        biased = self.answer(
            "--raw", "--max-tokens", "1", "--temperature", "0", "--logit-bias", f"{first}=-100",
            prompt="1, 2, 3, 4,",
        )
        self.assertNotEqual(biased["token_ids"][0], first)

    def test_prompt_that_is_too_long(self):
        result = self.run_invar(
            "run", self.model, "--context", "256", "--prompt", "word " * 400, "--max-tokens", "4"
        )
        self.assert_fails(result, 2, "256")

    def test_template_file(self):
        template = self.folder / "t.jinja"
        template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        prompt = "1, 2, 3, 4,"
        flags = ["--max-tokens", "4", "--temperature", "0"]
        plain = self.answer("--chat-template", str(template), *flags, prompt=prompt)
        self.assertEqual(plain["token_ids"], self.answer("--raw", *flags, prompt=prompt)["token_ids"])
        template.write_text("{% for m in %}")
        result = self.run_invar(
            "run", self.model, "--prompt", "x", "--chat-template", str(template)
        )
        self.assert_fails(result, result.returncode, "t.jinja")
        self.assertIn(result.returncode, (2, 3))

    def test_context_beyond_the_window(self):
        result = self.run_invar("run", self.model, "--context", "9999999", "--prompt", "x")
        self.assert_fails(result, 2, "context", "8192")

    def test_name_in_the_models_folder(self):
        self.environment["INVAR_MODELS"] = os.path.dirname(self.model)
        name = os.path.basename(self.model)[: -len(".gguf")]
        result = self.run_invar("info", name, "--json")
        self.assertEqual(json.loads(result.stdout)["path"], self.model)

    def test_closed_pipe(self):
        process = subprocess.run(
            ["bash", "-c", f'set -o pipefail; "{INVAR}" run "{self.model}" --prompt '
             f"'Count to fifty.' --context 512 --max-tokens 60 | head -c 1 >/dev/null"],
            env=self.environment, capture_output=True, timeout=PATIENCE,
        )
        self.assertEqual(without_progress(process.stderr), b"")
        self.assertIn(process.returncode, (0, 141))


class TerminalTest(ModelTest):
    """The chat, on a pseudo-terminal."""

    def start(self, *arguments):
        self.process, self.terminal = None, None
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.execve(
                INVAR, [INVAR, "run", self.model, "--context", "512", *arguments],
                {**self.environment, "TERM": "xterm", "XDG_STATE_HOME": str(self.folder / "state")},
            )
        self.pid = pid
        self.addCleanup(self.end)
        self.screen = b""

    def end(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self.terminal)

    def read_until(self, pattern, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.screen):
            left = deadline - time.monotonic()
            self.assertGreater(left, 0, self.screen)
            if select.select([self.terminal], [], [], left)[0]:
                try:
                    self.screen += os.read(self.terminal, 65536)
                except OSError:
                    break
        found = re.search(pattern, self.screen)
        self.assertTrue(found, self.screen)
        self.screen = self.screen[found.end() :]
        return found

    def exit_code(self):
        ended = []

        def has_ended():
            ended[:] = os.waitpid(self.pid, os.WNOHANG)
            return ended[0] != 0

        until(has_ended, "the program ends")
        return os.waitstatus_to_exitcode(ended[1])

    def read_prompt(self):
        """Until it reads lines. libedit shows the prompt before it takes over the terminal, and a key
        that comes between them means something else; people are slower."""
        self.read_until(rb">>> ")
        until(lambda: not termios.tcgetattr(self.terminal)[3] & termios.ICANON, "libedit reads")

    def type(self, text):
        os.write(self.terminal, text)

    def test_chat(self):
        self.start("--max-tokens", "8", "--temperature", "0")
        self.read_prompt()
        self.type(QUESTION.encode() + b"\r")
        self.read_until(rb"Berlin")
        self.read_prompt()
        self.type(b"/stats\r")
        self.read_until(rb"token_sha [0-9a-f]{64}")
        self.type(b"/nonsense\r")
        self.read_until(rb"no command /nonsense")
        self.type(b"/help\r")
        self.read_until(rb"/reset")
        self.type(b"/reset\r")
        self.read_until(rb"forgotten")
        self.type(b"/exit\r")
        self.assertEqual(self.exit_code(), 0)
        history = (self.folder / "state" / "invar" / "history").read_text()
        self.assertIn(QUESTION, history)

    def test_ctrl_c_stops_the_reply_then_the_program(self):
        self.start("--temperature", "0", "--no-history")
        self.read_prompt()
        self.type(b"Write a very long story about the sea.\r")
        self.read_until(rb"\r\n\w+")  # the reply has begun
        self.type(b"\x03")
        self.read_until(rb"\[stopped\]")
        self.read_prompt()
        self.type(b"\x03")
        self.assertEqual(self.exit_code(), 130)
        self.assertFalse((self.folder / "state").exists())

    def test_ctrl_d_ends(self):
        self.start()
        self.read_prompt()
        self.type(b"\x04")
        self.assertEqual(self.exit_code(), 0)

    def test_the_model_cannot_drive_the_terminal(self):
        escape = self.run_invar("tokenize", self.model, "--ids", stdin=b"\x1b").stdout.decode().strip()
        flags = ["--raw", "--prompt", "x", "--max-tokens", "3", "--logit-bias", f"{escape}=100"]
        piped = self.run_invar("run", self.model, "--context", "512", *flags)
        self.assertEqual(piped.stdout, b"\x1b\x1b\x1b\n")
        self.start(*flags)
        self.read_until(rb"\\x1b\\x1b\\x1b")

    def test_json_needs_a_prompt(self):
        self.start("--json")
        self.read_until(rb"--json needs --prompt")
        self.assertEqual(self.exit_code(), 2)


class BaseModelTest(CommandTest):
    def test_no_chat_template(self):
        with self.quick(2):
            result = self.run_invar("run", need_gemma(), "--prompt", "x")
        self.assert_fails(result, 2, "chat template", "--raw", "--chat-template")


class InspectTest(ModelTest):
    def test_info(self):
        info = json.loads(self.run_invar("info", self.model, "--json").stdout)
        self.assertEqual(info["family"], "llama")
        self.assertEqual(info["num_layers"], 30)
        self.assertEqual(info["hidden_size"], 576)
        self.assertEqual(info["vocab_size"], 49152)
        self.assertEqual(info["context"], 8192)
        self.assertEqual(info["formats"][0]["format"], "Q4_1")
        self.assertLessEqual({"Q4_1", "Q8_0"}, {f["format"] for f in info["formats"]})
        self.assertIn(2, [end["id"] for end in info["end_ids"]])
        self.assertEqual(info["chat_template"]["error"], None)
        self.assertTrue(info["chat_template"]["system"])
        self.assertFalse(info["chat_template"]["tools"])
        self.assertEqual(info["runs_on"]["backend"], "cpu")
        text = self.run_invar("info", self.model).stdout.decode()
        for word in ("llama", "Q4_1", "8192", "chat template", "cpu-"):
            self.assertIn(word, text)

    def test_plan(self):
        small = self.run_invar("plan", self.model, "--context", "256", "--json")
        plan = json.loads(small.stdout)
        self.assertEqual((small.returncode, plan["fits"]), (0, True))
        # 30 layers, keys and values, 3 heads of 64, at 2 or 4 bytes.
        self.assertIn(plan["kv_bytes"], [30 * 2 * 3 * 64 * 256 * size for size in (2, 4)])
        twice = self.run_invar("plan", self.model, "--context", "256", "--sequences", "2", "--json")
        self.assertEqual(json.loads(twice.stdout)["kv_bytes"], 2 * plan["kv_bytes"])
        huge = self.run_invar("plan", self.model, "--sequences", "1024")
        self.assertIn(huge.returncode, (0, 1))
        self.assert_fails(self.run_invar("plan", self.model, "--context", "8193"), 2, "8192")

    def test_tokenize(self):
        result = self.run_invar("tokenize", self.model, "Hello, world!", "--json")
        tokens = json.loads(result.stdout)
        self.assertEqual("".join(json.loads(t["piece"]) for t in tokens["tokens"]), "Hello, world!")
        ids = self.run_invar("tokenize", self.model, "--ids", stdin=b"Hello, world!").stdout.split()
        self.assertEqual([int(i) for i in ids], [t["id"] for t in tokens["tokens"]])
        special = "<|im_start|>"
        as_text = self.run_invar("tokenize", self.model, special, "--ids").stdout.split()
        as_special = self.run_invar("tokenize", self.model, special, "--ids", "--special")
        self.assertEqual(as_special.stdout.split(), [b"1"])
        self.assertGreater(len(as_text), 1)
        lines = self.run_invar("tokenize", self.model, "a\x1bb").stdout
        self.assertNotIn(b"\x1b", lines)

    def test_eval_against_itself_and_saved_logits(self):
        text = self.folder / "text.txt"
        text.write_text("The sea is wide and the ships are small. " * 8)
        saved = self.folder / "logits"
        common = ["eval", self.model, "--text", str(text), "--tokens", "48", "--window", "32"]
        result = self.run_invar(*common, "--json", "--save-logits", str(saved))
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        plain = json.loads(result.stdout)
        self.assertEqual(plain["windows"], 2)
        self.assertGreater(plain["perplexity"], 1)
        self.assertLess(plain["perplexity"], 100)
        # One arithmetic: other threads and chunks, the same bits, so a divergence of exactly zero.
        result = self.run_invar(
            *common, "--json", "--against-logits", str(saved), "--threads", "1"
        )
        same = json.loads(result.stdout)["against"]
        self.assertEqual((same["max_kl"], same["top1_agreement"]), (0, 1))
        self.assertEqual(same["perplexity"], plain["perplexity"])
        other = self.run_invar(*common[:-2], "--window", "16", "--against-logits", str(saved))
        self.assert_fails(other, 1, "--window")
        saved.write_bytes(saved.read_bytes()[:-4])
        self.assert_fails(self.run_invar(*common, "--against-logits", str(saved)), 3, "bytes")

    def test_eval_against_the_reference_backend(self):
        text = self.folder / "text.txt"
        text.write_text("Water boils at one hundred degrees.")
        result = self.run_invar(
            "eval", self.model, "--text", str(text), "--tokens", "6", "--against-backend",
            "reference", "--json",
        )
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        against = json.loads(result.stdout)["against"]
        self.assertGreater(against["mean_kl"], 0)
        self.assertLess(against["mean_kl"], 0.05)


if __name__ == "__main__":
    unittest.main()
