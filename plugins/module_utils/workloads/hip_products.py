# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel of product_kernel.py as C++ text for the matrix cores of AMD Instinct GPUs, beside those of hip_kernels.py.

In each step every wave of 64 threads multiplies TILES x TILES pairs of tiles of BF16 numbers, 16 x 16 sums each. FORMS has what the
architectures multiply in one instruction. Numbers, sums and checksum are those that product_kernel.py describes, for the places of threads
in waves. The number of a multiprocessor is that of its die (XCC) times 256, plus 8 bits of the hardware's register of places: compute
unit, array and engine.

It travels to the nodes as text, in front of a workload that uses it (workloads/packing.py): no imports of this collection but what is
packed in front of it. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

if "memory_module" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.hip_kernels import BLOCK, memory_module

TILES = 4
WAVE = 64


class Form(t.NamedTuple):
    """An instruction of a matrix core (LLVM, BuiltinsAMDGPU): its name in the compiler, the type of its operands there, how many registers
    of two numbers a thread gives for each operand, and how long the products are that it adds (16 x 16 sums)."""

    name: str
    numbers: str
    registers: int
    depth: int


# {graphics version of the kernel's topology from which it is used: form}. From gfx9.5 on the longer one has twice the rate.
FORMS = {
    90010: Form("mfma_f32_16x16x16bf16_1k", "short", 2, 16),
    90500: Form("mfma_f32_16x16x32_bf16", "__bf16", 4, 32),
}
# Later ones multiply by other instructions.
BEHIND = 100000

PRODUCT_SOURCE = """
typedef struct { unsigned w[REGISTERS]; } operand;
typedef float four __attribute__((vector_size(16)));
#ifndef PRODUCT
typedef NUMBER numbers __attribute__((ext_vector_type(2 * REGISTERS)));
#define PRODUCT(a, b, c) MFMA(__builtin_bit_cast(numbers, a), __builtin_bit_cast(numbers, b), c, 0, 0, 0)
#define UNROLL _Pragma("unroll")
#define BOUNDS __attribute__((amdgpu_flat_work_group_size(BLOCK, BLOCK)))
#if defined(__gfx942__) || defined(__gfx950__)
#define PLACE() (((unsigned)__builtin_amdgcn_s_getreg(6164) << 8) + ((unsigned)__builtin_amdgcn_s_getreg(63492) >> 8 & 255))
#else
#define PLACE() ((unsigned)__builtin_amdgcn_s_getreg(63492) >> 8 & 255)
#endif
#endif

/* Two numbers between 0.5 and 2 of both signs. */
#define RANDOM(x) (x = x * 1664525u + 1013904223u, ((x >> 16 ^ x) & 0x80ff80ffu) | 0x3f003f00u)

KERNEL BOUNDS multiply(word n, word seed, word *out)
{
    unsigned x = threadIdx.x * 0x9e3779b1u + (unsigned)seed;
    operand a[TILES], b[TILES];
    four c[TILES * TILES];
    UNROLL for (int i = 0; i < TILES; i++) { UNROLL for (int k = 0; k < REGISTERS; k++) a[i].w[k] = RANDOM(x); }
    UNROLL for (int i = 0; i < TILES; i++) { UNROLL for (int k = 0; k < REGISTERS; k++) b[i].w[k] = RANDOM(x); }
    UNROLL for (int i = 0; i < TILES * TILES; i++) { four none = {0.0f, 0.0f, 0.0f, 0.0f}; c[i] = none; }
    for (word step = 0; step < n; step++) {
        x = x * 1664525u + 1013904223u;
        unsigned change = (x >> 15 ^ x) & 0x807f807fu;
        UNROLL for (int i = 0; i < TILES; i++) { UNROLL for (int k = 0; k < REGISTERS; k++) a[i].w[k] ^= change; }
        UNROLL for (int i = 0; i < TILES * TILES; i++) c[i] = PRODUCT(a[i / TILES], b[i % TILES], c[i]);
    }
    word sum = 0;
    UNROLL for (int i = 0; i < TILES * TILES; i++) {
        UNROLL for (int k = 0; k < 4; k++) {
            union { float number; unsigned bits; } of;
            of.number = c[i][k];
            sum = (sum ^ of.bits) * 0x9e3779b97f4a7c15ull;
        }
    }
    atomicAdd(out + blockIdx.x, sum);
    if (!threadIdx.x) out[gridDim.x + blockIdx.x] = PLACE();
}
"""


def _form(capability: int) -> Form | None:
    """Return the form that a GPU multiplies by, by its graphics version (90402 is gfx942); None if it has none of them."""
    known = [least for least in FORMS if least <= capability < BEHIND]
    return FORMS[max(known)] if known else None


def flop(capability: int) -> int:
    """Return the operations of one step of a block."""
    form = _form(capability)
    return BLOCK // WAVE * TILES * TILES * 2 * 16 * 16 * form.depth if form else 0


def lack(capability: int) -> str:
    """Return why a GPU cannot multiply; empty if it can."""
    if not capability:
        return "has no architecture in the topology of the kernel (/sys/class/kfd), and the products need to know it"
    return "" if _form(capability) else f"has the graphics version {capability}, the products need one of {min(FORMS)} to {BEHIND - 1}"


def load_module(capability: int) -> str:
    """Return this kernel and those of hip_kernels.py for a GPU; without this kernel, if the GPU cannot run it."""
    form = _form(capability)
    if form is None:
        return memory_module(capability)
    numbers = f"#define TILES {TILES}\n#define REGISTERS {form.registers}\n#define NUMBER {form.numbers}\n"
    return f"{memory_module(capability)}{numbers}#define MFMA __builtin_amdgcn_{form.name}\n{PRODUCT_SOURCE}"
