# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workload of soak over a driver whose GPUs are memory of this process."""

from __future__ import annotations

import ast
import collections
import ctypes
import itertools
import json
import re
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import soak as probe
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import product_kernel, soak, tested_gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.cuda_driver import DriverError
from harness.fake_driver import FakeDevice, FakeDriver

Record = t.Dict[str, t.Any]
Run = t.Callable[..., t.List[Record]]


class FakeSensors:
    """Sensors of GPUs at their power limit."""

    VALUES = soak.Sensors.VALUES
    shares = staticmethod(soak.Sensors.shares)

    def read(self, _uuid: str) -> dict[str, float]:
        return {
            "temperature": 61, "power": 698.5, "power_limit": 700.0, "sm_clock": 1500, "sm_clock_max": 1980, "throttle": 4, "replays": 2,
        }  # fmt: skip


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Load GPUs of 1 MiB each for fifteen laps by a clock that goes on with each look; a MiB of the workload is 4 KiB here."""
    ticks = itertools.count()
    monkeypatch.setattr(soak, "time", types.SimpleNamespace(monotonic=lambda: next(ticks) / 100))
    monkeypatch.setattr(soak, "MIB", 4096)
    monkeypatch.setattr(soak, "LAP_S", 0.036)
    monkeypatch.setattr(soak, "SENSOR_S", 0.01)
    monkeypatch.setattr(soak, "MOST_QUEUED", 4)
    monkeypatch.setattr(soak, "Sensors", FakeSensors)

    def of(devices: int = 2, change: t.Callable[[FakeDriver], None] | None = None, **order: t.Any) -> list[Record]:
        driver = FakeDriver(*(f"GPU-{n}" for n in range(devices)))
        if change:
            change(driver)
        monkeypatch.setattr(soak, "Driver", lambda _ptx: driver)
        order = {"seconds": 0.3, "sample_seconds": 0.1, "mib": 4, "memory_percent": 2, "seed": 1, **order}
        assert soak.main({"devices": [d.uuid for d in driver.devices], **order}) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return of


def kinds(found: list[Record], kind: str) -> list[Record]:
    return [one for one in found if one["kind"] == kind]


def once(step: str, number: int, offset: int = 0) -> t.Callable[[FakeDriver], None]:
    """Flip a bit of what the n-th such step of the last GPU wrote."""

    def change(driver: FakeDriver) -> None:
        seen = []

        def plant(did: str, address: int, _size: int) -> None:
            if did == step:
                seen.append(address)
                if len(seen) == number:
                    ctypes.c_ubyte.from_address(address + offset).value ^= 4

        driver.devices[-1].plant = plant

    return change


def test_two_gpus_are_loaded_and_every_lap_is_the_same(run: Run) -> None:
    found = run()
    assert found[0]["kind"] == "ready" and found[-1] == {"kind": "end"} and not kinds(found, "wrong") and not kinds(found, "fault")
    results = kinds(found, "result")
    assert [(r["device"], r["wrong"]) for r in results] == [(0, 0), (1, 0)] and results[0]["laps"] > 2
    assert results[0]["fingerprint"] == results[1]["fingerprint"] != "0x0000000000000000"
    samples = kinds(found, "sample")
    assert {s["device"] for s in samples} == {0, 1} and len(samples) >= 4
    first = samples[0]
    assert first["h2d"] == 55.0 and first["d2h"] == 54.0 and first["peer"] == 390.0 and first["tflops"] > 0 and "memory" in first
    assert first["sensors"]["power"] == 698.5 and first["sensors"]["throttle"] == {"4": 1.0} and first["sensors"]["replays"] == 2


def test_one_gpu_has_no_copies_to_a_next_one(run: Run) -> None:
    assert all("peer" not in sample for sample in kinds(run(devices=1), "sample"))


def test_products_that_change_in_one_lap_are_found(run: Run) -> None:
    def change(driver: FakeDriver) -> None:
        device, seen = driver.devices[-1], []

        def multiply(steps: int, seed: int, out: int) -> None:
            FakeDevice._multiply(device, steps, seed, out)
            seen.append(out)
            if len(seen) == 12:
                device.write(out + 16, [4711])

        device._multiply = multiply  # type: ignore[method-assign]

    found = run(change=change)
    (wrong,) = kinds(found, "wrong")
    assert (wrong["device"], wrong["load"]) == (1, "compute") and "products of multiprocessor 2: checksum " in wrong["reason"]
    assert [r["wrong"] for r in kinds(found, "result")] == [0, 1]


@pytest.mark.parametrize(
    ("step", "number", "device", "load"),
    [("h2d", 20, 1, "h2d"), ("send", 9, 1, "peer"), ("fill", 1, 1, "memory")],
)
def test_one_flipped_bit_is_found(run: Run, step: str, number: int, device: int, load: str) -> None:
    found = run(change=once(step, number, offset=800))
    wrong = kinds(found, "wrong")
    assert wrong and {(one["device"], one["load"]) for one in wrong} == {(device, load)}


def test_of_many_wrong_results_the_first_are_told_and_all_counted(run: Run) -> None:
    def change(driver: FakeDriver) -> None:
        device = driver.devices[0]
        device._same = lambda _p, _q, _n, out: device.write(out, [1, 8, 1, 3])  # type: ignore[method-assign]

    found = run(devices=1, change=change)
    (result,) = kinds(found, "result")
    assert len(kinds(found, "wrong")) == soak.MOST_WRONG < result["wrong"]


def test_an_error_of_the_driver_is_a_fault_of_its_gpu(run: Run) -> None:
    def change(driver: FakeDriver) -> None:
        def reached(_event: t.Any) -> None:
            raise DriverError("cuEventSynchronize failed with status 214 uncorrectable ECC error encountered", 214)

        driver.devices[1].reached = reached  # type: ignore[method-assign]

    (fault,) = kinds(run(change=change), "fault")
    assert (fault["device"], fault["code"]) == (1, "ecc")


def test_an_old_gpu_is_not_supported(run: Run) -> None:
    def change(driver: FakeDriver) -> None:
        driver.devices[0].capability = lambda: 61  # type: ignore[method-assign]

    (fault,) = kinds(run(change=change), "fault")
    assert fault["code"] == "unsupported" and "compute capability 6.1, the products need 7.0" in fault["reason"]


def test_a_host_without_memory_is_a_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "available", lambda: 1 << 29)
    (fault,) = kinds(run(), "fault")
    assert fault["code"] == "out_of_memory"


@pytest.mark.parametrize(
    ("capability", "target", "instruction"),
    [
        (70, "sm_70", "m8n8k4.row.col.f32.f16.f16.f32"), (72, "sm_70", "m8n8k4.row.col.f32.f16.f16.f32"),
        (75, "sm_75", "m16n8k8.row.col.f32.f16.f16.f32"), (80, "sm_80", "m16n8k16.row.col.f32.bf16.bf16.f32"),
        (103, "sm_80", "m16n8k16.row.col.f32.bf16.bf16.f32"),
    ],
)  # fmt: skip
def test_each_gpu_multiplies_by_what_its_tensor_cores_have(capability: int, target: str, instruction: str) -> None:
    text = product_kernel.load_module(capability)
    assert f".target {target}\n" in text and text.count(f"mma.sync.aligned.{instruction} ") == product_kernel.TILES**2
    assert text.count(".visible .entry") == 7
    used = {(name, int(number)) for name, number in re.findall(r"%([abf])(\d+)", text[text.index(".entry multiply(") :])}
    declared = {name: int(count) for name, count in re.findall(r"%([abf])<(\d+)>", text[text.index(".entry multiply(") :])}
    assert {name: 1 + max(number for of, number in used if of == name) for name in "abf"} == declared


def test_the_operations_of_a_step() -> None:
    # 8 warps, 16 instructions each.
    assert [product_kernel.flop(c) for c in (70, 75, 80, 90)] == [128 * 2048, 128 * 2048, 128 * 4096, 128 * 4096]


def test_a_gpu_that_is_too_old_for_products_has_the_other_kernels() -> None:
    text = product_kernel.load_module(61)
    assert text.count(".visible .entry") == 6 and "mma.sync" not in text


def test_the_kernel_is_well_formed_and_the_packed_text_is_a_whole_program() -> None:
    text = product_kernel.load_module(90)
    assert text.count(".visible .entry") == 7 and text.count("mma.sync") == product_kernel.TILES**2
    body = text[text.index(".entry multiply(") :]
    assert set(re.findall(r"bra (\$\w+)", body)) <= set(re.findall(r"^(\$\w+):", body, re.MULTILINE))
    compile(probe.SOURCES["nvidia"], "soak", "exec")
    assert probe.SOURCES["nvidia"].count("from __future__") == 1 and tested_gpu.SHIFT == 4096


@pytest.mark.parametrize(("kind", "replaced"), [("nvidia", []), ("amd", ["memory_module"])])
def test_packed_modules_do_not_replace_names_of_each_other(kind: str, replaced: list[str]) -> None:
    body = ast.parse(probe.SOURCES[kind]).body
    names = [n.name for n in body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    targets = [of for n in body if isinstance(n, (ast.Assign, ast.AnnAssign)) for of in getattr(n, "targets", [getattr(n, "target", None)])]
    names += [of.id for target in targets for of in ast.walk(target) if isinstance(of, ast.Name)]
    assert [name for name, count in collections.Counter(names).items() if count > 1] == replaced


@pytest.mark.parametrize(("kernel", "load"), [("check", "memory"), ("same", "h2d"), ("same", "peer")])
@pytest.mark.parametrize("number", [0, 5])
def test_a_comparison_that_the_gpu_drops_is_a_wrong_result(run: Run, kernel: str, load: str, number: int) -> None:
    """One comparison of a lap does not run, and the driver reports no error."""

    def change(driver: FakeDriver) -> None:
        device = driver.devices[-1]
        seen: list[int] = []

        def launch(name: str, *values: int, **options: t.Any) -> None:
            is_landing = name == "same" and values[0] in {buffer for gpu in soaked for buffer in gpu.peer_landing}
            if name == kernel and (name != "same" or is_landing == (load == "peer")):
                seen.append(1)
                if len(seen) == number + 3:
                    return
            FakeDevice.launch(device, name, *values, **options)

        device.launch = launch  # type: ignore[method-assign]

    soaked: list[t.Any] = []
    original = soak.LoadedGpu.__init__

    def made(self: t.Any, *arguments: t.Any) -> None:
        original(self, *arguments)
        soaked.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(soak.LoadedGpu, "__init__", made)
        wrong = kinds(run(change=change), "wrong")
    assert wrong and {one["load"] for one in wrong} == {load} and "and its driver reported no error" in wrong[0]["reason"]
