# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""/metrics as a real Prometheus server reads it, in each of its forms, and --compat."""

import subprocess, time
from harness import *
import prom
from prom import Prometheus, Relay


def load(t, srv, n, id, **kw):
    return run_client(t, srv.port, n=n, c=5, id=id, usage=True, max_tokens=8, extra={"gap_us": 4000}, **kw)


@test(120)
def prometheus_reads_all_forms(t):
    """Text, OpenMetrics and protobuf say the same; native histograms and exemplars are
    taken; no scrape fails."""
    srv = t.paced()
    p = t.probe(srv, args=["--compat", "vllm"])
    relay = Relay(p.port, prom.TEXT)
    try:
        plain = Prometheus(t, {"openmetrics": p.port, "text": relay.port}, ["exemplar-storage"])
        native = Prometheus(t, {"protobuf": p.port}, ["native-histograms", "exemplar-storage"])
        load(t, srv, 5, "a")
        p.wait_records(5)
        plain.scraped()
        native.scraped()
        load(t, srv, 15, "b")
        load(t, srv, 2, "f", stream=False, check=False)
        p.wait_records(22)
        plain.scraped()
        native.scraped()
        m = p.metrics()
        for name, labels in (("reqprobe_requests_total", {"end": "complete"}), ("reqprobe_time_to_first_token_seconds_count", {}),
                             ("reqprobe_inter_token_latency_seconds_sum", {}), ("vllm:e2e_request_latency_seconds_count", {}),
                             ("vllm:request_success_total", {}), ("http_requests_total", {"status": "2xx"}),
                             ("http_request_size_bytes_sum", {}), ("vllm:inter_token_latency_seconds_count", {})):
            sel = ", ".join(f'{k}="{v}"' for k, v in labels.items())
            want = m.sum(name, **labels)
            jobs = [(plain, "openmetrics"), (plain, "text")]
            if not name.startswith("reqprobe_") or name.endswith("_total"):
                jobs.append((native, "protobuf"))    # else one histogram, of the same name
            for who, job in jobs:
                q = f'sum({name}{{job="{job}"{", " + sel if sel else ""}}})'
                got = who.one(q)
                t.check(got is not None and abs(got - want) <= 1e-6 * abs(want), f"{q}: {got}, /metrics has {want}")
        # le is canonical, whoever asks, where it always was; ours in text are older
        for name, le in (("vllm:e2e_request_latency_seconds_bucket", "1.0"), ("reqprobe_request_duration_seconds_bucket", "1.0")):
            t.check(plain.one(f'sum({name}{{job="openmetrics", le="{le}"}})') is not None, f"{name}: no le=\"{le}\" in OpenMetrics")
        t.check(plain.one('sum(reqprobe_request_duration_seconds_bucket{job="text", le="1"})') is not None, "le=\"1\" in text")
        # native histograms
        want = m.sum("reqprobe_request_duration_seconds_count")
        h = "reqprobe_request_duration_seconds"
        t.equal(native.one(f"sum(histogram_count({h}))"), want, f"histogram_count({h})")
        got = native.one(f"sum(histogram_sum({h}))")
        t.check(got is not None and abs(got - m.sum(h + "_sum")) < 1e-6, f"histogram_sum: {got}, _sum {m.sum(h + '_sum')}")
        q = native.one(f"histogram_quantile(0.5, sum({h}))")
        relay.close()
        recs = p.stop()
        d = sorted(r["server_timing"]["duration_ms"] / 1e3 for r in recs if r["end"] == "complete")
        # a quantile between two requests is anywhere between them; buckets are 0.3 % wide
        i = len(d) // 2
        t.check(q is not None and d[max(0, i - 2)] * 0.99 <= q <= d[min(i + 2, len(d) - 1)] * 1.01,
                f"native median {q}, records have {d[i - 1:i + 2]}")
        # exemplars name requests
        ids = {r["x_request_id"]: r for r in recs}
        for who, what in ((plain, f"{h}_bucket"), (plain, "vllm:e2e_request_latency_seconds_bucket"), (native, h)):
            x = [e for s in who.get("/api/v1/query_exemplars", query=what, start=time.time() - 600, end=time.time() + 600) for e in s["exemplars"]]
            t.check(x, f"no exemplars of {what}")
            for e in x:
                r = ids.get(e["labels"]["request_id"])
                if t.check(r, f"exemplar of nobody: {e}"):
                    t.check(abs(float(e["value"]) - r["server_timing"]["duration_ms"] / 1e3) < 1e-6, f"exemplar {e}, duration {r['server_timing']['duration_ms']} ms")
        t.equal(len(recs), 22, "records")
        t.note(f"{len(m)} series")
    finally:
        relay.close()


