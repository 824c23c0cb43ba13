# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of what is expected of which hardware is that of the shipped tables, and sweeps reach what they expect."""

from __future__ import annotations

import pathlib
import re
import sys

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import matching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import shipped

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "tests" / "tools"))

import hardware_table

# MiB that nvidia-smi shows of GPUs whose names do not tell it, and the share that it shows of those that do (ECC takes the rest).
MEMORY_MIB = {"Tesla T4": 15360, "NVIDIA L40S": 46068}
SHOWN = 0.985


def test_the_page_is_that_of_the_tables() -> None:
    assert hardware_table.PAGE.read_text(encoding="utf-8") == hardware_table.text(), "python tests/tools/hardware_table.py"


def test_every_entry_is_on_the_page() -> None:
    page = hardware_table.PAGE.read_text(encoding="utf-8")
    for entry in shipped().entries:
        assert hardware_table.row(entry) in page, entry.id


def test_what_is_not_covered_is_not_in_the_tables_either() -> None:
    of_compute = {
        name for entry in shipped().entries if entry.match["stage"] != "gpu_memory"
        for name in hardware_table.several(entry.match.get("gpu"))
    }  # fmt: skip
    assert not {name for name in of_compute if "GH200" in name or "H200 NVL" in name}


def test_the_default_sweep_reaches_a_size_of_every_gpu() -> None:
    """A sweep ends at a quarter of the memory: one of 16 GB never reaches the plateau."""
    sizes: dict[str, list[object]] = {}
    for entry in shipped().entries:
        for name in hardware_table.several(entry.match.get("gpu")) if entry.match["stage"] == "nccl_node" else ():
            sizes.setdefault(name, []).extend(entry.sizes)
    for name, known in sizes.items():
        told = re.search(r"(\d+)GB", name)
        mib = MEMORY_MIB.get(name) or (int(int(told.group(1)) * 1024 * SHOWN) if told else 80000)
        largest = nccl.largest_that_fits([{"memory_total_mib": mib}])
        swept = [1 << power for power in range(23, 35) if 1 << power <= largest]
        assert any(matching.row_of(size, swept) == largest for size in known if size), (name, largest)
        assert any(matching.row_of(size, [1 << 30]) for size in known if size), f"{name}: a quick test ends at 1 GiB"
