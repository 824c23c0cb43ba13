# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernels of memory_kernels.py as C++ text, of which HIP's own compiler (hiprtc) makes code for the GPU that is there.

It stands in for the text that memory_kernels.py has for NVIDIA's driver, and has all other names of that module. It travels to the nodes
as text, behind memory_kernels.py and in front of a workload that uses it (workloads/packing.py): no imports of this collection but of
that. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

if "COMPARED" not in globals():  # else they stand above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.memory_kernels import COMPARED, MOST

BLOCK = 256  # threads of a block
# KINDS of memory_kernels.py by their places. A word of the host's memory may be in a cache of the device: it is read for the whole system.
MEMORY_SOURCE = """
typedef unsigned long long word;
typedef struct __attribute__((aligned(16))) { word x, y; } two;
#ifndef KERNEL
#define KERNEL extern "C" __global__ void
#endif
#ifdef NOW_NS
#define FROM_HOST(p) (*(volatile word *)(p))
#elif defined(__HIP__)
#define NOW_NS() ((word)wall_clock64() * 10)
#define FROM_HOST(p) __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM)
#else
__device__ static word now() { word t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
#define NOW_NS() now()
#define FROM_HOST(p) (*(volatile word *)(p))
#endif
#define FIRST ((word)(blockIdx.x) * blockDim.x + threadIdx.x)
#define ALL ((word)(gridDim.x) * blockDim.x)

__device__ static word made(word kind, word i, word seed, word mask)
{
    word v = seed;
    if (kind == 1) v = (i << 3) ^ seed;
    else if (kind == 2) {
        v = (i + seed) * 0x9E3779B97F4A7C15ull;
        v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9ull;
        v = (v ^ (v >> 27)) * 0x94D049BB133111EBull;
        v ^= v >> 31;
    } else if (kind == 3) v = 1ull << ((i + seed) & 63);
    return v ^ mask;
}

__device__ static void differ(word *out, word offset, word expected, word read)
{
    if (expected == read) return;
    word slot = atomicAdd(out, 1ull);
    if (slot >= MOST) return;
    out[1 + 3 * slot] = offset;
    out[2 + 3 * slot] = expected;
    out[3 + 3 * slot] = read;
}

KERNEL fill(word *p, word n, word kind, word seed, word mask)
{
    for (word i = 2 * FIRST; i < n; i += 2 * ALL) {
        two v = {made(kind, i, seed, mask), made(kind, i + 1, seed, mask)};
        *(two *)(p + i) = v;
    }
}

KERNEL check(word *p, word n, word kind, word seed, word mask, word *out, word invert)
{
    word done = 0;
    for (word i = 2 * FIRST; i < n; i += 2 * ALL) {
        two v = *(two *)(p + i), e = {made(kind, i, seed, mask), made(kind, i + 1, seed, mask)};
        differ(out, 8 * i, e.x, v.x);
        differ(out, 8 * i + 8, e.y, v.y);
        done += 2;
        if (invert) {
            two w = {~e.x, ~e.y};
            *(two *)(p + i) = w;
        }
    }
    if (done) atomicAdd(out + COMPARED, done);
}

KERNEL same(word *p, word *q, word n, word *out)
{
    word done = 0;
    for (word i = 2 * FIRST; i < n; i += 2 * ALL) {
        two v = *(two *)(p + i), e = *(two *)(q + i);
        differ(out, 8 * i, e.x, v.x);
        differ(out, 8 * i + 8, e.y, v.y);
        done += 2;
    }
    if (done) atomicAdd(out + COMPARED, done);
}

/* Four loads of each thread are under way at a time; the threads of a block add up among themselves. */
KERNEL total(word *p, word n, word *out)
{
    __shared__ word sums[BLOCK];
    word sum = 0, step = 2 * (word)blockDim.x;
    for (word i = 4 * step * blockIdx.x + 2 * threadIdx.x; i < n; i += 4 * step * gridDim.x) {
        two v[4];
        for (int k = 0; k < 4; k++) {
            two none = {0, 0};
            v[k] = i + k * step < n ? *(two *)(p + i + k * step) : none;
        }
        for (int k = 0; k < 4; k++) sum += v[k].x + v[k].y;
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (!threadIdx.x) atomicAdd(out, sums[0]);
}

KERNEL gate(word *flag, word ns)
{
    word since = NOW_NS();
    while (!FROM_HOST(flag) && NOW_NS() - since < ns);
}

KERNEL chase(word *p, word steps, word *out)
{
    word *at = p;
    for (word i = 0; i < steps; i++) at = (word *)FROM_HOST(at);
    out[0] = (word)at;
}
"""


def memory_module(_capability: int) -> str:
    """Return the kernels with the numbers that memory_kernels.py has for them."""
    return f"#define MOST {MOST}\n#define COMPARED {COMPARED}\n#define BLOCK {BLOCK}\n{MEMORY_SOURCE}"
