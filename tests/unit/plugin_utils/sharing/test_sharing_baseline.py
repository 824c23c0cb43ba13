# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What passed once is what later runs are held to; it does not creep, and what cannot be compared is not."""

from __future__ import annotations

import json
import pathlib
import sys
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import archive, baseline, cases, conclusion, engine, parameters
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import system as systems
from harness.records import measurement

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from memory import SPEED, Memory

SYSTEM = systems.load("nvshare")
CASES = {case.id: case for case in cases.shipped(cases.STRICT)}
CONTEXT = {"system": "nvshare", "gpus": ["Tesla-T4"], "image": "torch:1"}
VARIANT = "profile=strict scale=1"


def ran(name: str, results: pathlib.Path, run_id: str, speed: float = 1.0, wanted: str = "latest", **changes: t.Any) -> dict[str, t.Any]:
    """A run of one case into a folder of results, on GPUs of this speed; the case as the journal has it, with its verdict."""
    case, numbers = CASES[name], parameters.settle("c1", changes.pop("scale", 1), {})
    context = {**CONTEXT, **changes}
    entry = baseline.load(wanted, results, run_id).get(f"lab {name}")

    def against(measured: t.Any, simulated: bool) -> t.Any:
        mine = baseline.comparison_key(context, VARIANT, simulated)
        return baseline.expressions(case, measured, entry, mine, numbers.scale, numbers.numbers)

    of = Memory(SYSTEM)
    of.share = lambda _pod: speed  # type: ignore[method-assign, assignment]
    found = conclusion.conclude(case, engine.CaseRun(case, SYSTEM, numbers, of, lambda _name, _text: None).run(), against)
    subject = {"kind": "group", "id": "gpu_sharing/lab", "members": ["lab/a"]}
    record = {
        **conclusion.observed(found, case, subject, context, "2026-02-17T10:00:00Z", 1.0, VARIANT), "target": "lab", "attempt": 1,
    }  # fmt: skip
    row = types.SimpleNamespace(verdict=found.status, reason=found.cause), measurement(record)
    file = results / run_id / baseline.FILE
    file.parent.mkdir(parents=True)
    file.write_text(archive.files(run_id, [row], [])["baseline.json"])
    return {**record["context"]["case"], "runtime": found.metrics["runtime"][0]}


def test_a_run_is_held_to_what_passed_before(tmp_path: pathlib.Path) -> None:
    first = ran("PERF-001", tmp_path, "2026-1")
    assert first["status"] == "PASS" and first["runtime"] == pytest.approx(40000 / SPEED, abs=2) and "baseline" not in first
    same = ran("PERF-001", tmp_path, "2026-2")
    assert same["status"] == "PASS" and same["expressions"][-1]["said"].endswith("(99 s of run 2026-1, baseline_runtime_pct=8)")
    slower = ran("PERF-001", tmp_path, "2026-3", speed=0.85)
    assert slower["status"] == "FAIL" and slower["cause"].startswith("it has become worse than the baseline: runtime=11")
    assert slower["expressions"][-1]["gates"] == ["P1"] and slower["expressions"][-1]["holds"] is False
    # What failed is no yardstick, and the one before it is still there.
    assert ran("PERF-001", tmp_path, "2026-4", speed=0.85)["status"] == "FAIL"
    assert ran("PERF-001", tmp_path, "2026-5", speed=0.85, wanted="")["status"] == "PASS"
    assert ran("PERF-001", tmp_path, "2026-6", speed=0.85)["status"] == "PASS", "somebody has begun anew"


def test_a_slow_decline_over_several_runs_fails(tmp_path: pathlib.Path) -> None:
    """Each run 5 % slower than the one before: the second that is so is 10 % slower than the first."""
    statuses = [ran("PERF-001", tmp_path, f"2026-{number}", speed=0.95**number)["status"] for number in range(3)]
    assert statuses == ["PASS", "PASS", "FAIL"]


@pytest.mark.parametrize("changes", [{"gpus": ["NVIDIA-A800"]}, {"image": "torch:2"}, {"system": "other"}, {"scale": 0.5}])
def test_what_is_not_alike_is_not_compared(tmp_path: pathlib.Path, changes: dict[str, t.Any]) -> None:
    ran("PERF-001", tmp_path, "2026-1")
    assert "baseline" not in ran("PERF-001", tmp_path, "2026-2", speed=0.5, **changes)


def test_each_case_is_held_to_its_newest_run_before_this_one(tmp_path: pathlib.Path) -> None:
    for run_id, case, value in (("2026-1", "A", 1), ("2026-2", "B", 2), ("2026-3", "A", 3), ("2026-9", "A", 9)):
        file = tmp_path / run_id / baseline.FILE
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"cases": {case: {"metrics": {"runtime": {"value": value}}}}}))
    broken = tmp_path / "2026-4" / baseline.FILE
    broken.parent.mkdir(parents=True)
    broken.write_text("{")
    found = baseline.load("latest", tmp_path, "2026-5")
    assert {case: entry["metrics"]["runtime"]["value"] for case, entry in found.items()} == {"A": 3, "B": 2}
    assert baseline.load("", tmp_path, "2026-5") == {}
    with pytest.raises(RunError, match=r"gpu_sharing_baseline: .*2026-4"):
        baseline.load(str(broken), tmp_path, "2026-5")
    assert "expected" in str(baseline.problem(str(tmp_path / "nothing.json"))) and baseline.problem("latest") is None


def test_limits_name_parameters_and_gates_that_exist() -> None:
    known = parameters.settle("c2", 1, {}).numbers
    limited = {case.id: case for case in CASES.values() if case.limits}
    assert set(limited) == {"PERF-001", "PERF-004", "PERF-005", "PERF-006", "PERF-007", "MET-005"}
    for case in limited.values():
        assert {name for _better, name in case.limits.values()} <= set(known) and set(case.limits) <= set(case.metrics)
        assert baseline.GATE in case.gates
