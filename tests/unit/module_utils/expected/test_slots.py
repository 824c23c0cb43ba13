# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many NICs of a node its GPUs can use."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import matching, slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import physics

H100, L40S = "NVIDIA H100 80GB HBM3", "NVIDIA L40S"


@pytest.mark.parametrize(
    ("gpu", "gpus", "nics", "gbps", "usable"),
    [
        (H100, 8, 8, 400, (8, 8)),
        (H100, 1, 8, 400, (1, 1)),
        (H100, 4, 8, 400, (4, 4)),
        (H100, 8, 10, 400, (8, 8)),  # two of storage beside
        (H100, 8, 4, 200, (4, 4)),
        (H100, 4, 4, 400, (2, 4)),  # a board of four, or half of a board of eight whose GPUs share NICs
        ("NVIDIA H200", 8, 16, 200, (8, 16)),
        ("NVIDIA H200", 8, 8, 800, (0, 0)),  # a slot of PCIe 5 does not carry 800 Gb/s
        ("NVIDIA B300 SXM6 AC", 8, 8, 800, (8, 8)),
        ("NVIDIA A100-SXM4-80GB", 8, 8, 200, (8, 8)),
        ("NVIDIA A800-SXM4-80GB", 8, 8, 200, (0, 8)),  # its NVLinks carry no more than these NICs
        ("NVIDIA H20", 8, 8, 400, (0, 8)),
        (L40S, 8, 4, 200, (0, 1)),
        ("Tesla T4", 4, 1, 100, (0, 1)),
        ("NVIDIA H100 PCIe", 8, 8, 400, (0, 1)),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 8, 4, 400, (0, 1)),
        ("NVIDIA A1 Imaginary", 8, 8, 400, (0, 8)),
        ("NVIDIA H200 NVL", 8, 4, 400, (0, 1)),
    ],
)
def test_nics_that_the_gpus_can_use(gpu: str, gpus: int, nics: int, gbps: int, usable: tuple[int, int]) -> None:
    assert slots.usable({"gpu": gpu, "gpus": gpus, "nics": nics, "nic_gbps": gbps, "link_layer": "InfiniBand"}) == usable


@pytest.mark.parametrize("context", [{}, {"nics": 0, "nic_gbps": 400}, {"nics": 8, "nic_gbps": None}, {"nics": 8, "nic_gbps": 1e400}])
def test_without_nics_there_is_nothing_to_use(context: dict[str, t.Any]) -> None:
    assert slots.usable({"gpu": H100, "gpus": 8, **context}) is None


def test_where_nvlink_leaves_the_node_or_the_wire_is_none_nothing_is_certain() -> None:
    context = {"gpu": H100, "gpus": 8, "nics": 8, "nic_gbps": 400}
    assert slots.usable({**context, "mnnvl": True}) is None
    assert slots.usable({**context, "link_layer": "Unspecified"}) == (0, 8)


def test_an_entry_that_names_gpus_is_about_the_machine_as_it_is() -> None:
    found = {"gpu": L40S, "gpus": 8, "nics": 4, "nic_gbps": 200}
    assert matching.mismatch({"gpu": L40S, "nics": 4}, matching.seen_by({"gpu": L40S, "nics": 4}, found)) is None
    assert matching.seen_by({"nics": 4}, found)["nics"] == 1
    assert matching.seen_by({"nics": 4}, found, certain=True)["nics"] == 0


def test_the_lint_and_the_floors_know_the_same_slots() -> None:
    for name in ("Tesla V100-SXM2-32GB", "Tesla T4", "NVIDIA A100-SXM4-80GB", "NVIDIA A800-SXM4-80GB", "NVIDIA H100 PCIe", H100, L40S,
                 "NVIDIA H800", "NVIDIA H20", "NVIDIA H200", "NVIDIA B200", "NVIDIA B300 SXM6 AC", "AMD Instinct MI300X"):  # fmt: skip
        slot, spec = slots.of(name), physics.gpu(name)
        assert slot is not None and spec is not None
        # B200 is able to Gen 6, its boards are Gen 5: a limit is the highest, a floor what there is for certain.
        assert slot.lanes == spec.pcie[1] and slot.generation <= spec.pcie[0]
        assert not slot.linked or slot.links == spec.links * spec.link_rate


def test_ports_of_storage_stand_beside() -> None:
    ports = [{"device": f"mlx5_{n}", "rate_gbps": 400.0, "near": [n]} for n in range(8)]
    storage = [{"device": f"mlx5_{n}", "rate_gbps": 200.0, "near": []} for n in (8, 9)]
    assert group.of_gpus([*ports, *storage], 8) == ports
    assert group.of_gpus([*ports, {**storage[0], "rate_gbps": 400.0}], 8) == ports
    alike = [{**port, "near": [0] if port["device"] == "mlx5_0" else []} for port in ports]
    assert group.of_gpus(alike, 8) == alike, "as many as GPUs, all of one rate: the floor stays that of all"
    unknown = [{**port, "near": []} for port in [*ports, *storage]]
    assert group.of_gpus(unknown, 8) == unknown
