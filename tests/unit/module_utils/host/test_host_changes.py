# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to the machine beside its accelerators while a test runs."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import changes
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import DISK, GPU, NIC, ROOT_OF_NIC, MachineTree

PORT, NVME, NET = "sys/class/infiniband/mlx5_0/ports/1", "sys/class/nvme/nvme0", "sys/class/net/eth0"
Faults = t.Callable[[MachineTree], t.Any]


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> MachineTree:
    tree = MachineTree(tmp_path)
    tree.write(f"{PORT}/state", "4: ACTIVE\n")
    tree.write(f"{PORT}/counters/link_downed", "2\n")
    tree.write(f"{NVME}/state", "live\n")
    tree.write(f"{NET}/device/vendor", "0x15b3\n")
    tree.write(f"{NET}/carrier", "1\n")
    tree.write(f"{NET}/carrier_down_count", "1\n")
    tree.write("proc/meminfo", "MemTotal: 1048576 kB\nHardwareCorrupted: 0 kB\n")
    return tree


def over(machine: MachineTree, fault: Faults, seconds: float = 60.0, before_it: Faults | None = None) -> list[dict[str, t.Any]]:
    """The changes of a test of so many seconds during which `fault` happens, `before_it` ahead of it."""
    if before_it:
        before_it(machine)
    tree = Tree(Node(60, root=str(machine.root)))
    before = changes.read(tree)
    fault(machine)
    after = changes.read(tree)._replace(at=before.at + seconds)
    return changes.between(before, after)


def gone(path: str) -> Faults:
    def remove(machine: MachineTree) -> None:
        target = machine.path(path)
        shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink()

    return remove


GRAVE: dict[str, tuple[str, Faults]] = {
    "an uncorrectable memory error": ("host_memory", lambda m: m.edac(3, uncorrected=1)),
    "a page taken out of use": ("host_memory", lambda m: m.write("proc/meminfo", "HardwareCorrupted: 4 kB\n")),
    "a fatal error": ("pcie_error", lambda m: m.errors(ROOT_OF_NIC, fatal={"SDES": 1})),
    **{
        f"lost data by {name}": ("pcie_error", lambda m, name=name: m.errors(GPU, nonfatal={name: 1}))
        for name in ("CmpltTO", "ECRC", "TLP", "MalfTLP", "RxOF")
    },
    "40,000 corrected errors": ("pcie_unstable", lambda m: m.errors(NIC, correctable=40_000)),
    "a NIC that is gone": ("pcie_error", gone(f"sys/bus/pci/devices/{NIC}")),
    "a disk that is gone from the bus": ("pcie_error", gone(f"sys/bus/pci/devices/{DISK}")),
    "an NVMe disk without a controller": ("disk", gone(NVME)),
    "a dead NVMe disk": ("disk", lambda m: m.write(f"{NVME}/state", "dead\n")),
    "an NVMe disk without input and output": ("disk", lambda m: m.write(f"{NVME}/state", "deleting (no IO)\n")),
}  # fmt: skip
LOST_PORTS: dict[str, Faults] = {
    "its driver lets go of it": gone("sys/class/infiniband/mlx5_0"),
    "its device has it no more": gone(PORT),
    "it does not tell its state": gone(f"{PORT}/state"),
}
DOUBTFUL: dict[str, tuple[str, Faults]] = {
    "a port that is down": ("port_down", lambda m: m.write(f"{PORT}/state", "1: DOWN\n")),
    "a port that trains": ("port_down", lambda m: m.write(f"{PORT}/state", "2: INIT\n")),
    "an interface without a link": ("port_down", lambda m: m.write(f"{NET}/carrier", "0\n")),
}
MILD: dict[str, tuple[str, Faults]] = {
    "corrected memory errors": ("host_memory_corrected", lambda m: m.edac(1, corrected=4)),
    "refused requests": ("pcie_nonfatal", lambda m: m.errors(GPU, nonfatal={"UnsupReq": 2})),
    "200 corrected errors": ("pcie_corrected", lambda m: m.errors(NIC, correctable=200)),
    "a port that lost its link for a moment": ("link_errors", lambda m: m.write(f"{PORT}/counters/link_downed", "3\n")),
    "an interface that lost its link for a moment": ("link_errors", lambda m: m.write(f"{NET}/carrier_down_count", "2\n")),
}
NOTHING: dict[str, Faults] = {
    "nothing": lambda m: None,
    "a few corrected errors": lambda m: m.errors(NIC, correctable=20),
    "an interface that somebody switched off": gone(f"{NET}/carrier"),
    "an interface that went to a container": gone(NET),
    "a disk that is reset": lambda m: m.write(f"{NVME}/state", "resetting\n"),
    "counters that begin again": lambda m: m.write(f"{PORT}/counters/link_downed", "0\n"),
    "a port that is armed": lambda m: m.write(f"{PORT}/state", "3: ARMED\n"),
    "a virtual function that came": lambda m: m.write("sys/class/net/eth9/device/physfn/x", ""),
}


