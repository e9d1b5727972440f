# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""--compat vllm against the engines: vLLM's own /metrics of the same run, and what its
stock dashboards get from a real Prometheus."""

import math, random, re, subprocess
from harness import *
import llama, prom, vllm
from vllm import NAME, Ask, chat, completion, prompt, test_of
import vllm_load

# Histograms that must have the same count and nearly the same sum; with how far off
# the sum may be. Of TTFT and end to end the API server's own two instants are not seen:
# theirs lie some ms after the last byte of the request and after the engine's output.
HISTS = {"time_to_first_token_seconds": 0.03, "e2e_request_latency_seconds": 0.01, "inter_token_latency_seconds": 0.01,
         "request_time_per_output_token_seconds": 0.01, "request_queue_time_seconds": 0.01, "request_prefill_time_seconds": 0.01,
         "request_decode_time_seconds": 0.01, "request_inference_time_seconds": 0.01, "request_prompt_tokens": 0,
         "request_generation_tokens": 0, "request_max_num_generation_tokens": 0, "request_params_n": 0, "request_num_preemptions": 0,
         "request_prefill_kv_computed_tokens": 0, "iteration_tokens_total": 0, "request_params_max_tokens": 0}
COUNTERS = ("spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total", "prompt_tokens_total", "generation_tokens_total", "num_preemptions_total", "prompt_tokens_cached_total")


def wait_same(t, e, p, before, want, timeout=20):
    """Both have counted all that was asked."""
    end = time.monotonic() + timeout * vllm.SLOW
    while time.monotonic() < end:
        after, m = e.metrics(), p.metrics()
        done = e.told("e2e_request_latency_seconds_count", after) - e.told("e2e_request_latency_seconds_count", before)
        if done >= want and (m.sum(f"{e.install.kind}:e2e_request_latency_seconds_count") or 0) >= want:
            break
        time.sleep(0.1)
    time.sleep(0.3)
    return e.metrics(), p.metrics()


@test_of("ngram", deadline=200, since="0.20", name="compat-same-as-own-ngram")
@test_of("two-servers", deadline=200, since="0.20", name="compat-same-as-own-two-servers")
@test_of("two-ranks", deadline=200, since="0.20", name="compat-same-as-own-two-ranks")
@test_of("metrics", default=True, deadline=200, kinds=("vllm", "aphrodite"), name="compat-same-as-own", metrics=True)
def same_as_own(t, e):
    """vLLM's /metrics and ours over one run: counts equal, sums within 1 %."""
    rng = random.Random(3)
    asks = vllm_load.plain(70, 31, xid="pm", low=8, high=60)
    asks += [Ask(chat(prompt(rng), 20, i % 2 == 0, n=3), xid=f"pn-{i}", key=f"n{i}") for i in range(6)]
    asks += [Ask(completion([prompt(rng, 2, 9), prompt(rng, 2, 9)], 12, False), xid=f"pp-{i}", key=f"p{i}") for i in range(4)]
    vllm_load.run(e.port, vllm_load.plain(8, 5, xid="warm"), 4, model=NAME, timeout=120 * vllm.SLOW)
    e.idle()
    p = t.probe(e, args=["--compat", e.install.kind])
    before = e.metrics()
    answers = e.run(asks, 16)
    t.equal([a.end for a in answers if a.end != "complete"], [], "answers")
    requests = 70 + 6 * 3 + 4 * 2
    after, m = wait_same(t, e, p, before, requests)
    k, off = e.install.kind, {}
    for name, tol in HISTS.items():
        full = f"{k}:{name}"
        n = e.told(name + "_count", after) - e.told(name + "_count", before)
        s = e.told(name + "_sum", after) - e.told(name + "_sum", before)
        if e.metrics().sum(full + "_count") is None:
            continue                      # a version that has no such name
        # a step for two API servers is two observations of theirs, and with two ranks
        # they have empty ones, too
        if name != "iteration_tokens_total" or e.config not in ("two-servers", "two-ranks"):
            t.equal(m.sum(full + "_count"), n, full + "_count")
        got = m.sum(full + "_sum")
        off[name] = (got - s) / s if s and got is not None else 0
        t.check(got is not None and abs(got - s) <= tol * s + 1e-9, f"{full}_sum: {got}, its own {s}")
    for name in COUNTERS:
        if e.metrics().sum(f"{k}:{name}") is not None:
            t.equal(m.sum(f"{k}:{name}") or 0, e.told(name, after) - e.told(name, before), f"{k}:{name}")
    for reason in ("stop", "length", "abort", "error", "repetition"):
        t.equal(m.sum(f"{k}:request_success_total", finished_reason=reason) or 0,
                e.told("request_success_total", after, finished_reason=reason) - e.told("request_success_total", before, finished_reason=reason),
                f"{k}:request_success_total {reason}")
    for name in ("prefix_cache_queries_total", "prefix_cache_hits_total", "num_requests_running", "num_requests_waiting"):
        got, own = m.sum(f"{k}:{name}"), e.told(name, after) - (e.told(name, before) if name.endswith("_total") else 0)
        t.check(got == own, f"{k}:{name}: {got}, its own {own}")
    by = "spec_decode_num_accepted_tokens_per_pos_total"
    if e.metrics().sum(f"{k}:{by}") is not None:
        own = {p: v - before.by(f"{k}:{by}", "position").get(p, 0) for p, v in after.by(f"{k}:{by}", "position").items()}
        t.equal(m.by(f"{k}:{by}", "position") or {p: 0 for p in own}, own, f"{k}:{by}")
    # the server's own count of HTTP requests
    for handler in ("/v1/chat/completions", "/v1/completions"):
        own = [(x.sum("http_requests_total", handler=handler, status="2xx") or 0) for x in (before, after)]
        t.equal(m.sum("http_requests_total", handler=handler, status="2xx"), own[1] - own[0], f"http_requests_total {handler}")
        own = [(x.sum("http_request_size_bytes_sum", handler=handler) or 0) for x in (before, after)]
        t.equal(m.sum("http_request_size_bytes_sum", handler=handler), own[1] - own[0], f"http_request_size_bytes_sum {handler}")
    # labels and bounds are those of the engine
    for name in HISTS:
        full = f"{k}:{name}_bucket"
        mine = {dict(l)["le"] for n, l in m if n == full}
        own = {dict(l)["le"] for n, l in after if n == full}
        t.check(own <= mine or "tokens" in name and {x for x in own if x in mine} >= own - {"2048.0"},
                f"{full}: bounds {sorted(own - mine)[:5]} are missing")
        if own:
            for lab in ("engine", "model_name"):
                t.equal({dict(l).get(lab) for n, l in m if n == full}, {dict(l).get(lab) for n, l in after if n == full}, f"{full} {lab}")
    p.stop()
    t.note(", ".join(f"{n.replace('_seconds', '')} {v:+.2%}" for n, v in off.items() if v))


