# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How memory modules are spread over the slots of a machine: what a person would see who looks into it.

Firmware names slots as its maker likes; the tables below know the forms that DMI of servers has. This module util is PRIVATE to the
collection.
"""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.smbios import Dimm

# The processor in a name: `P1-DIMMA1`, `CPU0_DIMM_A1`, `PROC 1 DIMM 3`, `SOCKET 0 CHANNEL 1 DIMM 0`, `NODE 1`, `P0 CHANNEL A`.
_SOCKET = re.compile(r"(?:^|[^A-Z0-9])(?:CPU|PROC|PROCESSOR|SOCKET|SKT|NODE|P)[ _-]?(\d+)", re.I)
# `DIMM010`: processor, channel, slot.
_DIGITS = re.compile(r"DIMM(\d)(\d)(\d)\b", re.I)
# `A1` to `B16`: the letter is the processor where it has more slots than a channel has, else the channel.
_LETTER = re.compile(r"([A-Z])(\d{1,2})", re.I)
_MOST_OF_A_CHANNEL = 3
# The channel: `CHANNEL A`, `Channel0`, `DIMMA1`, `DIMM_A1`, `DIMM_P0_A0`, `C0D1`.
_CHANNELS = (
    re.compile(r"CHANNEL[ _-]?([A-Z]|\d+)", re.I), re.compile(r"C(\d+)D\d+", re.I), re.compile(r"DIMM[ _-]?([A-P])\d*\b", re.I),
    re.compile(r"[ _-]([A-P])\d+$", re.I),
)  # fmt: skip
# Shares of the rated speed below which a module runs slower than platforms make it. One module per channel: processors are a grade
# behind their modules (5600 at 4800: 0.86; 3200 at 2666: 0.83). Two per channel: AMD EPYC 9004 runs 4800 at 3600 (0.75), 9005 6400 at
# 4400 (0.69); Intel's fourth generation 4800 at 4400.
SLOW_SHARE, SLOW_SHARE_OF_TWO = 0.8, 0.68


def sockets(slots: t.Sequence[Dimm]) -> list[str]:
    """Return the processor of each slot; "" for all where the names do not tell it."""
    for texts in ([slot.locator for slot in slots], [slot.bank for slot in slots]):
        for pattern in (_SOCKET, _DIGITS):
            matches = [pattern.search(text) for text in texts]
            if all(matches) and len({match.group(1) for match in matches if match}) > 1:
                return [match.group(1) if match else "" for match in matches]
        letters = [_LETTER.fullmatch(text) for text in texts]
        counts = collections.Counter(match.group(1) for match in letters if match)
        if all(letters) and len(counts) > 1 and min(counts.values()) > _MOST_OF_A_CHANNEL:
            return [match.group(1) if match else "" for match in letters]
    return [""] * len(slots)


def channels(slots: t.Sequence[Dimm]) -> list[str]:
    """Return the channel of each slot, unique over processors; "" for all where the names do not tell it."""
    by_socket = sockets(slots)
    for texts in ([slot.bank for slot in slots], [slot.locator for slot in slots]):
        for pattern in _CHANNELS:
            matches = [pattern.search(text) for text in texts]
            if all(matches):
                return [f"{socket}/{match.group(1)}" if match else "" for socket, match in zip(by_socket, matches)]
    return [""] * len(slots)


def unbalanced(slots: t.Sequence[Dimm]) -> list[str]:
    """Return words for each way in which the modules are spread unevenly over processors and slots."""
    filled: dict[str, list[Dimm]] = collections.defaultdict(list)
    empty: dict[str, list[Dimm]] = collections.defaultdict(list)
    for slot, socket in zip(slots, sockets(slots)):
        (empty if slot.size_mib == 0 else filled)[socket].append(slot)
    counts = {socket: len(modules) for socket, modules in sorted(filled.items())}
    words = []
    # Slots of a processor that is not there are all empty.
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"processor {socket} has {count}" for socket, count in counts.items())
        most = max(counts.values())
        poor = [slot.name for socket, count in counts.items() if count < most for slot in empty[socket]]
        words.append(f"{listed} memory modules{f'; empty: {_listed(poor)}' if poor else ''}")
        return words
    for socket, count in counts.items():
        every = count + len(empty[socket])
        # An even number of modules, or a number of which the slots are a multiple, may be meant (3 of 6 channels); 7 of 8 is not.
        if count > 1 and count % 2 and every % count:
            place = f"processor {socket} has" if socket else "the machine has"
            words.append(f"{place} {count} memory modules in {every} slots; empty: {_listed([slot.name for slot in empty[socket]])}")
    return words


def slow(slots: t.Sequence[Dimm]) -> dict[tuple[int, int], list[Dimm]]:
    """Return {(rated speed, speed): modules} of modules that run slower than platforms make them."""
    modules = [(slot, channel) for slot, channel in zip(slots, channels(slots)) if slot.size_mib != 0]
    per_channel = collections.Counter(channel for _slot, channel in modules)
    found: dict[tuple[int, int], list[Dimm]] = collections.defaultdict(list)
    for slot, channel in modules:
        share = SLOW_SHARE_OF_TWO if (per_channel[channel] > 1 if channel else len(modules) > 16) else SLOW_SHARE
        if slot.rated and slot.speed and slot.speed < share * slot.rated:
            found[slot.rated, slot.speed].append(slot)
    return dict(found)


def _listed(names: t.Sequence[str]) -> str:
    return f"{', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"
