# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The request log and its upload: against --jsonl of the same run, the tools people
read such files with, and moto's S3 with its check of every signature (PyPI moto: its
server computes them with botocore, which is not our signing)."""

import collections, glob, gzip, json, os, re, shutil, signal, socket, subprocess, threading, time
import pcapgen
from harness import *

LONG = bool(os.environ.get("REQPROBE_LOG_LONG"))   # the store is down for a minute
REGION, BUCKET = "eu-central-1", "request-logs"
NAME = re.compile(r"^reqprobe-[\w.]+-\d{8}T\d{6}\.\d{3}Z-\d{6,}\.jsonl(\.gz|\.zst)?$")


# ---------------------------------------------------------------- reading

def cat(path):
    """By the tool of the trade: that it takes the whole file is the point."""
    tool = ["gzip", "-dc"] if path.endswith(".gz") else ["zstd", "-dcq"] if path.endswith(".zst") else ["cat"]
    r = subprocess.run([*tool, path], capture_output=True)
    if r.returncode:
        raise AssertionError(f"{tool[0]} refuses {os.path.basename(path)}: {r.stderr.decode().strip()}")
    return r.stdout


def lines_of(t, files):
    out = []
    for f in files:
        text = cat(f)
        t.check(text.endswith(b"\n"), f"{os.path.basename(f)} does not end with a whole line")
        t.check(bool(NAME.match(os.path.basename(f))), f"name {os.path.basename(f)}")
        out += text.decode().splitlines()
    return out


def whole_files(d):
    return sorted(f for f in glob.glob(os.path.join(d, "reqprobe-*")) if os.path.isfile(f))


def records_of(jsonl):
    with open(jsonl) as f:
        return [l for l in f.read().splitlines() if '"schema":"reqprobe.request/' in l]


def same_lines(t, got, want, what):
    a, b = collections.Counter(got), collections.Counter(want)
    t.check(a == b, lambda: f"{what}: {len(got)} lines, expected {len(want)}; "
            f"{sum((b - a).values())} missing, {sum((a - b).values())} too many")


def load(t, srv, n, c=20, **kw):
    return run_client(t, srv.port, n=n, c=c, max_tokens=2, extra={"gap_us": 0}, **kw)


def promtool(t, m):
    exe = shutil.which("promtool") or next(iter(glob.glob("/var/cache/reqprobe/bin/promtool")), None)
    if not exe:
        t.note("no promtool")
        return
    r = subprocess.run([exe, "check", "metrics"], input=m.text, capture_output=True, text=True)
    t.equal((r.returncode, r.stdout + r.stderr), (0, ""), "promtool check metrics")


# ---------------------------------------------------------------- files

@test(90)
def log_files(t):
    """By size and time, each compression: names in order, whole lines, the very lines of
    --jsonl. Rotation is after the capabilities are gone; the threads have none."""
    srv = t.paced(truth=False)
    sizes = {}
    for how in ("none", "gzip=9", "zstd"):
        d = t.path("log-" + how)
        p = t.probe(srv, args=["--log", d, "--log-compress", how, "--log-rotate-size", "64K", "--log-rotate-time", "2s",
                               "--log-fsync", "50ms" if how == "none" else "never" if how == "gzip=9" else "record"])
        load(t, srv, 400)
        p.wait_records(400)
        wait_for("rotation by time", 10, lambda: not glob.glob(d + "/.*.partial") and whole_files(d))
        n = len(whole_files(d))
        load(t, srv, 5)
        if how == "none":
            main = int(re.search(r"CapEff:\s+(\w+)", open(f"/proc/{p.pid}/status").read())[1], 16)
            t.check(main, "main itself has no capabilities: nothing is shown")
            seen = 0
            for task in glob.glob(f"/proc/{p.pid}/task/*"):
                s = open(task + "/status").read()
                if re.search(r"Name:\s+log-", s):
                    seen += 1
                    for cap in ("CapEff", "CapPrm"):
                        t.equal(int(re.search(cap + r":\s+(\w+)", s)[1], 16), 0, f"{cap} of a thread of the log")
                    t.check("NoNewPrivs:\t1" in s, "a thread of the log may gain privileges")
                    t.equal(int(re.search(r"SigBlk:\s+(\w+)", s)[1], 16) & 0x4003, 0x4003, "INT, HUP, TERM blocked")
            t.equal(seen, 3, "threads of the log")
        m = p.metrics()
        p.finish(405)
        files = whole_files(d)
        t.check(len(files) > n, f"{how}: {len(files)} files after {n}")
        if how == "none":
            t.check(n >= 6, f"{n} files of 64K")
            t.check(all(65536 <= os.path.getsize(f) < 2 * 65536 + 4096 for f in files[:n - 1]),
                    f"sizes {[os.path.getsize(f) for f in files]}")
        # a tick may hand over in the order of names: the files together are the lines in order
        t.equal(lines_of(t, files), records_of(p.jsonl), f"{how}: lines")
        t.equal([int(f.split("-")[-1].split(".")[0]) for f in files], list(range(1, len(files) + 1)), "numbers")
        t.equal(m.sum("reqprobe_log_files_total"), n, f"{how}: files_total")
        t.check(m.sum("reqprobe_log_records_total") >= 400, f"{how}: records_total {m.sum('reqprobe_log_records_total')}")
        t.equal(m.sum("reqprobe_log_records_lost_total"), 0, f"{how}: lost")
        t.equal([f for f in os.listdir(d) if f.endswith((".partial", ".recovered"))], [], f"{how}: left over")
        sizes[how] = sum(map(os.path.getsize, files))
    t.check(sizes["gzip=9"] < sizes["none"] / 4 and sizes["zstd"] < sizes["none"] / 4, f"sizes {sizes}")
    t.note("bytes " + ", ".join(f"{k} {v}" for k, v in sizes.items()))


@test(60)
def log_hup_and_refusals(t):
    """SIGHUP begins a file; a directory that is another's, or may not be written, and wrong
    usage are refused in one line."""
    srv = t.paced(truth=False)
    d = t.path("log")
    p = t.probe(srv, args=["--log", d])
    for i in range(3):
        load(t, srv, 3, c=1)
        time.sleep(0.3)
        p.proc.send_signal(signal.SIGHUP)
        wait_for("the file", 10, lambda: len(whole_files(d)) == i + 1)

    def refused(code, word, *args):
        r = subprocess.run([REQPROBE, "--pid", str(srv.pid), "--metrics", "off", "--jsonl", t.path("no.jsonl"), *args],
                           capture_output=True, text=True, timeout=20)
        t.equal((r.returncode, len(r.stderr.splitlines())), (code, 1), f"{args}: exit status, lines ({r.stderr[:300]})")
        t.check(word in r.stderr, f"{args}: {r.stderr[:300]}")
    refused(1, "another reqprobe", "--log", d)
    p.finish(9)
    same_lines(t, lines_of(t, whole_files(d)), records_of(p.jsonl), "lines")
    foreign = t.path("foreign")
    os.mkdir(foreign, 0o755)
    os.chown(foreign, 65534, 65534)   # root without capabilities may not write there
    refused(1, "Permission denied", "--log", foreign)
    refused(1, "Not a directory", "--log", p.jsonl)
    refused(2, "--log DIR", "--s3", "s3://bucket/x")
    refused(2, "s3://", "--log", d, "--s3", "http://bucket/x")
    refused(2, "--s3-credentials", "--log", d, "--s3", "s3://bucket/x", "--s3-endpoint", "http://me:secret@h/")
    refused(2, "https_proxy", "--log", d, "--s3", "s3://bucket/x", "--s3-proxy", "http://me:secret@h/")
    refused(2, "none, gzip or zstd", "--log", d, "--log-compress", "lzma")
    refused(2, "64K", "--log", d, "--log-rotate-size", "1K")
    refused(2, "--record", "--anonymous", "--record", t.path("r.rec"))


@test(90)
def log_kill(t):
    """SIGKILL under load: the next start finishes the file. What is missing is what came
    in the last interval; nothing is torn, nothing is twice."""
    srv = t.paced(truth=False)
    for how in ("none", "gzip", "zstd"):
        d = t.path("log-" + how)
        p = t.probe(srv, args=["--log", d, "--log-compress", how])
        load(t, srv, 300)
        p.wait_records(300)
        time.sleep(2.5)   # longer than the interval between two points that can be read back
        cl = t.spawn(client_argv(srv.port, n=2000, c=4, id="late", max_tokens=2, extra={"gap_us": 300}, quiet=True),
                     stdout=subprocess.DEVNULL)
        p.wait_records(450)
        os.kill(p.pid, signal.SIGKILL)
        p.proc.wait()
        cl.kill()
        cl.wait()
        t.equal(len(whole_files(d)), 0, f"{how}: whole files after the kill")
        t.equal(len(glob.glob(d + "/.*.partial")), 1, f"{how}: partial files")
        before = records_of(p.jsonl)
        q = t.probe(srv, args=["--log", d, "--log-compress", "none"])
        wait_for("recovery", 10, lambda: whole_files(d))
        got = lines_of(t, whole_files(d))
        t.check(got == before[:len(got)], f"{how}: not the first lines of --jsonl")
        t.check(300 <= len(got), f"{how}: {len(got)} of {len(before)} records, 300 were older than the interval")
        if how == "none":   # handed to the kernel at once, as --jsonl is
            t.check(len(got) >= len(before) - 200, f"{len(got)} of {len(before)}")
        t.check("was cut short" in q.stderr(), f"not said: {q.stderr()!r}")
        load(t, srv, 7)
        q.finish(7)
        same_lines(t, lines_of(t, whole_files(d)), got + records_of(q.jsonl), f"{how}: both runs")
        t.equal(glob.glob(d + "/.*.partial"), [], f"{how}: partial files")
        t.note(f"{how}: {len(got)} of {len(before)}")


SLOW = r"""
#include <unistd.h>
static int slow(int fd) { (void)fd; sleep(3); return 0; }
int fsync(int fd) { return slow(fd); }
int fdatasync(int fd) { return slow(fd); }
"""


@test(60)
def log_slow_disk(t):
    """A disk that takes 3 s to force a file down: records, metrics and --jsonl come at their
    usual time, whatever --log-fsync asks for, and nothing is lost."""
    lib, src = t.path("slow.so"), t.path("slow.c")
    with open(src, "w") as f:
        f.write(SLOW)
    subprocess.run([os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-o", lib, src], check=True)
    srv = t.paced(truth=False)
    for how in ("50ms", "record"):
        d = t.path("log-" + how)
        p = t.probe(srv, args=["--log", d, "--log-fsync", how, "--log-compress", "none", "--log-rotate-size", "64K"],
                    prefix=["env", f"LD_PRELOAD={lib}"])
        t0 = time.monotonic()
        load(t, srv, 300)
        t.check(p.wait_records(300, 5), f"{how}: --jsonl waits for the disk of the log")
        m, took = p.metrics(), time.monotonic() - t0
        t.check(took < 2.9, f"{how}: took {took:.1f} s")
        t.equal(m.sum("reqprobe_log_records_lost_total"), 0, f"{how}: lost")
        if how == "50ms":   # written all the same, only not forced down yet
            t.equal(p.wait_metric("reqprobe_log_records_total", 300, 2), 300, "written")
        t.check(not whole_files(d), f"{how}: a file is finished before it is on the disk")
        if how == "record":   # its end would take as long again, and show nothing more
            p.proc.kill()
            continue
        p.finish(300, settle=0)
        t.check("takes too long" in p.stderr(), f"{how}: not said: {p.stderr()!r}")
        same_lines(t, lines_of(t, whole_files(d)) + lines_of_partial(d), records_of(p.jsonl), how)


def lines_of_partial(d):
    """Of files that the end left to the next start: whole ones, only not named yet."""
    return [l for f in sorted(glob.glob(d + "/.*.partial")) for l in cat(f).decode().splitlines()]


class Tmpfs:
    def __init__(self, t, size):
        self.dir = t.path("tmpfs")
        os.mkdir(self.dir)
        r = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "none", self.dir], capture_output=True, text=True)
        if r.returncode:
            raise Skip(f"no tmpfs can be mounted: {r.stderr.strip()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.dir])

    def fill(self):
        with open(os.path.join(self.dir, "ballast"), "wb", buffering=0) as f:
            with contextlib.suppress(OSError):
                while True:
                    f.write(b"x" * 4096)

    def free(self):
        os.unlink(os.path.join(self.dir, "ballast"))


@test(90)
def log_disk_full(t):
    """Said once; what fits into memory is written when space returns, what does not is
    counted; /metrics and --jsonl go on."""
    srv = t.paced(truth=False)
    with Tmpfs(t, "8m") as fs:
        d = os.path.join(fs.dir, "log")
        p = t.probe(srv, args=["--log", d, "--log-compress", "none", "--log-queue", "1M"])
        load(t, srv, 50)
        p.wait_records(50)
        fs.fill()
        load(t, srv, 300)
        p.wait_records(350)
        wait_for("the line", 10, lambda: "No space left" in p.stderr())
        t.equal(p.wait_metric("reqprobe_log_records_lost_total", 0), 0, "lost while memory has room")
        fs.free()
        p.wait_metric("reqprobe_log_records_total", 350)
        t.equal(p.metrics().sum("reqprobe_log_records_total"), 350, "written when space returned")
        wait_for("the good news", 10, lambda: "written again" in p.stderr())
        fs.fill()
        load(t, srv, 1500)
        p.wait_records(1850)
        lost = p.wait_metric("reqprobe_log_records_lost_total", 1)
        t.check(lost > 0, "1500 records fit into 1M")
        fs.free()
        time.sleep(1.5)
        load(t, srv, 20)
        p.wait_records(1870)
        lost = p.metrics().sum("reqprobe_log_records_lost_total")
        p.stop(expect_rc=1)   # records were lost
        want = records_of(p.jsonl)
        got = lines_of(t, whole_files(d))
        t.equal(len(want), 1870, "--jsonl")
        t.equal(len(got) + lost, len(want), "written and lost")
        t.check(set(got) <= set(want) and len(set(got)) == len(got), "not lines of --jsonl, each once")
        t.check(set(want[:350]) <= set(got) and set(want[-20:]) <= set(got), "what came with room is not there")
        t.equal(p.stderr().count("No space left"), 2, f"times said: {p.stderr()!r}")
        t.note(f"{lost:.0f} of 1500 lost")


@test(60)
def log_removed(t):
    """DIR is removed, or moved away, and made again: the log goes on in the new one, and
    what was in a removed file is counted as lost."""
    for how in ("removed", "moved"):
        srv, d = t.paced(truth=False), t.path(f"log-{how}")
        p = t.probe(srv, args=["--log", d, "--log-compress", "none"])
        load(t, srv, 30)
        p.wait_metric("reqprobe_log_records_total", 30)
        if how == "removed":
            shutil.rmtree(d)
            load(t, srv, 20)
            wait_for("the line", 10, lambda: "was removed" in p.stderr())
            wait_for("the trouble", 10, lambda: "No such file" in p.stderr())
        else:
            os.rename(d, d + ".old")
        os.mkdir(d)
        p.wait_records(50 if how == "removed" else 30)
        wait_for("the good news", 10, lambda: "is another directory now" in p.stderr())
        load(t, srv, 40)
        p.wait_records(90 if how == "removed" else 70)
        p.stop(expect_rc=1 if how == "removed" else 0)
        want, new = records_of(p.jsonl), lines_of(t, whole_files(d))
        if how == "removed":
            t.check(set(want[-40:]) <= set(new), "what came after it is not there")
            lost = int((re.search(r"the request log lost (\d+) records", p.stderr()) or [0, 0])[1])
            t.equal(len(new) + lost, len(want), "written and lost")
            t.check(30 <= lost <= 50, f"{lost} lost")
        else:
            same_lines(t, lines_of(t, whole_files(d + ".old")) + new, want, "in both")
            t.check(set(want[-40:]) <= set(new), "what came later is not in the new one")
        srv.stop()


@test(60, probe=False)
def log_stop_on_full_disk(t):
    """A replay waits for a full disk, and a signal ends it; the status says that records
    are missing. Of packets and of a recording."""
    conns = []
    for i in range(1500):
        c = pcapgen.Conn(20000 + i)
        c.open(i * 0.5)
        pcapgen.stream(c, i * 0.5 + 1, f"i{i}", n=2, ttft=2, gap=1)
        c.close(i * 0.5 + 20)
        conns.append(c)
    cap, rec = t.path("c.pcap"), t.path("c.rec")
    pcapgen.write(cap, pcapgen.by_time(*conns))
    subprocess.run([REQPROBE, "pcap", cap, "--jsonl", os.devnull, "-q", "--record", rec], check=True)
    with Tmpfs(t, "4m") as fs:
        for verb, src in (("pcap", cap), ("replay", rec)):
            for sig in (signal.SIGINT, signal.SIGTERM):
                d = os.path.join(fs.dir, f"{verb}{sig}")
                os.mkdir(d)
                fs.fill()
                p = t.spawn([REQPROBE, verb, src, "--jsonl", os.devnull, "--log", d, "--log-compress", "none", "--log-queue", "1M"],
                            stderr=subprocess.PIPE, text=True)
                time.sleep(1)
                t.equal(p.poll(), None, f"{verb}: it waits for room")
                t0 = time.monotonic()
                p.send_signal(sig)
                err = p.communicate(timeout=20)[1]
                t.check(time.monotonic() - t0 < 5, f"{verb}: took {time.monotonic() - t0:.1f} s to end")
                t.equal(p.returncode, 1, f"{verb}: exit status ({err})")
                t.check(re.search(r"the request log lost \d+ records", err) and "the rest of" in err, f"{verb}: {err}")
                fs.free()
                shutil.rmtree(d)


@test(60)
def log_keep(t):
    """The limits: number, total size, age. The oldest go, and are counted."""
    srv = t.paced(truth=False)
    for opt, value in (("--log-keep-files", "3"), ("--log-keep-size", "1M"), ("--log-keep-age", "1s")):
        d = t.path("log" + opt)
        p = t.probe(srv, itl=False, args=["--log", d, "--log-compress", "none", "--log-rotate-size", "64K", opt, value])
        if opt == "--log-keep-age":
            load(t, srv, 100)
            wait_for("files", 10, lambda: len(whole_files(d)) >= 1)
            time.sleep(1.2)
            load(t, srv, 100)
        else:
            load(t, srv, 1200)
        p.finish()
        files, want = whole_files(d), records_of(p.jsonl)
        got = lines_of(t, files)
        t.check(0 < len(got) < len(want) and got == want[-len(got):], f"{opt}: {len(got)} of {len(want)}, or not the last")
        if opt == "--log-keep-files":
            t.equal(len(files), 3, opt)
        if opt == "--log-keep-size":
            t.check(1 << 19 < sum(map(os.path.getsize, files)) <= 1 << 20, f"{opt}: {sum(map(os.path.getsize, files))} bytes")
        seq = [int(f.split("-")[-1].split(".")[0]) for f in files]
        t.equal(seq, list(range(seq[0], seq[0] + len(seq))), f"{opt}: a gap")


@test(60)
def log_anonymous(t):
    """No id of a request and no client's address in any output; the hashes are those of
    llm-runtime-metrics."""
    xids = [f"user-{k}-order-4711" for k in ("alice", "bob")]

    def h(c, r):
        c.begin()
        c.send(EVENT({"id": f"chatcmpl-{r.xid}", "object": "chat.completion.chunk",
                      "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": None}]}))
        c.end()
    srv = t.server(h)
    d = t.path("log")
    p = t.probe(srv, args=["--log", d, "--log-compress", "none", "--anonymous", "-v"])
    for x in xids:
        c = Client(("127.0.0.1", srv.port), source=None)
        c.close()
        s = socket.socket()
        s.bind(("127.9.8.77", 0))   # a client with an address of its own
        s.connect(("127.0.0.1", srv.port))
        s.sendall(chat(x, close=True, framing="close"))
        while s.recv(65536):
            pass
        s.close()
    p.wait_records(2)
    m = p.metrics().text
    recs = p.finish(2)
    files = whole_files(d)
    places = {"metrics": m, "jsonl": open(p.jsonl).read(), "err": p.stderr(), "out": p.stdout(), "log": "".join(cat(f).decode() for f in files)}
    t.equal(len(places["log"].splitlines()), 2, "lines of the log")
    for name, text in places.items():
        for n in ("alice", "bob", "4711", "127.9.8.77", "chatcmpl-"):
            t.check(n not in text, f"{n} is in {name}")
    py = pytools(t)
    want = json.loads(subprocess.run([py, "-c", "import sys,json,llm_runtime_metrics as m; print(json.dumps([m.hash_b10_request_id(x) for x in sys.argv[1:]]))",
                                      *xids, *(f"chatcmpl-{x}" for x in xids)], capture_output=True, text=True, check=True).stdout)
    t.equal(sorted(r["x_request_id"] for r in recs), sorted(want[:2]), "x_request_id")
    t.equal(sorted(r["id"] for r in recs), sorted(want[2:]), "id")
    for r in recs:
        t.equal(r["client"], {"address": "127.9.8.0", "port": None}, "client")
        t.equal(r["server"], {"address": "127.0.0.1", "port": srv.port}, "server")


# ---------------------------------------------------------------- the store

def pytools(t):
    r = subprocess.run([os.path.join(ROOT, "scripts", "pytools"), "outputs"], capture_output=True, text=True)
    if r.returncode:
        raise Skip(f"scripts/pytools outputs: {r.stderr.strip().splitlines()[-1:]}")
    return os.path.join(r.stdout.strip(), "bin", "python")


class Store:
    """moto's server, its check of signatures on from the start."""

    def __init__(self, t, tls=None):
        self.t, self.py, self.port = t, pytools(t), free_port()
        self.url = f"http{'s' if tls else ''}://localhost:{self.port}" if tls else f"http://127.0.0.1:{self.port}"
        self.env = {**os.environ, **({"STORE_CA": tls[0]} if tls else {})}
        for k in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            self.env.pop(k, None)
        argv = [os.path.join(os.path.dirname(self.py), "moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]
        self.log = t.path(f"moto{self.port}.log")
        with open(self.log, "wb") as f:
            self.proc = t.spawn(argv + (["-c", tls[0], "-k", tls[1]] if tls else []), stdout=f, stderr=f, env=self.env)
        wait_for("moto", 30, self.up)
        self.keys = json.loads(self.tool("make"))

    def up(self):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True

    def tool(self, what, *args, env=None):
        r = subprocess.run([self.py, os.path.join(HERE, "s3store.py"), what, self.url, REGION, BUCKET, *args],
                           capture_output=True, text=True, env={**self.env, **(env or {})})
        if r.returncode:
            raise AssertionError(f"s3store.py {what}: {r.stderr.strip()[-300:]}")
        return r.stdout

    def env_of(self, keys=None, **more):
        k = keys or self.keys
        e = {x: y for x, y in self.env.items() if not x.startswith("AWS_")}
        return {**e, "AWS_ACCESS_KEY_ID": k["id"], "AWS_SECRET_ACCESS_KEY": k["secret"],
                **({"AWS_SESSION_TOKEN": k["token"]} if "token" in k else {}), **more}

    def content(self, name):
        """(keys, lines) of all that is in the bucket."""
        d = self.t.path(name)
        os.mkdir(d)
        keys = json.loads(self.tool("get", d, env={"ID": self.keys["id"], "SECRET": self.keys["secret"]}))
        return keys, lines_of(self.t, sorted(glob.glob(d + "/*")))


class Gate:
    """A TCP forwarder with a door: shut (refuses), open, or letting `after` bytes through
    and then nothing, in one of the directions."""

    def __init__(self, target):
        self.target, self.port = target, free_port()
        self.listener, self.after, self.mute, self.stalled = None, None, False, threading.Event()
        self.pairs = []
        self.open()

    def open(self, after=None, mute=False):
        self.after, self.mute = after, mute
        self.stalled.clear()
        if self.listener:
            return
        l = socket.socket()
        l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        l.bind(("127.0.0.1", self.port))
        l.listen(16)
        self.listener = l
        threading.Thread(target=self.accept, args=(l,), daemon=True).start()

    def shut(self):
        l, self.listener = self.listener, None
        with contextlib.suppress(OSError):
            l.shutdown(socket.SHUT_RDWR)
        l.close()
        for s in self.pairs:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
        self.pairs = []

    def accept(self, l):
        while True:
            try:
                a, _ = l.accept()
            except OSError:
                return
            b = socket.create_connection(("127.0.0.1", self.target))
            self.pairs += [a, b]
            threading.Thread(target=self.pump, args=(a, b, True), daemon=True).start()
            threading.Thread(target=self.pump, args=(b, a, False), daemon=True).start()

    def pump(self, a, b, up):
        n = 0
        with contextlib.suppress(OSError):
            while True:
                d = a.recv(4096)
                if not d:
                    break
                n += len(d)
                if (up and self.after is not None and n > self.after) or (not up and self.mute):
                    self.stalled.set()
                    continue   # swallowed: the other side waits
                b.sendall(d)
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


def s3_args(d, url, *more):
    return ["--log", d, "--log-rotate-size", "64K", "--log-compress", "none", "--s3", f"s3://{BUCKET}/logs/a", "--s3-region", REGION,
            "--s3-endpoint", url, *more]


class env_for:
    """The environment of reqprobe, which inherits the test's."""

    def __init__(self, env):
        self.env = env

    def __enter__(self):
        self.old = dict(os.environ)
        os.environ.clear()
        os.environ.update(self.env)

    def __exit__(self, *_):
        os.environ.clear()
        os.environ.update(self.old)


@test(120)
def s3_upload(t):
    """Whole files under dated keys, each record exactly once; the disk is empty then. With
    keys of the environment, of a file, and of a session; no secret is shown anywhere."""
    st = Store(t)
    srv = t.paced(truth=False)
    want = []
    cred = t.path("credentials")
    with open(os.open(cred, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        f.write(f"[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n[logs]\naws_access_key_id = {st.keys['id']}\n"
                f"aws_secret_access_key = {st.keys['secret']}\n")
    bare = {k: v for k, v in st.env.items() if not k.startswith("AWS_")}
    for i, (env, more) in enumerate(((st.env_of(), ["--log-compress", "zstd", "--log-rotate-time", "1s"]),
                                     (bare, ["--s3-credentials", cred, "--s3-profile", "logs", "--s3-keep"]),
                                     (st.env_of(st.keys["session"]), ["-v"]))):
        d = t.path(f"log{i}")
        with env_for(env):
            p = t.probe(srv, args=s3_args(d, st.url, *more))
        load(t, srv, 200)
        if i == 0:
            p.wait_metric("reqprobe_s3_uploads_total", 1)
            promtool(t, p.metrics())
        p.finish(200)
        m = p.stderr()
        t.check("s3" not in m and "upload" not in m, f"said: {m!r}")
        t.equal(whole_files(d), [], f"run {i}: files that stayed")
        kept = whole_files(d + "/uploaded")
        if "--s3-keep" in more:
            t.equal(lines_of(t, kept), records_of(p.jsonl), "kept files")
        else:
            t.equal(kept, [], "kept files")
        want += records_of(p.jsonl)
        for place in (m, p.stdout(), " ".join(p.argv), open(p.jsonl).read()):
            for secret in (st.keys["secret"], st.keys["session"]["secret"], st.keys["session"]["token"]):
                t.check(secret not in place, "a secret is shown")
    keys, lines = st.content("got")
    same_lines(t, lines, want, "in the store")
    t.check(all(re.match(r"^logs/a/\d{4}/\d\d/\d\d/reqprobe-", k) for k in keys), f"keys {keys[:2]}")
    t.note(f"{len(keys)} objects, {len(lines)} records")


@test(120)
def s3_refusals(t):
    """Each one line, once; right when it is put right: wrong secret, no such bucket, no
    server, a proxy that refuses, a certificate that nobody vouches for."""
    st = Store(t)
    key, crt = t.path("key.pem"), t.path("crt.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", crt, "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    tls = Store(t, (crt, key))
    srv = t.paced(truth=False)
    cred = t.path("credentials")

    def keys(secret):
        with open(cred + ".new", "w") as f:
            f.write(f"[default]\naws_access_key_id = {st.keys['id']}\naws_secret_access_key = {secret}\n")
        os.replace(cred + ".new", cred)
    bare = {k: v for k, v in st.env.items() if not k.startswith("AWS_")}
    keys("wrong")
    d = t.path("log0")
    with env_for(bare):
        p = t.probe(srv, args=s3_args(d, st.url, "--s3-credentials", cred, "--log-rotate-time", "1s"))
    load(t, srv, 60)
    wait_for("the line", 20, lambda: "403 SignatureDoesNotMatch" in p.stderr())
    n = p.wait_metric("reqprobe_s3_errors_total", 2, **{"class": "auth"})
    t.check(n >= 2, f"{n} tries")
    t.equal(p.metrics().sum("reqprobe_s3_uploads_total"), 0, "uploads")
    keys(st.keys["secret"])   # the file is read again
    wait_for("uploads", 20, lambda: "work again" in p.stderr())
    load(t, srv, 10)
    p.finish(70)
    t.equal(p.stderr().count("can't upload"), 1, f"times said: {p.stderr()!r}")
    t.check(st.keys["secret"] not in p.stderr(), "the secret is shown")
    same_lines(t, st.content("c0")[1], records_of(p.jsonl), "in the store")

    def fails(name, word, cls, args, env=None):
        d = t.path(name)
        with env_for(env or st.env_of()):
            p = t.probe(srv, args=args(d) + ["--s3-exit-time", "1s"])
        load(t, srv, 60)
        wait_for(f"{name}: a file", 10, lambda: whole_files(d))
        wait_for(f"{name}: the line", 15, lambda: "can't upload" in p.stderr())
        t.check(word in p.stderr(), f"{name}: {p.stderr()[-400:]}")
        t.check((p.metrics().sum("reqprobe_s3_errors_total", **{"class": cls}) or 0) >= 1, f"{name}: not of class {cls}")
        p.finish(60)
        t.equal(p.stderr().count("can't upload"), 1, f"{name}: times said")
        t.check("not uploaded: they stay" in p.stderr(), f"{name}: not said what stays: {p.stderr()[-300:]}")
        same_lines(t, lines_of(t, whole_files(d)), records_of(p.jsonl), f"{name}: on the disk")
    fails("bucket", "404 NoSuchBucket", "not_found", lambda d: [*s3_args(d, st.url), "--s3", "s3://no-such-bucket/x"])
    fails("tls", "not trusted", "tls", lambda d: s3_args(d, tls.url, "--s3-path-style"), tls.env_of())
    fails("noproxy", "onnect", "proxy", lambda d: s3_args(d, st.url, "--s3-proxy", f"http://127.0.0.1:{free_port()}"))
    refusing = tinyproxy(t, allow="192.0.2.1")
    fails("proxy", "refuse", "proxy", lambda d: s3_args(d, st.url, "--s3-proxy", f"http://127.0.0.1:{refusing}"))
    fails("connect", "refuse", "proxy", lambda d: s3_args(d, tls.url, "--s3-ca", crt, "--s3-proxy", f"http://127.0.0.1:{refusing}"), tls.env_of())
    good = tinyproxy(t)
    for name, store, more in (("viaproxy", st, []), ("viatunnel", tls, ["--s3-ca", crt])):
        d = t.path(name)
        with env_for(store.env_of()):
            p = t.probe(srv, args=s3_args(d, store.url, "--s3-proxy", f"http://127.0.0.1:{good}", *more))
        load(t, srv, 100)
        p.finish(100)
        t.equal(whole_files(d), [], f"{name}: files that stayed ({p.stderr()[-300:]})")
        got = store.content(name + "-got")[1]
        t.check(set(records_of(p.jsonl)) <= set(got) and len(got) == len(set(got)), f"{name}: not each record once")
    with open(t.path(f"tinyproxy{good}.log")) as f:
        log = f.read()
    t.check(f"PUT http://127.0.0.1:{st.port}/" in log and f"CONNECT localhost:{tls.port}" in log, "it did not go through the proxy")


def tinyproxy(t, allow="127.0.0.1"):
    exe = shutil.which("tinyproxy") or shutil.which("tinyproxy", path="/usr/sbin:/usr/bin")
    if not exe:
        raise Skip("no tinyproxy: scripts/deps test")
    port = free_port()
    conf = t.path(f"tinyproxy{port}.conf")
    with open(conf, "w") as f:
        f.write(f"Port {port}\nListen 127.0.0.1\nAllow {allow}\nLogLevel Connect\nLogFile \"{t.path(f'tinyproxy{port}.log')}\"\nTimeout 60\n")
    t.spawn([exe, "-d", "-c", conf], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def up():
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
    wait_for("tinyproxy", 10, up)
    return port


@test(240 if LONG else 120)
def s3_outage(t):
    """The store is down (a minute with REQPROBE_LOG_LONG=1, else some seconds) under load:
    files wait, one line says so, every record is there once afterwards."""
    st = Store(t)
    gate = Gate(st.port)
    srv = t.paced(truth=False)
    d = t.path("log")
    with env_for(st.env_of()):
        p = t.probe(srv, args=s3_args(d, f"http://127.0.0.1:{gate.port}", "--log-rotate-time", "1s"))
    load(t, srv, 100)
    p.wait_metric("reqprobe_s3_uploads_total", 1)
    gate.shut()
    t0, n = time.monotonic(), 100
    while time.monotonic() - t0 < (60 if LONG else 5):
        load(t, srv, 50)
        n += 50
        time.sleep(0.5)
    wait_for("the line", 20, lambda: "can't upload" in p.stderr())
    waiting = p.wait_metric("reqprobe_s3_waiting_files", 2)
    t.check(waiting >= 2, f"{waiting} files wait")
    gate.open()
    wait_for("uploads", 70, lambda: "work again" in p.stderr())
    p.wait_metric("reqprobe_s3_waiting_files", 0)
    load(t, srv, 50)
    p.finish(n + 50)
    t.equal(p.stderr().count("can't upload"), 1, "times said")
    keys, lines = st.content("got")
    same_lines(t, lines, records_of(p.jsonl), "in the store")
    t.equal(len(lines), n + 50, "records")
    t.equal(whole_files(d), [], "files that stayed")
    t.note(f"down for {time.monotonic() - t0:.0f} s, {n + 50} records, {len(keys)} objects")


@test(120)
def s3_kill(t):
    """SIGKILL in the middle of an upload, and when the store has it but its answer is still
    on the way: the next start uploads it under the same key, each record is there once."""
    st = Store(t)
    gate = Gate(st.port)
    srv = t.paced(truth=False)
    d, want = t.path("log"), []
    for after, mute in ((20000, False), (None, True)):
        with env_for(st.env_of()):
            p = t.probe(srv, args=s3_args(d, f"http://127.0.0.1:{gate.port}"))
        gate.open(after, mute)
        load(t, srv, 100)
        p.wait_records(100)
        # in the file, too, to which they go once a second
        p.wait_metric("reqprobe_log_records_total", 100)
        time.sleep(1.5)
        if not gate.stalled.wait(20):
            t.check(False, "no upload was under way")
        if mute:
            time.sleep(0.2)
        os.kill(p.pid, signal.SIGKILL)
        p.proc.wait()
        want += records_of(p.jsonl)
        if mute:
            t.check(st.content("half")[0], "the store does not have it yet: nothing is shown")
        gate.shut()
        gate.open()
        t.check(whole_files(d), "the file that was under way is gone")
    with env_for(st.env_of()):
        p = t.probe(srv, args=s3_args(d, f"http://127.0.0.1:{gate.port}"))
    load(t, srv, 20)
    p.finish(20)
    want += records_of(p.jsonl)
    keys, lines = st.content("got")
    # the kills took what was still on its way from the ring to a plain file: nothing here, both waited
    same_lines(t, lines, want, "in the store")
    t.equal(whole_files(d), [], "files that stayed")
    t.note(f"{len(keys)} objects, {len(lines)} records")


@test(60)
def s3_limit(t):
    """A store that stays away: the oldest files go at the limit, counted, said once."""
    srv = t.paced(truth=False)
    d = t.path("log")
    with env_for({**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}):
        p = t.probe(srv, itl=False, args=s3_args(d, f"http://127.0.0.1:{free_port()}", "--log-keep-files", "2", "--s3-exit-time", "0s"))
    load(t, srv, 400)
    p.wait_records(400)
    n = p.wait_metric("reqprobe_s3_dropped_files_total", 1)
    p.finish(400)
    t.check(n >= 1, "no file was dropped")
    t.equal(p.stderr().count("is at its limit"), 1, "times said")
    files, want = whole_files(d), records_of(p.jsonl)
    got = lines_of(t, files)
    t.equal(len(files), 2, "files")
    t.check(got == want[-len(got):], "not the last ones")
