# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The 49 cases as data: each has the clusters, loads, expressions, gates and skips of the public plan; and what is no case is refused."""

from __future__ import annotations

import pathlib
import re
import sys
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import (
    actions,
    cases,
    expressions,
    parameters,
    system,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import register

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "tests" / "tools"))
import sharing_cases

# Of the public plan and its test code: clusters, loads, skips, and what the faithful profile holds.
BOTH, C1, C2 = ("c1", "c2"), ("c1",), ("c2",)
OOM = "failed(main) >= 1 or logged(main, oom) >= 1 or succeeded(main) < 1"
MEMORY, CORE = "scheduler_logged(memory_signal) >= 1", "scheduler_logged(core_signal) >= 1"
FALLING = "succeeded(all) == 3 and runtime(q25) > runtime(q50) > runtime(q75)"
REFERENCE: dict[str, tuple[tuple[str, ...], set[str], str]] = {
    "FUNC-001": (BOTH, {"w2"}, "succeeded(main) == 1"),
    "FUNC-002": (BOTH, {"w2"}, "succeeded(main) == 2"),
    "FUNC-003": (BOTH, {"w2"}, "succeeded(main) == 12"),
    "FUNC-004": (BOTH, {"w4a"}, OOM),
    "FUNC-005": (BOTH, {"w4a"}, "logged(main, oversubscribed) >= 1 and schedulers(end) >= 1"),
    "FUNC-006": (BOTH, {"w2"}, OOM),
    "FUNC-007": (BOTH, {"w2"}, "succeeded(main) == 1"),
    "FUNC-008": (BOTH, {"w2"}, FALLING),
    "FUNC-009": (BOTH, {"w2"}, "succeeded(all) == 2 and runtime(low) > runtime(high)"),
    "FUNC-010": (BOTH, {"w5"}, MEMORY),
    "FUNC-011": (BOTH, {"w5"}, MEMORY),
    "FUNC-012": (BOTH, {"w5"}, CORE),
    "COMBO-001": (C1, {"w1"}, "failed(main) >= 1 or logged(main, oom_or_quota) >= 1"),
    "COMBO-002": (BOTH, {"w2"}, "runtime(low) > runtime(high)"),
    "COMBO-003": (BOTH, {"w2"}, "succeeded(all) == 2"),
    "COMBO-004": (BOTH, {"w5"}, f"{MEMORY} and {CORE}"),
    "COMBO-005": (C1, {"w5"}, "schedulers(end) >= 1 and scheduler_logged(memory_signal) >= 2"),
    "COMBO-006": (BOTH, {"w5"}, "scheduler_logged(core_signal) >= 2 and logged(main, probe) >= 1"),
    "COMBO-007": (
        BOTH, {"w2", "w3", "w5"},
        "succeeded(all) >= 3 and present(mid, client_memory_quota_bytes) >= 1 and present(mid, client_core_quota_effective_percent) >= 1",
    ),
    "COMBO-008": (BOTH, {"w5"}, "gpus_known(mid, all) >= 2"),
    "PERF-001": (BOTH, {"w2"}, "succeeded(main) == 1 and runtime(main) > 0"),
    "PERF-002": (BOTH, {"w2"}, "(runtime(on) - runtime(off)) / runtime(off) * 100 <= metrics_overhead_max_pct"),
    "PERF-003": (BOTH, {"w2"}, FALLING),
    "PERF-004": (BOTH, {"w2"}, "runtime(low) / runtime(high) >= mix_ratio_min"),
    "PERF-005": (
        C1, {"w1"},
        "failed(off) == 1 and succeeded(on) == 1 or succeeded(off) == 1 and succeeded(on) == 1 and runtime(off) > 0 and runtime(on) > 0",
    ),
    "PERF-006": (C2, {"w1"}, "succeeded(on) == 1"),
    "PERF-007": (BOTH, {"w5"}, "observed(up) and latency(up) <= dynamic_update_expect_s"),
    "PERF-008": (BOTH, {"w2"}, "rungs_succeeded() == rungs()"),
    "MET-001": (BOTH, set(), "healthy(now) >= 1 and answering(now) >= 1"),
    "MET-002": (BOTH, {"w2"}, "missing(now) == 0"),
    "MET-003": (
        BOTH, {"w2"},
        "total(mid, scheduler_running_clients) >= 1 and (total(mid, client_nvml_used_bytes) > 0 or "
        "total(mid, client_managed_allocated_bytes) > 0) and total(mid, gpu_memory_used_bytes) > 0",
    ),
    "MET-004": (
        BOTH, {"w5"}, "metric(mid, client_memory_quota_bytes, main) > 0 and metric(mid, client_core_quota_config_percent, main) >= 35",
    ),
    "MET-005": (BOTH, {"w5"}, "observed(memory_up) and observed(core_up) and slowest_change() <= dynamic_update_expect_s"),
    "MET-006": (BOTH, {"w2"}, "peak(series, gpu_utilization_ratio) >= util_min_ratio"),
    "MET-007": (BOTH, set(), "scrapes(stress) >= 5 and healthy(after) >= 1"),
    "MET-008": (BOTH, {"w1"}, "peak_of_sums(series, gpu_memory_used_bytes, gpu_memory_total_bytes) >= high_mem_alert_ratio"),
    "STAB-001": (C1, {"w2"}, "fewest_schedulers(round) >= 1"),
    "STAB-002": (C2, {"w2", "w3"}, "fewest_schedulers(round) >= 1"),
    "STAB-003": (BOTH, {"w5"}, CORE),
    "STAB-004": (BOTH, {"w5"}, MEMORY),
    "LEAK-001": (BOTH, {"w4a"}, "rss_growth(round) <= leak_rss_growth_max_kb"),
    "LEAK-002": (BOTH, {"w4a"}, "fd_growth(round) <= leak_fd_growth_max"),
    "LEAK-003": (
        BOTH, {"w2"}, "total(after, gpu_memory_used_bytes) <= total(before, gpu_memory_used_bytes) + leak_gpu_recover_tolerance_bytes",
    ),
    "LEAK-004": (BOTH, {"w2"}, "present(after, client_info) <= leak_ghost_client_max"),
    "LEAK-005": (BOTH, {"w4a"}, "client_series(after) - client_series(before) <= leak_series_growth_max"),
    "FAIL-001": (BOTH, {"w5"}, "schedulers(end) >= 1"),
    "FAIL-002": (BOTH, {"w2", "w5"}, "schedulers(end) >= 1"),
    "FAIL-003": (C1, {"w2"}, "done(drained)"),
    "FAIL-004": (C2, {"w2"}, "succeeded(main) >= 1"),
}  # fmt: skip
NARROWER = {"FUNC-003": C1, "FUNC-004": C1}  # the plan names one cluster where the code has no guard
DESTRUCTIVE = {"FAIL-001", "FAIL-002", "FAIL-003", "FAIL-004"}
COLOCATED = {
    cases.FAITHFUL: {"COMBO-002", "PERF-004"},
    cases.STRICT: {"FUNC-002", "FUNC-009", "COMBO-002", "COMBO-003", "PERF-004", "STAB-001"},
}
# Those about loads under quotas one after the other: what is too short for a quota is no measurement.
TOO_SHORT = {"FUNC-008", "PERF-003"}
SYSTEM = system.load("nvshare")


