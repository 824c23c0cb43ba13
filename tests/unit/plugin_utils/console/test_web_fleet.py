# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The home page with its heat map, the cards of a result, and the timeline of a node."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import re
import shutil
import time
import types
import typing as t

import jsonschema
import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, allowed, request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import (
    fleet,
    forms,
    home,
    open_problems,
    openapi,
    parts,
    past,
    progress,
    rerun,
    standing,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import current
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness import console_memory as memory
from harness import history_runs as runs
from harness import journals


@pytest.fixture(autouse=True)
def read_before_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page waits until the fleet is read, however busy the machine is."""
    monkeypatch.setattr(fleet, "FIRST_S", 600.0)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[memory.Opened]:
    """Three runs of the nodes a and b, of which b fails in the last one; c was never measured."""
    results = tmp_path_factory.mktemp("fleet") / "results"
    for day, slow in enumerate((670.0, 671.0, 400.0), 1):
        runs.judged(results, day, runs.fleet(a=672.0, b=slow), acceptance_history=True)
    infos = [actions.NodeInfo(name, 8, 8, {"rack": rack, "group/gpus": "true"}) for name, rack in (("a", "1"), ("b", "2"), ("c", "2"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(current, "DAYS", 36500)
        yield memory.opened(results, memory=memory.Memory(infos))


def rows(text: str) -> list[tuple[str, list[str]]]:
    """(node, verdicts of its cells) of the heat map."""
    found = []
    for row in re.findall(r'<tr><td class="w">.*?</tr>', text, re.DOTALL):
        found.append((re.findall(r"name=(\w+)", row)[0], re.findall(r'<td class="cell (\w+)"', row)))
    return found


def test_home_shows_the_worst_last_verdict_of_each_stage_and_its_cause(console: memory.Opened) -> None:
    text = console.signed_in().get("/").text
    assert rows(text) == [("a", ["PASS", "PASS"]), ("b", ["PASS", "FAIL"]), ("c", ["none", "none"])]
    assert re.search(rf'href="/results/{runs.run_id(3)}">b[^<]*gemm bf16', text)


def test_home_names_what_is_worse_than_in_the_last_accepted_run(console: memory.Opened) -> None:
    text = console.signed_in().get("/?part=lists").text
    worse = text.partition("Worse since the last accepted run")[2].partition("<h2>")[0]
    assert f'href="/compare?before={runs.run_id(2)}&amp;after={runs.run_id(3)}"' in worse
    assert re.findall(r'name=(\w+)">[^<]*</a> <span class="sub">([^<]*)</span>', worse) == [("b", "gemm bf16: PASS → FAIL")] * 2


def test_every_list_of_runs_says_of_a_partial_run_that_it_is_one(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current, "DAYS", 36500)
    runs.judged(tmp_path, 1, runs.fleet(a=672.0, b=670.0), acceptance_history=True)
    runs.judge(runs.measured(tmp_path, 2, runs.fleet(a=671.0), partial=True, left_out=["b"]), acceptance_history=True)
    opened = memory.opened(tmp_path)
    status = actions.Status(phase=actions.FINISHED, verdict=actions.ACCEPTED, run_id=runs.run_id(2))
    spec = {"stages": {"names": ["gemm"], "nodes": ["a"]}}
    opened.actions.put(actions.Action("mine", "", spec, status, "2026-11-22T10:00:00Z", "tester"))
    client = opened.signed_in()
    for page in ("/", "/history", "/runs", "/runs/mine", f"/results/{runs.run_id(2)}"):
        text = client.get(page).text
        assert "✓ ACCEPTED (partial)" in text, page
        assert text.count("✓ ACCEPTED (partial)") == (2 if page == "/runs" else 1), "the other run is whole"
    compared = client.get(f"/compare?before={runs.run_id(1)}&after={runs.run_id(2)}").text
    assert f"{runs.run_id(1)}</a> (ACCEPTED)" in compared and f"{runs.run_id(2)}</a> (ACCEPTED, partial)" in compared
    assert f"not in scope of {runs.run_id(2)}, only of {runs.run_id(1)}: b" in compared and "gone" not in compared


def test_nothing_is_worse_that_a_newer_run_has_made_good(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current, "DAYS", 36500)
    for day, slow in enumerate((671.0, 400.0, 670.0), 1):
        runs.judged(tmp_path, day, runs.fleet(a=672.0, b=slow), acceptance_history=True)
    assert "Worse since" not in memory.opened(tmp_path).signed_in().get("/").text


@pytest.mark.parametrize("report", [' "causes": no json', ' "causes": [{"subject": 1}]', ' "causes": 7'])
def test_a_report_that_cannot_be_read_is_shown_and_takes_nothing_else_away(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    monkeypatch.setattr(current, "DAYS", 36500)
    run = runs.judged(tmp_path, 1, runs.fleet(a=672.0, b=400.0), acceptance_history=True)
    (run.dir / "report.json").write_text(report)
    text = memory.opened(tmp_path).signed_in().get("/").text
    assert f"run {run.id}: report.json cannot be read" in text and 'class="cell FAIL"' in text


def test_an_error_that_nobody_foresaw_is_shown_on_the_page(console: memory.Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_store: t.Any, **_options: t.Any) -> t.Any:
        raise ZeroDivisionError("of <nobody>")

    monkeypatch.setattr(current, "fleet", broken)
    text = memory.opened(pathlib.Path(console.app._settings.results_dir)).signed_in().get("/").text
    assert "the history cannot be read: ZeroDivisionError: of &lt;nobody&gt;" in text and len(rows(text)) == 12


@pytest.mark.parametrize(
    ("query", "nodes"),
    [
        ("q=b", ["b"]), ("verdict=FAIL", ["b"]), ("verdict=FAIL&stage=stack", []), ("verdict=none", ["c"]), ("by=rack", ["a", "b", "c"]),
        ("stage=nothing&by=nothing", ["a", "b", "c"]), ("older=30", ["c"]), ("older=x", ["a", "b", "c"]),
    ],
)  # fmt: skip
def test_filters_of_the_home_page_are_in_its_address(console: memory.Opened, query: str, nodes: list[str]) -> None:
    text = console.signed_in().get(f"/?{query}").text
    assert [name for name, _verdicts in rows(text)] == nodes


def test_home_narrows_to_nodes_of_which_the_last_measurement_is_old(console: memory.Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    # Judged just now, and looked at five days later.
    monkeypatch.setattr(home, "time", types.SimpleNamespace(time=lambda: time.time() + 5 * home.DAY_S))
    client = console.signed_in()
    assert [name for name, _verdicts in rows(client.get("/?older=7").text)] == ["c"]
    assert [name for name, _verdicts in rows(client.get("/?older=1").text)] == ["a", "b", "c"]


def test_home_names_what_runs_and_what_waits_for_whom(console: memory.Opened) -> None:
    running = actions.Status(phase=actions.RUNNING, progress="3/8")
    console.actions.put(actions.Action("first", "", {}, running, ""))
    waiting = actions.Status(phase=actions.QUEUED, queue_position=1, waiting_for="first, which has its nodes")
    console.actions.put(actions.Action("second", "", {}, waiting, ""))
    text = console.signed_in().get("/?part=lists").text
    assert '<progress max="8" value="3"' in text and "first, which has its nodes" in text


def test_a_broken_history_is_named_and_the_nodes_stay(tmp_path: pathlib.Path) -> None:
    (tmp_path / "history.db").write_text("no database")
    text = memory.opened(tmp_path).signed_in().get("/").text
    assert 'role="alert"' in text and len(rows(text)) == 12


def test_a_wall_joins_neighbours_of_one_verdict_and_names_every_node() -> None:
    nodes = [fleet.NodeState(f"n{number}", {"stack": "FAIL" if number == 150 else "PASS"}) for number in range(200)]
    wall = fleet.wall("", nodes, ["stack"])
    assert {verdict: path.count("M") for verdict, path in wall.paths.items()} == {"PASS": 3, "FAIL": 1}
    assert len(wall.places) == 200 and wall.counts == {"PASS": 199, "FAIL": 1}


def test_groups_are_labels_that_some_nodes_share() -> None:
    labels = [{"rack": str(number // 2), "host": str(number), "all": "true", f"group/g{number % 2}": "true"} for number in range(8)]
    infos = [actions.NodeInfo(str(number), labels=of) for number, of in enumerate(labels)]
    assert fleet.groupings(infos) == ["group", "rack"]
    assert fleet.group_of(infos[3], "group") == "g1" and fleet.group_of(infos[3], "rack") == "1" and fleet.group_of(None, "rack") == ""


def test_a_result_has_a_card_for_each_cause_and_runs_again_on_the_failed_nodes(console: memory.Opened) -> None:
    client = console.signed_in()
    text = client.get(f"/results/{runs.run_id(3)}").text
    assert len(re.findall(r'<section class="card', text)) == 1  # of the GPU, of which the node's number is
    assert text.count("What to do:") == 1
    assert f'href="/start?again={runs.run_id(3)}"' in text
    again = client.get(f"/start?again={runs.run_id(3)}").text
    assert ">b</textarea>" in again and re.search(r'name="stage" value="gemm" checked', again)
    assert "card" not in client.get(f"/results/{runs.run_id(1)}").text


def test_a_report_of_an_older_version_has_cards_without_advice(console: memory.Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    read = past.Past.causes
    monkeypatch.setattr(past.Past, "causes", lambda self, run: [{k: v for k, v in of.items() if k != "advice"} for of in read(self, run)])
    text = console.signed_in().get(f"/results/{runs.run_id(3)}").text
    assert '<section class="card' in text and "What to do:" not in text


def test_a_stage_between_nodes_gets_good_partners_for_its_failed_node() -> None:
    pair = {"stage": "rdma", "check": "read_bw", "variant": "", "verdict": "FAIL"}
    finding = {**pair, "subject": "b/nic/mlx5_0/1", "reason": "slow", "evidence": [], "raw": None, "command": "", "also": []}
    explains = [{**pair, "subject": subject} for subject in ("a|b", "b|c", "b|d")]
    cause: t.Any = {"subject": "b/nic/mlx5_0/1", "kind": "nic", "verdict": "FAIL", "findings": [finding], "explains": explains}
    fields = dict(rerun.fields([cause], None))
    assert (fields["nodes"], fields["stage"]) == ("b\na\nc", "rdma")
    assert rerun.fields([], None) == []


def test_to_run_again_on_failed_nodes_is_without_those_with_a_warning_and_with_the_variables_of_the_run(tmp_path: pathlib.Path) -> None:
    def cause(node: str, verdict: str, stage: str = "gemm") -> t.Any:
        findings = [{"stage": stage, "check": "bf16", "variant": "", "verdict": verdict, "subject": node, "reason": ""}]
        return {"subject": node, "kind": "node", "verdict": verdict, "findings": findings, "explains": []}

    defaults = allowed.role("gemm")[1]
    settings = {**defaults, "gemm_seconds": 5.0, "gemm_types": ["bf16", "fp16"], "gemm_env": {"A": "1"}, "stack_cuda": False}
    plan = runs.measured(tmp_path, 1, runs.fleet(a=1.0, b=1.0, c=1.0), settings={"sets": [settings], "of": {"a": 0, "b": 0, "c": 0}}).plan()
    causes = [cause("a", "FAIL"), cause("b", "UNKNOWN"), cause("c", "WARN", "stack"), cause("d", "KNOWN_FAIL")]
    found = rerun.fields(causes, plan)
    assert dict(found)["nodes"] == "a\nb" and [value for name, value in found if name == "stage"] == ["gemm"]
    assert dict(found)["variables"] == "gemm_types: bf16, fp16\ngemm_seconds: 5.0"
    spec = forms.spec_of(found)["stages"]
    limits = request.Limits(plane="ssh", nodes={"a": {}, "b": {}})
    assert request.read({"stages": spec}, limits).variables()["gemm_types"] == ["bf16", "fp16"]
    assert rerun.link(plan.run_id, [cause("c", "WARN")]) == "" and rerun.link(plan.run_id, causes) == f"/start?again={plan.run_id}"
    # A variable that differs between the hosts comes from the inventory, and of a plan of an older version nothing is known.
    apart = {"sets": [settings, {**settings, "gemm_seconds": 7.0}], "of": {"a": 0, "b": 1}}
    plan = runs.measured(tmp_path, 2, runs.fleet(a=1.0, b=1.0), settings=apart).plan()
    assert dict(rerun.fields(causes, plan))["variables"] == "gemm_types: bf16, fp16"
    assert "variables" not in dict(rerun.fields(causes, runs.measured(tmp_path, 3, runs.fleet(a=1.0, b=1.0)).plan()))


def test_a_node_has_a_timeline_of_its_runs_with_the_worst_verdict_of_each(console: memory.Opened) -> None:
    text = console.signed_in().get("/node?name=b").text
    assert "What to do:" in text.partition('id="broken"')[2].partition("</ul>")[0]
    timeline = text.partition('<ol class="timeline">')[2].partition("</ol>")[0]
    assert re.findall(r'/results/(\S+?)"><span class="b (\w+)', timeline) == [
        (runs.run_id(3), "FAIL"), (runs.run_id(2), "PASS"), (runs.run_id(1), "PASS"),
    ]  # fmt: skip


def test_a_problem_of_a_node_stands_until_a_run_finds_the_check_good(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later run of another stage says nothing of it."""
    results = tmp_path / "results"
    slow, healthy = runs.fleet(a=672.0, b=400.0), runs.fleet(a=672.0, b=671.0)
    for day, machines, stages in ((1, slow, ("stack", "gemm")), (2, slow, ("stack",))):
        runs.judge(runs.measured(results, day, machines, stages), acceptance_history=True)
    part = parts.Part(f"gpu/{runs.uuid(ord('b'))}", "GPU 0", "H200", "123", "0000:18:00.0")
    monkeypatch.setattr(past.Past, "seen", lambda _self, _run: parts.Seen({"b": {part.key: part}}, {}))
    client = memory.opened(results).signed_in()

    def shown() -> tuple[str, str]:
        """The problems of the node, and the row of its GPU."""
        text = client.get("/node?name=b").text
        return text.partition('id="broken"')[2].partition("<h2")[0], text.partition('id="hardware"')[2].partition("</tbody>")[0]

    problems, gpu = shown()
    assert "2 verdicts" in problems and f'href="/results/{runs.run_id(1)}"' in problems and 'class="b FAIL"' in gpu
    runs.judge(runs.measured(results, 3, healthy, ("gemm",)), acceptance_history=True)
    problems, gpu = shown()
    assert "None: every check of this node passed" in problems and 'class="b PASS"' in gpu


def test_the_map_keeps_a_failure_that_the_newest_run_did_not_measure_as_the_page_of_the_node_does(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "DAYS", 36500)
    runs.judged(tmp_path, 1, runs.fleet(a=672.0, b=400.0), acceptance_history=True)
    # A complete run in which nothing of b was measured.
    runs.judged(tmp_path, 2, {"a": runs.fleet(a=672.0)["a"], "b": runs.Machine("", {}, silent=True)}, acceptance_history=True)
    console = memory.opened(tmp_path, memory=memory.Memory([actions.NodeInfo(name, 8) for name in "ab"]))
    client = console.signed_in()
    assert rows(client.get("/").text) == [("a", ["PASS", "PASS"]), ("b", ["UNKNOWN", "FAIL"])]
    assert 'class="b FAIL"' in client.get("/node?name=b").text.partition('id="broken"')[2].partition("<h2")[0]
    runs.judged(tmp_path, 3, runs.fleet(a=672.0, b=671.0), acceptance_history=True)
    client = memory.opened(tmp_path, memory=memory.Memory([actions.NodeInfo(name, 8) for name in "ab"])).signed_in()
    assert rows(client.get("/").text) == [("a", ["PASS", "PASS"]), ("b", ["PASS", "PASS"])]


def problems_and_map(results: pathlib.Path, names: str = "abcdefgh") -> tuple[str, list[str]]:
    """The open problems of the home page, and the verdicts of the stage gemm on its map."""
    client = memory.opened(results, memory=memory.Memory([actions.NodeInfo(name, 8) for name in names])).signed_in()
    text = client.get("/").text
    return text.partition('id="causes"')[2].partition('id="map"')[0], [words[-1] for _name, words in rows(text)]


def test_home_says_that_nothing_is_open_only_above_a_map_without_failures(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current, "DAYS", 36500)
    runs.judged(tmp_path, 1, runs.fleet(a=672.0, b=671.0), acceptance_history=True)
    problems, words = problems_and_map(tmp_path, "ab")
    assert "No open problems" in problems and words == ["PASS", "PASS"]
    # The folder of a run that failed was archived, and its causes with it.
    failed = runs.judged(tmp_path, 2, runs.fleet(a=672.0, b=400.0), acceptance_history=True)
    shutil.rmtree(failed.dir)
    problems, words = problems_and_map(tmp_path, "ab")
    assert "No open problems" not in problems and words == ["PASS", "FAIL"]
    assert re.search(r'class="b FAIL".*1 node or pair whose cause is not named here: <a href="/node\?name=b">b</a>', problems)


def test_home_names_causes_of_runs_that_many_newer_ones_have_followed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current, "DAYS", 36500)
    others = "bcdefgh"
    for day, name in enumerate("a" + others, 1):
        runs.judged(tmp_path, day, runs.fleet(**{name: 400.0}), acceptance_history=True)
    # All but the oldest are good again; of their runs the other stage still counts.
    healthy = runs.measured(tmp_path, 20, runs.fleet(**dict.fromkeys(others, 672.0)), ("gemm",))
    runs.judge(healthy, acceptance_history=True)
    problems, words = problems_and_map(tmp_path)
    assert words == ["FAIL", *["PASS"] * len(others)]
    assert "No open problems" not in problems and f'href="/results/{runs.run_id(1)}">a' in problems and "is not named here" not in problems


