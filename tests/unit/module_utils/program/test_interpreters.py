# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Python that a variable names and a node lacks is told before anything begins."""

from __future__ import annotations

import os
import pathlib
import sys
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner


def test_all_that_are_there_begin() -> None:
    runner.require_interpreters({"acceptance_python": sys.executable}, "host")
    runner.require_interpreters({}, "host")


def test_a_container_has_files_of_its_own() -> None:
    runner.require_interpreters({"acceptance_python": "/nowhere/python3"}, "docker")


def test_each_missing_one_is_named_by_its_variable(tmp_path: pathlib.Path) -> None:
    (tmp_path / "text").write_text("")
    named = {"train_python": "/nowhere/python3", "gemm_python": str(tmp_path), "soak_python": sys.executable}
    with pytest.raises(ReasonedError) as refused:
        runner.require_interpreters(named, "host")
    assert refused.value.reason_code == "tool_missing"
    assert "train_python: found /nowhere/python3, which does not exist" in refused.value.reason
    assert f"gemm_python: found {tmp_path}, which cannot be run" in refused.value.reason and "soak_python" not in refused.value.reason


def test_no_stage_begins_and_nothing_is_left(tmp_path: pathlib.Path) -> None:
    def probe(params: dict[str, t.Any], node: t.Any) -> t.Iterator[dict[str, t.Any]]:
        raise AssertionError("it was begun")

    params = {
        "checks": [], "timeout": 60.0, "state_dir": str(tmp_path / "state"), "lock_wait": 0.0, "root": "/", "nvidia_smi": "nvidia-smi",
        "npu_smi": "npu-smi", "exec": {"kind": "host"}, "run": {"interpreters": {"gemm_python": "/nowhere/python3"}},
    }  # fmt: skip
    answer = runner.perform(probe, params, "own")
    assert (answer["state"], answer["reason_code"]) == ("refused", "tool_missing") and not os.path.exists(tmp_path / "state")
