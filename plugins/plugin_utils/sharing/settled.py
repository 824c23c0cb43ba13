# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a cluster from its variables `gpu_sharing_*`: cases, system and parameters.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import alerts, baseline, cases, parameters, system

PREFIX = "gpu_sharing_"


@dataclasses.dataclass(frozen=True)
class Settled:
    """The settings of one cluster. `nodes` is {"drain_node" or "stress_node": node}. `deadline_s` limits the life of everything that is
    created. `baseline` is the source for baseline.load(). `guardian` is the service account of the pod that removes a cordon."""

    cases: t.Sequence[cases.Case]
    system: system.System
    parameters: parameters.Parameters
    cluster: str
    destructive: bool
    nodes: t.Mapping[str, str]
    image: str
    deadline_s: float
    baseline: str = ""
    prometheus: alerts.Ask | None = None
    guardian: str = ""


def settings_of(variables: t.Mapping[str, t.Any], gpus: t.Collection[str] = ()) -> Settled:
    """Return the settings; `gpus` are the names of the cluster's GPUs, as far as they are known. Raise RunError
    that names the variable, what was found and what is expected."""

    def variable(name: str) -> t.Any:
        return variables.get(PREFIX + name)

    cluster, profile = variable("cluster"), variable("profile")
    if cluster not in cases.CLUSTERS:
        raise RunError(f"gpu_sharing_cluster: found {cluster!r}, expected c1 for a cluster with small GPUs, or c2 for one with large ones")
    if profile not in cases.PROFILES:
        raise RunError(f"gpu_sharing_profile: found {profile!r}, expected {' or '.join(cases.PROFILES)}")
    if not variable("image"):
        raise RunError("gpu_sharing_image is not set; expected an image with python3 and PyTorch")
    sharing = system.load(str(variable("system")), variable("system_changes"))
    prometheus = alerts.asker(str(variable("prometheus"))) if variable("prometheus") else None
    if prometheus and alerts.conditions(sharing):
        sharing = dataclasses.replace(sharing, has=sharing.has | {alerts.PROMETHEUS})
    numbers = parameters.settle(cluster, float(variable("scale")), variable("parameters") or {}, gpus)
    all_cases = [*cases.shipped(profile), *cases.beyond(profile)]
    for path in variable("suites") or ():
        all_cases += cases.load(str(path), profile)
    twice = sorted({duplicate.id for duplicate in all_cases if [case.id for case in all_cases].count(duplicate.id) > 1})
    if twice:
        raise RunError(f"gpu_sharing_suites: case {twice[0]} is there twice")
    chosen = cases.chosen(all_cases, variable("cases") or (), variable("suite") or (), numbers.smoke if variable("smoke") else None)
    for case in chosen:
        wrong = cases.unknown_words(case, sharing, numbers.values) if not cases.lacking(case.needs, sharing) else None
        if wrong:
            raise RunError(wrong)
    chosen = [cases.fitted(case, sharing) for case in chosen]
    snapshot = str(variable("baseline") or "")
    if wrong := baseline.problem(snapshot):
        raise RunError(wrong)
    nodes = {name: str(variable(name) or "") for name in ("drain_node", "stress_node")}
    deadline = float(variable("deadline") or 0) or 172800.0
    destructive, image = bool(variable("destructive")), str(variable("image"))
    guardian = str(variable("guardian") or "")
    return Settled(chosen, sharing, numbers, cluster, destructive, nodes, image, deadline, snapshot, prometheus, guardian)
