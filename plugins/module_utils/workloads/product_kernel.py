# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kernel of matrix products that keeps the tensor cores of a GPU busy from registers, as PTX text, beside those of memory_kernels.py.

    multiply(n, seed, out)    n steps; adds to out[block] a checksum of the block's results, and writes to out[blocks + block] the
                              number of the multiprocessor that computed it

In each step every warp multiplies TILES x TILES pairs of tiles and adds the products to sums in single precision. FORMS has the tiles of
each compute capability: BF16 numbers from Ampere on, FP16 numbers before it. They are pseudo-random numbers between 0.5 and 2 of both
signs, of which signs and mantissas change with each step. They depend on the seed and on the thread's place in its block alone: all
blocks compute the same, so that a multiprocessor that computes something else stands out at once. The checksum covers every bit of every
sum. Products come in a fixed order, so the bits are the same each time.

It travels to the nodes as text, in front of a workload that uses it (workloads/packing.py): no imports of this collection but what is
packed in front of it. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

if "kernel_texts" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.memory_kernels import kernel_texts, memory_module

TILES = 4
THREADS = 256


class Form(t.NamedTuple):
    """The products of a tensor core (PTX ISA, mma): the `version` of PTX that has them, shape and type, how many registers of a thread hold
    a tile of each operand and of the sums, and the operations of one instruction.

    Two numbers are in each register: `random` has their signs, mantissas and lowest bits of the exponent, `half` is 0.5 twice, and
    `change` has signs and mantissas.
    """

    version: str
    shape: str
    number: str
    a: int
    b: int
    sums: int
    flop: int
    random: int
    half: int
    change: int


_BF16 = 0x80FF80FF, 0x3F003F00, 0x807F807F
_FP16 = 0x87FF87FF, 0x38003800, 0x83FF83FF
# {compute capability from which it is used: form}. An m8n8k4 is four products of 8x4 by 4x8, one by each quarter of a warp.
FORMS = {
    70: Form("6.4", "m8n8k4", "f16", 2, 2, 8, 4 * 2 * 8 * 8 * 4, *_FP16),
    75: Form("6.5", "m16n8k8", "f16", 2, 1, 4, 2 * 16 * 8 * 8, *_FP16),
    80: Form("7.0", "m16n8k16", "bf16", 4, 2, 4, 2 * 16 * 8 * 16, *_BF16),
}
LEAST_CAPABILITY = min(FORMS)


def _target(capability: int) -> int:
    """Return the highest capability of FORMS that a GPU has."""
    return max(least for least in FORMS if least <= capability)


def flop(capability: int) -> int:
    """Return the operations of one step of a block."""
    return THREADS // 32 * TILES * TILES * FORMS[_target(capability)].flop


def lack(capability: int) -> str:
    """Return why a GPU cannot multiply; empty if it can."""
    has, need = capability / 10, LEAST_CAPABILITY / 10
    return f"has compute capability {has}, the products need {need}" if capability < LEAST_CAPABILITY else ""


def _random(count: int, register: str, form: Form) -> str:
    """PTX that fills registers with pairs of numbers between 0.5 and 2."""
    return "".join(
        f"""
    mad.lo.u32 %x, %x, 1664525, 1013904223; shr.u32 %y, %x, 16; xor.b32 %y, %y, %x;
    and.b32 %y, %y, {form.random:#x}; or.b32 %{register}{k}, %y, {form.half:#x};"""
        for k in range(count)
    )


def _multiply(form: Form) -> str:
    """PTX of the kernel."""
    size_a, size_b, size = form.a, form.b, form.sums
    products = ""
    for i in range(TILES):
        for j in range(TILES):
            sums = ", ".join(f"%f{size * (TILES * i + j) + k}" for k in range(size))
            a, b = (", ".join(f"%{name}{of * at + k}" for k in range(of)) for name, of, at in (("a", size_a, i), ("b", size_b, j)))
            name = f"mma.sync.aligned.{form.shape}.row.col.f32.{form.number}.{form.number}.f32"
            products += f"    {name} {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};\n"
    count = size * TILES * TILES
    zeros = "".join(f"    mov.f32 %f{k}, 0f00000000;\n" for k in range(count))
    change = "".join(f"    xor.b32 %a{k}, %a{k}, %y;\n" for k in range(size_a * TILES))
    checksum = "".join(
        f"    mov.b32 %y, %f{k}; cvt.u64.u32 %t, %y; xor.b64 %sum, %sum, %t; mul.lo.u64 %sum, %sum, 0x9E3779B97F4A7C15;\n"
        for k in range(count)
    )
    return f"""
.visible .entry multiply(.param .u64 multiply_n, .param .u64 multiply_seed, .param .u64 multiply_out)
{{
    .reg .b32 %a<{size_a * TILES}>, %b<{size_b * TILES}>, %x, %y, %z; .reg .f32 %f<{count}>;
    .reg .u64 %n, %seed, %out, %t, %sum; .reg .pred %p;
    ld.param.u64 %n, [multiply_n]; ld.param.u64 %seed, [multiply_seed]; ld.param.u64 %out, [multiply_out];
    mov.u32 %z, %tid.x; cvt.u32.u64 %x, %seed; mad.lo.u32 %x, %z, 0x9E3779B1, %x;
{_random(size_a * TILES, "a", form)}
{_random(size_b * TILES, "b", form)}
{zeros}
$again:
    mad.lo.u32 %x, %x, 1664525, 1013904223; shr.u32 %y, %x, 15; xor.b32 %y, %y, %x; and.b32 %y, %y, {form.change:#x};
{change}{products}
    sub.u64 %n, %n, 1; setp.ne.u64 %p, %n, 0;
    @%p bra $again;
    mov.u64 %sum, 0;
{checksum}
    mov.u32 %x, %ctaid.x; mul.wide.u32 %t, %x, 8; add.u64 %t, %t, %out;
    red.global.add.u64 [%t], %sum;
    setp.ne.u32 %p, %z, 0;
    @%p bra $done;
    mov.u32 %y, %nctaid.x; add.u32 %y, %y, %x; mul.wide.u32 %t, %y, 8; add.u64 %t, %t, %out;
    mov.u32 %y, %smid; cvt.u64.u32 %sum, %y; st.global.u64 [%t], %sum;
$done:
    ret;
}}
"""


def load_module(capability: int) -> str:
    """Return the PTX module of this kernel and of those of memory_kernels.py for a GPU; without this kernel, if it is too old for it."""
    if capability < LEAST_CAPABILITY:
        return memory_module(capability)
    target = _target(capability)
    form = FORMS[target]
    return f".version {form.version}\n.target sm_{target}\n.address_size 64\n" + kernel_texts() + _multiply(form)
