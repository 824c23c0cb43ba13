# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words about compute quotas of pods that share a GPU: what each should have, and what it is shown with or does.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import itertools

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import CaseEvidence, CasePod
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import clients, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words.register import CHANGE, GROUP, SAMPLE, word

# Of two compute quotas, how many times as large one must be before the speeds of their pods are compared.
TWICE = 2


@word(SAMPLE, GROUP, unit="percent")
def effective_gap(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return the greatest difference, in percentage points, between the effective compute quota that is shown of a pod and its own quota
    scaled by those of the group's pods on its GPU: the quotas of one GPU are added up, and of no other."""
    label, effective = evidence.system.labels["pod"], _effective(evidence, sample, group)
    shown = {
        entry.labels.get(label): entry.value
        for entry in reading.entries(evidence, reading.last(evidence, sample), "client_core_quota_effective_percent")
    }
    if missing_pods := sorted(set(effective) - set(shown)):
        raise Absent(f"sample {sample}: no effective quota of {', '.join(missing_pods[:4])} is shown")
    return max(abs(shown[pod] - quota) for pod, quota in effective.items())


def _effective(evidence: CaseEvidence, sample: str, group: str) -> dict[str, float]:
    """Return {pod: its own compute quota in percent at the time of a sample, scaled by those of the group's pods on its GPU}."""
    look = reading.last(evidence, sample)
    clients.gpus(evidence, sample, group)  # a scheduler knows each pod
    of_gpu = {pod: min(places) for pod, places in reading.gpus_by_pod(evidence, look, group).items()}
    quotas = {pod.current_name: _core_at(evidence, pod, look.at) for pod in reading.pods_of(evidence, group)}
    sums: dict[str, float] = collections.defaultdict(float)
    for pod, gpu in of_gpu.items():
        sums[gpu] += quotas[pod]
    return {pod: quota * 100 / max(100.0, sums[of_gpu[pod]]) for pod, quota in quotas.items()}


@word(SAMPLE, GROUP, unit="ratio")
def unsteady(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return the greatest ratio of two speeds of one pod between changes of the group's compute quota, each relative to the effective quota
    at that time: 1 if speeds always follow the quota. A sample says which pods share a GPU."""
    clients.gpus(evidence, sample, group)  # a scheduler knows each pod
    places = reading.gpus_by_pod(evidence, reading.last(evidence, sample), group)
    on_gpu = collections.Counter(min(of_pod) for of_pod in places.values())
    ratios = []
    for pod, log in reading.logs_of(evidence, group):
        beside, speeds = on_gpu[min(places[pod.current_name])], []
        for change, until in reading.phases(evidence, group, "core"):
            speed = lines.rate(log, reading.settled_at(evidence, change.name, pod), reading.mark(evidence, until, pod) if until else None)
            if speed is None:
                raise Absent(f"{pod.name} printed no two probes after {change.name}")
            speeds.append(speed * max(1.0, beside * change.value / 100) / change.value)
        if len(speeds) < 2:
            raise Absent(f"the compute quota of {group} was changed {len(speeds)} times: speeds cannot be compared")
        ratios.append(max(speeds) / min(speeds))
    return max(ratios)


@word(SAMPLE, GROUP, CHANGE)
def inverted(evidence: CaseEvidence, sample: str, group: str, change: str) -> Value:
    """Return how many pairs of pods on one node contradict their compute quotas: since a change was shown, the pod with at least twice the
    effective quota of the other was not `mix_ratio_min` times as fast. The effective quotas are those that the pods should have at the time
    of a sample. GPUs of one node are taken to be equally fast."""
    effective, speeds = _effective(evidence, sample, group), {}
    for pod, log in reading.logs_of(evidence, group):
        speed = lines.rate(log, reading.settled_at(evidence, change, pod))
        if speed is None:
            raise Absent(f"{pod.name} printed no two probes after {change}")
        speeds[pod.current_name] = (pod.node, speed, effective[pod.current_name])
    least = evidence.parameters["mix_ratio_min"]
    return float(
        sum(
            node == other_node and quota >= TWICE * other_quota and speed < least * other_speed
            for (node, speed, quota), (other_node, other_speed, other_quota) in itertools.permutations(speeds.values(), 2)
        )
    )


def _core_at(evidence: CaseEvidence, pod: CasePod, at: float) -> float:
    """Return the compute quota that a pod had at a time of its case, 100 without one."""
    later = [change for change in evidence.changes.values() if (change.group, change.kind) == (pod.group, "core") and change.at > at]
    before = min(later, key=lambda change: change.at).old_value if later else pod.core
    return before or 100.0
