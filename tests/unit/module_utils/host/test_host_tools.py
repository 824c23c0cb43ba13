# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the stage `host_health` that ask tools: disks and the management controller, by recorded output."""

from __future__ import annotations

import json
import os
import pathlib
import time
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import bmc, file_systems
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ipmi, smart
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import MachineTree

Found = t.Dict[str, t.Any]


@pytest.fixture
def recorded(fixtures: pathlib.Path) -> t.Callable[[str], str]:
    return lambda name: (fixtures / "host-health" / name).read_text()


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}/root/bin:/usr/bin:/bin")
    return MachineTree(tmp_path / "root")


def ask(machine: MachineTree, check: str) -> Found:
    (found,) = host_health.probe({"checks": [{"check": check, "variant": ""}]}, Node(60, root=str(machine.root)))
    return found


def told(found: Found) -> list[tuple[str, str]]:
    return [(one["code"], one["text"]) for one in found["context"].get("findings", [])]


def test_a_healthy_disk_is_measured_without_findings(machine: MachineTree, recorded: t.Callable[[str], str]) -> None:
    machine.disk(recorded("smartctl-nvme-good.json"))
    found = ask(machine, "storage")
    assert found["outcome"] == "measured" and told(found) == [] and "SMART of 1 of 1 disks" in found["context"]["looked_for"]


def test_a_disk_that_fails_is_named_with_its_serial_number(machine: MachineTree, recorded: t.Callable[[str], str]) -> None:
    machine.disk(recorded("smartctl-nvme-bad.json"), 8)
    found = ask(machine, "storage")
    assert (found["outcome"], found["reason_code"]) == ("error", "disk")
    assert found["reason"].startswith("NVMe disk nvme0 (Example NVMe, serial number S6EX001, at 0000:41:00.0)")
    assert [text.rpartition(": ")[2] for _code, text in told(found)] == [
        "its spare capacity is below the threshold", "its media are read-only",
    ]  # fmt: skip


def test_nvme_cli_where_there_is_no_smartctl(machine: MachineTree, recorded: t.Callable[[str], str]) -> None:
    machine.write("log", recorded("nvme-smart-log-bad.json"))
    machine.tool("nvme", f'cat "{machine.root}/log"')
    assert ask(machine, "storage")["reason_code"] == "disk"
    machine.write("log", recorded("nvme-smart-log-good.json"))
    assert ask(machine, "storage")["outcome"] == "measured"


def test_without_a_tool_smart_is_not_looked_for(machine: MachineTree) -> None:
    found = ask(machine, "storage")
    assert found["outcome"] == "measured" and list(found["context"]["not_looked_for"]) == ["smart"]
    assert found["context"]["not_looked_for"]["smart"] == "SMART of disks: nvme0: neither smartctl nor nvme is installed"


SECTORS = {"ata_smart_attributes": {"table": [{"id": 197, "raw": {"value": 3}}, {"id": 5, "raw": {"value": 9}}]}}
SATA: Found = {"smart_status": {"passed": True}, "model_name": "M", "serial_number": "Z1"}


@pytest.mark.parametrize(
    ("said", "rc", "codes", "unread"),
    [
        (SATA, 0, [], ""),
        (SATA, 1 << 4, ["disk"], ""),
        ({**SATA, "smart_status": {"passed": False}}, 8, ["disk"], ""),
        (SATA, 1 << 5 | 1 << 6 | 1 << 7, ["disk_worn"] * 3, ""),
        ({**SATA, **SECTORS}, 0, ["disk_worn"] * 2, ""),
        ({"smartctl": {"messages": [{"string": "Permission denied"}]}}, 2, [], "Permission denied"),
        ({}, 1, [], "its options were not understood"),
        ({"model_name": "virtual"}, 4, [], "the disk does not report SMART"),
    ],
)
def test_exit_status_of_smartctl(said: Found, rc: int, codes: list[str], unread: str) -> None:
    found = smart.smartctl(json.dumps(said), rc)
    assert ([code for code, _words in found.problems], found.unread) == (codes, unread)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "17", '{"nvme_smart_health_information_log": 3, "smart_status": 4}'])
