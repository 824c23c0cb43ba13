# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parameters that cases name, for one cluster: shipped values, scaled in a shortened run, changed by the inventory.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t

from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import quantities
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import FILES

Object = t.Dict[str, t.Any]
# Lower limits of a scaled run: a wait, an interval, a soak, rounds, iterations, and the duration of a load.
WAIT_S, INTERVAL_S, SOAK_S, ROUNDS, ITERATIONS, LOAD_S = 1.0, 0.2, 5.0, 3, 10, 5.0
# The lower limit for the duration of a load that must still run when other pods start.
BESIDE_S = 20.0


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The parameters of one cluster: `values` as steps use them (`4Gi`, lists), `numbers` as expressions use them."""

    values: t.Mapping[str, t.Any]
    numbers: t.Mapping[str, float]
    workloads: t.Mapping[str, t.Mapping[str, float]]
    scale: float
    smoke: tuple[str, ...]

    def seconds(self, seconds: float) -> float:
        """Return the seconds of a wait, fewer in a scaled run."""
        return seconds if self.scale == 1 else min(seconds, max(WAIT_S, seconds * self.scale))

    def interval(self, seconds: float) -> float:
        return seconds if self.scale == 1 else min(seconds, max(INTERVAL_S, seconds * self.scale))

    def load(self, workload: t.Mapping[str, float], concurrent: bool) -> dict[str, float]:
        """Return the iterations and durations of a workload, less in a scaled run. `concurrent`: a load that must still run when the next
        one starts is shortened less."""
        if self.scale == 1:
            return dict(workload)
        small = max(self.scale, min(1.0, self.numbers["beside_scale"])) if concurrent else self.scale
        shortened = dict(workload)
        if "iterations" in workload:
            shortened["iterations"] = max(ITERATIONS, math.ceil(workload["iterations"] * small))
        if "duration_s" in workload:
            shortened["duration_s"] = min(workload["duration_s"], max(BESIDE_S if concurrent else LOAD_S, workload["duration_s"] * small))
        return shortened

    def watch(self, seconds: float, every: float) -> float:
        """Return the seconds of a watch, fewer in a scaled run, but enough for ten samples."""
        return seconds if self.scale == 1 else min(seconds, max(10 * self.interval(every), seconds * self.scale))


def load() -> Object:
    return t.cast("Object", yaml_load((FILES / "parameters.yml").read_text(encoding="utf-8")))


def settle(cluster: str, scale: float, changes: t.Mapping[str, t.Any], gpus: t.Collection[str] = ()) -> Parameters:
    """Return the parameters of a cluster; `gpus` are the names of its GPUs, as far as they are known.
    Raise RunError for a parameter that is unknown or no number."""
    if not 0 < scale <= 1:
        raise RunError(f"gpu_sharing_scale: found {scale}, expected a number above 0 and not above 1")
    shipped = load()
    scaled = {name: _scaled(name, value, scale) for name, value in shipped["scaled"].items()}
    values = {**shipped["values"], **scaled, **shipped["by_cluster"][cluster]}
    for word, of_gpu in shipped["by_gpu"].items():
        if gpus and all(re.search(rf"\b{word}\b", gpu) for gpu in gpus):
            values.update(of_gpu)
    unknown = sorted(set(changes) - set(values))
    if unknown:
        raise RunError(f"gpu_sharing_parameters: found {unknown[0]!r}, expected some of {', '.join(sorted(values))}")
    values.update(changes)
    numbers = {}
    for name, value in values.items():
        if isinstance(value, list):
            if not value or not all(isinstance(item, int) and not isinstance(item, bool) and item > 0 for item in value):
                raise RunError(f"gpu_sharing_parameters: {name}: found {value!r}, expected a list of whole numbers")
            continue
        try:
            numbers[name] = quantities.number_of(value)
        except ValueError as error:
            raise RunError(f"gpu_sharing_parameters: {name}: {error}") from None
    return Parameters(values, numbers, shipped["workloads"], scale, tuple(shipped["smoke"]))


def _scaled(name: str, value: float, scale: float) -> float:
    if scale == 1:
        return value
    if name.endswith("_rounds"):
        return min(value, max(ROUNDS, math.ceil(value * scale)))
    return min(value, max(WAIT_S if name.endswith("interval_s") else SOAK_S, value * scale))
