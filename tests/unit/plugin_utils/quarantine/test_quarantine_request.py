# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quarantine as the playbook asks for it: judged runs, the hosts of the play, and what is said."""

from __future__ import annotations

import pathlib
import types
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.action import quarantine as action
from ansible_collections.gpufleet.acceptance.plugins.modules import quarantine as module
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import convictions, doing, reason, request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from harness import history_runs as runs
from harness.node_service import Cluster

ROOT = pathlib.Path(__file__).resolve().parents[4]
NAMES = [chr(ord("a") + number) for number in range(12)]
Do = t.Callable[..., doing.Done]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Cluster]:
    """Twelve machines behind SSH, each with a hook in memory."""
    made = {name: Cluster([name]) for name in NAMES}
    monkeypatch.setattr(type(registry.shipped()["ssh"]), "node_control", lambda _plane, host, _variable: made.get(host))
    return made


@pytest.fixture
def do(machines: dict[str, Cluster], tmp_path: pathlib.Path) -> Do:
    """Return what carries out options over these machines."""

    def carry_out(day: int, check_mode: bool = False, hosts: t.Sequence[str] = NAMES, **options: t.Any) -> doing.Done:
        defaults = {name: of.get("default") for name, of in request.OPTIONS.items()}
        given = {**defaults, "run_id": runs.run_id(day), "results_dir": str(tmp_path), "percent": 50, "percent_per_hour": 50, **options}
        return request.carry_out(given, request.Hosts(hosts, lambda _host, _name: None), check_mode)

    assert machines
    return carry_out


def fleet(**slow: float) -> dict[str, runs.Machine]:
    return runs.fleet(**{**dict.fromkeys(NAMES, 670.0), **slow})


def held(machines: dict[str, Cluster]) -> list[str]:
    return [name for name, machine in machines.items() if machine.nodes_by_name[name].held]


def test_a_slow_machine_is_drained_when_two_runs_convict_it_and_returns_when_a_third_does_not(
    machines: dict[str, Cluster], do: Do, tmp_path: pathlib.Path
) -> None:
    runs.judged(tmp_path, 1, fleet(b=500))
    runs.judged(tmp_path, 2, fleet(b=500))
    alone = do(1, confirm=True)
    assert not alone.changed and any("b: left: only rates are too low" in line for line in alone.lines)
    second = {"second_run": runs.run_id(2)}
    for nothing in (do(1, **second), do(1, check_mode=True, confirm=True, **second)):
        assert (
            nothing.changed == {"b": "drained"}
            and held(machines) == []
            and nothing.lines[-1] == "nothing was done: -e confirm=true does it"
        )
    assert do(1, confirm=True, **second).changed == {"b": "drained"} and held(machines) == ["b"]
    assert not do(1, confirm=True, **second).changed
    machines["b"].put("b", reason=reason.text_of(reason.Mark(runs.run_id(1), "part", reason.began(runs.run_id(3)) - 60, "slow")))
    runs.judged(tmp_path, 3, fleet())
    proposed = do(3)
    assert "ready to return, by -e return=true: b" in proposed.lines and not proposed.changed
    assert do(3, confirm=True, **{"return": True}).changed == {"b": "resumed"} and held(machines) == []


def test_silent_machines_are_taken_on_request_only_and_undone_without_results(
    machines: dict[str, Cluster], do: Do, tmp_path: pathlib.Path
) -> None:
    found = fleet()
    found["c"].silent = True
    run = runs.judged(tmp_path, 1, found)
    left = do(1, confirm=True)
    assert not left.changed and "1 node UNKNOWN and left; -e quarantine_unknown=true takes UNKNOWN nodes as well" in left.lines
    assert do(1, confirm=True, unknown=True).changed == {"c": "drained"}
    run.dir.rename(tmp_path / "elsewhere")
    undone = do(1, confirm=True, undo=True)
    assert undone.changed == {"c": "resumed"} and held(machines) == [] and undone.lines[-1] == "undo: 1 node changed, 0 left, 0 failed"


