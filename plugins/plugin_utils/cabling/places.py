# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The places of nodes and ports in a fabric, for the stages that test between nodes: the leaf of a node, and the switch and its port that a
suspected port is plugged into.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.groups import Groups
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, SWITCH, End, Map, in_order
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import ends_of, kind_of, node_of

# Ports of a node, and switches between two leaves, that one sentence names.
SHOWN = 8
# Routes between two nodes that one sentence names.
ROUTES = 2
# A name that may stand in the id of a subject. The others come from a device that says anything of itself.
_NAME = re.compile(r"[A-Za-z0-9][\w.:() -]{0,63}")


@dataclasses.dataclass(frozen=True)
class Places:
    """`leaf` has the leaf of each node, or its leaves joined by `+` if its ports are on several that serve the same nodes. `switch` has
    the switch and its port, {port id: (switch, port)}, `above` the switches above each leaf. `run` is the run whose map it is, empty for
    the run itself. `fabric` knows the routes."""

    leaf: t.Mapping[str, str]
    switch: t.Mapping[str, tuple[str, str]]
    above: t.Mapping[str, t.Collection[str]]
    run: str = ""
    fabric: Map | None = dataclasses.field(default=None, compare=False, repr=False)

    def leaf_of(self, port: str) -> str | None:
        """Return the leaf that a port is plugged into, by the id of the port."""
        return self.switch[port][0] if port in self.switch else None

    def words(self, subject: str) -> str:
        """Return where a node, a port or a pair of either is plugged in, and the switches between the leaves of a pair; empty if it is not
        known."""
        ends = ends_of(subject) if "|" in subject else (subject,)
        texts = [text for end in ends if (text := self._of_end(end))]
        leaves = {leaf for end in ends if (leaf := self.leaf_of(end) or self.leaf.get(end))}
        routes = list(self._routes(*ends)) if len(ends) == 2 else []
        texts += routes
        if len(ends) == 2 and len(leaves) == 2 and not routes:
            a, b = sorted(leaves, key=in_order)
            between = sorted(set(self.above.get(a, ())) & set(self.above.get(b, ())), key=in_order)
            if between:
                more = f" and {len(between) - SHOWN} more" if len(between) > SHOWN else ""
                texts.append(f"between {a} and {b} are {', '.join(between[:SHOWN])}{more}")
        if not texts:
            return ""
        return "; ".join(texts) + (f" (by the map of run {self.run})" if self.run else "")

    def _routes(self, a: str, b: str) -> t.Iterator[str]:
        """Yield the ways of packets between two ports, or between the first ports of two nodes, in both directions."""
        if self.fabric is None:
            return
        starts, ends = ([end] if kind_of(end) == "nic" else self._of_nodes.get(end, []) for end in (a, b))
        for one, other in list(zip(starts, ends, strict=False))[:ROUTES]:
            for start, to in ((one, other), (other, one)):
                way = self.fabric.route(_end(start), _end(to))
                if len(way) > 1:  # with one switch between them there is no choice
                    yield f"packets from {_named(start)} to {_named(to)} go by {', '.join(map(self.fabric.spoken, way[:-1]))}"

    @functools.cached_property
    def _of_nodes(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = collections.defaultdict(list)
        for port in sorted(self.switch, key=in_order):
            found[node_of(port)].append(port)
        return dict(found)

    def _of_end(self, end: str) -> str:
        if kind_of(end) == "nic":
            return self._of_port(end) if end in self.switch else ""
        own = self._of_nodes.get(end, [])
        more = f" and {len(own) - SHOWN} more" if len(own) > SHOWN else ""
        return ", ".join(map(self._of_port, own[:SHOWN])) + more

    def _of_port(self, port: str) -> str:
        switch, number = self.switch[port]
        node = node_of(port)
        return f"{node} {port[len(node) + len('/nic/') :]} is plugged into port {number} of {switch}"


def _end(port: str) -> End:
    node = node_of(port)
    return End(node, port[len(node) + len("/nic/") :])


def _named(port: str) -> str:
    return " ".join(_end(port))


def of_map(fabric: Map, run: str = "") -> Places | None:
    """Return the places in a fabric; None if no port of a node is known to be plugged into a switch."""
    switch: dict[str, tuple[str, str]] = {}
    above: dict[str, set[str]] = collections.defaultdict(set)
    leaves = fabric.leaves()
    for end, far in fabric.links.items():
        if fabric.kind(far.device) != SWITCH:
            continue
        if fabric.kind(end.device) == NODE:
            switch[f"{end.device}/nic/{end.port}"] = (fabric.name(far.device), far.port)
        elif end.device in leaves and far.device not in leaves:
            above[fabric.name(end.device)].add(fabric.name(far.device))
    if not switch:
        return None
    names = {node: [fabric.name(leaf) for leaf in group] for node, group in Groups(fabric).of_node.items()}
    leaf = {node: "+".join(each) for node, each in names.items() if all(_NAME.fullmatch(name) for name in each)}
    return Places(leaf, switch, dict(above), run, fabric)
