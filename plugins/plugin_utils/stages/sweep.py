# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of stages that measure over sizes, and the numbers of any stage, as users write them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Variables


def problem(stage: str, settings: Variables, types: t.Collection[str] = (), **minima: float) -> str | None:
    """Return the error in a stage's sizes, number of GPUs, types or numbers with a least value; None if there is none. `types`: those that
    the tool knows, any if it is empty."""
    sizes = settings[f"{stage}_sizes"]
    unknown = [kind for kind in settings[f"{stage}_types"] if kind not in types] if types else []
    if unknown:
        return f"{stage}_types: found {unknown[0]!r}, expected some of {', '.join(types)}"
    return (
        of_sizes(f"{stage}_sizes", [sizes] if isinstance(sizes, str) else sizes)
        or of_gpus(f"{stage}_gpus", settings[f"{stage}_gpus"])
        or of_numbers(stage, settings, **minima)
    )


def of_numbers(stage: str, settings: Variables, **minima: float) -> str | None:
    """Return the error in a stage's numbers that have a least value; None if there is none."""
    for name, number in minima.items():
        value = settings[f"{stage}_{name}"]
        if not number <= value < math.inf:
            return f"{stage}_{name}: found {value}, expected at least {number:g}"
    return None


def of_gpus(name: str, gpu_counts: t.Iterable[t.Any]) -> str | None:
    """Return the error in the variable `name`, a list of numbers of GPUs; None if there is none."""
    for count in gpu_counts or ():
        if count != "all" and not (str(count).isdecimal() and int(count) > 0):
            return f"{name}: found {count!r}, expected all, or a number from 1 on"
    return None


def of_sizes(name: str, sizes: t.Iterable[t.Any]) -> str | None:
    """Return the error in the variable `name`, a list of SMALLEST:LARGEST; None if there is none."""
    for size in sizes or ():
        smallest, _colon, largest = str(size).partition(":")
        try:
            below, above = nccl.size(smallest), None if largest in ("", "auto") else nccl.size(largest)
        except ValueError:
            return f"{name}: found {size!r}, expected SMALLEST:LARGEST, like 8M:1G or 8M:auto"
        if not below:
            return f"{name}: found {size!r}, expected a smallest size of at least one byte"
        if above is not None and below > above:
            return f"{name}: found {size!r}, expected the smaller size first: {largest}:{smallest}"
    return None


# For people ------------------------------------------------------------------------------------------------------------


# The variables of a sweep that a request to the console may set.
REQUESTABLE = ("ops", "types", "gpus", "sizes", "factor", "iterations", "warmup", "test_timeout", "timeout")


# Its axes: each combination is a command of its own.
AXES = ("ops", "gpus", "types", "sizes")


def first(stage: str, settings: t.Mapping[str, t.Any]) -> tuple[str, str, str]:
    """Return the first operation, number of GPUs and type that a stage measures."""
    op, gpus, type_ = (str(settings[f"{stage}_{axis}"][0]) for axis in ("ops", "gpus", "types"))
    return op, gpus, type_


def sizes(stage: str, settings: t.Mapping[str, t.Any]) -> list[str]:
    """Return the words of a command for the first range of message sizes."""
    smallest, _colon, largest = str(settings[f"{stage}_sizes"][0]).partition(":")
    return ["-b", smallest, "-e", "LARGEST" if largest in ("", "auto") else largest, "-f", str(settings[f"{stage}_factor"])]


def counts(stage: str, settings: t.Mapping[str, t.Any]) -> list[str]:
    """Return the words of a command for iterations and warm-up, without those that are 0."""
    flags = (("-n", settings[f"{stage}_iterations"]), ("-w", settings[f"{stage}_warmup"]))
    return [word for flag, count in flags if count for word in (flag, str(count))]


def mpirun(gpus: str, nodes: int) -> list[str]:
    """Return the words that launch a command on `gpus` GPUs of each of `nodes` nodes."""
    return ["mpirun", "-np", str(int(gpus) * nodes) if gpus.isdigit() and nodes else "RANKS", "--hostfile", "HOSTS"]
