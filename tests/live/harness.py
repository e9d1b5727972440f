# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the live tests share: a runner, reqprobe as a child process, scripted
socket servers whose own clock is the truth, and readers for what reqprobe
writes. Standard library only (python3-jsonschema is used when it is there)."""

import contextlib, ctypes, glob, http.client, json, os, re, shutil, signal, socket
import struct, subprocess, sys, tempfile, threading, time, traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.path.join(ROOT, "build", "tests")
REQPROBE = os.environ.get("REQPROBE", os.path.join(ROOT, "build", "reqprobe"))
ATTACH_S = float(os.environ.get("REQPROBE_ATTACH_S", "20"))


class Skip(Exception):
    pass


class Deadline(BaseException):
    pass


# ---------------------------------------------------------------- runner

TESTS = []


def test(deadline=60, name=None, probe=True):
    """A live test: def f(t). `probe`: needs reqprobe, root and BPF."""
    def mark(f):
        TESTS.append((name or f.__name__.replace("_", "-"), f, deadline, probe))
        return f
    return mark


SCHEMA_ERRORS, INVARIANT_ERRORS, VALIDATED = [], [], [0, 0]


class T:
    """One running test: its children, its folder, its findings."""

    def __init__(self, name):
        self.name, self.failures, self.notes, self.children = name, [], [], []
        self.dir = tempfile.mkdtemp(prefix="reqprobe-live-")
        os.chmod(self.dir, 0o755)
        self.probes, self.n_probes = [], 0

    def note(self, text):
        self.notes.append(str(text))

    def check(self, ok, text):
        if not ok:
            self.failures.append(text() if callable(text) else text)
        return bool(ok)

    def equal(self, got, want, what):
        return self.check(got == want, f"{what}: {short(got)}, expected {short(want)}")

    def near(self, got, want, what, tol=5.0, truth=None):
        """got is right when it is within tol of the nominal figure, or within
        1 ms of what the server's own clock says (its sleep may have been late)."""
        if got is None:
            return self.check(False, f"{what}: null, expected {want}")
        ok = abs(got - want) <= tol or (truth is not None and abs(got - truth) <= 1.0)
        return self.check(ok, f"{what}: {got:.3f}, expected {want} (truth {truth})")

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def spawn(self, argv, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        p = subprocess.Popen(argv, **kw)
        self.children.append(p)
        return p

    def server(self, handler, **kw):
        return Server(self, handler, **kw)

    def probe(self, *pids, **kw):
        return Probe(self, pids, **kw)

    def paced(self, *args, listen="127.0.0.1:0", unix=None, exe="paced", truth=True, spawn=None):
        return Paced(self, args, listen, unix, exe, truth, spawn)

    def client(self, port_or_unix, *args, **kw):
        return run_client(self, port_or_unix, *args, **kw)

    def cleanup(self):
        for c in reversed(self.children):
            with contextlib.suppress(Exception):
                if c.poll() is None:
                    for s in (signal.SIGCONT, signal.SIGKILL):
                        os.kill(c.pid, s)
                c.wait(timeout=5)
        if os.environ.get("REQPROBE_KEEP"):
            self.note(f"kept {self.dir}")
        else:
            shutil.rmtree(self.dir, ignore_errors=True)


def wait_for(what, timeout, fn):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        x = fn()
        if x:
            return x
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {timeout} s")


def fork_as(pid):
    """os.fork(), to a pid of our choice. No threads may run here."""
    tid = ctypes.c_int(pid)
    args = (ctypes.c_uint64 * 11)(0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(tid), 1, 0)
    r = ctypes.CDLL(None, use_errno=True).syscall(435, args, ctypes.sizeof(args))     # clone3
    if r < 0:
        raise OSError(ctypes.get_errno(), f"clone3 to pid {pid}")
    return r


def short(x, n=300):
    s = repr(x)
    return s if len(s) <= n else s[:n] + "..."


def can_bpf():
    """None, or why the live tests cannot run here."""
    if os.geteuid() != 0:
        return "not root"
    if not os.access(REQPROBE, os.X_OK):
        return f"{REQPROBE} is not there (make)"
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "no /sys/kernel/btf/vmlinux"
    r = subprocess.run([REQPROBE, "--version"], capture_output=True, text=True)
    if r.returncode:
        return f"{REQPROBE} --version exits with {r.returncode}"
    return None


def build_helpers():
    os.makedirs(BIN, exist_ok=True)
    cc = os.environ.get("CC", "gcc")
    for src in sorted(glob.glob(os.path.join(HERE, "*.c"))):
        out = os.path.join(BIN, os.path.basename(src)[:-2])
        deps = [src] + ([os.path.join(HERE, "paced.c")] if src.endswith("fake_llama.c") else [])
        if os.path.exists(out) and all(os.path.getmtime(out) >= os.path.getmtime(d) for d in deps):
            continue
        tmp = f"{out}.{os.getpid()}"
        r = subprocess.run([cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread",
                            "-I" + os.path.join(ROOT, "include"), src, "-o", tmp], capture_output=True, text=True)
        if r.returncode:
            print(f"note: {os.path.basename(src)} does not build:\n{r.stderr}", file=sys.stderr)
            continue
        os.replace(tmp, out)


def end_on_sigterm():
    """SIGTERM unwinds as Ctrl-C does, so that the children are ended."""
    def on_term(*_):
        raise SystemExit(143)
    signal.signal(signal.SIGTERM, on_term)


# How many failures of a run are tried once more; REQPROBE_SECOND_TRIES=0: none.
SECOND_TRIES = int(os.environ.get("REQPROBE_SECOND_TRIES", "3"))


def attempt(name, fn, deadline, why_not):
    """One run of a test: (T, verdict). t.failures, t.notes and t.detail say more."""
    t, verdict = T(name), "PASS"
    t.detail, t.began = "", time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, deadline)
    try:
        if why_not:
            raise Skip(why_not)
        fn(t)
        if t.failures:
            verdict = "FAIL"
    except Skip as e:
        verdict, t.detail = "SKIP", str(e)
    except Deadline:
        verdict = "FAIL"
        t.failures.append(f"not done after {deadline} s, in " +
                          "".join(traceback.format_tb(sys.exc_info()[2])[-1:]).strip().replace("\n", " "))
    except Exception as e:
        verdict = "FAIL"
        t.failures.append(f"{type(e).__name__}: {e}")
        if not isinstance(e, AssertionError) or os.environ.get("REQPROBE_TRACE"):
            t.failures.append(traceback.format_exc().strip().splitlines()[-3].strip())
    except BaseException:   # ended from outside: leave nothing behind
        t.cleanup()
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if verdict == "FAIL":
        for p in t.probes:
            tail = p.stderr_lines()
            if tail:
                t.failures.append("reqprobe said: " + " | ".join(tail[-4:]))
    t.cleanup()
    return t, verdict


