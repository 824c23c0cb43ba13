# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a record of a look has for the second look of a run, and what the second one leaves out."""

from __future__ import annotations

import os
import pathlib
import re
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import bmc
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import DISK, GPU, NIC, MachineTree

SENSORS = (pathlib.Path(__file__).resolve().parents[3] / "fixtures/host-health/sdr-elist-healthy.txt").read_text(encoding="utf-8")


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}/root/bin:/usr/bin:/bin")
    return MachineTree(tmp_path / "root")


def context(machine: MachineTree, check: str, which: str = "first") -> dict[str, t.Any]:
    params = {"checks": [{"check": check, "variant": ""}], "pcie_corrected": 100.0, "ras_days": 30.0, "look": which}
    (found,) = host_health.probe(params, Node(60, root=str(machine.root)))
    assert isinstance(found["context"], dict)
    return found["context"]


def test_the_parts_that_both_looks_must_see(machine: MachineTree) -> None:
    machine.write("sys/class/nvme/nvme0/state", "live\n")
    machine.write("sys/class/nvme/nvme1/transport", "tcp\n")
    for which in ("first", "after"):
        assert context(machine, "pcie", which)["parts"] == {"pci": [f"GPU {GPU}", f"NIC {NIC}", f"NVMe {DISK}"]}
        assert context(machine, "storage", which)["parts"] == {"disks": ["nvme0"]}
    machine.write("sys/class/dmi/id/sys_vendor", "QEMU\n")
    assert context(machine, "pcie")["parts"] == {"pci": []}, "a virtual machine has parts given and taken"


@pytest.mark.parametrize(("check", "details"), [("memory", ("dimms", "system")), ("pcie", ("links",))])
def test_a_second_look_does_not_repeat_what_stays_the_same(machine: MachineTree, check: str, details: tuple[str, ...]) -> None:
    first, after = context(machine, check), context(machine, check, "after")
    assert set(details) <= set(first) and set(first) - set(after) == set(details)
    assert {name: after[name] for name in after} == {name: first[name] for name in after}


def test_events_of_a_controller_that_came_and_went(machine: MachineTree) -> None:
    lines = [
        "   1 | 11/24/26 | 06:54:08 UTC | Power Supply PSU2 Status | Power Supply AC lost | Asserted",
        "   2 | 11/24/26 | 06:54:09 UTC | Power Supply PSU2 Status | Power Supply AC lost | Deasserted",
    ]
    machine.controller(SENSORS, "\n".join(lines) + "\n")
    (ended,) = context(machine, "bmc")["ended"]
    assert "its log has, 2026-11-24T06:54:08Z: " in ended["text"] and "PSU2" in ended["text"]
    machine.controller(SENSORS, lines[0] + "\n")
    standing = context(machine, "bmc")
    assert "ended" not in standing and "PSU2" in standing["findings"][0]["text"]
    machine.controller(SENSORS, "\n".join(lines * 60) + "\n")
    assert len(context(machine, "bmc")["ended"]) == host_health.MOST_ENDED


SUPPLIES_AND_FANS = [
    "PS1 Status | C8h | ok | 10.1 | Presence detected", "PS2 Status | C9h | ok | 10.2 | Presence detected",
    "PS1 Input | 70h | ok | 10.1 | 400 Watts", "PS2 Input | 71h | ok | 10.2 | 410 Watts",
    "FAN1 | 41h | ok | 29.1 | 8400 RPM", "FAN2 | 42h | ok | 29.2 | 8400 RPM", "FAN3 | 43h | ns | 29.3 | No Reading",
    "CPU1 Temp | 01h | ok | 3.1 | 45 degrees C",
]  # fmt: skip