def test_home_names_the_cause_of_a_failure_that_a_newer_run_has_not_measured(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "DAYS", 36500)
    runs.judged(tmp_path, 1, runs.fleet(a=672.0, b=400.0), acceptance_history=True)
    runs.judged(tmp_path, 2, {"a": runs.fleet(a=672.0)["a"], "b": runs.Machine("", {}, silent=True)}, acceptance_history=True)
    problems, words = problems_and_map(tmp_path, "ab")
    assert words == ["PASS", "FAIL"]
    assert f'href="/results/{runs.run_id(1)}">b' in problems and f'href="/results/{runs.run_id(2)}">b' in problems


def verdict(run: int, word: str, subject: str = "b/nic/mlx5_0/1") -> t.Any:
    return {"run": runs.run_id(run), "stage": "rdma_ports", "check": "link", "variant": "", "subject": subject, "verdict": word}


@pytest.mark.parametrize(
    ("words", "stands"),
    [
        (("FAIL",), "FAIL"), (("PASS", "FAIL"), "PASS"), (("SKIPPED", "FAIL"), "FAIL"), (("UNKNOWN", "WARN", "FAIL"), "WARN"),
        (("UNKNOWN", "PASS", "FAIL"), "UNKNOWN"), (("SKIPPED", "PASS", "FAIL"), "SKIPPED"), (("UNKNOWN", "SKIPPED"), "UNKNOWN"),
    ],
)  # fmt: skip
def test_what_was_not_measured_takes_back_no_failure(words: tuple[str, ...], stands: str) -> None:
    rows = [verdict(9 - age, word) for age, word in enumerate(words)]
    assert [row["verdict"] for row in standing.of_node(rows, lambda _part: True)] == [stands]


