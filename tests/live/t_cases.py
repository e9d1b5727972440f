# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""CASES, each with its expected values and as one of its kind."""

import contextlib, ctypes, gzip, json, os, random, shutil, signal, socket, ssl, subprocess, sys, time
from harness import *


def both(t, handler, body=None, pad=0):
    """The same script in both framings: {framing: (record, truth)}."""
    srv = t.server(handler)
    p = t.probe(srv)
    for f in FRAMINGS:
        c = Client(srv)
        c.ask(f"x-{f}", framing=f, body=body, pad=pad)
        c.close()
    recs = p.finish(2)
    t.equal(len(recs), 2, "records")
    return {f: (only(t, recs, f"x-{f}"), srv.truth(f"x-{f}")) for f in FRAMINGS}, p


@test(60)
def a1_split_stream(t):
    """Chunk framing first, events second; an event's instant is that of the call
    that brings its closing blank line."""
    def h(c, r):
        c.begin()
        tok = TOK("a")
        half = len(tok) // 2
        if r.framing == "chunked":
            c.send(b"%x\r\n" % len(tok), 100, "size")
        c.send(tok[:half], 120, "half")
        c.send(tok[half:] + (b"\r\n" if r.framing == "chunked" else b""), 140, "tok")
        last = b"".join(c.wrap(TOK(x)) for x in "bcd") + c.tail()
        c.send(last, 200, "tok")
        if r.framing != "chunked":
            c.close()
    for what, pad in (("small", 0), ("300 KB request", 300_000)):
        got, _ = both(t, h, pad=pad)
        for f, (r, truth) in got.items():
            stream_is(t, r, truth, ttft=140, chunks=4)
            if r:
                gaps = truth.gaps()
                icl = r["icl_ms"] or []
                t.check(len(icl) == 3 and icl[1:] == [0, 0], f"{what} {f}: icl_ms {icl}, expected [60, 0, 0]")
                if icl:
                    t.near(icl[0], 60, f"{what} {f}: gap", 5, gaps[0])


@test(60)
def a1_large_event(t):
    def h(c, r):
        c.begin()
        c.event(TOK("a"), 50, "tok")
        c.event(TOK("b" * 200_000), 100, "tok")
        c.event(TOK("c"), 150, "tok")
        c.end(160)
    got, _ = both(t, h)
    for f, (r, truth) in got.items():
        stream_is(t, r, truth, ttft=50, gaps=[50, 50], chunks=3)


@test(90)
def a1_random_splits(t):
    """The same bytes cut at random points (seeded) give the same record."""
    def h(c, r):
        rnd = random.Random(r.xid)
        whole = c.head() + b"".join(c.wrap(x) for x in [ROLE] + [TOK(f"w{i}") for i in range(12)] + [USAGE(12)]) + c.tail()
        cuts = sorted(rnd.sample(range(1, len(whole)), rnd.randint(1, 60)))
        for a, b in zip([0] + cuts, cuts + [len(whole)]):
            c.send(whole[a:b])
        if r.framing != "chunked":
            c.close()
    srv = t.server(h)
    p = t.probe(srv)
    n = 60
    for i in range(n):
        c = Client(srv)
        c.ask(f"s{i}", framing=FRAMINGS[i % 2])
        c.close()
    recs = p.finish(n)
    t.equal(len(recs), n, "records")
    for i in range(n):
        r = only(t, recs, f"s{i}")
        if r:
            t.equal((r["end"], r["server_timing"]["chunks"], r["tokens"]["completion"], r["tokens"]["source"], r["flags"]),
                    ("complete", 12, 12, "usage", []), f"s{i}")
    t.note(f"{n} streams")


@test(60)
def a1_every_byte(t):
    """One byte per write."""
    def h(c, r):
        whole = c.head() + c.wrap(TOK("a")) + c.wrap(TOK("b")) + c.tail()
        for i in range(len(whole)):
            c.send(whole[i:i + 1])
        if r.framing != "chunked":
            c.close()
    got, _ = both(t, h)
    for f, (r, _) in got.items():
        if r:
            t.equal((r["end"], r["server_timing"]["chunks"]), ("complete", 2), f)


def tls_context(t):
    crt, key = t.path("crt.pem"), t.path("key.pem")
    r = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-keyout", key, "-out", crt], capture_output=True)
    if r.returncode:
        raise Skip("no openssl")
    return crt, key


@test(60)
def a3_tls_unobserved(t):
    """asyncio TLS, two clients at once: no record, two unobserved TLS connections."""
    crt, key = tls_context(t)

    prog = t.path("tls.py")
    with open(prog, "w") as f:
        f.write(f"""
import asyncio, ssl
async def h(r, w):
    head = await r.readuntil(b"\\r\\n\\r\\n")
    n, gap = (10, .05) if b"x-a" in head else (7, .07)
    w.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nConnection: close\\r\\n\\r\\n")
    for i in range(n):
        w.write(b'data: {{"choices":[{{"index":0,"delta":{{"content":"x"}}}}]}}\\n\\n')
        await w.drain()
        await asyncio.sleep(gap)
    w.close()
async def main():
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain({crt!r}, {key!r})
    s = await asyncio.start_server(h, "127.0.0.1", 0, ssl=c)
    print(s.sockets[0].getsockname()[1], flush=True)
    await s.serve_forever()
asyncio.run(main())
""")
    srv = t.spawn([sys.executable, prog], stdout=subprocess.PIPE, text=True)
    port = int(srv.stdout.readline())
    p = t.probe(srv)
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
    socks = []
    for x in ("x-a", "x-b"):
        s = ctx.wrap_socket(socket.create_connection(("127.0.0.1", port), 20))
        s.sendall(f"GET /v1/chat/completions HTTP/1.1\r\nX-Request-Id: {x}\r\n\r\n".encode())
        socks.append(s)
    for s in socks:
        got = b""
        while True:
            d = s.recv(65536)
            if not d:
                break
            got += d
        t.check(got.count(b"data:") in (7, 10), "the server itself works")
        s.close()
    time.sleep(0.3)
    m = p.metrics()
    t.equal(m.sum("reqprobe_unobserved_connections_total", protocol="tls"), 2, "unobserved tls connections")
    t.equal(m.sum("reqprobe_requests_total") or 0, 0, "requests")
    recs = p.stop()
    t.equal(len(recs), 0, "records")
    t.check("TLS" in p.stderr() or "tls" in p.stderr(), "no line on stderr that speaks of TLS")


@test(60)
def a3_http2_unobserved(t):
    def raw(c):
        c.sock.recv(4096)
        c.sock.sendall(b"\0\0\0\4\0\0\0\0\0")
        time.sleep(0.05)
        c.sock.close()
    srv = t.server(None, raw=raw)
    p = t.probe(srv)
    for _ in range(3):
        c = Client(srv)
        c.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        c.read_some(9)
        c.close()
    time.sleep(0.3)
    m = p.metrics()
    t.equal(m.sum("reqprobe_unobserved_connections_total", protocol="http2"), 3, "unobserved http2 connections")
    t.equal(len(p.stop()), 0, "records")


