# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fabric held to itself: what most nodes and most leaves have in common, the others should have too.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import likeness, plan, rails, uplinks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.likeness import FEWEST, SHARE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import SWITCH, End, Finding, Map

# A counter that stands at its limit counts no further (InfiniBand Architecture Specification 1.7, PortCounters).
_FULL = {"SymbolErrorCounter": 65535}
# Ports that a finding names.
SHOWN = 4


def of_cables(fabric: Map) -> list[Finding]:
    """Return what is cabled otherwise than most: what a fabric without a plan says of itself."""
    return [*of_nodes(fabric), *uplinks.findings(fabric)]


def of_nodes(fabric: Map) -> list[Finding]:
    """Return the cables of nodes that are plugged in otherwise than most."""
    return [*_unplugged(fabric), *rails.findings(fabric)]


def of_links(fabric: Map) -> list[Finding]:
    """Return ports without an answer, counters, subnet managers and firmware, whatever the plan is."""
    return [*_silent(fabric), *_counters(fabric), *_managers(fabric), *_firmware(fabric)]


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
    kind_of = likeness.Kinds(fabric)
    for end in ends:
        kinds[kind_of(end)].append(end)
    for alike in kinds.values():
        linked = sum(end in fabric.links for end in alike)
        for end in alike if linked >= FEWEST and 2 * linked > len(alike) else ():
            if end in fabric.down:
                words = f"{fabric.spoken(end)} has no link ({fabric.down[end]}), {linked} of {len(alike)} ports of its kind have one: "
                yield Finding("UNKNOWN", "cable_unknown", f"{words}only a plan ({plan.VARIABLE}) tells whether it should", (end,))


def _by_rail(fabric: Map) -> dict[int, list[End]]:
    found: dict[int, list[End]] = collections.defaultdict(list)
    for end, rail in likeness.rail_numbers(fabric).items():
        found[rail].append(end)
    return found


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
