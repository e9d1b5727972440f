# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""reqprobe compact: what DuckDB, pandas and ClickHouse read is what the records say."""
import glob, gzip, json, os, re, shutil, signal, socket, subprocess, time, urllib.request

from harness import REQPROBE, ROOT, free_port, short, test
from t_report import genlog, records, report

HERE = os.path.dirname(os.path.abspath(__file__))
_venv = None


def venv(t):
    """Where the Python packages of outputs are. REQPROBE_OUTPUTS names another place."""
    global _venv
    if _venv is None:
        _venv = os.environ.get("REQPROBE_OUTPUTS")
    if _venv is None:
        r = subprocess.run([os.path.join(ROOT, "scripts", "pytools"), "outputs"], capture_output=True, text=True)
        if r.returncode:
            raise AssertionError(f"scripts/pytools outputs: {r.stderr.strip()[-300:]}")
        _venv = r.stdout.strip()
    return _venv


def compact(t, *args, status=0, engine="python", env=None):
    e = dict(os.environ, REQPROBE_DUCKDB=os.path.join(venv(t), "bin", engine)) if engine else dict(os.environ)
    e.update(env or {})
    r = subprocess.run([REQPROBE, "compact", *args], capture_output=True, text=True, env=e)
    t.equal(r.returncode, status, f"compact {' '.join(args)[-120:]}: exit status ({r.stderr.strip()[-300:]})")
    return r


def read(t, *args):
    """parquet.py's findings, made by other programs than the one that wrote it."""
    r = subprocess.run([os.path.join(venv(t), "bin", "python"), os.path.join(HERE, "parquet.py"), *args],
                       capture_output=True, text=True)
    if r.returncode:
        raise AssertionError(f"parquet.py {' '.join(args)[-200:]}: {r.stderr.strip()[-600:]}")
    return json.loads(r.stdout.splitlines()[-1])


def inputs(t):
    """Logs with everything in them; and the records that must come out."""
    a, b = genlog(t.path("a.jsonl"), 700, 3), genlog(t.path("b.jsonl"), 500, 4)
    replay = sorted(glob.glob(os.path.join(ROOT, "tests", "replay", "*.jsonl")))
    os.mkdir(t.path("logs"))
    with open(b, "rb") as f, gzip.open(t.path("logs", "b.jsonl.gz"), "wb") as g:
        shutil.copyfileobj(f, g)
    with open(a) as f:
        lines = f.read().splitlines()
    # what nobody would write, but JSON: any order, escapes, members of later versions
    r = json.loads(lines[0])
    r["model"], r["id"], r["later"] = "m\u00f6del \U0001f600 \"q\" 'x' \\ \n", "first", {"a": [1, {"b": None}]}
    r["engine"]["later"] = [1]
    odd = json.dumps(dict(sorted(r.items(), reverse=True)))
    with open(t.path("logs", "a.jsonl"), "w") as f:
        f.write("\n".join([lines[5], odd] + lines[1:] + [lines[9][:-30], "{}", "x", lines[11], lines[11],
                                                         '{"schema":"reqprobe.summary/1","host":"h"}']))
    want = [json.loads(odd)] + records(a)[1:] + records(b) + records(*replay)
    with open(t.path("want.json"), "w") as f:
        json.dump(want, f)
    return [t.path("logs"), *replay], want


