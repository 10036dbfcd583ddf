"""The files of deploy/ as far as they can be checked without a daemon: the unit's sandbox by systemd
itself, the container file's rules, what the guide says of both."""

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

from harness import PATIENCE, CommandTest, ServerProcess, need_smollm2, until
from unit_sandbox import sandbox

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


class UnitTest(unittest.TestCase):
    unit = DEPLOY / "invar.service"

    def analyze(self, *arguments):
        if not shutil.which("systemd-analyze"):
            self.fail("systemd-analyze is missing; run tools/setup.sh test")
        return subprocess.run(["systemd-analyze", *arguments], capture_output=True, check=False)

    def test_exposure(self):
        run = self.analyze("security", "--offline=true", "--threshold=20", str(self.unit))
        text = run.stdout.decode()
        self.assertEqual(run.returncode, 0, text + run.stderr.decode())
        level = re.search(r"Overall exposure level for invar.service: (\S+)", text)
        self.assertLessEqual(float(level[1]), 2.0)
        self.assertIn(f"gives it {level[1]} of 10", (ROOT / "docs" / "deploying.md").read_text())

    def test_systemd_understands_it(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / self.unit.name
            # A program that is there, or it says that ours is not installed.
            text, count = re.subn(r"^ExecStart=\S+", "ExecStart=/bin/true", self.unit.read_text(), flags=re.M)
            self.assertEqual(count, 1)
            copy.write_text(text)
            run = self.analyze("verify", str(copy))
            complaints = run.stderr.decode()
            self.assertEqual(run.returncode, 0, complaints)
            self.assertNotIn(self.unit.name, complaints)
            # A unit that is wrong is complained of.
            copy.write_text(text.replace("[Service]", "[Service]\nNoSuchThing=yes"))
            self.assertIn("NoSuchThing", self.analyze("verify", str(copy)).stderr.decode())

    def test_it_is_killed_only_after_the_drain(self):
        seconds = int(re.search(r"^TimeoutStopSec=(\d+)$", self.unit.read_text(), re.M)[1])
        self.assertGreater(seconds, 8 + 1)


class SandboxTest(CommandTest):
    """The server does all its work behind the unit's filters: it loads, writes the packed cache, answers
    and ends. Its view of the file system, its user and IPAddressDeny= need systemd and are not tried."""

    def confined(self):
        return sandbox((DEPLOY / "invar.service").read_text())

    def test_the_filters_are_there(self):
        for code in ("import socket; socket.socket(socket.AF_UNIX)", "import os; os.sched_setaffinity(0, {0})",
                     "import os; os.chroot('/')"):  # fmt: skip
            run = subprocess.run([sys.executable, "-c", code], preexec_fn=self.confined(), capture_output=True, check=False)
            self.assertIn("PermissionError", run.stderr.decode(), code)

    def test_it_serves(self):
        cache = self.folder / "packed"
        environment = {**self.environment, "INVAR_PACKED_CACHE": str(cache), "INVAR_API_KEY": "k"}
        flags = ["--alias", "tiny", "--context", "512"]
        server = ServerProcess(self, need_smollm2(), *flags, environment=environment, preexec_fn=self.confined())
        server.wait_ready()
        until(lambda: cache.exists() and [f for f in cache.iterdir() if f.suffix != ".part"], "packed weights are kept")
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 8}
        headers = {"Content-Type": "application/json", "Authorization": "Bearer k"}
        request = urllib.request.Request(server.address + "/v1/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            self.assertEqual(answer.status, 200)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(), 0)
        wrong = [line for line in server.errors().splitlines() if not line.startswith("invar: info: ")]
        self.assertEqual(wrong, [])


class ContainerTest(unittest.TestCase):
    def test_rules(self):
        text = (DEPLOY / "Containerfile").read_text()
        stages = re.findall(r"^FROM (\S+)", text, re.M)
        self.assertEqual(stages, ["debian:12", "debian:12-slim"])
        last = text.rindex("\nFROM ")
        user = text.rindex("\nUSER ")
        self.assertGreater(user, last)
        self.assertNotRegex(text[user:], r"^USER (root|0)\b")
        self.assertRegex(text[last:], r"HEALTHCHECK[^\n]*\\\n +CMD .*/livez")


class DashboardTest(unittest.TestCase):
    def test_it_is_one(self):
        dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in dashboard["panels"]]
        self.assertEqual(len(places), len(set(places)))


if __name__ == "__main__":
    unittest.main()
