# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for what NCCL's RAS service answers (`verbose status`, NCCL 2.24 and later): ranks that have launched less than the others.

NCCL counts what the host has launched, whether it is completed or not, up to 2.25 for all collectives together, later for each kind
(src/ras/client_support.cc). It lists the ranks of a count only if they are few, be they behind the others or ahead of them.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

_COMMUNICATOR = re.compile(r"#\d+-\d+ \([0-9a-fA-F]+\) ([A-Z, ]+)$")
_KIND = re.compile(r"\s+Communicator ranks have different (\w+) operation counts$")
_COUNT = re.compile(r"\s+(\d{1,9}) ranks have (?:launched up to operation (\d{1,20})|not launched any operations)$")
_LONE = re.compile(r"\s+Rank (\d{1,9}) has (?:launched up to operation (\d{1,20})|not launched any operations) -- ")
_RANK = re.compile(r"\s+Rank (\d{1,9}) -- ")


class Behind(t.NamedTuple):
    """Ranks that have launched fewer collectives of a kind than all others. `kind`: as NCCL names it (AllReduce), "collective" for all
    together; `at`: {rank: the number of its last}; `last`: the number of the last of all others."""

    kind: str
    at: t.Mapping[int, int]
    last: int


def behind(text: str, world: int) -> Behind | None:
    """Return the ranks that are behind in the communicator of all ranks. None if there are none, if they are not listed, if they are half
    of the ranks or more, or if kinds of collectives or counts say different things."""
    answers: list[Behind | None] = []
    kind, is_mismatch = "", False
    counts: dict[int, tuple[int, list[int]]] = {}
    number: int | None = None
    for line in [*text.splitlines(), "#0-0 (0) END"]:
        communicator, new_kind = _COMMUNICATOR.match(line), _KIND.match(line)
        if (communicator or new_kind) and kind:
            answers.append(_of(kind, counts, world))
            kind, counts, number = "", {}, None
        if communicator:
            is_mismatch = communicator.group(1) == "MISMATCH"  # of one that is incomplete not all ranks are known
        elif new_kind and is_mismatch:
            kind = new_kind.group(1)
        elif kind:
            many, lone, rank = _COUNT.match(line), _LONE.match(line), _RANK.match(line)
            if many:
                number = int(many.group(2) or 0)
                counts[number] = (int(many.group(1)), [])
            elif lone:
                counts[int(lone.group(2) or 0)] = (1, [int(lone.group(1))])
            elif rank and number is not None:
                counts[number][1].append(int(rank.group(1)))
    of_world = [answer for answer in answers if answer is not None]
    if not of_world or any(set(answer.at) != set(of_world[0].at) for answer in of_world) or len(of_world) != len(answers):
        return None
    return of_world[0]


def _of(kind: str, counts: dict[int, tuple[int, list[int]]], world: int) -> Behind | None:
    last = max(counts, default=0)
    late = {number: of for number, of in counts.items() if number < last}
    if sum(count for count, _ranks in counts.values()) != world or not late or 2 * sum(count for count, _ranks in late.values()) >= world:
        return None
    if any(len(set(ranks)) != count or not set(ranks) <= set(range(world)) for count, ranks in late.values()):
        return None
    return Behind(kind, {rank: number for number, (_count, ranks) in late.items() for rank in ranks}, last)
