# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cables to check, in the order in which a technician walks: by rack, switch and port.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, SWITCH, End, Finding, Map, in_order


class Stop(t.NamedTuple):
    """A port to look at: its rack, device and port, the port at the other end of its cable, and what was found. What is not known is
    empty."""

    rack: str
    device: str
    port: str
    other: str
    finding: Finding


def stops(fabric: Map, findings: t.Iterable[Finding], racks: t.Mapping[str, str]) -> list[Stop]:
    """Return the ports to look at. `racks` are those of switches by their names, and of nodes; a leaf without one is in the rack of its
    nodes if all of them are in one. Ports without a rack come last."""
    known = dict(racks)
    for leaf, ends in fabric.leaves().items():
        of_nodes = {racks.get(fabric.links[end].device, "") for end in ends}
        if len(of_nodes) == 1:
            known.setdefault(fabric.name(leaf), of_nodes.pop())
    found = []
    for finding in findings:
        for end, other in _ends(fabric, finding):
            name = fabric.name(end.device) if end else ""
            port = end.port if end else ""
            found.append(Stop(known.get(name, ""), name, port, fabric.spoken(other) if other else "", finding))
    return sorted(found, key=lambda stop: (not stop.rack, in_order(stop.rack), not stop.device, in_order(stop.device), in_order(stop.port)))


def _ends(fabric: Map, finding: Finding) -> list[tuple[End | None, End | None]]:
    """Return the ports of a finding at which somebody can look at it, switches before nodes, each with the other end of its cable."""
    at_switches: dict[End, End | None] = {}
    for end in finding.ends:
        far = fabric.links.get(end)
        if fabric.kind(end.device) == SWITCH:
            if far not in at_switches:
                at_switches[end] = far
        elif far is not None and fabric.kind(far.device) == SWITCH:
            at_switches[far] = end
    if at_switches:
        return list(at_switches.items())
    nodes = [end for end in finding.ends if fabric.kind(end.device) == NODE]
    return [(end, fabric.links.get(end)) for end in nodes] or [(None, None)]
