# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A management controller that is asked through the kernel's device, held against what ipmitool said of the same one."""

from __future__ import annotations

import os
import pathlib
import struct
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import ipmi_device
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ipmi, ipmi_states
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.fake_bmc import FakeBmc, event, records
from harness.machine_tree import MachineTree


def plain(text: str) -> list[list[str]]:
    return [[" ".join(cell.split()) for cell in line.split("|")] for line in text.splitlines()]


@pytest.mark.parametrize("state", ["healthy", "broken"])
def test_sensors_are_those_that_ipmitool_lists(fixtures: pathlib.Path, state: str) -> None:
    recorded = (fixtures / f"host-health/sdr-elist-{state}.txt").read_text()
    listed = ipmi_device.sensors(FakeBmc(state == "broken"))
    assert plain(listed) == plain(recorded)
    assert ipmi.sensors(listed) == ipmi.sensors(recorded)


def test_events_are_those_that_ipmitool_lists(fixtures: pathlib.Path) -> None:
    recorded = ipmi.events((fixtures / "host-health/sel-elist-broken.txt").read_text())
    found = ipmi.events(ipmi_device.events(FakeBmc(broken=True)))
    assert [(e.when, e.code) for e in found] == [(e.when, e.code) for e in recorded] and len(found) == 8
    assert all(one.words == other.words.partition(" (")[0] for one, other in zip(found, recorded, strict=True))
    assert ipmi_device.events(FakeBmc()) == ""


def test_a_controller_that_sends_little_at_once_and_one_that_others_ask_too() -> None:
    bmc = FakeBmc()
    bmc.most, bmc.lost_once = 16, True
    assert ipmi_device.sensors(bmc) == ipmi_device.sensors(FakeBmc())


def test_events_without_a_date_taken_back_and_of_the_maker() -> None:
    bmc = FakeBmc()
    bmc.sel = [
        event(1, 0x08, 0x51, 0x6F, "01ffff", 77), event(2, 0x08, 0x51, 0xEF, "01ffff", 1795503248),
        event(3, 0x04, 0x99, 0x0B, "01ffff", 99), b"\4\0\xc1" + bytes(13),
    ]  # fmt: skip
    assert ipmi_device.events(bmc).splitlines()[0] == "   1 | Pre-Init | Power Supply PSU2 Status | Failure detected | Asserted"
    assert [(e.when, e.words) for e in ipmi.events(ipmi_device.events(bmc))] == [(None, "Fan #0x99: Redundancy Lost")]


def test_readings_of_sensors_follow_from_their_records() -> None:
    record = bytearray(records()[0])
    values = {}
    for name, changed in {
        "negative": {20: 0x80}, "ones": {20: 0x40}, "hundredths": {29: 0xE0}, "offset": {26: 10, 29: 1}, "bits": {24: 0, 25: 0x40},
        "percent": {20: 1}, "curve": {23: 2}, "none": {20: 0xC0},
    }.items():  # fmt: skip
        of = bytearray(record)
        for at, value in changed.items():
            of[at] = value
        values[name] = ipmi_device._value(bytes(of), 200)
    assert values == {
        "negative": "-56 degrees C", "ones": "-55 degrees C", "hundredths": "2 degrees C", "offset": "300 degrees C",
        "bits": "51200 degrees C", "percent": "200 percent", "curve": "raw 0xc8 degrees C", "none": "raw 0xc8",
    }  # fmt: skip
    assert ipmi_device._text(0x83, bytes([0x29, 0xDC, 0xA6])) == "IPMI"


def test_sensors_without_a_reading() -> None:
    bmc = FakeBmc()
    bmc.answers[ipmi_device.GET_READING] = lambda data: b"\0\xe0\0" if data[0] % 2 else b"\0\x80\0"
    assert {line.split("|")[4].strip() for line in ipmi_device.sensors(bmc).splitlines()} == {"No Reading", "Disabled"}
    assert ipmi.sensors(ipmi_device.sensors(bmc)) == ([], 0)


@pytest.mark.parametrize("answer", [b"", b"\1", b"\0\0", b"\0\0" + bytes(5), b"\xff\xff\1\0", b"\2\0" + bytes([1, 0, 0x51, 1, 9])])
def test_records_that_are_cut_or_never_end_are_an_error(answer: bytes) -> None:
    bmc = FakeBmc(broken=True)
    bmc.answers[ipmi_device.GET_SDR] = lambda data: answer if data[4] == 0 else b"\2\0"
    with pytest.raises(ipmi_device.IpmiError):
        ipmi_device.sensors(bmc)


def test_a_sensor_that_cannot_be_read_hides_no_other() -> None:
    bmc = FakeBmc(broken=True)

    def refuse(data: bytes) -> bytes:
        if data[0] == 0x30:
            raise ipmi_device.Refused(ipmi_device.GET_READING, 0xD5)
        return FakeBmc(broken=True).ask(ipmi_device.GET_READING, data)

    bmc.answers[ipmi_device.GET_READING] = refuse
    listed = ipmi_device.sensors(bmc)
    assert listed.splitlines()[0] == "Inlet Temp       | 30h | ns  | 55.1 | refused with 0xd5"
    problems, count = ipmi.sensors(listed)
    assert count == 8 and ("bmc_fault", "PSU2 Status: Failure detected, Power Supply AC lost") in problems


def test_a_refused_command_is_named_with_its_completion_code() -> None:
    bmc = FakeBmc()

    def refuse(_data: bytes) -> bytes:
        raise ipmi_device.Refused(ipmi_device.RESERVE_SDR, 0xC1)

    bmc.answers[ipmi_device.RESERVE_SDR] = refuse
    with pytest.raises(ipmi_device.IpmiError, match="command 0x0a/0x22 ended with completion code 0xc1"):
        ipmi_device.sensors(bmc)


