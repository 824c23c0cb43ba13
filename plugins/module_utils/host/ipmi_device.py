# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a management controller through the kernel's device /dev/ipmi0, and lists its sensors and events in the form of
`ipmitool sdr elist`, `ipmitool sel elist` and `ipmitool sel time get`, which parsers/ipmi.py reads.

Numbers and tables are those of IPMI 2.0 (chapters 31, 33, 35, 42 and 43), the calls those of Linux (include/uapi/linux/ipmi.h).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ipmi_states
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.ipmi import NOT_ASKED

# Functions and commands.
SENSOR, STORAGE = 0x04, 0x0A
GET_READING = SENSOR, 0x2D
RESERVE_SDR, GET_SDR = (STORAGE, 0x22), (STORAGE, 0x23)
GET_SEL_INFO, GET_SEL, GET_SEL_TIME = (STORAGE, 0x40), (STORAGE, 0x43), (STORAGE, 0x48)
# Completion codes.
INVALID_COMMAND, RESERVATION_LOST, NOT_PRESENT = 0xC1, 0xC5, 0xCB
# The first and the last id of a list of records.
FIRST, LAST = 0x0000, 0xFFFF
# Bytes of a record that are asked for at once: some controllers send no more than 16 or so.
CHUNK = 16
FULL, COMPACT, EVENT_ONLY = 0x01, 0x02, 0x03
THRESHOLD, SENSOR_SPECIFIC = 0x01, 0x6F
# Kinds of records of the log (table 32-1): an event, and what Linux writes when it panics (drivers/char/ipmi/ipmi_msghandler.c).
EVENT, PANIC = 0x02, 0xF0
FIRMWARE = 0x0F
# The management controller's own address: sensors of other owners are behind it.
OWN = 0x20
# Bits of the log's state (table 31-2): events were dropped because it was full.
OVERFLOW = 0x80
# Times below are counted from the controller's start: it does not know the date.
FIRST_DATE = 0x20000000
ONE_ANSWER_S = 10.0

UNITS = {1: "degrees C", 2: "degrees F", 3: "degrees K", 4: "Volts", 5: "Amps", 6: "Watts", 7: "Joules", 17: "CFM", 18: "RPM", 19: "Hz"}
# {bit of the states of a sensor with thresholds: ipmitool's word}, the gravest first.
STATES = {5: "unr", 2: "lnr", 4: "ucr", 1: "lcr", 3: "unc", 0: "lnc"}


class IpmiError(Exception):
    """The management controller did not answer, or refused. The message says what and why."""


class Refused(IpmiError):
    """The controller answered with a completion code that is an error."""

    def __init__(self, command: tuple[int, int], code: int) -> None:
        super().__init__(f"command {command[0]:#04x}/{command[1]:#04x} ended with completion code {code:#04x}")
        self.code = code


class _Address(ctypes.Structure):
    _fields_: t.ClassVar = [("type", ctypes.c_int), ("channel", ctypes.c_short), ("lun", ctypes.c_ubyte)]


class _Message(ctypes.Structure):
    _fields_: t.ClassVar = [
        ("function", ctypes.c_ubyte), ("command", ctypes.c_ubyte), ("length", ctypes.c_ushort), ("data", ctypes.c_void_p),
    ]  # fmt: skip


class _Request(ctypes.Structure):
    _fields_: t.ClassVar = [
        ("address", ctypes.c_void_p), ("address_length", ctypes.c_uint), ("number", ctypes.c_long), ("message", _Message),
    ]  # fmt: skip


class _Answer(ctypes.Structure):
    _fields_: t.ClassVar = [
        ("type", ctypes.c_int), ("address", ctypes.c_void_p), ("address_length", ctypes.c_uint), ("number", ctypes.c_long),
        ("message", _Message),
    ]  # fmt: skip


SYSTEM_INTERFACE, BMC_CHANNEL = 0x0C, 0x0F
_SEND = 2 << 30 | ctypes.sizeof(_Request) << 16 | ord("i") << 8 | 13
_RECEIVE_TRUNCATED = 3 << 30 | ctypes.sizeof(_Answer) << 16 | ord("i") << 8 | 11


