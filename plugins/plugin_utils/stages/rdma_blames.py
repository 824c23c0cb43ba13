# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports, nodes, switches and paths that the matrix of pairs convicts, in words, with the pairs that are bad because of them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.search import SearchFinding
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import Cell, standing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of, pair_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import directions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import TIMETABLE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.rdma_rows import RailRow, SideRow


class MatrixView(t.Protocol):
    """The interface of a matrix (rdma_matrix.Table)."""

    check: str
    variant: str
    cells: list[Cell]
    better: t.Literal["higher", "lower"]
    unit: str


def convicted(table: MatrixView, findings: t.Iterable[SearchFinding]) -> t.Iterator[Blame]:
    """A pair is explained where each of its bad tests is that of somebody convicted."""
    bad = [cell for cell in table.cells if standing(cell.outcome, cell.value, cell.floor, table.better) == "bad"]
    sure = [finding for finding in findings if finding.confidence == "convicted" and finding.kind in ("nic", "node", "pair")]
    behind = {finding.id: [cell for cell in bad if _touches(finding, cell)] for finding in sure}
    tests: dict[Key, list[Cell]] = collections.defaultdict(list)
    for cell in bad:
        tests[_key(table, cell)].append(cell)
    explained = {id(cell) for cells in behind.values() for cell in cells}
    wholly_explained = {key for key, cells in tests.items() if all(id(cell) in explained for cell in cells)}
    for finding in sure:
        keys = {_key(table, cell) for cell in behind[finding.id]}
        sentence = _numbers_in_words(table, finding, behind[finding.id])
        if finding.kind == "pair":
            pair = pair_of(*map(node_of, finding.members))
            yield Blame(
                pair,
                "pair",
                f"the path {' - '.join(map(subjects.spoken, finding.members))} is {sentence}",
                own=tuple(sorted(keys & wholly_explained)),
            )
        else:
            node = node_of(finding.members[0])
            own_keys = (Key("rdma", TIMETABLE, "", node),)
            yield Blame(finding.members[0], finding.kind, sentence, own=own_keys, explains=frozenset(keys & wholly_explained))


def _key(table: MatrixView, cell: Cell) -> Key:
    """Return the key of the pair's check that a test belongs to."""
    a, b = node_of(cell.a), node_of(cell.b)
    variant = directions.with_direction(table.variant, directions.direction_of(a, b)) if cell.directed else table.variant
    return Key("rdma", table.check, variant, pair_of(a, b))


def _directions(finding: SearchFinding) -> tuple[bool, bool]:
    """Return whether tests convict a port or node as sender, and whether as receiver."""
    members = set(finding.members)
    ends = [[str(test[end]) for test in finding.evidence] for end in ("a", "b")]
    sends, receives = (any(port in members or node_of(port) in members for port in of) for of in ends)
    return sends, receives


def _touches(finding: SearchFinding, cell: Cell) -> bool:
    members = set(finding.members)
    if finding.kind == "pair":
        return {cell.a, cell.b} == members
    sends, receives = _directions(finding) if cell.directed else (True, True)
    return (sends and bool({cell.a, node_of(cell.a)} & members)) or (receives and bool({cell.b, node_of(cell.b)} & members))


def _numbers_in_words(table: MatrixView, finding: SearchFinding, cells: list[Cell]) -> str:
    broke = [cell for cell in cells if cell.outcome == "failed"]
    values = [cell.value for cell in cells if cell.outcome != "failed" and cell.value is not None]
    slow = "slow" if table.better == "higher" else "late"
    symptom = "its link breaks" if not values else f"{slow}, and its link breaks" if broke else slow
    directed = any(cell.directed for cell in cells)
    sends, receives = _directions(finding)
    if directed and finding.kind == "pair":
        from_ends = {cell.a for cell in cells}
        symptom += f" in one direction, where {subjects.spoken(min(from_ends))} sends" if len(from_ends) == 1 else ""
    elif directed and sends != receives:
        symptom += f" in one direction, where it {'sends' if sends else 'receives'}"
    floors = [cell.floor for cell in cells if cell.floor is not None]
    if values and floors:
        floor, limit = statistics.median(floors), "least" if table.better == "higher" else "most"
        symptom += f" ({table.check} {statistics.median(values):.4g} {table.unit} by the median, {limit} {floor:.4g})"
    if finding.not_looked_at:
        symptom += f", {len(finding.not_looked_at)} paths behind it are to be measured once it is repaired"
    return symptom


def counted(
    deciding: t.Mapping[Key, Measurement],
    rails_of: t.Callable[[Measurement], list[RailRow]],
    sides: t.Callable[[Measurement, str], list[SideRow]],
) -> t.Iterator[Blame]:
    """The ports whose error counters rose, each with all the tests in which they did."""
    rose: dict[str, dict[Key, list[str]]] = collections.defaultdict(dict)

    def take(node: str, key: Key, changes: t.Any) -> None:
        for change in changes if isinstance(changes, list) else ():
            if isinstance(change, dict) and str(change.get("part") or "").startswith("nic/"):
                rose[f"{node}/{change['part']}"].setdefault(key, []).append(str(change.get("text")))

    for key, record in deciding.items():
        if key.stage != "rdma":
            continue
        if record.subject.kind == "pair":
            rails = rails_of(record)
            if rails:  # its own counters are the client's
                take(node_of(rails[0]["b"]), key, record.evidence.get("changes"))
        elif key.check == TIMETABLE:
            take(key.subject, key, record.evidence.get("changes"))
            for row in sides(record, "server"):
                take(key.subject, Key("rdma", row["check"], row["variant"], row["subject"]), row["changes"])
    for port, of in rose.items():
        own_key = Key("rdma", TIMETABLE, "", node_of(port))
        tests = [key for key in of if key != own_key]
        names = dict.fromkeys(text.partition(": ")[2].partition(" rose ")[0] or text for texts in of.values() for text in texts)
        sentence = f"error counters rose in {len(tests) or 1} test{'s' if len(tests) > 1 else ''}: {', '.join(names)}"
        yield Blame(port, "nic", sentence, own=(own_key,), explains=frozenset(tests), counters=True)
