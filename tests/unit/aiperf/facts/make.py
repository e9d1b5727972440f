#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What AIPerf 0.13.0 makes of synthetic requests, for tests/unit/test_metrics.c.
make.py DIR, by a Python that has aiperf: writes DIR/registry.txt (tag, type, unit,
display unit, flags of its registry) and DIR/records.json: requests as struct rp_facts
has them, with the value of each of AIPerf's metrics in base units, those of the run,
goodput, and the series over time. Nothing of it is computed here: the values come from
AIPerf's metric classes, its column store and its sweep line."""
import json, os, random, sys

from aiperf.common.models import (AioHttpTraceData, ErrorDetails, ParsedResponse, ParsedResponseRecord,
                                  RequestRecord)
from aiperf.common.enums import MetricFlags, MetricType
from aiperf.common.exceptions import NoMetricValue
from aiperf.common.models.record_models import (MediaCounts, ReasoningResponseData, TextResponseData,
                                                TokenCounts)
from aiperf.common.models.spec_decode_models import SpecDecodeAcceptanceRecord
from aiperf.metrics.accumulator_sweeps import compute_sweep_curves
from aiperf.metrics.column_store import ColumnStore
from aiperf.metrics.metric_dicts import MetricRecordDict, MetricResultsDict
from aiperf.metrics.metric_registry import MetricRegistry
from aiperf.metrics.types.good_request_count_metric import GoodRequestCountMetric

SLOS = {"time_to_first_token": 60.0, "inter_token_latency": 9.0, "e2e_output_token_throughput": 60.0}
USAGE = {"prompt_tokens": ("prompt_tokens",), "completion_tokens": ("completion_tokens",),
         "total_tokens": ("total_tokens",), "reasoning_tokens": ("completion_tokens_details", "reasoning_tokens"),
         "cache_read_tokens": ("prompt_tokens_details", "cached_tokens"),
         "cache_write_tokens": ("cache_creation_input_tokens",),
         "cache_miss_tokens": ("prompt_cache_miss_tokens",),
         "prompt_audio_tokens": ("prompt_tokens_details", "audio_tokens"),
         "completion_audio_tokens": ("completion_tokens_details", "audio_tokens"),
         "accepted_prediction_tokens": ("completion_tokens_details", "accepted_prediction_tokens"),
         "rejected_prediction_tokens": ("completion_tokens_details", "rejected_prediction_tokens"),
         "tool_use_prompt_tokens": ("toolUsePromptTokenCount",),
         "prompt_audio_seconds": ("prompt_audio_seconds",)}


def synthetic(rnd, i, wall):
    """One request, as struct rp_facts."""
    f = {"start_wall": wall, "status": 200, "end": "complete", "reused": rnd.random() < 0.5}
    f["receive"] = rnd.randrange(0, 3_000_000)
    f["stream"] = int(rnd.random() < 0.8)
    f["rtt"] = rnd.randrange(10_000, 90_000_000)
    n = rnd.choice([1, 2, 3, 7, 12])
    if i % 10 == 7:
        f.update(status=rnd.choice([400, 503]), has_error=True, error_where="status", stream=0,
                 end="error", context_overflow=rnd.random() < 0.5)
    f["first_byte"] = rnd.randrange(1_000_000, 5_000_000)
    at = f["first_body"] = f["first_byte"] + rnd.randrange(0, 2_000_000)
    if f["stream"]:
        at += rnd.randrange(1_000_000, 90_000_000)
        f["ttft"] = at
        f["icl"] = [rnd.choice([0, rnd.randrange(1, 30_000_000)]) for _ in range(n - 1)]
        f["last_token"] = f["ttft"] + sum(f["icl"])
        if n > 1:
            f["second"] = f["icl"][0]
        f["thinks"] = rnd.randrange(0, n) if rnd.random() < 0.4 else 0
        f["first_output"] = f["ttft"] + sum(f["icl"][:f["thinks"]])
        f["chunks"] = n
        at = f["last_token"]
    f["last_body"] = at + rnd.randrange(0, 1_000_000)
    f["duration"] = f["last_body"] + rnd.randrange(1, 1_000_000)
    if rnd.random() < 0.85:
        f["prompt"] = rnd.randrange(1, 4000)
        if status_ok(f):
            f["completion"] = rnd.choice([0, 1, 2, n, n + 5, 300])
            if rnd.random() < 0.4:
                f["reasoning"] = rnd.randrange(0, f["completion"] + 1)
            if f["stream"] and rnd.random() < 0.3:
                f["first_chunk_tokens"] = rnd.randrange(0, 4)
            if rnd.random() < 0.7:
                f["max_tokens"] = rnd.choice([0, f["completion"], f["completion"] + 3, 100, 2000])
    f["request_body"] = rnd.randrange(50, 9000)
    f["response_body"] = rnd.randrange(50, 90000)
    f["request_calls"] = rnd.randrange(1, 3)
    f["response_calls"] = 1 if not f["stream"] else n + 1
    if f["response_calls"] == 1:
        f["last_body"] = f["first_body"]
        f["duration"] = f["last_body"] + 1
    f["images"] = rnd.choice([0, 0, 1, 3])
    if status_ok(f) and rnd.random() < 0.7:
        names = [k for k in USAGE if rnd.random() < 0.6]
        f["usage"] = {k: rnd.randrange(0, 900) for k in names if k != "prompt_audio_seconds"}
        if "prompt_audio_seconds" in names:
            f["prompt_audio_seconds"] = rnd.randrange(0, 900) / 8
    if status_ok(f) and rnd.random() < 0.4:
        hist = [rnd.randrange(0, 9) for _ in range(4)]
        f["spec_steps"] = sum(hist)
        f["spec_accepted_tokens"] = sum(k * v for k, v in enumerate(hist))
        f["spec_draft_tokens"] = f["spec_steps"] * 3
        f["hist"] = hist
    return f