class Device:
    """The kernel's device at `path`. Nothing is asked after the time `deadline` of time.monotonic()."""

    def __init__(self, path: str, deadline: float) -> None:
        self.deadline = deadline
        self.handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.number = 0

    def close(self) -> None:
        os.close(self.handle)

    def ask(self, command: tuple[int, int], data: bytes = b"", lun: int = 0) -> bytes:
        """Return the answer to a command without its completion code. Raise IpmiError if there is none, or if it is an error."""
        self.number += 1
        address = _Address(SYSTEM_INTERFACE, BMC_CHANNEL, lun)
        sent = ctypes.create_string_buffer(data, len(data) or 1)
        request = _Request(ctypes.addressof(address), ctypes.sizeof(address), self.number)
        request.message = _Message(command[0], command[1], len(data), ctypes.addressof(sent))
        fcntl.ioctl(self.handle, _SEND, request)
        until = min(self.deadline, time.monotonic() + ONE_ANSWER_S)
        while True:
            number, answer = self._receive(until, command)
            if number == self.number and answer:  # else an answer that came too late for an earlier command
                break
        if answer[0]:
            raise Refused(command, answer[0])
        return answer[1:]

    def _receive(self, until: float, command: tuple[int, int]) -> tuple[int, bytes]:
        """Return the next answer with the number of its command."""
        poll = select.poll()
        poll.register(self.handle, select.POLLIN)
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise IpmiError(f"no answer to command {command[0]:#04x}/{command[1]:#04x}")
        address, room = (ctypes.create_string_buffer(size) for size in (64, 272))
        answer = _Answer(0, ctypes.addressof(address), ctypes.sizeof(address), 0)
        answer.message = _Message(0, 0, ctypes.sizeof(room), ctypes.addressof(room))
        fcntl.ioctl(self.handle, _RECEIVE_TRUNCATED, answer)
        return int(answer.number), room.raw[: answer.message.length]


class Asked(t.Protocol):
    """The methods of a Device that sensors() and events() use."""

    def ask(self, command: tuple[int, int], data: bytes = b"", lun: int = 0) -> bytes: ...


class SensorRecord(t.NamedTuple):
    """A sensor, as the repository of sensor records describes it; `record` is the whole of its record."""

    number: int
    name: str
    entity: str
    type: int
    event_type: int
    lun: int
    record: bytes


def sensors(device: Asked) -> str:
    """Return all sensors in the form of `ipmitool sdr elist`. Raise IpmiError if the list is not whole."""
    lines = []
    for sensor in sensor_records(device):
        state, reading = "ns", "Event-Only"
        if sensor.record[5] != OWN:
            reading = f"{NOT_ASKED}: of controller {sensor.record[5]:#04x}"
        elif sensor.record[3] != EVENT_ONLY:
            state, reading = _reading(device, sensor)
        lines.append(f"{sensor.name:<16} | {sensor.number:02X}h | {state:<3} | {sensor.entity} | {reading}")
    return "\n".join(lines)


def events(device: Asked) -> str:
    """Return the log of events in the form of `ipmitool sel elist`. Raise IpmiError if the list is not whole."""
    state = device.ask(GET_SEL_INFO)
    if len(state) < 3:
        raise IpmiError("the state of the log is cut")
    if struct.unpack_from("<H", state, 1)[0] == 0:
        return ""
    names = {sensor.number: sensor.name for sensor in sensor_records(device) if sensor.record[5] == OWN}
    lines, record_id = [], FIRST
    seen: set[int] = set()
    if len(state) > 13 and state[13] & OVERFLOW:
        lines.append(f"{0:4x} | Pre-Init | {_type(0x10)} | {_words(0x10, SENSOR_SPECIFIC, 4)} | Asserted")
    while record_id != LAST:
        try:
            answer = device.ask(GET_SEL, struct.pack("<HHBB", 0, record_id, 0, 0xFF))
        except Refused as refusal:
            if refusal.code == NOT_PRESENT and record_id == FIRST:  # cleared in between
                return ""
            raise
        following = _following(answer, record_id, seen)
        lines.append(_event(answer[2:], names))
        record_id = following
    return "\n".join(lines)


