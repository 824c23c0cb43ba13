# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the expectation that holds for a measurement, and its message size. The controller judges by it, and the head of a group of
nodes searches by it: an expectation that one of them is held to, the other is too.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import slots

PLATEAU = "plateau"
# `size: plateau` is the largest size of a sweep that reaches at least this.
PLATEAU_FROM = 8 << 30
# Shares of what is expected, of a number that should be high.
PASS_FROM = 0.95
WARN_FROM = 0.90


class Rule(t.NamedTuple):
    """The part of an expectation that matching needs. `rank` orders the layers; the weakest has 0."""

    match: t.Dict[str, t.Any]
    metric: str
    value: float
    rank: int = 0
    better: str = "higher"


R = t.TypeVar("R")


def same(value: t.Any, expected: t.Any) -> bool:
    """True and 1 are two things; 4 and 4.0 are one."""
    return isinstance(value, bool) == isinstance(expected, bool) and bool(value == expected)


def mismatch(match: t.Mapping[str, t.Any], context: t.Mapping[str, t.Any]) -> str | None:
    """Return the first key of `match` (except `size`) that differs from the context; None if all agree."""
    for key, expected in match.items():
        if key == "size":
            continue
        value = context.get(key)
        if not any(same(value, option) for option in (expected if isinstance(expected, list) else [expected])):
            return key
    return None


def sizes(match: t.Mapping[str, t.Any]) -> t.List[t.Any]:
    """Return the message sizes of a match: bytes, `plateau`, or None for a metric without sizes."""
    size = match.get("size")
    return size if isinstance(size, list) else [size]


def about_usable_nics(match: t.Mapping[str, t.Any]) -> bool:
    """Return True if `nics` of a match are the NICs that the GPUs of a test can use: the match names NICs and neither GPUs nor their
    number. A match that names GPUs describes the machine as it is."""
    return "nics" in match and not {"gpu", "gpus"} & set(match)


def seen_by(match: t.Mapping[str, t.Any], context: t.Mapping[str, t.Any], certain: bool = False) -> t.Mapping[str, t.Any]:
    """Return the context as a match is compared with it: `nics` is the largest number of NICs that the GPUs can use (slots.py); for
    `certain` the number that they can use whatever the PCIe tree of the node is."""
    if not about_usable_nics(match):
        return context
    usable = slots.usable(context)
    return context if usable is None else {**context, "nics": usable.certain if certain else usable.at_most}


def choose(
    rules: t.Iterable[R], context: t.Mapping[str, t.Any], certain: bool = False
) -> t.Dict[t.Tuple[str, t.Any], R]:
    """Return, for each metric and size, the strongest of the rules that hold for a context: of the highest layer, and in it with the most
    keys. `rules` are Rules, or have their attributes. For `certain` the number of NICs is that of seen_by()."""
    best: t.Dict[t.Tuple[str, t.Any], t.Tuple[t.Tuple[int, int, float], R]] = {}
    usable = seen_by({"nics": 0}, context, certain)
    for candidate in rules:
        rule = t.cast(Rule, candidate)
        if mismatch(rule.match, usable if about_usable_nics(rule.match) else context) is not None:
            continue
        # The stricter of two that are otherwise equal; the lint calls such a pair an error.
        strict = rule.value if rule.better == "higher" else -rule.value
        order = (rule.rank, len(rule.match), strict)
        for size in sizes(rule.match):
            slot = (rule.metric, size)
            if slot not in best or order > best[slot][0]:
                best[slot] = (order, candidate)
    return {slot: rule for slot, (_order, rule) in best.items()}


def row_of(size: t.Any, measured: t.Iterable[float]) -> int | None:
    """Return the message size among those `measured` at which a rule for `size` (bytes, or `plateau`) holds; None if there is none."""
    message_sizes = list(measured)
    if size == PLATEAU:
        largest = max(message_sizes, default=0)
        return int(largest) if largest >= PLATEAU_FROM else None
    return int(size) if size in message_sizes else None


def slots_of(size: int) -> t.Iterator[t.Any]:
    """Yield the sizes that a rule may name to hold at `size`, if that is the largest of its sweep: the nearest first."""
    yield size
    if size >= PLATEAU_FROM:
        yield PLATEAU
    yield None