@test(deadline=300, probe=False)
def compact_values(t):
    paths, want = inputs(t)
    for engine in ("python", "duckdb"):   # the module, and the command line tool
        out = t.path(f"{engine}.parquet")
        r = compact(t, *paths, "-o", out, engine=engine)
        t.check(f"{len(want)} records" in r.stderr and "3 that came more than once" in r.stderr, f"{engine}: {short(r.stderr)}")
        t.check("3 lines were left out: 2 torn or broken, 1 that are no" in r.stderr, f"{engine}: {short(r.stderr)}")
        for reader in ("duckdb", "pandas", "clickhouse"):
            got = read(t, "compare", reader, out, t.path("want.json"))
            t.equal(got["rows"], len(want), f"{engine}, {reader}: rows")
            t.equal(got["differences"], [], f"{engine}, {reader}: values unlike the records'")
            t.check(got["values"] > 50 * len(want), f"{engine}, {reader}: {got['values']} values compared")
        t.check(got["sorted"], f"{engine}: not in order of time")
    t.equal(sorted(x for x in os.listdir(t.dir) if "tmp" in x), [], "left behind")
    # again, and in another order of files: the same
    compact(t, *reversed(paths), "-o", t.path("again.parquet"), "--compression", "snappy", "--row-group", "2048")
    t.equal(read(t, "same", t.path("python.parquet"), t.path("again.parquet"))["differences"], 0, "made again")
    t.equal(read(t, "meta", t.path("again.parquet")), {"codecs": ["SNAPPY"], "groups": 1}, "snappy")
    t.equal(read(t, "meta", t.path("python.parquet"))["codecs"], ["ZSTD"], "zstd")


@test(deadline=120, probe=False)
def compact_columns(t):
    """Each member of the record's schema is a column, and each column is documented."""
    with open(os.path.join(ROOT, "docs", "schema", "request-1.schema.json")) as f:
        schema = json.load(f)
    members = set()

    def walk(s, path):
        s = next((x for x in s.get("anyOf", []) if x.get("type") == "object"), s)
        if s.get("type") == "object" and "properties" in s:
            for k, v in s["properties"].items():
                walk(v, path + [k])
        else:
            members.add(".".join(path))
    walk(schema, [])
    text = report(t, "--columns", cmd="compact").stdout
    rows = re.findall(r"^\| `(\w+)` \| ([A-Z_\[\](), ]+) \| ([^|]*) \| `([\w.]+)` \|$", text, re.M)
    t.equal(len(rows), text.count("\n"), "rows of --columns")
    t.equal({r[3] for r in rows} - {"error"}, members - {"schema"}, "members that are columns")
    t.equal(len({r[0] for r in rows}), len(rows), "names")
    with open(os.path.join(ROOT, "docs", "parquet.md")) as f:
        t.check(text in f.read(), "docs/parquet.md has another table than compact --columns")


