# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gemm workload over a cuBLAS that computes on the CPU: every product that is timed is checked, all of it."""

from __future__ import annotations

import ctypes
import math
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import gemm, products
from harness.fake_cuda import BF16, F16, F32, F64, SIZES, FakeCuda, Plant

M, N, K = SHAPE = [24, 20, 28]
KINDS = {"bf16": BF16, "fp16": F16, "tf32": F32, "fp32": F32, "fp64": F64}
types = pytest.mark.parametrize("dtype", KINDS)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda(SHAPE)
    monkeypatch.setattr(gemm, "load", lambda _name: fake)
    monkeypatch.setattr(products, "BLOCK_PRODUCTS", 3)
    monkeypatch.setattr(gemm.CublasProduct, "PERIOD", 131)
    monkeypatch.setattr(gemm.CublasProduct, "SUMS_BYTES", 1000)  # compared every few blocks
    return fake


def measured(cuda: FakeCuda, dtype: str, monkeypatch: pytest.MonkeyPatch, plant: Plant | None = None) -> dict[str, t.Any]:
    said: list[dict[str, t.Any]] = []
    monkeypatch.setattr(products, "say", lambda **record: said.append(record))
    monkeypatch.setattr(products, "_fill", lambda group, _seconds: [product.block() for product in group] and 2)
    cuda.plant = plant or cuda.plant
    gemm.measure(gemm.Cublas(), {"dtype": dtype, "shape": SHAPE, "mode": "alone"}, seconds=2.0, warmup=1.0)
    assert [record["kind"] for record in said] == ["result"]
    return said[0]


def accepted(record: dict[str, t.Any]) -> bool:
    return record["error"] is not None and record["error"] <= record["tolerance"] and record["wrong"] == 0


def element(kind: int, row: int, column: int, value: float) -> Plant:
    """In every product one element is wrong."""

    def plant(fake: FakeCuda, _number: int, address: int) -> bool:
        fake.write(address + (column * M + row) * SIZES[kind], kind, [value])
        return True

    return plant


@types
def test_right_products_are_accepted_and_every_timed_one_is_counted(cuda: FakeCuda, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = measured(cuda, dtype, monkeypatch)
    assert accepted(record) and record["iterations"] == 12 and record["compared"] == 3 + 12
    assert cuda.products == 2 + 3 + 12  # the first of each sign, the warm-up, what was timed
    assert not cuda.memory and not cuda.clock  # everything is given back


@types
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e4])
def test_one_wrong_element_in_the_last_corner_of_every_product_is_seen(
    cuda: FakeCuda, dtype: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not accepted(measured(cuda, dtype, monkeypatch, element(KINDS[dtype], M - 1, N - 1, value)))


@types
def test_one_wrong_column_of_every_product_is_seen(cuda: FakeCuda, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def plant(fake: FakeCuda, _number: int, address: int) -> bool:
        ctypes.memset(address + 7 * M * SIZES[KINDS[dtype]], 0, M * SIZES[KINDS[dtype]])
        return True

    assert not accepted(measured(cuda, dtype, monkeypatch, plant))


@types
def test_an_element_off_by_a_few_parts_in_a_hundred_is_seen(cuda: FakeCuda, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def plant(fake: FakeCuda, _number: int, address: int) -> bool:
        values = fake.read(address, KINDS[dtype], M * N)
        worst = max(range(M * N), key=lambda i: abs(values[i]))
        fake.write(address + worst * SIZES[KINDS[dtype]], KINDS[dtype], [values[worst] * 1.04])
        return True

    assert not accepted(measured(cuda, dtype, monkeypatch, plant))


@types
def test_one_product_in_the_middle_with_one_changed_element_is_seen(cuda: FakeCuda, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def plant(fake: FakeCuda, number: int, address: int) -> bool:
        if number == 11:
            last = address + SIZES[KINDS[dtype]] * (5 * M + 3) + SIZES[KINDS[dtype]] - 1
            ctypes.memset(last, ctypes.string_at(last, 1)[0] ^ 1, 1)
        return True

    record = measured(cuda, dtype, monkeypatch, plant)
    assert record["error"] <= record["tolerance"] and record["wrong"] == 1


@types
def test_a_product_that_is_never_written_is_not_taken_for_the_one_before_it(
    cuda: FakeCuda, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measured(cuda, dtype, monkeypatch, lambda _fake, number, _address: number != 10)["wrong"] == 1


@pytest.mark.parametrize(("dtype", "most"), [("bf16", 0.01), ("fp16", 0.005), ("tf32", 0.005), ("fp8", 0.04)])
def test_tolerances_of_the_default_size_follow_from_the_type(dtype: str, most: float) -> None:
    largest = 5.7 * math.sqrt(8192)  # of 8192^2 normal numbers
    assert products.STORED[dtype] < products.element_tolerance(dtype, 8192, largest) < most
    assert products.sum_tolerance("fp64", 8192, 8192, 4 * 8192.0) < products.sum_tolerance("fp32", 8192, 8192, 4 * 8192.0) < 1e-4


def test_no_image_says_what_tf32_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NVIDIA_TF32_OVERRIDE=1 a healthy GPU computes wrong values in FP32, with 0 it is slow in TF32."""
    seen: list[str | None] = []
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    monkeypatch.setattr(gemm, "say", lambda **_record: None)
    monkeypatch.setattr(gemm.sys, "argv", ["gemm", "{}"])

    def library(_order: dict[str, t.Any]) -> t.Any:
        seen.append(gemm.os.environ.get("NVIDIA_TF32_OVERRIDE"))
        raise OSError("no library")

    monkeypatch.setattr(gemm, "library", library)
    assert gemm.main() == 1 and seen == [None]
