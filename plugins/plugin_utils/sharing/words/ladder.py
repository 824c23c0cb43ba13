# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words about a ladder: groups of more and more pods.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import SUCCEEDED, CaseEvidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import pods, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words.register import word


def _rungs(evidence: CaseEvidence) -> list[str]:
    """Return the groups in the order of their creation; each is a rung of a ladder."""
    groups = list(dict.fromkeys(pod.group for pod in evidence.pods))
    if not groups:
        raise Absent("no pod was made")
    return groups


@word()
def rungs(evidence: CaseEvidence) -> Value:
    return float(len(_rungs(evidence)))


@word()
def rungs_succeeded(evidence: CaseEvidence) -> Value:
    """Return how many groups have at least one pod that succeeded."""
    return float(sum(any(pod.phase == SUCCEEDED for pod in evidence.of(group)) for group in _rungs(evidence)))


def _crowd(evidence: CaseEvidence, group: str) -> float:
    """Return the time that the fullest GPU needs for its pods of a group, as a multiple of one pod with a whole GPU: the number of pods on
    the GPU, and at least what the smallest quota implies. Return 0 if a pod did not print its GPU."""
    pods_on_gpu: collections.Counter[tuple[str, str]] = collections.Counter()
    for pod in reading.pods_of(evidence, group):
        gpu = lines.gpu(pod.log or ())
        if gpu is None:
            return 0.0
        pods_on_gpu[pod.node, gpu] += 1
    return max(*pods_on_gpu.values(), *(100.0 / (pod.core or 100.0) for pod in reading.pods_of(evidence, group)))


def _work_s(evidence: CaseEvidence, group: str) -> float | None:
    """Return the seconds in which at least one pod of a group worked, on the GPU where that took longest. Return None if the run time of a
    pod is missing."""
    by_gpu: dict[tuple[str, str | None], list[tuple[float, float]]] = {}
    for pod in reading.pods_of(evidence, group):
        took = lines.runtime(pod.log or ())
        if took is None or pod.ended_at is None:
            return None
        by_gpu.setdefault((pod.node, lines.gpu(pod.log or ())), []).append((pod.ended_at - took, pod.ended_at))
    return max(_covered_s(spans) for spans in by_gpu.values())


def _covered_s(spans: t.Iterable[tuple[float, float]]) -> float:
    """Return the seconds that lie in at least one span of (begin, end)."""
    covered, until = 0.0, -math.inf
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, until))
        until = max(until, end)
    return covered


def _drop(earlier: float, later: float) -> float:
    """Return by how many percent a rate fell."""
    return 100.0 * (earlier - later) / earlier


@word(unit="percent")
def worst_drop(evidence: CaseEvidence) -> Value:
    """Return the greatest fall of throughput from one group to the next in percent, 0 if it never fell. Throughput is that of the GPU with
    most pods of a group if all pods printed their GPU, since the kubelet and not the system spreads the pods; else pods per second.

    Raise Absent if throughput fell by more than `cliff_max_pct` only because pods started later: the start is most of a short load's time.
    """
    groups = _rungs(evidence)
    if len(groups) < 2:
        raise Absent("there is one group of pods only")
    crowds = [_crowd(evidence, group) for group in groups]
    loads = crowds if all(crowds) else [t.cast(float, pods.count(evidence, group)) for group in groups]
    times = [t.cast(float, pods.elapsed(evidence, group)) for group in groups]
    work_times = [_work_s(evidence, group) for group in groups]
    worst, late_start = 0.0, ""
    for at in range(1, len(groups)):
        drop = _drop(loads[at - 1] / times[at - 1], loads[at] / times[at])
        before, after = work_times[at - 1 : at + 1]
        limit = evidence.parameters.get("cliff_max_pct", math.inf)
        work_drop = _drop(loads[at - 1] / before, loads[at] / after) if before and after else drop
        if drop > limit >= work_drop:
            idle = " and ".join(f"{times[of] - (work_times[of] or 0):.0f} s of {times[of]:.0f} s" for of in (at - 1, at))
            late_start = (
                f"the throughput fell by {drop:.0f} % from {groups[at - 1]} to {groups[at]}, and by {max(0.0, work_drop):.0f} % without "
                f"the time in which no pod worked ({idle}): the loads are too short beside the start of pods (gpu_sharing_scale)"
            )
        else:
            worst = max(worst, drop)
    if late_start and worst <= evidence.parameters["cliff_max_pct"]:
        raise Absent(late_start)
    return worst