@test(deadline=200, probe=False)
def compact_output(t):
    """Partitions, sizes, what stands there before, what fails."""
    a = genlog(t.path("a.jsonl"), 3000)
    rs = records(a)
    d = t.path("parts")
    compact(t, a, "-o", d, "--partition", "day,model")
    t.equal(sorted({x.split("/")[0] for x in os.listdir(d)}), sorted({"day=" + r["start"][:10] for r in rs if r["start"]}), "days")
    got = read(t, "partitions", d)
    want = {}
    for r in rs:
        k = f"{(r['start'] or '')[:10]} {r['model']}"
        want[k] = want.get(k, 0) + 1
    t.equal(got, want, "rows of partitions")
    r = compact(t, a, "-o", d, "--partition", "day", status=1)
    t.check("--replace" in r.stderr, f"a directory that is there: {short(r.stderr)}")
    compact(t, a, "-o", d, "--partition", "hour", "--replace")
    t.check(all(x.startswith("hour=") for x in os.listdir(d)), f"replaced: {os.listdir(d)}")
    compact(t, a, "-o", t.path("sized"), "--file-size", "1M", "--compression", "snappy", "--row-group", "2048")
    t.check(all(x.endswith(".parquet") for x in os.listdir(t.path("sized"))), f"files {os.listdir(t.path('sized'))}")
    t.equal(read(t, "count", t.path("sized", "*.parquet")), 3000, "rows of all files")
    # a file that is there stays until the new one is whole
    out = t.path("x.parquet")
    with open(out, "w") as f:
        f.write("old")
    with open(t.path("empty.jsonl"), "w") as f:
        f.write("{}\n")
    for args, engine, text in (([t.path("empty.jsonl")], "python", "no record"), ([a], "nothing", "neither"), ([t.path("gone.jsonl")], "python", "gone"),
                               ([t.path("logs-not-there")], "duckdb", "logs-not-there")):
        r = compact(t, *args, "-o", out, engine=engine, status=1)
        t.check(text in r.stderr and r.stderr.count("\n") == 1, f"{args} {engine}: {short(r.stderr)}")
    r = compact(t, a, "-o", out, engine=None, env={"PATH": "/nowhere", "REQPROBE_DUCKDB": ""}, status=1)
    t.check("python3 -m venv ~/duckdb && ~/duckdb/bin/pip install duckdb" in r.stderr and r.stderr.count("\n") == 1, f"no DuckDB: {short(r.stderr)}")
    # DuckDB dies on the way
    with open(t.path("python3-dies"), "w") as f:
        f.write(f"#!/bin/sh\ncase \"$2\" in *connect*) head -c 100000 >/dev/null; echo 'Fatal Error: no luck' >&2; exit 1;; esac\n"
                f"exec {os.path.join(venv(t), 'bin', 'python')} \"$@\"\n")
    os.chmod(t.path("python3-dies"), 0o755)
    r = compact(t, a, "-o", out, engine=None, env={"REQPROBE_DUCKDB": t.path("python3-dies")}, status=1)
    t.check("no luck" not in r.stderr or r.stderr.count("\n") == 1, f"DuckDB dies: {short(r.stderr)}")
    # ended on the way: a pipe that never ends is read
    rd, wr = os.pipe()
    p = t.spawn([REQPROBE, "compact", "-", "-o", out], stdin=rd, stderr=subprocess.PIPE,
                env=dict(os.environ, REQPROBE_DUCKDB=os.path.join(venv(t), "bin", "python")))
    os.close(rd)
    with open(a, "rb") as f:
        os.write(wr, f.read(60000))
    end = time.monotonic() + 20
    while time.monotonic() < end and not glob.glob(out + ".tmp-*"):
        time.sleep(0.05)
    t.check(glob.glob(out + ".tmp-*"), "it has not begun")
    p.send_signal(signal.SIGTERM)
    err = p.stderr.read().decode()
    t.equal(p.wait(20), 1, f"exit status when ended ({err.strip()})")
    os.close(wr)
    t.check("is not made" in err, f"ended: {short(err)}")
    with open(out) as f:
        t.equal(f.read(), "old", "the file that was there")
    t.equal(glob.glob(t.path("*.tmp-*")), [], "left behind")
    for args in ([a], ["-o", out], [a, "-o", out, "--partition", "colour"], [a, "-o", out, "--compression", "zip"],
                 [a, "-o", out, "--partition", "day", "--file-size", "1M"], [a, "-o", out, "--memory", "1"]):
        r = compact(t, *args, engine=None, status=2)
        t.check(r.stderr.startswith("reqprobe: ") and r.stderr.count("\n") == 1, f"{args}: {short(r.stderr)}")
    r = compact(t, a, "-o", d, status=1)
    t.check("a directory" in r.stderr, f"a file over a directory: {short(r.stderr)}")