def slow20(c, r):
    c.begin()
    for i in range(20):
        c.event(TOK(f"w{i}"), 50 * (i + 1), "tok")
    c.end()


@test(60)
def a6_rst_mid_stream(t):
    """The client resets after 3 tokens: what was seen is reported, nothing invented."""
    srv = t.server(slow20)
    p = t.probe(srv)
    for f in FRAMINGS:
        for how in ("rst", "close"):
            c = Client(srv)
            c.send(chat(f"x-{f}-{how}", framing=f))
            while c.buf.count(b"data:") < 3:
                c._more()
            getattr(c, how)()
    recs = p.finish(4)
    for f in FRAMINGS:
        for how in ("rst", "close"):
            r = only(t, recs, f"x-{f}-{how}")
            if r:
                t.equal((r["status"], r["end"]), (200, "client_disconnect"), f"{f} {how}: status, end")
                t.check(r["server_timing"]["ttft_ms"] is not None, f"{f} {how}: no ttft")
                t.check(3 <= (r["server_timing"]["chunks"] or 0) <= 5, f"{f} {how}: chunks {r['server_timing']['chunks']}, expected 3 to 5")


@test(60)
def a6_attach_mid_stream(t):
    """Attached half way: no TTFT made up; the next request on the connection is right."""
    srv = t.server(slow20)
    c = Client(srv)
    c.send(chat("x-half"))
    while c.buf.count(b"data:") < 8:
        c._more()
    p = t.probe(srv)
    in_time = c.buf.count(b"data:") < 20
    c.response()
    time.sleep(0.1)
    m = p.metrics()
    t.equal(hist_count(m, "reqprobe_time_to_first_token_seconds"), 0, "TTFT samples of a request whose start was not seen")
    c.ask("x-next")
    c.close()
    p.wait_records(1)
    recs = p.finish()
    t.check(in_time, "the answer was over before the attach was")
    r = only(t, recs, "x-next")
    stream_is(t, r, srv.truth("x-next"), ttft=50, gaps=[50] * 19, chunks=20)
    if r:
        t.check("pre_attach" in r["flags"], f"flags {r['flags']}: pre_attach is missing")
        t.check(r["network"]["rtt_ms"] is None, "an RTT for a connection older than the attach")
    others = [x for x in recs if x["x_request_id"] != "x-next"]
    t.check(len(others) <= 1, f"{len(others)} records for the request under way")
    for r in others:
        st = r["server_timing"]
        t.check(st["ttft_ms"] is None and r["metrics"]["queue_time_ms"] is None, f"made-up ttft {st['ttft_ms']}")
        t.check(r["end"] == "unknown" or "partial" in r["flags"], f"end {r['end']}, flags {r['flags']}")
    t.note(f"{len(others)} partial record")


