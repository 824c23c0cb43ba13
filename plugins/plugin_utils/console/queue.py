# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue of actions: one action at a time on a node, the oldest first; every other action knows which ones it waits for.

What each is told changes seldom, for each change is a write: he waits for those directly before him on his nodes, and of a long queue he
knows his place roughly. Else whoever ends in a queue of thousands would have thousands of them told.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t


class Claim(t.NamedTuple):
    """An action that wants its nodes, or has them."""

    key: str
    name: str
    nodes: t.Collection[str]
    running: bool


class Turn(t.NamedTuple):
    """The turn of an action that wants to begin. `position` is its place among those that wait, from 1, beyond ROUGH in whole ROUGHs;
    0 says go."""

    position: int
    waits: str

    @property
    def go(self) -> bool:
        return not self.position


# More nodes are not named.
NAMED = 3
ROUGH = 100


def turns(claims: t.Sequence[Claim], limit: int) -> t.Dict[str, Turn]:
    """The turn of each claim that is not running, of claims in the order of their age. An action never overtakes an older one that wants
    one of its nodes: else one that wants many would wait for ever. At most `most` run at once."""
    holders: t.Dict[str, Claim] = {node: claim for claim in claims if claim.running for node in claim.nodes}
    running = sum(claim.running for claim in claims)
    waiting = 0
    by_uid: t.Dict[str, Turn] = {}
    for claim in claims:
        if claim.running:
            continue
        before: t.Dict[str, t.List[str]] = {}
        for node in sorted(claim.nodes):
            if node in holders:
                before.setdefault(_who(holders[node]), []).append(node)
        if not before and running < limit:
            running += 1
            by_uid[claim.key] = Turn(0, "")
            holders.update(dict.fromkeys(claim.nodes, claim._replace(running=True)))
            continue
        waiting += 1
        words = [f"{who} on {_named(nodes)}" for who, nodes in before.items()] or [f"one of the {limit} that run at once to end"]
        place = waiting if waiting < ROUGH else waiting - waiting % ROUGH
        by_uid[claim.key] = Turn(place, "; ".join(words[:NAMED]) + (" ..." if len(words) > NAMED else ""))
        holders.update(dict.fromkeys(claim.nodes, claim))
    return by_uid


def _who(claim: Claim) -> str:
    return f"{claim.name} ({'running' if claim.running else 'waits, too'})"


def _named(nodes: t.Sequence[str]) -> str:
    return ", ".join(nodes[:NAMED]) + (f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else "")
