#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A load for OpenAI-like servers that keeps what each answer says of itself:
usage, the engine's own `metrics`, finish reasons; and the client's instants
(ns of CLOCK_MONOTONIC: before the first byte is sent, after each read). Standard
library only: one thread and one socket for each place of the concurrency. Bytes
are kept while it runs and parsed afterwards.

By hand: vllm_load.py PORT [-n N] [-c C] [--seed S] [--model NAME]: one JSON line
for each request."""

import bisect, json, random, socket, struct, threading, time

METRICS = ("time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second")
WORDS = "river stone light seven paper cloud engine green winter number bridge garden silver letter window música".split()


class Ask:
    """One request that is to be sent. after_events, after_ms: the client hangs up."""

    def __init__(self, body, path=None, xid=None, after_events=None, after_ms=None, rst=False, close=False, key=None):
        self.path = path or ("/v1/chat/completions" if "messages" in body else "/v1/completions")
        self.body, self.xid, self.after_events, self.after_ms, self.rst, self.close = body, xid, after_events, after_ms, rst, close
        self.key = key   # what the test calls it

    @property
    def stream(self):
        return bool(self.body.get("stream"))

    def bytes(self, model):
        b = json.dumps({"model": model, **self.body}).encode()
        h = [f"POST {self.path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(b)}"]
        if self.xid:
            h.append(f"X-Request-Id: {self.xid}")
        if self.close:
            h.append("Connection: close")
        return ("\r\n".join(h) + "\r\n\r\n").encode() + b


class Answer:
    """One response, fed with what is read."""

    def __init__(self, ask):
        self.ask, self.xid, self.key = ask, ask.xid, ask.key
        self.port = None         # the client's
        self.end = None          # complete, hangup, closed, reset, timeout, refused
        self.status, self.headers, self.body = None, {}, bytearray()
        self.sent = self.first_byte = self.last_byte = self.sent_wall = None
        self.marks = []          # (length of the body, instant), ascending
        self.raw = bytearray()
        self.left, self.state, self.events = None, "head", 0
        self._parsed = None

    def feed(self, data, t):
        """True when the response is complete."""
        if self.first_byte is None:
            self.first_byte = t
        self.last_byte = t
        self.raw += data
        had = len(self.body)
        done = self._eat()
        if len(self.body) > had:
            self.events += self.body.count(b"\n\n", max(0, had - 1))
            self.marks.append((len(self.body), t))
        return done

    def _eat(self):
        raw = self.raw
        while True:
            if self.state == "head":
                at = raw.find(b"\r\n\r\n")
                if at < 0:
                    return False
                lines = raw[:at].decode("latin-1").split("\r\n")
                del raw[:at + 4]
                self.status = int(lines[0].split(" ")[1])
                if self.status < 200:
                    continue
                self.headers = {l.partition(":")[0].lower(): l.partition(":")[2].strip() for l in lines[1:]}
                if self.headers.get("transfer-encoding") == "chunked":
                    self.state = "size"
                elif "content-length" in self.headers:
                    self.state, self.left = "length", int(self.headers["content-length"])
                else:
                    self.state = "close"
            elif self.state == "close":
                self.body += raw
                raw.clear()
                return False
            elif self.state in ("length", "data"):
                n = min(self.left, len(raw))
                self.body += raw[:n]
                del raw[:n]
                self.left -= n
                if self.left:
                    return False
                if self.state == "length":
                    return True
                self.state = "crlf"
            else:
                at = raw.find(b"\r\n")
                if at < 0:
                    return False
                line = bytes(raw[:at])
                del raw[:at + 2]
                if self.state == "crlf":
                    self.state = "size"
                elif self.state == "size":
                    self.left = int(line.split(b";")[0], 16)
                    self.state = "data" if self.left else "trailer"
                elif not line:
                    return True

    # ---- what it says ----

    def instant(self, offset):
        """When the byte before this offset of the body had been read."""
        i = bisect.bisect_left(self.marks, (offset, 0))
        return self.marks[min(i, len(self.marks) - 1)][1] if self.marks else None

    def parsed(self):
        """[(object, instant)] of a stream's events, or of the one body."""
        if self._parsed is None:
            self._parsed, at = [], 0
            body = bytes(self.body)
            if self.headers.get("content-type", "").startswith("text/event-stream"):
                for block in body.split(b"\n\n")[:-1]:
                    at += len(block) + 2
                    if block.startswith(b"data: {"):
                        self._parsed.append((json.loads(block[6:]), self.instant(at)))
            elif body.startswith(b"{"):
                try:
                    self._parsed = [(json.loads(body), self.last_byte)]
                except ValueError:
                    pass     # cut: the client or the server hung up
        return self._parsed

    def last(self, key):
        got = None
        for o, _ in self.parsed():
            got = o[key] if o.get(key) is not None else got
        return got

    @property
    def id(self):
        return next((o["id"] for o, _ in self.parsed() if o.get("id")), None)

    @property
    def usage(self):
        return self.last("usage")

    @property
    def metrics(self):
        """The five figures (those left out are None), or None."""
        m = self.last("metrics")
        return None if m is None else {k: m.get(k) for k in METRICS}

    @property
    def error(self):
        return self.last("error")

    def choices(self):
        """{index: [finish reason, text, stop reason]}"""
        out = {}
        for o, _ in self.parsed():
            for c in o.get("choices") or []:
                x = out.setdefault(c["index"], [None, "", None])
                x[0] = c.get("finish_reason") or x[0]
                x[1] += text_of(c)
                x[2] = c["stop_reason"] if c.get("stop_reason") is not None else x[2]
        return out

    @property
    def finish(self):
        return self.choices().get(0, [None])[0]

    @property
    def text(self):
        return "\x00".join(c[1] for _, c in sorted(self.choices().items()))

    def token_instants(self):
        return [t for o, t in self.parsed() if any(text_of(c) for c in o.get("choices") or [])] if self.ask.stream else []

    def ms(self, instant):
        return None if instant is None or self.sent is None else (instant - self.sent) / 1e6

    @property
    def duration_ms(self):
        return self.ms(self.last_byte)

    @property
    def ttft_ms(self):
        return self.ms(next(iter(self.token_instants()), None))


