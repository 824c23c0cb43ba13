# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels that fill, check and read device memory, as PTX text that NVIDIA's driver compiles for the GPU that it has.

A word has 8 bytes. The word at index i of a pattern is one of KINDS(i, seed) ^ mask:

    constant    seed
    address     8 i ^ seed
    random      splitmix64: the i-th output behind the state `seed` (G. L. Steele, D. Lea, C. H. Flood, OOPSLA 2014)
    walking     a single 1 at bit (i + seed) mod 64

Kernels, with their parameters (all of 64 bits, n is a number of words and even):

    fill(p, n, kind, seed, mask)                writes a pattern
    check(p, n, kind, seed, mask, out, invert)  compares memory with a pattern; with invert = 1 it writes the inverse behind the comparison
    same(p, q, n, out)                          compares two buffers; q has what is expected
    total(p, n, out)                            adds the sum of all words (mod 2^64) to out[0]
    gate(flag, ns)                              waits until the word at flag is not 0, for ns nanoseconds at most
    chase(p, steps, out)                        follows pointers, each word being the address of the next; out[0] is the last one

Mismatches are counted in out[0]; the first MOST that any thread finds are at out[1 + 3 k]: offset in bytes, expected, read. `check` and
`same` add to out[COMPARED] how many words they have compared, so that a kernel that did not run, or not over all of its memory, is seen.

It travels to the nodes as text, in front of a workload that uses it (workloads/packing.py): no imports of this collection.
This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

KINDS = ("constant", "address", "random", "walking")
# How many mismatches are kept, where the number of compared words stands in `out`, and the bytes of `out`.
MOST = 64
COMPARED = 1 + 3 * MOST
OUT_BYTES = 8 * (1 + COMPARED)
WORD = (1 << 64) - 1


def word(kind: str, i: int, seed: int, mask: int = 0) -> int:
    """Return word i of a pattern, as the kernels make it."""
    if kind == "constant":
        value = seed
    elif kind == "address":
        value = 8 * i ^ seed
    elif kind == "random":
        value = (i + seed) * 0x9E3779B97F4A7C15 & WORD
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & WORD
        value = (value ^ value >> 27) * 0x94D049BB133111EB & WORD
        value ^= value >> 31
    else:
        value = 1 << (i + seed) % 64
    return (value ^ mask) & WORD


# Where every kernel begins: %i is the thread's first word, %step the words between one and the next of the same thread.
_BEGIN = """
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;
    mul.wide.u32 %i, %r1, %r2; cvt.u64.u32 %t, %r3; add.u64 %i, %i, %t; shl.b64 %i, %i, 1;
    mul.wide.u32 %step, %r4, %r2; shl.b64 %step, %step, 1;
"""
_REGISTERS = """
    .reg .u32 %r<8>; .reg .pred %k<4>; .reg .pred %p, %q;
    .reg .u64 %i, %j, %t, %u, %step, %at, %base, %base2, %n, %kind, %seed, %mask, %out, %invert, %v<8>, %e<4>, %slot, %offset, %sum, %done;
"""


def _value(into: str, index: str) -> str:
    """PTX that puts the pattern's word at `index` into a register; %k0 to %k2 say which kind."""
    return f"""
    mov.u64 {into}, %seed;
    @%k0 bra $done_{into[1:]};
    shl.b64 {into}, {index}, 3; xor.b64 {into}, {into}, %seed;
    @%k1 bra $done_{into[1:]};
    add.u64 %t, {index}, %seed;
    @%k2 bra $random_{into[1:]};
    cvt.u32.u64 %r5, %t; and.b32 %r5, %r5, 63; mov.u64 {into}, 1; shl.b64 {into}, {into}, %r5;
    bra $done_{into[1:]};
$random_{into[1:]}:
    mul.lo.u64 %t, %t, 0x9E3779B97F4A7C15;
    shr.u64 %u, %t, 30; xor.b64 %t, %t, %u; mul.lo.u64 %t, %t, 0xBF58476D1CE4E5B9;
    shr.u64 %u, %t, 27; xor.b64 %t, %t, %u; mul.lo.u64 %t, %t, 0x94D049BB133111EB;
    shr.u64 %u, %t, 31; xor.b64 {into}, %t, %u;
$done_{into[1:]}:
    xor.b64 {into}, {into}, %mask;
"""


_KINDS = """
    setp.eq.u64 %k0, %kind, 0; setp.eq.u64 %k1, %kind, 1; setp.eq.u64 %k2, %kind, 2;
"""


def _differ(name: str, read: str, expected: str, extra_bytes: int) -> str:
    """PTX that keeps a mismatch of the word `more` bytes behind the thread's place."""
    return f"""
    setp.eq.u64 %p, {read}, {expected};
    @%p bra $equal_{name};
    atom.global.add.u64 %slot, [%out], 1;
    setp.ge.u64 %p, %slot, {MOST};
    @%p bra $equal_{name};
    mad.lo.u64 %slot, %slot, 24, %out;
    shl.b64 %offset, %i, 3; add.u64 %offset, %offset, {extra_bytes};
    st.global.u64 [%slot+8], %offset; st.global.u64 [%slot+16], {expected}; st.global.u64 [%slot+24], {read};
$equal_{name}:
"""


def _kernel(name: str, parameters: t.Sequence[str], body: str) -> str:
    """PTX of a kernel that loads its parameters into the registers of these names."""
    declared = ", ".join(f".param .u64 {name}_{register}" for register in parameters)
    loads = " ".join(f"ld.param.u64 %{register}, [{name}_{register}];" for register in parameters)
    # Labels belong to a kernel; registers are declared in each.
    return f".visible .entry {name}({declared})\n{{\n{_REGISTERS}\n    {loads}\n{body}\n    ret;\n}}\n"