@test(90)
def a8_vectored_writes(t):
    """writev and sendmsg of 1 to 1024 segments on one keep-alive connection, each
    followed by a plain request."""
    sizes = (1, 2, 3, 42, 43, 64, 65, 127, 257, 1023, 1024)

    def h(c, r):
        if r.xid.startswith("plain"):
            c.begin()
            c.event(TOK("a"), 10, "tok")
            c.event(TOK("b"), 20, "tok")
            c.end()
            return
        how, n = r.xid.split("-")
        toks = [TOK(f"w{i}") for i in range(int(n) - 1)]
        body = sum(map(len, toks))
        c.vector(how, [f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {body}\r\n\r\n".encode()] + toks, "tok")
    srv = t.server(h)
    p = t.probe(srv)
    c = Client(srv)
    want = []
    for how in ("writev", "sendmsg"):
        for n in sizes:
            c.ask(f"{how}-{n}")
            c.ask(f"plain-{how}-{n}")
            want.append((how, n))
    c.close()
    recs = p.finish(len(want) * 2)
    t.equal(len(recs), len(want) * 2, "records")
    for how, n in want:
        r = only(t, recs, f"{how}-{n}")
        if r and "truncated" not in r["flags"]:
            t.equal(r["server_timing"]["chunks"], n - 1, f"{how}, {n} segments: chunks")
            t.check(not any(r["icl_ms"] or []), f"{how}, {n} segments: gaps inside one call")
            t.equal(r["end"], "complete", f"{how}, {n} segments: end")
        elif r:
            t.note(f"{how} {n}: truncated")
            t.equal(r["end"], "complete", f"{how}, {n} segments: end")
        r = only(t, recs, f"plain-{how}-{n}")
        if r:
            t.equal((r["end"], r["server_timing"]["chunks"]), ("complete", 2), f"the request after {how}, {n} segments")


@test(60)
def a8_vectored_odd_segments(t):
    """Empty segments, one-byte segments, and one segment beyond the capture limit:
    the framing of the connection survives, the byte count is exact."""
    def h(c, r):
        if r.xid == "plain":
            return c.json({"id": "c1", "choices": [{"index": 0, "message": {"content": "x"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 7}})
        rnd = random.Random(r.xid)
        data = b"".join(TOK(f"w{i}") for i in range(20))
        if r.xid == "huge":
            data += TOK("z" * 3_000_000) + TOK("last")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        whole, parts = head + data, []
        if r.xid == "huge":
            parts = [whole]
        elif r.xid == "bytes":
            parts = [whole[i:i + 1] for i in range(900)] + [whole[900:]]
        else:
            i = 0
            while i < len(whole) and len(parts) < 900:
                n = rnd.choice((0, 0, 1, 2, 50, 300))
                parts.append(whole[i:i + n])
                i += n
            parts.append(whole[i:])
        c.vector("sendmsg" if r.xid == "sm" else "writev", parts, "tok")
    srv = t.server(h)
    p = t.probe(srv)
    c = Client(srv)
    n = {}
    for x in ("wv", "sm", "bytes", "huge", "plain"):
        n[x] = c.ask(x, stream=x != "plain")
    c.close()
    recs = p.finish(5)
    for x in ("wv", "sm", "bytes"):
        r = only(t, recs, x)
        if r:
            t.equal((r["end"], r["server_timing"]["chunks"], r["flags"]), ("complete", 20, []), x)
    r = only(t, recs, "huge")
    if r:
        t.check(r["bytes"]["response"] > 3_000_000, f"huge: {r['bytes']['response']} bytes")
        t.equal(r["end"], "complete", "huge: end")
        t.check("truncated" in r["flags"] or r["server_timing"]["chunks"] == 22, f"huge: {r['server_timing']['chunks']} chunks, flags {r['flags']}")
        t.note(f"3 MB write: chunks {r['server_timing']['chunks']}, flags {r['flags']}")
    r = only(t, recs, "plain")
    if r:
        t.equal((r["end"], r["tokens"]["completion"]), ("complete", 7), "the request after")


class Messages:
    """A socket whose bytes go by recvmmsg(2) and sendmmsg(2)."""

    class Iovec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

    class Msg(ctypes.Structure):
        _fields_ = [(n, ctypes.c_size_t) for n in ("name", "namelen", "iov", "iovlen", "control", "controllen")] + \
                   [("flags", ctypes.c_int), ("pad", ctypes.c_int), ("len", ctypes.c_uint), ("pad2", ctypes.c_int)]

    def __init__(self, sock):
        self.sock = sock

    def __getattr__(self, name):
        return getattr(self.sock, name)

    def call(self, name, pieces, flags):
        """pieces: [[buffer, ...] of each message]; returns the bytes of each message."""
        iovs = [(self.Iovec * len(m))(*[(ctypes.addressof(b), len(b)) for b in m]) for m in pieces]
        msgs = (self.Msg * len(pieces))(*[(0, 0, ctypes.addressof(v), len(v), 0, 0, 0, 0, 0, 0) for v in iovs])
        assert ctypes.sizeof(self.Msg) == 64
        libc = ctypes.CDLL(None, use_errno=True)
        n = getattr(libc, name)(self.sock.fileno(), msgs, len(msgs), flags, *[None] * (name == "recvmmsg"))
        if n < 0:
            raise OSError(ctypes.get_errno(), name)
        return [m.len for m in msgs[:n]]

    def recv(self, size):
        pieces = [[ctypes.create_string_buffer(k)] for k in (1, 50, size)]
        got = self.call("recvmmsg", pieces, 0x10000)     # MSG_WAITFORONE
        return b"".join(m[0].raw[:n] for m, n in zip(pieces, got))

    def send(self, data):
        step = max(1, len(data) // 7)
        parts = [ctypes.create_string_buffer(bytes(data[i:i + step]), len(data[i:i + step])) for i in range(0, len(data), step)]
        return sum(self.call("sendmmsg", [parts[i:i + 3] for i in range(0, len(parts), 3)], 0))

    def sendall(self, data):
        while data:
            data = data[self.send(data):]


def several_messages(t, *args):
    def raw(c):
        plain, several = c.sock, Messages(c.sock)
        while True:
            c.sock = plain if args else several
            if not c.read_request():
                return
            c.sock = several
            c.begin()
            for i in range(3):
                c.event(TOK(f"w{i}"), 20 * (i + 1), "tok")
            c.end(70)
    srv = t.server(None, raw=raw)
    p = t.probe(srv, args=args)
    c = Client(srv)
    for x in ("x0", "x1"):
        c.ask(x, pad=3000)
    c.close()
    recs = p.finish(2)
    return srv, [only(t, recs, x) for x in ("x0", "x1")]


@test(60)
def a8_several_messages(t):
    """Each message of recvmmsg and sendmmsg is a call of its own, with segments of its own."""
    srv, recs = several_messages(t)
    for r in recs:
        if r:
            stream_is(t, r, srv.truth(r["x_request_id"]), ttft=20, gaps=[20, 20], chunks=3)
            t.equal((r["end"], r["flags"]), ("complete", []), "end, flags")


@test(60)
def a8_several_messages_sockets(t):
    """The tracepoints of sockets show that they were sent, not what: nothing is made up."""
    first, second = several_messages(t, "--sockets")[1]
    if first and second:
        t.equal((first["end"], first["flags"], first["missing"].get("server_timing")), ("unknown", ["partial", "truncated"], "truncated"), "the first")
        t.equal((second["end"], second["server_timing"]["ttft_ms"], second["tokens"]["completion"]), ("unknown", None, None), "what comes behind")


@test(90)
def a10_workers(t):
    """Master with three workers and a sibling server: descendants and nothing else."""
    def h(c, r):
        if r.xid == "victim":
            return slow20(c, r)
        c.begin()
        c.event(TOK("a"), 5, "tok")
        c.end()
    sibling = t.server(h)
    srv = t.server(h, workers=3)
    p = t.probe(srv)

    def burst(where, prefix, n):
        cs = [Client(where) for _ in range(n)]
        for i, c in enumerate(cs):
            c.send(chat(f"{prefix}{i}"))
        for c in cs:
            c.response()
            c.close()
    burst(srv, "a", 30)
    burst(sibling, "s", 10)
    c = Client(srv)
    c.send(chat("victim"))
    while c.buf.count(b"data:") < 5:
        c._more()
    pid = srv.log("victim")[0]["pid"]
    workers = {x["pid"] for x in srv.log("") if x["name"] == "worker"}
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 5
    while time.monotonic() < end and len({x["pid"] for x in srv.log("") if x["name"] == "worker"}) < 4:
        time.sleep(0.02)
    c.close()
    burst(srv, "b", 10)
    # make sure the new worker answers, too
    fresh = ({x["pid"] for x in srv.log("") if x["name"] == "worker"} - workers).pop()
    extra = 0
    while not any(x["pid"] == fresh and x["xid"] for x in srv.log()) and extra < 200:
        ask(srv, f"e{extra}")
        extra += 1
    recs = p.finish(41 + extra)
    t.equal(len(recs), 41 + extra, "records")
    t.equal(sum(r["x_request_id"].startswith("s") for r in recs), 0, "records of the sibling")
    r = only(t, recs, "victim")
    if r:
        t.equal(r["end"], "server_close", "end of the killed worker's request")
    by_pid = {}
    for x in srv.log():
        if x["name"] == "request":
            by_pid[x["xid"]] = x["pid"]
    wrong = [r["x_request_id"] for r in recs if by_pid.get(r["x_request_id"]) != r["engine"]["pid"]]
    t.check(not wrong, f"records with another pid than the worker's: {wrong[:5]} "
                       f"(e.g. {[(r['engine']['pid'], by_pid.get(r['x_request_id'])) for r in recs if r['x_request_id'] in wrong[:2]]})")
    t.note(f"{len(set(by_pid.values()))} workers answered")


@test(120)
def a11_stopped_reader(t):
    """SIGSTOP for 5 s under 8 MB/s: losses counted, told, and never timed."""
    srv = t.paced()
    p = t.probe(srv)
    cl = t.spawn(client_argv(srv.port, n=20, c=20, max_tokens=1200, extra={"gap_us": 10000, "ttft_us": 20000, "chunk_bytes": 4096},
                             timeout=60), stdout=subprocess.PIPE, text=True)
    time.sleep(2)
    os.kill(p.pid, signal.SIGSTOP)
    time.sleep(5)
    os.kill(p.pid, signal.SIGCONT)
    out, _ = cl.communicate(timeout=60)
    t.equal(cl.returncode, 0, "client")
    p.wait_metric("reqprobe_requests_in_flight", 0, 10)
    m = p.metrics()
    t.equal(m.sum("reqprobe_requests_in_flight"), 0, "in flight 10 s after")
    lost = m.by("reqprobe_events_lost_total", "class")
    seen = m.by("reqprobe_events_total", "class")
    recs = p.stop()
    stats = srv.stop()
    truth = srv.truth()
    # one event per write of the server, one per read; a request is one read
    calls = stats["writes"] - stats["stalls"] + 20
    t.check(calls <= seen.get("data", 0) <= calls * 1.02 + 100, f"seen {seen.get('data')} data events, the server made {calls} calls")
    t.check(sum(lost.values()) > 0, f"nothing lost: {lost}")
    s = p.summary
    if t.check(s is not None, "no summary"):
        got = find_loss(s)
        t.check(got == {k: int(v) for k, v in lost.items() if v} or got == {k: int(v) for k, v in lost.items()},
                f"summary says {got}, /metrics says {lost}")
    t.check(set(seen) == set(lost), f"classes of reqprobe_events_total {sorted(seen)} and of reqprobe_events_lost_total {sorted(lost)}")
    for k in lost:
        t.check(seen.get(k, 0) >= lost[k], f"{k}: seen {seen.get(k)}, lost {lost[k]}")
    t.equal(len(recs), 20, "records")
    worst = max(b - a for x in truth.values() for a, b in zip(x["token_ns"], x["token_ns"][1:])) / 1e6
    for r in recs:
        flagged = "lost_events" in r["flags"]
        if not flagged:
            t.check(max(r["icl_ms"] or [0]) <= worst + 1, f"{r['x_request_id']}: gap {max(r['icl_ms'])}, real maximum {worst:.1f}, not flagged")
            t.equal(r["server_timing"]["chunks"], 1200, f"{r['x_request_id']} is not flagged: chunks")
    t.check(any("lost_events" in r["flags"] for r in recs), "no record is flagged")
    itl_max = hist_max(m, "reqprobe_inter_token_latency_seconds")
    t.check(itl_max is None or itl_max <= 0.5, f"a gap of up to {itl_max} s in the ITL histogram (real maximum {worst:.1f} ms)")
    t.note(f"lost {int(sum(lost.values()))} of {int(sum(seen.values()))} events, {sum('lost_events' in r['flags'] for r in recs)} of {len(recs)} flagged")


def find_loss(s):
    """{class: lost} from a summary, however it is nested."""
    for k in ("events_lost", "lost", "loss"):
        v = s.get(k)
        if isinstance(v, dict):
            if "lost" in v and isinstance(v["lost"], dict):
                v = v["lost"]
            return {a: int(b["lost"] if isinstance(b, dict) else b) for a, b in v.items()
                    if not isinstance(b, dict) or "lost" in b}
    return None


def hist_max(m, name):
    """Upper bound of the highest bucket that holds a sample."""
    b = {}
    for (n, l), v in m.items():
        if n == name + "_bucket":
            le = dict(l)["le"]
            b[float(le)] = b.get(float(le), 0) + v
    prev, top = 0, None
    for le in sorted(b):
        if b[le] > prev:
            top = le
        prev = b[le]
    return top


@test(60)
def a14_go_binary(t):
    """No return probe in a Go binary, ever."""
    exe = t.path("go-server")
    with open(t.path("info"), "wb") as f:
        f.write(b"\xff Go buildinf:" + b"\x08\x02" + b"\0" * 16 + b"\x08go1.23.4" + b"\0" * 32)
    if subprocess.run(["objcopy", "--add-section", f".go.buildinfo={t.path('info')}", "--set-section-flags",
                       ".go.buildinfo=alloc,readonly", os.path.join(BIN, "fake_llama"), exe], capture_output=True).returncode:
        raise Skip("objcopy does not work here")
    srv = t.paced(exe=exe)
    p = t.probe(srv)
    bad = []
    for (kind, i), (name, pids, o) in bpf_objects().items():
        if kind == "link" and p.pid in pids and ("uretprobe" in json.dumps(o) or o.get("retprobe")):
            bad.append(i)
    t.check(not bad, f"return probes: links {bad}")
    r = subprocess.run(["bpftool", "perf"], capture_output=True, text=True)
    t.check(not any(f"pid {p.pid} " in l and "uretprobe" in l for l in r.stdout.splitlines()), "bpftool perf lists a uretprobe")
    run_client(t, srv.port, n=20, c=4, max_tokens=5, extra={"gap_us": 2000, "ttft_us": 2000})
    recs = p.finish(20)
    t.equal(len(recs), 20, "records")
    t.equal(srv.proc.poll(), None, "the server is alive")


@test(60)
def a15_stripped(t):
    """A stripped engine: one line names the file and the symbols, the socket side
    works, queue time is null with its reason."""
    exe = t.path("llama-server")
    if subprocess.run(["strip", "-s", "-o", exe, os.path.join(BIN, "fake_llama")]).returncode:
        raise Skip("no strip")
    srv = t.paced(exe=exe)
    p = t.probe(srv, args=["--engine", "llamacpp"])
    run_client(t, srv.port, n=5, c=1, usage=True, max_tokens=6, extra={"gap_us": 5000, "ttft_us": 5000})
    p.wait_records(5)
    m = p.metrics()
    recs = p.finish(5)
    err = p.stderr()
    t.equal(len(recs), 5, "records")
    for r in recs:
        t.check(r["server_timing"]["ttft_ms"] is not None, "ttft")
        t.equal(r["tokens"]["completion"], 6, "tokens")
        t.equal(r["metrics"]["queue_time_ms"], None, "queue time")
        why = r["missing"].get("metrics.queue_time_ms", r["missing"].get("metrics"))
        t.equal(why, "no_symbols", "reason")
    t.equal(hist_count(m, "reqprobe_queue_time_seconds"), 0, "queue time samples")
    lines = [l for l in err.splitlines() if exe in l or "llama-server" in l.replace("attached to pid", "")]
    t.check(any("launch_slot_with_task" in l and exe in l for l in err.splitlines()),
            f"no line names {exe} and the missing symbols; lines: {lines}")


@test(60)
def a17_silent_probe(t):
    """Attached is not proof: an engine whose hooked functions never run."""
    exe = t.path("llama-server")
    shutil.copy(os.path.join(BIN, "fake_llama"), exe)
    srv = t.paced(exe=exe)
    p = t.probe(srv, args=["--engine", "llamacpp"])
    run_client(t, srv.port, n=10, c=2, usage=True, max_tokens=6, extra={"gap_us": 5000, "ttft_us": 5000})
    p.wait_records(10)
    time.sleep(0.2)
    m = p.metrics()
    recs = p.finish(10)
    t.equal(len(recs), 10, "records")
    for r in recs:
        t.equal(r["tokens"]["completion"], 6, "tokens")
        t.equal(r["metrics"]["queue_time_ms"], None, "queue time")
        why = r["missing"].get("metrics.queue_time_ms", r["missing"].get("metrics"))
        t.check(why in ("hook_silent", "not_joined"), f"reason {why}")
    t.equal(hist_count(m, "reqprobe_queue_time_seconds"), 0, "queue time samples")
    t.check(any("silent" in l or "never" in l for l in p.stderr_lines()), f"no line says that the probe is silent: {p.stderr_lines()}")
    t.check(any("hook" in n for n, _ in m), "no metric on hooks")


@test(90)
def a17_python_server(t):
    """A Python interpreter with a marker that never fires, and one without."""
    for py in [x for x in ("/usr/bin/python3.11", "/usr/bin/python3", sys.executable) if os.path.exists(x)][:2]:
        prog = t.path("srv.py")
        with open(prog, "w") as f:
            f.write("""
import http.server, json
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for i in range(3):
            self.wfile.write(b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\\n\\n')
        self.wfile.write(b"data: [DONE]\\n\\n")
        self.close_connection = True
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
print(s.server_address[1], flush=True)
s.serve_forever()
""")
        srv = t.spawn([py, prog], stdout=subprocess.PIPE, text=True)
        port = int(srv.stdout.readline())
        p = t.probe(srv)
        run_client(t, port, n=10, c=2, stream=True)
        p.wait_records(10)
        m = p.metrics()
        recs = p.finish(10)
        t.equal(len(recs), 10, f"{py}: records")
        for r in recs:
            t.equal((r["end"], r["server_timing"]["chunks"], r["metrics"]["queue_time_ms"]), ("complete", 3, None), py)
            t.check("metrics.queue_time_ms" in r["missing"] or "metrics" in r["missing"], "no reason for the missing queue time")
        t.equal(hist_count(m, "reqprobe_queue_time_seconds"), 0, "queue time samples")


@test(60)
def a19_io_uring(t):
    """Either ten right records, or none, a warning and a counter."""
    srv = t.spawn([os.path.join(BIN, "uring"), "5", "10"], stdout=subprocess.PIPE, text=True)
    line = srv.stdout.readline()
    if line.startswith("unsupported"):
        raise Skip("no io_uring here")
    p = t.probe(srv)
    run_client(t, int(line.split()[1]), n=10, c=1)
    time.sleep(0.5)
    m = p.metrics()
    recs = p.finish()
    counted = sum(v for (n, l), v in m.items() if n == "reqprobe_unobserved_connections_total" and "uring" in dict(l).get("protocol", ""))
    if recs:
        t.equal(len(recs), 10, "records")
        for r in recs:
            t.equal((r["end"], r["server_timing"]["chunks"]), ("complete", 5), "record")
    else:
        t.check(counted > 0, "0 records and no unobserved io_uring counter")
        t.check("io_uring" in p.stderr(), "0 records and no warning")
    t.note(f"{len(recs)} records, {counted:.0f} counted")


@test(60)
def b2_abandoned(t):
    """Five hang up after 64 bytes, five finish: each in exactly one class."""
    srv = t.paced()
    p = t.probe(srv)
    a = t.spawn(client_argv(srv.port, n=5, c=5, id="quit", hangup=64, max_tokens=20, extra={"gap_us": 20000, "ttft_us": 30000}),
                stdout=subprocess.DEVNULL)
    run_client(t, srv.port, n=5, c=5, id="stay", usage=True, max_tokens=20, extra={"gap_us": 20000, "ttft_us": 30000})
    a.wait()
    p.wait_records(10)
    m = p.metrics()
    ends = m.by("reqprobe_requests_total", "end")
    t.equal({k: int(v) for k, v in ends.items() if v}, {"complete": 5, "client_disconnect": 5}, "ends")
    t.equal(m.sum("reqprobe_requests_in_flight"), 0, "in flight")
    n = hist_count(m, "reqprobe_request_duration_seconds")
    t.check(n in (5, 10), f"duration samples: {n}")
    recs = p.finish(10)
    t.equal(len(recs), 10, "records")
    for i in range(5):
        r = only(t, recs, f"quit-{i}")
        if r:
            t.equal(r["end"], "client_disconnect", f"quit-{i}: end")
        r = only(t, recs, f"stay-{i}")
        if r:
            t.equal((r["end"], r["tokens"]["completion"]), ("complete", 20), f"stay-{i}")
    out = m.sum("reqprobe_tokens_total", direction="completion") or m.sum("reqprobe_tokens_total", direction="output") or 0
    t.check(out >= 100, f"completion tokens {out} of {m.by('reqprobe_tokens_total', 'direction')}, expected 100 or more")


@test(60)
def b7_not_streaming(t):
    """One body after 500 ms: a duration, no TTFT, no ITL; tokens from usage."""
    def h(c, r):
        obj = {"id": "cmpl-1", "object": "chat.completion", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "x" * int(r.headers.get("x-size", 10))}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 21, "total_tokens": 30}}
        if r.framing == "chunked":
            b = json.dumps(obj).encode()
            c.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(b), b), 500, "body")
        else:
            c.json(obj, ms=500)
    srv = t.server(h)
    p = t.probe(srv)
    c = Client(srv)
    for i, f in enumerate(("chunked", "length") * 2):
        c.ask(f"x{i}", stream=False, framing=f, headers=[f"X-Size: {10 if i < 2 else 500_000}"])
    c.close()
    p.wait_records(4)
    m = p.metrics()
    recs = p.finish(4)
    for i in range(4):
        r = only(t, recs, f"x{i}")
        if not r:
            continue
        st = r["server_timing"]
        t.near(st["duration_ms"], 500, "duration", 5, (srv.truth(f"x{i}").ms("body") or [None])[0])
        t.equal((st["ttft_ms"], st["chunks"], r["stream"], r["end"]), (None, None, False, "complete"), f"x{i}: ttft, chunks, stream, end")
        t.check(not r.get("itl_ms"), f"itl_ms {r.get('itl_ms')}")
        if i < 2:
            t.equal((r["tokens"]["completion"], r["tokens"]["prompt"], r["tokens"]["source"]), (21, 9, "usage"), f"x{i}: tokens")
        # beyond the capture limit the end of the document is not read as JSON
        t.equal((r["id"], r["finish_reason"]), ("cmpl-1", "stop" if i < 2 else None), f"x{i}: id, finish_reason")
        t.equal("truncated" in r["flags"], i >= 2, f"x{i}: truncated")
    t.equal(hist_count(m, "reqprobe_time_to_first_token_seconds"), 0, "TTFT samples")


@test(60)
def c1_events_of_one_call(t):
    """Several events in one send share an instant: gaps of zero are legal."""
    def h(c, r):
        n = int(r.headers["x-n"])
        c.begin()
        c.send(b"".join(c.wrap(TOK(f"w{i}")) for i in range(n)) + c.tail(), 50, "tok")
        if r.framing != "chunked":
            c.close()
    srv = t.server(h)
    p = t.probe(srv)
    cases = [(f, n) for f in FRAMINGS for n in (1, 3, 50, 500)]
    for f, n in cases:
        c = Client(srv)
        c.ask(f"{f}-{n}", framing=f, headers=[f"X-N: {n}"])
        c.close()
    recs = p.finish(len(cases))
    for f, n in cases:
        r = only(t, recs, f"{f}-{n}")
        stream_is(t, r, srv.truth(f"{f}-{n}"), ttft=50, chunks=n, gaps=[0] * (n - 1))
        if r and r.get("itl_ms") is not None:
            t.equal(r["itl_ms"], [0] * (n - 1), f"{f}-{n}: itl_ms")


@test(60)
def c1_one_chunk_many_events(t):
    def h(c, r):
        c.begin()
        c.event(TOK("a") + TOK("b") + TOK("c"), 50, "tok")
        c.event(TOK("d") + TOK("e")[:20], 100, "tok")
        c.event(TOK("e")[20:], 150, "tok")
        c.end()
    got, _ = both(t, h)
    for f, (r, truth) in got.items():
        t.check(r is not None and r["server_timing"]["chunks"] == 5, f"{f}: chunks {r and r['server_timing']['chunks']}, expected 5")
        if r and r["icl_ms"] and len(r["icl_ms"]) == 4:
            a = truth.gaps()
            for got_ms, want, true in zip(r["icl_ms"], (0, 0, 50, 50), (0, 0, a[0], a[1])):
                t.near(got_ms, want, f"{f}: gap", 5, true)


@test(90)
def c2_reasoning(t):
    """Reasoning is generated text; the first content token has its own field."""
    keys = ("reasoning", "reasoning_content")

    def h(c, r):
        k = r.headers["x-key"]
        c.begin()
        c.event(ROLE, 20)
        for ms in (100, 150, 200):
            c.event(DELTA(**{k: "x"}), ms, "tok")
        for ms in (800, 850):
            c.event(TOK("y"), ms, "tok")
        c.end(860)
    srv = t.server(h)
    p = t.probe(srv)
    for f in FRAMINGS:
        for k in keys:
            c = Client(srv)
            c.ask(f"{f}-{k}", framing=f, headers=[f"X-Key: {k}"])
            c.close()
    recs = p.finish(4)
    for f in FRAMINGS:
        for k in keys:
            r, truth = only(t, recs, f"{f}-{k}"), srv.truth(f"{f}-{k}")
            stream_is(t, r, truth, ttft=100, gaps=[50, 50, 600, 50], chunks=5)
            if r:
                t.near(r["server_timing"]["time_to_first_output_token_ms"], 800, f"{f}-{k}: first output token", 5, truth.ms("tok")[3])
                t.near(r["server_timing"]["time_to_second_token_ms"], 50, f"{f}-{k}: second token", 5, truth.gaps()[0])


@test(60)
def c2_tool_calls(t):
    """A tool call's name and arguments are generated text; empty ones are not."""
    def h(c, r):
        c.begin()
        c.event(ROLE, 10)
        c.event(DELTA(tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}]), 60, "tok")
        c.event(DELTA(tool_calls=[{"index": 0, "function": {"arguments": "{\"a\":"}}]), 110, "tok")
        c.event(DELTA(tool_calls=[{"index": 0, "function": {"arguments": ""}}]), 130)
        c.event(DELTA(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]), 160, "tok")
        c.event(DELTA(finish="tool_calls"), 170)
        c.end(180)
    got, _ = both(t, h)
    for f, (r, truth) in got.items():
        stream_is(t, r, truth, ttft=60, gaps=[50, 50], chunks=3)
        if r:
            t.equal(r["finish_reason"], "tool_calls", f"{f}: finish_reason")


