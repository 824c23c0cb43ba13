# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage storage_together: who works when, and the verdict on all nodes together."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.shared_files import LATE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.storage_limits import knee
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.storage_together import STAGE, steps
from harness import records
from harness import report_samples as samples

NODES = [f"n{number}" for number in range(6)]
LUSTRE = {"name": "lustre", "path": "/mnt/lustre", "shared": True}
SETTINGS = {"acceptance_storage": [LUSTRE], "storage_together_seconds": 10, "storage_together_patience": 65,
            "storage_together_window": None, "storage_together_test_timeout": 120}  # fmt: skip


FEW = {"nodes": 1, "write": 1.0, "read": 1.0}


def made_of(check: str, node: str, series: list[dict[str, t.Any]], **context: t.Any) -> t.Any:
    fields = {
        "stage": STAGE.name, "check": check, "variant": "storage=lustre", "subject": {"kind": "node", "id": node, "members": []},
        "target": node, "series": series,
        "context": {"storage": "lustre", "nodes": NODES, "sizes": steps(len(NODES)), "condition": True, "few": FEW, **context},
    }  # fmt: skip
    return records.measurement(fields)


def verdicts(made: t.Sequence[t.Any], nodes: t.Sequence[str] = NODES) -> t.Any:
    items = [{"stage": r.stage, "check": r.check, "variant": r.variant, "subject": r.subject, "target": r.target} for r in made]
    plan: t.Any = samples.plan(nodes, [STAGE.name], items=items)
    return verdict.judge(plan, [r.replaced(run_id=plan.run_id) for r in made], lambda *_who: expectations.shipped(), stages=[STAGE])


def rates(index: int, rate: t.Callable[[int, str], float]) -> list[dict[str, t.Any]]:
    return [{"nodes": size, "way": way, "rate": rate(size, way)} for size in steps(len(NODES)) if index < size for way in ("write", "read")]


def judged(rate: t.Callable[[int, str], float], nodes: t.Sequence[str] = NODES, **context: t.Any) -> t.Any:
    """Return the verdict on all nodes together; `rate` is that of each node in a step of so many."""
    found = verdicts([made_of("together", node, rates(index, rate), **context) for index, node in enumerate(nodes)], nodes)
    (curve,) = [v for v in found.verdicts if v["check"] == "curve"]
    return curve


def test_the_nodes_work_in_steps_of_1_2_4_and_all() -> None:
    assert [steps(count) for count in (2, 3, 4, 6, 64)] == [[1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 6], [1, 2, 4, 8, 16, 32, 64]]


def test_each_node_gets_its_number_in_one_timetable_and_a_file_system_of_one_node_is_left_out() -> None:
    settings = {node: dict(SETTINGS) for node in NODES}
    settings["n0"] = {**SETTINGS, "acceptance_storage": [LUSTRE, {**LUSTRE, "name": "alone", "path": "/alone"}]}
    items, notes = STAGE.items({node: node for node in NODES}, settings)
    assert len(items) == 24 and notes == ["stage storage_together: alone is left out: n0 alone has it"]
    plan: t.Any = samples.plan(NODES, [STAGE.name], items=items)
    work = STAGE.work(t.cast(t.Any, None), plan, t.cast(t.Any, {node: {"settings": settings[node]} for node in NODES}))
    tables = [work[node].options["timetables"] for node in NODES]
    assert [work[node].options["own_name"] for node in NODES] == NODES == tables[0][0]["nodes"]
    assert len({table["token"] for each in tables for table in each}) == 1 and {work[node].starts_in for node in NODES} == {66.0}


@pytest.mark.parametrize("wrong", [{"path": "/dev"}, {"path": None}, {"name": None}, {"shared": "yes"}, {"gibps_read_all": "fast"}])
def test_a_file_system_is_refused_without_the_stage_storage_too(wrong: dict[str, t.Any]) -> None:
    assert STAGE.problem({"acceptance_storage": [LUSTRE]}) is None and STAGE.problem({}) is None
    (key,) = wrong
    assert f"acceptance_storage[0]: {key}: found" in str(STAGE.problem({"acceptance_storage": [{**LUSTRE, **wrong}]}))


