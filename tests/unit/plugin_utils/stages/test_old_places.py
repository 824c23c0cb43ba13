# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probes of a team's own that import the node half from where 0.1.0 had it."""

from __future__ import annotations

import importlib
import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

PACKAGE = "ansible_collections.gpufleet.acceptance.plugins.module_utils"
DESCRIPTION = """
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base


class Own(base.Stage):
    probe = "probe.py"


STAGE = Own()
"""


@pytest.mark.parametrize(("name", "room"), registry.MOVED.items())
def test_a_module_at_its_old_place_is_the_module_itself(name: str, room: str) -> None:
    assert importlib.import_module(f"{PACKAGE}.{name}") is importlib.import_module(f"{PACKAGE}.{room}.{name}")


@pytest.mark.parametrize("line", [f"from {PACKAGE} import observation", f"from {PACKAGE}.observation import failed"])
def test_a_probe_that_uses_an_old_place_is_told_the_new_one(
    line: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(registry.Display, "warning", lambda _self, text: said.append(text))
    files = tmp_path / "files"
    files.mkdir()
    (files / "stage.py").write_text(DESCRIPTION)
    (files / "probe.py").write_text(f"{line}\n")
    registry.described("own", "site.own", str(tmp_path))
    (warning,) = said
    assert warning.startswith(f"{files / 'probe.py'}:1: found module_utils.observation, expected module_utils.answer.observation")
