# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workloads of gpu_memory and soak over HIP: the calls by ctypes and the kernels' own text, on a HIP that runs them on the processor.
No AMD GPU was there; that hiprtc takes the text for one is not tested."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gpu_memory, soak
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import hip_driver, hip_products, memory_kernels

RIG = pathlib.Path(__file__).resolve().parents[3] / "rigs/hip/hip_on_cpu.c"
UUIDS = ["GPU-0000000007000001", "GPU-0000000007000002"]
CHECKS = ["h2d", "d2h", "bidirectional", "device", "peer", "latency", "pattern"]


@pytest.fixture(scope="module")
def hip(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Build the libraries; return their folder."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("hip")
    (folder / "kernels.h").write_text(hip_products.load_module(90402))
    library = folder / "libamdhip64.so"
    command = ["cc", "-O2", "-w", "-shared", "-fPIC", f'-DKERNELS="{folder}/kernels.h"', "-o", str(library), str(RIG)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shutil.copy(library, folder / "libhiprtc.so")
    return folder


def run(hip: pathlib.Path, plan: str = "", checks: t.Sequence[str] = CHECKS, devices: t.Sequence[str] = UUIDS) -> list[dict[str, t.Any]]:
    order = {"devices": devices, "checks": list(checks), "mib": 1, "copies": 2, "passes": 1, "seed": 7}
    environment = {**os.environ, "LD_LIBRARY_PATH": str(hip), "HIP_ON_CPU": plan}
    command, source = [sys.executable, "-", json.dumps(order)], gpu_memory.SOURCES["amd"]
    done = subprocess.run(command, input=source, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_checks_end_with_a_result_of_each_gpu(hip: pathlib.Path) -> None:
    records = run(hip)
    assert [r for r in records if r["kind"] in ("fault", "wrong")] == []
    assert records[0]["kind"] == "ready" and records[0]["driver"] == "7.2" and records[-1]["kind"] == "end"
    for check in CHECKS:
        results = [r for r in records if r["kind"] == "result" and r["check"] == check]
        assert {r["device"] for r in results} == {0, 1}, check
    tested = [r for r in records if r["kind"] == "result" and r["check"] == "pattern"]
    assert all(r["planted"] > 0 and r["bytes"] > 0.2 * (96 << 20) for r in tested)


def test_a_bit_that_does_not_hold_its_value_is_found_on_its_gpu(hip: pathlib.Path) -> None:
    wrong = [r for r in run(hip, "bit", ["pattern"]) if r["kind"] == "wrong"]
    assert {r["device"] for r in wrong} == {1} and int(wrong[0]["expected"], 16) ^ int(wrong[0]["found"], 16) == 4


@pytest.mark.parametrize(
    ("plan", "devices", "code", "words"),
    [("no_code", UUIDS, "cuda_failed", "error: no such arch"), ("", ["GPU-77"], "gpu_invisible", "HIP does not see GPU-77")],
)
def test_what_keeps_the_workload_from_starting_is_named(
    hip: pathlib.Path, plan: str, devices: list[str], code: str, words: str
) -> None:
    fault = run(hip, plan, ["h2d"], devices)[0]
    assert (fault["kind"], fault["code"]) == ("fault", code) and words in fault["reason"]


def test_a_machine_without_the_library_says_so(tmp_path: pathlib.Path) -> None:
    fault = run(tmp_path, "", ["h2d"])[0]
    assert fault["code"] == "cuda_failed" and "libamdhip64" in fault["reason"]


@pytest.mark.parametrize("kind", memory_kernels.KINDS)
def test_patterns_are_those_of_the_other_language(hip: pathlib.Path, kind: str) -> None:
    kernels, number = ctypes.CDLL(str(hip / "libamdhip64.so")), memory_kernels.KINDS.index(kind)
    words = (ctypes.c_uint64 * 64)()
    of64 = ctypes.c_uint64
    for seed, mask in ((0, 0), (random.Random(3).getrandbits(64), memory_kernels.WORD)):
        kernels.fill(words, of64(64), of64(number), of64(seed), of64(mask))
        assert list(words) == [memory_kernels.word(kind, i, seed, mask) for i in range(64)]
        out = (ctypes.c_uint64 * (memory_kernels.OUT_BYTES // 8))()
        words[9] ^= 1 << 40
        kernels.check(words, of64(64), of64(number), of64(seed), of64(mask), out, of64(1))
        assert list(out[:4]) == [1, 72, memory_kernels.word(kind, 9, seed, mask), memory_kernels.word(kind, 9, seed, mask) ^ 1 << 40]
        assert out[memory_kernels.COMPARED] == 64
        assert words[8] == memory_kernels.word(kind, 8, seed, mask) ^ memory_kernels.WORD, "the inverse stands behind the comparison"


# Products ----------------------------------------------------------------------------------------------------------------------------


def topology(folder: pathlib.Path, *versions: int, parts: int = 1) -> str:
    """Plant the kernel's topology with GPUs of these graphics versions at the addresses of the rig, and return where it is."""
    for number, version in enumerate(versions):
        for part in range(parts):
            place = folder / f"nodes/{number * parts + part + 2}"
            place.mkdir(parents=True)
            where = (0xF5 + number << 8) + part
            rows = {"simd_count": 32, "simd_per_cu": 4, "gfx_target_version": version, "location_id": where, "domain": 0}
            (place / "properties").write_text("".join(f"{name} {value}\n" for name, value in rows.items()))
    (folder / "nodes/0").mkdir()
    (folder / "nodes/0/properties").write_text("cpu_cores_count 96\nsimd_count 0\n")
    return str(folder / "nodes")


def load(hip: pathlib.Path, nodes: str, plan: str = "", seconds: float = 0.5, devices: t.Sequence[str] = UUIDS) -> list[dict[str, t.Any]]:
    order = {"devices": devices, "seconds": seconds, "sample_seconds": 1, "mib": 1, "memory_percent": 5, "seed": 7}
    environment = {**os.environ, "LD_LIBRARY_PATH": str(hip), "HIP_ON_CPU": plan}
    source = soak.SOURCES["amd"].replace(hip_driver.TOPOLOGY, nodes).replace("LAP_S = 1.0", "LAP_S = 0.05")
    source = source.replace(hip_driver.DEVICES, f"{nodes}/../devices")
    command = [sys.executable, "-", json.dumps(order)]
    done = subprocess.run(command, input=source, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_two_gpus_are_loaded_and_compute_the_same(hip: pathlib.Path, tmp_path: pathlib.Path) -> None:
    records = load(hip, topology(tmp_path, 90402, 90402))
    assert [r for r in records if r["kind"] in ("fault", "wrong")] == [] and records[-1]["kind"] == "end"
    first, second = (r for r in records if r["kind"] == "result")
    assert first["fingerprint"] == second["fingerprint"] != "0x0000000000000000" and min(first["laps"], second["laps"]) > 2
    samples = [r for r in records if r["kind"] == "sample"]
    assert {r["device"] for r in samples} == {0, 1}
    assert all(r[rate] > 0 for r in samples for rate in ("tflops", "memory", "h2d", "d2h", "peer"))


def test_parts_of_a_gpu_are_loaded_by_the_number_of_the_gpu(hip: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "devices/0000:f5:00.0").mkdir(parents=True)
    (tmp_path / "devices/0000:f5:00.0/unique_id").write_text("abcdef01\n")
    (tmp_path / "devices/0000:f5:00.0/pcie_replay_count").write_text("3\n")
    devices = ["GPU-00000000abcdef01-p0", "GPU-00000000abcdef01-p1"]
    records = load(hip, topology(tmp_path, 90402, parts=8), "parts", devices=devices)
    assert [r for r in records if r["kind"] in ("fault", "wrong")] == []
    assert len({r["fingerprint"] for r in records if r["kind"] == "result"}) == 1
    assert all(r["sensors"] == {"replays": 3} for r in records if r["kind"] == "sample"), "of the whole GPU"


def test_one_wrong_product_of_one_compute_unit_is_found(hip: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (wrong,) = (r for r in load(hip, topology(tmp_path, 90402, 90402), "product") if r["kind"] == "wrong")
    assert (wrong["device"], wrong["load"]) == (1, "compute") and "products of multiprocessor 5: " in wrong["reason"]


def test_a_gpu_that_computes_something_else_in_every_lap_has_another_fingerprint(hip: pathlib.Path, tmp_path: pathlib.Path) -> None:
    records = load(hip, topology(tmp_path, 90402, 90402), "products")
    assert [r for r in records if r["kind"] == "wrong"] == []
    assert len({r["fingerprint"] for r in records if r["kind"] == "result"}) == 2


@pytest.mark.parametrize(
    ("version", "words"),
    [(90008, "has the graphics version 90008, the products need one of 90010 to 99999"), (120500, "120500"), (0, "has no architecture")],
)
def test_a_gpu_without_such_matrix_cores_is_not_supported(hip: pathlib.Path, tmp_path: pathlib.Path, version: int, words: str) -> None:
    (fault,) = (r for r in load(hip, topology(tmp_path, version, version)) if r["kind"] == "fault")
    assert fault["code"] == "unsupported" and words in fault["reason"]


def test_the_parts_of_a_gpu_have_the_compute_units_of_a_part(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hip_driver, "TOPOLOGY", topology(tmp_path, 90402, 90402, parts=8))
    assert hip_driver.topology("0000:f5:00.3")["location_id"] == 0xF503
    assert hip_driver.topology("0000:f6:00.0")["simd_count"] == 32 and hip_driver.topology("0000:f7:00.0") == {}


@pytest.mark.parametrize(
    ("version", "name", "registers", "flop"),
    [
        (90010, "mfma_f32_16x16x16bf16_1k", 2, 64 * 8192), (90402, "mfma_f32_16x16x16bf16_1k", 2, 64 * 8192),
        (90500, "mfma_f32_16x16x32_bf16", 4, 64 * 16384),
    ],
)  # fmt: skip
def test_each_gpu_multiplies_by_what_its_matrix_cores_have(version: int, name: str, registers: int, flop: int) -> None:
    text = hip_products.load_module(version)
    assert f"#define MFMA __builtin_amdgcn_{name}\n" in text and f"#define REGISTERS {registers}\n" in text
    assert hip_products.flop(version) == flop, "4 waves, 16 instructions each"


def test_a_gpu_that_is_too_old_for_products_has_the_other_kernels() -> None:
    text = hip_products.load_module(90008)
    assert "KERNEL check(" in text and "multiply" not in text


def test_every_step_and_every_thread_counts_in_the_checksum(hip: pathlib.Path) -> None:
    kernels, of64 = ctypes.CDLL(str(hip / "libamdhip64.so")), ctypes.c_uint64
    seen = set()
    for steps, seed in ((1, 7), (2, 7), (3, 7), (3, 8)):
        out = (of64 * 2)()
        kernels.multiply(of64(steps), of64(seed), out)
        again = (of64 * 2)()
        kernels.multiply(of64(steps), of64(seed), again)
        assert list(out) == list(again)
        seen.add(out[0])
    assert len(seen) == 4 and 0 not in seen
