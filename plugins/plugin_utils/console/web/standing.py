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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
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


class Problem(t.NamedTuple):
    """The bad verdicts of one run that have one cause, or say the same if the run's report has no cause for them. `is_effect`: the cause is
    elsewhere. `codes` are the reason codes, from which follows what to do where the report does not say it (`advice`)."""

    verdict: str
    text: str
    run: str
    planned_at: str
    rows: list[FoundVerdict]
    is_effect: bool
    advice: tuple[str, ...]
    codes: tuple[str, ...]


def problems(rows: t.Iterable[FoundVerdict], causes: t.Callable[[str], t.Iterable[CauseRow]]) -> list[Problem]:
    """Return the problems of rows with bad verdicts, one for each cause, the worst first and those that a cause elsewhere explains
    last. `causes` has the causes of a run."""
    groups: dict[tuple[str, ...], list[FoundVerdict]] = {}
    of_key: dict[tuple[str, ...], CauseRow | None] = {}
    own: set[tuple[str, ...]] = set()
    of_runs: dict[str, _Causes] = {}
    for row in rows:
        if row["run"] not in of_runs:
            of_runs[row["run"]] = _Causes(causes(row["run"]))
        cause, is_own = of_runs[row["run"]].of(row)
        reason = (row["reason"] or "").removeprefix(f"{row['subject']}: ").removeprefix(f"{keys.node_of(row['subject'])}: ")
        key = (row["run"], cause["subject"], cause["said"]) if cause else (row["run"], row["verdict"], row["stage"], reason)
        groups.setdefault(key, []).append(row)
        of_key[key] = cause
        if is_own:
            own.add(key)
    found = [_problem(of, of_key[key], is_effect=key not in own) for key, of in groups.items()]
    return sorted(found, key=lambda problem: (problem.is_effect, WORST_FIRST.index(problem.verdict)))


class _Causes:
    """The causes of a run by the verdicts that they are about."""

    def __init__(self, causes: t.Iterable[CauseRow]) -> None:
        self._own: dict[tuple[str, ...], CauseRow] = {}
        self._same: dict[tuple[str, ...], CauseRow] = {}
        self._explained: dict[tuple[str, ...], CauseRow] = {}
        for cause in causes:
            for finding in cause["findings"]:
                self._own.setdefault((finding["stage"], finding["check"], finding["variant"], finding["subject"]), cause)
                # A finding stands for all checks that say the same.
                self._same.setdefault((keys.node_of(finding["subject"]), finding["reason"]), cause)
            for check in cause["explains"]:
                self._explained.setdefault((check["stage"], check["check"], check["variant"], check["subject"]), cause)

    def of(self, row: FoundVerdict) -> tuple[CauseRow | None, bool]:
        """Return the cause of a verdict, and whether it is about its subject and not elsewhere; a verdict without a cause is its own."""
        key = (row["stage"], row["check"], row["variant"], row["subject"])
        cause = self._own.get(key) or self._same.get((keys.node_of(row["subject"]), row["reason"] or ""))
        if cause is not None:
            return cause, True
        cause = self._explained.get(key)
        return cause, cause is None


def _problem(rows: list[FoundVerdict], cause: CauseRow | None, is_effect: bool) -> Problem:
    first = rows[0]
    text = cause["said"] if cause else f"{first['stage']} {first['check']} {first['variant']} {first['subject']}: {first['reason'] or ''}"
    verdict = min((row["verdict"] for row in rows), key=WORST_FIRST.index)
    codes = tuple(dict.fromkeys(str(row["reason_code"]) for row in rows if row["reason_code"]))
    advice = tuple(cause.get("advice") or ()) if cause else ()
    return Problem(verdict, text, first["run"], first["planned_at"], rows, is_effect, advice, codes)