BEHIND = {**SETTINGS, "acceptance_nodes_behind": True}


def planned(nodes: dict[str, str], settings: dict[str, t.Any]) -> tuple[list[t.Any], list[str], dict[str, t.Any]]:
    """Return the items, the notes and the work of nodes, {subject id: target}."""
    items, notes = STAGE.items(nodes, settings)
    plan: t.Any = samples.plan(list(nodes), [STAGE.name], items=items)
    todos = {target: {"settings": settings[target]} for target in dict.fromkeys(nodes.values())}
    return list(items), notes, STAGE.work(t.cast(t.Any, None), plan, t.cast(t.Any, todos))


def test_nodes_behind_a_host_get_their_places_when_it_is_known_who_takes_part() -> None:
    nodes = {f"lab/{name}": "lab" for name in NODES}
    items, notes, works = planned(nodes, {"lab": BEHIND})
    assert len(items) == 24 and not notes and works["lab"].starts_in == 66.0
    assert works["lab"].per_node["lab/n3"] == {"own_name": "lab/n3"}
    able = [node for node in nodes if node != "lab/n0"]
    (table,) = STAGE.among(works["lab"], able)["timetables"]
    assert (table["nodes"], table["sizes"]) == (able, [1, 2, 4, 5])
    assert STAGE.among(works["lab"], ["lab/n2"]) == {"timetables": []}, "a node alone sees nothing of others"


def test_a_file_system_is_loaded_by_nodes_that_begin_together_only() -> None:
    nodes = {"a": "a", "b": "b", "lab/n1": "lab", "lab/n2": "lab"}
    items, notes, works = planned(nodes, {"a": SETTINGS, "b": SETTINGS, "lab": BEHIND})
    assert {item.target for item in items} == {"a", "b"} == set(works)
    words = "lustre is measured from the machines of the inventory only, not from lab: they begin apart, and would get in each other's way"
    assert notes == [f"stage storage_together: {words}"]


def test_the_rates_of_those_who_came_are_not_those_of_all() -> None:
    came = NODES[:5]
    context = {"nodes": came, "sizes": steps(5), "stated": {"read": 6.0}}
    made = [made_of("together", node, [{"nodes": size, "way": way, "rate": 1.0} for size in steps(5) if index < size
                                       for way in ("write", "read")], **context) for index, node in enumerate(came)]  # fmt: skip
    lost = {"stage": STAGE.name, "check": "together", "variant": "storage=lustre", "target": "n5", "outcome": "error",
            "subject": {"kind": "node", "id": "n5", "members": []}, "reason_code": "node_busy", "reason": "busy"}  # fmt: skip
    found = verdicts([*made, records.measurement(lost)])
    (curve,) = [v for v in found.verdicts if v["check"] == "curve"]
    assert (curve.verdict, curve.reason_code) == ("UNKNOWN", "incomplete") and "1 of the nodes could not take part" in curve.reason


@pytest.mark.parametrize(("gibps", "word"), [(5.5, "PASS"), (6.5, "WARN"), (9.0, "FAIL")])
def test_the_rate_of_all_nodes_together_is_held_to_what_the_inventory_states(gibps: float, word: str) -> None:
    assert judged(lambda _size, way: 1.0, stated={"read": gibps}).verdict == word


def test_the_rate_of_all_nodes_together_is_shown_where_nothing_is_stated_and_unknown_where_a_node_lacks() -> None:
    assert judged(lambda _size, _way: 1.0).verdict == "PASS"
    lacking = judged(lambda _size, _way: 1.0, NODES[:5])
    assert (lacking.verdict, lacking.reason_code) == ("UNKNOWN", "incomplete")
    assert judged(lambda _size, _way: 1.0, unlike="it is a cache").verdict == "UNKNOWN"


