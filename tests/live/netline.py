# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A line with a delay between two network namespaces (delay.c): servers live at
end a, clients at end b. Everything lives in one child process; when it ends, the
devices are gone at once, and the namespaces with the last process in them."""

import contextlib, ctypes, json, os, socket, subprocess
from harness import *
import harness

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _setns(fd):
    if _libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class DelayLine:
    """ms_each_way: how long a packet is held, in each direction."""

    a4, b4, a6, b6 = "10.77.0.1", "10.77.0.2", "fd77::1", "fd77::2"

    def __init__(self, t, ms_each_way, *args):
        exe = os.path.join(harness.BIN, "delay")
        if not os.path.exists("/dev/net/tun") or not os.path.exists(exe):
            raise Skip("no /dev/net/tun" if os.path.exists(exe) else "delay.c was not built")
        self.t, self.ms = t, ms_each_way
        self.proc = t.spawn([exe, "--ms", str(ms_each_way)] + [str(a) for a in args], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, bufsize=1)
        line = self.proc.stdout.readline()
        if not line.startswith("ready "):
            raise Skip("no network namespaces or TUN devices here")
        self.fds = [os.open(f"/proc/{self.proc.pid}/fd/{n}", os.O_RDONLY) for n in line.split()[1:]]
        self.has_v6 = os.path.exists("/proc/net/if_inet6")

    def __del__(self):
        for fd in getattr(self, "fds", ()):
            with contextlib.suppress(OSError):
                os.close(fd)

    def say(self, *words):
        """A command of delay.c: say("drop", "b", "syn", 1)."""
        self.proc.stdin.write(" ".join(map(str, words)) + "\n")
        self.proc.stdin.flush()
        got = self.proc.stdout.readline().strip()
        if got != "ok":
            raise AssertionError(f"delay line: {words}: {got!r}")

    def _tell(self, word):
        self.proc.stdin.write(word + "\n")
        self.proc.stdin.flush()
        return json.loads(self.proc.stdout.readline())

    def stats(self):
        return self._tell("stats")

    def handshakes(self):
        """{client's port: ms from SYN-ACK to ACK by the line's own clock}"""
        return {int(k): v / 1000 for k, v in self._tell("handshakes").items()}

    def kept_up(self):
        """Was it on time, as far as its own clock can tell?"""
        s = self.stats()
        return all(s[e]["late_max_us"] < 1000 and not s[e]["overflow"] for e in "ab")

    def fd(self, end):
        return self.fds["ab".index(end)]

    def enter(self, end):
        """For preexec_fn, and for Server(enter=)."""
        fd = self.fd(end)
        return lambda: _setns(fd)

    @contextlib.contextmanager
    def inside(self, end):
        """This thread is there meanwhile; sockets made then stay there."""
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _setns(self.fd(end))
            yield
        finally:
            _setns(here)
            os.close(here)

    def sysctl(self, end, name, value=None):
        with self.inside(end):
            with open(os.path.join("/proc/sys", name.replace(".", "/")), "r" if value is None else "w") as f:
                return f.read().strip() if value is None else f.write(str(value))

    # -- what the harness has, at either end --
    def spawn(self, end, argv, **kw):
        return self.t.spawn(argv, preexec_fn=self.enter(end), **kw)

    def paced(self, *args, listen=None, **kw):
        return self.t.paced(*args, listen=listen or f"{self.a4}:0", spawn={"preexec_fn": self.enter("a")}, **kw)

    def server(self, handler, family="v6", **kw):
        """Listens on ::, which takes IPv4 too."""
        return self.t.server(handler, family=family, enter=self.enter("a"), **kw)

    def where(self, port, v6=False):
        return f"[{self.a6}]:{port}" if v6 else f"{self.a4}:{port}"

    def run_client(self, port, *args, v6=False, **kw):
        return run_client(self.t, self.where(port, v6), *args, spawn={"preexec_fn": self.enter("b")}, **kw)

    def start_client(self, port, *args, v6=False, **kw):
        return self.spawn("b", client_argv(self.where(port, v6), *args, **kw), stdout=subprocess.PIPE, text=True)

    def connect(self, port, v6=False, timeout=30):
        with self.inside("b"):
            return Client((self.a6 if v6 else self.a4, port), timeout)
