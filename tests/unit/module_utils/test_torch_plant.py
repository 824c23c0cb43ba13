# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A processor in the place of a GPU multiplies as one."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest
from rigs import pytorch

PLANT = pathlib.Path(__file__).resolve().parents[2] / "rigs/torch_plant"
# Without oneDNN, PyTorch multiplies as on a processor without AVX-512.
PROGRAM = """
import torch, torch.backends.mkldnn
with torch.backends.mkldnn.flags(enabled=False):
    torch.manual_seed(1)
    a, b = (torch.randn(256, 256).bfloat16() for _ in range(2))
    out = torch.empty(256, 256, dtype=torch.bfloat16)
    torch.matmul(a, b, out=out)
    assert torch.equal(out, torch.matmul(a, b))
    exact = a.double() @ b.double()
    print(((out.double() - exact).abs().max() / exact.abs().max()).item())
"""


@pytest.mark.skipif(not any(map(os.path.exists, pytorch.PACKAGES)), reason="Debian's PyTorch is not installed")
def test_products_of_bf16_are_added_in_single_precision_on_any_processor() -> None:
    environment = {**os.environ, "PYTHONPATH": str(PLANT), "GPUFLEET_TEST_SUMS": "single"}
    done = subprocess.run([pytorch.PYTHON, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and float(done.stdout) < 2.0**-8, done.stdout + done.stderr
