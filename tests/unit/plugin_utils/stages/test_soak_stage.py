# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of the stage soak: its criteria, its comparison of GPUs, and its part of the report."""

from __future__ import annotations

import re
import statistics
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlanItem, Subject, measurement_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.soak import STAGE

CRITERIA = {
    "jitter_percent": 3, "temperature_spread": 8, "temperature_slots": 16, "temperature_fleet": 10, "throttled_percent": 0,
    "power_percent": 90, "errors": 0, "reboots": 0,
}  # fmt: skip
UNITS = {
    "jitter": "percent", "spread": "C", "temperature": "C", "highest": "C", "most_above": "C", "most_below": "C", "throttled": "percent",
    "share": "percent", "clock_share": "percent", "power": "W", "tflops": "TFLOPS",
}  # fmt: skip


def measured(check: str, node: str = "n1", part: str = "", context: t.Any = None, evidence: t.Any = None, **metrics: float) -> t.Any:
    subject = {"kind": "gpu" if part else "node", "id": f"{node}/gpu/{part}" if part else node, "members": []}
    record = {
        "schema": "measurement/v1", "run_id": "20261125T160000Z-abcdef", "plane": "ssh", "stage": "soak", "check": check,
        "variant": "hours=72", "target": node, "attempt": 1, "subject": subject, "outcome": "measured", "reason_code": None, "reason": None,
        "simulated": True, "metrics": {name: {"value": value, "unit": UNITS[name]} for name, value in metrics.items()}, "series": [],
        "context": {"criteria": CRITERIA, "gpu": "NVIDIA H200", "gpus": 8, "gaps": [], **(context or {})}, "evidence": evidence or {},
        "started_at": "2026-11-25T16:00:00Z", "duration_s": 0.0, "tool_version": None, "command": [], "raw": None, "raw_sha256": None,
    }  # fmt: skip
    return measurement_of(record)


def opinions(*records: t.Any) -> list[tuple[str, str, str | None]]:
    """Return (subject, verdict, code) of the opinions that are not PASS."""
    found = STAGE.opinions({m.key: m for m in records}, list(records), lambda _node, _target: None, [])  # type: ignore[arg-type, return-value]
    return [(key.subject, one.verdict, one.reason_code) for key, one in found if one.verdict != "PASS"]  # type: ignore[misc, union-attr]


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (measured("steadiness", jitter=2.9), None),
        (measured("steadiness", jitter=3.1), "unsteady"),
        (measured("cooling", spread=8.0, highest=80), None),
        (measured("cooling", spread=8.1, highest=80), "temperature"),
        (measured("power", throttled=0, share=99, clock_share=70), None),
        (measured("power", throttled=0, share=60, clock_share=99), None),
        (measured("power", throttled=0, share=60, clock_share=70), "power_unused"),
        (measured("power", throttled=0.1, share=99, clock_share=70), "throttled"),
        (measured("load"), None),
        (measured("load", context={"gaps": [{"at_h": 2, "seconds": 90, "rebooted": False}]}), None),
        (measured("load", context={"gaps": [{"at_h": 2, "seconds": 90, "rebooted": True}]}), "rebooted"),
        (measured("load", evidence={"changes": [{"code": "ecc_corrected", "text": "it rose", "grown": 1}]}), "errors_counted"),
        (measured("load", evidence={"changes": [{"code": "throttle_thermal", "text": "it was hot", "grown": 1}]}), None),
    ],
)
def test_numbers_are_held_to_the_criteria_that_travel_with_them(record: t.Any, code: str | None) -> None:
    assert opinions(record) == ([("n1", "FAIL", code)] if code else [])


@pytest.mark.parametrize("record", [
    measured("steadiness", context={"criteria": None}, jitter=1.0), measured("power", throttled=0, share=99),
    measured("cooling", context={"criteria": {"temperature_spread": "8"}}, spread=1.0), measured("load", context={"gaps": None}),
])  # fmt: skip
def test_a_criterion_or_a_number_that_is_missing_is_unknown(record: t.Any) -> None:
    assert opinions(record) == [("n1", "UNKNOWN", "no_number")]


