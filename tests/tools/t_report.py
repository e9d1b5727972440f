# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""reqprobe report: its figures computed anew from the records, by other means."""
import fcntl, glob, gzip, http.server, json, math, os, pty, shutil, signal, struct, subprocess, termios, threading, time

from harness import REQPROBE, ROOT, short, test

GENLOG = os.environ.get("REQPROBE_GENLOG", os.path.join(ROOT, "build", "genlog"))
SCHEMA = os.path.join(ROOT, "docs", "schema", "report-1.schema.json")


def genlog(path, n, seed=1):
    with open(path, "wb") as f:
        subprocess.run([GENLOG, str(n), str(seed)], stdout=f, check=True)
    return path


def records(*paths):
    out = []
    for p in paths:
        with open(p) as f:
            out += [json.loads(x) for x in f]
    return out


def report(t, *args, status=0, stdin=None, cmd="report"):
    r = subprocess.run([REQPROBE, cmd, *args], capture_output=True, text=True, stdin=stdin)
    t.equal(r.returncode, status, f"{cmd} {' '.join(args)[-120:]}: exit status ({r.stderr.strip()[-200:]})")
    return r


def valid(t, text):
    doc = json.loads(text)
    try:
        import jsonschema
    except ImportError:
        t.note("python3-jsonschema is not installed")
        return doc
    with open(SCHEMA) as f:
        v = jsonschema.Draft202012Validator(json.load(f))
    errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in v.iter_errors(doc)]
    t.check(not errors, lambda: f"schema: {errors[:3]}")
    return doc


def linear(xs, p):
    """numpy's percentile(): xs sorted."""
    at = (len(xs) - 1) * (p / 100)
    lo = int(at)
    hi = min(lo + 1, len(xs) - 1)
    return xs[lo] + (xs[hi] - xs[lo]) * (at - lo)


def same(a, b, tol=1e-12):
    return a == b or abs(a - b) <= tol * max(abs(a), abs(b))


def statistics(t, got, xs, what):
    """Of a metric of the report, against the values themselves."""
    t.equal(got["count"], len(xs), f"{what}: count")
    if not xs:
        t.check("avg" not in got, f"{what}: figures of nothing")
        return
    xs = sorted(xs)
    avg = math.fsum(xs) / len(xs)
    want = {"avg": avg, "min": xs[0], "max": xs[-1], "sum": math.fsum(xs),
            "std": math.sqrt(math.fsum((x - avg) ** 2 for x in xs) / len(xs)),
            **{f"p{p}": linear(xs, p) for p in (1, 5, 10, 25, 50, 75, 90, 95, 99)}}
    for k, v in want.items():
        # of values that are all alike, the deviation is what rounding left of 0
        t.check(same(got[k], v, 1e-9) or abs(got[k] - v) < 1e-9 * abs(avg), f"{what}: {k} is {got[k]}, expected {v}")
    t.equal(got["relative_error"], 0, f"{what}: relative_error")


# A metric of the report: the member of the record it is, and nothing else.
PLAIN = {
    "receive_time": ("phases", "receive_ms"), "server_duration": ("server_timing", "duration_ms"),
    "first_byte_time": ("server_timing", "first_byte_ms"), "queue_time": ("phases", "queue_ms"),
    "prefill_time": ("phases", "prefill_ms"), "engine_decode_time": ("phases", "decode_ms"),
    "frontend_time": ("phases", "frontend_ms"), "flush_time": ("phases", "flush_ms"),
    "preempted_time": ("scheduler", "preempted_ms"), "engine_steps": ("scheduler", "steps"),
    "chunks": ("server_timing", "chunks"), "cached_tokens": ("tokens", "cached"),
    "handshake_rtt": ("network", "rtt_ms"), "last_ack_time": ("network", "last_ack_ms"),
    "accept_wait": ("network", "accept_wait_ms"), "retransmits": ("network", "retransmits"),
}


def why(r, group, name):
    return r["missing"].get(f"{group}.{name}", r["missing"].get(group))


def answered(r):
    """In full, as AIPerf sees it: a stream without any text is an error."""
    return (r["end"] == "complete" and r["error"] is None and (r["status"] or 0) < 400 and
            not (r["stream"] and r["server_timing"]["chunks"] == 0 and r["operation"] not in ("embeddings", "rerank")))


def alike(t, a, b, what, tol=1e-9):
    """The same but for the last digits of sums."""
    if isinstance(a, dict) and isinstance(b, dict):
        if t.equal(set(a), set(b), f"{what}: members"):
            for k in a:
                alike(t, a[k], b[k], f"{what}: {k}", tol)
    elif isinstance(a, float) or isinstance(b, float):
        t.check(b is not None and a is not None and (same(a, b, tol) or abs(a - b) < 1e-9), f"{what}: {a}, expected {b}")
    else:
        t.equal(a, b, what)


def tally(keys):
    out = {}
    for k in keys:
        out[k] = out.get(k, 0) + 1
    return out


