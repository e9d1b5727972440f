# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Refusals: one line on stderr, the right exit status, nothing lost that was
already written."""

import json, os, re, select, signal, socket, subprocess, sys, time
from harness import *


def refused(t, want, argv=None, *, pid=None, prefix=(), what="", args=(), lines=1, timeout=20):
    """Run reqprobe to its end: exit status and number of stderr lines."""
    argv = list(prefix) + [REQPROBE] + (["--pid", str(pid), "--metrics", "off"] if pid else []) + list(args) + list(argv or [])
    try:
        r = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as e:
        t.check(False, f"{what}: does not refuse; stderr {(e.stderr or b'').decode()[-200:]}")
        return None
    err = [l for l in r.stderr.splitlines() if l.strip()]
    t.equal(r.returncode, want, f"{what}: exit status ({' | '.join(err)[:200]})")
    if lines:
        t.equal(len(err), lines, f"{what}: lines on stderr ({' | '.join(err)[:300]})")
    t.check("Sanitizer" not in r.stderr, f"{what}: sanitizer report")
    return r.stderr


@test(30, probe=False)
def err_usage(t):
    """Wrong usage: 2."""
    if not os.access(REQPROBE, os.X_OK):
        raise Skip("not built")
    for args in (["--no-such-option"], ["--pid"], ["--pid", "abc"], ["--pid", "-5"], ["--pid", "0"], ["--pid", "1", "--metrics", "nonsense"],
                 ["--pid", "1", "--duration", "x"], ["--pid", "99999999999999999999"], ["--pid", "1", "--engine", "nosuchengine"],
                 ["frobnicate"], ["replay"], [], ["metrics", "x"], ["--pid", "1", "--goodput", "no_metric:1"], ["--pid", "1", "--goodput", "http_req_blocked:1"]):
        refused(t, 2, args, what=" ".join(args) or "no arguments", lines=1)
    # what would have no effect, or none of what was meant
    url = "--otlp=http://127.0.0.1:4318"
    for args, says in (
            (["replay", "x", "--pid", "3"], "--pid has no effect with replay"), (["replay", "x", "--metrics", "off"], "--metrics has no effect"),
            (["replay", "x", "--duration=3s"], "--duration has no effect"), (["replay", "x", "--record", "y"], "--record has no effect"),
            (["replay", "x", "--wait"], "--wait has no effect"), (["replay", "x", "--ring=1M"], "--ring has no effect"),
            (["doctor", "--log", "x"], "--log has no effect with doctor"), (["doctor", "--jsonl", "x"], "--jsonl has no effect"),
            (["pcap", "x", "--ring", "1M"], "--ring has no effect"), (["pcap", "x", "--no-hooks"], "--no-hooks has no effect"),
            (["replay", "x", "--s3-keep"], "without --s3"), (["replay", "x", "--s3-region", "y"], "without --s3"),
            (["replay", "x", "--log", "y", "--s3-ca", "z"], "without --s3"), (["--pid", "1", "--log-keep-files", "3"], "without --log"),
            (["replay", "x", "--otlp-header", "a=b"], "without --otlp"), (["replay", "x", url, "--otlp-queue", "1M"], "--otlp-traces sends them"),
            (["replay", "x", url, "--otlp-sampler", "always_on"], "--otlp-traces sends them"),
            (["replay", "x", "--otlp-traces=http://h/x", "--otlp-interval", "5"], "--otlp URL sends them"),
            (["replay", "x", url, "--otlp-interval", "99ms"], "a time from 0.1s"), (["replay", "x", url, "--otlp-timeout", "61m"], "to 3600s"),
            (["replay", "x", "--log", "y", "--log-rotate-time", "999ms"], "from 1s to 366d"), (["replay", "x", "--log", "y", "--log-keep-age", "999ms"], "of 1s or more"),
            (["replay", "x", "--log", "y", "--log-fsync", "9ms"], "of 10ms or more"), (["rtt", "h", "--interval", "9ms"], "of 10ms or more"),
            (["--pid", "99999999", "--otlp", "foo"], "is no URL"), (["replay", "x", "--otlp", "http://"], "is no URL"),
            (["replay", "x", "--otlp", "http://localhost:999999"], "is no URL"), (["replay", "x", "--otlp-traces=gopher://h"], "is no URL"),
            (["replay", "x", url + "/v1/metrics"], "without /v1/metrics"), (["replay", "x", url, "--otlp-header", "no"], "NAME=VALUE"),
            (["replay", "x", "--otlp-traces=http://h/x", "--otlp-sampler", "some"], "--otlp-sampler some"),
            (["replay", "x", "--memory", "20M", "--otlp-traces=http://h/x", "--otlp-queue", "8M"], "--otlp-queue"),
            (["--pid", "1", "--verbos"], "is --verbose meant"), (["replay", "x", "--jso=y"], "is --jsonl meant"), (["replay", "x", "--hel"], "is --help meant"),
            (["rtt", "--tim", "1s", "x"], "is --timeout meant"), (["report", "--goo", "x"], "is --goodput meant"), (["compact", "--repl", "x"], "is --replace meant"),
            (["calibrate", "--joi", "x"], "is --join meant"), (["metrics", "--js"], "is --json meant"), (["--pid", "1", "--log-rotate", "1"], "meant")):
        r = subprocess.run([REQPROBE] + args, capture_output=True, text=True, timeout=20)
        t.equal((r.returncode, len(r.stderr.splitlines()), r.stdout), (2, 1, ""), f"{' '.join(args)}: status, lines ({r.stderr})")
        t.check(says in r.stderr, f"{' '.join(args)}: {r.stderr}")
    # a value that looks like an option is a value; what comes behind -- is none
    r = subprocess.run([REQPROBE, "replay", "--jsonl", "--verbos", "--", "--no-such.rec"], capture_output=True, text=True, cwd=t.dir)
    t.check(r.returncode == 1 and "can't open the recording --no-such.rec" in r.stderr, f"values: {r.stderr}")
    for args in (["--help"], ["--version"]):
        r = subprocess.run([REQPROBE] + args, capture_output=True, text=True)
        t.equal((r.returncode, bool(r.stdout), r.stderr), (0, True, ""), " ".join(args))
    for verb in ([], ["doctor"], ["replay"], ["rtt"], ["report"]):
        asked = [subprocess.run([REQPROBE, *x], capture_output=True, text=True) for x in (["help", *verb], [*verb, "--help"])]
        t.equal((asked[0].returncode, asked[0].stdout), (0, asked[1].stdout), f"help {' '.join(verb)}")
    for args in (["frobnicate"], ["--pid"], ["doctor", "x"]):
        refused(t, 2, ["help", *args], what=f"help {' '.join(args)}", lines=1)
    # each verb's own: how it is called, the options that mean something to it, and no others
    for verb, usage, has, hasnt in (("replay", "FILE", "--itl", "--pid"), ("pcap", "FILE", "--interface", "--pid"),
                                    ("pcap", "-i IFACE --port N", "--ring", "--wait"), ("doctor", "", "--pid", "--jsonl"),
                                    ("rtt", "HOST[:PORT]...", "--interval", "--pid"), ("calibrate", "[DIR]", "--join", "--pid"), ("metrics", "", "--markdown", "--pid")):
        for args in ([verb, "--help"], ["--help", verb]):
            if args[0] != verb and verb in ("rtt", "calibrate", "metrics"):
                continue
            r = subprocess.run([REQPROBE] + args, capture_output=True, text=True)
            t.equal((r.returncode, r.stderr), (0, ""), " ".join(args))
            said = " ".join(r.stdout.split())
            t.check(re.match(rf"Usage: reqprobe {verb} \[", said) and f"] {usage}".strip() in said[:600], f"{' '.join(args)}: {said[:300]}")
            t.check(has in r.stdout and hasnt not in r.stdout, f"{' '.join(args)}: {has} and not {hasnt}: {r.stdout[:400]}")
            t.check(verb not in ("replay", "pcap") or "--compat" not in r.stdout, f"{verb} --help has options of /metrics")
    for verb in ([], ["doctor"], ["replay"], ["pcap"], ["rtt"], ["calibrate"], ["report"], ["compact"], ["metrics"]):
        r = subprocess.run([REQPROBE, *verb, "--help"], capture_output=True, text=True, env={k: v for k, v in os.environ.items() if k != "ARGP_HELP_FMT"})
        lines = r.stdout.splitlines()
        t.check(all(len(l) < 80 for l in lines), f"{verb}: lines beyond 79 columns")
        t.check(len(lines[0]) < 60 and "[OPTION...]" in lines[0], f"{verb}: usage {lines[0]}")
        t.check(not any(l.isspace() for l in lines), f"{verb}: a line of blanks")
        units = re.findall(r"TIME takes ([^.]*)\.", " ".join(r.stdout.split()))
        t.equal(units, ["us, ms, s (default), m, h or d"] * len(units), f"{verb}: units of TIME")
        t.check(units or verb not in ([], ["pcap"], ["rtt"]), f"{verb}: no units of TIME")


@test(60)
def err_whole_machine(t):
    """A tree that has reqprobe in it is watched, and a line says how large it is."""
    srv = t.paced()
    p = t.probe(os.getpid(), args=["--no-hooks"])
    run_client(t, srv.port, n=3, max_tokens=2)
    recs = p.finish(3)
    t.equal(len([r for r in recs if r["path"] == "/v1/chat/completions"]), 3, "records")
    m = re.search(rf"pid {os.getpid()} has (\d+) processes under it, reqprobe itself among them", p.stderr())
    t.check(m and int(m[1]) >= 2, p.stderr())
    p = t.probe(srv)
    p.stop()
    t.check("processes under it" not in p.stderr(), "said of a server's own pid")


@test(30)
def err_no_such_pid(t):
    p = subprocess.Popen(["true"])
    p.wait()
    refused(t, 4, pid=p.pid, what="no such pid")
    with open("/proc/sys/kernel/pid_max") as f:
        refused(t, 4, pid=int(f.read()) - 1, what="pid_max - 1")


@test(30)
def err_no_listener(t):
    """A process tree without a listening socket is no engine."""
    p = t.spawn(["sleep", "60"])
    refused(t, 4, pid=p.pid, what="sleep")
    # a connected socket is not a listening one
    srv = t.paced(truth=False)
    q = t.spawn([sys.executable, "-c", f"import socket,time; s=socket.create_connection(('127.0.0.1',{srv.port})); print('up',flush=True); time.sleep(60)"], stdout=subprocess.PIPE)
    q.stdout.readline()
    refused(t, 4, pid=q.pid, what="a client")


@test(30)
def err_not_root(t):
    srv = t.paced(truth=False)
    refused(t, 3, pid=srv.pid, prefix=["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"], what="nobody")


@test(30)
def err_cap_bpf_only(t):
    """Root without SYS_ADMIN and PERFMON, and a user with CAP_BPF alone."""
    srv = t.paced(truth=False)
    r = refused(t, 3, pid=srv.pid, prefix=["setpriv", "--bounding-set", "-sys_admin,-perfmon", "--inh-caps", "-sys_admin,-perfmon"], what="root without perfmon")
    t.check(not r or "PERFMON" in r.upper() or "perfmon" in r, f"does not name CAP_PERFMON: {r}")
    refused(t, 3, pid=srv.pid, prefix=["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", "+bpf", "--ambient-caps", "+bpf"],
            what="nobody with CAP_BPF")


def in_mount_ns(setup):
    """argv that runs reqprobe in a private mount namespace after `setup`."""
    return ["unshare", "-m", "sh", "-ec", f"mount --make-rprivate /; {setup}; exec \"$@\"", "sh"]


@test(60)
def err_no_btf(t):
    srv = t.paced(truth=False)
    r = refused(t, 3, pid=srv.pid, prefix=in_mount_ns("mount -t tmpfs none /sys/kernel/btf"), what="no BTF")
    t.check(not r or "BTF" in r, f"does not speak of BTF: {r}")


@test(60)
def no_tracefs_works(t):
    srv = t.paced()
    p = t.probe(srv, prefix=in_mount_ns("umount -l /sys/kernel/tracing 2>/dev/null || true; umount -l /sys/kernel/debug 2>/dev/null || true; "
                                        "mount -t tmpfs none /sys/kernel/tracing 2>/dev/null || true"))
    run_client(t, srv.port, n=5, c=2, max_tokens=3, usage=True, extra={"gap_us": 1000})
    recs = p.finish(5)
    t.equal(len(recs), 5, "records")
    t.check(all(r["end"] == "complete" and r["tokens"]["completion"] == 3 for r in recs), "records are complete")


@test(60)
def err_port_taken(t):
    srv = t.paced(truth=False)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(1)
        port = s.getsockname()[1]
        argv = [REQPROBE, "--pid", str(srv.pid), "--metrics", f"127.0.0.1:{port}"]
        r = subprocess.run(argv, capture_output=True, text=True, timeout=20)
        err = r.stderr.strip().splitlines()
        t.equal((r.returncode, len(err)), (1, 1), f"exit status, lines on stderr ({' | '.join(err)[:300]})")
        t.check(str(port) in r.stderr, f"does not name the port: {r.stderr}")


@test(60)
def err_unwritable(t):
    srv = t.paced(truth=False)
    os.mkdir(t.path("dir"))
    for path in (t.path("no", "such", "dir", "x.jsonl"), t.path("dir"), "/proc/nope"):
        e = refused(t, 1, pid=srv.pid, args=["--jsonl", path], what=f"--jsonl {path}")
        t.check(not e or path in e, f"does not name {path}: {e}")
        refused(t, 1, pid=srv.pid, args=["--record", path], what=f"--record {path}")


@test(30)
def err_reader_gone(t):
    """reqprobe | head -1: a pipe never has another reader, so it ends."""
    srv = t.paced()
    p = t.spawn([REQPROBE, "--pid", str(srv.pid), "--metrics", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = [p.stderr.readline(), p.stderr.readline()]
    t.check("attached" in said[0] and re.search(r"metrics: http://127.0.0.1:[1-9]\d*/metrics$", said[1].strip()), f"said {said}")
    run_client(t, srv.port, n=1, max_tokens=2)
    t.check(p.stdout.readline().startswith("{"), "a record")
    p.stdout.close()
    run_client(t, srv.port, n=2, max_tokens=2)
    t.equal(p.wait(10), 1, "exit status")
    t.check("nobody reads stdout" in p.stderr.read(), "it says why")


@test(60)
def err_dev_full(t):
    srv = t.paced(truth=False)
    p = t.probe(srv, jsonl="/dev/full")
    run_client(t, srv.port, n=5, c=1, max_tokens=3, extra={"gap_us": 1000})
    time.sleep(0.3)
    t.equal(p.metrics().sum("reqprobe_requests_total"), 5, "requests in /metrics")
    p.stop(expect_rc=None)
    lines = [l for l in p.stderr_lines() if "attached to pid" not in l]
    said = [l for l in lines if "/dev/full" in l or "space" in l.lower()]
    t.equal([("No space left" in l, "5 records were not written" in l) for l in said], [(True, False), (False, True)], f"lines about it ({lines})")
    t.note(f"exit status {p.rc}")


@test(60)
def err_record_full(t):
    """A recording that can't be written is said once, and is the exit status."""
    srv = t.paced()
    p = t.probe(srv, args=["--record", "/dev/full"])
    run_client(t, srv.port, n=5, c=1, max_tokens=3, extra={"gap_us": 1000})
    p.stop(expect_rc=1)
    lines = [l for l in p.stderr_lines() if "/dev/full" in l]
    t.equal(len(lines), 1, f"lines about it ({p.stderr_lines()})")
    t.equal(len(p.records), 5, "records in --jsonl all the same")


