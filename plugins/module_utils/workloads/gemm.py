# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dense matrix products on every GPU: the workload of the `gemm` stage.

Runs under the node's Python, behind products.py (workloads/packing.py), with {"checks": [{"dtype": "bf16", "shape": [m, n, k],
"mode": "alone"|"together"}], "seconds": S, "warmup_seconds": W} as its argument. Prints one JSON line per GPU and check, one per check that
says when it ran, and one that says which library ran. Uses PyTorch where it is installed, else calls cuBLAS itself, so bare
nodes need no PyTorch. How products are checked stands in products.py.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import hashlib
import json
import math
import os
import random
import struct
import sys
import time
import typing as t

if "TorchProduct" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.products import (
        BEGAN,
        CORNER,
        VECTORS,
        Product,
        Torch,
        Unsupported,
        element_tolerance,
        measure,
        say,
        sum_tolerance,
        worst,
    )


class Cublas:
    """Products through cuBLAS itself."""

    name = "cublas"
    # cudaDataType_t and cublasComputeType_t (cublas_api.h, library_types.h), bytes of one element.
    TYPES = {"bf16": (14, 68, 2), "fp16": (2, 68, 2), "fp32": (0, 68, 4), "tf32": (0, 77, 4), "fp64": (1, 70, 8)}
    SINGLE, PEDANTIC = 0, 69  # CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC: no tensor cores for single precision

    def __init__(self) -> None:
        self.runtime = load("cudart")
        self.blas = load("cublas")
        self.runtime.cudaGetErrorString.restype = ctypes.c_char_p
        count = ctypes.c_int()
        self.cuda("cudaGetDeviceCount", ctypes.byref(count))
        self.devices = list(range(count.value))
        handle, number = self.handle(0), ctypes.c_int()
        self.blas.cublasGetVersion_v2(handle, ctypes.byref(number))
        self.library = f"cuBLAS {number.value} (ctypes)"

    def cuda(self, function: str, *arguments: t.Any) -> None:
        status = getattr(self.runtime, function)(*arguments)
        if status:
            text = (self.runtime.cudaGetErrorString(status) or b"").decode()
            raise RuntimeError(f"{function} failed with status {status} {text}".strip())

    def call(self, function: str, *arguments: t.Any) -> None:
        status = getattr(self.blas, function)(*arguments)
        if status:
            raise RuntimeError(f"{function} failed with status {status}")

    def handle(self, device: int) -> ctypes.c_void_p:
        self.cuda("cudaSetDevice", device)
        handle = ctypes.c_void_p()
        self.call("cublasCreate_v2", ctypes.byref(handle))
        return handle

    def uuid(self, device: int) -> str:
        return ""

    def prepare(self, device: int, dtype: str, shape: list[int]) -> CublasProduct:
        if dtype not in self.TYPES:
            raise Unsupported(f"{dtype} products need PyTorch on the node")
        return CublasProduct(self, device, dtype, shape)