def loads(steps: t.Iterable[t.Any]) -> set[str]:
    found = set()
    for step in steps:
        verb, taken = actions.kind_of(step)
        if verb == "make":
            found.add(taken["workload"])
        found |= loads(taken["do"]) if "do" in taken else loads([{"make": one} for one in taken["make"]] if verb == "together" else [])
    return found


@pytest.mark.parametrize("case", cases.shipped(cases.FAITHFUL), ids=lambda case: case.id)
def test_a_faithful_case_is_that_of_the_public_code(case: cases.Case) -> None:
    clusters, workloads, expression = REFERENCE[case.id]
    assert (case.clusters, loads(case.steps)) == (clusters, workloads)
    assert [one.expression for one in case.assertions] == [expression]
    assert bool(case.skips) is (case.id in COLOCATED[cases.FAITHFUL])


@pytest.mark.parametrize("case", cases.shipped(cases.STRICT), ids=lambda case: case.id)
def test_a_strict_case_says_what_it_means_where_an_assertion_does_not_hold(case: cases.Case) -> None:
    assert case.clusters == NARROWER.get(case.id, REFERENCE[case.id][0])
    assert case.destructive is (case.id in DESTRUCTIVE)
    assert bool(case.skips) is (case.id in COLOCATED[cases.STRICT] | TOO_SHORT)
    assert all(one.cause for one in case.assertions)
    assert {gate for one in case.assertions for gate in one.gates} >= set(case.gates)
    soak = case.id.startswith(("STAB", "LEAK")) and case.id != "LEAK-003"
    assert case.soak is soak and (not soak or case.gates == ("P2",))


