"""`invar serve` as a process: flags, exit codes, start and end. HTTP itself: tests/server/sockets."""

import json
import os
import signal
import socket
import time
import unittest
import urllib.error
import urllib.request

from harness import PATIENCE, CommandTest, ServerProcess, need_smollm2, tiny_gguf, until
from test_verify import golden_model


def get(address, path, **headers):
    """Status and JSON body."""
    request = urllib.request.Request(address + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


class ServeFlagTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "tiny.gguf"
        self.model.write_bytes(tiny_gguf())

    def assert_fatal(self, code, name, *words, arguments, **environment):
        result = self.run_invar("serve", str(self.model), *arguments, **environment)
        self.assert_fails(result, code, *words)
        self.assertTrue(result.stderr.decode().splitlines()[-1].startswith(f"fatal: {name}: "))

    def test_addresses_need_a_key(self):
        for host in ("0.0.0.0", "::", "127.0.0.1,0.0.0.0"):
            with self.subTest(host=host):
                self.assert_fatal(2, "usage", "--insecure-no-key", arguments=["--host", host])

    def test_bad_values(self):
        for arguments, words in (
            (["--port", "65536"], ("--port", "65535")),
            (["--threads-http", "0"], ("--threads-http", "64")),
            (["--drain-timeout", "-1"], ("--drain-timeout", "3600")),
            (["--prot", "1"], ("--port",)),
        ):
            with self.subTest(arguments=arguments):
                self.assert_fails(self.run_invar("serve", "m", *arguments), 2, *words)
        self.assert_fatal(2, "usage", "PORT", arguments=[], PORT="http")

    def test_keys(self):
        keys = self.folder / "keys"
        keys.write_text("secret-canary\n")
        keys.chmod(0o644)
        self.assert_fatal(2, "usage", "chmod 600", arguments=["--api-key-file", str(keys)])
        result = self.run_invar("serve", str(self.model), "--api-key", "two words-canary")
        self.assert_fails(result, 2, "visible ASCII")
        self.assertNotIn("canary", result.stderr.decode())

    def test_exit_codes_and_the_termination_log(self):
        log = self.folder / "termination"
        log.write_text("")
        flags = ["--port", "0", "--termination-log", str(log)]
        self.assert_fatal(4, "unsupported", "invar-test-arch", arguments=flags)
        self.assertTrue(log.read_text().startswith("fatal: unsupported: "))
        self.model = self.folder / "missing.gguf"
        self.assert_fatal(3, "model", "missing.gguf", arguments=flags)

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            self.assert_fatal(6, "address", port, arguments=["--port", port])
            self.assert_fatal(6, "address", port, arguments=[], PORT=port)
            self.assert_fatal(6, "address", port, arguments=["--port=1", "--port", port])
            self.assert_fatal(6, "address", port, arguments=[], INVAR_PORT=port)


class ServeTest(CommandTest):
    def start(self, *arguments, **environment):
        server = ServerProcess(
            self, need_smollm2(), "--context", "512", *arguments, environment={**self.environment, **environment}
        )
        return server, server.address

    def wait_ready(self, address):
        deadline = time.monotonic() + PATIENCE
        progress = 0
        while True:
            status, body = get(address, "/health")
            if status == 200:
                return
            self.assertEqual(status, 503)
            self.assertEqual(body["status"], "loading")
            self.assertGreaterEqual(body["progress"], progress)
            progress = body["progress"]
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def test_start_models_and_end(self):
        server, address = self.start("--alias", "small,other", INVAR_ALIAS="not-this")
        self.assertEqual(get(address, "/livez")[0], 200)
        self.assertIn(get(address, "/v1/models")[0], (200,))
        self.wait_ready(address)
        status, models = get(address, "/v1/models")
        self.assertEqual([m["id"] for m in models["data"]], ["small", "other"])
        self.assertEqual((models["first_id"], models["last_id"]), ("small", "other"))
        model = models["data"][0]
        self.assertEqual(model["meta"]["n_ctx"], 512)
        self.assertEqual(model["meta"]["n_ctx_source"], "flag")
        self.assertEqual(model["meta"]["file"], os.path.basename(need_smollm2()))
        self.assertEqual(model["max_model_len"], 512)
        self.assertEqual(get(address, "/v1/models/other")[1]["root"], "small")
        status, error = get(address, "/models/nope")
        self.assertEqual((status, error["error"]["code"]), (404, "model_not_found"))
        version = get(address, "/version")[1]
        self.assertEqual(version["arithmetic_id"], model["meta"]["arithmetic_id"])
        status, error = get(address, "/completions")
        self.assertIn("/v1/completions", error["error"]["message"])
        self.assertEqual(get(address, "/v1/models", Host="evil.example")[0], 403)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(), 0)
        self.assertLess(time.monotonic() - begin, 8)  # its drain time: nobody has to be waited for

    def test_operator_defaults_and_the_window(self):
        flags = "--temp 0 -n 3 --seed 7 -c auto --key-max-running 1 --parallel 2 --no-metrics".split()
        _, address = self.start(*flags)
        self.wait_ready(address)
        self.assertEqual(get(address, "/metrics")[0], 404)
        model = get(address, "/v1/models")[1]["data"][0]
        self.assertEqual(model["meta"]["n_ctx_source"], "checkpoint")  # it fits: nothing to shrink
        self.assertEqual(model["meta"]["n_ctx"], model["meta"]["n_ctx_train"])

        def ask(**fields):
            body = {"messages": [{"role": "user", "content": "Count to ten."}], **fields}
            request = urllib.request.Request(
                address + "/v1/chat/completions",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)

        answer = ask()
        self.assertEqual(answer["usage"]["completion_tokens"], 3)
        self.assertEqual(answer["invar"]["seed"], 7)
        # Greedy, as the operator has it: the seed changes nothing. A request's own fields win.
        self.assertEqual(ask(seed=8)["invar"]["token_sha"], answer["invar"]["token_sha"])
        other = ask(max_tokens=2, seed=9, temperature=1)
        self.assertEqual(other["usage"]["completion_tokens"], 2)
        self.assertEqual(other["invar"]["seed"], 9)

    def test_the_start_says_how_keys_and_values_are_kept(self):
        model = golden_model("llama", self.folder / "llama")
        for backend, kind in (("cpu", "f16"), ("reference", "f32")):
            server = ServerProcess(self, model, "--backend", backend, environment=self.environment)
            until(lambda server=server: "keys and values" in server.errors(), "the memory is said")
            self.assertRegex(server.errors(), rf"(?m)keys and values.* as {kind}$")

    def test_a_window_that_cannot_be(self):
        for flags, code, name, word in (
            (["-c", "9000"], 2, "usage", "8192"),  # more than the model has
            (["--kv-bytes", "30000000"], 5, "memory", "fits"),  # its full window is not there
        ):
            result = self.run_invar("serve", need_smollm2(), "--port", "0", *flags)
            last = result.stderr.decode().splitlines()[-1]
            self.assertEqual(result.returncode, code, last)
            self.assertTrue(last.startswith(f"fatal: {name}: "), last)
            self.assertIn(word, last)

    def test_keys_from_the_environment_and_a_signal_while_loading(self):
        server, address = self.start(INVAR_API_KEY="k1,k2")
        self.assertEqual(get(address, "/v1/models")[0], 401)
        self.assertEqual(get(address, "/v1/models", Authorization="Bearer k2")[0], 200)
        self.assertIn(get(address, "/health")[0], (200, 503))
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(), 0)


if __name__ == "__main__":
    unittest.main()