def listed(silent: str = "", absent: str = "", words: str = "ns | {} | No Reading") -> str:
    """The sensors, those whose names begin with `silent` without a reading."""
    lines = []
    for line in SUPPLIES_AND_FANS:
        name, number, _state, entity, _reading = line.split(" | ")
        if silent and name.startswith(silent):
            line = f"{name} | {number} | {words.format(entity)}"
        elif absent and name.startswith(absent):
            line = f"{name} | {number} | ok | {entity} | Device Absent"
        lines.append(line)
    return "\n".join(lines) + "\n"


def asked_twice(machine: MachineTree, first: str, later: str, which: str = "after") -> tuple[dict[str, t.Any], int]:
    """What a look sees if the controller lists first one thing and then another, and how often its sensors were asked for."""
    machine.controller(first)
    machine.write("later", later)
    of_sensors = "echo >> asked; cat sdr; cp later sdr"
    machine.tool("ipmitool", f'cd "{machine.root}"; if [ $1 = sdr ]; then {of_sensors}; elif [ $2 = elist ]; then cat sel; fi')
    if machine.path("asked").exists():
        machine.path("asked").unlink()
    found = context(machine, "bmc", which)
    return found, len(machine.path("asked").read_text().splitlines())


@pytest.mark.parametrize("silent", ["FAN2", "PS2", "PS", "FAN", "PS2 Status", "PS1 Input"])
@pytest.mark.parametrize("words", ["ns | {} | No Reading", "ns | {} | Disabled", "na | {} | ", "ok | {} | No Reading"])
def test_a_part_without_a_reading_is_asked_again(machine: MachineTree, monkeypatch: pytest.MonkeyPatch, silent: str, words: str) -> None:
    monkeypatch.setattr(bmc, "AGAIN_S", 0.0)
    machine.controller(listed())
    before = context(machine, "bmc")["parts"]
    found, asked = asked_twice(machine, listed(silent, words=words), listed())
    assert (found["parts"], found["silent_parts"], asked) == (before, {"fans": ["FAN3"]}, 2)
    found, _asked = asked_twice(machine, listed(silent, words=words), listed(silent, words=words))
    lost = {name for kind, names in before.items() for name, there in names.items() if there and not found["parts"].get(kind, {}).get(name)}
    known = {name for names in found["silent_parts"].values() for name in names}
    assert lost <= known and any(name.startswith(silent) for name in known), "silent, and not gone"


@pytest.mark.parametrize("code", ["0x010400", "0x010601", "0x010700"])
def test_a_disk_of_an_adapter_is_a_part_by_its_identity(machine: MachineTree, code: str) -> None:
    before = context(machine, "storage")["parts"]["disks"]
    machine.scsi("sda", code, wwid="naa.5000c500a1b2c3d4", model="ST8000NM000A")
    machine.scsi("sdb", code, "0:0:1:0", vpd_pg80=b"\0\x80\0\x08WSD0ABCD", model="ST8000NM000A")
    machine.scsi("sdc", code, "0:0:2:0")
    machine.scsi("sdd", code, "0:0:3:0", wwid="naa.5000c500a1b2c3d4", model="ST8000NM000A")  # the second path to the first one
    disks = ["disk ST8000NM000A WSD0ABCD", "disk ST8000NM000A naa.5000c500a1b2c3d4", "disk at 0:0:2:0 of 0000:00:17.0"]
    assert sorted({*context(machine, "storage")["parts"]["disks"]} - {*before}) == disks
    machine.path("sys/block/sdb").unlink()
    assert disks[0] not in context(machine, "storage", "after")["parts"]["disks"]


def test_a_disk_of_a_network_or_a_stick_is_no_part(machine: MachineTree) -> None:
    before = context(machine, "storage")["parts"]["disks"]
    machine.scsi("sda", "0x0c0400", wwid="naa.1", at="0000:00:18.0")  # Fibre Channel
    machine.scsi("sdb", "0x010601", "0:0:1:0", wwid="naa.2", removable="1")
    machine.scsi("sdc", "0x020000", "0:0:2:0", wwid="naa.3", at="0000:00:19.0")  # an offloaded iSCSI session
    machine.write("sys/devices/platform/host9/session1/target9:0:0/9:0:0:1/block/sde/removable", "0")
    machine.path("sys/block/sde").symlink_to(machine.path("sys/devices/platform/host9/session1/target9:0:0/9:0:0:1/block/sde"))
    assert context(machine, "storage")["parts"]["disks"] == before