def test_the_verdict_of_a_part_that_was_replaced_does_not_stand_and_of_one_that_is_lost_does() -> None:
    old, new = (parts.Part(f"gpu/{name}", name, "", "", "") for name in ("old", "new"))
    both = {old.key: old, new.key: new}
    replaced = parts.of_node([parts.Seen({"b": {new.key: new}}, {}), parts.Seen({"b": {old.key: old}}, {})], "b")
    lost = parts.of_node([parts.Seen({}, {}), parts.Seen({"b": {new.key: new}}, {}), parts.Seen({"b": both}, {})], "b")
    assert set(replaced.parts) == {new.key} and set(lost.parts) == {new.key, old.key}
    rows = [verdict(2, "PASS", "b/gpu/new"), verdict(1, "FAIL", "b/gpu/old")]
    assert [row["subject"] for row in standing.of_node(rows, replaced.has)] == ["b/gpu/new"]
    assert len(standing.of_node(rows, lost.has)) == 2


def a_cause(subject: str, *checks: str, explains: t.Sequence[str] = ()) -> t.Any:
    """A cause with findings of checks of rdma_ports, which explains their `link` at other subjects."""
    about = {"stage": "rdma_ports", "variant": "", "verdict": "FAIL"}
    findings = [{**about, "check": check, "subject": subject, "reason": f"{subject}: {check} is bad"} for check in checks]
    return {
        "subject": subject, "name": subject, "kind": "nic", "verdict": "FAIL", "said": f"{subject}: is bad", "advice": ["Swap the cable."],
        "convicted": False, "simulated": False, "findings": findings,
        "explains": [{**about, "check": "link", "subject": of} for of in explains],
    }  # fmt: skip