class CublasProduct(Product):
    """Column-major; A and B hold random normal numbers that repeat with a prime period."""

    PERIOD = 131071
    FORMATS = {"fp16": "<e", "fp64": "<d"}
    SUMS_BYTES = 64 << 20
    MOST = 1 << 30  # elements in one call: cuBLAS counts them in 32 bits

    def __init__(self, library: Cublas, device: int, dtype: str, shape: list[int]) -> None:
        self.data, self.compute, self.bytes = library.TYPES[dtype]
        super().__init__(device, dtype, shape, self.bytes)
        self.library = library
        self.handle = library.handle(device)
        self.held: list[ctypes.c_void_p] = []
        self.scalar: t.Any = ctypes.c_double if dtype == "fp64" else ctypes.c_float
        self.one, self.zero, self.minus = self.scalar(1.0), self.scalar(0.0), self.scalar(-1.0)
        # Sums of columns are in single precision, of fp64 in double.
        self.wide, self.wide_bytes = (1, 8) if dtype == "fp64" else (library.SINGLE, 4)
        self.values: dict[int, list[float]] = {}
        self.a, self.b = self.normal(self.m * self.k, 1), self.normal(self.k * self.n, 2)
        self.out = [self.room(self.m * self.n * self.bytes) for _unused in range(self.slots)]
        self.x = self.signs(0)
        self.capacity = max(self.slots, self.SUMS_BYTES // (self.n * self.wide_bytes))
        self.sums = self.room(self.capacity * self.n * self.wide_bytes)
        self.filled: list[int] = []  # what the block of each column sum in there was: negative or not
        self.differ = 0
        self.expected: list[bytes] = []

    def close(self) -> None:
        self.library.cuda("cudaSetDevice", self.device)
        for pointer in self.held:
            self.library.cuda("cudaFree", pointer)
        self.library.call("cublasDestroy_v2", self.handle)
        self.held = []

    # What lies on the device.

    def encode(self, value: float) -> bytes:
        if self.dtype == "bf16":
            return struct.pack("<f", value)[2:]
        return struct.pack(self.FORMATS.get(self.dtype, "<f"), value)

    def decode(self, data: bytes) -> float:
        if self.dtype == "bf16":
            data = b"\0\0" + data
        return float(struct.unpack(self.FORMATS.get(self.dtype, "<f"), data)[0])

    def room(self, size: int) -> ctypes.c_void_p:
        pointer = ctypes.c_void_p()
        self.library.cuda("cudaSetDevice", self.device)
        self.library.cuda("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.held.append(pointer)
        return pointer

    def release(self, pointer: ctypes.c_void_p) -> None:
        self.held.remove(pointer)
        self.library.cuda("cudaFree", pointer)

    def upload(self, data: bytes) -> ctypes.c_void_p:
        pointer = self.room(len(data))
        self.library.cuda("cudaMemcpy", pointer, data, ctypes.c_size_t(len(data)), 1)
        return pointer

    def download(self, pointer: ctypes.c_void_p, size: int, offset: int = 0) -> bytearray:
        data = bytearray(size)
        into = (ctypes.c_char * size).from_buffer(data)
        self.library.cuda("cudaMemcpy", into, at(pointer, offset), ctypes.c_size_t(size), 2)
        return data

    def normal(self, count: int, seed: int) -> ctypes.c_void_p:
        source = random.Random(seed)
        words = [self.encode(source.gauss(0, 1)) for _unused in range(self.PERIOD)]
        self.values[seed] = [self.decode(word) for word in words]
        return self.upload((b"".join(words) * (count // self.PERIOD + 1))[: count * self.bytes])

    def signs(self, seed: int) -> ctypes.c_void_p:
        """A vector of m random signs."""
        source, plus, minus = random.Random(seed), self.encode(1.0), self.encode(-1.0)
        return self.upload(b"".join(source.choice((plus, minus)) for _unused in range(self.m)))

    # Queued work.

    def multiply(self, slot: int) -> None:
        shape, sign = (self.m, self.n, self.k), self.minus if self.negative else self.one
        self._gemm(shape, self.a, self.m, self.b, self.k, self.out[slot], self.data, self.compute, alpha=sign)

    def _gemm(
        self, shape: tuple[int, int, int], a: ctypes.c_void_p, a_rows: int, b: ctypes.c_void_p, b_rows: int,
        out: ctypes.c_void_p, out_type: int, compute: int, data: int | None = None, alpha: t.Any = None, beta: t.Any = None,
        transposed: int = 0,
    ) -> None:
        """out (m x n) = alpha A (m x k, or its transpose) B (k x n) + beta out."""
        m, n, k = shape
        data = self.data if data is None else data
        self.library.cuda("cudaSetDevice", self.device)
        self.library.call(
            "cublasGemmEx", self.handle, transposed, 0, m, n, k, ctypes.byref(alpha or self.one), a, data, a_rows, b, data,
            b_rows, ctypes.byref(beta or self.zero), out, out_type, m, compute, -1,
        )

    def _column_sums(self, matrix: ctypes.c_void_p, rows: int, columns: int, x: ctypes.c_void_p, out: ctypes.c_void_p) -> None:
        """x^T times a matrix."""
        if self.bytes == 2:
            self._gemm((columns, 1, rows), matrix, rows, x, rows, out, self.wide, self.compute, transposed=1)
            return
        self.library.cuda("cudaSetDevice", self.device)
        self.library.call(
            "cublasDgemv_v2" if self.dtype == "fp64" else "cublasSgemv_v2", self.handle, 1, rows, columns, ctypes.byref(self.one),
            matrix, rows, x, 1, ctypes.byref(self.zero), out, 1,
        )

    def sum_up(self) -> None:
        if len(self.filled) + self.slots > self.capacity:
            self._compare()
        for slot in range(self.slots):
            place = at(self.sums, len(self.filled) * self.n * self.wide_bytes)
            self._column_sums(self.out[slot], self.m, self.n, self.x, place)
            self.filled.append(self.negative)

    def _compare(self) -> None:
        size = self.n * self.wide_bytes
        data = memoryview(self.download(self.sums, len(self.filled) * size))
        self.differ += sum(data[i * size : (i + 1) * size] != self.expected[sign] for i, sign in enumerate(self.filled))
        self.filled = []

    def wrong(self) -> int:
        if self.filled:
            self._compare()
        return self.differ

    def fingerprint(self) -> str:
        return hashlib.sha256(b"".join(self.expected)).hexdigest()

    def mark(self) -> None:
        event = ctypes.c_void_p()
        self.library.cuda("cudaSetDevice", self.device)
        self.library.cuda("cudaEventCreate", ctypes.byref(event))
        self.library.cuda("cudaEventRecord", event, None)
        self.marks.append(event)

    def between(self, first: t.Any, last: t.Any) -> float:
        span = ctypes.c_float()
        self.library.cuda("cudaEventElapsedTime", ctypes.byref(span), first, last)
        return span.value / 1e3

    def seconds(self) -> tuple[float, float]:
        marks = list(self.marks)
        spans = super().seconds()
        for event in marks:
            self.library.cuda("cudaEventDestroy", event)
        return spans

    def settle(self) -> None:
        self.library.cuda("cudaSetDevice", self.device)
        self.library.cuda("cudaDeviceSynchronize")

    # The first product against other arithmetic.

    def verify(self) -> tuple[float, float]:
        for self.negative in (1, 0):
            self.multiply(0)
            self._column_sums(self.out[0], self.m, self.n, self.x, self.sums)
            self.expected.insert(0, bytes(self.download(self.sums, self.n * self.wide_bytes)))
        error, tolerance = self._by_sums() if self.dtype in ("fp32", "fp64") else self._by_elements()
        positive, negative = map(self._numbers, self.expected)
        return (error if all(p == -q for p, q in zip(positive, negative)) else math.inf), tolerance

    def _by_elements(self) -> tuple[float, float]:
        allocated = list(self.held)
        a, b = self.a, self.b
        if self.bytes == 2:
            # An identity matrix turns what it multiplies into single precision, exactly.
            order = max(self.n, self.k)
            identity = self._identity(order)
            a, b = self.room(self.m * self.k * 4), self.room(self.k * self.n * 4)
            self._gemm((self.m, self.k, self.k), self.a, self.m, identity, order, a, self.wide, self.compute)
            self._gemm((self.k, self.n, self.k), identity, order, self.b, self.k, b, self.wide, self.compute)
        want = self.room(self.m * self.n * 4)
        single, shape = self.library.SINGLE, (self.m, self.n, self.k)
        self._gemm(shape, a, self.m, b, self.k, want, single, self.library.PEDANTIC, data=single)
        largest = self._largest(want)
        if self.bytes == 2:
            shape = (self.m, self.n, self.n)
            self._gemm(shape, self.out[0], self.m, identity, order, want, single, self.compute, beta=self.minus)
        else:
            self.library.call(
                "cublasSgeam", self.handle, 0, 0, self.m, self.n, ctypes.byref(self.one), self.out[0], self.m,
                ctypes.byref(self.minus), want, self.m, want, self.m,
            )
        off = self._largest(want)
        for pointer in [p for p in self.held if p not in allocated]:
            self.release(pointer)
        return worst(off, self._corner()) / largest, element_tolerance(self.dtype, self.k, largest)

    def _identity(self, order: int) -> ctypes.c_void_p:
        pointer, size = self.room(order * order * self.bytes), ctypes.c_size_t(self.bytes)
        self.library.cuda("cudaMemset", pointer, 0, ctypes.c_size_t(order * order * self.bytes))
        diagonal, step = self.encode(1.0) * order, ctypes.c_size_t((order + 1) * self.bytes)
        self.library.cuda("cudaMemcpy2D", pointer, step, diagonal, size, size, ctypes.c_size_t(order), 1)
        return pointer

    def _largest(self, matrix: ctypes.c_void_p) -> float:
        """Return the largest absolute value of a matrix in single precision; not finite if any element is not."""
        values: list[float] = []
        total, index = ctypes.c_float(), ctypes.c_int()
        for begin in range(0, self.m * self.n, self.MOST):
            count, place = min(self.MOST, self.m * self.n - begin), at(matrix, begin * 4)
            self.library.call("cublasSasum_v2", self.handle, count, place, 1, ctypes.byref(total))
            self.library.call("cublasIsamax_v2", self.handle, count, place, 1, ctypes.byref(index))
            values.append(total.value)
            if math.isfinite(total.value):
                values[-1] = abs(struct.unpack("<f", self.download(matrix, 4, (begin + index.value - 1) * 4))[0])
        return worst(*values)

    def _by_sums(self) -> tuple[float, float]:
        allocated = list(self.held)
        off, largest = self._corner(), 0.0
        through, want = self.room(self.k * self.bytes), self.room(self.n * self.bytes)
        for seed in range(VECTORS):
            x = self.signs(seed)
            self._column_sums(self.a, self.m, self.k, x, through)
            self._column_sums(self.b, self.k, self.n, through, want)
            expected = self._numbers(self.download(want, self.n * self.bytes))
            self._column_sums(self.out[0], self.m, self.n, x, want)
            actual = self._numbers(self.download(want, self.n * self.bytes))
            off = worst(off, *(abs(computed - reference) for computed, reference in zip(actual, expected)))
            largest = max(largest, *map(abs, expected))
        for pointer in [p for p in self.held if p not in allocated]:
            self.release(pointer)
        return off / largest, sum_tolerance(self.dtype, self.m, self.k, largest)

    def _numbers(self, sums: bytes | bytearray) -> tuple[float, ...]:
        return struct.unpack(f"<{self.n}{'d' if self.dtype == 'fp64' else 'f'}", sums)

    def _corner(self) -> float:
        """Largest error of a corner against the CPU, which knows what A and B should be."""
        a, b = self.values[1], self.values[2]
        errors = []
        for column in range(min(self.n, CORNER)):
            actual = self.download(self.out[0], min(self.m, CORNER) * self.bytes, column * self.m * self.bytes)
            factor = [b[(column * self.k + j) % self.PERIOD] for j in range(self.k)]
            for row in range(min(self.m, CORNER)):
                want = sum(a[(row + self.m * j) % self.PERIOD] * factor[j] for j in range(self.k))
                errors.append(abs(self.decode(bytes(actual[row * self.bytes : (row + 1) * self.bytes])) - want))
        return worst(*errors)


def at(pointer: ctypes.c_void_p, offset: int) -> ctypes.c_void_p:
    return ctypes.c_void_p((pointer.value or 0) + offset)


def load(name: str) -> ctypes.CDLL:
    """libcudart or libcublas, wherever CUDA or its Python packages put it."""
    roots = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/usr/lib/*-linux-gnu", "/usr/lib64"]
    roots += [os.path.join(p, "nvidia", "*", "lib") for p in sys.path if p]
    path = ctypes.util.find_library(name)
    candidates = [path] if path else []
    for root in roots:
        candidates += sorted(glob.glob(os.path.join(root, f"lib{name}.so*")), reverse=True)
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    raise OSError(f"lib{name} was not found: neither PyTorch nor cuBLAS is installed")


# Libraries that this module calls itself, by the name that a kind of accelerators (`products` of its class) gives them.
LIBRARIES: dict[str, type[Cublas]] = {"cublas": Cublas}


def library(order: dict[str, t.Any]) -> Torch | Cublas:
    """Return the first library of the order that the node has. PyTorch without its modules is no reason to fail while others are left."""
    missing: ImportError | None = None
    for name in order.get("libraries") or ("torch", "cublas"):
        if name != "torch":
            return LIBRARIES[name]()
        try:
            known = {key: order[key] for key in ("plugin", "build", "build_word", "blas") if key in order}
            return Torch(order.get("kind", "cuda"), **known)
        except ImportError as error:
            missing = error
    raise OSError(f"PyTorch was not found: {missing}")


def main() -> int:
    order = json.loads(sys.argv[1])
    # cuBLAS computes FP32 as TF32, or TF32 as FP32, where an image or a login says so: neither is what is measured here.
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    try:
        backend = library(order)
    except Exception as error:
        say(kind="fault", reason=f"{type(error).__name__}: {error}")
        return 1
    say(kind="library", library=backend.library, backend=backend.name, devices=len(backend.devices))
    for check in order["checks"]:
        began = time.monotonic()
        try:
            measure(backend, check, order["seconds"], order["warmup_seconds"])
        except Exception as error:
            say(kind="fault", **check, reason=f"{type(error).__name__}: {error}"[:500])
        say(kind="time", **check, after_s=began - BEGAN, took_s=time.monotonic() - began)
    say(kind="end")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
