"""The files of deploy/ as far as they can be checked without a daemon: the unit's sandbox by systemd
itself, the container file's rules, what the guide says of both."""

import json
import re
import shutil
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


class UnitTest(unittest.TestCase):
    unit = DEPLOY / "invar.service"

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not here")
    def test_exposure(self):
        run = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(self.unit)],
            capture_output=True,
            check=False,
        )
        text = run.stdout.decode()
        self.assertEqual(run.returncode, 0, text + run.stderr.decode())
        level = re.search(r"Overall exposure level for invar.service: (\S+)", text)
        self.assertLessEqual(float(level[1]), 2.0)
        self.assertIn(f"gives it {level[1]} of 10", (ROOT / "docs" / "deploying.md").read_text())

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not here")
    def test_systemd_understands_it(self):
        run = subprocess.run(
            ["systemd-analyze", "verify", str(self.unit)], capture_output=True, check=False
        )
        complaints = [
            line
            for line in run.stderr.decode().splitlines()
            if "invar.service" in line and "is not executable" not in line
        ]
        self.assertEqual(complaints, [])

    def test_it_is_killed_only_after_the_drain(self):
        seconds = int(re.search(r"^TimeoutStopSec=(\d+)$", self.unit.read_text(), re.M)[1])
        self.assertGreater(seconds, 8 + 1)


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
