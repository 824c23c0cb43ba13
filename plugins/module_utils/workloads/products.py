# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dense matrix products through PyTorch, each checked: what the workloads have in common that compute them.

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

It travels to the nodes as text, in front of a workload that uses it (workloads/packing.py): no imports of this collection.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import math
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
    """Return the largest distance of an element from the reference, as a part of its `largest` element.

    With A and B of standard normal numbers |a|^T |b| <= k, and an inner product is off by at most
    u_stored |c| + 2 u_rounded |c| + LAMBDA sqrt(k) (2 u_rounded + k u). Tensor cores cut where they should round, so u is twice
    that of single precision. In FP8 the tensor cores of Hopper keep about 13 bits and hand their sums on every 128 terms
    (DeepSeek-V3 Technical Report, arXiv:2412.19437, 3.3.2), so 128 times 2^-13 is added to k u.
    """
    inputs = 2 * ROUNDED.get(dtype, 0.0)
    sums = k * 2 * SINGLE + (min(k, 128) * 2.0**-13 if dtype == "fp8" else 0.0)
    return STORED[dtype] + inputs + LAMBDA * math.sqrt(k) * (inputs + sums) / largest


def sum_tolerance(dtype: str, m: int, k: int, largest: float) -> float:
    """Return the largest distance of x^T C from (x^T A) B, as a part of the `largest` sum.

    The partial sums of terms of mean zero grow as a square root (Higham and Mary, "Sharper Probabilistic Backward Error Analysis
    for Basic Linear Algebra Kernels with Random Data", SIAM J. Sci. Comput. 42(5), 2020): an inner product of k terms of size s is
    off by about u k s. That gives u sqrt(m) k for the products added over m rows, u m sqrt(k) for adding them, and the same two
    for the other side: 2 LAMBDA u sqrt(m k) (sqrt(m) + sqrt(k)).
    """
    unit = DOUBLE if dtype == "fp64" else SINGLE
    return 2 * LAMBDA * unit * math.sqrt(m * k) * (math.sqrt(m) + math.sqrt(k)) / largest


class Unsupported(Exception):
    """This hardware or library has no such product."""


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def say(**record: t.Any) -> None:
    write(json.dumps(record))


class OnCpu:
    """The part of torch.cuda that is used here, on the CPU."""

    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            self.at = 0.0

        def record(self) -> None:
            self.at = time.perf_counter()

        def elapsed_time(self, later: t.Any) -> float:
            return float(later.at - self.at) * 1e3

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def set_device(_device: int) -> None:
        pass

    @staticmethod
    def device(_device: int) -> t.Any:
        return contextlib.nullcontext()

    @staticmethod
    def synchronize(_device: int = 0) -> None:
        pass


# The libraries of matrix products of PyTorch's build for CUDA.
CUDA_BLAS = {"Cublas": "cuBLAS", "Cublaslt": "cuBLASLt", "Default": "cuBLAS/cuBLASLt", "": "cuBLAS"}


