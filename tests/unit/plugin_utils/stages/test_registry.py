# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Descriptions of stages that a team brings along."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import ROUNDS, Stage

STAGE = """
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base
class Mine(base.Stage):
    probe = "probe.py"
STAGE = Mine()
"""


def load(folder: pathlib.Path, probe: str) -> None:
    (folder / "stage.py").write_text(STAGE)
    (folder / "probe.py").write_text(probe)
    registry.load("mine", "mine", str(folder / "stage.py"))


@pytest.mark.parametrize(
    "call", ['observation.failed("copy", "tool_fialed", err)', 'failed(check, reason_code="tool_fialed", reason=f"{rc}")']
)
def test_a_mistyped_reason_code_is_refused_with_the_place_and_the_code_that_was_meant(tmp_path: pathlib.Path, call: str) -> None:
    with pytest.raises(RunError) as caught:
        load(tmp_path, f"def probe(params, node):\n    yield {call}\n")
    place = tmp_path / "probe.py"
    assert str(caught.value) == f"{place}:2: found the reason code 'tool_fialed', expected one of reasons.py, such as 'tool_failed'"


@pytest.mark.parametrize(
    "probe",
    [
        'def probe(params, node):\n    yield observation.failed("copy", "tool_failed", "its words")\n',
        'def probe(params, node):\n    yield observation.failed("copy", params["code"], "its words")\n',
        "def probe(params, node:\n",
    ],
)
def test_what_cannot_be_checked_is_left_to_the_node(tmp_path: pathlib.Path, probe: str) -> None:
    load(tmp_path, probe)


def test_an_unknown_reason_code_does_not_hide_the_reason() -> None:
    with pytest.raises(ValueError, match="dd: writing error: No space left on device"):
        observation.failed("copy", "disk_is_full", "dd: writing error: No space left on device")


def test_the_old_name_of_an_attribute_is_taken_with_one_warning(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(registry.Display, "warning", lambda _self, text: said.append(text))
    (tmp_path / "files").mkdir()
    own = "from {} import ROUNDS, Stage\n\nclass Own(Stage):\n    {} = ROUNDS\n\nSTAGE = Own()\n"
    for name, warnings in (("topology", 0), ("works", 1)):
        (tmp_path / registry.IN_A_ROLE).write_text(own.format(Stage.__module__, name))
        stage, file = registry.described("own", "own", str(tmp_path))
        assert stage.topology == ROUNDS and stage.between and len(said) == warnings, name
        assert registry.load("own", "own", str(file)).topology == ROUNDS and len(said) == warnings, "workers do not warn again"
    assert "stage.py: found the attribute works, expected topology" in said[0]
