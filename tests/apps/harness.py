"""What the tests of the invar command share: the binary, a private models folder, runs, servers."""

import contextlib
import os
import re
import resource
import shutil
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

INVAR = os.environ.get("INVAR_BIN", "")
# How long anything may take on a machine that is busy with builds. A test waits for what it expects,
# and so is no slower for it; what must be quick is measured, and compared with a limit of its own.
PATIENCE = 120


def real_models_folder():
    if os.environ.get("INVAR_MODELS"):
        return Path(os.environ["INVAR_MODELS"])
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "invar" / "models"


def need_model(name):
    path = real_models_folder() / name
    if not path.exists():
        raise AssertionError(f"{path} is missing; run tools/fetch_models.py")
    return str(path)


def need_smollm2():
    return need_model("smollm2-135m-instruct-q4_1.gguf")


def need_qwen():
    return need_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")


def need_gemma():
    return need_model("gemma-3-270m-q4_k_m.gguf")


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


def until(condition, what, seconds=PATIENCE):
    """Waits for `condition()`; how long that took."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > seconds:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)
    return time.monotonic() - begin


class ServerProcess:
    """`invar serve` on a free port, ended with the test, or the class, that owns it. `options` are
    those of subprocess.Popen."""

    def __init__(self, owner, *arguments, environment=None, **options):
        if not INVAR:
            raise AssertionError("INVAR_BIN names the invar binary under test; it is not set")
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [INVAR, "serve", *map(str, arguments), "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=environment or {**os.environ, "INVAR_PACKED_CACHE": "off"},
            **options,
        )
        (owner.addClassCleanup if isinstance(owner, type) else owner.addCleanup)(self.kill)
        self.address = self.process.stdout.readline().decode().strip()
        if not re.fullmatch(r"http://127\.0\.0\.1:\d+", self.address):
            raise AssertionError(f"invar serve says '{self.address}' in place of its address: {self.errors()}")
        self.netloc = self.address.removeprefix("http://")
        self.port = int(self.netloc.partition(":")[2])

    def wait_ready(self):
        def is_ready():
            try:
                with urllib.request.urlopen(self.address + "/health", timeout=PATIENCE):
                    return True
            except urllib.error.HTTPError as error:
                error.close()
                return False
            except OSError as error:
                raise AssertionError(f"invar serve ended: {self.errors()}") from error

        until(is_ready, "the server is ready")
        return self

    def errors(self):
        """What it has written to standard error; all of it once it has ended."""
        # Its offset is the server's too: it is not moved.
        return os.pread(self.log.fileno(), 1 << 24, 0).decode()

    def wait(self):
        """Its exit code."""
        return self.process.wait(PATIENCE)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


def without_progress(stderr):
    """Where loading takes more than a moment a line says how far it is: on a slow machine only."""
    return re.sub(rb"(?m)^loading [^\n]* MB/s\n", b"", stderr)


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

    def run_invar(self, *arguments, stdin=b"", timeout=PATIENCE, **environment):
        result = subprocess.run(
            [INVAR, *arguments],
            input=stdin,
            capture_output=True,
            timeout=timeout,
            env={**self.environment, **environment},
        )
        result.stderr = without_progress(result.stderr)
        return result

    @contextlib.contextmanager
    def quick(self, seconds):
        """What is run in it takes less processor time: what others do on the machine is not counted."""

        def used():
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return usage.ru_utime + usage.ru_stime

        before = used()
        yield
        self.assertLess(used() - before, seconds)

    def assert_fails(self, result, code, *words):
        """The exit code, at most five lines on standard error, and all of `words` in them."""
        message = result.stderr.decode()
        self.assertEqual(result.returncode, code, message)
        self.assertLessEqual(len(message.strip().splitlines()), 5, message)
        for word in words:
            self.assertIn(word, message)
