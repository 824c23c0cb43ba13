# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A soak over real pods: machines behind SSH start and collect it, a pod measures it at once."""

from __future__ import annotations

import pathlib

import pytest
from harness.kube_runs import KubeRuns
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = pytest.mark.kubernetes
# An hour of the simulated clock is over at once.
BRIEF = {"soak_leg_minutes": 60, "soak_env": {"SIMULATED_CLOCK": "/dev/null"}, "soak_loopback": False}


def test_a_soak_is_measured_and_the_plan_does_not_say_that_it_goes_on(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> None:
    runs = KubeRuns(rig_kubernetes, tmp_path, "probe")
    done = runs.run("-e", "hours=1", playbook="playbooks/soak.yml", **BRIEF)
    soaked = [m for m in done.journal if m["stage"] == "soak" and m["subject"]["kind"] == "node"]
    assert {m["subject"]["id"] for m in soaked} == {"lab/kube-01", "lab/kube-02"}
    assert {m["outcome"] for m in soaked if m["check"] == "load"} == {"measured"}, [(m["check"], m["reason"]) for m in soaked]
    assert "soak goes on if this controller is killed" not in done.output
    runs.nothing_left()