def bad(check: str, subject: str, run: int = 2, reason: str = "") -> t.Any:
    reason = reason or f"{subject}: {check} is bad"
    return {**verdict(run, "FAIL", subject), "check": check, "reason": reason, "planned_at": "", "reason_code": "slow"}


def test_one_cause_is_one_problem_with_all_its_verdicts_and_its_effects_below() -> None:
    port, other = "b/nic/mlx5_0/1", a_cause("c/nic/mlx5_0/1", "link", explains=["b"])
    # The node repeats what its port says; seven checks of the port have one cause.
    rows = [bad("link", "b"), *(bad(f"read_{number}", port) for number in range(7))]
    rows += [bad(f"read_{number}", "b", reason=f"{port}: read_{number} is bad") for number in range(6)]
    found = standing.problems(rows, lambda _run: [other, a_cause(port, *(f"read_{number}" for number in range(7)))])
    told = [(one.text, len(one.rows), one.is_effect) for one in found]
    assert told == [(f"{port}: is bad", 13, False), ("c/nic/mlx5_0/1: is bad", 1, True)]
    assert found[0].advice == ("Swap the cable.",)
    worst_first = [{**bad("link", "b"), "verdict": "UNKNOWN"}, bad("ports", "b", 1)]
    assert [one.verdict for one in standing.problems(worst_first, lambda _run: [])] == ["FAIL", "UNKNOWN"]
    # Without its report what says the same is one problem; another run is another one.
    same = [bad(check, "b", reason="b: was lost") for check in ("link", "ports")] + [bad("link", "b", 1, "b: was lost")]
    without = standing.problems(same, lambda _run: [])
    assert [(one.run, len(one.rows)) for one in without] == [(runs.run_id(2), 2), (runs.run_id(1), 1)]
    assert without[0].text == "rdma_ports link  b: b: was lost" and without[0].codes == ("slow",)