def test_a_part_that_is_absent_is_gone(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bmc, "AGAIN_S", 0.0)
    for first in (listed("FAN2"), listed(absent="FAN2")):
        found, _asked = asked_twice(machine, first, listed(absent="FAN2"))
        assert found["parts"]["fans"]["FAN2"] is False and found["silent_parts"] == {"fans": ["FAN3"]}


def test_a_part_that_leaves_the_list_is_gone_and_one_that_was_not_asked_is_silent(
    machine: MachineTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bmc, "AGAIN_S", 0.0)
    with_cards = "".join(f"GPU{n} Pres | {n}0h | ok | 11.{n} | Presence detected\n" for n in (1, 2)) + listed()
    machine.controller(with_cards)
    assert context(machine, "bmc")["parts"]["other parts"] == {"GPU1 Pres": True, "GPU2 Pres": True}
    for part, kind in (("PS2", "power supplies"), ("FAN2", "fans"), ("GPU2", "other parts")):
        without = "".join(line for line in with_cards.splitlines(True) if not line.startswith(part))
        found, _asked = asked_twice(machine, without, without)
        assert not any(name.startswith(part) for name in (*found["parts"][kind], *found["silent_parts"].get(kind, [])))
    not_asked = re.sub(r"ok (\| 11\.\d \|) .*", r"ns \1 not asked: of controller 0x2c", with_cards)
    found, _asked = asked_twice(machine, not_asked, not_asked)
    assert found["silent_parts"]["other parts"] == ["GPU1 Pres", "GPU2 Pres"], "another tool asked than at the first look"


def test_a_list_that_ends_early_is_not_a_list(machine: MachineTree) -> None:
    refused = "Get SDR 0{}24 command failed: Node busy"
    for errors, is_cut in (
        ([refused.format(1)] * 5, True), ([refused.format(1)] * 4, False), ([refused.format(n) for n in range(9)], False),
        (["Unable to renew SDR reservation"], True), (["SDR record id 0x0124: invalid length 0"], True),
    ):  # fmt: skip
        said = "".join(f"echo '{line}' >&2; " for line in errors)
        machine.controller(SENSORS)
        machine.tool("ipmitool", f'{said}if [ $1 = sdr ]; then head -3 "{machine.root}/sdr"; elif [ $2 = elist ]; then :; fi')
        found = context(machine, "bmc")
        assert ("ipmi" in found["not_looked_for"]) is is_cut, errors


def test_a_first_look_asks_again_and_a_slow_controller_is_not_asked_again(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bmc, "AGAIN_S", 0.0)
    found, asked = asked_twice(machine, listed("FAN2"), listed(), which="first")
    assert (found["silent_parts"], found["parts"]["fans"]["FAN2"], asked) == ({"fans": ["FAN3"]}, True, 2)
    found, asked = asked_twice(machine, listed("FAN2"), listed("FAN2"), which="first")
    assert (found["silent_parts"], found["parts"]["fans"]["FAN2"], asked) == ({"fans": ["FAN2", "FAN3"]}, False, 2)
    monkeypatch.setattr(bmc, "SLOW_S", -1.0)
    found, asked = asked_twice(machine, listed("FAN2"), listed())
    assert (found["silent_parts"], asked) == ({"fans": ["FAN2", "FAN3"]}, 1)


def test_lines_of_the_kernel_that_came_and_went(machine: MachineTree) -> None:
    for words in ("Link Down", "Link Up"):
        machine.log(f"pcieport 0000:15:00.0: pciehp: Slot(5): {words}")
    found = context(machine, "kernel")
    assert [one["code"] for one in (*found.get("findings", []), *found.get("ended", []))], "a trace of it stays"
