# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated GPUs reach what the collection expects of their model: on the fleet of the demo nothing fails that nobody planted."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from rigs.simulated import nodes

CHECKS = {"h2d": "h2d", "d2h": "d2h", "bidirectional": "h2d", "device": "copy"}


@pytest.mark.parametrize("model", ["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GB200"])
def test_the_memory_of_a_simulated_gpu_passes(model: str, tmp_path: pathlib.Path) -> None:
    variables = nodes.local(tmp_path / "node", 1, model=model, gpus=2)
    asked = json.dumps({"devices": ["GPU-0", "GPU-1"], "checks": list(CHECKS)})
    memory = pathlib.Path(variables["acceptance_python"]).with_name("python3-memory")
    said = subprocess.run([memory, asked], capture_output=True, text=True, check=True, timeout=60).stdout
    results = [record for line in said.splitlines() if (record := json.loads(line))["kind"] == "result"]
    assert len(results) == 2 * len(CHECKS)
    # Between a Grace and its GPUs there is no PCIe.
    link = {} if "GB200" in model else {"pcie_gen": 5, "pcie_width": 16}
    for record in results:
        chosen = expectations.shipped().choose("gpu_memory", record["check"], {"gpu": model, **link})
        expected = [one.expectation.value for one in chosen if one.expectation.metric == "bandwidth"]
        assert expected and record[CHECKS[record["check"]]] >= 0.95 * max(expected), (model, record, expected)