def status_ok(f):
    return not f.get("has_error")


class Info:
    """RecordContext has many required members; one of them is read here."""

    def __init__(self, max_tokens):
        self.max_tokens = max_tokens

    def __getattr__(self, name):
        return None


def record_of(f):
    """The same for AIPerf."""
    start = 10**12
    t = lambda k: start + f["receive"] + f[k]
    responses = []
    if status_ok(f) and f["stream"]:
        at = t("ttft")
        for k in range(f["chunks"]):
            at += f["icl"][k - 1] if k else 0
            data = ReasoningResponseData(reasoning="r") if k < f["thinks"] else TextResponseData(text="t")
            responses.append(ParsedResponse(perf_ns=at, data=data))
    elif status_ok(f):
        responses.append(ParsedResponse(perf_ns=t("duration"), data=TextResponseData(text="t")))
    if f.get("usage") is not None or "prompt_audio_seconds" in f:
        usage = {}
        for k, v in list(f.get("usage", {}).items()) + ([("prompt_audio_seconds", f["prompt_audio_seconds"])]
                                                        if "prompt_audio_seconds" in f else []):
            path = USAGE[k]
            (usage.setdefault(path[0], {}) if len(path) > 1 else usage)[path[-1]] = v
        if usage:
            responses.append(ParsedResponse(perf_ns=t("duration"), usage=usage))
    trace = AioHttpTraceData(
        request_send_start_perf_ns=start, request_send_end_perf_ns=start + f["receive"],
        response_receive_start_perf_ns=t("first_body"), response_receive_end_perf_ns=t("last_body"),
        request_bytes_total=f["request_body"], response_bytes_total=f["response_body"],
        request_chunks_count=f["request_calls"], response_chunks_count=f["response_calls"],
        connection_reused_perf_ns=start if f["reused"] else None,
        tcp_connect_start_perf_ns=None if f["reused"] else start,
        tcp_connect_end_perf_ns=None if f["reused"] else start + f["rtt"])
    request = RequestRecord(model_name="m", timestamp_ns=f["start_wall"], start_perf_ns=start,
                            end_perf_ns=t("duration"), recv_start_perf_ns=t("first_byte"), status=f["status"],
                            trace_data=trace)
    request.context_overflow = f.get("context_overflow", False)
    if not status_ok(f):
        request.error = ErrorDetails(code=f["status"], message="no")
    object.__setattr__(request, "request_info", Info(f.get("max_tokens")))
    spec = None
    # AIPerf's own adapter makes no record of a request without steps
    if f.get("spec_steps"):
        a, d, s = f["spec_accepted_tokens"], f["spec_draft_tokens"], f["spec_steps"]
        spec = SpecDecodeAcceptanceRecord(engine="vllm", mean_acceptance_length=1 + a / s,
                                          draft_acceptance_rate=a / d,
                                          acceptance_histogram={k: v for k, v in enumerate(f["hist"]) if v},
                                          num_accepted_draft_tokens=a, num_draft_tokens=d, num_spec_steps=s)
    out = f["completion"] - f.get("reasoning", 0) if "completion" in f else None
    return ParsedResponseRecord(
        request=request, responses=responses,
        token_counts=TokenCounts(input=f.get("prompt"), output=out, reasoning=f.get("reasoning"),
                                 first_content_chunk_tokens=f.get("first_chunk_tokens")),
        media_counts=MediaCounts(images=f["images"]), spec_decode_acceptance=spec)


