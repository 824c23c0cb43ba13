# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fabric held to itself: what most nodes and most leaves have in common, the others should have too.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import infiniband
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, OTHER, SWITCH, End, Finding, Map, in_order

# So many like things, and so large a share of them that agree, say how the others should be.
FEWEST, SHARE = 3, 0.75
# Ports that a finding names.
SHOWN = 4
# Lanes of a connector.
CONNECTOR = infiniband.CONNECTOR
# A counter that stands at its limit counts no further (InfiniBand Architecture Specification 1.7, PortCounters).
_FULL = {"SymbolErrorCounter": 65535}


def usual(values: t.Iterable[t.Any]) -> t.Any:
    """Return the value that nearly all of enough things have, None if there is none."""
    counts = collections.Counter(values)
    value, count = max(counts.items(), key=lambda item: item[1], default=(None, 0))
    return value if count >= max(FEWEST, SHARE * sum(counts.values())) else None


def of_cables(fabric: Map) -> list[Finding]:
    """Return what is cabled otherwise than most: what a fabric without a plan says of itself."""
    return [*of_nodes(fabric), *of_uplinks(fabric)]


def of_nodes(fabric: Map) -> list[Finding]:
    """Return the cables of nodes that are plugged in otherwise than most."""
    return [*_unplugged(fabric), *_rails(fabric)]


def of_links(fabric: Map) -> list[Finding]:
    """Return ports without an answer, counters, subnet managers and firmware, whatever the plan is."""
    return [*_silent(fabric), *_counters(fabric), *_managers(fabric), *_firmware(fabric)]


# Nodes ----------------------------------------------------------------------------------------------------------------------


def _unplugged(fabric: Map) -> t.Iterator[Finding]:
    """Yield the ports of nodes without a link where most nodes have one in the same port."""
    for rail, ends in sorted(_by_rail(fabric).items()):
        linked = [end for end in ends if end in fabric.links]
        if len(linked) < max(FEWEST, SHARE * len(ends)):
            yield from _perhaps_unplugged(fabric, ends)
            continue
        for end in ends:
            # A port that is up and of which nobody says where it leads is not one without a cable.
            if end in fabric.down:
                words = (
                    f"{fabric.spoken(end)} has no link ({fabric.down[end]}), {len(linked)} of {len(ends)} nodes have one in port {rail + 1}"
                )
                yield Finding("FAIL", "cable_missing", words, (end,))


def _perhaps_unplugged(fabric: Map, ends: t.Sequence[End]) -> t.Iterator[Finding]:
    """Yield the ports of one rail without a link that more than half of their kind have, too few to say that they should."""
    kinds: dict[str, list[End]] = collections.defaultdict(list)
    kind_of = Kinds(fabric)
    for end in ends:
        kinds[kind_of(end)].append(end)
    for alike in kinds.values():
        linked = sum(end in fabric.links for end in alike)
        for end in alike if linked >= FEWEST and 2 * linked > len(alike) else ():
            if end in fabric.down:
                words = f"{fabric.spoken(end)} has no link ({fabric.down[end]}), {linked} of {len(alike)} ports of its kind have one: "
                yield Finding("UNKNOWN", "cable_unknown", f"{words}only a plan ({plan.VARIABLE}) tells whether it should", (end,))


def _by_rail(fabric: Map) -> dict[int, list[End]]:
    rails: dict[int, list[End]] = collections.defaultdict(list)
    for end, rail in rail_numbers(fabric).items():
        rails[rail].append(end)
    return rails


def rail_numbers(fabric: Map) -> dict[End, int]:
    """Return the rail of each port of a node: its place among the node's ports. A node that has some of the ports that most nodes have, by
    their names, has them at the places of most: a lost adapter does not move the others to another rail."""
    names = {node: tuple(end.port for end in ends) for node, ends in fabric.ports.items()}
    common = usual(names.values()) or ()
    found = {}
    for node, ends in fabric.ports.items():
        is_part = set(names[node]) <= set(common)
        found.update({end: common.index(end.port) if is_part else place for place, end in enumerate(ends)})
    return found


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
        self.rail = rail_numbers(fabric)
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