def test_an_answer_of_smartctl_that_is_rubbish_is_unread(text: str) -> None:
    assert smart.smartctl(text, 0).unread and smart.nvme_smart_log(text, 0).unread


def test_numbers_of_nvme_cli_that_are_texts_are_read() -> None:
    log = {"critical_warning": "2", "media_errors": "4", "percent_used": 101, "avail_spare": 0}
    assert [code for code, _words in smart.nvme_smart_log(json.dumps(log), 0).problems] == ["disk_worn"] * 3


def test_file_systems(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write("proc/mounts", "/dev/sda2 / ext4 ro,relatime 0 0\n/dev/sdb1 /data xfs rw 0 0\n/dev/sdc1 /big xfs rw 0 0\n")
    machine.write("etc/fstab", "# x\n/dev/sda2 / ext4 defaults 0 1\n/dev/sdb1 /data xfs defaults 0 0\n")

    def space(path: str) -> t.Any:
        left = {"data": 0, "big": 4}.get(path.rpartition("/")[2], 50)
        return types.SimpleNamespace(f_blocks=100, f_bavail=left, f_files=100, f_favail=50)

    monkeypatch.setattr(file_systems.os, "statvfs", space)
    found = ask(machine, "storage")
    assert told(found) == [
        ("file_system", "/ (/dev/sda2) is read-only, and /etc/fstab says that it should not be"),
        ("file_system", "/data (/dev/sdb1) is full: no space is left"),
        ("disk_space", "/big (/dev/sdc1) has 4.0 % of its space left"),
    ]


@pytest.mark.parametrize("option", ["emergency_ro", "shutdown"])
def test_ext4_that_has_given_up_writing_still_shows_rw(machine: MachineTree, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    machine.write("proc/mounts", f"/dev/sda2 / ext4 rw,relatime,{option} 0 0\n")
    machine.write("etc/fstab", "/dev/sda2 / ext4 defaults 0 1\n")
    monkeypatch.setattr(file_systems.os, "statvfs", lambda _path: types.SimpleNamespace(f_blocks=9, f_bavail=9, f_files=9, f_favail=9))
    assert told(ask(machine, "storage")) == [
        ("file_system", f"/ (/dev/sda2) can no longer be written after an error: its options have {option}")
    ]


def test_file_systems_of_the_host_as_a_pod_sees_them(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLEET_POD_UID", "1")
    root = machine.root
    lines = ["overlay / overlay rw 0 0", "/dev/sda1 /etc/hosts ext4 rw 0 0"]
    lines += [f"/dev/sda1 {root} ext4 ro 0 0", f"/dev/sdb1 {root}/data xfs ro 0 0"]
    machine.write("proc/mounts", "\n".join(lines))
    machine.path("data").mkdir()
    seen: list[str] = []

    def space(path: str) -> t.Any:
        seen.append(path)
        return types.SimpleNamespace(f_blocks=100, f_bavail=0 if path.endswith("data") else 50, f_files=0, f_favail=0)

    monkeypatch.setattr(file_systems.os, "statvfs", space)
    assert told(ask(machine, "storage")) == [("file_system", "/data (/dev/sdb1) is full: no space is left")]
    assert seen == [f"{root}/", f"{root}/data"]


def test_an_array_that_lost_a_disk(machine: MachineTree) -> None:
    machine.write("sys/block/md0/md/degraded", "1\n")
    assert ask(machine, "storage")["reason"] == "the array md0 is degraded: 1 of its disks are missing"


def test_a_power_supply_that_failed_has_the_state_ok(machine: MachineTree, recorded: t.Callable[[str], str]) -> None:
    machine.controller(recorded("sdr-elist-broken.txt"))
    assert told(ask(machine, "bmc")) == [
        ("bmc_fault", "management controller: Inlet Temp: 47 degrees C, beyond its critical limit (ucr)"),
        ("bmc_fault", "management controller: FAN2: 300 RPM, beyond its critical limit (lcr)"),
        ("bmc_fault", "management controller: PSU2 Status: Failure detected, Power Supply AC lost"),
    ]
    machine.controller(recorded("sdr-elist-healthy.txt"))
    found = ask(machine, "bmc")
    assert found["outcome"] == "measured" and told(found) == []
    assert found["context"]["looked_for"] == ["9 sensors of the management controller", "the events of the management controller"]


def test_events_before_the_last_boot_may_have_been_repaired(machine: MachineTree, recorded: t.Callable[[str], str]) -> None:
    machine.controller(recorded("sdr-elist-healthy.txt"), recorded("sel-elist-broken.txt"))
    booted = 1795503248.0 - 100  # 2026-11-24T06:52:28Z
    for uptime, codes in ((time.time() - booted, {"bmc_fault", "bmc_event"}), (10, {"bmc_event"})):
        machine.write("proc/uptime", f"{uptime:.2f} 1\n")
        found = told(ask(machine, "bmc"))
        assert {code for code, _text in found} == codes and len(found) == 8
    assert "Power Supply PSU2 Status: Power Supply AC lost" in found[1][1] and "before the last boot" in found[1][1]


def test_a_log_whose_clock_is_off_by_hours(machine: MachineTree, recorded: t.Callable[[str], str]) -> None:
    """Many controllers have the local time, or none that is right: what is since boot is told by the time that they have now."""
    machine.controller(recorded("sdr-elist-healthy.txt"), recorded("sel-elist-broken.txt"))
    logged = 1795503248.0  # 2026-11-24T06:54:08Z by the log
    for ahead, booted, is_since, words in ((8, logged - 7 * 3600, False, "8.0 h ahead"), (-8, logged + 7 * 3600, True, "8.0 h behind")):
        machine.write("proc/uptime", f"{time.time() - booted:.2f} 1\n")
        machine.write("clock", time.strftime("%m/%d/%Y %H:%M:%S UTC\n", time.gmtime(time.time() + 3600 * ahead)))
        found = told(ask(machine, "bmc"))
        assert ("bmc_fault" in {code for code, _text in found}) == is_since and all(words in text for _code, text in found)


def test_events_that_were_taken_back_or_tell_of_no_fault() -> None:
    rows = [
        "1 | 11/24/2026 | 06:54:08 UTC | Power Supply PSU2 | Power Supply AC lost | Asserted",
        "2 | 11/24/2026 | 06:55:08 UTC | Power Supply PSU2 | Power Supply AC lost | Deasserted",
        "3 | PostInit | Memory DIMM A | Uncorrectable ECC | Asserted",
        "4 | 11/24/26 | 06:54:08 | Event Logging Disabled SEL | Log area reset/cleared | Asserted",
        "5 | 11/24/26 | 06:54:08 | System Boot | Initiated by power up | Asserted", "rubbish", "| | |", "6 | 99/99/26 | 1:00 | x | IERR |",
    ]  # fmt: skip
    assert [(e.when, e.code) for e in ipmi.events("\n".join(rows))] == [(None, "bmc_fault"), (None, "bmc_fault")]


def test_sensors_without_any_reading_were_not_looked_at(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bmc, "AGAIN_S", 0.0)
    machine.controller("FAN1 | 40h | ns | 29.1 | No Reading\n", "")
    context = ask(machine, "bmc")["context"]
    assert context["looked_for"] == ["the events of the management controller"]
    assert "it lists no sensor with a reading" in context["not_looked_for"]["ipmi"]


def test_a_controller_that_cannot_be_asked(machine: MachineTree) -> None:
    assert ask(machine, "bmc")["reason_code"] == "not_visible"
    machine.write("dev/ipmi0", "")
    found = ask(machine, "bmc")
    assert "ipmitool is not installed" in found["reason"]
    machine.tool("ipmitool", "echo Could not open device >&2; exit 1")
    assert "Could not open device" in ask(machine, "bmc")["reason"]
