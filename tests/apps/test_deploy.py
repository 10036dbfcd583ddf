"""The files of deploy/ as far as they can be checked without a daemon: the unit's sandbox by systemd
itself, the container file's rules, what the guide says of both."""

import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

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