class Torch:
    """Products through PyTorch, on its devices of a type: `cuda`, a type that the package `plugin` adds, or `cpu`, which is one.

    Several kinds of devices have the type `cuda`. `build` is the name of the version in torch.version that tells them apart (`cuda`,
    `hip`), `build_word` what people call it, and `blas` has the names of its libraries of matrix products.
    """

    name = "torch"

    def __init__(
        self, kind: str = "cuda", plugin: str = "", build: str = "cuda", build_word: str = "CUDA", blas: t.Mapping[str, str] | None = None
    ) -> None:
        import torch

        self.torch = torch
        self.blas = CUDA_BLAS if blas is None else blas
        self.kind = kind
        if plugin:
            importlib.import_module(plugin)
        self.api = t.cast(t.Any, OnCpu if kind == "cpu" else getattr(torch, kind))
        if plugin and not self.api.is_available():
            raise RuntimeError(f"torch {torch.__version__} with {plugin} cannot use an {kind.upper()}: see the driver and its toolkit")
        if kind == "cuda" and not getattr(torch.version, build, None):
            raise RuntimeError(f"torch {torch.__version__} is built without {build_word}, which this node's GPUs need")
        if kind == "cuda" and not torch.cuda.is_available():
            built = getattr(torch.version, build, None)
            raise RuntimeError(
                f"torch {torch.__version__} (built for {build_word} {built}) cannot use {build_word}: a torch built for a newer"
                f" {build_word} than the driver supports looks like this"
            )
        self.is_cuda = kind == build == "cuda"  # of NVIDIA
        self.build, self.built = build, f"{build_word} {getattr(torch.version, build, None)}"
        self.devices = list(range(self.api.device_count()))
        for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
            # Partial sums stay in single precision, as element_tolerance has it. PyTorch 1.13 asserts that it does not know the second.
            with contextlib.suppress(AttributeError, AssertionError):
                setattr(torch.backends.cuda.matmul, name, False)
        self.library = f"torch {torch.__version__}, {self._library() if kind == 'cuda' else kind.upper()}"

    def _library(self) -> str:
        torch, library = self.torch, self.blas.get("", "")
        if hasattr(torch.backends.cuda, "preferred_blas_library"):
            choice = str(torch.backends.cuda.preferred_blas_library()).rsplit(".", maxsplit=1)[-1]
            library = self.blas.get(choice, choice)
        return f"{self.built}, {library}"

    def uuid(self, device: int) -> str:
        uuid = getattr(self.api.get_device_properties(device), "uuid", None) if self.is_cuda else None
        return f"GPU-{uuid}" if uuid else ""

    def capable(self, device: int, minimum: tuple[int, int]) -> bool:
        """Return True if a device has this compute capability, which only NVIDIA GPUs have."""
        return not self.is_cuda or self.api.get_device_capability(device) >= minimum

    def float8(self, device: int) -> t.Any:
        """Return the type of 8 bits that a device multiplies: that of its own for gfx940 to gfx942, the common one for all others."""
        arch = str(getattr(self.api.get_device_properties(device), "gcnArchName", ""))
        return self.torch.float8_e4m3fnuz if arch.startswith("gfx94") else self.torch.float8_e4m3fn

    def prepare(self, device: int, dtype: str, shape: list[int]) -> Product:
        return TorchProduct(self, device, dtype, shape)


