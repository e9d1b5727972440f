# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""reqprobe's own life: signals, death, what it leaves behind; processes of the
watched tree."""

import contextlib, fcntl, gzip, http.client, json, os, random, re, signal, socket, statistics, subprocess, sys, time
from harness import *


def load(t, port, n=100000, c=4, **kw):
    """An endless client; ended by the test's cleanup or by .terminate()."""
    kw.setdefault("extra", {"gap_us": 5000, "ttft_us": 5000})
    return t.spawn(client_argv(port, n=n, c=c, usage=True, quiet=True, timeout=300, **kw), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@test(60)
def duration_option(t):
    srv = t.paced()
    p = t.probe(srv, args=["--duration", "2s"])
    t0 = time.monotonic()
    run_client(t, srv.port, n=5, c=5, max_tokens=5)
    rc = p.proc.wait(10)
    t.near((time.monotonic() - t0) * 1e3, 2000, "duration", 400)
    p.stop()
    t.equal((rc, len(p.records)), (0, 5), "exit status, records")
    t.check(p.summary is not None, "no summary")


@test(60)
def sigint_in_flight(t):
    """SIGINT closes what is in flight as unknown and partial, and ends with 0."""
    for s in (signal.SIGINT, signal.SIGTERM):
        srv = t.server(lambda c, r: (c.begin(), c.event(TOK("a"), 20, "tok"), c.at(5000), c.end()))
        p = t.probe(srv)
        cs = [Client(srv) for _ in range(3)]
        for i, c in enumerate(cs):
            c.send(chat(f"x{i}"))
        time.sleep(0.3)
        t.equal(p.metrics().sum("reqprobe_requests_in_flight"), 3, "in flight")
        t0 = time.monotonic()
        recs = p.stop(s)
        t.check(time.monotonic() - t0 < 3, "took long to end")
        t.equal(len(recs), 3, "records")
        for r in recs:
            t.equal((r["end"], "partial" in r["flags"], r["server_timing"]["chunks"]), ("unknown", True, 1), r["x_request_id"])
        t.check(p.summary and p.summary["ends"].get("unknown") == 3, "summary")
        for c in cs:
            c.close()


@test(60)
def second_signal(t):
    srv = t.paced()
    p = t.probe(srv)
    os.kill(p.pid, signal.SIGSTOP)
    os.kill(p.pid, signal.SIGINT)
    os.kill(p.pid, signal.SIGTERM)
    os.kill(p.pid, signal.SIGCONT)
    t0 = time.monotonic()
    t.equal(p.proc.wait(5), 0, "exit status: the same signal, passed on twice")
    t.note(f"ended {(time.monotonic() - t0) * 1e3:.0f} ms after")
    # a later one ends it at once, and the status says that something is missing
    with socket.socket() as l:
        l.bind(("127.0.0.1", 0))
        l.listen(16)
        p = t.probe(srv, args=[f"--otlp-traces=http://127.0.0.1:{l.getsockname()[1]}/x", "--otlp-flush", "30"])
        run_client(t, srv.port, n=3, max_tokens=2)
        p.wait_records(3)
        os.kill(p.pid, signal.SIGTERM)
        time.sleep(0.5)
        t.equal(p.proc.poll(), None, "waits for the receiver")
        os.kill(p.pid, signal.SIGTERM)
        t.equal(p.proc.wait(5), 1, "exit status: a second signal")
        t.check("second signal" in p.stderr_lines()[-1], p.stderr())


@test(60)
def stderr_not_read(t):
    """A full pipe, or a stopped reader, holds nothing up, and stays as it was for others."""
    srv = t.paced()
    r, w = os.pipe()
    fcntl.fcntl(w, fcntl.F_SETFL, os.O_NONBLOCK | os.O_WRONLY)
    try:
        while True:
            os.write(w, b"x" * 4096)
    except BlockingIOError:
        pass
    fcntl.fcntl(w, fcntl.F_SETFL, os.O_WRONLY)
    p = t.probe(srv, wait=False, prefix=["sh", "-c", f'exec "$0" "$@" 2>/proc/{os.getpid()}/fd/{w}'])
    end = time.monotonic() + 15
    while time.monotonic() < end:   # no line says when it is attached
        run_client(t, srv.port, n=1, id="try", max_tokens=2)
        if p.wait_records(1, 0.2):
            break
    run_client(t, srv.port, n=50, c=5, id="x", max_tokens=2)
    t0 = time.monotonic()
    recs = p.finish(51)
    t.check(time.monotonic() - t0 < 10, "the end waits for who does not read")
    t.equal(sum(r["x_request_id"].startswith("x-") for r in recs), 50, "records")
    # what it said is there for who reads at last
    os.read(r, 1 << 20)
    os.close(w)
    os.close(r)


@test(60)
def stdout_not_read(t):
    """Records for a pipe that is not read wait, up to a limit; what is beyond is lost and
    counted; neither holds up the rest, and each line is whole."""
    for n, rc in ((200, 0), (1500, 1)):
        srv, (r, w) = t.paced(), os.pipe()
        p = t.probe(srv, jsonl="-", itl=False, prefix=["sh", "-c", f'exec "$0" "$@" >/proc/{os.getpid()}/fd/{w}'])
        run_client(t, srv.port, n=n, c=20, max_tokens=2, extra={"gap_us": 0}, quiet=True)
        t.equal(p.wait_metric("reqprobe_requests_total", n), n, "requests_total: the drain waits for who does not read")
        failed = p.metrics().sum("reqprobe_records_failed_total")
        t.equal(failed > 0, rc == 1, f"{n} requests: records_failed_total {failed}")
        os.kill(p.pid, signal.SIGINT)
        os.close(w)
        text = b""
        while d := os.read(r, 1 << 16):
            text += d
            time.sleep(0.001)
        os.close(r)
        t.equal(p.proc.wait(20), rc, f"exit status: {p.stderr()}")
        lines = [json.loads(l) for l in text.splitlines()]
        t.equal(len(lines) + failed, n, "read and lost")
        m = re.search(r"(\d+) records were not written: stdout", p.stderr())
        t.equal(int(m[1]) if m else 0, failed, "what the end says")
        t.check(not failed or len(text) > 2 << 20, f"{len(text)} bytes read: what waits is not kept")
        t.equal("too slow" in p.stderr(), rc == 1, p.stderr())
        srv.stop()


@test(60)
def terminal_stopped(t):
    """A terminal that takes nothing (Ctrl-S) holds nothing up; when it goes on, the summary
    is there, and what is missing is said."""
    import pty
    srv, out = t.paced(), t.path("x.jsonl")
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(REQPROBE, [REQPROBE, "--pid", str(srv.pid), "--metrics", "off", "--jsonl", out])
    c = Child(pid)
    t.children.append(c)
    text = b""
    while b"attached to pid" not in text:
        text += os.read(fd, 1 << 16)
    run_client(t, srv.port, n=1500, c=20, max_tokens=2, extra={"gap_us": 0}, quiet=True)
    end = time.monotonic() + 15
    while time.monotonic() < end and open(out).read().count("\n") < 1500:
        time.sleep(0.05)
    t.equal(open(out).read().count("\n"), 1500, "records: the drain waits for the terminal")
    os.kill(pid, signal.SIGINT)
    time.sleep(0.2)
    text = b""
    with contextlib.suppress(OSError):
        while d := os.read(fd, 1 << 16):
            text += d
    t.equal(c.wait(5), 0, "exit status")
    text = re.sub(r"\x1b\[[\d;]*m", "", text.decode(errors="replace")).replace("\r", "")
    t.check(re.search(r"^1500 requests: ", text, re.M), f"no summary: {text[-600:]}")
    m = re.search(r"the terminal was too slow, or stopped: (\d+) lines were not shown", text)
    t.check(m and int(m[1]) > 100, f"not said: {text[-600:]}")


@test(60)
def metrics_not_read(t):
    """Clients that ask for /metrics and do not read hold up nobody: the records come, the
    next client is answered, so is /healthz."""
    srv = t.paced()
    p = t.probe(srv)
    run_client(t, srv.port, n=5, id="a", max_tokens=2)
    idle = []
    for i in range(240):    # more than find a place at once; 180 of them ask nothing
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.connect(("127.0.0.1", p.port))
        if i % 4 == 0:
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        idle.append(s)
    run_client(t, srv.port, n=5, id="b", max_tokens=2)
    p.wait_records(10)
    t0 = time.monotonic()
    c = http.client.HTTPConnection("127.0.0.1", p.port, timeout=10)
    c.request("GET", "/healthz")
    t.equal(c.getresponse().read(), b"ok\n", "/healthz")
    c.close()
    m = p.metrics()
    t.check(time.monotonic() - t0 < 5, "an answer took long")
    t.equal(m.sum("reqprobe_requests_total"), 10, "requests_total")
    cut = p.wait_metric("reqprobe_metrics_clients_cut_total", 180 - 128, reason="connections")
    t.check(cut >= 180 - 128, f"connections that made room: {cut}")
    c = http.client.HTTPConnection("127.0.0.1", p.port, timeout=10)
    c.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    r = c.getresponse()
    text = gzip.decompress(r.read()).decode()
    t.equal(r.getheader("Content-Encoding"), "gzip", "Content-Encoding")
    t.equal(Metrics(text).sum("reqprobe_requests_total"), 10, "requests_total, gzipped")
    c.close()
    for s in idle:
        s.close()
    t.equal(len(p.finish(10)), 10, "records")


@test(60)
def sighup_reopens(t):
    srv = t.paced()
    p = t.probe(srv)
    run_client(t, srv.port, n=3, c=1, id="a", max_tokens=2, extra={"gap_us": 1000})
    p.wait_records(3)
    os.rename(p.jsonl, p.jsonl + ".1")
    os.kill(p.pid, signal.SIGHUP)
    time.sleep(0.3)
    run_client(t, srv.port, n=3, c=1, id="b", max_tokens=2, extra={"gap_us": 1000})
    recs = p.finish(3, whole=False)
    old, _ = read_jsonl(p.jsonl + ".1")
    t.equal(([r["x_request_id"] for r in old], [r["x_request_id"] for r in recs]), ([f"a-{i}" for i in range(3)], [f"b-{i}" for i in range(3)]), "files")


@test(60)
def engine_exits(t):
    """The engine ends: drain, say so, end with 0."""
    srv = t.paced()
    p = t.probe(srv)
    run_client(t, srv.port, n=5, c=5, max_tokens=5)
    srv.stop()
    t0 = time.monotonic()
    rc = p.proc.wait(10)
    p.stop()
    t.equal((rc, len(p.records)), (0, 5), "exit status, records")
    t.check(len(p.stderr_lines()) >= 2, f"no line says so: {p.stderr_lines()}")
    t.note(f"{(time.monotonic() - t0) * 1e3:.0f} ms after")


@test(60)
def wait_orphans(t):
    """The server alone is killed, a process that it started lives on: said, and --wait finds the next server."""
    port = free_port()
    argv = ["sh", "-c", f"sleep 40 & exec {os.path.join(BIN, 'paced')} --listen 127.0.0.1:{port}"]
    servers = [t.spawn(argv, stdout=subprocess.PIPE, start_new_session=True)]
    try:
        servers[0].stdout.readline()
        p, q = t.probe(servers[0], args=["--wait"]), t.probe(servers[0])
        run_client(t, port, n=2, id="a", max_tokens=3)
        servers[0].kill()
        servers[0].wait()
        end = time.monotonic() + 15
        while time.monotonic() < end and not all("of its processes still run" in x.stderr() for x in (p, q)):
            time.sleep(0.05)
        for x, what in ((p, "waiting for it to come back"), (q, "they are watched on")):
            t.check(f"(pid {servers[0].pid}) has exited, 1 of its processes still run: {what}" in x.stderr(), f"said: {x.stderr()}")
        servers.append(t.spawn(argv, stdout=subprocess.PIPE, start_new_session=True))
        servers[1].stdout.readline()
        end = time.monotonic() + 15
        while time.monotonic() < end and f"attached to pid {servers[1].pid} " not in p.stderr():
            time.sleep(0.02)
        run_client(t, port, n=2, id="b", max_tokens=3)
        recs = p.finish(4)
        t.equal(sorted(r["x_request_id"] for r in recs), ["a-0", "a-1", "b-0", "b-1"], "records")
        t.equal({r["engine"]["pid"] for r in recs if r["x_request_id"][0] == "b"}, {servers[1].pid}, "pid")
        t.equal(q.proc.poll(), None, "without --wait it watches on")
    finally:
        for s in servers:   # the group is of the pid, which is not reaped before
            with contextlib.suppress(ProcessLookupError):
                os.killpg(s.pid, signal.SIGKILL)


@test(60)
def wait_option(t):
    """--wait: the engine comes back under another pid, and it goes on."""
    port = free_port()
    argv = [os.path.join(BIN, "paced"), "--listen", f"127.0.0.1:{port}"]
    srv = t.spawn(argv, stdout=subprocess.PIPE)
    srv.stdout.readline()
    p = t.probe(srv, args=["--wait"])
    run_client(t, port, n=3, id="a", max_tokens=3)
    srv.kill()
    srv.wait()
    time.sleep(0.5)
    t.equal(p.proc.poll(), None, "reqprobe waits")
    again = t.spawn(argv, stdout=subprocess.PIPE)
    again.stdout.readline()
    end = time.monotonic() + 15
    while time.monotonic() < end and f"attached to pid {again.pid} " not in p.stderr():
        time.sleep(0.02)
    run_client(t, port, n=3, id="b", max_tokens=3)
    recs = p.finish(6)
    t.equal(sorted(r["x_request_id"] for r in recs), [f"{k}-{i}" for k in "ab" for i in range(3)], "records")
    t.equal({r["engine"]["pid"] for r in recs if r["x_request_id"][0] == "b"}, {again.pid}, "pid")


@test(90)
def server_killed_mid_stream(t):
    """kill -9 under 30 open streams: 30 records, end=server_close, what was seen."""
    srv = t.paced()
    p = t.probe(srv)
    cl = t.spawn(client_argv(srv.port, n=30, c=30, max_tokens=1000, extra={"gap_us": 20000, "ttft_us": 30000}), stdout=subprocess.DEVNULL)
    time.sleep(1)
    srv.proc.kill()
    srv.proc.wait()
    cl.wait(20)
    rc = p.proc.wait(10)
    p.stop()
    t.equal((rc, len(p.records)), (0, 30), "exit status, records")
    for r in p.records:
        t.check(r["end"] == "server_close" and (r["server_timing"]["chunks"] or 0) > 10, f"{r['end']}, {r['server_timing']['chunks']} chunks")


@test(60)
def killed_worker_closes(t):
    """One of four workers dies: its requests end, the others go on."""
    srv = t.paced("--workers", "4")
    p = t.probe(srv)
    cl = t.spawn(client_argv(srv.port, n=40, c=40, max_tokens=40, extra={"gap_us": 30000, "ttft_us": 30000}), stdout=subprocess.PIPE, text=True)
    time.sleep(0.6)
    with open(f"/proc/{srv.pid}/task/{srv.pid}/children") as f:
        kids = [int(x) for x in f.read().split()]
    os.kill(kids[1], signal.SIGKILL)
    out, _ = cl.communicate(timeout=30)
    broken = [json.loads(l)["x_request_id"] for l in out.splitlines() if '"end":"complete"' not in l and "x_request_id" in l]
    recs = p.finish(40)
    t.equal(len(recs), 40, "records")
    t.equal(sorted(r["x_request_id"] for r in recs if r["end"] == "server_close"), sorted(broken), "closed by the death")
    t.equal(sorted({r["end"] for r in recs}), ["complete", "server_close"], "ends")
    t.equal({r["engine"]["pid"] for r in recs if r["end"] == "server_close"}, {kids[1]} if broken else set(), "pid of the closed")
    t.note(f"{len(broken)} of 40 on the dead worker")


@test(90)
def two_pids(t):
    """Two watched servers, one --pid each; a third is not seen."""
    a, b, x = t.paced(), t.paced(), t.paced()
    p = t.probe(a, b)
    for s, i in ((a, "a"), (b, "b"), (x, "x")):
        run_client(t, s.port, n=10, c=5, id=i, max_tokens=3, extra={"gap_us": 1000})
    recs = p.finish(20)
    t.equal(sorted(r["x_request_id"] for r in recs), sorted(f"{k}-{i}" for k in "ab" for i in range(10)), "records")
    for r in recs:
        want = a.pid if r["x_request_id"][0] == "a" else b.pid
        t.equal(r["engine"]["pid"], want, "pid")


@test(60)
def two_probes(t):
    """Two reqprobes on one server see the same, undisturbed by one another."""
    srv = t.paced()
    p, q = t.probe(srv), t.probe(srv)
    run_client(t, srv.port, n=50, c=10, max_tokens=10, usage=True, extra={"gap_us": 2000})
    a, b = p.finish(50), q.finish(50)
    key = lambda r: (r["x_request_id"], r["end"], r["tokens"]["completion"], r["server_timing"]["chunks"])
    t.equal(sorted(map(key, a)), sorted(map(key, b)), "records")
    t.equal(len(a), 50, "records")


@test(60)
def listener_after_attach(t):
    """A server that starts to listen, and to fork, after the attach."""
    prog = t.path("late.py")
    with open(prog, "w") as f:
        f.write(f"""
import os, sys, time
sys.path.insert(0, {HERE!r}); sys.dont_write_bytecode = True
import harness, socket
first = socket.socket(); first.bind(("127.0.0.1", 0)); first.listen(5)
print("up", flush=True)
sys.stdin.readline()
s = harness.Server.__new__(harness.Server)
def h(c, r):
    c.begin(); c.event(harness.TOK("a"), 10, "tok"); c.end()
s.handler, s.raw, s.wrap, s.nodelay = h, None, None, True
s.log_fd = os.open({t.path('log')!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(64)
print(l.getsockname()[1], flush=True)
if os.fork() == 0:
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
    s._accept(l)
os.wait()
""")
    srv = t.spawn([sys.executable, prog], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    srv.stdout.readline()
    p = t.probe(srv)
    srv.stdin.write("go\n")
    srv.stdin.flush()
    port = int(srv.stdout.readline())
    time.sleep(0.1)
    for i in range(5):
        c = Client(port)
        c.ask(f"x{i}")
        c.close()
    recs = p.finish(5)
    t.equal(len(recs), 5, "records")
    for r in recs:
        t.check(r["end"] == "complete" and r["network"]["rtt_ms"] is not None, f"{r['end']}, rtt {r['network']['rtt_ms']}, flags {r['flags']}")


def pid_alike(t, args):
    """A process that the first look takes for the server, for its pid ends in the same
    bits, is not one."""
    def h(c, r):
        c.begin()
        c.event(TOK("a"), None, "tok")
        c.end()
    srv, limit = t.server(h), "/proc/sys/kernel/pid_max"
    p = t.probe(srv, args=args)
    l, old = socket.create_server(("127.0.0.1", 0)), open(limit).read()
    try:
        if int(old) <= srv.pid + 65536:
            open(limit, "w").write(str(srv.pid + 65537))
        pid = fork_as(srv.pid + 65536)
        if not pid:
            try:
                s, _ = l.accept()
                c = Conn(s, 0, os.open("/dev/null", os.O_WRONLY))
                h(c, c.read_request())
            finally:
                os._exit(0)
    finally:
        open(limit, "w").write(old)
    t.children.append(Child(pid))
    for i, where in enumerate((l.getsockname()[1], srv)):
        c = Client(where)
        c.ask(f"x{i}")
        c.close()
    t.equal([r["x_request_id"] for r in p.finish(1)], ["x1"], "records")


@test(60)
def pid_alike_syscalls(t):
    pid_alike(t, [])


@test(60)
def pid_alike_sockets(t):
    pid_alike(t, ["--sockets"])


@test(60)
def pid_namespace(t):
    """A server in a pid namespace of its own, named by the pid the caller sees."""
    srv = t.spawn(["unshare", "--pid", "--fork", "--kill-child", os.path.join(BIN, "paced")], stdout=subprocess.PIPE, text=True)
    port = int(srv.stdout.readline().split()[1])
    with open(f"/proc/{srv.pid}/task/{srv.pid}/children") as f:
        pid = int(f.read().split()[0])
    p = t.probe(pid)
    run_client(t, port, n=5, c=2, max_tokens=3, extra={"gap_us": 1000})
    recs = p.finish(5)
    t.equal(len(recs), 5, "records")
    t.check(all(r["engine"]["pid"] == pid for r in recs), f"pids {[r['engine']['pid'] for r in recs]}, expected {pid}")


@test(60)
def probe_in_pid_namespace(t):
    """reqprobe inside the namespace, with the pid as seen there."""
    script = t.path("in.sh")
    with open(script, "w") as f:
        f.write(f"""mount -t proc proc /proc
{os.path.join(BIN, 'paced')} > {t.path('port')} &
s=$!
while [ ! -s {t.path('port')} ]; do sleep .01; done
{REQPROBE} --pid $s --jsonl {t.path('x.jsonl')} --metrics off 2> {t.path('err')} &
r=$!
for i in $(seq 500); do grep -q attached {t.path('err')} && break; sleep .02; done
p=$(cut -d' ' -f2 {t.path('port')})
{os.path.join(BIN, 'client')} --connect 127.0.0.1:$p -n 4 -c 2 --stream --max-tokens 3 > /dev/null
sleep .5
kill -INT $r; wait $r; echo rc $? >> {t.path('err')}
echo $s > {t.path('pid')}
kill $s
""")
    r = subprocess.run(["unshare", "--pid", "--fork", "--mount", "--kill-child", "sh", script], capture_output=True, text=True, timeout=40)
    err = open(t.path("err")).read() if os.path.exists(t.path("err")) else r.stderr
    if not t.check(os.path.exists(t.path("x.jsonl")), f"no JSONL; {err}"):
        return
    recs, _ = read_jsonl(t.path("x.jsonl"))
    t.equal(len(recs), 4, "records")
    pid = int(open(t.path("pid")).read())
    t.check(all(x["engine"]["pid"] == pid for x in recs), f"pids {[x['engine']['pid'] for x in recs]}, expected {pid}")
    t.check("rc 0" in err, err)


@test(240)
def sigkill_50_times(t):
    """SIGKILL at 50 random moments under load: no link, no program, no uprobe
    stays, and the server goes on."""
    srv = t.paced(exe="fake_llama")
    cl = load(t, srv.port, c=8)
    rnd = random.Random(50)
    before = bpf_objects()
    uprobes = "/sys/kernel/tracing/uprobe_events"
    ups = open(uprobes).read() if os.path.exists(uprobes) else ""
    left, early = {}, 0
    for i in range(50):
        p = t.probe(srv, wait=False, args=["--engine", "llamacpp"])
        end = time.monotonic() + (rnd.random() * 0.5 if i % 2 else 5)
        while time.monotonic() < end and "attached" not in p.stderr():
            time.sleep(0.002)
        if "attached" in p.stderr():
            time.sleep(rnd.random() * 0.2)
        else:
            early += 1
        t.check(p.proc.poll() is None, f"reqprobe ended by itself with {p.proc.poll()}: {p.stderr()[-200:]}")
        p.proc.kill()
        p.proc.wait()
        t.probes.pop()
    ours = {c.pid for c in t.children}
    for _ in range(50):
        left = {k: v[:2] for k, v in bpf_objects().items() if k not in before and (not v[1] or set(v[1]) & ours)}
        if not left:
            break
        time.sleep(0.1)
    t.check(not left, f"left behind: {left}")
    t.equal(open(uprobes).read() if os.path.exists(uprobes) else "", ups, "uprobe_events")
    t.equal(srv.proc.poll(), None, "the server is alive")
    t.equal(cl.poll(), None, "the client is served")
    got = run_client(t, srv.port, n=20, c=4, max_tokens=5, usage=True, extra={"gap_us": 1000})
    t.equal(len(got), 20, "answers afterwards")
    p = t.probe(srv)
    p.stop()
    t.note(f"{early} of 50 before the attach was complete")


@test(60)
def attach_time(t):
    srv = t.paced(exe="fake_llama")
    xs = []
    for _ in range(7):
        p = t.probe(srv, args=["--engine", "llamacpp"])
        wall = (time.monotonic() - p.started) * 1e3
        xs.append((p.attach_ms(), wall))
        p.stop()
    said = [a for a, _ in xs if a is not None]
    t.check(len(said) == 7, "the attach line has no time in ms")
    t.check(percentile(said, .5) < 500, f"attach takes {said} ms")
    t.note(f"said p50 {percentile(said, .5):.0f} max {max(said, default=0):.0f} ms; process start to line p50 {percentile([w for _, w in xs], .5):.0f} ms")


@test(60)
def hook_links(t):
    """One link holds all hooks of a file, and no perf event: those would cost each thread switch
    of the machine. Where the kernel has no such link, perf events see as many calls."""
    links = lambda p: sorted(re.search(r"link_type:\s+(\S+)", s)[1] for s in
                             (open(f"/proc/{p.pid}/fdinfo/{fd}").read() for fd in os.listdir(f"/proc/{p.pid}/fdinfo")) if "link_type" in s)
    kinds = {}
    for args in ([], ["--no-uprobe-multi"]):
        srv = t.spawn([os.path.join(BIN, "bench_trap"), "pushed"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        srv.stdout.readline()
        p = t.probe(srv, args=["--engine", "llamacpp", *args])
        kinds[len(args)] = [k for k in links(p) if k in ("uprobe_multi", "perf", "perf_event")]
        srv.stdin.write("5000\n")
        srv.stdin.flush()
        srv.stdout.readline()
        hits = lambda: sum(p.metrics().by("reqprobe_hook_hits_total", "hook").values())
        wait_for(f"{args}: 5000 calls of the hooked function seen", 5, lambda: hits() >= 5000)
        t.equal(hits(), 5000, f"{args}: calls seen")
        p.stop()
        srv.kill()
    t.check(kinds[1] and "uprobe_multi" not in kinds[1], f"--no-uprobe-multi: {kinds[1]}")
    if kinds[0] == kinds[1] and tuple(map(int, os.uname().release.split(".")[:2])) < (6, 10):
        raise Skip("no uprobe_multi for all threads in this kernel")
    t.equal(kinds[0], ["uprobe_multi"], "links of hooks")


@test(60)
def bpf_time_is_sampled(t):
    """The kernel accounts run time, which costs each run, for a second in twenty."""
    srv = t.paced()
    def on(p):
        for fd in os.listdir(f"/proc/{p.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):    # it was just closed
                if "bpf-stats" in os.readlink(f"/proc/{p.pid}/fd/{fd}"):
                    return True
        return False
    time_of = lambda p: sum(p.metrics().by("reqprobe_bpf_run_seconds_total", "program").values())
    runs = lambda p: sum(p.metrics().by("reqprobe_bpf_runs_total", "program").values())
    load = lambda: run_client(t, srv.port, n=8, c=4, max_tokens=20)
    p = t.probe(srv)
    t.check(on(p), "not accounted from the start")
    load()
    first = time_of(p)
    t.check(first > 0, "no time")
    wait_for("the sample's end", 3, lambda: not on(p))
    a = time_of(p)
    load()
    t.equal(time_of(p), a, "time between two samples")
    t.check(a >= first, f"{first} s, then {a}")
    p.stop()

    p = t.probe(srv, args=["--account-every", "1s"])
    load()
    time.sleep(1.5)
    t.check(on(p), "not accounted any more")
    p.stop()

    # a sample of 1 s stands for 6
    p = t.probe(srv, args=["--account-every", "6s"])
    for _ in range(3):
        wait_for("the sample's end", 3, lambda: not on(p))
        wait_for("the next sample", 7, lambda: on(p))
        a = runs(p)
        load()
        b = runs(p) - a     # so far of this sample, not yet scaled
        if on(p):
            break
    wait_for("its end", 3, lambda: not on(p))
    c = runs(p) - a
    t.check(b > 100 and 4 * b < c < 12 * b, f"{b} runs seen in the second sample, which count as {c}")
    p.stop()
    t.note(f"{b:.0f} runs count as {c:.0f}")


CAP_SYS_NICE = 23


def has_cap(n):
    with open("/proc/self/status") as f:
        return int(re.search(r"CapEff:\s+([0-9a-f]+)", f.read())[1], 16) >> n & 1 == 1


@test(60)
def idlest_cpu(t):
    """As a real-time process, which it becomes when an engine leaves it no CPU, it does not
    run where others work, if a CPU is idle, and only where it may run at all."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise Skip("one CPU")
    srv = t.paced()
    p = t.probe(srv)
    os.sched_setscheduler(p.pid, os.SCHED_RR, os.sched_param(1))     # what it does itself may be forbidden here
    cpu = lambda: int(open(f"/proc/{p.pid}/stat").read().rpartition(")")[2].split()[36])
    for _ in range(3):
        busy = cpu()
        spin = t.spawn([sys.executable, "-c", f"import os, time\nos.sched_setaffinity(0, {{{busy}}})\nend = time.monotonic() + 20\n"
                        "while time.monotonic() < end: pass"])
        wait_for(f"another CPU than {busy}, where somebody is at work", 12, lambda: cpu() != busy)
        t.check(os.sched_getaffinity(p.pid) <= set(cpus), f"it may run on {os.sched_getaffinity(p.pid)} now, on {cpus} at first")
        spin.kill()
        spin.wait()
    os.sched_setscheduler(p.pid, os.SCHED_OTHER, os.sched_param(0))
    wait_for("not on one CPU any more, no real-time process as it is", 30, lambda: len(os.sched_getaffinity(p.pid)) > 1)
    os.sched_setaffinity(p.pid, {cpus[0]})
    time.sleep(2.5)
    t.equal(os.sched_getaffinity(p.pid), {cpus[0]}, "the user's word stands")
    p.stop()


@test(90)
def takes_what_is_left(t):
    """It runs under SCHED_IDLE; where others leave it nothing (they are at work on every CPU,
    and rank high) it is helped, records come in time, and it goes back afterwards."""
    srv = t.paced()
    p = t.probe(srv)
    if not has_cap(CAP_SYS_NICE):
        raise Skip("no CAP_SYS_NICE")
    policy = lambda: os.sched_getscheduler(p.pid) & ~os.SCHED_RESET_ON_FORK
    wait_for("SCHED_IDLE", 5, lambda: policy() == os.SCHED_IDLE)
    policies, late = set(), []
    spins = [t.spawn([sys.executable, "-c", f"import os, time\nos.sched_setaffinity(0, {{{c}}})\nos.nice(-20)\n"
                      "end = time.monotonic() + 40\nwhile time.monotonic() < end: pass"]) for c in os.sched_getaffinity(0)]
    wait_for("help", 10, lambda: policy() != os.SCHED_IDLE)
    for n in range(8):
        run_client(t, srv.port, n=1, max_tokens=2)
        at = time.monotonic()
        p.wait_records(n + 1)
        late.append(time.monotonic() - at)
        policies.add(policy())
    t.equal([s.poll() for s in spins], [None] * len(spins), "who left it nothing")
    t.check(policies & {os.SCHED_OTHER, os.SCHED_RR}, f"it ran under {policies}")
    t.check(max(late) < 1.5, f"records came {max(late):.2f} s after the answer")
    for s in spins:
        s.kill()
        s.wait()
    wait_for("SCHED_IDLE again", 70, lambda: policy() == os.SCHED_IDLE)
    p.stop()
    # where the kernel would kill who hurries for that long, it does not
    p = t.probe(srv, prefix=["prlimit", "--rttime=20000:20000"])
    t.equal(policy(), os.SCHED_OTHER, "policy with a hard limit of 20 ms")
    p.stop()
    t.note(f"records {statistics.median(late):.2f} s after the answer, at most {max(late):.2f}")


@test(60)
def dropped_capabilities(t):
    """After the attach, no capability is held that is not needed to go on; by threads, none:
    before a client's first byte, too."""
    srv = t.paced()
    p = t.probe(srv, args=["--log", t.path("log")])
    with open(f"/proc/{p.pid}/status") as f:
        eff = int(re.search(r"CapEff:\s+([0-9a-f]+)", f.read())[1], 16)
    with open("/proc/self/status") as f:
        all_ = int(re.search(r"CapEff:\s+([0-9a-f]+)", f.read())[1], 16)
    n = bin(eff).count("1")
    t.check(eff != all_, f"holds all {n} capabilities")
    t.check(not eff & (1 << 1 | 1 << 7 | 1 << 16), f"CapEff {eff:x}: can still override files, change uid or load modules")

    def threads():
        out = {}
        for task in os.listdir(f"/proc/{p.pid}/task"):
            if int(task) != p.pid:
                with open(f"/proc/{p.pid}/task/{task}/status") as f:
                    s = f.read()
                caps = [int(re.search(c + r":\s+([0-9a-f]+)", s)[1], 16) for c in ("CapEff", "CapPrm")]
                out[task] = (re.search(r"Name:\s+(.*)", s)[1], *caps, "NoNewPrivs:\t1" in s)
        return out
    # who makes the page asks the kernel how long programs ran: CAP_BPF; who sees to it that
    # the main thread gets a CPU changes its policy
    held = {"metrics": 1 << 39, "guard": 1 << CAP_SYS_NICE}
    right = lambda: all(new and eff | prm == held.get(name, 0) for name, eff, prm, new in threads().values())
    for when in ("before", "after"):
        end = time.monotonic() + 5
        while not right() and time.monotonic() < end:
            time.sleep(0.02)
        t.check(right(), f"{when} a scrape: threads {threads()}")
        t.check(len(threads()) >= 5, f"{when} a scrape: {len(threads())} threads")
        m = p.metrics()
    t.equal(sorted(n for n, *_ in threads().values() if not n.startswith("log-")),
            ["guard"] * has_cap(CAP_SYS_NICE) + ["http", "metrics"], "threads")
    t.check((m.sum("process_open_fds") or 0) > 5, "process_open_fds")
    run_client(t, srv.port, n=2, max_tokens=2)
    t.equal(len(p.finish(2)), 2, "records")
    t.note(f"{n} capabilities")
