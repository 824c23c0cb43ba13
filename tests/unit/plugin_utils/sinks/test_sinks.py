# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sinks: how they are found, what they are told, and that nothing which goes wrong there reaches anything else."""

from __future__ import annotations

import json
import pathlib
import sys
import time
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import files, model
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks import registry, telling
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged, Kept, Options, Sink
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.registry import ChosenSink
from harness import report_samples as samples

MODULE = "ansible_collections.toy.lab.plugins.plugin_utils.ledger"


class Ledger(Sink):
    name = "ledger"
    options = {"where": {"type": "str", "required": True}, "token": {"type": "str", "no_log": True}}

    def __init__(self) -> None:
        self.heard: list[t.Any] = []

    def kept(self, of: Kept, options: Options) -> None:
        self.heard.append((of, options["where"]))
        of.measurements[0]["check"] = "changed"

    def judged(self, of: Judged, options: Options) -> None:
        raise SystemExit(f"no way to {options['where']} with {options['token']}\x1b[2J")


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    made = Ledger()
    module = types.ModuleType(MODULE)
    module.SINK = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, module)
    return made


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "todo").mkdir()
    return tmp_path


def chosen(wanted: t.Any, only: t.Container[str] | None = None) -> list[ChosenSink]:
    return registry.chosen(registry.requested({registry.VARIABLE: wanted}), only)


def kept(run: pathlib.Path, check: str = "facts") -> Kept:
    return Kept(samples.RUN, run, "stack", "a", [t.cast(t.Any, samples.measurement("a", "stack", check))])


def lines(run: pathlib.Path) -> list[dict[str, t.Any]]:
    return [json.loads(line) for line in (run / telling.NOTES).read_text().splitlines()]


def test_a_sink_is_the_module_that_holds_it_with_options_of_its_own(sink: Ledger) -> None:
    for name in (MODULE, MODULE.removeprefix("ansible_collections.")):
        (one,) = chosen([{"sink": name, "options": {"where": "x"}}])
        assert one.sink is sink and one.options["where"] == "x"
    wanted = [{"sink": MODULE, "options": {"where": "x"}}]
    assert registry.subscribed(registry.requested({registry.VARIABLE: wanted}), "kept") == [MODULE] and chosen(wanted, ()) == []


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("x", "expected a list of sinks"),
        ([7], r"acceptance_sinks\[0\]: found int"),
        (["ledger"], "expected one of history, log, pushgateway, traces, webhook, or the module of a collection that holds a SINK"),
        (["no.such.module"], "no.such.module cannot be loaded: ModuleNotFoundError"),
        (["gpufleet.acceptance.plugins.plugin_utils.collection"], "holds no SINK"),
        ([MODULE], "sink ledger: missing required arguments: where"),
        ([{"sink": MODULE, "options": {"where": "x", "wher": 1}}], "wher"),
        ([{"sink": MODULE, "option": {}}], "{sink, options}"),
        ([{"sink": MODULE, "options": {"where": "x"}}] * 2, "two sinks named 'ledger'"),
    ],
)
def test_a_sink_that_cannot_be_used_is_refused_in_words(sink: Ledger, wanted: t.Any, words: str) -> None:
    with pytest.raises(RunError, match=words):
        chosen(wanted)


def test_a_sink_is_told_a_copy_and_its_trouble_is_a_note_without_its_secrets(sink: Ledger, run: pathlib.Path) -> None:
    (one,) = chosen([{"sink": MODULE, "options": {"where": "x", "token": "s3cret"}}])
    of = kept(run)
    assert telling.kept([one], of) == []
    ((heard, where),) = sink.heard
    assert where == "x" and heard.measurements[0]["check"] == "changed" and of.measurements[0]["check"] == "facts"
    done = Judged(samples.RUN, run, {}, t.cast(t.Any, None), {})
    (note,) = telling.judged([one], done, run)
    assert note == "sink ledger was not told of the judgement: SystemExit: no way to x with ******** [2J"
    assert [(line["sink"], line["event"]) for line in lines(run)] == [("ledger", "judged")] and "s3cret" not in str(lines(run))


def test_a_sink_that_fails_is_said_once_and_goes_into_the_report(run: pathlib.Path) -> None:
    class Broken(Sink):
        name = "broken"

        def kept(self, of: Kept, options: Options) -> None:
            raise ValueError("the table is full")

    one = ChosenSink(Broken(), {})
    assert [telling.kept([one], kept(run)) for _unused in range(3)] == [["sink broken: stack on a: ValueError: the table is full"], [], []]
    assert telling.notes_of(run) == ["sink broken was not told of measurements (3 times): ValueError: the table is full"]
    assert telling.judged([one], Judged(samples.RUN, run, {}, t.cast(t.Any, None), {}), run) == [], "it has no method for that"


def test_a_slow_sink_holds_nobody_up_for_long(run: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Sink):
        name = "slow"
        calls = 0

        def kept(self, of: Kept, options: Options) -> None:
            self.calls += 1
            time.sleep(3600)

    monkeypatch.setattr(telling, "CALL_S", 1.0)
    monkeypatch.setattr(telling, "BUDGET_S", 1.9)
    sink, notes = Slow(), []
    for _unused in range(20):
        notes += telling.kept([ChosenSink(sink, {})], kept(run))
    assert sink.calls == 2 and notes == ["sink slow: stack on a: it took longer than 1 s"]
    assert lines(run)[-1]["problem"] == "it took longer than 1 s; it gets no more measurements of this run"


def test_a_report_form_that_fails_is_left_out_unless_it_is_report_json(
    run: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_model: t.Any) -> str:
        raise KeyError("x")

    plan, judged = samples.fleet(3, 1)
    done = Judged(samples.RUN, run, plan, t.cast(t.Any, judged), model.build(plan, t.cast(t.Any, judged)))
    monkeypatch.setattr(files.SINKS[0], "make", fails)
    paths, notes = files.write(done, run)
    assert [path.name for path in paths] == ["report.md", "report.json", "report.junit.xml", "report.prom"]
    assert notes == ["sink html was not told of the judgement: KeyError: 'x'"]
    assert "report.html" not in (run / "report.sha256").read_text()
    (run / "report.json").unlink()
    monkeypatch.setattr(files.SINKS[2], "make", fails)
    with pytest.raises(RunError, match=r"the report could not be written: .*json"):
        files.write(done, run)
