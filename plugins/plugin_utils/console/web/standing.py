# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdicts of a node that stand today, whichever runs they are of: a run of some checks says nothing of the others.

A failure stands until a later run has measured the check and found it good; that a later run could not measure it, or skipped it, does not
take it back. The verdict of a part that is no longer in the node does not stand.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import parts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.past import Past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.searching import FoundVerdict, Query, literally
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import GOOD
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import CauseRow

# Verdicts that were not made by a measurement.
NOT_MEASURED = ("UNKNOWN", "SKIPPED")
# Of a node, the newest verdicts among which those that stand are looked for.
ROWS = 5000
# Of a node of a history without parts, the newest runs in whose folders they are looked for.
RUNS_WITH_PARTS = 3


class NodeVerdicts(t.NamedTuple):
    """The verdicts of a node, the newest run first, its parts, and the verdicts that stand."""

    rows: list[FoundVerdict]
    hardware: parts.Hardware
    stands: list[FoundVerdict]


def read(past: Past, node: str) -> NodeVerdicts:
    """Return the verdicts of a node; none if the history has no such node."""
    try:
        rows = past.search(Query(node=literally(node)), limit=ROWS).rows
    except HistoryError:
        rows = []
    runs = itertools.islice(dict.fromkeys(row["run"] for row in rows), RUNS_WITH_PARTS)
    hardware = parts.of_node(past.seen_on(node) or [past.seen(run) for run in runs], node)
    return NodeVerdicts(rows, hardware, of_node(rows, hardware.has))


def of_node(rows: t.Iterable[FoundVerdict], is_there: t.Callable[[str], bool]) -> list[FoundVerdict]:
    """Return the verdict of each check and subject that stands. `rows` are those of a node, the newest run first; `is_there` says of the
    key of a part, as `gpu/UUID` or `nic/DEVICE`, if the node has it as far as is known."""
    by_check: dict[tuple[str, str, str, str], list[FoundVerdict]] = {}
    for row in rows:
        if is_there(_part(row["subject"])):
            by_check.setdefault((row["stage"], row["check"], row["variant"], row["subject"]), []).append(row)
    return [_standing(of_check) for of_check in by_check.values()]


def _standing(rows: t.Sequence[FoundVerdict]) -> FoundVerdict:
    """Return the newest row, or in place of one that was not measured the newest failure that no later run has found good."""
    if rows[0]["verdict"] in NOT_MEASURED:
        measured = next((row for row in rows if row["verdict"] not in NOT_MEASURED), None)
        if measured is not None and measured["verdict"] not in GOOD:
            return measured
    return rows[0]


def _part(subject: str) -> str:
    """Return the key of the part that a subject is, or that it is a port of; empty for a node or a pair."""
    return "/".join(subject[len(keys.node_of(subject)) + 1 :].split("/")[:2]) if "|" not in subject else ""


def causes_first(rows: t.Iterable[FoundVerdict], causes: t.Callable[[str], t.Iterable[CauseRow]]) -> list[FoundVerdict]:
    """Return rows with those that another cause explains below the others. `causes` has the causes of a run."""
    rows = list(rows)
    effects = {
        (run, check["stage"], check["check"], check["subject"])
        for run in {row["run"] for row in rows}
        for cause in causes(run)
        for check in cause["explains"]
    }
    return sorted(rows, key=lambda row: (row["run"], row["stage"], row["check"], row["subject"]) in effects)
