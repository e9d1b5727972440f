# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""reqprobe rtt: what it prints, what it writes, how it ends. No root, but for the
handshakes out of a live run."""

import contextlib, json, os, re, select, signal, socket, subprocess, sys, threading, time
from harness import *
from t_errors import refused

NO_NAME = "x" * 64     # no label of a name is so long: refused without a name server
KEYS = ["timestamp_ns", "target_url", "target_host", "target_port", "probe_type", "rtt_ns", "success"]


class Listener:
    """Accepts, reads to the end, closes; counts what it saw."""

    def __init__(self, t, host="127.0.0.1", accept=True, backlog=128):
        six = ":" in host
        self.sock = socket.socket(socket.AF_INET6 if six else socket.AF_INET)
        self.sock.bind((host, 0))
        self.sock.listen(backlog)
        self.port = self.sock.getsockname()[1]
        self.ends, self.times = [], []
        if accept:
            threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c, _ = self.sock.accept()
            except OSError:
                return
            self.times.append(time.monotonic())
            with c:
                try:
                    self.ends.append("fin" if c.recv(100) == b"" else "data")
                except ConnectionResetError:
                    self.ends.append("reset")

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def rtt(t, *args, want=0, timeout=30):
    if not os.access(REQPROBE, os.X_OK):
        raise Skip("not built")
    r = subprocess.run([REQPROBE, "rtt", *map(str, args)], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    t.equal(r.returncode, want, f"rtt {' '.join(map(str, args))}: exit status ({r.stderr.strip()[-200:]})")
    t.check("Sanitizer" not in r.stderr, f"sanitizer report: {r.stderr[:300]}")
    return r


def summary(t, r):
    o = json.loads(r.stdout)
    validate(t.name, o)
    for x in o["targets"]:
        t.equal(x["probes"], x["succeeded"] + sum(x["failed"].values()), "probes = succeeded + failed")
        for s in (x["connect_ms"], x["kernel_ms"]):
            v = [s[k] for k in ("min", "p50", "p90", "p95", "p99", "max")]
            t.check(s["count"] == 0 or v == sorted(v), f"not in order: {s}")
    return o


@test(60, probe=False)
def rtt_lines(t):
    """AIPerf's lines, appended; the summary; what the server sees."""
    srv, out = Listener(t), t.path("lat.jsonl")
    before = time.time_ns()
    for source, kind in (("kernel", "tcp_info"), ("connect", "tcp_connect")):
        r = rtt(t, "-n", 10, "-i", "20ms", "--source", source, "-o", out, f"http://127.0.0.1:{srv.port}/v1?key=SECRET")
        t.check(r.stdout.startswith(f"127.0.0.1:{srv.port}: 10 probes, 0 failed"), f"no summary: {r.stdout[:200]}")
        t.equal(r.stderr, "", "stderr")
    with open(out) as f:
        lines = [json.loads(l) for l in f]
    t.equal(len(lines), 20, "lines")
    for i, l in enumerate(lines):
        t.equal(list(l), KEYS, "order of members")
        t.equal((l["target_url"], l["target_host"], l["target_port"], l["success"]),
                (f"http://127.0.0.1:{srv.port}/v1", "127.0.0.1", srv.port, True), "target")
        t.equal(l["probe_type"], "tcp_info" if i < 10 else "tcp_connect", "probe_type")
        t.check(before < l["timestamp_ns"] < time.time_ns() and l["rtt_ns"] > 0, f"figures: {l}")
    time.sleep(0.2)
    t.equal(srv.ends, ["fin"] * 20, "what the server saw")
    r = rtt(t, "-n", 3, "-i", "10ms", f"localhost:{srv.port}")     # no terminal, no file: the lines
    t.equal([list(json.loads(l)) for l in r.stdout.splitlines()], [KEYS] * 3, "stdout")
    r = rtt(t, "-n", 30, "-i", "10ms", "--json", f"127.0.0.1:{srv.port}")
    s = summary(t, r)["targets"][0]
    t.equal((s["probes"], s["connect_ms"]["count"], s["kernel_ms"]["count"]), (30, 30, 30), "summary")
    # the kernel's figure is a part of the connect time, and below a millisecond here
    t.check(s["kernel_ms"]["p50"] <= s["connect_ms"]["p50"] < 1, f"figures: {s}")
    t.note(f"connect p50 {s['connect_ms']['p50'] * 1e3:.0f} us, kernel {s['kernel_ms']['p50'] * 1e3:.0f} us")
    srv.close()


