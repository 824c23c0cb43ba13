# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Prometheus is told of the history: the fleet of today and nothing of yesterday's, whatever nodes are called."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import pathlib
import typing as t
import urllib.request

import prometheus_client.openmetrics.parser
import prometheus_client.parser
import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparing, current, exporter, folders, searching, showing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store, url_of
from harness import history_runs as runs
from harness.history_content import content, put
from harness.history_runs import Machine
from harness.records import make_plan

Sample = tuple[dict[str, str], float]
HOSTILE = ['quote " back \\ slash', "two\nlines", "\x1b[31mred", "é" * 300, "x" * 300 + "a", "x" * 300 + "b"]


@pytest.fixture(autouse=True)
def _long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current, "DAYS", 3650)
    monkeypatch.setattr(current, "AHEAD_DAYS", 3650)


@pytest.fixture
def made(tmp_path: pathlib.Path) -> exporter.Exporter:
    return exporter.Exporter(url_of(tmp_path))


def bring(results: pathlib.Path) -> None:
    with Store(url_of(results), make=True) as store:
        folders.bring(store, str(results))


def shown(of: exporter.Exporter, accept: str = "text/plain") -> dict[str, list[Sample]]:
    """{name: samples}, as the parser of the format reads them; OpenMetrics and the older text say the same."""
    of.look()
    found: dict[str, list[Sample]] = {}
    kind, text = of.metrics(accept)
    openmetrics = "openmetrics" in kind
    parser: t.Any = prometheus_client.openmetrics.parser if openmetrics else prometheus_client.parser
    assert text.endswith(b"# EOF\n") == openmetrics
    for family in parser.text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name.removeprefix(exporter.PREFIX), []).append((sample.labels, sample.value))
    return found


def of(samples_of: t.Iterable[Sample], label: str = "node") -> dict[str, float]:
    return {labels[label]: value for labels, value in samples_of}


def test_each_node_has_its_last_numbers_floors_and_verdicts(tmp_path: pathlib.Path, made: exporter.Exporter) -> None:
    runs.judged(tmp_path, 1, runs.fleet(a=670.0, b=671.0))
    runs.judged(tmp_path, 2, runs.fleet(a=669.0, b=540.0))
    bring(tmp_path)
    for accept in exporter.ACCEPT:
        found = shown(made, accept)
        gemm = [one for one in found["check_value"] if one[0]["check"] == "bf16"]
        assert of(gemm) == {"a": 669.0, "b": 540.0} and {labels["unit"] for labels, _value in gemm} == {"TFLOPS"}
        assert of(found["check_floor"]) == {"a": 636.5, "b": 636.5}
        assert {(labels["node"], labels["verdict"]) for labels, _one in found["node_verdict"]} == {("a", "PASS"), ("b", "FAIL")}
        assert [(labels["run"], value) for labels, value in found["accepted"]] == [(runs.run_id(2), 0.0)]
        assert [value for _labels, value in found["coverage"]] == [1.0] and found["history_up"] == [({}, 1.0)]
        assert of(found["verdicts"], "verdict")["FAIL"] >= 1


def test_a_node_is_there_until_a_whole_run_of_its_targets_does_without_it(tmp_path: pathlib.Path, made: exporter.Exporter) -> None:
    runs.judged(tmp_path, 1, runs.fleet(a=670.0, b=670.0))
    runs.judged(tmp_path, 1 + 1, runs.fleet(x=670.0))  # another fleet
    runs.judge(runs.measured(tmp_path, 3, runs.fleet(a=540.0), partial=True, left_out=["b"]))
    bring(tmp_path)
    found = shown(made)
    assert {(labels["node"], labels["verdict"]) for labels, _one in found["node_verdict"]} == {("a", "FAIL"), ("b", "PASS"), ("x", "PASS")}
    assert len(found["accepted"]) == 3
    runs.judged(tmp_path, 4, runs.fleet(a=670.0, c=670.0))
    bring(tmp_path)
    found = shown(made)
    assert set(of(found["node_verdict"])) == {"a", "c", "x"} == set(of(found["node_judged_seconds"]))
    assert set(of(found["check_value"])) == {"a", "c", "x"}