def group_is(t, g, rs, what):
    t.equal(g["requests"], len(rs), f"{what}: requests")
    t.equal({k: v for k, v in g["ends"].items() if v}, tally(r["end"] for r in rs), f"{what}: ends")
    t.equal(g["status"], tally(str(r["status"] or "none") for r in rs), f"{what}: status")
    t.equal(g["finish_reasons"], tally(r["finish_reason"] or "none" for r in rs), f"{what}: finish reasons")
    starts = sorted(r["start"] for r in rs if r["start"])
    t.equal([g["first_start"], g["last_start"]], [starts[0], starts[-1]], f"{what}: starts")
    for tag, (group, name) in PLAIN.items():
        m = g["metrics"][tag]
        statistics(t, m, [r[group][name] for r in rs if r[group][name] is not None], f"{what}: {tag}")
        null = [r for r in rs if r[group][name] is None]
        t.equal(m["missing"], len(null), f"{what}: {tag}: missing")
        t.equal(m["reasons"], tally(why(r, group, name) for r in null), f"{what}: {tag}: reasons")
    # AIPerf's, from its own formulas: of requests that were answered in full
    ok = [r for r in rs if answered(r)]
    st = [r["server_timing"] for r in ok]
    ttft = [r["phases"]["receive_ms"] + s["ttft_ms"] for r, s in zip(ok, st) if s["ttft_ms"] is not None]
    statistics(t, g["metrics"]["time_to_first_token"], ttft, f"{what}: time_to_first_token")
    tokens = [r["tokens"]["completion"] for r in ok if r["tokens"]["completion"]]
    statistics(t, g["metrics"]["output_sequence_length"], tokens, f"{what}: output_sequence_length")
    latency = [r["phases"]["receive_ms"] + (s["last_token_ms"] if r["stream"] else s["duration_ms"])
               for r, s in zip(ok, st) if (s["last_token_ms"] if r["stream"] else s["duration_ms"]) is not None]
    statistics(t, g["metrics"]["request_latency"], latency, f"{what}: request_latency")
    itl = [(s["last_token_ms"] - s["ttft_ms"]) / (r["tokens"]["completion"] - 1) for r, s in zip(ok, st)
           if s["ttft_ms"] is not None and (r["tokens"]["completion"] or 0) > 1]
    statistics(t, g["metrics"]["inter_token_latency"], itl, f"{what}: inter_token_latency")
    for m in g["metrics"]:
        if m != "inter_chunk_latency":
            x = g["metrics"][m]
            t.equal(x["count"] + x["missing"], len(rs), f"{what}: {m}: with and without")
            t.equal(sum(x["reasons"].values()), x["missing"], f"{what}: {m}: reasons")
    t.equal(g["totals"]["request_count"]["value"], len(ok), f"{what}: request_count")


@test(deadline=60, probe=False)
def report_figures(t):
    a = genlog(t.path("a.jsonl"), 3000)
    rs = records(a)
    doc = valid(t, report(t, "--json", "--by", "model,operation", a).stdout)
    t.equal(doc["exact"], True, "exact")
    group_is(t, doc["total"], rs, "total")
    keys = {(r["model"], r["operation"]) for r in rs}
    t.equal({(g["key"]["model"], g["key"]["operation"]) for g in doc["groups"]}, keys, "groups")
    for g in doc["groups"]:
        k = (g["key"]["model"], g["key"]["operation"])
        group_is(t, g, [r for r in rs if (r["model"], r["operation"]) == k], f"{k}")
    # one group is the total
    one = valid(t, report(t, "--json", "--by", "none", a).stdout)
    t.equal(set(map(str, doc["total"]["series"].values())), {"None"}, "series of several groups together")
    alike(t, {k: v for k, v in one["total"].items() if k != "series"}, {k: v for k, v in doc["total"].items() if k != "series"},
          "total without groups")
    t.equal({k: v for k, v in one["groups"][0].items() if k != "key"}, one["total"], "the only group")
    c = one["total"]["series"]["effective_concurrency"]
    t.check(c and c["min"] <= c["p50"] <= c["p90"] <= c["p99"] <= c["max"], f"effective_concurrency {c}")
    # real records with gaps between chunks
    replay = sorted(glob.glob(os.path.join(ROOT, "tests", "replay", "*.jsonl")))
    doc = valid(t, report(t, "--json", "--by", "engine,version", *replay).stdout)
    rs = records(*replay)
    group_is(t, doc["total"], rs, "recordings")
    ok = [r for r in rs if answered(r) and r.get("icl_ms") is not None]
    statistics(t, doc["total"]["metrics"]["inter_chunk_latency"], [x for r in ok for x in r["icl_ms"]], "inter_chunk_latency")


