# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Packets made by hand: HTTP dialogues as TCP segments with instants, things that
happen to captures (cut, lost, repeated, reordered), and pcap and pcapng files of
any link type. Standard library only. All instants are integer nanoseconds."""

import dataclasses, ipaddress, json, random, struct

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
START = 1_700_000_000_000_000_000
MS = 1_000_000
ETHERNET, SLL, SLL2, RAW, NULL, LOOP = 1, 113, 276, 101, 0, 108


@dataclasses.dataclass
class Packet:
    ts: int
    src: tuple      # (address, port)
    dst: tuple
    seq: int
    ack: int
    flags: int
    data: bytes = b""
    ident: int = 0
    opts: dict = dataclasses.field(default_factory=dict)    # frag, total0, ext, vlan, pad

    def ip(self):
        s, d = ipaddress.ip_address(self.src[0]), ipaddress.ip_address(self.dst[0])
        options = b"\1\1\x08\x0a" + struct.pack("!II", self.ts // MS & 0xffffffff, 0)   # as Linux: timestamps
        tcp = struct.pack("!HHIIBBHHH", self.src[1], self.dst[1], self.seq & 0xffffffff, self.ack & 0xffffffff,
                          8 << 4, self.flags, 65535, 0, 0) + options + self.data
        if s.version == 4:
            total = 0 if self.opts.get("total0") else 20 + len(tcp)
            return struct.pack("!BBHHHBBH4s4s", 0x45, 0, total, self.ident & 0xffff, self.opts.get("frag", 0x4000), 64, 6, 0,
                               s.packed, d.packed) + tcp
        ext, nxt = b"", 6
        for kind in reversed(self.opts.get("ext", ())):
            body = {0: b"\0\0\0\0\0\0", 60: b"\0\0\0\0\0\0", 44: b"\0\0" + b"\0\0\0\1"}[kind]
            ext, nxt = bytes([nxt, 0]) + body + ext, kind
        n = 0 if self.opts.get("total0") else len(ext) + len(tcp)
        return struct.pack("!IHBB", 6 << 28, n, nxt, 64) + s.packed + d.packed + ext + tcp

    def frame(self, link):
        ip = self.ip()
        etype = 0x0800 if ip[0] >> 4 == 4 else 0x86dd
        tags = b""
        for tag in self.opts.get("vlan", ()):
            tags += struct.pack("!HH", 0x88a8 if tag > 100 else 0x8100, tag)
        typ = tags + struct.pack("!H", etype)
        pad = b"\xee" * self.opts.get("pad", 0)
        if link == ETHERNET:
            return b"\2\0\0\0\0\1\2\0\0\0\0\2" + typ + ip + pad
        if link == SLL:
            return struct.pack("!HHH8s", 0, 1, 6, b"\2\0\0\0\0\1") + typ + ip + pad
        if link == SLL2:
            return struct.pack("!HHIHBB8s", etype, 0, 1, 1, 0, 6, b"\2\0\0\0\0\1") + ip + pad
        if link == NULL:
            return struct.pack("<I", 2 if etype == 0x0800 else 30) + ip + pad
        if link == LOOP:
            return struct.pack("!I", 2 if etype == 0x0800 else 24) + ip + pad
        return ip + pad


def write(path, packets, link=ETHERNET, ns=True, ng=False, snaplen=0, big=False, cut_file=0):
    """In the order given: what is captured is not always in order of time."""
    e = ">" if big else "<"
    out = []
    if ng:
        opt = struct.pack(e + "HHBxxx", 9, 1, 9) + struct.pack(e + "HH", 0, 0) if ns else b""
        out.append(struct.pack(e + "IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28))
        n = 20 + len(opt)
        out.append(struct.pack(e + "IIHHI", 1, n, link, 0, snaplen) + opt + struct.pack(e + "I", n))
    else:
        out.append(struct.pack(e + "IHHiIII", 0xA1B23C4D if ns else 0xA1B2C3D4, 2, 4, 0, 0, snaplen or 262144, link))
    for p in packets:
        f = p.frame(link)
        c = f[:snaplen] if snaplen else f
        if ng:
            t = p.ts if ns else p.ts // 1000
            body = c + b"\0" * (-len(c) % 4)
            n = 32 + len(body)
            out.append(struct.pack(e + "IIIIIII", 6, n, 0, t >> 32, t & 0xffffffff, len(c), len(f)) + body + struct.pack(e + "I", n))
        else:
            out.append(struct.pack(e + "IIII", p.ts // 10**9, p.ts % 10**9 // (1 if ns else 1000), len(c), len(f)) + c)
    b = b"".join(out)
    with open(path, "wb") as f:
        f.write(b[:len(b) - cut_file] if cut_file else b)


class Conn:
    """A connection as seen at the server: what it sends has the instant of its
    sending, what it gets that of its arrival. Instants count from START, in ms."""

    def __init__(self, cport, sport=8000, client="10.0.0.7", server="10.0.0.1", rtt=1.0, isn=(1000, 500000), mss=1448):
        self.end = {"c": (client, cport), "s": (server, sport)}
        self.seq = {"c": isn[0], "s": isn[1]}
        self.rtt, self.mss, self.packets = rtt, mss, []
        self.ident = {"c": 1, "s": 30000}

    def other(self, side):
        return "s" if side == "c" else "c"

    def packet(self, ms, side, flags, data=b"", seq=None, **opts):
        o = self.other(side)
        p = Packet(START + round(ms * MS), self.end[side], self.end[o], self.seq[side] if seq is None else seq,
                   self.seq[o] if flags & ACK else 0, flags, data, self.ident[side], opts)
        self.ident[side] += 1
        self.packets.append(p)
        return p

    def open(self, ms):
        """The last ACK arrives at `ms`."""
        self.packet(ms - self.rtt - 0.02, "c", SYN)
        self.seq["c"] += 1
        self.packet(ms - self.rtt, "s", SYN | ACK)
        self.seq["s"] += 1
        self.packet(ms, "c", ACK)

    def send(self, ms, side, data, ack=True, **opts):
        """In segments, all at this instant; the other side acknowledges."""
        out = []
        for i in range(0, len(data), self.mss):
            part = data[i:i + self.mss]
            out.append(self.packet(ms, side, ACK | PSH, part, **opts))
            self.seq[side] += len(part)
        if ack:
            self.packet(ms + (self.rtt if side == "s" else 0.01), self.other(side), ACK)
        return out

    def fin(self, ms, side, ack=True):
        self.packet(ms, side, FIN | ACK)
        self.seq[side] += 1
        if ack:
            self.packet(ms + (self.rtt if side == "s" else 0.01), self.other(side), ACK)

    def rst(self, ms, side):
        self.packet(ms, side, RST | ACK)

    def close(self, ms):
        """The client closes, the server follows."""
        self.fin(ms, "c", ack=False)
        self.fin(ms + 0.05, "s")


def chat(xid, pad=0, close=False, path="/v1/chat/completions"):
    body = json.dumps({"model": "m", "stream": True, "stream_options": {"include_usage": True},
                       "messages": [{"role": "user", "content": "SECRET" + "p" * pad}]}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nX-Request-Id: {xid}\r\nContent-Type: application/json\r\n"
    if close:
        head += "Connection: close\r\n"
    return (head + f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def wrap(data, chunked=True):
    return b"%x\r\n%s\r\n" % (len(data), data) if chunked else data


def event(obj):
    return b"data: " + json.dumps(obj, separators=(",", ":")).encode() + b"\n\n"


def token(i, size=0, finish=None):
    return event({"id": "cmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [
        {"index": 0, "delta": {"content": f"w{i} " + "SECRET"[:size] + "x" * max(0, size - 6)}, "finish_reason": finish}]})


HEAD = {True: b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        False: b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"}


@dataclasses.dataclass
class Expect:
    """What the record must say, by construction (milliseconds)."""
    xid: str
    start: int
    ttft: float
    gaps: list
    chunks: int
    duration: float
    rtt: float
    end: str = "complete"
    tokens: object = None


def stream(c, ms, xid, n=5, ttft=20.0, gap=10.0, size=0, chunked=True, pad=0, last=True, usage=True, jitter=None):
    """One request at `ms`, answered with n token events in a packet each; the usage
    and the end come 1 ms after the last. Returns what the record must say."""
    ms = round(ms, 3)
    r = chat(xid, pad, close=not chunked)
    c.send(ms, "c", r)
    at, times = ms + ttft, []
    c.send(ms + ttft / 2, "s", HEAD[chunked])
    for i in range(n):
        c.send(at, "s", wrap(token(i, size, "length" if i == n - 1 else None), chunked), ack=i % 2 == 1)
        times.append(at)
        at = round(at + gap * (1 if jitter is None else 0.2 + 1.6 * jitter.random()), 3)
    done = times[-1] + 1
    if last:
        tail = (wrap(event({"id": "cmpl-1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": n}}), chunked)
                if usage else b"") + wrap(b"data: [DONE]\n\n", chunked) + (b"0\r\n\r\n" if chunked else b"")
        c.send(done, "s", tail)
        if not chunked:
            c.fin(done + 0.01, "s")
            c.fin(done + 1 + c.rtt, "c")
    return Expect(xid, START + round(ms * MS), ttft, [b - a for a, b in zip(times, times[1:])], n, done - ms, c.rtt,
                  tokens=n if usage and last else None)


def by_time(*conns):
    """All their packets in one capture; at the same instant in the order they were made."""
    return sorted((p for c in conns for p in c.packets), key=lambda p: p.ts)


# ---------------------------------------------------------------- what happens to captures

def drop(packets, rnd, share, what=lambda p: True):
    """(those that stay, those that are gone)"""
    gone = [p for p in packets if what(p) and rnd.random() < share]
    ids = {id(p) for p in gone}
    return [p for p in packets if id(p) not in ids], gone


def reorder(packets, rnd, window=4, share=0.3, across=False):
    """Move packets back by up to `window` places; each keeps its instant. `across`: also
    behind packets of the other side that answer it, which no one capture point sees."""
    keyed = [[i + (rnd.random() * window if rnd.random() < share else 0), p] for i, p in enumerate(packets)]
    if not across:
        for k in range(len(keyed) - 1, -1, -1):     # not behind the first that was sent back
            for j in range(k + 1, min(len(keyed), k + 3 * window)):
                if keyed[j][1].src == packets[k].dst and keyed[j][1].dst == packets[k].src:
                    keyed[k][0] = min(keyed[k][0], keyed[j][0] - 1e-9)
    return [p for _, p in sorted(keyed, key=lambda x: x[0])]


def swap_instants(packets, rnd, window=4, share=0.3):
    """Reordered by the network: the order changes, the instants do not."""
    moved = reorder(packets, rnd, window, share)
    return [dataclasses.replace(p, ts=o.ts) for o, p in zip(packets, moved)]


def duplicate(packets, rnd, share=0.3):
    """The same packet captured twice, a few microseconds later."""
    out = []
    for p in packets:
        out.append(p)
        if rnd.random() < share:
            out.append(dataclasses.replace(p, ts=p.ts + 3000))
    return out


def retransmit(packets, rnd, share=0.3, after=5.0):
    """Sent again later: the same segment, a part of it, or joined with its neighbour;
    bytes of the repeat are garbled, for the first copy counts."""
    out, n = [], 0
    last, again = {}, []
    for p in packets:
        while again and again[0].ts <= p.ts:
            out.append(again.pop(0))
        out.append(p)
        if not p.data:
            continue
        prev = last.get(p.src + p.dst)
        last[p.src + p.dst] = p
        if rnd.random() >= share:
            continue
        n += 1
        seq, data = p.seq, p.data
        how = rnd.randrange(3)
        if how == 1 and len(data) > 2:
            cut = rnd.randrange(1, len(data) - 1)
            seq, data = seq + cut, data[cut:]
        elif how == 2 and prev and (prev.seq + len(prev.data)) & 0xffffffff == p.seq & 0xffffffff:
            seq, data = prev.seq, prev.data + data
        again.append(dataclasses.replace(p, ts=p.ts + round(after * MS), seq=seq, data=bytes(len(data)), ident=p.ident + 7777))
        again.sort(key=lambda p: p.ts)
    return out + again, n


def generator(seed=1):
    return random.Random(seed)