@test(60)
def c4_only_text_counts(t):
    """Role, finish and usage events and [DONE] move neither TTFT nor ITL."""
    def h(c, r):
        c.begin()
        c.event(ROLE, 10, "role")
        for ms in (210, 260, 310):
            c.event(TOK("x"), ms, "tok")
        c.event(DELTA(finish="stop"), 320)
        c.event(USAGE(3), 500)
        c.end(510)
    got, _ = both(t, h)
    for f, (r, truth) in got.items():
        stream_is(t, r, truth, ttft=210, gaps=[50, 50], chunks=3)
        if r:
            st = r["server_timing"]
            t.near(st["last_token_ms"], 310, f"{f}: last token", 5, truth.ms("tok")[2])
            t.near(st["duration_ms"], 510, f"{f}: duration", 5, truth.ms("end")[0])
            t.near(st["first_event_ms"], 10, f"{f}: first event", 5, truth.ms("role")[0])
            t.equal((r["tokens"]["completion"], r["tokens"]["prompt"], r["finish_reason"]), (3, 5, "stop"), f"{f}: tokens, finish")
            t.near((r["metrics"]["mean_itl_ms"] if r["metrics"]["mean_itl_ms"] is not None else st["mean_icl_ms"]), 50, f"{f}: mean gap")


