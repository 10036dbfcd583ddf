"""The command line of `invar serve` as launchers of llama-server write it (specs/api.md 16)."""

import json
import subprocess
import unittest

from harness import INVAR, PATIENCE, CommandTest

# specs/api.md 16.2, line by line; `*` families as llama-server names them.
A = """
--model -m --alias -a --served-model-name --name --host --port --ctx-size -c --max-model-len
--context --parallel -np --max-num-seqs --threads -t --threads-http --batch-size -b --ubatch-size
-ub --n-gpu-layers -ngl --gpu-layers --split-mode -sm --tensor-split -ts --main-gpu -mg --device
-dev --cache-type-k --cache-type-v -ctk -ctv --mlock --load-mode -lm --metrics --slots --no-slots
--api-key --api-key-file --chat-template-file --chat-template --chat-template-kwargs
--reasoning-format --reasoning -rea --reasoning-effort --reasoning-budget
--reasoning-budget-message --skip-chat-parsing --temp --top-k --top-p --min-p --repeat-penalty
--repeat-last-n --presence-penalty --frequency-penalty --seed -s --n-predict -n --ignore-eos
--cache-prompt --no-cache-prompt --cache-ram -cram --rope-scaling --rope-scale --rope-freq-base
--rope-freq-scale --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow
--yarn-beta-fast --model-draft -md --spec-type --spec-draft-n-max --spec-draft-p-min --drafter
--log-file --log-disable --log-jsonl --log-colors --log-timestamps --log-prefix --verbosity -lv
--verbose -v --ui --no-ui --webui --cors-origins --timeout -to --sse-ping-interval --api-prefix
--any-model-name --clamp-max-tokens --strict-fields --keep-attribution --metrics-open
--metrics-compat --allowed-hosts --insecure-no-key --max-body-bytes --max-queue --key-max-running
--drain-timeout --termination-log --listen-fd --no-speculative --cpu-isa --config
""".split()
W = """
--threads-batch -tb --flash-attn -fa --mmap --no-mmap --no-warmup --warmup --numa --props --jinja
--cache-reuse --slot-prompt-similarity --cache-idle-slots --ctx-checkpoints --checkpoint-min-step
--kv-unified --swa-full --defrag-thold --cont-batching --cpu-moe --n-cpu-moe --no-kv-offload
--no-repack --no-host --op-offload --poll --poll-batch --prio --prio-batch --cpu-mask
--cpu-mask-batch --cpu-range --cpu-range-batch --cpu-strict --cpu-strict-batch --perf --offline
--cors-methods --cors-headers
""".split()
R = """
--no-jinja --samplers --sampler-seq --mirostat --mirostat-lr --mirostat-ent --dynatemp-range
--dynatemp-exp --typical --xtc-probability --xtc-threshold --dry-multiplier --dry-base
--dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --top-n-sigma --adaptive-target
--adaptive-decay --grammar --grammar-file --json-schema --json-schema-file --logit-bias
--context-shift --no-cont-batching --override-kv --override-tensor --lora --lora-scaled
--lora-init-without-apply --control-vector --control-vector-scaled --control-vector-layer-range
--mmproj --mmproj-url --image-min-tokens --image-max-tokens --embedding --rerank --pooling --hf-repo
-hf --hf-file --model-url --log-prompts-dir --slot-save-path --media-path --path --tools --agent
--mcp-servers-config --mcp-servers-json --ui-mcp-proxy --models-dir --models-preset --models-max
--models-autoload --rpc --cors-credentials --ssl-key-file --ssl-cert-file --reuse-port
""".split()

# What a flag may be given where any value will do.
VALUES = {"integer": "3", "number": "0.25", "string": "x", "boolean": None}


class LaunchTest(CommandTest):
    def table(self):
        result = self.run_invar("--help=json")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return json.loads(result.stdout)

    def assert_fatal(self, code, name, *words, arguments, program=INVAR, **environment):
        result = subprocess.run(
            [program, *arguments],
            capture_output=True,
            timeout=PATIENCE,
            env={**self.environment, **environment},
        )
        message = result.stderr.decode()
        self.assertEqual(result.returncode, code, message)
        last = message.splitlines()[-1]
        self.assertTrue(last.startswith(f"fatal: {name}: "), message)
        for word in words:
            self.assertIn(word, last)
        return message

    # A model that is not there: what passes the flags ends with exit code 3.
    def assert_taken(self, *arguments, **environment):
        arguments = ["--model", str(self.folder / "none.gguf"), "--port", "0", *arguments]
        return self.assert_fatal(3, "model", "none.gguf", arguments=arguments, **environment)


