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


def test_it_is_asked_again_until_it_is_back_and_done(result: t.Callable[[Host], t.Any]) -> None:
    host = Host([RUNNING, LOST, LOST, LOST, RUNNING, DONE])
    assert result(host) == DONE and host.resets == 3


def test_who_stays_away_is_lost(result: t.Callable[[Host], t.Any]) -> None:
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