def text_of(choice):
    d = choice.get("delta") or choice.get("message") or {}
    return (choice.get("text") or "") + (d.get("content") or "") + (d.get("reasoning") or d.get("reasoning_content") or "")


def connect(port, timeout):
    s = socket.create_connection(("127.0.0.1", port), timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def talk(sock, ask, model, timeout, stop=None):
    """Send one request on this socket and read its response."""
    a = Answer(ask)
    data = ask.bytes(model)
    end = time.monotonic() + timeout
    quit_at = time.monotonic() + ask.after_ms / 1e3 if ask.after_ms is not None else None
    a.sent, a.sent_wall = time.monotonic_ns(), time.time()
    try:
        a.port = sock.getsockname()[1]
        sock.settimeout(timeout)
        sock.sendall(data)
        while True:
            now = time.monotonic()
            if quit_at is not None and now >= quit_at:
                a.end = "hangup"
                break
            if now >= end or (stop is not None and stop.is_set()):
                a.end = "timeout"
                break
            sock.settimeout(min(0.5, end - now, max(0.001, quit_at - now) if quit_at is not None else 0.5))
            try:
                d = sock.recv(1 << 18)
            except (socket.timeout, BlockingIOError):
                continue
            t = time.monotonic_ns()
            if not d:
                a.end = "complete" if a.state == "close" else "closed"
                break
            if a.feed(d, t):
                a.end = "complete"
                break
            if ask.after_events is not None and a.events >= ask.after_events:
                a.end = "hangup"
                break
    except OSError:
        a.end = "reset"
    if a.end == "hangup" and ask.rst:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return a


class Load:
    """asks at a given concurrency, in the background: start(), then join()."""

    def __init__(self, port, asks, c=1, model="tiny", timeout=120, keepalive=True):
        self.port, self.asks, self.c, self.model, self.timeout, self.keepalive = port, list(asks), c, model, timeout, keepalive
        self.answers = [None] * len(self.asks)
        self.next, self.lock, self.stop = 0, threading.Lock(), threading.Event()
        self.threads = []

    def start(self):
        for _ in range(min(self.c, len(self.asks))):
            th = threading.Thread(target=self._work, daemon=True)
            th.start()
            self.threads.append(th)
        return self

    def going(self):
        return any(th.is_alive() for th in self.threads)

    def _work(self):
        sock = None
        while not self.stop.is_set():
            with self.lock:
                i = self.next
                if i >= len(self.asks):
                    break
                self.next = i + 1
            ask = self.asks[i]
            try:
                sock = sock or connect(self.port, self.timeout)
            except OSError:
                a = Answer(ask)
                a.end, self.answers[i] = "refused", a
                a.sent = time.monotonic_ns()
                time.sleep(0.05)
                continue
            a = self.answers[i] = talk(sock, ask, self.model, self.timeout, self.stop)
            if a.end != "complete" or ask.close or not self.keepalive or a.headers.get("connection", "").lower() == "close":
                sock.close()
                sock = None
        if sock:
            sock.close()

    def done(self):
        return sum(1 for a in self.answers if a is not None)

    def join(self):
        try:
            for th in self.threads:
                while th.is_alive():
                    th.join(0.2)
        finally:
            self.stop.set()
        return [a for a in self.answers if a is not None]


def run(port, asks, c=1, **kw):
    return Load(port, asks, c, **kw).start().join()


# ---------------------------------------------------------------- what to ask

def prompt(rng, low=2, high=120, start=""):
    n = min(high, low + int(rng.expovariate(1 / 25.0)))
    return " ".join(([start] if start else []) + [rng.choice(WORDS) for _ in range(n)])


def chat(text, n_tokens, stream=False, usage=True, **more):
    return _generate({"messages": [{"role": "user", "content": text}]}, n_tokens, stream, usage, more)


def completion(text, n_tokens, stream=False, usage=True, **more):
    return _generate({"prompt": text}, n_tokens, stream, usage, more)


def _generate(body, n_tokens, stream, usage, more):
    body = {**body, "max_tokens": n_tokens, "ignore_eos": True}
    if stream:
        body["stream"] = True
        if usage:
            body["stream_options"] = {"include_usage": True}
    body.update(more)
    return {k: v for k, v in body.items() if v is not None}


def mixed(n, seed=1, most=256, xid="q", stops=True, marker="", usage=True, logprobs=True):
    """n requests of all kinds. About half carry an X-Request-Id, and some of
    those are the beginning of another, as the engine's own suffixes would be."""
    rng = random.Random(seed)
    asks = []
    for i in range(n):
        more = {"temperature": rng.choice((0, 0.7, 1.0)), "seed": seed * 100000 + i if rng.random() < .1 else None}
        if stops and rng.random() < .15:
            more["stop"] = rng.choice((["e"], ["in", "the"], "o"))
        if stops and rng.random() < .1:
            more["ignore_eos"] = False
        is_chat, stream = rng.random() < .6, rng.random() < .6
        if logprobs and rng.random() < .06:
            more.update({"logprobs": True, "top_logprobs": 3} if is_chat else {"logprobs": 3})
        make = chat if is_chat else completion
        x = None
        if xid and rng.random() < .5:
            x = f"{xid}-{i // 8}" + ("", "-0", "-1", "-0-1", "_0", "-1a2b3c4d", "-x", "-0-x")[i % 8]
        asks.append(Ask(make(prompt(rng, start=marker), 1 if rng.random() < .04 else rng.randint(1, most), stream, usage, **more),
                        xid=x, close=rng.random() < .2, key=i))
    return asks


def plain(n, seed=1, c=None, low=4, high=40, xid="p", stream=None, **more):
    """n requests whose lengths are as asked: nothing stops early."""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        s = rng.random() < .5 if stream is None else stream
        make = chat if rng.random() < .5 else completion
        out.append(Ask(make(prompt(rng, 2, 30), rng.randint(low, high), s, **more), xid=f"{xid}-{i}" if xid else None, key=i))
    return out


if __name__ == "__main__":
    import argparse
    ap = argparse.ArgumentParser()
    ap.add_argument("port", type=int)
    ap.add_argument("-n", type=int, default=20)
    ap.add_argument("-c", type=int, default=4)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--most", type=int, default=64)
    ap.add_argument("--model", default="tiny")
    o = ap.parse_args()
    for a in run(o.port, mixed(o.n, o.seed, o.most), o.c, model=o.model):
        print(json.dumps({"id": a.id, "x_request_id": a.xid, "end": a.end, "status": a.status, "stream": a.ask.stream, "finish": a.finish,
                          "usage": a.usage, "metrics": a.metrics, "ttft_ms": a.ttft_ms, "duration_ms": a.duration_ms}))
