"""/v1/requests over a real small model: what runs is listed, and ends when somebody says so."""

import http.client
import json
import threading
import time
import unittest

from harness import PATIENCE, need_smollm2
from test_chat_api import ChatServerTest

FIELDS = {
    "id", "request_id", "object", "endpoint", "model", "created", "state", "stream", "n",
    "prompt_tokens", "cached_tokens", "prefilled_tokens", "completion_tokens", "max_tokens",
    "queue_ms", "age_ms", "kv_blocks", "preempted",
}  # fmt: skip


class RequestsTest(ChatServerTest):
    model = staticmethod(need_smollm2)
    flags = ("--parallel", "2", "--context", "8192", "--api-key", "k1,k2")

    def ask(self, method, path, key="k1", body=None, request_id=None):
        """An open answer; the caller reads it."""
        connection = http.client.HTTPConnection(self.server.netloc, timeout=PATIENCE)
        self.addCleanup(connection.close)
        headers = {"Authorization": f"Bearer {key}"}
        if request_id:
            headers["X-Request-Id"] = request_id
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, body and json.dumps(body), headers)
        return connection.getresponse()

    def json(self, *arguments, **keywords):
        with self.ask(*arguments, **keywords) as answer:
            return answer.status, json.loads(answer.read())

    def long_request(self, stream, **keywords):
        # More than can end while the test runs; the greedy reply of this prompt never ends by itself
        # (ignore_eos).
        body = {
            "model": "tiny",
            "prompt": "One, two, three,",
            "max_tokens": 8000,
            "temperature": 0,
            "ignore_eos": True,
            "stream": stream,
        }
        return self.ask("POST", "/v1/completions", body=body, **keywords)

    def wait_listed(self, count=1, **wanted):
        deadline = time.monotonic() + PATIENCE
        while True:
            status, body = self.json("GET", "/v1/requests")
            self.assertEqual(status, 200)
            found = body["data"]
            if len(found) == count and all(r[k] == v for r in found for k, v in wanted.items()):
                return body
            self.assertLess(time.monotonic(), deadline, body)
            time.sleep(0.01)

    def test_a_stream_is_listed_and_cancelled(self):
        self.assertEqual(
            self.json("GET", "/v1/requests"),
            (200, {"object": "list", "data": [], "running": 0, "waiting": 0}),
        )
        stream = self.long_request(True, request_id="my-own.id")
        line = b""
        while not line.startswith(b"data: "):  # pings, while it is slow
            line = stream.readline()
            self.assertNotEqual(line, b"")
        first = json.loads(line.removeprefix(b"data: "))
        body = self.wait_listed(state="decode")
        self.assertEqual((body["running"], body["waiting"]), (1, 0))
        [entry] = body["data"]
        self.assertEqual(set(entry), FIELDS)
        self.assertEqual(entry["id"], first["id"])
        self.assertEqual(entry["request_id"], "my-own.id")
        self.assertEqual(entry["endpoint"], "/v1/completions")
        self.assertEqual((entry["stream"], entry["n"], entry["max_tokens"]), (True, 1, 8000))
        self.assertEqual(entry["prefilled_tokens"], entry["prompt_tokens"])
        self.assertGreater(entry["completion_tokens"], 0)
        self.assertGreaterEqual(entry["kv_blocks"], 1)
        status, one = self.json("GET", f"/v1/requests/{first['id']}")
        self.assertEqual((status, one["id"]), (200, first["id"]))

        # Another key sees and ends nothing.
        self.assertEqual(self.json("GET", "/v1/requests", key="k2")[1]["data"], [])
        for method in ("GET", "DELETE"):
            status, error = self.json(method, "/v1/requests/my-own.id", key="k2")
            self.assertEqual((status, error["error"]["code"]), (404, "request_not_found"))

        status, gone = self.json("DELETE", "/v1/requests/my-own.id")
        self.assertEqual(status, 200)
        self.assertEqual(gone["id"], first["id"])
        self.assertEqual((gone["object"], gone["cancelled"]), ("request.cancelled", True))
        self.assertEqual(gone["state"], "decode")
        self.assertGreater(gone["completion_tokens"], 0)
        self.assertEqual(self.json("DELETE", "/v1/requests/my-own.id")[0], 404)
        self.assertEqual(self.json("GET", "/v1/requests")[1]["data"], [])
        rest = stream.read().decode()
        self.assertNotIn("[DONE]", rest)
        last = json.loads(rest.strip().split("\n\n")[-1].removeprefix("data: "))
        self.assertEqual(last["error"]["code"], "request_cancelled")

    def test_a_whole_answer_is_cancelled_with_499(self):
        answers = []

        def ask():
            answer = self.long_request(False)
            answers.append((answer.status, json.loads(answer.read())))

        thread = threading.Thread(target=ask)
        thread.start()
        [entry] = self.wait_listed(state="decode")["data"]
        self.assertEqual(self.json("DELETE", f"/v1/requests/{entry['id']}")[0], 200)
        thread.join()
        [(status, error)] = answers
        self.assertEqual((status, error["error"]["code"]), (499, "request_cancelled"))
        self.assertEqual(error["error"]["type"], "cancelled_error")

    def test_a_queued_request_is_cancelled(self):
        streams = [self.long_request(True, request_id=f"r{i}") for i in range(3)]
        deadline = time.monotonic() + PATIENCE
        while True:
            listed = self.json("GET", "/v1/requests")[1]
            if (listed["running"], listed["waiting"]) == (2, 1):
                break
            self.assertLess(time.monotonic(), deadline, listed)
        self.assertEqual([r["request_id"] for r in listed["data"]], ["r2", "r1", "r0"])
        self.assertEqual(self.json("GET", "/v1/requests/r2")[1]["state"], "queued")
        status, gone = self.json("DELETE", "/v1/requests/r2")
        self.assertEqual((status, gone["state"], gone["completion_tokens"]), (200, "queued", 0))
        for name in ("r0", "r1"):
            self.assertEqual(self.json("DELETE", f"/v1/requests/{name}")[0], 200)
        for stream in streams:
            self.assertIn(b"request_cancelled", stream.read())

    def test_the_scoring_of_a_prompt_is_cancelled(self):
        body = {"model": "tiny", "prompt": "word " * 4000, "echo": True, "logprobs": 5, "max_tokens": 0}
        answers = []

        def ask():
            answer = self.ask("POST", "/v1/completions", body=body)
            answers.append((answer.status, json.loads(answer.read())))

        thread = threading.Thread(target=ask)
        thread.start()
        [entry] = self.wait_listed(state="prefill")["data"]
        self.assertGreaterEqual(entry["prompt_tokens"], 4000)
        status, gone = self.json("DELETE", f"/v1/requests/{entry['id']}")
        self.assertEqual((status, gone["state"], gone["completion_tokens"]), (200, "prefill", 0))
        thread.join(30)
        [(status, error)] = answers
        self.assertEqual((status, error["error"]["code"]), (499, "request_cancelled"))
        self.assertEqual(self.json("GET", "/v1/requests")[1]["data"], [])

    def test_unknown_ids(self):
        for name in ("nope", "chatcmpl-" + "a" * 24, "%2e%2e"):
            status, error = self.json("DELETE", f"/v1/requests/{name}")
            self.assertEqual((status, error["error"]["code"]), (404, "request_not_found"))
        answer = self.ask("POST", "/v1/requests/x", body={})
        self.assertEqual(answer.status, 405)
        self.assertEqual(set(answer.headers["Allow"].split(", ")), {"DELETE", "GET", "HEAD", "OPTIONS"})


if __name__ == "__main__":
    unittest.main()
