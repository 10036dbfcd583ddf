"""The command line itself: help, flags that cannot work, files that cannot be read, completion."""

import os
import subprocess
import unittest

from harness import INVAR, CommandTest, tiny_gguf
from test_verify import golden_model

COMMANDS = ["run", "serve", "pull", "list", "cache", "info", "plan", "eval", "bench", "tokenize", "completion"]


class HelpTest(CommandTest):
    def test_help_names_all_commands_and_exit_codes(self):
        result = self.run_invar("--help")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        text = result.stdout.decode()
        for word in COMMANDS + ["Exit codes", "Example", "INVAR_MODELS"]:
            self.assertIn(word, text)

    def test_help_of_each_command(self):
        for command in COMMANDS:
            with self.subTest(command=command):
                result = self.run_invar(command, "--help")
                text = result.stdout.decode()
                self.assertEqual((result.returncode, result.stderr), (0, b""))
                self.assertIn(f"Usage: invar {command}", text)
                self.assertIn("Example", text)
                self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_help_of_run_has_groups_and_defaults(self):
        text = self.run_invar("run", "--help").stdout.decode()
        for group in ("Prompt:", "Length:", "Where it runs:", "Output:"):
            self.assertIn("\n" + group, text)
        self.assertIn("generation config", text)
        self.assertIn("Default: cpu.", text)

    def test_help_is_quick(self):
        with self.quick(0.1):
            self.run_invar("--help")

    def test_no_command_shows_help_and_fails(self):
        result = self.run_invar()
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"Usage", result.stderr)

    def test_version(self):
        result = self.run_invar("--version")
        text = result.stdout.decode()
        self.assertEqual(result.returncode, 0)
        self.assertRegex(
            text, r"\Ainvar \d+\.\d+\.\d+; cpu: arithmetic cpu-\d+, instruction set \w+.*\n\Z"
        )


class FlagTest(CommandTest):
    def test_unknown_names_get_the_nearest_known_one(self):
        for arguments, word in (
            (["rnu", "x"], "run"),
            (["run", "m", "--temprature", "1"], "--temperature"),
            (["run", "--max-token=5", "m"], "--max-tokens"),
            (["pull", "a/b", "--forse"], "--force"),
            (["plan", "m", "--contxt", "5"], "--context"),
            (["run", "m", "--backend", "cup"], "cpu"),
        ):
            with self.subTest(arguments=arguments):
                self.assert_fails(self.run_invar(*arguments), 2, f"did you mean {word}?")

    def test_values_out_of_range_name_flag_and_range(self):
        for flag, value, words in (
            ("--temperature", "2.5", ("0", "2")),
            ("--temperature", "nan", ("0", "2")),
            ("--temperature", "hot", ("0", "2")),
            ("--top-p", "0", ("0", "1")),
            ("--min-p", "-0.1", ("0", "1")),
            ("--threads", "0", ("1", "1024")),
            ("--threads", "4.5", ("1", "1024")),
            ("--max-tokens", "-1", ("1",)),
            ("--seed", "-3", ("0",)),
            ("--presence-penalty", "-3", ("-2", "2")),
            ("--logit-bias", "5", ("ID=BIAS",)),
            ("--logit-bias", "5=200", ("-100", "100")),
            ("--stop", "x" * 257, ("256",)),
            ("--activations", "9", ("8", "12")),
            ("--cpu-isa", "sse", ("portable", "avx2", "avxvnni", "avx512")),
        ):
            with self.subTest(flag=flag, value=value):
                with self.quick(2):
                    result = self.run_invar("run", "model", flag, value)
                self.assert_fails(result, 2, flag, *words)

    def test_combinations_that_cannot_work(self):
        for arguments, word in (
            (["run"], "MODEL is missing"),
            (["run", "m", "n"], "'n'"),
            (["run", "m", "--threads"], "--threads needs a value"),
            (["run", "m", "--prompt", ""], "--prompt is empty"),
            (["run", "m", "--prompt", "x", "--raw", "--system", "y"], "--system"),
            (["eval", "m"], "--text"),
            (["tokenize", "m", "text", "--file", "f"], "--file"),
            (["completion", "tcsh"], "bash, zsh, fish"),
            (["pull"], "SOURCE is missing"),
        ):
            with self.subTest(arguments=arguments):
                self.assert_fails(self.run_invar(*arguments), 2, word)

    def test_flags_that_the_backend_does_not_have(self):
        model = golden_model("llama", self.folder / "llama")
        (self.folder / "t.txt").write_text("some text")
        for command in (
            ["info"],
            ["plan"],
            ["bench", "--prefill", "0"],
            ["profile"],
            ["verify"],
            ["run", "--prompt", "x"],
            ["eval", "--text", str(self.folder / "t.txt")],
            ["serve", "--port", "0"],
        ):
            for flags in (["--cpu-isa", "portable"], ["--activations", "12"]):
                with self.subTest(command=command[0], flags=flags):
                    given = [command[0], model, *command[1:], "--backend", "reference", *flags]
                    self.assert_fails(self.run_invar(*given), 2, "the reference backend")

    def test_comparisons_exclude_each_other(self):
        text = self.folder / "t.txt"
        text.write_text("some text")
        result = self.run_invar(
            "eval", "m", "--text", str(text), "--against", "x", "--against-backend", "reference"
        )
        self.assert_fails(result, 2, "--against-backend")


