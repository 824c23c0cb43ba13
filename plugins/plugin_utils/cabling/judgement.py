# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judges a fabric by the plan or by symmetry, by its links and by devices that nobody knows, and gives each finding to a check.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import plan, symmetry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, OTHER, Finding, Map, in_order

SHOWN = 6
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
        # A plan of the nodes' cables says nothing of those between switches.
        if not fabric.switches().keys() & {cable.node for cable in wanted.cables}:
            cables += symmetry.of_uplinks(fabric)
    found = [*cables, *symmetry.of_links(fabric), *_strangers(fabric, wanted), *_unread(fabric)]
    return found if wanted.cables is not None else of_part(fabric, found)


def of_part(fabric: Map, found: t.Iterable[Finding]) -> list[Finding]:
    """Return findings as they are worth where the nodes of the run are only a part of a fabric: what is wrong at switches into which none
    of them is plugged is a WARN."""
    near = {*fabric.ports, *fabric.leaves()}
    if not any(device.kind == OTHER and _SHARP not in device.name for device in fabric.devices.values()):
        return list(found)
    return [
        dataclasses.replace(one, verdict="WARN", words=f"{one.words} (no node of this run is plugged in there)")
        if one.verdict == "FAIL" and one.ends and not near & {end.device for end in one.ends} else one
        for one in found
    ]  # fmt: skip


def _strangers(fabric: Map, wanted: Wanted) -> t.Iterator[Finding]:
    """Yield one finding about the adapters that belong to no node of the run, unless it leaves nodes out."""
    if wanted.left_out:
        return
    short = {node.rpartition("/")[2] for node in wanted.nodes}
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
    # A node that did not say its ports has its name in its adapters' descriptions: `gpu-07 HCA-1`. SHARP's adapters are in the switches.
    words = name.replace(".", " ").split()
    return (bool(words) and words[0] in nodes) or _SHARP in name or any(fnmatch.fnmatchcase(name, each) for each in patterns)


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
