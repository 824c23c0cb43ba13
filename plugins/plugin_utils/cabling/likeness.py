# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Likeness in a fabric: the value that most things have, the rails of ports, and the kinds of links.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, End, Map

# So many like things, and so large a share of them that agree, say how the others should be.
FEWEST, SHARE = 3, 0.75


def usual(values: t.Iterable[t.Any]) -> t.Any:
    """Return the value that nearly all of enough things have, None if there is none."""
    counts = collections.Counter(values)
    value, count = max(counts.items(), key=lambda item: item[1], default=(None, 0))
    return value if count >= max(FEWEST, SHARE * sum(counts.values())) else None


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
