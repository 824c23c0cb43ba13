# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workload of gpu_memory over HIP: the calls by ctypes and the kernels' own text, on a HIP that runs them on the processor. No AMD GPU
was there; that hiprtc takes the text for one is not tested."""

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
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import hip_driver, memory_kernels

RIG = pathlib.Path(__file__).resolve().parents[3] / "rigs/hip/hip_on_cpu.c"
UUIDS = ["GPU-0000000007000001", "GPU-0000000007000002"]
CHECKS = ["h2d", "d2h", "bidirectional", "device", "peer", "latency", "pattern"]


@pytest.fixture(scope="module")
def hip(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Build the libraries; return their folder."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("hip")
    (folder / "kernels.h").write_text(hip_driver.source())
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


def test_soak_needs_kernels_of_products_and_leaves_the_kind_out() -> None:
    assert "amd" in gpu_memory.KINDS and "amd" not in soak.KINDS
