"""The official SDKs in Node (sdks.test.mjs) against a server of ours."""

import os
import subprocess
from pathlib import Path

from scripted_server import ScriptedServerTest


class NodeTest(ScriptedServerTest):
    def test_sdks(self):
        result = subprocess.run(
            ["node", "--test", str(Path(__file__).parent / "sdks.test.mjs")],
            env={**os.environ, "SERVER": self.address},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=180,
            check=False,
        )
        self.assertEqual(result.returncode, 0, result.stdout.decode())
        self.assertIn(b"pass 6", result.stdout)
