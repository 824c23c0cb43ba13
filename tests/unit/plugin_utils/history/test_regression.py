# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What changed, and whose it is: small series of which one sees what they are, and properties that hold for any."""

from __future__ import annotations

import dataclasses
import math
import random
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import attribution, common
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.regression import changes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.series import (
    Attribution,
    ChangeKind,
    Facts,
    Point,
    SeriesChange,
    Today,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from rigs.simulated import runs as simulated

CHECK = "gemm bf16"
Values = t.Sequence[float | None]


def point(run: int, value: float | None) -> Point:
    return Point(f"run-{run:03d}", simulated.time_of(run), value)


def judged(series: t.Mapping[str, Values], facts: Facts | None = None, **of_today: t.Any) -> dict[str, SeriesChange]:
    """{subject: its change today}, of subjects NODE/gpu/N; the last of each series is today's. "" is the whole fleet."""
    today, past = [], {}
    for subject, values in series.items():
        places = (("gpu", subject), ("node", subject.split("/")[0]))
        given = {"places": places, "model": "H200", "unit": "TFLOPS", "label": CHECK, **of_today}
        today.append(Today(subject=subject, check=CHECK, point=point(len(values) - 1, values[-1]), **given))
        past[subject, CHECK] = [point(run, value) for run, value in enumerate(values[:-1])]
    return {change.subject: change for change in changes(today, past, facts)}


def healthy(subject: object, count: int, level: float = 676.0, noise: float = 0.003) -> list[float]:
    rng = random.Random(f"{subject}")
    return [level * (1 + rng.uniform(-1.7, 1.7) * noise) for _run in range(count)]


def fleet(nodes: int, count: int) -> dict[str, list[float]]:
    return {f"n{node}/gpu/{gpu}": healthy((node, gpu), count) for node in range(1, nodes + 1) for gpu in range(8)}


def since(values: Values, run: int, factor: float) -> list[float | None]:
    return [value if at < run or value is None else value * factor for at, value in enumerate(values)]


def test_a_step_of_one_gpu_in_one_sentence() -> None:
    series: dict[str, Values] = {**fleet(2, 16)}
    series["n1/gpu/3"] = [676.0, 675, 677, 676, 674, 678, 676, 675, 677, 676, 676, 675, 655, 654, 656, 655]
    found = judged(series)
    assert found["n1/gpu/3"].sentence == (
        "gemm bf16 655 TFLOPS, 3.1 % below its own median 676 of 12 runs since 2026-08-02; its 7 siblings unchanged"
    )
    change = found["n1/gpu/3"]
    assert (change.kind, change.attribution, change.runs) == (ChangeKind.STEP, Attribution("gpu", "n1/gpu/3"), 12)
    assert (change.reference, change.level, change.onset) == (676, 655, "run-012")
    assert {c.kind for subject, c in found.items() if subject != "n1/gpu/3"} == {ChangeKind.NOTHING}


@pytest.mark.parametrize("days", (3, 4, 10, 40))
def test_a_step_is_said_for_as_long_as_it_lasts(days: int) -> None:
    series: dict[str, Values] = {**fleet(2, 12 + days)}
    series["n1/gpu/3"] = since(series["n1/gpu/3"], 12, 0.95)
    change = judged(series)["n1/gpu/3"]
    assert change.kind == ChangeKind.STEP
    assert change.change == pytest.approx(-5, abs=0.5)


def test_less_than_eight_runs_are_not_guessed_about() -> None:
    series: dict[str, Values] = {"n1/gpu/0": [676, 675, 677, 600, 600, 600, 600]}
    change = judged(series)["n1/gpu/0"]
    assert change.kind == ChangeKind.SHORT
    assert not change.alarm
    assert change.sentence == "gemm bf16 600 TFLOPS: 6 runs before; too few to tell a change (8 are needed)"


def test_one_bad_run_is_a_hiccup_and_the_next_good_one_is_nothing() -> None:
    series: dict[str, Values] = {**fleet(1, 20)}
    series["n1/gpu/3"] = [*series["n1/gpu/3"][:-1], 650.0]
    change = judged(series)["n1/gpu/3"]
    assert change.kind == ChangeKind.HICCUP
    assert not change.alarm
    assert "one run alone" in change.sentence
    series["n1/gpu/3"] = [*series["n1/gpu/3"][:-2], 500.0, 676.0]
    assert judged(series)["n1/gpu/3"].kind == ChangeKind.NOTHING


@pytest.mark.parametrize("alone", (True, False))
def test_a_drop_far_outside_the_scatter_is_an_alarm_the_first_time(alone: bool) -> None:
    series: dict[str, Values] = {"n1/gpu/3": healthy("drop", 30)} if alone else {**fleet(2, 30)}
    series["n1/gpu/3"] = since(series["n1/gpu/3"], 29, 0.7)
    change = judged(series)["n1/gpu/3"]
    assert change.kind == ChangeKind.DROP and change.alarm
    assert "one run so far, but far outside the scatter: measure again" in change.sentence
    assert not [subject for subject, other in judged(series).items() if other.alarm and subject != "n1/gpu/3"]
    series["n1/gpu/3"] = [*healthy("drop", 29), 676.0 / 0.7]
    assert not judged(series)["n1/gpu/3"].alarm, "better is no drop"


def drivers(nodes: int, got: t.Collection[str], since_run: int, runs: int) -> Facts:
    names = [f"n{node}" for node in range(1, nodes + 1)]
    return {
        f"run-{run:03d}": {name: {"driver": "580" if run >= since_run and name in got else "570"} for name in names} for run in range(runs)
    }


@pytest.mark.parametrize(
    ("nodes", "hit", "factor", "days"), ((8, 5, 0.8, 3), (8, 5, 0.8, 1), (8, 4, 0.97, 4), (10, 6, 0.97, 4), (10, 7, 0.97, 5))
)
def test_a_part_of_the_fleet_is_not_everybody(nodes: int, hit: int, factor: float, days: int) -> None:
    got = {f"n{node}" for node in range(1, hit + 1)}
    series = {s: since(v, 20, factor) if s.split("/")[0] in got else v for s, v in fleet(nodes, 20 + days).items()}
    found = judged(series, drivers(nodes, got, 20, 20 + days))
    ill = {subject: change for subject, change in found.items() if change.alarm}
    assert set(ill) == {subject for subject in series if subject.split("/")[0] in got}
    assert {change.attribution.fact for change in ill.values()} == {"driver"}
    assert "" not in found


def test_a_row_of_nodes_that_wanders_with_its_air_is_no_part_that_stepped() -> None:
    rng, away = random.Random("air"), 0.0
    series = {s: list(v) for s, v in fleet(8, 60).items()}
    air = []
    for _run in range(60):
        away = 0.8 * away + 0.6 * rng.gauss(0, 0.01)
        air.append(away)
    rows = [list(enumerate(math.log(v) + (air[run] if s < "n4" else 0) for run, v in enumerate(of))) for s, of in series.items()]
    nodes = [s.split("/")[0] for s in series]
    assert not [days for days in range(12, 60) if common.splits([row[:days] for row in rows], nodes)]
    stepped = [[(run, v - 0.06 * (run >= 55 and s < "n4")) for run, v in row] for s, row in zip(series, rows, strict=True)]
    assert [split.at for split in common.splits(stepped, nodes)] == [55]


def wandering(rows: int, runs: int) -> dict[str, Values]:
    """Rows of five nodes, each of which goes its own way by 1 % (AR(1) of 0.8)."""
    series: dict[str, Values] = {}
    for row in range(rows):
        rng, away, air = random.Random(f"row {row}"), 0.0, []
        for _run in range(runs):
            away = 0.8 * away + 0.6 * rng.gauss(0, 0.01)
            air.append(1 + away)
        for node in range(5 * row, 5 * row + 5):
            for gpu in range(8):
                steady = healthy((node, gpu), runs)
                series[f"n{node}/gpu/{gpu}"] = [value * by for value, by in zip(steady, air, strict=True)]
    return series


def standing(subject: str) -> tuple[tuple[str, str], ...]:
    node = subject.split("/", maxsplit=1)[0]
    return (("gpu", subject), ("node", node), ("rack", f"row-{int(node[1:]) // 5}"))


def read_on(series: t.Mapping[str, Values], days: int, told: bool) -> dict[str, SeriesChange]:
    """Return the alarms of a day by subject; `told`: the inventory states the racks."""
    today, past = [], {}
    for subject, values in series.items():
        places = standing(subject) if told else standing(subject)[:2]
        today.append(Today(subject=subject, check=CHECK, point=point(days - 1, values[days - 1]), places=places, model="H200"))
        past[subject, CHECK] = [point(run, value) for run, value in enumerate(values[: days - 1])]
    return {change.subject: change for change in changes(today, past) if change.alarm and change.subject}


def test_what_a_wandering_rack_does_is_no_change_of_its_gpus() -> None:
    series = wandering(4, 40)
    untold, told = (sum(len(read_on(series, days, stated)) for days in range(20, 41, 5)) for stated in (False, True))
    assert untold >= 15 and told <= 3


def test_a_node_that_steps_in_a_wandering_rack_is_found() -> None:
    series = wandering(4, 40)
    hit = {subject for subject in series if subject.startswith("n7/")}
    found = read_on({s: since(values, 36, 0.95) if s in hit else values for s, values in series.items()}, 40, True)
    assert hit <= set(found) and len(found) <= len(hit) + 1
    assert {found[subject].attribution.name for subject in hit} == {"n7"}


def test_racks_that_do_not_wander_lose_nothing() -> None:
    rows = [list(enumerate(math.log(value) for value in values)) for values in fleet(6, 30).values()]
    assert common.wander(rows, [f"n{place // 8}" for place in range(48)]) == [{}] * 48
    stepped = [[(run, value - 0.05 * (run > 20 and place < 8)) for run, value in row] for place, row in enumerate(rows)]
    assert common.wander(stepped, [f"n{place // 8}" for place in range(48)]) == [{}] * 48, "one rack that stepped makes no fleet wander"
    assert common.wander(rows[:16], [f"n{place // 8}" for place in range(16)]) == [{}] * 16, "two racks do not say how racks wander"


def test_a_fault_is_not_masked_by_the_loss_of_the_other_half() -> None:
    got = {f"n{node}" for node in range(1, 5)}
    series = {s: since(v, 20, 0.97) if s.split("/")[0] in got else v for s, v in fleet(8, 25).items()}
    series["n7/gpu/2"] = since(series["n7/gpu/2"], 14, 0.96)
    change = judged(series, drivers(8, got, 20, 25))["n7/gpu/2"]
    assert change.kind == ChangeKind.STEP
    assert change.attribution == Attribution("gpu", "n7/gpu/2"), "it did not get the driver"


def test_a_lone_node_after_the_fleets_driver_has_the_driver_named() -> None:
    series = {s: since(v, 20, 0.95) for s, v in fleet(1, 24).items()}
    found = judged(series, drivers(1, {"n1"}, 20, 24))
    assert {change.attribution for change in found.values()} == {Attribution("node", "n1", "driver", "580", "run-020")}
    assert "so is most of node n1; likely cause: driver became 580" in found["n1/gpu/0"].sentence


@pytest.mark.parametrize("count", (2, 3, 4))
def test_few_subjects_that_all_step_are_not_blamed_each_alone(count: int) -> None:
    series = {f"n{node}/gpu/0": since(healthy(node, 24), 20, 0.95) for node in range(1, count + 1)}
    found = judged(series)
    assert {change.attribution.kind for change in found.values()} == {"everybody"}
    assert all(change.alarm for change in found.values())


@pytest.mark.parametrize("broken", (1.0, 0.9))
def test_a_repaired_node_at_its_old_level_keeps_its_reference(broken: float) -> None:
    facts: Facts = {f"run-{run:03d}": {"n1": {"repaired": "7"} if run >= 20 else {"driver": "570"}} for run in range(30)}
    series: dict[str, Values] = {**fleet(2, 30)}
    for gpu in range(8):
        series[f"n1/gpu/{gpu}"] = since(since(series[f"n1/gpu/{gpu}"], 14, broken), 20, 1 / broken)
    for runs in (21, 22, 23):
        found = judged({subject: values[:runs] for subject, values in series.items()}, facts)
        assert {change.kind for change in found.values()} <= {ChangeKind.NOTHING, ChangeKind.HICCUP}
    series["n1/gpu/3"] = since(series["n1/gpu/3"], 22, 0.95)
    assert judged({subject: values[:25] for subject, values in series.items()}, facts)["n1/gpu/3"].kind == ChangeKind.STEP


def test_a_slow_drift_is_told_from_a_step() -> None:
    series: dict[str, Values] = {**fleet(2, 40)}
    series["n2/gpu/1"] = [value * (1 - 0.002 * max(0, run - 18)) for run, value in enumerate(fleet(2, 40)["n2/gpu/1"])]
    change = judged(series)["n2/gpu/1"]
    assert change.kind == ChangeKind.DRIFT
    assert "drifted to" in change.sentence or "drifting" in change.sentence


def test_a_gpu_that_changes_between_two_levels_is_told_to_flap() -> None:
    series: dict[str, Values] = {**fleet(2, 36)}
    series["n2/gpu/1"] = [v * (0.95 if run > 20 and run % 4 < 2 else 1) for run, v in enumerate(fleet(2, 36)["n2/gpu/1"])]
    change = judged(series)["n2/gpu/1"]
    assert change.kind == ChangeKind.FLAPPING
    assert "flaps since" in change.sentence


def test_a_gpu_whose_numbers_scatter_more_than_before_is_told() -> None:
    series: dict[str, Values] = {**fleet(2, 44)}
    series["n2/gpu/1"] = [676 + (v - 676) * (5 if run > 23 else 1) for run, v in enumerate(fleet(2, 44)["n2/gpu/1"])]
    change = judged(series)["n2/gpu/1"]
    assert change.kind == ChangeKind.SCATTER
    assert "times as much as before" in change.sentence


def test_an_improvement_is_told_and_becomes_the_reference() -> None:
    series: dict[str, Values] = {**fleet(2, 60)}
    series["n1/gpu/3"] = since(series["n1/gpu/3"], 20, 1.05)
    early = judged({subject: values[:25] for subject, values in series.items()})["n1/gpu/3"]
    assert early.kind == ChangeKind.IMPROVEMENT
    assert "above its own median" in early.sentence
    assert judged({subject: values[:45] for subject, values in series.items()})["n1/gpu/3"].kind == ChangeKind.NOTHING
    series["n1/gpu/3"] = since(series["n1/gpu/3"], 50, 1 / 1.05)
    assert judged(series)["n1/gpu/3"].kind == ChangeKind.STEP


def test_what_came_back_is_told_and_then_as_ever() -> None:
    series: dict[str, Values] = {**fleet(2, 60)}
    series["n1/gpu/3"] = since(since(series["n1/gpu/3"], 20, 0.9), 30, 1 / 0.9)
    kinds = [judged({subject: values[:count] for subject, values in series.items()})["n1/gpu/3"].kind for count in (30, 34, 50)]
    assert kinds == [ChangeKind.STEP, ChangeKind.IMPROVEMENT, ChangeKind.NOTHING]
    series["n1/gpu/3"] = since(series["n1/gpu/3"], 55, 0.97)
    assert judged(series)["n1/gpu/3"].kind == ChangeKind.STEP


def test_what_came_back_most_of_the_way_is_repaired_and_a_new_reference() -> None:
    series: dict[str, Values] = {**fleet(2, 60)}
    series["n1/gpu/3"] = since(since(series["n1/gpu/3"], 20, 0.9), 30, 0.98 / 0.9)
    assert judged(series)["n1/gpu/3"].kind == ChangeKind.NOTHING
    series["n1/gpu/3"] = since(series["n1/gpu/3"], 55, 0.97)
    assert judged(series)["n1/gpu/3"].kind == ChangeKind.STEP


def test_a_repair_begins_a_new_reference() -> None:
    series: dict[str, Values] = {**fleet(2, 30)}
    series["n1/gpu/3"] = since(series["n1/gpu/3"], 20, 0.95)
    facts: Facts = {f"run-{run:03d}": {"n1/gpu/3": {"serial": "A" if run < 20 else "B"}} for run in range(30)}
    assert judged(series)["n1/gpu/3"].kind == ChangeKind.STEP
    assert judged(series, facts)["n1/gpu/3"].kind == ChangeKind.NOTHING
    change = judged({subject: values[:24] for subject, values in series.items()}, facts)["n1/gpu/3"]
    assert change.kind == ChangeKind.SHORT
    assert "3 runs before, a new reference" in change.sentence


def test_a_serial_number_that_comes_and_goes_is_no_repair_each_time() -> None:
    facts = {f"{day}": {"a": {"serial": "AB"[day % 2]}} for day in range(20)}
    history = attribution.FactHistory(facts, [f"{day}" for day in range(20)])
    assert history.repaired(["a"]) == 1, "where the second one was first seen"
    facts["15"]["a"]["serial"] = "C"
    assert attribution.FactHistory(facts, list(history.runs)).repaired(["a"]) == 15


def test_a_whole_node_is_blamed_as_one() -> None:
    series: dict[str, Values] = {**fleet(4, 24)}
    for gpu in range(8):
        series[f"n3/gpu/{gpu}"] = since(series[f"n3/gpu/{gpu}"], 19, 0.96)
    found = judged(series)
    ill = {subject for subject, change in found.items() if change.alarm}
    assert ill == {f"n3/gpu/{gpu}" for gpu in range(8)}
    assert {found[subject].attribution for subject in ill} == {Attribution("node", "n3")}
    assert "so is most of node n3; its 7 siblings as well" in found["n3/gpu/0"].sentence


def test_what_all_of_the_only_node_did_is_that_nodes() -> None:
    found = judged({subject: since(values, 20, 0.95) for subject, values in fleet(1, 24).items()})
    assert len(found) == 8 and {change.kind for change in found.values()} == {ChangeKind.STEP}
    assert {change.attribution for change in found.values()} == {Attribution("node", "n1")}
    quiet = judged(fleet(1, 24))
    assert not [change for change in quiet.values() if change.alarm]


def test_what_everybody_did_is_nobodys_and_the_driver_is_named() -> None:
    series: dict[str, Values] = {subject: since(values, 20, 0.97) for subject, values in fleet(5, 26).items()}
    nodes = [f"n{node}" for node in range(1, 6)]
    facts: Facts = {f"run-{run:03d}": {node: {"driver": "570" if run < 20 else "580"} for node in nodes} for run in range(26)}
    found = judged(series, facts)
    assert not [subject for subject, change in found.items() if subject and change.alarm]
    assert found[""].attribution == Attribution("everybody", "", "driver", "580", "run-020")
    assert found[""].kind == ChangeKind.STEP
    assert "when driver became 580; shared, no regression of one of them" in found[""].sentence
    assert len(found[""].members) == 40


@pytest.mark.parametrize("updated", (2, 3))
def test_a_driver_that_only_some_nodes_have_is_blamed_and_no_gpu(updated: int) -> None:
    got = [f"n{node}" for node in range(1, updated + 1)]
    series: dict[str, Values] = {s: since(v, 20, 0.95) if s.split("/")[0] in got else v for s, v in fleet(8, 26).items()}
    facts: Facts = {
        f"run-{run:03d}": {f"n{node}": {"driver": "580" if run >= 20 and f"n{node}" in got else "570"} for node in range(1, 9)}
        for run in range(26)
    }
    found = judged(series, facts)
    ill = [change for change in found.values() if change.alarm]
    assert len(ill) == 8 * updated
    assert {change.attribution for change in ill} == {Attribution("everybody", "", "driver", "580", "run-020")}
    assert "everybody's since driver became 580" in ill[0].sentence


def test_who_does_not_become_better_with_the_others_did_not_become_worse() -> None:
    series: dict[str, Values] = {s: v if s == "n1/gpu/0" else since(v, 20, 1.04) for s, v in fleet(5, 30).items()}
    assert not [subject for subject, change in judged(series).items() if change.alarm]


def test_a_port_is_blamed_for_its_paths() -> None:
    nodes = [f"n{i}" for i in range(6)]
    today, past = [], {}
    for a in nodes:
        for b in nodes:
            if a < b:
                values = since(healthy((a, b), 20, 48.0), 15, 0.9 if a == "n0" else 1)
                places = (("link", f"{a}|{b}"), ("port", f"{a}/p1"), ("port", f"{b}/p1"), ("node", a), ("node", b))
                today.append(Today(f"{a}|{b}", "rdma", point(19, values[-1]), places, unit="GB/s", label="ib_write_bw"))
                past[f"{a}|{b}", "rdma"] = [point(run, value) for run, value in enumerate(values[:-1])]
    ill = [change for change in changes(today, past) if change.alarm]
    assert {change.subject for change in ill} == {f"n0|n{i}" for i in range(1, 6)}
    assert {change.attribution for change in ill} == {Attribution("port", "n0/p1")}, [change.sentence for change in ill]


def test_a_latency_becomes_worse_upwards() -> None:
    series: dict[str, Values] = {s: since(v, 20, 1.05) if s == "n1/gpu/0" else v for s, v in fleet(2, 25).items()}
    change = judged(series, better="lower", unit="us")["n1/gpu/0"]
    assert change.kind == ChangeKind.STEP
    assert "above its own median" in change.sentence
    assert judged(series, better="higher")["n1/gpu/0"].kind == ChangeKind.IMPROVEMENT


def test_constant_values_have_a_least_scatter() -> None:
    series: dict[str, Values] = {f"n1/gpu/{gpu}": [676.0] * 30 for gpu in range(8)}
    assert {change.kind for change in judged(series).values()} == {ChangeKind.NOTHING}
    series["n1/gpu/0"] = [*[676.0] * 29, 676.5]
    assert judged(series)["n1/gpu/0"].kind == ChangeKind.NOTHING
    series["n1/gpu/0"] = [*[676.0] * 26, *[655.0] * 4]
    assert judged(series)["n1/gpu/0"].kind == ChangeKind.STEP


def test_rounded_values_are_no_steps() -> None:
    series: dict[str, Values] = {s: [round(v / 5) * 5 for v in values] for s, values in fleet(3, 50).items()}
    assert not [change for change in judged(series).values() if change.alarm]


def test_values_that_are_no_numbers_are_left_out_and_counted() -> None:
    bad: Values = [None, math.nan, math.inf, 0.0, -3.0]
    change = judged({"n1/gpu/0": [*bad, *healthy(1, 9)]})["n1/gpu/0"]
    assert (change.kind, change.ignored) == (ChangeKind.NOTHING, 5)
    for value in bad:
        today = judged({"n1/gpu/0": [*healthy(1, 12), value]})["n1/gpu/0"]
        assert today.kind == ChangeKind.UNUSABLE
        assert not today.alarm
        assert "no number above zero" in today.sentence


def test_neither_a_later_run_nor_the_same_one_is_the_past() -> None:
    values = healthy(1, 20)
    today = Today("n1/gpu/0", CHECK, point(12, 676.0))
    past = [point(run, 676 if run < 12 else 500) for run, _value in enumerate(values)]
    (change,) = changes([today], {today.key: past})
    assert (change.kind, change.runs) == (ChangeKind.NOTHING, 12)


def test_a_subject_that_joins_late_is_judged_by_its_own_runs() -> None:
    series: dict[str, Values] = {**fleet(2, 30)}
    series["n1/gpu/0"] = [*[None] * 18, *since(healthy("late", 12, 640), 8, 0.95)]
    assert judged(series)["n1/gpu/0"].kind == ChangeKind.STEP
    series["n1/gpu/1"] = [*[None] * 24, *healthy("later", 6, 640)]
    assert judged(series)["n1/gpu/1"].kind == ChangeKind.SHORT


def test_a_run_without_subjects_has_no_changes() -> None:
    assert changes([], {}) == []


PLANTS = {3: simulated.Plant("step", 20, 0.04), 11: simulated.Plant("drift", 12, 0.003), 20: simulated.Plant("step", 26, 0.08)}


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from((2.0**-40, 0.125, 1024.0, 2.0**60)))
def test_another_unit_changes_nothing(seed: int, scale: float) -> None:
    made = simulated.fleet(seed, 3, 30, simulated.Weather(noise=(0.003, 0.02)), PLANTS)
    today, past = made.today(29), made.past(29)

    def scaled(one: Point) -> Point:
        return dataclasses.replace(one, value=None if one.value is None else one.value * scale)

    in_other_unit = changes(
        [dataclasses.replace(one, point=scaled(one.point)) for one in today], {key: list(map(scaled, value)) for key, value in past.items()}
    )
    as_it_was = changes(today, past)
    scaled_changes, unscaled = ([(c.subject, c.kind, c.onset, c.attribution) for c in of] for of in (in_other_unit, as_it_was))
    assert scaled_changes == unscaled


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), order=st.randoms(use_true_random=False))
def test_the_order_of_subjects_and_of_their_past_changes_nothing(seed: int, order: random.Random) -> None:
    made = simulated.fleet(seed, 3, 30, simulated.Weather(noise=(0.003, 0.02)), PLANTS)
    today, past = made.today(29), made.past(29)
    before = {change.subject: change for change in changes(today, past, made.facts())}
    order.shuffle(today)
    for values in past.values():
        order.shuffle(values)
    after = {change.subject: change for change in changes(today, past, made.facts())}
    assert {s: (c.kind, c.sentence) for s, c in after.items()} == {s: (c.kind, c.sentence) for s, c in before.items()}


NUMBERS = st.one_of(
    st.none(), st.floats(), st.sampled_from((0.0, -1.0, 676.0, 676.0, 655.0, 5e-324, 1.7e308)), st.floats(600, 700), st.integers(-3, 800)
)


@settings(max_examples=150)
@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=40), min_size=1, max_size=9), st.sampled_from(("higher", "lower")))
def test_whatever_the_numbers_each_subject_has_an_answer(rows: list[list[float | None]], better: str) -> None:
    series = {f"n1/gpu/{number}": row for number, row in enumerate(rows)}
    found = judged(series, better=better)
    assert set(series) <= set(found)
    assert all(change.sentence for change in found.values())
