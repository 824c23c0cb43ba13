# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of a case as words read it. Each function raises Absent if its evidence is missing or incomplete.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
import math

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import (
    CaseEvidence,
    CasePod,
    QuotaChange,
    Scrape,
    SystemSample,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.folded import Folded
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.scraped import ExpositionSeries

# Prefixes of the metrics of clients and of GPUs.
CLIENT, GPU = "client_", "gpu_"


def pods_of(evidence: CaseEvidence, group: str) -> list[CasePod]:
    pods = evidence.of(group)
    if not pods:
        raise Absent(f"no pod of {group} was made")
    return pods


def logs_of(evidence: CaseEvidence, group: str) -> list[tuple[CasePod, list[lines.LogLine]]]:
    pod_logs = []
    for pod in pods_of(evidence, group):
        if pod.log is None:
            raise Absent(f"the log of {pod.name} could not be read")
        pod_logs.append((pod, pod.log))
    return pod_logs


def change_named(evidence: CaseEvidence, name: str) -> QuotaChange:
    if name not in evidence.changes:
        raise Absent(f"the change {name} was not made")
    return evidence.changes[name]


def mark(evidence: CaseEvidence, change: str, pod: CasePod) -> str:
    marks = change_named(evidence, change).marks
    if pod.name not in marks:
        raise Absent(f"the log of {pod.name} before {change} was not read")
    return marks[pod.name]


def settled_at(evidence: CaseEvidence, change: str, pod: CasePod) -> str:
    at = change_named(evidence, change).since(pod.name)
    return mark(evidence, change, pod) if at is None else at


def looks(evidence: CaseEvidence, name: str) -> Folded[SystemSample]:
    samples = evidence.samples.get(name)
    if not samples:
        raise Absent(f"sample {name} was not taken")
    return samples


def last(evidence: CaseEvidence, name: str) -> SystemSample:
    return looks(evidence, name).last


def readable(scrape: Scrape) -> bool:
    return scrape.status == 200 and scrape.exposition is not None and not scrape.exposition.wrong


def entries(evidence: CaseEvidence, sample: SystemSample, metric: str) -> list[ExpositionSeries]:
    series = [entry for scrape in sample.scrapes if readable(scrape) and scrape.exposition for entry in scrape.exposition.of(metric)]
    if any(math.isnan(entry.value) for entry in series):  # NaN compares as neither more nor less, so a comparison would be wrong
        raise Absent(f"sample {sample.name}: {evidence.system.metrics}{metric} is no number")
    return series


def all_answers(evidence: CaseEvidence, sample: SystemSample) -> list[Scrape]:
    """Return the answers of all schedulers. Raise Absent if one is missing: a sum over the others would be wrong."""
    silent = [f"{scrape.scheduler} ({scrape.problem or scrape.status})" for scrape in sample.scrapes if not readable(scrape)]
    if silent or len(sample.scrapes) < max(1, sample.expected):
        lacking = ", ".join(silent) or f"{len(sample.scrapes)} of {sample.expected} schedulers are there"
        raise Absent(f"sample {sample.name}: not every scheduler answered: {lacking}")
    return sample.scrapes


def values_of(evidence: CaseEvidence, sample: SystemSample, metric: str, group: str) -> list[float]:
    """Return one value of a metric for each pod of a group. Raise Absent if a pod has none or several."""
    label = evidence.system.labels
    by_pod: dict[str, set[float]] = {pod.current_name: set() for pod in pods_of(evidence, group)}
    spaces = {pod.current_name: pod.namespace for pod in pods_of(evidence, group)}
    for entry in entries(evidence, sample, metric):
        pod = entry.labels.get(label["pod"], "")
        if pod in by_pod and entry.labels.get(label["namespace"], spaces[pod]) == spaces[pod]:
            by_pod[pod].add(entry.value)
    for pod, values in by_pod.items():
        if len(values) != 1:
            amount = f"{len(values)} values" if values else "no series"
            raise Absent(f"sample {sample.name}: {evidence.system.metrics}{metric} has {amount} of {pod}")
    return [value for values in by_pod.values() for value in values]


def gpus_by_pod(evidence: CaseEvidence, sample: SystemSample, group: str) -> dict[str, set[str]]:
    """Return {pod: its GPUs} for the pods that a scheduler knows. A GPU for which the scheduler has no metrics of its own is left out."""
    label = evidence.system.labels
    pod_names = {pod.current_name for pod in pods_of(evidence, group)}
    by_pod: dict[str, set[str]] = {}
    for series in (scrape.exposition.series for scrape in sample.scrapes if readable(scrape) and scrape.exposition):
        scheduler_gpus = {entry.labels.get(label["gpu"]) for entry in series if entry.name.startswith(GPU)}
        for entry in series:
            gpu = entry.labels.get(label["gpu"], "")
            if (
                entry.name == "client_info"
                and entry.labels.get(label["pod"]) in pod_names
                and gpu
                and (gpu in scheduler_gpus or not scheduler_gpus)
            ):
                by_pod.setdefault(entry.labels[label["pod"]], set()).add(gpu)
    return by_pod


def schedulers_logs(evidence: CaseEvidence) -> dict[str, list[lines.LogLine]]:
    logs = {}
    for scheduler, log in evidence.logs.items():
        if log is None:
            raise Absent(f"the log of {scheduler} could not be read")
        logs[scheduler] = log
    if not logs:
        raise Absent("no log of a scheduler was read")
    return logs


def phases(evidence: CaseEvidence, group: str, kind: str) -> list[tuple[QuotaChange, str]]:
    """Return the changes of one quota of a group, each with the name of the next, "" for the last."""
    made = [change for change in evidence.changes.values() if (change.group, change.kind) == (group, kind)]
    return [(change, later.name if later else "") for change, later in itertools.zip_longest(made, made[1:])]
