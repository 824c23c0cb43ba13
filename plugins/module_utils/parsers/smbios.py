# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine, its processors and its memory devices in its SMBIOS table (DMTF DSP0134, structure types 1, 4 and 17), as the kernel shows
it in /sys/firmware/dmi/tables/DMI.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import struct
import typing as t
import uuid

SYSTEM, PROCESSOR, MEMORY_DEVICE, CONTROLLER, END_OF_TABLE = 1, 4, 17, 38, 127
# Of a processor: a central one; a populated socket; states of one (DSP0134, 7.5.1 and the table of the status).
_CENTRAL, _POPULATED, FAILED = 3, 0x40, 3
# The strings by which firmware says that a text is not known.
_NO_TEXT = ("unknown", "not specified", "none", "no dimm", "n/a")
# Words of firmware in the texts of a module that it does not use.
_NOT_USED = re.compile(r"(?<!not )\b(?:disabled|unusable|not usable|mapped[ -]?out|map-?out|deconfigured|faulty|failed)\b", re.I)
# Types of memory that are no module for the machine's work: ROM, flash, EEPROM and their kind (DSP0134, 7.18.2).
_NO_MODULE = (0x08, 0x09, 0x0A, 0x0B, 0x0C)
# Values that say that nothing is known.
_UNKNOWN_SIZE, _SIZE_IS_LONG, _UNKNOWN_SPEED, _SPEED_IS_LONG = 0xFFFF, 0x7FFF, 0, 0xFFFF


class Dimm(t.NamedTuple):
    """One slot for a memory module. `size_mib` is 0 if the slot is empty and None if the firmware does not know. Speeds are MT/s: `rated`
    is what the module can do, `speed` what the firmware has set; None if unknown. `kind` is the type of memory of DSP0134 (26 is DDR4,
    34 DDR5); `not_used` is the firmware's text that says that the module is not used, "" if none does."""

    locator: str
    bank: str
    size_mib: int | None
    rated: int | None
    speed: int | None
    maker: str
    serial: str
    part_number: str
    kind: int | None = None
    not_used: str = ""

    @property
    def name(self) -> str:
        """Return the place of the module, with its serial number if it has one."""
        bank = f" ({self.bank})" if self.bank and self.bank != self.locator else ""
        return f"DIMM {self.locator or '?'}{bank}" + (f", serial number {self.serial}" if self.serial else "")

    def words(self) -> str:
        """Return the slot and what is in it, without what differs between two machines of one order."""
        if self.size_mib == 0:
            return f"{self.locator}: empty"
        size = "unknown size" if self.size_mib is None else f"{self.size_mib / 1024:g} GiB"
        return f"{self.locator}: {size}" + (f" at {self.speed} MT/s" if self.speed else "")


class System(t.NamedTuple):
    """The identity of a machine: the serial number on its case and its UUID, both empty if the firmware does not know them."""

    serial: str
    uuid: str


def system(table: bytes) -> System:
    """Return the identity of the machine."""
    for kind, formatted, texts in _structures(table):
        if kind == SYSTEM and len(formatted) >= 0x19:
            number = formatted[0x08:0x18]
            # All bits 0: not present; all bits 1: not set. The first three fields are little-endian since version 2.6 of the format.
            known = number not in (bytes(16), b"\xff" * 16)
            return System(_text(formatted, texts, 0x07), str(uuid.UUID(bytes_le=number)) if known else "")
    return System("", "")


class Socket(t.NamedTuple):
    """A socket with a central processor in it: its name, and the state of the processor (1 enabled, 2 disabled by a user, FAILED)."""

    name: str
    status: int


def processors(table: bytes) -> list[Socket]:
    """Return the sockets that have a processor, in the order of the table."""
    return [
        Socket(_text(formatted, texts, 0x04) or "?", formatted[0x18] & 7)
        for kind, formatted, texts in _structures(table)
        if kind == PROCESSOR and len(formatted) > 0x18 and formatted[0x05] == _CENTRAL and formatted[0x18] & _POPULATED
    ]


def has_controller(table: bytes) -> bool:
    """Return True if the table has a management controller whose kind of interface is known."""
    return any(kind == CONTROLLER and formatted[4:5] not in (b"", b"\0") for kind, formatted, _texts in _structures(table))


def dimms(table: bytes) -> list[Dimm]:
    """Return the memory slots in a table, in its order. A table that is cut gives those before the cut."""
    slots = [_dimm(formatted, texts) for kind, formatted, texts in _structures(table) if kind == MEMORY_DEVICE and len(formatted) >= 0x15]
    return [slot for slot in slots if slot.kind not in _NO_MODULE]


def is_whole(table: bytes) -> bool:
    """Return False if a table is empty or ends within a structure, so that some may be missing. Older firmware has no end of table."""
    end = 0
    for kind, formatted, _texts in _structures(table):
        end = table.find(b"\0\0", end + len(formatted)) + 2
        if kind == END_OF_TABLE:
            return True
    return end > 0 and not table[end:].strip(b"\0")


def _structures(table: bytes) -> t.Iterator[tuple[int, bytes, list[str]]]:
    """Yield (type, formatted area, strings) of each structure."""
    at = 0
    while at + 4 <= len(table):
        kind, length = table[at], table[at + 1]
        if length < 4 or at + length > len(table):
            return
        end = table.find(b"\0\0", at + length)
        if end < 0:
            return
        texts = table[at + length : end].decode("utf-8", "replace").split("\0")
        yield kind, table[at : at + length], texts
        if kind == END_OF_TABLE:
            return
        at = end + 2


def _text(data: bytes, texts: list[str], offset: int) -> str:
    """Return the string that a structure refers to at an offset; empty if there is none, or if it says that nothing is known."""
    index = data[offset] if offset < len(data) else 0
    value = texts[index - 1].strip() if 0 < index <= len(texts) else ""
    return "" if value.lower() in _NO_TEXT else value


def _dimm(data: bytes, texts: list[str]) -> Dimm:
    def number(offset: int, kind: str) -> int | None:
        return struct.unpack_from(kind, data, offset)[0] if offset + struct.calcsize(kind) <= len(data) else None

    def text(offset: int) -> str:
        return _text(data, texts, offset)

    def speed(short: int, long: int) -> int | None:
        speed = number(short, "<H")
        speed = number(long, "<I") if speed == _SPEED_IS_LONG else speed
        return None if speed == _UNKNOWN_SPEED else speed

    size = number(0x0C, "<H")
    if size == _SIZE_IS_LONG:
        size = number(0x1C, "<I")
        size = None if size is None else size & 0x7FFFFFFF
    elif size == _UNKNOWN_SIZE:
        size = None
    elif size is not None and size & 0x8000:  # in KiB
        size = (size & 0x7FFF) // 1024
    # Offset 0x19 is the asset tag, into which some firmware writes the state of the module.
    not_used = next((words for words in texts if _NOT_USED.search(words)), "")
    return Dimm(
        text(0x10), text(0x11), size, speed(0x15, 0x54), speed(0x20, 0x58), text(0x17), text(0x18), text(0x1A), number(0x12, "<B"),
        not_used.strip()[:80],
    )  # fmt: skip