class FileTest(CommandTest):
    """Files that cannot work, given to every command that opens one."""

    def commands(self, model):
        text = self.folder / "text.txt"
        text.write_text("Some text to work on.")
        return (
            ["run", model, "--prompt", "x"],
            ["info", model],
            ["plan", model],
            ["bench", model],
            ["tokenize", model, "x"],
            ["eval", model, "--text", str(text)],
        )

    def check(self, model, codes, *words):
        for arguments in self.commands(str(model)):
            with self.subTest(command=arguments[0]):
                with self.quick(2):
                    result = self.run_invar(*arguments)
                self.assertIn(result.returncode, codes, result.stderr.decode())
                self.assert_fails(result, result.returncode, *words)

    def test_missing(self):
        self.check("nosuchmodel", [3], "nosuchmodel", "invar list")
        self.check("/no/such/file.gguf", [3], "/no/such/file.gguf")

    def test_nearly_a_name(self):
        self.models.mkdir()
        (self.models / "tiny-model.gguf").write_bytes(tiny_gguf())
        self.check("tiny-modle", [3], "did you mean 'tiny-model'?")

    def test_unfinished_download(self):
        part = self.folder / "m.gguf.part"
        part.write_bytes(tiny_gguf())
        self.check(part, [3], "unfinished download", "invar pull")

    def test_empty(self):
        path = self.folder / "empty.gguf"
        path.write_bytes(b"")
        self.check(path, [3], "empty.gguf")

    def test_other_bytes(self):
        path = self.folder / "page.gguf"
        path.write_bytes(b"<!DOCTYPE html><html></html>" * 100)
        self.check(path, [3], "page.gguf")

    def test_cut_short(self):
        path = self.folder / "short.gguf"
        path.write_bytes(tiny_gguf()[:-100])
        self.check(path, [3], "short.gguf")

    def test_unknown_architecture_lists_known_ones(self):
        path = self.folder / "other.gguf"
        path.write_bytes(tiny_gguf())
        for arguments in (["info", str(path)], ["plan", str(path)]):
            self.assert_fails(self.run_invar(*arguments), 4, "invar-test-arch", "llama")

    def test_empty_folder(self):
        path = self.folder / "model"
        path.mkdir()
        self.check(path, [3, 4], str(path))

    def test_control_characters_in_names_are_escaped(self):
        result = self.run_invar("info", "\x1b[31mred")
        self.assertNotIn(b"\x1b", result.stderr)

    def test_eval_text_missing(self):
        self.assert_fails(
            self.run_invar("eval", "m", "--text", "/no/such.txt"), 3, "/no/such.txt"
        )