class TableTest(LaunchTest):
    def test_every_flag_is_in_its_class(self):
        found = {}
        for flag in self.table():
            self.assertEqual(set(flag), {"name", "aliases", "arity", "type", "default", "env", "class"})
            for name in [flag["name"], *flag["aliases"]]:
                self.assertNotIn(name, found, "two flags of one name")
                found[name] = flag["class"]
        for names, letter in ((A, "A"), (W, "W"), (R, "R")):
            for name in names:
                self.assertEqual((name, found.get(name)), (name, letter))

    def test_help_lists_every_long_flag_quickly(self):
        text = self.run_invar("serve", "--help").stdout.decode()
        words = set(text.split())
        for flag in self.table():
            for name in [flag["name"], *flag["aliases"]]:
                self.assertIn(name, words)
        with self.quick(0.1):
            self.run_invar("serve", "--help")

    def test_ignored_flags_are_said_once_each(self):
        for flag in self.table():
            if flag["class"] != "W":
                continue
            with self.subTest(flag=flag["name"]):
                value = VALUES.get(flag["type"])
                given = [flag["name"], *([value] if flag["arity"] == "1" and value else [])]
                if flag["type"] == "choice" and flag["arity"] == "1":
                    given.append("0")
                message = self.assert_taken(*given, *given)
                warnings = [x for x in message.splitlines() if flag["name"] in x]
                self.assertEqual(len(warnings), 1, message)
                self.assertIn("warning", warnings[0])

    def test_refused_flags_end_the_start(self):
        for flag in self.table():
            if flag["class"] != "R":
                continue
            with self.subTest(flag=flag["name"]):
                given = [flag["name"]] + (["3"] if flag["arity"] == "1" else [])
                self.assert_fatal(2, "usage", flag["name"], arguments=["serve", "m", *given])

    def test_values_that_ask_for_nothing_pass(self):
        message = self.assert_taken(
            *("--mirostat 0 --xtc-probability 0.0 --dry-multiplier 0 --top-n-sigma -1").split(),
            *("--typical 1.00 --no-context-shift --pooling none --dynatemp-range 0").split(),
            *("-ctk f16 --cache-type-v f16 --rope-freq-base 0 -ngl 0 -sm none").split(),
        )
        self.assertNotIn("warning", message)