@test(deadline=60, probe=False)
def report_input(t):
    """Files, compressed or not, directories, standard input, lines that are none, time."""
    a, b = genlog(t.path("a.jsonl"), 400, 1), genlog(t.path("b.jsonl"), 300, 2)
    both = json.loads(report(t, "--json", a, b).stdout)
    os.mkdir(t.path("d"))
    with open(a, "rb") as f, gzip.open(t.path("d", "a.jsonl.gz"), "wb") as g:
        shutil.copyfileobj(f, g)
    shutil.copy(b, t.path("d", "b.jsonl"))
    shutil.copy(b, t.path("d", ".b.jsonl"))
    shutil.copy(b, t.path("d", "b.jsonl.tmp"))
    d = json.loads(report(t, "--json", t.path("d")).stdout)
    t.equal(d["total"], both["total"], "a directory")
    t.equal(d["input"]["files"], 2, "files of a directory")
    with open(a, "rb") as f:
        alone = json.loads(report(t, "--json", "-", stdin=f).stdout)
    t.equal(alone["total"]["requests"], 400, "standard input")
    # the same records twice, torn and foreign lines, a summary that names the host
    with open(a) as f:
        lines = f.read().splitlines()
    with open(t.path("m.jsonl"), "w") as f:
        f.write("\n".join(lines + [lines[7][:-40], "{}", '{"schema":"reqprobe.step/1"}', "no json", "\x01", lines[3],
                                   '{"schema":"reqprobe.summary/1","reqprobe":"0.1.0","host":"gpu-7","engine":{}}']))
    r = report(t, "--json", "--by", "host", t.path("m.jsonl"), a)
    m = valid(t, r.stdout)
    t.equal([m["input"][k] for k in ("torn_or_broken", "other_lines", "duplicates", "records")], [3, 2, 401, 400], "lines left out")
    alike(t, {**m["total"], "series": 0}, {**alone["total"], "series": 0}, "what is left")
    t.equal([g["key"] for g in m["groups"]], [{"host": "gpu-7"}], "the host of the summary")
    t.check(r.stderr.count("\n") == 1 and "3 torn" in r.stderr, f"stderr {short(r.stderr)}")
    # the host in the name of a request log; where there is none, the server's address
    os.mkdir(t.path("h"))
    shutil.copy(a, t.path("h", "reqprobe-gpu-1.rack-20261130T035900.123Z-000001.jsonl"))
    shutil.copy(b, t.path("h", "x.jsonl"))
    h = json.loads(report(t, "--json", "--by", "host", t.path("h")).stdout)
    t.equal({g["key"]["host"]: g["requests"] for g in h["groups"]}, {"gpu-1.rack": 400, "10.0.0.1": 300}, "hosts")
    # time
    rs = sorted(r["start"] for r in records(a))
    some = json.loads(report(t, "--json", "--since", rs[100], "--until", rs[200], a).stdout)
    t.equal([some["total"]["requests"], some["input"]["outside_time"]], [100, 300], "--since, --until")
    t.equal(some["total"]["first_start"], rs[100], "the first since")
    none = report(t, "--json", "--since", "2030-01-01", a, status=1)
    t.check(none.stdout == "" and "outside" in none.stderr and none.stderr.count("\n") == 1, f"no record: {short(none.stderr)}")
    # objectives
    g = valid(t, report(t, "--json", "--goodput", "time_to_first_token:100 inter_token_latency:20", a).stdout)
    good = [r for r in records(a) if answered(r) and r["server_timing"]["ttft_ms"] is not None and
            r["phases"]["receive_ms"] + r["server_timing"]["ttft_ms"] <= 100 and (r["tokens"]["completion"] or 0) > 1 and
            (r["server_timing"]["last_token_ms"] - r["server_timing"]["ttft_ms"]) / (r["tokens"]["completion"] - 1) <= 20]
    t.equal(g["total"]["totals"]["good_request_count"]["value"], len(good), "good requests")
    t.check(0 < len(good) < 400 and g["slos"][0]["at_most"] == 100, f"{len(good)} good ones, {g['slos']}")


