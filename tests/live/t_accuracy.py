# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Against the paced server: its own clock is the truth."""

import os, subprocess, time
from harness import *


def accuracy(t, streams, rounds, tokens, gap_us, ttft_us, p50=20.0, p99=200.0, args=(), sockets=False):
    srv = t.paced()
    p = t.probe(srv, args=list(args))
    progs = p.metrics().by("reqprobe_bpf_run_seconds_total", "program")
    t.equal(("rp_sock_send" in progs, any("sys_exit" in (k or "") for k in progs)), (sockets, not sockets), "sockets are followed, not system calls")
    n = streams * rounds
    cpu0, w0 = proc_cpu(p.pid), time.monotonic()
    for k, f in enumerate(FRAMINGS if rounds > 1 else FRAMINGS[:1]):
        run_client(t, srv.port, n=n // (2 if rounds > 1 else 1), c=streams, usage=True, max_tokens=tokens, seed=1 + k * 100000, id=f"q{k}",
                   extra={"gap_us": gap_us, "ttft_us": ttft_us, "framing": f})
    cpu = (proc_cpu(p.pid) - cpu0) / (time.monotonic() - w0) * 100
    p.wait_records(n, 10)
    m = p.metrics()
    recs = p.finish(n)
    stats = srv.stop()
    truth = srv.truth()
    t.equal(len(recs), n, "records")
    t.equal(sorted(r["x_request_id"] for r in recs), sorted(truth), "request ids")
    t.equal(sum((m.by("reqprobe_events_lost_total", "class") or {"?": 0}).values()), 0, "events lost")
    e_ttft, e_gap, e_dur, e_first, e_last = [], [], [], [], []
    for r in recs:
        x = truth.get(r["x_request_id"])
        if not x:
            continue
        who, st = r["x_request_id"], r["server_timing"]
        t.equal((r["end"], r["flags"]), ("complete", []), f"{who}: end, flags")
        t.equal((st["chunks"], r["tokens"]["completion"]), (tokens, tokens), f"{who}: chunks, tokens")
        t.equal(r["client"]["port"], x["port"], f"{who}: port")
        if st["ttft_ms"] is None or r["icl_ms"] is None or st["chunks"] != tokens:
            continue
        e_ttft.append(abs(st["ttft_ms"] * 1e3 - (x["token_ns"][0] - x["recv_ns"]) / 1e3))
        for got, a, b in zip(r["icl_ms"], x["token_ns"], x["token_ns"][1:]):
            e_gap.append(abs(got * 1e3 - (b - a) / 1e3))
        e_first.append(abs(st["first_byte_ms"] * 1e3 - (x["first_write_ns"] - x["recv_ns"]) / 1e3))
        e_dur.append(abs(st["duration_ms"] * 1e3 - (x["last_ns"] - x["recv_ns"]) / 1e3))
        e_last.append(abs(st["last_token_ms"] * 1e3 - (x["token_ns"][-1] - x["recv_ns"]) / 1e3))
    overloaded = stats["late_p99_us"] > 2000
    for what, e in (("ttft", e_ttft), ("gap", e_gap), ("duration", e_dur), ("first byte", e_first), ("last token", e_last)):
        a, b = percentile(e, .5), percentile(e, .99)
        if what in ("ttft", "gap"):
            t.note(f"{what} error p50 {a:.1f} p99 {b:.1f} max {max(e, default=0):.0f} us")
        t.check(a <= p50, f"{what}: error p50 {a:.1f} us, limit {p50}")
        t.check(b <= p99, f"{what}: error p99 {b:.1f} us, limit {p99}" + (" (the machine was overloaded)" if overloaded else ""))
    t.note(f"server lateness p50 {stats['late_p50_us']:.0f} p99 {stats['late_p99_us']:.0f} us, "
           f"{stats['late_over_1ms']} of {n * tokens} over 1 ms; reqprobe {cpu:.1f} % of a core")


@test(90)
def accuracy_1(t):
    accuracy(t, 1, 10, 100, 5000, 20000)


@test(90)
def accuracy_64(t):
    accuracy(t, 64, 4, 60, 50000, 200000)


@test(90)
def accuracy_sockets(t):
    """As for engines that spin: tracepoints of sockets, not of system calls."""
    if not os.path.isdir("/sys/kernel/tracing/events/sock/sock_send_length"):
        raise Skip("no such tracepoint before Linux 6.3")
    accuracy(t, 64, 2, 60, 50000, 200000, args=["--sockets"], sockets=True)


@test(120)
def accuracy_1000(t):
    accuracy(t, 1000, 1, 15, 1000000, 2000000)


@test(90)
def accuracy_keepalive_64(t):
    """The same connections again and again, mixed with non-streaming requests."""
    srv = t.paced()
    p = t.probe(srv)
    a = t.spawn(client_argv(srv.port, n=256, c=32, keepalive=True, usage=True, max_tokens=20, id="s", extra={"gap_us": 10000, "ttft_us": 10000}),
                stdout=subprocess.DEVNULL)
    run_client(t, srv.port, n=256, c=32, keepalive=True, stream=False, max_tokens=20, id="n", extra={"gap_us": 10000, "ttft_us": 10000})
    t.equal(a.wait(), 0, "client")
    recs = p.finish(512)
    srv.stop()
    truth = srv.truth()
    t.equal(len(recs), 512, "records")
    err = []
    for r in recs:
        x = truth[r["x_request_id"]]
        t.equal((r["end"], r["tokens"]["completion"], r["stream"], r["connection"]["reused"]),
                ("complete", 20, x["stream"], x["nth"] > 0), r["x_request_id"])
        err.append(abs(r["server_timing"]["duration_ms"] * 1e3 - (x["last_ns"] - x["recv_ns"]) / 1e3))
    t.check(percentile(err, .5) <= 20 and percentile(err, .99) <= 200, f"duration error p50 {percentile(err, .5):.1f} p99 {percentile(err, .99):.1f} us")
    t.note(f"duration error p50 {percentile(err, .5):.1f} p99 {percentile(err, .99):.1f} us")
