# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""HTTP and sockets as the kernel shows them: keep-alive, pipelining, bodyless
answers, address families, who closed first."""

import json, os, random, signal, socket, subprocess, time
from harness import *


def stream3(c, r):
    c.begin()
    for i in range(3):
        c.event(TOK(f"w{i}"), 20 * (i + 1), "tok")
    c.end(70)


@test(60)
def keep_alive(t):
    srv = t.server(stream3)
    p = t.probe(srv)
    c = Client(srv)
    for i in range(20):
        c.ask(f"x{i}")
    c.close()
    recs = p.finish(20)
    t.equal([r["x_request_id"] for r in recs], [f"x{i}" for i in range(20)], "order")
    for i, r in enumerate(recs):
        t.equal(r["connection"]["reused"], i > 0, f"x{i}: reused")
        stream_is(t, r, srv.truth(f"x{i}"), ttft=20, gaps=[20, 20], chunks=3)
        t.equal(r["client"]["port"], c.port, f"x{i}: client port")


@test(60)
def pipelining(t):
    """Ten requests in one send, and cut at random points; answered in order."""
    srv = t.server(stream3)
    p = t.probe(srv)
    c = Client(srv)
    c.send(b"".join(chat(f"a{i}") for i in range(10)))
    for i in range(10):
        c.response()
    whole = b"".join(chat(f"b{i}", pad=300 * i) for i in range(10))
    rnd = random.Random(7)
    cuts = sorted(rnd.sample(range(1, len(whole)), 12))
    for a, b in zip([0] + cuts, cuts + [len(whole)]):
        c.send(whole[a:b])
        time.sleep(0.002)
    for i in range(10):
        c.response()
    c.close()
    recs = p.finish(20)
    t.equal([r["x_request_id"] for r in recs], [f"{k}{i}" for k in "ab" for i in range(10)], "order")
    for r in recs:
        t.equal((r["end"], r["server_timing"]["chunks"]), ("complete", 3), r["x_request_id"])
    t.check(any("pipelined" in r["flags"] for r in recs), "no record has the flag pipelined")


@test(60)
def bodyless_and_interim(t):
    """HEAD, 204, 304, 100 and 103 in between leave the connection in step."""
    def h(c, r):
        if r.method == "HEAD":
            return c.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 1234\r\n\r\n")
        if r.target == "/none":
            return c.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        if r.target == "/same":
            return c.send(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n")
        if r.xid.startswith("hints"):
            c.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
            c.send(b"HTTP/1.1 102 Processing\r\n\r\n", 20)
        c.begin(40, extra="")
        c.event(TOK("a"), 60, "tok")
        c.event(TOK("b"), 80, "tok")
        c.end()
    srv = t.server(h)
    p = t.probe(srv)
    c = Client(srv)
    c.ask("x0")
    c.ask("head", method="HEAD")
    c.ask("x1")
    c.ask("none", method="GET", path="/none")
    c.ask("x2")
    c.ask("same", method="GET", path="/same")
    c.ask("hints")
    c.ask("expect", headers=["Expect: 100-continue"], pad=100)
    c.ask("x3")
    c.close()
    recs = p.finish(6)
    for x in ("x0", "x1", "x2", "hints", "expect", "x3"):
        r = only(t, recs, x)
        stream_is(t, r, srv.truth(x), ttft=60, gaps=[20], chunks=2)
        if r:
            t.equal(r["status"], 200, f"{x}: status")
            t.near(r["server_timing"]["first_byte_ms"], 40, f"{x}: first byte of the final response", 5, srv.truth(x).ms("head")[0])


@test(60)
def statuses_and_errors(t):
    """4xx and 5xx with an error body: end=error, no token, status kept."""
    def h(c, r):
        s = int(r.headers["x-status"])
        c.json({"error": {"message": "SECRETTEXT", "type": "invalid_request_error", "code": "bad_thing"}}, f"{s} Reason", ms=10)
    srv = t.server(h)
    p = t.probe(srv)
    c = Client(srv)
    codes = (400, 401, 404, 422, 429, 500, 503)
    for s in codes:
        c.ask(f"s{s}", headers=[f"X-Status: {s}"])
    c.close()
    p.wait_records(len(codes))
    m = p.metrics()
    recs = p.finish(len(codes))
    for s in codes:
        r = only(t, recs, f"s{s}")
        if r:
            t.equal((r["status"], r["end"], r["server_timing"]["ttft_ms"]), (s, "error", None), f"s{s}")
            e = r["error"] or {}
            t.equal(e.get("where"), "status", f"s{s}: error.where")
            t.equal(e.get("type"), "invalid_request_error", f"s{s}: error.type")
            t.check("SECRETTEXT" not in json.dumps(r), "message text in the record")
        t.equal(m.sum("reqprobe_requests_total", end="error", status=str(s)), 1, f"requests_total with status {s}")


@test(60)
def other_paths(t):
    """Health checks and models lists are counted, not recorded."""
    def h(c, r):
        if r.target.startswith("/v1/chat"):
            return stream3(c, r)
        c.json({"ok": True})
    srv = t.server(h)
    p = t.probe(srv)
    c = Client(srv)
    for i in range(5):
        c.ask(f"h{i}", method="GET", path="/health")
        c.ask(f"m{i}", method="GET", path="/v1/models?limit=1")
    c.ask("x0", path="/v1/chat/completions?api-version=1")
    c.ask("x1", path="http://localhost/v1/chat/completions")
    c.close()
    recs = p.finish(2)
    t.equal(sorted(r["x_request_id"] for r in recs), ["x0"] + (["x1"] if len(recs) == 2 else []), "records")
    for r in recs:
        t.equal((r["path"], r["operation"]), ("/v1/chat/completions", "chat"), "path, operation")


@test(60)
def operations(t):
    """Paths and their operations; embeddings and rerank have a duration only."""
    ops = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion", "/completion": None, "/infill": None,
           "/v1/embeddings": "embeddings", "/v1/rerank": None}

    def h(c, r):
        if "embed" in r.target:
            return c.json({"object": "list", "data": [{"embedding": [0.1] * 8}], "usage": {"prompt_tokens": 4, "total_tokens": 4}}, ms=30)
        if "rerank" in r.target:
            return c.json({"results": [], "usage": {"prompt_tokens": 4, "total_tokens": 4}}, ms=30)
        if r.target in ("/completion", "/infill"):
            return c.json({"content": "abc", "stop": True, "tokens_predicted": 3, "tokens_evaluated": 6, "stop_type": "limit"}, ms=30)
        c.json({"id": "c1", "choices": [{"index": 0, "text": "x", "message": {"content": "x"}, "finish_reason": "length"}],
                "usage": {"prompt_tokens": 6, "completion_tokens": 3}}, ms=30)
    srv = t.server(h)
    p = t.probe(srv)
    c = Client(srv)
    for i, path in enumerate(ops):
        c.ask(f"x{i}", path=path, stream=False)
    c.close()
    recs = p.finish(len(ops))
    seen = []
    for i, (path, op) in enumerate(ops.items()):
        r = only(t, recs, f"x{i}")
        if not r:
            continue
        seen.append(f"{path} {r['operation']}")
        t.equal(r["path"], path, "path")
        if op:
            t.equal(r["operation"], op, path)
        t.near(r["server_timing"]["duration_ms"], 30, f"{path}: duration", 5, srv.truth(f"x{i}").ms("body")[0])
        if op == "embeddings" or "rerank" in path:
            t.equal((r["server_timing"]["ttft_ms"], r["tokens"]["completion"]), (None, None), f"{path}: ttft, tokens")
            t.equal(r["tokens"]["prompt"], 4, f"{path}: prompt tokens")
        else:
            t.equal((r["tokens"]["completion"], r["tokens"]["prompt"], r["finish_reason"]), (3, 6, "length"), f"{path}: tokens")


@test(60)
def ndjson_and_native_streams(t):
    """llama.cpp's own stream, text completions, and n=2."""
    def h(c, r):
        c.begin()
        if r.xid == "native":
            for i in range(3):
                c.event(EVENT({"index": 0, "content": f"w{i}", "tokens": [i], "stop": False, "id_slot": 0, "tokens_predicted": i + 1}), 20 * (i + 1), "tok")
            c.event(EVENT({"index": 0, "content": "", "tokens": [], "stop": True, "tokens_predicted": 3, "tokens_evaluated": 7, "stop_type": "limit"}), 80)
        elif r.xid == "text":
            for i in range(3):
                c.event(EVENT({"id": "t1", "object": "text_completion", "choices": [{"index": 0, "text": f"w{i}", "finish_reason": None}]}), 20 * (i + 1), "tok")
            c.event(EVENT({"id": "t1", "choices": [{"index": 0, "text": "", "finish_reason": "length"}], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}), 80)
        else:
            for i in range(3):
                c.event(DELTA(index=0, content="a"), 40 * i + 20, "tok")
                c.event(DELTA(index=1, content="b"), 40 * i + 30, "tok")
            c.event(USAGE(6, 7), 130)
        c.end(140)
    srv = t.server(h)
    p = t.probe(srv)
    c = Client(srv)
    c.ask("native", path="/completion", body={"prompt": "x", "stream": True, "n_predict": 3})
    c.ask("text", path="/v1/completions", body={"prompt": "x", "stream": True})
    c.ask("two", body={"messages": [], "stream": True, "n": 2})
    c.close()
    recs = p.finish(3)
    for x in ("native", "text"):
        r = only(t, recs, x)
        stream_is(t, r, srv.truth(x), ttft=20, gaps=[20, 20], chunks=3)
        if r:
            t.equal((r["tokens"]["completion"], r["tokens"]["prompt"], r["finish_reason"]), (3, 7, "length"), f"{x}: tokens, finish")
    r = only(t, recs, "two")
    if r:
        t.equal((r["choices"], r["server_timing"]["chunks"], r["tokens"]["completion"]), (2, 6, 6), "two: choices, chunks, tokens")
        t.equal(r["metrics"]["mean_itl_ms"], None, "two: mean_itl_ms")
        g = r.get("itl_ms")
        if t.check(g is not None and len(g) == 4, f"two: itl_ms {g}, expected the gaps within each choice"):
            for x in g:
                t.near(x, 40, "two: gap within a choice", 6)