def test_a_gpu_that_is_hotter_than_those_of_six_nodes_is_a_warning() -> None:
    many = [measured("cooling", f"n{n}", "A", temperature=60 + n, highest=70) for n in range(6)]
    hot = measured("cooling", "hot", "A", temperature=76, highest=80)
    assert opinions(*many, hot) == [("hot/gpu/A", "WARN", "temperature")]
    assert opinions(*many[:4], hot) == []


def cooled(node: str, temperatures: list[float], **changed: t.Any) -> list[t.Any]:
    """The cooling of a node whose GPUs have these temperatures all the time."""
    median = statistics.median(temperatures)
    records = [measured("cooling", node, context=changed, spread=max(temperatures) - min(temperatures), highest=90)]
    for slot, value in enumerate(temperatures):
        ends = {"most_above": value - median, "most_below": value - median}
        records.append(measured("cooling", node, str(slot), {"slot": slot, **changed}, temperature=value, highest=90, **ends))
    return records


FRONT, BACK = [60.0, 61.0, 60.0, 61.0], [70.0, 70.0, 71.0, 70.0]


def test_a_slot_that_is_warm_in_all_nodes_is_no_finding_and_a_single_hot_gpu_is() -> None:
    fleet = [record for n in range(5) for record in cooled(f"n{n}", FRONT + BACK)]
    assert {one[1] for one in opinions(*fleet)} == {"FAIL"}, "of five nodes nobody knows what is usual"
    assert opinions(*fleet, *cooled("n5", FRONT + BACK)) == []
    for slot, degrees in ((0, 9), (2, 9), (7, 9), (5, -9)):
        hot = FRONT + BACK
        hot[slot] += degrees
        assert opinions(*fleet, *cooled("hot", hot)) == [("hot", "FAIL", "temperature")], (slot, degrees)


def reasons(*records: t.Any) -> list[str]:
    found = STAGE.opinions({m.key: m for m in records}, list(records), lambda _node, _target: None, [])  # type: ignore[arg-type, return-value]
    return [one.reason for _key, one in found if one.verdict == "FAIL"]  # type: ignore[misc, union-attr]


def test_the_gpu_that_differs_is_named_whether_it_is_hotter_or_cooler_and_no_good_one() -> None:
    fleet = [record for n in range(6) for record in cooled(f"n{n}", FRONT + BACK)]
    for slot, degrees in ((2, 9), (5, -9)):
        hot = FRONT + BACK
        hot[slot] += degrees
        (said,) = reasons(*fleet, *cooled("odd", hot))
        assert f"GPU {slot} was {degrees:+d}.0 C off the same slots of other nodes, the others +0.0 C; 9.0 C apart" in said, said
        assert re.findall(r"GPU \d", said) == [f"GPU {slot}"], said
    # Of few nodes nobody knows what is usual: the one that differs from its own node is named.
    for degrees in (9, -9):
        (said,) = reasons(*cooled("lone", [60.0, 60.0 + degrees, 60.0, 60.0]))
        assert re.findall(r"GPU \d", said) == ["GPU 1"] and f"GPU 1 was {degrees:+d}.0 C off the median of its node" in said, said
    # A fan of half a node: by its own median four GPUs are as much too cool as the others are too hot.
    fan = [value + 10 * (slot > 3) for slot, value in enumerate(FRONT * 2)]
    (said,) = reasons(*cooled("n0", FRONT * 2), *cooled("n1", FRONT * 2), *cooled("fan", fan))
    assert "GPU 4, GPU 5, GPU 6 and GPU 7 were +10.0 C off the same slots of other nodes, the others +0.0 C" in said, said
    # What was hot for a while only is seen in the ends, not in the means.
    late = cooled("late", FRONT + BACK)
    late[3].metrics["most_above"].value += 9
    (said,) = reasons(*fleet, *late)
    assert re.findall(r"GPU \d", said) == ["GPU 2"] and "off what is usual in its slot" in said, said
    (said,) = reasons(*cooled("two", [60.0, 70.0]))
    assert "GPU 0 was -5.0 C and GPU 1 was +5.0 C" in said and "neither stands out" in said, said


