# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Planes that a team brings along."""

from __future__ import annotations

import sys
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import base, registry


class Old(base.Plane):
    name = "old"
    ways = frozenset({"rack"})

    def realm(self, host: str) -> str:
        return f"{host}s"


def test_old_names_of_attributes_are_taken_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(registry.Display, "warning", lambda _self, text: said.append(text))
    module = types.ModuleType("a_team.plane")
    module.PLANE = Old()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_team", types.ModuleType("a_team"))
    monkeypatch.setitem(sys.modules, "a_team.plane", module)
    plane = registry.of({"acceptance_plane": "a_team.plane"}, "rack")
    assert plane.reachability_domain("rack") == "racks" and plane.connection_variables == {"rack"}
    assert plane.unsupported_variables(["x"]) == [] and len(said) == 2
    assert "plane a_team.plane: found the attribute realm, expected reachability_domain" in said[1]
    for name in registry.names():
        registry.of({"acceptance_plane": name}, "host")
    assert len(said) == 2


class Lab(base.Plane):
    name = "lab"
    options: t.ClassVar = {"acceptance_lab_token": {"type": "str", "no_log": True}, "acceptance_lab_nodes": {"type": "int"}}
    hidden = ("acceptance_lab_env",)


def test_no_file_holds_the_secrets_of_a_plane_that_a_host_has_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("a_lab.plane")
    module.PLANE = Lab()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_lab", types.ModuleType("a_lab"))
    monkeypatch.setitem(sys.modules, "a_lab.plane", module)
    monkeypatch.setattr(registry, "_OWN", {})
    assert not {"acceptance_lab_token", "acceptance_lab_env"} & registry.hidden()
    registry.of({"acceptance_plane": "a_lab.plane"}, "bench")
    assert {"acceptance_lab_token", "acceptance_lab_env"} <= registry.hidden() and "acceptance_lab_nodes" not in registry.hidden()
