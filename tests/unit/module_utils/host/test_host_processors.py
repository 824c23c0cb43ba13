# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of processors that stand when the kernel's log has lost the lines."""

from __future__ import annotations

import os
import pathlib
import struct
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import processors
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import MachineTree

INTERRUPTS = """\
            CPU0       CPU1       CPU2       CPU3
   1:          0          9          0          0  IR-IO-APIC    1-edge      i8042
 THR:     812345          0          0          7   Threshold APIC interrupts
 DFR:          {deferred}          0          0          0   Deferred Error APIC interrupts
 MCE:          0          {exceptions}          0          0   Machine check exceptions
 MCP:       1729       1729       1729       1729   Machine check polls
 ERR:          0
"""


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return MachineTree(tmp_path / "root")


def ask(machine: MachineTree) -> dict[str, t.Any]:
    params = {"checks": [{"check": "kernel", "variant": ""}], "ras_days": 30.0}
    (found,) = host_health.probe(params, Node(60, root=str(machine.root)))
    return found


def codes(found: dict[str, t.Any]) -> list[str]:
    return [one["code"] for one in found["context"].get("findings", [])]


@pytest.mark.parametrize(
    ("exceptions", "deferred", "expected"),
    [
        ("0", "0", []), ("1", "0", ["machine_check"]), ("4294967", "0", ["machine_check"]), ("0", "3", ["hardware_corrected"]),
        ("2", "2", ["hardware_corrected", "machine_check"]),
    ],
)  # fmt: skip
def test_interrupts_that_tell_of_errors(machine: MachineTree, exceptions: str, deferred: str, expected: list[str]) -> None:
    machine.write("proc/interrupts", INTERRUPTS.format(exceptions=exceptions, deferred=deferred))
    found = ask(machine)
    assert codes(found) == expected and found["outcome"] == ("error" if "machine_check" in expected else "measured")


@pytest.mark.parametrize("cell", ["?", "1.2.3", "--"])
def test_a_count_that_cannot_be_read_is_not_zero(machine: MachineTree, cell: str) -> None:
    machine.write("proc/interrupts", INTERRUPTS.format(exceptions=cell, deferred="0"))
    assert ask(machine)["reason_code"] == "no_answer"


@pytest.mark.parametrize("text", ["", "MCE:", "MCE: Machine check exceptions", " MCE:  \n"])
def test_lines_of_interrupts_without_counts_are_read_without_an_exception(text: str) -> None:
    assert all(isinstance(counts, list) for counts in processors.interrupts([text]).values())


@pytest.mark.parametrize(
    ("packages", "is_found"),
    [
        ((0, 0), False), ((5000, 0), True), ((0, 5000), True), ((5000, 4000), False), ((90, 0), False), ((5000,), False),
        ((9000, 0, 0, 5), True),
    ],
)  # fmt: skip
def test_a_processor_that_throttles_beside_others(machine: MachineTree, packages: tuple[int, ...], is_found: bool) -> None:
    for number, count in enumerate(packages):
        for cpu in (2 * number, 2 * number + 1):
            machine.write(f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/package_throttle_count", f"{count}\n")
            machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{number}\n")
    assert codes(ask(machine)) == (["hardware_corrected"] if is_found else [])


def test_a_throttle_counter_that_cannot_be_read(machine: MachineTree) -> None:
    machine.write("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "x\n")
    assert ask(machine)["reason_code"] == "no_answer"


def table_of(*sockets: tuple[str, int]) -> bytes:
    """An SMBIOS table with a socket for each (name, status byte)."""
    found = b""
    for number, (name, status) in enumerate(sockets):
        body = bytearray(0x30)
        struct.pack_into("<BBHBB", body, 0, 4, len(body), 0x400 + number, 1, 3)
        body[0x18] = status
        found += bytes(body) + name.encode() + b"\0\0"
    return found + struct.pack("<BBH", 127, 4, 0xFEFF) + b"\0\0"


def with_processors(
    machine: MachineTree, packages: int, present: str = "0-3", online: str = "0-3", smt: str = "on", options: str = ""
) -> None:
    for cpu in range(4):
        machine.write(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{cpu % packages}\n")
    for name, text in (("present", present), ("online", online), ("smt/control", smt)):
        machine.write(f"sys/devices/system/cpu/{name}", f"{text}\n")
    machine.write("proc/cmdline", f"BOOT_IMAGE=/vmlinuz {options}\n")


@pytest.mark.parametrize(
    ("sockets", "packages", "expected"),
    [
        ([("CPU0", 0x41), ("CPU1", 0x41)], 2, ""),
        ([("CPU0", 0x41), ("CPU1", 0x00)], 1, ""),  # an empty socket
        ([("CPU0", 0x41), ("CPU1", 0x41)], 1, "no_answer"),
        ([("CPU0", 0x41), ("CPU1", 0x42)], 1, "no_answer"),
        ([("CPU0", 0x41), ("CPU1", 0x43)], 1, "machine_check"),
        ([("CPU0", 0x41)], 2, ""),
        ([], 2, ""),
    ],
)
def test_a_processor_that_the_firmware_lists_and_the_kernel_does_not_use(
    machine: MachineTree, sockets: list[tuple[str, int]], packages: int, expected: str
) -> None:
    machine.write("sys/firmware/dmi/tables/DMI", table_of(*sockets))
    with_processors(machine, packages)
    assert (ask(machine)["reason_code"] or "") == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None), ({"online": "0-2"}, "no_answer"), ({"present": "0-255", "online": "0-11,13-255"}, "no_answer"),
        ({"online": "0,2", "smt": "off"}, None), ({"online": "0,2", "smt": "forceoff"}, None),
        ({"online": "0-1", "options": "maxcpus=2"}, None),
        ({"online": ""}, None), ({"online": "0-1"}, None), ({"present": "N/A"}, None),
    ],
)  # fmt: skip
def test_processors_that_are_there_and_not_in_use(machine: MachineTree, changes: dict[str, str], expected: str | None) -> None:
    with_processors(machine, 2, **changes)
    assert ask(machine)["reason_code"] == expected
