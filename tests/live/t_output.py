# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What comes out: privacy, replay, schema, metrics. The last tests judge what
all the others left."""

import http.client, json, os, random, re, shutil, subprocess, time
from harness import *

MARK = "XYZZY-plugh-93177-MARKER"


@test(60)
def privacy(t):
    """A marker in prompt, answer, header, query, tool call, error and model's
    neighbourhood is in no output; the filler keeps every length."""
    def h(c, r):
        if r.xid == "plain":
            return c.json({"id": "c1", "choices": [{"index": 0, "message": {"role": "assistant", "content": MARK, "reasoning_content": MARK,
                          "tool_calls": [{"function": {"name": MARK, "arguments": MARK}}]}}], MARK: MARK, "usage": {"completion_tokens": 3, "prompt_tokens": 3}},
                          extra=f"X-Other: {MARK}\r\n")
        if r.xid == "fail":
            return c.json({"error": {"message": MARK, "type": "server_error", "param": MARK, "code": 500}}, "500 " + MARK)
        c.begin(extra=f"X-Other: {MARK}\r\nSet-Cookie: s={MARK}\r\n")
        c.event(ROLE, 10)
        c.event(f": {MARK}\n\n".encode())
        c.event(TOK(MARK), 20, "tok")
        tok = TOK(f"a {MARK} b")
        for i in range(0, len(tok), 7):
            c.event(tok[i:i + 7])
        c.event(DELTA(reasoning_content=MARK))
        c.event(DELTA(tool_calls=[{"index": 0, "function": {"name": MARK, "arguments": json.dumps({"x": MARK})}}]))
        c.event(f"foo: {MARK}\nid: {MARK}\n".encode() + TOK("z" + MARK))
        c.event(EVENT({"error": {"message": MARK, "type": "server_error"}}) if r.xid == "err" else USAGE(4))
        c.event(b"data: not json " + MARK.encode() + b"\n\n")
        c.end()
    srv = t.server(h)
    p = t.probe(srv, record=True, args=["-v"])
    c = Client(srv)
    body = {"model": "m", "stream": True, MARK: MARK, "tools": [{"function": {"name": MARK, "parameters": {MARK: 1}}}],
            "messages": [{"role": "system", "content": MARK}, {"role": "user", "content": [{"type": "text", "text": MARK}]}], "user": MARK}
    for x in ("stream", "err", "plain", "fail"):
        c.ask(x, body=body, path="/v1/chat/completions?key=" + MARK, headers=[f"Authorization: Bearer {MARK}", f"Cookie: {MARK}", f"X-{MARK}: 1"])
    c.ask("other", path="/" + MARK, method="GET")
    # bytes that are no HTTP, a request line that is none, and a body cut short
    for blob in (MARK.encode() * 3, f"POST /{MARK} HTP/9\r\n{MARK}\r\n\r\n".encode(),
                 f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5000\r\n\r\n{{\"messages\":[{{\"content\":\"{MARK}".encode()):
        d = Client(srv)
        d.send(blob)
        time.sleep(0.02)
        d.close()
    c.close()
    p.wait_records(4)
    m = p.metrics()
    recs = p.finish(4)
    t.check(len(recs) >= 4, f"{len(recs)} records")
    needles = [MARK.encode(), b"plugh", b"93177"]
    places = {"metrics": m.text.encode()}
    for name in ("jsonl", "record", "err", "out"):
        with open(getattr(p, name), "rb") as f:
            places[name] = f.read()
    for name, data in places.items():
        for n in needles:
            t.check(n not in data, f"{n.decode()} is in {name}: ...{data[max(0, data.find(n) - 60):data.find(n) + 30]!r}")
    t.check(len(places["record"]) > 1000, "the recording is empty")
    r = subprocess.run([REQPROBE, "replay", p.record], capture_output=True)
    t.check(MARK.encode() not in r.stdout + r.stderr, "the marker is in the replay")
    t.note(f"recording {len(places['record'])} bytes")


@test(60)
def privacy_memory_dump(t):
    """A core dump of the daemon must not be made by default."""
    srv = t.paced()
    p = t.probe(srv)
    with open(f"/proc/{p.pid}/limits") as f:
        core = re.search(r"Max core file size\s+(\S+)", f.read())[1]
    t.equal(core, "0", "core file size limit")
    p.stop()


@test(60)
def record_raw(t):
    """--record-raw keeps the text and says so in the file."""
    srv = t.server(lambda c, r: (c.begin(), c.event(TOK(MARK), 10), c.end()))
    raw = t.path("raw.rec")
    p = t.probe(srv, args=["--record-raw", raw]) if takes_file(t, "--record-raw") else t.probe(srv, record=raw, args=["--record-raw"])
    ask(srv, "x0")
    p.finish(1)
    with open(raw, "rb") as f:
        t.check(MARK.encode() in f.read(), "the text is not in the raw recording")


def takes_file(t, opt):
    h = subprocess.run([REQPROBE, "--help"], capture_output=True, text=True).stdout
    return bool(re.search(re.escape(opt) + r"[ =][A-Z]", h))


@test(60)
def record_keeps_the_former(t):
    """A recording of the same name is put aside, by one that has no event nothing is."""
    srv = t.paced()
    rec = t.path("x.rec")

    def again(n):
        p = t.probe(srv, record=rec)
        run_client(t, srv.port, n=n, max_tokens=2)
        p.finish(n, whole=False)
        return [subprocess.run([REQPROBE, "replay", f], capture_output=True, text=True).stdout.count('"reqprobe.request/')
                for f in (rec, rec + ".old") if os.path.exists(f)]
    t.equal(again(1), [1], "records after the first")
    t.equal(again(2), [2, 1], "records after the second")
    t.equal(again(3), [3, 2], "records after the third")
    os.truncate(rec, 10)
    t.equal(again(4), [4, 2], "records after one that was empty")
    os.remove(rec + ".old")
    os.mkdir(rec + ".old")
    r = subprocess.run([REQPROBE, "--pid", str(srv.pid), "--metrics", "off", "--record", rec], capture_output=True, text=True, timeout=20)
    t.check(r.returncode == 1 and len(r.stderr.splitlines()) == 1 and "x.rec.old" in r.stderr, f"{r.returncode}, {r.stderr}")
    t.check(os.path.getsize(rec) > 100, "the former recording is gone")


@test(90)
def replay_is_identical(t):
    """A recording gives the live JSONL byte for byte, without root."""
    def h(c, r):
        k = r.xid.split("-")[0]
        if k == "plain":
            return c.json({"id": "c1", "choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}, ms=5)
        if k == "fail":
            return c.json({"error": {"message": "no", "type": "t", "code": 1}}, "503 No")
        c.begin()
        for i in range(8):
            c.event(DELTA(content=f"w{i} é \"quoted\"") if i % 3 else DELTA(reasoning_content="hm"), 5 * i, "tok")
        c.event(USAGE(8))
        c.end()
    srv = t.server(h)
    p = t.probe(srv, record=True)
    ids = [f"{k}-{i}" for i in range(6) for k in ("stream", "plain", "fail")]
    c = Client(srv)
    for x in ids:
        c.ask(x, framing="chunked", stream=not x.startswith("plain"))
    for x in ("stream-c", "stream-d"):
        d = Client(srv)
        d.send(chat(x, framing="close"))
        d.read_some(300)
        d.close() if x.endswith("c") else d.rst()
    c.close()
    recs = p.finish(len(ids) + 2)
    t.equal(len(recs), len(ids) + 2, "records")
    replayed = t.path("replay.jsonl")
    nobody = t.path("rec")
    shutil.copy(p.record, nobody)
    os.chmod(nobody, 0o644)
    r = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", REQPROBE, "replay", nobody, "--itl"],
                       capture_output=True, text=True)
    t.equal(r.returncode, 0, f"exit status of replay ({r.stderr.strip()[:200]})")
    with open(p.jsonl) as f:
        live = f.read()
    live_records = [l for l in live.splitlines() if not l.startswith('{"schema":"reqprobe.summary/')]
    again = [l for l in r.stdout.splitlines() if not l.startswith('{"schema":"reqprobe.summary/')]
    t.equal(len(again), len(live_records), "records")
    for a, b in zip(live_records, again):
        if not t.check(a == b, lambda: f"differ: live {diff_of(a, b)}"):
            break
    r = subprocess.run([REQPROBE, "replay", p.record, "--itl", "--jsonl", replayed], capture_output=True, text=True)
    if t.equal(r.returncode, 0, f"replay --jsonl ({r.stderr.strip()[:200]})"):
        with open(replayed) as f:
            rep = f.read()
        t.check(rep == live, lambda: "whole file, summary included: " + diff_of(live.splitlines()[-1], rep.splitlines()[-1]))


def diff_of(a, b):
    i = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"...{a[max(0, i - 60):i + 60]} replay ...{b[max(0, i - 60):i + 60]}"


@test(60)
def replay_of_load(t):
    """The same with 200 concurrent streams, hang-ups included."""
    srv = t.paced()
    p = t.probe(srv, record=True)
    a = t.spawn(client_argv(srv.port, n=100, c=100, id="q", hangup=2000, max_tokens=30, extra={"gap_us": 20000}), stdout=subprocess.DEVNULL)
    run_client(t, srv.port, n=100, c=100, usage=True, max_tokens=30, extra={"gap_us": 20000})
    a.wait()
    recs = p.finish(200)
    t.equal(len(recs), 200, "records")
    r = subprocess.run([REQPROBE, "replay", p.record, "--itl"], capture_output=True, text=True)
    with open(p.jsonl) as f:
        live = [l for l in f.read().splitlines() if '"reqprobe.request/' in l]
    again = [l for l in r.stdout.splitlines() if '"reqprobe.request/' in l]
    t.equal(len(again), len(live), "records of the replay")
    bad = [(a, b) for a, b in zip(live, again) if a != b]
    t.check(not bad, lambda: f"{len(bad)} lines differ: {diff_of(*bad[0])}")
    t.note(f"recording {os.path.getsize(p.record)} bytes")


@test(60)
def replay_of_rubbish(t):
    """A cut, empty or foreign file: one line, no crash."""
    srv = t.paced()
    p = t.probe(srv, record=True)
    run_client(t, srv.port, n=5, c=2, max_tokens=5)
    p.finish(5)
    data = open(p.record, "rb").read()
    rnd = random.Random(1)
    ends = [24]     # of the header, and of each event
    while ends[-1] < len(data):
        ends.append(ends[-1] + int.from_bytes(data[ends[-1]:ends[-1] + 4], sys.byteorder))
    cut = [data[:end + k] for end in ends[:-1:4] for k in (0, 8)]
    for i, blob in enumerate([b"", b"hello\n", data[:10], data[:-3], *cut] +
                             [bytes(b ^ (rnd.random() < 0.002) * rnd.randrange(256) for b in data) for _ in range(20)]):
        f = t.path("bad.rec")
        open(f, "wb").write(blob)
        r = subprocess.run([REQPROBE, "replay", f], capture_output=True, timeout=20)
        t.check(r.returncode in (0, 1, 2, 4), f"blob {i}: exit status {r.returncode}: {r.stderr[-300:]}")
        if i < 4 + len(cut):
            t.check(r.returncode == 1 and r.stderr.count(f.encode()) == 1, f"blob {i}: exit status {r.returncode}, stderr {r.stderr!r}")
    r = subprocess.run([REQPROBE, "replay", "/no/such/file"], capture_output=True, text=True)
    t.equal((r.returncode, len(r.stderr.splitlines())), (1, 1), "no such file")


@test(60)
def metrics_are_valid(t):
    """promtool, names, health, other paths, and balance of the counters."""
    srv = t.paced()
    p = t.probe(srv)
    run_client(t, srv.port, n=10, c=5, usage=True, max_tokens=6, extra={"gap_us": 2000})
    run_client(t, srv.port, n=3, c=3, id="f", stream=False, extra={"fail": 503}, check=False)
    run_client(t, srv.port, n=2, c=2, id="q", hangup=500, max_tokens=30)
    p.wait_records(15)
    time.sleep(0.2)
    m = p.metrics()
    for name in ("reqprobe_requests_in_flight", "reqprobe_connections", "reqprobe_build_info"):
        t.check(any(n == name for n, _ in m), f"{name} is missing")
    for name in ("reqprobe_requests_total", "reqprobe_tokens_total", "reqprobe_events_total", "reqprobe_events_lost_total",
                 "reqprobe_unobserved_connections_total", "reqprobe_bpf_run_seconds_total", "reqprobe_map_full_total", "reqprobe_handshakes_untrusted_total"):
        t.check(any(n == name for n, _ in m), f"{name} is missing")
    for name in ("time_to_first_token", "inter_token_latency", "queue_time", "prefill_time", "decode_time", "request_duration", "handshake_rtt"):
        t.check(any(n == f"reqprobe_{name}_seconds_bucket" for n, _ in m), f"reqprobe_{name}_seconds is missing")
    les = {float(dict(l)["le"]) for n, l in m if n == "reqprobe_request_duration_seconds_bucket"}
    t.check(2560.0 in les, f"duration buckets end at {sorted(les)[-2:] if les else None}, expected 2560")
    t.equal(m.sum("reqprobe_requests_total", end="complete"), 10, "complete")
    t.equal(m.sum("reqprobe_requests_total", end="error", status="503"), 3, "errors")
    t.equal(m.sum("reqprobe_requests_total", end="client_disconnect"), 2, "disconnects")
    for (n, l), v in m.items():
        t.check(n.startswith(("reqprobe_", "process_")) and v == v and v >= 0, f"{n}{l} is {v}")
    for path, want in (("/healthz", 200), ("/", 404), ("/metrics/../etc", 404), ("/debug", 404)):
        c = http.client.HTTPConnection("127.0.0.1", p.port, timeout=5)
        c.request("GET", path)
        t.equal(c.getresponse().status, want, path)
        c.close()
    for meth in ("POST", "DELETE"):
        c = http.client.HTTPConnection("127.0.0.1", p.port, timeout=5)
        c.request(meth, "/metrics")
        t.check(c.getresponse().status in (404, 405), f"{meth} /metrics")
        c.close()
    recs = p.stop()
    t.equal(len(recs), 15, "records")
    if shutil.which("promtool"):
        r = subprocess.run(["promtool", "check", "metrics"], input=m.text, capture_output=True, text=True)
        t.equal((r.returncode, r.stdout + r.stderr), (0, ""), "promtool check metrics")
    else:
        t.note("no promtool")
    t.note(f"{len(m)} series, {len(m.text)} bytes")


@test(60)
def goodput(t):
    """Objectives: counted on /metrics and told at the end; and what they are judged by is in the records."""
    srv = t.paced()
    p = t.probe(srv, args=["--goodput", "time_to_first_token:20000 output_sequence_length:6"])
    run_client(t, srv.port, n=6, c=3, usage=True, max_tokens=6, extra={"gap_us": 2000})
    run_client(t, srv.port, n=3, c=1, id="few", usage=True, max_tokens=4, extra={"gap_us": 2000})
    run_client(t, srv.port, n=2, c=1, id="whole", stream=False, max_tokens=6)
    run_client(t, srv.port, n=2, c=1, id="f", stream=False, extra={"fail": 503}, check=False)
    p.wait_records(13)
    time.sleep(0.2)
    m = p.metrics()
    for name, want in (("slo_requests_total", 13), ("good_requests_total", 6), ("slo_unknown_requests_total", 2)):
        t.equal(m.sum(f"reqprobe_{name}"), want, name)
    t.equal(m.sum("reqprobe_slo_met_total", slo="time_to_first_token"), 9, "one body has no first token")
    t.equal([m.sum("reqprobe_slo_unknown_total", slo=s) for s in ("time_to_first_token", "output_sequence_length")], [2, 0], "nor is it too late")
    t.equal(m.sum("reqprobe_slo_limit", slo="time_to_first_token", unit="ms"), 20000, "limit")
    for r in p.stop():
        if r["status"] != 200 or not r["stream"]:
            continue
        t.equal(r["request"]["max_tokens"], r["tokens"]["completion"], "max_tokens")
        t.equal(r["request"]["images"], 0, "images")
        t.equal(r["usage"]["completion_tokens"], r["tokens"]["completion"], "usage")
        st, b = r["server_timing"], r["bytes"]
        t.check(st["first_byte_ms"] <= st["first_body_ms"] <= st["first_event_ms"] and st["last_token_ms"] <= st["last_body_ms"] <= st["duration_ms"],
                f"body: {st}")
        t.check(0 < b["request_body"] < b["request"] and 0 < b["response_body"] < b["response"], f"{b}")
        t.check(r["calls"]["request"] >= 1 and r["calls"]["response"] >= 1, f"{r['calls']}")
    t.check(re.search(r"reqprobe: 6 of 11 requests good \(54\.5 %\), 2 more can't be judged; time_to_first_token <= 20000 ms: 9, output_sequence_length >= 6 tokens: ", p.stderr()), p.stderr())


@test(60)
def scrapes_are_monotonic(t):
    """Two workers, twenty scrapes under load: totals over both, never falling."""
    srv = t.paced("--workers", "2")
    p = t.probe(srv)
    cl = t.spawn(client_argv(srv.port, n=400, c=20, usage=True, quiet=True, max_tokens=10, extra={"gap_us": 5000}), stdout=subprocess.DEVNULL)
    last = {}
    for _ in range(20):
        m = p.metrics()
        for (n, l), v in m.items():
            if n.endswith(("_total", "_count", "_sum", "_bucket")):
                t.check(v >= last.get((n, l), 0), f"{n}{l} fell from {last.get((n, l))} to {v}")
                last[(n, l)] = v
        time.sleep(0.1)
    cl.wait(60)
    recs = p.finish(400)
    t.equal(len(recs), 400, "records")
    t.equal(len({r["engine"]["pid"] for r in recs}), 2, "workers that answered")


@test(60)
def doctor(t):
    """Exit status 0, a table of the features, nothing attached afterwards."""
    srv = t.paced(truth=False)

    def verdict(r):
        return " ".join(r.stdout.rpartition("\n\n")[2].split())
    for args in (["doctor"], ["doctor", "--pid", str(srv.pid)]):
        r = subprocess.run([REQPROBE] + args, capture_output=True, text=True, timeout=30)
        t.equal(r.returncode, 0, f"{' '.join(args)}: exit status ({r.stderr[:200]})")
        t.check(len(r.stdout.splitlines()) >= 5, f"{' '.join(args)}: {r.stdout[:200]}")
        wide = [l for l in r.stdout.splitlines() if len(l) > 80]
        t.check(not wide, f"wider than 80: {wide[:1]}")
        want = "ready to watch" if args == ["doctor"] else f"pid {srv.pid}: no engine that is known; from its sockets only"
        t.check(verdict(r).startswith("verdict " + want), f"{' '.join(args)}: {verdict(r)}")
    many = t.spawn([sys.executable, "-c", "import socket, time\nat = lambda port: socket.create_server(('127.0.0.1', port))\n"
                    "ports = sorted(s.getsockname()[1] for s in [at(0) for i in range(6)])\nl = [at(p) for p in reversed(ports)]\n"
                    "print(*ports, flush=True)\ntime.sleep(60)"], stdout=subprocess.PIPE, text=True)
    ports = many.stdout.readline().split()
    r = subprocess.run([REQPROBE, "doctor", "--pid", str(many.pid)], capture_output=True, text=True, timeout=30)
    t.equal(re.findall(r"listens +(?:127.0.0.1:|and )(\d+)", r.stdout), ports[:4] + ["2"], "six listeners")
    r = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", REQPROBE, "doctor"], capture_output=True, text=True, timeout=30)
    t.check(r.returncode in (0, 3) and len(r.stdout.splitlines()) >= 5, f"doctor as nobody: {r.returncode}, {r.stdout[:100]} {r.stderr[:200]}")
    t.check(("run as root" in verdict(r)) == (r.returncode == 3), f"doctor as nobody, {r.returncode}: {verdict(r)}")
    srv.stop()
    r = subprocess.run([REQPROBE, "doctor", "--pid", str(srv.pid)], capture_output=True, text=True, timeout=30)
    t.equal((r.returncode, verdict(r)), (4, f"verdict pid {srv.pid}: nothing to watch, see above"), "doctor without a process")


@test(30)
def engines_found(t):
    """doctor tells which engines run, each by its topmost process; so does a call without a pid."""
    exe = t.path("llama-server")
    shutil.copy(shutil.which("sleep"), exe)
    # above and below it is something else, and it has a process of its own kind
    top = t.spawn(["sh", "-c", f"'{exe}' 60 & exec sh -c \"'{exe}' 61 & wait\" & wait"])
    alone = t.spawn([exe, "62"])
    up = t.spawn([sys.executable, "-c", f"import os, subprocess, sys, time\nif os.fork(): os.execv({exe!r}, [{exe!r}, '63'])\n"
                  f"subprocess.run([{exe!r}, '64'])"])

    def running(arg):
        for p in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{p}/cmdline", "rb") as f:
                    if f.read().split(b"\0")[:2] == [exe.encode(), arg.encode()]:
                        return int(p)
    pids = {}
    try:
        for a in ("60", "61", "62", "63", "64"):
            pids[a] = wait_for(f"{exe} {a}", 5, lambda: running(a))
        t.equal((pids["62"], pids["63"]), (alone.pid, up.pid), "pids")
        r = subprocess.run([REQPROBE, "doctor"], capture_output=True, text=True, timeout=30)
        got = {int(x) for x in re.findall(r"reqprobe --pid (\d+): llama.cpp, does not listen yet", " ".join(r.stdout.split()))}
        t.equal({a for a, p in pids.items() if p in got}, {"60", "61", "62", "63"}, f"what doctor found: {r.stdout[-600:]}")
        r = subprocess.run([REQPROBE], capture_output=True, text=True, timeout=30)
        t.equal((r.returncode, len(r.stderr.splitlines())), (2, 1), "without a pid")
        t.check(re.search(r"reqprobe --pid PID; here runs \d+ \(", r.stderr), f"without a pid: {r.stderr}")
    finally:
        for p in pids.values():
            os.kill(p, signal.SIGKILL)


ENGINE = """
import http.server, os, subprocess, sys, time
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        d = b'{"id":"c1","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"content":"x"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'
        self.send_response(200); self.send_header("Content-Type", "application/json"); self.send_header("Content-Length", str(len(d))); self.end_headers()
        self.wfile.write(d)
    def log_message(self, *a): pass
