# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dense matrix products on every GPU: the workload of the `gemm` stage.

Runs on its own under the node's Python: `python gemm.py JSON`, with {"checks": [{"dtype": "bf16", "shape": [m, n, k],
"mode": "alone"|"together"}], "seconds": S, "warmup_seconds": W}. Prints one JSON line per GPU and check, and one that says
which library ran. Uses PyTorch where it is installed, else calls cuBLAS itself, so bare nodes need no PyTorch.

TFLOPS = 2 m n k / time / 1e12. Inputs are random: zeros draw less power and run faster than real data.
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

# Relative error that a correct product of these types may have against one in single precision.
TOLERANCE = {"fp64": 1e-9, "fp32": 1e-4, "tf32": 2e-3, "fp16": 2e-3, "bf16": 1e-2, "fp8": 8e-2}
ROUND = 10


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


class TorchProduct:
    def __init__(self, torch: t.Any, device: int, dtype: str, shape: list[int]) -> None:
        m, n, k = shape
        self.torch = torch
        self.device = device
        place = f"cuda:{device}"
        torch.cuda.set_device(device)
        generator = torch.Generator(device=place).manual_seed(1234)
        types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32,
                 "fp64": torch.float64}
        base = types.get(dtype, torch.bfloat16)
        self.a = torch.randn(m, k, device=place, generator=generator, dtype=torch.float32).to(base)
        self.b = torch.randn(k, n, device=place, generator=generator, dtype=torch.float32).to(base)
        self.tf32 = dtype == "tf32"
        if dtype == "fp8":
            if not hasattr(torch, "_scaled_mm") or torch.cuda.get_device_capability(device) < (8, 9):
                raise Unsupported("FP8 products need compute capability 8.9 and torch._scaled_mm")
            one = torch.ones((), device=place)
            a8 = self.a.to(torch.float8_e4m3fn)
            b8 = self.b.t().contiguous().to(torch.float8_e4m3fn).t()
            self.a, self.b = a8.to(torch.float32), b8.to(torch.float32)  # what the product is checked against
            self.call = lambda: torch._scaled_mm(a8, b8, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        elif dtype in types:
            if dtype == "bf16" and torch.cuda.get_device_capability(device) < (8, 0):
                raise Unsupported("BF16 products need compute capability 8.0")
            out = torch.empty(m, n, device=place, dtype=base)
            self.call = lambda: torch.matmul(self.a, self.b, out=out)
        else:
            raise Unsupported(f"unknown type {dtype}")
        self.first: t.Any = None

    def run(self, times: int) -> None:
        with self.torch.cuda.device(self.device):
            self.torch.backends.cuda.matmul.allow_tf32 = self.tf32
            for _unused in range(times):
                self.result = self.call()

    def start_clock(self) -> None:
        self.events = [self.torch.cuda.Event(enable_timing=True) for _unused in range(2)]
        with self.torch.cuda.device(self.device):
            self.events[0].record()

    def stop_clock(self) -> None:
        with self.torch.cuda.device(self.device):
            self.events[1].record()

    def seconds(self) -> float:
        self.events[1].synchronize()
        return float(self.events[0].elapsed_time(self.events[1])) / 1e3

    def settle(self) -> None:
        self.torch.cuda.synchronize(self.device)

    def keep_first(self) -> None:
        self.first = self.result.clone()

    def error(self) -> float:
        """Largest error of a few rows against single precision, as a part of the largest value."""
        if self.first is not None and not self.torch.equal(self.first, self.result):
            return float("inf")  # the same product twice must give the same bits
        self.torch.backends.cuda.matmul.allow_tf32 = False
        rows = slice(0, 16)
        want = self.a[rows].double() @ self.b.double()
        return float((self.result[rows].double() - want).abs().max() / want.abs().max())


Product = TorchProduct


class Cublas:
    """Products through cuBLAS itself."""

    name = "cublas"
    # cudaDataType_t and cublasComputeType_t (cublas_api.h, library_types.h), bytes of one element.
    TYPES = {"bf16": (14, 68, 2), "fp16": (2, 68, 2), "fp32": (0, 68, 4), "tf32": (0, 77, 4), "fp64": (1, 70, 8)}

    def __init__(self) -> None:
        self.runtime = load("cudart")
        self.blas = load("cublas")
        count = ctypes.c_int()
        self.check(self.runtime.cudaGetDeviceCount(ctypes.byref(count)), "cudaGetDeviceCount")
        self.devices = list(range(count.value))
        handle, number = self.handle(0), ctypes.c_int()
        self.blas.cublasGetVersion_v2(handle, ctypes.byref(number))
        self.library = f"cuBLAS {number.value} (ctypes)"

    def check(self, status: int, what: str) -> None:
        if status:
            self.runtime.cudaGetErrorString.restype = ctypes.c_char_p
            text = (self.runtime.cudaGetErrorString(status) or b"").decode() if what.startswith("cuda") else ""
            raise RuntimeError(f"{what} failed with status {status} {text}".strip())

    def handle(self, device: int) -> ctypes.c_void_p:
        self.check(self.runtime.cudaSetDevice(device), "cudaSetDevice")
        handle = ctypes.c_void_p()
        self.check(self.blas.cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")
        return handle

    def uuid(self, device: int) -> str:
        return ""

    def prepare(self, device: int, dtype: str, shape: list[int]) -> CublasProduct:
        if dtype not in self.TYPES:
            raise Unsupported(f"{dtype} products need PyTorch on the node")
        return CublasProduct(self, device, dtype, shape)


class CublasProduct:
    """C (m x n) = A (m x k) B (k x n), column-major; A and B hold random normal numbers that repeat with a prime period."""

    PERIOD = 8191
    FORMATS = {"fp16": "<e", "fp64": "<d"}

    def __init__(self, library: Cublas, device: int, dtype: str, shape: list[int]) -> None:
        self.library = library
        self.device = device
        self.m, self.n, self.k = shape
        self.data, self.compute, self.bytes = library.TYPES[dtype]
        self.dtype = dtype
        self.handle = library.handle(device)
        self.values: dict[int, list[float]] = {}
        self.buffers = [self.upload(self.m * self.k, 1), self.upload(self.k * self.n, 2), self.room(self.m * self.n)]
        scalar = ctypes.c_double if dtype == "fp64" else ctypes.c_float
        self.one, self.zero = scalar(1.0), scalar(0.0)
        self.events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self.events:
            library.check(library.runtime.cudaEventCreate(ctypes.byref(event)), "cudaEventCreate")
        self.first = b""

    def encode(self, value: float) -> bytes:
        if self.dtype == "bf16":
            return struct.pack("<f", value)[2:]
        return struct.pack(self.FORMATS.get(self.dtype, "<f"), value)

    def decode(self, data: bytes) -> float:
        if self.dtype == "bf16":
            data = b"\0\0" + data
        return float(struct.unpack(self.FORMATS.get(self.dtype, "<f"), data)[0])

    def room(self, count: int) -> ctypes.c_void_p:
        pointer = ctypes.c_void_p()
        size = ctypes.c_size_t(count * self.bytes)
        self.library.check(self.library.runtime.cudaMalloc(ctypes.byref(pointer), size), "cudaMalloc")
        return pointer

    def upload(self, count: int, seed: int) -> ctypes.c_void_p:
        source = random.Random(seed)
        words = [self.encode(source.gauss(0, 1)) for _unused in range(self.PERIOD)]
        self.values[seed] = [self.decode(word) for word in words]
        pattern = b"".join(words)
        data = (pattern * (count // self.PERIOD + 1))[: count * self.bytes]
        pointer = self.room(count)
        self.library.check(
            self.library.runtime.cudaMemcpy(pointer, data, ctypes.c_size_t(len(data)), 1), "cudaMemcpy"
        )
        return pointer

    def run(self, times: int) -> None:
        self.library.check(self.library.runtime.cudaSetDevice(self.device), "cudaSetDevice")
        for _unused in range(times):
            self.library.check(
                self.library.blas.cublasGemmEx(
                    self.handle, 0, 0, self.m, self.n, self.k, ctypes.byref(self.one),
                    self.buffers[0], self.data, self.m, self.buffers[1], self.data, self.k, ctypes.byref(self.zero),
                    self.buffers[2], self.data, self.m, self.compute, -1,
                ),
                "cublasGemmEx",
            )

    def _record(self, event: ctypes.c_void_p) -> None:
        self.library.check(self.library.runtime.cudaSetDevice(self.device), "cudaSetDevice")
        self.library.check(self.library.runtime.cudaEventRecord(event, None), "cudaEventRecord")

    def start_clock(self) -> None:
        self._record(self.events[0])

    def stop_clock(self) -> None:
        self._record(self.events[1])

    def seconds(self) -> float:
        self.library.check(self.library.runtime.cudaEventSynchronize(self.events[1]), "cudaEventSynchronize")
        span = ctypes.c_float()
        self.library.check(
            self.library.runtime.cudaEventElapsedTime(ctypes.byref(span), *self.events), "cudaEventElapsedTime"
        )
        return span.value / 1e3

    def settle(self) -> None:
        self.library.check(self.library.runtime.cudaSetDevice(self.device), "cudaSetDevice")
        self.library.check(self.library.runtime.cudaDeviceSynchronize(), "cudaDeviceSynchronize")

    def column(self) -> bytes:
        self.settle()
        data = ctypes.create_string_buffer(self.m * self.bytes)
        self.library.check(
            self.library.runtime.cudaMemcpy(data, self.buffers[2], ctypes.c_size_t(len(data.raw)), 2), "cudaMemcpy"
        )
        return data.raw

    def keep_first(self) -> None:
        self.first = self.column()

    def error(self) -> float:
        """Largest error of a few values of the first column, as a part of the largest of them."""
        got = self.column()
        if got != self.first:
            return float("inf")
        a, b = self.values[1], self.values[2]
        worst = largest = 0.0
        for row in range(min(self.m, 16)):
            want = sum(a[(row + self.m * j) % self.PERIOD] * b[j % self.PERIOD] for j in range(self.k))
            value = self.decode(got[row * self.bytes : (row + 1) * self.bytes])
            worst, largest = max(worst, abs(value - want)), max(largest, abs(want))
        return worst / largest if largest else float("inf")


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
    dtype, shape, mode = check["dtype"], check["shape"], check["mode"]
    try:
        products = [backend.prepare(device, dtype, shape) for device in backend.devices]
    except Unsupported as error:
        say(kind="unsupported", **check, reason=str(error))
        return
    groups = [products] if mode == "together" else [[product] for product in products]
    for group in groups:
        for product in group:
            product.run(1)
            product.settle()
            product.keep_first()
        rounds = _fill(group, warmup)  # clocks and power settle here
        for product in group:
            product.settle()
            product.start_clock()
        # All devices of a group are fed in turn, so that they really run at the same time.
        per_round = max(1, int(rounds * seconds / max(warmup, 1e-3)))
        for _unused in range(per_round):
            for product in group:
                product.run(ROUND)
        for product in group:
            product.stop_clock()
        for product in group:
            span = product.seconds() / (per_round * ROUND)
            say(
                kind="result",
                **check,
                device=product.device,
                uuid=backend.uuid(product.device),
                time_ms=span * 1e3,
                tflops=2.0 * shape[0] * shape[1] * shape[2] / span / 1e12,
                iterations=per_round * ROUND,
                error=finite(product.error()),
                tolerance=TOLERANCE[dtype],
            )


def finite(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else None


def _fill(group: list[t.Any], seconds: float) -> int:
    """Keep the group busy for `seconds`; returns how many rounds that took."""
    rounds, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for product in group:
            product.run(ROUND)
        for product in group:
            product.settle()
        rounds += 1
    return max(rounds, 1)


def main() -> int:
    wanted = json.loads(sys.argv[1])
    try:
        backend = library(wanted.get("torch", True))
    except Exception as error:
        say(kind="fault", reason=f"{type(error).__name__}: {error}")
        return 1
    say(kind="library", library=backend.library, backend=backend.name, devices=len(backend.devices))
    for check in wanted["checks"]:
        try:
            measure(backend, check, wanted["seconds"], wanted["warmup_seconds"])
        except Exception as error:
            say(kind="fault", **check, reason=f"{type(error).__name__}: {error}"[:500])
    say(kind="end")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
