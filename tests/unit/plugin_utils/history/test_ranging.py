# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Expectations proposed from the accepted runs of some days."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.action import baseline as action
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import conclude
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import ranging
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store, url_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.baseline import Proposal
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from harness import history_runs as runs
from harness import journals
from harness.history_runs import Machine

NAMES = "abcde"
TODAY = "2026-02-01"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Days 1 to 3 are accepted, `a` is `z` on the third; on the fourth a machine fails; the fifth is simulated."""
    results = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conclude.files, "write", lambda *_of: ([], []))
        for day in range(1, 6):
            machines = runs.fleet(**{name: 660.0 + at + 10 * day for at, name in enumerate(NAMES)})
            if day == 3:
                machines["z"] = machines.pop("a")
            if day == 4:
                machines["b"].gpus[98] = 400.0
            if day == 5:
                machines = {name: Machine(one.machine_id, one.gpus, simulated=True) for name, one in machines.items()}
            runs.judged(results, day, machines, acceptance_history=True)
    return results


def proposed(results: pathlib.Path, since: str = "", until: str = "") -> Proposal:
    with Store(url_of(results)) as store:
        return ranging.propose(store, str(results), since, until, TODAY)


def test_each_subject_counts_once_with_its_own_median_of_accepted_runs(made: pathlib.Path) -> None:
    found = proposed(made, "2026-01-01", "2026-01-04")
    (gemm,) = found.entries
    assert gemm["value"] == 682 and gemm["confidence"] == "measured", "the renamed machine is one, the rejected run is out"
    name = f"3 accepted runs, {runs.run_id(1)} to {runs.run_id(3)}"
    assert gemm["source"] == f"{name}: median of 5 gpus, 0.6 % between lowest and highest"
    assert f"# Proposed from {name}." in found.text and "proposed: true" in found.text


def test_a_quick_test_is_no_yardstick(made: pathlib.Path, tmp_path: pathlib.Path) -> None:
    results = tmp_path / "copy"
    shutil.copytree(made, results)
    quick = runs.measured(results, 6, runs.fleet(**dict.fromkeys(NAMES, 640.0)), mode="quick", not_proven=["the plateau"])
    assert runs.judge(quick, acceptance_history=True)["passed"]
    assert proposed(results, until="2026-01-06").entries == proposed(made, until="2026-01-06").entries
    with pytest.raises(HistoryError, match=r"1 runs are there in the history .*expected one that was accepted"):
        proposed(results, since="2026-01-06")


def test_simulated_numbers_are_marked_and_mixed_with_no_others(made: pathlib.Path) -> None:
    found = proposed(made, since="2026-01-02")
    assert sorted(entry["source"].split()[0] for entry in found.entries) == ["3", "SIMULATED"]
    assert {entry["value"] for entry in found.entries} == {687, 712}


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        ("soon", "", "since: found 'soon', expected a day as 2026-08-01, or 30d"),
        ("", "later", "until: found 'later', expected a day"),
        ("2026-01-03", "2026-01-02", "found since 2026-01-03 and until 2026-01-02, expected a first day that is not after the last one"),
        ("2026-01-04", "2026-01-04", "since 2026-01-04 until 2026-01-04: 1 runs are there in the history .*expected one that was accepted"),
        ("2027-01-01", "", "since 2027-01-01: no run is there in the history"),
    ],
)
def test_what_was_given_is_named(made: pathlib.Path, since: str, until: str, said: str) -> None:
    with pytest.raises(HistoryError, match=said):
        proposed(made, since, until)


def test_a_folder_that_is_gone_or_changed_is_left_out_and_said(made: pathlib.Path, tmp_path: pathlib.Path) -> None:
    results = tmp_path / "copy"
    shutil.copytree(made, results)
    shutil.rmtree(results / runs.run_id(1))
    journal = results / runs.run_id(2) / "journal.jsonl.gz"
    journals.write(journal, journals.text(journal).replace(b"680.0", b"690.0"))
    found = proposed(results, until="2026-01-04")
    assert [line.split(":")[0] for line in found.left_out[:2]] == [f"run {runs.run_id(1)}", f"run {runs.run_id(2)}"]
    assert "it is not what was written" in found.left_out[1] and found.entries[0]["source"].startswith(f"run {runs.run_id(3)}: ")
    shutil.rmtree(results / runs.run_id(3))
    with pytest.raises(HistoryError, match="none of the 3 accepted runs can be read: run "):
        proposed(results, until="2026-01-04")


def test_a_run_or_a_range_and_not_both(made: pathlib.Path) -> None:
    def of(**args: t.Any) -> Proposal:
        return action.ActionModule._proposed({"results_dir": str(made), **args})[0]

    with pytest.raises(RunError, match=r"was not judged: slow nodes propose .* set -e baseline_unaccepted=true"):
        of(run_id=runs.run_id(1))
    assert of(run_id=runs.run_id(1), unaccepted="True").entries[0]["source"].startswith(f"run {runs.run_id(1)}: ")
    assert len(of(since="2026-01-01", until="2026-01-03").entries) == 1
    with pytest.raises(RunError, match=r"found run_id .* and since 6m, expected a run or a range of days"):
        of(run_id=runs.run_id(1), since="6m")
    with pytest.raises(RunError, match="run_id: found ''"):
        of()
