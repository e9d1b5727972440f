# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""OpenTelemetry: what a receiver gets, by the official messages and by a real
receiver, against the JSONL records of the same run; and receivers that are away, slow
or unwilling. REQPROBE_OTLP_DOWN_S: how long the receiver is away (default 4)."""

import bisect, http.client, json, os, re, signal, socket, subprocess, sys, threading, time
from email.utils import formatdate

from harness import *

REC = os.path.join(ROOT, "tests", "replay", "vllm-0.32.0.rec")
DOWN_S = float(os.environ.get("REQPROBE_OTLP_DOWN_S", "4"))
DURATION = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
TTFT = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
TPOT = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5]
HTTP = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]


def pytools():
    r = subprocess.run([os.path.join(ROOT, "scripts", "pytools"), "outputs"], capture_output=True, text=True)
    if r.returncode:
        raise Skip(f"no Python packages to receive with: {r.stderr.strip()[-200:]}")
    return r.stdout.strip()


class Receiver:
    def __init__(self, t, port=0, start=True, tls=()):
        self.t, self.out, self.tls = t, t.path(f"otlp{len(t.children)}.jsonl"), list(tls)
        self.python = os.path.join(pytools(), "bin", "python")
        self.port = port or free_port()
        self.proc = None
        if start:
            self.start()

    def start(self):
        self.proc = self.t.spawn([self.python, os.path.join(HERE, "otlp_receiver.py"), str(self.port), self.out, *self.tls],
                                 stdout=subprocess.PIPE, text=True)
        line = self.proc.stdout.readline()
        if not line.startswith("listening"):
            raise AssertionError("the receiver did not start")

    def stop(self):
        self.proc.kill()
        self.proc.wait()

    @property
    def url(self):
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    def control(self, **plan):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        c.request("POST", "/control", json.dumps(plan))
        c.getresponse().read()
        c.close()

    def lines(self, path=None, taken=True):
        if not os.path.exists(self.out):
            return []
        with open(self.out) as f:
            got = [json.loads(l) for l in f if l.endswith("\n")]
        for l in got:
            self.t.check("broken" not in l, lambda: f"{l['path']}: {l.get('broken')}")
        return [l for l in got if (not path or l["path"] == path) and (not taken or l["status"] == 200)]

    def spans(self):
        return [s for l in self.lines("/v1/traces") for s in l["spans"]]

    def wait(self, n, path=None, taken=True, timeout=15):
        end = time.monotonic() + timeout
        while time.monotonic() < end and len(self.lines(path, taken)) < n:
            time.sleep(0.05)
        return self.lines(path, taken)


def replay(t, *args, rc=0, env=None, jsonl=True):
    """Of a recording of vLLM: its records, and what was said."""
    out = t.path(f"replay{len(os.listdir(t.dir))}.jsonl")
    e = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    e.update(env or {})
    r = subprocess.run([REQPROBE, "replay", REC, "--jsonl", out, "--itl", *map(str, args)], capture_output=True, text=True, env=e, timeout=40)
    t.equal(r.returncode, rc, f"replay {' '.join(map(str, args))}: exit status ({r.stderr.strip()[-300:]})")
    return (read_jsonl(out)[0] if jsonl else None), r.stderr


def success(r):
    return r["end"] == "complete" and not r["error"] and (r["status"] or 0) < 400


def counted(r):
    return not {"partial", "lost_events"} & set(r["flags"])


def figures(records, get, only=counted):
    """The seconds that a histogram should hold."""
    v = [get(r) for r in records if only(r)]
    return [x for x in v if x is not None]


def ms(group, name):
    return lambda r: None if (r[group] or {}).get(name) is None else r[group][name] / 1000


def tpot(r):
    s, n = r["server_timing"], r["tokens"]["completion"]
    if not success(r) or s["ttft_ms"] is None or s["duration_ms"] is None or not n or n < 2 or r["choices"] > 1:
        return None
    return (s["duration_ms"] - s["ttft_ms"]) / 1000 / (n - 1)


def ok(get):
    return lambda r: get(r) if success(r) else None


def total(points):
    return {"count": sum(p["count"] for p in points), "sum": sum(p["sum"] for p in points),
            "min": min((p["min"] for p in points), default=None), "max": max((p["max"] for p in points), default=None)}


def same_histogram(t, m, want, bounds, what):
    """Counts, sums, extremes and buckets are those of the figures."""
    points = m["points"] if m else []
    got = total(points)
    t.equal(got["count"], len(want), f"{what}: count")
    if not want or not points:
        return
    t.check(abs(got["sum"] - sum(want)) <= 1e-9 * max(1, sum(want)), f"{what}: sum {got['sum']}, expected {sum(want)}")
    for k, f in (("min", min), ("max", max)):
        t.check(abs(got[k] - f(want)) <= 1e-9, f"{what}: {k} {got[k]}, expected {f(want)}")
    if m["type"] == "histogram" and bounds:
        t.equal(points[0]["bounds"], bounds, f"{what}: bounds")
        exp = [0] * (len(bounds) + 1)
        for v in want:
            exp[bisect.bisect_left(bounds, round(v, 12))] += 1
        t.equal([sum(c) for c in zip(*(p["counts"] for p in points))], exp, f"{what}: buckets")
    if m["type"] == "exponential_histogram":
        for p in points:
            for i, c in enumerate(p["counts"]):
                base = 2 ** (2 ** -p["scale"])
                lo, hi = base ** (p["offset"] + i), base ** (p["offset"] + i + 1)
                near = sum(lo * (1 - 1e-9) < v <= hi * (1 + 1e-9) for v in want)
                t.check(near >= c, f"{what}: {c} in ({lo}, {hi}], of which {near} are known")


def same_metrics(t, metrics, records, bounds=True):
    by = {m["name"]: m for m in metrics}
    for name, get, b in (("gen_ai.server.request.duration", ms("server_timing", "duration_ms"), DURATION),
                         ("gen_ai.server.time_to_first_token", ok(ms("server_timing", "ttft_ms")), TTFT),
                         ("gen_ai.server.time_per_output_token", tpot, TPOT),
                         ("reqprobe.queue_time", ms("phases", "queue_ms"), None),
                         ("reqprobe.prefill_time", ms("phases", "prefill_ms"), None),
                         ("reqprobe.decode_time", lambda r: ms("phases", "decode_ms")(r) if r["end"] == "complete" else None, None),
                         ("reqprobe.frontend_before", ms("frontend", "before_ms"), None),
                         ("reqprobe.frontend_after_first_token", ms("frontend", "after_first_token_ms"), None)):
        same_histogram(t, by.get(name), figures(records, get), b if bounds else None, name)
    both = lambda r: None if None in (r["phases"]["receive_ms"], r["server_timing"]["duration_ms"]) else \
        (r["phases"]["receive_ms"] + r["server_timing"]["duration_ms"]) / 1000
    same_histogram(t, by.get("http.server.request.duration"), figures(records, both), HTTP if bounds else None, "http.server.request.duration")
    tokens = {p["attrs"]["gen_ai.token.type"]: p["value"] for p in by["reqprobe.tokens"]["points"]}
    for kind, name in (("input", "prompt"), ("output", "completion")):
        t.equal(tokens[kind], sum(r["tokens"][name] or 0 for r in records), f"reqprobe.tokens {kind}")
    ends = {}
    for r in records:
        k = (r["end"], r["status"])
        ends[k] = ends.get(k, 0) + 1
    got = {(p["attrs"]["reqprobe.end"], p["attrs"].get("http.response.status_code")): p["value"] for p in by["reqprobe.requests"]["points"]}
    t.equal({k: v for k, v in got.items() if v}, ends, "reqprobe.requests")
    t.equal(sum(p["count"] for p in (by.get("reqprobe.inter_token_latency") or {"points": []})["points"]),
            sum(len(r.get("itl_ms") or []) for r in records), "reqprobe.inter_token_latency: count")
    t.equal(sum(p["count"] for p in (by.get("reqprobe.inter_chunk_latency") or {"points": []})["points"]),
            sum(len(r.get("icl_ms") or []) for r in records), "reqprobe.inter_chunk_latency: count")


def wall_ns(r):
    d, _, frac = r["start"].rstrip("Z").partition(".")
    return int(time.mktime(time.strptime(d + " UTC", "%Y-%m-%dT%H:%M:%S %Z")) - time.timezone) * 10**9 + int(frac.ljust(9, "0"))


def same_spans(t, spans, records):
    """One of kind SERVER for each record; its children are the phases that are known."""
    roots = {s["attrs"].get("http.request.header.x-request-id", [s["attrs"].get("gen_ai.response.id")])[0]: s for s in spans if s["kind"] == 2}
    kids = {}
    for s in spans:
        if s["kind"] == 1:
            kids.setdefault(s["parent"], {})[s["name"]] = s
    t.equal(sum(s["kind"] == 2 for s in spans), len(records), "spans of kind SERVER")
    t.equal(len({s["span"] for s in spans}), len(spans), "span ids")
    for r in records:
        s = roots.get(r["x_request_id"] or r["id"])
        if not t.check(s is not None, f"no span of {r['id']} {r['x_request_id']}"):
            continue
        who = f"span of {r['x_request_id'] or r['id']}"
        a = s["attrs"]
        t.equal(s["name"], f"{a['gen_ai.operation.name']} {a['gen_ai.request.model']}", f"{who}: name")
        t.equal(s["start"], wall_ns(r), f"{who}: start")
        if r["server_timing"]["duration_ms"] is not None:
            t.equal(s["end"] - s["start"], round((r["server_timing"]["duration_ms"] + r["phases"]["receive_ms"]) * 1e6), f"{who}: duration")
        for key, name in (("input", "prompt"), ("output", "completion")):
            t.equal(a.get(f"gen_ai.usage.{key}_tokens"), r["tokens"][name], f"{who}: {key} tokens")
        t.equal((a["reqprobe.end"], a.get("http.response.status_code"), a["http.request.method"], a["url.path"]),
                (r["end"], r["status"], r["method"], r["path"]), f"{who}: HTTP")
        t.equal(a.get("gen_ai.response.finish_reasons"), [r["finish_reason"]] if r["finish_reason"] else None, f"{who}: finish_reasons")
        t.equal("error.type" in a, not success(r), f"{who}: error.type {a.get('error.type')}")
        t.equal(s["status"] == 2, (r["status"] or 0) >= 500 or (bool(r["error"]) and r["status"] < 400) or r["end"] == "server_close", f"{who}: status")
        own = kids.get(s["span"], {})
        for name in ("queue", "prefill", "decode"):
            want = (r["phases"] or {}).get(f"{name}_ms")
            got = own.get(name)
            if t.check((want is None) == (got is None), f"{who}: {name} is {want} ms, and the span {got}") and got:
                t.equal(got["end"] - got["start"], round(want * 1e6), f"{who}: {name}")
                t.equal(got["trace"], s["trace"], f"{who}: trace of {name}")


def last(receiver, t):
    lines = receiver.lines("/v1/metrics")
    t.check(lines, "no metrics arrived")
    return lines[-1]["metrics"] if lines else []


@test(180, probe=False)  # the first one: the packages may have to be installed
def otlp_wire(t):
    """protobuf and JSON, plain and gzip, all say what the records say."""
    for args in ([], ["--otlp-protocol", "http/json"], ["--otlp-compression", "none"],
                 ["--otlp-protocol", "http/json", "--otlp-compression", "none"]):
        rx = Receiver(t)
        records, err = replay(t, "--otlp", rx.url, "--otlp-traces", *args)
        t.equal(err, "", f"{args}: stderr")
        lines = rx.lines("/v1/metrics")
        t.equal(len(lines), 1, f"{args}: exports of metrics")
        same_metrics(t, lines[-1]["metrics"], records)
        same_spans(t, rx.spans(), records)
        h = lines[-1]["headers"]
        t.equal((h.get("content-encoding"), h["content-type"]),
                (None if "none" in args else "gzip", "application/json" if "http/json" in args else "application/x-protobuf"), "headers")
        r = lines[-1]["resource"]
        t.equal((r["service.name"], r["service.version"]), ("vllm", "0.32.0"), "resource")
        t.check(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", r["service.instance.id"]), "service.instance.id")
        t.equal(lines[-1]["scope"], "reqprobe", "scope")
        for m in lines[-1]["metrics"]:
            if m["name"].startswith("gen_ai.server."):
                for p in m["points"]:
                    a = p["attrs"]
                    t.check({"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model", "server.address",
                             "server.port"} <= set(a), f"{m['name']}: attributes {sorted(a)}")
                    t.equal((m["unit"], m["type"], m["temporality"]), ("s", "histogram", 2), m["name"])
                    t.check(p["start"] < p["time"], f"{m['name']}: {p['start']} to {p['time']}")
        rx.stop()


@test(60, probe=False)
def otlp_shapes(t):
    """Exponential histograms, extended bounds, delta, names and resource by option."""
    rx = Receiver(t)
    records, _ = replay(t, "--otlp", rx.url, "--otlp-exponential", "--otlp-provider", "mine", "--otlp-resource", "service.name=svc", "--otlp-resource",
                        "a.b=c d", "--otlp-schema-url", "https://example.invalid/1")
    line = rx.lines("/v1/metrics")[-1]
    same_metrics(t, line["metrics"], records)
    t.check(all(m["type"] != "histogram" for m in line["metrics"]), "an explicit histogram among exponential ones")
    t.equal((line["resource"]["service.name"], line["resource"]["a.b"], line["schema_url"]), ("svc", "c d", "https://example.invalid/1"), "resource")
    t.equal({p["attrs"]["gen_ai.provider.name"] for m in line["metrics"] if m["name"].startswith("gen_ai.server") for p in m["points"]}, {"mine"}, "provider")
    records, _ = replay(t, "--otlp", rx.url, "--otlp-buckets", "extended", "--otlp-temporality", "delta")
    line = rx.lines("/v1/metrics")[-1]
    same_metrics(t, line["metrics"], records, bounds=False)
    for m in line["metrics"]:
        if m["type"] == "histogram":
            t.equal(m["temporality"], 1, f"{m['name']}: temporality")
        if m["name"].startswith("gen_ai.server"):
            t.check(m["points"][0]["bounds"][-1] == 2560, f"{m['name']}: bounds {m['points'][0]['bounds']}")
        if m["type"] == "sum":
            t.equal(m["temporality"], 1 if m["monotonic"] else 2, f"{m['name']}: temporality")
    records, _ = replay(t, "--otlp", rx.url, "--otlp-max-series", "2")
    line = rx.lines("/v1/metrics")[-1]
    same_metrics(t, line["metrics"], records)
    over = [p["attrs"] for m in line["metrics"] if m["name"] == "gen_ai.server.request.duration" for p in m["points"] if "otel.metric.overflow" in p["attrs"]]
    t.equal(over, [{"otel.metric.overflow": True}], "overflow series")
    rx.stop()


@test(60, probe=False)
def otlp_rotel(t):
    """A real receiver decodes it: the debug log of rotel."""
    agent = os.path.join(pytools(), "lib")
    found = [os.path.join(d, f) for d, _, fs in os.walk(agent) for f in fs if f == "rotel-agent"]
    if not found:
        raise Skip("the package rotel has no rotel-agent")
    os.chmod(found[0], 0o755)
    port, grpc, log = free_port(), free_port(), t.path("rotel.log")
    with open(log, "wb") as f:
        p = t.spawn([found[0], "start", "--debug-log", "metrics", "--debug-log", "traces", "--debug-log-verbosity", "detailed", "--exporter",
                     "blackhole", "--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}", "--pid-file",
                     t.path("rotel.pid")], stdout=f, stderr=subprocess.STDOUT)
    end = time.monotonic() + 15
    while time.monotonic() < end and p.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        time.sleep(0.1)
    if p.poll() is not None:
        raise Skip(f"rotel does not run here: {open(log).read()[-200:]}")
    for args in ([], ["--otlp-protocol", "http/json"], ["--otlp-exponential"]):
        at = os.path.getsize(log)
        records, err = replay(t, "--otlp", f"http://127.0.0.1:{port}", "--otlp-traces", *args)
        t.equal(err, "", "stderr")
        end, text = time.monotonic() + 10, ""
        while time.monotonic() < end and text.count("Kind           : SPAN_KIND_SERVER") < len(records):
            time.sleep(0.1)
            with open(log, errors="replace") as f:
                f.seek(at)
                text = f.read()
        t.equal(text.count("Kind           : SPAN_KIND_SERVER"), len(records), f"{args}: spans of kind SERVER in rotel's log")
        t.equal(text.count("Name           : decode"), sum(r["phases"]["decode_ms"] is not None for r in records), f"{args}: decode spans")
        if "http/json" in args: # rotel 0.0.1a15 takes 64-bit integers of metrics as numbers only, not as the strings of proto3's JSON
            t.check("Name: gen_ai.server.time_to_first_token" in text, f"{args}: no time_to_first_token in rotel's log")
            continue
        part = text.split("Name: gen_ai.server.time_to_first_token", 1)[-1].split("Name: ", 1)[0]
        t.equal(sum(map(int, re.findall(r"^\s*(?:-> )?Count: (\d+)", part, re.M))), len(figures(records, ok(ms("server_timing", "ttft_ms")))),
                f"{args}: count of time_to_first_token in rotel's log")
        t.check("Histogram" in part and "gen_ai.operation.name: Str(chat)" in part, f"{args}: {part[:300]}")


@test(60, probe=False)
def otlp_refusals(t):
    """400 is never sent again, partial success is counted, redirects are not followed,
    429 and 503 are retried as asked; one line each; secrets are in none."""
    secret = "s3cr3t-value"
    for status in (400, 404, 307):
        rx = Receiver(t)
        rx.control(status=status, headers={"Location": rx.url + "/v1/other"})
        _, err = replay(t, "--otlp", rx.url.replace("://", f"://u:{secret}@"), "--otlp-traces", "--otlp-header", f"x-api-key={secret}", rc=1)
        lines = rx.lines(taken=False)
        t.equal({l["path"] for l in lines}, {"/v1/metrics", "/v1/traces"}, f"{status}: paths")
        t.equal(len(lines), 2, f"{status}: attempts")
        t.equal(lines[0]["headers"].get("x-api-key"), secret, f"{status}: header")
        t.check(secret not in err, f"{status}: a secret is in {err}")
        t.equal(err.count(f"HTTP status {status}"), 2, f"{status}: {err}")
        t.check(re.search(r"spans of 12 requests were not delivered: 0 found the queue full, 12 were refused", err), f"{status}: {err}")
        _, err = replay(t, "--otlp", rx.url, rc=1)
        t.check(re.search(r"metrics were not delivered: \d+ data points were refused", err), f"{status}, metrics alone: {err}")
        rx.stop()
    # what a later export brings was not lost, unless each has only what is new
    for args, rc in (([], 0), (["--otlp-temporality", "delta"], 1)):
        rx, srv = Receiver(t), t.paced()
        rx.control(status=400, times=1)
        p = t.probe(srv, args=otlp_args("--otlp", rx.url, *args))
        rx.wait(1, "/v1/metrics", taken=False)
        p.stop(expect_rc=rc)
        t.equal("metrics were not delivered" in p.stderr(), rc == 1, f"refused once, {args}: {p.stderr()}")
        rx.stop()
        srv.stop()
    rx = Receiver(t)
    rx.control(partial=3)
    for args in ([], ["--otlp-protocol", "http/json"]):
        n = len(rx.lines())
        _, err = replay(t, "--otlp", rx.url, "--otlp-traces", *args, rc=1)
        t.equal(len(rx.lines()) - n, 2, "partial success: attempts")
        t.check(re.search(r"rejected 3 data points: no thanks\?\[31m", err) and "rejected 3 spans" in err, f"partial success: {err}")
    # a receiver can't reject more than it was sent
    rx.control(partial=10**15)
    _, err = replay(t, "--otlp", rx.url, "--otlp-traces", rc=1)
    sent = len(rx.lines("/v1/traces")[-1]["spans"])
    t.check(f"otlp: {sent} spans were taken by the receiver and rejected" in err, f"rejected of {sent}: {err}")
    at = time.time()
    rx.control(status=429, headers={"Retry-After": "2"}, times=1)
    records, err = replay(t, "--otlp-traces=" + rx.url + "/v1/traces")
    lines = [l for l in rx.lines("/v1/traces", taken=False) if l["at"] > at]
    t.equal([l["status"] for l in lines], [429, 200], "429: attempts")
    # a clean end waits no longer than its own limit: asked again after 2 s
    if len(lines) == 2:
        t.check(lines[1]["at"] - lines[0]["at"] >= 1.9 or lines[1]["at"] - at < 1.9, "429: too early")
    t.equal(len(err.splitlines()), 2, f"429: {err}")
    t.check("HTTP status 429" in err and "again" in err, f"429: {err}")
    rx.stop()


@test(60, probe=False)
def otlp_no_http(t):
    """What answers is no HTTP, or breaks off: sent again until a receiver is there."""
    rx = Receiver(t, start=False)
    answers = [b"\0\0\x12\4\0\0\0\0\0\0\3\0\0\0\x64", b"220 mail.example ESMTP\r\n", b"HTTP/1.1 \r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Le",
               b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx", b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n", b""]
    with socket.socket() as l:
        l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        l.bind(("127.0.0.1", rx.port))
        l.listen(16)
        out = t.path("no-http.jsonl")
        p = t.spawn([REQPROBE, "replay", REC, "--jsonl", out, "--otlp-traces=" + rx.url + "/v1/traces", "--otlp-flush", "1h"],
                    stderr=subprocess.PIPE, text=True, env={k: v for k, v in os.environ.items() if not k.startswith("OTEL_")})
        l.settimeout(40)
        for a in answers[:4]:
            c, _ = l.accept()
            c.recv(1 << 16)
            c.sendall(a)
            c.close()
    rx.start()
    err = p.communicate(timeout=40)[1]
    t.equal(p.returncode, 0, f"exit status: {err}")
    t.equal(sum(s["kind"] == 2 for s in rx.spans()), 12, "requests that arrived")
    t.check("the answer is no HTTP" in err, err)
    rx.stop()
    # each of them alone: it is not given up at the first answer, and the end says what is missing
    for a in answers:
        with socket.socket() as l:
            l.bind(("127.0.0.1", 0))
            l.listen(16)

            def serve(l=l, a=a):
                try:
                    while True:
                        c, _ = l.accept()
                        c.recv(1 << 16)
                        c.sendall(a)
                        c.close()
                except OSError:
                    pass
            threading.Thread(target=serve, daemon=True).start()
            url = f"http://127.0.0.1:{l.getsockname()[1]}"
            _, err = replay(t, "--otlp", url, "--otlp-traces", "--otlp-flush", "0.3", rc=1)
            t.check("12 were left at the end" in err and "the last metrics could not be delivered" in err, f"{a!r}: {err}")
            l.shutdown(socket.SHUT_RDWR)


@test(60, probe=False)
def otlp_end_is_bounded(t):
    """A receiver that accepts and never answers; a queue that is too small."""
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen(16)
    t0 = time.monotonic()
    _, err = replay(t, "--otlp", f"http://127.0.0.1:{s.getsockname()[1]}", "--otlp-traces", "--otlp-flush", "1", rc=1)
    took = time.monotonic() - t0
    t.check(took < 1 + 3.5, f"ended after {took:.1f} s")
    t.check("the last metrics could not be delivered" in err and "12 were left at the end" in err, err)
    s.close()
    t.note(f"{took:.1f} s with 1 s to flush")


@test(60, probe=False)
def otlp_tls(t):
    """https: trusted by --otlp-certificate or its variable, else not."""
    if not shutil.which("openssl"):
        raise Skip("no openssl")
    cert, key = t.path("cert.pem"), t.path("key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    rx = Receiver(t, tls=(cert, key))
    _, err = replay(t, "--otlp", rx.url, "--otlp-flush", "500ms", rc=1)
    t.check("certificate" in err and not rx.lines(), f"not trusted: {err}")
    for args, env in ((["--otlp-certificate", cert], {}), ([], {"OTEL_EXPORTER_OTLP_CERTIFICATE": cert})):
        n = len(rx.lines())
        records, err = replay(t, "--otlp", rx.url, "--otlp-traces", *args, env=env)
        t.equal((len(rx.lines()) - n, err), (2, ""), f"{args} {env}: exports")
    same_metrics(t, last(rx, t), records)
    rx.stop()


@test(60, probe=False)
def otlp_environment(t):
    """OTEL_ variables: watched for by the rules; options win. (An endpoint alone
    switches on only while watching: see otlp_live.)"""
    rx = Receiver(t)
    other = Receiver(t, start=False)
    replay(t, env={"OTEL_EXPORTER_OTLP_ENDPOINT": rx.url})
    t.equal(len(rx.lines()), 0, "exports of a replay by the environment alone")
    replay(t, "--otlp", rx.url + "/", env={
        "OTEL_EXPORTER_OTLP_ENDPOINT": other.url, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": other.url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-a=general", "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "x-b=b%20c, x-d = e",
        "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION": "none", "OTEL_SERVICE_NAME": "named", "OTEL_RESOURCE_ATTRIBUTES": "service.name=no,team=a%2Cb",
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "Delta", "OTEL_SDK_DISABLED": "true",
        "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "base2_exponential_bucket_histogram"})
    got = rx.lines("/v1/metrics")
    t.equal(len(got), 1, "exports")
    h = got[0]["headers"]
    t.equal((h.get("x-a"), h.get("x-b"), h.get("x-d"), h.get("content-encoding"), h["content-type"]), (None, "b c", "e", None, "application/json"), "headers")
    t.equal((got[0]["resource"]["service.name"], got[0]["resource"]["team"]), ("named", "a,b"), "resource")
    t.check(any(m["type"] == "exponential_histogram" and m["temporality"] == 1 for m in got[0]["metrics"]), "exponential, delta")
    _, err = replay(t, "--otlp", rx.url, env={"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_METRIC_EXPORT_INTERVAL": "often"})
    t.check("OTEL_EXPORTER_OTLP_PROTOCOL is grpc" in err and "OTEL_METRIC_EXPORT_INTERVAL is no number" in err, err)
    for args in (["--otlp", "localhost:4318"], ["--otlp", "http://"], ["--otlp", rx.url + "/v1/metrics"], ["--otlp", rx.url, "--otlp-header", "x"]):
        _, err = replay(t, *args, rc=2, jsonl=False)
        t.equal(len(err.splitlines()), 1, f"{args}: {err}")
    for args in (["--otlp-interval", "0"], ["--otlp-protocol", "grpc"], ["--otlp-queue", "1K"], ["--otlp-max-series", "1"]):
        _, err = replay(t, *args, rc=2, jsonl=False)
        t.equal(len(err.splitlines()), 1, f"{args}: {err}")
    rx.stop()


def post(port, headers, body):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json", **headers})
    r = c.getresponse().read()
    c.close()
    return r


def otlp_args(*a):
    return ["--otlp-interval", "500ms", *a]


@test(60)
def otlp_live(t):
    """A run with errors and hang-ups; the environment alone; traces of the clients."""
    rx, srv = Receiver(t), t.paced()
    env = ["env", f"OTEL_EXPORTER_OTLP_ENDPOINT={rx.url}", "OTEL_TRACES_EXPORTER=otlp", "OTEL_METRIC_EXPORT_INTERVAL=500"]
    p = t.probe(srv, prefix=env)
    t.check(f"otlp: metrics and spans to {rx.url}/v1/metrics, as the environment says" in p.stderr(), p.stderr())
    run_client(t, srv.port, n=20, c=5, usage=True, max_tokens=8, extra={"gap_us": 3000})
    run_client(t, srv.port, n=3, c=3, id="f", stream=False, extra={"fail": 503}, check=False)
    run_client(t, srv.port, n=2, c=2, id="n", stream=False, extra={"fail": 404}, check=False)
    run_client(t, srv.port, n=2, c=2, id="q", hangup=400, max_tokens=40, extra={"gap_us": 20000})
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    body = {"model": "m", "stream": True, "max_tokens": 4, "messages": [{"role": "user", "content": "SECRETmarker"}], "gap_us": 1000}
    post(srv.port, {"traceparent": f"00-{trace}-{parent}-01", "tracestate": "a=b", "X-Request-Id": "sampled"}, body)
    post(srv.port, {"traceparent": f"00-{trace}-{parent}-00", "X-Request-Id": "unsampled"}, body)
    post(srv.port, {"traceparent": f"00-{trace}-{'0' * 16}-01", "X-Request-Id": "invalid"}, body)
    p.wait_records(30)
    m = p.metrics()
    t.check(m.sum("reqprobe_otlp_exports_total") is not None and m.sum("reqprobe_otlp_queue_requests") is not None, "reqprobe_otlp_ is missing")
    records = p.finish(30)
    t.equal(len(records), 30, "records")
    same_metrics(t, last(rx, t), records)
    spans = rx.spans()
    xid = lambda s: s["attrs"].get("http.request.header.x-request-id", [None])[0]
    t.equal([s for s in spans if xid(s) == "unsampled"], [], "spans of a trace that is not sampled")
    same_spans(t, spans, [r for r in records if r["x_request_id"] != "unsampled"])
    for s in spans:
        if s["kind"] == 2 and xid(s) == "sampled":
            t.equal((s["trace"], s["parent"], s["flags"]), (trace, parent, 0x301), "the client's trace")
        elif s["kind"] == 2:
            t.equal((s["trace"] == trace, s["parent"], s["flags"]), (False, "", 0x101), f"a trace of its own ({xid(s)})")
    by = {m["name"]: m for m in last(rx, t)}
    errors = {p["attrs"].get("error.type"): p["count"] for p in by["gen_ai.server.request.duration"]["points"]}
    t.equal((errors.get("503"), errors.get("404"), sum(v for k, v in errors.items() if k is None)), (3, 2, 23), f"gen_ai error.type {errors}")
    errors = {(p["attrs"]["http.response.status_code"], p["attrs"].get("error.type")): p["count"] for p in by["http.server.request.duration"]["points"]}
    t.check(errors.get((503, "503")) == 3 and errors.get((404, None)) == 2, f"http error.type {errors}")
    ex = [e for l in rx.lines("/v1/metrics") for m in l["metrics"] for q in m["points"] for e in q.get("exemplars", [])]
    ids = {s["span"]: s for s in spans}
    t.check(any(e["trace"] == trace for e in ex), "no exemplar of the client's trace")
    for e in ex:
        s = ids.get(e["span"])
        t.check(s is not None and s["trace"] == e["trace"] and s["attrs"].get("gen_ai.response.id") == e["attrs"].get("gen_ai.response.id"), f"exemplar {e}")
    t.check(b"SECRETmarker" not in open(rx.out, "rb").read(), "the prompt is in what was sent")
    starts = {q["start"] for l in rx.lines("/v1/metrics") for m in l["metrics"] if m["type"] != "gauge" for q in m["points"]}
    t.equal(len(starts), 1, "start times of cumulative data")
    t.note(f"{len(rx.lines('/v1/metrics'))} exports of metrics, {len(spans)} spans, {len(ex)} exemplars")
    rx.stop()


@test(max(60, DOWN_S + 50))
def otlp_away(t):
    """The receiver is not there, then it is: nothing is lost, records come at once, one
    line each. REQPROBE_OTLP_DOWN_S=60 is the full length."""
    rx, srv = Receiver(t, start=False), t.paced()
    p = t.probe(srv, args=otlp_args("--otlp", rx.url, "--otlp-traces"))
    stop, worst, n = time.monotonic() + DOWN_S, 0, 0
    while time.monotonic() < stop:
        run_client(t, srv.port, n=5, c=5, id=f"w{n}-", usage=True, max_tokens=3, extra={"gap_us": 1000})
        n += 5
        t0 = time.monotonic()
        t.check(p.wait_records(n, 5), "a record did not come while the receiver was away")
        worst = max(worst, time.monotonic() - t0)
        time.sleep(0.3 if DOWN_S < 20 else 1)
    t.equal(p.stderr().count("don't get through"), 2, f"lines of the failure: {p.stderr()}")
    m = p.metrics()
    t.check((m.sum("reqprobe_otlp_up") or 0) == 0 and m.sum("reqprobe_otlp_exports_total", result="retry") >= 2, "self metrics while away")
    t.check(m.sum("reqprobe_otlp_queue_requests") + 128 >= n - 4, f"{m.sum('reqprobe_otlp_queue_requests')} of {n} requests wait")
    rx.start()
    t.check(rx.wait(1, "/v1/metrics", timeout=32) and rx.wait(1, "/v1/traces", timeout=32), "nothing came when the receiver was back")
    run_client(t, srv.port, n=5, c=5, id="z", usage=True, max_tokens=3, extra={"gap_us": 1000})
    records = p.finish(n + 5)
    t.equal(len(records), n + 5, "records")
    t.equal(p.stderr().count("get through to"), 4, f"lines: {p.stderr()}")
    same_metrics(t, last(rx, t), records)
    same_spans(t, rx.spans(), records)
    t.check(worst < 2, f"a record came {worst:.1f} s late")
    t.note(f"away for {DOWN_S:.0f} s, {n} requests meanwhile, records within {worst:.2f} s")
    rx.stop()


@test(60)
def otlp_slow_and_busy(t):
    """Slow answers, 503, 429 with a date: nothing is lost, records come at once."""
    rx, srv = Receiver(t), t.paced()
    p = t.probe(srv, args=otlp_args("--otlp", rx.url, "--otlp-traces", "--otlp-temporality", "delta", "--otlp-flush", "10"))
    rx.control(delay=1.2)
    n, worst, at = 0, 0, time.time()

    def load(k):
        nonlocal n, worst
        for _ in range(k):
            run_client(t, srv.port, n=10, c=10, id=f"s{n}-", usage=True, max_tokens=3, extra={"gap_us": 1000})
            n += 10
            t0 = time.monotonic()
            t.check(p.wait_records(n, 5), "a record did not come")
            worst = max(worst, time.monotonic() - t0)
    load(3)
    rx.wait(1, "/v1/traces")
    rx.control(status=503)
    load(3)
    rx.wait(len(rx.lines("/v1/traces")) + 1, "/v1/traces", taken=False, timeout=5)
    time.sleep(1)
    until = int(time.time()) + 3
    rx.control(status=429, headers={"Retry-After": formatdate(until, usegmt=True)})
    end = time.monotonic() + 20
    while time.monotonic() < end and not all(any(l["status"] == 429 for l in rx.lines(s, taken=False)) for s in ("/v1/metrics", "/v1/traces")):
        time.sleep(0.1)
    rx.control()
    load(1)
    end = time.monotonic() + 20
    while time.monotonic() < end and sum(s["kind"] == 2 for s in rx.spans()) < n:
        time.sleep(0.1)
    records = p.finish(n)
    for path in ("/v1/metrics", "/v1/traces"):
        lines = rx.lines(path, taken=False)
        t.check({503, 429} <= {l["status"] for l in lines}, f"{path}: answers {[l['status'] for l in lines]}")
        # a date has whole seconds, and a clock that curl reads
        early = [l["at"] - until for a, l in zip(lines, lines[1:]) if a["status"] == 429 and l["at"] < until - 1.1 and a["at"] < until - 1.1]
        t.check(not early, f"{path}: asked again {early} s before Retry-After")
    # delta: what was taken adds up
    whole = {}
    for l in rx.lines("/v1/metrics"):
        for m in l["metrics"]:
            w = whole.setdefault(m["name"], {**m, "points": {}})
            for q in m["points"]:
                k = json.dumps(q["attrs"], sort_keys=True)
                if k not in w["points"] or not ("count" in q or m["monotonic"]):
                    w["points"][k] = dict(q)
                elif "count" in q:
                    o = w["points"][k]
                    t.check(q["start"] == o["time"], f"{m['name']}: a delta starts at {q['start']}, the one before ended at {o['time']}")
                    o.update(count=o["count"] + q["count"], sum=o["sum"] + q["sum"], min=min(o["min"], q["min"]), max=max(o["max"], q["max"]),
                             counts=[a + b for a, b in zip(o["counts"], q["counts"])], time=q["time"])
                else:
                    o = w["points"][k]
                    t.check(q["start"] == o["time"], f"{m['name']}: a delta starts at {q['start']}, the one before ended at {o['time']}")
                    o.update(value=o["value"] + q["value"], time=q["time"])
    same_metrics(t, [{**m, "points": list(m["points"].values())} for m in whole.values()], records)
    same_spans(t, rx.spans(), records)
    t.check(worst < 2, f"a record came {worst:.1f} s late")
    t.equal(p.stderr().count("don't get through"), 2, p.stderr())
    t.note(f"{n} requests, records within {worst:.2f} s, {len(rx.lines(taken=False))} attempts")
    rx.stop()


@test(60)
def otlp_full_queue(t):
    """What a full queue turns away is counted, and only that."""
    rx, srv = Receiver(t, start=False), t.paced()
    p = t.probe(srv, args=["--otlp-traces=" + rx.url + "/v1/traces", "--otlp-queue", "64K"],
                prefix=["env", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=64"])
    run_client(t, srv.port, n=400, c=20, stream=False, quiet=True, max_tokens=1)
    p.wait_records(400)
    full = p.wait_metric("reqprobe_otlp_requests_dropped_total", 1, reason="queue_full")
    rx.start()
    time.sleep(0.2)
    records = p.stop(expect_rc=1)
    t.equal(len(records), 400, "records")
    got = sum(s["kind"] == 2 for s in rx.spans())
    m = re.search(r"spans of (\d+) requests were not delivered: (\d+) found the queue full", p.stderr())
    t.check(m and int(m[1]) == int(m[2]) and int(m[1]) + got == 400 and got > 50, f"{got} delivered; {p.stderr()}")
    t.check(full and full > 0, f"queue_full is {full}")
    t.note(f"{got} of 400 found room in 64K")
