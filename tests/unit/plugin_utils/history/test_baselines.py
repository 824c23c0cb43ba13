# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs that are judged with a past: what has become worse is a WARN, what is bad stays so, and who knows nothing says nothing."""

from __future__ import annotations

import datetime
import json
import pathlib
import random
import shutil
import threading
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import conclude
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import baselines, comparison, current
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.identity import Who
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store, url_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, references
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness import history_runs as runs
from harness import journals
from harness.history_runs import Machine
from harness.report_samples import HOSTILE

HISTORY = {"acceptance_history": True}
NAMES = "abcdef"
GPU = ("a", runs.uuid(2))
DAYS = 12  # runs of the past


def noisy(name: str, day: int) -> float:
    """As healthy machines are: 0.2 % to either side."""
    return 676.0 * (1 + random.Random(f"{name} {day}").uniform(-0.002, 0.002))


def fleet(day: int, worse: t.Mapping[str, float] | None = None, **of: t.Any) -> dict[str, Machine]:
    """Six machines with two GPUs each, on a day. What is `worse` gives less by a factor: the first GPU of a node by its name, or all."""
    factors = {"all": 1.0, **(worse or {})}
    return {
        name: Machine(
            name * 32,
            {
                2 * at: noisy(f"{name}0", day) * factors.get(name, 1.0) * factors["all"],
                2 * at + 1: noisy(f"{name}1", day) * factors["all"],
            },
            **of,
        )
        for at, name in enumerate(NAMES, start=1)
    }


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The history of twelve runs in which nothing happened."""
    results = tmp_path_factory.mktemp("healthy")
    after(results, range(1, DAYS + 1))
    return results / "history.db"


@pytest.fixture(scope="module")
def ill(healthy: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The same, and two in which a GPU of `a` gives 3 % less."""
    results = tmp_path_factory.mktemp("ill")
    shutil.copy(healthy, results)
    after(results, (13, 14), {"a": 0.97})
    return results / "history.db"


