"""Requests one after another: framing, limits at the limit and one past it, time-outs, keys."""

import os
import tempfile
import time
import unittest

from harness import ServerTest, request


class FramingTest(ServerTest):
    def test_connection_is_kept(self):
        with self.serve().connect() as client:
            for body in (b"one", b"", b"three" * 50_000):
                client.send(request("POST /echo", body))
                response = client.response()
                self.assertEqual((response.status, response.body), (200, body))
                self.assertNotIn("connection", response.headers)
                self.assertEqual(response.headers["server"], "invar")
                self.assertEqual(response.headers["x-request-id"], response.headers["request-id"])

    def test_pipelined_requests_are_answered_in_order(self):
        with self.serve().connect() as client:
            client.send(
                b"".join(
                    request(f"POST /echo?delay_ms={delay}", b"%d" % delay)
                    for delay in (80, 0, 40, 0)
                )
                + request("GET /health")
                + request("HEAD /health")
                + request("GET /nowhere")
            )
            for delay in (80, 0, 40, 0):
                self.assertEqual(client.response().body, b"%d" % delay)
            self.assertEqual(client.response().body, b'{"status":"ok"}')
            head = client.response(without_body=True)
            self.assertEqual((head.status, head.headers["content-length"]), (200, "15"))
            self.assert_refused(client.response(), 404, "route_not_found")

    def test_request_ids(self):
        server = self.serve()
        self.assertEqual(server.ask("GET /health", X_Request_Id="a.b-1").headers["request-id"], "a.b-1")
        self.assertRegex(
            server.ask("GET /health", X_Request_Id="a b").headers["request-id"], r"^req_\w{24}$"
        )

    def test_http_1_0(self):
        server = self.serve()
        with server.connect() as client:
            client.send(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
            response = client.response()
            self.assertEqual((response.status, response.headers["connection"]), (200, "close"))
            self.assertTrue(client.closed())
        with server.connect() as client:
            client.send(request("POST /stream?events=2").replace(b"HTTP/1.1", b"HTTP/1.0"))
            response = client.response()
            self.assertNotIn("transfer-encoding", response.headers)
            self.assertTrue(response.body.endswith(b"data: [DONE]\n\n"), response.body)

    def test_expect_continue(self):
        server = self.serve()
        with server.connect() as client:
            client.send(request("POST /echo", b"", Content_Length="5", Expect="100-continue"))
            self.assertEqual(client.response().status, 100)
            client.send(b"hello" + request("GET /health"))
            self.assertEqual(client.response().body, b"hello")
            self.assertEqual(client.response().status, 200)
        with server.connect() as client:
            client.send(
                request("POST /echo", Content_Length="5", Expect="100-continue", Content_Type="a/b")
            )
            self.assert_refused(client.response(), 415, "unsupported_media_type")
            self.assertTrue(client.closed())

    def test_chunked_bodies(self):
        with self.serve().connect() as client:
            client.send(
                request("POST /echo", Content_Length=None, Transfer_Encoding="chunked")
                + b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n"
                + request("GET /health")
            )
            self.assertEqual(client.response().body, b"abcdefg")
            self.assertEqual(client.response().status, 200)

    def test_smuggled_requests_are_not_seen(self):
        server = self.serve()
        inner = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for lines, body in (
            (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
            (b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", b"0\r\n\r\n"),
            (b"Content-Length: 0\r\nContent-Length: 44\r\n", b""),
            (b"Content-Length: 0, 44\r\n", b""),
            (b"Content-Length: +0\r\n", b""),
            (b"Content-Length : 0\r\n", b""),
            (b"Content-Length:\r\n 0\r\n", b""),
            (b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
            (b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"),
            (b"Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n"),
            (b"Transfer-Encoding:\x0bchunked\r\n", b"0\r\n\r\n"),
            (b"X: a\r\n folded: b\r\nContent-Length: 0\r\n", b""),
            (b"X: a\nContent-Length: 0\r\n", b""),
            (b"X: a\rContent-Length: 0\r\n", b""),
            (b"Transfer-Encoding: chunked\r\n", b"0x0\r\n\r\n"),
            (b"Transfer-Encoding: chunked\r\n", b"-0\r\n\r\n"),
            (b"Transfer-Encoding: chunked\r\n", b"0\n\n"),
            (b"Transfer-Encoding: chunked\r\n", b"1\r\nab\r\n0\r\n\r\n"),
            (b"Transfer-Encoding: chunked\r\n", b"fffffffff\r\n"),
        ):
            with self.subTest(lines=lines, body=body), server.connect() as client:
                client.send(
                    b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    + lines + b"\r\n" + body + inner
                )
                self.assert_refused(client.response(), 400, "malformed_request")
                self.assertTrue(client.closed())

    def test_errors_under_messages_have_that_shape(self):
        response = self.serve().ask("GET /v1/messages")
        self.assertEqual((response.status, response.headers["allow"]), (405, "POST, OPTIONS"))
        self.assertEqual(response.json()["type"], "error")
        self.assertEqual(response.json()["request_id"], response.headers["request-id"])


class LimitTest(ServerTest):
    def test_body(self):
        server = self.serve(max_body=1000)
        self.assertEqual(server.ask("POST /echo", b"x" * 1000).status, 200)
        self.assert_refused(server.ask("POST /echo", b"x" * 1001), 413, "body_too_large")
        # As soon as the size is declared, or counted.
        with server.connect() as client:
            client.send(request("POST /v1/messages", Content_Length="1001"))
            response = client.response()
            self.assertEqual(response.json()["error"]["type"], "request_too_large")
            self.assertTrue(client.closed())
        with server.connect() as client:
            client.send(
                request("POST /echo", Content_Length=None, Transfer_Encoding="chunked")
                + b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\n"
            )
            self.assert_refused(client.response(), 413, "body_too_large")

    def test_a_large_body_hears_the_answer(self):
        # Most of it is still on its way when the answer goes out.
        server = self.serve(max_body=1000)
        for _ in range(5):
            response = server.ask("POST /echo", b"x" * (8 << 20))
            self.assert_refused(response, 413, "body_too_large")

    def test_all_bodies_together(self):
        server = self.serve(max_bodies=200_000)
        with server.connect() as first:
            first.send(request("POST /echo", b"x" * 150_000, Content_Length="150001"))
            time.sleep(0.1)
            self.assertEqual(server.ask("POST /echo", b"x" * 60_000).status, 200)  # small ones pass
            with server.connect() as second:
                second.send(request("POST /echo", b"x" * 100_000, Content_Length="100001"))
                self.assert_refused(second.response(), 503, "no_memory")
            first.send(b"x")
            self.assertEqual(first.response().status, 200)
        self.assertEqual(server.ask("POST /echo", b"x" * 150_000).status, 200)

    def test_request_line_and_headers(self):
        server = self.serve()
        line = len("GET / HTTP/1.1")
        self.assertEqual(server.ask("GET /" + "a" * (8192 - line)).status, 404)
        self.assert_refused(server.ask("GET /" + "a" * (8193 - line)), 414, "uri_too_long")
        # "Host: localhost" and "X: " with their line ends have 22 bytes.
        self.assertEqual(server.ask("GET /health", X="a" * (32768 - 22)).status, 200)
        self.assert_refused(server.ask("GET /health", X="a" * (32769 - 22)), 431, "headers_too_large")
        many = {f"X{i}": "" for i in range(99)}
        self.assertEqual(server.ask("GET /health", **many).status, 200)
        self.assert_refused(server.ask("GET /health", X="", **many), 431, "headers_too_large")

    def test_connections(self):
        server = self.serve(max_connections=10)
        clients = [server.connect() for _ in range(10)]
        for client in clients:
            client.send(request("GET /health"))
            self.assertEqual(client.response().status, 200)
        for _ in range(5):
            with server.connect() as late:
                response = late.response()
                self.assert_refused(response, 503, "too_many_connections")
                self.assertTrue(late.closed())
        for client in clients:
            client.sock.close()
        deadline = time.monotonic() + 10
        while server.ask("GET /health").status != 200:
            self.assertLess(time.monotonic(), deadline)

    def test_connections_of_one_address(self):
        server = self.serve(per_address=2)
        clients = [server.connect() for _ in range(2)]
        for client in clients:
            client.send(request("GET /health"))
            self.assertEqual(client.response().status, 200)
        with server.connect() as late:
            self.assertEqual(late.response().status, 503)
        with server.connect(source=("127.0.0.9", 0)) as other:
            other.send(request("GET /health"))
            self.assertEqual(other.response().status, 200)
        for client in clients:
            client.sock.close()


class RefusalTest(ServerTest):
    def test_small_refused_bodies_do_not_cost_the_connection(self):
        with self.serve().connect() as client:
            for _ in range(3):
                client.send(request("POST /echo", b"hello", Content_Type="text/plain"))
                self.assert_refused(client.response(), 415, "unsupported_media_type")
            client.send(request("POST /echo", b"hello"))
            self.assertEqual(client.response().body, b"hello")

    def test_key_is_asked_for_before_the_body(self):
        server = self.serve(key="secret")
        with server.connect() as client:
            client.send(request("POST /echo", Content_Length="100000"))
            response = client.response()
            self.assert_refused(response, 401, "invalid_api_key")
            self.assertEqual(response.headers["www-authenticate"], "Bearer")
        self.assertEqual(server.ask("POST /echo", Authorization="Bearer secret").status, 200)
        self.assertEqual(server.ask("POST /echo", x_api_key="secret").status, 200)
        self.assertEqual(server.ask("GET /health").status, 200)

    def test_key_file_rotates(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "keys")

            def write(text):
                with open(path + ".new", "w", encoding="ascii") as file:
                    file.write(text)
                os.chmod(path + ".new", 0o600)
                os.rename(path + ".new", path)

            write("old\n")
            server = self.serve(key_file=path)
            self.assertEqual(server.ask("POST /echo", x_api_key="old").status, 200)
            write("new\n")
            self.assertEqual(server.ask("POST /echo", x_api_key="old").status, 401)
            self.assertEqual(server.ask("POST /echo", x_api_key="new").status, 200)
            write("")
            self.assert_refused(server.ask("POST /echo", x_api_key="new"), 503, "keys_unavailable")
            self.assertEqual(server.ask("GET /health").status, 200)
            server.kill()
            self.assertIn("there is no key in it", server.errors)
            self.assertNotIn("new", server.errors.replace("keys.new", ""))

    def test_ten_thousand_wrong_keys_leave_no_trace(self):
        server = self.serve(key="right-key-Zq")
        with server.connect() as client:
            for start in range(0, 2000, 100):
                client.send(
                    b"".join(
                        request("GET /big", x_api_key=f"canary{start + i}") for i in range(100)
                    )
                )
                for _ in range(100):
                    response = client.response()
                    self.assertEqual(response.status, 401)
                    self.assertNotIn(b"canary", response.body)
        server.kill()
        self.assertNotIn("canary", server.errors)
        self.assertNotIn("right-key", server.errors)

    def test_pages_of_others(self):
        server = self.serve(cors="https://app.example")
        self.assert_refused(server.ask("GET /stats", Host="evil.example"), 403, "host_not_allowed")
        self.assert_refused(
            server.ask("POST /echo", Origin="http://evil.example"), 403, "origin_not_allowed"
        )
        response = server.ask("POST /echo", Origin="https://app.example")
        self.assertEqual(response.headers["access-control-allow-origin"], "https://app.example")
        preflight = server.ask(
            "OPTIONS /echo",
            Origin="https://app.example",
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="x-api-key",
        )
        self.assertEqual(preflight.status, 204)
        self.assertEqual(preflight.headers["access-control-allow-headers"], "x-api-key")
        self.assertNotIn("content-length", preflight.headers)

    def test_loading(self):
        server = self.serve(ready=0)
        response = server.ask("POST /echo", b"{}")
        self.assert_refused(response, 503, "model_loading")
        self.assertEqual(response.headers["retry-after"], "5")
        self.assertEqual(server.ask("GET /ready").json()["status"], "loading")
        self.assertEqual(server.ask("GET /livez").status, 200)

    def test_reported_case_bad_bodies(self):
        server = self.serve()
        bodies = [
            b"", b"{", b"[]", b'"x"', b"[" * 200_000, b"[" * 200_000 + b"]" * 200_000,
            b'{"a":"\xc3\x28"}', b'{"temperature":1e999}', b'{"a":1,"a":2}', b"\xff\xfe{}", b"{}{}",
        ]
        for body in bodies:
            self.assert_refused(server.ask("POST /json", body), 400, "invalid_json")
            self.assertEqual(server.ask("POST /json", b"{}").status, 200)
        before = server.rss_mib()
        with server.connect() as client:
            for i in range(1000):
                client.send(request("POST /json", bodies[i % len(bodies)]))
                self.assertEqual(client.response().status, 400)
        self.assertLess(server.rss_mib() - before, 10)


class TimeoutTest(ServerTest):
    def test_slow_head(self):
        server = self.serve(header_ms=400)
        with server.connect() as client:
            begin = time.monotonic()
            client.send(b"GET /health HTTP/1.1\r\nHost")
            self.assert_refused(client.response(), 408, "request_timeout")
            self.assertGreater(time.monotonic() - begin, 0.35)
            self.assertTrue(client.closed())
        with server.connect() as client:  # not a byte: nothing to answer
            self.assertTrue(client.closed())
        with server.connect() as client:  # bytes do not put it off
            begin = time.monotonic()
            try:
                for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100:
                    client.send(bytes([byte]))
                    time.sleep(0.02)
                    self.assertLess(time.monotonic() - begin, 5)
            except OSError:
                pass

    def test_slow_body(self):
        server = self.serve(body_ms=400)
        with server.connect() as client:
            begin = time.monotonic()
            client.send(request("POST /json", b"{", Content_Length="2"))
            self.assert_refused(client.response(), 408, "request_timeout")
            self.assertGreater(time.monotonic() - begin, 0.35)
            self.assertTrue(client.closed())
        # 20 KiB/s is faster than the floor of 1 KiB/s: what came buys time.
        with server.connect() as client:
            client.send(request("POST /echo", Content_Length="20480"))
            for _ in range(20):
                client.send(b"x" * 1024)
                time.sleep(0.05)
            self.assertEqual(client.response().status, 200)

    def test_idle_connection(self):
        server = self.serve(idle_ms=400)
        with server.connect() as client:
            client.send(request("GET /health"))
            client.response()
            begin = time.monotonic()
            self.assertTrue(client.closed())
            self.assertGreater(time.monotonic() - begin, 0.35)


if __name__ == "__main__":
    unittest.main()