@pytest.mark.parametrize("what", GRAVE)
def test_a_defect_that_comes_up_during_a_test_has_its_code(machine: MachineTree, what: str) -> None:
    code, fault = GRAVE[what]
    assert {change["code"] for change in over(machine, fault)} == {code} and code in reasons.DEFECTS


@pytest.mark.parametrize("what", DOUBTFUL)
def test_a_link_that_is_gone_is_no_accepted_state(machine: MachineTree, what: str) -> None:
    code, fault = DOUBTFUL[what]
    assert [change["code"] for change in over(machine, fault)] == [code] and code in reasons.ERRORS


@pytest.mark.parametrize("what", MILD)
def test_a_change_that_is_worth_a_look(machine: MachineTree, what: str) -> None:
    code, fault = MILD[what]
    assert [change["code"] for change in over(machine, fault)] == [code] and code not in (*reasons.DEFECTS, *reasons.ERRORS)


@pytest.mark.parametrize("what", NOTHING)
def test_differences_that_are_no_defect_are_no_change(machine: MachineTree, what: str) -> None:
    assert over(machine, NOTHING[what]) == []


@pytest.mark.parametrize("group", [GRAVE, DOUBTFUL, MILD])
def test_what_was_there_before_is_no_change(machine: MachineTree, group: dict[str, tuple[str, Faults]]) -> None:
    for what, (_code, fault) in group.items():
        if "gone" not in what and "controller" not in what:
            fault(machine)
    tree = Tree(Node(60, root=str(machine.root)))
    assert changes.between(changes.read(tree), changes.read(tree)) == []


def test_what_comes_and_goes_with_volumes_and_addresses_is_no_part_of_the_machine(machine: MachineTree) -> None:
    assert over(machine, gone(NVME), before_it=lambda m: m.write(f"{NVME}/transport", "tcp\n")) == []
    machine.write(f"{NVME}/state", "live\n")
    virtual = lambda m: m.write("sys/class/dmi/id/sys_vendor", "QEMU\n")  # noqa: E731
    assert over(machine, gone(NVME), before_it=virtual) == over(machine, gone(f"sys/bus/pci/devices/{NIC}"), before_it=virtual) == []


@pytest.mark.parametrize("vendor", ["Example", "QEMU"])
@pytest.mark.parametrize("why", LOST_PORTS)
def test_an_rdma_port_with_a_link_that_is_gone(machine: MachineTree, why: str, vendor: str) -> None:
    machine.write("sys/class/dmi/id/sys_vendor", f"{vendor}\n")
    (change,) = over(machine, LOST_PORTS[why])
    assert change["code"] == "nic_fault" and "mlx5_0 port 1 is gone after the test" in change["text"]


def test_an_rdma_port_without_a_link_may_go(machine: MachineTree) -> None:
    assert over(machine, gone("sys/class/infiniband/mlx5_0"), before_it=lambda m: m.write(f"{PORT}/state", "1: DOWN\n")) == []


@pytest.mark.parametrize("owner", ["virtual function", "software"])
def test_rdma_ports_that_come_and_go_with_their_owner(machine: MachineTree, owner: str) -> None:
    folder = "sys/class/infiniband/mlx5_9"

    def plant(machine: MachineTree) -> None:
        if owner == "virtual function":
            machine.write(f"{folder}/device/physfn/x", "")
        else:
            machine.write("sys/devices/virtual/infiniband/rxe0/x", "")
            machine.path(folder).symlink_to(machine.path("sys/devices/virtual/infiniband/rxe0"))
        machine.write(f"{folder}/ports/1/state", "4: ACTIVE\n")

    assert over(machine, lambda m: m.path(folder).rename(m.path("taken")), before_it=plant) == []


def test_corrected_errors_by_rate(machine: MachineTree) -> None:
    assert [change["code"] for change in over(machine, lambda m: m.errors(NIC, correctable=400), 100.0)] == ["pcie_corrected"]
    machine.errors(NIC)
    assert [change["code"] for change in over(machine, lambda m: m.errors(NIC, correctable=400), 70.0)] == ["pcie_unstable"]
    for count, code in ((290, "pcie_corrected"), (310, "pcie_unstable")):
        machine.errors(NIC)
        assert [change["code"] for change in over(machine, lambda m, n=count: m.errors(NIC, correctable=n), 2.0)] == [code]
    machine.errors(NIC)
    assert over(machine, lambda m: m.errors(NIC, correctable=400), 5 * 86400.0) == [], "80 a day"


def test_a_machine_without_sys_and_proc_has_no_changes(tmp_path: pathlib.Path) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "proc").mkdir()
    tree = Tree(Node(60, root=str(tmp_path)))
    assert changes.between(changes.read(tree), changes.read(tree)) == []


def test_the_same_state_is_the_same_data(machine: MachineTree) -> None:
    tree = Tree(Node(60, root=str(machine.root)))
    counted = changes.counted(changes.read(tree))
    assert counted == changes.counted(changes.read(tree))
    for _code, fault in (DOUBTFUL["a port that is down"], *(fault for what, fault in GRAVE.items() if "40,000" not in what)):
        fault(machine)
        later = changes.counted(changes.read(tree))
        assert later != counted
        counted = later
