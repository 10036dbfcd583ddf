"""The curl examples of README.md and docs/, run as they stand against a server."""

import json
import re
import subprocess
import unittest
from pathlib import Path

from test_chat_api import ChatServerTest, need_smollm2

ROOT = Path(__file__).parents[2]


def curl_commands(path):
    """Commands that begin with curl in the shell blocks of a Markdown file."""
    for block in re.findall(r"```sh\n(.*?)```", path.read_text(), re.S):
        lines = block.replace("\\\n", " ").splitlines()
        yield from (line for line in lines if line.startswith("curl "))


class ReadmeTest(ChatServerTest):
    model = staticmethod(need_smollm2)
    flags = ("--context", "2048")

    def test_curl_examples(self):
        num_run = 0
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            for command in curl_commands(path):
                if "127.0.0.1:8080" not in command:
                    continue
                with self.subTest(path=path.name, command=command):
                    run = command.replace("http://127.0.0.1:8080", self.address)
                    run = run.replace("curl ", "curl -sS --fail-with-body --max-time 120 ", 1)
                    result = subprocess.run(["sh", "-c", run], capture_output=True, text=True, timeout=150, check=False)
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    self.check(command, result.stdout)
                    num_run += 1
        self.assertGreaterEqual(num_run, 5)

    def check(self, command, answer):
        if '"stream":true' in command:
            self.assertTrue(answer.endswith("data: [DONE]\n\n"), answer[-100:])
            return
        if not answer.startswith(("{", "[")):
            return  # metrics and pages
        parsed = json.loads(answer)
        if '"json_schema"' in command:
            reply = json.loads(parsed["choices"][0]["message"]["content"])
            self.assertIsInstance(reply["degrees"], int)
        elif "/v1/messages" in command and "count_tokens" not in command:
            self.assertEqual(parsed["content"][0]["type"], "text")
        elif "/v1/chat/completions" in command:
            self.assertTrue(parsed["choices"][0]["message"]["content"])


del ChatServerTest  # unittest would run it by itself

if __name__ == "__main__":
    unittest.main()