def say(t, verdict):
    figures = ("  " + "; ".join(t.notes)) if t.notes else ""
    print(f"{verdict} {t.name:<34} {time.monotonic() - t.began:6.1f} s{figures}{'  ' + t.detail if t.detail else ''}", flush=True)
    for f in t.failures[:20]:
        print(f"     {f}", flush=True)
    if len(t.failures) > 20:
        print(f"     ... and {len(t.failures) - 20} more", flush=True)


def run(argv):
    """The command line of tests/live/run and tests/engines/run."""
    names = [a for a in argv if not a.startswith("-")]
    if "--list" in argv:
        for n, *_ in TESTS:
            print(n)
        return 0
    for n in names:
        if not any(n == x[0] or (n.endswith("*") and x[0].startswith(n[:-1])) for x in TESTS):
            print(f"no test called {n} (--list shows them)", file=sys.stderr)
            return 2
    build_helpers()
    why_not = can_bpf()
    passed = failed = skipped = 0

    def on_alarm(*_):
        raise Deadline()
    signal.signal(signal.SIGALRM, on_alarm)
    end_on_sigterm()
    again = 0
    for name, fn, deadline, probe in TESTS:
        if names and not any(name == n or (n.endswith("*") and name.startswith(n[:-1])) for n in names):
            continue
        t, verdict = attempt(name, fn, deadline, why_not if probe else None)
        if verdict == "FAIL" and again < SECOND_TRIES:
            # Others' processes get the CPU when they like: what fails for that reason
            # does not fail twice in a row. Both tries are told.
            again += 1
            say(t, "AGAIN")
            t, verdict = attempt(name, fn, deadline, why_not if probe else None)
        say(t, verdict)
        passed, failed, skipped = passed + (verdict == "PASS"), failed + (verdict == "FAIL"), skipped + (verdict == "SKIP")
    if again:
        print(f"{again} of them tried twice", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0


# ---------------------------------------------------------------- reqprobe

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Metrics(dict):
    """{(name, (("label","value"),...)): float}"""

    def __init__(self, text):
        self.text = text
        for line in text.splitlines():
            m = re.match(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)(?: \d+)?$", line)
            if m and not line.startswith("#"):
                labels = tuple(sorted(re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', m[2] or "")))
                self[(m[1], labels)] = float(m[3])

    def sum(self, name, **labels):
        """Sum over all label sets that contain these; None when there is none."""
        v = [x for (n, l), x in self.items() if n == name and set(labels.items()) <= set(l)]
        return sum(v) if v else None

    def by(self, name, label):
        out = {}
        for (n, l), x in self.items():
            if n == name:
                k = dict(l).get(label)
                out[k] = out.get(k, 0) + x
        return out


class Probe:
    def __init__(self, t, pids, args=(), jsonl=True, metrics=True, itl=True, record=False, wait=True, prefix=(),
                 exe=None, name="probe"):
        self.t, self.pids = t, [getattr(p, "pid", p) for p in pids]
        n, t.n_probes = t.n_probes, t.n_probes + 1
        self.jsonl = t.path(f"{name}{n}.jsonl") if jsonl is True else jsonl
        self.record = t.path(f"{name}{n}.rec") if record is True else record
        self.err = t.path(f"{name}{n}.err")
        self.out = t.path(f"{name}{n}.out")
        self.port = free_port() if metrics else None
        argv = list(prefix) + [exe or REQPROBE]
        for p in self.pids:
            argv += ["--pid", str(p)]
        if self.jsonl:
            argv += ["--jsonl", self.jsonl]
        argv += ["--metrics", f"127.0.0.1:{self.port}" if metrics else "off"]
        if itl:
            argv.append("--itl")
        if self.record:
            argv += ["--record", self.record]
        argv += [str(a) for a in args]
        self.argv = argv
        self.started = time.monotonic()
        with open(self.err, "wb") as e, open(self.out, "wb") as o:
            self.proc = t.spawn(argv, stdout=o, stderr=e)
        t.probes.append(self)
        self.records, self.summary, self.rc = [], None, None
        if wait:
            self.wait_attached()

    @property
    def pid(self):
        return self.proc.pid

    def stderr(self):
        with open(self.err, errors="replace") as f:
            return f.read()

    def stderr_lines(self):
        return [l for l in self.stderr().splitlines() if l]

    def stdout(self):
        with open(self.out, errors="replace") as f:
            return f.read()

    def wait_attached(self):
        end = time.monotonic() + ATTACH_S
        want = [f"attached to pid {p} " for p in self.pids]
        while time.monotonic() < end:
            s = self.stderr()
            if all(w in s for w in want):
                return
            if self.proc.poll() is not None:
                raise AssertionError(f"reqprobe exited with {self.proc.returncode} before it attached: {s.strip()[-400:]}")
            time.sleep(0.01)
        raise AssertionError(f"no line 'attached to pid' within {ATTACH_S:.0f} s; stderr: {self.stderr().strip()[-400:]}")

    def attach_ms(self):
        m = re.search(r"attached to pid \d+ .* in ([\d.]+) ms", self.stderr())
        return float(m[1]) if m else None

    def metrics(self):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        c.request("GET", "/metrics")
        r = c.getresponse()
        body = r.read().decode()
        c.close()
        if r.status != 200:
            raise AssertionError(f"/metrics answers {r.status}")
        return Metrics(body)

    def wait_records(self, n, timeout=15):
        """Until n records are written (or the time is up; the caller compares)."""
        end = time.monotonic() + timeout
        while time.monotonic() < end and self.proc.poll() is None:
            try:
                with open(self.jsonl, "rb") as f:
                    if f.read().count(b"\n") >= n:
                        return True
            except FileNotFoundError:
                pass
            time.sleep(0.02)
        return False

    def wait_metric(self, name, want, timeout=15, **labels):
        end = time.monotonic() + timeout
        got = None
        while time.monotonic() < end:
            got = self.metrics().sum(name, **labels) or 0
            if got >= want if want else got == 0:
                return got
            time.sleep(0.05)
        return got

    def finish(self, n=None, timeout=15, settle=0.15, whole=True):
        """Wait for n records, then SIGINT, then read everything."""
        if n is not None:
            self.wait_records(n, timeout)
        time.sleep(settle)
        return self.stop(whole=whole)

    def stop(self, sig=signal.SIGINT, expect_rc=0, timeout=20, whole=True):
        """whole: the file holds all of this run's records."""
        if self.proc.poll() is None:
            self.proc.send_signal(sig)
        try:
            self.rc = self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            raise AssertionError(f"reqprobe did not end within {timeout} s of {signal.Signals(sig).name}")
        if expect_rc is not None:
            self.t.equal(self.rc, expect_rc, "exit status")
        if self.jsonl and os.path.exists(self.jsonl) and os.path.isfile(self.jsonl):
            self.records, self.summary = read_jsonl(self.jsonl)
            for r in self.records:
                validate(self.t.name, r)
            if self.summary and whole:
                validate(self.t.name, self.summary)
                INVARIANT_ERRORS.extend(f"{self.t.name}: {e}" for e in summary_invariants(self.summary, self.records))
        return self.records

    def by_xid(self):
        out = {}
        for r in self.records:
            out.setdefault(r["x_request_id"], []).append(r)
        return out


def read_jsonl(path):
    records, summary = [], None
    with open(path) as f:
        for i, line in enumerate(f):
            if not line.endswith("\n"):
                raise AssertionError(f"{path}: line {i + 1} has no newline")
            o = json.loads(line)
            if o["schema"].startswith("reqprobe.summary/"):
                summary = o
            else:
                records.append(o)
    return records, summary


_schemas = None


def schemas():
    global _schemas
    if _schemas is None:
        _schemas = {}
        try:
            import jsonschema
        except ImportError:
            return _schemas
        for f in sorted(glob.glob(os.path.join(ROOT, "docs", "schema", "*.json"))):
            with open(f) as fh:
                s = json.load(fh)
            name = s.get("properties", {}).get("schema", {})
            name = name.get("const") or (name.get("enum") or [None])[0]
            if name:
                cls = jsonschema.validators.validator_for(s)
                cls.check_schema(s)
                _schemas[name] = cls(s)
    return _schemas


def validate(who, o):
    VALIDATED[1] += 1
    if o["schema"].startswith("reqprobe.request/"):
        INVARIANT_ERRORS.extend(f"{who}: {o.get('x_request_id')}: {e}" for e in record_invariants(o))
    v = schemas().get(o["schema"])
    if v is not None:
        VALIDATED[0] += 1
        for e in v.iter_errors(o):
            SCHEMA_ERRORS.append(f"{who}: {'/'.join(map(str, e.absolute_path))}: {e.message[:200]}")


GROUPS = ("tokens", "metrics", "server_timing", "phases", "frontend", "network", "client_estimate", "scheduler")


def record_invariants(r):
    """What CONTRACT says of every record, whatever it holds."""
    bad = []
    st, ph, missing = r["server_timing"] or {}, r["phases"] or {}, r["missing"]
    order = [st.get(k) for k in ("first_byte_ms", "first_event_ms", "ttft_ms", "last_token_ms", "duration_ms")]
    known = [x for x in order if x is not None]
    if known != sorted(known):
        bad.append(f"first_byte <= first_event <= ttft <= last_token <= duration does not hold: {order}")
    for g in ("metrics", "server_timing", "phases", "frontend", "client_estimate", "network", "scheduler"):
        for k, v in (r[g] or {}).items():
            if isinstance(v, (int, float)) and not isinstance(v, bool) and v < 0:
                bad.append(f"{g}.{k} is negative: {v}")
    for name in ("itl_ms", "icl_ms"):
        if any(x < 0 for x in r.get(name) or []):
            bad.append(f"{name} has a negative gap")
    five = [ph.get(k) for k in ("frontend_ms", "queue_ms", "prefill_ms", "decode_ms", "flush_ms")]
    if all(x is not None for x in five) and st.get("duration_ms") is not None:
        if abs(sum(round(x * 1e6) for x in five) - round(st["duration_ms"] * 1e6)) > 0:
            bad.append(f"phases add up to {sum(five)!r}, duration is {st['duration_ms']!r}")
    for g in GROUPS:
        if r[g] is None:
            if g not in missing:
                bad.append(f"{g} is null and not named in missing")
            continue
        for k, v in r[g].items():
            if k == "source":
                continue
            if v is None and f"{g}.{k}" not in missing and g not in missing:
                bad.append(f"{g}.{k} is null and not named in missing")
            if v is not None and (f"{g}.{k}" in missing):
                bad.append(f"{g}.{k} is known and named in missing")
    if r["end"] not in ("complete", "client_disconnect", "server_close", "error", "unknown"):
        bad.append(f"end is {r['end']}")
    if ("estimated" in r) != ("estimated" in r["flags"]):
        bad.append(f"flag estimated and the member go together: {r['flags']}, {r.get('estimated')}")
    fe = r["frontend"] or {}
    if fe.get("before_ms") != ph.get("frontend_ms"):
        bad.append(f"frontend.before_ms is {fe.get('before_ms')}, phases.frontend_ms {ph.get('frontend_ms')}")
    each = r.get("choice_tokens")
    if each is not None and r["choices"] < 2:
        bad.append(f"choice_tokens {each} of {r['choices']} choices")
    n, gaps = st.get("chunks"), r.get("icl_ms")
    if gaps is not None and n is not None and r["choices"] == 1 and not r["flags"] and len(gaps) != max(0, n - 1):
        bad.append(f"{n} chunks and {len(gaps)} gaps in icl_ms")
    return bad


def summary_invariants(s, records):
    bad, ends = [], {}
    for r in records:
        ends[r["end"]] = ends.get(r["end"], 0) + 1
    got = {k: v for k, v in s["ends"].items() if v}
    if got != ends:
        bad.append(f"summary ends {got}, records have {ends}")
    return bad


# ---------------------------------------------------------------- servers and clients in C

class Paced:
    def __init__(self, t, args, listen, unix, exe, truth=True, spawn=None):
        self.t, self.unix = t, unix
        self.truth_path = t.path(f"truth{len(t.children)}.jsonl")
        path = exe if "/" in exe else os.path.join(BIN, exe)
        argv = [path] + (["--unix", unix] if unix else ["--listen", listen]) + \
            (["--truth", self.truth_path] if truth else []) + [str(a) for a in args]
        self.proc = t.spawn(argv, stdout=subprocess.PIPE, text=True, **(spawn or {}))
        line = self.proc.stdout.readline()
        if not line.startswith("listening "):
            raise AssertionError(f"paced did not start: {line!r}")
        self.port = int(line.split()[1])
        self.stats = None

    @property
    def pid(self):
        return self.proc.pid

    def stop(self):
        """Its figures; the truth is complete after this."""
        if self.proc.poll() is None:
            self.proc.terminate()
        out, _ = self.proc.communicate(timeout=20)
        lines = [json.loads(l) for l in out.splitlines() if l.startswith("{")]
        self.stats = {}
        for l in lines:
            self.stats.update(l)
        return self.stats

    def truth(self):
        if not os.path.exists(self.truth_path):
            return {}
        with open(self.truth_path) as f:
            return {o["x_request_id"]: o for o in map(json.loads, f)}


def client_argv(where, *args, n=1, c=1, stream=True, max_tokens=16, extra=None, id="req", **opts):
    argv = [os.path.join(BIN, "client")]
    argv += ["--unix", where] if isinstance(where, str) and not re.search(r":\d+$", where) else \
        ["--connect", where if isinstance(where, str) else f"127.0.0.1:{where}"]
    argv += ["-n", str(n), "-c", str(c), "--max-tokens", str(max_tokens), "--id", id]
    if stream:
        argv.append("--stream")
    if extra:
        argv += ["--extra", extra if isinstance(extra, str) else json.dumps(extra)[1:-1]]
    for k, v in opts.items():
        k = "--" + k.replace("_", "-")
        if v is True:
            argv.append(k)
        elif v is not None and v is not False:
            argv += [k, str(v)]
    return argv + [str(a) for a in args]


def run_client(t, where, *args, check=True, timeout=100, spawn=None, **kw):
    p = t.spawn(client_argv(where, *args, timeout=timeout, **kw), stdout=subprocess.PIPE, text=True, **(spawn or {}))
    out, _ = p.communicate(timeout=timeout + 5)
    lines = [json.loads(l) for l in out.splitlines()]
    if check and p.returncode:
        ends = {}
        for l in lines:
            ends[l.get("end")] = ends.get(l.get("end"), 0) + 1
        raise AssertionError(f"client: exit status {p.returncode}, ends {ends}")
    return {l["x_request_id"]: l for l in lines if "x_request_id" in l}


# ---------------------------------------------------------------- scripted servers

class Req:
    def __init__(self, line, headers, body):
        self.method, self.target = line.split(" ")[0], line.split(" ")[1]
        self.headers, self.body = headers, body

    @property
    def xid(self):
        return self.headers.get("x-request-id", "")

    @property
    def framing(self):
        return self.headers.get("x-framing", "chunked")


class Conn:
    """The server's side of one connection: every send is a named step with its
    instant in the log (clock read immediately before the call)."""

    def __init__(self, sock, peer, log):
        self.sock, self.peer, self.log_fd, self.inbuf = sock, peer, log, b""
        self.t0 = 0
        self.req = None

    def log(self, name, ns):
        os.write(self.log_fd, (json.dumps({"xid": self.req.xid if self.req else "", "name": name, "ns": ns, "pid": os.getpid(),
                                           "port": self.peer}) + "\n").encode())

    def read_request(self):
        """The next request, or None at the end of the stream."""
        while b"\r\n\r\n" not in self.inbuf:
            d = self.sock.recv(65536)
            self.t0 = time.monotonic_ns()
            if not d:
                return None
            self.inbuf += d
        head, _, rest = self.inbuf.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for l in lines[1:]:
            k, _, v = l.partition(":")
            headers[k.strip().lower()] = v.strip()
        want = int(headers.get("content-length", 0))
        if headers.get("expect", "").lower() == "100-continue":
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(rest) < want:
            d = self.sock.recv(1 << 20)
            self.t0 = time.monotonic_ns()
            if not d:
                return None
            rest += d
        self.inbuf = rest[want:]
        self.req = Req(lines[0], headers, rest[:want])
        self.log("request", self.t0)
        return self.req

    def at(self, ms):
        if ms is None:
            return
        while True:
            left = self.t0 + ms * 1e6 - time.monotonic_ns()
            if left <= 0:
                return
            time.sleep(left / 1e9)

    def send(self, data, ms=None, name="-"):
        self.at(ms)
        off = 0
        while off < len(data):
            ns = time.monotonic_ns()
            n = self.sock.send(data[off:])
            off += n
        self.log(name, ns)

    def vector(self, how, parts, name="-"):
        """One writev or sendmsg of all parts."""
        ns = time.monotonic_ns()
        n = os.writev(self.sock.fileno(), parts) if how == "writev" else self.sock.sendmsg(parts)
        self.log(name, ns)
        whole = b"".join(parts)
        while n < len(whole):
            n += self.sock.send(whole[n:])

    # -- streams in the framing the request asked for (X-Framing) --
    def head(self, extra=""):
        f = self.req.framing
        return ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + extra +
                ("Transfer-Encoding: chunked\r\n" if f == "chunked" else "Connection: close\r\n") + "\r\n").encode()

    def wrap(self, data):
        return b"%x\r\n%s\r\n" % (len(data), data) if self.req.framing == "chunked" and data else data

    def begin(self, ms=None, extra=""):
        self.send(self.head(extra), ms, "head")

    def event(self, data, ms=None, name="-"):
        self.send(self.wrap(data), ms, name)

    def tail(self, done=True):
        return (self.wrap(DONE) if done else b"") + (b"0\r\n\r\n" if self.req.framing == "chunked" else b"")

    def end(self, ms=None, done=True):
        self.at(ms)
        if self.tail(done):
            self.send(self.tail(done), None, "end")
        if self.req.framing != "chunked":
            self.close()

    def json(self, obj, status="200 OK", ms=None, name="body", extra=""):
        b = json.dumps(obj).encode()
        self.send(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{extra}Content-Length: {len(b)}\r\n\r\n".encode() + b,
                  ms, name)

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        self.sock.close()

    def rst(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def TOK(x, **more):
    return b"data: " + json.dumps({"id": "c1", "object": "chat.completion.chunk", "choices": [
        {"index": 0, "delta": {"content": x}, "finish_reason": None}], **more}, separators=(",", ":")).encode() + b"\n\n"


def EVENT(obj):
    return b"data: " + json.dumps(obj, separators=(",", ":")).encode() + b"\n\n"


def DELTA(index=0, finish=None, **delta):
    return EVENT({"id": "c1", "object": "chat.completion.chunk",
                  "choices": [{"index": index, "delta": delta, "finish_reason": finish}]})


ROLE = DELTA(role="assistant", content="")
DONE = b"data: [DONE]\n\n"


def USAGE(n, prompt=5):
    return EVENT({"id": "c1", "object": "chat.completion.chunk", "choices": [],
                  "usage": {"prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt + n}})


def aiperf_exe():
    """The real AIPerf: AIPERF, in the PATH, or as scripts/pytools has set it up."""
    exe = os.environ.get("AIPERF") or shutil.which("aiperf")
    if not exe:
        r = subprocess.run([os.path.join(ROOT, "scripts", "pytools"), "--offline", "aiperf"], capture_output=True, text=True)
        exe = r.returncode == 0 and os.path.join(r.stdout.strip(), "bin", "aiperf")
    if not exe or not os.access(exe, os.X_OK):
        raise Skip("no aiperf: scripts/pytools aiperf, or AIPERF=.../bin/aiperf")
    return exe


def aiperf_python():
    """The Python that AIPerf is installed for."""
    return os.environ.get("AIPERF_PYTHON") or os.path.join(os.path.dirname(os.path.realpath(aiperf_exe())), "python")


def hurry(*pids):
    """Real-time priority for the server's threads; how to run AIPerf above them. The
    question is what either side measures, not what else the machine does. []: may not."""
    if subprocess.run(["chrt", "-r", "2", "true"], capture_output=True).returncode:
        return []
    for pid in pids:
        subprocess.run(["chrt", "-a", "-r", "-p", "1", str(pid)], capture_output=True)
    return ["chrt", "-r", "2"]


class Child:
    """A forked child that looks like a Popen to T.cleanup."""

    def __init__(self, pid):
        self.pid, self.returncode = pid, None

    def poll(self):
        if self.returncode is None:
            try:
                p, st = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                p, st = self.pid, 0
            if p:
                self.returncode = os.waitstatus_to_exitcode(st)
        return self.returncode

    def wait(self, timeout=None):
        end = time.monotonic() + (timeout or 3600)
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("child", timeout)
            time.sleep(0.01)
        return self.returncode


class Server:
    """handler(conn, request) runs for each request, in a thread per connection
    of a child process (or of each of `workers` grandchildren that share the
    listening socket; a dead one is replaced)."""

    def __init__(self, t, handler, family="v4", unix=None, workers=0, wrap=None, raw=None, nodelay=True, enter=None,
                 options=()):
        self.enter, self.options = enter, options
        self.t, self.handler, self.raw, self.wrap, self.nodelay = t, handler, raw, wrap, nodelay
        self.log_path = t.path(f"server{len(t.children)}.log")
        r, w = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                self._child(w, family, unix, workers)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(w)
        self.proc = Child(pid)
        t.children.append(self.proc)
        line = b""
        while not line.endswith(b"\n"):
            d = os.read(r, 100)
            if not d:
                raise AssertionError("scripted server did not start")
            line += d
        os.close(r)
        self.port = int(line)
        self.unix = unix

    @property
    def pid(self):
        return self.proc.pid

    def _child(self, w, family, unix, workers):
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(s, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self.enter:
            self.enter()
        # Not closed but replaced: an inherited Python object that is collected
        # later closes its own number, which must not be one of ours by then.
        null = os.open("/dev/null", os.O_RDWR)
        for fd in [int(x) for x in os.listdir("/proc/self/fd")]:
            if fd > 2 and fd not in (w, null):
                with contextlib.suppress(OSError):
                    os.fstat(fd)
                    os.dup2(null, fd, inheritable=False)
        self.log_fd = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        sys.setswitchinterval(0.0005)
        if unix:
            l = socket.socket(socket.AF_UNIX)
            l.bind("\0" + unix[1:] if unix.startswith("@") else unix)
        elif family == "v6":
            l = socket.socket(socket.AF_INET6)
            l.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            l.bind(("::", 0))
        else:
            l = socket.socket()
            l.bind(("127.0.0.1", 0))
        for o in self.options:
            l.setsockopt(*o)
        l.listen(512)
        port = 0 if unix else l.getsockname()[1]

        started = []

        def announce():
            os.write(w, b"%d\n" % port)
            os.close(w)
            started.append(True)
        if not workers:
            announce()
            self._accept(l)
        kids = set()

        def start():
            pid = os.fork()
            if pid == 0:
                if not started:
                    os.close(w)
                os.write(self.log_fd, (json.dumps({"xid": "", "name": "worker", "pid": os.getpid(), "ns": time.monotonic_ns(),
                                                   "port": 0}) + "\n").encode())
                ctypes.CDLL(None).prctl(1, 9)
                self._accept(l)
                os._exit(1)
            kids.add(pid)
        for _ in range(workers):
            start()
        announce()
        for _ in range(20):
            pid, _ = os.wait()
            kids.discard(pid)
            start()

    def _accept(self, l):
        while True:
            s, peer = l.accept()
            threading.Thread(target=self._serve, args=(s, peer), daemon=True).start()

    def _serve(self, s, peer):
        try:
            if s.family != socket.AF_UNIX and self.nodelay:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.wrap:
                s = self.wrap(s)
            c = Conn(s, peer[1] if isinstance(peer, tuple) else 0, self.log_fd)
            if self.raw:
                self.raw(c)
                return
            while True:
                r = c.read_request()
                if r is None:
                    break
                self.handler(c, r)
                if c.sock.fileno() < 0:
                    return
            c.sock.close()
        except (OSError, ValueError):
            with contextlib.suppress(OSError):
                s.close()

    def log(self, xid=None):
        if not os.path.exists(self.log_path):
            return []
        with open(self.log_path) as f:
            rows = [json.loads(l) for l in f if l.endswith("\n")]
        return [r for r in rows if xid is None or r["xid"] == xid]

    def truth(self, xid):
        return Truth(self.log(xid))


class Truth:
    """Instants of one request by the server's clock, milliseconds after the
    read that delivered its last byte."""

    def __init__(self, rows):
        self.rows = rows
        self.t0 = next((r["ns"] for r in rows if r["name"] == "request"), None)

    def ms(self, name):
        return [(r["ns"] - self.t0) / 1e6 for r in self.rows if r["name"] == name]

    def gaps(self, name="tok"):
        x = self.ms(name)
        return [b - a for a, b in zip(x, x[1:])]


def chat(xid, stream=True, framing="chunked", path="/v1/chat/completions", body=None, pad=0, close=False, method="POST",
         headers=()):
    """The bytes of one request."""
    if body is None:
        body = {"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hello" + "p" * pad}]}
    b = body if isinstance(body, bytes) else json.dumps(body).encode()
    h = [f"{method} {path} HTTP/1.1", "Host: localhost", f"X-Request-Id: {xid}", f"X-Framing: {framing}"]
    h += list(headers)
    if close:
        h.append("Connection: close")
    if method in ("POST", "PUT"):
        h += ["Content-Type: application/json", f"Content-Length: {len(b)}"]
    else:
        b = b""
    return ("\r\n".join(h) + "\r\n\r\n").encode() + b


class Client:
    """A plain client socket that reads whole responses."""

    def __init__(self, where, timeout=30, source=None):
        if isinstance(where, Server):
            where = where.unix or where.port
        if isinstance(where, str):
            self.s = socket.socket(socket.AF_UNIX)
            self.s.settimeout(timeout)
            self.s.connect("\0" + where[1:] if where.startswith("@") else where)
        elif isinstance(where, tuple):
            self.s = socket.create_connection(where, timeout)
        else:
            self.s = socket.create_connection(("127.0.0.1", where), timeout)
        if self.s.family != socket.AF_UNIX:
            self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = self.s.getsockname()[1] if self.s.family != socket.AF_UNIX else 0
        self.buf = b""
        self.closed = False

    def send(self, data):
        self.s.sendall(data)

    def _more(self):
        d = self.s.recv(1 << 18)
        if not d:
            self.closed = True
        self.buf += d
        return d

    def read_some(self, n):
        while len(self.buf) < n and not self.closed:
            self._more()
        return self.buf

    def response(self, head=False):
        """(status, headers, body) of the next final response, de-chunked."""
        while True:
            while b"\r\n\r\n" not in self.buf:
                if not self._more():
                    raise AssertionError(f"connection closed inside a response head: {self.buf[:80]!r}")
            h, _, rest = self.buf.partition(b"\r\n\r\n")
            lines = h.decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ")[1])
            self.buf = rest
            if status >= 200 or status == 101:
                break
        headers = {l.partition(":")[0].lower(): l.partition(":")[2].strip() for l in lines[1:]}
        if head or status in (204, 304):
            return status, headers, b""
        body = b""
        if headers.get("transfer-encoding") == "chunked":
            while True:
                while b"\r\n" not in self.buf:
                    if not self._more():
                        raise AssertionError("closed inside a chunk size")
                line, _, self.buf = self.buf.partition(b"\r\n")
                n = int(line.split(b";")[0], 16)
                if n == 0:
                    while True:
                        while b"\r\n" not in self.buf:
                            if not self._more():
                                raise AssertionError("closed inside trailers")
                        line, _, self.buf = self.buf.partition(b"\r\n")
                        if not line:
                            return status, headers, body
                while len(self.buf) < n + 2:
                    if not self._more():
                        raise AssertionError("closed inside a chunk")
                body += self.buf[:n]
                self.buf = self.buf[n + 2:]
        if "content-length" in headers:
            n = int(headers["content-length"])
            while len(self.buf) < n:
                if not self._more():
                    raise AssertionError("closed inside a body")
            body, self.buf = self.buf[:n], self.buf[n:]
            return status, headers, body
        while not self.closed:
            self._more()
        body, self.buf = self.buf, b""
        return status, headers, body

    def ask(self, *a, **kw):
        self.send(chat(*a, **kw))
        return self.response(head=kw.get("method") == "HEAD")

    def close(self):
        self.s.close()

    def rst(self):
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.s.close()


def ask(srv, *a, **kw):
    c = Client(srv)
    try:
        return c.ask(*a, **kw)
    finally:
        c.close()


FRAMINGS = ("chunked", "close")


def only(t, records, xid):
    """The one record of this request; a failure when there is none or more."""
    r = [x for x in records if x["x_request_id"] == xid]
    if not t.check(len(r) == 1, f"{xid}: {len(r)} records, expected 1 (of {len(records)})"):
        return None
    return r[0]


def stream_is(t, r, truth, ttft=None, gaps=None, chunks=None, end="complete", tok="tok", tol=5.0):
    """Compare a record with the nominal figures and the server's own clock."""
    if r is None:
        return
    who, st = r["x_request_id"], r["server_timing"]
    t.equal(r["end"], end, f"{who}: end")
    if chunks is not None:
        t.equal(st["chunks"], chunks, f"{who}: chunks")
    real, real_gaps = truth.ms(tok), truth.gaps(tok)
    if ttft is not None:
        t.near(st["ttft_ms"], ttft, f"{who}: ttft_ms", tol, real[0] if real else None)
    if gaps is not None:
        got = r.get("icl_ms")
        if t.check(got is not None and len(got) == len(gaps), f"{who}: icl_ms {short(got)}, expected {short(gaps)}"):
            exact = len(real_gaps) == len(gaps)
            for i, (a, b) in enumerate(zip(got, gaps)):
                if b == 0:
                    t.check(a == 0, f"{who}: icl_ms[{i}] is {a}, two events of one call are 0 apart")
                else:
                    t.near(a, b, f"{who}: icl_ms[{i}]", tol, real_gaps[i] if exact else None)


def percentile(xs, p):
    xs = sorted(xs)
    return xs[min(len(xs) - 1, int(round((len(xs) - 1) * p)))] if xs else float("nan")


def hist_count(m, name, **labels):
    return m.sum(name + "_count", **labels) or 0


def proc_cpu(pid):
    """User + system seconds of a process, threads included."""
    with open(f"/proc/{pid}/stat") as f:
        v = f.read().rsplit(")", 1)[1].split()
    return (int(v[11]) + int(v[12])) / os.sysconf("SC_CLK_TCK")


def proc_rss(pid, what="VmRSS"):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(what + r":\s+(\d+) kB", f.read())[1]) * 1024


def bpf_objects():
    """Ids of the links and programs of the machine, with the pids that hold them."""
    out = {}
    for kind in ("link", "prog"):
        r = subprocess.run(["bpftool", "-j", kind], capture_output=True, text=True)
        for o in json.loads(r.stdout or "[]"):
            out[(kind, o["id"])] = (o.get("name") or o.get("type"), sorted(p["pid"] for p in o.get("pids", [])), o)
    return out