@test(60)
def c4_keepalives_and_errors(t):
    """Comments are keep-alives; an error event is end=error with status 200."""
    def h(c, r):
        c.begin()
        c.event(b": ping\n\n", 20)
        c.event(ROLE, 30)
        c.event(b": ping\n\n", 40)
        c.event(TOK("a"), 60, "tok")
        c.event(b": ping\n\n", 80)
        c.event(TOK("b"), 110, "tok")
        if r.xid.startswith("err"):
            if "ev" in r.xid:
                c.event(b"event: error\ndata: {\"error\":{\"message\":\"SECRETTEXT\",\"type\":\"server_error\",\"code\":500}}\n\n", 120)
            else:
                c.event(EVENT({"error": {"message": "SECRETTEXT", "type": "server_error", "code": 500}}), 120)
        c.end(130, done=not r.xid.startswith("err"))
    srv = t.server(h)
    p = t.probe(srv)
    ids = [(f"{k}-{f}", f) for k in ("ok", "err-ev", "err-data") for f in FRAMINGS]
    for x, f in ids:
        c = Client(srv)
        c.ask(x, framing=f)
        c.close()
    recs = p.finish(len(ids))
    for x, f in ids:
        r = only(t, recs, x)
        stream_is(t, r, srv.truth(x), ttft=60, gaps=[50], chunks=2, end="error" if x.startswith("err") else "complete")
        if r:
            t.equal(r["server_timing"]["keepalives"], 3, f"{x}: keepalives")
            t.equal(r["status"], 200, f"{x}: status")
            if x.startswith("err"):
                e = r["error"] or {}
                t.equal((e.get("type"), str(e.get("code")), e.get("where")), ("server_error", "500", "stream"), f"{x}: error")
                t.check("SECRETTEXT" not in json.dumps(r), "message text in the record")


