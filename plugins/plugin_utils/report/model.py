# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The model of a report: everything the formats show, computed once. It shows verdicts; it never makes one.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import operator
import shlex
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.observation import utc
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.judgement import Judgement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import compact, integrity, subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Cause, Measurement, Metric, Plan, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import heatmap, looked_for
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage

Model = t.Dict[str, t.Any]
Record = t.Dict[str, t.Any]

ABNORMAL = tuple(word for word in WORST_FIRST if word not in ("PASS", "SKIPPED"))
EXPECTATION = ("stage", "check", "metric", "expected", "unit", "floor", "layer", "source", "date", "confidence", "expectation")
# Metrics that are shown and never gated on: a mean over all sizes says nothing about the plateau.
UNGATED = ("avg_busbw", "out_of_bounds")
# What became of numbers, what concerns most first; so many of each kind are said.
PAST_ORDER = ("step", "drop", "drift", "scatter", "flapping", "improvement", "hiccup")
PAST_SAID = 20
# The columns of a sweep over message sizes: bytes, microseconds, GB/s.
SWEEP = ("size", "time_us", "algbw", "busbw")
COMMANDS = 200
WORDS = ("ACCEPTED", "NOT ACCEPTED", "PASSED, NOT PROVEN", "QUICK TEST PASSED", "QUICK TEST NOT PASSED")
# How the reason of a run says that what had to be proven was not.
UNPROVEN = tuple(stage.unproven for stage in registry.shipped().values() if stage.unproven)


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
    found = head.get("word")
    if found not in WORDS or (found == "ACCEPTED" and (unproven or mode == "quick")):
        found = word(mode, bool(head.get("passed", head["accepted"])), unproven)
    return found == "ACCEPTED" and bool(head["accepted"]), found


def evidence(files: t.Sequence[Record] = ()) -> Model:
    """The fields of a model about the evidence as it lies in the run's folder: `files` are {path, bytes, sha256} (integrity.py)."""
    raw = [file for file in files if file["path"].startswith("raw/")]
    return {
        "files": [file for file in files if not file["path"].startswith("raw/")],
        "raw": [{"path": file["path"], "sha256": file["sha256"]} for file in raw],
        "fingerprint": integrity.fingerprint(files),
    }


def build(plan: Plan, judgement: Judgement) -> Model:
    """One model (report/v1) from the plan of a run and what the verdict engine said of it; its evidence is told by `evidence`."""
    judged = judgement.deciding
    verdicts = judgement.verdicts
    stages = [s["name"] for s in plan.stages]
    nodes = _nodes(judgement, stages)
    checks = _checks(verdicts, judged)
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
        "causes": _causes(judgement),
        "blamed": subjects.counted(kind for kind, _name in {_bearer(cause) for cause in judgement.causes}),
        "nodes": nodes,
        "counted": subjects.counted(n["kind"] for n in nodes),
        "not_measured_by_plan": _without_checks(plan, nodes),
        "stages": [{"name": name, "checks": checks.get(name, []), "matrices": drawn.get(name, [])} for name in stages],
        "warnings": [{"text": text, "subject": "", "simulated": False} for text in judgement.warnings] + _warnings(judgement),
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
    known = {entry["name"]: registry.of(entry) for entry in plan.stages if "role" in entry}
    telling = {name: stage for name, stage in known.items() if getattr(type(stage), method) is not getattr(Stage, method)}
    if not telling:
        return {}
    told: dict[str, list[Stage]] = {}
    for name, stage in telling.items():
        for shown in (name, *(stage.beside if method == "sections" else ())):
            told.setdefault(shown, []).append(stage)
    verdicts = {verdict.key: verdict for verdict in judgement.verdicts if verdict.stage in told}
    of: dict[Stage, list[tuple[Verdict, Measurement]]] = {}
    for key in (item.key for item in plan.items if item.stage in told):
        if key in verdicts and key in judgement.deciding:
            for stage in told[key.stage]:
                of.setdefault(stage, []).append((verdicts[key], judgement.deciding[key]))
    return of


def files_of_stages(plan: Plan, judgement: Judgement) -> dict[str, str]:
    """Return the files of stages beside the forms of the report: {path below the run's folder: text}."""
    return {
        f"{stage.name}/{path}": text
        for stage, rows in _rows_of(plan, judgement, "files").items()
        for path, text in stage.files(plan.run_id, rows).items()
    }


def _past(told: past.PastReport) -> Record:
    """Return the changes of numbers since earlier runs, in words, those that concern most subjects first."""
    changes = sorted(told.changes, key=lambda change: (bool(change.subject), PAST_ORDER.index(change.kind), change.key, change.metric))
    kinds: dict[str, list[str]] = {}
    for change in changes:
        kinds.setdefault(change.kind if change.subject else "", []).append(change.sentence)
    said = []
    for sentences in kinds.values():
        more = len(sentences) - PAST_SAID
        said += sentences[:PAST_SAID] + ([f"and {more} more like {'this' if more == 1 else 'these'}"] if more > 0 else [])
    worse = sum(change.regression for change in changes)
    held = f"{told.compared} numbers held against their own past, {worse or 'none'} of them worse"
    said.append(held + (f"; {told.short} have fewer than 8 runs before, too few to tell a change" if told.short else ""))
    return {
        "compared": told.compared, "short": told.short, "regressions": worse, "said": said,
        "changes": [change._asdict() for change in changes],
    }  # fmt: skip


