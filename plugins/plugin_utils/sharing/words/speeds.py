# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words about the speeds of pods, by the progress that they print, and about the share of a GPU that they had.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import CaseEvidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import pods, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words.register import CHANGE, GROUP, NUMBER, word

# The last probes, whose two intervals show the speed that a pod has in the end.
LAST_PROBES = 3
# The fewest lines about progress of one pod that show that another one beside it stood still meanwhile; the seconds that a pod has for the
# start of its device; and the part of another pod's lines that is no progress.
MEANWHILE, STARTING_S, STILL = 5, 4.0, 0.1
# The fewest lines of the fastest pod in the time in which the speeds of pods are compared.
COMPARED = 3


@word(GROUP, CHANGE, CHANGE, optional=2, unit="1/s")
def rate(evidence: CaseEvidence, group: str, since: str = "", until: str = "") -> Value:
    """Return the iterations per second between two changes (median over pods), from the intervals between probes. The first interval begins
    when the metrics showed the first change."""
    rates = []
    for pod, log in reading.logs_of(evidence, group):
        begin = reading.settled_at(evidence, since, pod) if since else ""
        end = reading.mark(evidence, until, pod) if until else None
        pod_rate = lines.rate(log, begin, end)
        if pod_rate is None:
            where = f" after {since}" if since else ""
            raise Absent(f"{pod.name} printed no two probes{where}{f' before {until}' if until else ''}")
        rates.append(pod_rate)
    return float(statistics.median(rates))


@word(GROUP, CHANGE, unit="s")
def lag(evidence: CaseEvidence, group: str, change: str) -> Value:
    """Return the longest time in seconds for which a pod went on at its old speed after the metrics had shown a change of its compute
    quota: at most the time between two probes too short. The new speed is that of the last two intervals between probes."""
    lags = []
    for pod, log in reading.logs_of(evidence, group):
        before = lines.rate(log, "", reading.mark(evidence, change, pod))
        since = lines.probes(lines.after(log, reading.settled_at(evidence, change, pod)))
        if before is None or len(since) < LAST_PROBES:
            raise Absent(f"{pod.name} printed too few probes around {change}")
        if lines.began_anew(since):
            raise Absent(f"{pod.name} began anew after {change}")
        first, earlier, last = since[0], since[-LAST_PROBES], since[-1]
        new = (last.iterations - earlier.iterations) / (last.elapsed_s - earlier.elapsed_s)
        if new == before:
            raise Absent(f"the speed of {pod.name} did not change after {change}")
        made, took = last.iterations - first.iterations, last.elapsed_s - first.elapsed_s
        lags.append(min(took, max(0.0, (new * took - made) / (new - before))))
    return max(lags)


def _brought_together(evidence: CaseEvidence, group: str) -> list[list[list[lines.LogLine]]]:
    """Return the logs, lines with a time only, of the pods of a group that one `together` step brought onto one node. A pod that is alone
    there is left out."""
    by_node: dict[tuple[int, str], list[list[lines.LogLine]]] = {}
    for pod, log in reading.logs_of(evidence, group):
        stamped = [line for line in log if line.stamp]
        if not stamped:
            raise Absent(f"{pod.name} printed nothing")
        by_node.setdefault((pod.batch, pod.node), []).append(stamped)
    together = [logs for logs in by_node.values() if len(logs) > 1]
    if not together:
        raise Absent(f"no two pods of {group} were brought together")
    return together


