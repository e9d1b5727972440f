#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tests/live/rtt_compare.py [--line MS] [-n PROBES] [-i SECONDS]

The prober of `reqprobe rtt` against AIPerf's own, on the same path, in turn:
what each says, against the kernel's figure of the very same handshakes. Bias is
the mean of the differences, spread their standard deviation.

Needs aiperf in the Python that runs this, or in that which AIPERF_PYTHON names.
REQPROBE names another binary. --line puts a path of MS there and back between two
network namespaces (root): packets are held back by this script."""

import argparse, ctypes, fcntl, json, os, select, socket, statistics, struct, subprocess, sys, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
REQPROBE = os.environ.get("REQPROBE", os.path.join(HERE, "..", "..", "build", "reqprobe"))
PYTHON = os.environ.get("AIPERF_PYTHON", sys.executable)

# AIPerf's probe class, untouched but for a look at the socket before it is closed,
# outside of the time it measures. One JSON line for each block of probes.
CHILD = r"""
import asyncio, json, socket, struct, sys
import aiperf.network_latency.probe as probe
host, port, n, interval = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
kernel, rtts = [], []
real = asyncio.open_connection
async def open_connection(*a, **kw):
    r, w = await real(*a, **kw)
    close = w.close
    def closing():
        ti = w.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        kernel.append(struct.unpack_from("=8B24I", ti)[8 + 15] * 1000)
        close()
    w.close = closing
    return r, w
asyncio.open_connection = open_connection
async def main():
    async def keep(samples, _):
        rtts.append(samples[0].rtt_ns)
    c = probe.NetworkLatencyProbeCollector(f"http://{host}:{port}", host, port, ping_interval=interval, record_callback=keep)
    await c.initialize()
    await c.resolve()
    loop = asyncio.get_running_loop()
    for line in iter(lambda: sys.stdin.readline(), ""):
        kernel.clear(), rtts.clear()
        due = loop.time()
        for _ in range(n):
            await c.probe_once()
            due += interval
            await asyncio.sleep(max(0, due - loop.time()))
        print(json.dumps(list(zip(rtts, kernel))), flush=True)
if sys.argv[5] == "uvloop":
    import uvloop
    uvloop.install()
