# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bandwidth of host memory: the measurement itself on this machine, in small, and how it refuses."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import bandwidth
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import MachineTree


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(bandwidth, "SIZE", 1 << 20)
    monkeypatch.setattr(bandwidth, "ROUND_S", 0.01)
    monkeypatch.setenv("PATH", f"{tmp_path}/root/bin:/usr/bin:/bin")
    made = MachineTree(tmp_path / "root")
    made.write("sys/devices/system/node/node0/cpulist", "0-1023\n")
    return made


def ask(machine: MachineTree) -> dict[str, t.Any]:
    return bandwidth.measure(Tree(Node(60, root=str(machine.root))), "")


def test_a_node_is_measured_with_all_of_its_cores_and_with_one(machine: MachineTree) -> None:
    machine.path("sys/devices/system/node/node1/meminfo").unlink()  # no memory there
    before = os.sched_getaffinity(0)
    found = ask(machine)
    (row,) = found["series"]
    assert found["outcome"] == "measured" and row["cores"] == len(os.sched_getaffinity(0)) and row["node"] == 0
    assert found["metrics"]["bandwidth"] == {"value": row["bandwidth"], "unit": "GB/s"} and row["one_core"] > 0
    assert found["context"]["cpu"] == "Example CPU" and found["context"]["comparable"]
    assert found["evidence"]["unreadable"] == ["latency"] and os.sched_getaffinity(0) == before


def test_memory_errors_that_are_counted_meanwhile_are_evidence(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.path("sys/devices/system/node/node1/meminfo").unlink()
    machine.edac(1, corrected=5)

    def together(*_arguments: t.Any) -> float:
        machine.edac(1, corrected=7)
        machine.edac(6, uncorrected=1)
        return 1e11

    monkeypatch.setattr(bandwidth, "together", together)
    changes = ask(machine)["evidence"]["changes"]
    assert [(one["code"], one["before"], one["after"]) for one in changes] == [("host_memory_corrected", 5, 7), ("host_memory", 0, 1)]
    assert changes[1]["text"] == "P1-DIMMC1 (mc1 dimm2 channel 2 slot 0): its uncorrectable memory errors rose from 0 to 1"


def test_processors_of_one_core_count_once(machine: MachineTree) -> None:
    for cpu in os.sched_getaffinity(0):
        machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", "0-1023\n")
    assert bandwidth.cores(Tree(Node(60, root=str(machine.root))), range(1024)) == [min(os.sched_getaffinity(0))]


def test_a_node_whose_processors_are_not_ours_is_named(machine: MachineTree) -> None:
    machine.write("sys/devices/system/node/node1/cpulist", "5000-5001\n")
    found = ask(machine)
    assert found["outcome"] == "measured" and "NUMA nodes 1" in found["context"]["not_looked_for"]["numa"]
    machine.write("sys/devices/system/node/node0/cpulist", "6000\n")
    assert ask(machine)["reason_code"] == "no_permission"


def test_too_little_memory_is_said_before_it_is_taken(machine: MachineTree) -> None:
    machine.write("proc/meminfo", "MemTotal: 999 kB\nMemAvailable: 1024 kB\n")
    assert ask(machine)["reason_code"] == "out_of_memory"


def test_a_virtual_machine_is_compared_with_nobody(machine: MachineTree) -> None:
    machine.write("proc/cpuinfo", "flags : hypervisor\n")
    assert ask(machine)["context"]["comparable"] is False


def test_latency_by_a_tool(machine: MachineTree) -> None:
    machine.tool("lat_mem_rd", "echo '\"stride=64' >&2; echo 0.00049 1.3 >&2; echo 64.00000 158.2 >&2")
    assert ask(machine)["metrics"]["latency"] == {"value": pytest.approx(0.1582), "unit": "us"}
    machine.tool("mlc", "echo 'Each iteration took 245.2 base frequency clocks (     89.5   ns)'")
    assert ask(machine)["metrics"]["latency"]["value"] == pytest.approx(0.0895)


def test_a_processor_that_cannot_take_part_ends_the_others(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: t.Any) -> t.Any:
        raise OSError("no memory")

    monkeypatch.setattr(bandwidth.host_memory, "Buffer", full)
    found = ask(machine)
    assert found["reason_code"] == "tool_failed" and "no memory" in found["reason"]