def test_machines_without_a_hook_or_out_of_the_play_are_named(machines: dict[str, Cluster], do: Do, tmp_path: pathlib.Path) -> None:
    found = fleet()
    found["c"].silent = found["d"].silent = True
    runs.judged(tmp_path, 1, found)
    del machines["c"]
    done = do(1, confirm=True, unknown=True, hosts=[name for name in NAMES if name != "d"])
    assert not done.changed and any(line.startswith("c: left: nothing takes it out of service") for line in done.lines)
    assert any(line.startswith("d: left: d is not among the hosts of this play") for line in done.lines)


def test_numbers_of_simulated_tools_take_nobody_unless_the_inventory_is_simulated(do: Do, tmp_path: pathlib.Path) -> None:
    found = fleet(b=500)
    found["b"].simulated = True
    runs.judged(tmp_path, 1, found)
    left = do(1, mode="comment", confirm=True)
    assert left.lines[0].startswith("b: left: its numbers are those of a simulated tool") and "1 left" in left.lines[-1]
    assert do(1, mode="comment", confirm=True, simulated=True).changed == {"b": "commented"}


def test_simulated_numbers_neither_confirm_real_ones_nor_give_a_machine_back(
    machines: dict[str, Cluster], do: Do, tmp_path: pathlib.Path
) -> None:
    runs.judged(tmp_path, 1, fleet(b=500))
    for day, slow in ((2, 500.0), (3, 670.0)):
        found = fleet(b=slow)
        found["b"].simulated = True
        runs.judged(tmp_path, day, found)
    alone = do(1, confirm=True, second_run=runs.run_id(2))
    assert not alone.changed and any("b: left: only rates are too low" in line for line in alone.lines)
    mark = reason.Mark(runs.run_id(1), "part", reason.began(runs.run_id(3)) - 60, "slow")
    machines["b"].put("b", held=True, reason=reason.text_of(mark))
    left = do(3, confirm=True, **{"return": True})
    assert not left.changed and "simulated tool" in left.lines[0]
    assert do(3, confirm=True, simulated=True, **{"return": True}).changed == {"b": "resumed"}


def test_two_at_once_do_not_take_what_a_cap_allows_twice(machines: dict[str, Cluster], do: Do, tmp_path: pathlib.Path) -> None:
    for day, names in ((1, "b"), (2, "bc")):
        found = fleet()
        for name in names:
            found[name].silent = True
        runs.judged(tmp_path, day, found)
    refused: list[str] = []

    def meanwhile(_name: str) -> None:
        machines["b"].before = lambda _name: None
        with pytest.raises(RunError) as error:
            do(2, confirm=True, unknown=True, percent=1)
        refused.append(str(error.value))
        assert do(2, unknown=True, percent=50).changed == {"b": "drained", "c": "drained"}  # to look is no change

    machines["b"].before = meanwhile
    assert do(1, confirm=True, unknown=True, percent=50).changed == {"b": "drained"} and held(machines) == ["b"]
    assert "another quarantine, undo or return changes nodes now" in refused[0]
    again = do(2, confirm=True, unknown=True, percent=10)
    assert not again.changed and "beyond the cap" in again.lines[1]


def test_a_host_that_does_not_answer_fails_and_nothing_of_it_is_touched(
    machines: dict[str, Cluster], do: Do, tmp_path: pathlib.Path
) -> None:
    runs.judged(tmp_path, 1, fleet(b=500))
    machines["b"].silent = True
    done = do(1, mode="comment", confirm=True)
    assert done.failed == ["lab: does not answer; no node there is touched"] and not done.changed


def test_the_rack_of_a_node_is_spoken_of_before_it_is_taken(do: Do, tmp_path: pathlib.Path) -> None:
    found = fleet()
    found["c"].silent = found["d"].silent = True
    judging: dict[str, t.Any] = {"sets": [expectations.resolve([("run", [runs.EXPECTED])]).dump()], "of": dict.fromkeys(NAMES, 0)}
    judging["stated"] = {name: {"gpu_count": 1} for name in NAMES}
    runs.judge(runs.measured(tmp_path, 1, found, judging={**judging, "rack": {"c": "r1", "d": "r1"}}))
    done = do(1, unknown=True)
    assert done.changed == {"c": "drained"} and any("beyond the cap, 1 of 2 nodes of rack r1" in line for line in done.lines)
    assert any(line.startswith("c: 1 of 2 nodes of rack r1 are left without it") for line in done.lines)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"run_id": "x"}, "run_id: found 'x', expected the id of a run"),
        ({"undo": True, "return": True}, "undo, return: found both"),
        ({"percent": 200}, "expected percentages of 0 to 100"),
        ({"second_run": runs.run_id(1)}, "expected another run than run_id"),
        ({"run_id": runs.run_id(9)}, "does not exist in"),
    ],
)
def test_a_mistake_is_a_sentence(do: Do, tmp_path: pathlib.Path, options: dict[str, t.Any], words: str) -> None:
    runs.judged(tmp_path, 1, fleet())
    with pytest.raises(RunError, match=words):
        do(1, **options)