class FormTest(LaunchTest):
    def setUp(self):
        super().setUp()
        self.server = self.folder / "llama-server"
        self.server.symlink_to(INVAR)

    def test_both_forms(self):
        self.assert_taken()
        arguments = ["-m", str(self.folder / "gone.gguf"), "--port=0"]
        self.assert_fatal(3, "model", "gone.gguf", arguments=arguments, program=str(self.server))
        self.assert_fatal(2, "usage", "twice", arguments=["serve", "a", "--model", "b"])
        self.assert_fatal(2, "usage", "MODEL is missing", arguments=["serve"])
        self.assert_fatal(2, "usage", "'b'", arguments=["serve", "a", "b"])

    def test_help_and_version_under_the_other_name(self):
        def run(*arguments):
            return subprocess.run([self.server, *arguments], capture_output=True, timeout=PATIENCE)

        self.assertIn(b"--load-mode", run("--help").stdout)
        self.assertEqual(len(run("--version").stdout.splitlines()), 1)
        self.assertEqual(json.loads(run("--help=json").stdout), self.table())

    def test_unknown_flags_name_the_nearest_at_once(self):
        for given, near in (("--prot", "--port"), ("--ctx-sizes=5", "--ctx-size"), ("-ngll", "-ngl")):
            with self.quick(1):
                self.assert_fatal(2, "usage", f"did you mean {near}?", arguments=["-m", "x", given, "1"])

    def test_the_last_one_wins_under_any_name(self):
        self.assert_taken("--ctx-size", "auto", "-c", "5")
        self.assert_fatal(2, "usage", "-c", "auto", arguments=["-m", "x", "--max-model-len", "5", "-c", "five"])
        self.assert_taken("--ctx_size", "8")  # underscores, as llama-server
        self.assert_taken("-fa", "--flash-attn", "on", "--no-flash-attn", "-fa", "auto")
        self.assert_taken("--no-ui", "--ui", "--no-strict-fields", "--strict-fields=off")

    def test_values_that_may_be_left_out(self):
        for value in ("1", "0", "true", "off", "auto"):
            self.assert_taken("-fa", value)
        # Another word is the model, though it be a part of "on|off|auto".
        self.assert_fatal(3, "model", "nowhere/o", arguments=["serve", "--port", "0", "-fa", "nowhere/o"])
        self.assert_fatal(3, "model", "'n'", arguments=["serve", "--port", "0", "-fa", "n"])

    def test_bad_values_name_flag_value_and_range(self):
        for arguments, words in (
            (["--port", "65536"], ("--port", "65536", "65535")),
            (["-c", "-1"], ("-c", "-1", "16777216")),
            (["-np", "-2"], ("-np", "-2", "1024")),
            (["-ngl", "most"], ("-ngl", "most", "all")),
            (["-ctk", "q8_0"], ("-ctk", "q8_0", "f16")),
            (["--temp", "9"], ("--temp", "9", "5")),
            (["--load-mode", "ram"], ("ram", "mlock")),
            (["--rope-scaling", "yarn"], ("--rope-scaling", "yarn")),
            (["--chat-template", "llama2"], ("llama2", "--chat-template-file")),
            (["--chat-template-kwargs", "[1]"], ("--chat-template-kwargs", "object")),
            (["--chat-template-kwargs", '{"a":[1]}'], ("'a'", "scalar")),
            (["--chat-template-kwargs", '{"tools":1}'], ("tools",)),
            (["--host", "/run/invar.sock"], ("--host", ".sock")),
            (["--strict-fields=maybe"], ("--strict-fields", "maybe", "off")),
            (["--api-prefix", "llm"], ("--api-prefix", "'llm'", "begins with /")),
            (["--api-prefix", "/a?b"], ("--api-prefix", "/a?b")),
            (["--cors-origins", "http://a,app.example"], ("--cors-origins", "app.example")),
            (["--metrics-compat", "vllm,tgi"], ("--metrics-compat", "tgi", "llamacpp")),
            (["--threads-batch", "x"], ("--threads-batch", "'x'", "whole number")),
            (["--defrag-thold", "x"], ("--defrag-thold", "'x'", "number")),
            (["-sm", "best"], ("-sm", "best", "layer")),
            (["--cpu-strict", "2"], ("--cpu-strict", "2")),
            (["--numa=maybe"], ("--numa", "maybe", "isolate")),
            (["--port"], ("--port needs a value",)),
            (["--alias", "--port", "1"], ("--alias needs a value",)),
        ):
            with self.subTest(arguments=arguments):
                self.assert_fatal(2, "usage", *words, arguments=["-m", "x", *arguments])

    def test_flags_are_checked_before_files_are_opened(self):
        log = self.folder / "server.log"
        self.assert_fatal(2, "usage", "--prt", arguments=["-m", "x", "--log-file", str(log), "--prt", "1"])
        for arguments, words in (
            (["-m", "x", "--cors-origins", "app.example"], ("--cors-origins",)),
            (["-m", "x", "y"], ("twice",)),
            ([], ("MODEL is missing",)),
            (
                ["x", "--chat-template", "chatml", "--chat-template-file", "y"],
                ("--chat-template", "--chat-template-file"),
            ),
        ):
            self.assert_fatal(2, "usage", *words, arguments=["serve", "--log-file", str(log), *arguments])
        self.assertFalse(log.exists())

    def test_a_cache_on_disk_needs_the_cache(self):
        for off in (["--no-cache-prompt"], ["--cache-ram", "0"]):
            given = ["-m", "x", "--cache-disk", str(self.folder / "pages"), *off]
            self.assert_fatal(2, "usage", "--cache-disk", off[0], arguments=given)
            self.assert_taken("--cache-disk", "off", *off)
            given = ["-m", "x", "--state-cache-bytes", "1000000", *off]
            self.assert_fatal(2, "usage", "--state-cache-bytes", off[0], arguments=given)

    def test_drafters_are_refused_with_their_own_code(self):
        for given in (["--drafter", "d.gguf"], ["-md", "d.gguf"], ["--spec-type", "ngram-mod"]):
            self.assert_fatal(4, "unsupported", "drafting", arguments=["-m", "x", *given])
        self.assertIn("no drafter", self.assert_taken("--drafter", "auto"))