@test(deadline=30, probe=False)
def report_usage(t):
    a = genlog(t.path("a.jsonl"), 50)
    for args in ([], ["--by", "colour", a], ["--by", "model,model", a], ["--since", "yesterday", a], ["--goodput", "x:1", a],
                 ["--goodput", "time_to_first_token", a], ["--memory", "1M", a], ["--nonsense", a]):
        r = report(t, *args, status=2)
        t.check(r.stdout == "" and r.stderr.startswith("reqprobe: ") and r.stderr.count("\n") == 1, f"{args}: {short(r.stderr)}")
    r = report(t, t.path("none.jsonl"), status=1)
    t.check("none.jsonl" in r.stderr and r.stderr.count("\n") == 1, f"no file: {short(r.stderr)}")
    r = report(t, "--help")
    t.check("--goodput" in r.stdout and r.stderr == "", "--help")
    # a table for a narrow terminal, with nothing from the log that could steer it
    with open(a) as f:
        rs = [json.loads(x) for x in f]
    for r in rs:
        r["finish_reason"] = "\x1b[31mred"
        r["model"] = "a\u202eb\u2066c\u200fd\u009be\ufefff\u2028g\U000e0041h\u00e9\u4e2d"
    with open(a, "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rs)
    for width in (80, 132):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        p = t.spawn([REQPROBE, "report", a], stdout=slave)
        os.close(slave)
        text = b""
        while True:
            try:
                x = os.read(master, 65536)
            except OSError:
                break
            if not x:
                break
            text += x
        os.close(master)
        t.equal(p.wait(10), 0, "exit status")
        rows = text.decode().replace("\r", "").split("\n")
        t.check("time_to_first_token" in text.decode() and "p99" in text.decode(), f"table {short(text)}")
        long = [x for x in rows if len(x) > width and "finish" not in x]
        t.check(not long, f"{width} columns: {long[:2]}")
        t.check(b"\x1b" not in text, "an escape sequence came through")
        t.check("model a?b?c?d?e?f?g?h\u00e9\u4e2d " in text.decode(), f"what has no place in a name came through: {short(text)}")


def measured(*args):
    """Its output, seconds, seconds of CPU, MiB at most. Not ru_maxrss, which has what
    this process had when it forked."""
    t0 = time.monotonic()
    p = subprocess.Popen([REQPROBE, "report", "--json", *args], stdout=subprocess.PIPE)
    most, out = [0], []
    reader = threading.Thread(target=lambda: out.append(p.stdout.read()))
    reader.start()
    while True:
        try:
            with open(f"/proc/{p.pid}/status") as f:
                most[0] = max([most[0]] + [int(x.split()[1]) for x in f if x.startswith("VmHWM")])
        except (OSError, ValueError):
            pass
        pid, status, ru = os.wait4(p.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(0.005)
    took = time.monotonic() - t0
    reader.join()
    p.returncode = os.waitstatus_to_exitcode(status)
    return p.returncode, out[0], took, ru.ru_utime + ru.ru_stime, most[0] / 1024


@test(deadline=240, probe=False)
def report_speed(t):
    """A million requests in under 10 s and 256 MiB; here fewer, unless asked."""
    n = int(os.environ.get("REQPROBE_REPORT_N", "100000"))
    a = genlog(t.path("a.jsonl"), n)
    with open(a, "rb") as f:     # not the disk's speed
        while f.read(1 << 22):
            pass
    full, best = n >= 1000000, None
    for _ in range(3):
        rc, out, took, cpu, mib = measured(a)
        best = min(best or (took, cpu), (took, cpu))
        t.equal(rc, 0, "exit status")
        if best[0 if full else 1] < 10 * n / 1e6:
            break
    doc = json.loads(out)
    t.equal(doc["exact"], True, "exact")
    t.equal(doc["total"]["requests"], n, "requests")
    t.note(f"{n} requests, {os.path.getsize(a) >> 20} MiB: {best[0]:.2f} s, {best[1]:.2f} s of CPU, {mib:.0f} MiB")
    if full:
        t.check(best[0] < 10, f"{best[0]:.2f} s")
    else:   # of CPU, twice the share: others run here, too
        t.check(best[1] < 2 * 10 * n / 1e6 + 0.2, f"{best[1]:.2f} s of CPU")
    t.check(mib < 256, f"{mib:.0f} MiB")
    # too many for the memory: marked, near, and within it
    if full:
        return
    b = genlog(t.path("b.jsonl"), 50000, 2)
    doc = json.loads(measured(a, b)[1])
    rc, out, _, _, mib = measured("--memory", "32M", a, b)
    far = json.loads(out)
    t.equal(far["exact"], False, "exact with --memory 32M")
    t.check(mib < 40, f"{mib:.0f} MiB with --memory 32M")
    for k in ("requests", "ends", "status", "totals"):
        alike(t, far["total"][k], doc["total"][k], k)
    for tag, m in far["total"]["metrics"].items():
        e = doc["total"]["metrics"][tag]
        t.equal([m["count"], m["missing"], m["reasons"]], [e["count"], e["missing"], e["reasons"]], f"{tag}: counts")
        if not m["count"]:
            continue
        t.check(m["relative_error"] > 0 and same(m["avg"], e["avg"], 1e-9) and m["max"] == e["max"], f"{tag}: {m} {e}")
        for p in ("p50", "p90", "p99"):   # a neighbour's rank, and the error
            t.check(abs(m[p] - e[p]) <= 0.01 * abs(e[p]) + 1.0 * (m["unit"] in ("tokens", "count", "ratio")), f"{tag}: {p} {m[p]} {e[p]}")
    t.equal(set(map(str, far["total"]["series"].values())), {"None"}, "series")


def changed(path, to, change):
    """Lines of path with change(number, record) applied."""
    with open(path) as f, open(to, "w") as g:
        for i, x in enumerate(f):
            r = json.loads(x)
            change(i, r)
            g.write(json.dumps(r) + "\n")
    return to


# What a report may take beside --memory: see docs/metrics.md.
BESIDE = 24


def wild(path, n, powers=53):
    """Records with every power of two that a line may have, so that histograms are as large as can be."""
    with open(path, "w") as f:
        for i in range(n):
            ms, count = 2.0 ** (i % powers) / 1e6, 2 ** (i * 5 % (powers - 4))
            phases = ",".join(f'"{k}_ms":{ms * j}' for j, k in enumerate(("receive", "frontend", "queue", "prefill", "decode", "flush"), 1))
            times = ",".join(f'"{k}_ms":{ms * 7 / j}' for j, k in enumerate(("time_to_second_token", "duration", "last_body", "last_token",
                             "time_to_first_output_token", "ttft", "first_event", "first_body", "first_byte"), 1))
            usage = ",".join(f'"{k}":{count}' for k in ("prompt_tokens", "completion_tokens", "total_tokens", "reasoning_tokens"))
            f.write(f'{{"schema":"reqprobe.request/1","id":"{i}","engine":{{"name":"e"}},"model":"m{i % 50}","operation":"chat","status":200,'
                    f'"stream":true,"start":"2026-11-29T14:57:30.{i:09d}Z","end":"complete","tokens":{{"prompt":{count},"completion":{count + 2}}},'
                    f'"usage":{{{usage}}},"phases":{{{phases}}},"server_timing":{{{times},"chunks":{count}}},"missing":{{}},'
                    f'"bytes":{{"request":{count},"response":{count},"request_body":{count},"response_body":{count}}},"flags":[]}}\n')
    return path


@test(deadline=240, probe=False)
def report_memory(t):
    """--memory holds, whatever the logs are made of; what it costs is said, and what is left is right."""
    a = genlog(t.path("a.jsonl"), 8000, 3)
    b = changed(a, t.path("b.jsonl"), lambda i, r: r.update(model=f"model-{i % 2048}-{'x' * 100}", finish_reason=f"r{i % 97}"))
    c = changed(a, t.path("c.jsonl"), lambda i, r: r.update(icl_ms=[0.25 + j % 7 + i / 1000 for j in range(100)]))
    d = wild(t.path("d.jsonl"), 150000)
    with open(t.path("e.jsonl"), "w") as f:   # hosts without end
        with open(a) as g:
            for i, x in enumerate(g):
                f.write(x + f'{{"schema":"reqprobe.summary/1","reqprobe":"0.1.0","host":"host-{i}","engine":{{}}}}\n')
    os.mkdir(t.path("files"))
    with open(a) as f:
        for i, x in enumerate(f):
            if i < 3000:
                with open(t.path("files", f"reqprobe-host{i}-20261130T035900.123Z-000001.jsonl"), "w") as g:
                    g.write(x)
    docs = {}
    for what, path, n, by, size in (("magnitudes", d, 150000, "model", 64), ("models", b, 8000, "model", 32), ("gaps", c, 8000, "model", 32),
                                    ("magnitudes", d, 150000, "model", 32), ("hosts", t.path("e.jsonl"), 8000, "host", 32),
                                    ("files", t.path("files"), 3000, "host,status", 32), ("all", t.dir, None, "model,host,finish_reason", 32)):
        rc, out, took, _, mib = measured("--by", by, "--memory", f"{size}M", path)
        if not t.equal(rc, 0, f"{what}: exit status"):
            continue
        doc = docs[what] = json.loads(out)
        groups, other = doc["groups"], doc["limits"]["requests_in_others"]
        t.note(f"{what} with {size}M: {took:.1f} s, {mib:.0f} MiB, {len(groups)} groups, {other} in others, {'exact' if doc['exact'] else 'not exact'}")
        t.check(mib < size + BESIDE / 2, f"{what}: {mib:.0f} MiB with --memory {size}M")
        if n:
            t.equal(doc["total"]["requests"], n, f"{what}: requests")
        t.equal(sum(g["requests"] for g in groups), doc["total"]["requests"], f"{what}: requests of the groups")
        t.equal(sum(g["requests"] for g in groups if g["key"] is None), other, f"{what}: in others")
        t.check(len(groups) <= doc["limits"]["groups"], f"{what}: {len(groups)} groups, {doc['limits']}")
        if not doc["exact"]:
            t.check(all(x is None for g in groups for x in g["series"].values()), f"{what}: series of histograms")
            t.check(all(x["relative_error"] > 0 for g in groups for k, x in g["metrics"].items() if x["count"] and k != "inter_chunk_latency"),
                    f"{what}: unmarked")
        for k, x in doc["total"]["metrics"].items():   # what the groups have is what all have
            t.equal([sum(g["metrics"][k][m] for g in groups) for m in ("count", "missing")], [x["count"], x["missing"]], f"{what}: {k}")
    t.equal([docs["magnitudes"]["exact"], docs["gaps"]["exact"]], [False, True], "exact")
    t.check(docs["gaps"]["total"]["metrics"]["inter_chunk_latency"]["relative_error"] > 0, "gaps that don't fit")
    valid(t, json.dumps(docs["all"]))
    # the same but for the error of percentiles
    exact, far = json.loads(measured("--by", "none", d)[1]), docs["magnitudes"]
    t.equal(exact["exact"], True, "exact in the default")
    for k, x in exact["total"]["metrics"].items():
        y = far["total"]["metrics"][k]
        t.equal([y["count"], y["missing"], y["reasons"]], [x["count"], x["missing"], x["reasons"]], k)
        if x["count"]:
            t.check(same(y["max"], x["max"]) and same(y["avg"], x["avg"], 1e-9), f"{k}: {y['avg']} {x['avg']}")
    r = report(t, "--memory", "32M", "--by", "model", b)
    t.check("as all others" in r.stderr and "all others" in r.stdout, f"what it cost: {short(r.stderr)}")
    # names that don't fit
    deep = t.path("many", *("d" * 240 for _ in range(5)))
    os.makedirs(deep)
    with open(a) as f:
        one = f.readline()
    for i in range(3000):
        open(os.path.join(deep, f"{i:05d}-{'n' * 220}.jsonl"), "w").close()
    with open(t.path("many", "0.jsonl"), "w") as f:
        f.write(one)
    r = report(t, "--memory", "32M", t.path("many"), status=1)
    t.check("--memory" in r.stderr and r.stderr.count("\n") == 1, f"too many names: {short(r.stderr)}")
    t.equal(json.loads(report(t, "--json", t.path("many")).stdout)["total"]["requests"], 1, "with more memory")
    # a window that does not fit
    with open(a, "rb") as f:
        subprocess.run(["zstd", "-q", "--long=27", "-3", "-o", t.path("w.jsonl.zst"), "-"], stdin=f, check=True)
    r = report(t, "--memory", "32M", t.path("w.jsonl.zst"), status=1)
    t.check("a larger --memory" in r.stderr, f"a window: {short(r.stderr)}")
    t.equal(json.loads(report(t, "--json", "--memory", "1G", t.path("w.jsonl.zst")).stdout)["total"]["requests"], 8000, "with more memory")


@test(deadline=60, probe=False)
def report_text(t):
    """The largest group first, no tables of what was refused, every reason that is known; --help and refusals."""
    a = changed(genlog(t.path("g.jsonl"), 300, 1), t.path("a.jsonl"), lambda i, r: r.update(model="bmmcccc"[i % 7]))
    text = report(t, "--by", "model", a).stdout
    sizes = [int(x.split()[0]) for x in text.splitlines() if " requests: " in x]
    t.equal(sizes[:-1], sorted(sizes[:-1], reverse=True), "order of groups")
    t.check(len(set(sizes)) == 4 and sizes[-1] == 300, f"groups {sizes}")
    for rs in text.split("  without a value:\n")[1:]:
        for line in rs.split("\n\n")[0].replace(",\n      ", ", ").splitlines():
            if " requests (" in line:
                n, of = int(line.split()[0]), line.split("(")[1].split(")")[0]
                t.equal(sum(int(x.split()[-1]) for x in of.split(", ")), n, f"reasons of {line}")
    rows = lambda text: [l.split()[0] for l in text.split(" std\n")[1].split("\n  without a ")[0].splitlines()]
    b = changed(a, t.path("b.jsonl"), lambda i, r: r["network"].update(retransmits=int(i == 7)))
    some, every = report(t, "--by", "none", "--json", b), report(t, "--by", "none", "--all", b).stdout
    some, text = json.loads(some.stdout)["total"]["metrics"], report(t, "--by", "none", b).stdout
    t.equal(rows(text)[:5], ["request_latency", "time_to_first_token", "frontend_time", "queue_time", "prefill_time"], "what stands first")
    zero = {x for x in some if some[x].get("count") and some[x]["min"] == some[x]["max"] == 0}
    t.check("keepalives" in zero and not zero & set(rows(text)) and "retransmits" in rows(text), f"rows of 0: {zero & set(rows(text))}")
    named = " ".join(text.split("  without a row: ")[1].split("\n\n")[0].split())
    t.check("keepalives (0)" in named and "output_token_count (as output_sequence_length)" in named, named)
    t.check(zero | {"output_token_count"} <= set(every.replace("(", " ").split()), "--all has rows for them")
    refused = report(t, "--by", "status", a).stdout.split("\nstatus 400\n")[1].split("\n\nstatus ")[0]
    t.check("request_error_rate" in refused and "p50" not in refused, f"refused: {refused}")
    t.check("error_isl" in report(t, "--all", "--by", "status", a).stdout.split("\nstatus 400\n")[1].split("\n\nstatus ")[0], "--all")
    t.check("\n\n  300 requests: " in (none := report(t, "--by", "none", a).stdout) and "\n\n\n" not in none, f"--by none: {none[:100]}")
    for verb in ([], ["pcap"], ["report"], ["compact"], ["rtt"], ["metrics"], ["calibrate"]):
        r = subprocess.run([REQPROBE, *verb, "--help"], capture_output=True, text=True)
        t.check(r.returncode == 0 and len(r.stdout) > 300 and r.stderr == "", f"{verb} --help: {short(r.stderr)}")
        t.check("\n\n\n" not in r.stdout and " \n" not in r.stdout, f"{verb} --help: empty lines, or blanks at an end")
        r = subprocess.run([REQPROBE, *verb, "--bogus=--help", "x"], capture_output=True, text=True)
        t.check(r.returncode == 2 and "'--bogus=--help'" in r.stderr and r.stderr.count("\n") == 1, f"{verb}: {short(r.stderr)}")
    r = report(t, "--goodput", "time_to_first_token:-1", a, status=2)
    t.check("never negative" in r.stderr, short(r.stderr))


@test(deadline=60, probe=False)
def report_unfinished(t):
    """The hidden file of a running --log: it is said that it is there."""
    os.mkdir(t.path("d"))
    a = genlog(t.path("d", ".reqprobe-h-20261130T035900.123Z-000001.jsonl.zst.partial"), 10)
    shutil.copy(a, t.path("d", ".other.partial"))
    r = report(t, t.path("d"), status=1)
    t.check("1 still being written" in r.stderr and "SIGHUP" in r.stderr and r.stderr.count("\n") == 1, short(r.stderr))
    genlog(t.path("d", "x.jsonl"), 20)
    r = report(t, "--json", t.path("d"))
    t.equal(json.loads(r.stdout)["total"]["requests"], 20, "requests")
    t.check("1 files are left out, still being written" in r.stderr and r.stderr.count("\n") == 1, short(r.stderr))


@test(deadline=120, probe=False)
def report_hosts(t):
    """Parts of a file that different hosts wrote, each closed by its summary: what belongs to a host is together."""
    a = genlog(t.path("a.jsonl"), 6000, 5)
    c = changed(a, t.path("c.jsonl"), lambda i, r: r.update(icl_ms=[0.25 + j % 7 + i / 1000 for j in range(i % 9)]))
    d = wild(t.path("d.jsonl"), 140000, 12)
    for what, path, n, every, by, size, hosts in (("a summary for each record", c, 6000, 1, "host", "256M", 3), ("the same in less memory", c, 6000, 1, "host", "32M", 3),
                                           ("several keys", c, 6000, 7, "status,host,model", "32M", 3), ("histograms", d, 140000, 5, "host", "32M", 3)):
        shutil.rmtree(t.path("named"), ignore_errors=True)
        os.mkdir(t.path("named"))
        name = lambda h: t.path("named", f"reqprobe-vm{h}-20261130T035900.123Z-000001.jsonl")
        outs = [open(name(h), "w") for h in range(hosts)]
        with open(path) as f, open(t.path("m.jsonl"), "w") as m:
            for i, x in enumerate(f):
                h = i // every * 7 % hosts
                outs[h].write(x)
                m.write(x)
                if i % every == every - 1 or i == n - 1:
                    m.write(f'{{"schema":"reqprobe.summary/1","reqprobe":"0.1.0","host":"vm{h}","engine":{{}}}}\n')
        for o in outs:
            o.close()
        args = ["--json", "--by", by, "--memory", size]
        r, want = report(t, *args, t.path("m.jsonl")), json.loads(report(t, *args, t.path("named")).stdout)
        got = json.loads(r.stdout)
        order = lambda doc: sorted(doc["groups"], key=lambda g: json.dumps(g["key"], sort_keys=True))
        t.equal(r.stderr, "", f"{what}: stderr")
        t.equal([got["exact"], want["exact"]], [what != "histograms"] * 2, f"{what}: exact")
        t.equal([g["key"] for g in order(got)], [g["key"] for g in order(want)], f"{what}: groups")
        if by == "host":
            t.equal([g["key"]["host"] for g in order(got)], [f"vm{h}" for h in range(hosts)], f"{what}: hosts")
        for g, w in zip(order(got), order(want)):
            alike(t, g, w, f"{what}: {g['key']}")
        alike(t, got["total"], want["total"], f"{what}: total")


@test(deadline=60, probe=False)
def report_numbers(t):
    """A line whose numbers are out of range is broken, and nothing more; so for compact's reader."""
    a = genlog(t.path("a.jsonl"), 40)
    bad = [("usage", "prompt_tokens", 2 ** 63), ("tokens", "prompt", -1), ("tokens", "completion", 10 ** 15), ("phases", "queue_ms", -0.5),
           ("server_timing", "duration_ms", 1e11), ("phases", "receive_ms", 9e300), ("metrics", "tokens_per_second", 1e16), ("speculation", "steps", -3)]
    with open(a) as f:
        rs = [json.loads(x) for x in f]
    for i, (group, name, v) in enumerate(bad):
        rs[i][group] = dict(rs[i].get(group) or {}, **{name: v})
    rs[30]["tokens"]["prompt"], rs[31]["phases"]["receive_ms"], rs[31]["server_timing"]["duration_ms"] = 10 ** 15 - 1, 99999999999.5, 99999999999.5
    rs[32]["start"] = "2199-12-31T23:59:59.000000000Z"
    rs[32]["phases"]["receive_ms"] = rs[32]["server_timing"]["duration_ms"] = 99999999999.0
    rs[33]["icl_ms"] = [1] * 131073
    with open(a, "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rs)
    r = report(t, "--json", "--aiperf", t.path("d"), a)
    doc = valid(t, r.stdout)
    t.equal([doc["input"]["torn_or_broken"], doc["input"]["records"]], [len(bad) + 1, 40 - len(bad) - 1], "broken lines")
    t.check(f"{len(bad) + 1} torn or broken" in r.stderr, f"said: {short(r.stderr)}")


@test(deadline=60, probe=False)
def report_goodput(t):
    """Who can't be judged, and whose tokens nobody tells, are told apart."""
    a = genlog(t.path("a.jsonl"), 2000, 9)
    rs = records(a)
    ok = [r for r in rs if answered(r)]
    doc = valid(t, report(t, "--json", "--by", "none", "--goodput", "time_to_first_token:100 output_sequence_length:10", a).stdout)
    totals = {k: v["value"] for k, v in doc["total"]["totals"].items()}

    def judge(r):
        s, n = r["server_timing"]["ttft_ms"], r["tokens"]["completion"]
        v = [None if s is None else r["phases"]["receive_ms"] + s <= 100, None if n is None else n >= 10]
        return False if False in v else None if None in v else True
    v = [judge(r) for r in ok]
    failed = sum(r["end"] != "unknown" for r in rs if not answered(r))
    t.check(min(v.count(True), v.count(False), v.count(None)) > 20, f"{[v.count(x) for x in (True, False, None)]}")
    t.equal([totals["good_request_count"], totals["unknown_goodput_request_count"]], [v.count(True), v.count(None)], "good and unknown")
    t.check(same(totals["good_request_fraction"], v.count(True) / (v.count(True) + v.count(False) + failed)), f"fraction {totals['good_request_fraction']}")
    t.equal(doc["total"]["slos_unknown"], [sum(r["server_timing"]["ttft_ms"] is None for r in ok), sum(r["tokens"]["completion"] is None for r in ok)], "slos_unknown")
    none = [sum(r["tokens"][k] is None for r in ok) for k in ("prompt", "completion")]
    t.equal([totals["unknown_isl_request_count"], totals["unknown_osl_request_count"]], none, "requests without tokens")
    t.check(min(none) > 0, f"{none}")
    text = report(t, "--by", "none", "--goodput", "time_to_first_token:100", a).stdout
    t.check(f"nobody tells them: input {none[0]}, output {none[1]} requests" in text, f"tokens that are not known: {short(text)}")
    t.check(f"unknown of {doc['total']['slos_unknown'][0]}" in text and "neither good nor" in text, f"objectives: {short(text)}")


@test(deadline=60, probe=False)
def report_stops(t):
    """A signal ends whatever is waited for, at once and with status 1."""
    os.mkfifo(t.path("fifo"))
    os.mkdir(t.path("many"))
    for i in range(12):   # links without end
        os.symlink(".", t.path("many", f"again{i}"))
        os.symlink("..", t.path("many", f"up{i}"))
    genlog(t.path("many", "a.jsonl"), 20)
    t0 = time.monotonic()
    doc = json.loads(report(t, "--json", t.path("many")).stdout)
    t.equal([doc["input"]["files"], doc["total"]["requests"]], [1, 20], "a directory of links to itself")
    t.check(time.monotonic() - t0 < 5, "a directory of links to itself takes its time")

    class Endless(http.server.BaseHTTPRequestHandler):   # a listing of other people's files
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked.set()
            body = ("<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>more</NextContinuationToken>" +
                    "<Contents><Key>x.txt</Key><Size>1</Size></Contents></ListBucketResult>").encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *a):
            pass

    class Silent(Endless):
        def do_GET(self):
            asked.set()
            time.sleep(30)
    asked = threading.Event()
    env = dict(os.environ, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1")
    stores = []
    for handler in (Endless, Silent):
        s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        s.daemon_threads = True
        threading.Thread(target=s.serve_forever, daemon=True).start()
        stores.append(s)
    urls = [f"http://127.0.0.1:{s.server_port}" for s in stores]

    def ends(what, args, sig, ready, **e):
        p = t.spawn([REQPROBE, "report", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(env, **e))
        try:
            end = time.monotonic() + 20
            while time.monotonic() < end and not ready(p):
                time.sleep(0.02)
            t.check(p.poll() is None, f"{what}: it ended by itself")
            p.send_signal(sig)
            t0 = time.monotonic()
            try:
                out, err = p.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.communicate()
                t.check(False, f"{what}: not ended by {sig}")
                return
            took = time.monotonic() - t0
            t.check(took < 5, f"{what}: it took {took:.1f} s to end")
            t.equal([p.returncode, out], [1, b""], f"{what}: exit status and output")
            t.check(b"stopped" in err and err.count(b"\n") == 1, f"{what}: {short(err)}")
        finally:
            asked.clear()

    def waits(p):
        try:
            with open(f"/proc/{p.pid}/wchan") as f, open(f"/proc/{p.pid}/stat") as g:
                return f.read() not in ("", "0") and g.read().rsplit(")", 1)[1].split()[0] == "S"
        except OSError:
            return False

    def a_while(p, since={}):
        return time.monotonic() - since.setdefault(p.pid, time.monotonic()) > 0.5
    sigs = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # a report that nobody reads
    r, w = os.pipe()
    p = t.spawn([REQPROBE, "report", "--json", "--by", "model,finish_reason,status", genlog(t.path("b.jsonl"), 3000)], stdout=w, stderr=subprocess.PIPE)
    end = time.monotonic() + 20
    while time.monotonic() < end and not waits(p):
        time.sleep(0.1)
    p.send_signal(signal.SIGTERM)
    err = p.communicate(timeout=20)[1]
    t.check(p.returncode == 1 and b"stopped" in err, f"a report that nobody reads: {p.returncode} {short(err)}")
    os.close(w)
    os.close(r)
    ends("a FIFO that nobody writes", [t.path("fifo")], sigs[0], waits)
    w = os.open(t.path("fifo"), os.O_RDWR)
    ends("a FIFO that nothing comes from", [t.path("fifo")], sigs[1], waits)
    os.close(w)
    ends("a line without end", ["/dev/zero"], sigs[1], a_while)   # reading it never waits
    for url, what in zip(urls, ("a listing without end", "a store that says nothing")):
        ends(what, ["s3://logs/x"], sigs[2], lambda p: asked.is_set() and a_while(p), AWS_ENDPOINT_URL=url)
    for s in stores:
        s.shutdown()
        s.server_close()


AIPERF = r"""
import json, math, sys
from pathlib import Path
import numpy as np
from aiperf.common.models.record_models import MetricRecordInfo
from aiperf.common.models.export_models import JsonExportData
from aiperf.metrics.metric_registry import MetricRegistry
from aiperf.plot.core.data_loader import DataLoader

d = Path(sys.argv[1])
lines = (d / "profile_export.jsonl").read_text().splitlines()
infos = [MetricRecordInfo.model_validate_json(x) for x in lines]
raw = json.loads((d / "profile_export_aiperf.json").read_text())
JsonExportData.model_validate(raw)
run = DataLoader().load_run(d)
out = {"lines": len(lines), "rows": len(run.requests), "tags": {}, "errors": {}, "units": [],
       "model": run.metadata.model, "duration": run.metadata.duration_seconds,
       "cancelled": int(run.requests["was_cancelled"].sum()), "aggregated": sorted(k for k, v in run.aggregated.items() if isinstance(v, dict) and "unit" in v)}
for i in infos:
    for tag, v in i.metrics.items():
        m = MetricRegistry.get_class(tag)
        unit = str(m.display_unit or m.unit)
        if unit != v.unit:
            out["units"].append([tag, v.unit, unit])
    if i.error:
        k = f"{i.error.code} {i.error.type}"
        out["errors"][k] = out["errors"].get(k, 0) + 1
for tag in run.requests.columns:
    if isinstance(run.aggregated.get(tag), dict) and "count" in run.aggregated[tag]:
        x = run.requests[tag].dropna().to_numpy(dtype=float)
        out["tags"][tag] = {"count": len(x), "avg": float(np.mean(x)), "std": float(np.std(x)), "min": float(x.min()), "max": float(x.max()),
                            **{f"p{p}": float(np.percentile(x, p)) for p in (1, 5, 10, 25, 50, 75, 90, 95, 99)}}
print(json.dumps(out))
"""


@test(deadline=600, probe=False)
def report_aiperf(t):
    """--aiperf DIR, read by AIPerf itself."""
    python = os.environ.get("AIPERF_PYTHON")
    if not python:
        r = subprocess.run([os.path.join(ROOT, "scripts", "pytools"), "aiperf"], capture_output=True, text=True)
        if not t.equal(r.returncode, 0, f"scripts/pytools aiperf: {r.stderr[-300:]}"):
            return
        python = os.path.join(r.stdout.strip(), "bin", "python")
    a, d = genlog(t.path("a.jsonl"), 1500), t.path("out", "run")
    os.mkdir(t.path("out"))
    replay = sorted(glob.glob(os.path.join(ROOT, "tests", "replay", "*.jsonl")))
    rep = report(t, "--json", "--goodput", "request_latency:1000", "--aiperf", d, a, *replay)
    doc = json.loads(rep.stdout)
    t.equal(sorted(os.listdir(d)), ["profile_export.jsonl", "profile_export_aiperf.json"], "files")
    r = subprocess.run([python, "-c", AIPERF, d], capture_output=True, text=True)
    if not t.equal(r.returncode, 0, f"AIPerf's loader: {r.stderr.strip()[-500:]}"):
        return
    got = json.loads(r.stdout.splitlines()[-1])
    rs = records(a, *replay)
    unseen = [x for x in rs if x["end"] == "unknown"]
    t.equal([got["lines"], got["rows"]], [len(rs) - len(unseen)] * 2, "lines, all valid")
    t.check(f"{len(unseen)} records are not in it" in rep.stderr, f"what was left out: {short(rep.stderr)}")
    t.equal(got["units"], [], "units unlike AIPerf's own")
    t.equal(got["cancelled"], sum(x["end"] == "client_disconnect" and x["error"] is None for x in rs), "cancelled")
    t.equal(sum(got["errors"].values()), sum(v for k, v in doc["total"]["errors"].items() if k != "unknown"), "errors")
    t.check(got["errors"].get("400 BadRequestError", 0) > 0 and got["errors"].get("499 RequestCancellationError", 0) > 0, f"errors {got['errors']}")
    for tag in ("request_latency", "time_to_first_token", "inter_token_latency", "output_sequence_length", "input_sequence_length",
                "output_token_throughput_per_user", "time_to_second_token", "http_req_waiting", "usage_prompt_tokens"):
        t.check(tag in got["tags"], f"{tag} is not among what the loader has")
    for tag in ("request_throughput", "output_token_throughput", "request_error_rate", "goodput", "inter_chunk_latency"):
        t.check(tag in got["aggregated"], f"{tag} is not in the summary")
    for tag, x in got["tags"].items():
        for k, v in x.items():
            w = doc["total"]["metrics"][tag][k]
            t.check(same(v, w, 1e-9) or abs(v - w) < 1e-9, f"{tag}: {k} is {v} to AIPerf, {w} here")
    t.note(f"{got['lines']} lines, {len(got['tags'])} metrics alike")
