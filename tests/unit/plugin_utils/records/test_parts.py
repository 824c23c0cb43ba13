# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the parts of nodes are, in a technician's words."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import parts

GPU = {
    "uuid": "GPU-1", "index": 7, "serial": "165", "bdf": "00000000:4B:00.0", "name": "NVIDIA H100", "board_part_number": "692-2G520",
    "place": {"chassis": None, "tray": None, "slot": None, "module": "6"},
}  # fmt: skip
NIC = {"device": "mlx5_2", "serial_number": "MT23", "pci": "0000:02:00.0", "type": "MT4129", "part_number": "MCX755"}
NAMELESS = {**GPU, "uuid": "GPU-2", "index": 0, "bdf": "0000:17:00.0", "serial": None, "board_part_number": None, "place": None}
DIMMS = [
    {"slot": "P1-DIMMB1", "bank": "P1 CHANNEL B", "mib": 65536, "serial": "35A1B205"},
    {"slot": "P1-DIMMB10", "bank": "", "mib": 0, "serial": ""},
]
CONTEXTS = [
    {"gpu_table": [GPU, NAMELESS]},
    {"devices": [NIC], "ports": [{"device": "mlx5_2", "switch": "leaf-03", "switch_port": "Ethernet1/7"}]},
    {"modules": [
        {"port": "mlx5_2/1", "vendor": "Maker", "part_number": "MMA4Z00", "serial": "MT2345", "values": {}},
        {"port": "mlx5_2/11", "vendor": "Maker", "part_number": "MMA4Z00", "serial": "MT2399", "values": {}},
    ]},
    {"modules": {"rdma_cm": True}},
    {"links": [{"device": "0000:4b:00.0", "slot": "5"}]},
    {"dimms": DIMMS, "system": {"serial": "S-77", "uuid": ""}},
    {"facts": {"machine_vendor": "Example", "machine_product": "GPU-8X", "dimms": ["P1-DIMMB1: 64 GiB"]}},
]
MODULE = "optical module or cable · mlx5_2/1 · serial number MT2345 · part number MMA4Z00 · Maker"
NIC_WORDS = (
    "mlx5_2 · PCIe 0000:02:00.0 · serial number MT23 · board part number MCX755 · cable to leaf-03 Ethernet1/7 · MT4129 · "
    "not known: slot or tray"
)
MACHINE = "machine · serial number S-77 · Example GPU-8X"


def seen(*contexts: t.Any) -> parts.Parts:
    return parts.of_records({"subject": {"id": node}, "context": context} for node in ("a", "b") for context in contexts).parts


@pytest.mark.parametrize(
    ("subject", "text", "lines"),
    [
        ("a/gpu/GPU-1", "", [
            "GPU 7 · slot 5 module 6 · PCIe 00000000:4B:00.0 · serial number 165 · board part number 692-2G520 · NVIDIA H100 · UUID GPU-1",
            MACHINE,
        ]),
        ("a", "GPU 0: its link is x8", [
            "GPU 0 · PCIe 0000:17:00.0 · NVIDIA H100 · not known: slot or tray, serial number, board part number · UUID GPU-2", MACHINE,
        ]),
        ("a", "P1-DIMMB1 (mc1 dimm1): 1 uncorrectable memory error", [
            "memory module · P1-DIMMB1 (P1 CHANNEL B) · serial number 35A1B205 · 64 GiB", MACHINE,
        ]),
        ("a", 'dimms is ["P1-DIMMB10: empty"]', ["memory module · P1-DIMMB10 · empty", MACHINE]),
        ("a", "GPU 70 and mlx5_21 are other parts", [MACHINE]),
        ("a/nic/mlx5_2/1|b/nic/mlx5_2/1", "", [
            f"{node} {words}" for node in ("a", "b") for words in (
                NIC_WORDS, MODULE, MACHINE,
            )
        ]),
        ("b", "mlx5_2 port 1: module Maker MMA4Z00 MT2345 raises rx power low alarm", [NIC_WORDS, MODULE, MACHINE]),
        ("b", "b mlx5_2/1 has no link", [NIC_WORDS, MODULE, MACHINE]),
        ("a/gpu/GPU-9", "", [
            "GPU · not known: index, slot or tray, PCIe, serial number, board part number (no check of this run listed the parts of a) · "
            "UUID GPU-9", MACHINE,
        ]),
        ("c", "GPU 7: too hot", []),
    ],
)  # fmt: skip
def test_a_finding_names_its_parts_as_a_technician_finds_them(subject: str, text: str, lines: list[str]) -> None:
    assert parts.places(seen(*CONTEXTS), subject, [text]) == lines


def test_a_gpu_is_called_by_its_index() -> None:
    known = seen(*CONTEXTS)
    assert [parts.name(known, subject) for subject in ("a/gpu/GPU-1", "a/gpu/GPU-9", "a", "a/nic/mlx5_2/1")] == ["a GPU 7", "", "", ""]


def test_nothing_that_a_node_made_up_ends_the_report() -> None:
    tables = [{"gpu_table": [1]}, {"dimms": {"slot": 1}}, {"links": [3]}, {"devices": "x"}]
    made_up: list[t.Any] = [*tables, {"facts": [1], "system": "x"}, None]
    assert parts.of_records({"subject": {"id": "a"}, "context": context} for context in made_up).parts == {}