def _nodes(judgement: Judgement, stages: list[str]) -> list[Record]:
    """Every node (and every pair or group, which is nobody's alone) with its verdict by stage, the worst first."""
    of: dict[str, list[Verdict]] = {}
    for v in judgement.verdicts:
        if v.verdict in ABNORMAL:
            of.setdefault(node_of(v.subject.id), []).append(v)
    return [
        {
            **node,
            "stages": {stage: node["stages"].get(stage, "") for stage in stages},
            "findings": _findings(of.get(node["name"], []), judgement.deciding),
        }
        for node in judgement.nodes
    ]


def _without_checks(plan: Plan, nodes: list[Record]) -> list[str]:
    """Targets of the run for which it planned no check at all, as those that a sample left out."""
    shown = {n["name"] for n in nodes} | {n["name"].split("/", 1)[0] for n in nodes}
    return sorted(set(plan.targets) - shown)


def _bearer(cause: Cause) -> tuple[str, str]:
    return subjects.bearer(cause["kind"], cause["subject"])


def _causes(judgement: Judgement) -> list[Record]:
    """Return the causes of the verdicts that are no PASS: one sentence, the findings of its own checks, and what is bad because of it."""
    named = {key for cause in judgement.causes for key in (*cause["own"], *cause["explains"])}
    of = {key: v for v in (judgement.verdicts if named else ()) if (key := v.key) in named}
    return [
        {
            **{name: cause[name] for name in ("subject", "kind", "verdict", "convicted", "whole", "said")},
            "name": subjects.spoken(cause["subject"]),
            "simulated": any(of[key].simulated for key in (*cause["own"], *cause["explains"])),
            "findings": _findings([of[key] for key in cause["own"]], judgement.deciding),
            "explains": [
                {**{name: getattr(of[key], name) for name in ("stage", "check", "variant", "verdict")}, "subject": key.subject}
                for key in cause["explains"]
            ],
        }
        for cause in judgement.causes
    ]


def _findings(verdicts: list[Verdict], judged: t.Mapping[Key, Measurement]) -> list[Record]:
    """Return the findings about a subject, worst first. A node repeats the reason of its GPU, and every check that the node was lost:
    each is said once, with the other checks that say it."""
    found: dict[str, Record] = {}
    for v in verdicts:
        if v.verdict not in ABNORMAL:
            continue
        m = judged.get(v.key)
        one: Record = {"stage": v.stage, "check": v.check, "variant": v.variant, "verdict": v.verdict, "reason": v.reason}
        one["subject"] = v.subject.id
        one["evidence"] = _texts(v.findings)
        one["raw"] = m.raw if m else None
        one["command"] = shlex.join(m.command)[:500] if m else ""
        before = found.get(v.reason)
        one["also"] = [*before["also"]] if before else []
        if before:
            kept, other = (before, one) if before["raw"] or not one["raw"] else (one, before)  # the tool's output says more
            words = " ".join(filter(None, (other["stage"], other["check"], other["variant"])))
            mine = " ".join(filter(None, (kept["stage"], kept["check"], kept["variant"])))
            kept["also"] = [*one["also"], *([words] if words not in (mine, *one["also"]) else [])]
            one = kept
        found[v.reason] = one
    return sorted(found.values(), key=lambda f: WORST_FIRST.index(f["verdict"]))


def _texts(items: t.Any) -> list[str]:
    """Findings and changes in words, whatever form a stage gave them."""
    items = items if isinstance(items, list) else [items]
    return [str(i.get("text") or i.get("code") or i) if isinstance(i, dict) else str(i) for i in items]


def _checks(verdicts: list[Verdict], judged: t.Mapping[Key, Measurement]) -> dict[str, list[Record]]:
    """The checks of each stage with their rows, the worst first."""
    found: dict[tuple[str, str, str], list[Record]] = collections.defaultdict(list)
    for v in verdicts:
        key = v.key
        found[key[:3]].append(_row(v, judged.get(key)))
    of: dict[str, list[Record]] = collections.defaultdict(list)
    for (stage, check, variant), rows in sorted(found.items()):
        rows.sort(key=lambda row: (_RANK[row["verdict"]], row["subject"]))
        counts = dict(collections.Counter(row["verdict"] for row in rows))
        of[stage].append({"check": check, "variant": variant, "rows": rows, "counts": counts, "summary": _summary(rows)})
    return of


_line = compact.form("Row", (
    "subject", "node", "part", "kind", "verdict", "value", "unit", "floor", "layer", "metric", "reason", "simulated", "attempt", "other",
    "ungated", "duration_s", "evidence", "unreadable", "sweep",
))  # fmt: skip
_RANK = {word: rank for rank, word in enumerate(WORST_FIRST)}
_OF_VERDICT = operator.attrgetter("verdict", "value", "unit", "floor", "layer", "metric", "reason", "simulated", "attempt")
# What most rows have; nobody changes what a model holds.
_NO_METRICS: Record = {}
_NO_TEXTS: list[str] = []