@pytest.fixture
def results(healthy: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copy(healthy, tmp_path)
    return tmp_path


@pytest.fixture
def worse(ill: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copy(ill, tmp_path)
    return tmp_path


def after(results: pathlib.Path, days: t.Iterable[int], worse: t.Mapping[str, float] | None = None, **of: t.Any) -> None:
    """Runs whose reports nobody reads, and which are not written: each takes longer than all else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conclude.files, "write", lambda *_of: ([], []))
        for day in days:
            runs.judged(results, day, fleet(day, worse, **of), **HISTORY)


def now(results: pathlib.Path, machines: dict[str, Machine], day: int = 15, **judging: t.Any) -> tuple[Run, dict[str, t.Any]]:
    """A run on that day and what its judgement says."""
    run = with_settings(runs.measured(results, day, machines), **judging)
    return run, runs.judge(run, **HISTORY)


def with_settings(run: Run, **judging: t.Any) -> Run:
    """A run whose plan has these settings of its judgement; the journal follows from the plan."""
    if judging:
        lines = journals.of(run.dir)
        plan = run.plan()
        for name, value in judging.items():
            setattr(plan.judging, name, value)
        (run.dir / "plan.json").write_text(json.dumps(plan.as_dict()))
        run.journal.path.unlink()
        again = Run(run.dir.parent, run.id)
        again.journal.append([{name: value for name, value in line.items() if name != "chain"} for line in lines])
        return again
    return run


def verdicts(run: Run, folder: str = "") -> dict[tuple[str, str], dict[str, t.Any]]:
    """Those of gemm: {(node, GPU): verdict}."""
    lines = [json.loads(line) for line in (run.dir / folder / "verdicts.jsonl").read_text().splitlines()]
    return {tuple(v["subject"]["id"].partition("/gpu/")[::2]): v for v in lines if v["stage"] == "gemm"}


def report(run: Run) -> dict[str, t.Any]:
    found: dict[str, t.Any] = json.loads((run.dir / "report.json").read_text())
    return found


def words(done: dict[str, t.Any]) -> str:
    return " ".join(" ".join(done["said"]).split())


def regressed(results: pathlib.Path) -> set[tuple[str, str]]:
    """What the exporter shows as a regression."""
    with Store(url_of(results)) as store:
        nodes = current.fleet(store, datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC)).nodes
    return {(name, check.check) for name, node in nodes.items() for check, seen in node.checks.items() if seen.regressed}


def test_what_became_worse_is_a_warning_with_one_sentence_and_nobody_elses(worse: pathlib.Path) -> None:
    run, done = now(worse, fleet(15, {"a": 0.97}))
    assert done["accepted"] and done["refused"] == []
    found = verdicts(run)
    one = found[GPU]
    assert (one["verdict"], one["reason_code"], one["regressed"]) == ("WARN", "regression", True)
    assert "% below its own median 67" in one["reason"]
    assert one["reason"].endswith(" of 12 runs since 2026-01-01; its sibling unchanged")
    assert one["floor"] and one["expectation"] == "ours", "what it was held to stays"
    assert {key for key, v in found.items() if v["verdict"] != "PASS"} == {GPU, ("a", "")}, "the node is as slow as its GPU"
    assert f"a {runs.uuid(2)}: gemm bf16: 65" in words(done) and "18 numbers held against their own past: step 2" in words(done)
    for name in ("report.html", "report.md"):
        text = (run.dir / name).read_text().replace("\\", "")
        assert "Against their own past" in text and "18 numbers held against their own past, 2 of them worse" in text
        assert f"a {runs.uuid(2)} gemm bf16 65" in text
    assert regressed(worse) == {("a", "bf16")}


def test_a_level_that_was_lowered_on_purpose_is_a_new_reference(worse: pathlib.Path) -> None:
    meant = {"subject": "a", "since": "2026-01-13", "ticket": "OPS-1", "reason": "600 W"}
    run, done = now(worse, fleet(15, {"a": 0.97}), references=[meant])
    assert {v["verdict"] for v in verdicts(run).values()} == {"PASS"}
    assert "a new reference since 2026-01-13 by OPS-1 (600 W): 3 numbers are not held against what was before, a * *" in words(done)
    assert report(run)["past"]["short"] == 3, "its GPUs and itself have two runs since"
    other, done = now(worse, fleet(16, {"a": 0.97}), day=16, references=[{**meant, "check": "fp8"}])
    assert {v["reason_code"] for v in verdicts(other).values()} == {None, "regression"} and "new reference" not in words(done)


def test_a_message_size_has_a_past_too(results: pathlib.Path) -> None:
    machines = fleet(13)
    machines["a"].sweep = 0.97
    match = {"stage": "gemm", "check": "bf16", "gpu": runs.GPU, "size": 16}
    sized = {**runs.EXPECTED, "id": "sized", "match": match, "metric": "busbw", "value": 100, "unit": "GB/s", "note": "small messages"}
    sets = [expectations.resolve([("run", [runs.EXPECTED, sized])]).dump()]
    for day in (13, 14):
        runs.judge(with_settings(runs.measured(results, day, machines), sets=sets), **HISTORY)
    run, done = now(results, machines, sets=sets)
    bad = {subject: v["reason"] for subject, v in verdicts(run).items() if v["verdict"] == "WARN"}
    said = "busbw at 16 B 97.97 GB/s, 3.0 % below its own median 101 of 12 runs since 2026-01-01"
    assert bad == {("a", ""): f"a: {said}"} and f"WARN a: gemm bf16: {said}" in words(done)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"subject": "a"}, "acceptance_new_references: found {'subject': 'a'}, expected a list"),
        ([{"subject": "a", "since": "2026-1-1", "ticket": "T"}], r"\[0\] \(T\): since: found '2026-1-1', expected a date, YYYY-MM-DD"),
        ([{"subject": "a", "since": "2026-01-01"}], r"\[0\]: ticket: found None, expected text"),
        ([{"since": "2026-01-01", "ticket": "T"}], r"\[0\] \(T\): subject: found None, expected text"),
        ([{"subject": "a", "since": "9999-01-01", "ticket": "T"}], "since: found 9999-01-01, expected today or a day before it"),
        ([{"subject": "a", "since": "2026-01-01", "ticket": "T", "until": 1}], "until: found an unknown key"),
    ],
)
def test_a_new_reference_that_cannot_be_used_is_named(raw: t.Any, said: str) -> None:
    with pytest.raises(references.NewReferenceError, match=said):
        references.parse(raw)


def test_a_failure_stays_one_and_the_exporter_knows_that_it_is_new(results: pathlib.Path) -> None:
    after(results, (13, 14), {"a": 0.8})
    run, done = now(results, fleet(15, {"a": 0.8}))
    one = verdicts(run)[GPU]
    assert not done["accepted"]
    assert (one["verdict"], one["reason_code"], one["regressed"]) == ("FAIL", "below_neighbours", True)
    assert "; 540.3 TFLOPS, 20.0 % below its own median 675.8 of 12 runs" in one["reason"]
    assert regressed(results) == {("a", "bf16")}
    gone = fleet(15)
    gone["a"].silent = True
    run, done = now(results, gone, day=16)
    assert verdicts(run)["a", ""]["verdict"] == "UNKNOWN" and not done["accepted"]


def test_one_bad_run_is_told_and_is_no_warning(results: pathlib.Path) -> None:
    run, done = now(results, fleet(13, {"a": 0.96}), day=13)
    assert {v["verdict"] for v in verdicts(run).values()} == {"PASS"}
    told = report(run)["past"]
    assert told["regressions"] == 0 and {one["kind"] for one in told["changes"]} == {"hiccup"}
    assert f"a {runs.uuid(2)} gemm bf16 6" in told["said"][1] and "one run alone, a hiccup until the next ones say more" in told["said"][1]
    assert "18 numbers held against their own past: hiccup 2" in words(done)
    assert not regressed(results)


def test_what_everybody_did_is_nobodys_and_the_driver_is_named(results: pathlib.Path) -> None:
    after(results, (13, 14), {"all": 0.97}, driver="590.2")
    run, done = now(results, fleet(15, {"all": 0.97}, driver="590.2"))
    assert {v["verdict"] for v in verdicts(run).values()} == {"PASS"} and done["accepted"]
    assert "gemm bf16: all 12 GPUs together went to 3." in words(done)
    assert "when driver became 590.2; shared, no regression of one of them" in words(done)
    assert report(run)["past"]["said"][0].endswith("shared, no regression of one of them")
    assert not regressed(results)


def test_an_improvement_is_told(results: pathlib.Path) -> None:
    after(results, (13, 14), {"a": 1.04})
    run, _done = now(results, fleet(15, {"a": 1.04}))
    assert {v["verdict"] for v in verdicts(run).values()} == {"PASS"}
    told = report(run)["past"]
    assert told["changes"][0]["kind"] == "improvement" and "above its own median" in told["said"][0]


def test_refuse_accepts_no_run_with_a_regression_and_off_does_not_look(worse: pathlib.Path) -> None:
    run, done = now(worse, fleet(15, {"a": 0.97}), regression="refuse")
    assert not done["accepted"] and done["refused"] == ["a"]
    assert "worse than its own past: 1 node (a), and acceptance_regression is refuse" in done["why"]
    assert verdicts(run)[GPU]["verdict"] == "WARN"
    run, done = now(worse, fleet(16, {"a": 0.97}), day=16, regression="off")
    assert done["accepted"] and {v["verdict"] for v in verdicts(run).values()} == {"PASS"}
    assert report(run)["past"] is None and "their own past" not in words(done)


def test_a_short_past_says_so_and_guesses_nothing(tmp_path: pathlib.Path) -> None:
    after(tmp_path, range(1, 4))
    run, done = now(tmp_path, fleet(4, {"a": 0.97}), day=4)
    assert {v["verdict"] for v in verdicts(run).values()} == {"PASS"}
    assert report(run)["past"]["said"] == [
        "0 numbers held against their own past, none of them worse; 18 have fewer than 8 runs before, too few to tell a change"
    ]
    assert "0 numbers held against their own past: nothing new; 18 have too short a past" in words(done)
    first, _done = now(tmp_path / "new", fleet(1), day=1)
    assert report(first)["past"] is None


def test_simulated_and_real_have_nothing_in_common(results: pathlib.Path) -> None:
    after(results, (13, 14), {"a": 0.97}, simulated=True)
    run, _done = now(results, fleet(15, {"a": 0.97}, simulated=True))
    assert {v["verdict"] for v in verdicts(run).values()} == {"PASS"}
    assert (report(run)["past"]["compared"], report(run)["past"]["short"]) == (0, 18)
    run, _done = now(results, fleet(16), day=16)
    assert (report(run)["past"]["compared"], report(run)["past"]["short"]) == (18, 0)
    assert not report(run)["past"]["changes"], "nothing that was simulated is the past of what is real"


def test_who_judges_again_hears_the_same_and_a_run_is_not_its_own_past(worse: pathlib.Path) -> None:
    run, _done = now(worse, fleet(15, {"a": 0.97}))
    before = verdicts(run)
    after(worse, (16, 17, 18))
    again = runs.judge(run, **HISTORY)
    (folder,) = run.dir.glob("judged/*")
    assert verdicts(run, f"judged/{folder.name}") == before and "step 2" in words(again)


def test_a_renamed_node_has_its_past_and_a_hostile_name_does_no_harm(results: pathlib.Path) -> None:
    names = dict(zip(NAMES, HOSTILE, strict=False))
    for day in (13, 14):
        runs.judged(results, day, {names[name]: machine for name, machine in fleet(day, {"a": 0.97}).items()}, **HISTORY)
    run, done = now(results, {names[name]: machine for name, machine in fleet(15, {"a": 0.97}).items()})
    assert report(run)["past"]["compared"] == 18 and report(run)["past"]["regressions"] == 2
    assert not any(character in "".join(done["said"]) for character in "\x1b\x00\u202e")
    assert "<script>window.harm" not in (run.dir / "report.html").read_text()


def test_a_history_that_does_not_answer_costs_a_note_and_no_verdict(worse: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(url_of(worse)) as store, store.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    run, done = now(worse, fleet(15, {"a": 0.97}))
    assert done["accepted"] and {v["verdict"] for v in verdicts(run).values()} == {"PASS"}
    assert "note: nothing was held against earlier runs: " in words(done) and "found schema 9999" in words(done)
    with Store(f"sqlite:///{worse}/other.db", make=True):
        pass
    (worse / "history.db").unlink()
    judged = threading.Event()
    monkeypatch.setattr(baselines, "compare", lambda *_args, **_options: judged.wait())
    monkeypatch.setattr(comparison.with_earlier_runs, "__defaults__", (0.0,))
    (worse / "other.db").rename(worse / "history.db")
    _run, done = now(worse, fleet(16), day=16)
    judged.set()
    assert done["accepted"] and "nothing was held against earlier runs: the history did not answer within 0 s" in words(done)


def test_what_takes_too_long_or_is_too_much_is_named(worse: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "MOST", 3)
    run, done = now(worse, fleet(15, {"a": 0.97}))
    assert done["accepted"] and {v["verdict"] for v in verdicts(run).values()} == {"PASS"}
    said = "gemm bf16 was measured on 18 subjects: more than 3 are not held against their past"
    assert said in words(done) and said in (run.dir / "report.md").read_text()
    monkeypatch.undo()
    monkeypatch.setattr(baselines.compare, "__defaults__", (-1.0,))
    _run, done = now(worse, fleet(16), day=16)
    assert "gemm bf16 was not held against its past: the history took longer than -1 s" in words(done)


def test_a_subject_stands_in_the_rack_of_its_node() -> None:
    racks = {"gpu-01": "r1"}
    assert list(baselines._places(Who("gpu", "gpu-01/gpu/GPU-1", False), racks))[1:] == [("node", "gpu-01"), ("rack", "r1")]
    assert list(baselines._places(Who("node", "gpu-01", False), racks)) == [("node", "gpu-01"), ("rack", "r1")]
    assert list(baselines._places(Who("node", "gpu-02", False), racks)) == [("node", "gpu-02")]
