# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The libcuda of tests/drills/gpu.py: it builds, leaves what it does not plant to the driver, and plants what it is told."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from drills import gpu as drill
from rigs import gpu_faults

pytestmark = pytest.mark.skipif(gpu_faults.compiler() is None, reason="no C compiler")

DRIVER = """
#include <stddef.h>
int cuInit(unsigned flags) { return flags == 7 ? 0 : 1; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { *free_bytes = 600; *total = 800; return 0; }
"""
PROGRAM = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(7) == 0
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
print(free.value, total.value)
"""


def test_it_builds_and_leaves_the_rest_to_the_driver(tmp_path: pathlib.Path) -> None:
    cc = gpu_faults.compiler()
    assert cc
    (tmp_path / "driver.c").write_text(DRIVER)
    driver = tmp_path / "libcuda.so.580"
    subprocess.run([cc, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(driver), str(tmp_path / "driver.c")], check=True)
    environment = gpu_faults.build(tmp_path / "between", str(driver))
    for fault, shown in (("none", "600 800"), ("half", "300 800"), ("less", "300 400")):
        env = {**os.environ, **environment, "GPU_FAULT": fault}
        ran = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == shown


def test_every_fault_of_the_drill_is_known_to_the_library() -> None:
    source = gpu_faults.SOURCE.read_text()
    for fault in drill.FAULTS:
        assert f'is("{fault.name}")' in source or fault.name.startswith("no_") or fault.name in drill.OF_THE_MACHINE, fault


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if drill.gpus():
        pytest.skip("there is a GPU")
    assert drill.main([]) == 0
    assert capsys.readouterr().out.startswith("skipped: ")
