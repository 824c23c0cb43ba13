# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The calls of cudart and cuBLAS that the gemm workload makes, computed on the CPU, with a place to plant wrong products."""

from __future__ import annotations

import ctypes
import itertools
import struct
import time
import typing as t

F32, F64, F16, BF16 = 0, 1, 2, 14
TF32 = 77
SIZES = {F32: 4, F64: 8, F16: 2, BF16: 2}
CODES = {F32: "f", F64: "d", F16: "e"}
Plant = t.Callable[["FakeCuda", int, int], bool]


def to_bf16(value: float) -> bytes:
    """Round to nearest even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.pack("<I", bits + 0x7FFF + (bits >> 16 & 1))[2:]


def to_tf32(value: float) -> float:
    """What the tensor cores take of a number: they cut."""
    return float(struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", value))[0] & ~0x1FFF))[0])


class FakeCuda:
    """Stands for both libraries. `plant(fake, number, address)` may change a product (the number of it, from 0, and where it
    lies); what returns False keeps the product from being written at all."""

    def __init__(self, shape: list[int]) -> None:
        self.shape = tuple(shape)
        self.memory: dict[int, t.Any] = {}
        self.products = 0
        self.plant: Plant = lambda _fake, _number, _address: True
        self.cudaGetErrorString = lambda _status: b"fake"
        self.clock: dict[int, float] = {}
        self.numbers = itertools.count(1)

    # Memory of this process stands for the device's.

    def write(self, address: int, kind: int, values: t.Sequence[float]) -> None:
        if kind == BF16:
            data = b"".join(map(to_bf16, values))
        else:
            data = struct.pack(f"<{len(values)}{CODES[kind]}", *values)
        ctypes.memmove(address, data, len(data))

    def read(self, address: int, kind: int, count: int) -> list[float]:
        data = ctypes.string_at(address, count * SIZES[kind])
        if kind == BF16:
            return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
        return list(struct.unpack(f"<{count}{CODES[kind]}", data))

    def cudaGetDeviceCount(self, count: t.Any) -> int:
        count._obj.value = 1
        return 0

    def cudaSetDevice(self, _device: int) -> int:
        return 0

    def cudaMalloc(self, pointer: t.Any, size: t.Any) -> int:
        room = ctypes.create_string_buffer(b"\xff" * size.value, size.value)
        pointer._obj.value = ctypes.addressof(room)
        self.memory[pointer._obj.value] = room
        return 0

    def cudaFree(self, pointer: t.Any) -> int:
        del self.memory[pointer.value]
        return 0

    def cudaMemset(self, pointer: t.Any, value: int, size: t.Any) -> int:
        ctypes.memset(pointer.value, value, size.value)
        return 0

    def cudaMemcpy(self, to: t.Any, source: t.Any, size: t.Any, _kind: int) -> int:
        ctypes.memmove(to, source, size.value)
        return 0

    def cudaMemcpy2D(self, to: t.Any, to_step: t.Any, source: bytes, step: t.Any, width: t.Any, height: t.Any, _kind: int) -> int:
        for row in range(height.value):
            part = source[row * step.value : row * step.value + width.value]
            ctypes.memmove(to.value + row * to_step.value, part, width.value)
        return 0

    def cudaDeviceSynchronize(self) -> int:
        return 0

    def cudaEventCreate(self, event: t.Any) -> int:
        event._obj.value = next(self.numbers)
        return 0

    def cudaEventRecord(self, event: t.Any, _stream: None) -> int:
        self.clock[event.value] = time.perf_counter()
        return 0

    def cudaEventElapsedTime(self, span: t.Any, first: t.Any, last: t.Any) -> int:
        span._obj.value = 1e3 * (self.clock[last.value] - self.clock[first.value])
        return 0

    def cudaEventDestroy(self, event: t.Any) -> int:
        del self.clock[event.value]
        return 0

    # cuBLAS: column-major.

    def cublasCreate_v2(self, handle: t.Any) -> int:
        handle._obj.value = 1
        return 0

    def cublasDestroy_v2(self, _handle: t.Any) -> int:
        return 0

    def cublasGetVersion_v2(self, _handle: t.Any, number: t.Any) -> int:
        number._obj.value = 130000
        return 0

    def cublasGemmEx(
        self, _handle: t.Any, transposed: int, _plain: int, m: int, n: int, k: int, alpha: t.Any, a: t.Any, a_kind: int, a_rows: int,
        b: t.Any, b_kind: int, b_rows: int, beta: t.Any, out: t.Any, kind: int, out_rows: int, compute: int, _algorithm: int,
    ) -> int:  # fmt: skip
        left = self.read(a.value, a_kind, a_rows * (m - 1 if transposed else k - 1) + (k if transposed else m))
        right = self.read(b.value, b_kind, b_rows * (n - 1) + k)
        if compute == TF32:
            left, right = list(map(to_tf32, left)), list(map(to_tf32, right))
        rows = [left[i * a_rows : i * a_rows + k] if transposed else left[i : i + a_rows * (k - 1) + 1 : a_rows] for i in range(m)]
        columns = [right[j * b_rows : j * b_rows + k] for j in range(n)]
        old = self.read(out.value, kind, m * n) if beta._obj.value else [0.0] * (m * n)
        values = [
            alpha._obj.value * sum(x * y for x, y in zip(row, column)) + beta._obj.value * old[j * m + i]
            for j, column in enumerate(columns)
            for i, row in enumerate(rows)
        ]
        assert out_rows == m
        if (m, n, k) == self.shape and a_kind == kind and compute != 69:
            number, self.products = self.products, self.products + 1
            before = ctypes.string_at(out.value, m * n * SIZES[kind])
            self.write(out.value, kind, values)
            if not self.plant(self, number, out.value):
                ctypes.memmove(out.value, before, len(before))
        else:
            self.write(out.value, kind, values)
        return 0

    def _gemv(self, kind: int, rows: int, columns: int, matrix: t.Any, x: t.Any, out: t.Any) -> int:
        values, vector = self.read(matrix.value, kind, rows * columns), self.read(x.value, kind, rows)
        sums = [sum(v * w for v, w in zip(values[j * rows : (j + 1) * rows], vector)) for j in range(columns)]
        self.write(out.value, kind, sums)
        return 0

    def cublasSgemv_v2(self, _handle: t.Any, _op: int, rows: int, columns: int, *rest: t.Any) -> int:
        return self._gemv(F32, rows, columns, rest[1], rest[3], rest[6])

    def cublasDgemv_v2(self, _handle: t.Any, _op: int, rows: int, columns: int, *rest: t.Any) -> int:
        return self._gemv(F64, rows, columns, rest[1], rest[3], rest[6])

    def cublasSgeam(self, _handle: t.Any, _a: int, _b: int, m: int, n: int, *rest: t.Any) -> int:
        alpha, a, _lda, beta, b, _ldb, out, _ldc = rest
        pairs = zip(self.read(a.value, F32, m * n), self.read(b.value, F32, m * n))
        self.write(out.value, F32, [alpha._obj.value * x + beta._obj.value * y for x, y in pairs])
        return 0

    def cublasSasum_v2(self, _handle: t.Any, count: int, x: t.Any, _step: int, total: t.Any) -> int:
        total._obj.value = sum(map(abs, self.read(x.value, F32, count)))
        return 0

    def cublasIsamax_v2(self, _handle: t.Any, count: int, x: t.Any, _step: int, index: t.Any) -> int:
        values = self.read(x.value, F32, count)
        index._obj.value = 1 + max(range(count), key=lambda i: abs(values[i]))  # passes over what is not a number
        return 0
