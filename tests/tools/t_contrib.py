# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""contrib/: what the dashboard and the alerts ask for is there, and the alerts fire."""
import json, os, re, shutil, subprocess

from docs import CONTRIB, SCHEDULER, documented, expressions, families, pages, text
from harness import Skip, test

OF_PROMETHEUS = {"up"}      # made by the server itself


def base(name, known):
    short = re.sub(r"_(bucket|sum|count)$", "", name)
    return short if short in known and known[short][0] == "histogram" else name


@test(60, probe=False)
def dashboard_names(t):
    """Each metric, and each of its labels, that the dashboard and the alerts ask for is on
    /metrics and in metrics.md."""
    seen, said = families(pages(t)), documented()
    # of the daemon alone, for which there must be a process and a kernel: see operate-dashboard
    live = {"reqprobe_bpf_run_seconds_total": ("counter", {"program"})}
    exprs, dash, rules = expressions()
    t.equal(len([1 for w, _ in exprs if re.match(r"[A-Z]\w+$", w) and f"alert: {w}" in rules]), rules.count("- alert:"), "alerts that were read")
    used = set()
    for where, e in exprs:
        plain = re.sub(r'"[^"]*"', '""', e)
        for name, sel in re.findall(r"\b((?:reqprobe|process)_[a-z0-9_]+|up)\b(?:\{([^}]*)\})?", plain):
            used.add(name)
            if name in OF_PROMETHEUS:
                continue
            b = base(name, seen)
            kind = seen.get(b) or live.get(b)
            if not t.check(kind, f"{where}: no {name} on /metrics"):
                continue
            t.check(b in said, f"{where}: {b} is not in metrics.md")
            if kind[0] == "histogram":
                t.check(b != name, f"{where}: {name} is a histogram: _bucket, _sum or _count")
            by = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"by \(([^)]*)\)", plain)))) if plain.count("reqprobe_") == 1 else set()
            asked = (set(re.findall(r"([a-z_]+) *[!=]", sel)) | by) - {"job", "instance", "le"}
            t.check(asked <= kind[1] | (SCHEDULER if name.startswith(("reqprobe_scheduler_", "reqprobe_step_")) else set()),
                    f"{where}: {name} has no label {sorted(asked - kind[1])}: {e}")
    t.check(len(used) > 50, f"only {len(used)} names are found")
    ids = [p["id"] for p in dash["panels"]]
    t.equal(len(ids), len(set(ids)), "ids of panels")
    spots = [(p["gridPos"]["x"] + dx, p["gridPos"]["y"]) for p in dash["panels"] for dx in range(p["gridPos"]["w"])]
    t.check(len(spots) == len(set(spots)) and all(x < 24 for x, _ in spots), "panels that overlap")
    t.note(f"{len(exprs)} expressions, {len(used)} names")


# An alert, series that it must fire on, labels it then has, and a change that quiets it.
# a x b n: from a by b, n times.
def series(name, labels, values):
    return {"series": f'{name}{{job="reqprobe", instance="h:9479"{", " + labels if labels else ""}}}', "values": values}


UP, FLAT, ONE, NONE = "0+60x120", "100+0x120", "1+0x120", "0+0x120"


def buckets(name, labels, at):
    """A histogram whose samples, one a second, are all in the bucket that ends at `at`."""
    return [series(f"{name}_bucket", f'{labels}, le="{le}"', UP if float(le) >= float(at) else NONE) for le in ("0.1", "0.25", "1", "2.5", "10", "+Inf")]


