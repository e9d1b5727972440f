# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the documentation names is there, and what is there is named."""
import glob, json, os, re, subprocess

from docs import SCHEDULER, documented, families, headings, links, pages, text
from harness import REQPROBE, ROOT, test


@test(30, probe=False)
def docs_links(t):
    """Each link in a Markdown file leads to a file that is there, and to a heading in it;
    the contents of metrics.md are its headings."""
    n = 0
    for path in sorted(["README.md", "CHANGELOG.md"] + [os.path.relpath(f, ROOT) for f in glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)]):
        for name, target in links(text(path)):
            if re.match(r"[a-z]+:", target):
                continue
            n += 1
            file, _, anchor = target.partition("#")
            to = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
            if not t.check(os.path.exists(os.path.join(ROOT, to)), f"{path}: [{name}]({target}): no {to}"):
                continue
            if anchor:
                there = {a for _, _, a in headings(text(to))} | set(re.findall(r'<a id="([^"]+)">', text(to)))
                t.check(anchor in there, f"{path}: [{name}]({target}): no such heading")
    t.check(n > 20, f"only {n} links are found")
    md = text("docs", "metrics.md")
    contents = md.partition("\n## Contents\n")[2].partition("\n## ")[0]
    want = [(h, a) for level, h, a in headings(md) if 2 <= level <= 3 and h != "Contents"]
    got = [(h, a[1:]) for h, a in links(contents)]
    t.check(got == want, f"contents of metrics.md: {[x for x in got if x not in want]} are no headings, "
                         f"{[x for x in want if x not in got]} are missing, or the order is another")
    t.note(f"{n} links, {len(want)} headings")


@test(30, probe=False)
def docs_options(t):
    """The man page has the options that --help has, and no others; its cross references
    lead somewhere."""
    man = text("docs", "man", "reqprobe.8")
    said = set()
    for verb in [[], *([v] for v in ("doctor", "replay", "pcap", "rtt", "calibrate", "report", "compact", "metrics"))]:
        r = subprocess.run([REQPROBE, *verb, "--help"], capture_output=True, text=True)
        t.equal((r.returncode, r.stderr), (0, ""), f"{verb} --help")
        mine = set(re.findall(r"(?<![\w-])--([a-z0-9][a-z0-9-]+)", r.stdout))
        t.check("help" in mine, f"{verb} --help has no --help")
        said |= mine
        t.check(not verb or f".Cm {verb[0]}" in man, f"the man page has no {verb}")
    told = set(re.findall(r"Fl -([a-z0-9][a-z0-9-]+)", man)) - {"preserve-env", "disable-log-stats"}   # sudo's, vLLM's
    t.equal((sorted(said - told), sorted(told - said)), ([], []), "options that only --help, only the man page has")
    heads = set(re.findall(r"(?m)^\.Sh (.*)$", man))
    for x in re.findall(r"(?m)^\.Sx (.*?)(?: [.,;:])?$", man):
        t.check(x in heads, f".Sx {x}: no such section")
    for d in re.findall(r"docs/[\w/.-]+\w", man + text("README.md")):
        t.check(os.path.exists(os.path.join(ROOT, d)), f"{d} is named, and not there")
    t.note(f"{len(said)} options")


@test(10, probe=False)
def docs_schema(t):
    """What may be null in a record's groups may stand in `missing`, and nothing else."""
    with open(os.path.join(ROOT, "docs", "schema", "request-1.schema.json")) as f:
        p = json.load(f)["properties"]
    names = p["missing"]["propertyNames"]["enum"]
    groups = [n for n in names if "." not in n]
    figures = {f"{g}.{n}" for g in groups for n, d in p[g]["properties"].items() if isinstance(d.get("type"), list) and {"number", "integer"} & set(d["type"])}
    t.check(len(figures) > 40, f"only {figures}")
    t.equal(sorted(figures), sorted(n for n in names if "." in n), "nullable figures, names in missing")


@test(60, probe=False)
def docs_metrics(t):
    """Each family of /metrics is in metrics.md with its type and labels; each of our names in
    it is one of the program's."""
    seen, said = families(pages(t)), documented()
    for name, (kind, labels) in sorted(seen.items()):
        if not t.check(name in said, f"{name} is not in metrics.md"):
            continue
        types, known = said[name]
        t.check(types is None or kind in types.split(", ") or kind in types, f"{name} is a {kind}, metrics.md says {types}")
        known = known | (SCHEDULER if name.startswith(("reqprobe_scheduler_", "reqprobe_step_")) else set())
        t.check(labels <= known, f"{name} has the labels {sorted(labels)}, metrics.md says {sorted(known)}")
    program = set()
    for f in glob.glob(os.path.join(ROOT, "user", "**", "*.[ch]"), recursive=True):
        program |= set(re.findall(r'"((?:reqprobe|process)_[a-z0-9_]+)"', text(f)))
    t.check(len(seen) > 60 and program, f"{len(seen)} families, {len(program)} names")
    for name in sorted(set(re.findall(r"`((?:reqprobe|process)_[a-z0-9_]*[a-z0-9])(?=[`{])", text("docs", "metrics.md")))):
        t.check(name in program, f"metrics.md has {name}, the program has not")
    t.note(f"{len(seen)} families")
