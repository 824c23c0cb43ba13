# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the cost of checking every product on a real GPU, and look for planted wrong products:
python tests/bench/gemm_check.py [torch:bf16,fp8 ...]

Needs a GPU with PyTorch or cuBLAS, and nothing else of the project. One JSON line per library and type; exit status 0 when all
right products are accepted, all planted errors are found, and the check takes less than 5 % of the time.
"""

from __future__ import annotations

import ctypes
import json
import pathlib
import statistics
import sys
import time
import types
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = ("bf16", "fp16", "tf32", "fp32", "fp64", "fp8")
SHAPE = [8192, 8192, 8192]
SECONDS = 2.0
GOAL = 5.0


def load_workload() -> t.Any:
    """The workload as it runs on a node: one text behind the other."""
    module = types.ModuleType("gemm_workload")
    for name in ("products", "gemm"):
        text = (ROOT / f"plugins/module_utils/workloads/{name}.py").read_text(encoding="utf-8")
        exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module


class Planted:
    """Changes what lies in a product's buffer, between the product and its check."""

    def __init__(self, product: t.Any) -> None:
        self.product = product
        self.size = product.out[0].element_size() if hasattr(product.out[0], "element_size") else product.bytes

    def write(self, slot: int, element: int, data: bytes) -> None:
        """`data` at an element of the buffer, counted as it lies in memory."""
        out = self.product.out[slot]
        if hasattr(out, "element_size"):
            torch = self.product.torch
            begin = element * self.size
            values = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(out.device)
            out.view(torch.uint8).view(-1)[begin : begin + len(data)] = values
        else:
            place = ctypes.c_void_p(out.value + element * self.size)
            self.product.library.cuda("cudaMemcpy", place, data, ctypes.c_size_t(len(data)), 1)

    def read(self, slot: int, element: int) -> bytes:
        out = self.product.out[slot]
        if hasattr(out, "element_size"):
            flat = out.view(self.product.torch.uint8).view(-1)
            return bytes(flat[element * self.size : (element + 1) * self.size].cpu().tolist())
        place = ctypes.c_void_p(out.value + element * self.size)
        return bytes(self.product.download(place, self.size))

    def flip(self, slot: int, element: int, byte: int, bit: int) -> None:
        data = bytearray(self.read(slot, element))
        data[byte] ^= 1 << bit
        self.write(slot, element, bytes(data))


