# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The verb pcap: what packets say must be what was put into them, and what a
capture lost must be marked. Files need no root; captures are compared with what
`reqprobe --pid` sees at the same time."""

import calendar, collections, contextlib, os, random, shutil, signal, subprocess, time
import pcapgen as g
from harness import *

MARKS = {"lost_events", "truncated", "partial", "parse_error", "pre_attach", "limit"}


def pcap(t, packets=None, *args, path=None, rc=0, itl=True, how=None):
    """(records by request id, summary, stderr lines)"""
    if path is None:
        path = t.path(f"c{len(os.listdir(t.dir))}.pcap")
        g.write(path, packets, **(how or {}))
    if not os.access(REQPROBE, os.X_OK):
        raise Skip(f"{REQPROBE} is not there (make)")
    out = t.path(f"o{len(os.listdir(t.dir))}.jsonl")
    r = subprocess.run([REQPROBE, "pcap", path, "--jsonl", out] + (["--itl"] if itl else []) + [str(a) for a in args],
                       capture_output=True, text=True, timeout=60)
    t.equal(r.returncode, rc, f"exit status ({r.stderr.strip()[-300:]})")
    records, summary = read_jsonl(out) if os.path.exists(out) else ([], None)
    for x in records:
        validate(t.name, x)
    if summary:
        validate(t.name, summary)
        for e in summary_invariants(summary, records):
            t.check(False, e)
    t.check("SECRET" not in open(out).read() if os.path.exists(out) else True, "text in the records")
    by = {}
    for x in records:
        by.setdefault(x["x_request_id"], []).append(x)
    return by, summary, r.stderr.strip().splitlines()


def wall(ns):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 10**9)) + f".{ns % 10**9:09d}Z"


def same_ms(a, b, tol=1e-6):
    return a is not None and abs(a - b) <= tol


def exact(t, by, e, what="", flags=(), rtt=True, us=False, reused=None):
    """The record is what was put in, to the nanosecond (or microsecond)."""
    r = by.get(e.xid, [])
    who = f"{what}{e.xid}"
    if not t.check(len(r) == 1, f"{who}: {len(r)} records"):
        return
    r, tol = r[0], 0.0021 if us else 1e-6
    st = r["server_timing"]
    t.equal(r["flags"], list(flags), f"{who}: flags")
    t.equal((r["end"], st["chunks"], r["tokens"]["completion"]), (e.end, e.chunks, e.tokens), f"{who}: end, chunks, tokens")
    t.check(same_ms(st["ttft_ms"], e.ttft, tol), f"{who}: ttft {st['ttft_ms']}, put in {e.ttft}")
    t.check(same_ms(st["duration_ms"], e.duration, tol), f"{who}: duration {st['duration_ms']}, put in {e.duration}")
    t.check(len(r["icl_ms"]) == len(e.gaps) and all(same_ms(a, b, tol) for a, b in zip(r["icl_ms"], e.gaps)),
            lambda: f"{who}: gaps {short(r['icl_ms'])}, put in {short(e.gaps)}")
    if not us:
        t.equal(r["start"], wall(e.start), f"{who}: start")
    if rtt:
        t.equal((r["network"]["rtt_ms"], r["network"]["source"]), (e.rtt, "handshake"), f"{who}: rtt")
    t.equal(r["missing"].get("metrics.queue_time_ms", r["missing"].get("metrics")), "no_engine_hooks", f"{who}: why no queue time")


def honest(t, by, e, sent, what=""):
    """After a loss: nothing that is wrong and unmarked. `sent`: the request is in the capture."""
    r = by.get(e.xid, [])
    who = f"{what}{e.xid}"
    if not r:
        return "absent" if t.check(not sent, f"{who}: no record, though its request is in the capture") or True else ""
    if not t.check(len(r) == 1, f"{who}: {len(r)} records"):
        return "twice"
    r = r[0]
    st = r["server_timing"]
    if not MARKS & set(r["flags"]) and r["end"] != "unknown":
        exact(t, by, e, what, flags=r["flags"], rtt=False)
        return "exact"
    t.check(st["chunks"] is None or st["chunks"] <= e.chunks, f"{who}: {st['chunks']} chunks of {e.chunks}")
    t.check(r["tokens"]["completion"] in (None, e.tokens), f"{who}: {r['tokens']['completion']} tokens of {e.tokens}")
    t.check(st["ttft_ms"] is None or same_ms(st["ttft_ms"], e.ttft), f"{who}: ttft {st['ttft_ms']}, put in {e.ttft}; {r['flags']}")
    # where the last bytes are lost, it is over with the last that were seen
    t.check(st["duration_ms"] is None or st["duration_ms"] < e.duration or same_ms(st["duration_ms"], e.duration),
            f"{who}: duration {st['duration_ms']}, put in {e.duration}; {r['flags']}")
    t.check(r["end"] in ("complete", "unknown"), f"{who}: end {r['end']}; {r['flags']}")
    return r["end"]


def many(n=12, seed=1, requests=3, **kw):
    """(connections, what their records must say): interleaved, of all kinds."""
    rnd = g.generator(seed)
    conns, want = [], []
    for i in range(n):
        c = g.Conn(40000 + i, rtt=rnd.choice((0.05, 1, 20)), mss=rnd.choice((536, 1448, 9000)),
                   isn=(rnd.randrange(1 << 32), 0xffffffff - rnd.randrange(3000)))
        at = rnd.random() * 50
        c.open(at)
        at += 1
        for k in range(requests):
            last = k == requests - 1
            e = g.stream(c, at, f"c{i}-{k}", n=rnd.randrange(2, 12), ttft=rnd.choice((5, 20, 150)), gap=rnd.choice((1, 10, 40)),
                         size=rnd.choice((0, 100, 4000)), pad=rnd.choice((0, 5000)), chunked=not last or i % 3 > 0,
                         jitter=rnd, **kw)
            want.append(e)
            at += e.duration + 60 + rnd.random() * 100
        if i % 3:
            c.close(at)
        conns.append(c)
    return conns, want


@test(60, probe=False)
def pcap_formats(t):
    """pcap and pcapng, every link type, tags, IPv6 with extension headers."""
    files = 0
    for v6 in (False, True):
        c = g.Conn(40001, client="2001:db8::7" if v6 else "10.0.0.7", server="2001:db8::1" if v6 else "10.0.0.1")
        c.open(0)
        want = [g.stream(c, 5, "a", n=5, size=3000), g.stream(c, 300, "b", n=3)]
        c.close(600)
        for link in (g.ETHERNET, g.SLL, g.SLL2, 12, 101, 228 if not v6 else 229, g.NULL, g.LOOP):
            for how in ({"ng": False}, {"ng": True}, {"ng": False, "ns": False}, {"ng": True, "ns": False}, {"big": True}):
                by, s, err = pcap(t, g.by_time(c), how=dict(how, link=link))
                us = how.get("ns") is False
                for e in want:
                    exact(t, by, e, f"link {link} {how} ", us=us)
                t.equal((by["a"][0]["client"], by["a"][0]["server"]["port"]),
                        ({"address": "2001:db8::7" if v6 else "10.0.0.7", "port": 40001}, 8000), f"link {link}: peers")
                files += 1
        for opts in ({"vlan": (5,)}, {"vlan": (200, 5)}, {"vlan": (200, 201, 5)}, {"pad": 6}, {"total0": True},
                     *([{"ext": (0, 60)}, {"ext": (0, 44)}] if v6 else [])):
            for p in c.packets:
                p.opts = opts
            for link in (g.ETHERNET, g.SLL):
                by, s, err = pcap(t, g.by_time(c), how={"link": link})
                for e in want:
                    exact(t, by, e, f"{opts} ")
                files += 1
    t.note(f"{files} files")


@test(60, probe=False)
def pcap_many_connections(t):
    conns, want = many(30, 3)
    by, s, err = pcap(t, g.by_time(*conns))
    for e in want:
        exact(t, by, e)
    t.equal((s["handshakes"]["measured"], s["bytes"]["lost"], s["connections"]), (30, 0, 0),
            "handshakes, bytes lost, open connections")
    by, s, err = pcap(t, g.by_time(*conns), "--port", 8000)
    for e in want:
        exact(t, by, e, "--port ")
    by, s, err = pcap(t, g.by_time(*conns), "--port", 9999)
    t.equal((len(by), s["started"]), (0, 0), "records of another port")


@test(60, probe=False)
def pcap_out_of_order(t):
    """Captured twice, out of order, sent again with overlaps and other bytes: exact."""
    for seed in range(12):
        rnd = g.generator(seed)
        conns, want = many(6, seed)
        p = g.by_time(*conns)
        n = 0
        if seed % 4 != 3:
            p = g.reorder(p, rnd, window=6)
        if seed % 4 != 1:
            p, n = g.retransmit(p, rnd)
        if seed % 4 != 2:
            p = g.duplicate(p, rnd)
        by, s, err = pcap(t, p)
        for e in want:
            exact(t, by, e, f"seed {seed} ", rtt=False)
        t.equal(s["bytes"]["lost"], 0, f"seed {seed}: bytes lost")
        if n and seed % 4 == 3:
            t.check(sum(r[0]["network"]["retransmits"] for r in by.values()) > 0, f"seed {seed}: retransmits are 0")
        by, s, err = pcap(t, g.reorder(g.by_time(*conns), rnd, window=6, across=True))
        for e in want:
            honest(t, by, e, False, f"seed {seed}, across ")


@test(120, probe=False)
def pcap_loss(t):
    """Packets that the capture lost: what is not exact is marked."""
    got = collections.Counter()
    for seed in range(40):
        rnd = g.generator(1000 + seed)
        conns, want = many(6, seed)
        p, gone = g.drop(g.by_time(*conns), rnd, rnd.choice((0.002, 0.02, 0.1)),
                         what=(lambda x: True) if seed % 2 else (lambda x: bool(x.data)))
        if seed % 3 == 0:
            p = g.duplicate(p, rnd)
        lost_requests = {x.src[1] for x in gone if x.data and x.dst[1] == 8000}
        by, s, err = pcap(t, p, *(("--port", 8000) if seed % 5 == 0 else ()))
        for e in want:
            port = 40000 + int(e.xid[1:].split("-")[0])
            got[honest(t, by, e, port not in lost_requests, f"seed {seed} ")] += 1
        t.check(set(by) <= {e.xid for e in want} | {None}, f"seed {seed}: records {set(by)}")
    t.note(", ".join(f"{n} {k}" for k, n in sorted(got.items())))
    t.check(got["exact"] > 50 and got["complete"] > 5 and got["unknown"] > 5, f"{got}")


@test(60, probe=False)
def pcap_snaplen(t):
    """Cut packets: as many bytes are missing as the headers say."""
    for snap in (66 + 200, 66 + 700, 96, 66, 60):
        conns, want = many(5, snap)
        by, s, err = pcap(t, g.by_time(*conns), how={"snaplen": snap}, *(("--port", 8000) if snap < 80 else ()))
        for e in want:
            honest(t, by, e, False, f"snaplen {snap} ")
        if snap > 66 + 600:
            t.check(any(r[0]["flags"] == [] for r in by.values()), "no record is whole")
        t.check(any("truncated" in x["flags"] for r in by.values() for x in r) or snap < 300, f"snaplen {snap}: nothing is truncated")
        t.check(s["bytes"]["cut"] > 0 or snap < 80, f"snaplen {snap}: no bytes cut")


@test(60, probe=False)
def pcap_ends(t):
    """Who ended it, half closes, resets, a connection that goes on after the file."""
    want = {}

    def conn(i, **kw):
        c = g.Conn(41000 + i, **kw)
        c.open(0)
        return c
    a = conn(1)     # the client goes away: FIN, then RST for what comes after
    g.stream(a, 5, "client-fin", n=4, last=False)
    a.fin(57, "c", ack=False)
    a.send(60, "s", g.wrap(g.token(9)), ack=False)
    a.rst(61.5, "c")
    want["client-fin"] = "client_disconnect"
    b = conn(2)
    g.stream(b, 5, "client-rst", n=4, last=False)
    b.rst(57, "c")
    want["client-rst"] = "client_disconnect"
    c = conn(3)
    g.stream(c, 5, "server-fin", n=4, last=False)
    c.fin(57, "s")
    c.fin(59, "c")
    want["server-fin"] = "server_close"
    d = conn(4)
    g.stream(d, 5, "server-rst", n=4, last=False)
    d.rst(57, "s")
    want["server-rst"] = "server_close"
    e = conn(5)     # shutdown(SHUT_WR) after the request, the answer comes all the same
    r = g.chat("half-close")
    e.send(5, "c", r)
    e.fin(5.1, "c")
    e.send(10, "s", g.HEAD[True])
    for i in range(3):
        e.send(20 + 5 * i, "s", g.wrap(g.token(i)))
    e.send(40, "s", b"0\r\n\r\n")
    e.fin(41, "s")
    want["half-close"] = "complete"
    f = conn(6)
    g.stream(f, 5, "goes-on", n=4, last=False)
    want["goes-on"] = "unknown"
    h = conn(7)     # keep-alive probes and zero windows are no data
    x = g.stream(h, 5, "probes", n=3)
    for i in range(5):
        h.packet(100 + i, "c", g.ACK, b"\0", seq=h.seq["c"] - 1)
        h.packet(100.1 + i, "s", g.ACK)
        h.packet(100.2 + i, "s", g.ACK, seq=h.seq["s"] - 1)
    y = g.stream(h, 200, "probes-2", n=3)
    h.close(300)
    want["probes"] = want["probes-2"] = "complete"
    k = conn(8)     # the same addresses again, without a FIN in between
    g.stream(k, 5, "old", n=3, last=False)
    k2 = g.Conn(41008, isn=(777, 888))
    k2.open(80)
    z = g.stream(k2, 85, "new", n=3)
    k2.close(200)
    want["old"], want["new"] = "unknown", "complete"
    by, s, err = pcap(t, g.by_time(a, b, c, d, e, f, h, k, k2))
    for xid, end in want.items():
        if t.check(len(by.get(xid, [])) == 1, f"{xid}: {len(by.get(xid, []))} records"):
            t.equal(by[xid][0]["end"], end, f"{xid}: end")
            t.equal("lost_events" in by[xid][0]["flags"], False, f"{xid}: lost_events")
    for e in (x, y, z):
        exact(t, by, e)
    t.equal(s["bytes"]["lost"], 0, "bytes lost")


@test(60, probe=False)
def pcap_handshake(t):
    """Only a sample that can be trusted; the connection age; what was joined late."""
    conns, want = [], {}

    def add(i, xid, source, why, make):
        c = g.Conn(42000 + i, rtt=12.5)
        make(c)
        e = g.stream(c, 50, xid, n=3)
        conns.append(c)
        want[xid] = (e, source, why)
    add(0, "plain", 12.5, None, lambda c: c.open(20))

    def syn_again(c):
        c.packet(1, "c", g.SYN)
        c.open(20)

    def synack_again(c):
        c.open(20)
        p = next(p for p in c.packets if p.flags == g.SYN | g.ACK)
        c.packets.append(g.dataclasses.replace(p, ts=p.ts + 9 * g.MS))

    def seen_twice(c):
        c.open(20)
        c.packets = [x for p in c.packets for x in (p, g.dataclasses.replace(p, ts=p.ts + 2000))]

    def no_syn(c):
        c.open(20)
        del c.packets[0]

    def no_synack(c):
        c.open(20)
        del c.packets[1]

    def no_ack(c):
        c.open(20)
        del c.packets[2]

    def nothing(c):
        c.open(20)
        c.packets.clear()
    add(1, "syn-again", None, "handshake_untrusted", syn_again)
    add(2, "synack-again", None, "handshake_untrusted", synack_again)
    add(3, "seen-twice", 12.5, None, seen_twice)
    add(4, "no-syn", None, "handshake_untrusted", no_syn)
    add(5, "no-synack", None, "handshake_untrusted", no_synack)
    add(6, "no-ack", None, "handshake_untrusted", no_ack)
    add(7, "joined", None, "pre_attach", nothing)
    by, s, err = pcap(t, g.by_time(*conns))
    for xid, (e, rtt, why) in want.items():
        exact(t, by, e, rtt=False, flags=["pre_attach"] if xid == "joined" else [])
        if xid in by:
            n = by[xid][0]["network"]
            t.equal((n["rtt_ms"], by[xid][0]["missing"].get("network.rtt_ms")), (rtt, why), f"{xid}: rtt")
            if rtt:
                t.check(same_ms(n["age_s"], 0.03), f"{xid}: age {n['age_s']}")


@test(60, probe=False)
def pcap_joined_late(t):
    """The capture begins in the middle of a request, of a stream, between two."""
    for at in range(0, 400, 7):
        c = g.Conn(43000)
        c.open(0)
        want = [g.stream(c, 5 + 130 * k, f"r{k}", n=5, size=2000, pad=4000) for k in range(3)]
        c.close(500)
        other = g.Conn(43001)
        other.open(-50)
        first = g.stream(other, -40, "first", n=2)
        p = g.by_time(other, c)
        keep = [x for x in p if x.src[1] == 43001 or x.dst[1] == 43001 or x.ts >= g.START + at * g.MS]
        for args in ((), ("--port", 8000)):
            by, s, err = pcap(t, keep, *args)
            exact(t, by, first, f"from {at} ms ")
            for e in want:
                if e.start >= g.START + at * g.MS:
                    exact(t, by, e, f"from {at} ms {args} ", rtt=False, flags=["pre_attach"])
                elif e.xid in by:
                    honest(t, by, e, False, f"from {at} ms {args} ")
            for r in by.get(None, []):
                t.check({"partial", "pre_attach"} <= set(r["flags"]) and r["end"] == "unknown" and r["server_timing"]["ttft_ms"] is None,
                        f"from {at} ms: a record without id: {r['end']} {r['flags']} {r['server_timing']}")


@test(60, probe=False)
def pcap_not_http(t):
    """TLS and HTTP/2 are counted, other protocols are nobody's business without --port."""
    def talk(i, sport, *says):
        c = g.Conn(44000 + i, sport=sport)
        c.open(0)
        for k, (side, data) in enumerate(says):
            c.send(10 + k * 10, side, data)
        c.close(200)
        return c
    tls = talk(0, 443, ("c", b"\x16\x03\x01\x02\x00\x01" + bytes(500)), ("s", b"\x16\x03\x03" + bytes(3000)))
    h2 = talk(1, 8443, ("c", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(50)), ("s", bytes(100)))
    ssh = talk(2, 22, ("s", b"SSH-2.0-x\r\n"), ("c", b"SSH-2.0-y\r\n"), ("s", bytes(900)))
    other = talk(3, 8000, ("c", b"\0\1\2\3hello"), ("s", b"HTTP/1.1 200 OK\r\n\r\n"))
    slow = talk(4, 8000, ("c", b"\r\n"), ("c", b"P"), ("c", b"OST /v1/completions HTTP/1.1\r\nX-Request-Id: slow\r\nContent-Le"),
                ("c", b"ngth: 2\r\n\r\n{}"), ("s", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"))
    by, s, err = pcap(t, g.by_time(tls, h2, ssh, other, slow))
    t.equal(s["unobserved_connections"], {"tls": 1, "http2": 1, "other": 0, "io_uring": 0}, "unobserved")
    t.equal([(x["x_request_id"], x["end"], x["flags"], x["bytes"]) for r in by.values() for x in r],
            [("slow", "complete", [], {"request": 74, "response": 72, "request_body": 2, "response_body": 2})], "the one request")
    t.equal(s["bytes"]["lost"], 0, "bytes lost")
    by, s, err = pcap(t, g.by_time(tls, h2, ssh, other, slow), "--port", 8000, "--port", 443)
    t.equal(s["unobserved_connections"], {"tls": 1, "http2": 0, "other": 1, "io_uring": 0}, "unobserved with --port")


@test(60, probe=False)
def pcap_damaged_files(t):
    """One line, exit status 1, and the records of what was good before."""
    conns, want = many(3, 5)
    packets = g.by_time(*conns)
    size = 24 + sum(16 + len(p.frame(g.ETHERNET)) for p in packets)
    first = min(want, key=lambda e: e.start)
    for ng in (False, True):
        for cut in (1, 9, 97, size // 3):
            by, s, err = pcap(t, packets, how={"cut_file": cut, "ng": ng}, rc=1)
            t.check(len(err) == 1 and "cut short" in err[0], f"cut by {cut}: {err}")
            exact(t, by, first, f"cut by {cut} ")
    def bad(name, data, rc=1, lines=1):
        path = t.path(name)
        with open(path, "wb") as f:
            f.write(data)
        by, s, err = pcap(t, path=path, rc=rc)
        t.equal((by, len(err)), ({}, lines), f"{name}: {err}")
    bad("empty", b"")
    bad("short", b"\xd4\xc3")
    bad("text", b"this is not a capture at all, but some text\n" * 20)
    g.write(t.path("w.pcap"), packets, link=105)
    by, s, err = pcap(t, path=t.path("w.pcap"), rc=1)
    t.check(len(err) == 1 and "link type" in err[0], f"wireless: {err}")
    by, s, err = pcap(t, path=t.path("no-such-file"), rc=1)
    t.check(len(err) == 1 and "No such file" in err[0], f"no file: {err}")
    g.write(t.path("none.pcap"), [])
    by, s, err = pcap(t, path=t.path("none.pcap"))
    t.equal((by, s["started"]), ({}, 0), "a capture without packets")
    # any bit may be wrong: no crash, no hang
    good = open(t.path([n for n in os.listdir(t.dir) if n.endswith(".pcap")][0]), "rb").read()
    rnd = random.Random(5)
    for i in range(60):
        b = bytearray(good)
        for _ in range(rnd.choice((1, 20, 2000))):
            b[rnd.randrange(24 if i % 3 else 0, len(b))] ^= 1 << rnd.randrange(8)
        with open(t.path("flipped.pcap"), "wb") as f:
            f.write(b)
        r = subprocess.run([REQPROBE, "pcap", t.path("flipped.pcap"), "--jsonl", "/dev/null"], capture_output=True, text=True, timeout=20)
        t.check(r.returncode in (0, 1) and len(r.stderr.splitlines()) == 1, f"flipped {i}: {r.returncode} {r.stderr[-200:]}")


@test(60, probe=False)
def pcap_usage(t):
    if not os.access(REQPROBE, os.X_OK):
        raise Skip(f"{REQPROBE} is not there (make)")
    for args, rc in ((["pcap"], 2), (["pcap", "-i", "lo"], 2), (["pcap", "x", "-i", "lo", "--port", "1"], 2), (["pcap", "x", "--port", "0"], 2),
                     (["pcap", "x", "--port", "65536"], 2), (["pcap", "x", "--steps", "y"], 2), (["pcap", "x", "--pid", "1"], 2),
                     (["--pid", "1", "--port", "80"], 2), (["replay", "x", "-i", "lo"], 2), (["pcap", "-i", "no-such-if", "--port", "80"], None)):
        r = subprocess.run([REQPROBE] + args, capture_output=True, text=True, timeout=10)
        t.check(len(r.stderr.splitlines()) == 1 and r.stdout == "", f"{args}: {r.stderr}")
        if rc is not None:
            t.equal(r.returncode, rc, f"{args}: exit status")
    # a recording of packets replays to the same bytes, and has no text in it
    conns, want = many(4, 9)
    g.write(t.path("r.pcap"), g.by_time(*conns))
    one = subprocess.run([REQPROBE, "pcap", t.path("r.pcap"), "--itl", "--record", t.path("r.rec"), "--engine", "llamacpp"], capture_output=True)
    two = subprocess.run([REQPROBE, "replay", t.path("r.rec"), "--itl"], capture_output=True)
    t.check(one.stdout and one.stdout == two.stdout, "the replay of a recording differs")
    t.check(b"SECRET" not in open(t.path("r.rec"), "rb").read(), "text in the recording")
    t.check(b'"name":"llamacpp"' in one.stdout, "--engine has no effect")
    pipe = subprocess.run(f"cat {t.path('r.pcap')} | {REQPROBE} pcap - --itl --engine llamacpp", shell=True, capture_output=True)
    t.check(pipe.stdout == one.stdout, "from a pipe it differs")


@test(90, probe=False)
def pcap_flood(t):
    """Half-open connections, and more connections than are followed: bounded, counted."""
    c = g.Conn(40001, rtt=5)
    c.open(10)
    want = [g.stream(c, 50 + 300 * k, f"x{k}", n=5) for k in range(3)]
    c.close(1100)
    rnd = g.generator(2)
    flood = []
    for i in range(60000):
        flood.append(g.Packet(g.START + i * g.MS // 50, (f"10.{rnd.randrange(256)}.{rnd.randrange(256)}.9", rnd.randrange(1024, 65535)),
                              ("10.0.0.1", 8000), rnd.randrange(1 << 32), 0, g.SYN))
    g.write(t.path("syn.pcap"), sorted(c.packets + flood, key=lambda p: p.ts))
    by, s, err = pcap(t, None, "--port", 8000, "--memory", "16M", path=t.path("syn.pcap"))
    for e in want:
        exact(t, by, e)
    # one request on each of 3000 connections that stay open, 500 are followed
    conns, all_ = [], []
    for i in range(3000):
        k = g.Conn(20000 + i)
        k.open(i * 0.5)
        all_.append(g.stream(k, i * 0.5 + 1, f"i{i}", n=2, ttft=2, gap=1))
        conns.append(k)
    slow = g.Conn(60000)
    slow.open(-20)
    g.stream(slow, -10, "evicted", n=2, last=False)
    by, s, err = pcap(t, g.by_time(slow, *conns), "--max-connections", 500)
    for e in all_:
        exact(t, by, e)
    t.equal((by["evicted"][0]["end"], s["limits"]["conns"]), ("unknown", 0), "the end of a connection given up; refused ones")
    t.check("given up for newer ones" in err[-1], f"{err}")


def end_of_request(r):
    """Its instant in ns of the wall clock: start + receive_ms."""
    day, frac = r["start"].rstrip("Z").split(".")
    return calendar.timegm(time.strptime(day, "%Y-%m-%dT%H:%M:%S")) * 10**9 + int(frac.ljust(9, "0")) + round(r["phases"]["receive_ms"] * 1e6)


def compare(t, who, live, packets, late_us):
    """Records of the sockets and of the packets: the same, within 300 us at p99. How
    long a request lay in the socket until the server read it is in the packets' TTFT
    only: both tell when they had its last byte, so it can be taken out."""
    limit = max(300.0, 2 * late_us)     # late: the server's own timers
    a, b = ({r["x_request_id"]: r for r in x} for x in (live, packets))
    t.equal(sorted(b), sorted(a), f"{who}: requests")
    ttft, gaps, waits, rtt = [], [], [], []
    for x in sorted(set(a) & set(b)):
        for k in ("end", "status", "stream", "model", "operation", "path", "finish_reason", "bytes", "client", "server", "connection", "flags",
                  "tokens", "choices"):
            t.equal(b[x][k], a[x][k], f"{who}: {x}: {k}")
        p, q = a[x]["server_timing"], b[x]["server_timing"]
        t.equal(q["chunks"], p["chunks"], f"{who}: {x}: chunks")
        t.equal(b[x]["network"]["retransmits"], a[x]["network"]["retransmits"], f"{who}: {x}: retransmits")
        if p["ttft_ms"] is not None and q["ttft_ms"] is not None:
            wait = (end_of_request(a[x]) - end_of_request(b[x])) / 1e3
            waits.append(wait)
            ttft.append(abs(q["ttft_ms"] * 1e3 - wait - p["ttft_ms"] * 1e3))
        m, n = a[x].get("icl_ms") or [], b[x].get("icl_ms") or []
        if t.check(len(m) == len(n), f"{who}: {x}: {len(n)} gaps, {len(m)} at the sockets"):
            gaps += [abs(u - v) * 1e3 for u, v in zip(m, n)]
        u, v = a[x]["network"]["rtt_ms"], b[x]["network"]["rtt_ms"]
        if t.check((u is None) == (v is None), f"{who}: {x}: rtt {v}, {u} at the sockets") and u is not None:
            rtt.append(abs(u - v) * 1e3)
    for what, e in (("ttft", ttft), ("gaps", gaps)):
        t.check(e and percentile(e, .99) <= limit, f"{who}: {what} differ by {percentile(e, .99):.0f} us at p99 ({len(e)})")
        t.note(f"{who} {what} p50 {percentile(e, .5):.0f} p99 {percentile(e, .99):.0f} max {max(e, default=0):.0f} us")
    t.check(percentile(waits, .5) <= 100 and min(waits) > -20, f"{who}: requests lay in the socket for p50 {percentile(waits, .5):.0f}, at least {min(waits):.0f} us")
    t.note(f"{who} read late by p50 {percentile(waits, .5):.0f} p99 {percentile(waits, .99):.0f} us")
    if rtt:
        t.note(f"{who} rtt p99 {percentile(rtt, .99):.0f} us")


class Capture:
    """reqprobe pcap -i, as a child."""

    def __init__(self, t, port, *args, iface="lo", name="cap"):
        self.t, self.jsonl, self.err = t, t.path(f"{name}.jsonl"), t.path(f"{name}.err")
        with open(self.err, "wb") as e:
            self.proc = t.spawn([REQPROBE, "pcap", "-i", iface, "--port", str(port), "--jsonl", self.jsonl, "--itl", *args],
                                stdout=subprocess.DEVNULL, stderr=e)
        end = time.monotonic() + 10
        while "capturing on" not in open(self.err).read():
            if time.monotonic() > end or self.proc.poll() is not None:
                raise AssertionError(f"pcap -i did not start: {open(self.err).read()[-300:]}")
            time.sleep(0.01)

    def stop(self):
        self.proc.send_signal(signal.SIGINT)
        self.t.equal(self.proc.wait(20), 0, "exit status of pcap -i")
        records, self.summary = read_jsonl(self.jsonl)
        for r in records + [self.summary]:
            validate(self.t.name, r)
        return records


def tcpdump(t, port, path, *args):
    exe = shutil.which("tcpdump") or shutil.which("tcpdump", path="/usr/sbin:/sbin")
    if not exe:
        raise Skip("tcpdump is not installed (scripts/deps test)")
    p = t.spawn([exe, "-i", "lo", "-w", path, "-U", "-B", "16384", "--time-stamp-precision=nano", *args, "tcp", "port", str(port)],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    line = p.stderr.readline()
    while "listening on" not in line:
        if not line:
            raise Skip("tcpdump can't capture here")
        line = p.stderr.readline()
    return p


@test(120)
def pcap_against_sockets(t):
    """One run, seen by sockets, by tcpdump, and by reqprobe pcap -i."""
    srv = t.paced(listen="[::]:0")
    p = t.probe(srv)
    dump = tcpdump(t, srv.port, t.path("run.pcap"))
    cap = Capture(t, srv.port)
    any_ = Capture(t, srv.port, iface="any", name="any")
    n = 0
    for k, f in enumerate(FRAMINGS):
        run_client(t, srv.port, n=100, c=4, usage=True, max_tokens=20, seed=1 + k * 1000, id=f"s{k}", keepalive=k == 0,
                   extra={"gap_us": 10000, "ttft_us": 20000, "framing": f})
        n += 100
    run_client(t, f"[::1]:{srv.port}", n=16, c=2, usage=True, max_tokens=20, id="six", extra={"gap_us": 5000, "ttft_us": 5000, "chunk_bytes": 3000})
    run_client(t, srv.port, n=16, c=4, stream=False, max_tokens=10, id="whole", keepalive=True, extra={"gap_us": 2000, "ttft_us": 2000})
    n += 32
    live = p.finish(n)
    packets, everywhere = cap.stop(), any_.stop()
    dump.send_signal(signal.SIGINT)
    dump.wait(10)
    late = srv.stop()["late_p99_us"]
    t.equal(len(live), n, "records of the sockets")
    t.equal((cap.summary["events_lost"]["data"], cap.summary["bytes"]["lost"]), (0, 0), "lost by the capture")
    compare(t, "-i", live, packets, late)
    compare(t, "-i any", live, everywhere, late)
    by, s, err = pcap(t, path=t.path("run.pcap"))
    compare(t, "tcpdump", live, [x for r in by.values() for x in r], late)


@test(60)
def pcap_interface_loss(t):
    """A capture that can't keep up says so, and its records do."""
    srv = t.paced()
    cap = Capture(t, srv.port, "--ring", "64K")
    cap.proc.send_signal(signal.SIGSTOP)
    run_client(t, srv.port, n=24, c=8, usage=True, max_tokens=100, id="x", extra={"gap_us": 1000, "ttft_us": 1000, "chunk_bytes": 2000})
    cap.proc.send_signal(signal.SIGCONT)
    records = cap.stop()
    srv.stop()
    s = cap.summary
    t.check(s["events_lost"]["data"] > 0, f"nothing was dropped: {s['events_lost']}")
    for r in records:
        whole = r["end"] == "complete" and not MARKS & set(r["flags"])
        t.check(not whole or (r["server_timing"]["chunks"], r["tokens"]["completion"]) == (100, 100),
                f"{r['x_request_id']}: {r['end']} {r['flags']} {r['server_timing']['chunks']} chunks")
    t.check("dropped by the kernel" in open(cap.err).read(), "not a word of the drops")
    t.note(f"{s['events_lost']['data']} of {s['events_seen']['data']} packets dropped, {len(records)} records, "
           f"{sum(1 for r in records if MARKS & set(r['flags']))} marked")


@test(120, probe=False)
def pcap_throughput(t):
    """A large file: what it costs, and that memory does not grow with it."""
    if not os.access(REQPROBE, os.X_OK):
        raise Skip(f"{REQPROBE} is not there (make)")
    exe, rss = t.path("gen"), []
    subprocess.run([os.environ.get("CC", "gcc"), "-O2", os.path.join(ROOT, "tests", "bench", "pcap.c"), "-o", exe], check=True)
    for mb in (20, 200):
        with open(t.path("big.pcap"), "wb") as f:
            subprocess.run([exe, str(mb)], stdout=f, stderr=subprocess.DEVNULL, check=True)
        p = subprocess.Popen([REQPROBE, "pcap", t.path("big.pcap"), "--jsonl", t.path("big.jsonl")], stderr=subprocess.DEVNULL)
        t.children.append(p)
        top, done = 0, 0
        while not done:     # getrusage(2) would count what was there before exec
            with contextlib.suppress(OSError, TypeError):
                top = max(top, proc_rss(p.pid, "VmHWM"))
            time.sleep(0.005)
            done, status, ru = os.wait4(p.pid, os.WNOHANG)
        p.returncode = os.waitstatus_to_exitcode(status)
        t.equal(p.returncode, 0, "exit status")
        rss.append(top >> 10)
    rate = mb / (ru.ru_utime + ru.ru_stime)
    t.note(f"{rate:.0f} MB/s of one core; {rss[1] / 1024:.1f} MiB at most ({rss[0] / 1024:.1f} with a tenth of it)")
    t.check(rate >= 150, f"{rate:.0f} MB/s")
    t.check(rss[1] < rss[0] + 2048 and rss[1] < 24 << 10, f"resident: {rss} KiB")


@test(30)
def pcap_not_permitted(t):
    r = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", "-all", "--inh-caps", "-all",
                        REQPROBE, "pcap", "-i", "lo", "--port", "80"], capture_output=True, text=True, timeout=10)
    t.equal((r.returncode, len(r.stderr.splitlines())), (3, 1), f"exit status, lines ({r.stderr})")
    t.check("CAP_NET_RAW" in r.stderr, f"{r.stderr}")