ALERTS = {
    "ReqprobeDown": ([series("up", "", NONE)], "", [series("up", "", ONE)]),
    "ReqprobeLosesEvents": ([series("reqprobe_events_lost_total", 'class="data"', UP)], "", [series("reqprobe_events_lost_total", 'class="data"', FLAT)]),
    "ReqprobeLimitHit": ([series("reqprobe_limit_hits_total", 'limit="memory"', UP)], 'limit="memory"', [series("reqprobe_limit_hits_total", 'limit="models"', UP)]),
    "ReqprobeBlindConnections": ([series("reqprobe_unobserved_connections_total", 'protocol="tls"', UP)], 'protocol="tls"',
                                 [series("reqprobe_unobserved_connections_total", 'protocol="tls"', FLAT)]),
    "ReqprobeRequestsNotJoined": ([series("reqprobe_requests_not_joined_total", "", "0+6x120"), series("reqprobe_requests_total", 'end="complete", status="200"', UP)], "",
                                  [series("reqprobe_requests_not_joined_total", "", "0+1x120"), series("reqprobe_requests_total", 'end="complete", status="200"', UP)]),
    "ReqprobeRecordsLost": ([series("reqprobe_records_failed_total", "", UP)], "", [series("reqprobe_records_failed_total", "", FLAT)]),
    "ReqprobeUploadsFail": ([series("reqprobe_s3_waiting_files", "", ONE), series("reqprobe_s3_uploads_total", "", FLAT), series("reqprobe_s3_errors_total", 'class="auth"', UP)], "",
                            [series("reqprobe_s3_waiting_files", "", ONE), series("reqprobe_s3_uploads_total", "", UP), series("reqprobe_s3_errors_total", 'class="auth"', UP)]),
    "ReqprobeOtlpDown": ([series("reqprobe_otlp_up", 'signal="traces"', NONE)], 'signal="traces"', [series("reqprobe_otlp_up", 'signal="traces"', ONE)]),
    "LLMRequestsFail": ([series("reqprobe_requests_total", 'end="error", status="500"', "0+6x120"), series("reqprobe_requests_total", 'end="complete", status="200"', UP)], "",
                        [series("reqprobe_requests_total", 'end="client_disconnect", status="200"', UP), series("reqprobe_requests_total", 'end="error", status="400"', UP),
                         series("reqprobe_requests_total", 'end="complete", status="200"', UP)]),
    "LLMStalled": ([series("reqprobe_requests_in_flight", "", ONE), series("reqprobe_requests_total", 'end="complete", status="200"', FLAT),
                    series("reqprobe_inter_token_latency_seconds_count", 'model="m", scope="engine"', FLAT)], "",
                   [series("reqprobe_requests_in_flight", "", ONE), series("reqprobe_requests_total", 'end="complete", status="200"', FLAT),
                    series("reqprobe_inter_token_latency_seconds_count", 'model="m", scope="engine"', UP)]),
    "LLMFirstTokenSlow": (buckets("reqprobe_time_to_first_token_seconds", 'model="m", operation="chat"', "10"), 'model="m"',
                          buckets("reqprobe_time_to_first_token_seconds", 'model="m", operation="chat"', "2.5")),
    "LLMTokensSlow": (buckets("reqprobe_inter_token_latency_seconds", 'model="m", scope="engine"', "1"), 'model="m"',
                      buckets("reqprobe_inter_token_latency_seconds", 'model="m", scope="engine"', "0.1")),
    "LLMQueueLong": (buckets("reqprobe_queue_time_seconds", 'model="m", operation="chat"', "2.5"), 'model="m"',
                     buckets("reqprobe_queue_time_seconds", 'model="m", operation="chat"', "1")),
    "LLMPreempts": ([series("reqprobe_scheduler_preemptions_total", 'engine_index="0"', UP)], 'engine_index="0"',
                    [series("reqprobe_scheduler_preemptions_total", 'engine_index="0"', FLAT)]),
    # half of them missed; half of them can't be judged, and all others are good
    "LLMObjectivesMissed": ([series("reqprobe_good_requests_total", "", "0+30x120"), series("reqprobe_slo_requests_total", "", UP),
                             series("reqprobe_slo_unknown_requests_total", "", FLAT)], "",
                            [series("reqprobe_good_requests_total", "", "0+30x120"), series("reqprobe_slo_requests_total", "", UP),
                             series("reqprobe_slo_unknown_requests_total", "", "0+30x120")]),
}
# One that holds where the series of the first try is not there at all.
STALLED_FROM_THE_START = [series("reqprobe_requests_in_flight", "", ONE), series("reqprobe_requests_total", 'end="complete", status="200"', NONE)]


@test(60, probe=False)
def alert_rules(t):
    """promtool takes the rules; each alert fires on what it is for, and not on what it is
    not for."""
    if not shutil.which("promtool"):
        raise Skip("no promtool: scripts/deps test")
    shutil.copy(os.path.join(CONTRIB, "reqprobe.rules.yml"), t.dir)
    r = subprocess.run(["promtool", "check", "rules", t.path("reqprobe.rules.yml")], capture_output=True, text=True)
    t.check(r.returncode == 0, f"promtool check rules: {r.stdout} {r.stderr}")
    r = subprocess.run(["promtool", "check", "config", "--syntax-only", os.path.join(CONTRIB, "prometheus.yml")], capture_output=True, text=True)
    t.check(r.returncode == 0, f"promtool check config: {r.stdout} {r.stderr}")
    rules = text("contrib", "reqprobe.rules.yml")
    names = re.findall(r"- alert: (\w+)", rules)
    t.equal(sorted(names), sorted(ALERTS), "alerts, and those that are tried here")
    severity = dict(re.findall(r"- alert: (\w+)\n(?:.*\n)*?.*severity: (\w+)", rules))
    tries = [(a, s, labels, True) for a, (s, labels, _) in ALERTS.items()] + [(a, s, "", False) for a, (_, _, s) in ALERTS.items()]
    tries.append(("LLMStalled", STALLED_FROM_THE_START, "", True))
    tests = []
    for alert, input_, labels, fires in tries:
        keys = ["job", "instance", "severity"] + re.findall(r'(\w+)="', labels)
        full = f'{{job="reqprobe", instance="h:9479", severity="{severity[alert]}"{", " + labels if labels else ""}}}'
        tests.append({"interval": "1m", "input_series": input_, "promql_expr_test": [{
            "expr": f'max by ({", ".join(keys)}) (ALERTS{{alertname="{alert}", alertstate="firing"}})', "eval_time": "100m",
            "exp_samples": [{"labels": full, "value": 1}] if fires else []}]})
    with open(t.path("tries.yml"), "w") as f:
        json.dump({"rule_files": ["reqprobe.rules.yml"], "evaluation_interval": "5m", "tests": tests}, f)   # which is YAML
    r = subprocess.run(["promtool", "test", "rules", t.path("tries.yml")], capture_output=True, text=True)
    t.check(r.returncode == 0, f"promtool test rules: {' '.join((r.stdout + r.stderr).split())[-900:]}")
    t.note(f"{len(names)} alerts, {len(tries)} tries")
