# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cables of nodes held to rails: port k of every node at the leaves of one rail, two ports of a node at different leaves.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import likeness, plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.likeness import FEWEST, SHARE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import End, Finding, Map, in_order

# Ports that a finding names.
SHOWN = 4


def _majority(counts: collections.Counter[int], rails: int) -> int | None:
    """Return the rail that is usual at a leaf, or that of more than half of its ports, if that is more than chance would have it. None if
    there is none."""
    rail, count = max(counts.items(), key=lambda item: item[1])
    ports = sum(counts.values())
    least = min(SHARE, _by_chance(ports, rails)) * ports
    return rail if count >= max(FEWEST, least) and 2 * count > ports else None


def _by_chance(ports: int, rails: int) -> float:
    """Return the share of the most frequent rail among ports that are plugged in at random: the expected greatest of `rails` normal
    deviations at most, and a tenth."""
    mean = 1 / max(1, rails)
    return mean + math.sqrt(2 * math.log(max(1, rails)) * mean * (1 - mean) / ports) + 0.1


def _places(fabric: Map, rail: t.Mapping[End, int]) -> dict[str, tuple[tuple[int, str], ...]]:
    """Return the leaf of each rail of each node that has a link."""
    return {
        node: tuple(sorted((rail[end], leaf) for end in ends if (leaf := fabric.leaf_of(end)) is not None))
        for node, ends in fabric.ports.items()
    }  # fmt: skip


def _alike(fabric: Map, rail: t.Mapping[End, int]) -> int:
    """Return how many nodes have all of their ports where at least two others have them."""
    counts = collections.Counter(_places(fabric, rail).values())
    return sum(count for places, count in counts.items() if count >= FEWEST and places)


def _other_than_alike(fabric: Map, rail: t.Mapping[End, int]) -> dict[End, list[str]]:
    """Return the ports that are not where the nodes with which their node shares more than half of its places have them, with the leaf
    there. Nearly all nodes have to have their ports where others have them, as those with several ports at one leaf."""
    if _alike(fabric, rail) < max(FEWEST, SHARE * len(fabric.ports)):
        return {}
    places = _places(fabric, rail)
    counts = collections.Counter(places.values())
    patterns = [dict(each) for each, count in counts.items() if count >= FEWEST and each]
    found: dict[End, list[str]] = {}
    for node, own in places.items():
        if not own or counts[own] >= FEWEST:
            continue
        near = [pattern for pattern in patterns if 2 * sum(pattern.get(number) == leaf for number, leaf in own) > len(own)]
        if len(near) == 1:
            for end in fabric.ports[node]:
                leaf = fabric.leaf_of(end)
                expected = near[0].get(rail[end])
                if leaf is not None and expected is not None and leaf != expected:
                    found[end] = [expected]
    return found


class _Rails:
    """The rail of each leaf, and the leaves that serve the same nodes, as most of their ports say."""

    def __init__(self, fabric: Map) -> None:
        self.fabric = fabric
        self.rail = likeness.rail_numbers(fabric)
        self.nodes_at = {leaf: [fabric.links[far] for far in ends] for leaf, ends in fabric.leaves().items()}
        counts = {leaf: collections.Counter(self.rail[end] for end in ends) for leaf, ends in self.nodes_at.items()}
        attached = [end for ends in self.nodes_at.values() for end in ends]
        rails = len({self.rail[end] for end in attached})
        # What a leaf is of, its own majority says; whether leaves are of rails at all, nearly all ports together.
        self.rail_of: dict[str, int | None] = {leaf: _majority(each, rails) for leaf, each in counts.items()}
        agreeing = sum(self.rail[end] == self.rail_of[leaf] for leaf, ends in self.nodes_at.items() for end in ends)
        self.purity = sum(max(each.values()) for each in counts.values()) / max(1, len(attached))
        self.by_chance = sum(_by_chance(len(ends), rails) * len(ends) for ends in self.nodes_at.values()) / max(1, len(attached))
        several = sum(len(ends) > 1 for ends in fabric.ports.values())
        # Each leaf is of one rail, as good as all of its ports say; and there are several rails.
        self.optimized = bool(attached) and agreeing >= SHARE * len(attached) and len(set(self.rail_of.values()) - {None}) > 1
        self.optimized = self.optimized and several >= SHARE * len(fabric.ports)
        self.group_of: dict[str, str] = {leaf: leaf for leaf in self.nodes_at}
        if self.optimized:
            self._join()
        by_place: dict[tuple[str, int], list[str]] = collections.defaultdict(list)
        for leaf, rail in self.rail_of.items():
            if rail is not None:
                by_place[self._group(leaf), rail].append(leaf)
        self.leaf_at = dict(by_place)
        self.home = {node: self._home(ends) for node, ends in fabric.ports.items()}

    def _group(self, leaf: str) -> str:
        while self.group_of[leaf] != leaf:
            leaf = self.group_of[leaf]
        return leaf

    def _join(self) -> None:
        """Join the leaves of different rails into which most of the same nodes are plugged."""
        for leaf, ends in self.nodes_at.items():
            if self.rail_of[leaf] is None:
                continue
            others: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
            for node in {end.device for end in ends}:
                for end in self.fabric.ports[node]:
                    far = self.fabric.leaf_of(end)
                    if far is not None and far != leaf and self.rail_of.get(far) == self.rail[end] != self.rail_of[leaf]:
                        others[self.rail[end]][far] += 1
            for counts in others.values():
                far, count = counts.most_common(1)[0]
                if 2 * count > len(ends):
                    self.group_of[self._group(far)] = self._group(leaf)

    def _home(self, ends: list[End]) -> str | None:
        """Return the group of leaves that more than half of a node's ports are plugged into."""
        groups = collections.Counter(self._group(leaf) for end in ends if (leaf := self.fabric.leaf_of(end)) is not None)
        group, count = max(groups.items(), key=lambda item: item[1], default=(None, 0))
        return group if 2 * count > sum(groups.values()) and count > 1 else None

    def is_mixed(self) -> bool:
        """Return True if leaves seem to be of one rail each, by more ports than would agree if they were plugged in at random, and by too
        few to say where the others should be. Leaves that are of several rails by design have the same places for most nodes."""
        if self.optimized or self.purity <= self.by_chance or len(set(self.rail.values())) < 2:
            return False
        return _alike(self.fabric, self.rail) < SHARE * len(self.fabric.ports)

    def divided(self) -> list[str]:
        """Return the nodes whose ports are at two groups of leaves, without a majority at one, where nearly all nodes are at one. Leaves
        with too few nodes to have a rail are in no group with others."""
        leaves = {
            node: {leaf for end in ends if (leaf := self.fabric.leaf_of(end)) is not None} for node, ends in self.fabric.ports.items()
        }  # fmt: skip
        linked = [node for node, of_node in leaves.items() if of_node and all(self.rail_of[leaf] is not None for leaf in of_node)]
        groups = {node: {self._group(leaf) for leaf in leaves[node]} for node in linked}
        at_one = sum(len(groups[node]) == 1 for node in linked)
        if at_one < max(FEWEST, SHARE * len(linked)):
            return []
        return [node for node in linked if len(groups[node]) > 1 and self.home[node] is None]

    def misplaced(self) -> dict[End, list[str]]:
        """Return the ports that are not plugged into a leaf of their rail and of the group of their node, with the leaves that are."""
        found: dict[End, list[str]] = {}
        for node, ends in self.fabric.ports.items():
            for end in ends:
                leaf = self.fabric.leaf_of(end)
                home = self.home[node]
                if leaf is None or leaf not in self.rail_of or home is None:
                    continue
                expected = self.leaf_at.get((home, self.rail[end]), [])
                if expected and leaf not in expected:
                    found[end] = expected
        return found


