#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What reqprobe costs. bench.py [--quick] [--check] [--pairs N] [--json FILE] [PART...]

Parts: attach, trap, write, flood, decode, log, otlp, outputs, llama, vllm. --quick is for CI: fewer and shorter
runs. --check: exit status 1 when a limit is exceeded.

The machine may swing by tens of percent from minute to minute. Claims rest on
accounting (the kernel's BPF run time, hits times the measured cost of a trap,
the daemon's CPU, against the engine's CPU for the same work) and on many short
windows of one load, in random order within each round: with the probe / without,
beside without / without, as the mean ratio without the outer tenths, with a bootstrap interval."""

import glob, hashlib, json, os, random, re, shutil, signal, statistics, subprocess, sys, time

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(os.path.dirname(here), "engines")]
from harness import *
import harness

QUICK = "--quick" in sys.argv
PARTS = ["attach", "trap", "write", "flood", "decode", "log", "otlp", "outputs", "llama", "vllm"]
ROWS, FIGURES, FAILED = [], {}, []
HOOKS = {  # llama-server's functions, for the bpftrace script
    "_ZN12server_queue4postEOSt6vectorI11server_taskSaIS1_EEb", "_ZN12server_queue4postEO11server_taskb", "_ZN12server_queue5deferEO11server_task",
    "_ZN19server_context_impl21launch_slot_with_taskER11server_slotO11server_task",
    "_ZN19server_context_impl13process_tokenER23completion_token_outputR11server_slot",
    "_ZN19server_context_impl19send_final_responseER11server_slot", "_ZN11server_slot7releaseEv",
    "_ZN14server_context21launch_slot_with_taskER11server_slotO11server_task",
    "_ZN14server_context13process_tokenER23completion_token_outputR11server_slot",
    "_ZN14server_context19send_final_responseER11server_slot", "llama_decode", "llama_process",
}


def row(what, value, limit=None, ok=None):
    FIGURES[what] = value
    verdict = "" if ok is None else ("ok" if ok else "OVER")
    if ok is False:
        FAILED.append(what)
    ROWS.append((what, str(value), limit or "", verdict))
    print(f"  {what:<46} {value!s:<30} {limit or '':<16} {verdict}", flush=True)


def head(text):
    print(f"\n{text}", flush=True)


def bootstrap(xs, n=4000, seed=1, of=statistics.median):
    rnd = random.Random(seed)
    m = sorted(of(rnd.choices(xs, k=len(xs))) for _ in range(n))
    return m[int(n * .025)], m[int(n * .975)]


def bpf_run(m):
    return m.by("reqprobe_bpf_run_seconds_total", "program")


def lost(m):
    return int(sum(m.by("reqprobe_events_lost_total", "class").values()))


# ---------------------------------------------------------------- attach

def attach(t):
    head("attach")
    xs, wall = [], []
    srv = t.paced(exe="fake_llama", truth=False)
    for _ in range(5 if QUICK else 15):
        p = t.probe(srv, args=["--engine", "llamacpp"])
        wall.append((time.monotonic() - p.started) * 1e3)
        xs.append(p.attach_ms() or float("nan"))
        p.stop()
    row("attach, as told, median (max)", f"{statistics.median(xs):.0f} ms ({max(xs):.0f})", "< 500 ms", statistics.median(xs) < 500)
    row("from exec to the attach line, median", f"{statistics.median(wall):.0f} ms")


# ---------------------------------------------------------------- one trap

def ask_line(p, n):
    p.stdin.write(f"{n}\n")
    p.stdin.flush()
    return float(p.stdout.readline())


TRAP = {}


def trap(t):
    """ns that one hook hit costs the engine: trap, program, ring. The kernel does the
    first instruction itself if it is a push, as in most functions; others are run out
    of line, and end in a second trap."""
    for how, first in (("pushed", "a push"), ("stepped", "another instruction")):
        head(f"one hook hit (uprobe with its BPF program), the function's first instruction is {first}")
        one_trap(t, how)


def one_trap(t, how):
    srv = t.spawn([os.path.join(BIN, "bench_trap"), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    srv.stdout.readline()
    n, bare, with_, bpf = 20000, [], [], []
    ask_line(srv, n * 50)
    for _ in range(3 if QUICK else 7):
        bare.append(ask_line(srv, n * 50))
        p = t.probe(srv, args=["--engine", "llamacpp", "--account-every", "1s"])
        a = p.metrics()
        with_.append(ask_line(srv, n))
        time.sleep(0.2)
        b = p.metrics()
        d = {k: v - bpf_run(a).get(k, 0) for k, v in bpf_run(b).items()}
        bpf.append(max([v for k, v in d.items() if "hook" in (k or "") or "uprobe" in (k or "")] or [max(d.values(), default=0)]) / n * 1e9)
        p.stop()
    hit, of_bpf = statistics.median(with_) - statistics.median(bare), statistics.median(bpf)
    TRAP[how] = max(hit - of_bpf, 0)
    row(f"a hit, whole ({how})", f"{hit:.0f} ns")
    row(f"of it BPF program run time ({how})", f"{of_bpf:.0f} ns")
    row(f"trap alone ({how})", f"{TRAP[how]:.0f} ns")
    if hit < 100:
        print("  (the hook was not attached: engine llamacpp not matched?)")
    srv.kill()


# ---------------------------------------------------------------- write(2)

def bench_write(t, probe, rate, rounds):
    argv = [os.path.join(BIN, "bench_write"), str(rounds)] + (["50", str(rate)] if rate else [])
    p = t.spawn(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "BENCH_WAIT": "1"})
    pid = int(p.stdout.readline().split()[1])
    q = probe(pid) if probe else None
    p.stdin.write("go\n")
    p.stdin.flush()
    line = p.stdout.readline()
    while "median" not in line and line:
        line = p.stdout.readline()
    p.wait(60)
    if q is not None:
        q.stop(expect_rc=None)
    return float(re.search(r"median (\d+)", line)[1])


def write(t):
    head("write(2) of a 230-byte chunk on loopback TCP")
    for name, rate in (("in a row", 0), ("50,000 a second", 50000)):
        a, b, n = [], [], []
        for i in range(5 if QUICK else 21):
            runs = [lambda: a.append(bench_write(t, None, rate, 100)), lambda: n.append(bench_write(t, None, rate, 100)),
                    lambda: b.append(bench_write(t, lambda pid: Probe(t, [pid], metrics=False), rate, 100))]
            random.Random(i).shuffle(runs)
            for r in runs:
                r()
        d = [y - x for x, y in zip(a, b)]
        z = [y - x for x, y in zip(a, n)]
        lo, hi = bootstrap(d)
        lo0, hi0 = bootstrap(z)
        row(f"{name}: bare", f"{statistics.median(a):.0f} ns")
        row(f"{name}: nothing - nothing", f"{statistics.median(z):+.0f} ns [{lo0:+.0f}, {hi0:+.0f}]")
        row(f"{name}: probe - nothing", f"{statistics.median(d):+.0f} ns [{lo:+.0f}, {hi:+.0f}]", "<= 1000 ns", statistics.median(d) <= 1000)
        TRAP["write"] = statistics.median(d)


# ---------------------------------------------------------------- flood

def one_flood(t, kind, seconds, rate=50000, size=230, conns=20):
    """kind: None, "reqprobe" or "bpftrace"."""
    n = int(rate * seconds)
    srv = Paced(t, ["--flood", f"{n},{rate},{size}", "--conns", conns], "127.0.0.1:0", None, "paced", False)
    out = {}
    p = b = None
    if kind == "reqprobe":
        p = t.probe(srv, args=["--account-every", "1s"], itl=False)
    elif kind == "bpftrace":
        b = bpftrace_start(t, [srv.pid], [], t.path(f"bt{len(t.children)}"))
        if b is None:
            return None
    watched = p.pid if p else b.pid if b else None
    cpu0, t0 = (proc_cpu(watched) if watched else 0), time.monotonic()
    cl = t.spawn(client_argv(srv.port, n=conns, c=conns, lazy_ms=4, timeout=60 + seconds * 2), stdout=subprocess.PIPE, text=True)
    text, _ = cl.communicate(timeout=120 + seconds * 2)
    wall = time.monotonic() - t0
    out["client_ok"] = cl.returncode == 0
    if p:
        p.wait_records(conns, 20)
        out["daemon_cpu"] = (proc_cpu(p.pid) - cpu0) / wall * 100
        out["rss"], out["hwm"] = proc_rss(p.pid) / 2**20, proc_rss(p.pid, "VmHWM") / 2**20
        m = p.metrics()
        out["lost"], out["events"] = lost(m), int(sum(m.by("reqprobe_events_total", "class").values()))
        out["bpf_ns"] = sum(bpf_run(m).values()) * 1e9 / n
        recs = p.stop()
        got = [r["server_timing"]["chunks"] for r in recs]
        out["exact"] = len(recs) == conns and all(c == n // conns for c in got)
        out["chunks"] = sum(c or 0 for c in got)
    if b:
        out["daemon_cpu"] = (proc_cpu(b.pid) - cpu0) / wall * 100
        out["rss"] = proc_rss(b.pid) / 2**20
        os.kill(b.pid, signal.SIGINT)
        b.wait(20)
        with open(b.out_path, errors="replace") as f:
            lines = f.read().splitlines()
        with open(b.out_path + ".err", errors="replace") as f:
            lines += f.read().splitlines()
        out["lost"] = sum(int(x[1]) for x in (re.search(r"[Ll]ost (\d+) events", l) for l in lines) if x)
        out["events"] = sum(l.startswith("W ") for l in lines)
    out.update(srv.stop())
    return out


def flood(t):
    s = 3 if QUICK else 10
    head(f"flood: 50,000 events of 230 bytes a second for {s} s over 20 connections")
    a, b = [], []
    for i in range(2 if QUICK else 5):
        order = [None, "reqprobe"]
        random.Random(i).shuffle(order)
        for k in order:
            (b if k else a).append(one_flood(t, k, s))
    med = lambda xs, k: statistics.median([x[k] for x in xs])
    row("achieved, bare / with the probe", f"{med(a, 'flood_rate'):.0f} / {med(b, 'flood_rate'):.0f} per s", ">= 49,000", med(b, "flood_rate") >= 49000)
    row("lateness p99, bare / with", f"{med(a, 'late_p99_us'):.0f} / {med(b, 'late_p99_us'):.0f} us")
    row("later than 1 ms, bare / with", f"{med(a, 'late_over_1ms'):.0f} / {med(b, 'late_over_1ms'):.0f} of {50000 * s}")
    row("server CPU per write, bare / with", f"{med(a, 'flood_cpu_ns_per_write'):.0f} / {med(b, 'flood_cpu_ns_per_write'):.0f} ns")
    row("BPF run time per chunk", f"{med(b, 'bpf_ns'):.0f} ns")
    row("events lost, worst run", f"{max(x['lost'] for x in b)}", "0", max(x["lost"] for x in b) == 0)
    row("records and chunk counts exact", f"{sum(x['exact'] for x in b)} of {len(b)} runs", "all", all(x["exact"] for x in b))
    row("daemon CPU", f"{med(b, 'daemon_cpu'):.1f} % of a core", "< 30 %", med(b, "daemon_cpu") < 30)
    row("daemon memory, resident (peak)", f"{max(x['rss'] for x in b):.1f} ({max(x['hwm'] for x in b):.1f}) MiB", "< 64 MiB", max(x["hwm"] for x in b) < 64)
    c = one_flood(t, "bpftrace", s)
    if c:
        row("bpftrace, same writes: lost / seen", f"{c['lost']} / {c['events']} of {50000 * s}")
        row("bpftrace: its CPU, memory", f"{c['daemon_cpu']:.1f} % of a core, {c['rss']:.0f} MiB")
        row("bpftrace: server CPU per write", f"{c['flood_cpu_ns_per_write']:.0f} ns")
        row("bpftrace: achieved, lateness p99", f"{c['flood_rate']:.0f} per s, {c['late_p99_us']:.0f} us")
    else:
        print("  no bpftrace: no comparison")


# ---------------------------------------------------------------- bpftrace

def bpftrace_start(t, pids, hooks, out):
    """Record the same probes: writes and reads of the sockets with their bytes,
    and the engine's functions."""
    if not shutil.which("bpftrace"):
        return None
    src, ours = "", " || ".join(f"pid == {p}" for p in pids)
    for call, kind, data in (("write", "W", "args->buf"), ("sendto", "W", "args->buff"), ("sendmsg", "W", None), ("writev", "W", None),
                             ("read", "R", None), ("recvfrom", "R", None), ("recvmsg", "R", None)):
        src += f"tracepoint:syscalls:sys_enter_{call} /{ours}/ {{ printf(\"{kind} %llu %d" + (" %r" if data else "") + \
            "\\n\", nsecs, args->fd" + (f", buf({data}, 200)" if data else "") + "); }\n"
    for path, sym in hooks:
        src += f"uprobe:{path}:{sym} /{ours}/ {{ printf(\"H %llu %d %llx %llx\\n\", nsecs, tid, arg1, arg2); }}\n"
    script = out + ".bt"
    with open(script, "w") as f:
        f.write(src)
    with open(out, "wb") as o, open(out + ".err", "wb") as e:
        b = t.spawn(["bpftrace", script], stdout=o, stderr=e, env={**os.environ, "BPFTRACE_MAX_STRLEN": "200"})
    b.out_path = out
    end = time.monotonic() + 30
    while time.monotonic() < end:
        said = open(out, errors="replace").read() + open(out + ".err", errors="replace").read()
        if "Attach" in said:
            time.sleep(1.5)
            return b
        if b.poll() is not None:
            with open(out + ".err") as f:
                print("  bpftrace: " + " | ".join(l for l in f.read().splitlines() if "ERROR" in l)[:300])
            return None
        time.sleep(0.05)
    return None


