# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A management controller that is there and does not answer, answers in part, or logs what nobody can date."""

from __future__ import annotations

import os
import pathlib
import struct
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import bmc, ipmi_device
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.fake_bmc import FakeBmc
from harness.machine_tree import MachineTree, smbios

HEALTHY = """Inlet Temp | 30h | ok | 55.1 | 24 degrees C
FAN1 | 40h | ok | 29.4 | 8400 RPM
PSU1 Status | 50h | ok | 10.1 | Presence detected
PSU2 Status | 51h | ok | 10.2 | Presence detected
"""
TYPE_38 = struct.pack("<BBH", 38, 18, 0x2600) + bytes([1, 0x20, 0x20, 0xFF]) + struct.pack("<QBB", 0xCA3, 0, 0) + b"\0\0"


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    tree = MachineTree(tmp_path / "root")
    monkeypatch.setenv("PATH", f"{tree.root}/bin:/usr/bin:/bin")
    return tree


def look(machine: MachineTree) -> dict[str, t.Any]:
    (seen,) = host_health.probe({"checks": [{"check": "bmc", "variant": ""}]}, Node(60, root=str(machine.root)))
    return seen


def told(seen: dict[str, t.Any]) -> list[tuple[str, str]]:
    return [(finding["code"], finding["text"]) for finding in seen["context"].get("findings", [])]


@pytest.mark.parametrize(
    ("fails", "outcome"),
    [
        # What ipmitool says for either list, and whether that is an answer.
        ("Could not open device at /dev/ipmi0: No such device", "no_answer"),
        ("Get SEL Info command failed", "no_answer"),
        ("Unable to send command: Timeout", "no_answer"),
        ("Get SDR 0000 command failed: Node busy", "no_answer"),
        ("Error obtaining SEL: Completion code 0xff", "no_answer"),
        ("Get SEL Info command failed: Invalid command", ""),
        ("Could not open device at /dev/ipmi0: Permission denied", "unsupported"),
    ],
)
@pytest.mark.parametrize("lists", ["sdr", "sel", "sdr sel"])
def test_a_list_that_does_not_come(machine: MachineTree, fails: str, outcome: str, lists: str) -> None:
    machine.controller(HEALTHY)
    script = machine.path("bin/ipmitool").read_text().partition("\n")[2]
    machine.tool("ipmitool", f'case " {lists} " in *" $1 "*) echo "{fails}" >&2; exit 1;; esac; {script}')
    seen = look(machine)
    if not outcome and lists == "sdr sel":
        assert seen["outcome"] == "not_applicable"
    else:
        assert seen.get("reason_code", "") == outcome or (not outcome and seen["outcome"] == "measured"), seen
    assert fails.rpartition(": ")[2] in seen["context"]["not_looked_for"]["ipmi"]


def test_sensors_of_which_none_has_a_reading_and_a_list_in_no_known_form(
    machine: MachineTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bmc, "AGAIN_S", 0.0)
    for listed, code in (("FAN1 | 40h | ns | 29.1 | No Reading\n", "no_answer"), ("Name: FAN1\nReading: 8400\n", "no_answer"), ("", "")):
        machine.controller(listed)
        seen = look(machine)
        assert (seen.get("reason_code") or "") == code and "it lists no sensor with a reading" in seen["context"]["not_looked_for"]["ipmi"]


@pytest.mark.parametrize("witness", ["smbios", "acpi", "kernel"])
def test_a_controller_that_others_show_and_that_has_no_device(machine: MachineTree, witness: str) -> None:
    assert look(machine)["reason_code"] == "not_visible"
    if witness == "smbios":
        table = smbios(machine.slots, machine.batch)
        end = struct.pack("<BBH", 127, 4, 0xFEFF)
        machine.write("sys/firmware/dmi/tables/DMI", table.replace(end, TYPE_38 + end))
    elif witness == "acpi":
        machine.write("sys/bus/acpi/devices/IPI0001:00/path", "\\_SB_.IPMI\n")
    else:
        machine.write("sys/class/ipmi/ipmi0/dev", "240:0\n")
    seen = look(machine)
    assert seen["reason_code"] == "no_answer" and "/dev/ipmi0 is missing: load ipmi_devintf" in seen["reason"]
    machine.write(".dockerenv", "")  # a container does not see the devices of its host
    assert look(machine)["outcome"] == "not_applicable"