def findings(fabric: Map) -> t.Iterator[Finding]:
    """Yield the ports of nodes that are on another rail than the same port of most nodes, or on another group of leaves than the node's
    other ports, and nodes of which two ports share a leaf although most nodes' do not."""
    rails = _Rails(fabric)
    misplaced = rails.misplaced() if rails.optimized else _other_than_alike(fabric, rails.rail)
    told: set[End] = set()
    for end, expected in misplaced.items():
        if end in told:
            continue
        leaf = fabric.links[end].device
        partners = [
            other for other, wanted in misplaced.items()
            if other != end and other not in told and leaf in wanted and fabric.links[other].device in expected
        ]  # fmt: skip
        if partners:
            # The partner of one's own node, or that with the other half of the pair at the least distance in the list of ports.
            other = min(partners, key=lambda each: (each.device != end.device, rails.rail[each] != rails.rail[end], in_order(each.device)))
            told |= {end, other}
            yield plan.swapped(fabric, end, other, "by where the other ports of these nodes, and the same ports of other nodes, are")
            continue
        names = " or ".join(fabric.name(each) for each in expected[:2])
        is_rail = rails.optimized and rails.rail_of[leaf] != rails.rail[end]
        why = f"a leaf of port {_rail(rails.rail_of[leaf])} of the nodes" if is_rail else "a leaf of other nodes or ports"
        words = f"{fabric.spoken(end)} is plugged into {fabric.spoken(fabric.links[end])}, {why}; expected {names}"
        yield Finding("FAIL", "cable_wrong", words, (end, fabric.links[end]))
        told.add(end)
    for node in rails.divided() if rails.optimized else ():
        ends = tuple(end for end in fabric.ports[node] if fabric.leaf_of(end) is not None)
        names = ", ".join(dict.fromkeys(fabric.name(fabric.links[end].device) for end in ends))
        words = f"{node} is plugged into leaves of different nodes ({names}), nearly all nodes have their ports at leaves of the same ones"
        yield Finding("FAIL", "cable_wrong", words, ends[:SHOWN])
        told |= set(ends)
    if rails.is_mixed():
        words = f"{100 * rails.purity:.0f} % of the nodes' ports are at leaves of one port of the nodes each, too few to say where the "
        yield Finding("UNKNOWN", "cable_unknown", f"{words}others should be: a plan ({plan.VARIABLE}) says it")
    yield from _same_leaf(fabric, told)


def _rail(rail: int | None) -> str:
    return str(rail + 1) if rail is not None else "?"


def _same_leaf(fabric: Map, told: t.AbstractSet[End]) -> t.Iterator[Finding]:
    by_ports: dict[int, dict[str, list[str]]] = collections.defaultdict(dict)
    for node, ends in fabric.ports.items():
        leaves = [leaf for end in ends if (leaf := fabric.leaf_of(end)) is not None]
        if len(leaves) > 1:
            by_ports[len(leaves)][node] = leaves
    for count, nodes in by_ports.items():
        if likeness.usual(len(set(leaves)) for leaves in nodes.values()) != count:
            continue  # most nodes do not have each port on a leaf of its own
        for node, leaves in nodes.items():
            twice = next((leaf for leaf in leaves if leaves.count(leaf) > 1), None)
            ends = [end for end in fabric.ports[node] if fabric.leaf_of(end) == twice]
            if twice is not None and not told & {*fabric.ports[node]}:
                names = " and ".join(end.port for end in ends[:SHOWN])
                words = f"{node}: {names} are plugged into the same leaf {fabric.name(twice)}, most nodes have each port on another leaf"
                yield Finding("FAIL", "cable_wrong", words, tuple(ends))