class ListTest(CommandTest):
    def test_empty(self):
        result = self.run_invar("list")
        self.assertEqual((result.returncode, result.stdout), (0, b""))
        self.assertIn(b"invar pull", result.stderr)

    def test_models_and_nothing_else(self):
        self.models.mkdir()
        data = tiny_gguf()
        for name in ("one.gguf", "two-00001-of-00002.gguf", "two-00002-of-00002.gguf"):
            (self.models / name).write_bytes(data)
        for name in ("one.gguf.part", "three.gguf.part", "three.gguf.part.json", "notes.txt"):
            (self.models / name).write_bytes(data)
        folder = self.models / "folder"
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"x" * 10)
        unfinished = self.models / "other.part"
        unfinished.mkdir()
        (unfinished / "config.json").write_text("{}")
        (unfinished / "model.safetensors").write_bytes(b"x")
        result = self.run_invar("list", "--names")
        self.assertEqual(result.stdout.decode().split(), ["folder", "one", "two"])
        table = self.run_invar("list").stdout.decode().splitlines()
        self.assertEqual(table[0].split(), ["NAME", "FORMAT", "SIZE", "MODIFIED"])
        self.assertEqual(len(table), 4)
        self.assertIn("safetensors", table[1])


class CompletionTest(CommandTest):
    def complete(self, *words):
        """What bash would offer after these words, the last of which is being typed."""
        script = (
            'source <("$INVAR" completion bash); COMP_WORDS=("$@"); COMP_WORDS[0]="$INVAR";'
            "COMP_CWORD=$(($# - 1)); _invar; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        result = subprocess.run(
            ["bash", "-c", script, "bash", "invar", *words],
            capture_output=True, text=True, env={**self.environment, "INVAR": INVAR},
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.split()

    def test_bash(self):
        self.assertEqual(self.complete("ru"), ["run"])
        self.assertEqual(set(COMMANDS) - set(self.complete("")), set())
        self.assertEqual(self.complete("run", "--temp"), ["--temperature"])
        self.assertEqual(self.complete("run", "--backend", "r"), ["reference"])
        self.assertEqual(self.complete("completion", "z"), ["zsh"])
        self.models.mkdir()
        (self.models / "my-model.gguf").write_bytes(tiny_gguf())
        self.assertEqual(self.complete("info", "my-"), ["my-model"])

    def test_every_flag_of_help_is_offered(self):
        for command in COMMANDS:
            offered = self.complete(command, "--")
            for line in self.run_invar(command, "--help").stdout.decode().splitlines():
                for word in line.strip().split("  ")[0].split():
                    if line.startswith("  -") and word.startswith("--"):
                        self.assertIn(word, offered)

    def test_other_shells(self):
        for shell, word in (("zsh", "#compdef invar"), ("fish", "complete -c invar")):
            result = self.run_invar("completion", shell)
            self.assertEqual(result.returncode, 0)
            self.assertIn(word, result.stdout.decode())
            for command in COMMANDS:
                self.assertIn(command, result.stdout.decode())


class PipeTest(CommandTest):
    def test_closed_pipe_ends_quietly(self):
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.run(
            [INVAR, "run", "--help"], stdout=writer, stderr=subprocess.PIPE, env=self.environment
        )
        os.close(writer)
        self.assertEqual((process.returncode, process.stderr), (141, b""))

    def test_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            process = subprocess.run(
                [INVAR, "--help"], stdout=full, stderr=subprocess.PIPE, env=self.environment
            )
        self.assertEqual(process.returncode, 1)
        self.assertIn(b"No space left", process.stderr)


if __name__ == "__main__":
    unittest.main()
