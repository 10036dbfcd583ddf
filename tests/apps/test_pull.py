"""`invar pull` against a server that speaks the hub's API and breaks as networks do (case D12)."""

import hashlib
import json
import random
import signal
import subprocess
import threading
import unittest

from harness import INVAR, PATIENCE, CommandTest, tiny_gguf, until
from hub_server import HubServer

REPO = "owner/tiny-GGUF"
# Large enough that half of it is more than one read, small enough to be quick.
DATA = tiny_gguf(random.Random(1).randbytes(400_000))
OTHER = tiny_gguf(random.Random(2).randbytes(400_000))


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class PullTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.hub = self.enterContext(HubServer())
        self.hub.add(REPO, "tiny-Q4_K_M.gguf", DATA)
        self.environment["HF_ENDPOINT"] = self.hub.url

    def pull(self, *arguments, **environment):
        return self.run_invar("pull", *arguments, **environment)

    def file(self, name="tiny-Q4_K_M.gguf"):
        return self.models / name

    def assert_whole(self, result, data=DATA, name="tiny-Q4_K_M.gguf"):
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.assertEqual(self.file(name).read_bytes(), data)
        self.assertIn(sha256(data), result.stdout.decode())
        self.assertEqual(list(self.models.glob("*.part*")), [])

    def assert_nothing(self, name="tiny-Q4_K_M.gguf"):
        self.assertFalse(self.file(name).exists())
        listed = self.run_invar("list", "--json")
        self.assertEqual(json.loads(listed.stdout), [])

    # ---- What goes right ------------------------------------------------------------------------

    def test_whole_file_with_checksum(self):
        result = self.pull(REPO)
        self.assert_whole(result)
        self.assertIn("as the hub says", result.stdout.decode())
        listed = json.loads(self.run_invar("list", "--json").stdout)
        self.assertEqual([m["name"] for m in listed], ["tiny-Q4_K_M"])

    def test_again_is_quick_and_checks(self):
        self.pull(REPO)
        self.hub.requests.clear()
        result = self.pull(REPO)
        self.assert_whole(result)
        self.assertIn("was there", result.stdout.decode())
        self.assertEqual(self.hub.seen("/resolve/"), [])

    def test_other_file_of_that_name_is_kept(self):
        self.models.mkdir()
        self.file().write_bytes(OTHER)
        self.assert_fails(self.pull(REPO), 2, "another file of that name", "--force", "--name")
        self.assertEqual(self.file().read_bytes(), OTHER)
        self.assert_whole(self.pull(REPO, "--force"))

    def test_choice_among_quantisations(self):
        self.hub.add(REPO, "tiny-Q8_0.gguf", OTHER)
        self.hub.add(REPO, "mmproj-tiny.gguf", OTHER)
        result = self.pull(REPO)
        self.assert_whole(result)
        self.assertIn("--file takes another", result.stderr.decode())
        self.assert_whole(self.pull(REPO + ":q8_0"), OTHER, "tiny-Q8_0.gguf")
        self.assert_whole(
            self.pull(REPO, "--include", "*Q8*", "--name", "mine"), OTHER, "mine.gguf"
        )
        self.assert_fails(self.pull(REPO, "--file", "Q3"), 3, "Q3", "tiny-Q8_0.gguf")
        self.assert_fails(self.pull(REPO, "--file", "tiny"), 2, "several", "tiny-Q8_0.gguf")

    def test_safetensors_folder(self):
        header = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        weights = len(header).to_bytes(8, "little") + header + b"\0\0\0\0"
        files = {
            "config.json": b'{"architectures":["TestForCausalLM"]}',
            "tokenizer.json": b'{"version":"1.0"}',
            "model.safetensors": weights,
            "README.md": b"not needed",
            "onnx/model.onnx": b"not needed",
        }
        for name, data in files.items():
            self.hub.add("owner/folder", name, data)
        result = self.pull("owner/folder")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        folder = self.models / "folder"
        self.assertEqual(
            sorted(p.name for p in folder.iterdir()),
            ["config.json", "model.safetensors", "tokenizer.json"],
        )
        self.assertEqual((folder / "model.safetensors").read_bytes(), weights)
        listed = json.loads(self.run_invar("list", "--json").stdout)
        self.assertEqual([(m["name"], m["format"]) for m in listed], [("folder", "safetensors")])

    def test_revision(self):
        self.assert_whole(self.pull(REPO, "--revision", self.hub.commit))
        self.assert_fails(self.pull(REPO, "--revision", "nope"), 3, "nope")

    def test_url(self):
        self.hub.plain["/files/some%20model.gguf"] = (DATA, '"v1"', {})
        result = self.pull(self.hub.url + "/files/some%20model.gguf")
        self.assert_whole(result, DATA, "some model.gguf")
        self.assertIn("nothing to compare", result.stdout.decode())

    def test_split_model_becomes_one_folder(self):
        for part in (1, 2):
            self.hub.add("owner/split", f"s-Q8_0-0000{part}-of-00002.gguf", DATA)
        result = self.pull("owner/split")
        self.assertTrue((self.models / "split" / "s-Q8_0-00002-of-00002.gguf").exists(), result)

    # ---- D12 ------------------------------------------------------------------------------------

    def test_d12a_closed_at_half_resumes_in_the_same_run(self):
        self.hub.misbehave = {"close_at": 0.5, "close_once": True}
        self.assert_whole(self.pull(REPO))
        ranges = [h.get("Range") for h in self.hub.seen("/resolve/")]
        self.assertEqual(ranges, [None, f"bytes={len(DATA) // 2}-"])

    def test_d12a_closed_for_good_resumes_in_the_next_run(self):
        # The server goes silent after a part, as if the machine had gone.
        self.hub.misbehave = {"slow_s": 10 * PATIENCE}
        process = subprocess.Popen(
            [INVAR, "pull", REPO], env=self.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        part = self.file("tiny-Q4_K_M.gguf.part")
        until(lambda: part.exists() and part.stat().st_size > 0, "something has come")
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130)
        self.assertIn(b"goes on from here", message)
        have = part.stat().st_size
        self.assertGreater(have, 0)
        self.assert_nothing()
        result = self.run_invar("info", "tiny-Q4_K_M")
        self.assert_fails(result, 3, "not completely downloaded", "invar pull")
        result = self.run_invar("info", str(part))
        self.assert_fails(result, 3, "unfinished download")

        self.hub.misbehave = {}
        self.hub.requests.clear()
        self.assert_whole(self.pull(REPO))
        self.assertEqual(self.hub.seen("/resolve/")[0].get("Range"), f"bytes={have}-")

    def leave_half(self, source):
        """A .part of half the file and its note, as an interrupted run leaves them."""
        self.hub.misbehave = {"close_at": 0.5, "close_once": True, "then": {"status": 503}}
        process = subprocess.Popen(
            [INVAR, "pull", source], env=self.environment, stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        parts = self.models.glob
        until(lambda: [p.stat().st_size for p in parts("*.part")] == [len(DATA) // 2], "half of it has come")
        process.kill()
        process.wait()
        self.hub.misbehave = {}
        self.hub.requests.clear()

    def test_d12b_range_ignored_starts_over(self):
        self.leave_half(REPO)
        self.hub.misbehave = {"ignore_range": True}
        result = self.pull(REPO)
        self.assert_whole(result)
        self.assertIn("Range", self.hub.seen("/resolve/")[0])
        self.assertIn("starting over", result.stderr.decode())

    def test_d12c_changed_file_starts_over(self):
        url = self.hub.url + "/files/m.gguf"
        self.hub.plain["/files/m.gguf"] = (DATA, '"v1"', {})
        self.leave_half(url)
        self.assertGreater(self.file("m.gguf.part").stat().st_size, 0)
        self.hub.plain["/files/m.gguf"] = (OTHER, '"v2"', {})
        self.assert_whole(self.pull(url), OTHER, "m.gguf")
        self.assertEqual(self.hub.seen("/files/")[0].get("If-Range"), '"v1"')

    def test_d12c_changed_file_in_the_hub_starts_over(self):
        self.leave_half(REPO)
        self.hub.add(REPO, "tiny-Q4_K_M.gguf", OTHER)
        self.assert_whole(self.pull(REPO), OTHER)

    def test_d12c_server_that_ignores_if_range(self):
        url = self.hub.url + "/files/m.gguf"
        self.hub.plain["/files/m.gguf"] = (DATA, '"v1"', {})
        self.leave_half(url)
        self.hub.plain["/files/m.gguf"] = (OTHER, '"v2"', {})
        # It answers 206 to If-Range "v1" though the file is "v2": the ETag gives it away.
        original = HubServer.send_file

        def careless(hub, handler, data, etag, extra):
            del handler.headers["If-Range"]
            return original(hub, handler, data, etag, extra)

        HubServer.send_file = careless
        self.addCleanup(setattr, HubServer, "send_file", original)
        self.assert_whole(self.pull(url), OTHER, "m.gguf")

    def test_d12d_length_too_small(self):
        self.hub.misbehave = {"length_off_by": -1000}
        self.assert_fails(self.pull(REPO), 3, "expected", str(len(DATA)))
        self.assert_nothing()

    def test_d12d_length_too_large(self):
        self.hub.misbehave = {"length_off_by": 1000}
        self.assert_fails(self.pull(REPO), 3, "expected", str(len(DATA)))
        self.assert_nothing()

    def test_d12d_length_too_small_without_metadata(self):
        # Only the file's own header knows better.
        self.hub.plain["/files/m.gguf"] = (DATA, '"v1"', {})
        self.hub.misbehave = {"length_off_by": -100_000}
        self.assert_fails(self.pull(self.hub.url + "/files/m.gguf"), 3, "m.gguf", "deleted")
        self.assert_nothing("m.gguf")

    def test_d12e_web_page(self):
        self.hub.misbehave = {"html": True}
        self.hub.plain["/files/m.gguf"] = (DATA, '"v1"', {})
        self.assert_fails(self.pull(self.hub.url + "/files/m.gguf"), 3, "web page", "GGUF")
        self.assert_nothing("m.gguf")
        self.assertEqual(list(self.models.glob("*.part*")), [])

    def test_d12f_redirect_without_the_token(self):
        self.hub.token = "hf_secret"
        with HubServer("127.0.0.2") as cdn:
            self.hub.cdn = cdn
            self.assert_whole(self.pull(REPO, HF_TOKEN="hf_secret"))
            self.assertEqual(len(cdn.requests), 1)
            for _, headers in cdn.requests:
                self.assertNotIn("Authorization", headers)
                self.assertNotIn("hf_secret", str(headers))
        for headers in self.hub.seen("/resolve/"):
            self.assertEqual(headers.get("Authorization"), "Bearer hf_secret")

    def test_d12f_token_stays_with_the_port(self):
        with HubServer() as cdn:  # same host name, another port
            self.hub.cdn = cdn
            self.assert_whole(self.pull(REPO, HF_TOKEN="hf_secret"))
            self.assertNotIn("Authorization", cdn.requests[0][1])

    def test_d12f_resume_behind_a_redirect(self):
        with HubServer("127.0.0.2") as cdn:
            self.hub.cdn = cdn
            cdn.misbehave = {"close_at": 0.5, "close_once": True}
            self.assert_whole(self.pull(REPO))
            self.assertEqual(cdn.requests[1][1].get("Range"), f"bytes={len(DATA) // 2}-")

    def redirect(self, location):
        """Makes /resolve answer with a redirect to `location`, as the hub words it."""
        original = HubServer.resolve

        def resolve(hub, handler, repo, name, data):
            linked = {"X-Linked-Etag": f'"{sha256(data)}"', "X-Linked-Size": str(len(data))}
            hub.send(handler, 307, b"", {"Location": location, **linked})

        HubServer.resolve = resolve
        self.addCleanup(setattr, HubServer, "resolve", original)

    def test_relative_redirect(self):
        self.hub.plain["/moved/here"] = (DATA, '"v1"', {})
        self.redirect("/moved/here")
        self.assert_whole(self.pull(REPO))

    def test_url_of_the_hub_has_its_checksum(self):
        self.hub.plain["/moved/here"] = (DATA, '"v1"', {})
        self.redirect("/moved/here")
        url = f"{self.hub.url}/{REPO}/resolve/{self.hub.commit}/tiny-Q4_K_M.gguf"
        result = self.pull(url)
        self.assert_whole(result)
        self.assertIn("as the hub says", result.stdout.decode())
        self.file().unlink()
        self.hub.plain["/moved/here"] = (OTHER, '"v1"', {})
        self.assert_fails(self.pull(url), 3, "sha256")
        self.assert_nothing()

    def test_redirects_that_are_refused(self):
        for location, word in (
            ("http://example.org/m.gguf", "https"),
            (f"{self.hub.url}/{REPO}/resolve/{self.hub.commit}/tiny-Q4_K_M.gguf", "redirects"),
        ):
            with self.subTest(location=location):
                self.redirect(location)
                result = self.pull(REPO)
                self.assert_fails(result, result.returncode, word)
                self.assertIn(result.returncode, (1, 2))
                self.assert_nothing()

    def test_second_process_waits(self):
        release = threading.Event()
        self.addCleanup(release.set)
        self.hub.misbehave = {"hold": release}

        def start():
            process = subprocess.Popen(
                [INVAR, "pull", REPO], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            self.addCleanup(process.kill)
            return process

        first = start()
        until(lambda: self.hub.seen("/resolve/"), "the first one downloads")
        second = start()
        while b"another process" not in (line := second.stderr.readline()):
            self.assertNotEqual(line, b"", "it does not wait")
        release.set()
        self.assertEqual(first.communicate(timeout=PATIENCE) and first.returncode, 0)
        out, err = second.communicate(timeout=PATIENCE)
        self.assert_whole(subprocess.CompletedProcess([], second.returncode, out, err))
        self.assertEqual(len(self.hub.seen("/resolve/")), 1)

    # ---- What else goes wrong -------------------------------------------------------------------

    def test_wrong_bytes_do_not_pass(self):
        # Same length, other content than the hub's list says.
        listed = self.hub.files[REPO, "tiny-Q4_K_M.gguf"]
        original = HubServer.resolve

        def resolve(hub, handler, repo, name, data):
            return hub.send_file(handler, OTHER, '"x"', {})

        HubServer.resolve = resolve
        self.addCleanup(setattr, HubServer, "resolve", original)
        self.assert_fails(self.pull(REPO), 3, "sha256", sha256(listed), sha256(OTHER))
        self.assert_nothing()

    def test_bytes_lost_on_disk_are_found(self):
        self.leave_half(REPO)
        part = self.file("tiny-Q4_K_M.gguf.part")
        with part.open("r+b") as out:
            out.seek(1000)
            out.write(b"garbage")
        self.assert_whole(self.pull(REPO))

    def test_private_repository(self):
        self.hub.token = "hf_secret"
        self.assert_fails(self.pull(REPO), 2, "HF_TOKEN", REPO)
        self.assert_fails(self.pull(REPO, HF_TOKEN="hf_wrong"), 2, "HF_TOKEN")
        self.assert_nothing()

    def test_server_errors_end(self):
        self.hub.misbehave = {"status": 404}
        self.assert_fails(self.pull(REPO), 1, "404")
        self.assert_nothing()

    def test_busy_server_is_asked_again(self):
        self.hub.misbehave = {"status": 503}
        process = subprocess.Popen(
            [INVAR, "pull", REPO], env=self.environment, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        until(lambda: self.hub.seen("/resolve/"), "it asks")
        self.hub.misbehave = {}
        out, err = process.communicate(timeout=PATIENCE)
        self.assert_whole(subprocess.CompletedProcess([], process.returncode, out, err))

    def test_sources_that_cannot_work(self):
        for source, word in (
            ("justaname", "OWNER/REPO"),
            ("a/b/c", "OWNER/REPO"),
            ("../x", "OWNER/REPO"),
            ("http://example.org/m.gguf", "https"),
            ("ftp://example.org/m.gguf", "https"),
            ("https://user:pw@example.org/m.gguf", "user name"),
            ("https://example.org/page.html", ".gguf"),
            ("https://example.org/%1b[31m.gguf", ".gguf"),
        ):
            with self.subTest(source=source):
                with self.quick(2):
                    self.assert_fails(self.pull(source), 2, word)

    def test_nobody_listens(self):
        result = self.pull(REPO, HF_ENDPOINT="http://127.0.0.1:1")
        self.assert_fails(result, 1, "127.0.0.1")
        self.assert_fails(self.pull(REPO, HF_ENDPOINT="http://example.org"), 2, "HF_ENDPOINT")

    def test_names_stay_in_the_folder(self):
        self.hub.add("owner/evil", "../../evil.gguf", DATA)
        self.hub.add("owner/evil", "/etc/evil.gguf", DATA)
        self.hub.add("owner/evil", "\x1b[31mevil.gguf", DATA)
        self.assert_fails(self.pull("owner/evil"), 3, "owner/evil")
        self.assert_fails(self.pull(REPO, "--name", "../x"), 2, "--name")

    def test_disk_full_is_said_before(self):
        huge = 1 << 60
        original = HubServer.send_list

        def send_list(hub, handler, path):
            body = json.dumps({"sha": hub.commit, "siblings": [
                {"rfilename": "huge.gguf", "lfs": {"sha256": "0" * 64, "size": huge}}]}).encode()
            hub.send(handler, 200, body)

        HubServer.send_list = send_list
        self.addCleanup(setattr, HubServer, "send_list", original)
        self.assert_fails(self.pull(REPO), 1, "disk", "INVAR_MODELS")

    def test_hub_that_is_none(self):
        self.hub.plain["/api/models/" + REPO + "/revision/main?blobs=true"] = (b"<html>", None, {})
        self.assert_fails(self.pull(REPO), 1, "hub's API")

    def test_lines_without_a_terminal(self):
        result = self.pull(REPO)
        self.assertNotIn(b"\x1b", result.stdout + result.stderr)
        self.assertNotIn(b"\r", result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