class Product:
    """C (m x n) = A (m x k) B (k x n) on one device: check_first(), block() as often as wanted, then seconds() and wrong()."""

    def __init__(self, device: int, dtype: str, shape: list[int], size: int) -> None:
        self.device = device
        self.dtype = dtype
        self.m, self.n, self.k = shape
        self.slots = max(1, min(BLOCK_PRODUCTS, BLOCK_BYTES // (self.m * self.n * size)))
        self.marks: list[t.Any] = []
        self.negative = 0
        self.compared = 0  # products that sum_up() held against the first, those that settle clocks among them

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
        """Return how many products differed from the first so far."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Return the fingerprint of the sums of the first product and its negative: equal on all devices of one model."""
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
        self.compared += self.slots
        self.mark()

    def seconds(self) -> tuple[float, float]:
        """Time of the products since the last call, and of their comparison."""
        self.settle()
        marks, self.marks = self.marks, []
        products = sum(self.between(*marks[i : i + 2]) for i in range(0, len(marks), 3))
        return products, sum(self.between(*marks[i : i + 2]) for i in range(1, len(marks), 3))


class TorchProduct(Product):
    def __init__(self, backend: Torch, device: int, dtype: str, shape: list[int]) -> None:
        torch = backend.torch
        types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32,
                 "fp64": torch.float64, "fp8": torch.bfloat16}
        if dtype not in types:
            raise Unsupported(f"unknown type {dtype}")
        base = types[dtype]
        size = torch.empty((), dtype=base).element_size()
        super().__init__(device, dtype, shape, size)
        self.torch, self.api = torch, backend.api
        self.place = place = "cpu" if backend.kind == "cpu" else f"{backend.kind}:{device}"
        self.api.set_device(device)
        generator = torch.Generator(device=place).manual_seed(1234)
        self.a = torch.randn(self.m, self.k, device=place, generator=generator, dtype=torch.float32).to(base)
        self.b = torch.randn(self.k, self.n, device=place, generator=generator, dtype=torch.float32).to(base)
        # Buffers lie in one piece where all of them are aligned alike: another alignment can mean another algorithm.
        aligned = self.m * self.n * size % 512 == 0
        self.whole = torch.empty(self.slots, self.m, self.n, device=place, dtype=base) if aligned else None
        apart = [torch.empty(self.m, self.n, device=place, dtype=base) for _unused in range(0 if aligned else self.slots)]
        self.out = apart if self.whole is None else list(self.whole)
        if dtype == "fp8":
            if not hasattr(torch, "_scaled_mm") or not backend.capable(device, (8, 9)):
                raise Unsupported("FP8 products need compute capability 8.9 and torch._scaled_mm")
            unit_scale = torch.ones((), device=place)
            float8 = backend.float8(device)
            a8 = self.a.to(float8)
            b8 = self.b.t().contiguous().to(float8).t()
            factors = [b8, (-b8.float()).to(float8)]
            self.a, self.b = a8.to(torch.float32), b8.to(torch.float32)  # what the product is checked against
            self.call: t.Any = lambda out, negative: torch._scaled_mm(
                a8, factors[negative], scale_a=unit_scale, scale_b=unit_scale, out_dtype=torch.bfloat16, out=out
            )
        else:
            if dtype == "bf16" and not backend.capable(device, (8, 0)):
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
        with self.api.device(self.device):
            self.torch.backends.cuda.matmul.allow_tf32 = self.dtype == "tf32"
            self.call(self.out[slot], self.negative)

    def _sums(self, matrix: t.Any, out: t.Any = None) -> t.Any:
        return self.torch.sum(matrix.view(self.words), dim=-1, dtype=self.torch.int64, out=out)

    def sum_up(self) -> None:
        with self.api.device(self.device):
            if self.whole is not None and self.words == self.torch.int64:
                self._sums(self.whole, self.sums)
            else:
                for out, sums in zip(self.out, self.sums):
                    self._sums(out, sums)
            self.differ += (self.sums != self.expected[self.negative]).any(dim=1).sum()

    def wrong(self) -> int:
        return int(self.differ.item())

    def fingerprint(self) -> str:
        return hashlib.sha256(repr([sums.tolist() for sums in self.expected]).encode()).hexdigest()

    def mark(self) -> None:
        event = self.api.Event(enable_timing=True)
        with self.api.device(self.device):
            event.record()
        self.marks.append(event)

    def between(self, first: t.Any, last: t.Any) -> float:
        return float(first.elapsed_time(last)) / 1e3

    def settle(self) -> None:
        self.api.synchronize(self.device)

    def verify(self) -> tuple[float, float]:
        with self.api.device(self.device):
            off_by, largest, tolerance = self._by_sums() if self.dtype in ("fp32", "fp64") else self._by_elements()
            corner = self.a[:CORNER].cpu().double() @ self.b[:, :CORNER].cpu().double()
            off, self.expected = [], []
            for self.negative in (0, 1):
                self.multiply(0)
                self.expected.append(self._sums(self.out[0]))
                product = -self.out[0] if self.negative else self.out[0]
                off += [off_by(product), float((product[:CORNER, :CORNER].cpu().double() - corner).abs().max())]
        return worst(*off) / largest, tolerance

    def close(self) -> None:
        self.call = None  # it refers to us: without this the memory waits for the garbage collector

    def _by_elements(self) -> tuple[t.Callable[[t.Any], float], float, float]:
        """Return (distance of a product from one in single precision, as a function; the largest element of that; the tolerance)."""
        self.torch.backends.cuda.matmul.allow_tf32 = False
        want = self.a.float() @ self.b.float()
        # NaN if any element is NaN.
        largest = float(want.abs().max())
        return lambda product: float((want - product).abs_().max()), largest, element_tolerance(self.dtype, self.k, largest)

    def _by_sums(self) -> tuple[t.Callable[[t.Any], float], float, float]:
        """Return (distance of the sums of a product from those of its factors in double precision, as a function; the largest of those; the
        tolerance)."""
        torch, a, b = self.torch, self.a.double().t(), self.b.double().t()
        generator = torch.Generator(device=self.place).manual_seed(1)
        signs = torch.randint(0, 2, (VECTORS, self.m), device=self.place, generator=generator).double() * 2 - 1
        want = torch.stack([torch.mv(b, torch.mv(a, x)) for x in signs])

        def off_by(product: t.Any) -> float:
            double = product.double().t()
            return float((torch.stack([torch.mv(double, x) for x in signs]) - want).abs().max())

        largest = float(want.abs().max())
        return off_by, largest, sum_tolerance(self.dtype, self.m, self.k, largest)


def worst(*values: float) -> float:
    """Return the largest value; infinite if one is not a number, which max() may pass over."""
    return max(values) if all(map(math.isfinite, values)) else math.inf


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
            compared=product.compared,
            fingerprint=product.fingerprint(),
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
