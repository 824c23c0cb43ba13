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

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

Record = t.Dict[str, t.Any]

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
MOST_WORDS = 64
_TRUTHS = {"true": True, "false": False}


@functools.cache
def role(stage: str) -> t.Tuple[Record, Record]:
    """Argument specs and defaults of a stage's role."""
    folder = collection.ROOT / "roles" / stage
    specs = yaml.safe_load((folder / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((folder / "defaults/main.yml").read_text(encoding="utf-8"))
    return specs["argument_specs"]["main"]["options"], defaults


def stage_of(variable: str) -> str:
    """The stage that a variable of the list belongs to; rdma_ports_port is not one of rdma."""
    return next(stage for stage, names in NAMES.items() if variable in {f"{stage}_{name}" for name in names})


def value(variable: str, given: t.Any) -> t.Any:
    """Return the value of a variable of the list. Raises ValueError that says what is expected instead."""
    spec = role(stage_of(variable))[0][variable]
    kind, choices = spec.get("type", "str"), spec.get("choices")
    if kind != "list":
        found = _one(kind, given, choices)
        if variable.endswith(("_timeout", "_seconds")) and found > MOST_SECONDS:
            raise ValueError(f"at most {MOST_SECONDS} seconds")
        return found
    items = [item.strip() for item in given.split(",")] if isinstance(given, str) else given
    if not isinstance(items, list) or not 0 < len(items) <= MOST_WORDS:
        raise ValueError(f"1 to {MOST_WORDS} values in a list, or one text with commas between them")
    # An operation is half the name of a program of whichever collective library.
    choices = choices or (_operations() if variable.endswith("_ops") else None)
    return [_one(spec.get("elements", "str"), item, choices) for item in items]


@functools.cache
def _operations() -> t.Sequence[str]:
    """Return the operations that the first stage with a closed list of them names."""
    return next(found for stage in STAGES if (found := role(stage)[0].get(f"{stage}_ops", {}).get("choices")))


def _one(kind: str, given: t.Any, choices: t.Any) -> t.Any:
    if kind == "bool":
        found = given if isinstance(given, bool) else _TRUTHS.get(given) if isinstance(given, str) else None
        if found is None:
            raise ValueError("true or false")
        return found
    if kind in ("int", "float"):
        return _number(kind, given)
    if isinstance(given, bool) or not isinstance(given, (str, int)) or not WORD.match(str(given)):
        raise ValueError("a word of letters, digits and any of _ . : - behind the first")
    if choices and str(given) not in choices:
        raise ValueError(f"one of {', '.join(map(str, choices))}")
    return str(given)


def _number(kind: str, given: t.Any) -> int | float:
    what = "a whole number" if kind == "int" else "a number"
    expected = f"{what} from 0 to {MOST}"
    if isinstance(given, str) and len(given) <= 20 and re.match(r"[0-9]+(\.[0-9]+)?\Z", given, re.ASCII):
        given = float(given) if "." in given else int(given)
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given) or not 0 <= given <= MOST:
        raise ValueError(expected)
    if kind == "float":
        return float(given)
    if given != int(given):
        raise ValueError(expected)
    return int(given)
