"""/metrics over a real small model: read by Prometheus' own parser, every name that is promised, and
values right after known requests. Also the dashboard, which may show only what exists."""

import http.client
import json
import os
import re
import subprocess
import sys
import time
import unittest
from pathlib import Path

from harness import PATIENCE, need_smollm2
from test_chat_api import ChatServerTest

ROOT = Path(__file__).resolve().parents[2]

# specs/api.md section 15, without what only a drafter has: name, type, vLLM's names, llama.cpp's.
TABLE = """
requests_running gauge num_requests_running requests_processing
requests_waiting gauge num_requests_waiting requests_deferred
kv_cache_usage_ratio gauge kv_cache_usage_perc -
kv_blocks gauge - -
prompt_tokens_total counter prompt_tokens_total prompt_tokens_total
prompt_tokens_cached_total counter prompt_tokens_cached_total -
generation_tokens_total counter generation_tokens_total tokens_predicted_total
prompt_seconds_total counter - prompt_seconds_total
generation_seconds_total counter - tokens_predicted_seconds_total
prompt_tokens_per_second gauge - prompt_tokens_seconds
generation_tokens_per_second gauge - predicted_tokens_seconds
prefix_cache_queries_total counter prefix_cache_queries_total -
prefix_cache_hits_total counter prefix_cache_hits_total -
prefix_cache_bytes gauge - -
prefix_cache_evictions_total counter - -
preemptions_total counter num_preemptions_total -
requests_finished_total counter request_success_total -
time_to_first_token_seconds histogram time_to_first_token_seconds -
inter_token_latency_seconds histogram inter_token_latency_seconds,time_per_output_token_seconds -
request_time_per_output_token_seconds histogram request_time_per_output_token_seconds -
e2e_request_latency_seconds histogram e2e_request_latency_seconds -
request_queue_time_seconds histogram request_queue_time_seconds -
request_prefill_time_seconds histogram request_prefill_time_seconds -
request_decode_time_seconds histogram request_decode_time_seconds -
request_inference_time_seconds histogram request_inference_time_seconds -
request_prompt_tokens histogram request_prompt_tokens -
request_generation_tokens histogram request_generation_tokens -
request_params_max_tokens histogram request_params_max_tokens -
request_params_n histogram request_params_n -
step_tokens histogram iteration_tokens_total -
steps_total counter - n_decode_total
step_seconds histogram - -
sequences_per_step gauge - n_busy_slots_per_decode
context_tokens_max gauge - n_tokens_max
cache_config_info gauge cache_config_info -
build_info gauge - -
model_load_seconds gauge - -
model_load_progress gauge - -
memory_bytes gauge - -
queue_oldest_seconds gauge - -
http_requests_total counter - -
http_rejects_total counter - -
http_connections gauge - -
streams_open gauge - -
client_disconnections_total counter - -
cancelled_total counter - -
grammar_compile_seconds histogram - -
nan_logits_total counter - -
watchdog_stalls_total counter - -
process_start_time_seconds gauge - -
process_resident_memory_bytes gauge - -
process_open_fds gauge - -
"""
ROWS = [line.split() for line in TABLE.split("\n") if line]
A = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
B = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80"
C = "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"


def parsed(text):
    """Families by the parser's name, and samples by name and sorted labels."""
    python = os.environ.get("INVAR_PYTHON") or str(ROOT / ".venv" / "bin" / "python")
    if not os.path.exists(python):
        python = sys.executable
    oracle = Path(__file__).with_name("metrics_oracle.py")
    run = subprocess.run([python, str(oracle)], input=text.encode(), capture_output=True, check=False)
    if run.returncode != 0:
        raise AssertionError(f"{run.stderr.decode()}\n(tools/setup.sh test installs the parser)")
    families = {f["name"]: f for f in json.loads(run.stdout)}
    samples = {}
    for family in families.values():
        for name, labels, value in family["samples"]:
            key = (name, *sorted(f"{k}={v}" for k, v in labels.items()))
            if key in samples:
                raise AssertionError(f"{key} twice")
            samples[key] = value
    return families, samples


