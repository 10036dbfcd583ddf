"""Two coding agents as they are installed, each through a loop in which a tool writes a file."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from scripted_server import NODE_MODULES, ScriptedServerTest, call


class AgentTest(ScriptedServerTest):
    rules = (
        {"contains": "Please write the claude file.", "key": "claude"},
        {"contains": "Please write the codex file.", "key": "codex"},
    )

    @classmethod
    def setUpClass(cls):
        # Not below /tmp: Codex refuses to put its helpers there.
        root = Path(os.environ.get("CLIENTS_SCRATCH") or tempfile.gettempdir())
        cls.scratch = tempfile.TemporaryDirectory(prefix="agents-", dir=root)
        cls.work = Path(cls.scratch.name) / "work"
        cls.home = Path(cls.scratch.name) / "home"
        cls.work.mkdir()
        cls.home.mkdir()
        done = {"text": "The file is there.", "cut": 3}
        written = {"file_path": str(cls.work / "claude.txt"), "content": "written by a tool\n"}
        command = {"cmd": "echo written by a tool > codex.txt"}
        cls.scripts = {
            "claude": {
                "by_tool_results": [
                    {"text": "I write it. " + call("Write", **written), "cut": 4},
                    done,
                ]
            },
            "codex": {"by_tool_results": [{"text": call("exec_command", **command), "cut": 4}, done]},
            "default": {"text": "ok"},
        }
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.scratch.cleanup()

    def run_agent(self, command, **environment):
        result = subprocess.run(
            [str(NODE_MODULES / ".bin" / command[0]), *command[1:]],
            cwd=self.work,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=180,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout.decode()

    def test_claude_code(self):
        out = self.run_agent(
            ["claude", "-p", "Please write the claude file.", "--model", "tiny"]
            + ["--allowedTools", "Write", "--output-format", "json"],
            ANTHROPIC_BASE_URL=self.address,
            ANTHROPIC_API_KEY="none",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
        )
        answer = json.loads(out)
        self.assertEqual((answer["result"], answer["num_turns"]), ("The file is there.", 2))
        self.assertEqual((self.work / "claude.txt").read_text(), "written by a tool\n")
        # The second turn found the first one's long prompt in the cache.
        usage = answer["usage"]
        self.assertGreater(usage["cache_read_input_tokens"], usage["input_tokens"] * 0.8)

    def test_codex(self):
        config = (
            'model = "tiny"\nmodel_provider = "invar"\n[model_providers.invar]\nname = "invar"\n'
            f'base_url = "{self.address}/v1"\nwire_api = "responses"\n'
        )
        (self.home / "config.toml").write_text(config)
        out = self.run_agent(
            ["codex", "exec", "--skip-git-repo-check"]
            + ["--dangerously-bypass-approvals-and-sandbox", "Please write the codex file."],
            CODEX_HOME=str(self.home),
        )
        self.assertIn("The file is there.", out)
        self.assertEqual((self.work / "codex.txt").read_text(), "written by a tool\n")


if __name__ == "__main__":
    unittest.main()
