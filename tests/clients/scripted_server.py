"""A server that says what its script says, for clients that are driven as black boxes."""

import json
import os
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

INVAR = os.environ.get("INVAR_BIN", "")
# Where tools/check_clients.sh put the clients of package.json.
NODE_MODULES = Path(os.environ.get("CLIENTS_NODE_MODULES", ""))


def call(name, **arguments):
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


SCRIPTS = {
    "hello": {"text": "Grüße, 世界 😊!", "cut": 2},
    "think": {"text": "<think>\nSky colour.\n</think>\n\nBlue.", "cut": 3},
    "json": {"text": '{"town":"Oslo","degrees":4}', "cut": 3},
    "weather": {
        "by_tool_results": [
            {"text": "I look. " + call("weather", city="Oslo"), "cut": 3},
            {"text": call("weather", city="Rome"), "cut": 5},
            {"text": "Rain in both.", "cut": 3},
        ]
    },
    "two": {"text": call("weather", city="Oslo") + "\n" + call("weather", city="Rome"), "cut": 7},
    "fault": {"text": "Hello there, this breaks.", "cut": 1, "fail_at_step": 6},
    "long": {"text": "word " * 200, "cut": 5},
    "default": {"text": "ok"},
}


class ScriptedServerTest(unittest.TestCase):
    scripts = SCRIPTS
    rules = ()

    @classmethod
    def setUpClass(cls):
        if not INVAR:
            raise AssertionError("INVAR_BIN names the invar binary under test; it is not set")
        cls.folder = tempfile.TemporaryDirectory(prefix="invar-clients-")
        script = Path(cls.folder.name) / "script.json"
        script.write_text(json.dumps({"scripts": cls.scripts, "rules": list(cls.rules)}))
        cls.server = subprocess.Popen(
            [INVAR, "serve", "--backend", "scripted", "--script", str(script)] + ["--port", "0", "--alias", "tiny"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        cls.address = cls.server.stdout.readline().decode().strip()
        for _ in range(500):
            try:
                with urllib.request.urlopen(cls.address + "/health", timeout=10):
                    return
            except urllib.error.HTTPError:
                time.sleep(0.02)
        raise AssertionError("the server did not become ready")

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.stdout.close()
        cls.server.wait(30)
        cls.folder.cleanup()