def coherent(contexts: t.Mapping[str, dict[str, t.Any]]) -> list[tuple[str, str, str | None]]:
    """Return the checks of what the nodes see of each other that are no PASS."""
    made = [made_of("coherent", node, [], **{"index": NODES.index(node), "unseen": [], **context}) for node, context in contexts.items()]
    found = verdicts(made)
    return [(v["subject"]["id"], v["verdict"], v["reason_code"]) for v in found.verdicts if v["verdict"] != "PASS"]


def test_a_node_that_sees_no_file_of_the_others_fails_and_those_that_miss_only_its_own_do_not() -> None:
    seen: dict[str, dict[str, t.Any]] = {node: {"unseen": ["n2", "gone"]} for node in NODES}
    seen["n2"] = {"unseen": [node for node in NODES if node != "n2"]}
    assert coherent(seen) == [("n2", "FAIL", "mount_differs")]


@pytest.mark.parametrize(
    ("groups", "bad"),
    [
        (("n0", "n1"), [("n0", "UNKNOWN"), ("n1", "UNKNOWN")]),
        (("n0 n1", "n2"), [("n2", "FAIL")]),
        (("n0 n1", "n2 n3"), [(f"n{number}", "UNKNOWN") for number in range(4)]),
        (("n0 n1 n2", "n3 n4"), [("n3", "FAIL"), ("n4", "FAIL")]),
        (("n0", "n1", "n2"), [(f"n{number}", "UNKNOWN") for number in range(3)]),
    ],
)
def test_nodes_of_a_minority_are_apart_and_without_a_majority_nobody_knows(groups: tuple[str, ...], bad: list[tuple[str, str]]) -> None:
    nodes = [node for group in groups for node in group.split()]
    seen = {node: {"unseen": [other for other in nodes if other not in group.split()]} for group in groups for node in group.split()}
    assert coherent(seen) == [(node, word, "mount_differs") for node, word in bad]


def test_files_of_one_node_that_another_does_not_see_are_unknown() -> None:
    """Either may be at fault; a node that sees nobody's files is another matter."""
    assert coherent({node: {"unseen": ["n2"] if node == "n4" else []} for node in NODES}) == [("n4", "UNKNOWN", "unresolved")]


UNTOLD = [(node, "UNKNOWN", "incomplete") for node in ("n1", "n2", "n3")]


@pytest.mark.parametrize(
    ("first", "bad"),
    [("taken", [("n1", "FAIL", "file_system"), UNTOLD[2]]), ("refused", UNTOLD), ("No locks available", UNTOLD), (LATE, UNTOLD)],
)
def test_a_lock_that_another_node_took_while_the_first_one_held_it_is_found(first: str, bad: list[t.Any]) -> None:
    locks = {"n0": {"flock": first}, "n1": {"flock": "taken"}, "n2": {"flock": "refused"}, "n3": {"flock": LATE}}
    assert coherent({node: {"locks": each} for node, each in locks.items()}) == bad


def test_no_lock_is_proven_where_the_first_node_says_nothing_and_none_is_missed_where_there_is_none() -> None:
    assert coherent({"n1": {"locks": {"flock": "refused"}}, "n2": {"locks": {"flock": "taken"}}}) == UNTOLD[:2]
    assert coherent({node: {"locks": {"flock": "No locks available"}} for node in NODES}) == []


def test_data_read_later_than_a_second_is_a_warning_and_no_answer_unknown() -> None:
    quick, slow = {"echo": {"trips": 9, "ms": 5.0, "most_ms": 900.0}}, {"echo": {"trips": 2, "ms": 5.0, "most_ms": 3000.0}}
    assert coherent({"n0": quick, "n1": slow, "n2": quick}) == [("n1", "WARN", "late_data")]
    silent = {"echo": {"trips": 0}}
    assert coherent({"n0": silent, "n1": quick, "n2": silent}) == [("n0", "UNKNOWN", "incomplete")], "nobody asked n3, which n2 waits for"
    assert coherent({"n0": {**silent, "unseen": ["n1"]}, "n1": quick, "n2": quick, "n4": quick})[0][2] == "unresolved"


