# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of which a part may hold a secret: a file of a run has them without that part, and whoever measures takes it from the inventory.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

ENVIRONMENT = "env"
# No field of a pod is this.
_WITHHELD = {"withheld from the files of a run": True}


def public(value: t.Any) -> t.Any:
    """Return what a file may hold of a value: every environment in it without its values."""
    if isinstance(value, dict):
        return {key: _names(inner) if key == ENVIRONMENT else public(inner) for key, inner in value.items()}
    return [public(inner) for inner in value] if isinstance(value, list) else value


def _names(environment: t.Any) -> t.Any:
    """An environment as a pod has it, [{"name", "value"}] or with "valueFrom", which is no secret itself; of any other shape nothing."""
    if not isinstance(environment, list) or not all(isinstance(variable, dict) for variable in environment):
        return _WITHHELD
    return [{key: inner if key in ("name", "valueFrom") else _WITHHELD for key, inner in variable.items()} for variable in environment]


def whole(saved: t.Any, current: t.Any) -> t.Any:
    """Return what a file holds, with the missing parts from the same place of `current`."""
    if saved == _WITHHELD:
        return saved if current is None else current
    if isinstance(saved, dict):
        current_dict = current if isinstance(current, dict) else {}
        return {key: whole(inner, current_dict.get(key)) for key, inner in saved.items()}
    if isinstance(saved, list):
        current_list = current if isinstance(current, list) else []
        current_by_name = {item["name"]: item for item in current_list if isinstance(item, dict) and isinstance(item.get("name"), str)}
        return [
            whole(inner, current_by_name.get(inner["name"]) if isinstance(inner, dict) and isinstance(inner.get("name"), str) else None)
            for inner in saved
        ]
    return saved


def lacking(value: t.Any, name: str = "") -> str | None:
    """The name of a variable of an environment whose value nobody has given, if there is one."""
    if value == _WITHHELD:
        return name
    places: list[tuple[t.Any, str]] = []
    if isinstance(value, dict):
        places = [(inner, str(value.get("name") or key)) for key, inner in value.items()]
    elif isinstance(value, list):
        places = [(inner, name) for inner in value]
    return next((name for name in (lacking(*place) for place in places) if name is not None), None)
