# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fuzz target: the table of npu-smi, its lines of names and values, hccn_tool; and what ranks of hccl_test say of themselves."""

from __future__ import annotations

import pathlib
import subprocess
import tempfile

from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import launching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import npu_smi

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "rigs/simulated/tools"
ASKED = (
    ("npu-smi", "info"), ("npu-smi", "info", "-l"), ("npu-smi", "info", "-t", "board", "-i", "0", "-c", "0"),
    ("npu-smi", "info", "-t", "ecc", "-i", "0"), ("npu-smi", "info", "-t", "health", "-i", "1"), ("hccn_tool", "-i", "0", "-link", "-g"),
    ("hccn_tool", "-i", "0", "-stat", "-g"), ("hccn_tool", "-i", "0", "-link_stat", "-g"),
)  # fmt: skip


def _said() -> list[str]:
    """Return the output of the simulated tools for each shape of the table."""
    found = []
    for layout in ("910b", "a3", "950"):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "bin").symlink_to(TOOLS)
            conf = f'NAME="Ascend 910B3" GPUS=2 MEMORY=65536 DRIVER=25.5.1 VBIOS=7.8 FAULTS="npu_alarm busy" LAYOUT={layout}\n'
            (pathlib.Path(folder) / "node.conf").write_text(conf)
            for tool, *words in ASKED:
                argv = [f"{folder}/bin/{tool}", *words]
                found.append(subprocess.run(argv, capture_output=True, text=True, check=False).stdout)
    return [text for text in found if text]


SEEDS = [*_said(), "sh: 1: x: not found\ngpufleet: rank 3 on npu-02.example.com ended with status 127.\n"]


def check(text: str, healthy: str) -> None:
    """Never an exception; a chip of a measured table has its place, its name and its memory."""
    found = npu_smi.parse_info(text)
    if found["outcome"] == "measured":
        assert found["chips"] and all(c["name"] and c["health"] is not None and c["memory_total_mib"] >= 0 for c in found["chips"])
    else:
        assert found["reason_code"] and found["reason"]
    for read in (
        npu_smi.parse_pairs, npu_smi.parse_ecc, npu_smi.parse_list, npu_smi.parse_identity, npu_smi.parse_alarms, npu_smi.parse_link,
        npu_smi.parse_speed, npu_smi.parse_net_health, npu_smi.parse_stat,
    ):  # fmt: skip
        read(text)
    for line in text.splitlines():
        npu_smi.parse_watch(line)
    for end in launching.ends(text)[0]:
        assert 0 <= end.status <= 999