def test_a_run_of_another_inventory_takes_no_node_away(tmp_path: pathlib.Path, made: exporter.Exporter) -> None:
    def run(day: int, inventory: str, **tflops: float) -> None:
        runs.judge(runs.measured(tmp_path, day, runs.fleet(**tflops), inventory=inventory))

    def verdicts() -> set[tuple[str, str]]:
        bring(tmp_path)
        return {(labels["node"], labels["verdict"]) for labels, _one in shown(made)["node_verdict"]}

    run(1, "lab", a=670.0, b=670.0)
    run(2, "cluster", a=540.0, c=670.0)
    assert verdicts() == {("a", "FAIL"), ("b", "PASS"), ("c", "PASS")}, "the other inventory says what is new of a, and nothing of b"
    run(3, "cluster", c=670.0)
    assert verdicts() == {("b", "PASS"), ("c", "PASS")}, "a is gone from the inventory that spoke of it last"
    run(4, "lab", a=671.0)
    assert verdicts() == {("a", "PASS"), ("c", "PASS")}
    run(5, "", c=670.0, d=670.0)
    run(6, "lab", d=670.0)
    assert verdicts() == {("a", "PASS"), ("d", "PASS")}, "what an older version kept may be of any inventory"


def test_simulated_nodes_never_stand_in_the_place_of_real_ones(tmp_path: pathlib.Path, made: exporter.Exporter) -> None:
    runs.judged(tmp_path, 1, runs.fleet(a=540.0, b=670.0))
    simulated = {name: Machine(one.machine_id, one.gpus, simulated=True) for name, one in runs.fleet(a=670.0, s=670.0).items()}
    runs.judged(tmp_path, 2, simulated)
    bring(tmp_path)
    found = shown(made)
    verdicts = {(labels["node"], labels["verdict"], labels["simulated"]) for labels, _one in found["node_verdict"]}
    assert verdicts == {("a", "FAIL", "false"), ("b", "PASS", "false"), ("s", "PASS", "true")}
    assert of([one for one in found["check_value"] if one[0]["check"] == "bf16"]) == {"a": 540.0, "b": 670.0, "s": 670.0}


def test_a_quick_test_that_passed_is_accepted_nowhere(tmp_path: pathlib.Path, made: exporter.Exporter) -> None:
    quick = runs.measured(tmp_path, 1, runs.fleet(a=670.0), mode="quick", partial=True, not_proven=["the plateau"])
    done = runs.judge(quick)
    assert done["passed"] and not done["accepted"] and done["last"].startswith("QUICK TEST PASSED, ")
    assert 'partial="true"} 0\n' in (quick.dir / "report.prom").read_text()
    assert "<failure" not in (quick.dir / "report.junit.xml").read_text()
    report = json.loads((quick.dir / "report.json").read_text())
    assert (report["passed"], report["accepted"]) == (True, False)
    bring(tmp_path)
    found = shown(made)
    assert of(found["accepted"], "run") == {quick.id: 0.0} and {labels["verdict"] for labels, _one in found["node_verdict"]} == {"PASS"}
    with Store(url_of(tmp_path)) as store:
        (run,) = searching.runs(store)
        assert (run["accepted"], run["word"]) == (False, "QUICK TEST PASSED")
        assert not comparing.of_run(store, quick.id).accepted
        shown_as = showing.html(searching.Query(), searching.search(store, searching.Query()))
    assert "QUICK TEST PASSED" in shown_as and "ACCEPTED" not in shown_as


def test_a_pair_is_as_the_last_run_with_it_found_it(tmp_path: pathlib.Path, made: exporter.Exporter) -> None:
    put(tmp_path, content(["a", "b", "c"], [("a", "b"), ("a", "c")]))
    later = content(["a", "b"], [("a", "b")])
    changed: t.Any = {"run_id": "20261122T061718Z-0a1b2c", "created_at": "2026-11-22T06:17:18Z", "partial": True, "left_out": ["c"]}
    plan = make_plan({**later.plan, **changed})
    for verdict in later.judgements[0].verdicts[2:]:
        verdict.verdict, verdict.value = "PASS", 395.0
    put(tmp_path, dataclasses.replace(later, plan=plan, journal_sha256="k" * 64))
    found = shown(made)
    assert {(labels["a"], labels["b"]): value for labels, value in found["pair_value"]} == {("a", "b"): 395.0, ("a", "c"): 389.0}
    assert {labels["verdict"] for labels, _one in found["pair_verdict"]} == {"PASS"}


