# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An old conviction takes no repaired node again, the record of what was done, and what a run may do by itself."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeChangedError, NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import doing, ledger, measured, reason, request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from harness import history_runs as runs
from harness.node_service import Cluster

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
    """Return what carries out options over these machines, confirmed."""

    def carry_out(day: int, racks: t.Mapping[str, str] | None = None, **options: t.Any) -> doing.Done:
        defaults = {name: of.get("default") for name, of in request.OPTIONS.items()}
        wide = {"percent": 50, "percent_per_hour": 50, "unknown": True, "confirm": True}
        given = {**defaults, "run_id": runs.run_id(day), "results_dir": str(tmp_path), **wide, **options}
        hosts = request.Hosts(NAMES, lambda host, name: (racks or {}).get(host) if name == request.RACK else None)
        return request.carry_out(given, hosts, False)

    assert machines
    return carry_out


def silent(*names: str) -> dict[str, runs.Machine]:
    found = runs.fleet(**dict.fromkeys(NAMES, 670.0))
    for name in names:
        found[name].silent = True
    return found


def line_of(done: doing.Done, node: str) -> str:
    return next(line for line in done.lines if line.startswith(f"{node}: "))


def test_a_node_that_was_given_back_is_not_taken_for_the_old_run(do: Do, tmp_path: pathlib.Path) -> None:
    runs.judged(tmp_path, 1, silent("b"))
    assert do(1).changed == {"b": "drained"}
    assert do(1, undo=True).changed == {"b": "resumed"}
    again = do(1)
    assert not again.changed and "b: left: it was given back at " in line_of(again, "b") and "measure it again" in line_of(again, "b")
    assert not do(1, mode="comment").changed


def test_a_second_run_from_before_the_return_confirms_nothing(do: Do, tmp_path: pathlib.Path, machines: dict[str, Cluster]) -> None:
    slow = silent()
    slow["b"].gpus = {ord("b"): 500.0}
    runs.judged(tmp_path, 1, slow)
    runs.judged(tmp_path, 2, slow)
    back = reason.began(runs.run_id(2)) - 60
    ledger.Ledger(str(tmp_path)).write(ledger.Entry(back, "b", "resume", runs.run_id(1)))
    assert "b: left: only rates are too low" in line_of(do(2, second_run=runs.run_id(1)), "b")
    runs.judged(tmp_path, 3, slow)
    assert do(2, second_run=runs.run_id(3)).changed == {"b": "drained"}


@pytest.mark.parametrize("fields", [{"held": False, "reason": ""}, {"held": False}])
def test_a_node_that_somebody_else_has_given_back_is_not_taken_for_the_old_run(
    machines: dict[str, Cluster], do: Do, tmp_path: pathlib.Path, fields: dict[str, t.Any]
) -> None:
    runs.judged(tmp_path, 1, silent("b"))
    do(1)
    machines["b"].put("b", **fields)
    assert "somebody has given it back since" in line_of(do(1), "b")


def test_a_node_that_others_took_and_gave_back_is_not_taken_for_the_old_run(
    machines: dict[str, Cluster], do: Do, tmp_path: pathlib.Path
) -> None:
    """If it was seen out of service in between: nothing of another's drain stays at the node."""
    runs.judged(tmp_path, 1, silent("b"))
    machines["b"].put("b", held=True, reason="bob: RMA 4711")
    do(1, confirm=False)
    assert not (tmp_path / ledger.NAME).exists()
    assert do(1, mode="comment").changed == {"b": "commented"}
    machines["b"].put("b", held=False, reason="")
    again = do(1)
    assert not again.changed and "b: left: it was out of service at " in line_of(again, "b") and "has given it back" in line_of(again, "b")


def test_a_node_that_a_later_run_finds_good_is_left_and_one_that_it_convicts_is_taken(do: Do, tmp_path: pathlib.Path) -> None:
    runs.judged(tmp_path, 1, silent("b", "c"))
    runs.judged(tmp_path, 2, silent("c"))
    runs.measured(tmp_path, 3, silent())  # nobody has judged it
    done = do(1)
    assert done.changed == {"c": "drained"} and f"run {runs.run_id(2)}, which is newer, finds it good" in line_of(done, "b")


def test_a_later_run_of_other_stages_or_of_simulated_tools_says_nothing(do: Do, tmp_path: pathlib.Path) -> None:
    runs.judged(tmp_path, 1, silent("b", "c"))
    runs.judge(runs.measured(tmp_path, 2, silent(), stages=("stack",)))
    simulated = silent()
    for machine in simulated.values():
        machine.simulated = True
    runs.judged(tmp_path, 3, simulated)
    assert do(1).changed == {"b": "drained", "c": "drained"}


def test_a_node_that_was_restarted_since_is_left(machines: dict[str, Cluster], do: Do, tmp_path: pathlib.Path) -> None:
    run = runs.judged(tmp_path, 1, silent("b", "c"))
    ended = measured.read(str(tmp_path), run.id).ended
    machines["b"].put("b", since=ended["b"] + 60)
    machines["c"].put("c", since=ended["c"] - 60)
    done = do(1)
    assert done.changed == {"c": "drained"} and "b: left: it is there since " in line_of(done, "b")


