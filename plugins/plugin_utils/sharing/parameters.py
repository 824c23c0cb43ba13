# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers that cases name, settled for one cluster: shipped, scaled, and what the inventory says.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import quantities
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import FILES

Object = t.Dict[str, t.Any]
# What a scaled run does not go below: a wait, an interval, a soak, rounds, iterations, and a load that goes on for so long.
WAIT_S, INTERVAL_S, SOAK_S, ROUNDS, ITERATIONS, LOAD_S = 1.0, 0.2, 5.0, 3, 10, 5.0
# A load that others must find running, where it is one that goes on for so long.
BESIDE_S = 20.0


@dataclasses.dataclass(frozen=True)
class Parameters:
    """`given` as steps take them (`4Gi`, lists), `numbers` as expressions do."""

    given: t.Mapping[str, t.Any]
    numbers: t.Mapping[str, float]
    workloads: t.Mapping[str, t.Mapping[str, float]]
    scale: float
    smoke: tuple[str, ...]

    def seconds(self, seconds: float) -> float:
        """A wait, shorter in a scaled run."""
        return seconds if self.scale == 1 else min(seconds, max(WAIT_S, seconds * self.scale))

    def interval(self, seconds: float) -> float:
        return seconds if self.scale == 1 else min(seconds, max(INTERVAL_S, seconds * self.scale))

    def load(self, known: t.Mapping[str, float], beside: bool) -> dict[str, float]:
        """How often and how long a workload does what it does, less in a scaled run; `beside`: what must still be there when it is looked
        at is shortened less, for a load that is over when the next one begins was never beside it."""
        if self.scale == 1:
            return dict(known)
        small = max(self.scale, min(1.0, self.numbers["beside_scale"])) if beside else self.scale
        found = dict(known)
        if "iterations" in known:
            found["iterations"] = max(ITERATIONS, math.ceil(known["iterations"] * small))
        if "duration_s" in known:
            found["duration_s"] = min(known["duration_s"], max(BESIDE_S if beside else LOAD_S, known["duration_s"] * small))
        return found

    def watch(self, seconds: float, every: float) -> float:
        """How long a watch goes on: long enough for ten looks."""
        return seconds if self.scale == 1 else min(seconds, max(10 * self.interval(every), seconds * self.scale))


def load() -> Object:
    return t.cast("Object", yaml.safe_load((FILES / "parameters.yml").read_text(encoding="utf-8")))


def settle(cluster: str, scale: float, changes: t.Mapping[str, t.Any]) -> Parameters:
    """RunError names a parameter that nobody knows, or that is no number."""
    if not 0 < scale <= 1:
        raise RunError(f"gpu_sharing_scale: found {scale}, expected a number above 0 and not above 1")
    shipped = load()
    scaled = {name: _scaled(name, value, scale) for name, value in shipped["scaled"].items()}
    given = {**shipped["values"], **scaled, **shipped["by_cluster"][cluster]}
    unknown = sorted(set(changes) - set(given))
    if unknown:
        raise RunError(f"gpu_sharing_parameters: found {unknown[0]!r}, expected some of {', '.join(sorted(given))}")
    given.update(changes)
    numbers = {}
    for name, value in given.items():
        if isinstance(value, list):
            if not value or not all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in value):
                raise RunError(f"gpu_sharing_parameters: {name}: found {value!r}, expected a list of whole numbers")
            continue
        try:
            numbers[name] = quantities.number_of(value)
        except ValueError as error:
            raise RunError(f"gpu_sharing_parameters: {name}: {error}") from None
    return Parameters(given, numbers, shipped["workloads"], scale, tuple(shipped["smoke"]))


def _scaled(name: str, value: float, scale: float) -> float:
    if scale == 1:
        return value
    if name.endswith("_rounds"):
        return min(value, max(ROUNDS, math.ceil(value * scale)))
    return min(value, max(WAIT_S if name.endswith("interval_s") else SOAK_S, value * scale))
