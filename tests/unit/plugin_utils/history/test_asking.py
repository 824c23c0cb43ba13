# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Questions to the history: by node, check, day and verdict; a series; two runs side by side; the section of a report."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import pathlib
import shutil
import typing as t

import pytest
import sqlalchemy as sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparing, folders, found, searching, showing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.searching import HistorySubject, Quantity, Query
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store, url_of
from harness import history_runs as runs
from harness.history_runs import Machine

TFLOPS = Quantity("gemm", "bf16", runs.VARIANT, "tflops", "TFLOPS")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Seven runs of two machines with a GPU each: in the fourth b is slow, in the fifth it is renamed, and in the last two the GPU of a
    is in c, with a newer driver there. The last one is simulated."""
    folder = tmp_path_factory.mktemp("history") / "results"
    for day in range(1, 4):
        runs.judged(folder, day, runs.fleet(a=670.0 + day, b=660.0 + day / 10))
    runs.judged(folder, 4, runs.fleet(a=670.0, b=500.0))
    runs.judged(folder, 5, {"a": Machine("a" * 32, {97: 671.0}), "new": Machine("b" * 32, {98: 661.0})})
    moved = {"c": Machine("c" * 32, {97: 671.0}, driver="590.2"), "new": Machine("b" * 32, {98: 640.0}, driver="590.2")}
    runs.judged(folder, 6, moved)
    simulated = {name: Machine(of.machine_id, of.gpus, simulated=True) for name, of in moved.items()}
    runs.judged(folder, 7, simulated)
    with Store(url_of(folder), make=True) as store:
        assert folders.bring(store, str(folder)).left_out == []
    return folder


@pytest.fixture
def results(made: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of the results folder with the seven runs and their history. Tests may change it."""
    return pathlib.Path(shutil.copytree(made, tmp_path / "results"))


@pytest.fixture
def store(results: pathlib.Path) -> t.Iterator[Store]:
    with Store(url_of(results)) as opened:
        yield opened


def test_a_series_is_the_subjects_whatever_its_name_and_never_the_simulated_one(store: Store) -> None:
    whom = HistorySubject("node", f"machine:{'b' * 32}", False)
    of = searching.series(store, whom, TFLOPS)
    assert [(run[6:8], value) for run, _at, value in of] == [
        ("01", 660.1),
        ("02", 660.2),
        ("03", 660.3),
        ("04", 500.0),
        ("05", 661.0),
        ("06", 640.0),
    ]
    assert of[0][1] == "2026-01-01T00:00:00Z"
    assert searching.series(store, whom, TFLOPS, before_run=runs.run_id(3)) == of[:2]
    assert len(searching.series(store, whom._replace(simulated=True), TFLOPS)) == 1
    every = {(subject, quantity): points for subject, quantity, points in searching.all_series(store, runs.run_id(7))}
    assert every[whom, TFLOPS] == of and not [subject for subject, _q in every if subject.simulated]


def test_a_node_is_found_by_every_name_with_the_parts_that_it_had_then(store: Store) -> None:
    found = searching.search(store, Query(node="b"))
    assert [run["run"] for run in found.runs] == [runs.run_id(day) for day in range(6, 0, -1)]
    assert {row["subject"] for row in found.rows} == {"b", f"b/gpu/{runs.uuid(98)}", "new", f"new/gpu/{runs.uuid(98)}"}
    # By its new name also the simulated one, which never had the old one.
    assert found.rows == [row for row in searching.search(store, Query(node="new")).rows if not row["simulated"]]
    of_a = searching.search(store, Query(node="a", check="gemm bf16"))
    assert f"c/gpu/{runs.uuid(97)}" not in {row["subject"] for row in of_a.rows} and len(of_a.runs) == 5
    assert len(searching.search(store, Query(node="?")).runs) == 7


def test_what_is_seldom_is_found_by_an_index_and_is_all_that_there_is(store: Store) -> None:
    with store.writing() as connection:
        connection.exec_driver_sql("UPDATE verdict SET regressed = 1 WHERE judgement_id IN (2, 4) AND subject_id % 2 = 0")
    every = searching.search(store, Query()).rows
    plans: list[str] = []

    @sa.event.listens_for(store.engine, "before_cursor_execute")
    def planned(_connection: t.Any, cursor: t.Any, statement: str, parameters: t.Any, *_context: t.Any) -> None:
        if "FROM verdict" in statement:
            plans.extend(row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall())

    def key(row: dict[str, t.Any]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in ("run", "subject", "simulated", "stage", "check", "verdict", "regressed"))

    for words, regressed, check in itertools.product(("", "FAIL", "fail,PASS", "WARN,FAIL"), (False, True), ("", "gemm bf16")):
        of_check = [row for row in every if row["stage"] == "gemm" or not check]
        of_words = [row for row in of_check if not words or row["verdict"] in words.upper().split(",")]
        wanted = [key(row) for row in of_words if row["regressed"] or not regressed]
        for most in (0, 1000):
            plans.clear()
            found = searching.found_in_runs(store, Query(verdict=words, check=check), most, regressed)
            assert sorted(key(row) for _run, rows in found for row in rows) == sorted(wanted)
            if regressed or words in ("FAIL", "WARN,FAIL"):
                index = "verdict_worse" if regressed else "verdict_bad"
                assert not [plan for plan in plans if "PRIMARY KEY (judgement_id=?)" in plan and "subject_id" not in plan], plans
                assert [plan for plan in plans if f"COVERING INDEX {index}" in plan]
    assert [row for row in every if row["regressed"]] and [row for row in every if row["verdict"] == "FAIL"]