p = subprocess.Popen(["llama-server", "60"], executable=sys.argv[3])
print(p.pid, flush=True)
time.sleep(float(sys.argv[1]))
s = http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), H)
s.serve_forever()
"""


def of_two_processes(t, after=0):
    """An engine that listens `after` s and has a process of its own kind below: (its process, the other's pid, port)."""
    port = free_port()
    exe = t.path("llama-server")
    shutil.copy(shutil.which("sleep"), exe)
    p = t.spawn([exe, "-c", ENGINE, str(after), str(port), exe], executable=sys.executable, stdout=subprocess.PIPE, text=True)
    return p, int(p.stdout.readline()), port


@test(30)
def part_of_an_engine(t):
    """The pid of one of its processes, as nvidia-smi has it, is taken for the whole; given twice, once."""
    top, below, port = of_two_processes(t)
    try:
        def up():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True
        wait_for("the port", 5, up)
        p = t.probe(below, wait=False)
        p.pids = [top.pid]
        p.wait_attached()
        c = Client(port)
        c.ask("x0", stream=False)
        c.close()
        recs = p.finish(1)
        t.equal([(r["x_request_id"], r["engine"]["name"], r["engine"]["pid"]) for r in recs], [("x0", "llamacpp", top.pid)], "records")
        t.check(any(f"process {below} is a part of the server {top.pid}" in l for l in p.stderr_lines()), f"{p.stderr_lines()}")
        r = subprocess.run([REQPROBE, "--pid", str(below), "--pid", str(top.pid), "--metrics", "off", "--duration", "0.2"], capture_output=True, text=True, timeout=30)
        t.equal(re.findall(r"attached to pid (\d+)", r.stderr), [str(top.pid)], "given twice")
        r = subprocess.run([REQPROBE, "doctor", "--pid", str(below)], capture_output=True, text=True, timeout=30)
        t.check(f"{below} is a part of the server below" in r.stdout and f"pid {top.pid}: " in r.stdout, r.stdout[-800:])
    finally:
        os.kill(below, signal.SIGKILL)


@test(30)
def wait_for_the_start(t):
    """An engine that does not listen yet: refused, and what would wait for it is named; --wait waits."""
    top, below, port = of_two_processes(t, 3.5)
    try:
        r = subprocess.run([REQPROBE, "--pid", str(top.pid)], capture_output=True, text=True, timeout=30)
        t.equal(r.returncode, 4, "exit status")
        t.check("--wait waits for it" in r.stderr and len(r.stderr.splitlines()) == 1, r.stderr)
        r = subprocess.run([REQPROBE, "--pid", str(top.pid), "--wait", "--duration", "0.1"], capture_output=True, text=True, timeout=2)
        t.check(r.returncode == 0 and f"process {top.pid} and its children" in r.stderr and r.stderr.count("waiting for it") == 1 and "attached" not in r.stderr, f"--duration: {r.returncode}, {r.stderr}")
        p = t.probe(top, args=["--wait", "--duration", "5"])
        t.check((p.attach_ms() or 1e9) < 1500, f"the wait is told as attach: {p.attach_ms()} ms")
        c = Client(port)
        c.ask("x0", stream=False)
        c.close()
        t.equal(p.proc.wait(10), 0, "exit status")
        t.near((time.monotonic() - p.started) * 1e3, 5000, "duration, with the wait", 700)
        t.equal([r["x_request_id"] for r in p.finish(1)], ["x0"], "records")
    finally:
        os.kill(below, signal.SIGKILL)


@test(10)
def zz_schema(t):
    """Every line of every test against docs/schema."""
    try:
        import jsonschema
    except ImportError:
        raise Skip("python3-jsonschema is not installed")
    if not schemas():
        t.check(False, "no schema with a const for `schema` in docs/schema/*.json")
    if not VALIDATED[1]:
        raise Skip("no record was made (run with other tests)")
    t.check(not SCHEMA_ERRORS, f"{len(SCHEMA_ERRORS)} violations")
    for e in sorted(set(SCHEMA_ERRORS))[:15]:
        t.check(False, e)
    t.equal(VALIDATED[0], VALIDATED[1], "lines that have a schema, lines")
    t.note(f"{VALIDATED[0]} lines")


@test(10)
def zz_invariants(t):
    """Every record of every test: order of instants, phases add up, nulls are named,
    summary and records agree."""
    if not VALIDATED[1]:
        raise Skip("no record was made (run with other tests)")
    t.check(not INVARIANT_ERRORS, f"{len(INVARIANT_ERRORS)} violations in {VALIDATED[1]} lines")
    seen = set()
    for e in INVARIANT_ERRORS:
        kind = re.sub(r"[\d.]+", "N", e.split(": ", 2)[-1])
        if kind not in seen and len(seen) < 15:
            seen.add(kind)
            t.check(False, e)
    t.note(f"{VALIDATED[1]} lines")