@test(60, probe=False)
def rtt_targets(t):
    """Several side by side, IPv6, names; a dead one does not hold up the others."""
    a, gone = Listener(t), free_port()
    targets = [f"localhost:{a.port}", f"127.0.0.1:{gone}", NO_NAME + ":1"]
    with contextlib.suppress(OSError):
        b = Listener(t, "::1")
        targets.append(f"http://[::1]:{b.port}")
    o = summary(t, rtt(t, "-n", 5, "-i", "20ms", "--json", *targets, targets[0]))
    t.equal([x["host"] for x in o["targets"]], ["localhost", "127.0.0.1", NO_NAME, "::1"][:len(targets)], "targets, each once")
    t.equal([x["succeeded"] for x in o["targets"]], [5, 0, 0, 5][:len(targets)], "succeeded")
    t.equal((o["targets"][1]["failed"]["refused"], o["targets"][2]["failed"]["resolve"]), (5, 5), "reasons")
    t.equal(o["targets"][2]["address"], None, "address of a name without one")
    a.close()


@test(60, probe=False)
def rtt_failures(t):
    """All failed: 1. The errors are those of Python's classes."""
    full = Listener(t, accept=False, backlog=0)
    hold = []
    for _ in range(3):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", full.port))
        hold.append(s)
    gone = free_port()
    r = rtt(t, "-n", 2, "-i", "20ms", "--timeout", "200ms", "-o", "-", f"127.0.0.1:{full.port}", f"127.0.0.1:{gone}", NO_NAME,
            "255.255.255.255:9", want=1)
    got = {}
    for l in map(json.loads, r.stdout.splitlines()):
        t.equal(list(l), KEYS[:5] + ["success", "error"], "order of members")
        got.setdefault(l["target_host"] + ":" + str(l["target_port"]), []).append(l["error"])
    t.equal(got[f"127.0.0.1:{full.port}"], [{"type": "TimeoutError", "message": "TimeoutError()", "cause": "CancelledError()",
                                            "cause_chain": ["TimeoutError", "CancelledError"]}] * 2, "timeout")
    t.equal(got[f"127.0.0.1:{gone}"], [{"type": "ConnectionRefusedError", "message": f"ConnectionRefusedError(111, \"Connect call failed ('127.0.0.1', {gone})\")",
                                       "cause_chain": ["ConnectionRefusedError"]}] * 2, "refused")
    t.equal(got[NO_NAME + ":80"][0]["type"], "gaierror", "resolve")
    t.equal(got["255.255.255.255:9"][0]["type"], "OSError", "unreachable")
    # and 0 as soon as one succeeded
    srv = Listener(t)
    rtt(t, "-n", 1, "-q", "--timeout", "200ms", "-o", "/dev/null", f"127.0.0.1:{srv.port}", f"127.0.0.1:{gone}")


@test(60, probe=False)
def rtt_lost_syn(t):
    """A SYN that went out twice: connected, but no figure of the kernel, and none in
    the lines that carry it."""
    full, out = Listener(t, accept=False, backlog=0), t.path("lat.jsonl")
    hold = socket.create_connection(("127.0.0.1", full.port))
    p = t.spawn([REQPROBE, "rtt", "-n", "1", "--json", "-o", out, f"127.0.0.1:{full.port}"], stdout=subprocess.PIPE, text=True)
    time.sleep(0.3)
    full.sock.accept()[0].close()
    so, _ = p.communicate(timeout=10)
    x = json.loads(so)["targets"][0]
    t.equal((p.returncode, x["succeeded"], x["retransmitted"], x["kernel_ms"]["count"]), (0, 1, 1, 0), "summary")
    t.check(900 < (x["connect_ms"]["max"] or 0) < 4000, f"connect: {x['connect_ms']}")
    with open(out) as f:
        t.equal(list(json.loads(f.read())), [k for k in KEYS if k != "rtt_ns"], "the line")
    hold.close()


