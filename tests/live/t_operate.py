# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""contrib/ in use: a real Prometheus with the scrape configuration, the alerts and the
dashboard's questions; the service's capabilities."""

import glob, json, math, os, re, shutil, subprocess, sys, time
from harness import *
from prom import Prometheus

sys.path.append(os.path.join(ROOT, "tests", "tools"))
import docs

UNIT = os.path.join(docs.CONTRIB, "reqprobe@.service")

# What a server that is known from its sockets fills, with a log and objectives.
FILLED = ("Requests per second", "Not answered in full", "In flight, running, waiting", "Time to first token", "Time between tokens",
          "Duration", "Time to first token, distribution", "Between events", "Tokens per second", "Bytes per second", "Objectives", "Handshake round trip", "Connections",
          "Connections that can't be read", "Lost and cut", "CPU", "Memory", "Not joined", "Request log", "$job", "$instance", "$model")


@test(120)
def operate_dashboard(t):
    """Prometheus takes contrib/prometheus.yml and the rules; each expression of the dashboard
    is one, and has data where the engine gives it; no alert of a run in which all is well."""
    srv = t.paced()
    p = t.probe(srv, args=["--log", t.path("log"), "--goodput", "time_to_first_token:20000"])
    shutil.copy(os.path.join(docs.CONTRIB, "reqprobe.rules.yml"), t.dir)
    config = docs.text("contrib", "prometheus.yml")
    for a, b in (("127.0.0.1:9479", f"127.0.0.1:{p.port}"), ("scrape_interval: 15s", "scrape_interval: 1s")):
        t.equal(config.count(a), 1, f"{a} in contrib/prometheus.yml")
        config = config.replace(a, b)
    pr = Prometheus(t, {"reqprobe": p.port}, config="global: {evaluation_interval: 1s}\n" + config)
    load = lambda n, id: run_client(t, srv.port, n=n, c=4, id=id, usage=True, max_tokens=8, extra={"gap_us": 4000})
    load(4, "a")
    p.wait_records(4)
    pr.scraped()
    load(12, "b")
    p.wait_records(16)
    pr.scraped()
    exprs, _, rules_text = docs.expressions()
    found = {}
    for where, e in exprs:
        q = e.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*").replace("$model", ".*")
        t.check("$" not in q, f"{where}: a variable that is not known: {q}")
        try:
            got = pr.query(q)
        except AssertionError as err:
            t.check(False, f"{where}: {err}")
            continue
        found.setdefault(where, []).extend(v for _, v in got)
    for where in FILLED:
        t.check(any(not math.isnan(v) for v in found.get(where, [])), f"dashboard: no data for {where}")
    rules = lambda: [r for g in pr.get("/api/v1/rules")["groups"] for r in g["rules"]]
    t.equal(len(rules()), rules_text.count("- alert:"), "rules that Prometheus has")
    pr.until(lambda: all(r["health"] != "unknown" for r in rules()), "done with each rule once")
    for r in rules():
        t.check(r["health"] == "ok" and r["state"] == "inactive", f"alert {r['name']}: {r['health']}, {r['state']}: {r.get('lastError')}")
    t.equal(len(p.stop()), 16, "records")
    t.note(f"{len(exprs)} expressions")


def capabilities():
    with open(UNIT) as f:
        text = f.read()
    sets = {k: v.split() for k, v in re.findall(r"(?m)^(AmbientCapabilities|CapabilityBoundingSet)=(.*)$", text)}
    return sets["AmbientCapabilities"], sets["CapabilityBoundingSet"]


def nobody_with(caps):
    names = "-all," + ",".join("+" + c[4:].lower() for c in caps)
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", names, "--inh-caps", names,
            "--ambient-caps", names, "--no-new-privs"]


@test(60)
def operate_capabilities(t):
    """A user that has the capabilities of the service's unit and no others sees all that root
    sees of another user's engine, writes the log, and is left with those alone."""
    ambient, bounding = capabilities()
    t.equal(sorted(ambient), sorted(bounding), "AmbientCapabilities and CapabilityBoundingSet")
    os.mkdir(t.path("log"))
    os.chown(t.path("log"), 65534, 65534)
    srv = t.paced(exe="fake_llama")     # root's, with functions to hook
    p = t.probe(srv, args=["--log", t.path("log"), "--require-uprobes"], jsonl=None,
                prefix=nobody_with(ambient))
    with open(f"/proc/{p.pid}/status") as f:
        status = f.read()
    uid, bound = re.search(r"(?m)^Uid:\s+(\d+)", status)[1], int(re.search(r"(?m)^CapBnd:\s+(\w+)", status)[1], 16)
    t.equal((uid, bin(bound).count("1")), ("65534", len(bounding)), "uid, capabilities that it may have")
    run_client(t, srv.port, n=6, c=2, usage=True, max_tokens=4)
    p.wait_metric("reqprobe_requests_total", 6, end="complete")
    m = p.metrics()
    t.check((m.sum("process_open_fds") or 0) > 5, "process_open_fds")
    p.stop()
    files = glob.glob(t.path("log", "reqprobe-*.jsonl.zst"))
    t.equal(len(files), 1, "files of the log")
    out = subprocess.run(["zstd", "-dcq", *files], capture_output=True, text=True).stdout if files else ""
    recs = [r for r in map(json.loads, out.splitlines()) if r["schema"] == "reqprobe.request/1"]
    t.equal(len(recs), 6, "records in the log")
    for r in recs:
        # the functions of this llama-server are hooked, and never called
        t.equal((r["engine"]["name"], r["missing"].get("phases.queue_ms")), ("llamacpp", "hook_silent"), "engine, queue time")
        t.check(r["network"]["rtt_ms"] is not None and r["server_timing"]["ttft_ms"] is not None, f"missing: {r['missing']}")
    # What the README asks for at least. (Hooks of older kernels are perf events, which may
    # want CAP_SYS_ADMIN.)
    if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 10):
        least = ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"]
        q = t.probe(srv, args=["--require-uprobes"], jsonl=None, prefix=nobody_with(least))
        run_client(t, srv.port, n=2, max_tokens=2)
        q.wait_metric("reqprobe_requests_total", 2, end="complete")
        q.stop()
        t.equal([l for l in q.stderr_lines() if re.search(r"can't|could not|not permitted", l)], [], f"complaints with {least}")
    # An engine that does not listen yet is tried again (4); what is not permitted is not (3).
    early = t.spawn(["sleep", "60"])
    for caps, want in ((ambient, 4), ([c for c in ambient if c != "CAP_SYS_PTRACE"], 3), ([c for c in ambient if c != "CAP_DAC_READ_SEARCH"], 3)):
        r = subprocess.run(nobody_with(caps) + [REQPROBE, "--pid", str(early.pid), "--metrics", "off"], capture_output=True, text=True, timeout=30)
        t.equal((r.returncode, len(r.stderr.splitlines())), (want, 1), f"a process without a socket, with {caps}: {r.stderr}")
    t.equal([l for l in p.stderr_lines() if re.search(r"can't|could not|no function", l)], [], "complaints")


@test(60, probe=False)
def operate_unit(t):
    """systemd knows each setting of the unit, and what it leaves open is little."""
    if not shutil.which("systemd-analyze"):
        raise Skip("no systemd-analyze: scripts/deps test")
    with open(UNIT) as f:
        text = f.read()
    unit = t.path("reqprobe@engine.service")
    t.equal(text.count("/usr/local/sbin/reqprobe"), 1, "what make install puts its path for")
    with open(unit, "w") as f:
        f.write(text.replace("/usr/local/sbin/reqprobe", REQPROBE))
    with open(t.path("engine.service"), "w") as f:
        f.write("[Service]\nExecStart=/bin/true\n")
    r = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit], capture_output=True, text=True)
    said = [l for l in (r.stdout + r.stderr).splitlines() if "reqprobe" in l]
    t.equal((r.returncode, said), (0, []), "systemd-analyze verify")
    r = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit], capture_output=True, text=True)
    m = re.search(r"exposure level for \S+: ([\d.]+)", r.stdout)
    t.check(m and float(m[1]) < 4, f"systemd-analyze security: {(r.stdout + r.stderr)[-300:]}")
    t.note(f"exposure {m[1] if m else '?'}")