def test_what_a_late_node_did_not_try_is_unknown() -> None:
    late = {"not_looked_for": {"visible": "the node was too late", "rename": "the node was too late"}}
    tried = {"echo": {"trips": 9, "ms": 5.0, "most_ms": 9.0}, "replaced": {"replaced": 99}}
    assert coherent({"n0": tried, "n1": late, "n2": tried}) == [("n1", "UNKNOWN", "incomplete")]
    assert coherent({"n0": {**tried, "not_looked_for": {"lock_flock": "none"}}, "n1": tried, "n2": tried}) == []
    saw_none = {**tried, "not_looked_for": {"rename": "n0 did not replace its file while it was looked at"}}
    assert coherent({"n0": tried, "n1": saw_none}) == [("n1", "UNKNOWN", "incomplete")]
    assert coherent({"n1": saw_none, "n2": tried}) == [], "n0 says itself why it did not"


@pytest.mark.parametrize(
    "wrong",
    [
        {"unseen": True}, {"unseen": ["n1", {}]}, {"locks": [1]}, {"locks": {"flock": []}}, {"echo": 5}, {"nodes": 7}, {"index": "N/A"},
        {"owners": {"own": 1.5}}, {"owners": {"next": ["x", 0]}}, {"not_looked_for": "x"},
    ],
)  # fmt: skip
def test_what_has_another_form_than_the_probes_is_unknown(wrong: dict[str, t.Any]) -> None:
    assert coherent({"n0": {}, "n1": wrong, "n2": {}}) == [("n1", "UNKNOWN", "bad_measurement")]


def test_a_node_whose_files_belong_to_somebody_else_than_elsewhere_is_a_warning() -> None:
    owners = {node: {"owners": {"process": [0, 0], "own": [0, 0], "next": [0, 0]}} for node in NODES[:4]}
    assert coherent(owners) == []
    squashed = {**owners, "n2": {"owners": {"process": [0, 0], "own": [65534, 65534], "next": [0, 0]}}}
    squashed["n1"] = {"owners": {"process": [0, 0], "own": [0, 0], "next": [65534, 65534]}}
    assert coherent(squashed) == [("n2", "WARN", "mount_differs")]
    mapped = {**owners, "n1": {"owners": {"process": [0, 0], "own": [0, 0], "next": [65534, 65534]}}}
    assert coherent(mapped) == [("n1", "WARN", "mount_differs")]


@pytest.mark.parametrize(("nodes", "word"), [(NODES, "FAIL"), (NODES[:4], "WARN")])
def test_a_slow_node_is_convicted_by_five_others(nodes: list[str], word: str) -> None:
    made = []
    for index, node in enumerate(nodes):
        rate = 0.1 if node == "n3" else 1.0
        few = {"nodes": 1, "write": rate, "read": rate, "small_ms": 1.0}
        series = rates(index, lambda _size, _way, rate=rate: rate)
        made.append(
            made_of("together", node, series, few=few, link={"interface": "eth0", "mbps": 1000 if node == "n3" else 100000}, nodes=nodes)
        )
    found = {(v["check"], v["subject"]["id"]): v for v in verdicts(made, nodes).verdicts}
    assert (found["together", "n3"]["verdict"], found["together", "n3"]["reason_code"]) == (word, "below_neighbours")
    assert "its link eth0 runs at 1 Gb/s, those of others at 100" in found["together", "n3"]["reason"]
    assert {v["verdict"] for key, v in found.items() if key[0] == "together" and key[1] != "n3"} == {"PASS"}


