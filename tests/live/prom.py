# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A real Prometheus server that scrapes reqprobe, and what vLLM's stock dashboards ask it."""

import http.client, http.server, json, math, os, shutil, threading, time, urllib.parse
from harness import *

TEXT = "text/plain;version=0.0.4"


class Prometheus:
    """jobs: {name: port}, each scraped once a second. features: of --enable-feature. config:
    the text of a configuration that has them, instead of one made here."""

    def __init__(self, t, jobs, features=(), interval="1s", config=None):
        exe = shutil.which("prometheus")
        if not exe:
            raise Skip("no prometheus: scripts/deps test")
        self.t, self.port, self.jobs = t, free_port(), jobs
        n = len(t.children)
        with open(t.path(f"prometheus{n}.yml"), "w") as f:
            f.write(config or f"global: {{scrape_interval: {interval}, scrape_timeout: {interval}, evaluation_interval: 1m}}\nscrape_configs:\n" +
                    "".join(f"  - {{job_name: {name}, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n" for name, port in jobs.items()))
        self.log = t.path(f"prometheus{n}.log")
        with open(self.log, "wb") as log:
            self.proc = t.spawn([exe, f"--config.file={t.path(f'prometheus{n}.yml')}", f"--storage.tsdb.path={t.path(f'tsdb{n}')}",
                                 f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=debug",
                                 *([f"--enable-feature={','.join(features)}"] if features else [])], stdout=log, stderr=log)
        self.until(lambda: self.get("/-/ready", raw=True)[0] == 200, "ready")

    def until(self, fn, what, timeout=40):
        end = time.monotonic() + timeout
        while True:
            try:
                got = fn()
                if got:
                    return got
            except OSError:
                pass
            if time.monotonic() > end or self.proc.poll() is not None:
                with open(self.log, errors="replace") as f:
                    lines = [l for l in f.read().splitlines() if "warn" in l or "error" in l or "err=" in l]
                raise AssertionError(f"Prometheus: not {what} within {timeout} s: " + " | ".join(l[-250:] for l in lines[-4:]))
            time.sleep(0.1)

    def get(self, path, raw=False, **params):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            c.request("GET", path + ("?" + urllib.parse.urlencode(params) if params else ""))
            r = c.getresponse()
            body = r.read()
        finally:
            c.close()
        if raw:
            return r.status, body
        o = json.loads(body)
        if o["status"] != "success":
            raise AssertionError(f"Prometheus: {path} {params}: {o.get('error')}")
        return o["data"]

    def query(self, expr):
        """[(labels, value)]"""
        d = self.get("/api/v1/query", query=expr)
        if d["resultType"] == "scalar":
            return [({}, float(d["result"][1]))]
        return [(x["metric"], float(x["value"][1]) if "value" in x else x["histogram"][1]) for x in d["result"]]

    def one(self, expr):
        got = self.query(expr)
        return got[0][1] if len(got) == 1 else None

    def scraped(self, more=2):
        """Until each target was scraped so many times from now on, without an error."""
        seen = {}

        def enough():
            for x in self.get("/api/v1/targets")["activeTargets"]:
                # a busy machine: there will be another scrape
                if x["health"] == "down" and "deadline" not in x["lastError"]:
                    raise AssertionError(f"Prometheus can't read {x['labels']['job']}: {x['lastError']}")
                if x["health"] == "up":
                    seen.setdefault(x["labels"]["job"], set()).add(x["lastScrape"])
            return len(seen) == len(self.jobs) and all(len(s) > more for s in seen.values())
        self.until(enough, f"{more} more scrapes")


class Relay:
    """Asks reqprobe for one format on behalf of a scraper that would rather have another."""

    def __init__(self, port, accept):
        class H(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                c.request("GET", self.path, headers={"Accept": accept})
                r = c.getresponse()
                body = r.read()
                c.close()
                self.send_response(r.status)
                self.send_header("Content-Type", r.getheader("Content-Type"))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *a):
                pass
        self.srv = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
        self.port = self.srv.server_port
        threading.Thread(target=self.srv.serve_forever, daemon=True).start()

    def close(self):
        self.srv.shutdown()
        self.srv.server_close()


# ---------------------------------------------------------------- what dashboards ask
#
# The expressions of the dashboards in vLLM's examples/observability: its older three
# (vLLM, Performance Statistics, Query Statistics) and its newer four (Overview,
# Instances, KV Cache, Speculative Decoding), as names, labels and functions. W is the
# window, M the selector of a model.

def rate(name, sel="", by=""):
    return f"sum{f' by ({by}) ' if by else ''}(rate(vllm:{name}{{{sel}}}[W]))"


def quantile(q, name, sel="M", by=""):
    return f"histogram_quantile({q}, sum by ({f'le, {by}' if by else 'le'}) (rate(vllm:{name}_bucket{{{sel}}}[W])))"


def mean(name, sel="M", by=""):
    return f"{rate(name + '_sum', sel, by)} / ({rate(name + '_count', sel, by)} > 0)"


