# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One GPU of a node is held against the others of its model in everything that all of them tell: recorded output of nvidia-smi of four
GPUs, with one cell of one GPU changed."""

from __future__ import annotations

import pathlib
import typing as t
from xml.etree import ElementTree

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvidia_smi

RECORDED = (pathlib.Path(__file__).resolve().parents[3] / "fixtures/h200-x4/nvidia-smi-q.xml").read_text()
CLIQUE, CLUSTER = "fabric/cliqueId", "fabric/clusterUuid"
DOMAIN = "0d1f3c52-9d1b-4a7e-8c35-0a4d9d1b4a7e"
# The cells behind nvidia.TOLD.
NUMBERS = (
    "temperature/gpu_temp", "gpu_power_readings/current_power_limit", "gpu_power_readings/default_power_limit", "clocks/sm_clock",
    "clocks/mem_clock", "max_clocks/sm_clock", "fb_memory_usage/total", "pci/replay_counter",
    "pci/pci_gpu_link_info/link_widths/current_link_width", "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
)  # fmt: skip


def changed(cells: dict[str, str | None], of: t.Sequence[int] = (1,)) -> dict[str, t.Any]:
    """The recorded snapshot with other cells of some GPUs; None takes a cell away."""
    root = ElementTree.fromstring(RECORDED[RECORDED.index("<nvidia_smi_log") :])
    for number in of:
        gpu = root.findall("gpu")[number]
        for path, text in cells.items():
            parent, _slash, _name = path.rpartition("/")
            leaf = gpu.find(path)
            assert leaf is not None, path
            if text is None:
                (gpu.find(parent) if parent else gpu).remove(leaf)  # type: ignore[union-attr]
            leaf.text = text
    return nvidia_smi.parse_xml(ElementTree.tostring(root, encoding="unicode"))


def codes(cells: dict[str, str | None], of: t.Sequence[int] = (1,)) -> list[str]:
    """The codes of what is wrong with the second GPU."""
    gpus = changed(cells, of)["gpus"]
    problems = [*nvidia.health(gpus[1]), *nvidia.siblings(gpus, 3.0).get(gpus[1]["uuid"], [])]
    return [code for code, _words in problems]


def test_the_recorded_gpus_are_well() -> None:
    assert changed({})["outcome"] == "measured" and codes({}) == []


@pytest.mark.parametrize("text", ["N/A", "[Unknown Error]", "ERR!", "", "-1", None])
@pytest.mark.parametrize("path", NUMBERS)
def test_a_number_that_one_gpu_does_not_tell_and_the_others_do_is_unknown(path: str, text: str | None) -> None:
    if path == "temperature/gpu_temp" and text == "-1":
        return  # degrees may be negative
    found = codes({path: text})
    assert "gpu_state" in found or "gpu_lost" in found or "power_limit" in found, found


@pytest.mark.parametrize("path", NUMBERS[1:6])
def test_what_no_gpu_tells_is_no_difference(path: str) -> None:
    assert "gpu_state" not in codes({path: "N/A"}, of=(0, 1, 2, 3))


@pytest.mark.parametrize("cells", [{CLIQUE: "7"}, {CLUSTER: DOMAIN}, {CLIQUE: "7", CLUSTER: DOMAIN}, {CLIQUE: "N/A", CLUSTER: DOMAIN}])
def test_a_gpu_in_another_domain_or_partition_than_the_others_is_a_fault(cells: dict[str, str | None]) -> None:
    assert codes(cells) == ["fabric"]
    assert codes(cells, of=(0, 2, 3)) == ["fabric"]
    assert codes(cells, of=(0, 1, 2, 3)) == []


def test_two_halves_of_a_node_in_two_partitions_are_both_named() -> None:
    gpus = changed({CLIQUE: "7"}, of=(0, 1))["gpus"]
    assert all([code for code, _words in problems] == ["fabric"] for problems in nvidia.siblings(gpus, 3.0).values())
    assert len(nvidia.siblings(gpus, 3.0)) == 4


@pytest.mark.parametrize("path", ["uuid", "pci/pci_bus_id"])
def test_a_gpu_that_is_listed_twice_is_refused(path: str) -> None:
    root = ElementTree.fromstring(RECORDED[RECORDED.index("<nvidia_smi_log") :])
    twice = changed({path: root.findall("gpu")[0].findtext(path)})
    assert (twice["outcome"], twice["reason_code"]) == ("error", "duplicate_identity")


def test_a_lower_highest_clock_than_that_of_the_others_is_worth_a_look() -> None:
    assert codes({"max_clocks/sm_clock": "1200 MHz"}) == ["clocks_locked"]
    assert codes({"max_clocks/sm_clock": "1200 MHz"}, of=(0, 1, 2, 3)) == []


@pytest.mark.parametrize(("banks", "found"), [("1 bank(s)", ["ecc_past"]), ("640 bank(s)", ["ecc_past"]), ("0 bank(s)", []), ("N/A", [])])
def test_banks_of_memory_without_a_spare_row_are_worth_a_look(banks: str, found: list[str]) -> None:
    assert codes({"remapped_rows/row_remapper_histogram/row_remapper_histogram_none": banks}) == found
