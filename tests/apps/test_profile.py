"""`invar profile` and its tuning file: what is measured, written and drawn, and that no file, however
wrong, changes a reply or ends a command."""

import json
import os
import stat
import unittest
import xml.etree.ElementTree

from harness import PATIENCE, CommandTest
from test_verify import golden_model

ASK = ["--prompt", "river stone", "--max-tokens", "24", "--temperature", "0", "--json"]


class ProfileTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = golden_model("llama", self.folder / "llama")
        self.tuning = self.folder / ".cache" / "invar" / "tuning"

    def profile(self, *flags):
        result = self.run_invar("profile", self.model, "--quick", *flags, timeout=10 * PATIENCE)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return result.stdout.decode()

    def ask(self, *flags, **environment):
        flags = flags or ("--threads", "2")
        result = self.run_invar("run", self.model, *ASK, *flags, **environment)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return json.loads(result.stdout)["token_sha"], result.stderr.decode()

    def test_report_and_file(self):
        svg = self.folder / "profile.svg"
        report = json.loads(self.profile("--rows", "12", "--json", "--svg", str(svg), "--tuning", "always"))
        self.assertEqual([p["rows"] for p in report["tuned"]], [1, 2, 3, 4, 5, 6, 7, 8, 12])
        for point in report["tuned"] + report["built_in"]:
            rate = point["rows"] / point["step_ms"] * 1e3
            self.assertAlmostEqual(point["tokens_per_second"] / rate, 1, places=6)
            kinds = {op["operation"]: op for op in point["operations"]}
            self.assertEqual(kinds["lm_head"]["calls"], 1)
            self.assertEqual(kinds["attention"]["calls"], 7)  # layers
            self.assertEqual((kinds["lm_head"]["rows"], kinds["lm_head"]["cols"]), (96, 48))
            # A step's quickest and an operation's quickest are of different steps, but parts.
            self.assertLess(max(op["ms"] for op in point["operations"]), point["step_ms"])
        shapes = {(c["gated"], c["rows"], c["cols"]) for c in report["crossovers"]}
        self.assertIn((True, 80, 48), shapes)  # gate and up of the golden llama
        self.assertIn((False, 96, 48), shapes)  # its head
        (name,) = os.listdir(self.tuning)
        path = self.tuning / name
        self.assertEqual(report["tuning_file"], str(path))
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        tuning = json.loads(path.read_text())
        self.assertEqual(tuning["key"]["model_sha"], report["model_sha"])
        self.assertEqual(len(tuning["crossovers"]), len(report["crossovers"]))
        root = xml.etree.ElementTree.parse(svg).getroot()
        lines = root.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertGreaterEqual(len(lines), 5)
        self.assertEqual({len(line.get("points").split()) for line in lines}, {9})
        # Figures that are noise are called so in the picture too, which travels without the table.
        was_busy = report["noise"] is None or report["noise"] > 0.05
        about = " ".join(text.text for text in root.findall("{http://www.w3.org/2000/svg}text"))
        self.assertEqual("busy" in about.lower(), was_busy)

    def test_table(self):
        table = self.profile("--rows", "4", "--tuning", "never")
        self.assertRegex(table, r"(?m)^ +4 +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ ")
        self.assertRegex(table, r"total tokens/s (never fall|FALL by)")
        self.assertFalse(self.tuning.exists())

    def test_no_file_changes_a_reply(self):
        expected, notes = self.ask()
        self.assertNotIn("tuning", notes)
        self.profile("--rows", "4", "--tuning", "always", "--threads", "2")
        (path,) = self.tuning.iterdir()
        good = json.loads(path.read_text())
        self.assertEqual(self.ask()[0], expected)
        self.assertNotIn("tuning", self.ask()[1])
        good["crossovers"] = [{**c, "min_rows": 1 + 3 * i} for i, c in enumerate(good["crossovers"])]
        path.write_text(json.dumps(good))
        self.assertEqual(self.ask(), (expected, ""))
        wrong = [
            ("", "bad JSON"),
            ("{", ""),
            (json.dumps({**good, "format": 2}), "format 2"),
            (json.dumps({**good, "key": {**good["key"], "cpu": "another"}}), "another machine"),
            (json.dumps({**good, "crossovers": 5}), "crossovers"),
            (json.dumps({**good, "crossovers": [{**good["crossovers"][0], "min_rows": 0}]}), "min_rows"),
        ]
        for text, word in wrong:
            with self.subTest(text[:40]):
                path.write_text(text)
                sha, notes = self.ask()
                self.assertEqual(sha, expected)
                self.assertEqual(len(notes.splitlines()), 1, notes)
                self.assertIn(f"tuning file {path} is not used", notes)
                self.assertIn(word, notes)
                self.assertEqual(self.ask(INVAR_TUNING="off"), (expected, ""))
        path.write_text(json.dumps(good))
        sha, notes = self.ask("--threads", "1")
        self.assertEqual((sha, len(notes.splitlines())), (expected, 1), notes)
        self.assertIn(f"tuning file {path} is not used: it was measured with threads 2, here 1", notes)
        folder = self.folder / "elsewhere"
        self.assertEqual(self.ask(INVAR_TUNING=str(folder)), (expected, ""))

    def test_verify_runs_as_a_server_would(self):
        def verify():
            flags = ["--quick", "--requests", "4", "--threads", "2", "--json"]
            result = self.run_invar("verify", self.model, *flags)
            self.assertEqual(result.returncode, 0, result.stderr.decode())
            return json.loads(result.stdout)["tuning_file"]

        self.assertIsNone(verify())
        report = json.loads(
            self.profile("--rows", "2", "--json", "--tuning", "always", "--threads", "2")
        )
        self.assertEqual(verify(), report["tuning_file"])

    def test_without_a_folder(self):
        flags = ["--quick", "--rows", "2", "--json", "--tuning", "always"]
        result = self.run_invar("profile", self.model, *flags, INVAR_TUNING="off", timeout=10 * PATIENCE)
        report = json.loads(result.stdout)
        self.assertIsNone(report["tuning_file"])
        self.assertIn("INVAR_TUNING", report["why_no_tuning"])

    def test_errors(self):
        self.assert_fails(self.run_invar("profile", self.model, "--rows", "65"), 2, "--rows", "64")
        unwritable = str(self.folder / "missing" / "a.svg")
        result = self.run_invar("profile", self.model, "--quick", "--rows", "2", "--svg", unwritable)
        self.assert_fails(result, 1, unwritable)
        # A picture stays until there is another one.
        svg = self.folder / "profile.svg"
        svg.write_text("the last one")
        for arguments, code, word in (
            ([self.model, "--backend", "reference"], 4, "nothing to tune"),
            ([str(self.folder / "none")], 3, "none"),
        ):
            result = self.run_invar("profile", *arguments, "--quick", "--svg", str(svg))
            self.assert_fails(result, code, word)
            self.assertEqual(svg.read_text(), "the last one")


if __name__ == "__main__":
    unittest.main()