def clock(device: Asked) -> str:
    """Return the time of the log's clock in the form of `ipmitool sel time get`."""
    answer = device.ask(GET_SEL_TIME)
    if len(answer) < 4:
        raise IpmiError("the time of the log is cut")
    return time.strftime("%m/%d/%Y %H:%M:%S UTC", time.gmtime(struct.unpack_from("<I", answer)[0]))


def sensor_records(device: Asked) -> list[SensorRecord]:
    """Return the sensors that the repository of the management controller has."""
    found: list[SensorRecord] = []
    seen: set[int] = set()
    record_id = FIRST
    reservation = device.ask(RESERVE_SDR)[:2]
    while record_id != LAST:
        try:
            following, record = _sdr(device, reservation, record_id, seen)
        except Refused as refusal:
            if refusal.code != RESERVATION_LOST:
                raise
            reservation = device.ask(RESERVE_SDR)[:2]  # another program has read meanwhile
            following, record = _sdr(device, reservation, record_id, seen)
        found += _sensors(record)
        record_id = following
    return found


def _following(answer: bytes, record_id: int, seen: set[int]) -> int:
    """Return the id of the next record, which is added to those `seen`. Raise IpmiError if a list would never end."""
    following: int = struct.unpack_from("<H", answer)[0] if len(answer) >= 2 else record_id
    if following in (record_id, FIRST) or following in seen:
        raise IpmiError(f"the list of records does not go on behind record {record_id:#06x}")
    seen.add(following)
    return following


def _sdr(device: Asked, reservation: bytes, record_id: int, seen: set[int]) -> tuple[int, bytes]:
    """Return the id of the next sensor record, and a record."""

    def part(at: int, count: int) -> bytes:
        return device.ask(GET_SDR, reservation + struct.pack("<HBB", record_id, at, count))

    answer = part(0, 5)
    record = answer[2:]
    if len(record) != 5:
        raise IpmiError(f"sensor record {record_id:#06x} is cut")
    size = 5 + record[4]
    while len(record) < size:
        more = part(len(record), min(CHUNK, size - len(record)))[2:]
        if not more:
            raise IpmiError(f"sensor record {record_id:#06x} is cut")
        record += more
    return _following(answer, record_id, seen), record


def _sensors(record: bytes) -> list[SensorRecord]:
    """Return the sensors of a record: several of a compact record that they share (43.2), none of a record of something else."""
    at = {FULL: 47, COMPACT: 31, EVENT_ONLY: 16}.get(record[3])
    if at is None or len(record) <= at:
        return []
    shared, types = {COMPACT: 23, EVENT_ONLY: 12}.get(record[3]), 10 if record[3] == EVENT_ONLY else 12
    entity, numbers = f"{record[8]}.{record[9] & 0x7F}", [record[7]]
    if shared is not None:
        numbers = [(record[7] + place) & 0xFF for place in range(max(1, record[shared] & 0x0F))]
    sensors = []
    for place, number in enumerate(numbers):
        name = _text(record[at], record[at + 1 :])
        name = f"{name} {place + 1}" if name and place else name or f"#{number:#04x}"
        sensors.append(SensorRecord(number, name, entity, record[types], record[types + 1], record[6] & 3, record))
    return sensors