@pytest.mark.parametrize(
    ("with_all", "few"),
    [
        (0.0, FEW),
        (-5.0, FEW),
        (0.0, {"nodes": 1}),
        (0.1, {"nodes": 1}),
        (0.1, {"nodes": 1, "read": 1.0}),
        (1.0, {}),
        (0.0, {**FEW, "read": 0.1}),
    ],
)
def test_a_node_without_a_rate_with_all_or_with_few_is_unknown(with_all: float, few: dict[str, t.Any]) -> None:
    """It may be as slow as it is late."""
    made = []
    for index, node in enumerate(NODES):
        rate = with_all if node == "n3" else 1.0
        series = rates(index, lambda _size, _way, rate=rate: rate) if rate else []
        made.append(made_of("together", node, series, few=few if node == "n3" else FEW))
    found = {v["subject"]["id"]: v for v in verdicts(made).verdicts}
    assert (found["n3"]["verdict"], found["n3"]["reason_code"]) == ("UNKNOWN", "incomplete")
    assert {found[node]["verdict"] for node in NODES if node != "n3"} == {"PASS"}


def test_a_node_that_began_later_convicts_no_locks_and_no_sum() -> None:
    """A host that is slow to start counts from then on: the first one may have let its locks go, and the others are done."""
    tried = {"replaced": {"replaced": 99}, "locks": {"flock": "taken"}}
    saw_none = {**tried, "not_looked_for": {"rename": "n0 did not replace its file while it was looked at"}}
    assert coherent({"n0": tried, "n1": {**tried, "locks": {"flock": "refused"}}, "n2": saw_none}) == [("n2", "UNKNOWN", "incomplete")]
    made = [made_of("together", node, rates(index, lambda _size, _way: 1.0)) for index, node in enumerate(NODES)]
    seen = {node: {**tried, "locks": {"flock": "taken" if node == "n0" else "refused"}, "unseen": []} for node in NODES}
    for word, n4 in (("PASS", seen["n4"]), ("UNKNOWN", {**saw_none, "locks": {"flock": "refused"}, "unseen": []})):
        of_coherent = [made_of("coherent", node, [], index=index, **{**seen, "n4": n4}[node]) for index, node in enumerate(NODES)]
        (curve,) = [v for v in verdicts([*made, *of_coherent]).verdicts if v["check"] == "curve"]
        assert curve["verdict"] == word and (word == "PASS" or "n4 may have begun at another time" in curve["reason"])


def test_patterns_count_all_bytes_in_the_time_of_the_slowest_node_which_is_named() -> None:
    made = [made_of("together", node, rates(index, lambda _size, _way: 1.0)) for index, node in enumerate(NODES)]
    for node in NODES:
        rate = 0.5 if node == "n4" else 2.0
        rows = [{"way": way, "rate": rate, "gib": 1.0} for way in ("write", "read")]
        echo = {"trips": 5, "ms": 2.0, "most_ms": 8.0 if node == "n1" else 4.0}
        made += [made_of("checkpoint", node, rows), made_of("coherent", node, [], index=NODES.index(node), unseen=[], echo=echo)]
        if node != "n5":
            made.append(made_of("model_load", node, rows[1:]))
    found = STAGE.derived({record.key: record for record in made}, t.cast(t.Any, None), t.cast(t.Any, None))
    (curve,) = found
    assert curve.metrics["checkpoint_write"].value == curve.metrics["checkpoint_read"].value == 3.0
    assert "model_load" not in curve.metrics, "n5 lacks"
    assert curve.context["patterns"]["checkpoint_read"]["slowest"] == "n4"
    (first, second) = STAGE.sections([(t.cast(t.Any, None), curve)])
    assert first["said"][-1] == "What a node has written and synced the next one reads 2 ms later, at most 8 ms (n1)."
    assert second["rows"][0] == ["each writes its checkpoint and syncs it", "3", "n4", "0.5"]


def test_the_knee_is_where_each_node_gets_less_than_one_alone() -> None:
    rows = [{"nodes": size, "read": min(4.0, size * 1.0)} for size in (1, 2, 4, 8)]
    assert knee(rows, "read") == "read: from 8 nodes on each gets 50% or less of the 1 GiB/s that one has alone."
    assert knee(rows[:3], "read").startswith("read: each of 4 nodes gets at least 80%") and knee(rows, "write") == ""