@pytest.mark.parametrize("profile", cases.PROFILES)
def test_all_49_are_there_in_their_order_and_know_what_they_name(profile: str) -> None:
    found = cases.shipped(profile)
    assert [case.id for case in found] == list(REFERENCE)
    assert len({case.check for case in found}) == 49
    for case in found:
        operation, sampling = actions.describe(case.steps)
        assert operation or sampling
        assert all(text for text in (*operation, *sampling))
        for cluster in case.clusters:
            settled = parameters.settle(cluster, 1, {})
            assert cases.unknown_words(case, SYSTEM, settled.values) is None


def test_every_assertion_can_be_unknown_and_none_passes_on_nothing() -> None:
    """Fail closed: where nothing at all was seen, no assertion of a strict case holds but those that count absent things as none."""
    def nothing(word: str, args: t.Sequence[t.Any]) -> float:
        raise expressions.Absent("nothing was seen")

    for case in cases.shipped(cases.STRICT):
        settled = parameters.settle(case.clusters[0], 1, {})
        for one in case.assertions:
            assert expressions.evaluate(one.expression, nothing, settled.numbers).holds is None


OF_METRICS = {
    "latency", "observed", "changes_observed", "slowest_change", "clients", "client_series", "series_of", "gpus", "gpus_known", "colocated",
    "memory_left", "missing", "healthy", "answering", "scrapes", "scraped", "scrape_p95",
    *(name for name, word in register.WORDS.items() if register.METRIC in word.kinds),
}  # fmt: skip


@pytest.mark.parametrize("case", cases.shipped(cases.STRICT), ids=lambda case: case.id)
def test_what_is_asserted_of_metrics_is_not_asked_of_a_system_without(case: cases.Case) -> None:
    for one in case.assertions:
        if OF_METRICS & {call.word for call in expressions.calls(expressions.parse(one.expression))}:
            assert "metrics" in (*case.needs, *one.needs), one.expression


def test_the_page_says_what_each_case_asserts_as_its_file_does() -> None:
    page = sharing_cases.PAGE.read_text(encoding="utf-8")
    assert page == sharing_cases.text(page), "python tests/tools/sharing_cases.py"
    section = page.partition(sharing_cases.TITLE)[2].partition(sharing_cases.NEXT)[0]
    for case in cases.shipped(cases.STRICT):
        assert f"| {case.id} | {case.title}" in section
        assert all(f"`{one.expression}`" in section for one in case.assertions)


@pytest.mark.parametrize("case", cases.shipped(cases.STRICT), ids=lambda case: case.id)
def test_a_quota_changes_only_when_its_pod_holds_its_memory_and_is_known(case: cases.Case) -> None:
    """One that runs is no client yet: it would begin with the new quota, of which no log tells a change, and may not fit into it."""
    ready: set[str] = set()

    def walk(steps: t.Iterable[t.Any]) -> None:
        for step in steps:
            verb, taken = actions.kind_of(step)
            if verb == "make":
                ready.discard(taken["group"])
            elif verb == "probes":
                ready.add(taken["group"])
            elif verb == "progress":
                ready.update(actions.names(case.steps).groups if taken["group"] == "all" else [taken["group"]])
            elif verb == "change":
                assert any(re.fullmatch(re.sub(r"{\w+}", r"\\w+", group), taken["group"]) for group in ready), taken
            elif "do" in taken:
                walk(taken["do"])

    walk(case.steps)


