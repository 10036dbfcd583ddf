"""A loopback server that speaks the hub's API (list of files, resolve with redirects, ETags, ranges)
and can misbehave in the ways of a bad network. Standard library only.

    with HubServer() as hub:
        hub.add("owner/repo", "model.gguf", data)
        hub.misbehave = {"close_at": 0.5}
"""

import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class HubServer:
    def __init__(self, host="127.0.0.1"):
        self.files = {}  # (repo, path) -> bytes
        self.plain = {}  # URL path -> (bytes, etag or None, extra headers)
        self.token = None  # when set, /api and /resolve want it
        self.cdn = None  # another HubServer that /resolve redirects to
        self.commit = "c0ffee"
        self.misbehave = {}
        self.requests = []  # (path, headers) in order
        self.lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                server.handle(self)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer((host, 0), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *args: None  # clients that hang up are the point
        self.url = f"http://{host}:{self.http.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *args):
        self.http.shutdown()
        self.http.server_close()

    def add(self, repo, path, data):
        self.files[repo, path] = data

    def seen(self, part):
        """Headers of all requests whose path contains `part`."""
        return [headers for path, headers in self.requests if part in path]

    def handle(self, handler):
        path = handler.path
        with self.lock:
            self.requests.append((path, dict(handler.headers)))
        if path in self.plain:
            data, etag, extra = self.plain[path]
            return self.send_file(handler, data, etag, extra)
        if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
            return self.send(handler, 401, b"no")
        if path.startswith("/api/models/"):
            return self.send_list(handler, path)
        for (repo, name), data in self.files.items():
            if path == f"/{repo}/resolve/{self.commit}/{name}":
                return self.resolve(handler, repo, name, data)
        self.send(handler, 404, b"Entry not found")

    def send_list(self, handler, path):
        repo, _, revision = path[len("/api/models/") :].split("?")[0].partition("/revision/")
        siblings = []
        for (owner, name), data in self.files.items():
            if owner != repo:
                continue
            entry = {"rfilename": name, "size": len(data)}
            if not name.endswith(".json"):
                sha = hashlib.sha256(data).hexdigest()
                entry["lfs"] = {"sha256": sha, "size": len(data), "pointerSize": 130}
            siblings.append(entry)
        if not siblings or revision not in ("main", self.commit):
            return self.send(handler, 404, b'{"error":"Repository not found"}')
        body = json.dumps({"id": repo, "sha": self.commit, "siblings": siblings}).encode()
        self.send(handler, 200, body, {"Content-Type": "application/json"})

    def resolve(self, handler, repo, name, data):
        etag = hashlib.sha256(data).hexdigest()
        if self.cdn is None:
            return self.send_file(handler, data, f'"{etag}"', {})
        where = f"/cdn/{repo}/{name}?signature=1"
        self.cdn.plain[where] = (data, f'"{etag}"', {})
        headers = {
            "Location": self.cdn.url + where,
            "X-Linked-Etag": f'"{etag}"',
            "X-Linked-Size": str(len(data)),
            "X-Repo-Commit": self.commit,
        }
        self.send(handler, 302, b"Found", headers)

    def send_file(self, handler, data, etag, extra):
        how = self.misbehave
        if how.get("html"):
            page = b"<!DOCTYPE html><html><body>Please log in</body></html>" * 40
            return self.send(handler, 200, page, {"Content-Type": "text/html"})
        if how.get("status"):
            return self.send(handler, how["status"], b"busy")
        start, status = 0, 200
        wanted = handler.headers.get("Range", "")
        if_range = handler.headers.get("If-Range")
        if wanted.startswith("bytes=") and not how.get("ignore_range"):
            if if_range is None or if_range == etag:
                start, status = int(wanted[6:].rstrip("-")), 206
                if start >= len(data):
                    return self.send(handler, 416, b"", {"Content-Range": f"bytes */{len(data)}"})
        body = data[start:]
        handler.send_response(status)
        if status == 206:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if etag:
            handler.send_header("ETag", etag)
        handler.send_header("Content-Length", str(len(body) + how.get("length_off_by", 0)))
        for name, value in extra.items():
            handler.send_header(name, value)
        handler.end_headers()
        if "close_at" in how:
            body = body[: int(len(body) * how["close_at"])]
        if how.get("close_once"):
            self.misbehave = how.get("then", {})
        if "length_off_by" in how and how["length_off_by"] < 0:
            body = body[: how["length_off_by"]]
        try:
            if how.get("slow_s"):
                for i in range(10):
                    handler.wfile.write(body[len(body) * i // 10 : len(body) * (i + 1) // 10])
                    handler.wfile.flush()
                    time.sleep(how["slow_s"] / 10)
            else:
                if "hold" in how:
                    how["hold"].wait()
                handler.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            pass
        if "close_at" in how or "length_off_by" in how:
            handler.close_connection = True

    @staticmethod
    def send(handler, status, body, headers=None):
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        try:
            handler.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            pass
