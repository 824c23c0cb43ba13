# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses what is measured once more before nodes are drained against which nothing but rates speaks: their stages, and for stages between
nodes good partners beside them, others than those with which they were bad as far as there are any.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.convictions import Conviction, Judged
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import target_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import CLUSTER, MANIFEST, Stage

GOOD = frozenset({"PASS", "WARN"})
# A node that is bad with two good partners is bad itself.
PARTNERS = 2


class Again(t.NamedTuple):
    """A second measurement: `stages` as acceptance_stages has them, `nodes` behind each inventory host, by their names there (empty
    for a machine), `why_not` a sentence for each node that cannot be measured again by itself."""

    stages: list[str | PlainData]
    nodes: dict[str, list[str]]
    why_not: dict[str, str]


def chosen(judged: Judged, convictions: t.Sequence[Conviction], known_hosts: t.Container[str]) -> Again:
    """Return what measures these nodes again. `known_hosts` are the inventory hosts at hand."""
    by_name = {str(entry["name"]): (entry, registry.of(t.cast("t.Mapping[str, t.Any]", entry))) for entry in judged.stages}
    brought_by = {name: stage for stage, (_entry, described) in by_name.items() for name in described.after}
    good = [node for node in _good(judged) if target_of(node) in known_hosts]
    used: collections.Counter[str] = collections.Counter()
    stages: dict[str, None] = {}
    nodes: dict[str, None] = {}
    why_not: dict[str, str] = {}
    for conviction in convictions:
        wanted = dict.fromkeys(brought_by.get(key.stage, key.stage) for key in conviction.checks)
        found = [by_name[name][1] for name in wanted if name in by_name]
        refused = [stage.name for stage in found if _is_refused(stage)] or [name for name in wanted if name not in by_name]
        partners = _partners(judged, conviction.node, good, used) if any(stage.between for stage in found) else []
        if refused:
            why_not[conviction.node] = f"no playbook measures {', '.join(refused)} again by itself: run it, and name that run as second_run"
        elif any(stage.between for stage in found) and not partners:
            why_not[conviction.node] = "there is no good partner to measure it with again"
        else:
            stages.update(wanted)
            nodes.update(dict.fromkeys([conviction.node, *partners]))
            used.update(partners)
    behind: dict[str, list[str]] = {}
    for node in nodes:
        host = target_of(node)
        behind.setdefault(host, [])
        if node != host:
            behind[host].append(node.removeprefix(f"{host}/"))
    return Again([_named(by_name[name][0]) for name in by_name if name in stages], behind, why_not)


def _is_refused(stage: Stage) -> bool:
    """Return True for a stage that lasts for days, or that is not about nodes that can be chosen."""
    return stage.continues or stage.topology in (CLUSTER, MANIFEST)


def _named(entry: t.Any) -> str | PlainData:
    """Return an entry of a plan as acceptance_stages has it."""
    shipped = registry.shipped().get(entry["name"])
    return str(entry["name"]) if shipped is not None and shipped.role == entry["role"] else {"name": entry["name"], "role": entry["role"]}


def _good(judged: Judged) -> list[str]:
    """Return the nodes with verdicts, all of which are good, but for those of pairs and groups with a convicted node."""
    convicted = {conviction.node for conviction in judged.convictions}
    return [
        node
        for node in sorted({node for key in judged.words for node in judged.members.get(key.subject, ())} - convicted)
        if all(word in GOOD for key, word in judged.of_node(node) if not convicted.intersection(judged.members.get(key.subject, ())))
    ]


def _partners(judged: Judged, node: str, good: t.Sequence[str], used: collections.Counter[str]) -> list[str]:
    """Return good nodes that can be measured with a node: of its cluster, or machines like itself."""
    pairs = [key.subject for key, word in judged.of_node(node) if word not in GOOD and "|" in key.subject]
    bad = {other for pair in pairs for other in judged.members.get(pair, ())}
    is_behind = target_of(node) != node
    near = [other for other in good if (target_of(other) == target_of(node) if is_behind else target_of(other) == other)]
    return sorted(near, key=lambda other: (other in bad, used[other]))[:PARTNERS]