def test_a_cause_that_is_not_shown_any_more_is_none_that_is_not_named() -> None:
    """Many causes of a run are one line where they say the same, and a count of lines where they do not."""
    check = current.Check("rdma_ports", "link", "")
    failed = current.CurrentResult("FAIL", None, None, None, None, None, False)
    names = [f"n{number:02}" for number in range(72)]
    of_node = {name: types.SimpleNamespace(kind="node", checks={check: failed}) for name in names}
    state: t.Any = types.SimpleNamespace(nodes=of_node, pairs={})
    alike_ones = open_problems.OpenProblems(state)
    alike_ones.add("run", [{**a_cause(name, "link"), "kind": "node"} for name in names])
    assert [line.text for line in alike_ones.lines] == ["n[00-71] (72 nodes): is bad"] and not alike_ones.without_cause()
    unlike = open_problems.OpenProblems(state)
    unlike.add("run", [{**a_cause(name, "link"), "kind": "node", "said": f"{name}: the cable {name * 2} is bad"} for name in names])
    most = open_problems.CAUSES_OF_RUN
    assert len(unlike.lines) == most + 1 and unlike.lines[-1].text == f"{len(names) - most} more findings of run run"
    assert not unlike.without_cause()
    unlike.add("older", [{**a_cause("n80", "link"), "kind": "node", "said": "n80: UNKNOWN", "verdict": "UNKNOWN"}, a_cause("n81", "link")])
    words = [line.verdict for line in unlike.worst_first()]
    assert words == ["FAIL"] * (most + 2) + ["UNKNOWN"] and unlike.worst_first()[-2].run == "older"


def test_counts_say_of_what_and_are_as_new_as_the_map(console: memory.Opened) -> None:
    text = console.signed_in().get("/").text
    counts = text.partition('<p id="counts" data-part>')[2].partition("</p>")[0]
    assert re.findall(r">(?:\S+ )?(PASS|FAIL)</span></a> (\d+ \w+)", counts) == [("FAIL", "1 node"), ("PASS", "1 node")]
    assert "3 of 3 nodes" in text
    assert re.search(r"FAIL</span> 2 verdicts", console.signed_in().get(f"/results/{runs.run_id(3)}").text)


def test_a_run_that_was_judged_shows_its_verdicts_by_node(console: memory.Opened) -> None:
    status = actions.Status(phase=actions.FINISHED, run_id=runs.run_id(3), verdict=actions.NOT_ACCEPTED, progress="4/4")
    console.actions.put(actions.Action("judged", "", {"stages": {"names": ["gemm"], "nodes": ["a"]}}, status, ""))
    text = console.signed_in().get("/runs/judged").text
    cells = re.findall(r'class="cell (\w+)', text.partition('id="grid"')[2].partition("</table>")[0])
    assert cells == ["done", "FAIL", "done", "done", "done", "FAIL"]  # stack and gemm of all, of a and of b
    assert "4/4 checks" in text


@pytest.mark.parametrize(("verdict", "signs"), [("UNKNOWN", ["UNKNOWN"]), ("", ["tests that did not end well: 1"])])
def test_a_check_without_a_result_has_one_sign(
    console: memory.Opened, monkeypatch: pytest.MonkeyPatch, verdict: str, signs: list[str]
) -> None:
    cells = {"gemm": progress.Cell(planned=1, measured=1, failed=1, verdict=verdict)}
    monkeypatch.setattr(progress.RunProgress, "grid", lambda *_: progress.RunGrid({"n0001": cells}, {"gemm": progress.Cell(1, 1)}))
    status = actions.Status(phase=actions.RUNNING, run_id=runs.run_id(9))
    console.actions.put(actions.Action("one", "", {"stages": {"names": ["gemm"], "nodes": ["n0001"]}}, status, ""))
    table = console.signed_in().get("/runs/one").text.partition('id="grid"')[2].partition("</table>")[0]
    assert re.findall(r'<abbr title="([^"]*)"', table) == signs


def test_a_node_shows_its_findings_and_folds_what_passed_by_stage(console: memory.Opened) -> None:
    client = console.signed_in()
    verdicts = client.get("/node?name=b").text.partition('id="verdicts"')[2]
    findings, _details, passed = verdicts.partition("<details")
    assert findings.count('class="b FAIL"') == 2 and 'class="b PASS"' not in findings
    folds = re.findall(r"<summary>(\w+) <span class=\"b PASS\">✓ PASS</span> (\d+) verdicts? </summary><div id=\"([\w-]+)\">", passed)
    assert folds == [("gemm", "4", "passed-gemm"), ("stack", "3", "passed-stack")] and " open" not in passed
    # The order of the rows of a stage is chosen there, and leads back to it.
    assert "/node?name=b&amp;sort=value#passed-gemm" in passed and "#" not in re.findall(r'href="(/node[^"]+sort=value[^"]*)"', findings)[0]
    verdicts = client.get("/node?name=a").text.partition('id="verdicts"')[2]
    assert verdicts.partition("<details")[0].count("<table") == 0


def test_every_table_is_made_for_a_phone_too() -> None:
    """Rows of records stay on one line and the table scrolls, a map is of small cells, and pairs of a name and a value break anywhere."""
    templates = pathlib.Path(home.__file__).parent / "templates"
    tables = {(path.name, table) for path in templates.glob("*.j2") for table in re.findall(r"<table[^>]*>", path.read_text("utf-8"))}
    assert {name for name, _table in tables} >= {"compare.html.j2", "runs.html.j2", "nodes.html.j2", "rows.html.j2"}
    assert [one for one in sorted(tables) if not re.search(r'class="(rows|map|pairs)\b', one[1])] == []


