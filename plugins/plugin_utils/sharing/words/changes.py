# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words about changes of quotas: who was told of them, and when the metrics showed them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import CaseEvidence, QuotaChange
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words.register import CHANGE, word


def _plain(number: float | None) -> str:
    return r"\d+" if number is None else str(int(number))


@word(CHANGE)
def transitions(evidence: CaseEvidence, change: str) -> Value:
    """Return for how many pods a scheduler logged, after the change, that the quota went from the old value to the new one."""
    quota_change = reading.change_named(evidence, change)
    pod_names = {pod.name for pod in reading.pods_of(evidence, quota_change.group)}
    changed = pod_names & quota_change.written
    if changed != pod_names:
        changed = changed.union(*(written(evidence, quota_change, name, log) for name, log in reading.schedulers_logs(evidence).items()))
    lost = {quota_change.cut[name] for name in pod_names - changed if name in quota_change.cut}
    if lost and quota_change.seen_s is not None and pod_names - changed <= set(quota_change.cut):
        raise Absent(f"the log of {', '.join(sorted(lost))} does not reach back to {change}, which the metrics show: its lines are gone")
    return float(len(changed))


def written(evidence: CaseEvidence, quota_change: QuotaChange, scheduler: str, log: t.Sequence[lines.LogLine]) -> set[str]:
    """Return the pods for which a scheduler's log shows the change, in lines behind those from before the change."""
    if scheduler not in quota_change.marks:
        return set()
    behind = lines.after(log, quota_change.marks[scheduler])
    pods = set()
    for pod in reading.pods_of(evidence, quota_change.group):
        pattern = evidence.system.pattern(
            f"{quota_change.kind}_changed", namespace=pod.namespace, pod=pod.current_name, value=_plain(quota_change.value)
        )
        if lines.matching(behind, pattern.replace("{before}", _plain(quota_change.old_value))):
            pods.add(pod.name)
    return pods


@word(CHANGE)
def told(evidence: CaseEvidence, change: str) -> Value:
    """Return how many pods logged, after the change, that their own limit is the new value."""
    quota_change = reading.change_named(evidence, change)
    pattern = evidence.system.pattern(f"{quota_change.kind}_told", value=_plain(quota_change.value)).replace(
        "{before}", _plain(quota_change.old_value)
    )
    logs = [lines.after(log, reading.mark(evidence, change, pod)) for pod, log in reading.logs_of(evidence, quota_change.group)]
    return float(sum(bool(lines.matching(log, pattern)) for log in logs))


@word(CHANGE)
def told_others(evidence: CaseEvidence, change: str) -> Value:
    """Return how many pods of other groups logged, after the change, that a limit of theirs of the same kind was changed."""
    quota_change = reading.change_named(evidence, change)
    pattern = evidence.system.patterns[f"{quota_change.kind}_told"].replace("{before}", r"\S+").replace("{value}", r"\S+")
    others = [
        (pod, log) for pod, log in reading.logs_of(evidence, "all") if pod.group != quota_change.group and pod.name in quota_change.marks
    ]
    return float(sum(bool(lines.matching(lines.after(log, quota_change.marks[pod.name]), pattern)) for pod, log in others))


@word(CHANGE, unit="s")
def latency(evidence: CaseEvidence, change: str) -> Value:
    """Return the seconds until the metrics showed a change for every pod."""
    seconds = reading.change_named(evidence, change).seen_s
    if seconds is None:
        raise Absent(f"no metric showed {change} while it was waited for")
    return seconds


@word(CHANGE)
def observed(evidence: CaseEvidence, change: str) -> Value:
    """Return True if the metrics showed a change during the wait for it."""
    return reading.change_named(evidence, change).seen_s is not None


def _all_changes(evidence: CaseEvidence) -> list[QuotaChange]:
    if not evidence.changes:
        raise Absent("no quota was changed")
    return list(evidence.changes.values())


@word()
def changes(evidence: CaseEvidence) -> Value:
    """Return how many times a quota was changed."""
    return float(len(_all_changes(evidence)))


@word()
def changes_observed(evidence: CaseEvidence) -> Value:
    """Return how many quota changes the metrics showed during the wait."""
    return float(sum(change.seen_s is not None for change in _all_changes(evidence)))


@word()
def changes_logged(evidence: CaseEvidence) -> Value:
    """Return how many quota changes the schedulers logged for each of their pods. Raise Absent if all are, but for those whose lines are
    gone from a log and that the metrics show."""
    logged, lost = 0, []
    for change in _all_changes(evidence):
        try:
            logged += transitions(evidence, change.name) == len(reading.pods_of(evidence, change.group))
        except Absent as error:
            lost.append(str(error))
    if lost and logged + len(lost) == len(_all_changes(evidence)):
        raise Absent("; ".join(lost[:3]))
    return float(logged)


@word(unit="s")
def slowest_change(evidence: CaseEvidence) -> Value:
    """Return the longest time in seconds until the metrics showed a change."""
    return max(t.cast(float, latency(evidence, change.name)) for change in _all_changes(evidence))
