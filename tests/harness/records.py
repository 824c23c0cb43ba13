# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of plain data as tests write them, made into the classes that the code reads; their types are not checked."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import verdict as engine
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    HostSettings,
    JudgingInputs,
    Measurement,
    Metric,
    Plan,
    PlanItem,
    Subject,
    Verdict,
)

NODE: dict[str, t.Any] = {"kind": "node", "id": "n1", "members": []}
USUAL: dict[str, t.Any] = {
    "schema": "measurement/v1", "run_id": "20260101T000000Z-0a1b2c", "stage": "", "check": "", "variant": "", "subject": NODE,
    "plane": "ssh", "target": "n1", "attempt": 1, "outcome": "measured", "reason_code": None, "reason": None, "metrics": {},
    "series": [], "context": {}, "evidence": {}, "command": [], "tool_version": None,
    "started_at": "2026-01-01T00:00:00Z", "duration_s": 1.0, "raw": None, "raw_sha256": None, "simulated": False,
}  # fmt: skip


def measurement(fields: t.Mapping[str, t.Any]) -> Measurement:
    """Return a measurement with these fields; the others are those of a check that was measured."""
    known = {**USUAL, **{name: value for name, value in fields.items() if name in USUAL}}
    metrics = {name: Metric(one["value"], one["unit"]) for name, one in known["metrics"].items()}
    return Measurement(**{**known, "subject": Subject(**{**NODE, **known["subject"]}), "metrics": metrics})


def make_plan(fields: t.Mapping[str, t.Any]) -> Plan:
    """Return a plan with these fields; the others are those of an empty plan."""
    usual = {"schema": "plan/v1", "run_id": USUAL["run_id"], "created_at": "2026-01-01T00:00:00Z", "stages": [], "targets": {}, "items": []}
    known: t.Any = {**usual, **fields}
    known["items"] = list(map(make_plan_item, known["items"]))
    if isinstance(known.get("judging"), dict):
        known["judging"] = JudgingInputs(**known["judging"])
    if isinstance(known.get("settings"), dict):
        known["settings"] = HostSettings(**known["settings"])
    return Plan(**known)


def make_plan_item(fields: t.Mapping[str, t.Any] | PlanItem) -> PlanItem:
    """Return an item of a plan with these fields."""
    if isinstance(fields, PlanItem):
        return fields
    known = {"stage": "", "check": "", "variant": "", "subject": NODE, "target": "n1"} | dict(fields)
    known.pop("attempt", None)
    return PlanItem(**{**known, "subject": Subject(**{**NODE, **known["subject"]})})


def judge(
    plan: Plan, measurements: t.Iterable[t.Any], expected: t.Callable[[str, str], t.Any], **options: t.Any
) -> engine.Judgement:
    """Judge a run; `options` are fields of JudgingInputs, and arguments of verdict.judge."""
    given = {name: options.pop(name) for name in JudgingInputs.__struct_fields__ if name in options}
    inputs = JudgingInputs(**{name: value for name, value in given.items() if value is not None})
    return engine.judge(plan, measurements, expected, inputs, **options)


def verdict(fields: t.Mapping[str, t.Any]) -> Verdict:
    """Return a verdict with these fields."""
    return Verdict(**{**fields, "subject": Subject(**fields["subject"])})