@test(60)
def ipv6_and_mapped(t):
    """IPv6, and IPv4 on a dual-stack socket shown as IPv4."""
    srv = t.paced(listen="[::]:0")
    p = t.probe(srv)
    run_client(t, f"[::1]:{srv.port}", n=3, id="six", max_tokens=4, extra={"gap_us": 2000, "ttft_us": 2000})
    run_client(t, f"127.0.0.1:{srv.port}", n=3, id="four", max_tokens=4, extra={"gap_us": 2000, "ttft_us": 2000})
    recs = p.finish(6)
    for i in range(3):
        for k, a in (("six", "::1"), ("four", "127.0.0.1")):
            r = only(t, recs, f"{k}-{i}")
            if r:
                t.equal((r["client"]["address"], r["server"]["address"], r["server"]["port"]), (a, a, srv.port), f"{k}: addresses")
                t.check(r["network"]["rtt_ms"] is not None, f"{k}: no RTT")
    srv.stop()
    truth = srv.truth()
    for r in recs:
        t.equal(r["client"]["port"], truth[r["x_request_id"]]["port"], "client port")


@test(60)
def unix_socket(t):
    """By path and abstract."""
    for name in (t.path("sock"), f"@reqprobe-test-{os.getpid()}"):
        srv = t.paced(unix=name)
        p = t.probe(srv)
        run_client(t, name, n=5, c=2, usage=True, max_tokens=4, extra={"gap_us": 2000, "ttft_us": 2000})
        recs = p.finish(5)
        t.equal(len(recs), 5, f"{name}: records")
        for r in recs:
            t.equal((r["end"], r["tokens"]["completion"], r["server_timing"]["chunks"]), ("complete", 4, 4), name)
            t.equal((r["network"]["rtt_ms"], r["missing"].get("network.rtt_ms", r["missing"].get("network"))), (None, "unix_socket"), f"{name}: rtt")
        srv.stop()


