# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage whose nodes begin together in one job."""

from __future__ import annotations

import types
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.beginning import LATE_S, BeginningOnSlurm
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import StageWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.storage_together import STAGE, timetable

NAMES = ["n1", "n2", "n3"]


class Launched(BeginningOnSlurm):
    """Notes the job in place of running it."""

    host, description, least = "lab", STAGE, 2

    def __init__(self) -> None:
        nodes = [f"lab/{name}" for name in NAMES]
        options = {"timetables": [timetable({"storage": "s", "token": "ab", "at": 0.0}, nodes)]}
        self.work = StageWork(options, starts_in=60.0, per_node={node: {"own_name": node} for node in nodes})  # type: ignore[misc]
        self.absent = {}
        self.jobs: list[t.Any] = []

    def args(self) -> dict[str, t.Any]:
        return {"timeout": 500.0, "begins_in": 60.0}

    def request(self, args: dict[str, t.Any]) -> t.Any:
        return {"params": args}

    def address(self, name: str) -> str:
        return f"10.0.0.{name[1:]}"

    def common_gpus(self, names: t.Sequence[str]) -> str | None:
        return ""

    def run_job(self, *asked: t.Any) -> t.Any:
        self.jobs.append(asked)
        return types.SimpleNamespace(blockers={})


def test_who_waits_for_a_first_node_that_begins_late_keeps_the_time_of_the_work() -> None:
    launched = Launched()
    launched._launched(NAMES[1:])
    ((names, _gpus, timeout, requests, own),) = launched.jobs
    params = requests[""]["params"]
    assert names == NAMES[1:] and params["first"]["address"] == "10.0.0.2" and own["n3"] == {"own_name": "lab/n3"}
    assert params["ask_timeout"] == LATE_S and timeout == params["timeout"] == 500.0 + LATE_S
