"""A server that says what its script says, for clients that are driven as black boxes."""

import json
import os
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "apps"))
from harness import PATIENCE, ServerProcess, until  # noqa: E402

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
    "endless": {"steps": [{"text": "word ", "delay_ms": 10, "repeat": 100000}]},
    "default": {"text": "ok"},
}


class ScriptedServerTest(unittest.TestCase):
    scripts = SCRIPTS
    rules = ()

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="invar-clients-") as folder:
            script = Path(folder) / "script.json"
            script.write_text(json.dumps({"scripts": cls.scripts, "rules": list(cls.rules)}))
            arguments = ["--backend", "scripted", "--script", script, "--alias", "tiny"]
            cls.server = ServerProcess(cls, *arguments).wait_ready()
        cls.address = cls.server.address

    def wait_idle(self):
        """Until the server answers nobody."""

        def is_idle():
            with urllib.request.urlopen(self.address + "/v1/requests", timeout=PATIENCE) as answer:
                return json.load(answer)["data"] == []

        until(is_idle, "nobody is answered")
