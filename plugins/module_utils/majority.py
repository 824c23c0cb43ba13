# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is wrong of several that should have computed the same bits.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t


class Ruling(t.NamedTuple):
    """Whom the others convict, {name: why}, and where nobody can be convicted, why nobody can be believed."""

    odd: dict[str, str]
    unresolved: str | None


def ruling(bits: t.Mapping[str, t.Sequence[str]]) -> Ruling:
    """Of {name: fingerprints of the same work, done once or more}.

    Whoever gives the same each time is believed where more than half of all give just that; or where everybody who gives the same each
    time gives that, and those who contradict themselves are not more. Of two that differ, each by itself the same, none is convicted.
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