def under_prometheus(t, p, run, model, has, unknown=()):
    """Load while Prometheus scrapes; then what the dashboards ask."""
    pr = prom.Prometheus(t, {"job": p.port})
    run("x")
    pr.scraped()
    run("y")
    time.sleep(0.3)
    pr.scraped()
    prom.ask_dashboards(t, pr, model, has, unknown=unknown)


def kv_tokens(e):
    """Tokens its KV cache holds, as it says when it starts."""
    with open(e.log_path, errors="replace") as f:
        said = re.findall(r"KV cache size: ([\d,]+) tokens", f.read())
    return int(said[-1].replace(",", "")) if said else None


@test_of("no-stats", default=True, deadline=300, since="0.20", name="compat-dashboards-no-stats")
def dashboards_no_stats(t, e):
    """vLLM with --disable-log-stats: its own dashboards have data. How full its KV cache
    is can be told by who saw it start, or is told how large it is."""
    p = t.probe(e, args=["--compat", "vllm", "--wait", "--steps", t.path("steps")], record=True)
    told = t.probe(e, args=["--compat", "vllm", "--kv-cache-tokens", kv_tokens(e)])
    load = None

    def run(x):
        nonlocal load
        load = e.load(vllm_load.plain(40, 7, xid=x), 12)
        kv.append(0)
        while load.going():    # some looks come before the first step, or after the last
            time.sleep(0.2)
            m = p.metrics()
            usage = (told.metrics() if len(kv) < 3 else m).sum("vllm:kv_cache_usage_perc")
            kv[-1] = max(kv[-1], usage if usage and not math.isnan(usage) else 0)
            if (m.sum("vllm:num_requests_running") or 0) + (m.sum("vllm:num_requests_waiting") or 0) > 0:
                seen.append((m.sum("vllm:num_requests_running"), m.sum("vllm:num_requests_waiting")))
        load.join()
    seen, kv, has = [], [], {"queue", "steps", "cached", "reasons", "preemptions"}
    under_prometheus(t, p, run, NAME, has, {"kv"})
    t.check(not math.isnan(told.metrics().sum("vllm:kv_cache_usage_perc")), "KV cache usage is NaN, with --kv-cache-tokens")
    told.finish(80)
    t.check(not seen or max(r for r, w in seen) <= 4, f"running, waiting {seen}: 4 slots")
    m = p.metrics()
    t.equal((m.sum("vllm:num_requests_running"), m.sum("vllm:num_requests_waiting")), (0, 0), "running, waiting in the end")
    t.equal((m.sum("vllm:num_preemptions_total"), m.sum("vllm:request_num_preemptions_count"), m.sum("vllm:request_num_preemptions_sum")),
            (0, 80, 0), "preemptions: enough cache for all")
    # it ends, and comes back under our eyes
    e.stop()
    e.start()
    end = time.monotonic() + 20 * vllm.SLOW
    while time.monotonic() < end and f"attached to pid {e.pid} " not in p.stderr():
        time.sleep(0.05)
    under_prometheus(t, p, run, NAME, has | {"kv"})
    m = p.metrics()
    t.equal(m.sum("vllm:kv_cache_usage_perc"), 0, "KV cache usage of an idle engine")
    recs = p.finish(160)
    t.equal(len(recs), 160, "records")
    t.equal(m.sum("vllm:generation_tokens_total"), sum(r["tokens"]["completion"] for r in recs), "vllm:generation_tokens_total")
    t.equal(m.sum("vllm:prompt_tokens_total"), sum(r["tokens"]["prompt"] for r in recs), "vllm:prompt_tokens_total")
    # what the engine said of itself is in the recording
    again = t.path("again")
    subprocess.run([REQPROBE, "replay", p.record, "--jsonl", "/dev/null", "--steps", again], check=True, timeout=60)
    with open(again) as a, open(t.path("steps")) as b:
        same, lines = 0, b.read().splitlines()
        for x, y in zip(a.read().splitlines(), lines):
            same += x == y
    t.equal(same, len(lines), "lines of --steps that replay repeats")
    t.check(max(kv[:2]) > 0 and max(kv[2:]) > 0, f"KV cache usage under load: {kv}")
    t.note(f"running, waiting under load {seen[:8]}; most of the KV cache in use {kv}")