class MetricsServerTest(ChatServerTest):
    def get(self, path, **headers):
        connection = http.client.HTTPConnection(self.server.netloc, timeout=PATIENCE)
        self.addCleanup(connection.close)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()

    def scrape(self, **headers):
        status, sent, text = self.get("/metrics", **headers)
        self.assertEqual(status, 200)
        self.assertEqual(sent["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        return text

    def values(self):
        """Own metrics by name, or name{label=value,...} without the common labels."""
        found = {}
        for (name, *labels), value in parsed(self.scrape())[1].items():
            own = [x for x in labels if x not in ("engine=0", "model_name=tiny")]
            found[name + ("{" + ",".join(own) + "}" if own else "")] = value
        return found

    def wait_values(self, **wanted):
        """Counts of HTTP are taken when an answer has left, a moment after the client has it; others
        when the engine has let a request go."""
        deadline = time.monotonic() + PATIENCE
        while True:
            values = self.values()
            if all(values.get("invar_" + name) == value for name, value in wanted.items()):
                return values
            self.assertLess(time.monotonic(), deadline, values)


class SmolLm2MetricsTest(MetricsServerTest):
    model = staticmethod(need_smollm2)
    flags = ("--parallel", "4", "--context", "8192", "--metrics-compat", "vllm,llamacpp,vllm-old")

    def test_names_types_and_edges(self):
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
        self.chat("Say hi.", temperature=0, response_format=form)
        self.chat("Say hi.", 400, temperature="warm")
        text = self.scrape()
        families, samples = parsed(text)
        declared = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
        expected = {}
        for own, kind, vllm, llamacpp in ROWS:
            expected[own if own.startswith("process_") else "invar_" + own] = kind
            for name in vllm.split(","):
                expected["vllm:" + name] = kind
            expected["llamacpp:" + llamacpp] = kind
        for prefix in ("vllm:", "llamacpp:"):
            expected.pop(prefix + "-")
        expected["vllm:gpu_cache_usage_perc"] = "gauge"
        self.assertEqual(declared, expected)
        for name, *labels in samples:
            common = {"engine=0", "model_name=tiny"} & set(labels)
            self.assertEqual(len(common), 2 if name.startswith(("invar_", "vllm:")) else 0, name)

        kinds = {
            label for name, *labels in samples if name == "invar_memory_bytes" for label in labels if label.startswith("kind=")
        }
        self.assertEqual(kinds, {"kind=weights", "kind=kv"})  # state: of recurrent layers alone

        def edges(name):
            found = [(k[1:], v) for k, v in samples.items() if k[0] == name + "_bucket"]
            counts = [v for _, v in found]
            self.assertEqual(counts, sorted(counts), name)  # cumulative
            return " ".join(x[3:] for labels, _ in found for x in labels if x.startswith("le="))

        inf = " +Inf"
        self.assertEqual(edges("invar_time_to_first_token_seconds"), A + inf)
        self.assertEqual(edges("vllm:time_to_first_token_seconds"), A + inf)
        self.assertEqual(edges("invar_inter_token_latency_seconds"), "0.0005 0.001 0.0025 0.005 " + B + inf)
        self.assertEqual(edges("vllm:time_per_output_token_seconds"), B + inf)
        self.assertEqual(edges("vllm:e2e_request_latency_seconds"), C + inf)
        self.assertEqual(edges("invar_request_prompt_tokens"), "1 2 5 10 20 50 100 200 500 1000 2000 5000" + inf)
        self.assertEqual(edges("invar_request_params_n"), "1 2 5 10 20" + inf)
        self.assertTrue(edges("vllm:iteration_tokens_total").startswith("1 8 16 32 64 128 "))
        for family in families.values():
            self.assertTrue(family["help"].endswith("."), family["name"])

    def test_values_after_known_requests(self):
        before = self.values()
        whole = self.chat("Name three colours.", temperature=0, max_tokens=5, ignore_eos=True, n=2)
        usage = whole["usage"]
        again = self.chat("Name three colours.", temperature=0, max_tokens=5, ignore_eos=True)
        cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, 0)
        self.chat("x", 400, temperature="warm")

        def more(name, count):
            return {name: before.get("invar_" + name, 0) + count}

        after = self.wait_values(
            **more("requests_finished_total{finished_reason=length}", 3),
            **more("http_requests_total{route=/v1/chat/completions,status=200}", 2),
            **more("http_requests_total{route=/v1/chat/completions,status=400}", 1),
            **{"requests_running": 0, "kv_blocks{state=used}": 0},
        )
        change = {k: v - before.get(k, 0) for k, v in after.items() if v != before.get(k, 0)}

        def same(expected, *names):
            for name in names:
                self.assertEqual(change.get(name, 0), expected, name)

        prompt = usage["prompt_tokens"]
        # The second choice of n = 2 finds all but the last token of the prompt.
        first_cached = change["invar_prompt_tokens_cached_total"] - cached
        computed = change["invar_prompt_tokens_total"]
        self.assertEqual(computed + first_cached + cached, 3 * prompt)
        self.assertGreaterEqual(first_cached, prompt - 1)
        same(computed, "llamacpp:prompt_tokens_total")
        same(3 * prompt, "vllm:prompt_tokens_total", "invar_prefix_cache_queries_total")
        same(first_cached + cached, "vllm:prefix_cache_hits_total", "invar_prefix_cache_hits_total")
        same(15, "invar_generation_tokens_total", "vllm:generation_tokens_total")
        same(15, "llamacpp:tokens_predicted_total")
        same(3, "invar_time_to_first_token_seconds_count", "vllm:time_to_first_token_seconds_count")
        same(12, "invar_inter_token_latency_seconds_count", "vllm:inter_token_latency_seconds_count")
        for name in ("e2e_request_latency", "request_queue_time", "request_prefill_time",
                     "request_decode_time", "request_inference_time"):  # fmt: skip
            same(3, f"invar_{name}_seconds_count", f"vllm:{name}_seconds_count")
        same(3 * prompt, "invar_request_prompt_tokens_sum")
        same(15, "invar_request_generation_tokens_sum", "invar_request_params_max_tokens_sum")
        same(2, "invar_request_params_n_count")
        same(3, "invar_request_params_n_sum")
        same(3, "vllm:request_success_total{finished_reason=length}")
        same(2, "invar_http_requests_total{route=/v1/chat/completions,status=200}")
        same(1, "invar_http_requests_total{route=/v1/chat/completions,status=400}")
        same(1, "invar_http_rejects_total{code=invalid_type}")
        steps = change["invar_steps_total"]
        same(steps, "invar_step_tokens_count", "llamacpp:n_decode_total")
        self.assertLessEqual(steps, 15 + 3)
        kinds = sum(change.get(f"invar_step_seconds_count{{kind={k}}}", 0)
                    for k in ("prefill", "decode", "mixed"))  # fmt: skip
        self.assertEqual(kinds, steps)
        same(computed + 12, "invar_step_tokens_sum")  # a token's row comes with the next one
        self.assertGreater(change["invar_prompt_seconds_total"], 0)
        for name in ("requests_waiting", "kv_cache_usage_ratio"):
            self.assertEqual(after["invar_" + name], 0)
        self.assertGreater(after["invar_kv_blocks{state=cached}"], 0)

    def test_a_running_stream_shows(self):
        # Far more than can be said while the test looks.
        body = {"prompt": "One, two,", "max_tokens": 8000, "ignore_eos": True, "stream": True}
        connection = http.client.HTTPConnection(self.server.netloc, timeout=PATIENCE)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        stream = connection.getresponse()
        stream.readline()
        before = self.wait_values(requests_running=1, streams_open=1)
        self.assertEqual(before["vllm:num_requests_running"], 1)
        self.assertGreater(before["vllm:kv_cache_usage_perc"], 0)
        left = "client_disconnections_total{phase=decode}"
        aborted = "requests_finished_total{finished_reason=abort}"
        stream.close()
        connection.close()
        self.wait_values(
            **{
                "requests_running": 0,
                "streams_open": 0,
                left: before["invar_" + left] + 1,
                aborted: before["invar_" + aborted] + 1,
                "kv_cache_usage_ratio": 0,
            }
        )

    def test_a_scrape_is_quick(self):
        connection = http.client.HTTPConnection(self.server.netloc, timeout=PATIENCE)
        self.addCleanup(connection.close)
        times = []
        for _ in range(200):
            begin = time.perf_counter()
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            times.append(time.perf_counter() - begin)
        # Below a millisecond in the server; here with HTTP and this client, on a busy machine.
        self.assertLess(min(times), 0.005)

    def test_the_dashboard_shows_what_exists(self):
        self.chat("Say hi.", 400, temperature="warm")
        labels = {}
        for name, *pairs in parsed(self.scrape())[1]:
            labels.setdefault(name, set()).update(pair.split("=")[0] for pair in pairs)
        dashboard = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text())
        expressions = [t["expr"] for p in dashboard["panels"] for t in p.get("targets", ())]
        self.assertGreater(len(expressions), 40)
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                expressions.append(variable["query"]["query"])
        for expression in expressions:
            names = re.findall(r"\b(?:invar|process|vllm|llamacpp)[_:][a-z0-9_]+", expression)
            self.assertEqual(len(names), 2 if " / " in expression else 1, expression)
            for name in names:
                self.assertIn(name, labels, expression)
            for group in re.findall(r"by \(([a-z_, ]+)\)", expression):
                self.assertLessEqual(set(group.split(", ")), labels[names[0]], expression)


class MetricsKeyTest(MetricsServerTest):
    model = staticmethod(need_smollm2)
    flags = ("--context", "256", "--api-key", "k1", "--metrics-compat", "none")

    def test_the_key_is_asked_for(self):
        self.assertEqual(self.get("/metrics")[0], 401)
        text = self.scrape(Authorization="Bearer k1")
        self.assertNotIn("vllm:", text)
        self.assertNotIn("llamacpp:", text)
        self.assertNotIn("k1", text)


class MetricsOpenTest(MetricsServerTest):
    model = staticmethod(need_smollm2)
    flags = ("--context", "256", "--api-key", "k1", "--metrics-open")

    def test_no_key_is_asked_for(self):
        self.assertIn("vllm:num_requests_running", self.scrape())
        self.assertEqual(self.get("/v1/models")[0], 401)


if __name__ == "__main__":
    unittest.main()