def test_a_tool_that_is_broken_is_no_silent_controller(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    class Device(FakeBmc):
        def __init__(self, _path: str, _deadline: float) -> None:
            super().__init__()

        def close(self) -> None:
            pass

    machine.controller(HEALTHY)
    machine.tool("ipmitool", "echo 'error while loading shared libraries: libcrypto.so.1.1' >&2; exit 127")
    monkeypatch.setattr(ipmi_device, "Device", Device)
    seen = look(machine)
    assert seen["outcome"] == "measured" and seen["context"]["looked_for"][0] == "9 sensors of the management controller"


def test_lines_that_nobody_understands_are_named(machine: MachineTree) -> None:
    machine.controller(HEALTHY, "rubbish\n 1 | 11/24/26 | 06:54:08 UTC | OEM #0xc1 |  | Asserted\n 2 | OEM record c1 | 000000 | 00\n")
    seen = look(machine)
    assert seen["outcome"] == "measured" and seen["evidence"]["unreadable"] == ["ipmi_words"]
    assert "2 lines of the management controller are not understood: rubbish; OEM #0xc1" in seen["context"]["not_looked_for"]["ipmi_words"]
    assert "1 records of its log in a form of the maker's own, which were not read" in seen["context"]["looked_for"]


def dated(number: int, when: float, words: str, sensor: str = "Fan Fan Redundancy") -> str:
    return f"{number:4x} | {time.strftime('%m/%d/%Y | %H:%M:%S UTC', time.gmtime(when))} | {sensor} | {words} | Asserted"


def test_events_without_a_date_are_placed_by_their_neighbours(machine: MachineTree) -> None:
    """A controller counts from its own start until the firmware gives it the time."""
    booted = time.time() - 5000
    machine.write("proc/uptime", "5000.00 1\n")
    undated = "  53 |  Pre-Init  |0000000053| Power Supply #0x51 | Failure detected | Asserted"
    old, new = dated(1, booted - 86400, "Fully Redundant"), dated(9, booted + 60, "Fully Redundant")
    for log, code in (
        ([undated], "bmc_fault"), ([old, undated], "bmc_fault"), ([undated, old], "bmc_event"), ([new, undated], "bmc_fault"),
        ([old, undated, new], "bmc_fault"), ([undated, new], "bmc_fault"), ([undated, old, new], "bmc_event"),
    ):  # fmt: skip
        machine.controller(HEALTHY, "\n".join(log))
        assert [found for found, _words in told(look(machine))] == [code], log


def test_what_the_firmware_found_before_the_kernel_started_is_of_this_boot(machine: MachineTree) -> None:
    machine.write("proc/uptime", "5000.00 1\n")
    booted = time.time() - 5000
    for when, code in ((booted - 120, "bmc_fault"), (booted - bmc.POST_S - 60, "bmc_event")):
        machine.controller(HEALTHY, dated(1, when, "No usable system memory", "System Firmwares #0x06"))
        assert [found for found, _words in told(look(machine))] == [code]


def test_a_part_that_was_there_and_is_gone(machine: MachineTree) -> None:
    machine.write("proc/uptime", "5000.00 1\n")
    now = time.time()
    gone = dated(1, now - 60, "Presence detected", "Power Supply PSU2 Status").replace("Asserted", "Deasserted")
    pulled = HEALTHY.replace("10.2 | Presence detected", "10.2 | ")
    machine.controller(pulled, gone)
    seen = look(machine)
    assert [code for code, _words in told(seen)] == ["bmc_fault"] and "PSU2 Status: Presence detected: Deasserted" in seen["reason"]
    assert seen["context"]["parts"]["power supplies"] == {"PSU1 Status": True, "PSU2 Status": False}
    machine.controller(pulled, f"{gone}\n{dated(2, now - 30, 'Presence detected', 'Power Supply PSU2 Status')}")
    assert told(look(machine)) == []
    machine.controller(HEALTHY, gone)  # the log has lost its return: the sensor says that it is there
    assert told(look(machine)) == []
