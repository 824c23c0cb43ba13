# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that is lost while a stage that continues is collected may come back."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.ssh import plane
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import StageWork

LOST = AnsibleConnectionFailure("no route to host")
RUNNING, DONE = {"state": "running"}, {"state": "done"}


class Host(plane.StageOnHost):
    """A stage on a machine that gives these answers, one after the other; `clock` is moved by waits and calls."""

    def __init__(self, answers: list[t.Any], continues: bool = True, phase: str = "collect", call_s: float = 10.0) -> None:
        self.answers, self.resets, self.clock, self.call_s = answers, 0, 0.0, call_s
        self.description = t.cast(t.Any, types.SimpleNamespace(continues=continues))
        self.phase = phase
        self.__dict__["work"] = StageWork()
        self.action = types.SimpleNamespace(_connection=types.SimpleNamespace(reset=self.reset))

    def reset(self) -> None:
        self.resets += 1

    def args(self) -> t.Any:
        return {}

    def _keep_alive(self, result: t.Any) -> bool:
        return True

    def _execute(self, args: t.Any, request: t.Any) -> t.Any:
        self.clock += self.call_s
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> t.Callable[[Host], t.Any]:
    def of(host: Host) -> t.Any:
        def sleep(seconds: float) -> None:
            host.clock += seconds

        monkeypatch.setattr(plane, "time", types.SimpleNamespace(monotonic=lambda: host.clock, sleep=sleep))
        return host._stage_result()

    return of


def test_a_host_that_restarts_is_asked_until_its_probe_is_done(result: t.Callable[[Host], t.Any]) -> None:
    host = Host([RUNNING, LOST, LOST, LOST, RUNNING, DONE])
    assert result(host) == DONE and host.resets == 3


def test_a_host_that_does_not_come_back_in_time_is_lost(result: t.Callable[[Host], t.Any]) -> None:
    host = Host([LOST] * 1000)
    with pytest.raises(AnsibleConnectionFailure):
        result(host)
    assert plane.RETURN_S < host.clock < plane.RETURN_S + 60


def test_the_time_away_begins_anew_with_each_loss(result: t.Callable[[Host], t.Any]) -> None:
    host = Host([LOST] * 20 + [DONE], call_s=plane.CONNECT_S + plane.RETURN_S / 4)
    assert result(host) == DONE


@pytest.mark.parametrize(("continues", "phase"), [(False, "collect"), (True, "start")])
def test_other_stages_and_phases_do_not_wait(result: t.Callable[[Host], t.Any], continues: bool, phase: str) -> None:
    host = Host([LOST, DONE], continues, phase)
    with pytest.raises(AnsibleConnectionFailure):
        result(host)
    assert result(Host([RUNNING], continues, phase)) == RUNNING


def test_what_is_collected_as_soon_as_it_is_begun_is_not_collected_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left on the host then: a second collection would say that the probe ended without a result."""
    told: list[tuple[t.Any, ...]] = []
    monkeypatch.setattr(Host, "_answer_looks", lambda _self, _stop: None)
    monkeypatch.setattr(Host, "_keep_alive", lambda _self, _result: False)
    monkeypatch.setattr(Host, "_own_observations", lambda _self: [])
    monkeypatch.setattr(Host, "keep", lambda _self, _measurements: None)
    monkeypatch.setattr(Host, "result", lambda _self, _measurements: {})
    monkeypatch.setattr(plane, "interpret", lambda _answer, _completer: [])
    host = Host([RUNNING, DONE], continues=False, phase="start")
    host.planned, host.stage, host.host, host.completer = {("c", "", "h"): {}}, "gemm", "h", t.cast(t.Any, None)  # type: ignore[dict-item]
    host.vars = {"acceptance_stage": {"hosts": 2}}
    host.progress = t.cast(t.Any, types.SimpleNamespace(add=lambda _measurements: None, pulse=lambda: None))
    host.acting = t.cast(
        t.Any, types.SimpleNamespace(mailbox=types.SimpleNamespace(lost=lambda _host: None, finish=lambda *about: told.append(about)))
    )
    host.run()
    assert told == [("gemm", "h", 2)] and not host.answers


@pytest.mark.parametrize(("kept", "calls"), [(True, 1), (False, 2)])
def test_a_soak_on_a_host_that_is_reached_by_ansible_only_is_confirmed_by_a_second_start(
    result: t.Callable[[Host], t.Any], monkeypatch: pytest.MonkeyPatch, kept: bool, calls: int
) -> None:
    """It would end a minute later: no controller has heard of it."""
    monkeypatch.setattr(Host, "_keep_alive", lambda _self, _result: kept)
    host = Host([RUNNING, RUNNING], continues=True, phase="start")
    assert result(host) == RUNNING and host.clock == calls * host.call_s and host.phase == "start"
