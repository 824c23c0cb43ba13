# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dense matrix products on every GPU: the workload of the `gemm` stage.

Runs on its own under the node's Python: `python gemm.py JSON`, with {"checks": [{"dtype": "bf16", "shape": [m, n, k],
"mode": "alone"|"together"}], "seconds": S, "warmup_seconds": W}. Prints one JSON line per GPU and check, one per check that
says when it ran, and one that says which library ran. Uses PyTorch where it is installed, else calls cuBLAS itself, so bare
nodes need no PyTorch.

TFLOPS = 2 m n k / time / 1e12. Inputs are random: zeros draw less power and run faster than real data.

Every product that is timed is checked, all of it, in two steps.

1. The first product C of A and B is held against arithmetic of another kind. In bf16, fp16, tf32 and fp8, which run on the
   tensor cores, every element is compared with a product in single precision outside them (`element_tolerance`). In fp32 and
   fp64 the sums x^T C are compared with (x^T A) B for vectors x of random signs (R. Freivalds, "Probabilistic machines can use
   less running time", IFIP Congress 1977), by matrix-vector products (`sum_tolerance`). A corner of C is computed on the CPU.
   A value that is not a number or not finite anywhere in C makes a sum or a maximum over C so.
2. The same product again must give the same bits: cuBLAS promises that on one GPU and one stream. Products are timed in blocks,
   each into a buffer of its own; after a block, outside the time, the sums of every row or column of every buffer must be those
   of the first product, bit for bit. PyTorch adds the words as integers, which no single changed bit escapes; cuBLAS adds with
   random signs in single precision (fp64 in double), where the last bits of a single element can round away. Every other block
   computes A (-B), so that what an earlier product left in a buffer is not taken for a new one. Its first product is held against
   the same arithmetic: tensor cores that cut sums (FP8 on Hopper) do not give the bits of -C.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import json
import math
import os
import random
import struct
import sys
import time
import typing as t

BEGAN = time.monotonic()

# A block's products lie in buffers of this many bytes together, at least one: at 8192 x 8192 in bf16 a block takes 13 ms.
BLOCK_BYTES = 1 << 30
BLOCK_PRODUCTS = 1000
VECTORS = 4
CORNER = 4

# Rounding errors are sums of independent terms of mean zero: one exceeds LAMBDA times its bound of the form u sqrt(n) with a
# probability of at most 2 exp(-LAMBDA^2 / 2) (Hoeffding; N. J. Higham and T. Mary, "A New Approach to Probabilistic Rounding
# Error Analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4): one in a million for all elements of an 8192 x 8192 product.
LAMBDA = 8.0
# Unit roundoffs: of what the product is stored in, of what its factors are rounded to on the way into the tensor core.
STORED = {"bf16": 2.0**-8, "fp16": 2.0**-11, "tf32": 2.0**-24, "fp8": 2.0**-8}
ROUNDED = {"tf32": 2.0**-11}
SINGLE, DOUBLE = 2.0**-24, 2.0**-53


def element_tolerance(dtype: str, k: int, largest: float) -> float:
    """How far an element may be from the reference, as a part of the `largest` element of it.

    With A and B of standard normal numbers |a|^T |b| <= k, and an inner product is off by at most
    u_stored |c| + 2 u_rounded |c| + LAMBDA sqrt(k) (2 u_rounded + k u). Tensor cores cut where they should round, so u is twice
    that of single precision. In FP8 the tensor cores of Hopper keep about 13 bits and hand their sums on every 128 terms
    (DeepSeek-V3 Technical Report, arXiv:2412.19437, 3.3.2), so 128 times 2^-13 is added to k u.
    """
    inputs = 2 * ROUNDED.get(dtype, 0.0)
    sums = k * 2 * SINGLE + (min(k, 128) * 2.0**-13 if dtype == "fp8" else 0.0)
    return STORED[dtype] + inputs + LAMBDA * math.sqrt(k) * (inputs + sums) / largest


def sum_tolerance(dtype: str, m: int, k: int, largest: float) -> float:
    """How far x^T C may be from (x^T A) B, as a part of the `largest` sum.

    The partial sums of terms of mean zero grow as a square root (Higham and Mary, "Sharper Probabilistic Backward Error Analysis
    for Basic Linear Algebra Kernels with Random Data", SIAM J. Sci. Comput. 42(5), 2020): an inner product of k terms of size s is
    off by about u k s. That gives u sqrt(m) k for the products added over m rows, u m sqrt(k) for adding them, and the same two
    for the other side: 2 LAMBDA u sqrt(m k) (sqrt(m) + sqrt(k)).
    """
    unit = DOUBLE if dtype == "fp64" else SINGLE
    return 2 * LAMBDA * unit * math.sqrt(m * k) * (math.sqrt(m) + math.sqrt(k)) / largest


class Unsupported(Exception):
    """This hardware or this library has no such product."""


def say(**record: t.Any) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


class Torch:
    """Products through PyTorch."""

    name = "torch"

    def __init__(self) -> None:
        import torch

        self.torch = torch
        if not torch.cuda.is_available():
            built = torch.version.cuda
            raise RuntimeError(
                f"torch {torch.__version__} (built for CUDA {built}) cannot use CUDA: a torch built for a newer CUDA than"
                " the driver supports looks like this"
            )
        self.devices = list(range(torch.cuda.device_count()))
        for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
            if hasattr(torch.backends.cuda.matmul, name):  # partial sums stay in single precision, as element_tolerance has it
                setattr(torch.backends.cuda.matmul, name, False)
        library = "cuBLAS"
        if hasattr(torch.backends.cuda, "preferred_blas_library"):
            choice = str(torch.backends.cuda.preferred_blas_library()).rsplit(".", maxsplit=1)[-1]
            library = {"Cublas": "cuBLAS", "Cublaslt": "cuBLASLt", "Default": "cuBLAS/cuBLASLt"}.get(choice, choice)
        self.library = f"torch {torch.__version__}, CUDA {torch.version.cuda}, {library}"

    def uuid(self, device: int) -> str:
        uuid = getattr(self.torch.cuda.get_device_properties(device), "uuid", None)
        return f"GPU-{uuid}" if uuid else ""

    def prepare(self, device: int, dtype: str, shape: list[int]) -> Product:
        return TorchProduct(self.torch, device, dtype, shape)


class Product:
    """C (m x n) = A (m x k) B (k x n) on one device: check_first(), block() as often as wanted, then seconds() and wrong()."""

    def __init__(self, device: int, dtype: str, shape: list[int], size: int) -> None:
        self.device = device
        self.dtype = dtype
        self.m, self.n, self.k = shape
        self.slots = max(1, min(BLOCK_PRODUCTS, BLOCK_BYTES // (self.m * self.n * size)))
        self.marks: list[t.Any] = []
        self.negative = 0

    def multiply(self, slot: int) -> None:
        """Queue the product, or its negative, into a buffer."""
        raise NotImplementedError

    def verify(self) -> tuple[float, float]:
        """Compute the product once and hold it against other arithmetic: its error and the tolerance."""
        raise NotImplementedError

    def sum_up(self) -> None:
        """Queue the comparison of all buffers with the first product."""
        raise NotImplementedError

    def wrong(self) -> int:
        """How many products differed from the first so far."""
        raise NotImplementedError

    def mark(self) -> None:
        """Queue a mark of time."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until everything queued is done."""
        raise NotImplementedError

    def between(self, first: t.Any, last: t.Any) -> float:
        """Seconds between two marks."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the product holds on the device."""

    def check_first(self) -> None:
        clock = time.monotonic()
        self.error, self.tolerance = self.verify()
        self.first_check_s = time.monotonic() - clock

    def block(self) -> None:
        self.negative = 1 - self.negative
        self.mark()
        for slot in range(self.slots):
            self.multiply(slot)
        self.mark()
        self.sum_up()
        self.mark()

    def seconds(self) -> tuple[float, float]:
        """Time of the products since the last call, and of their comparison."""
        self.settle()
        marks, self.marks = self.marks, []
        products = sum(self.between(*marks[i : i + 2]) for i in range(0, len(marks), 3))
        return products, sum(self.between(*marks[i : i + 2]) for i in range(1, len(marks), 3))


class TorchProduct(Product):
    def __init__(self, torch: t.Any, device: int, dtype: str, shape: list[int]) -> None:
        types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32,
                 "fp64": torch.float64, "fp8": torch.bfloat16}
        if dtype not in types:
            raise Unsupported(f"unknown type {dtype}")
        base = types[dtype]
        size = torch.empty((), dtype=base).element_size()
        super().__init__(device, dtype, shape, size)
        self.torch = torch
        self.place = place = f"cuda:{device}"
        torch.cuda.set_device(device)
        generator = torch.Generator(device=place).manual_seed(1234)
        self.a = torch.randn(self.m, self.k, device=place, generator=generator, dtype=torch.float32).to(base)
        self.b = torch.randn(self.k, self.n, device=place, generator=generator, dtype=torch.float32).to(base)
        # Buffers lie in one piece where all of them are aligned alike: another alignment can mean another algorithm.
        aligned = self.m * self.n * size % 512 == 0
        self.whole = torch.empty(self.slots, self.m, self.n, device=place, dtype=base) if aligned else None
        apart = [torch.empty(self.m, self.n, device=place, dtype=base) for _unused in range(0 if aligned else self.slots)]
        self.out = apart if self.whole is None else list(self.whole)
        if dtype == "fp8":
            if not hasattr(torch, "_scaled_mm") or torch.cuda.get_device_capability(device) < (8, 9):
                raise Unsupported("FP8 products need compute capability 8.9 and torch._scaled_mm")
            one = torch.ones((), device=place)
            a8 = self.a.to(torch.float8_e4m3fn)
            b8 = self.b.t().contiguous().to(torch.float8_e4m3fn).t()
            factors = [b8, (-b8.float()).to(torch.float8_e4m3fn)]
            self.a, self.b = a8.to(torch.float32), b8.to(torch.float32)  # what the product is checked against
            self.call: t.Any = lambda out, negative: torch._scaled_mm(
                a8, factors[negative], scale_a=one, scale_b=one, out_dtype=torch.bfloat16, out=out
            )
        else:
            if dtype == "bf16" and torch.cuda.get_device_capability(device) < (8, 0):
                raise Unsupported("BF16 products need compute capability 8.0")
            factors = [self.b, -self.b]
            self.call = lambda out, negative: torch.matmul(self.a, factors[negative], out=out)
        # The bits of a product as integers. They are added modulo 2^64, where an even number of the signs of fp64 would add to
        # nothing, so of that in halves; only 64 bits are added without a copy.
        width = math.gcd(self.n * size, 4 if dtype == "fp64" else 8)
        self.words = {2: torch.int16, 4: torch.int32, 8: torch.int64}[width]
        self.sums = torch.zeros(self.slots, self.m, device=place, dtype=torch.int64)
        self.expected: list[t.Any] = []
        self.differ = torch.zeros((), device=place, dtype=torch.int64)

    def multiply(self, slot: int) -> None:
        with self.torch.cuda.device(self.device):
            self.torch.backends.cuda.matmul.allow_tf32 = self.dtype == "tf32"
            self.call(self.out[slot], self.negative)

    def _sums(self, matrix: t.Any, out: t.Any = None) -> t.Any:
        return self.torch.sum(matrix.view(self.words), dim=-1, dtype=self.torch.int64, out=out)

    def sum_up(self) -> None:
        with self.torch.cuda.device(self.device):
            if self.whole is not None and self.words == self.torch.int64:
                self._sums(self.whole, self.sums)
            else:
                for out, sums in zip(self.out, self.sums):
                    self._sums(out, sums)
            self.differ += (self.sums != self.expected[self.negative]).any(dim=1).sum()

    def wrong(self) -> int:
        return int(self.differ.item())

    def mark(self) -> None:
        event = self.torch.cuda.Event(enable_timing=True)
        with self.torch.cuda.device(self.device):
            event.record()
        self.marks.append(event)

    def between(self, first: t.Any, last: t.Any) -> float:
        return float(first.elapsed_time(last)) / 1e3

    def settle(self) -> None:
        self.torch.cuda.synchronize(self.device)

    def verify(self) -> tuple[float, float]:
        with self.torch.cuda.device(self.device):
            off_by, largest, tolerance = self._by_sums() if self.dtype in ("fp32", "fp64") else self._by_elements()
            corner = self.a[:CORNER].cpu().double() @ self.b[:, :CORNER].cpu().double()
            off, self.expected = [], []
            for self.negative in (0, 1):
                self.multiply(0)
                self.expected.append(self._sums(self.out[0]))
                found = -self.out[0] if self.negative else self.out[0]
                off += [off_by(found), float((found[:CORNER, :CORNER].cpu().double() - corner).abs().max())]
        return worst(*off) / largest, tolerance

    def close(self) -> None:
        self.call = None  # it refers to us: without this the memory waits for the garbage collector

    def _by_elements(self) -> tuple[t.Callable[[t.Any], float], float, float]:
        """How far a product is from one in single precision, the largest element of that, and the tolerance."""
        self.torch.backends.cuda.matmul.allow_tf32 = False
        want = self.a.float() @ self.b.float()
        # Not a number where any element is none.
        largest = float(want.abs().max())
        return lambda found: float((want - found).abs_().max()), largest, element_tolerance(self.dtype, self.k, largest)

    def _by_sums(self) -> tuple[t.Callable[[t.Any], float], float, float]:
        """How far the sums of a product are from those of its factors, in double precision, the largest of those, the tolerance."""
        torch, a, b = self.torch, self.a.double().t(), self.b.double().t()
        generator = torch.Generator(device=self.place).manual_seed(1)
        signs = torch.randint(0, 2, (VECTORS, self.m), device=self.place, generator=generator).double() * 2 - 1
        want = torch.stack([torch.mv(b, torch.mv(a, x)) for x in signs])

        def off_by(found: t.Any) -> float:
            double = found.double().t()
            return float((torch.stack([torch.mv(double, x) for x in signs]) - want).abs().max())

        largest = float(want.abs().max())
        return off_by, largest, sum_tolerance(self.dtype, self.m, self.k, largest)


def worst(*values: float) -> float:
    """The largest; infinite where one is not a number, which max() may pass over."""
    return max(values) if all(map(math.isfinite, values)) else math.inf


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
        held = list(self.held)
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
        for pointer in [p for p in self.held if p not in held]:
            self.release(pointer)
        return worst(off, self._corner()) / largest, element_tolerance(self.dtype, self.k, largest)

    def _identity(self, order: int) -> ctypes.c_void_p:
        pointer, size = self.room(order * order * self.bytes), ctypes.c_size_t(self.bytes)
        self.library.cuda("cudaMemset", pointer, 0, ctypes.c_size_t(order * order * self.bytes))
        ones, step = self.encode(1.0) * order, ctypes.c_size_t((order + 1) * self.bytes)
        self.library.cuda("cudaMemcpy2D", pointer, step, ones, size, size, ctypes.c_size_t(order), 1)
        return pointer

    def _largest(self, matrix: ctypes.c_void_p) -> float:
        """Largest absolute value of a matrix in single precision; not finite where any element is not."""
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
        held = list(self.held)
        off, largest = self._corner(), 0.0
        through, want = self.room(self.k * self.bytes), self.room(self.n * self.bytes)
        for seed in range(VECTORS):
            x = self.signs(seed)
            self._column_sums(self.a, self.m, self.k, x, through)
            self._column_sums(self.b, self.k, self.n, through, want)
            wanted = self._numbers(self.download(want, self.n * self.bytes))
            self._column_sums(self.out[0], self.m, self.n, x, want)
            got = self._numbers(self.download(want, self.n * self.bytes))
            off = worst(off, *(abs(one - other) for one, other in zip(got, wanted)))
            largest = max(largest, *map(abs, wanted))
        for pointer in [p for p in self.held if p not in held]:
            self.release(pointer)
        return off / largest, sum_tolerance(self.dtype, self.m, self.k, largest)

    def _numbers(self, sums: bytes | bytearray) -> tuple[float, ...]:
        return struct.unpack(f"<{self.n}{'d' if self.dtype == 'fp64' else 'f'}", sums)

    def _corner(self) -> float:
        """Largest error of a corner against the CPU, which knows what A and B should be."""
        a, b = self.values[1], self.values[2]
        errors = []
        for column in range(min(self.n, CORNER)):
            got = self.download(self.out[0], min(self.m, CORNER) * self.bytes, column * self.m * self.bytes)
            factor = [b[(column * self.k + j) % self.PERIOD] for j in range(self.k)]
            for row in range(min(self.m, CORNER)):
                want = sum(a[(row + self.m * j) % self.PERIOD] * factor[j] for j in range(self.k))
                errors.append(abs(self.decode(bytes(got[row * self.bytes : (row + 1) * self.bytes])) - want))
        return worst(*errors)


def at(pointer: ctypes.c_void_p, offset: int) -> ctypes.c_void_p:
    return ctypes.c_void_p((pointer.value or 0) + offset)


def load(name: str) -> ctypes.CDLL:
    """libcudart or libcublas, wherever CUDA or its Python packages put it."""
    roots = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/usr/lib/*-linux-gnu", "/usr/lib64"]
    roots += [os.path.join(p, "nvidia", "*", "lib") for p in sys.path if p]
    found = ctypes.util.find_library(name)
    candidates = [found] if found else []
    for root in roots:
        candidates += sorted(glob.glob(os.path.join(root, f"lib{name}.so*")), reverse=True)
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    raise OSError(f"lib{name} was not found: neither PyTorch nor cuBLAS is installed")


def library(python_has_torch: bool = True) -> Torch | Cublas:
    try:
        if python_has_torch:
            return Torch()
    except ImportError:
        pass
    return Cublas()


def measure(backend: t.Any, check: dict[str, t.Any], seconds: float, warmup: float) -> None:
    products: list[Product] = []
    try:
        for device in backend.devices:
            products.append(backend.prepare(device, check["dtype"], check["shape"]))
        groups = [products] if check["mode"] == "together" else [[product] for product in products]
        for group in groups:
            _measure_group(backend, group, check, seconds, warmup)
    except Unsupported as error:
        say(kind="unsupported", **check, reason=str(error))
    finally:
        for product in products:
            product.close()


def _measure_group(backend: t.Any, group: list[Product], check: dict[str, t.Any], seconds: float, warmup: float) -> None:
    began = time.monotonic()
    for product in group:
        product.check_first()
    rounds = _fill(group, warmup)  # clocks and power settle here
    for product in group:
        product.seconds()
    # All devices of a group are fed in turn, so that they really run at the same time.
    per_round = max(1, int(rounds * seconds / max(warmup, 1e-3)))
    for _unused in range(per_round):
        for product in group:
            product.block()
    for product in group:
        total, checking = product.seconds()
        iterations = per_round * product.slots
        span = total / iterations
        say(
            kind="result",
            **check,
            device=product.device,
            uuid=backend.uuid(product.device),
            time_ms=span * 1e3,
            tflops=2.0 * product.m * product.n * product.k / span / 1e12,
            iterations=iterations,
            error=finite(product.error),
            tolerance=product.tolerance,
            wrong=product.wrong(),
            checking_percent=100.0 * checking / total,
            first_check_s=product.first_check_s,
            after_s=began - BEGAN,
            took_s=time.monotonic() - began,
        )


def finite(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else None


def _fill(group: list[Product], seconds: float) -> int:
    """Keep the group busy for `seconds`; returns how many rounds that took."""
    rounds, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for product in group:
            product.block()
        for product in group:
            product.settle()
        rounds += 1
    return max(rounds, 1)


def main() -> int:
    wanted = json.loads(sys.argv[1])
    # cuBLAS computes FP32 as TF32, or TF32 as FP32, where an image or a login says so: neither is what is measured here.
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    try:
        backend = library(wanted.get("torch", True))
    except Exception as error:
        say(kind="fault", reason=f"{type(error).__name__}: {error}")
        return 1
    say(kind="library", library=backend.library, backend=backend.name, devices=len(backend.devices))
    for check in wanted["checks"]:
        began = time.monotonic()
        try:
            measure(backend, check, wanted["seconds"], wanted["warmup_seconds"])
        except Exception as error:
            say(kind="fault", **check, reason=f"{type(error).__name__}: {error}"[:500])
        say(kind="time", **check, after_s=began - BEGAN, took_s=time.monotonic() - began)
    say(kind="end")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