# ---------------------------------------------------------------- llama-server

def batch(t, port, n, seed, c=4, max_tokens=24, words="8,24", extra={}):
    """A fixed piece of work."""
    got = run_client(t, port, n=n, c=c, seed=seed, usage=True, max_tokens=max_tokens, words=words,
                     extra={"temperature": 0, "ignore_eos": True, **extra}, timeout=120)
    assert len(got) == n and all(r["first_token_ns"] > r["sent_ns"] for r in got.values()), "a request got no token"


def perf_start(pids, out):
    """Count the system calls of the engine and of the machine, until ended."""
    if not shutil.which("perf"):
        return []
    return [subprocess.Popen(["perf", "stat", "-x,", "-o", f"{out}.{k}", "-e", "raw_syscalls:sys_enter", *sel], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL) for k, sel in enumerate((["-p", ",".join(map(str, pids))], ["-a"]))]


def perf_stop(ps, out):
    got = []
    for k, p in enumerate(ps):
        p.send_signal(signal.SIGINT)
        p.wait(10)
        with open(f"{out}.{k}") as f:
            m = re.search(r"^(\d+),", f.read(), re.M)
        got.append(int(m[1]) if m else None)
    return got if len(got) == 2 and all(got) else None


def takes_all(t):
    """The URL of a server that says yes to whatever is posted or put: what becomes of
    an output's bytes is not reqprobe's cost."""
    import http.server, socketserver

    class H(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(200)
            self.send_header("ETag", '"' + hashlib.md5(body).hexdigest() + '"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        do_POST = do_PUT

        def log_message(self, *_):
            pass
    port = free_port()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        socketserver.ThreadingTCPServer(("127.0.0.1", port), H).serve_forever()     # HTTPServer would ask for our name
    t.children.append(Child(pid))
    return f"http://127.0.0.1:{port}"


def all_outputs(t):
    """Every output at once, as options; the environment has the store's keys."""
    url = takes_all(t)
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench")
    return ["--compat", "vllm,aphrodite,llm-runtime-metrics", "--goodput", "time_to_first_token:500 inter_token_latency:50",
            "--steps", t.path("steps.jsonl"), "--anonymous", "--log", t.path("log"), "--log-rotate-time", "5s",
            "--s3", "s3://bucket/bench", "--s3-endpoint", url, "--s3-path-style",
            "--otlp", url, "--otlp-traces", "--otlp-interval", "1s", "--otlp-exponential"]


def begins_with_push(pids, function):
    """Does this function of these processes? (On other machines than x86 that is of no account.)"""
    mangled = "_ZN" + "".join(f"{len(x)}{x}" for x in function.split("::")) + "E"
    names = [h for h in HOOKS if h.startswith(mangled)] or [function]
    files = {l.split()[-1] for p in pids for l in open(f"/proc/{p}/maps") if " r-xp " in l and l.split()[-1].startswith("/")}
    for f in sorted(files):
        for tab in ("-D", "-a"):
            out = subprocess.run(["nm", "--defined-only", tab, f], capture_output=True, text=True).stdout
            at = re.search(rf"^([0-9a-f]+) . (?:{'|'.join(map(re.escape, names))})(?:@.*)?$", out, re.M)
            if at:
                a = int(at[1], 16)
                code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--start-address={a}", f"--stop-address={a + 16}", f],
                                      capture_output=True, text=True).stdout
                return re.search(rf"^\s*{a:x}:\s+push", code, re.M) is not None or os.uname().machine != "x86_64"
    return False


def account(t, e, pids, work, what, limit, args=()):
    """One piece of work, watched: what it cost against the engine's CPU time."""
    if args:
        p = t.probe(e, args=[*args, "--account-every", "1s"])
        accounted(t, p, pids, work, what, limit)
        return
    ms = []
    for _ in range(3):
        p = t.probe(e, args=["--account-every", "1s"])
        ms.append(p.attach_ms() or float("nan"))
        p.stop()
    row("attach, median (max)", f"{statistics.median(ms):.0f} ms ({max(ms):.0f})", "< 500 ms", statistics.median(ms) < 500)
    accounted(t, t.probe(e, args=["--account-every", "1s"]), pids, work, what, limit)


def accounted(t, p, pids, work, what, limit):
    cpu = lambda: sum(map(proc_cpu, pids))
    m0, e0, d0, t0 = p.metrics(), cpu(), proc_cpu(p.pid), time.monotonic()
    perf = perf_start(pids, t.path("perf"))
    work()
    calls = perf_stop(perf, t.path("perf"))
    time.sleep(0.3)
    m1, e1, d1, t1 = p.metrics(), cpu(), proc_cpu(p.pid), time.monotonic()
    runs = lambda m: sum(v for k, v in m.by("reqprobe_bpf_runs_total", "program").items() if "uprobe" in (k or ""))
    hits = runs(m1) - runs(m0)   # of the program: a message too short to be told costs a trap as well
    told0, told1 = (m.by("reqprobe_hook_hits_total", "hook") for m in (m0, m1))
    stepped = sum(v - told0.get(k, 0) for k, v in told1.items() if v > told0.get(k, 0) and not begins_with_push(pids, k))
    progs = {k: v - bpf_run(m0).get(k, 0) for k, v in bpf_run(m1).items()}
    bpf = sum(progs.values())
    recs = p.finish()
    engine, daemon = e1 - e0, d1 - d0
    traps = ((hits - stepped) * TRAP["pushed"] + stepped * TRAP["stepped"]) / 1e9
    total = (bpf + traps + daemon) / engine * 100 if engine else float("nan")
    row("work", f"{what}, {t1 - t0:.1f} s")
    row("engine CPU", f"{engine:.2f} s")
    row("BPF run time, all programs, whole machine", f"{bpf * 1e3:.2f} ms = {bpf / engine * 100:.4f} %")
    for k, v in sorted(progs.items(), key=lambda x: -x[1])[:4]:
        row(f"  {k}", f"{v * 1e3:.2f} ms")
    row(f"traps: {hits:.0f}, {stepped:.0f} of them twice", f"{traps * 1e3:.2f} ms = {traps / engine * 100:.4f} %")
    row("daemon CPU", f"{daemon * 1e3:.0f} ms = {daemon / engine * 100:.4f} %")
    row("all costs / engine CPU", f"{total:.3f} %", f"< {limit} %", total < limit)
    if calls and calls[0] <= calls[1]:   # perf's count of a machine may be short
        # the two system call programs run for every process of the machine
        rest = sum(v for k, v in progs.items() if k and "sys_" in k) * (1 - calls[0] / calls[1])
        row("system calls of the engine, of the machine", f"{calls[0]}, {calls[1]}")
        row("the same without other processes' system calls", f"{total - rest / engine * 100:.3f} %")
    row("events lost", str(lost(m1)), "0", lost(m1) == 0)
    row("records joined", f"{sum(bool(r['request_ids']) for r in recs)} of {len(recs)}")


SETTLE_S, WINDOW_S, OTHERS_EVERY = (1, 2, 3) if QUICK else (1, 5, 8)


class Places:
    """Where Linux puts processes that spin in sched_yield(2), and what they then keep from
    a CPU, makes a load swing by a factor of two, at times to nothing. So during a window the
    parts of an engine have a CPU each: its workers where it bound them, EngineCore with them,
    the rest and the client on the other. In between everything is free, or what the kernel
    does when a probe is removed waits for seconds."""

    def __init__(self, client, front=(), back=()):
        self.all = os.sched_getaffinity(0)
        self.front = list(front)
        cpus = sorted(self.all)
        two = len(cpus) == 2
        self.where = [(p, {cpus[1]}) for p in (client, *front)] + [(p, {cpus[0]}) for p in back] if two and back else []

    def set(self, fixed):
        for pid, cpus in self.where:
            for tid in os.listdir(f"/proc/{pid}/task"):
                try:
                    os.sched_setaffinity(int(tid), cpus if fixed else self.all)
                except ProcessLookupError:
                    pass    # a thread that has ended

    def front_ns(self):
        """The CPU time of the front end's threads, as the scheduler has it. It swings far less
        than what a user sees: per token it shows an effect that throughput hides."""
        total = 0
        for f in (f for pid in self.front for f in glob.glob(f"/proc/{pid}/task/*/schedstat")):
            try:
                with open(f) as x:
                    total += int(x.read().split()[0])
            except (ProcessLookupError, FileNotFoundError):
                pass    # a thread that has ended
        return total


class Load:
    """A client that goes on asking until it is ended; it can be held."""

    def __init__(self, t, port, c, extra, **kw):
        self.path = t.path(f"load{len(t.children)}")
        with open(self.path, "wb") as out:
            self.proc = t.spawn(client_argv(port, n=1000000, c=c, seed=5, usage=True, timeout=4 * 3600,
                                            extra={"temperature": 0, "ignore_eos": True, **extra}, **kw), stdout=out)

    def hold(self, held):
        self.proc.send_signal(signal.SIGSTOP if held else signal.SIGCONT)

    def end(self):
        """The requests that are over."""
        self.hold(False)
        self.proc.terminate()
        self.proc.wait(10)
        with open(self.path) as f:
            lines = f.read().split("\n")[:-1]    # the last one may be cut
        return [r for r in map(json.loads, lines) if r.get("first_token_ns")]


def in_window(reqs, start, end):
    """Tokens per second, and p50 TTFT of the requests sent in it. A request's tokens are
    taken as even between its first and its last."""
    tokens, ttft = 0, []
    for r in reqs:
        first, last = r["first_token_ns"], r["last_ns"]
        if last > first:
            tokens += (r["max_tokens"] - 1) * max(min(last, end) - max(first, start), 0) / (last - first)
        tokens += start <= first < end
        if start <= r["sent_ns"] < end:
            ttft.append((first - r["sent_ns"]) / 1e6)
    assert ttft, "a window without a request"
    return tokens / ((end - start) / 1e9), statistics.median(ttft)


def trimmed(xs):
    """The mean without the tenth at either end."""
    xs, k = sorted(xs), len(xs) // 10
    return statistics.fmean(xs[k:len(xs) - k])


def windows(t, pairs, load, e, pids, hooks, margin, others={}, window=WINDOW_S, parts=lambda e: ((), ())):
    """load(engine) -> Load. Under one load that never pauses, windows with and without the
    probe: pauses before a piece of work, its ramp and its tail would differ by more
    than what is looked for. others: label -> engine, without a probe; in some rounds.
    parts(engine) -> processes for Places."""
    with_bt = bool(shutil.which("bpftrace") and hooks)
    loads = {"": load(e), **{k: load(x) for k, x in others.items()}}
    places = {k: Places(x.proc.pid, *parts(others.get(k, e))) for k, x in loads.items()}
    time.sleep(2)
    for k in others:
        loads[k].hold(True)
    spans = []
    for i in range(pairs):
        order = ["none", "none2", "reqprobe"] + ([*others] + ["bpftrace"] * with_bt if i % OTHERS_EVERY == 0 else [])
        random.Random(i).shuffle(order)
        for kind in order:
            q = b = None
            if kind in others:
                loads[""].hold(True)
                loads[kind].hold(False)
            elif kind == "reqprobe":
                q = t.probe(e)
            elif kind == "bpftrace":
                b = bpftrace_start(t, pids, hooks, t.path(f"bl{i}"))
                if b is None:
                    continue
            place = places[kind if kind in others else ""]
            place.set(True)
            time.sleep(SETTLE_S * (3 if kind in others else 1))     # it was held
            start, cpu = time.monotonic_ns(), place.front_ns()
            time.sleep(window)
            spans.append((i, kind, start, time.monotonic_ns(), place.front_ns() - cpu))
            place.set(False)
            if kind in others:
                loads[kind].hold(True)
                loads[""].hold(False)
            if q:
                q.stop()
            elif b:
                os.kill(b.pid, signal.SIGINT)
                b.wait(20)
                os.unlink(b.out_path)
            else:
                time.sleep(SETTLE_S)    # a probe takes its time, too
        t.probes.clear()
        print(f"\r  round {i + 1} of {pairs}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    reqs = {k: x.end() for k, x in loads.items()}
    res = {}
    for i, kind, start, end, cpu in spans:
        rate, ttft = in_window(reqs.get(kind) or reqs[""], start, end)
        res.setdefault(kind, []).append((i, rate, ttft, cpu / rate / (end - start) * 1e6 if rate else 0))
    base = {i: x for i, *x in res["none"]}
    second = {i: x for i, *x in res["none2"]}
    row("rounds", f"{pairs}, windows of {window} s", "" if QUICK else ">= 30", None if QUICK else pairs >= 30)
    row("bare: tokens/s, p50 TTFT", f"{statistics.median(x[1] for x in res['none']):.1f}, {statistics.median(x[2] for x in res['none']):.1f} ms")
    if any(x[3] for x in res["none"]):
        row("bare: front end's CPU time a token", f"{statistics.median(x[3] for x in res['none']):.1f} us")
    zero = {}
    for kind in ("none2", "reqprobe", "bpftrace", *others):
        if not res.get(kind):
            continue
        for j, what in ((1, "throughput"), (2, "p50 TTFT"), (3, "front end's CPU time a token")):
            if not all(x[j] for x in res["none"] + res["none2"]):
                continue
            xs = [x[j] / (base[x[0]][j - 1] if kind == "none2" else (base[x[0]][j - 1] * second[x[0]][j - 1]) ** .5) for x in res[kind]]
            lo, hi = bootstrap(xs, of=trimmed)
            label = f"{kind if kind != 'none2' else 'nothing'} / nothing: {what}, trimmed mean [95 %]"
            limit, ok = "", None
            if kind == "none2":
                zero[j] = lo, hi
            elif kind == "reqprobe" and margin is None:
                limit, ok = "includes 1", lo <= 1 <= hi
            elif kind == "reqprobe" and j == 3:
                pass    # what it costs is told by accounting
            elif kind == "reqprobe":
                edge = min(zero[j][0], 1) - margin if j == 1 else max(zero[j][1], 1) + margin
                limit, ok = (f"> {edge:.3f}", lo > edge) if j == 1 else (f"< {edge:.3f}", hi < edge)
            row(label, f"{trimmed(xs):.4f} [{lo:.4f}, {hi:.4f}]", limit, ok)
    FIGURES["windows"] = res


def llama_bench(t, pairs):
    import llama
    servers = llama.find_servers()
    if not servers:
        print("  no llama-server: LLAMA_SERVER or scripts/llama")
        return
    name, exe = servers[-1]
    head(f"llama-server {name}, -np 2, concurrency 4")
    if "LLAMA_THREADS" not in os.environ and os.getloadavg()[0] < 0.5:
        llama.THREADS = os.cpu_count()
    row("engine threads, load before", f"{llama.THREADS}, {os.getloadavg()[0]:.2f}")
    e = llama.Llama(t, exe)
    work = lambda n, seed: batch(t, e.port, n, seed, extra={"cache_prompt": False})
    work(8, 1)
    n = 16 if QUICK else 96
    account(t, e, [e.pid], lambda: work(n, 7), f"{n} requests, {24 * n} tokens", 0.5)
    head("the same with every output: log and its upload, OTLP metrics and traces, other names on /metrics")
    account(t, e, [e.pid], lambda: work(n, 7), f"{n} requests, {24 * n} tokens", 0.5, all_outputs(t))
    hooks = []
    for f in sorted({os.path.realpath(l.split()[-1]) for l in open(f"/proc/{e.pid}/maps") if "/" in l and ("llama" in l)}):
        for tab in ("-D", ""):
            r = subprocess.run(["nm", "--defined-only"] + ([tab] if tab else []) + [f], capture_output=True, text=True)
            hooks += [(f, l.split()[-1]) for l in r.stdout.splitlines() if l.split() and l.split()[-1] in HOOKS]
    windows(t, pairs, lambda x: Load(t, x.port, 4, {"cache_prompt": False}, max_tokens=24, words="8,24"), e, [e.pid], sorted(set(hooks)), None,
            window=2 * WINDOW_S)     # two slots: a few requests in each


# ---------------------------------------------------------------- vLLM

def decode(t):
    head("decoding the messages of vLLM")
    root = os.path.dirname(os.path.dirname(here))
    exe = os.path.join(BIN, "bench_decode")
    subprocess.run([os.environ.get("CC", "gcc"), "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-I", os.path.join(root, "user"), "-I", os.path.join(root, "include"),
                    os.path.join(root, "tests/bench/vllm.c"), *glob.glob(os.path.join(root, "user/protocol/*.c")), "-lm", "-o", exe], check=True)
    out = subprocess.run([exe], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        m = dict(zip(*[iter(line.split())] * 2))
        rate = int(m["outputs_per_second"]) / 1e6
        row(f"{m['outputs']} outputs in {m['bytes']} bytes" + (", scrubbed too" if m["scrub"] == "1" else ""),
            f"{rate:.2f} M outputs/s", ">= 2" if m["scrub"] == "0" else "", rate >= 2 if m["scrub"] == "0" else None)


def log(t):
    s = 3 if QUICK else 10
    head(f"the request log: 20,000 records a second for {s} s")
    root = os.path.dirname(os.path.dirname(here))
    subprocess.run(["make", "-s", "-C", root, "build/bench_outputs"], check=True, stdout=subprocess.DEVNULL)
    for how, tool in (("none", ["cat"]), ("gzip", ["gzip", "-dc"]), ("zstd", ["zstd", "-dcq"])):
        d = t.path("log-" + how)
        out = subprocess.run([os.path.join(root, "build", "bench_outputs"), "20000", str(s), "replay", "-", "--log", d, "--log-compress", how],
                             capture_output=True, text=True)
        m = dict(zip(*[iter(out.stdout.splitlines()[0].split())] * 2))
        files = sorted(glob.glob(d + "/reqprobe-*"))
        lines = sum(subprocess.run([*tool, f], capture_output=True, check=True).stdout.count(b"\n") for f in files)
        size = sum(map(os.path.getsize, files))
        sent = int(m.get("sent", 0))
        row(f"{how}: sent, in the files", f"{sent}, {lines}", "none lost", sent == lines == 20000 * s)
        row(f"{how}: CPU, of it the draining thread",
            f"{float(m['cpu']) / float(m['seconds']) * 100:.0f} %, {float(m['main_cpu']) / float(m['seconds']) * 100:.0f} % of a core")
        row(f"{how}: on disk, peak memory", f"{size / sent:.0f} bytes a record, {int(m['rss_kb']) / 1024:.0f} MiB")
        shutil.rmtree(d)


def otlp(t):
    head("OpenTelemetry: what one request costs, in one thread")
    root = os.path.dirname(os.path.dirname(here))
    subprocess.run(["make", "-s", "-C", root, "build/bench_otlp"], check=True, stdout=subprocess.DEVNULL)
    for line in subprocess.run([os.path.join(root, "build", "bench_otlp")], capture_output=True, text=True, check=True).stdout.splitlines():
        row(*line.rsplit(": ", 1))


def outputs(t):
    s = 3 if QUICK else 10
    head(f"every output at once: 20,000 requests a second for {s} s")
    root = os.path.dirname(os.path.dirname(here))
    subprocess.run(["make", "-s", "-C", root, "build/bench_outputs"], check=True, stdout=subprocess.DEVNULL)
    r = subprocess.run([os.path.join(root, "build", "bench_outputs"), "20000", str(s), "--pid", "1", "--memory", "256M", "--jsonl", t.path("all.jsonl"),
                        *all_outputs(t), "--s3-keep", "--otlp-queue", "64M", "--otlp-flush", "30s"], capture_output=True, text=True)
    m = dict(zip(*[iter((r.stdout.splitlines() or [""])[0].split())] * 2))
    own = Metrics(r.stdout)
    if r.returncode:
        print(f"  {r.stderr.strip()[-300:]}")
    sent = int(m.get("sent", 0))
    with open(t.path("all.jsonl")) as f:
        lines = sum(1 for _ in f)
    files = glob.glob(t.path("log", "**", "reqprobe-*"), recursive=True)
    logged = sum(subprocess.run(["zstd", "-dcq", f], capture_output=True, check=True).stdout.count(b"\n") for f in files)
    row("sent, as JSONL, in the log", f"{sent}, {lines}, {logged}", "none lost", sent == lines == logged == 20000 * s)
    for (name, labels), v in sorted(own.items()):
        if re.search(r"lost|drop|failed|full|limit|overflow", name) and v:
            row(f"{name}{dict(labels) or ''}", f"{v:.0f}")
    row("files put into the store", f"{own.sum('reqprobe_s3_uploads_total') or 0:.0f}")
    row("CPU, of it the draining thread",
        f"{float(m['cpu']) / float(m['seconds']) * 100:.0f} %, {float(m['main_cpu']) / float(m['seconds']) * 100:.0f} % of a core")
    row("peak memory", f"{int(m['rss_kb']) / 1024:.0f} MiB")


def vllm_parts(e):
    """(front end, EngineCore and workers)"""
    tree = e.tree()
    back = [p for p, comm in tree if comm.startswith("VLLM::")]
    return [e.pid, *(p for p, _ in tree if p not in back)], back


def vllm_bench(t, pairs):
    """The hardest case there is: a model so small that the steps are all overhead."""
    import vllm
    installs = [i for i in vllm.find_installs() if i.kind == "vllm" and i.has_metrics]
    if not installs or not vllm.find_model():
        print("  no vLLM: VLLM_VENV or scripts/vllm")
        return
    head(f"vLLM {installs[-1].version}, tiny model, concurrency 32")
    engines = [vllm.Engine(installs[-1], c) for c in ("default", "flag")]
    try:
        for e in engines:
            e.start()
        e = engines[0]
        # of one length they would go on in step
        work = lambda e, n, seed: batch(t, e.port, n, seed, c=32, max_tokens="24,72", words="8,40", extra={"model": vllm.NAME})
        for x in engines:
            work(x, 64, 1)
        pids = [e.pid, *(p for p, _ in e.tree())]
        n = 96 if QUICK else 640
        account(t, e, pids, lambda: work(e, n, 7), f"{n} requests of 24 to 72 tokens", 2)
        head("the same with every output: log and its upload, OTLP metrics and traces, other names on /metrics")
        account(t, e, pids, lambda: work(e, n, 7), f"{n} requests of 24 to 72 tokens", 2, all_outputs(t))
        lib = {os.path.realpath(l.split()[-1]) for l in open(f"/proc/{e.pid}/maps") if "libzmq" in l}
        windows(t, pairs, lambda x: Load(t, x.port, 32, {"model": vllm.NAME}, max_tokens="24,72", words="8,40"), e, pids,
                [(f, "zmq_msg_send") for f in sorted(lib)], 0.01, {"its own flag": engines[1]}, parts=vllm_parts)
    finally:
        for e in engines:
            e.close()


def main():
    args = sys.argv[1:]
    opt = lambda n, d: args[args.index(n) + 1] if n in args else d
    pairs = int(opt("--pairs", 6 if QUICK else 32))
    path = opt("--json", None)
    parts = [a for a in args if a in PARTS] or PARTS
    end_on_sigterm()
    build_helpers()
    why = can_bpf()
    if why:
        print(f"SKIP bench: {why}")
        return 0
    with open("/proc/cpuinfo") as f:
        cpu = re.search(r"model name\s*: (.*)", f.read())
    print(f"{subprocess.run([REQPROBE, '--version'], capture_output=True, text=True).stdout.splitlines()[0]}, "
          f"{os.uname().release}, {os.cpu_count()} x {cpu[1] if cpu else os.uname().machine}, load {os.getloadavg()[0]:.2f}")
    if {"llama", "vllm"} & set(parts) and "trap" not in parts:
        parts.insert(0, "trap")
    for part in parts:
        t = T("bench-" + part)
        try:
            if part in ("llama", "vllm"):
                globals()[part + "_bench"](t, pairs)
            else:
                globals()[part](t)
            for f in t.failures:
                print(f"  note: {f}")
        except (Skip, AssertionError, subprocess.SubprocessError) as e:
            print(f"  {part}: {type(e).__name__}: {e}")
            FAILED.append(part)
        finally:
            t.cleanup()
    print(f"\n{len(FAILED)} limits exceeded" + (": " + "; ".join(FAILED) if FAILED else ""))
    if path:
        with open(path, "w") as f:
            json.dump(FIGURES, f, indent=1)
    return 1 if FAILED and "--check" in args else 0


if __name__ == "__main__":
    sys.exit(main())
