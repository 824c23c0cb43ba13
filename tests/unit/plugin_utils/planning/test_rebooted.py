# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variable by which a resume is told of machines that were restarted on purpose."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import prepare
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import PlanError
from harness.records import make_plan
from unit.plugin_utils.judging.test_verdict import RUN, item

PLAN = make_plan({
    "run_id": RUN, "targets": {"gpu-01": {"plane": "ssh"}, "lab": {"plane": "kubernetes"}},
    "items": [item("gpu-01", "stack", "cuda"), {**item("lab/node-7", "stack", "cuda"), "target": "lab"}],
})  # fmt: skip


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([], []), ("", []), (None, []), (False, []), ("[]", []), ("false", []), (["no"], []),
        (True, ["*"]), ("true", ["*"]), ("True", ["*"]), (["yes"], ["*"]),
        ("gpu-01", ["gpu-01"]), (["gpu-01"], ["gpu-01"]), ("lab", ["lab"]), ("lab/node-7", ["lab/node-7"]),
        ("gpu-01, lab/node-7", ["gpu-01", "lab/node-7"]), (["lab", "gpu-01", "lab"], ["gpu-01", "lab"]),
    ],
)  # fmt: skip
def test_an_announced_restart_may_be_a_list_a_text_or_true(given: t.Any, names: list[str]) -> None:
    assert prepare.restarted({"mode": "resume", "rebooted": given}, PLAN) == names


@pytest.mark.parametrize("given", ["gpu-02", "lab/node-8", ["gpu-01", "gpu-1"], "gpu-01 lab"])
def test_a_host_that_the_run_does_not_have(given: t.Any) -> None:
    with pytest.raises(PlanError, match=r"^acceptance_rebooted: found '.*', expected hosts of run .*, such as"):
        prepare.restarted({"mode": "resume", "rebooted": given}, PLAN)


@pytest.mark.parametrize("given", [7, {"gpu-01": True}, [["gpu-01"]], [""], ["gpu-01", True]])
def test_an_announced_restart_that_is_no_list_of_hosts_is_refused(given: t.Any) -> None:
    with pytest.raises(PlanError, match=r"^acceptance_rebooted: found .*, expected hosts of the run, or true for all"):
        prepare.restarted({"mode": "resume", "rebooted": given}, PLAN)