@test(60)
def half_close(t):
    """A client that shuts its sending side down has not hung up."""
    srv = t.paced()
    p = t.probe(srv)
    run_client(t, srv.port, n=4, c=2, id="h", half_close=True, usage=True, max_tokens=8, extra={"gap_us": 5000, "ttft_us": 5000})
    run_client(t, srv.port, n=2, c=2, id="c", half_close=True, usage=True, max_tokens=8, extra={"gap_us": 5000, "framing": "close"})
    recs = p.finish(6)
    t.equal(len(recs), 6, "records")
    for r in recs:
        t.equal((r["end"], r["tokens"]["completion"]), ("complete", 8), r["x_request_id"])


@test(60)
def hang_up_any_time(t):
    """FIN and RST before the answer, in its head, in its body, at its last byte."""
    srv = t.paced()
    p = t.probe(srv)
    n = 0
    for rst in (False, True):
        for k in (1, 40, 200, 700, 1500):
            run_client(t, srv.port, n=3, c=3, id=f"k{k}-{rst}", hangup=k, rst=rst, max_tokens=30, extra={"gap_us": 10000, "ttft_us": 30000})
            n += 3
        run_client(t, srv.port, n=3, c=3, id=f"early-{rst}", hangup_ms=20, rst=rst, max_tokens=30, stream=False, extra={"gap_us": 10000})
        n += 3
    p.wait_records(n)
    m = p.metrics()
    t.equal(m.sum("reqprobe_requests_in_flight"), 0, "in flight")
    recs = p.finish(n)
    t.equal(len(recs), n, "records")
    ends, left = {}, []
    for r in recs:
        ends[r["end"]] = ends.get(r["end"], 0) + 1
        t.equal(r["end"], "client_disconnect", f"{r['x_request_id']}: end")
        if r["x_request_id"].startswith("early"):
            # the server may have answered into the void
            t.check(r["status"] in (None, 200), f"{r['x_request_id']}: status {r['status']}")
            left.append(r["server_timing"]["ended_ms"])
    # the client's own clock says 20 ms after it has sent
    t.check(all(15 < x < 60 for x in left) and sorted(left)[len(left) // 2] < 25, f"left after {left} ms")
    t.note(str(ends))


@test(60)
def server_closes_early(t):
    """The server ends before its framing does, by FIN, RST and death."""
    def h(c, r):
        c.begin()
        c.event(TOK("a"), 20, "tok")
        c.event(TOK("b"), 40, "tok")
        c.at(60)
        if r.xid.endswith("rst"):
            return c.rst()
        if r.xid.endswith("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        c.close()
    for x in ("fin", "rst", "die"):
        srv = t.server(h)
        p = t.probe(srv)
        c = Client(srv)
        try:
            c.ask(x)
        except (AssertionError, OSError):
            pass
        c.close()
        p.wait_records(1)
        if x != "die":
            recs = p.finish(1)
        else:
            # the engine is gone: reqprobe drains, says so and ends with 0
            p.proc.wait(10)
            recs = p.stop(expect_rc=0)
            t.check(len(p.stderr_lines()) >= 2, "no line says that the engine ended")
        r = only(t, recs, x)
        if r:
            t.equal((r["end"], r["server_timing"]["chunks"], r["status"]), ("server_close", 2, 200), x)


@test(60)
def closed_framing_is_complete(t):
    """Framing 'close': the server's FIN is the proper end; the client's is not."""
    srv = t.paced()
    p = t.probe(srv)
    run_client(t, srv.port, n=5, c=5, id="ok", max_tokens=10, extra={"gap_us": 5000, "framing": "close"})
    run_client(t, srv.port, n=5, c=5, id="no", max_tokens=30, hangup=900, extra={"gap_us": 5000, "framing": "close"})
    recs = p.finish(10)
    for i in range(5):
        for k, e in (("ok", "complete"), ("no", "client_disconnect")):
            r = only(t, recs, f"{k}-{i}")
            if r:
                t.equal(r["end"], e, f"{k}-{i}")


@test(60)
def pre_attach_connection(t):
    """A keep-alive connection opened and used before the attach."""
    srv = t.server(stream3)
    c = Client(srv)
    c.ask("before")
    p = t.probe(srv)
    for i in range(3):
        c.ask(f"x{i}")
    c.close()
    recs = p.finish(3)
    t.equal(len(recs), 3, "records")
    for i in range(3):
        r = only(t, recs, f"x{i}")
        stream_is(t, r, srv.truth(f"x{i}"), ttft=20, gaps=[20, 20], chunks=3)
        if r:
            t.check("pre_attach" in r["flags"] and r["network"]["rtt_ms"] is None, f"x{i}: flags {r['flags']}, rtt {r['network']['rtt_ms']}")
            t.equal((r["client"]["port"], r["server"]["port"]), (c.port, srv.port), f"x{i}: ports")


@test(60)
def large_bodies(t):
    """Request and response bodies of megabytes, sent in many calls, with a small
    send buffer (partial writes, EAGAIN)."""
    def h(c, r):
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        c.begin()
        c.event(TOK("a"), 10, "tok")
        c.event(TOK("b" * 2_000_000), None, "tok")
        c.event(TOK("c"), None, "tok")
        c.event(USAGE(3))
        c.end()
    srv = t.server(h)
    p = t.probe(srv)
    for f in FRAMINGS:
        c = Client(srv)
        c.ask(f"x-{f}", framing=f, pad=3_000_000)
        c.close()
    recs = p.finish(2)
    for f in FRAMINGS:
        r = only(t, recs, f"x-{f}")
        if r:
            t.equal((r["end"], r["status"]), ("complete", 200), f"{f}: end")
            if "truncated" not in r["flags"]:
                t.equal((r["server_timing"]["chunks"], r["tokens"]["completion"]), (3, 3), f"{f}: chunks, tokens")
            t.check(r["bytes"]["request"] > 3_000_000 and r["bytes"]["response"] > 2_000_000, f"{f}: bytes {r['bytes']}")
            t.check(r["phases"]["receive_ms"] is not None, f"{f}: receive_ms")


def partial_writes(t, args):
    """A slow reader: the server's writes are cut and retried; nothing is counted
    twice, and an event's instant is the call that took its last byte."""
    srv = t.paced()
    p = t.probe(srv, args=args)
    cl = run_client(t, srv.port, n=4, c=4, max_tokens=300, usage=True, lazy_ms=15, extra={"gap_us": 200, "ttft_us": 2000, "chunk_bytes": 60000})
    recs = p.finish(4)
    stats = srv.stop()
    truth = srv.truth()
    t.equal(len(recs), 4, "records")
    worst = 0
    for r in recs:
        x = truth[r["x_request_id"]]
        t.equal((r["end"], r["tokens"]["completion"]), ("complete", 300), r["x_request_id"])
        if "truncated" not in r["flags"] and t.equal(r["server_timing"]["chunks"], 300, r["x_request_id"]):
            for got, a, b in zip(r["icl_ms"], x["token_ns"], x["token_ns"][1:]):
                worst = max(worst, abs(got - (b - a) / 1e6))
    t.check(worst < 5, f"a gap is {worst:.3f} ms off")
    t.check(stats["stalls"] > 0, "no write was cut or refused")
    t.note(f"{stats['stalls']} partial or refused writes, largest gap error {worst * 1e3:.0f} us")


@test(60)
def partial_writes_nonblocking(t):
    partial_writes(t, [])


@test(60)
def partial_writes_sockets(t):
    """The same by the tracepoints of sockets."""
    partial_writes(t, ["--sockets"])


def refused_writes(t, args):
    """A write that is refused leaves nothing behind: the instant of the next is its own."""
    def h(c, r):
        c.begin()
        c.sock.setblocking(False)
        try:
            while True:
                rest = c.wrap(TOK("b" * 2000))
                while rest:
                    ns = time.monotonic_ns()
                    rest = rest[c.sock.send(rest):]
                c.log("tok", ns)
        except BlockingIOError:
            pass
        time.sleep(0.3)
        c.sock.setblocking(True)
        c.send(rest, None, "tok")
        c.end()
    srv = t.server(h, options=[(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)])
    p = t.probe(srv, args=args)
    c = Client(srv)
    c.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    c.send(chat("x0"))
    time.sleep(0.6)
    c.response()
    c.close()
    r, x = only(t, p.finish(1), "x0"), srv.truth("x0")
    if r and t.equal(len(r["icl_ms"]), len(x.gaps()), "gaps"):
        t.check(x.gaps()[-1] > 290, "no write was refused")
        t.near(r["icl_ms"][-1], x.gaps()[-1], "gap over the refused write", 5)


@test(60)
def refused_writes_nonblocking(t):
    refused_writes(t, [])


@test(60)
def refused_writes_sockets(t):
    """The same by the tracepoints of sockets."""
    refused_writes(t, ["--sockets"])


@test(60)
def other_protocols(t):
    """Bytes that are no HTTP cost a look and nothing else; the HTTP beside works."""
    def raw(c):
        d = c.sock.recv(65536, 2)
        if d[:5] in (b"POST ", b"GET /"):
            r = c.read_request()
            return stream3(c, r)
        while c.sock.recv(65536):
            c.sock.sendall(b"\0\1\2\3" * 100)
    srv = t.server(None, raw=raw)
    p = t.probe(srv)
    for blob in (b"\0\0\0\x08\x04\xd2\x16\x2f", b"SSH-2.0-x\r\n", b"PO", b"POSTAL CODE\r\n", b"\xff" * 500, b"GET"):
        c = Client(srv)
        c.send(blob)
        time.sleep(0.02)
        if blob not in (b"PO", b"GET"):
            c.send(b"more" * 100)
        c.close()
    c = Client(srv)
    c.ask("x0")
    c.close()
    recs = p.finish(1)
    t.equal([r["x_request_id"] for r in recs], ["x0"], "records")
    stream_is(t, only(t, recs, "x0"), srv.truth("x0"), ttft=20, gaps=[20, 20], chunks=3)
    t.equal(p.summary["unobserved_connections"]["other"], 4, "unobserved_connections.other")


@test(60)
def other_protocols_unix(t):
    """What an engine's processes say to each other on Unix sockets hides no request, and is not told."""
    def raw(c):
        while c.sock.recv(65536):
            c.sock.sendall(b"\0\1\2\3" * 100)
    srv = t.server(None, raw=raw, unix=t.path("ipc"))
    p = t.probe(srv)
    for _ in range(3):
        c = Client(srv)
        c.send(b"\0\0\0\x08\x04\xd2\x16\x2f")
        c.read_some(10)
        c.close()
    p.finish(0)
    t.equal(p.summary["unobserved_connections"], {"tls": 0, "http2": 0, "other": 0, "io_uring": 0}, "unobserved_connections")


@test(60)
def fd_reuse(t):
    """Descriptors are reused at once: 300 short connections, none mixed up."""
    srv = t.paced()
    p = t.probe(srv)
    run_client(t, srv.port, n=300, c=3, usage=True, max_tokens=2, extra={"gap_us": 200, "ttft_us": 200})
    recs = p.finish(300)
    srv.stop()
    truth = srv.truth()
    t.equal(len(recs), 300, "records")
    for r in recs:
        x = truth.get(r["x_request_id"])
        t.check(x and x["port"] == r["client"]["port"] and r["tokens"]["completion"] == 2 and r["end"] == "complete" and not r["connection"]["reused"],
                f"{r['x_request_id']}: {r['end']}, port {r['client']['port']}")


@test(60)
def request_in_pieces(t):
    """A request that arrives in several reads: receive_ms, and TTFT from its end."""
    srv = t.server(stream3)
    p = t.probe(srv)
    c = Client(srv)
    whole = chat("x0", pad=1000)
    for i, k in enumerate((1, 5, 60, 400, len(whole))):
        c.send(whole[:k] if i == 0 else whole[(1, 5, 60, 400)[i - 1]:k])
        time.sleep(0.03)
    c.response()
    c.close()
    recs = p.finish(1)
    r = only(t, recs, "x0")
    stream_is(t, r, srv.truth("x0"), ttft=20, gaps=[20, 20], chunks=3)
    if r:
        t.near(r["phases"]["receive_ms"], 120, "receive_ms", 12)
        t.equal(r["bytes"]["request"], len(whole), "request bytes")
