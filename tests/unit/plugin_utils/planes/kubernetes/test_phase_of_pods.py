# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod measures all at once, though machines behind SSH start the same stage first and collect it later."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import live_output
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.nodes import StageOnCluster


@pytest.mark.parametrize("phase", ["all", "collect"])
def test_a_pod_of_a_stage_that_is_collected_measures(phase: str) -> None:
    stage = t.cast("t.Any", StageOnCluster.__new__(StageOnCluster))
    stage.vars, stage.acting, stage.settings = {"acceptance_stage": {}}, types.SimpleNamespace(id="r"), {"soak_python": "/opt/python3"}
    stage.stage, stage.phase, stage.host = "soak", phase, "cluster"
    options = stage.run_options()
    assert options.pop("output") == live_output.IN_POD == f"{objects.WORK}/output"
    assert options == {"run_id": "r", "stage": "soak", "phase": "all", "interpreters": {"soak_python": "/opt/python3"}}