def test_a_return_by_an_old_run_gives_back_nobody_whom_a_newer_one_convicts(
    machines: dict[str, Cluster], do: Do, tmp_path: pathlib.Path
) -> None:
    runs.judged(tmp_path, 1, silent("b"))
    mark = reason.Mark(runs.run_id(1), "part", reason.began(runs.run_id(2)) - 60, "silent")
    machines["b"].put("b", held=True, reason=reason.text_of(mark))
    broken = silent()
    broken["b"].gpus = {ord("b"): 500.0}
    runs.judged(tmp_path, 2, silent())
    runs.judged(tmp_path, 3, broken)
    done = do(2, **{"return": True})
    assert not done.changed and f"run {runs.run_id(3)}, which is newer, convicts it" in line_of(done, "b")


def test_a_run_by_itself_only_comments_what_nobody_has_confirmed(do: Do, tmp_path: pathlib.Path) -> None:
    runs.judged(tmp_path, 1, silent("b"))
    alone = do(1, by_run=True)
    assert alone.changed == {"b": "commented"} and "nobody has confirmed gemm bf16 unreachable" in line_of(alone, "b")
    runs.judged(tmp_path, 2, silent("c"))
    person = do(2)
    assert person.changed == {"c": "drained"}
    assert any(line.startswith("no node was drained before for gemm bf16 unreachable, stack facts unreachable") for line in person.lines)
    runs.judged(tmp_path, 3, silent("d"))
    assert do(3, by_run=True).changed == {"d": "drained"}
    do(3, undo=True)
    do(2, undo=True)  # takes the confirmation back
    runs.judged(tmp_path, 4, silent("e"))
    assert do(4, by_run=True).changed == {"e": "commented"}


def test_so_many_in_an_hour_though_they_were_given_back(do: Do, tmp_path: pathlib.Path) -> None:
    runs.judged(tmp_path, 1, silent("b"))
    do(1, percent_per_hour=5)
    do(1, undo=True)
    runs.judged(tmp_path, 2, silent("c"))
    assert "1 nodes were taken in the last hour" in line_of(do(2, percent_per_hour=5), "c")


def test_the_rack_of_a_node_that_the_run_does_not_know_counts(do: Do, tmp_path: pathlib.Path) -> None:
    runs.judged(tmp_path, 1, {name: machine for name, machine in silent("b").items() if name in "ab"})
    runs.judged(tmp_path, 2, {name: machine for name, machine in silent("c").items() if name in "ac"})
    racks = {"b": "r1", "c": "r1", "d": ""}
    assert do(1, racks).changed == {"b": "drained"}
    assert "beyond the cap, 1 of 2 nodes of rack r1" in line_of(do(2, racks), "c")


def in_domain(machine: runs.Machine, cluster: str) -> None:
    machine.lists = {"gpu_table": [{"uuid": "GPU-1", "index": 0, "fabric": {"cluster": cluster, "clique": "1"}}]}


def test_one_node_of_an_nvlink_domain_is_taken_and_what_that_means_is_said_before(do: Do, tmp_path: pathlib.Path) -> None:
    found = silent()
    for name in "bcd":
        in_domain(found[name], "0d1f")
        found[name].gpus = {ord(name): 500.0 if name in "bc" else 670.0}
    in_domain(found["e"], "00000000-0000-0000-0000-000000000000")
    runs.judged(tmp_path, 1, found)
    runs.judged(tmp_path, 2, found)
    assert measured.read(str(tmp_path), runs.run_id(1)).domains == dict.fromkeys("bcd", "0d1f/1")
    shown = do(1, confirm=False, second_run=runs.run_id(2))
    assert shown.changed == {"b": "drained"}
    assert "beyond the cap, 1 of 3 nodes of NVLink domain 0d1f/1 are in quarantine" in line_of(shown, "c")
    assert any(line.startswith("b: 2 of 3 nodes of NVLink domain 0d1f/1") and "nodes_config.cfg" in line for line in shown.lines)
    do(1, second_run=runs.run_id(2))
    runs.judged(tmp_path, 3, silent("c"))  # it does not say where c is, and run 1 knew it of b only as long as b is in quarantine
    assert do(3).changed == {"c": "drained"}


@pytest.mark.parametrize("line", ["no JSON", '{"schema": "quarantine/v2"}', "[]", '{"schema": "quarantine/v1", "at": "x"}', "1"])
def test_a_record_that_cannot_be_read_is_a_sentence(do: Do, tmp_path: pathlib.Path, line: str) -> None:
    runs.judged(tmp_path, 1, silent("b"))
    do(1)
    with open(tmp_path / ledger.NAME, "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    with pytest.raises(RunError, match=r"quarantine\.jsonl line 2: found"):
        do(1)


class Busy(Cluster):
    """A cluster whose nodes something else changes all the time: `refusals` changes of ours are refused."""

    refusals = 0
    lost = False

    def drain(self, node: NodeState, reason: str) -> None:
        if self.refusals:
            self.refusals -= 1
            if self.lost:
                super().drain(node, reason)
            raise NodeChangedError("the object has been modified")
        super().drain(node, reason)


@pytest.mark.parametrize(("refusals", "lost", "drained"), [(3, False, True), (1, True, True), (9, False, False)])
def test_a_change_that_is_refused_is_tried_again_with_the_node_as_it_is_now(
    machines: dict[str, Cluster], do: Do, tmp_path: pathlib.Path, refusals: int, lost: bool, drained: bool
) -> None:
    runs.judged(tmp_path, 1, silent("b"))
    busy = machines["b"] = Busy(["b"])
    busy.refusals, busy.lost = refusals, lost
    done = do(1)
    assert done.changed == ({"b": "drained"} if drained else {})
    assert done.failed == ([] if drained else ["b: not drained: the object has been modified"])
