#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""estimate.py RECORDING...: how far off is the estimated queue time?

Each recording of an engine with log stats is replayed twice, the second time
with its events hidden, as if the engine ran with --disable-log-stats. Prints the
true values and estimate minus truth, in milliseconds."""

import json, os, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REQPROBE = os.environ.get("REQPROBE", os.path.join(ROOT, "build", "reqprobe"))


def replay(path, *args):
    out = subprocess.run([REQPROBE, "replay", path, "--jsonl", "-", *args], capture_output=True, text=True, check=True).stdout
    return {tuple(r["request_ids"]): r for r in map(json.loads, out.splitlines()) if r.get("request_ids") and r["choices"] == 1}


def row(name, xs):
    if not xs:
        return
    xs = sorted(xs)
    at = lambda p: xs[min(len(xs) - 1, int(p * len(xs)))]
    print(f"  {name:<26} min {xs[0]:9.3f}  p5 {at(.05):9.3f}  p50 {at(.5):9.3f}  p95 {at(.95):9.3f}  max {xs[-1]:9.3f}")


for path in sys.argv[1:]:
    told, hidden = replay(path), replay(path, "--hide-events")
    both = [(r, hidden[k]) for k, r in told.items() if k in hidden and r["phases"]["queue_ms"] is not None]
    got = [(r, e) for r, e in both if e["phases"]["queue_ms"] is not None]
    print(f"{os.path.basename(path)}: {len(both)} requests with a queue time, {len(got)} estimated")
    assert all("estimated" in e["flags"] and e["estimated"] for _, e in got), "an estimate that does not say so"
    row("queue time, true", [r["phases"]["queue_ms"] for r, _ in got])
    for f in ("queue", "prefill", "frontend"):
        row(f"{f}: estimate - truth", [e["phases"][f + "_ms"] - r["phases"][f + "_ms"] for r, e in got])