def _rails(fabric: Map) -> t.Iterator[Finding]:
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
        if usual(len(set(leaves)) for leaves in nodes.values()) != count:
            continue  # most nodes do not have each port on a leaf of its own
        for node, leaves in nodes.items():
            twice = next((leaf for leaf in leaves if leaves.count(leaf) > 1), None)
            ends = [end for end in fabric.ports[node] if fabric.leaf_of(end) == twice]
            if twice is not None and not told & {*fabric.ports[node]}:
                names = " and ".join(end.port for end in ends[:SHOWN])
                words = f"{node}: {names} are plugged into the same leaf {fabric.name(twice)}, most nodes have each port on another leaf"
                yield Finding("FAIL", "cable_wrong", words, tuple(ends))


# Leaves ----------------------------------------------------------------------------------------------------------------------


class _Leaf(t.NamedTuple):
    """The uplinks of a leaf or a switch above it: {its port: the port of the switch above it}, and how many lead to each switch."""

    id: str
    up: dict[End, End]
    counts: collections.Counter[str]


def of_uplinks(fabric: Map) -> t.Iterator[Finding]:
    """Yield leaves, and switches above them, with fewer uplinks than their siblings, and cables of uplinks that are exchanged."""
    below, here = set(fabric.leaves()), set(fabric.leaves())
    yield from _islands(fabric)
    of_others = {far.device for end, far in fabric.links.items() if fabric.kind(end.device) == OTHER}
    while here:
        up: dict[str, dict[End, End]] = {switch: {} for switch in here}
        for end, far in fabric.links.items():
            if end.device in here and fabric.kind(far.device) == SWITCH and far.device not in below:
                up[end.device][end] = far
        yield from _of_tier(fabric, up)
        # Those of others, as the leaves of storage servers, are not above the spines.
        here = {far.device for ends in up.values() for far in ends.values()} - of_others
        below |= here | of_others


def _islands(fabric: Map) -> t.Iterator[Finding]:
    """Yield leaves without any uplink, if the leaves to which the same port of other nodes leads have some."""
    rail = rail_numbers(fabric)
    leaves = fabric.leaves()
    joined = {end.device for end, far in fabric.links.items() if end.device in leaves and fabric.kind(far.device) == SWITCH}
    if len(joined) == len(leaves):
        return
    rails = {
        leaf: collections.Counter(rail[fabric.links[end]] for end in ends if fabric.links[end] in rail).most_common(1)
        for leaf, ends in leaves.items()
    }  # fmt: skip
    for leaf in sorted(leaves.keys() - joined, key=lambda each: in_order(fabric.name(each))):
        mates = [other for other in leaves if other != leaf and rails[leaf] and rails[other] and rails[other][0][0] == rails[leaf][0][0]]
        if len(mates) >= FEWEST - 1 and all(mate in joined for mate in mates):
            words = f"leaf {fabric.name(leaf)} has no uplink, {len(mates)} leaves for the same port of other nodes have some"
            yield Finding("FAIL", "cable_missing", words, (End(leaf, "?"),))


def _of_tier(fabric: Map, up: t.Mapping[str, dict[End, End]]) -> t.Iterator[Finding]:
    """Yield what is wrong with the uplinks of switches that are equally far above the nodes, {switch: its uplinks}."""
    described = {leaf: _Leaf(leaf, ends, collections.Counter(far.device for far in ends.values())) for leaf, ends in up.items()}
    above = {leaf: set(each.counts) for leaf, each in described.items()}
    wrong: dict[End, str] = {}
    missing: list[Finding] = []
    for leaf in sorted(described, key=lambda each: in_order(fabric.name(each))):
        siblings = [described[other] for other in described if other != leaf and _shares(above[leaf], above[other])]
        if len(siblings) < FEWEST - 1:
            continue
        missing += _fewer(fabric, described[leaf], siblings)
        wrong.update(_elsewhere(described[leaf], siblings))
    yield from missing
    told: set[End] = set()
    for end, expected in wrong.items():
        if end in told:
            continue
        now = fabric.links[end].device
        other = next(
            (each for each, wanted in wrong.items() if each not in told and wanted == now and fabric.links[each].device == expected), None
        )
        if other is not None:
            told |= {end, other}
            yield plan.swapped(fabric, end, other, "by where the same ports of the other leaves are")
        else:
            words = f"{fabric.spoken(end)} is plugged into {fabric.spoken(fabric.links[end])}, the same port of the other leaves into "
            yield Finding("FAIL", "cable_wrong", words + fabric.name(expected), (end, fabric.links[end]))


