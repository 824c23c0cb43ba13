# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public lists of demands, held against rounds: each id with yes, in part, no or not looked for. files/public_lists/ has them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import contract
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.standing import Standing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "files" / "public_lists"
YES, IN_PART, NO, NOT_LOOKED_FOR = "yes", "in part", "no", "not looked for"
COLUMNS = ("list", "id", "text", "state", "shown_by", "measured", "why", "source")


class Entry(t.NamedTuple):
    """Demands of a list that one thing shows: its ids, our words for them, the `checks` and the `files` of a pack that show them, the part
    that these do not show, and, for what nothing shows, why."""

    ids: tuple[str, ...]
    text: str
    checks: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    not_shown: str = ""
    why: str = ""


class PublicList(t.NamedTuple):
    """A list: its name, the version that was read, where it is published, and its entries."""

    name: str
    version: str
    source: str
    entries: tuple[Entry, ...]


def shipped() -> list[PublicList]:
    """Return the lists of this collection."""
    return [_read(path) for path in sorted(FOLDER.glob("*.yml"))]


def _read(path: pathlib.Path) -> PublicList:
    text = yaml.safe_load(path.read_text(encoding="utf-8"))
    entries = tuple(Entry(**_fields(entry)) for entry in text["demands"])
    return PublicList(text["name"], str(text["version"]), text["source"], entries)


def _fields(entry: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the fields of a demand; its lists are tuples of texts."""
    return {field: tuple(map(str, value)) if isinstance(value, list) else value for field, value in entry.items()}


def rows(lists: t.Sequence[PublicList], standing: Standing) -> list[dict[str, str]]:
    """Return a row for each id of the lists."""
    entries = [(one, entry) for one in lists for entry in one.entries]
    demands = [contract.Demand(entry.ids[0], entry.text, entry.checks, "", "", None, False, 0.0) for _one, entry in entries]
    traced, _unasked = contract.trace(demands, standing)
    return [
        {
            "list": f"{one.name} {one.version}", "id": demand_id, "text": entry.text, **_state(entry, demand, row, standing),
            "shown_by": ", ".join((*entry.checks, *entry.files)), "measured": str(row["measured"]), "source": one.source,
        }
        for (one, entry), demand, row in zip(entries, demands, traced, strict=True)
        for demand_id in entry.ids
    ]  # fmt: skip


def _state(entry: Entry, demand: contract.Demand, row: t.Mapping[str, t.Any], standing: Standing) -> dict[str, str]:
    """Return the state of a demand and why. What was shown on some of the nodes is not shown on the others."""
    if row["state"] == contract.NOT_MET:
        return {"state": NO, "why": str(row["why"])}
    by_checks = row["state"] == contract.MET
    if not by_checks and (entry.checks or not entry.files):
        return {"state": NOT_LOOKED_FOR, "why": entry.why or str(row["why"])}
    rest = [f"not shown: {entry.not_shown}"] if entry.not_shown else []
    marks = []
    if by_checks:
        verdicts = [one.verdict for key, one in standing.checks.items() if demand.asks_for(contract.words_of(key))]
        nodes = {node for verdict in verdicts for node in subjects.nodes_of(verdict.subject)} & standing.of_node.keys()
        if len(nodes) < len(standing.of_node):
            rest.append(f"not shown: {len(standing.of_node) - len(nodes)} of {len(standing.of_node)} nodes")
        marks = ["by simulated tools"] if any(verdict.simulated for verdict in verdicts) else []
    return {"state": IN_PART if rest else YES, "why": "; ".join([*rest, *marks])}


def counts(of: t.Iterable[t.Mapping[str, str]]) -> dict[str, dict[str, int]]:
    """Return {list: {state: number of ids}}."""
    counted: dict[str, dict[str, int]] = {}
    for row in of:
        states = counted.setdefault(row["list"], dict.fromkeys((YES, IN_PART, NO, NOT_LOOKED_FOR), 0))
        states[row["state"]] += 1
    return counted