def plants(product: t.Any) -> dict[str, tuple[bool, t.Callable[[Planted, int], None]]]:
    """Name -> (in every product, or in one of a block), what is done to a buffer."""
    m, n = product.m, product.n
    size = Planted(product).size
    line = n if hasattr(product.out[0], "element_size") else m  # PyTorch's rows, cuBLAS's columns lie in one piece
    nan = {2: b"\xff\x7f", 4: b"\0\0\xc0\x7f", 8: b"\0\0\0\0\0\0\xf8\x7f"}[size]
    huge = {2: b"\x00\x7b", 4: b"\0\0\0\x7f", 8: b"\0\0\0\0\0\0\0\x7f"}[size]
    high, middle = {2: (0, 0), 4: (2, 1), 8: (5, 3)}[size]
    return {
        "a whole line is zero, always": (True, lambda p, slot: p.write(slot, 4711 * line, bytes(size * line))),
        "not a number in the last corner, always": (True, lambda p, slot: p.write(slot, m * n - 1, nan)),
        "one huge value, always": (True, lambda p, slot: p.write(slot, m * n // 2 + 17, huge)),
        "sign of one element, always": (True, lambda p, slot: p.flip(slot, m * n // 3, size - 1, 7)),
        "a high bit of the fraction of one element, once": (False, lambda p, slot: p.flip(slot, m * n // 5 + 3, high, 5)),
        "a low bit of one element, once": (False, lambda p, slot: p.flip(slot, m * n // 7 + 5, middle, 0)),
        "not a number in the last corner, once": (False, lambda p, slot: p.write(slot, m * n - 1, nan)),
        "a product is not written, once": (False, lambda p, slot: None),
    }  # fmt: skip


def missed(product: t.Any) -> list[str]:
    """Return the planted errors that the check accepts."""
    multiply, planted, found = product.multiply, Planted(product), []
    for name, (always, change) in plants(product).items():
        calls = 0

        def wrong(slot: int) -> None:
            nonlocal calls
            calls += 1
            if always:
                multiply(slot)
                change(planted, slot)
            elif calls == 2 + product.slots + product.slots // 2:  # in the middle of the second block
                if "not written" not in name:
                    multiply(slot)
                    change(planted, slot)
            else:
                multiply(slot)

        before = product.wrong()
        product.multiply, product.expected, product.negative = wrong, [], 0
        product.check_first()
        if not always:
            calls = 2
        for _unused in range(4):
            product.block()
        product.seconds()
        right = product.error <= product.tolerance  # not finite: never
        if (always and right) or (not always and product.wrong() - before != 1):
            found.append(f"{name}: error {product.error:.2g} of {product.tolerance:.2g}, {product.wrong() - before} differ")
    product.multiply = multiply
    return found


def unchecked(product: t.Any) -> float:
    """TFLOPS of the same products without any check, as many as fill the time."""
    clock = product.negative
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        for slot in range(product.slots):
            product.multiply(slot)
        product.settle()
    product.marks, count = [], 0
    product.mark()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for _unused in range(4):
            for slot in range(product.slots):
                product.multiply(slot)
                count += 1
    product.mark()
    product.settle()
    first, last = product.marks
    product.marks, product.negative = [], clock
    return float(2.0 * product.m * product.n * product.k * count / product.between(first, last) / 1e12)


def compare(module: t.Any, backend: t.Any, dtype: str) -> bool:
    said: list[dict[str, t.Any]] = []
    module.say = lambda **record: said.append(record)
    for _unused in range(2):
        try:
            module.measure(backend, {"dtype": dtype, "shape": SHAPE, "mode": "together"}, SECONDS, 1.0)
        except Exception as error:
            said.append({"kind": "fault", "reason": f"{type(error).__name__}: {error}"[:400]})
    results = [r for r in said if r["kind"] == "result"]
    if not results:
        print(json.dumps({"library": backend.library, "type": dtype, **said[0]}), flush=True)
        return said[0]["kind"] == "unsupported"
    product = backend.prepare(backend.devices[0], dtype, SHAPE)
    try:
        product.check_first()
        plain = unchecked(product)
        product.block()  # what unchecked() left is not looked at
        product.seconds()
        lost = missed(product)
    finally:
        product.close()
    checking = max(r["checking_percent"] for r in results)
    first = [r["first_check_s"] for r in results]
    right = all(r["error"] is not None and r["error"] <= r["tolerance"] and r["wrong"] == 0 for r in results)
    holds = right and not lost and checking < GOAL
    line = {
        "figure": "gemm_check", "library": backend.library, "type": dtype, "gpus": len(backend.devices),
        "checking_percent": round(checking, 2), "first_check_s": [round(s, 3) for s in first],
        "tflops": round(statistics.median(r["tflops"] for r in results), 1), "tflops_unchecked": round(plain, 1),
        "error_of_tolerance": [f"{r['error']} of {r['tolerance']:.3g}" for r in results][:2], "iterations": results[0]["iterations"],
        "wrong": [r["wrong"] for r in results], "planted_and_missed": lost, "holds": holds,
    }  # fmt: skip
    print(json.dumps(line), flush=True)
    return holds


def main() -> int:
    module = load_workload()
    wanted = dict(word.split(":", 1) for word in sys.argv[1:]) or dict.fromkeys(("torch", "cublas"), ",".join(TYPES))
    backends: dict[str, t.Any] = {}
    holds: list[bool] = []
    for name, make in (("torch", module.Torch), ("cublas", module.Cublas)):
        try:
            backends[name] = make()
        except Exception as error:
            print(json.dumps({"library": name, "reason": f"not here: {error}"}), flush=True)
    if not backends:
        print(json.dumps({"figure": "gemm_check", "value": None, "holds": None, "reason": "no GPU"}))
        return 0
    for name, dtypes in wanted.items():
        holds += [compare(module, backends[name], dtype) for dtype in dtypes.split(",") if name in backends]
    return 0 if all(holds) else 1


if __name__ == "__main__":
    sys.exit(main())
