#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An OTLP/HTTP receiver for tests: otlp_receiver.py PORT OUT [CERT KEY]. Runs with the Python of
scripts/pytools (opentelemetry-proto). Each request becomes a line of OUT: what came,
decoded by the official messages, and what was answered. POST /control sets how the
next requests are answered: {"status", "headers", "delay", "times", "partial"}."""

import base64, gzip, http.server, json, ssl, sys, threading, time

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as ms
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as ts

SIGNALS = {"/v1/metrics": (ms.ExportMetricsServiceRequest, ms.ExportMetricsServiceResponse, "rejected_data_points"),
           "/v1/traces": (ts.ExportTraceServiceRequest, ts.ExportTraceServiceResponse, "rejected_spans")}
plan, lock = {}, threading.Lock()
out = None


def value(v):
    kind = v.WhichOneof("value")
    x = getattr(v, kind)
    return [value(e) for e in x.values] if kind == "array_value" else x


def attrs(kvs):
    d = {kv.key: value(kv.value) for kv in kvs}
    assert len(d) == len(kvs), f"an attribute twice: {[kv.key for kv in kvs]}"
    return d


def exemplar(e):
    return {"attrs": attrs(e.filtered_attributes), "time": e.time_unix_nano, "value": e.as_double,
            "trace": e.trace_id.hex(), "span": e.span_id.hex()}


def point(kind, p):
    d = {"attrs": attrs(p.attributes), "start": p.start_time_unix_nano, "time": p.time_unix_nano}
    if kind in ("gauge", "sum"):
        d["value"] = getattr(p, p.WhichOneof("value"))
        return d
    d.update(count=p.count, sum=p.sum, min=p.min, max=p.max, exemplars=[exemplar(e) for e in p.exemplars])
    assert p.HasField("sum") and p.HasField("min") and p.HasField("max")
    if kind == "histogram":
        d.update(counts=list(p.bucket_counts), bounds=list(p.explicit_bounds))
        assert len(d["counts"]) == len(d["bounds"]) + 1 and sum(d["counts"]) == p.count
    else:
        d.update(scale=p.scale, zero=p.zero_count, offset=p.positive.offset, counts=list(p.positive.bucket_counts))
        assert sum(d["counts"]) + p.zero_count == p.count and len(d["counts"]) <= 160
    return d


def metrics(r):
    res = []
    for rm in r.resource_metrics:
        for sm in rm.scope_metrics:
            for m in sm.metrics:
                kind = m.WhichOneof("data")
                data = getattr(m, kind)
                res.append({"name": m.name, "unit": m.unit, "type": kind, "description": m.description,
                            "temporality": getattr(data, "aggregation_temporality", None),
                            "monotonic": getattr(data, "is_monotonic", None), "points": [point(kind, p) for p in data.data_points]})
    assert len({m["name"] for m in res}) == len(res), "a metric twice"
    return {"resource": attrs(r.resource_metrics[0].resource.attributes), "scope": r.resource_metrics[0].scope_metrics[0].scope.name,
            "schema_url": r.resource_metrics[0].schema_url, "metrics": res}


def spans(r):
    res = []
    for rs in r.resource_spans:
        for ss in rs.scope_spans:
            for s in ss.spans:
                assert len(s.trace_id) == 16 and len(s.span_id) == 8 and len(s.parent_span_id) in (0, 8)
                res.append({"trace": s.trace_id.hex(), "span": s.span_id.hex(), "parent": s.parent_span_id.hex(), "name": s.name,
                            "kind": s.kind, "start": s.start_time_unix_nano, "end": s.end_time_unix_nano, "attrs": attrs(s.attributes),
                            "events": [[e.name, e.time_unix_nano] for e in s.events], "status": s.status.code, "flags": s.flags})
    return {"resource": attrs(r.resource_spans[0].resource.attributes), "spans": res}


def strict(o, key=""):
    """OTLP/JSON: enums are numbers, 64-bit integers are decimal strings, ids are hex."""
    if isinstance(o, dict):
        return {k: strict(v, k) for k, v in o.items()}
    if isinstance(o, list):
        return [strict(v, key) for v in o]
    if key.endswith("UnixNano") or key in ("count", "zeroCount", "bucketCounts", "intValue", "asInt"):
        assert isinstance(o, str) and str(int(o)) == o, f"{key}: {o!r} is no decimal string"
    if key in ("aggregationTemporality", "kind", "code", "scale", "offset", "flags"):
        assert isinstance(o, int) and not isinstance(o, bool), f"{key}: {o!r} is no number"
    if key in ("traceId", "spanId", "parentSpanId"):
        assert o == o.lower() and len(o) == (32 if key == "traceId" else 16), f"{key}: {o!r}"
        return base64.b64encode(bytes.fromhex(o)).decode()
    return o


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def answer(self, status, body=b"", headers=(), kind="application/x-protobuf"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for k, v in dict(headers).items():
            self.send_header(k, v)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        global plan
        n = int(self.headers["Content-Length"])
        raw = body = self.rfile.read(n)
        if self.path == "/control":
            with lock:
                plan = json.loads(body)
            return self.answer(200)
        with lock:
            p = dict(plan)
            if "times" in plan:
                plan["times"] -= 1
                if plan["times"] <= 0:
                    plan.clear()
        line = {"at": time.time(), "path": self.path, "status": p.get("status", 200), "bytes": n,
                "headers": {k.lower(): v for k, v in self.headers.items()}}
        try:
            request, response, rejected = SIGNALS[self.path]
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            is_json = self.headers["Content-Type"] == "application/json"
            if is_json:
                m = json_format.ParseDict(strict(json.loads(body)), request())
            else:
                assert self.headers["Content-Type"] == "application/x-protobuf", self.headers["Content-Type"]
                m = request.FromString(body)
                again = m.SerializeToString()
                assert len(again) == len(body) or self.path == "/v1/metrics", "fields that are defaults, or unknown"
            line.update(metrics(m) if self.path == "/v1/metrics" else spans(m))
            reply = response()
            if "partial" in p:
                setattr(reply.partial_success, rejected, p["partial"])
                reply.partial_success.error_message = "no thanks\x1b[31m"
            reply = json_format.MessageToJson(reply).encode() if is_json else reply.SerializeToString()
        except Exception as e:
            line.update(status=400, broken=f"{type(e).__name__}: {e}")
            reply, is_json = b"", False
        time.sleep(p.get("delay", 0))
        status = line["status"]
        with lock:
            out.write(json.dumps(line) + "\n")
            out.flush()
        try:
            self.answer(status, reply if status == 200 else b"", p.get("headers", {}),
                        "application/json" if is_json else "application/x-protobuf")
        except OSError:
            pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def main():
    global out
    out = open(sys.argv[2], "a")
    s = Server(("127.0.0.1", int(sys.argv[1])), Handler)
    if len(sys.argv) > 3:
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        c.load_cert_chain(sys.argv[3], sys.argv[4])
        s.socket = c.wrap_socket(s.socket, server_side=True)
    print("listening", s.server_address[1], flush=True)
    s.serve_forever()


main()
