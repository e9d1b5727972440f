#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""estimate.py RECORDING...: how far off are the estimates of an engine without log stats?

Each recording of an engine with log stats is replayed twice, the second time
with its stats and events hidden, as if the engine ran with --disable-log-stats.
Prints the true values and estimate minus truth: queue times in milliseconds,
preemptions, and how full the KV cache is (where its size is known: the recording
has the engine's start or its command line, or --kv-cache-tokens N is given)."""

import json, os, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def replay(path, *args):
    """{ids: record of one choice}, [step]"""
    exe = os.environ.get("REQPROBE", os.path.join(ROOT, "build", "reqprobe"))
    with tempfile.TemporaryDirectory() as d:
        steps = os.path.join(d, "steps")
        out = subprocess.run([exe, "replay", path, "--jsonl", "-", "--steps", steps, *args], capture_output=True, text=True, check=True).stdout
        with open(steps) as f:
            steps = [json.loads(x) for x in f]
    return {tuple(r["request_ids"]): r for r in map(json.loads, out.splitlines()) if r.get("request_ids") and r["choices"] == 1}, steps


def compare(path, *args):
    """What was told, and what is estimated with that hidden: ([(record, record)], [(step, step)])."""
    (told, steps), (hidden, guessed) = replay(path, *args), replay(path, "--hide-events", *args)
    by = {(s["engine"]["core_pid"], s["engine"]["index"], s["timestamp_s"]): s for s in guessed}
    return [(r, hidden[k]) for k, r in told.items() if k in hidden], \
        [(s, by[k]) for s in steps if (k := (s["engine"]["core_pid"], s["engine"]["index"], s["timestamp_s"])) in by]


def row(name, xs):
    if not xs:
        return
    xs = sorted(xs)
    at = lambda p: xs[min(len(xs) - 1, int(p * len(xs)))]
    print(f"  {name:<34} min {xs[0]:9.3f}  p5 {at(.05):9.3f}  p50 {at(.5):9.3f}  p95 {at(.95):9.3f}  max {xs[-1]:9.3f}")


def show(path, *args):
    both, steps = compare(path, *args)
    got = [(r, e) for r, e in both if r["phases"]["queue_ms"] is not None and e["phases"]["queue_ms"] is not None]
    print(f"{os.path.basename(path)}: {len(both)} requests, queue time estimated of {len(got)}")
    assert all("estimated" in e["flags"] and e["estimated"]["queue_time"] for _, e in got), "an estimate that does not say so"
    row("queue time, true", [r["phases"]["queue_ms"] for r, _ in got])
    for f in ("queue", "prefill", "frontend"):
        row(f"{f}: estimate - truth", [e["phases"][f + "_ms"] - r["phases"][f + "_ms"] for r, e in got])
    sch = [(r["scheduler"], e["scheduler"]) for r, e in both if None not in (r["scheduler"]["preemptions"], e["scheduler"]["preemptions"])]
    assert all(e["estimated"]["preemptions"] for _, e in both if e["scheduler"]["preemptions"] is not None), "an estimate that does not say so"
    n = [sum(x[i]["preemptions"] for x in sch) for i in (0, 1)]
    print(f"  preemptions of {len(sch)} requests: true {n[0]}, estimate {n[1]}; {sum(r['preemptions'] == e['preemptions'] for r, e in sch)} requests with the same number")
    hit = [(r, e) for r, e in sch if r["preemptions"]]
    row("preempted time, true", [r["preempted_ms"] for r, _ in hit])
    row("preempted time: estimate - truth", [e["preempted_ms"] - r["preempted_ms"] for r, e in hit])
    kv = [(s["kv_cache_usage"], g["kv_cache_usage"]) for s, g in steps if None not in (s["kv_cache_usage"], g["kv_cache_usage"])]
    print(f"  KV cache usage: {len(kv)} of {len(steps)} steps")
    row("KV cache usage, true", [t for t, _ in kv])
    row("KV cache usage: estimate - truth", [g - t for t, g in kv])


if __name__ == "__main__":
    files = [a for a in sys.argv[1:] if not a.startswith("--")]
    for path in files:
        show(path, *[a for a in sys.argv[1:] if a.startswith("--")])
