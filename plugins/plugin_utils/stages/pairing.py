# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rounds of pairs that are measured together, in which no node has two partners.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import random
import typing as t

SCOPES = ("ring", "sample", "all_pairs", "pairs")
Round = t.List[t.List[str]]


def pair_rounds(nodes: t.Any, scope: str = "all_pairs", k: int | None = None, seed: t.Any = None) -> list[Round]:
    """Rounds of [a, b].

    `all_pairs`: every pair once, by the circle method, in N-1 rounds (N where N is odd). `ring`: each node with the next.
    `sample`: each node with at least `k` others, chosen by `seed`. `pairs`: `nodes` is a list of pairs. ValueError says what
    is wrong with the arguments.
    """
    if scope not in SCOPES:
        raise ValueError(f"scope: found {scope!r}, expected one of {', '.join(SCOPES)}")
    if (scope == "sample") != (k is not None):
        raise ValueError(f"k: found {k!r} with scope {scope}, expected a number with scope sample and only there")
    if not isinstance(nodes, (list, tuple)):
        raise ValueError(f"nodes: found {nodes!r:.80}, expected a list")
    if scope == "pairs":
        return _pack([_pair(p) for p in nodes])
    names = [str(n) for n in nodes]
    if len(set(names)) != len(names):
        raise ValueError(f"nodes: {next(n for n in names if names.count(n) > 1)!r} is listed twice")
    if len(names) < 2:
        raise ValueError(f"nodes: found {len(names)}, expected at least two")
    if scope == "all_pairs":
        return _circle(names)
    if scope == "ring":
        return _pack([(a, b) for a, b in zip(names, names[1:] + names[:1], strict=True) if a != b][: len(names) if len(names) > 2 else 1])
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k < len(names):
        raise ValueError(f"k: found {k!r}, expected a whole number from 1 to {len(names) - 1}")
    shuffled = names[:]
    random.Random(str(seed)).shuffle(shuffled)
    # Rounds of the circle over a shuffled order are random partners; an odd number rests one node a round.
    return _circle(shuffled)[: k if len(names) % 2 == 0 else min(len(names), k + 1)]


def _pair(pair: t.Any) -> tuple[str, str]:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or str(pair[0]) == str(pair[1]):
        raise ValueError(f"nodes: found {pair!r:.80}, expected a pair of two nodes")
    return str(pair[0]), str(pair[1])


def _circle(names: list[str]) -> list[Round]:
    """One node stands still, the others move around it by one place a round; with an odd number its partner rests."""
    seats: list[str | None] = [*names] if len(names) % 2 == 0 else [*names, None]
    half = len(seats) // 2
    rounds = []
    for number in range(len(seats) - 1):
        moved = seats[:1] + seats[1 + number :] + seats[1 : 1 + number]
        pairs = zip(moved[:half], moved[: half - 1 : -1], strict=True)
        # Who serves and who asks alternates, so that no node always does the same.
        rounds.append([[a, b] if number % 2 else [b, a] for a, b in pairs if a is not None and b is not None])
    return rounds


def _pack(pairs: list[tuple[str, str]]) -> list[Round]:
    """Each pair into the first round in which both are free."""
    rounds: list[Round] = []
    busy: list[set[str]] = []
    packed = set()
    for a, b in pairs:
        if frozenset((a, b)) in packed:
            raise ValueError(f"nodes: the pair {a}, {b} is listed twice")
        packed.add(frozenset((a, b)))
        number = next((i for i, nodes in enumerate(busy) if a not in nodes and b not in nodes), len(rounds))
        if number == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[number].append([a, b])
        busy[number].update((a, b))
    return rounds