def test_slots_excuse_no_more_than_their_limit_and_only_on_the_same_product() -> None:
    wide = [record for n in range(8) for record in cooled(f"n{n}", FRONT + [value + 8 for value in BACK])]
    assert [one[1:] for one in opinions(*wide)] == [("FAIL", "temperature")] * 8
    mixed = [record for n in range(8) for record in cooled(f"n{n}", FRONT + BACK, machine=f"product {n % 2}")]
    assert [one[1:] for one in opinions(*mixed)] == [("FAIL", "temperature")] * 8


def test_a_gpu_that_was_hot_for_a_while_only_is_found() -> None:
    fleet = [record for n in range(6) for record in cooled(f"n{n}", FRONT + BACK)]
    late = cooled("late", FRONT + BACK)
    late[3].metrics["most_above"].value += 9
    assert opinions(*fleet, *late) == [("late", "FAIL", "temperature")]


def test_a_soak_without_the_ends_of_its_gpus_is_held_to_its_spread() -> None:
    fleet = [record for n in range(6) for record in cooled(f"n{n}", FRONT + BACK)]
    del fleet[3].metrics["most_above"]
    assert opinions(*fleet) == [("n0", "FAIL", "temperature")]


def test_gpus_of_a_model_compute_the_same_bits() -> None:
    many = [measured("load", f"n{n}", "A", {"fingerprint": "0x1"}, tflops=600) for n in range(3)]
    odd = measured("load", "odd", "A", {"fingerprint": "0x2"}, tflops=600)
    assert opinions(*many, odd) == [("odd/gpu/A", "FAIL", "wrong_results")]
    assert {one[1:] for one in opinions(many[0], odd)} == {("UNKNOWN", "unresolved")}


def test_the_report_has_the_worst_nodes_first_and_their_courses() -> None:
    rows: list[t.Any] = []
    for number, verdict in enumerate(["PASS", "FAIL", "PASS", "PASS", "UNKNOWN"]):
        node = f"n{number}"
        curves = {"gpu": 0, "step_s": 1800, "temperature": [50.0, None, 61.5], "power": [690, 700, None], "tflops": [400.0, 401.0, 402.0]}
        gaps = [{"at_h": 1.0, "seconds": 9, "rebooted": True}]
        load = measured("load", node, context={"loaded_h": 72.0, "gaps": gaps, "curves": [curves, {"gpu": 1}, {"step_s": "x"}]})
        cooling = measured("cooling", node, spread=float(number), highest=70)
        rows += [(type("V", (), {"verdict": verdict})(), m) for m in (load, cooling)]
    (section,) = STAGE.sections(rows)
    assert [row[0] for row in section["rows"]] == ["n1", "n4", "n3", "n2", "n0"]
    assert section["rows"][0] == ["n1", "72.00", "1", "", "70", "1.0", "", ""]
    charts = section["charts"]
    assert [(chart["of"], chart["title"]) for chart in charts[:3]] == [("n1", name) for name in ("Temperature", "Power", "Products")]
    assert charts[0]["curves"] == [{"name": "GPU 0", "x": [0.25, 1.25], "y": [50.0, 61.5]}] and charts[0]["moments"] == [[1.0, "rebooted"]]
    assert len(charts) == 9 and STAGE.sections([]) == []


def test_the_checks_of_a_node_are_measured_together() -> None:
    items = [PlanItem("soak", check, "hours=72", Subject("node", node, []), node) for node in ("n1", "n2") for check in ("load", "power")]
    assert STAGE.complete(items, {items[0].key}) == {items[0].key, items[1].key}
    assert STAGE.complete(items, {items[0].key._replace(stage="other")}) == set()


def test_a_deadline_before_the_end_of_the_load_is_refused() -> None:
    assert STAGE.problem({"soak_hours": 72.0, "soak_timeout": 300000.0}) is None
    assert STAGE.problem({"soak_hours": 72.0, "soak_timeout": 3600.0}) == (
        "soak_timeout: found 3600, expected more than 259200: soak_hours, and time to begin and to end"
    )
