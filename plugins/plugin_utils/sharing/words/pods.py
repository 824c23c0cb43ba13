# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words about the pods of a group: what became of them, their run times and what they logged.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import itertools
import statistics

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import FAILED, PENDING, RUNNING, SUCCEEDED, CaseEvidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words.register import GROUP, NUMBER, PATTERN, word


def _count_in_phase(evidence: CaseEvidence, group: str, phase: str) -> float:
    return float(sum(pod.phase == phase for pod in reading.pods_of(evidence, group)))


@word(GROUP)
def count(evidence: CaseEvidence, group: str) -> Value:
    return float(len(reading.pods_of(evidence, group)))


@word(GROUP)
def succeeded(evidence: CaseEvidence, group: str) -> Value:
    return _count_in_phase(evidence, group, SUCCEEDED)


@word(GROUP)
def failed(evidence: CaseEvidence, group: str) -> Value:
    return _count_in_phase(evidence, group, FAILED)


@word(GROUP)
def pending(evidence: CaseEvidence, group: str) -> Value:
    """Return the number of pods of a group that never started."""
    return float(sum(pod.phase == PENDING for pod in evidence.of(group)))


@word(GROUP)
def running(evidence: CaseEvidence, group: str) -> Value:
    return _count_in_phase(evidence, group, RUNNING)


@word(GROUP)
def replaced(evidence: CaseEvidence, group: str) -> Value:
    """Return how many pods of the group's Jobs were replaced by later ones."""
    return float(sum(pod.replaced for pod in reading.pods_of(evidence, group)))


def runtimes(evidence: CaseEvidence, group: str) -> list[float]:
    found = []
    for pod, log in reading.logs_of(evidence, group):
        seconds = lines.runtime(log)
        if seconds is None or pod.phase != SUCCEEDED:
            raise Absent(f"{pod.name} is {pod.phase} and says {'no runtime' if seconds is None else f'{seconds} s'}")
        if seconds <= 0:
            raise Absent(f"{pod.name} says that it took {seconds} s")
        found.append(seconds)
    return found


@word(GROUP, unit="s")
def runtime(evidence: CaseEvidence, group: str) -> Value:
    """Return the run time in seconds reported by the workload (median over pods)."""
    return float(statistics.median(runtimes(evidence, group)))


@word(GROUP, unit="s")
def slowest(evidence: CaseEvidence, group: str) -> Value:
    return max(runtimes(evidence, group))


@word(GROUP, unit="s")
def fastest(evidence: CaseEvidence, group: str) -> Value:
    return min(runtimes(evidence, group))


@word(GROUP, unit="ratio")
def unfairness(evidence: CaseEvidence, group: str) -> Value:
    """Return the greatest ratio of two run times among pods that one `together` step brought onto one GPU."""
    by_gpu: dict[tuple[int, str, str | None], list[float]] = collections.defaultdict(list)
    for (pod, log), seconds in zip(reading.logs_of(evidence, group), runtimes(evidence, group), strict=True):
        by_gpu[pod.batch, pod.node, lines.gpu(log)].append(seconds)
    ratios = [max(of_gpu) / min(of_gpu) for of_gpu in by_gpu.values() if len(of_gpu) > 1]
    if not ratios:
        raise Absent(f"no two pods of {group} were on one GPU")
    return max(ratios)


@word(GROUP, unit="s")
def elapsed(evidence: CaseEvidence, group: str) -> Value:
    """Return the seconds from the creation of the first pod to the end of the last."""
    pods = reading.pods_of(evidence, group)
    ends = [pod.ended_at for pod in pods if pod.ended_at is not None]
    if len(ends) < len(pods):
        raise Absent(f"{len(pods) - len(ends)} pods of {group} did not end")
    return max(ends) - min(pod.made_at for pod in pods)


@word(GROUP, PATTERN, GROUP, optional=1)
def logged(evidence: CaseEvidence, group: str, pattern: str, canary: str = "") -> Value:
    """Return how many lines of the pods' logs match a pattern. `canary` is a group that is made to log it: raise Absent if it did not,
    since the pattern may be that of another version."""
    regex = evidence.system.pattern(pattern)
    if canary and not any(lines.matching(log, regex) for _pod, log in reading.logs_of(evidence, canary)):
        raise Absent(f"no pod of {canary} logged a line that matches the pattern {pattern}")
    return float(sum(len(lines.matching(log, regex)) for _pod, log in reading.logs_of(evidence, group)))


@word(GROUP, PATTERN)
def each_logged(evidence: CaseEvidence, group: str, pattern: str) -> Value:
    """Return how many pods have a line that matches a pattern."""
    regex = evidence.system.pattern(pattern)
    return float(sum(bool(lines.matching(log, regex)) for _pod, log in reading.logs_of(evidence, group)))


@word(GROUP, NUMBER)
def stalls(evidence: CaseEvidence, group: str, seconds: float) -> Value:
    """Return how many pods made no progress between two probes or had probes more than `seconds` apart."""
    stalled = 0
    for pod, log in reading.logs_of(evidence, group):
        readings = lines.probes(log)
        if len(readings) < 2:
            raise Absent(f"{pod.name} printed fewer than two probes")
        stalled += any(b.elapsed_s - a.elapsed_s > seconds or b.iterations <= a.iterations for a, b in itertools.pairwise(readings))
    return float(stalled)
