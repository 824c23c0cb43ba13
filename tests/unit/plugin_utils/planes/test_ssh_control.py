# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hook that takes a machine behind SSH out of service."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeControl, NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.ssh import control
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

# A hook that keeps what it is told in files beside it.
HOOK = """#!/usr/bin/env python3
import json, pathlib, sys
what, host, *more = sys.argv[2:]
path = pathlib.Path(__file__).parent / f"{host}.json"
state = json.loads(path.read_text()) if path.exists() else {"held": False}
if what == "show":
    print(json.dumps(state))
elif what == "drain":
    state.update(held=True, reason=more[0])
elif what == "resume":
    state = {"held": False, "comment": state.get("comment", "")}
elif what == "comment":
    state["comment"] = more[0]
path.write_text(json.dumps(state))
"""


@pytest.fixture
def hook(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "hook"
    path.write_text(HOOK)
    path.chmod(0o755)
    return path


def of(value: t.Any) -> NodeControl | None:
    return registry.shipped()["ssh"].node_control("gpu-01", {control.VARIABLE: value}.get)


def test_a_machine_is_taken_out_of_service_and_given_back(hook: pathlib.Path) -> None:
    machine = of([str(hook), "site"])
    assert machine is not None
    (node,) = machine.nodes()
    assert node == NodeState("gpu-01", False)
    machine.drain(node, "a reason; with $(words)")
    assert machine.read("gpu-01") == NodeState("gpu-01", True, "a reason; with $(words)")
    machine.comment(node, "look")
    machine.resume(node)
    assert machine.nodes() == [NodeState("gpu-01", False, "", "look")]


def test_without_a_hook_nothing_can_be_done() -> None:
    assert of(None) is None and of([]) is None


@pytest.mark.parametrize("value", ["hook show", [1], ["a", ""], {"a": 1}])
def test_a_hook_is_a_list_of_words(value: t.Any) -> None:
    with pytest.raises(RunError, match="gpu-01: acceptance_quarantine_hook: found"):
        of(value)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo no such host >&2; exit 3", "show fails: no such host"), ("exit 3", "show fails: exit status 3"),
        ("echo yes", "found 'yes"), ('echo \'{"held": "yes"}\'', "expected {"), ("echo '[]'", "expected {"), ("echo '{}'", "expected {"),
        ('echo \'{"held": true, "reason": 7}\'', "expected {"),
    ],
)  # fmt: skip
def test_a_hook_that_fails_or_says_something_else(tmp_path: pathlib.Path, script: str, words: str) -> None:
    (tmp_path / "hook").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "hook").chmod(0o755)
    machine = of([str(tmp_path / "hook")])
    assert machine is not None
    with pytest.raises(RunError) as error:
        machine.nodes()
    assert words in str(error.value)


def test_a_hook_that_is_not_there() -> None:
    machine = of(["/nowhere/hook"])
    assert machine is not None
    with pytest.raises(RunError, match="gpu-01: acceptance_quarantine_hook: /nowhere/hook: No such file"):
        machine.nodes()