asyncio.run(main())
"""


def serve(sock):
    """An ordinary server: accepts, reads to the end, closes."""
    while True:
        c, _ = sock.accept()
        threading.Thread(target=lambda c=c: (c.recv(1), c.close()), daemon=True).start()


class Line:
    """Two namespaces and a wire of ms/2 each way: a TUN device in each, and this
    process in between."""

    def __init__(self, ms):
        self.ns = [f"rtt-line-{os.getpid()}-{x}" for x in "ab"]
        self.half = ms / 2000
        libc = ctypes.CDLL(None, use_errno=True)
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.tun = []
        for i, ns in enumerate(self.ns):
            subprocess.run(["ip", "netns", "add", ns], check=True)
            there = os.open(f"/run/netns/{ns}", os.O_RDONLY)
            libc.setns(there, 0x40000000)
            fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(fd, 0x400454ca, struct.pack("16sH22x", b"line0", 0x1001))     # TUNSETIFF: TUN, no header
            libc.setns(home, 0x40000000)
            os.close(there)
            for cmd in (f"addr add 10.99.0.{i + 1}/24 dev line0", "link set line0 up", "link set lo up"):
                subprocess.run(["ip", "-n", ns] + cmd.split(), check=True)
            self.tun.append(fd)
        for i in (0, 1):
            threading.Thread(target=self.wire, args=(self.tun[i], self.tun[1 - i]), daemon=True).start()

    def wire(self, rx, tx):
        held = []
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(2))     # of this thread
        while True:
            wait = max(0, held[0][0] - time.monotonic() - 0.0002) if held else None
            if select.select([rx], [], [], wait)[0]:
                at = time.monotonic()
                held.append((at + self.half, os.read(rx, 65536)))
            while held and held[0][0] <= time.monotonic() + 0.0002:
                while time.monotonic() < held[0][0]:
                    pass
                os.write(tx, held.pop(0)[1])

    def close(self):
        for ns in self.ns:
            subprocess.run(["ip", "netns", "del", ns])


def figures(name, pairs):
    """pairs of (what the prober says, what the kernel says), ns."""
    said, kernel = [a / 1e3 for a, _ in pairs], [b / 1e3 for _, b in pairs]
    off = sorted(a - b for a, b in zip(said, kernel))
    at = lambda p: off[min(len(off) - 1, int(p * len(off)))]
    print(f"{name:<26} {len(pairs):>5} {statistics.mean(said):>9.1f} {statistics.pstdev(said):>8.1f}"
          f" {statistics.mean(kernel):>9.1f} {statistics.pstdev(kernel):>8.1f}"
          f" {statistics.mean(off):>8.1f} {statistics.pstdev(off):>8.1f} {at(0.5):>8.1f} {at(0.99):>8.1f} {off[-1]:>8.1f}")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--line", type=float, help="round trip of an artificial path, ms")
    ap.add_argument("-n", type=int, default=200)
    ap.add_argument("-i", type=float, default=0.02)
    o = ap.parse_args()
    if subprocess.run([PYTHON, "-c", "import aiperf.network_latency.probe"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        print(f"SKIP rtt_compare: {PYTHON} has no aiperf (pip install aiperf==0.13.0, then AIPERF_PYTHON=)")
        return 0
    if o.line and os.geteuid():
        print("SKIP rtt_compare: --line needs root")
        return 0
    line = Line(o.line) if o.line else None
    host, blocks = ("10.99.0.2" if line else "127.0.0.1"), 4
    there = lambda i: ["ip", "netns", "exec", line.ns[i]] if line else []
    server, child, theirs, ours = None, {}, {"uvloop": [], "asyncio": []}, []
    try:
        server = subprocess.Popen(there(1) + [sys.executable, os.path.abspath(__file__), "--serve", host], stdout=subprocess.PIPE, text=True)
        port = int(server.stdout.readline())
        for loop in theirs:     # uvloop is what its services run on
            child[loop] = subprocess.Popen(there(0) + [PYTHON, "-c", CHILD, host, str(port), str(o.n // blocks), str(o.i), loop],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(blocks):     # in turn, so that all have their share of what else runs here
            for loop, c in child.items():
                c.stdin.write("go\n")
                c.stdin.flush()
                theirs[loop] += json.loads(c.stdout.readline())
            r = subprocess.run(there(0) + [REQPROBE, "rtt", "-n", str(o.n // blocks), "-i", f"{o.i * 1000:.0f}ms", "--both", "-o", "-", f"{host}:{port}"],
                               capture_output=True, text=True, check=True)
            ours += [(x["connect_ns"], x["kernel_ns"]) for x in map(json.loads, r.stdout.splitlines()) if x["success"] and x["kernel_ns"] > 0]
        print(f"{o.n} probes each, every {o.i * 1000:.0f} ms, {f'a line of {o.line} ms' if line else 'loopback'}; all in us; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"{'':<26} {'n':>5} {'mean':>9} {'std':>8} {'kernel':>9} {'std':>8} {'bias':>8} {'spread':>8} {'p50':>8} {'p99':>8} {'max':>8}")
        for loop, pairs in theirs.items():
            figures(f"AIPerf ({loop})", pairs)
        figures("reqprobe rtt, connect", ours)
        figures("reqprobe rtt, kernel", [(b, b) for _, b in ours])
    finally:
        for p in (*child.values(), server):
            if p:
                p.kill()
                p.wait()
        if line:
            line.close()
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        s = socket.create_server((sys.argv[2], 0), backlog=256)
        print(s.getsockname()[1], flush=True)
        serve(s)
    sys.exit(main())