@test(60)
def err_disk_full(t):
    """A tiny file system fills up: whole lines stay, said once; room again: goes on."""
    d = t.path("tiny")
    os.mkdir(d)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", d], capture_output=True).returncode:
        raise Skip("cannot mount a tmpfs")
    try:
        srv = t.paced()
        p = t.probe(srv, jsonl=os.path.join(d, "x.jsonl"))
        run_client(t, srv.port, n=40, c=4, id="a", max_tokens=3, extra={"gap_us": 1000, "ttft_us": 1000})
        time.sleep(0.3)
        m = p.metrics()
        full, _ = read_jsonl(p.jsonl)
        t.check(0 < len(full) < 40, f"{len(full)} records in 16 KiB")
        t.equal(m.sum("reqprobe_requests_total"), 40, "requests in /metrics")
        subprocess.run(["mount", "-o", "remount,size=4m", d], check=True)
        run_client(t, srv.port, n=10, c=2, id="b", max_tokens=3, extra={"gap_us": 1000, "ttft_us": 1000})
        time.sleep(0.3)
        p.stop(expect_rc=None, whole=False)
        recs, _ = read_jsonl(p.jsonl)
        t.equal(recs[:len(full)], full, "what was written before")
        t.equal(sum(r["x_request_id"].startswith("b") for r in recs), 10, "records after there was room again")
        lines = [l for l in p.stderr_lines() if "attached to pid" not in l]
        said = [l for l in lines if p.jsonl in l or "space" in l.lower()]
        t.equal([("No space left" in l, f"{40 - len(full)} records were not written" in l) for l in said], [(True, False), (False, True)],
                f"lines about it ({lines})")
        t.note(f"{len(full)} of 40 fitted; exit status {p.rc}")
    finally:
        subprocess.run(["umount", "-l", d])