def test_a_run_of_a_clock_that_was_ahead_hides_no_later_one(
    tmp_path: pathlib.Path, made: exporter.Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current, "AHEAD_DAYS", 1)
    ahead = runs.measured(tmp_path, 2, runs.fleet(a=670.0), created_at="2126-01-02T00:00:00Z")
    runs.judge(ahead)
    runs.judged(tmp_path, 1, runs.fleet(a=540.0))
    bring(tmp_path)
    found = shown(made)
    assert [(labels["node"], labels["verdict"]) for labels, _one in found["node_verdict"]] == [("a", "FAIL")]
    assert found["runs_ahead"] == [({}, 1.0)] and of(found["accepted"], "run") == {runs.run_id(1): 0.0}


def test_a_node_shows_the_worst_of_its_gpus(tmp_path: pathlib.Path, made: exporter.Exporter) -> None:
    runs.judged(tmp_path, 1, {"a": Machine("a" * 32, {1: 670.0, 2: 500.0, 3: 400.0})})
    bring(tmp_path)
    found = shown(made)
    assert of([one for one in found["check_value"] if one[0]["check"] == "bf16"]) == {"a": 400.0}


def test_no_name_breaks_the_text_and_long_ones_stay_apart(tmp_path: pathlib.Path, made: exporter.Exporter) -> None:
    put(tmp_path, content(HOSTILE, []))
    for accept in exporter.ACCEPT:
        found = shown(made, accept)
        names = list(of(found["check_value"]))
        assert len(names) == len(set(names)) == len(HOSTILE) and all(len(name) <= exporter.LABEL for name in names)
        assert set(HOSTILE[:3]) <= set(names)
        assert list(of(found["check_regression"])) == HOSTILE[:1]


def test_pairs_are_bounded_and_the_bad_ones_are_shown(
    tmp_path: pathlib.Path, made: exporter.Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "PAIRS", 2)
    put(tmp_path, content(["a", "b", "c"], [("a", "b"), ("a", "c"), ("b", "c")]))
    found = shown(made)
    assert found["pairs_left_out"] == [({}, 1.0)] and len(found["pair_value"]) == 2
    assert ("a", "b", "FAIL") in {(labels["a"], labels["b"], labels["verdict"]) for labels, _one in found["pair_verdict"]}
    assert set(of(found["node_verdict"])) == {"a", "b", "c"}, "what is wrong with a pair is not said of its nodes"


def test_a_history_that_goes_away_is_said_and_what_was_known_stays(tmp_path: pathlib.Path, made: exporter.Exporter) -> None:
    found = shown(made)
    assert found["history_up"] == [({}, 0.0)] and set(found) == {"history_up", "history_read_seconds"}
    with pytest.raises(Exception, match="there is no history yet"):
        made.healthz("")
    runs.judged(tmp_path, 1, runs.fleet(a=670.0))
    bring(tmp_path)
    assert shown(made)["history_up"] == [({}, 1.0)] and made.healthz("")[1] == b"ok\n"
    for path in tmp_path.glob("history.db*"):
        path.rename(path.with_name(f"away-{path.name}"))
    made._store = None
    found = shown(made)
    assert found["history_up"] == [({}, 0.0)] and set(of(found["node_verdict"])) == {"a"}


def test_many_scrapes_at_once_are_answered_while_something_is_imported(tmp_path: pathlib.Path, made: exporter.Exporter) -> None:
    runs.judged(tmp_path, 1, runs.fleet(a=670.0))
    bring(tmp_path)
    made.look()
    server = made.serve("127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"

        def scrape(_number: int) -> int:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return int(b"node_verdict{" in answer.read())

        with concurrent.futures.ThreadPoolExecutor(100) as many:
            answers = many.map(scrape, range(100))
            runs.judged(tmp_path, 2, runs.fleet(a=670.0, b=670.0))
            bring(tmp_path)
            made.look()
            assert sum(answers) == 100
        assert set(of(shown(made)["node_verdict"])) == {"a", "b"}
    finally:
        server.shutdown()
        server.server_close()


def test_a_port_that_is_taken_is_one_sentence(tmp_path: pathlib.Path, made: exporter.Exporter, capsys: pytest.CaptureFixture[str]) -> None:
    server = made.serve("127.0.0.1", 0)
    try:
        arguments = ["--results-dir", str(tmp_path), "--address", "127.0.0.1", "--port", str(server.server_port)]
        assert exporter.main(arguments) == 1
        assert f"exporter: port {server.server_port} on 127.0.0.1 cannot be had" in capsys.readouterr().err
    finally:
        server.shutdown()
        server.server_close()
