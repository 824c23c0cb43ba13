# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A management controller by its messages (IPMI 2.0): that of which recordings of ipmitool are in fixtures/host-health. Its sensor
records are those that ipmi_sim had when ipmitool was recorded."""

from __future__ import annotations

import struct
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.ipmi_device import Refused

Command = t.Tuple[int, int]
# number, name, type, entity, unit, factor, value, (lower critical, upper non-critical, upper critical)
ANALOG = [
    (0x30, "Inlet Temp", 0x01, 0x37, 1, 1, 24, (None, 40, 45)),
    (0x31, "CPU0 Temp", 0x01, 0x03, 1, 1, 52, (None, 85, 95)),
    (0x32, "GPU1 Temp", 0x01, 0x0B, 1, 1, 41, (None, 85, 92)),
    (0x40, "FAN1", 0x04, 0x1D, 18, 100, 84, (10, None, None)),
    (0x41, "FAN2", 0x04, 0x1D, 18, 100, 85, (10, None, None)),
    (0x42, "PSU1 Power", 0x0B, 0x0A, 6, 20, 110, (None, 150, 165)),
]
DISCRETE = [(0x50, "PSU1 Status", 0x08, 0x0A), (0x51, "PSU2 Status", 0x08, 0x0A), (0x60, "DIMM ECC", 0x0C, 0x20)]
# Type, number, kind and data of the events of the recording, and their seconds behind 2026-11-24T06:54:08Z.
EVENTS = [
    (0x08, 0x51, 0x6F, "01ffff", 0), (0x08, 0x51, 0x6F, "03ffff", 0), (0x04, 0x41, 0x01, "52030a", 0), (0x01, 0x30, 0x01, "572f28", 1),
    (0x01, 0x30, 0x01, "592f2d", 1), (0x0C, 0x60, 0x6F, "20ff02", 1), (0x0C, 0x60, 0x6F, "21ff03", 1), (0x13, 0x70, 0x6F, "a51700", 1),
]  # fmt: skip
BROKEN_AT = 1795503248


def records(first: int = 0) -> list[bytes]:
    """Return the sensor records of the machine. Sensors have the numbers of the recordings, or those from `first` on: emulators know small
    ones only."""
    found: list[bytes] = []
    for instance, (number, name, kind, entity, unit, factor, _value, _limits) in enumerate(ANALOG, 1):
        number = first + len(found) if first else number
        body = [0x20, 0, number, entity, instance, 0x7F, 0x68, kind, 1, *[0] * 6, 0, unit, 0, 0, factor, *[0] * 17, 1, 1, 0, 0, 0]
        found.append(_record(1, bytes(body), name, len(found) + 1))
    for instance, (number, name, kind, entity) in enumerate(DISCRETE, 1):
        number = first + len(found) if first else number
        body = [0x20, 0, number, entity, instance, 0x67, 0x40, kind, 0x6F, 15, 0, 15, 0, 15, 0, 0xC0, *[0] * 10]
        found.append(_record(2, bytes(body), name, len(found) + 1))
    return found


def _record(kind: int, body: bytes, name: str, record_id: int) -> bytes:
    body += bytes([0xC0 | len(name)]) + name.encode()
    return struct.pack("<HBBB", record_id, 0x51, kind, len(body)) + body


def event(record_id: int, kind: int, number: int, event_kind: int, data: str, stamp: int) -> bytes:
    return struct.pack("<HBIHBBBB", record_id, 2, stamp, 0x20, 4, kind, number, event_kind) + bytes.fromhex(data)


class FakeBmc:
    """Answers commands. `values` and `states` are by number of the sensor; `answers` replaces the answer to a command."""

    def __init__(self, broken: bool = False) -> None:
        self.sdr = records()
        self.values = {number: value for number, _n, _k, _e, _u, _f, value, _l in ANALOG}
        self.states = {0x50: 1, 0x51: 1, 0x60: 0}
        self.sel: list[bytes] = []
        self.answers: dict[Command, t.Callable[[bytes], bytes]] = {}
        # A controller that sends no more of a record at once, and one whose reservation another program takes.
        self.most = 0xFF
        self.lost_once = False
        if broken:
            self.values.update({0x30: 47, 0x41: 3})
            self.states[0x51] = 0b1011
            self.sel = [event(9 + n, *of[:4], BROKEN_AT + of[4]) for n, of in enumerate(EVENTS)]

    def ask(self, command: Command, data: bytes = b"", lun: int = 0) -> bytes:
        if command in self.answers:
            return self.answers[command](data)
        return getattr(self, f"_{command[0]:02x}_{command[1]:02x}")(command, data)

    def _0a_22(self, _command: Command, _data: bytes) -> bytes:
        return b"\x07\0"

    def _0a_23(self, command: Command, data: bytes) -> bytes:
        record_id, at, count = struct.unpack_from("<HBB", data, 2)
        place = record_id - 1 if record_id else 0
        if self.lost_once and record_id == 3:
            self.lost_once = False
            raise Refused(command, 0xC5)
        if count > self.most:
            raise Refused(command, 0xCA)
        following = place + 2 if place + 1 < len(self.sdr) else 0xFFFF
        return struct.pack("<H", following) + self.sdr[place][at : at + count]

    def _04_2d(self, command: Command, data: bytes) -> bytes:
        number = data[0]
        if number in self.states:
            return bytes([0, 0xC0]) + struct.pack("<H", self.states[number])
        limits = next(of[7] for of in ANALOG if of[0] == number)
        value, (low, high, highest) = self.values[number], limits
        beyond = (low is not None and value <= low) << 1 | (high is not None and value >= high) << 3
        return bytes([value, 0xC0, beyond | (highest is not None and value >= highest) << 4])

    def _0a_40(self, _command: Command, _data: bytes) -> bytes:
        return struct.pack("<BH", 0x51, len(self.sel)) + bytes(11)

    def _0a_48(self, _command: Command, _data: bytes) -> bytes:
        return struct.pack("<I", int(time.time()))

    def _0a_43(self, command: Command, data: bytes) -> bytes:
        record_id = struct.unpack_from("<H", data, 2)[0]
        ids = [struct.unpack_from("<H", of)[0] for of in self.sel]
        place = ids.index(record_id) if record_id else 0
        return struct.pack("<H", ids[place + 1] if place + 1 < len(ids) else 0xFFFF) + self.sel[place]