def test_operation_and_sampling_are_said() -> None:
    case = next(case for case in cases.shipped(cases.STRICT) if case.id == "FUNC-011")
    operation, sampling = actions.describe(case.steps)
    assert operation[0] == "make 1 pod main of w5 with memory quota 8Gi, a new allocation of 1Gi at each probe, a probe every 1 s"
    assert "set the memory quota of main to 2Gi" in operation
    assert "metrics of every scheduler until they show down" in sampling


# What is refused ---------------------------------------------------------------------------------------------------------

GOOD: dict[str, t.Any] = {
    "suite": "own",
    "letter": "o",
    "cases": [
        {
            "id": "OWN-001", "title": "One of ours", "clusters": ["c1"], "gates": ["P0"],
            "steps": [{"make": {"group": "main", "workload": "w2"}}, {"wait": {"group": "main", "until": "ended"}}],
            "assert": {"strict": ["succeeded(main) == 1"], "faithful": ["succeeded(main) == 1"]},
        }
    ],
}  # fmt: skip


def own(tmp_path: pathlib.Path, **changes: t.Any) -> list[cases.Case]:
    given = {**GOOD, "cases": [{**GOOD["cases"][0], **changes}]}
    path = tmp_path / "own.yml"
    path.write_text(yaml.safe_dump(given))
    return cases.load(str(path), cases.STRICT)


