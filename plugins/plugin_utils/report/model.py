# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The model of a report: everything the formats show, computed once. It shows verdicts; it never makes one.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import operator
import re
import shlex
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import utc
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import advice, past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.judgement import Judgement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import compact, integrity, parts, subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Cause,
    MeasuredEvidence,
    Measurement,
    Metric,
    MetricData,
    Plan,
    Verdict,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import (
    CauseRow,
    ChangeRow,
    CheckRows,
    CommandRow,
    Deviation,
    DriftRow,
    EvidenceRows,
    ExpectationRow,
    FileDigest,
    Finding,
    NodeRow,
    PastRows,
    Report,
    Row,
    Summary,
    Sweep,
    SweepSize,
    VersionRow,
    WaiverRow,
    WarningRow,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import heatmap, listing, looked_for
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import is_only_shown
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage

ABNORMAL = tuple(word for word in WORST_FIRST if word not in ("PASS", "SKIPPED"))
# Metrics that are shown and never gated on: a mean over all sizes says nothing about the plateau.
UNGATED = ("avg_busbw", "out_of_bounds")
# Kinds of changes of numbers, the gravest first, and the most sentences of each kind.
PAST_ORDER = ("step", "drop", "drift", "scatter", "flapping", "improvement", "hiccup")
PAST_SENTENCES = 20
COMMANDS = 200
WORDS = ("ACCEPTED", "NOT ACCEPTED", "PASSED, NOT PROVEN", "QUICK TEST PASSED", "QUICK TEST NOT PASSED")
# How the reason of a run says that what had to be proven was not.
UNPROVEN = tuple(stage.unproven for stage in registry.shipped().values() if stage.unproven)


# The parts in the title of a cause, and how a finding about a node begins that is about a part of it: behind the check, or another one.
TITLE_PARTS = 2
_ABOUT_PART = re.compile(r"(?:(?<=[:;,] )|(?<= and ))(\S+ port \d+|GPU \d+)(?=: | was | were |, GPU \d| and GPU \d)")


class _Named(t.TypedDict):
    """The words about a cause."""

    said: str
    name: str
    title: str
    place: list[str]


def word(mode: str, passed: bool, unproven: bool = False) -> str:
    """Return the result of a run in one word for people: a quick test accepts nothing, nor does a run that did not prove what it had to."""
    if mode == "quick":
        return "QUICK TEST PASSED" if passed else "QUICK TEST NOT PASSED"
    if passed and unproven:
        return "PASSED, NOT PROVEN"
    return "ACCEPTED" if passed else "NOT ACCEPTED"


def outcome(mode: str, head: t.Mapping[str, t.Any]) -> tuple[bool, str]:
    """Return whether an earlier report accepts, and its word. Older versions said of a quick test that passed, and of a run
    that proved nothing of what had to be, that it was accepted; the oldest had no word for it."""
    unproven = any(words in str(head.get("why") or "") for words in UNPROVEN)
    result = head.get("word")
    if result not in WORDS or (result == "ACCEPTED" and (unproven or mode == "quick")):
        result = word(mode, bool(head.get("passed", head["accepted"])), unproven)
    return result == "ACCEPTED" and bool(head["accepted"]), result


def evidence(files: t.Sequence[FileDigest] = ()) -> EvidenceRows:
    """Return the fields of a report about the evidence as it lies in the run's folder; `files` are those of integrity.gather."""
    raw = [file for file in files if file["path"].startswith("raw/")]
    return {
        "files": [file for file in files if not file["path"].startswith("raw/")],
        "raw": [{"path": file["path"], "sha256": file["sha256"]} for file in raw],
        "fingerprint": integrity.fingerprint(files),
    }


def build(plan: Plan, judgement: Judgement, known: parts.Parts | None = None) -> Report:
    """Return the report of a run from its plan and its judgement. `known` are the parts of the nodes. The report's files are added by
    `evidence` and its `since` by the caller."""
    judged = judgement.deciding
    verdicts = judgement.verdicts
    stages = [s["name"] for s in plan.stages]
    nodes = _nodes(judgement, stages)
    described = {entry["name"]: registry.of(entry) for entry in plan.stages if "role" in entry}
    shown_only = {(name, check) for name, stage in described.items() for check in stage.shown_only}
    checks = _checks(verdicts, judged, shown_only)
    unlisted = listing.leave_out(checks, nodes)
    commands, versions = _ran(judged)
    drawn = {name: [heatmap.of_table(table) for table in tables if table.cells] for name, tables in judgement.tables.items()}
    return {
        "schema": "report/v1",
        "run_id": plan.run_id,
        "planned_at": plan.created_at,
        "created_at": utc(),
        "mode": plan.mode,
        "level": plan.level,
        "passed": judgement.passed,
        "accepted": judgement.accepted,
        "word": word(plan.mode, judgement.passed, bool(judgement.unproven)),
        "why": judgement.why,
        "partial": plan.partial,
        "left_out": plan.left_out,
        "skipped_stages": plan.skipped_stages,
        "not_proven": [*plan.not_proven, *judgement.speed_not_proven],
        "simulated": judgement.simulated,
        "counts": judgement.counts,
        "coverage": judgement.coverage,
        "notes": judgement.notes,
        "causes": _causes(judgement, known or {}),
        "blamed": subjects.counted(kind for kind, _name in {_bearer(cause) for cause in judgement.causes}),
        "unlisted": unlisted,
        "nodes": nodes,
        "counted": subjects.counted(n["kind"] for n in nodes),
        "not_measured_by_plan": _without_checks(plan, nodes),
        "stages": [{"name": name, "checks": checks.get(name, []), "matrices": drawn.get(name, [])} for name in stages],
        "warnings": _warnings(judgement),
        "waivers": [_waiver(v) for v in verdicts if v.verdict == "KNOWN_FAIL"],
        "drift": _drift(judgement.drift, {n["name"] for n in nodes if n["simulated"]}),
        "sample": plan.sample,
        "expectations": _expectations(verdicts),
        "commands": commands,
        "versions": [*_own_versions(plan), *versions],
        **evidence(),
        "past": _past(judgement.past) if judgement.past else None,
        "since": None,
        "looked_for": looked_for.build(plan, judgement),
        "sections": [section for stage, rows in _rows_of(plan, judgement, "sections").items() for section in stage.sections(rows)],
    }


def _rows_of(plan: Plan, judgement: Judgement, method: str) -> dict[Stage, list[tuple[Verdict, Measurement]]]:
    """The verdicts of each stage that has such a method of its own, of what was measured, in the order of the plan, each with the
    measurement that decided. Rows of thousands of nodes are not gathered for nothing."""
    stage_by_name = {entry["name"]: registry.of(entry) for entry in plan.stages if "role" in entry}
    telling = {name: stage for name, stage in stage_by_name.items() if getattr(type(stage), method) is not getattr(Stage, method)}
    if not telling:
        return {}
    stages_shown: dict[str, list[Stage]] = {}
    for name, stage in telling.items():
        for shown_name in (name, *(stage.beside if method == "sections" else ())):
            stages_shown.setdefault(shown_name, []).append(stage)
    verdicts = {verdict.key: verdict for verdict in judgement.verdicts if verdict.stage in stages_shown}
    of: dict[Stage, list[tuple[Verdict, Measurement]]] = {}
    for key in (item.key for item in plan.items if item.stage in stages_shown):
        if key in verdicts and key in judgement.deciding:
            for stage in stages_shown[key.stage]:
                of.setdefault(stage, []).append((verdicts[key], judgement.deciding[key]))
    planned = {item.key for item in plan.items if item.stage in stages_shown}
    for key, verdict in verdicts.items():  # what the measurements of several nodes name together is in no plan
        if key.stage in stage_by_name and key not in planned and key.subject == node_of(key.subject) and key in judgement.deciding:
            for stage in stages_shown[key.stage]:
                of.setdefault(stage, []).append((verdict, judgement.deciding[key]))
    return of


def files_of_stages(plan: Plan, judgement: Judgement) -> dict[str, str]:
    """Return the files of stages beside the forms of the report: {path below the run's folder: text}."""
    return {
        f"{stage.name}/{path}": text
        for stage, rows in _rows_of(plan, judgement, "files").items()
        for path, text in stage.files(plan.run_id, rows).items()
    }


def _past(report: past.PastReport) -> PastRows:
    """Return the changes of numbers since earlier runs, in words, those that concern most subjects first."""
    changes = sorted(report.changes, key=lambda change: (bool(change.subject), PAST_ORDER.index(change.kind), change.key, change.metric))
    kinds: dict[str, list[str]] = {}
    for change in changes:
        kinds.setdefault(change.kind if change.subject else "", []).append(change.sentence)
    lines = []
    for sentences in kinds.values():
        hidden_count = len(sentences) - PAST_SENTENCES
        lines += sentences[:PAST_SENTENCES] + (
            [f"and {hidden_count} more like {'this' if hidden_count == 1 else 'these'}"] if hidden_count > 0 else []
        )
    worse = sum(change.regression for change in changes)
    comparison_text = f"{report.compared} numbers held against their own past, {worse or 'none'} of them worse"
    lines.append(comparison_text + (f"; {report.short} have fewer than 8 runs before, too few to tell a change" if report.short else ""))
    return {
        "compared": report.compared, "short": report.short, "regressions": worse, "said": lines,
        "changes": [t.cast(ChangeRow, change._asdict()) for change in changes],
    }  # fmt: skip


def _nodes(judgement: Judgement, stages: list[str]) -> list[NodeRow]:
    """Return every node, pair, switch and group with its verdict by stage, the worst first."""
    abnormal: dict[str, list[Verdict]] = {}
    for v in judgement.verdicts:
        if v.verdict in ABNORMAL:
            abnormal.setdefault(node_of(v.subject.id), []).append(v)
    return [
        {
            **node,
            "stages": {stage: node["stages"].get(stage, "") for stage in stages},
            "findings": _findings(abnormal.get(node["name"], []), judgement.deciding),
        }
        for node in judgement.nodes
    ]


def _without_checks(plan: Plan, nodes: list[NodeRow]) -> list[str]:
    """Targets of the run for which it planned no check at all, as those that a sample left out."""
    shown_nodes = {n["name"] for n in nodes} | {n["name"].split("/", 1)[0] for n in nodes}
    return sorted(set(plan.targets) - shown_nodes)


def _bearer(cause: Cause) -> tuple[str, str]:
    return subjects.bearer(cause["kind"], cause["subject"])


def _causes(judgement: Judgement, known: parts.Parts) -> list[CauseRow]:
    """Return the causes of the verdicts that are no PASS: one sentence, the findings of its own checks, and what is bad because of it."""
    explained_keys = {key for cause in judgement.causes for key in (*cause["own"], *cause["explains"])}
    verdicts = {key: v for v in (judgement.verdicts if explained_keys else ()) if (key := v.key) in explained_keys}
    return [
        {
            "subject": cause["subject"],
            "kind": cause["kind"],
            "verdict": cause["verdict"],
            "convicted": cause["convicted"],
            "whole": cause["whole"],
            **_named(cause, known),
            "simulated": any(verdicts[key].simulated for key in (*cause["own"], *cause["explains"])),
            "advice": advice.of((verdicts[key] for key in cause["own"] or cause["explains"]), judgement.drift),
            "findings": _findings([verdicts[key] for key in cause["own"]], judgement.deciding),
            "explains": [
                {"stage": key.stage, "check": key.check, "variant": key.variant, "verdict": verdicts[key].verdict, "subject": key.subject}
                for key in cause["explains"]
            ],
        }
        for cause in judgement.causes
    ]


def _named(cause: Cause, known: parts.Parts) -> _Named:
    """Return the words about a cause, with a GPU by its index if that is known, and where its parts are."""
    spoken = subjects.spoken(cause["subject"])
    name = parts.name(known, cause["subject"]) or spoken
    said = name + cause["said"].removeprefix(spoken) if cause["said"].startswith(spoken) else cause["said"]
    return {"said": said, "name": name, "title": _title(name, cause), "place": parts.places(known, cause["subject"], [said])}


def _title(name: str, cause: Cause) -> str:
    """Return the name of a cause with the parts of a node that its findings are about, `gpu-03 mlx5_3 port 1`; of many the first ones."""
    if cause["kind"] != "node":
        return name
    found = list(dict.fromkeys(_ABOUT_PART.findall(cause["said"].removeprefix(name))))
    unsaid = f" and {len(found) - TITLE_PARTS} more" if len(found) > TITLE_PARTS else ""
    return f"{name} {', '.join(found[:TITLE_PARTS])}{unsaid}".rstrip()


def _findings(verdicts: list[Verdict], judged: t.Mapping[Key, Measurement]) -> list[Finding]:
    """Return the findings about a subject, worst first. A node repeats the reason of its GPU, and every check that the node was lost:
    each is said once, with the other checks that say it."""
    by_reason: dict[str, Finding] = {}
    for v in verdicts:
        if v.verdict not in ABNORMAL:
            continue
        m = judged.get(v.key)
        earlier = by_reason.get(v.reason)
        finding: Finding = {
            "stage": v.stage, "check": v.check, "variant": v.variant, "verdict": v.verdict, "reason": v.reason, "subject": v.subject.id,
            "evidence": _texts(v.findings), "raw": m.raw if m else None, "command": shlex.join(m.command)[:500] if m else "",
            "also": earlier["also"] if earlier else [],
        }  # fmt: skip
        by_reason[v.reason] = _merged(earlier, finding) if earlier else finding
    return sorted(by_reason.values(), key=lambda finding: WORST_FIRST.index(finding["verdict"]))


def _merged(first: Finding, second: Finding) -> Finding:
    """Return the one of two findings with the same reason that has the tool's output, with the check of the other one in `also`."""
    shown_finding, dropped = (first, second) if first["raw"] or not second["raw"] else (second, first)
    check = _check_words(dropped)
    also = second["also"] if check in (_check_words(shown_finding), *second["also"]) else [*second["also"], check]
    return {**shown_finding, "also": also}


def _check_words(finding: Finding) -> str:
    return " ".join(filter(None, (finding["stage"], finding["check"], finding["variant"])))


def _texts(items: t.Any) -> list[str]:
    """Findings and changes in words, whatever form a stage gave them."""
    items = items if isinstance(items, list) else [items]
    return [str(i.get("text") or i.get("code") or i) if isinstance(i, dict) else str(i) for i in items]


def _checks(
    verdicts: list[Verdict], judged: t.Mapping[Key, Measurement], shown_only: t.Collection[tuple[str, str]]
) -> dict[str, list[CheckRows]]:
    """Return the checks of each stage with their rows, the worst first. `shown_only` are (stage, check) whose numbers are not judged."""
    rows_of: dict[tuple[str, str, str], list[Row]] = collections.defaultdict(list)
    for v in verdicts:
        key = v.key
        rows_of[key[:3]].append(_row(v, judged.get(key)))
    checks: dict[str, list[CheckRows]] = collections.defaultdict(list)
    for (stage, check, variant), rows in sorted(rows_of.items()):
        rows.sort(key=lambda row: (_RANK[row["verdict"]], row["subject"]))
        counts: dict[str, int] = dict(collections.Counter(row["verdict"] for row in rows))
        shown = sum(map(is_only_shown, rows)) if (stage, check) in shown_only else 0
        group: CheckRows = {
            "check": check, "variant": variant, "rows": rows, "counts": counts, "summary": _summary(rows), "unlisted": 0,
            "shown_only": shown,
        }  # fmt: skip
        checks[stage].append(group)
    return checks


_make_row = compact.form(Row)
_RANK = {word: rank for rank, word in enumerate(WORST_FIRST)}
_OF_VERDICT = operator.attrgetter("verdict", "value", "unit", "floor", "layer", "metric", "reason", "simulated", "attempt")
# Most rows share these; nobody changes what a report holds.
_NO_METRICS: dict[str, Metric] = {}
_NO_DATA: dict[str, MetricData] = {}
_NO_EVIDENCE: MeasuredEvidence = {}
_NO_TEXTS: list[str] = []


def _row(v: Verdict, m: Measurement | None) -> Row:
    subject, kind = v.subject.id, v.subject.kind
    node = node_of(subject)
    metrics: t.Mapping[str, Metric] = m.metrics if m else _NO_METRICS
    evidence = m.evidence if m else _NO_EVIDENCE
    changes, unreadable = evidence.get("changes"), evidence.get("unreadable")
    judged = v.metric
    ungated_rest = ungated = _NO_DATA
    if len(metrics) > (judged in metrics):
        ungated_rest = {name: metric.as_data() for name, metric in metrics.items() if name != judged}
        if not metrics.keys().isdisjoint(UNGATED):
            ungated = {n: ungated_rest.pop(n) for n in UNGATED if n in ungated_rest}
    return _make_row(
        subject, node, subject[len(node) + 1 :], kind, *_OF_VERDICT(v), ungated_rest, ungated,
        m.duration_s if m else None,
        _texts(changes) if changes else _NO_TEXTS,
        _texts(unreadable) if unreadable else _NO_TEXTS,
        _sweep(m) if m and kind == "group" else None,
    )  # fmt: skip


def _sweep(m: Measurement) -> Sweep | None:
    """Return the sweep of a group of nodes; None if the measurement has none."""
    rows: list[SweepSize] = [
        {"size": row["size"], "time_us": row["time_us"], "algbw": row["algbw"], "busbw": row["busbw"]}
        for row in m.series
        if all(isinstance(row.get(name), (int, float)) for name in SweepSize.__required_keys__)
    ]
    world = m.context.get("world_size")
    return {"world_size": world, "rows": rows} if rows and isinstance(world, int) else None


def _summary(rows: list[Row]) -> Summary | None:
    """Return the least, median and most of the values of one check; None if they have several units."""
    values = [r["value"] for r in rows if r["value"] is not None]
    units = {r["unit"] for r in rows if r["value"] is not None}
    if not values or len(units) > 1:
        return None
    return {"count": len(values), "min": min(values), "median": statistics.median(values), "max": max(values), "unit": units.pop()}


def _warnings(judgement: Judgement) -> list[WarningRow]:
    """Return the warnings that a signature accepts: those of the run, then one for each cause of a WARN."""
    warned = {v.key: v for v in judgement.verdicts if v.verdict == "WARN"}
    of_run: list[WarningRow] = [{"text": text, "subject": "", "simulated": False} for text in judgement.warnings]
    by_text: dict[str, WarningRow] = {}
    for cause in judgement.causes:
        warned_checks = [warned[key] for key in (*cause["own"], *cause["explains"]) if key in warned]
        only_warns = cause["whole"] and cause["verdict"] == "WARN"
        texts = (
            {cause["said"]: warned_checks}
            if only_warns and warned_checks
            else {f"{v.stage} {v.check}: {v.reason}": [v] for v in warned_checks}
        )
        for text, behind in texts.items():
            simulated = any(v.simulated for v in behind)
            by_text.setdefault(text, {"text": text, "subject": behind[0].subject.id, "simulated": simulated})
    return [*of_run, *by_text.values()]


def _waiver(v: Verdict) -> WaiverRow:
    return {
        "subject": v.subject.id, "stage": v.stage, "check": v.check, "variant": v.variant, "reason": v.reason, "ticket": v.ticket,
        "expires": v.expires, "of": v.of, "simulated": v.simulated,
    }  # fmt: skip


def _drift(deviations: t.Mapping[str, list[Deviation]], simulated: set[str]) -> list[DriftRow]:
    """Return each deviating fact once, with the nodes on either side; what fails first, then what concerns most nodes."""
    differing: dict[tuple[str, str, str], set[str]] = {}
    rows: dict[tuple[str, str, str], DriftRow] = {}
    for target in sorted(deviations):
        for deviation in deviations[target]:
            key = (deviation["item"], deviation["found"], deviation["expected"])
            row = rows.setdefault(key, {**deviation, "simulated": False})
            differing.setdefault(key, set()).update(deviation["differing"])
            row["simulated"] = row["simulated"] or bool(simulated & {target, *deviation["differing"]})
    for key, row in rows.items():
        row["differing"] = sorted(differing[key])
    return sorted(rows.values(), key=lambda r: (r["severity"] != "fail", r["item"], -len(r["differing"]), r["found"]))


_EXPECTATION = tuple(ExpectationRow.__annotations__)


def _expectations(verdicts: list[Verdict]) -> list[ExpectationRow]:
    fields = operator.attrgetter(*_EXPECTATION)
    distinct = {fields(v): v for v in verdicts if v.expectation}
    rows = [t.cast(ExpectationRow, dict(zip(_EXPECTATION, values, strict=True))) for values in distinct]
    return sorted(rows, key=lambda row: tuple(map(str, row.values())))


def _ran(judged: t.Mapping[Key, Measurement]) -> tuple[list[CommandRow], list[VersionRow]]:
    """Return each distinct command line, and each version of the tools of each stage, once, with how many nodes had it."""
    words: dict[tuple[str, ...], set[str]] = collections.defaultdict(set)
    versions: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for m in judged.values():
        command, version = m.command, m.tool_version
        if not command and not version:
            continue
        nodes = subjects.nodes_of(m.subject) or {m.target}
        if command:
            words[(m.stage, *command)] |= nodes
        if version:
            versions[m.stage, version] |= nodes
    ran: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for (stage, *command), on in words.items():
        ran[stage, shlex.join(command)[:2000]] |= on
    commands: list[CommandRow] = [
        {"stage": stage, "command": text, "nodes": len(on), "example": min(on)} for (stage, text), on in ran.items()
    ]
    commands.sort(key=lambda row: (row["stage"], -row["nodes"], row["command"]))
    of_tools: list[VersionRow] = [
        {"name": stage, "version": version, "nodes": len(on)} for (stage, version), on in sorted(versions.items())
    ]
    return commands[:COMMANDS], of_tools


def _own_versions(plan: Plan) -> t.Iterator[VersionRow]:
    own_fields = {"gpufleet.acceptance": "collection_version", "ansible-core": "ansible_version", "Python": "python_version"}
    for name, field in own_fields.items():
        yield {"name": name, "version": plan[field], "nodes": None}