@llama.versioned(150, "compat-dashboards")
def dashboards_llama(t, exe):
    """llama-server: vLLM's dashboards have data."""
    e = llama.Llama(t, exe)
    p = t.probe(e, args=["--compat", "vllm"])

    def run(x):
        run_client(t, e.port, n=12, c=4, id=x, usage=True, max_tokens=16, words="4,30", extra={"temperature": 0}, timeout=100 * llama.SLOW)
    run("w")
    p.wait_records(12)
    m = p.metrics()
    model = next(iter(m.by("vllm:generation_tokens_total", "model_name")), None)
    under_prometheus(t, p, run, model, {"queue", "cached", "steps", "kv", "reasons", "preemptions"})
    m = p.metrics()
    recs = p.finish(36)
    t.equal(len(recs), 36, "records")
    for name, want in (("generation_tokens_total", sum(r["tokens"]["completion"] for r in recs)),
                       ("request_generation_tokens_sum", sum(r["tokens"]["completion"] for r in recs)),
                       ("prompt_tokens_total", sum(r["tokens"]["prompt"] for r in recs)), ("request_queue_time_seconds_count", 36),
                       ("inter_token_latency_seconds_count", sum(len(r["itl_ms"]) for r in recs))):
        t.equal(m.sum(f"vllm:{name}"), want, f"vllm:{name}")
    got, want = m.sum("vllm:request_decode_time_seconds_sum"), sum(r["phases"]["decode_ms"] for r in recs) / 1e3
    t.check(abs(got - want) < 1e-6, f"vllm:request_decode_time_seconds_sum: {got}, records {want}")