def _loop(body: str, end: str = "") -> str:
    """PTX that does something for each pair of words of the thread, and `end` behind all of them; %at is where the pair is."""
    return f"""
{_BEGIN}
    mov.u64 %done, 0;
$again:
    setp.ge.u64 %q, %i, %n;
    @%q bra $end;
    shl.b64 %at, %i, 3; add.u64 %at, %at, %base;
{body}
    add.u64 %i, %i, %step;
    bra $again;
$end:
{end}
"""


def memory_module(_capability: int) -> str:
    """Return the PTX module for any GPU. Version 6.0 for sm_60: drivers since R384 and GPUs since Pascal take it."""
    return ".version 6.0\n.target sm_60\n.address_size 64\n" + kernel_texts()


def kernel_texts() -> str:
    """Return the kernels without the head of a module."""
    pair = _value("%e0", "%i") + "    add.u64 %j, %i, 1;\n" + _value("%e1", "%j")
    compare = _differ("first", "%v0", "%e0", 0) + _differ("second", "%v1", "%e1", 8)
    inverse = """
    setp.eq.u64 %p, %invert, 0;
    @%p bra $kept;
    not.b64 %e0, %e0; not.b64 %e1, %e1;
    st.global.v2.u64 [%at], {%e0, %e1};
$kept:
"""
    # Behind the comparison of a pair, and behind those of a thread.
    counted = "    add.u64 %done, %done, 2;\n"
    told = f"    red.global.add.u64 [%out+{8 * COMPARED}], %done;"
    load = "    ld.global.v2.u64 {%v0, %v1}, [%at];\n"
    second_load = """
    sub.u64 %t, %at, %base; add.u64 %t, %t, %base2;
    ld.global.v2.u64 {%e0, %e1}, [%t];
"""
    # Four loads of each thread are under way at a time, which the fastest memories need; those of a block lie side by side.
    four = "".join(
        f"""
    mad.lo.u64 %j, %offset, {k}, %i; setp.lt.u64 %k{k}, %j, %n;
    shl.b64 %t, %j, 3; add.u64 %t, %t, %base;
    mov.u64 %v{2 * k}, 0; mov.u64 %v{2 * k + 1}, 0;
    @%k{k} ld.global.v2.u64 {{%v{2 * k}, %v{2 * k + 1}}}, [%t];
"""
        for k in range(4)
    )
    adding = "".join(f"    add.u64 %sum, %sum, %v{k};\n" for k in range(8))
    # The 32 threads of a warp add up among themselves: an addition in memory per thread would take a tenth of the time.
    warp = "".join(
        f"""
    mov.b64 {{%r1, %r2}}, %sum;
    shfl.sync.down.b32 %r1, %r1, {distance}, 31, 0xffffffff; shfl.sync.down.b32 %r2, %r2, {distance}, 31, 0xffffffff;
    mov.b64 %t, {{%r1, %r2}}; add.u64 %sum, %sum, %t;
"""
        for distance in (16, 8, 4, 2, 1)
    )
    total = f"""
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;
    cvt.u64.u32 %offset, %r2; shl.b64 %offset, %offset, 1;
    cvt.u64.u32 %i, %r1; mul.lo.u64 %i, %i, %offset; shl.b64 %i, %i, 2;
    cvt.u64.u32 %t, %r3; shl.b64 %t, %t, 1; add.u64 %i, %i, %t;
    cvt.u64.u32 %step, %r4; mul.lo.u64 %step, %step, %offset; shl.b64 %step, %step, 2;
    mov.u64 %sum, 0;
$again:
    setp.ge.u64 %q, %i, %n;
    @%q bra $end;
{four}{adding}
    add.u64 %i, %i, %step;
    bra $again;
$end:
{warp}
    and.b32 %r3, %r3, 31; setp.ne.u32 %p, %r3, 0;
    @%p bra $done;
    red.global.add.u64 [%out], %sum;
$done:
"""
    gate = """
    mov.u64 %t, %globaltimer;
$again:
    ld.volatile.global.u64 %v0, [%base];
    setp.ne.u64 %p, %v0, 0;
    @%p bra $end;
    mov.u64 %u, %globaltimer; sub.u64 %u, %u, %t;
    setp.lt.u64 %p, %u, %n;
    @%p bra $again;
$end:
"""
    chase = """
    mov.u64 %i, 0; mov.u64 %at, %base;
$again:
    ld.volatile.global.u64 %at, [%at];
    add.u64 %i, %i, 1;
    setp.lt.u64 %p, %i, %n;
    @%p bra $again;
    st.global.u64 [%out], %at;
"""
    checking = _KINDS + _loop(load + pair + compare + counted + inverse, told)
    return "".join(
        (
            _kernel("fill", ("base", "n", "kind", "seed", "mask"), _KINDS + _loop(f"{pair}\n    st.global.v2.u64 [%at], {{%e0, %e1}};")),
            _kernel("check", ("base", "n", "kind", "seed", "mask", "out", "invert"), checking),
            _kernel("same", ("base", "base2", "n", "out"), _loop(load + second_load + compare + counted, told)),
            _kernel("total", ("base", "n", "out"), total),
            _kernel("gate", ("base", "n"), gate),
            _kernel("chase", ("base", "n", "out"), chase),
        )
    )
