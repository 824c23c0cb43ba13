# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of stages that measure over sizes, and the numbers of any stage, as users write them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nccl

Record = t.Dict[str, t.Any]


def problem(stage: str, settings: Record, **least: float) -> str | None:
    """What is wrong with the sizes of a stage, with the GPUs that it takes of a node, or with numbers of it that have to be at least so."""
    given = settings[f"{stage}_sizes"]
    return (
        of_sizes(f"{stage}_sizes", [given] if isinstance(given, str) else given)
        or of_gpus(f"{stage}_gpus", settings[f"{stage}_gpus"])
        or of_numbers(stage, settings, **least)
    )


def of_numbers(stage: str, settings: Record, **least: float) -> str | None:
    """What is wrong with numbers of a stage that have to be at least so."""
    for name, number in least.items():
        found = settings[f"{stage}_{name}"]
        if not number <= found < math.inf:
            return f"{stage}_{name}: found {found}, expected at least {number:g}"
    return None


def of_gpus(name: str, given: t.Iterable[t.Any]) -> str | None:
    """What is wrong with the value of the variable `name`, a list of how many GPUs of a node are taken."""
    for one in given or ():
        if one != "all" and not (str(one).isdecimal() and int(one) > 0):
            return f"{name}: found {one!r}, expected all, or a number from 1 on"
    return None


def of_sizes(name: str, sizes: t.Iterable[t.Any]) -> str | None:
    """What is wrong with the value of the variable `name`, a list of SMALLEST:LARGEST."""
    for one in sizes or ():
        smallest, _colon, largest = str(one).partition(":")
        try:
            below, above = nccl.size(smallest), None if largest in ("", "auto") else nccl.size(largest)
        except ValueError:
            return f"{name}: found {one!r}, expected SMALLEST:LARGEST, like 8M:1G or 8M:auto"
        if not below:
            return f"{name}: found {one!r}, expected a smallest size of at least one byte"
        if above is not None and below > above:
            return f"{name}: found {one!r}, expected the smaller size first: {largest}:{smallest}"
    return None