def plan_of(results: pathlib.Path, run: str, journal: str) -> None:
    """A run of two nodes and their pair, with this journal."""
    folder = results / run
    folder.mkdir(parents=True)
    subjects = [{"kind": "node", "id": name, "members": []} for name in ("a", "<b>")]
    items = [{"stage": "gemm", "check": "bf16", "variant": "", "subject": subject} for subject in subjects]
    items.append({"stage": "rdma", "check": "read_bw", "variant": "", "subject": {"kind": "pair", "id": "a|<b>", "members": ["a", "<b>"]}})
    (folder / "plan.json").write_text(json.dumps({"items": items}))
    journals.write(folder / "journal.jsonl.gz", journal.encode())


def test_the_page_of_a_run_fills_and_shows_the_log_of_a_node(tmp_path: pathlib.Path) -> None:
    run = runs.run_id(1)
    measured = {"stage": "gemm", "check": "bf16", "variant": "", "subject": {"kind": "node", "id": "a"}, "outcome": "measured"}
    broken = {**measured, "stage": "rdma", "check": "read_bw", "subject": {"kind": "pair", "id": "a|<b>"}, "outcome": "timeout"}
    plan_of(tmp_path, run, "".join(json.dumps(record) + "\n" for record in (measured, broken)))
    (tmp_path / "logs/uid-1").mkdir(parents=True)
    (tmp_path / "logs/uid-1/log").write_text("ok: [a]\n\nfatal: [<b>]: \x1b[2Jbroken\n")
    console = memory.opened(tmp_path, logs=str(tmp_path / "logs"))
    status = actions.Status(phase=actions.RUNNING, run_id=run, progress="2/3", started="2026-11-22T10:00:00Z")
    spec = {"stages": {"names": ["gemm"], "nodes": ["a"]}}
    console.actions.put(actions.Action("mine", "", spec, status, "", uid="uid-1"))
    client = console.signed_in()
    text = client.get("/runs/mine").text
    shown = re.findall(r'<td class="w"><a[^>]*>([^<]+)</a></td>(.*?)</tr>', text)
    cells = {name: re.findall(r'class="cell (\w+)', of_node) for name, of_node in shown}
    assert cells == {"a": ["done", "failed"], "&lt;b&gt;": ["open", "failed"]}
    assert "min left" in text and "ok: [a]" in text and "\x1b" not in text
    of_node = client.get("/runs/mine", params={"node": "<b>"}).text
    assert "ok: [a]" not in of_node and "fatal: [&lt;b&gt;]" in of_node
    # Asked to cancel, it says so before the controller has acted.
    console.actions.put(actions.Action("mine", "", {**spec, "cancel": True}, status, "", uid="uid-1"))
    text = client.get("/runs/mine").text
    assert "Cancelling." in text and "/cancel?name" not in text


def test_the_output_of_a_tool_is_fetched_for_whoever_looks_at_a_node_and_shown_as_text(tmp_path: pathlib.Path) -> None:
    run = runs.run_id(1)
    plan_of(tmp_path, run, "")
    console = memory.opened(tmp_path)
    status = actions.Status(phase=actions.RUNNING, run_id=run, progress="0/3", started="2026-11-22T10:00:00Z")
    console.actions.put(actions.Action("mine", "", {"stages": {"names": ["gemm"], "nodes": ["a"]}}, status, ""))
    client = console.signed_in()
    assert client.get("/api/v1/actions/mine/output?node=a").status_code == 404, "it is not in progress"
    box = Run(tmp_path, run).mailbox
    box.make()
    text = client.get("/runs/mine").text
    assert 'href="/runs/mine?node=a#output"' in text and "Select a node above" in text and not list(box.folder.iterdir())
    assert "Fetching it from the node" in client.get("/runs/mine?node=a").text
    assert [path.name for path in box.folder.iterdir()] == ["a.look"]
    told = {"stage": "gemm", "at": 1e9, "text": "first\n<script>\x1b[2J" + "x" * 9999, "problem": ""}
    box.path(mailbox.LIVE, target="a").write_text(json.dumps(told))
    text = client.get("/runs/mine?node=a").text
    shown = text.partition('id="output"')[2].partition("</pre>")[0]
    assert "gemm" in shown and "2001-09-09" in shown and "first\n&lt;script&gt;" in shown and "\x1b" not in shown and len(shown) < 1500
    answer = client.get("/api/v1/actions/mine/output?node=a").json()
    jsonschema.validate(answer, openapi.OUTPUT)
    assert answer["stage"] == "gemm" and answer["lines"][0] == "first" and len(answer["lines"][1]) == 500
    box.path(mailbox.LIVE, target="a").write_text(json.dumps({**told, "text": "", "problem": "<not> reached"}))
    assert "&lt;not&gt; reached" in client.get("/runs/mine?node=a").text
    # Of no other node, and of no run that has ended.
    for node in ("", "c", "../../x"):
        assert client.get("/api/v1/actions/mine/output", params={"node": node}).status_code == 404
    console.actions.put(dataclasses.replace(console.actions.get("mine"), status=dataclasses.replace(status, phase=actions.FINISHED)))
    assert client.get("/api/v1/actions/mine/output?node=a").status_code == 409
    assert 'id="output"' not in client.get("/runs/mine?node=a").text
    assert {path.name for path in box.folder.iterdir()} == {"a.look", "a.live"}


@pytest.mark.parametrize("journal", ["", "no json\n", "{}\n", "[1]\n"])
def test_a_run_that_has_not_measured_anything_has_an_empty_grid(tmp_path: pathlib.Path, journal: str) -> None:
    plan_of(tmp_path, runs.run_id(1), journal)
    grid = progress.RunProgress(tmp_path, None).grid(runs.run_id(1))
    assert grid and {stage: cell.state for stage, cell in grid.stages.items()} == {"gemm": "open", "rdma": "open"}
    assert progress.RunProgress(tmp_path, None).grid(runs.run_id(2)) is None
    assert progress.RunProgress(tmp_path, None).grid("../x") is None


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("b", "/node?name=b"), ("mine", "/runs/mine"), (runs.run_id(2), f"/results/{runs.run_id(2)}"), ("f" * 64, f"/digest/{'f' * 64}"),
        ("nobody", "/runs?text=nobody"), ("", "/nodes"), ("//evil.example", "/runs?text=%2F%2Fevil.example"),
    ],
)  # fmt: skip
def test_the_jump_box_finds_what_has_this_name(console: memory.Opened, text: str, location: str) -> None:
    console.actions.put(actions.Action("mine", "", {}, actions.Status(), ""))
    answer = console.signed_in().get("/find", params={"q": text})
    assert (answer.status_code, answer.headers["location"]) == (303, location)