@test(60)
def c6_sse_syntax(t):
    """data: without a space, ids, retry, split data lines; CR and CRLF; a BOM."""
    parts = [b"data:" + TOK("a")[6:], b"id: 7\n" + TOK("b"), b"retry: 3000\n\n",
             b"data: {\"choices\":[{\"index\":0,\"delta\":\ndata: {\"content\":\"c\"}}]}\n\n", b"data:[DONE]\n\n"]

    def h(c, r):
        eol = r.headers["x-eol"]
        c.begin()
        for i, x in enumerate(parts):
            x = x.replace(b"\n", {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}[eol])
            if i == 0 and eol == "crlf":
                x = b"\xef\xbb\xbf" + x
            c.event(x, 20 * (i + 1), "tok" if i in (0, 1, 3) else "-")
        c.end(120, done=False)
    srv = t.server(h)
    p = t.probe(srv)
    ids = [(f"{f}-{e}", f, e) for f in FRAMINGS for e in ("lf", "crlf", "cr")]
    for x, f, e in ids:
        c = Client(srv)
        c.ask(x, framing=f, headers=[f"X-Eol: {e}"])
        c.close()
    p.wait_records(len(ids))
    m = p.metrics()
    recs = p.finish(len(ids))
    for x, f, e in ids:
        r = only(t, recs, x)
        # a CR at the end of a write may still be half of a CRLF: the next byte tells
        if e == "cr":
            t.check(r is not None and r["server_timing"]["chunks"] == 3 and r["end"] == "complete", f"{x}: {r and r['server_timing']['chunks']} chunks")
        else:
            stream_is(t, r, srv.truth(x), ttft=20, gaps=[20, 40], chunks=3)
    bad = sum(v for (n, _), v in m.items() if "parse_error" in n)
    t.equal(bad, 0, "parse errors")