def _shares(a: set[str], b: set[str]) -> bool:
    return 2 * len(a & b) >= max(len(a), len(b), 1)


def _fewer(fabric: Map, leaf: _Leaf, siblings: list[_Leaf]) -> t.Iterator[Finding]:
    """Yield a finding for a leaf with fewer uplinks than nearly all of its siblings, with the ports that are empty, as far as they show."""
    most = usual(len(sibling.up) for sibling in [*siblings, leaf])
    share = SHARE if most is not None else 0.5
    most = _of_even(leaf, siblings) if most is None else most
    if most is None or len(leaf.up) >= most:
        return
    used = collections.Counter(end.port for sibling in siblings for end in sibling.up)
    mine = {end.port for end in leaf.up}
    empty = sorted((port for port, count in used.items() if count >= share * len(siblings) and port not in mine), key=in_order)
    ends = tuple(End(leaf.id, port) for port in empty[: most - len(leaf.up)])
    counts = leaf.counts
    above = sorted({spine for sibling in siblings for spine in sibling.counts}, key=lambda each: in_order(fabric.name(each)))
    each_of = most // len(above) if share < SHARE else None
    lacking = [
        f"{fabric.name(spine)} ({counts[spine]} of {wanted})"
        for spine in above
        if (wanted := usual(sibling.counts[spine] for sibling in siblings) or each_of) is not None and counts[spine] < wanted
    ]
    kind = "leaf" if leaf.id in fabric.leaves() else "switch"
    words = f"{kind} {fabric.name(leaf.id)} has {len(leaf.up)} uplinks, its siblings have {most}"
    words += f"; missing to {', '.join(lacking[:SHOWN])}" if lacking else ""
    states = [f"{end.port}{f' ({fabric.down[end]})' if end in fabric.down else ''}" for end in ends]
    words += f"; without a link: port {', '.join(states[:SHOWN])}" if states else ""
    yield Finding("FAIL", "cable_missing", words, ends or (End(leaf.id, "?"),))


def _of_even(leaf: _Leaf, siblings: list[_Leaf]) -> int | None:
    """Return the uplinks of those siblings that have as many to each switch above, which many leaves of a fabric may lack; None for a leaf
    that has as many to each itself, or if such siblings differ."""
    above = {spine for each in siblings for spine in each.counts}

    def is_even(each: _Leaf) -> bool:
        return len({each.counts[spine] for spine in above}) == 1

    return None if is_even(leaf) else usual(len(each.up) for each in siblings if is_even(each))


def _elsewhere(leaf: _Leaf, siblings: list[_Leaf]) -> dict[End, str]:
    """Return the uplinks of a leaf that lead to another switch than the same port of nearly all siblings, with that switch, if the leaf has
    another number of cables to some switch than nearly all siblings; leaves that are cabled in another order are as good."""
    counts = leaf.counts
    above = {spine for sibling in siblings for spine in sibling.counts} | set(counts)
    deviating = {
        spine for spine in above
        if (wanted := usual(sibling.counts[spine] for sibling in siblings)) is not None and counts[spine] > wanted
    }  # fmt: skip
    if not deviating:
        return {}
    by_port: dict[str, list[str]] = collections.defaultdict(list)
    for sibling in siblings:
        for end, far in sibling.up.items():
            by_port[end.port].append(far.device)
    return {
        end: expected
        for end, far in leaf.up.items()
        if far.device in deviating and (expected := usual(by_port[end.port])) is not None and expected != far.device
    }


