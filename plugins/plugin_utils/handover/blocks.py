# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks of a fleet that are accepted each by itself: racks, scalable units, any groups of nodes; and the capacity of each.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import fnmatch
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import checker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.rounds import Round
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.standing import Standing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import target_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

VARIABLE = "acceptance_blocks"
FLEET = "fleet"
ACCEPTED, NOT_ACCEPTED = "ACCEPTED", "NOT ACCEPTED"


class Block(t.NamedTuple):
    """Some nodes that are accepted together. `why` says what speaks against it, empty if it is accepted; `at` is when the round was judged
    that made it so, UTC, empty if none did."""

    name: str
    nodes: tuple[str, ...]
    why: str
    at: str

    @property
    def state(self) -> str:
        """Return ACCEPTED or NOT ACCEPTED."""
        return NOT_ACCEPTED if self.why else ACCEPTED


def members(
    asked: t.Any, groups: t.Mapping[str, t.Sequence[str]], nodes: t.Collection[str], racks: t.Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return {block: its nodes}. `asked` is the value of acceptance_blocks: {block: [groups or hosts of the inventory, names or patterns of
    nodes]}. Without it the racks are the blocks, and without racks the fleet is one.

    Raise RunError if the value has another form, or if a node is in two blocks."""
    if not asked:
        names = {node: _named(f"rack {racks[node]}", "acceptance_rack") for node in nodes if racks.get(node)}
        blocks = {name: tuple(sorted(node for node in nodes if names.get(node) == name)) for name in sorted(set(names.values()))}
        return blocks or {FLEET: tuple(sorted(nodes))}
    if not isinstance(asked, dict):
        raise RunError(f"{VARIABLE}: found {asked!r}, expected the groups, hosts or nodes of each block by its name")
    blocks = {}
    of_node: dict[str, str] = {}
    for name, patterns in asked.items():
        listed = [patterns] if isinstance(patterns, str) else patterns
        if not isinstance(listed, list) or not all(isinstance(pattern, str) and pattern for pattern in listed):
            raise RunError(f"{VARIABLE}: {name}: found {patterns!r}, expected a list of groups, hosts or nodes")
        hosts = {host for pattern in listed for host in groups.get(pattern, ())}
        found = {
            node for node in nodes if target_of(node) in hosts or any(fnmatch.fnmatchcase(node, p) or target_of(node) == p for p in listed)
        }
        for node in sorted(found):
            if node in of_node:
                raise RunError(f"{VARIABLE}: {node} is in {of_node[node]} and in {name}; expected each node in one block")
            of_node[node] = str(name)
        blocks[_named(str(name), VARIABLE)] = tuple(sorted(found))
    return blocks


def _named(name: str, variable: str) -> str:
    """Return the name of a block. Raise RunError for one that nobody can sign for."""
    if not checker.is_field(name):
        raise RunError(f"{variable}: found the block {name!r}, expected a name of at most 200 characters in one line")
    return name


def judge(blocks: t.Mapping[str, t.Sequence[str]], rounds: t.Sequence[Round], standings: t.Sequence[Standing]) -> list[Block]:
    """Return the blocks with what speaks against each. `standings` has what the first round says, the first two, and so on."""
    judged = []
    for name, nodes in blocks.items():
        why = _against(nodes, standings[-1])
        first = len(standings)
        while not why and first > 1 and not _against(nodes, standings[first - 2]):
            first -= 1
        judged.append(Block(name, tuple(nodes), why, "" if why else rounds[first - 1].judged_at))
    return judged


def _against(nodes: t.Sequence[str], standing: Standing) -> str:
    if not nodes:
        return "it has no node"
    bad = {node: standing.of_node[node] for node in nodes if standing.of_node.get(node)}
    unseen = [node for node in nodes if node not in standing.of_node]
    words = (
        [f"{len(bad)} of {len(nodes)} nodes have open checks ({', '.join(sorted(bad)[:5])}{' ...' if len(bad) > 5 else ''})"] if bad else []
    )
    words += [f"nothing was planned on {', '.join(unseen[:5])}{' ...' if len(unseen) > 5 else ''}"] if unseen else []
    return "; ".join([*words, *standing.notes])


def in_none(blocks: t.Mapping[str, t.Sequence[str]], nodes: t.Iterable[str]) -> list[str]:
    """Return the nodes that are in no block."""
    inside = {node for listed in blocks.values() for node in listed}
    return sorted(set(nodes) - inside)


def capacity(blocks: t.Sequence[Block], standing: Standing, open_nodes: t.Collection[str], gpus: t.Mapping[str, int]) -> PlainData:
    """Return the capacity of each block and of all together, for machines: nodes and GPUs that were delivered, are healthy, are held back
    for repair, and are accepted. GPUs are those that were seen."""
    rows = {block.name: _capacity(block, standing, open_nodes, gpus) for block in blocks}
    total: dict[str, dict[str, int]] = {}
    for row in rows.values():
        for what, counts in row.items():
            for unit, count in counts.items():
                total.setdefault(what, {}).setdefault(unit, 0)
                total[what][unit] += count
    return {"schema": "gpufleet.acceptance/capacity/v1", "blocks": rows, "total": total}


def _capacity(block: Block, standing: Standing, open_nodes: t.Collection[str], gpus: t.Mapping[str, int]) -> dict[str, dict[str, int]]:
    healthy = [node for node in block.nodes if node in standing.of_node and not standing.of_node[node]]
    listed = {
        "delivered": block.nodes, "healthy": healthy, "reserved_for_repair": [node for node in block.nodes if node in open_nodes],
        "accepted": healthy if block.state == ACCEPTED else [],
    }  # fmt: skip
    return {what: {"nodes": len(nodes), "gpus": sum(gpus.get(node, 0) for node in nodes)} for what, nodes in listed.items()}