def test_selected_runs_are_cancelled_together_and_those_that_ended_stay(console: memory.Opened) -> None:
    for name, phase in (("one", actions.RUNNING), ("two", actions.QUEUED), ("three", actions.FINISHED)):
        spec = {"rdma": {"nodes": ["a", "b", "c"], "operation": "read"}}
        status = actions.Status(phase=phase, started="2026-11-22T10:00:00Z", ended="2026-11-22T10:07:00Z")
        console.actions.put(actions.Action(name, "", spec, status, ""))
    client = console.signed_in()
    text = client.get("/runs").text
    assert "7 min" in text and "a, b +1" in text and 'aria-label="select three"' not in text
    assert '<form method="get" action="/cancel">' in text
    asks = client.get("/cancel", params={"name": ["one", "two", "three", "gone"]}).text
    assert "Cancel these 2 runs?" in asks and re.findall(r'name="name" value="(\w+)"', asks) == ["one", "two"]
    assert "Nothing to cancel" in client.get("/cancel", params={"name": "three"}).text
    assert "Nothing to cancel" in client.get("/cancel").text
    token = re.findall(r'name="csrf" value="([^"]+)"', asks)[0]
    fields = {"csrf": token, "do": "cancel", "name": ["one", "three", "gone"]}
    assert client.post("/runs", data=fields).headers["location"] == "/runs"
    phases = {name: console.actions.get(name).status.phase for name in ("one", "two", "three")}
    assert phases == {"one": actions.CANCELLED, "two": actions.QUEUED, "three": actions.FINISHED}
    assert client.post("/runs", data={**fields, "csrf": "x"}).status_code == 403


def test_a_running_run_is_suspended_after_a_question_and_resumed_with_its_page(console: memory.Opened) -> None:
    spec = {"stages": {"names": ["gemm"], "nodes": ["a"]}}
    for name, phase in (("one", actions.RUNNING), ("two", actions.QUEUED), ("three", actions.SUSPENDED), ("four", actions.FINISHED)):
        console.actions.put(actions.Action(name, "", spec, actions.Status(phase=phase, progress="2/3", run_id=runs.run_id(1)), ""))
    client = console.signed_in()
    text = client.get("/runs/one").text
    assert 'href="/suspend?name=one"' in text and 'value="suspend"' not in text
    assert 'value="suspend"' in client.get("/runs/two").text, "of one that waits nothing is lost"
    asks = client.get("/suspend?name=one").text
    assert "<h1>Suspend this run?</h1>" in asks and "2/3" in asks and 'action="/runs/one"' in asks
    assert console.actions.get("one").status.phase == actions.RUNNING
    token = re.findall(r'name="csrf" value="([^"]+)"', asks)[0]
    assert client.post("/runs/one", data={"csrf": token, "do": "suspend"}).headers["location"] == "/runs/one"
    assert console.actions.get("one").status.phase == actions.SUSPENDED
    assert 'value="resume"' in client.get("/runs/one").text
    assert client.post("/runs/one", data={"csrf": token, "do": "resume"}).headers["location"] == "/runs/one"
    assert console.actions.get("one").status.phase == actions.QUEUED
    # Asked to suspend, it says so before the controller has acted.
    console.actions.put(actions.Action("one", "", {**spec, "suspend": True}, actions.Status(phase=actions.RUNNING), ""))
    text = client.get("/runs/one").text
    assert "Suspending." in text and "/suspend?name" not in text and "/cancel?name" in text
    # Several at once, from the list.
    assert 'formaction="/suspend"' in client.get("/runs").text
    asks = client.get("/suspend", params={"name": ["one", "two", "three", "four", "gone"]}).text
    assert "Suspend these 2 runs?" in asks and re.findall(r'name="name" value="(\w+)"', asks) == ["one", "two"]
    assert "Nothing to suspend" in client.get("/suspend?name=three").text
    assert client.post("/runs", data={"csrf": token, "do": "suspend", "name": ["two", "four"]}).headers["location"] == "/runs"
    phases = {name: console.actions.get(name).status.phase for name in ("two", "four")}
    assert phases == {"two": actions.SUSPENDED, "four": actions.FINISHED}
    told = [json.loads(line)["what"] for line in console.audit.getvalue().splitlines()[-3:]]
    assert told == ["set", "set", "set"]


def test_the_history_has_a_last_day_and_links_to_ranges(console: memory.Opened) -> None:
    client = console.signed_in()
    text = client.get("/history", params={"node": "b", "until": "2026-01-02"}).text
    verdicts = text.partition('id="verdicts"')[2].partition("</table>")[0]
    assert runs.run_id(2) in verdicts and runs.run_id(3) not in verdicts
    assert 'href="/history?node=b&amp;since=7d"' in text
    # As a dashboard of Grafana links to it.
    range_of = {"from": "now-1h", "to": "now"}
    text = client.get("/history", params=range_of).text
    assert "Nothing found." in text and not any(runs.run_id(day) in text.partition('id="runs"')[2] for day in (1, 2, 3))
    assert client.get("/api/v1/runs", params=range_of).json()["runs"] == []
    ends = [int(datetime.datetime(2026, 1, 2, hour, tzinfo=datetime.UTC).timestamp() * 1000) for hour in (0, 23)]
    told = client.get("/api/v1/runs", params={"from": str(ends[0]), "to": str(ends[1])}).json()["runs"]
    assert [run["run"] for run in told] == [runs.run_id(2)]
    found = client.get("/api/v1/verdicts", params={"from": str(ends[0]), "to": str(ends[1])}).json()["verdicts"]
    assert {row["run"] for row in found} == {runs.run_id(2)}
    assert "since: found" in client.get("/history", params={"from": "now-1d/d"}).text
    assert "until: found" in client.get("/history", params={"until": "soon"}).text.replace("&#39;", "'")


