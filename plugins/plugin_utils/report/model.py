# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PLACEHOLDER model until the report lands."""

from __future__ import annotations

import dataclasses
import json
import typing as t


def build(plan: dict[str, t.Any], measurements: list[dict[str, t.Any]], judgement: t.Any) -> dict[str, t.Any]:
    return {"schema": "report/v1", "run_id": plan["run_id"], "accepted": judgement.accepted, "why": judgement.why,
            "verdicts": judgement.verdicts, "coverage": judgement.coverage, "counts": judgement.counts, "notes": judgement.notes}


def write(out: t.Any, model: dict[str, t.Any]) -> list[t.Any]:
    (out / "report.json").write_text(json.dumps(model))
    return [out / "report.json"]
