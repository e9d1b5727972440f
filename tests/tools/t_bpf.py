# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the kernel at hand takes, an older one may refuse: the programs' frames are counted
here as Linux 5.15 does."""
import os, struct

from harness import ROOT, Skip, test

OBJECT = os.path.join(ROOT, "build", "bpf", "reqprobe.bpf.o")
FRAMES, STACK, STEP = 8, 512, 32        # MAX_CALL_FRAMES, MAX_BPF_STACK, what each is rounded up to
LDX, ST, STX, JMP_CALL, MOV, ADD_IMM, LD_IMM64 = 1, 2, 3, 0x85, 0xbf, 0x07, 0x18


def functions(path):
    """{(section, offset): (name, bytes of stack, functions called)} of an object, and its programs."""
    d = open(path, "rb").read()
    off, = struct.unpack_from("<Q", d, 0x28)
    size, n, names = struct.unpack_from("<HHH", d, 0x3a)
    name = lambda table, at: d[sections[table][4] + at:d.index(b"\0", sections[table][4] + at)].decode()
    sections = [struct.unpack_from("<IIQQQQIIQQ", d, off + i * size) for i in range(n)]
    tab = next(s for s in sections if s[1] == 2)
    syms = [struct.unpack_from("<IBBHQQ", d, tab[4] + i) for i in range(0, tab[5], 24)]
    calls = {}
    for s in sections:
        for i in range(0, s[5] if s[1] == 9 else 0, 16):
            at, info = struct.unpack_from("<QQ", d, s[4] + i)
            calls[s[7], at] = syms[info >> 32]
    out = {}
    for sym, info, _, sec, start, length in syms:
        if info & 15 != 2:
            continue
        stack, frame, to, at = 0, set(), set(), start
        while at < start + length:
            op, regs, disp, imm = struct.unpack_from("<BBhi", d, sections[sec][4] + at)
            dst, src = regs & 15, regs >> 4
            if op & 7 == LDX and src == 10 or op & 7 in (ST, STX) and dst == 10:
                stack = max(stack, -disp)
            if op == ADD_IMM and dst in frame:
                stack = max(stack, -imm)
            frame = frame | {dst} if op == MOV and src == 10 else frame - {dst}
            if op == JMP_CALL and (sec, at) in calls:
                _, kind, _, where, value, _ = calls[sec, at]
                if where:       # else of the kernel
                    to.add((where, (imm + 1) * 8 if kind & 15 == 3 else value))
            elif op == JMP_CALL and src == 1:
                to.add((sec, at + 8 + imm * 8))
            at += 16 if op == LD_IMM64 else 8
        out[sec, start] = (name(tab[6], sym), stack, to)
    return out, [k for k in out if name(names, sections[k[0]][0]) != ".text"]


@test(30, probe=False)
def bpf_frames(t):
    """No way through a program has more than 8 frames, or more than 512 bytes in them."""
    if not os.path.exists(OBJECT):
        raise Skip("no build/bpf")
    known, programs = functions(OBJECT)

    def ways(k):
        name, stack, to = known[k]
        for rest in [w for x in to for w in ways(x)] or [[]]:
            yield [(name, -(-max(stack, 1) // STEP) * STEP)] + rest
    deepest = largest = 0
    for p in programs:
        for w in ways(p):
            deepest, largest = max(deepest, len(w)), max(largest, sum(x[1] for x in w))
            t.check(len(w) <= FRAMES and sum(x[1] for x in w) <= STACK, f"{sum(x[1] for x in w)} bytes in {len(w)} frames: {w}")
    t.check(len(programs) > 20 and deepest > 3 and largest > 300, f"read from it: {len(programs)} programs, {deepest}, {largest}")
    t.note(f"{deepest} frames, {largest} bytes")