def test_the_action_reads_the_variables_of_each_host_and_returns_a_diff(machines: dict[str, Cluster], tmp_path: pathlib.Path) -> None:
    runs.judged(tmp_path, 1, fleet(b=500))
    args = {"run_id": runs.run_id(1), "results_dir": str(tmp_path), "mode": "comment", "confirm": True}
    acting = action.ActionModule.__new__(action.ActionModule)
    acting._task = types.SimpleNamespace(args=args, check_mode=False, async_val=0, diff=True)  # type: ignore[assignment]
    acting._cleanup_remote_tmp = False
    acting._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))  # type: ignore[assignment]
    hostvars = {name: {"acceptance_plane": "ssh"} for name in NAMES}
    result = acting.run(None, {"hostvars": hostvars, "ansible_play_hosts_all": NAMES})
    assert result["changed"] and result["nodes"] == {"b": "commented"} and "failed" not in result
    assert result["diff"]["before"] == "b: in service, no reason\n" and "comment 'gpufleet.acceptance" in result["diff"]["after"]
    acting._task.args = {**args, "run_id": "x"}
    assert "expected the id of a run" in acting.run(None, {"hostvars": hostvars, "ansible_play_hosts_all": NAMES})["msg"]


def test_words_of_others_reach_no_terminal_as_they_are(machines: dict[str, Cluster], tmp_path: pathlib.Path) -> None:
    found = fleet()
    found["b"].silent = found["c"].silent = True
    runs.judged(tmp_path, 1, found)
    machines["b"].put("b", comment="\x1b[31mRMA\nz: in service")
    machines["c"].before = lambda _name: machines["c"].put("c", held=True, reason="\x1b[31mRMA\nz: drained")
    args = {"run_id": runs.run_id(1), "results_dir": str(tmp_path), "unknown": True, "confirm": True, "percent": 50, "percent_per_hour": 50}
    acting = action.ActionModule.__new__(action.ActionModule)
    acting._task = types.SimpleNamespace(args=args, check_mode=False, async_val=0, diff=True)  # type: ignore[assignment]
    acting._cleanup_remote_tmp = False
    acting._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))  # type: ignore[assignment]
    result = acting.run(None, {"hostvars": {name: {"acceptance_plane": "ssh"} for name in NAMES}, "ansible_play_hosts_all": NAMES})
    assert result["nodes"] == {"b": "drained"} and "c: not drained: it has changed meanwhile" in result["msg"]
    assert result["diff"]["before"] == "b: in service, no reason, comment '\\x1b[31mRMA z: in service'\n"
    assert result["msg"].isprintable() and len(result["diff"]["after"].splitlines()) == 1


def test_the_module_documents_the_options_that_its_action_takes() -> None:
    documented = yaml.safe_load(module.DOCUMENTATION)["options"]
    assert {name: {key: of[key] for key in of if key != "description"} for name, of in documented.items()} == request.OPTIONS


def test_the_playbook_passes_each_option_on() -> None:
    (task,) = yaml.safe_load((ROOT / "roles/common/tasks/quarantine.yml").read_text())
    assert set(task["gpufleet.acceptance.quarantine"]) == set(request.OPTIONS) and task["run_once"]


def test_a_machine_that_was_not_asked_is_left() -> None:
    busy = convictions.Conviction("a", "UNKNOWN", "unmeasured", False, "a: in use", (), is_unasked=True)
    hosts = request.Hosts([], lambda _host, _name: None)
    hosts.controls["a"] = Cluster(["a"])
    assert "measure it again" in request._why_not(busy, {"simulated": False}, hosts)
    assert not request._why_not(busy._replace(is_unasked=False), {"simulated": False}, hosts)