def _row(v: Verdict, m: Measurement | None) -> Record:
    subject, kind = v.subject.id, v.subject.kind
    node = node_of(subject)
    metrics: t.Mapping[str, Metric] = m.metrics if m else _NO_METRICS
    evidence = m.evidence if m else _NO_METRICS
    changes, unreadable = evidence.get("changes"), evidence.get("unreadable")
    judged = v.metric
    other = ungated = _NO_METRICS
    if len(metrics) > (judged in metrics):
        other = {name: metric.as_dict() for name, metric in metrics.items() if name != judged}
        if not metrics.keys().isdisjoint(UNGATED):
            ungated = {n: other.pop(n) for n in UNGATED if n in other}
    return _line(
        subject, node, subject[len(node) + 1 :], kind, *_OF_VERDICT(v), other, ungated,
        m.duration_s if m else None,
        _texts(changes) if changes else _NO_TEXTS,
        _texts(unreadable) if unreadable else _NO_TEXTS,
        _sweep(m) if m and kind == "group" else None,
    )  # fmt: skip


def _sweep(m: Measurement) -> Record | None:
    """Return the sweep of a group of nodes: {"world_size", "rows": [SWEEP]}; None if the measurement has none."""
    rows = [
        {name: row[name] for name in SWEEP}
        for row in m.series
        if all(isinstance(row.get(name), (int, float)) for name in SWEEP)
    ]
    world = m.context.get("world_size")
    return {"world_size": world, "rows": rows} if rows and isinstance(world, int) else None


def _summary(rows: list[Record]) -> Record | None:
    """Least, median and most of the values of one check, where they have one unit."""
    values = [r["value"] for r in rows if r["value"] is not None]
    units = {r["unit"] for r in rows if r["value"] is not None}
    if not values or len(units) > 1:
        return None
    return {"count": len(values), "min": min(values), "median": statistics.median(values), "max": max(values), "unit": units.pop()}


def _warnings(judgement: Judgement) -> list[Record]:
    """Return the warnings that a signature accepts: one line for each cause of a WARN, such as a port whose counters rose."""
    of = {v.key: v for v in judgement.verdicts if v.verdict == "WARN"}
    found: dict[str, Record] = {}
    for cause in judgement.causes:
        mine = [of[key] for key in (*cause["own"], *cause["explains"]) if key in of]
        whole = cause["whole"] and cause["verdict"] == "WARN"
        texts = {cause["said"]: mine} if whole and mine else {f"{v.stage} {v.check}: {v.reason}": [v] for v in mine}
        for text, behind in texts.items():
            simulated = any(v.simulated for v in behind)
            found.setdefault(text, {"text": text, "subject": behind[0].subject.id, "simulated": simulated})
    return list(found.values())


def _waiver(v: Verdict) -> Record:
    return {
        "subject": v.subject.id,
        **{name: getattr(v, name) for name in ("stage", "check", "variant", "reason", "ticket", "expires", "of", "simulated")},
    }


def _drift(found: dict[str, list[Record]], simulated: set[str]) -> list[Record]:
    """Each deviating fact once, with the nodes on either side; what fails first, then what concerns most nodes."""
    merged: dict[tuple[str, str, str], Record] = {}
    for target in sorted(found):
        for item in found[target]:
            key = (item["item"], item["found"], item["expected"])
            one = merged.setdefault(key, {**item, "differing": set(), "simulated": False})
            one["differing"] |= {*item["differing"]}
            one["simulated"] = one["simulated"] or bool(simulated & {target, *item["differing"]})
    rows: list[Record] = [{**one, "differing": sorted(one["differing"])} for one in merged.values()]
    return sorted(rows, key=lambda r: (r["severity"] != "fail", r["item"], -len(r["differing"]), r["found"]))


def _expectations(verdicts: list[Verdict]) -> list[Record]:
    of = operator.attrgetter(*EXPECTATION)
    found = {of(v): v for v in verdicts if v.expectation}
    rows = [dict(zip(EXPECTATION, values, strict=True)) for values in found]
    return sorted(rows, key=lambda e: tuple(str(e[k]) for k in EXPECTATION))


def _ran(judged: t.Mapping[Key, Measurement]) -> tuple[list[Record], list[Record]]:
    """Each distinct command line, and each version of the tools of each stage, once, with how many nodes had it."""
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
    found: list[Record] = [{"stage": stage, "command": text, "nodes": len(on), "example": min(on)} for (stage, text), on in ran.items()]
    found.sort(key=lambda e: (e["stage"], -e["nodes"], e["command"]))
    of_tools = [{"name": stage, "version": version, "nodes": len(on)} for (stage, version), on in sorted(versions.items())]
    return found[:COMMANDS], of_tools


def _own_versions(plan: Plan) -> t.Iterator[Record]:
    own = {"gpufleet.acceptance": "collection_version", "ansible-core": "ansible_version", "Python": "python_version"}
    for name, field in own.items():
        yield {"name": name, "version": plan[field], "nodes": None}