def expressions():
    """[(expression, what it needs)]: "" nothing, "queue" an engine whose queue is seen,
    "steps" one whose steps are, "kv", "reasons" and "preemptions" its scheduler's state (how
    full the KV cache is, why requests wait), "cached" answers or steps that tell cached
    tokens, "spec" speculative decoding."""
    E, out = "M, engine=~\".+\"", []
    add = lambda *e, needs="": out.extend((x, needs) for x in e)
    ttft, itl, tpot, e2e, queue = ("time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
                                   "e2e_request_latency_seconds", "request_queue_time_seconds")
    # vLLM
    for h in (e2e, itl, ttft):
        add(*(quantile(q, h) for q in (.99, .95, .9, .5)), f"rate(vllm:{h}_sum{{M}}[W]) / rate(vllm:{h}_count{{M}}[W])")
    add("rate(vllm:prompt_tokens_total{M}[W])", "rate(vllm:generation_tokens_total{M}[W])", "vllm:num_requests_running{M}")
    add("vllm:num_requests_waiting{M}", "sum(vllm:num_requests_waiting{M})", needs="queue")
    add("vllm:kv_cache_usage_perc{M}", needs="kv")
    add(*(f"sum by (le) (increase(vllm:{h}_bucket{{M}}[W]))" for h in ("request_prompt_tokens", "request_generation_tokens")),
        "sum by (finished_reason) (increase(vllm:request_success_total{M}[W]))",
        *(f"rate(vllm:{h}_sum{{M}}[W])" for h in (queue, "request_prefill_time_seconds", "request_decode_time_seconds",
                                                  "request_max_num_generation_tokens")))
    # Performance Statistics, Query Statistics
    for h in (e2e, ttft, itl):
        add(f"sum(increase(vllm:{h}_sum[W])) / sum(increase(vllm:{h}_count[W]))", *(quantile(q, h, "") for q in (.5, .9, .99)))
    add("rate(vllm:generation_tokens_total[W])", "rate(vllm:prompt_tokens_total[W])", "rate(vllm:iteration_tokens_total_count[W])",
        rate("request_success_total", "M", "model_name"), rate("request_success_total", "M"),
        *(quantile(q, e2e, by="model_name") for q in (.5, .9, .99)), rate("request_prompt_tokens_bucket", "M", "le, model_name"),
        *(quantile(q, "request_prompt_tokens", by="model_name") for q in (.9, .5, .99)),
        f"{rate('prompt_tokens_total', 'M')} / {rate('request_success_total', 'M')}",
        *(rate(n, "M", by) for n in ("prompt_tokens_total", "generation_tokens_total") for by in ("model_name", "")))
    # Overview
    add("(sum(rate(http_requests_total{status=\"5xx\"}[W])) or vector(0)) / (sum(rate(http_requests_total[W])) > 0)",
        "count(vllm:num_requests_running{M})", "sum(vllm:num_requests_running{M})",
        f"{rate(ttft + '_bucket', 'M, le=%s1.0%s' % (chr(34), chr(34)))} / ({rate(ttft + '_count', 'M')} > 0)",
        f"{rate(tpot + '_bucket', 'M, le=%s0.1%s' % (chr(34), chr(34)))} / ({rate(tpot + '_count', 'M')} > 0)",
        "count by (model_name) (group by (model_name, instance) (last_over_time(vllm:num_requests_running{M}[W])))",
        rate("request_success_total", "M, finished_reason=\"error\"", "model_name") + " / (" + rate("request_success_total", "M", "model_name") + " > 0)",
        *(quantile(.95, h, by="model_name") for h in (ttft, itl, e2e)),
        *(quantile(q, h) for h in (ttft, itl, tpot, e2e) for q in (.5, .95, .99)),
        *(mean(h) for h in (ttft, itl, tpot, e2e)), *(f"sum by (le) (rate(vllm:{h}_bucket{{M}}[W]))" for h in (ttft, itl, e2e)),
        f"{rate('request_success_total', 'M', 'finished_reason')} / ignoring (finished_reason) group_left () ({rate('request_success_total', 'M')} > 0)",
        *(f"sum by (le) (increase(vllm:{h}_bucket{{M}}[W])) / on () group_left () (sum(increase(vllm:{h}_count{{M}}[W])) > 0)"
          for h in ("request_prompt_tokens", "request_generation_tokens")),
        *(quantile(q, h) for h in ("request_prompt_tokens", "request_generation_tokens") for q in (.5, .95, .99)),
        *(mean(h) for h in ("request_prompt_tokens", "request_generation_tokens")),
        "sum by (status) (rate(http_requests_total[W]))", "sum by (handler) (rate(http_requests_total[W]))",
        "sum by (handler) (rate(http_request_duration_seconds_sum[W])) / (sum by (handler) (rate(http_request_duration_seconds_count[W])) > 0)",
        "count(up == 0) or vector(0)")
    add(mean(queue), *(quantile(q, queue) for q in (.5, .95, .99)), mean("request_prefill_time_seconds"),
        needs="queue")
    add(mean("request_decode_time_seconds"))
    add(mean("iteration_tokens_total"), *(quantile(q, "iteration_tokens_total") for q in (.5, .99)), needs="steps")
    add("max(vllm:kv_cache_usage_perc{M})", "max by (model_name) (max_over_time(vllm:kv_cache_usage_perc{M}[W]))",
        "avg(vllm:kv_cache_usage_perc{M})", "min(vllm:kv_cache_usage_perc{M})", needs="kv")
    add(*(f"sum(vllm:num_requests_waiting_by_reason{{M, reason=\"{r}\"}})" for r in ("capacity", "deferred")), needs="reasons")
    add(rate("num_preemptions_total", "M"), "round(sum by (model_name) (increase(vllm:num_preemptions_total{M}[W])))", needs="preemptions")
    cached = [f"{rate('prefix_cache_hits_total', E)} / ({rate('prefix_cache_queries_total', E)} > 0)",
              rate("prompt_tokens_by_source_total", E + ", source=\"local_compute\""),
              rate("prompt_tokens_by_source_total", E + ", source=\"local_cache_hit\"")]
    add(*cached, needs="cached")
    # Instances, KV Cache
    by = "model_name, instance"
    add(f"sum by ({by}) (vllm:num_requests_waiting{{{E}}})", needs="queue")
    add(f"count by ({by}) (vllm:num_requests_running{{{E}}})",
        rate("request_success_total", E, by), rate("generation_tokens_total", E, by), quantile(.95, ttft, E, by), quantile(.95, itl, E, by),
        f"max by ({by}) ((time() - process_start_time_seconds) * on (job, instance) group_left (model_name) "
        f"group by (job, instance, model_name) (vllm:num_requests_running{{{E}}}))",
        f"sum by (instance, engine) (vllm:num_requests_running{{{E}}})", rate("prompt_tokens_total", E, "instance, engine"),
        quantile(.95, e2e, E, "instance"), "sum by (instance) (rate(process_cpu_seconds_total[W]))",
        "sum by (instance) (process_resident_memory_bytes)",
        "sum by (instance) (process_open_fds) / sum by (instance) (process_max_fds)", mean("request_prompt_tokens", E))
    add(mean(queue, E, "instance"), needs="queue")
    add(rate("iteration_tokens_total_count", E, "instance, engine"), mean("iteration_tokens_total", E, "instance, engine"), needs="steps")
    add(rate("num_preemptions_total", E, "instance, engine"), needs="preemptions")
    add(f"{rate('prompt_tokens_cached_total', E)} / ({rate('prompt_tokens_total', E)} > 0)", mean("request_prefill_kv_computed_tokens", E),
        needs="cached")
    # Speculative Decoding
    add(f"{rate('spec_decode_num_accepted_tokens_total', E)} / ({rate('spec_decode_num_draft_tokens_total', E)} > 0)",
        f"1 + {rate('spec_decode_num_accepted_tokens_total', E)} / ({rate('spec_decode_num_drafts_total', E)} > 0)",
        f"{rate('spec_decode_num_accepted_tokens_per_pos_total', E, 'position')} / ignoring (position) group_left () ({rate('spec_decode_num_drafts_total', E)} > 0)",
        needs="spec")
    return out