def test_a_search_returns_only_rows_that_match(store: Store) -> None:
    bad = searching.search(store, Query(verdict="fail", check="bf16"))
    assert [(row["subject"], row["value"], row["floor"]) for row in bad.rows] == [
        ("b", 500.0, 636.5),
        (f"b/gpu/{runs.uuid(98)}", 500.0, 636.5),
    ]
    assert {one["metric"]: one["value"] for one in bad.rows[0]["numbers"]} == {"tflops": 500.0, "time_ms": 2.2}
    assert len(searching.search(store, Query(since="2026-01-06")).runs) == 2
    assert len(searching.search(store, Query(run=runs.run_id(2), check="stack")).rows) == 2
    few = searching.search(store, Query(), limit=5)
    assert len(few.rows) == 5 and few.cut


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Query(node="x"), "node x is not in the history .*; there are a, b, c, new"),
        (Query(check="x"), "check x is not in the history .*; there are gemm bf16, stack facts"),
        (Query(verdict="bad"), "verdict: found BAD, expected some of FAIL"),
        (Query(since="soon"), "since: found 'soon', expected a day as 2026-08-01, or 30d"),
        (Query(run="x"), "run x is not in the history"),
    ],
)
def test_a_search_for_an_unknown_name_lists_the_known_ones(store: Store, asked: Query, said: str) -> None:
    with pytest.raises(HistoryError, match=said):
        searching.search(store, asked)


def test_days_are_said_as_people_say_them() -> None:
    today = datetime.date(2026, 8, 31)
    assert [searching.since_when(text, today) for text in ("", "2026-08-01", "30d", "8w", "1y")] == [
        "",
        "2026-08-01",
        "2026-08-01",
        "2026-07-06",
        "2025-08-31",
    ]


@pytest.mark.parametrize("text", ["soon", "99999999999d", "3000y", "9" * 5000 + "d"])
def test_a_day_that_is_none_is_named(text: str) -> None:
    with pytest.raises(HistoryError, match="until: found"):
        searching.since_when(text, name="until")


@pytest.mark.parametrize("moment", ["2026-99-99T00:00:00Z", "2026-02-30T10:00:00Z", "2026-08-01T25:00:00Z"])
def test_a_moment_that_never_is_is_named(store: Store, moment: str) -> None:
    with pytest.raises(HistoryError, match="until: found"):
        searching.runs(store, until=moment)
    assert searching.runs(store, until="2999-08-01T10:00:00Z") == searching.runs(store)


def test_the_table_and_the_page_say_what_was_found(store: Store) -> None:
    asked = Query(node="new")
    found = searching.search(store, asked)
    lines = [line for line, _colour in showing.table(found)]
    assert lines[0].split()[:4] == ["node", "run", "worst", "verdicts"] and any(line.startswith("new*") for line in lines[1:4])
    assert lines.index("") == len({row["subject"].split("/gpu/")[0] for row in found.rows}) + 1  # one row for each node
    assert lines[lines.index("") + 1].split() == ["run", "subject", "check", "verdict", "value", "floor"]
    assert (
        any(line.split()[1:2] == ["new*"] for line in lines)
        and lines[-1] == f"{len(found.rows)} verdicts in 7 runs: 2 FAIL, {len(found.rows) - 2} PASS"
    )
    page = showing.html(asked, found)
    figures = [json.loads(text.split("</script>")[0]) for text in page.split('data-plot="plot-')[1:] for text in [text.split(">", 1)[1]]]
    of = next(figure for figure in figures if figure["data"][0]["name"] == "new" and len(figure["data"][0]["y"]) == 6)
    assert of["data"][0]["y"] == [660.1, 660.2, 660.3, 500.0, 661.0, 640.0] and of["data"][-1]["meta"] == "floor"
    assert "gemm bf16: tflops (simulated)" in page and "node new" in page