def _text(kind: int, data: bytes) -> str:
    """Return a name; `kind` is its type and length (43.15)."""
    data = data[: kind & 0x1F]
    if kind >> 6 == 2:  # packed ASCII, 6 bits a character
        bits = int.from_bytes(data, "little")
        data = bytes(0x20 + (bits >> 6 * k & 0x3F) for k in range(len(data) * 8 // 6))
    text = data.decode("latin-1") if kind >> 6 in (2, 3) else ""
    return _printable(text)


def _reading(device: Asked, sensor: SensorRecord) -> tuple[str, str]:
    """Return state and reading of a sensor in ipmitool's words."""
    try:
        answer = device.ask(GET_READING, bytes([sensor.number]), sensor.lun)
    except Refused as refusal:
        # Controllers refuse to read some sensors, such as those of a part that is missing or off; the others count all the same.
        return "ns", "No Reading" if refusal.code == NOT_PRESENT else f"refused with {refusal.code:#04x}"
    if len(answer) < 2 or answer[1] & 0x20 or not answer[1] & 0x40:
        return "ns", "No Reading" if len(answer) < 2 or answer[1] & 0x40 else "Disabled"
    states = int.from_bytes(answer[2:4], "little")
    if sensor.event_type != THRESHOLD:
        return "ok", ", ".join(_words(sensor.type, sensor.event_type, bit) for bit in range(15) if states >> bit & 1)
    state = next((word for bit, word in STATES.items() if states >> bit & 1), "ok")
    return state, _value(sensor.record, answer[0])


def _value(record: bytes, raw: int) -> str:
    """Return an analog reading in its unit (36.3), or as it is if it is not linear."""
    if record[3] != FULL or record[20] >> 6 == 3:
        return f"raw {raw:#04x}"
    signed = {0: raw, 1: raw if raw < 128 else raw - 255, 2: raw if raw < 128 else raw - 256}[record[20] >> 6]
    unit = "percent" if record[20] & 1 else UNITS.get(record[21], "")
    if record[23] & 0x7F:
        return f"raw {raw:#04x} {unit}".strip()
    factor, offset = _signed(record[24] | record[25] << 2 & 0x300, 10), _signed(record[26] | record[27] << 2 & 0x300, 10)
    result_exponent, offset_exponent = _signed(record[29] >> 4, 4), _signed(record[29] & 15, 4)
    value = (factor * signed + offset * 10.0**offset_exponent) * 10.0**result_exponent
    return f"{value:.7g} {unit}".strip()


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


def _words(sensor_type: int, event_type: int, offset: int) -> str:
    table = ipmi_states.SPECIFIC.get(sensor_type, {}) if event_type == SENSOR_SPECIFIC else ipmi_states.GENERIC.get(event_type, {})
    return table[offset].words[0] if offset in table else f"state {offset}"


def _type(number: int) -> str:
    return ipmi_states.TYPES[number][0] if number in ipmi_states.TYPES else f"Type {number:#04x}"


def _event(record: bytes, names: t.Mapping[int, str]) -> str:
    """Return a line for an event. Records of a maker's own, and one that is cut, have lines that say so."""
    if len(record) < 16:
        return f"a record of {len(record)} bytes: {record.hex()}"
    record_id, stamp = struct.unpack_from("<H", record)[0], struct.unpack_from("<I", record, 3)[0]
    if record[2] == PANIC:
        return f"{record_id:4x} | Linux kernel panic: {_printable(record[5:16].decode('latin-1'))}"
    if record[2] != EVENT:
        return f"{record_id:4x} | OEM record {record[2]:02x} | {record[3:16].hex()}"
    when = time.strftime("%m/%d/%y | %H:%M:%S UTC", time.gmtime(stamp)) if FIRST_DATE <= stamp < 0xFFFFFFFF else "Pre-Init"
    sensor_type, number, kind, data = record[10], record[11], record[12], record[13:16]
    event_type, offset = kind & 0x7F, data[0] & 15
    if event_type == THRESHOLD:
        limit = " ".join(ipmi_states.LIMITS[offset // 2]) if offset < 12 else f"state {offset}"
        words = f"{limit} going {'high' if offset % 2 else 'low'}"
    else:
        words = _words(sensor_type, event_type, offset)
        if (
            (sensor_type, event_type, offset) == (FIRMWARE, SENSOR_SPECIFIC, 0)
            and data[0] & 0xC0
            and data[1] < len(ipmi_states.FIRMWARE_ERRORS)
        ):
            words = ipmi_states.FIRMWARE_ERRORS[data[1]]
    sensor = f"{_type(sensor_type)} {names.get(number, f'#{number:#04x}')}"
    return f"{record_id:4x} | {when} | {sensor} | {words} | {'Deasserted' if kind & 0x80 else 'Asserted'}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() and c != "|" else " " for c in text).strip()
