"""What the tests of the invar command share: the binary, a private models folder, runs."""

import os
import shutil
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

INVAR = os.environ.get("INVAR_BIN", "")


def real_models_folder():
    if os.environ.get("INVAR_MODELS"):
        return Path(os.environ["INVAR_MODELS"])
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "invar" / "models"


SMOLLM2 = real_models_folder() / "smollm2-135m-instruct-q4_1.gguf"


def need_smollm2():
    if not SMOLLM2.exists():
        raise AssertionError(f"{SMOLLM2} is missing; run tools/fetch_models.py")
    return str(SMOLLM2)


def tiny_gguf(payload=b"", arch="invar-test-arch"):
    """A well-formed GGUF v3 file: one key, one F32 tensor of 64 zeros, then padding bytes of ours
    inside that tensor's data."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    count = max(64, (len(payload) + 3) // 4)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1)
    head += text("general.architecture") + struct.pack("<I", 8) + text(arch)
    head += text("token_embd.weight") + struct.pack("<I", 1)
    head += struct.pack("<Q", count) + struct.pack("<I", 0) + struct.pack("<Q", 0)
    head += b"\0" * (-len(head) % 32)
    return head + payload.ljust(count * 4, b"\0")


class CommandTest(unittest.TestCase):
    def setUp(self):
        if not INVAR:
            self.fail("INVAR_BIN names the invar binary under test; it is not set")
        self.folder = Path(tempfile.mkdtemp(prefix="invar-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.models = self.folder / "models"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "INVAR_MODELS": str(self.models),
            "LC_ALL": "C.UTF-8",
            # Only tests of the packed cache write one.
            "INVAR_PACKED_CACHE": "off",
        }

    def run_invar(self, *arguments, stdin=b"", timeout=60, **environment):
        return subprocess.run(
            [INVAR, *arguments],
            input=stdin,
            capture_output=True,
            timeout=timeout,
            env={**self.environment, **environment},
        )

    def assert_fails(self, result, code, *words):
        """The exit code, at most five lines on standard error, and all of `words` in them."""
        message = result.stderr.decode()
        self.assertEqual(result.returncode, code, message)
        self.assertLessEqual(len(message.strip().splitlines()), 5, message)
        for word in words:
            self.assertIn(word, message)