def test_a_team_adds_a_case_without_python(tmp_path: pathlib.Path) -> None:
    (found,) = own(tmp_path)
    assert (found.check, found.suite, found.gates) == ("own_001", "own", ("P0",))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clusters": ["c3"]}, "'c3' is not one of"),
        ({"gates": ["P3"]}, "'P3' is not one of"),
        ({"steps": [{"dance": {}}]}, "'dance' was unexpected"),
        ({"steps": [{"make": {"group": "main", "workload": "w9"}}]}, "'w9' is not one of"),
        ({"steps": [{"change": {"as": "up", "group": "main", "core": 1, "memory": "1Gi"}}]}, "cases.0.steps.0.change"),
        ({"assert": {"strict": []}}, "'faithful' is a required property"),
        ({"assert": {"strict": [], "faithful": []}}, "a case that cannot fail proves nothing"),
        ({"assert": {"strict": ["succeeded(other) == 1"], "faithful": ["1 == 1"]}}, "no step makes the group other"),
        ({"assert": {"strict": ["healthy(mid) == 1"], "faithful": ["1 == 1"]}}, "no step makes the sample mid"),
        ({"assert": {"strict": ["suceeded(main) == 1"], "faithful": ["1 == 1"]}}, "suceeded is not known"),
        ({"assert": {"strict": ["succeeded(main) = 1"], "faithful": ["1 == 1"]}}, "which is no expression"),
        ({"skip": {"strict": [{"rule": "because", "when": "count(main) == 1"}]}}, "found rule 'because'"),
        ({"extra": 1}, "'extra' was unexpected"),
    ],
)
def test_what_is_no_case_is_refused_in_one_sentence(tmp_path: pathlib.Path, changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(RunError) as caught:
        own(tmp_path, **changes)
    assert words in str(caught.value) and "own.yml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_case_that_disturbs_says_so_and_names_its_node(tmp_path: pathlib.Path) -> None:
    drain = [{"repeat": {"rounds": 2, "do": [{"drain": {"as": "d"}}, {"uncordon": {"as": "u"}}]}}]
    with pytest.raises(RunError, match="it disturbs the cluster; expected destructive: true"):
        own(tmp_path, steps=[*GOOD["cases"][0]["steps"], {"restart": {"as": "r", "what": "plugin"}}])
    with pytest.raises(RunError, match="expected node: drain_node or stress_node"):
        own(tmp_path, steps=[*GOOD["cases"][0]["steps"], *drain], destructive=True)
    assert own(tmp_path, steps=[*GOOD["cases"][0]["steps"], *drain], destructive=True, node="drain_node")


def test_cases_are_chosen_by_name_suite_and_smoke() -> None:
    all_ = cases.shipped(cases.STRICT)
    smoke = parameters.settle("c1", 1, {}).smoke
    assert [case.id for case in cases.chosen(all_, ["met-005", "FUNC-001"], [], None)] == ["FUNC-001", "MET-005"]
    assert {case.suite for case in cases.chosen(all_, [], ["metrics"], None)} == {"metrics"}
    assert [case.id for case in cases.chosen(all_, [], [], smoke)] == ["FUNC-001", "FUNC-007", "COMBO-003", "MET-001"]
    for wrong in (["FUNC-999"], [], None), ([], ["strange"], None), (["FUNC-002"], [], smoke):
        with pytest.raises(RunError, match="gpu_sharing_"):
            cases.chosen(all_, *wrong)


def test_cases_beyond_the_matrix_run_only_if_they_are_named_and_no_gate_depends_on_them() -> None:
    beyond = cases.beyond(cases.STRICT)
    all_ = [*cases.shipped(cases.STRICT), *beyond]
    assert len(cases.chosen(all_, [], [], None)) == 49
    assert cases.chosen(all_, [], ["robustness"], None) == beyond
    assert [case.id for case in cases.chosen(all_, ["FUNC-001", "robust-004"], [], None)] == ["FUNC-001", "ROBUST-004"]
    assert not any(case.gates or assertion.gates for case in beyond for assertion in case.assertions)
    for case in beyond:
        assert all(assertion.cause for assertion in case.assertions) and case.clusters == cases.CLUSTERS
        assert cases.unknown_words(case, SYSTEM, parameters.settle("c1", 1, {}).values) is None


def test_a_scaled_run_shortens_soaks_and_waits_and_nothing_else() -> None:
    whole, small = parameters.settle("c1", 1, {}), parameters.settle("c1", 0.002, {})
    assert (whole.values["stab_short_s"], small.values["stab_short_s"]) == (21600, pytest.approx(43.2))
    assert (whole.values["leak_rounds"], small.values["leak_rounds"]) == (20, 3)
    assert small.numbers["dynamic_update_expect_s"] == 15 and small.numbers["memory"] == 4 << 30
    assert (whole.seconds(12), small.seconds(12), small.interval(2), small.watch(120, 2)) == (12, 1, 0.2, 2)
    assert parameters.settle("c2", 1, {}).numbers["memory"] == 8 << 30
    for wrong in ({"memori": "1Gi"}, {"memory": "much"}, {"scale_set": []}):
        with pytest.raises(RunError, match="gpu_sharing_parameters"):
            parameters.settle("c1", 1, wrong)
    for scale in (0, -1, 1.5):
        with pytest.raises(RunError, match="gpu_sharing_scale"):
            parameters.settle("c1", scale, {})


def test_a_system_has_its_names_from_its_prefix(tmp_path: pathlib.Path) -> None:
    later = system.load("nvshare", {"prefix": "xpushare"})
    assert (later.resource, later.annotations["core"], later.metrics) == ("xpushare.com/gpu", "xpushare.com/gpu-core-limit", "xpushare_")
    looked = later.pattern("core_changed", namespace="d", pod="a.b", value="80")
    assert looked == r"Compute limit changed for pod d/a\.b: {before}% -> 80%"
    with pytest.raises(RunError, match=r"gpu_sharing_system nvshare: prefix: found 'a b'"):
        system.load("nvshare", {"prefix": "a b"})
    with pytest.raises(RunError, match=r"patterns\.oom: found '\(', which is no regular expression"):
        system.load("nvshare", {"patterns": {"oom": "("}})
    with pytest.raises(RunError, match="expected one of nvshare"):
        system.load(str(tmp_path / "absent.yml"))