def compared(store: Store, before: int, after: int) -> dict[str, t.Any]:
    return comparing.compare(store, comparing.of_run(store, runs.run_id(before)), comparing.of_run(store, runs.run_id(after)))


def test_a_comparison_of_two_runs_has_both_values_and_the_change(store: Store) -> None:
    found = compared(store, 5, 6)
    value = next(one for one in found["values"] if one["subject"] == "new")
    assert (value["before"], value["after"], value["metric"]) == (661.0, 640.0, "tflops") and value["beyond"]
    assert value["change_pct"] == pytest.approx(-3.177, abs=0.001) and value["scatter_pct"] == pytest.approx(0.02246, abs=0.001)
    assert {(one["what"], one["subject"], one["before"], one["after"]) for one in found["places"]} == {
        ("came", "c", None, "c"), ("moved", f"c/gpu/{runs.uuid(97)}", "a", "c"),
    }  # fmt: skip
    assert found["facts"] == [{"item": "driver", "before": "580.1", "after": "590.2", "nodes": ["new"]}]
    said = comparing.sentences(found)
    assert "new gemm bf16: tflops 640.0 TFLOPS, 661.0 before, -3.2 % where it lay within 0.0 %" in said
    assert "driver is 590.2, 580.1 before, on new" in said and any("moved from a to c" in line for line in said)


def test_a_renamed_node_its_gpu_and_a_changed_verdict(store: Store) -> None:
    found = compared(store, 4, 5)
    assert {(one["what"], one["subject"], one["before"]) for one in found["places"]} == {("renamed", "new", "b")}
    assert {(one["subject"], one["before"], one["after"]) for one in found["verdicts"]} == {
        ("new", "FAIL", "PASS"), (f"new/gpu/{runs.uuid(98)}", "FAIL", "PASS"),
    }  # fmt: skip
    young = compared(store, 1, 2)
    assert all(one["beyond"] is None for one in young["values"]) and "4 have too short a history to say" in comparing.sentences(young)[-1]


def test_a_module_that_was_changed_is_told_with_both_serial_numbers(tmp_path: pathlib.Path) -> None:
    def plugged(*serials: str) -> dict[str, runs.Machine]:
        modules = [{"port": f"mlx5_{place}/1", "vendor": "Maker", "serial": serial} for place, serial in enumerate(serials) if serial]
        return {"a": dataclasses.replace(runs.fleet(a=670)["a"], lists={"modules": modules})}

    for day, machines in enumerate((plugged("MT1", "MT2"), plugged("MT1", "MT9"), plugged("MT1", "")), 1):
        runs.judge(runs.measured(tmp_path, day, machines))
    with Store(url_of(tmp_path), make=True) as made:
        assert folders.bring(made, str(tmp_path)).left_out == []
        (change,) = compared(made, 1, 2)["facts"]
        assert change == {"item": "optical module or cable in mlx5_1/1", "before": "Maker MT2", "after": "Maker MT9", "nodes": ["a"]}
        # What one of the runs did not read says nothing.
        assert compared(made, 2, 3)["facts"] == []


def test_simulated_and_real_are_never_compared(store: Store) -> None:
    found = compared(store, 6, 7)
    assert found["in_common"] == 0 and comparing.sentences(found)[-1] == "no check in common: no verdict and no number could be compared"
    assert not found["values"] and not found["verdicts"] and not found["facts"]
    assert comparing.last_accepted(store, comparing.of_run(store, runs.run_id(7))) is None


def test_the_last_accepted_run_is_that_of_the_same_subjects(store: Store, results: pathlib.Path) -> None:
    assert comparing.last_accepted(store, comparing.of_run(store, runs.run_id(5))) == runs.run_id(3)
    other = runs.judged(results, 8, runs.fleet(z=670.0))
    again = runs.judged(results, 9, runs.fleet(a=670.0))
    folders.bring(store, str(results))
    assert comparing.last_accepted(store, comparing.of_run(store, other.id)) is None
    assert comparing.last_accepted(store, comparing.of_run(store, again.id)) == runs.run_id(5)
    # Of a part of the fleet nobody else is said to have gone.
    assert not [one for one in compared(store, 5, 9)["places"] if one["what"] == "went" and one["kind"] == "node"]