@test(120)
def compat_vllm_names(t):
    """--compat vllm,aphrodite on a server that nobody has hooks for: figures as records
    have them; dashboards find what can be known."""
    srv = t.paced()
    p = t.probe(srv, args=["--compat", "vllm", "--compat", "aphrodite"])
    pr = Prometheus(t, {"job": p.port})
    load(t, srv, 5, "a")
    p.wait_records(5)
    pr.scraped()
    load(t, srv, 20, "b")
    run_client(t, srv.port, n=3, c=3, id="f", stream=False, extra={"fail": 503}, check=False)
    run_client(t, srv.port, n=2, c=2, id="bad", stream=False, extra={"fail": 400}, check=False)
    run_client(t, srv.port, n=2, c=2, id="q", hangup=500, max_tokens=30)
    p.wait_records(32)
    time.sleep(0.3)
    pr.scraped()
    m = p.metrics()
    model = next(iter(m.by("vllm:generation_tokens_total", "model_name")), None)
    prom.ask_dashboards(t, pr, model, {"cached"} if m.sum("vllm:prompt_tokens_cached_total") is not None else set())
    recs = p.stop()
    done = [r for r in recs if r["end"] == "complete"]
    t.equal({r["model"] for r in done}, {model}, "models")
    L = {"model_name": model, "engine": "0"}
    for prefix in ("vllm", "aphrodite"):
        def hist(name, values, tol=1e-6):
            values = [v for v in values if v is not None]
            t.equal(m.sum(f"{prefix}:{name}_count", **L), len(values), f"{prefix}:{name}_count")
            got = m.sum(f"{prefix}:{name}_sum", **L)
            t.check(got is not None and abs(got - sum(values)) <= tol, f"{prefix}:{name}_sum: {got}, records {sum(values)}")
        hist("e2e_request_latency_seconds", [r["server_timing"]["duration_ms"] / 1e3 for r in done])
        hist("time_to_first_token_seconds", [r["server_timing"]["ttft_ms"] / 1e3 for r in recs if r["server_timing"]["ttft_ms"] is not None])
        hist("inter_token_latency_seconds", [g / 1e3 for r in recs for g in r["itl_ms"] or []], 1e-4)
        hist("request_generation_tokens", [r["tokens"]["completion"] for r in done])
        hist("request_prompt_tokens", [r["tokens"]["prompt"] for r in done])
        for reason, n in (("stop", sum(r["finish_reason"] != "length" for r in done)), ("length", sum(r["finish_reason"] == "length" for r in done)),
                          ("abort", 2), ("error", 3), ("repetition", 0)):
            t.equal(m.sum(f"{prefix}:request_success_total", finished_reason=reason, **L), n, f"{prefix}:request_success_total {reason}")
        t.equal(m.sum(f"{prefix}:num_requests_running"), 0, f"{prefix}:num_requests_running")
    for status, n in (("2xx", len(done) + 2), ("5xx", 3), ("4xx", 2)):
        t.equal(m.sum("http_requests_total", handler="/v1/chat/completions", method="POST", status=status), n, f"http_requests_total {status}")
    got = m.sum("http_request_duration_highr_seconds_count")
    t.equal(got, len(recs), "http_request_duration_highr_seconds_count")
    bounds = {dict(l)["le"] for n, l in m if n == "vllm:request_params_n_bucket"}
    t.equal(bounds, {"1.0", "2.0", "5.0", "10.0", "20.0", "+Inf"}, "bounds of request_params_n")
    t.check({"1e+06", "500000.0"} <= {dict(l)["le"] for n, l in m if n == "vllm:request_prompt_tokens_bucket"}, "bounds of request_prompt_tokens")


@test(30)
def compat_wrong_usage(t):
    """An unknown name, and a use where there is no /metrics."""
    for args, word in ((["--compat", "tgi"], "tgi"), (["--compat", "vllm,"], "none of"), (["--compat", "vllm", "--metrics", "off"], "off"),
                       (["--compat", "vllm", "replay", "x"], "not served")):
        r = subprocess.run([REQPROBE, "--pid", "1"] + args if "replay" not in args else [REQPROBE] + args, capture_output=True, text=True, timeout=20)
        t.equal((r.returncode, len(r.stderr.splitlines())), (2, 1), f"{args}")
        t.check(word in r.stderr, f"{args}: {r.stderr}")
