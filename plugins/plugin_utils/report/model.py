# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The model of a report: everything the formats show, computed once. It shows verdicts; it never makes one.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.observation import utc
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.run import write_atomically

Model = t.Dict[str, t.Any]
EXPECTATION_COLUMNS = ("expectation", "stage", "check", "metric", "expected", "unit", "layer", "source", "date", "confidence")
ORDER = ("FAIL", "UNKNOWN", "WARN", "KNOWN_FAIL", "SKIPPED", "PASS")


def build(plan: dict[str, t.Any], measurements: list[dict[str, t.Any]], judgement: t.Any) -> Model:
    """One model from the plan, the measurements of a run and what the verdict engine said of them."""
    latest: dict[tuple[str, str, str, str], dict[str, t.Any]] = {}
    for m in measurements:
        key = (m["stage"], m["check"], m["variant"], m["subject"]["id"])
        if key not in latest or m["attempt"] >= latest[key]["attempt"]:
            latest[key] = m
    verdicts = judgement.verdicts
    stages = [s["name"] for s in plan["stages"]]
    nodes = _nodes(plan, verdicts, stages)
    return {
        "schema": "report/v1",
        "run_id": plan["run_id"],
        "created_at": utc(),
        "planned_at": plan["created_at"],
        "accepted": judgement.accepted,
        "why": judgement.why,
        "partial": bool(plan["partial"]),
        "left_out": plan["left_out"],
        "skipped_stages": plan["skipped_stages"],
        "simulated": any(v.get("simulated") for v in verdicts) or any(m["simulated"] for m in measurements),
        "counts": judgement.counts,
        "coverage": judgement.coverage,
        "notes": judgement.notes,
        "nodes": nodes,
        "stages": [_stage(name, verdicts, latest) for name in stages],
        "warnings": [v for v in verdicts if v["verdict"] == "WARN" and v["subject"]["kind"] == "node"],
        "waivers": [v for v in verdicts if v["verdict"] == "KNOWN_FAIL"],
        "drift": judgement.drift,
        "sample": plan["sample"],
        "expectations": _expectations(verdicts),
        "commands": _commands(latest),
        "versions": {
            "gpufleet.acceptance": plan["collection_version"], "ansible-core": plan["ansible_version"],
            "Python": plan["python_version"],
            **{f"{m['stage']} tool": m["tool_version"] for m in latest.values() if m["tool_version"]},
        },
        "raw": sorted({(m["raw"], m["raw_sha256"]) for m in latest.values() if m["raw"]}),
        "verdicts": verdicts,
    }  # fmt: skip


def worst(names: t.Iterable[str]) -> str:
    """The worst of some verdicts, as people read them."""
    found = set(names)
    return next((name for name in ORDER if name in found), "UNKNOWN")


def node_of(verdict: dict[str, t.Any]) -> str:
    """The node a verdict belongs to, for its GPUs and ports too."""
    subject = str(verdict["subject"]["id"])
    for mark in ("/gpu/", "/nic/"):
        subject = subject.split(mark, 1)[0]
    return subject


def _nodes(plan: dict[str, t.Any], verdicts: list[dict[str, t.Any]], stages: list[str]) -> list[dict[str, t.Any]]:
    of: dict[str, dict[str, list[dict[str, t.Any]]]] = {name: {} for name in plan["targets"]}
    for v in verdicts:
        of.setdefault(node_of(v), {}).setdefault(v["stage"], []).append(v)
    nodes = []
    for name, by_stage in of.items():
        every = [v for found in by_stage.values() for v in found]
        nodes.append(
            {
                "name": name,
                "verdict": worst(v["verdict"] for v in every) if every else "SKIPPED",
                "stages": {s: worst(v["verdict"] for v in by_stage[s]) if s in by_stage else "" for s in stages},
                "simulated": any(v.get("simulated") for v in every),
                "findings": _findings(every),
            }
        )
    return sorted(nodes, key=lambda n: (ORDER.index(n["verdict"]), n["name"]))


def _findings(verdicts: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """What speaks against a node, worst first; a node repeats the reason of its GPU, which is said once."""
    found: dict[tuple[str, str], dict[str, t.Any]] = {}
    for v in verdicts:
        if v["verdict"] not in ("PASS", "SKIPPED"):
            one = {k: v[k] for k in ("stage", "check", "verdict", "reason")}
            found.setdefault((v["stage"], v["reason"]), {**one, "subject": v["subject"]["id"]})
    return sorted(found.values(), key=lambda f: ORDER.index(f["verdict"]))


def _stage(
    name: str, verdicts: list[dict[str, t.Any]], latest: dict[tuple[str, str, str, str], dict[str, t.Any]]
) -> dict[str, t.Any]:
    checks: dict[tuple[str, str], dict[str, t.Any]] = {}
    for v in verdicts:
        if v["stage"] != name:
            continue
        group = checks.setdefault((v["check"], v["variant"]), {"check": v["check"], "variant": v["variant"], "rows": []})
        m = latest.get((name, v["check"], v["variant"], v["subject"]["id"]))
        metrics = m["metrics"] if m else {}
        group["rows"].append(
            {
                "subject": v["subject"]["id"],
                "kind": v["subject"]["kind"],
                "verdict": v["verdict"],
                "value": v["value"],
                "unit": v["unit"],
                "floor": v["floor"],
                "layer": v["layer"],
                "metric": v.get("metric"),
                "reason": v["reason"],
                "simulated": bool(v.get("simulated")),
                # Shown, never gated on: the mean over all sizes says nothing about the plateau.
                "ungated": {n: metrics[n] for n in ("avg_busbw", "out_of_bounds") if n in metrics},
                "duration_s": m["duration_s"] if m else None,
                "evidence": (m["evidence"].get("changes") or []) if m else [],
                "unreadable": (m["evidence"].get("unreadable") or []) if m else [],
            }
        )
    for group in checks.values():
        group["rows"].sort(key=lambda r: (ORDER.index(r["verdict"]), r["subject"]))
    return {"name": name, "checks": [checks[key] for key in sorted(checks)]}


def _expectations(verdicts: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    found: dict[tuple[str, str], dict[str, t.Any]] = {}
    for v in verdicts:
        if v.get("expectation"):
            found[v["expectation"], v["layer"]] = {k: v.get(k) for k in EXPECTATION_COLUMNS}
    return [found[key] for key in sorted(found, key=str)]


def _commands(latest: dict[tuple[str, str, str, str], dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Each distinct command line once, with how many nodes ran it."""
    found: dict[str, dict[str, t.Any]] = {}
    for m in latest.values():
        if m["command"] and m["subject"]["kind"] == "node":
            text = " ".join(m["command"])[:2000]
            entry = found.setdefault(text, {"command": text, "stage": m["stage"], "nodes": 0, "example": m["target"]})
            entry["nodes"] += 1
    return sorted(found.values(), key=lambda e: (e["stage"], -e["nodes"]))[:200]


def write(out: pathlib.Path, model: Model) -> list[pathlib.Path]:
    """All formats into `out`; returns their paths, the page for people first."""
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, page

    made = {
        "report.html": page.render(model),
        "report.md": formats.markdown(model),
        "report.json": formats.as_json(model),
        "report.junit.xml": formats.junit(model),
        "report.prom": formats.prometheus(model),
    }
    for name, text in made.items():
        write_atomically(out / name, text)
    return [out / name for name in made]
