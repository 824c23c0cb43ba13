# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What acceptance_info returns of a results folder."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.action import acceptance_info as action
from ansible_collections.gpufleet.acceptance.plugins.modules import acceptance_info as module
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import info, judged_runs
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.info import Filter
from harness import history_runs as runs


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Three judged runs: b slow in the first two, c only in the last; and one that is not judged."""
    folder = tmp_path_factory.mktemp("results")
    runs.judged(folder, 1, runs.fleet(a=670, b=500))
    runs.judged(folder, 2, runs.fleet(a=670, b=500))
    runs.judged(folder, 3, runs.fleet(a=670, c=670))
    runs.measured(folder, 4, runs.fleet(a=670))
    return folder


def ids(rows: t.Iterable[t.Mapping[str, t.Any]], name: str = "run") -> list[t.Any]:
    return [row[name] for row in rows]


def test_without_filters_it_is_the_newest_judged_run(results: pathlib.Path) -> None:
    answer = info.info(str(results), Filter())
    assert ids(answer.runs) == [runs.run_id(3)] and answer.unjudged == [runs.run_id(4)] and not answer.left_out
    assert answer.runs[0]["accepted"] and answer.runs[0]["word"] == "ACCEPTED" and answer.runs[0]["planned_at"] == "2026-01-03T00:00:00Z"
    assert {row["node"]: row["verdict"] for row in answer.nodes} == {"a": "PASS", "c": "PASS"}
    assert not answer.causes and not answer.findings and not answer.verdicts


def test_a_node_is_answered_by_the_newest_run_that_has_it(results: pathlib.Path) -> None:
    answer = info.info(str(results), Filter(node="b"), with_verdicts=True)
    assert ids(answer.runs) == [runs.run_id(2)] and not answer.runs[0]["accepted"]
    stages = {"stack": "PASS", "gemm": "FAIL"}
    assert answer.nodes == [
        {"run": runs.run_id(2), "node": "b", "kind": "node", "verdict": "FAIL", "simulated": False, "stages": stages}
    ]  # fmt: skip
    assert ids(answer.causes, "subject") == [f"b/gpu/{runs.uuid(ord('b'))}"]
    assert all(cause["verdict"] == "FAIL" and cause["checks"] == ["gemm bf16"] and "500" in cause["said"] for cause in answer.causes)
    assert {row["check"] for row in answer.findings} == {"bf16"} and {row["node"] for row in answer.findings} == {"b"}
    assert {row["node"] for row in answer.verdicts} == {"b"} and len(answer.verdicts) == 3
    (gpu,) = [row for row in answer.verdicts if row["kind"] == "gpu"]
    assert (gpu["value"], gpu["unit"], gpu["verdict"], gpu["subject"]) == (500, "TFLOPS", "FAIL", f"b/gpu/{runs.uuid(ord('b'))}")


def test_filters_narrow_runs_and_rows(results: pathlib.Path) -> None:
    every = info.info(str(results), Filter(limit=0))
    assert ids(every.runs) == [runs.run_id(day) for day in (3, 2, 1)] and len(every.nodes) == 6
    assert ids(info.info(str(results), Filter(limit=0, since="2026-01-02")).runs) == [runs.run_id(3), runs.run_id(2)]
    assert ids(info.info(str(results), Filter(run_id=runs.run_id(1))).runs) == [runs.run_id(1)]
    bad = info.info(str(results), Filter(limit=0, verdicts=("FAIL",)), with_verdicts=True)
    assert ids(bad.nodes, "node") == ["b", "b"] and {row["verdict"] for row in bad.verdicts} == {"FAIL"}
    facts = info.info(str(results), Filter(limit=0, check="stack *"), with_verdicts=True)
    assert {row["check"] for row in facts.verdicts} == {"facts"} and not facts.causes and not facts.findings
    assert ids(info.info(str(results), Filter(limit=2, node="[ab]")).nodes, "node") == ["a", "b", "a"]


def test_a_pair_belongs_to_both_of_its_nodes() -> None:
    asked = Filter(node="b")
    assert asked.has_subject("a/nic/mlx5_0/1|b/nic/mlx5_0/1") and asked.has_subject("b/gpu/GPU-1") and not asked.has_subject("a|c")
    assert not asked.has_subject("lab/b") and Filter(node="lab/*").has_subject("lab/b")


def test_a_node_that_nobody_knows_is_an_empty_answer(results: pathlib.Path) -> None:
    answer = info.info(str(results), Filter(node="z"), with_verdicts=True)
    assert not any((answer.runs, answer.nodes, answer.causes, answer.findings, answer.verdicts, answer.left_out))
    assert not info.info(str(results / runs.run_id(1) / "raw"), Filter()).runs


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"verdicts": ("BAD",)}, "verdict: found BAD, expected some of FAIL"),
        ({"limit": -1}, "limit: found -1, expected"),
        ({"since": "30d"}, "since: found '30d', expected a day as 2026-08-01"),
        ({"run_id": "x"}, "run_id: found 'x', expected the id of a run"),
        ({"run_id": "20250101T000000Z-0a1b2c"}, "does not exist in"),
    ],
)
def test_a_question_that_cannot_be_answered_is_one_sentence(results: pathlib.Path, fields: dict[str, t.Any], said: str) -> None:
    with pytest.raises(RunError, match=said):
        info.info(str(results), Filter(**fields))


def test_a_folder_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RunError, match=r"results_dir .*/nowhere: No such file or directory; expected the folder of all runs"):
        info.info(str(tmp_path / "nowhere"), Filter())


def test_a_report_that_was_changed_is_not_believed(tmp_path: pathlib.Path) -> None:
    run = runs.judged(tmp_path, 1, runs.fleet(a=670, b=500))
    runs.judged(tmp_path, 2, runs.fleet(a=670))
    path = run.dir / "report.json"
    path.write_text(path.read_text().replace('"accepted": false', '"accepted": true'))
    answer = info.info(str(tmp_path), Filter(limit=0))
    assert ids(answer.runs) == [runs.run_id(2)]
    assert answer.left_out == [f"run {run.id}: {path} is not what was written (see playbooks/verify.yml)"]


def test_a_run_that_was_judged_again_is_answered_by_its_last_judgement(tmp_path: pathlib.Path) -> None:
    run = runs.judged(tmp_path, 1, runs.fleet(a=670))
    runs.judge(run)
    (later,) = (run.dir / "judged").iterdir()
    assert info.info(str(tmp_path), Filter()).runs[0]["folder"] == str(later) == str(judged_runs.folder_of(tmp_path, run.id))
    (later / "verdicts.jsonl").write_text("broken\n")
    answer = info.info(str(tmp_path), Filter(), with_verdicts=True)
    assert not answer.nodes and "verdicts.jsonl cannot be read" in answer.left_out[0]


def test_the_options_are_those_of_the_documentation() -> None:
    written = yaml.safe_load(module.DOCUMENTATION)["options"]
    assert set(action.OPTIONS) - set(written) == {"results_dir"}
    for name, option in written.items():
        assert action.OPTIONS[name] == {key: value for key, value in option.items() if key != "description"}
