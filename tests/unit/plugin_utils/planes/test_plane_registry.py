# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Planes that a team brings along."""

from __future__ import annotations

import sys
import types

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