def test_sensors_that_share_a_record_are_all_read() -> None:
    bmc = FakeBmc()
    shared = bytearray(bmc.sdr[-1])
    shared[23] = 3
    bmc.sdr[-1] = bytes(shared)
    bmc.states.update({0x61: 0, 0x62: 1 << 1})
    assert ipmi.sensors(ipmi_device.sensors(bmc)) == ([("bmc_fault", "DIMM ECC 3: Uncorrectable ECC")], 11)


def test_sensors_of_other_controllers_and_of_events_only() -> None:
    """The first are said to be unread; the second have a name, which an event needs."""
    bmc = FakeBmc()
    other = bytearray(bmc.sdr[0])
    other[5] = 0x2C
    bmc.sdr[0] = bytes(other)
    body = bytes([0x20, 0, 0x77, 10, 2, 0x08, 0x03, 1, 0, 0, 0, 0xC0 | 10]) + b"PSU2_FAULT"
    bmc.sdr.append(struct.pack("<HBBB", len(bmc.sdr) + 1, 0x51, ipmi_device.EVENT_ONLY, len(body)) + body)
    found = ipmi.list_sensors(ipmi_device.sensors(bmc))
    assert (found.readable, found.unread) == (8, ["Inlet Temp: not asked: of controller 0x2c"])
    bmc.sel = [event(1, 0x08, 0x77, 0x03, "01ffff", 1795503248)]
    assert [(e.code, e.words) for e in ipmi.events(ipmi_device.events(bmc))] == [("bmc_fault", "Power Supply PSU2_FAULT: State Asserted")]


def test_lists_that_go_round_in_a_circle_end() -> None:
    bmc = FakeBmc(broken=True)
    bmc.answers[ipmi_device.GET_SEL] = lambda data: struct.pack("<H", 3 - (data[2] or 2)) + bmc.sel[0]
    with pytest.raises(ipmi_device.IpmiError, match="does not go on"):
        ipmi_device.events(bmc)


def test_the_clock_of_the_log_is_read_in_utc() -> None:
    bmc = FakeBmc()
    bmc.answers[ipmi_device.GET_SEL_TIME] = lambda _data: struct.pack("<I", 1795503248)
    assert ipmi_device.clock(bmc) == "11/24/2026 06:54:08 UTC" and ipmi.clock(ipmi_device.clock(bmc)) == 1795503248
    assert [ipmi.clock(text) for text in ("", "Unspecified", "99/99/2026", "1 | 11/24/2026 | 06:54:08 UTC | x")] == [None] * 4


def test_a_log_that_is_full_is_told() -> None:
    bmc = FakeBmc()
    bmc.sel = [event(1, 0x10, 0x70, 0x6F, "02ffff", 99)]
    assert ipmi.events(ipmi_device.events(bmc)) == []
    bmc.answers[ipmi_device.GET_SEL_INFO] = lambda _data: struct.pack("<BH", 0x51, 1) + bytes(10) + b"\x82"
    assert [(e.code, e.words) for e in ipmi.events(ipmi_device.events(bmc))] == [("bmc_event", "Event Logging Disabled: Log full")]
    bmc.answers[ipmi_device.GET_SEL_INFO] = lambda _data: b"\x51"
    with pytest.raises(ipmi_device.IpmiError, match="the log is cut"):
        ipmi_device.events(bmc)


@pytest.mark.parametrize(
    ("kind", "state", "code"),
    [(0x0C, 10, "bmc_fault"), (0x0C, 4, "bmc_fault"), (0x0C, 2, "bmc_fault"), (0x13, 9, "bmc_fault"), (0x21, 0, "bmc_fault"),
     (0x28, 3, "bmc_fault"), (0x28, 4, "bmc_event"), (0x29, 1, "bmc_event"), (0x10, 4, "bmc_event"), (0x0D, 4, None), (0x29, 2, None)],
)  # fmt: skip
def test_each_state_of_a_sensor_has_its_code(kind: int, state: int, code: str | None) -> None:
    words = ipmi_states.SPECIFIC[kind][state].words[0]
    problems, _count = ipmi.sensors(f"S | 50h | ok | 10.1 | {words}")
    assert [found for found, _words in problems] == ([code] if code else [])


def test_requests_are_those_of_linux() -> None:
    assert (ipmi_device._SEND, ipmi_device._RECEIVE_TRUNCATED) == (0x8028690D, 0xC030690B)  # 64 bits


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    tree = MachineTree(tmp_path / "root")
    tree.write("dev/ipmi0", "")
    return tree


def look(machine: MachineTree) -> dict[str, t.Any]:
    (seen,) = host_health.probe({"checks": [{"check": "bmc", "variant": ""}]}, Node(60, root=str(machine.root)))
    return seen


def test_the_check_asks_the_device_where_ipmitool_is_missing(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    class Device(FakeBmc):
        def __init__(self, path: str, _deadline: float) -> None:
            assert path == f"{machine.root}/dev/ipmi0"
            super().__init__(broken=True)

        def close(self) -> None:
            pass

    monkeypatch.setattr(ipmi_device, "Device", Device)
    seen = look(machine)
    assert (seen["outcome"], seen["reason_code"]) == ("error", "bmc_fault")
    assert seen["context"]["looked_for"] == ["9 sensors of the management controller", "the events of the management controller"]
    assert "PSU2 Status: Failure detected, Power Supply AC lost" in seen["reason"]


def test_a_device_that_is_none_has_not_answered(machine: MachineTree) -> None:
    seen = look(machine)
    assert seen["reason_code"] == "no_answer" and "Inappropriate ioctl for device" in seen["reason"]
    assert struct.calcsize("P") == 8
