# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges a fabric by the plan or by symmetry, by its links and by devices that nobody knows, and gives each finding to a check.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import likeness, plan, rates, symmetry, uplinks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, OTHER, Finding, Map, in_order

SHOWN = 6
INFINIBAND = "InfiniBand"
# The physical state of a port that is linked with something.
UP = "LinkUp"
# In the description of SHARP's adapters, which are in the switches.
_SHARP = "Aggregation Node"


class Wanted(t.NamedTuple):
    """A fabric in the inventory: the cables of the plan (None: no plan), the nodes of this run, whether it leaves out others, and
    patterns of the names of devices that are no nodes and known."""

    cables: t.Sequence[plan.Cable] | None = None
    nodes: t.Collection[str] = ()
    left_out: bool = False
    others: t.Sequence[str] = ()


def findings(fabric: Map, wanted: Wanted) -> list[Finding]:
    """Return all that is wrong in a fabric."""
    if wanted.cables is None:
        cables = symmetry.of_cables(fabric)
    else:
        cables = plan.findings(fabric, wanted.cables, wanted.nodes)
        # A plan of the nodes' cables says nothing of those between switches, and one of the switches' nothing of those of nodes.
        of_switches = fabric.switches().keys() & {cable.node for cable in wanted.cables}
        if not of_switches:
            cables += uplinks.findings(fabric)
        if of_switches >= {cable.node for cable in wanted.cables}:
            cables += symmetry.of_nodes(fabric)
    found = [*cables, *rates.findings(fabric), *symmetry.of_links(fabric), *_strangers(fabric, wanted), *_unread(fabric)]
    return found if wanted.cables is not None else of_part(fabric, found, wanted.nodes)


def of_part(fabric: Map, found: t.Iterable[Finding], nodes: t.Collection[str] = ()) -> list[Finding]:
    """Return findings as they are worth where there are other adapters than those of the run's `nodes`: what is wrong at switches into
    which none of the nodes is plugged, but others are, is a WARN. If more than a quarter of the adapters are others, the nodes are only a
    part of the fabric: then all that is wrong far from them is a WARN.

    A device that does not answer is a WARN, too, if it can be none of the run: all ports of all nodes are found elsewhere, and there are
    adapters at its switch, which a switch between others does not have."""
    near = {*fabric.ports, *fabric.leaves()}
    names = {plan.label(node) for node in nodes}
    others = {
        device.id for device in fabric.devices.values()
        if device.kind == OTHER and _SHARP not in device.name and _node_of(device.name) not in names
    }  # fmt: skip
    if not others:
        return list(found)
    lost = _lost(fabric, nodes)
    own = sum(end in fabric.links for ends in fabric.ports.values() for end in ends)
    is_part = len(others) > (1 - likeness.SHARE) * (len(others) + own)
    of_others = others | {far.device for end, far in fabric.links.items() if end.device in others}

    def is_far(one: Finding) -> bool:
        devices = {end.device for end in one.ends}
        return bool(devices) and not near & devices and (is_part or bool(of_others & devices))

    def of_silent(one: Finding) -> Finding:
        if lost:
            more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
            return dataclasses.replace(one, words=f"{one.words}; it may be of {', '.join(lost[:SHOWN])}{more}")
        is_of_adapters = {end.device for end in one.ends} <= fabric.leaves().keys() | of_others
        return dataclasses.replace(one, verdict="WARN") if is_of_adapters else one

    return [
        dataclasses.replace(one, verdict="WARN", words=f"{one.words} (no node of this run is plugged in there)")
        if one.verdict in ("FAIL", "UNKNOWN") and is_far(one) else
        of_silent(one) if one.code == "no_answer" else one
        for one in found
    ]  # fmt: skip


def _lost(fabric: Map, nodes: t.Collection[str]) -> list[str]:
    """Return the ports that a run's nodes have or should have, and that nobody has seen in the fabric: of nodes that say nothing of theirs,
    that are up and lead nowhere, and that most nodes have."""
    of_node = {node: {end for end in ends if fabric.layers.get(end) == INFINIBAND} for node, ends in fabric.ports.items()}
    names = {node: frozenset(end.port for end in ends) for node, ends in of_node.items()}
    common = likeness.usual(names.values()) or frozenset()
    described = collections.Counter(_node_of(fabric.name(end.device)) for end in fabric.links if fabric.kind(end.device) == OTHER)
    silent = {node: described[plan.label(node)] for node in nodes if node not in fabric.ports}
    found = sorted((node for node, seen in silent.items() if seen < max(1, len(common))), key=in_order)
    for node, ends in of_node.items():
        found += [fabric.spoken(end) for end in ends if end not in fabric.links and fabric.down.get(end, UP).endswith(UP)]
        # With fewer ports than most have, and of the same names; another kind of node has others.
        found += [f"{node} {port}" for port in sorted(common - names[node], key=in_order) if names[node] < common]
    return found


def _strangers(fabric: Map, wanted: Wanted) -> t.Iterator[Finding]:
    """Yield one finding about the adapters that belong to no node of the run, unless it leaves nodes out."""
    if wanted.left_out:
        return
    short = {plan.label(node) for node in wanted.nodes}
    unknown = sorted(
        {
            device.name for device in fabric.devices.values()
            if device.kind == OTHER and not _is_expected(device.name, short, wanted.others)
        },
        key=in_order,
    )  # fmt: skip
    if unknown:
        more = f" and {len(unknown) - SHOWN} more" if len(unknown) > SHOWN else ""
        words = f"adapters of no node of this run: {', '.join(unknown[:SHOWN])}{more}; fabric_map_others names those that may be"
        yield Finding("WARN", "unknown_device", words)


def _is_expected(name: str, nodes: t.Collection[str], patterns: t.Sequence[str]) -> bool:
    # SHARP's adapters are in the switches.
    return _node_of(name) in nodes or _SHARP in name or any(fnmatch.fnmatchcase(name, each) for each in patterns)


def _node_of(description: str) -> str:
    """Return the name that the description of an adapter begins with, `gpu-07 HCA-1`: that of a node, also if it did not say its ports."""
    return plan.label(next(iter(description.split()), ""))


def _unread(fabric: Map) -> t.Iterator[Finding]:
    for words in fabric.unread[:SHOWN]:
        yield Finding("UNKNOWN", "unresolved", words)


def bearer(fabric: Map, finding: Finding) -> tuple[str, str]:
    """Return kind and id of the device that bears a finding: the node or the switch of its first end; empty if it is about the fabric."""
    for end in finding.ends:
        kind = fabric.kind(end.device)
        if kind == NODE:
            return NODE, end.device
        if kind != OTHER:
            return kind, fabric.name(end.device)
    return "", ""
