# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kernel of matrix products that keeps the tensor cores of a GPU busy from registers, as PTX text, beside those of memory_kernels.py.

    multiply(n, seed, out)    n steps; adds to out[block] a checksum of the block's results, and writes to out[blocks + block] the
                              number of the multiprocessor that computed it

In each step every warp multiplies TILES x TILES pairs of BF16 tiles (m16n8k16) and adds the products to sums in single precision. The
tiles are pseudo-random numbers between 0.5 and 2 of both signs, of which signs and mantissas change with each step. They depend on the seed
and on the thread's place in its block alone: all blocks compute the same, so that a multiprocessor that computes something else stands
out at once. The checksum covers every bit of every sum. Products come in a fixed order, so the bits are the same each time.

It travels to the nodes as text, in front of a workload that uses it (workloads/packing.py): no imports of this collection but what is
packed in front of it. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

if "kernel_texts" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.memory_kernels import kernel_texts

TILES = 4
THREADS = 256
# Operations of one step of a block: each of its warps multiplies TILES x TILES times 16x16 by 16x8.
FLOP = THREADS // 32 * TILES * TILES * 2 * 16 * 8 * 16
# Compute capability from which GPUs multiply BF16 (PTX ISA, mma).
LEAST_CAPABILITY = 80


def _random(count: int, register: str) -> str:
    """PTX that fills registers with pairs of BF16 numbers between 0.5 and 2."""
    return "".join(
        f"""
    mad.lo.u32 %x, %x, 1664525, 1013904223; shr.u32 %y, %x, 16; xor.b32 %y, %y, %x;
    and.b32 %y, %y, 0x80FF80FF; or.b32 %{register}{k}, %y, 0x3F003F00;"""
        for k in range(count)
    )


def _multiply() -> str:
    """PTX of the kernel."""
    products = ""
    for i in range(TILES):
        for j in range(TILES):
            sums = ", ".join(f"%f{4 * (TILES * i + j) + k}" for k in range(4))
            a, b = (", ".join(f"%{name}{count * at + k}" for k in range(count)) for name, count, at in (("a", 4, i), ("b", 2, j)))
            products += (
                f"    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};\n"
            )
    count = 4 * TILES * TILES
    zeros = "".join(f"    mov.f32 %f{k}, 0f00000000;\n" for k in range(count))
    change = "".join(f"    xor.b32 %a{k}, %a{k}, %y;\n" for k in range(4 * TILES))
    checksum = "".join(
        f"    mov.b32 %y, %f{k}; cvt.u64.u32 %t, %y; xor.b64 %sum, %sum, %t; mul.lo.u64 %sum, %sum, 0x9E3779B97F4A7C15;\n"
        for k in range(count)
    )
    return f"""
.visible .entry multiply(.param .u64 multiply_n, .param .u64 multiply_seed, .param .u64 multiply_out)
{{
    .reg .b32 %a<{4 * TILES}>, %b<{2 * TILES}>, %x, %y, %z; .reg .f32 %f<{count}>; .reg .u64 %n, %seed, %out, %t, %sum; .reg .pred %p;
    ld.param.u64 %n, [multiply_n]; ld.param.u64 %seed, [multiply_seed]; ld.param.u64 %out, [multiply_out];
    mov.u32 %z, %tid.x; cvt.u32.u64 %x, %seed; mad.lo.u32 %x, %z, 0x9E3779B1, %x;
{_random(4 * TILES, "a")}
{_random(2 * TILES, "b")}
{zeros}
$again:
    mad.lo.u32 %x, %x, 1664525, 1013904223; shr.u32 %y, %x, 15; xor.b32 %y, %y, %x; and.b32 %y, %y, 0x807F807F;
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


def load_ptx() -> str:
    """Return the PTX module of this kernel and of those of memory_kernels.py."""
    return ".version 7.0\n.target sm_80\n.address_size 64\n" + kernel_texts() + _multiply()
