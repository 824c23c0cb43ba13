# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: nvidia-smi XML, cells of queries, NVLink."""

from __future__ import annotations

import pathlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvidia_smi
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "h200-x4"
XML = (FIXTURES / "nvidia-smi-q.xml").read_text()
# One GPU of four: what takes long in a large text is the same in a small one.
ONE = XML[: XML.index("</gpu>") + 6].replace("<attached_gpus>4", "<attached_gpus>1") + "\n</nvidia_smi_log>\n"
SEEDS = [ONE] + [
    (FIXTURES / name).read_text() for name in ("nvidia-smi-query.csv", "query2.csv", "nvidia-smi-nvlink-e.txt", "nvidia-smi-nvlink-s.txt")
]


def check(text: str, healthy: str) -> None:
    """Never an exception; GPUs that are called measured have a name and a UUID, and their health can be read."""
    counters = nvidia_smi.parse_nvlink_errors(text)
    nvidia.link_problems([{"uuid": uuid, "name": "X"} for uuid in counters], counters, 1.0)
    nvidia_smi.parse_nvlink_status(text)
    for cell in text.split(","):
        nvidia_smi.csv_cell(cell)
    if healthy is not ONE:
        return
    found = nvidia_smi.parse_xml(text)
    if found["outcome"] == "measured":
        assert found["gpus"] and all(g["uuid"] and g["name"] for g in found["gpus"])
        for g in found["gpus"]:
            nvidia.health(g)
            nvidia.host_link(g)
        nvidia.siblings(found["gpus"], 1.0)
        gpu.foreign_processes(found)
    else:
        assert found["reason_code"] and found["reason"]
