# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Readers of the documentation, of contrib/ and of /metrics, for the tests of these."""
import glob, json, os, re, subprocess

from harness import ROOT, free_port

CONTRIB = os.path.join(ROOT, "contrib")
PAGE = os.environ.get("REQPROBE_PAGE", os.path.join(ROOT, "build", "page"))


def text(*path):
    with open(os.path.join(ROOT, *path)) as f:
        return f.read()


def headings(md):
    """[(level, text, anchor)] as GitHub makes them."""
    out, seen, code = [], {}, False
    for line in md.splitlines():
        code ^= line.startswith("```")
        m = not code and re.match(r"(#{1,6}) +(.*?) *#*$", line)
        if not m:
            continue
        a = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", m[2]).lower()).replace(" ", "-")
        n = seen[a] = seen.get(a, -1) + 1
        out.append((len(m[1]), m[2], a + (f"-{n}" if n else "")))
    return out


def links(md):
    """[(text, target)] outside of code."""
    plain = re.sub(r"(?ms)^```.*?^```|^    .*?$", "", md)
    return re.findall(r"\[([^]]*)\]\(([^) ]+)\)", re.sub(r"`[^`\n]*`", lambda m: m[0].replace("[", " "), plain))


def page(t, rec, *args):
    r = subprocess.run([PAGE, "replay", os.path.join(ROOT, "tests", "replay", rec), "--jsonl", "/dev/null", *args], capture_output=True, text=True, timeout=60)
    t.check(r.returncode in (0, 1) and r.stdout, f"{PAGE} {rec}: {r.returncode}, {r.stderr[-200:]}")
    return r.stdout


def pages(t):
    """/metrics of a vLLM and of a llama-server with every output of our own on, together.
    Nothing listens where they send to."""
    nobody = f"http://127.0.0.1:{free_port()}"
    cred = t.path("credentials")
    with open(cred, "w") as f:
        f.write("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    more = ["--goodput", "time_to_first_token:500", "--otlp", nobody, "--otlp-traces", "--otlp-flush", "0.1s",
            "--s3", "s3://bucket/x", "--s3-endpoint", nobody, "--s3-credentials", cred, "--s3-exit-time", "0"]
    return [page(t, "vllm-0.32.0.rec", "--log", t.path("log"), *more), page(t, "llama-b11434.rec")]


def families(texts):
    """{name: (type, labels)}"""
    out, of = {}, None
    for x in texts:
        for line in x.splitlines():
            if line.startswith("# TYPE "):
                of = line.split()[2]
                out.setdefault(of, (line.split()[3], set()))
            elif line and line[0] != "#":
                out[of][1].update(set(re.findall(r'[{,]([a-z_]+)="', line)) - {"le"})
    return out


def documented():
    """{name: (type or None, labels)}: what the tables of metrics.md say of our own names."""
    out, head = {}, None
    for line in text("docs", "metrics.md").splitlines():
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells or set(line) <= set("|- "):
            head = None if not cells else head
            continue
        if head is None:
            head = cells
            continue
        for name, braces in re.findall(r"`((?:reqprobe|process)_[a-z0-9_]+)(?:\{([a-z_,]+)\})?`", cells[0]):
            row = dict(zip(head, cells))
            labels = set(re.findall(r"[a-z_]+", row.get("labels", ""))) | set((braces or "").split(",")) - {""}
            out[name] = (row.get("type"), labels)
    return out


SCHEDULER = {"engine_index", "pid"}     # said of that whole table


def expressions():
    """[(where, expression)] of the dashboard and of the rules; the dashboard; the rules' text."""
    out = []
    with open(os.path.join(CONTRIB, "grafana-reqprobe.json")) as f:
        dash = json.load(f)
    for p in dash["panels"]:
        out += [(p["title"], x["expr"]) for x in p.get("targets", [])]
    for v in dash["templating"]["list"]:
        m = re.match(r"label_values\((.*), (\w+)\)$", v.get("definition", ""))
        if m:
            out.append((f"${v['name']}", f"count by ({m[2]}) ({m[1]})"))
    rules = text("contrib", "reqprobe.rules.yml")
    for name, one, block in re.findall(r"(?m)^ *- alert: (\w+)\n *expr: (?:([^|\n].*)|\|\n((?: {10,}.*\n)+))", rules):
        out.append((name, " ".join((one or block).split())))
    return out, dash, rules