@test(60, probe=False)
def rtt_aiperf(t):
    """AIPerf's own model reads every line and writes the same bytes again; its
    accumulator comes to our mean."""
    python = aiperf_python()
    r = subprocess.run([python, "-c", "import aiperf.network_latency.accumulator"], capture_output=True, text=True)
    t.equal(r.returncode, 0, f"AIPerf's modules: {r.stderr[-300:]}")
    srv, out = Listener(t), t.path("profile_export_network_latency.jsonl")
    for source in ("kernel", "connect"):
        r = rtt(t, "-n", 50, "-i", "10ms", "--timeout", "200ms", "--source", source, "--json", "-o", out, f"127.0.0.1:{srv.port}", f"localhost:{free_port()}",
                f"http://{NO_NAME}/v1", "255.255.255.255:9")
        mean = summary(t, r)["targets"][0][f"{source}_ms"]["mean"]
        code = """
import sys, orjson
from aiperf.common.models import NetworkLatencySample
from aiperf.network_latency.accumulator import NetworkLatencyAccumulator
acc, bad = NetworkLatencyAccumulator(), 0
for line in open(sys.argv[1], "rb").read().splitlines():
    s = NetworkLatencySample.model_validate_json(line)
    acc.add_sample(s)
    bad += orjson.dumps(s.model_dump(exclude_none=True, mode="json")) != line
r = acc.export_results()
print(r.count, r.success_count, len(r.error_summary), bad, acc.mean_rtt_ns / 1e6)
"""
        got = subprocess.run([python, "-c", code, out], capture_output=True, text=True, timeout=60)
        t.equal(got.returncode, 0, f"aiperf: {got.stderr[-300:]}")
        n, ok, errors, bad, theirs = got.stdout.split()
        t.equal((int(n), int(ok), int(errors), int(bad)), (200, 50, 3, 0), "lines, successes, kinds of errors, lines that come out otherwise")
        t.check(abs(float(theirs) - mean) < 1e-9, f"its mean {theirs}, ours {mean}")
        os.unlink(out)


@test(60, probe=False)
def rtt_back_pressure(t):
    """A server that accepts nobody: 16 places of its queue and no more are taken."""
    srv = Listener(t, accept=False)
    s = summary(t, rtt(t, "--duration", "1s", "-i", "10ms", "--json", f"127.0.0.1:{srv.port}"))["targets"][0]
    t.equal(s["probes"], 16, "probes")
    t.check(s["missed"]["open"] >= 50, f"missed: {s['missed']}")
    with open("/proc/net/tcp") as f:
        mine = [l.split() for l in f if l.split()[1].endswith(f":{srv.port:04X}") and l.split()[3] == "0A"]
    t.equal(int(mine[0][4].split(":")[1], 16), 16, "accept queue")


