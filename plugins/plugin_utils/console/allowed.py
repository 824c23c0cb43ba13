# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of stages that a request may set: the closed lists of the shipped stages (Stage.requestable). The argument specs of a
stage's role say what a variable is.

Not on them, and never to be: whatever holds a path, a program, arguments, an environment or a setting of pods. Through those a person who
may ask for a measurement could run what he likes on every node.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import math
import re
import typing as t

from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

NAMES: t.Mapping[str, t.Tuple[str, ...]] = {
    stage.name: stage.requestable for stage in sorted(registry.shipped().values(), key=lambda stage: stage.place) if stage.requestable
}
STAGES = tuple(NAMES)
VARIABLES = tuple(f"{stage}_{name}" for stage, names in NAMES.items() for name in names)

# A word of a value: it ends up as an argument or a part of a program's name, so it begins with neither dash nor dot and has no slash.
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}\Z")
# More than any sensible number of iterations, bytes or seconds.
MOST = 10**12
# More seconds hold nodes that others wait for.
MOST_SECONDS = 86400
HOURS = f"more than 0 and at most {MOST_SECONDS // 3600} hours"
MOST_WORDS = 64
_TRUTHS = {"true": True, "false": False}


@functools.cache
def role(stage: str) -> t.Tuple[PlainData, PlainData]:
    """Argument specs and defaults of a stage's role."""
    folder = collection.ROOT / "roles" / stage
    specs = yaml_load((folder / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    defaults = yaml_load((folder / "defaults/main.yml").read_text(encoding="utf-8"))
    return specs["argument_specs"]["main"]["options"], defaults


def stage_of(variable: str) -> str:
    """The stage that a variable of the list belongs to; rdma_ports_port is not one of rdma."""
    return next(stage for stage, names in NAMES.items() if variable in {f"{stage}_{name}" for name in names})


def value(variable: str, raw: t.Any) -> t.Any:
    """Return the value of a variable of the list. Raises ValueError that says what is expected instead."""
    spec = role(stage_of(variable))[0][variable]
    kind, choices = spec.get("type", "str"), spec.get("choices")
    if kind != "list":
        checked = _one(kind, raw, choices)
        if variable.endswith(("_timeout", "_seconds")) and checked > MOST_SECONDS:
            raise ValueError(f"at most {MOST_SECONDS} seconds")
        if variable.endswith("_hours") and not 0 < checked <= MOST_SECONDS / 3600:
            raise ValueError(HOURS)
        return checked
    items = [item.strip() for item in raw.split(",")] if isinstance(raw, str) else raw
    if not isinstance(items, list) or not 0 < len(items) <= MOST_WORDS:
        raise ValueError(f"1 to {MOST_WORDS} values in a list, or one text with commas between them")
    # An operation is half the name of a program of whichever collective library.
    choices = choices or (_operations() if variable.endswith("_ops") else None)
    return [_one(spec.get("elements", "str"), item, choices) for item in items]


@functools.cache
def _operations() -> t.Sequence[str]:
    """Return the operations that the first stage with a closed list of them names."""
    return next(operations for stage in STAGES if (operations := role(stage)[0].get(f"{stage}_ops", {}).get("choices")))


def _one(kind: str, raw: t.Any, choices: t.Any) -> t.Any:
    if kind == "bool":
        truth = raw if isinstance(raw, bool) else _TRUTHS.get(raw) if isinstance(raw, str) else None
        if truth is None:
            raise ValueError("true or false")
        return truth
    if kind in ("int", "float"):
        return _number(kind, raw)
    if isinstance(raw, bool) or not isinstance(raw, (str, int)) or not WORD.match(str(raw)):
        raise ValueError("a word of letters, digits and any of _ . : - behind the first")
    if choices and str(raw) not in choices:
        raise ValueError(f"one of {', '.join(map(str, choices))}")
    return str(raw)


def _number(kind: str, raw: t.Any) -> int | float:
    noun = "a whole number" if kind == "int" else "a number"
    expected = f"{noun} from 0 to {MOST}"
    if isinstance(raw, str) and len(raw) <= 20 and re.match(r"[0-9]+(\.[0-9]+)?\Z", raw, re.ASCII):
        raw = float(raw) if "." in raw else int(raw)
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not math.isfinite(raw) or not 0 <= raw <= MOST:
        raise ValueError(expected)
    if kind == "float":
        return float(raw)
    if raw != int(raw):
        raise ValueError(expected)
    return int(raw)
