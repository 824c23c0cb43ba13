# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The majority ruling on bits that several devices should have computed alike.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t


class Ruling(t.NamedTuple):
    """The convicted, {name: reason}; or the reason why nobody can be convicted, else None."""

    odd: dict[str, str]
    unresolved: str | None


def ruling(bits: t.Mapping[str, t.Sequence[str]]) -> Ruling:
    """Return the ruling on {name: fingerprints of the same work, done once or more}.

    A name that gives one fingerprint each time is steady. A fingerprint is right if more than half of all names give it each time; or if
    all steady names give it and they are at least half of all. Of two steady names that differ, none is convicted.
    """
    steady = {name: set(fingerprints).pop() for name, fingerprints in bits.items() if len(set(fingerprints)) == 1}
    if len(steady) == len(bits) and len(set(steady.values())) <= 1:
        return Ruling({}, None)
    shares = collections.Counter(steady.values())
    right, count = shares.most_common(1)[0] if shares else ("", 0)
    if not (2 * count > len(bits) or (len(shares) == 1 and 2 * count >= len(bits))):
        return Ruling({}, _doubt(bits, steady, shares))
    odd = {}
    for name, fingerprints in bits.items():
        if set(fingerprints) != {right}:
            description = "gave another result" if name in steady else f"gave {len(set(fingerprints))} different results of the same work"
            odd[name] = f"{description}, where {count} of {len(bits)} gave the same result, bit for bit"
    return Ruling(odd, None)


def _doubt(bits: t.Mapping[str, t.Sequence[str]], steady: t.Mapping[str, str], shares: t.Mapping[str, int]) -> str:
    if not steady:
        return f"none of {len(bits)} gave the same result twice: what computes here does not promise the same bits"
    groups = [", ".join(sorted(name for name in steady if steady[name] == value)) for value in shares]
    wavering = sorted(set(bits) - set(steady))
    text = f"{' and '.join(groups)} differ" if len(groups) > 1 else f"{groups[0]} gave the same result each time"
    return text + (f", {', '.join(wavering)} contradict themselves" if wavering else "") + ": no value has a majority"