@test(deadline=120, probe=False)
def compact_refuses(t):
    """What DuckDB would not take costs a record, not all of them."""
    a = genlog(t.path("a.jsonl"), 300, 8)
    rs = records(a)
    rs[3]["usage"] = dict(rs[3].get("usage") or {}, prompt_tokens=2 ** 63)
    rs[4]["tokens"]["prompt"] = -(2 ** 63) - 1
    rs[5]["metrics"]["tokens_per_second"] = 10 ** 400   # no double
    rs[6]["model"], rs[7]["model"] = "m" * 250, "m" * 249   # model=...: 256 and 255 bytes
    rs[8]["model"], rs[9]["model"], rs[10]["model"] = "/" * 84, "/" * 83, "\u00e9" * 42   # %2F; two bytes each
    rs[11]["model"], rs[12]["model"] = "..", "a=b/c'\"\n"
    with open(a, "w") as f:
        for i, r in enumerate(rs):
            f.write(json.dumps(r) + "\n" if i != 5 else json.dumps(r).replace("1" + "0" * 400, "1e400") + "\n")
    for engine in ("python", "duckdb"):
        r = compact(t, a, "-o", t.path(f"{engine}.parquet"), engine=engine)
        t.check("3 lines were left out: 3 torn or broken" in r.stderr, f"{engine}: {short(r.stderr)}")
        t.equal(read(t, "count", t.path(f"{engine}.parquet")), 297, f"{engine}: rows")
        r = compact(t, a, "-o", t.path(engine), "--partition", "model,operation", engine=engine)
        t.check("3 records were left out" in r.stderr and "--partition" in r.stderr, f"{engine}: {short(r.stderr)}")
        t.equal(read(t, "count", t.path(engine, "*", "*", "*.parquet")), 294, f"{engine}: rows of partitions")
        t.check("model=" + "m" * 249 in os.listdir(t.path(engine)), f"{engine}: the longest name: {[x[:40] for x in os.listdir(t.path(engine))]}")


@test(deadline=120, probe=False)
def compact_memory(t):
    """More rows than fit into the memory that DuckDB may take."""
    a = genlog(t.path("a.jsonl"), 150000, 7)
    for engine in ("python", "duckdb"):
        compact(t, a, "-o", t.path(f"{engine}.parquet"), "--memory", "384M", engine=engine)
        t.equal(read(t, "count", t.path(f"{engine}.parquet")), 150000, f"{engine}: rows")


@test(deadline=120, probe=False)
def store_source(t):
    """Logs in an object store (moto): report and compact read them there."""
    port = free_port()
    log = open(t.path("store.log"), "w")
    p = t.spawn([os.path.join(venv(t), "bin", "python"), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    end = time.monotonic() + 30
    while time.monotonic() < end and p.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    auth = {"Content-Type": "application/octet-stream", "Authorization": "AWS4-HMAC-SHA256 Credential=a/20261130/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"}

    def put(key, data=b""):
        urllib.request.urlopen(urllib.request.Request(f"{url}/{key}", data=data, method="PUT", headers=auth), timeout=10).read()
    a, b = genlog(t.path("a.jsonl"), 300, 5), genlog(t.path("b.jsonl"), 200, 6)
    put("logs")
    with open(a, "rb") as f:
        data = f.read()
    put("logs/day/host%201/reqprobe-gpu-1-20261130T035900.123Z-000001.jsonl", data)
    put("logs/day/reqprobe-gpu-2-20261130T035900.123Z-000001.jsonl.gz", gzip.compress(open(b, "rb").read()))
    put("logs/day/notes.txt", b"no log")
    put("logs/other/x.jsonl", data)
    env = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": url, "TMPDIR": t.dir, "AWS_REGION": "us-east-1"}
    r = subprocess.run([REQPROBE, "report", "--json", "--by", "host", "s3://logs/day"], capture_output=True, text=True, env=dict(os.environ, **env))
    if t.equal(r.returncode, 0, f"report: exit status ({r.stderr.strip()[-300:]})"):
        doc = json.loads(r.stdout)
        t.equal({g["key"]["host"]: g["requests"] for g in doc["groups"]}, {"gpu-1": 300, "gpu-2": 200}, "hosts of the store")
    r = compact(t, "s3://logs/day", "s3://logs/other/x.jsonl", b, "-o", t.path("s.parquet"), env=env)
    t.check("500 records of 4 files, 500 that came more than once" in r.stderr, f"compact: {short(r.stderr)}")
    t.equal(read(t, "count", t.path("s.parquet")), 500, "rows")
    r = subprocess.run([REQPROBE, "report", "s3://logs/none/"], capture_output=True, text=True, env=dict(os.environ, **env))
    t.check(r.returncode == 1 and "no request logs" in r.stderr and r.stderr.count("\n") == 1, f"nothing there: {short(r.stderr)}")
    t.equal([x for x in os.listdir(t.dir) if x.startswith("reqprobe.")], [], "left in TMPDIR")