@test(60, probe=False)
def rtt_schedule(t):
    """Absolute deadlines: no drift; a duration, and a terminal that is slow."""
    srv = Listener(t)
    p = subprocess.Popen([REQPROBE, "rtt", "-i", "50ms", "--duration", "2s", f"127.0.0.1:{srv.port}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, _ = p.communicate(timeout=20)
    t.equal(p.returncode, 0, "exit status")
    ts = [json.loads(l)["timestamp_ns"] for l in out.splitlines()]
    t.check(38 <= len(ts) <= 40, f"{len(ts)} probes in 2 s")
    late = [(x - ts[0]) / 1e6 % 50 for x in ts]
    late = [min(x, 50 - x) for x in late]
    t.check(sorted(late)[len(late) // 2] < 3, f"off the grid by {sorted(late)[len(late) // 2]:.1f} ms at the median")
    # nobody reads for a while: nothing is lost
    p = subprocess.Popen([REQPROBE, "rtt", "-n", "600", "-i", "10ms", f"127.0.0.1:{srv.port}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    time.sleep(5)
    n = len(p.communicate(timeout=20)[0].splitlines())
    t.equal((n, p.returncode), (600, 0), "lines for a reader that came late")


@test(60, probe=False)
def rtt_stop(t):
    """Ctrl-C: the summary, 0; before any success: 1. SIGHUP: the file anew."""
    srv, out = Listener(t), t.path("lat.jsonl")
    for sig in (signal.SIGINT, signal.SIGTERM):
        p = t.spawn([REQPROBE, "rtt", "-i", "20ms", "-o", out, f"127.0.0.1:{srv.port}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        os.rename(out, out + ".1")
        p.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        p.send_signal(sig)
        so, se = p.communicate(timeout=5)
        t.equal((p.returncode, se), (0, ""), f"{sig.name}")
        m = re.match(rf"127\.0\.0\.1:{srv.port}: (\d+) probes, 0 failed", so)
        with open(out) as f, open(out + ".1") as g:
            lines = [json.loads(l) for l in g] + [json.loads(l) for l in f]
        t.check(m and int(m[1]) == len(lines) >= 30, f"{len(lines)} lines, summary: {so[:100]}")
        os.unlink(out)
    full = Listener(t, accept=False, backlog=0)
    hold = socket.create_connection(("127.0.0.1", full.port))
    p = t.spawn([REQPROBE, "rtt", "--json", f"127.0.0.1:{full.port}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    time.sleep(0.3)
    t0 = time.monotonic()
    p.send_signal(signal.SIGINT)
    so, _ = p.communicate(timeout=10)
    t.check(time.monotonic() - t0 < 1, "Ctrl-C waits for a probe")
    x = json.loads(so)["targets"][0]
    t.equal((p.returncode, x["probes"], x["unfinished"]), (1, 0, 1), "stopped before the first answer")
    hold.close()
    # a reader that goes away
    p = t.spawn(["sh", "-c", f"'{REQPROBE}' rtt -i 10ms 127.0.0.1:{srv.port} | head -n 3"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    t.equal(len(p.communicate(timeout=10)[0].splitlines()), 3, "lines into head")


@test(60, probe=False)
def rtt_disk_full(t):
    """A file that can't be written: one line, exit status 1."""
    if not os.path.exists("/dev/full"):
        raise Skip("no /dev/full")
    srv = Listener(t)
    r = rtt(t, "-n", 3, "-i", "10ms", "-o", "/dev/full", f"127.0.0.1:{srv.port}", want=1)
    t.equal(len(r.stderr.splitlines()), 1, "lines on stderr")
    r = rtt(t, "-n", 1, "-o", t.path("no", "such"), f"127.0.0.1:{srv.port}", want=1)
    t.equal(len(r.stderr.splitlines()), 1, "lines on stderr")


@test(60, probe=False)
def rtt_on_a_terminal(t):
    import pty
    srv = Listener(t)
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(REQPROBE, [REQPROBE, "rtt", "-n", "3", "-i", "20ms", f"localhost:{srv.port}", f"127.0.0.1:{free_port()}"])
    buf, end = b"", time.monotonic() + 10
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                buf += os.read(fd, 65536)
            except OSError:
                break
    t.equal(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, "exit status")
    os.close(fd)
    lines = buf.decode().replace("\r", "").splitlines()
    t.equal(sum(bool(re.match(r"\d\d:\d\d:\d\d  localhost:\d+ +[\d.]+[um]s +[\d.]+[um]s$", l)) for l in lines), 3, f"lines of good probes in {lines}")
    t.equal(sum(l.endswith("Connection refused") for l in lines), 3, "lines of refused ones")
    t.check(all(len(l) <= 80 for l in lines), f"wider than 80: {lines}")
    t.check(any("first of" in l or l.endswith("  127.0.0.1") or l.endswith("  ::1") for l in lines), "no address in the header")


@test(60, probe=False)
def rtt_usage(t):
    """Wrong usage: one line, 2."""
    if not os.access(REQPROBE, os.X_OK):
        raise Skip("not built")
    for a in ([], ["h:0"], ["h:99999"], [""], ["-i", "1ms", "h"], ["-i", "x", "h"], ["-n", "0", "h"], ["-n", "-1", "h"], ["--timeout", "0", "h"], ["-4", "-6", "h"],
              ["-4", "::1"], ["-6", "127.0.0.1"], ["--source", "x", "h"], ["--nonsense", "h"], ["-i"], ["--json", "-o", "-", "h"], ["--from-live", "x", "h"],
              ["--from-live", "x", "-n", "3"], [f"h{i}" for i in range(65)], ["ftp://h"]):
        refused(t, 2, ["rtt"] + a, what="rtt " + " ".join(a)[:40])
    r = subprocess.run([REQPROBE, "rtt", "--help"], capture_output=True, text=True)
    t.equal((r.returncode, "HOST[:PORT]" in r.stdout, r.stderr), (0, True, ""), "--help")


@test(60, probe=False)
def rtt_memory(t):
    """64 targets, thousands of probes: flat."""
    srv = Listener(t)
    p = t.spawn([REQPROBE, "rtt", "-i", "10ms", "-o", "/dev/null", "-q"] + [f"127.0.{i}.1:{srv.port}" for i in range(4)] +
                [f"127.1.{i}.1:{free_port()}" for i in range(60)], stdout=subprocess.DEVNULL)
    time.sleep(1)
    a = proc_rss(p.pid)
    time.sleep(4)
    b = proc_rss(p.pid)
    p.send_signal(signal.SIGINT)
    p.wait(5)
    t.check(b - a < 1 << 20 and b < 32 << 20, f"resident memory went from {a} to {b} bytes")
    t.note(f"64 targets: {b / (1 << 20):.1f} MiB")


@test(60)
def rtt_from_live(t):
    """A file of a live run: each handshake once."""
    srv = t.paced()
    p = t.probe(srv)
    for i in range(3):
        run_client(t, srv.port, n=4, c=2, id=f"r{i}", max_tokens=2)
    recs = p.finish(12)
    want = {(r["client"]["port"], r["network"]["rtt_ms"]) for r in recs if r["network"]["rtt_ms"] is not None}
    out = t.path("lat.jsonl")
    r = rtt(t, "--from-live", p.jsonl, "-o", out)
    t.equal(r.stderr, "", "stderr")
    with open(out) as f:
        lines = [json.loads(l) for l in f]
    t.equal(sorted(l["rtt_ns"] for l in lines), sorted(round(x[1] * 1e6) for x in want), "handshakes")
    starts = [wall_ns(r["start"]) for r in recs]
    for l in lines:
        t.equal(list(l), KEYS, "order of members")
        t.equal((l["probe_type"], l["target_host"], l["target_port"], l["target_url"]),
                ("tcp_handshake_passive", "127.0.0.1", srv.port, f"http://127.0.0.1:{srv.port}"), "target")
        t.check(min(starts) - 5e9 < l["timestamp_ns"] <= max(starts), f"instant {l['timestamp_ns']}")
    o = summary(t, rtt(t, "--from-live", p.jsonl, "--json"))
    t.equal((o["probe_type"], o["targets"][0]["kernel_ms"]["count"]), ("tcp_handshake_passive", len(lines)), "summary")
    for what in ("/dev/null", t.path("nothing")):
        r = rtt(t, "--from-live", what, "-o", out, want=1)
        t.equal(len(r.stderr.splitlines()), 1, f"{what}: lines on stderr ({r.stderr})")


def wall_ns(s):
    import calendar
    whole, _, frac = s.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) * 10**9 + int((frac or "0").ljust(9, "0"))