@test(60)
def c8_usage_deltas(t):
    """Tokens per event by usage deltas 1, 6, 1, 2; without usage: events only."""
    deltas = (1, 6, 1, 2)

    def h(c, r):
        c.begin()
        total = 0
        for n, ms in zip(deltas, (100, 400, 450, 600)):
            total += n
            more = {"usage": {"prompt_tokens": 5, "completion_tokens": total}} if r.xid.startswith("with") else {}
            c.event(TOK("w " * n, **more), ms, "tok")
        c.end(610)
    srv = t.server(h)
    p = t.probe(srv)
    for f in FRAMINGS:
        for k in ("with", "none"):
            c = Client(srv)
            c.ask(f"{k}-{f}", framing=f)
            c.close()
    recs = p.finish(4)
    for f in FRAMINGS:
        r, truth = only(t, recs, f"with-{f}"), srv.truth(f"with-{f}")
        stream_is(t, r, truth, ttft=100, gaps=[300, 50, 150], chunks=4)
        if r:
            t.equal((r["tokens"]["completion"], r["tokens"]["source"]), (10, "usage"), f"with-{f}: tokens")
            itl = r.get("itl_ms")
            if t.check(itl is not None and len(itl) == 9, f"with-{f}: itl_ms {itl}, expected 9 gaps"):
                g = truth.gaps()
                want = [g[0] / 6] * 6 + [g[1]] + [g[2] / 2] * 2
                for a, b in zip(itl, want):
                    t.near(a, b, f"with-{f}: itl", 1, b)
                t.near(sum(itl), 500, f"with-{f}: sum of itl", 5, sum(g))
                t.near(sum(itl) / 9, 55.6, f"with-{f}: TPOT", 1, sum(g) / 9)
        r = only(t, recs, f"none-{f}")
        stream_is(t, r, srv.truth(f"none-{f}"), ttft=100, gaps=[300, 50, 150], chunks=4)
        if r:
            t.equal((r["tokens"]["completion"], r["metrics"]["mean_itl_ms"]), (None, None), f"none-{f}: tokens, mean_itl_ms")


@test(60)
def d3_no_wrapped_times(t):
    """Many short connections, some reset at once: no sample older than the daemon."""
    srv = t.paced()
    t0 = time.monotonic()
    p = t.probe(srv)
    for i in range(100):
        c = Client(srv.port)
        if i % 3 == 0:
            c.rst()
        elif i % 3 == 1:
            c.close()
        else:
            c.send(chat(f"r{i}", body={"max_tokens": 1, "stream": True, "ttft_us": 100}))
            c.rst() if i % 2 else c.response()
            c.close()
    time.sleep(0.5)
    m = p.metrics()
    recs = p.finish()
    age = (time.monotonic() - t0) * 1e3
    for name in sorted({n[:-4] for n, _ in m if n.endswith("_seconds_sum")}):
        c, s = m.sum(name + "_count"), m.sum(name + "_sum")
        t.check(s >= 0 and (not c or s / c * 1e3 <= age), f"{name}: mean {s / c if c else 0} s, the daemon is {age / 1e3:.1f} s old")
    for r in recs:
        for g in ("server_timing", "phases", "metrics"):
            for k, v in (r[g] or {}).items():
                if k.endswith("_ms") and v is not None:
                    t.check(0 <= v <= age, f"{g}.{k} {v}")
    n = hist_count(m, "reqprobe_handshake_rtt_seconds") + (m.sum("reqprobe_handshakes_untrusted_total") or 0)
    t.check(n >= 100, f"{n:.0f} handshakes, 100 were made")
    rtt = m.sum("reqprobe_handshake_rtt_seconds_sum") / max(1, hist_count(m, "reqprobe_handshake_rtt_seconds"))
    t.check(rtt < 0.05, f"mean loopback handshake {rtt} s")
    t.note(f"{n:.0f} handshakes, mean {rtt * 1e6:.0f} us")


@test(60)
def d1_accept_wait_is_no_rtt(t):
    """The server accepts 700 ms late: the handshake RTT stays what it was."""
    prog = t.path("late.py")
    with open(prog, "w") as f:
        f.write("""
import socket, time
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(16)
print(l.getsockname()[1], flush=True)
while True:
    time.sleep(.7)
    s, _ = l.accept()
    d = s.recv(65536)
    b = b'{"id":"c1","choices":[{"index":0,"message":{"content":"x"}}]}'
    s.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(b) + b)
    s.close()
""")
    srv = t.spawn([sys.executable, prog], stdout=subprocess.PIPE, text=True)
    port = int(srv.stdout.readline())
    p = t.probe(srv)
    for i in range(3):
        c = Client(port)
        c.ask(f"x{i}", stream=False)
        c.close()
    recs = p.finish(3)
    t.equal(len(recs), 3, "records")
    for r in recs:
        n = r["network"]
        t.check(n["rtt_ms"] is not None and 0.001 < n["rtt_ms"] < 50 and n["source"] == "handshake", f"network {n}")
    t.note("rtt " + ", ".join(f"{r['network']['rtt_ms']} ms" for r in recs))


