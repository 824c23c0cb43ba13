# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rates of links, held to those of other links of the same kind and to what both of their ends say they can.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import likeness
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, OTHER, End, Finding, Map


class _Alike(t.NamedTuple):
    """Links of one kind, each by one of its ends. `expected`: the Gb/s of more than half of them, else the highest if they are enough to
    say so, else None."""

    ends: list[End]
    rates: collections.Counter[float]
    expected: float | None

    @property
    def best(self) -> float:
        return max(self.rates)

    @property
    def faster(self) -> int:
        return sum(number for rate, number in self.rates.items() if self.expected is not None and rate > self.expected)


def findings(fabric: Map) -> t.Iterator[Finding]:
    """Yield what is wrong with rates of links. One that is slower than its kind is not told of by what its ends can as well."""
    kinds = _kinds(fabric)
    narrow = {end for end, most in fabric.widest.items() if end in fabric.rates and 0 < (fabric.rates[end].width or 0) < most}
    for alike in kinds:
        yield from _undecided(fabric, alike, narrow)
    slow = [
        (end, alike.expected)
        for alike in kinds
        for end in alike.ends
        if alike.expected is not None and fabric.rates[end].gbps < alike.expected
    ]
    told = {each for end, _expected in slow for each in (end, fabric.links[end])}
    yield from _narrow(fabric, narrow, told, kinds)
    yield from _could_do_more(fabric, told)
    yield from _slow(fabric, slow)
    yield from _uneven(fabric)


def _kinds(fabric: Map) -> list[_Alike]:
    kinds: dict[tuple[str, ...], list[End]] = collections.defaultdict(list)
    kind_of = likeness.Kinds(fabric)
    for end, far in fabric.links.items():
        if end in fabric.rates and (end < far or far not in fabric.rates):
            kinds[tuple(sorted((kind_of(end), kind_of(far))))].append(end)
    found = []
    for ends in kinds.values():
        rates = collections.Counter(fabric.rates[end].gbps for end in ends)
        common, count = rates.most_common(1)[0]
        enough = max(rates) if len(ends) >= likeness.FEWEST else None
        found.append(_Alike(ends, rates, common if 2 * count > len(ends) else enough))
    return found


def _undecided(fabric: Map, alike: _Alike, narrow: t.Collection[End]) -> t.Iterator[Finding]:
    """Yield links of which their kind does not say what they should have: of two, or slower than three others that are fewer than half."""
    most_are_slower = alike.expected is not None and alike.faster >= likeness.FEWEST
    if not most_are_slower and (alike.expected is not None or len(alike.rates) == 1):
        return
    for end in alike.ends:
        rate, far = fabric.rates[end], fabric.links[end]
        if end in narrow or OTHER in map(fabric.kind, (end.device, far.device)):
            continue
        words = f"{fabric.spoken(end)} with {fabric.spoken(far)} runs at {rate.gbps:g} Gb/s"
        if most_are_slower and rate.gbps == alike.expected:
            words += f", as most links of its kind do, and {alike.faster} of {len(alike.ends)} run at up to {alike.best:g}: "
            yield Finding("UNKNOWN", "unresolved", f"{words}which is right is not known", (end, far))
        elif not most_are_slower and rate.gbps < alike.best:
            words += f" ({rate.words}), the other link of its kind at {alike.best:g}; which is right is not known"
            yield Finding("UNKNOWN", "unresolved", words, (end, far))


def _narrow(fabric: Map, narrow: t.Collection[End], told: set[End], kinds: t.Sequence[_Alike]) -> t.Iterator[Finding]:
    """Yield links with fewer lanes than both of their ends can use, and add them to `told`."""
    all_equal = {end for alike in kinds if len(alike.ends) >= likeness.FEWEST and len(alike.rates) == 1 for end in alike.ends}
    for end in sorted(set(narrow) - told):
        far = fabric.links[end]
        if end not in told and (end < far or far not in narrow):
            told |= {end, far}
            words = f"{fabric.spoken(end)} with {fabric.spoken(far)} has {fabric.rates[end].words}, and both ends can use "
            words += f"{fabric.widest[end]} lanes (iblinkinfo): look at its cable and at settings of the width"
            # Where all links of a kind have as few lanes somebody may want it so.
            yield Finding("WARN" if {end, far} & all_equal else "FAIL", "link_slow", words, (end, far))


def _could_do_more(fabric: Map, told: set[End]) -> t.Iterator[Finding]:
    """Yield links whose lanes are slower than both of their ends can, and add them to `told`."""
    for end, could in sorted(fabric.could.items()):
        if end in fabric.links and not {end, fabric.links[end]} & told:
            told |= {end, fabric.links[end]}
            has = fabric.rates[end].words if end in fabric.rates else "less"
            words = f"{fabric.spoken(end)} with {fabric.spoken(fabric.links[end])} has {has}, and both ends can do {could:g} Gb/s "
            words += "a lane (iblinkinfo): look at its cable and at settings of the speed"
            yield Finding("WARN", "link_slow", words, (end, fabric.links[end]))


def _slow(fabric: Map, slow: t.Sequence[tuple[End, float]]) -> t.Iterator[Finding]:
    """Yield links slower than their kind, with the end that is more likely behind it, if one is: the device of several of them, else the
    one that counts errors."""
    devices = collections.Counter(device for end, _rate in slow for device in dict.fromkeys((end.device, fabric.links[end].device)))
    for end, expected in slow:
        far = fabric.links[end]
        suspects = [each for each in (end, far) if devices[each.device] > 1]
        noisy = [each for each in (end, far) if each in fabric.counted]
        at = suspects if len(suspects) == 1 else noisy if len(noisy) == 1 else []
        whose = f"look at {fabric.spoken(at[0])} first" if at else "its ends do not say which one is behind it"
        words = (
            f"{fabric.spoken(end)} with {fabric.spoken(far)} runs at {fabric.rates[end].gbps:g} Gb/s ({fabric.rates[end].words}), "
            f"links of its kind at {expected:g}; {whose}"
        )
        first = at[0] if at else next((each for each in (end, far) if fabric.kind(each.device) == NODE), end)
        yield Finding("FAIL", "link_slow", words, (first, far if first == end else end))


def _uneven(fabric: Map) -> t.Iterator[Finding]:
    for end, far in fabric.links.items():
        if end < far and end in fabric.rates and far in fabric.rates and fabric.rates[end].gbps != fabric.rates[far].gbps:
            words = f"the ends of one link have different rates: {fabric.spoken(end)} {fabric.rates[end].words}, "
            yield Finding("FAIL", "link_slow", f"{words}{fabric.spoken(far)} {fabric.rates[far].words}", (end, far))