@word(GROUP)
def held_up(evidence: CaseEvidence, group: str) -> Value:
    """Return how many pods of a group made next to no progress while all its pods on their node ran, by the clock of that node.
    Pods of different `together` steps are not compared. Raise Absent if that time was so short that no other pod made much progress."""
    held = 0
    for logs in _brought_together(evidence, group):
        begin, end = max(log[0].stamp for log in logs), min(log[-1].stamp for log in logs)
        made = [lines.advances(lines.between(log, begin, end)) for log in logs]
        later = max(sum(lines.seconds_between(begin, probe.stamp) > STARTING_S for probe in probes) for probes in made)
        if not all(made) and later < MEANWHILE:
            counted = ", ".join(str(len(probes)) for probes in made)
            raise Absent(f"pods of {group} ran at the same time for too short a time: {counted} lines about progress")
        held += sum(len(probes) < STILL * max(map(len, made)) for probes in made)
    return float(held)


@word(GROUP, unit="ratio")
def lead(evidence: CaseEvidence, group: str) -> Value:
    """Return the greatest ratio of the progress of two pods that one `together` step brought onto one node, in the time in which all of
    them printed lines about it: run times may be alike although one pod was far ahead until it ended. Raise Absent if that time was so
    short that the fastest pod printed fewer than COMPARED lines."""
    ratios = []
    for logs in _brought_together(evidence, group):
        readings = [lines.probes(log) for log in logs]
        if not all(readings):
            raise Absent(f"a pod of {group} printed no line about its progress")
        if any(map(lines.began_anew, readings)):
            raise Absent(f"a pod of {group} began anew: its speed cannot be compared")
        begin, end = max(probes[0].stamp for probes in readings), min(probes[-1].stamp for probes in readings)
        if max(sum(begin <= probe.stamp <= end for probe in probes) for probes in readings) < COMPARED:
            raise Absent(f"pods of {group} made progress at the same time for too short a time to compare their speeds")
        made = [lines.iterations_at(probes, end) - lines.iterations_at(probes, begin) for probes in readings]
        ratios.append(max(made) / min(made))
    return max(ratios)


@word(GROUP, GROUP, unit="percent")
def share(evidence: CaseEvidence, full: str, limited: str) -> Value:
    """Return the part of a GPU, in percent, that limited pods had: the run time of pods with a whole GPU divided by theirs."""
    return 100.0 * t.cast(float, pods.runtime(evidence, full)) / t.cast(float, pods.runtime(evidence, limited))


@word(GROUP, GROUP, unit="percent")
def greatest_share(evidence: CaseEvidence, full: str, limited: str) -> Value:
    """Return the greatest part of a GPU, in percent, that a limited pod had: its speed relative to that of a pod with a whole GPU that ran
    on the same node before."""
    whole, shares = {}, []
    for pod, log in reading.logs_of(evidence, full):
        whole[pod.node] = lines.rate(log)
    for pod, log in reading.logs_of(evidence, limited):
        speed, of_node = lines.rate(log), whole.get(pod.node)
        if speed is None or not of_node:
            raise Absent(f"{pod.name} or the pod of {full} on its node printed no two probes")
        shares.append(100.0 * speed / of_node)
    return max(shares)


@word(GROUP, GROUP, NUMBER, unit="percent")
def inaccuracy(evidence: CaseEvidence, full: str, limited: str, target: float) -> Value:
    """Return by how much the share misses its quota: in percentage points, or in percent of the quota if the parameter accuracy_relative is
    set."""
    return _missed(evidence, t.cast(float, share(evidence, full, limited)), target)


def _missed(evidence: CaseEvidence, actual: float, target: float) -> float:
    missed = abs(actual - target)
    return 100.0 * missed / target if evidence.parameters.get("accuracy_relative") else missed


@word(GROUP, NUMBER, CHANGE, CHANGE, CHANGE, optional=1, unit="percent")
def rate_inaccuracy(evidence: CaseEvidence, group: str, target: float, full: str, since: str, until: str = "") -> Value:
    """Return by how much the share of pods misses a changed quota, like inaccuracy(). The share is their throughput between two changes,
    relative to that since the change `full` to the whole GPU."""
    full_rate = t.cast(float, rate(evidence, group, full))
    return _missed(evidence, 100.0 * t.cast(float, rate(evidence, group, since, until)) / full_rate, target)
