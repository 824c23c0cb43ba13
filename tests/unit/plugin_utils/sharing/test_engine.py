# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine runs every case, from the baseline to the clean-up, on a cluster in memory: a healthy system passes, a wrong one does not."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import pathlib
import re
import sys
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import (
    alerts,
    cases,
    clocks,
    conclusion,
    engine,
    parameters,
    system,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import PodRequest, WorkloadState

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from memory import GIB, Memory

SYSTEM = system.load("nvshare")
NODES = {"drain_node": "node-0", "stress_node": "node-0"}
# A day is a few minutes here, and 160 pods are 8.
SMALL = {"scale_set": [2, 4, 8], "mix_small_pods": 2, "mix_large_pods": 4, "stab_short_s": 3600, "stab_long_s": 3600, "placement_tries": 60}


def case_of(name: str, profile: str = cases.STRICT) -> cases.Case:
    return next(case for case in [*cases.shipped(profile), *cases.beyond(profile)] if case.id == name)


def ran(
    case: cases.Case, cluster: str, of_system: system.System = SYSTEM, **memory: t.Any
) -> tuple[conclusion.Conclusion, Memory, dict[str, str]]:
    kept: dict[str, str] = {}
    of = Memory(of_system, **{"memory": (16 if cluster == "c1" else 40) * GIB, **memory})
    settled = parameters.settle(cluster, 1, SMALL)
    found = conclusion.beforehand(case, of_system, cluster, True, NODES)
    if found is None:
        case = cases.fitted(case, of_system)
        found = conclusion.conclude(case, engine.CaseRun(case, of_system, settled, of, kept.__setitem__, NODES).run())
    return found, of, kept


@pytest.mark.parametrize("cluster", cases.CLUSTERS)
@pytest.mark.parametrize("case", [*cases.shipped(cases.STRICT), *cases.beyond(cases.STRICT)], ids=lambda case: case.id)
def test_a_healthy_system_passes(case: cases.Case, cluster: str) -> None:
    found, of, _kept = ran(case, cluster)
    expected = conclusion.PASS if cluster in case.clusters else conclusion.SKIP
    if case.id == "FAIL-001":
        assert found.status == conclusion.PASS
    assert (found.status, found.cause if found.status != expected else "") == (expected, "")
    assert not of.pods and not of.cordons


@pytest.mark.parametrize("name", ["FUNC-004", "FUNC-005", "FUNC-006", "FUNC-007", "COMBO-001", "MET-002", "STAB-003"])
def test_a_healthy_system_passes_under_its_later_name(name: str) -> None:
    """It writes other words about memory."""
    found, _of, _kept = ran(case_of(name), "c1", system.load("nvshare", {"prefix": "xpushare"}))
    assert (found.status, found.cause if found.status != conclusion.PASS else "") == (conclusion.PASS, "")


def test_a_line_that_is_never_logged_proves_nothing_where_a_canary_does_not_log_it_either() -> None:
    """The words of another version would be missed in both."""
    other = system.load("nvshare", {"patterns": {"rejected": "words of a version to come"}})
    found, _of, _kept = ran(case_of("FUNC-007"), "c1", other)
    assert (found.status, found.code) == (conclusion.UNKNOWN, "no_sample")
    assert found.cause == "no pod of canary logged a line that matches the pattern rejected"


FAITHFUL = ["FUNC-001", "FUNC-004", "FUNC-010", "FUNC-012", "COMBO-003", "COMBO-008", "MET-005", "PERF-007", "LEAK-003"]


@pytest.mark.parametrize("name", FAITHFUL)
def test_a_healthy_system_passes_the_public_expressions_too(name: str) -> None:
    assert ran(case_of(name, cases.FAITHFUL), "c1")[0].status == conclusion.PASS


# Which cases see what is wrong with a system, and which do not fail of it.
SEEN = [
    ("quota_ignored", "c1", ["FUNC-008", "FUNC-012", "PERF-003", "PERF-007"], ["FUNC-001", "FUNC-010", "MET-001", "MET-004"]),
    ("core_too_much", "c1", ["FUNC-008", "FUNC-012", "COMBO-006", "PERF-003"], ["FUNC-001", "FUNC-010", "MET-004"]),
    ("update_ignored", "c1", ["FUNC-010", "FUNC-012", "COMBO-004", "MET-005", "STAB-003"], ["FUNC-001", "FUNC-008", "MET-004"]),
    ("applied_late", "c1", ["FUNC-010", "FUNC-012", "MET-005", "PERF-007"], ["FUNC-001", "MET-004", "STAB-003"]),
    ("lower_ignored", "c1", ["FUNC-011", "FUNC-010", "STAB-004"], ["MET-005"]),
    ("oom_not_raised", "c1", ["FUNC-004", "FUNC-006", "COMBO-001"], ["FUNC-001", "FUNC-008"]),
    ("one_silent", "c1", ["MET-001", "MET-007"], ["FUNC-001"]),
    ("missing_on_one", "c1", ["MET-002"], ["MET-001", "MET-007", "FUNC-003"]),
    ("ghosts", "c1", ["LEAK-004", "LEAK-005", "STAB-004"], ["FUNC-001", "LEAK-001"]),
    ("leak", "c1", ["LEAK-001", "LEAK-002"], ["LEAK-003", "LEAK-004"]),
    ("drain_hangs", "c1", ["FAIL-003"], ["FAIL-001"]),
    ("utilization_wrong", "c1", ["MET-006"], ["MET-002"]),
    ("limited_fails", "c1", ["FUNC-008", "FUNC-009", "PERF-003", "PERF-004", "PERF-008"], ["FUNC-001", "PERF-002", "MET-005"]),
    ("update_kills", "c1", ["FUNC-012", "PERF-007", "MET-005", "COMBO-006"], ["FUNC-001", "FUNC-008", "MET-004"]),
    ("new_refused", "c1", ["FUNC-011", "FUNC-010"], ["MET-005"]),
    ("effective_wrong", "c1", ["COMBO-003", "MET-004"], ["MET-005"]),
    ("full_elsewhere", "c1", ["MET-008"], ["MET-004"]),
    ("quota_inherited", "c1", ["ROBUST-001"], ["MET-004"]),
    ("overload_sticks", "c1", ["ROBUST-002"], ["FUNC-005"]),
    ("oversub_refused", "c1", ["ROBUST-003"], ["FUNC-005", "PERF-005"]),
    ("idle_blocks", "c1", ["ROBUST-004"], ["MET-007"]),
    ("negative_quota_huge", "c1", ["ROBUST-005"], ["ROBUST-006"]),
    ("decimal_quota_ignored", "c1", ["ROBUST-006"], ["MET-004"]),
    ("index_unknown", "c1", ["ROBUST-007"], ["MET-002", "FUNC-002"]),
    ("pending", "c1", ["FUNC-001", "MET-004", "PERF-004"], ["MET-002"][:0]),
    ("raise_not_kept", "c1", ["FUNC-010", "COMBO-004", "COMBO-005", "STAB-004"], ["FUNC-011", "MET-005"]),
    ("cut_late", "c1", ["FUNC-011"], ["MET-005"]),
    ("gpus_added_up", "c1", ["COMBO-008"], ["COMBO-003", "MET-004"]),
    ("running_stays", "c1", ["LEAK-003", "LEAK-004"], ["FUNC-001", "LEAK-001", "MET-003"]),
    ("running_stays", "c2", ["FAIL-004"], ["FAIL-002"]),
    ("third_waits", "c1", ["FUNC-003", "COMBO-008", "STAB-001", "ROBUST-009"], ["FUNC-002", "FUNC-001", "MET-001"]),
    ("newest_waits", "c1", ["FUNC-002", "FUNC-003", "STAB-001"], ["FUNC-001", "MET-001"]),
    ("four_clients", "c1", ["FUNC-003", "COMBO-008", "ROBUST-009"], ["FUNC-002", "STAB-001"]),
    ("series_stay", "c1", ["STAB-004", "LEAK-004", "LEAK-005"], ["FUNC-001", "LEAK-001", "MET-002"]),
    ("restart_loses_quotas", "c1", ["FAIL-001"], ["FAIL-002"]),
    ("stuck", "c1", ["MET-001", "MET-007"], ["FUNC-004", "FUNC-006"]),
    ("quota_late", "c1", ["ROBUST-008"], ["COMBO-001", "FUNC-007"]),
    ("other_gpu", "c1", ["COMBO-008"], ["MET-004", "COMBO-003"]),
    ("library_smaller", "c1", ["FUNC-007", "COMBO-001"], ["MET-004", "FUNC-006"]),
    ("lower_waits", "c1", ["FUNC-009", "PERF-004", "COMBO-002", "COMBO-003"], ["FUNC-002", "FUNC-008", "STAB-001"]),
    ("uneven", "c1", ["FUNC-002", "STAB-001"], ["FUNC-001", "FUNC-008"]),
    ("oversub_lifts_core", "c1", ["COMBO-002", "COMBO-006"], ["FUNC-009", "PERF-004", "FUNC-012"]),
    ("memory_lifts_core", "c1", ["COMBO-003"], ["FUNC-009", "MET-004"]),
    ("core_lifts_memory", "c1", ["COMBO-003"], ["FUNC-007", "FUNC-010", "MET-004"]),
    ("oom_lenient", "c1", ["FUNC-004"], ["FUNC-001"]),
    ("gpus_swapped", "c1", ["MET-003", "MET-006", "MET-008"], ["MET-004", "FUNC-003"]),
    ("client_other_gpu", "c1", ["MET-003", "MET-006", "MET-008", "ROBUST-007"], ["MET-004"]),
    ("allocated_of_gpu", "c1", ["MET-003"], ["MET-004"]),
    ("quota_of_newest", "c1", ["MET-004", "COMBO-003", "COMBO-008"], ["FUNC-010", "MET-005"]),
    ("utilization_stuck", "c1", ["MET-006"], ["MET-003"]),
    ("throttled_always", "c1", ["MET-008"], ["MET-004"]),
    ("exceeded_always", "c1", ["FUNC-011"], ["FUNC-010"]),
    ("scrape_leaks", "c1", ["MET-007"], ["FUNC-001", "MET-004"]),
    ("memory_change_lifts_core", "c1", ["COMBO-004"], ["FUNC-010", "FUNC-012"]),
    ("core_change_lifts_memory", "c1", ["COMBO-004"], ["FUNC-010", "FUNC-012", "STAB-003"]),
    ("core_fourth_change", "c1", ["STAB-003"], ["FUNC-012", "COMBO-006", "MET-005"]),
    ("core_drifts", "c1", ["STAB-003"], ["FUNC-001", "MET-005"]),
    ("memory_fourth_change", "c1", ["STAB-004"], ["FUNC-010", "COMBO-005"]),
    ("memory_fourth_change", "c2", ["STAB-004"], ["FUNC-010"]),
    ("restart_core_not_kept", "c1", ["FAIL-001"], ["FUNC-008"]),
    ("core_scaled", "c1", ["PERF-003"], ["FUNC-001", "FUNC-012"]),
    ("waiter_forgotten", "c1", ["ROBUST-010"], ["FUNC-001", "ROBUST-009"]),
    ("waiter_forgotten", "c2", ["ROBUST-010"], ["ROBUST-009"]),
    ("core_ignored_on_one", "c1", ["ROBUST-011"], ["FUNC-001", "MET-001"]),
    ("memory_ignored_on_one", "c1", ["FUNC-006", "ROBUST-011"], ["FUNC-001", "MET-004"]),
    ("plugin_restart_kills", "c1", ["FAIL-002"], ["FAIL-001"]),
    ("core_lifts_memory", "c1", ["COMBO-007"], ["FUNC-006"]),
    ("effect_late", "c1", ["PERF-007"], ["MET-005", "FUNC-010"]),
    ("removal_ignored", "c1", ["ROBUST-013"], ["FUNC-012", "STAB-003"]),
    ("deleted_keeps_lock", "c1", ["ROBUST-012"], ["ROBUST-009", "FUNC-002"]),
    ("exceeded_sticks", "c1", ["COMBO-005"], ["FUNC-010", "FUNC-011"]),
    ("core_first_gpu_only", "c1", ["COMBO-008"], ["MET-004"]),
    ("core_first_gpu_only", "c2", ["COMBO-008"], ["MET-004"]),
    ("core_first_client_only", "c1", ["COMBO-008"], ["FUNC-008", "FUNC-012"]),
    ("memory_first_gpu_only", "c1", ["COMBO-008"], ["MET-004"]),
    ("memory_shown_of_all", "c1", ["COMBO-008"], ["FUNC-010", "MET-004"]),
    ("refusal_kills_others", "c1", ["COMBO-008"], ["FUNC-010", "FUNC-011"]),
    ("oversub_quota_large", "c1", ["COMBO-001"], ["FUNC-007", "COMBO-003"]),
]


@pytest.mark.parametrize(("defect", "cluster", "name"), [(d, c, name) for d, c, bad, _good in SEEN for name in bad])
def test_what_is_wrong_is_seen_by_the_case_that_is_meant_to(defect: str, cluster: str, name: str) -> None:
    found, of, _kept = ran(case_of(name), cluster, defects=[defect])
    assert (found.status, found.code) == (conclusion.FAIL, "case_failed"), found.cause
    assert found.cause and not of.pods


@pytest.mark.parametrize(("defect", "cluster", "name"), [(d, c, name) for d, c, _bad, good in SEEN for name in good])
def test_a_case_passes_beside_a_defect_that_is_not_its_own(defect: str, cluster: str, name: str) -> None:
    found, _of, _kept = ran(case_of(name), cluster, defects=[defect])
    assert (found.status, found.cause if found.status != conclusion.PASS else "") == (conclusion.PASS, "")


def test_a_driver_that_says_nothing_leaves_the_utilisation_unknown() -> None:
    found, _of, kept = ran(case_of("MET-006"), "c1", defects=["no_driver"])
    assert (found.status, found.code) == (conclusion.UNKNOWN, "no_sample")
    assert "nvidia-smi dmon beside the scheduler on node-" in found.cause
    assert not any("dmon" in name for name in kept)
    _found, _of, kept = ran(case_of("MET-006"), "c1")
    assert len([name for name in kept if name.startswith("watch_series_node-") and name.endswith("_dmon.txt")]) == 1


def test_a_sum_over_schedulers_of_which_one_is_silent_is_not_known() -> None:
    found, _of, _kept = ran(case_of("LEAK-003"), "c1", defects=["one_silent"])
    assert (found.status, found.code) == (conclusion.UNKNOWN, "no_sample")
    assert "not every scheduler answered: scheduler-node-1 (no answer in time)" in found.cause


def test_a_clock_that_is_far_off_is_named_and_no_pass() -> None:
    for name in ("MET-001", "FUNC-001"):
        found, _of, _kept = ran(case_of(name), "c1", defects=["clock_skew"])
        assert (found.status, found.code) == (conclusion.UNKNOWN, "clock_skew")
        assert "the clock of node node-1, as read in its scheduler scheduler-node-1, is 300 s ahead of the API server's" in found.cause


@pytest.mark.parametrize(
    ("date", "came", "ahead"),
    [
        ("Tue, 17 Feb 2026 10:05:00 GMT", 0.1, pytest.approx(298.9, abs=0.2)),  # the least that is sure
        ("Tue, 17 Feb 2026 09:55:00 GMT", 0.1, pytest.approx(-298.9, abs=0.2)),
        ("Tue, 17 Feb 2026 10:00:00 GMT", 0.1, 0.0),
        ("Tue, 17 Feb 2026 10:00:07 GMT", 8.0, 0.0),  # it came late
        (None, 0.1, None),
        ("soon", 0.1, None),
    ],
)
def test_a_clock_is_off_by_what_no_delay_explains(date: str | None, came: float, ahead: t.Any) -> None:
    noon = datetime.datetime(2026, 2, 17, 10, tzinfo=datetime.UTC).timestamp()
    api = clocks.offset("Tue, 17 Feb 2026 10:00:00 GMT", noon, noon + 0.1)
    assert clocks.ahead(clocks.offset(date, noon, noon + came), api) == ahead


def test_pods_that_do_not_come_onto_one_gpu_are_a_skip_and_no_pass() -> None:
    settled = {**SMALL, "placement_tries": 2}
    of = Memory(SYSTEM, nodes=1)
    of.gpu_for = lambda _node: sum(pod.wanted.workload != "hold" for pod in of.pods.values()) % 2  # type: ignore[method-assign]
    run = engine.CaseRun(case_of("PERF-004"), SYSTEM, parameters.settle("c1", 1, settled), of, lambda _name, _text: None)
    found = conclusion.conclude(run.case, run.run())
    assert (found.status, found.code) == (conclusion.SKIP, "sharing_not_colocated")


TOGETHER = ["FUNC-002", "FUNC-009", "COMBO-002", "COMBO-003", "PERF-004"]


@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_pods_meet_although_the_device_plugin_spreads_them(name: str, gpus: int) -> None:
    """The GPU with the fewest pods is taken: without holders two pods never meet on an empty node with several GPUs."""
    of, made = Memory(SYSTEM, nodes=2, gpus=gpus, memory=40 * GIB), []
    make = of.make
    of.make = lambda wanted: (made.extend(one.name for one in wanted), make(wanted))[1]  # type: ignore[method-assign, func-returns-value]
    settled = parameters.settle("c2", 1, {**SMALL, "placement_tries": 1})
    run = engine.CaseRun(case_of(name), SYSTEM, settled, of, lambda _name, _text: None)
    found = conclusion.conclude(run.case, run.run())
    assert found.status == conclusion.PASS, found.cause
    assert sum("-hold-" in one for one in made) == (2 * gpus if gpus > 1 else 0) and not of.pods
    assert len([one for one in made if "-hold-" not in one]) == len(run.evidence.pods)  # the first attempt


def test_pods_of_others_on_a_node_do_not_keep_pods_apart() -> None:
    """Some GPUs have more pods than others before the case begins."""
    of = Memory(SYSTEM, nodes=1, gpus=4, memory=40 * GIB)
    of.make([PodRequest(f"other-{number}", "other", "hold", {}, {}) for number in range(5)])
    run = engine.CaseRun(case_of("FUNC-002"), SYSTEM, parameters.settle("c2", 1, SMALL), of, lambda _name, _text: None)
    found = conclusion.conclude(run.case, run.run())
    assert found.status == conclusion.PASS and set(of.pods) == {f"other-{number}" for number in range(5)}, found.cause


def test_holders_that_do_not_start_leave_the_place_to_chance() -> None:
    class Full(Memory):
        def advance(self, pod: t.Any, step: float) -> None:
            if pod.wanted.workload != "hold":
                super().advance(pod, step)

    of = Full(SYSTEM, nodes=1)
    of.gpu_for = lambda _node: 0  # type: ignore[method-assign]
    run = engine.CaseRun(case_of("FUNC-002"), SYSTEM, parameters.settle("c1", 1, SMALL), of, lambda _name, _text: None)
    found = conclusion.conclude(run.case, run.run())
    assert found.status == conclusion.PASS and not of.pods, found.cause


@pytest.mark.parametrize("tries", range(1, 12))
def test_of_pods_that_stay_on_two_gpus_all_run_when_they_are_looked_at(tries: int) -> None:
    """Whichever try is the last one: the first pod may have ended by then, and of one that ended no metric says anything."""
    of = Memory(SYSTEM, nodes=1, memory=16 * GIB)
    of.gpu_for = lambda _node: sum(pod.wanted.workload != "hold" for pod in of.pods.values()) % 2  # type: ignore[method-assign]
    settled = parameters.settle("c1", 0.01, {**SMALL, "placement_tries": tries})
    run = engine.CaseRun(case_of("COMBO-003"), SYSTEM, settled, of, lambda _name, _text: None)
    found = conclusion.conclude(run.case, run.run())
    assert (found.status, found.code) == (conclusion.SKIP, "sharing_not_colocated"), found.cause
    assert all(expression["holds"] is True for expression in found.expressions if "quota_config" in expression["that"])


def test_a_drain_that_moves_nobody_proves_nothing() -> None:
    settled = parameters.settle("c1", 1, SMALL)
    of = Memory(SYSTEM)
    of.random.choice = lambda free: free[-1]  # type: ignore[method-assign, assignment, misc]
    case = dataclasses.replace(case_of("FAIL-003"), steps=tuple(
        {"make": {**step["make"], "on_node": False}} if "make" in step else step for step in case_of("FAIL-003").steps
    ))  # fmt: skip
    run = engine.CaseRun(case, SYSTEM, settled, of, lambda _name, _text: None, NODES)
    found = conclusion.conclude(case, run.run())
    assert (found.status, found.code) == (conclusion.UNKNOWN, "no_sample")
    assert "nothing had to move" in found.cause


def made_by(name: str, scale: float) -> dict[str, str]:
    """What the last pod of a case is told in a run of this scale."""
    of, asked = Memory(SYSTEM), []
    make = of.make
    of.make = lambda wanted: (asked.extend(wanted), make(wanted))[1]  # type: ignore[method-assign, func-returns-value]
    engine.CaseRun(case_of(name), SYSTEM, parameters.settle("c1", scale, SMALL), of, lambda _name, _text: None, NODES).run()
    return dict(asked[-1].environment)


def test_a_shortened_load_is_long_enough_for_what_must_find_it_running() -> None:
    assert made_by("FUNC-001", 0.002)["GPUFLEET_W_ITERATIONS"] == "80"
    assert made_by("FUNC-002", 0.002)["GPUFLEET_W_ITERATIONS"] == "800"
    assert made_by("FUNC-002", 0.5)["GPUFLEET_W_ITERATIONS"] == "20000"
    assert made_by("COMBO-007", 0.002)["GPUFLEET_W_DURATION_S"] == "20"
    assert made_by("PERF-002", 0.002)["GPUFLEET_W_ITERATIONS"] == "800"  # metrics are read while it runs
    assert made_by("FUNC-002", 1)["GPUFLEET_W_ITERATIONS"] == "40000"


def asked(prometheus: alerts.Ask | None, has: bool = True) -> tuple[conclusion.Conclusion, Memory]:
    """MET-008 with such a Prometheus."""
    given = dataclasses.replace(SYSTEM, has=SYSTEM.has | ({alerts.PROMETHEUS} if has else set()))
    settled, of = parameters.settle("c1", 1, SMALL), Memory(SYSTEM)
    run = engine.CaseRun(case_of("MET-008"), given, settled, of, lambda _name, _text: None, NODES, prometheus)
    return conclusion.conclude(run.case, run.run()), of


def test_a_prometheus_is_asked_whether_alerts_would_be_raised_of_these_pods() -> None:
    held: list[str] = []
    # The target's own labels are those of the scheduler; the series' were renamed.
    target = {"pod": "scheduler-node-0", "namespace": "nvshare-system"}
    full = [{**target, "gpu_uuid": f"GPU-node-{node}-{gpu}"} for node in (0, 1) for gpu in (0, 1)]
    of = [{**target, "exported_namespace": "default", "exported_pod": "xpm-met-008-slow-2"}, *full]

    def ask(expression: str) -> alerts.Labels:
        held.append(expression)
        return of[:1] if "throttled" in expression else of[1:]

    found, _of = asked(ask)
    assert found.status == conclusion.PASS and found.cause.startswith("all 7 assertions hold: peak_ratio(")
    assert set(held) == {alerts.conditions(SYSTEM)[name] for name in ("GpuSharingMemoryFull", "GpuSharingThrottled")}
    of[0] = {"pod": "xpm-met-008-slow-2", "namespace": "default"}  # with honor_labels
    assert asked(ask)[0].status == conclusion.PASS
    of[0]["client_id"] = "of-a-pod-of-that-name-in-a-run-before"
    found, _of = asked(ask)
    assert found.status == conclusion.FAIL and found.cause.startswith("Prometheus would raise no alert for a throttled pod: ")
    of[:] = [{**one, "pod": "somebody-elses"} for one in of]
    found, _of = asked(ask)
    assert found.status == conclusion.FAIL and found.cause.startswith("Prometheus would raise no alert for a full GPU: ")


def test_a_prometheus_that_does_not_answer_leaves_it_unknown_and_without_one_the_samples_are_judged() -> None:
    def ask(_expression: str) -> alerts.Labels:
        raise alerts.NoAnswer("http://p: refused")

    found, _of = asked(ask)
    assert (found.status, found.cause) == (conclusion.UNKNOWN, "http://p: refused")
    found, _of = asked(None, has=False)
    assert found.status == conclusion.PASS and found.cause.startswith("all 5 assertions hold: peak_ratio(")


def test_alerts_of_a_system_under_another_prefix_are_about_its_metrics() -> None:
    other = system.load("nvshare", {"prefix": "xpushare"})
    assert alerts.conditions(other)["GpuSharingQuotaExceeded"] == "xpushare_client_memory_quota_exceeded == 1"
    names = set(re.findall(r"nvshare_(\w+)", " ".join(alerts.conditions(SYSTEM).values())))
    assert names <= {*SYSTEM.required_metrics, "client_memory_quota_exceeded"}
    with pytest.raises(RunError, match="gpu_sharing_prometheus: found 'prometheus:9090', expected the address"):
        alerts.asker("prometheus:9090")
    with pytest.raises(RunError, match="found a user or a password") as refused:
        alerts.asker("http://us:hidden@prometheus.example:9090")
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("name", ["STAB-003", "STAB-004"])
def test_a_log_of_which_a_kubelet_keeps_only_the_end_is_read_before_the_rest_is_gone(name: str) -> None:
    """With debug output a scheduler fills in minutes what a kubelet keeps, and the next change comes after more."""
    found, of, _kept = ran(case_of(name), "c1")
    assert max(map(len, of.logs.values())) > 3 * len(of.daemon_log("scheduler-node-0") or [])
    assert (found.status, found.cause if found.status != conclusion.PASS else "") == (conclusion.PASS, "")


@pytest.mark.parametrize("name", ["STAB-003", "STAB-004", "FUNC-012"])
def test_a_change_that_the_metrics_show_and_whose_line_is_gone_is_not_known(name: str) -> None:
    found, _of, _kept = ran(case_of(name), "c1", defects=["log_cut"])
    assert (found.status, found.code) == (conclusion.UNKNOWN, "no_sample")
    assert "does not reach back to" in found.cause and "its lines are gone" in found.cause
    assert ran(case_of(name), "c1", defects=["log_cut", "update_ignored"])[0].status == conclusion.FAIL


def test_everything_that_was_collected_is_kept() -> None:
    _found, _of, kept = ran(case_of("COMBO-003"), "c1")
    assert {"metrics_baseline.txt", "metrics_mid.txt", "metrics.txt", "metrics_health.txt"} <= set(kept)
    assert {"scheduler.log", "device-plugin.log"} <= set(kept)
    assert {"cluster_snapshot.txt", "scheduler_proc.txt", "pods/xpc-combo-003-low-1.log"} <= set(kept)
    assert {"scheduler_proc_baseline.txt"} <= set(kept) and any(name.startswith("remote_node-") and "dmon" in name for name in kept)
    assert "HTTP_CODE=200" in kept["metrics_health.txt"] and "PASS" in kept["pods/xpc-combo-003-low-1.log"]


@pytest.mark.parametrize("name", ["FUNC-001", "MET-004", "LEAK-003", "FUNC-010"])
def test_metrics_are_kept_of_the_start_the_middle_and_the_end(name: str) -> None:
    found, _of, kept = ran(case_of(name), "c1")
    assert {"metrics_baseline.txt", "metrics_middle.txt", "metrics.txt"} <= set(kept)
    assert found.seen and all(unit for _value, unit in found.seen.values())
    assert found.cause.startswith("all ") and "=" in found.cause


def test_what_is_made_goes_whatever_happens() -> None:
    class Lost(Memory):
        def workloads(self) -> list[WorkloadState]:
            if self.clock > 5:
                raise ReasonedError("cluster_unreachable", "gone")
            return super().workloads()

    of = Lost(SYSTEM)
    run = engine.CaseRun(case_of("FUNC-001"), SYSTEM, parameters.settle("c1", 1, {}), of, lambda _name, _text: None)
    with pytest.raises(ReasonedError, match="gone"):
        run.run()
    assert not of.pods


@pytest.mark.parametrize(
    ("name", "cluster", "destructive", "nodes", "rule"),
    [
        ("COMBO-001", "c2", True, NODES, "sharing_cluster"),
        ("FAIL-001", "c1", False, NODES, "sharing_destructive"),
        ("FAIL-003", "c1", True, {}, "sharing_no_node"),
    ],
)
def test_what_does_not_apply_is_skipped_by_a_rule(name: str, cluster: str, destructive: bool, nodes: dict[str, str], rule: str) -> None:
    found = conclusion.beforehand(case_of(name), SYSTEM, cluster, destructive, nodes)
    assert found is not None and (found.status, found.code) == (conclusion.SKIP, rule)


def test_a_system_that_cannot_do_it_is_skipped() -> None:
    plain = system.load("nvshare", {"has": []})
    found = conclusion.beforehand(case_of("FUNC-008"), plain, "c1", True, NODES)
    assert found is not None and (found.status, found.code) == (conclusion.SKIP, "sharing_unsupported")


# What time-slicing can be held to: it has neither quotas nor metrics nor schedulers, but pods, GPUs and a device plugin.
SLICED = {"FUNC-001", "FUNC-003", "FUNC-004", "PERF-001", "PERF-008", "FAIL-002", "FAIL-003"}


@pytest.mark.parametrize("profile", cases.PROFILES)
def test_of_another_system_the_cases_run_that_make_sense_there_and_the_rest_is_skipped_by_the_rule(profile: str) -> None:
    sliced = system.load("time_slicing")
    for case in cases.shipped(profile):
        found, of, _kept = ran(case, "c1", sliced)
        told = f"{case.id}: {found.cause}"
        if case.id in SLICED and (profile, case.id) != (cases.FAITHFUL, "FAIL-002"):
            assert found.status == conclusion.PASS, told
        else:
            assert found.status == conclusion.SKIP and found.code in ("sharing_unsupported", "sharing_cluster"), told
        assert not of.pods and not of.cordons


@pytest.mark.parametrize(("defect", "name"), [("pending", "FUNC-001"), ("pending", "FUNC-003"), ("oom_not_raised", "FUNC-004")])
def test_what_is_wrong_with_another_system_is_seen(defect: str, name: str) -> None:
    assert ran(case_of(name), "c1", system.load("time_slicing"), defects=[defect])[0].status == conclusion.FAIL


@pytest.mark.parametrize("name", ["FUNC-002", "FUNC-008", "FUNC-012", "COMBO-003", "MET-001", "MET-005", "LEAK-001", "STAB-001"])
def test_a_case_that_does_not_say_what_it_needs_is_not_known_of_a_system_that_lacks_it(name: str) -> None:
    """A team's own file may forget to. That is neither a pass nor a traceback."""
    case = case_of(name)
    case = dataclasses.replace(case, needs=(), assertions=tuple(dataclasses.replace(one, needs=()) for one in case.assertions))
    assert ran(case, "c1", system.load("time_slicing"))[0].status in (conclusion.UNKNOWN, conclusion.FAIL)


@pytest.mark.parametrize("defects", [[], ["pending"], ["one_silent"]])
def test_a_conclusion_is_a_measurement(defects: list[str]) -> None:
    case = case_of("MET-003")
    found, _of, _kept = ran(case, "c1", defects=defects)
    subject = {"kind": "group", "id": "gpu_sharing/c1", "members": ["c1/a", "c1/b"]}
    seen = conclusion.observed(found, case, subject, {"cluster": "c1"}, "2026-02-17T10:00:00Z", 3.5, "profile=strict scale=1")
    seen = {name: value for name, value in seen.items() if name not in ("part", "members", "raw")}
    whole = {
        "schema": "measurement/v1", "run_id": "20260101T000000Z-0a1b2c", "stage": "gpu_sharing", "plane": "kubernetes", "target": "c1",
        "attempt": 1, "raw": None, "raw_sha256": None, **seen,
    }  # fmt: skip
    assert measurement.problem(whole) is None
    assert whole["context"]["case"]["expressions"] and whole["context"]["case"]["operation"]
    assert bool(whole["context"].get("findings")) is (found.status == conclusion.FAIL)


def test_while_a_change_is_waited_for_only_the_schedulers_of_its_pods_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: collections.Counter[str] = collections.Counter()
    ask = Memory.ask

    def counted(self: Memory, scheduler: str, path: str) -> t.Any:
        asked[scheduler] += 1
        return ask(self, scheduler, path)

    monkeypatch.setattr(Memory, "ask", counted)
    found, _of, _kept = ran(case_of("PERF-007"), "c1", nodes=4)
    assert found.status == conclusion.PASS
    # Health and metrics before, while the first pods run and after; what else was asked only one could answer.
    assert sorted(asked.values())[:-1] == [6, 6, 6] and max(asked.values()) > 6