@test(60)
def stdout_rules(t):
    """Not a terminal: JSONL and nothing else; with --jsonl FILE, nothing."""
    srv = t.paced()
    p = t.probe(srv)
    q = t.probe(srv, jsonl=None, name="out")
    d = t.probe(srv, jsonl="-", name="dash")
    run_client(t, srv.port, n=5, c=1, max_tokens=3, extra={"gap_us": 1000})
    p.finish(5)
    q.stop()
    d.stop()
    t.equal(p.stdout(), "", "stdout with --jsonl FILE")
    for who, x in (("default", q), ("--jsonl -", d)):
        rows = [json.loads(l) for l in x.stdout().splitlines()]
        t.equal([r["schema"] for r in rows if not r["schema"].startswith("reqprobe.summary")], ["reqprobe.request/1"] * 5, f"{who}: stdout")
        for r in rows:
            validate(t.name, r)


@test(60)
def on_a_terminal(t):
    """A header, a line per request, a summary; at most 80 columns; no colour with NO_COLOR."""
    import pty
    srv = t.paced()
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["NO_COLOR"] = "1"
        os.execv(REQPROBE, [REQPROBE, "--pid", str(srv.pid), "--metrics", "off"])
    c = Child(pid)
    t.children.append(c)
    buf, sent = b"", False
    end = time.monotonic() + 15
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                d = os.read(fd, 65536)
            except OSError:
                break
            if not d:
                break
            buf += d
        if b"attached to pid" in buf and not sent:
            sent = True
            run_client(t, srv.port, n=6, c=2, id="pretty", max_tokens=3, usage=True, extra={"gap_us": 1000})
            time.sleep(0.3)
            os.kill(pid, signal.SIGINT)
    t.equal(c.wait(5), 0, "exit status")
    text = buf.decode(errors="replace").replace("\r", "")
    lines = text.splitlines()
    t.check(any("TTFT" in l for l in lines), "no column heads")
    t.check(any(re.match(r"6 requests: .*6 complete", l) for l in lines), f"no summary: {lines[-8:]}")
    t.check("\x1b[" not in text, "escape sequences with NO_COLOR")
    t.check(all(len(l) <= 80 for l in lines if "attached" not in l), f"wider than 80: {[l for l in lines if len(l) > 80][:2]}")
