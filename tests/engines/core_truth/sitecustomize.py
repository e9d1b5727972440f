# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""For tests of front ends whose answers carry no `metrics`: put first on
PYTHONPATH, this makes an EngineCore write down each EngineCoreOutputs object it is
about to send, as one JSON line in $REQPROBE_CORE_TRUTH.PID: the engine's own
objects, before anything is encoded."""

import importlib.abc, importlib.machinery, json, os, sys

_PATH = os.environ.get("REQPROBE_CORE_TRUTH")


def _wrap(cls):
    encode_into, files = cls.encode_into, {}

    def told(self, obj, buffer):
        if type(obj).__name__ == "EngineCoreOutputs":
            pid = os.getpid()
            if pid not in files:
                files[pid] = open(f"{_PATH}.{pid}", "a", buffering=1)
            files[pid].write(json.dumps({"ts": obj.timestamp, "outputs": [
                [o.request_id, len(o.new_token_ids), [[int(e.type), e.timestamp] for e in o.events or ()]] for o in obj.outputs]}) + "\n")
        return encode_into(self, obj, buffer)
    cls.encode_into = told


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if not name.endswith(".v1.serial_utils"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            _wrap(module.MsgpackEncoder)
        spec.loader.exec_module = exec_module
        return spec


if _PATH:
    sys.meta_path.insert(0, _Finder())
