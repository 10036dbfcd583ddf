"""The packed cache on the command line: where it is, that it can be off, `invar cache`."""

import json
import unittest

from harness import CommandTest, need_smollm2


class PackedCacheTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.model = need_smollm2()
        del self.environment["INVAR_PACKED_CACHE"]

    def reply(self, *flags, **environment):
        result = self.run_invar(
            "run", self.model, "--prompt", "Hi", "--json", "--context", "256", "--max-tokens", "4",
            "--temperature", "0", *flags, **environment,
        )
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.messages = result.stderr.decode()
        return json.loads(result.stdout)

    def cache(self, *flags, **environment):
        result = self.run_invar("cache", "--json", *flags, **environment)
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        return json.loads(result.stdout)

    def test_second_start_reads_what_the_first_wrote(self):
        self.assertEqual(self.cache()["files"], [])
        first = self.reply()
        self.assertIn("packed now", first["packing"])
        folder = self.folder / ".cache" / "invar" / "packed"
        held = self.cache()
        self.assertEqual(held["folder"], str(folder))
        self.assertEqual([file["model_sha"] for file in held["files"]], [first["model_sha"]])
        self.assertEqual(held["bytes"], sum(f.stat().st_size for f in folder.iterdir()))
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)

        second = self.reply()
        self.assertEqual(second["packing"], "read from the packed cache")
        self.assertEqual(second["token_sha"], first["token_sha"])
        # A damaged file: one line, the same reply, and a good file afterwards.
        (file,) = folder.iterdir()
        with open(file, "r+b") as f:
            f.seek(file.stat().st_size // 2)
            byte = f.read(1)
            f.seek(-1, 1)
            f.write(bytes([byte[0] ^ 1]))
        third = self.reply()
        self.assertEqual(third["token_sha"], first["token_sha"])
        lines = [line for line in self.messages.splitlines() if "packed cache" in line]
        self.assertEqual(len(lines), 1, self.messages)
        self.assertIn("is damaged", lines[0])
        self.assertEqual(self.reply()["packing"], "read from the packed cache")

        self.assertTrue(self.cache("--clear")["cleared"])
        self.assertEqual(list(folder.iterdir()), [])

    def test_off_and_elsewhere(self):
        self.assertEqual(self.reply("--packed-cache", "off")["packing"], "packed now")
        self.assertEqual(self.reply(INVAR_PACKED_CACHE="off")["packing"], "packed now")
        self.assertIsNone(self.cache(INVAR_PACKED_CACHE="off")["folder"])
        self.assertFalse((self.folder / ".cache").exists())
        # A limit of nothing, a folder of the variable, and the flag before the variable.
        self.reply("--packed-cache-gb", "0")
        self.assertEqual(self.cache()["files"], [])
        elsewhere = str(self.folder / "elsewhere")
        self.reply(INVAR_PACKED_CACHE=elsewhere)
        reply = self.reply("--packed-cache", elsewhere, INVAR_PACKED_CACHE="off")
        self.assertEqual(reply["packing"], "read from the packed cache")

    def test_a_folder_that_cannot_be_used_costs_a_line(self):
        result = self.run_invar(
            "run", self.model, "--prompt", "Hi", "--context", "256", "--max-tokens", "2",
            "--packed-cache", self.model,
        )
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.assertIn("packed cache", result.stderr.decode())
        self.assert_fails(self.run_invar("cache", "--packed-cache", self.model), 1, self.model)


if __name__ == "__main__":
    unittest.main()