def test_nodes_that_a_run_was_not_to_measure_neither_came_nor_went(tmp_path: pathlib.Path) -> None:
    """Of hosts behind --limit and of the nodes of a cluster that a request does not name."""
    whole = {name: Machine(name[-1] * 32, {number: 670.0}) for number, name in enumerate(("a", "lab/n1", "lab/n2", "lab/n3"), 1)}
    targets = {"a": {"plane": "ssh"}, "lab": {"plane": "kubernetes"}}
    runs.judge(runs.measured(tmp_path, 1, whole, targets=targets))
    some = {name: whole[name] for name in ("lab/n1",)}
    runs.judge(runs.measured(tmp_path, 2, some, targets={"lab": targets["lab"]}, partial=True, left_out=["a", "n2", "n3"]))
    runs.judge(runs.measured(tmp_path, 3, {name: whole[name] for name in ("a", "lab/n1", "lab/n2")}, targets=targets))
    with Store(url_of(str(tmp_path)), make=True) as store:
        folders.bring(store, str(tmp_path))
        narrowed, widened = compared(store, 1, 2), compared(store, 2, 3)
        assert narrowed["places"] == widened["places"] == []
        assert narrowed["not_in_scope"] == {"before": [], "after": ["a", "lab/n2", "lab/n3"]}
        assert widened["not_in_scope"] == {"before": ["a", "lab/n2"], "after": []}
        assert (narrowed["before_partial"], narrowed["after_partial"]) == (False, True)
        said = f"not in scope of {runs.run_id(2)}, only of {runs.run_id(1)}: a, lab/n2, lab/n3"
        assert said in comparing.sentences(narrowed) and "gone" not in str(comparing.sentences(narrowed))
        # A node that neither run left out is gone.
        gone = compared(store, 1, 3)
        assert {(one["what"], one["subject"]) for one in gone["places"]} >= {("went", "lab/n3")} and not any(gone["not_in_scope"].values())


def test_parts_neither_come_nor_go_with_stages_that_only_one_run_has(tmp_path: pathlib.Path) -> None:
    """As after a run of RDMA alone, which sees no GPU."""
    runs.judged(tmp_path, 1, {"a": Machine("a" * 32, {1: 670.0, 2: 670.0})})
    runs.judge(runs.measured(tmp_path, 2, {"a": Machine("a" * 32, {1: 670.0})}, stages=["stack"]))
    runs.judged(tmp_path, 3, {"a": Machine("a" * 32, {1: 670.0})})
    with Store(url_of(str(tmp_path)), make=True) as store:
        folders.bring(store, str(tmp_path))
        assert compared(store, 1, 2)["places"] == compared(store, 2, 3)["places"] == []
        assert [(one["what"], one["identity"]) for one in compared(store, 1, 3)["places"]] == [("went", f"gpu:{runs.uuid(2)}")]
        assert [(one["what"], one["identity"]) for one in compared(store, 3, 1)["places"]] == [("came", f"gpu:{runs.uuid(2)}")]


def test_runs_of_other_clusters_do_not_push_out_those_of_these_nodes(store: Store, results: pathlib.Path) -> None:
    """One history may hold many clusters, which are accepted more often than this one."""
    for number in range(10, 14):
        runs.judged(results, number, runs.fleet(z=670.0))
    later = runs.judged(results, 20, runs.fleet(a=670.0))
    folders.bring(store, str(results))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparing, "PAST", 3)
        patch.setattr(comparing, "ENOUGH", 3)
        assert comparing.last_accepted(store, comparing.of_run(store, later.id)) == runs.run_id(5)
        value = next(one for one in compared(store, 5, 20)["values"] if one["subject"] == "a")
        assert value["beyond"] is not None


def test_a_noisy_check_does_not_hide_what_another_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "MOST", 4)
    noisy = [{"stage": "rdma", "check": "read", "metric": "bandwidth", "change_pct": -50.0 + one} for one in range(9)]
    lost = {"stage": "gemm", "check": "bf16", "metric": "tflops", "change_pct": -5.0}
    assert comparing._most_changed([*noisy, lost]) == [*noisy[:2], lost]


def test_a_quick_test_that_passed_is_no_accepted_run(store: Store, results: pathlib.Path) -> None:
    quick = runs.measured(results, 8, runs.fleet(a=650.0), mode="quick", not_proven=["the plateau"])
    assert runs.judge(quick)["passed"]
    later = runs.judged(results, 9, runs.fleet(a=670.0))
    assert folders.bring(store, str(results)).left_out == []
    assert comparing.last_accepted(store, comparing.of_run(store, later.id)) == runs.run_id(5)
    # Asked for by its name it is compared like any other.
    assert [one["before"] for one in compared(store, 8, 9)["values"] if one["subject"] == "a"] == [650.0]


def test_nodes_are_counted_on_which_each_check_has_failed(store: Store) -> None:
    """A node counts once, however often it failed, and a simulated one never."""
    assert found.nodes_by_check(store) == {("gemm", "bf16"): 1}
    with store.writing() as connection:
        connection.execute(sa.text("UPDATE verdict SET verdict = 'FAIL'"))
    assert found.nodes_by_check(store) == {("gemm", "bf16"): 3, ("stack", "facts"): 3}
