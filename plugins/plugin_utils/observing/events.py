# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A judged run as events for rulebooks: the run itself, and each finding and regression that is new.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import hashlib
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import CauseRow, PastRows
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import plain

# The word of a regression among the verdicts that a subject is remembered with.
REGRESSION = "REGRESSION"
RUN = ("run", "inventory", "planned_at", "judged_at", "mode", "word", "accepted", "why", "partial", "simulated", "counts")
SIMULATED = "simulated "
# The beginning of a template. Rulebooks put texts of an event into playbooks, and Ansible evaluates templates in them.
TEMPLATE = re.compile(r"\{(?=[{%#])")


class Noticed(t.TypedDict):
    """A finding of a run for programs. `node` is empty if it is about a pair, a switch or a group; `checks` are the stages and checks that
    found it, `said` is one sentence."""

    subject: str
    kind: str
    node: str
    verdict: str
    convicted: bool
    checks: list[str]
    said: str
    simulated: bool


class Remembered(t.TypedDict):
    """The state of one check of a subject since it was last good: the verdicts that were yielded, and the inventory of the run."""

    words: list[str]
    inventory: str


# {inventory, a tab, subject with `simulated` before it if it is: {check: what is known of it}}. Two clusters may have nodes of one name.
Open = dict[str, dict[str, Remembered]]


def findings(causes: t.Iterable[CauseRow]) -> list[Noticed]:
    """Return the causes of a report as findings."""
    return [
        {
            "subject": cause["subject"], "kind": cause["kind"], "node": _node(cause["kind"], cause["subject"]),
            "verdict": cause["verdict"], "convicted": cause["convicted"],
            "checks": list(dict.fromkeys(f"{finding['stage']} {finding['check']}" for finding in cause["findings"])),
            "said": cause["said"], "simulated": cause["simulated"],
        }
        for cause in causes
    ]  # fmt: skip


def regressions(past: PastRows | None) -> list[Noticed]:
    """Return the numbers that became worse than their own past, from the field `past` of a report. A change that all subjects share has no
    subject."""
    return [
        {
            "subject": change["subject"], "kind": "regression", "node": _node("", change["subject"]), "verdict": REGRESSION,
            "convicted": False, "checks": [" ".join(filter(None, (change["stage"], change["check"], change["variant"], change["metric"])))],
            "said": change["sentence"], "simulated": change["simulated"],
        }
        for change in (past["changes"] if past else ())
        if change["regression"]
    ]  # fmt: skip


def _node(kind: str, subject: str) -> str:
    if "|" in subject:
        return ""
    of, name = subjects.bearer(kind, subject)
    return name if of == "node" else ""


def new(run: PlainData, noticed: t.Sequence[Noticed], known: Open, is_over: t.Callable[[str, str, Remembered], bool]) -> list[PlainData]:
    """Return the events of a judged run, and bring `known` up to date: the run, then each finding that has a check with a verdict that was
    not yielded since that check was last good.

    `is_over(subject, check, remembered)` says whether this run measured a check again, if none of `noticed` is about it."""
    events = [_event("run", run, "", {})]
    seen: set[tuple[str, str]] = set()
    for finding in noticed:
        subject = _key(run["inventory"], finding)
        checks = known.setdefault(subject, {})
        is_new = False
        for check in finding["checks"] or [""]:
            seen.add((subject, check))
            remembered = checks.setdefault(check, {"words": [], "inventory": run["inventory"]})
            remembered["inventory"] = run["inventory"]
            if finding["verdict"] not in remembered["words"]:
                remembered["words"].append(finding["verdict"])
                is_new = True
        if is_new:
            what = "regression" if finding["verdict"] == REGRESSION else "finding"
            events.append(_event(what, run, f"{_subject(subject)} {finding['verdict']} {finding['checks']}", {what: dict(finding)}))
    _forget(run["inventory"], known, seen, is_over)
    return events


def _forget(
    inventory: str, known: Open, seen: t.Container[tuple[str, str]], is_over: t.Callable[[str, str, Remembered], bool]
) -> None:
    """Remove what is over, by a run of its own inventory."""
    for subject, checks in list(known.items()):
        for check, remembered in list(checks.items()):
            is_of_run = remembered["inventory"] == inventory and (subject, check) not in seen
            if is_of_run and is_over(_subject(subject).removeprefix(SIMULATED), check, remembered):
                del checks[check]
        if not checks:
            del known[subject]


def _key(inventory: str, finding: Noticed) -> str:
    return f"{inventory}\t{SIMULATED if finding['simulated'] else ''}{finding['subject']}"


def _subject(key: str) -> str:
    """Return the subject of a key; the first versions wrote no inventory before it."""
    return key.rpartition("\t")[2]


def _event(what: str, run: PlainData, about: str, more: PlainData) -> PlainData:
    """Return an event. Its `id` is the same whenever it is yielded again."""
    identity = hashlib.sha256("\n".join((what, run["run"], run["judged_at"], about)).encode("utf-8", "backslashreplace")).hexdigest()[:32]
    fields = {name: run[name] for name in RUN}
    return t.cast(PlainData, harmless({"type": what, "id": identity, "run": fields, **more}))


def harmless(value: t.Any) -> t.Any:
    """Return plain data in which no text is a template and everything can be seen: nodes may have written it."""
    if isinstance(value, str):
        return TEMPLATE.sub("{ ", plain(value))
    if isinstance(value, dict):
        return {harmless(name): harmless(of) for name, of in value.items()}
    return [harmless(item) for item in value] if isinstance(value, (list, tuple)) else value