@test(60)
def m_proxy_in_the_tree(t):
    """A buffering proxy and its backend under one --pid: each request counts once,
    with the backend's own times."""
    prog = t.path("proxy.py")
    with open(prog, "w") as f:
        f.write(f"""
import os, socket, sys, threading, time, json
b = socket.socket(); b.bind(("127.0.0.1", 0)); b.listen(64)
if os.fork() == 0:
    sys.path.insert(0, {HERE!r})
    sys.dont_write_bytecode = True
    import harness
    def h(c, r):
        c.begin()
        for i in range(5):
            c.event(harness.TOK("x"), 40 * (i + 1), "tok")
        c.end()
    s = harness.Server.__new__(harness.Server)
    s.handler, s.raw, s.wrap, s.nodelay = h, None, None, True
    s.log_fd = os.open({t.path('log')!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    s._accept(b)
f = socket.socket(); f.bind(("127.0.0.1", 0)); f.listen(64)
print(f.getsockname()[1], flush=True)
def one(c):
    up = socket.create_connection(b.getsockname())
    up.sendall(c.recv(65536))
    buf = b""
    while not buf.endswith(b"0\\r\\n\\r\\n"):
        buf += up.recv(65536)
    c.sendall(buf)
    c.close(); up.close()
while True:
    threading.Thread(target=one, args=(f.accept()[0],)).start()
""")
    srv = t.spawn([sys.executable, prog], stdout=subprocess.PIPE, text=True)
    port = int(srv.stdout.readline())
    t.children.append(KillTree(srv.pid))
    p = t.probe(srv)
    for i in range(4):
        c = Client(port)
        c.ask(f"x{i}")
        c.close()
    p.wait_records(4)
    time.sleep(0.3)
    m = p.metrics()
    recs = p.finish(4)
    t.equal(m.sum("reqprobe_requests_total"), 4, "requests counted")
    t.equal(len(recs), 4, "records")
    direct = [r for r in recs if r["server_timing"]["ttft_ms"] is not None and r["server_timing"]["ttft_ms"] < 100]
    t.equal(len(direct), 4, "records with the backend's own TTFT of 40 ms")


class KillTree:
    """Ends the children a test program forked, by their parent's pid."""

    def __init__(self, ppid):
        self.ppid = ppid
        self.pid = ppid

    def poll(self):
        for d in os.listdir("/proc"):
            if d.isdigit():
                with contextlib.suppress(OSError):
                    with open(f"/proc/{d}/stat") as f:
                        if int(f.read().rsplit(")", 1)[1].split()[1]) == self.ppid:
                            os.kill(int(d), signal.SIGKILL)
        return 0

    def wait(self, timeout=None):
        return 0


@test(60)
def m_gzip_stream(t):
    """A compressed stream can't be read: the encoding is told, tokens are null."""
    def h(c, r):
        z = gzip.compress(b"".join(TOK(f"w{i}") for i in range(10)) + DONE)
        c.begin(10, extra="Content-Encoding: gzip\r\n")
        half = len(z) // 2
        c.event(z[:half], 60)
        c.event(z[half:], 120)
        c.end(130, done=False)
    got, _ = both(t, h)
    for f, (r, truth) in got.items():
        if r:
            st = r["server_timing"]
            t.near(st["first_byte_ms"], 10, f"{f}: first byte", 5, truth.ms("head")[0])
            t.equal((st["ttft_ms"], r["tokens"]["completion"], r["status"]), (None, None, 200), f"{f}: ttft, tokens, status")
            why = r["missing"].get("server_timing.ttft_ms", r["missing"].get("server_timing"))
            t.equal(why, "content_encoding", f"{f}: reason")
            t.equal(r["end"], "complete", f"{f}: end")


@test(60)
def m_replaced_executable(t):
    """A package update replaced the file: the running process keeps the old one."""
    exe = t.path("llama-server")
    shutil.copy(os.path.join(BIN, "fake_llama"), exe)
    srv = t.paced(exe=exe)
    os.unlink(exe)
    with open(exe, "w") as f:
        f.write("not an ELF any more\n")
    p = t.probe(srv, args=["--engine", "llamacpp"])
    run_client(t, srv.port, n=3, c=1, max_tokens=5, extra={"gap_us": 2000})
    recs = p.finish(3)
    t.equal(len(recs), 3, "records")
    for r in recs:
        why = r["missing"].get("metrics.queue_time_ms", r["missing"].get("metrics"))
        t.check(why != "no_symbols", "the hooks of the deleted file were not found")


@test(60)
def m_chunk_line_is_no_status_line(t):
    """The end of a chunked body in pieces, next to the next response, on one
    connection; trailers and chunk extensions, too."""
    ways = ("plain", "split0", "splitcrlf", "trailer", "ext", "late")

    def h(c, r):
        w = r.xid.split("-")[0]
        pending = getattr(c, "pending", b"")
        c.pending = b""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        tok = TOK("a")
        size = b"%x%s\r\n" % (len(tok), b";name=value" if w == "ext" else b"")
        c.send(pending + head)
        c.send(size + tok + b"\r\n", 10, "tok")
        if w == "split0":
            for x in (b"0", b"\r\n", b"\r", b"\n"):
                c.send(x)
        elif w == "splitcrlf":
            c.send(b"0\r\n")
            c.at(20)
            c.send(b"\r\n")
        elif w == "trailer":
            c.send(b"0\r\nX-Trailer: 1f4\r\nX-More: HTTP/1.1 500\r\n\r\n")
        elif w == "late":
            c.send(b"%x\r\n" % len(tok) + tok + b"\r\n" + b"0\r\n\r")
            c.send(b"\n")
        else:
            c.send(b"0\r\n\r\n")
    srv = t.server(h)
    p = t.probe(srv)
    c = Client(srv)
    ids = [f"{w}-{i}" for i in range(3) for w in ways]
    for x in ids:
        c.ask(x)
    c.close()
    recs = p.finish(len(ids))
    t.equal(len(recs), len(ids), "records")
    for i, x in enumerate(ids):
        r = only(t, recs, x)
        if r:
            t.equal((r["status"], r["end"], r["server_timing"]["chunks"], r["connection"]["reused"], r["flags"]),
                    (200, "complete", 2 if x.startswith("late") else 1, i > 0, []), x)


@test(60)
def ttft_is_below_the_clients(t):
    """Built-in sanity: what the server saw comes before what clients saw."""
    srv = t.paced()
    p = t.probe(srv)
    cl = run_client(t, srv.port, n=30, c=3, max_tokens=5, extra={"gap_us": 5000, "ttft_us": 20000})
    recs = p.finish(30)
    t.equal(len(recs), 30, "records")
    diff = []
    for r in recs:
        x = cl[r["x_request_id"]]
        d = (x["first_token_ns"] - x["sent_ns"]) / 1e6 - r["server_timing"]["ttft_ms"]
        diff.append(d)
        t.check(d > 0, f"{r['x_request_id']}: the server's TTFT is {-d:.3f} ms above the client's")
    t.note(f"client - server: p50 {percentile(diff, .5) * 1e3:.0f} us, max {max(diff) * 1e3:.0f} us")
