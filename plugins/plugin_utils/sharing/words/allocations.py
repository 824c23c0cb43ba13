# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words about the allocations that pods try at each of their probes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import CaseEvidence, CasePod
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words.register import CHANGE, GROUP, NUMBER, word


@word(GROUP, CHANGE)
def refused_before(evidence: CaseEvidence, group: str, change: str) -> Value:
    """Return how many new allocations of pods were refused before a change."""
    return _allocations(evidence, "allocation_refused", group, lambda pod: ("", reading.mark(evidence, change, pod)))


@word(GROUP, CHANGE)
def granted_before(evidence: CaseEvidence, group: str, change: str) -> Value:
    return _allocations(evidence, "allocation_granted", group, lambda pod: ("", reading.mark(evidence, change, pod)))


@word(GROUP, CHANGE)
def refused_after(evidence: CaseEvidence, group: str, change: str) -> Value:
    """Return how many new allocations of pods were refused after a change."""
    return _allocations(evidence, "allocation_refused", group, lambda pod: (reading.mark(evidence, change, pod), None))


@word(GROUP, CHANGE)
def granted_after(evidence: CaseEvidence, group: str, change: str) -> Value:
    return _allocations(evidence, "allocation_granted", group, lambda pod: (reading.mark(evidence, change, pod), None))


def _allocations(evidence: CaseEvidence, pattern: str, group: str, times: t.Callable[[CasePod], tuple[str, str | None]]) -> float:
    """Return how many lines about allocations match a pattern, behind one time of each pod's log and up to another."""
    regex = evidence.system.pattern(pattern)
    return float(sum(len(lines.matching(lines.between(log, *times(pod)), regex)) for pod, log in reading.logs_of(evidence, group)))


@word(GROUP, CHANGE, CHANGE, optional=1)
def refused_since(evidence: CaseEvidence, group: str, change: str, until: str = "") -> Value:
    """Return how many new allocations of pods were refused since the metrics showed a change, and before a later change was made."""
    return _allocations_since(evidence, "allocation_refused", group, change, until)


@word(GROUP, CHANGE, CHANGE, optional=1)
def granted_since(evidence: CaseEvidence, group: str, change: str, until: str = "") -> Value:
    return _allocations_since(evidence, "allocation_granted", group, change, until)


def _allocations_since(evidence: CaseEvidence, pattern: str, group: str, change: str, until: str) -> float:
    def times(pod: CasePod) -> tuple[str, str | None]:
        return reading.settled_at(evidence, change, pod), reading.mark(evidence, until, pod) if until else None

    return _allocations(evidence, pattern, group, times)


@word(GROUP, NUMBER)
def refused_at(evidence: CaseEvidence, group: str, value: float) -> Value:
    """Return how many new allocations of pods were refused while their changed memory quota was `value`: each time since the metrics showed
    it, and before the next change was made."""
    return _allocations_at(evidence, "allocation_refused", group, value)


@word(GROUP, NUMBER)
def granted_at(evidence: CaseEvidence, group: str, value: float) -> Value:
    return _allocations_at(evidence, "allocation_granted", group, value)


def _allocations_at(evidence: CaseEvidence, pattern: str, group: str, value: float) -> float:
    phases = [(change.name, until) for change, until in reading.phases(evidence, group, "memory") if change.value == value]
    if not phases:
        raise Absent(f"the memory quota of {group} was not changed to {value:g}")
    return sum(_allocations_since(evidence, pattern, group, name, until) for name, until in phases)


@word(GROUP, CHANGE, unit="s")
def refusal_latency(evidence: CaseEvidence, group: str, change: str) -> Value:
    """Return the longest time in seconds until a new allocation of a pod was refused, from the last line of its log before a change:
    at most the time between two allocations too long."""
    regex, latencies = evidence.system.pattern("allocation_refused"), []
    for pod, log in reading.logs_of(evidence, group):
        mark = reading.mark(evidence, change, pod)
        refusals = lines.matching(lines.after(log, mark), regex)
        if not refusals or not mark:
            raise Absent(f"{pod.name} was refused nothing after {change}")
        latencies.append(lines.seconds_between(mark, refusals[0].stamp))
    return max(latencies)
