# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fabric held to itself: what most nodes and most leaves have in common, the others should have too.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, SWITCH, End, Finding, Map, in_order

# So many like things, and so large a share of them that agree, say how the others should be.
FEWEST, SHARE = 3, 0.75
# Ports that a finding names.
SHOWN = 4
# A counter that stands at its limit counts no further (InfiniBand Architecture Specification 1.7, PortCounters).
_FULL = {"SymbolErrorCounter": 65535}


def usual(values: t.Iterable[t.Any]) -> t.Any:
    """Return the value that nearly all of enough things have, None if there is none."""
    counts = collections.Counter(values)
    value, count = max(counts.items(), key=lambda item: item[1], default=(None, 0))
    return value if count >= max(FEWEST, SHARE * sum(counts.values())) else None


def of_cables(fabric: Map) -> list[Finding]:
    """Return what is cabled otherwise than most: what a fabric without a plan says of itself."""
    return [*_unplugged(fabric), *_rails(fabric), *of_uplinks(fabric)]


def of_links(fabric: Map) -> list[Finding]:
    """Return links that are slower than others of their kind, counters, subnet managers and firmware, whatever the plan is."""
    return [*_slow(fabric), *_counters(fabric), *_managers(fabric), *_firmware(fabric)]


# Nodes ----------------------------------------------------------------------------------------------------------------------


def _unplugged(fabric: Map) -> t.Iterator[Finding]:
    """Yield the ports of nodes without a link where most nodes have one in the same port."""
    for rail, ends in sorted(_by_rail(fabric).items()):
        linked = [end for end in ends if end in fabric.links]
        if len(linked) < max(FEWEST, SHARE * len(ends)):
            continue
        for end in ends:
            # A port that is up and of which nobody says where it leads is not one without a cable.
            if end in fabric.down:
                words = (
                    f"{fabric.spoken(end)} has no link ({fabric.down[end]}), {len(linked)} of {len(ends)} nodes have one in port {rail + 1}"
                )
                yield Finding("FAIL", "cable_missing", words, (end,))


def _by_rail(fabric: Map) -> dict[int, list[End]]:
    rails: dict[int, list[End]] = collections.defaultdict(list)
    for ends in fabric.ports.values():
        for rail, end in enumerate(ends):
            rails[rail].append(end)
    return rails


class _Rails:
    """The rail of each leaf, and the leaves that serve the same nodes, as most of their ports say."""

    def __init__(self, fabric: Map) -> None:
        self.fabric = fabric
        self.rail = {end: rail for rail, ends in _by_rail(fabric).items() for end in ends}
        self.nodes_at = {leaf: [fabric.links[far] for far in ends] for leaf, ends in fabric.leaves().items()}
        self.rail_of: dict[str, int | None] = {leaf: usual(self.rail[end] for end in ends) for leaf, ends in self.nodes_at.items()}
        attached = [end for ends in self.nodes_at.values() for end in ends]
        agreeing = sum(self.rail[end] == self.rail_of[leaf] for leaf, ends in self.nodes_at.items() for end in ends)
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
    misplaced = rails.misplaced() if rails.optimized else {}
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
        is_rail = rails.rail_of[leaf] != rails.rail[end]
        why = f"a leaf of port {_rail(rails.rail_of[leaf])} of the nodes" if is_rail else "a leaf of other nodes"
        words = f"{fabric.spoken(end)} is plugged into {fabric.spoken(fabric.links[end])}, {why}; expected {names}"
        yield Finding("FAIL", "cable_wrong", words, (end, fabric.links[end]))
        told.add(end)
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
    """The uplinks of a leaf: {its port: the port of the switch above it}, and how many lead to each switch."""

    id: str
    up: dict[End, End]
    counts: collections.Counter[str]


def of_uplinks(fabric: Map) -> t.Iterator[Finding]:
    """Yield leaves with fewer uplinks than their siblings, and cables of uplinks that are exchanged."""
    leaves = fabric.leaves()
    up: dict[str, dict[End, End]] = {leaf: {} for leaf in leaves}
    for end, far in fabric.links.items():
        if end.device in up and fabric.kind(far.device) == SWITCH and far.device not in leaves:
            up[end.device][end] = far
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
    if most is None or len(leaf.up) >= most:
        return
    used = collections.Counter(end.port for sibling in siblings for end in sibling.up)
    mine = {end.port for end in leaf.up}
    empty = sorted((port for port, count in used.items() if count >= SHARE * len(siblings) and port not in mine), key=in_order)
    ends = tuple(End(leaf.id, port) for port in empty[: most - len(leaf.up)])
    counts = leaf.counts
    lacking = [
        f"{fabric.name(spine)} ({counts[spine]} of {wanted})"
        for spine in sorted({spine for sibling in siblings for spine in sibling.counts}, key=lambda each: in_order(fabric.name(each)))
        if (wanted := usual(sibling.counts[spine] for sibling in siblings)) is not None and counts[spine] < wanted
    ]
    words = f"leaf {fabric.name(leaf.id)} has {len(leaf.up)} uplinks, its siblings have {most}"
    words += f"; missing to {', '.join(lacking[:SHOWN])}" if lacking else ""
    states = [f"{end.port}{f' ({fabric.down[end]})' if end in fabric.down else ''}" for end in ends]
    words += f"; without a link: port {', '.join(states[:SHOWN])}" if states else ""
    yield Finding("FAIL", "cable_missing", words, ends or (End(leaf.id, "?"),))


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


def _slow(fabric: Map) -> t.Iterator[Finding]:
    """Yield links slower than most of their kind, with the end that is more likely behind it, if one is."""
    kinds: dict[tuple[str, ...], list[End]] = collections.defaultdict(list)
    for end, far in fabric.links.items():
        if end in fabric.rates and (end < far or far not in fabric.rates):
            kinds[tuple(sorted((_kind(fabric, end), _kind(fabric, far))))].append(end)
    slow: list[tuple[End, float]] = []
    for ends in kinds.values():
        rates = collections.Counter(fabric.rates[end].gbps for end in ends)
        best = max(rates)
        common, count = rates.most_common(1)[0]
        # Without a majority nobody knows which rate is right; the probe of the ports compares what adapters could do.
        expected = common if 2 * count > len(ends) else best if len(ends) >= FEWEST else None
        slow += [(end, expected) for end in ends if expected is not None and fabric.rates[end].gbps < expected]
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
    for end, far in fabric.links.items():
        if end < far and end in fabric.rates and far in fabric.rates and fabric.rates[end].gbps != fabric.rates[far].gbps:
            words = f"the ends of one link have different rates: {fabric.spoken(end)} {fabric.rates[end].words}, "
            yield Finding("FAIL", "link_slow", f"{words}{fabric.spoken(far)} {fabric.rates[far].words}", (end, far))


def _kind(fabric: Map, end: End) -> str:
    """Return the kind of a link's end: links of one kind of adapter, at one port of the nodes, and of one model of switch are alike."""
    device = fabric.devices.get(end.device)
    if device is None or device.kind != NODE:
        return f"{device.kind if device else ''} {device.model if device else ''}"
    return f"{NODE} {fabric.ports[end.device].index(end) if end in fabric.ports.get(end.device, ()) else end.port}"


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
    for name in sorted(fabric.silent):
        # The switches have answered the same node: it is the manager that does not.
        words = f"no subnet manager answers in {name} (sminfo): what is plugged in or comes back gets no address"
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
