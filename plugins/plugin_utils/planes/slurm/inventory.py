# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a Slurm cluster: those that the inventory means.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client, SlurmError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.records import SlurmNode
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

UNNAMED = "expected-"


class NodesFound(t.NamedTuple):
    """The names of the nodes for the plan, expected nodes that are missing among them, and notes for the operator."""

    names: list[str]
    notes: list[str]


def subjects(host: str, variables: t.Mapping[str, t.Any]) -> NodesFound:
    """Return the nodes of a cluster. No names if it does not answer or has none of them. Raise RunError for a wrong variable."""
    settings, selection = of_variables.of(host, variables), of_variables.selection(host, variables)
    named = list(dict.fromkeys([*selection.names, *selection.expected]))
    client = Client(host, settings.ssh)
    try:
        present = client.nodes()
        partitions = client.partitions() if settings.partition else []
    except SlurmError as error:
        return NodesFound(named or _unnamed(selection.number, 0), [error.reason])
    notes = []
    wanted = settings.partition.split(",") if settings.partition else []
    states = {partition.name: partition.state for partition in partitions}
    notes += [f"{host}: acceptance_slurm_partition: the cluster has no partition {name}" for name in wanted if name not in states]
    notes += [f"{host}: partition {name} is {states[name]}: no job starts there" for name in wanted if states.get(name, "UP") != "UP"]
    meant = sorted(node.name for node in selected(present, settings, selection))
    absent = [name for name in named if name not in {node.name for node in present}]
    if absent:
        notes.append(f"{host}: the cluster has no node {', '.join(absent[:10])}")
    unnamed = _unnamed(selection.number, len(meant))
    if unnamed:
        notes.append(f"{host}: {selection.number} nodes are expected, and {len(meant)} are there")
    if not meant and not named and not unnamed:
        notes.append(f"{host}: the cluster has no node of partition {settings.partition or 'any'}, feature {selection.feature or 'any'}")
    return NodesFound(list(dict.fromkeys([*meant, *named, *unnamed])), notes)


def selected(nodes: t.Iterable[SlurmNode], settings: of_variables.Settings, selection: of_variables.Selection) -> list[SlurmNode]:
    """Return the nodes that are meant: those of the names, or else those of the partitions with the feature."""
    if selection.names:
        return [node for node in nodes if node.name in selection.names]
    wanted = set(settings.partition.split(",")) if settings.partition else None
    return [
        node
        for node in nodes
        if (wanted is None or wanted.intersection(node.partitions)) and (not selection.feature or selection.feature in node.features)
    ]


def select(host: str, variables: t.Mapping[str, t.Any], entry: t.Mapping[str, t.Any]) -> list[str]:
    """Return the nodes that an entry of acceptance_node_vars means by `names` or `feature`. Raise RunError for a wrong entry."""
    names = entry.get("names")
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return list(names)
    feature = entry.get("feature")
    if not isinstance(feature, str) or not feature:
        raise RunError(f"{host}: acceptance_node_vars: found {entry!r}, expected names or a feature on a Slurm cluster")
    try:
        nodes = Client(host, of_variables.of(host, variables).ssh).nodes()
    except SlurmError:
        return []  # nothing is measured there
    return [node.name for node in nodes if feature in node.features]


def _unnamed(number: int, count: int) -> list[str]:
    """Return placeholder names for expected nodes beyond the `count` that exist."""
    return [f"{UNNAMED}{place}" for place in range(count + 1, number + 1)]