class SourceTest(LaunchTest):
    """Flag, variable, --config, default."""

    def config(self, text):
        path = self.folder / "server.conf"
        path.write_text(text)
        return str(path)

    def test_config_file(self):
        path = self.config("# ours\n\nport = 0\nalias = a, b\nno-ui = true\nmetrics-x = 1\n")
        self.assert_fatal(2, "usage", f"{path}:6", "metrics-x", arguments=["-m", "x", "--config", path])
        path = self.config("port = 65536\n")
        self.assert_fatal(2, "usage", f"{path}:1", "65535", arguments=["-m", "x"], INVAR_CONFIG=path)
        path = self.config("just words\n")
        self.assert_fatal(2, "usage", "just words", arguments=["-m", "x", "--config", path])
        self.assert_fatal(2, "usage", "--config", "none", arguments=["-m", "x", "--config", "none"])

    def test_precedence(self):
        # Each source names another model file; the one that is looked for is the one that won.
        path = self.config(f"model = {self.folder}/config.gguf\nport = 0\n")
        variable = f"{self.folder}/variable.gguf"
        self.assert_fatal(3, "model", "config.gguf", arguments=["--config", path])
        self.assert_fatal(3, "model", "variable.gguf", arguments=["--config", path], INVAR_MODEL=variable)
        self.assert_fatal(
            3,
            "model",
            "flag.gguf",
            arguments=["--config", path, "-m", f"{self.folder}/flag.gguf"],
            INVAR_MODEL=variable,
        )

    def test_variables_are_checked_and_named(self):
        self.assert_fatal(2, "usage", "INVAR_CTX_SIZE", "many", arguments=["-m", "x"], INVAR_CTX_SIZE="many")
        self.assert_fatal(2, "usage", "INVAR_LORA", arguments=["-m", "x"], INVAR_LORA="x")
        self.assert_fatal(2, "usage", "INVAR_STRICT_FIELDS", arguments=["-m", "x"], INVAR_STRICT_FIELDS="perhaps")

    def test_a_service_that_is_called_invar(self):
        # Kubernetes tells its pods INVAR_PORT, which is no port of ours.
        message = self.assert_taken(INVAR_PORT="tcp://10.96.0.7:8080", INVAR_PORT_8080_TCP_ADDR="10.96.0.7")
        lines = [x for x in message.splitlines() if "INVAR_PORT" in x]
        self.assertEqual(len(lines), 1, message)
        self.assertIn("tcp://10.96.0.7:8080", lines[0])
        self.assert_fatal(2, "usage", "INVAR_PORT", "10.96", arguments=["-m", "x"], INVAR_PORT="10.96.0.7:8080")

    def test_variables_of_llama_server_are_not_read(self):
        message = self.assert_taken(LLAMA_ARG_PORT="x", LLAMA_ARG_CTX_SIZE="1")
        lines = [x for x in message.splitlines() if "LLAMA_ARG" in x]
        self.assertEqual(len(lines), 1)
        self.assertIn("LLAMA_ARG_CTX_SIZE", lines[0])
        self.assertIn("LLAMA_ARG_PORT", lines[0])

    def test_the_log(self):
        log = self.folder / "server.log"
        message = self.assert_taken("--numa", "--log-disable", "--log-jsonl", "--log-file", str(log))
        self.assertEqual(len(message.splitlines()), 1)
        entry = json.loads(log.read_text().splitlines()[0])
        self.assertEqual(entry["level"], "warning")
        self.assertIn("--numa", entry["message"])
        message = self.assert_taken("--numa", "--no-log-prefix", "--log-timestamps")
        self.assertRegex(message, r"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z --numa has no effect")
        self.assertEqual(len(self.assert_taken("--numa", "--verbosity", "1").splitlines()), 1)
        self.assert_fatal(2, "usage", "--log-file", arguments=["-m", "x", "--log-file", str(self.folder / "a" / "b")])

    def test_the_cause_is_in_the_termination_log(self):
        log = self.folder / "termination"
        log.write_text("")
        for arguments, environment in (
            (["--termination-log", str(log), "--prot"], {}),
            (["--prot", f"--termination-log={log}"], {}),  # what is wrong may come first
            (["--prot"], {"INVAR_TERMINATION_LOG": str(log)}),
        ):
            with self.subTest(arguments=arguments):
                log.write_text("")
                self.assert_fatal(2, "usage", "--prot", arguments=arguments, **environment)
                self.assertIn("--prot", log.read_text())
        path = self.config(f"termination-log = {log}\n")
        log.write_text("")
        self.assert_fatal(2, "usage", "'b'", arguments=["serve", "a", "b", "--config", path])
        self.assertIn("'b'", log.read_text())


if __name__ == "__main__":
    unittest.main()