def main(out):
    rnd = random.Random(13)
    wall = 1_795_964_250_000_000_000
    GoodRequestCountMetric.set_slos(SLOS)
    order = MetricRegistry.create_dependency_order()
    classes = {t: MetricRegistry.get_class(t) for t in order}
    with open(os.path.join(out, "registry.txt"), "w") as r:
        for tag in sorted(classes):
            c = classes[tag]
            unit = lambda u: str(u) if u is not None else "-"
            flags = "+".join(sorted(x.name for x in MetricFlags if x.name and x in c.flags and x.value
                                    and x.value & (x.value - 1) == 0)) or "-"
            print(tag, c.type.name.lower(), unit(c.unit).replace(" ", "_"), unit(c.display_unit), flags,
                  file=r)

    records, sums, even, chunked = [], {}, ColumnStore(), ColumnStore()
    for i in range(60):
        wall += rnd.randrange(0, 120_000_000)
        f = synthetic(rnd, i, wall)
        rec = record_of(f)
        m, valid = MetricRecordDict(), status_ok(f)
        for tag in order:
            c = classes[tag]
            if c.type == MetricType.DERIVED or c.has_flags(MetricFlags.ERROR_ONLY) == valid:
                continue
            if c.has_flags(MetricFlags.STREAMING_ONLY) and not f["stream"]:
                continue
            try:
                m[tag] = c().parse_record(rec, m)
            except (NoMetricValue, ValueError):
                pass
        for tag, v in m.items():
            if isinstance(v, list):
                continue
            if tag == "min_request_timestamp":
                sums[tag] = min(v, sums.get(tag, v))
            elif tag == "max_response_timestamp":
                sums[tag] = max(v, sums.get(tag, v))
            else:
                sums[tag] = sums.get(tag, 0) + v
        ttft = m.get("time_to_first_token")
        # doubles of wall clock are 256 ns apart: the line is swept from 0 here
        base = float(f["start_wall"] - 1_795_964_250_000_000_000)
        for store, k in ((even, i), (chunked, chunked.count)):
            gaps = m.get("inter_chunk_latency")
            if store is chunked and not gaps:
                continue
            store.ingest(idx=k, record_metrics={t: v for t, v in m.items() if store is chunked or not
                                                isinstance(v, list)},
                         start_ns=base, end_ns=base + f["receive"] + f["duration"],
                         generation_start_ns=base + ttft if ttft is not None else None)
        good = m.get("good_request_count")
        expect = {t: v for t, v in m.items() if classes[t].type == MetricType.RECORD}
        f.pop("thinks", None)
        f.pop("hist", None)
        records.append({"facts": f, "good": bool(good), "metrics": expect})

    run = MetricResultsDict()
    run.update(sums)
    for tag in order:
        if classes[tag].type == MetricType.DERIVED:
            try:
                run[tag] = classes[tag]().derive_value(run)
            except (NoMetricValue, ValueError):
                pass
    run = {t: v for t, v in run.items() if classes[t].type != MetricType.RECORD}

    def series(store):
        curves = compute_sweep_curves(store)
        res = curves.compute_metrics(float(curves.concurrency_ts[0]), float(curves.concurrency_ts[-1]))
        return {t: {k: getattr(r, k) for k in ("avg", "min", "max", "p50", "p90", "p95", "p99", "std")}
                for t, r in res.items()}

    with open(os.path.join(out, "records.json"), "w") as o:
        json.dump({"slos": " ".join(f"{k}:{v}" for k, v in SLOS.items()), "records": records, "run": run,
                   "series": series(even), "series_chunked": series(chunked)}, o, separators=(",", ":"))
        o.write("\n")


main(sys.argv[1])