# Links ----------------------------------------------------------------------------------------------------------------------


class Kinds:
    """The kind of a link's end: links of one chip of adapters, at one port of the nodes, and of one model of switch are alike. An adapter
    that does not tell its chip, as a broken one, has that of most at its port."""

    def __init__(self, fabric: Map) -> None:
        self.fabric = fabric
        self.rails = rail_numbers(fabric)
        models: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for end, rail in self.rails.items():
            models[rail].update([fabric.models[end]] if end in fabric.models else [])
        self.most = {rail: counts.most_common(1)[0][0] for rail, counts in models.items() if counts}

    def __call__(self, end: End) -> str:
        device = self.fabric.devices.get(end.device)
        if device is None or device.kind != NODE:
            return f"{device.kind if device else ''} {device.model if device else ''}"
        rail = self.rails.get(end)
        if rail is None:
            return f"{NODE} {end.port}"
        return f"{NODE} {rail} {self.fabric.models.get(end) or self.most.get(rail, '')}"


def _silent(fabric: Map) -> t.Iterator[Finding]:
    """Yield the ports of switches that are up, with nothing that answers at their other end."""
    for end, state in sorted(fabric.down.items()):
        if end not in fabric.links and fabric.kind(end.device) == SWITCH and state.endswith("LinkUp"):
            words = f"{fabric.spoken(end)} is up ({state}), and the device at the other end of its cable does not answer"
            yield Finding("UNKNOWN", "no_answer", words, (end,))


def _counters(fabric: Map) -> t.Iterator[Finding]:
    for end, counters in sorted(fabric.rose.items()):
        words = ", ".join(f"{name} by {count}" for name, count in sorted(counters.items())[:SHOWN])
        yield Finding("WARN", "port_errors", f"{fabric.spoken(end)}: counters of errors rose while the fabric was watched: {words}", (end,))
    for end, counters in sorted(fabric.counted.items()):
        if end not in fabric.rose:
            parts = [f"{name} {count}{' (its limit)' if _FULL.get(name) == count else ''}" for name, count in sorted(counters.items())]
            words = f"{fabric.spoken(end)} has counted errors since its counters were cleared: {', '.join(parts[:SHOWN])}"
            yield Finding("WARN", "port_errors", words, (end,))


def _managers(fabric: Map) -> t.Iterator[Finding]:
    for name, said in sorted(fabric.silent.items()):
        # The switches have answered the same node: it is the manager that does not.
        words = f"{said} in {name} (sminfo): what is plugged in or comes back gets no address"
        yield Finding("FAIL", "subnet_manager", words)
    for name, managers in sorted(fabric.managers.items()):
        known = {manager: nodes for manager, nodes in managers.items() if manager}
        if not known:
            nodes = ", ".join(managers.get("", ())[:SHOWN])
            yield Finding("FAIL", "subnet_manager", f"{name} has no subnet manager, as {nodes} say: its ports get no addresses")
        elif len(known) > 1:
            words = "; ".join(f"{manager} as {', '.join(nodes[:SHOWN])} say" for manager, nodes in sorted(known.items()))
            yield Finding("FAIL", "subnet_manager", f"{name} has {len(known)} subnet managers that think they are the master: {words}")


def _firmware(fabric: Map) -> t.Iterator[Finding]:
    by_model: dict[str, dict[str, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for device in fabric.devices.values():
        if device.kind == SWITCH and device.firmware and device.model:
            by_model[device.model][device.firmware].append(device.id)
    for model, versions in by_model.items():
        if len(versions) < 2:
            continue
        most = max(versions, key=lambda version: len(versions[version]))
        for version, switches in versions.items():
            if version != most:
                for switch in switches:
                    words = (
                        f"switch {fabric.name(switch)} has firmware {version}, {len(versions[most])} others of its model ({model}) {most}"
                    )
                    yield Finding("WARN", "firmware", words, (End(switch, ""),))
