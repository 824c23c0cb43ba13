# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A value that could not be read, which is neither 0 nor healthy.

Readers of tools and files return a number or `Absent`. An `Absent` cannot be added, compared by size, or used as a condition: each of
these raises TypeError, so that a reader that forgets the case fails in its tests instead of calling a part healthy.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import re
import typing as t

# An integer of any base that tools print, a decimal, thousands in groups of three; then a unit of letters, if any.
_NUMBER = re.compile(
    r"([+-]?(?:\d{1,3}(?:[,_'\u00a0\u202f]\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"(?:\s*(?:%|\u00b0?[A-Za-z][A-Za-z/%]*))?"
)
_HEX = re.compile(r"0[xX][0-9a-fA-F]+")
# No tool has longer numbers, and Python refuses to read very long ones.
_LONGEST = 60


class Absent:
    """A value that could not be read. `why` is a clause for people: `nvme-cli prints "N/A"`."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why

    def __bool__(self) -> t.NoReturn:
        raise TypeError(f"an absent value is neither true nor false ({self.why}): ask is_absent()")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Absent) and other.why == self.why

    def __hash__(self) -> int:
        return hash(self.why)

    def __repr__(self) -> str:
        return f"Absent({self.why!r})"


Value = t.Union[int, float, Absent]


def is_absent(value: object) -> bool:
    return isinstance(value, Absent)


def number(cell: t.Any, name: str = "the value") -> Value:
    """Return the number in a cell of a tool's output: an int, a finite float, a text with a number and at most a unit behind it (`53`,
    `0x1f`, `1,234,567`, `38 C`, `12 %`), or an object whose `value` is one of these. Anything else is Absent; `name` says of what."""
    if isinstance(cell, dict) and "value" in cell:
        return number(cell["value"], name)
    if isinstance(cell, int) and not isinstance(cell, bool):
        return cell
    if isinstance(cell, float) and math.isfinite(cell):
        return int(cell) if cell.is_integer() else cell
    if isinstance(cell, str):
        text = cell.strip()
        if len(text) > _LONGEST:
            return Absent(f"{name} reads {text[:_LONGEST]!r}")
        if _HEX.fullmatch(text):
            return int(text, 16)
        # A hexadecimal number without its digits is not 0 with the unit x.
        match = _NUMBER.fullmatch(text) if text[:2].lower() != "0x" else None
        if match:
            digits = re.sub(r"[,_'\u00a0\u202f]", "", match.group(1))
            return number(float(digits)) if re.search(r"[.eE]", digits) else int(digits)
    if cell is None:
        return Absent(f"{name} is missing")
    return Absent(f"{name} reads {str(cell)[:60]!r}")


def total(values: t.Iterable[Value]) -> Value:
    """Return the sum of values; Absent if one of them is, or if there are none."""
    added: int | float = 0
    counted = False
    for value in values:
        if isinstance(value, Absent):
            return value
        added += value
        counted = True
    return added if counted else Absent("there is nothing to add")


def plain(value: Value) -> int | float | None:
    """Return a value as JSON has it: None if it is absent."""
    return None if isinstance(value, Absent) else value


def plain_tree(tree: t.Any) -> t.Any:
    """Return nested dicts and lists as JSON has them: with None for what is absent."""
    if isinstance(tree, dict):
        return {key: plain_tree(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [plain_tree(value) for value in tree]
    return None if isinstance(tree, Absent) else tree


def at_least(values: t.Iterable[Value]) -> Value:
    """Return the sum of counters of errors as far as they can be read: the sum of all; if some are absent, the sum of the others, which is
    then the least that it can be, unless that is 0: nothing is known to be clean by what could not be read."""
    absent: Absent | None = None
    added: int | float = 0
    counted = False
    for value in values:
        if isinstance(value, Absent):
            absent = value if absent is None else absent
        else:
            added += value
            counted = True
    if absent is not None and not added:
        return absent
    return added if counted else Absent("there is nothing to add")
