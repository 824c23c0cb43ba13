# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks that the next round measures: what is open, and the same checks on a sample of the other nodes. A run takes the file by
`acceptance_open_checks` (planning/open_checks.py).

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import random
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import standing as standings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.rounds import Round
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.standing import Standing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

# Of the nodes that nothing speaks against, the share that is measured again, and the least number of each model: a number is compared with
# those of five identical neighbours, and a row that was opened by that comparison must not be closed without it.
SHARE, LEAST = 0.05, 5
FILE = "next_round.csv"
COLUMNS = ("node", "stage", "check", "variant", "subject", "why")


def of(standing: Standing, rounds: t.Sequence[Round], seed: str) -> list[dict[str, str]]:
    """Return the checks of the next round, each with the reason; none if nothing is open. `seed` chooses the sample, always the same."""
    if not standing.bad:
        return []
    rows: dict[tuple[str, Key], str] = {}
    for key, why in sorted(standing.bad.items()):
        for node in sorted(_nodes(key, rounds)):
            rows[node, key] = why
            rows.update({(node, work): f"its load, for {key.stage} {key.check}" for work in _load_before(key, node, standing)})
    opened = {node for node, _key in rows}
    alone = sorted({key._replace(subject="") for node, key in rows if node_of(key.subject) == node})
    others = sorted(standing.of_node.keys() - opened)
    sample = _sample(others, {_model(node, rounds) for node in opened}, rounds, seed)
    known = {key._replace(subject=node_of(key.subject)) for key in standing.checks}
    for node in sample:
        of_node = [key._replace(subject=node) for key in alone]
        why = f"sample of {len(sample)} of {len(others)} nodes without open checks"
        rows.update({(node, key): why for key in of_node if key in known})
    return [{"node": node, **key._asdict(), "why": why} for (node, key), why in rows.items()]


def _sample(others: t.Sequence[str], models: t.Collection[tuple[str, ...]], rounds: t.Sequence[Round], seed: str) -> list[str]:
    """Return some of the other nodes, of each of these models."""
    sample: list[str] = []
    for model in sorted(models):
        same = [node for node in others if _model(node, rounds) == model]
        sample += random.Random(seed).sample(same, min(len(same), max(LEAST, round(len(same) * SHARE))))
    return sorted(sample)


def _model(node: str, rounds: t.Sequence[Round]) -> tuple[str, ...]:
    """Return the models of a node's GPUs, as the newest round that listed them saw them; empty if none did."""
    for round_ in reversed(rounds):
        models = [part.model for part in round_.parts.get(node, {}).values() if part.kind == "gpu"]
        if models:
            return tuple(sorted(models))
    return ()


def _nodes(key: Key, rounds: t.Sequence[Round]) -> set[str]:
    """Return the node of a part or of a node's own check, and all nodes of a pair or a group."""
    return standings.nodes_of(key, rounds) or {node_of(key.subject)}


def _load_before(key: Key, node: str, standing: Standing) -> list[Key]:
    """Return the node's own checks that load it, for a check that looks at it after its load; else nothing."""
    shipped = registry.shipped()
    if key.stage not in shipped or not shipped[key.stage].looks_after:
        return []
    return [one for one in standing.checks if one.subject == node and one.stage in shipped and shipped[one.stage].loads and one != key]


def line(rows: t.Sequence[t.Mapping[str, str]], path: pathlib.Path) -> str:
    """Return what the next round is, and the command that runs it with the file at `path`."""
    sample = {row["node"] for row in rows if row["why"].startswith("sample")}
    nodes = {row["node"] for row in rows} - sample
    checks = {tuple(row[name] for name in COLUMNS[1:5]) for row in rows if row["node"] in nodes}
    words = f"{len(checks)} checks on {len(nodes)} nodes with open ones"
    command = f"ansible-playbook {collection.playbook('acceptance')} -i INVENTORY -e acceptance_open_checks={path}"
    return f"next round: {words} and a sample of {len(sample)} others: {command}"