# What they ask besides and nobody outside can know: never on /metrics.
ABSENT = ("cache_config_info", "lora_requests_info", "engine_sleep_state", "mm_cache_queries_total", "mm_cache_hits_total",
          "external_prefix_cache_queries_total", "external_prefix_cache_hits_total", "prompt_tokens_cached_by_source_total",
          "kv_block_lifetime_seconds", "estimated_flops_per_gpu_total", "nixl_xfer_time_seconds", "kv_offload_load_bytes_total",
          "admission_rejections_total", "num_requests_kv_fetch_by_stage")


def ask_dashboards(t, prom, model, has, window="1m", prefix="vllm", job=None, unknown=()):
    """Every expression has data where what it needs is there (`has`), the value NaN where
    that is there and can't be known (`unknown`), and none where it is not there."""
    n = nan = 0
    for expr, needs in expressions():
        q = expr.replace("{M}", f"{{model_name=\"{model}\"}}").replace("M,", f"model_name=\"{model}\",").replace("{M, ", f"{{model_name=\"{model}\", ")
        q = q.replace("[W]", f"[{window}]").replace("vllm:", f"{prefix}:")
        try:
            got = prom.query(q)
        except AssertionError as e:
            t.check(False, str(e))
            continue
        if not needs or needs in has:
            n += 1
            t.check(got and any(not math.isnan(v) for _, v in got), f"no data: {q}: {short(got)}")
        elif needs in unknown:
            nan += 1
            t.check(got and all(math.isnan(v) for _, v in got), f"not NaN, though unknown ({needs}): {q}: {short(got)}")
        elif needs != "steps":     # an empty histogram is there, and a rate of 0 is one
            t.check(not any(v == v and v != 0 for _, v in got), f"data for what is not known ({needs}): {q}: {short(got)}")
    names = set(prom.get("/api/v1/label/__name__/values"))
    for a in ABSENT:
        t.check(not any(x.startswith(f"{prefix}:{a}") for x in names), f"{prefix}:{a} is there, and documented as absent")
    t.note(f"{n} expressions with data" + (f", {nan} with NaN" if nan else ""))