def test_the_places_of_parts_are_read_from_the_journal_whatever_a_node_says(tmp_path: pathlib.Path) -> None:
    gpu = {"uuid": "GPU-1", "index": 7, "serial": "165", "bdf": "0000:4b:00.0", "name": "NVIDIA H100"}
    nic = {"device": "mlx5_2", "serial_number": None, "pci": "0000:02:00.0", "type": "MT4129", "part_number": None}
    ports = [{"device": "mlx5_2", "switch": "leaf-03", "switch_port": "Ethernet1/7"}, {"device": "mlx5_3", "switch": "leaf-04"}]
    of_nic = {"devices": [nic], "ports": ports, "present": ["mlx5_2", "mlx5_3"], "serial_number": 1}
    contexts = [{"gpu_table": [gpu]}, of_nic, {"gpu_table": "x"}, {"gpu_table": [1]}, {"gpu_table": None}]
    lines = [json.dumps({"subject": {"id": "a"}, "context": context}) for context in contexts]
    journals.write(tmp_path / "journal.jsonl.gz", "\n".join([*lines, '{"gpu_table"']).encode())
    known, devices = parts.of_run(tmp_path)
    assert known["a"]["gpu/GPU-1"].place == (
        "GPU 7 · PCIe 0000:4b:00.0 · serial number 165 · NVIDIA H100 · not known: slot or tray, board part number · UUID GPU-1"
    )
    assert known["a"]["nic/mlx5_2"].place == (
        "mlx5_2 · PCIe 0000:02:00.0 · cable to leaf-03 Ethernet1/7 · MT4129 · not known: slot or tray, serial number, board part number"
    )
    assert parts.of_run(tmp_path / "none") == ({}, {}) and devices == {"a": {"mlx5_2", "mlx5_3"}}


def clustered(results: pathlib.Path, devices: t.Sequence[str]) -> memory.Opened:
    """A console of a cluster, the nodes of which are measured as lab/a and lab/b, over a run in which b is slow and a has these devices."""
    machines = {f"lab/{name}": machine for name, machine in runs.fleet(a=672.0, b=400.0).items()}
    run = runs.judged(results, 1, machines, acceptance_history=True)
    seen = {"subject": {"id": "lab/a"}, "context": {"devices": [], "present": devices, "serial_number": ""}}
    run.journal.append([seen])
    return memory.opened(results, memory=memory.Memory([actions.NodeInfo(name, 8, 8, {"rack": name}) for name in ("a", "b", "c")]))


def test_nodes_of_a_cluster_are_the_same_on_every_page(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current, "DAYS", 36500)
    client = clustered(tmp_path, []).signed_in()
    home_page = client.get("/?by=rack").text
    assert re.findall(r"/node\?name=([^\"]+)", home_page.partition('id="table"')[2].partition("</table>")[0]) == ["lab%2Fa", "lab%2Fb", "c"]
    assert "no group" not in home_page
    for name in ("b", "lab/b"):
        node = client.get("/node", params={"name": name}).text
        assert '<ol class="timeline">' in node and "not in the inventory" not in node and 'href="/start?nodes=b"' in node
    result = client.get(f"/results/{runs.run_id(1)}").text
    assert "/node?name=lab%2Fb" in result and f"/start?again={runs.run_id(1)}" in result
    again = client.get(f"/start?again={runs.run_id(1)}").text
    assert ">b</textarea>" in again and 'value="gemm" checked' in again


def test_a_device_that_a_node_did_not_have_is_refused_and_an_unknown_one_has_a_hint(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "DAYS", 36500)
    client = clustered(tmp_path, ["mlx5_0", "mlx5_10", "mlx5_1"]).signed_in()
    asked = {"kind": "rdma", "nodes": "a b", "do": "show"}
    refused = client.get("/start", params={**asked, "device": "mlx5_77"}).text
    assert "a had mlx5_0, mlx5_1, mlx5_10. After a change of hardware" in refused
    shown = client.get("/start", params={**asked, "device": "mlx5_1"}).text
    assert "After a change of hardware" not in shown and "not seen yet: 1, such as b" in shown
    assert "not seen yet" not in client.get("/start", params=asked).text


def test_a_run_of_one_stage_leaves_the_other_stages_of_its_nodes_and_all_other_nodes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "DAYS", 36500)

    def home_after(day: int, stages: t.Sequence[str], **tflops: float) -> str:
        """The home page after a run of these stages."""
        runs.judge(runs.measured(tmp_path, day, runs.fleet(**tflops), stages), acceptance_history=True)
        return str(memory.opened(tmp_path, memory=memory.Memory([actions.NodeInfo(name, 8) for name in "abc"])).signed_in().get("/").text)

    home_after(1, ["stack", "gemm"], a=672.0, b=672.0)
    home_after(2, ["stack", "gemm"], a=672.0, b=400.0)
    text = home_after(3, ["stack"], b=672.0, c=672.0)
    assert rows(text) == [("a", ["PASS", "PASS"]), ("b", ["PASS", "FAIL"]), ("c", ["PASS", "none"])]
    assert re.search(rf'href="/results/{runs.run_id(2)}">b[^<]*gemm bf16', text) and "Worse since" in text
    text = home_after(4, ["gemm"], b=672.0)
    assert rows(text) == [("a", ["PASS", "PASS"]), ("b", ["PASS", "PASS"]), ("c", ["PASS", "none"])]
    assert "gemm bf16" not in text and "Worse since" not in text
