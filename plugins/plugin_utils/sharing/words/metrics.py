# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words about the values of metrics in a sample or a watch.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import array
import math
import statistics

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import CaseEvidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words.register import GROUP, METRIC, NUMBER, SAMPLE, word


@word(SAMPLE, METRIC, GROUP)
def lowest(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """Return the lowest value of a metric among the pods of a group."""
    return min(reading.values_of(evidence, reading.last(evidence, sample), name, group))


@word(SAMPLE, METRIC, GROUP)
def highest(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    return max(reading.values_of(evidence, reading.last(evidence, sample), name, group))


@word(SAMPLE, METRIC, GROUP)
def metric(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """Return the value of a metric that all pods of a group share."""
    distinct = set(reading.values_of(evidence, reading.last(evidence, sample), name, group))
    if len(distinct) > 1:
        raise Absent(f"sample {sample}: pods of {group} have {len(distinct)} values of {name}")
    return distinct.pop()


@word(SAMPLE, METRIC, GROUP, NUMBER)
def shown_as(evidence: CaseEvidence, sample: str, name: str, group: str, value: float) -> Value:
    """Return how many pods of a group have a value of a metric."""
    return float(reading.values_of(evidence, reading.last(evidence, sample), name, group).count(value))


@word(SAMPLE, METRIC)
def total(evidence: CaseEvidence, sample: str, name: str) -> Value:
    """Return the sum of a metric over all schedulers."""
    answers = reading.all_answers(evidence, reading.last(evidence, sample))
    values = [entry.value for scrape in answers if scrape.exposition for entry in scrape.exposition.of(name)]
    if not values:
        raise Absent(f"sample {sample}: no scheduler has {evidence.system.metrics}{name}")
    return sum(values)


@word(SAMPLE, METRIC)
def present(evidence: CaseEvidence, sample: str, name: str) -> Value:
    """Return the number of series of a metric, over all schedulers that answered."""
    last = reading.last(evidence, sample)
    if not any(reading.readable(scrape) for scrape in last.scrapes):
        raise Absent(f"sample {sample}: no scheduler answered")
    return float(len(reading.entries(evidence, last, name)))


@word(SAMPLE)
def missing(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many required metrics no scheduler has. Raise Absent if one is missing and a scheduler did not answer."""
    last = reading.last(evidence, sample)
    if not any(reading.readable(scrape) for scrape in last.scrapes):
        raise Absent(f"sample {sample}: no scheduler answered")
    lacking = sum(not reading.entries(evidence, last, name) for name in evidence.system.required_metrics)
    if lacking:
        reading.all_answers(evidence, last)
    return float(lacking)


@word(SAMPLE)
def missing_somewhere(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many required metrics at least one scheduler lacks. Metrics of clients do not count. Metrics of GPUs are required of every
    scheduler, other metrics only of those that have clients."""
    answers = [
        {entry.name for entry in scrape.exposition.series}
        for scrape in reading.all_answers(evidence, reading.last(evidence, sample))
        if scrape.exposition
    ]
    required = [name for name in evidence.system.required_metrics if not name.startswith(reading.CLIENT)]
    served = [names for names in answers if "client_info" in names]
    return float(sum(any(name not in names for names in (answers if name.startswith(reading.GPU) else served)) for name in required))


@word(SAMPLE, METRIC, GROUP)
def mean_of(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """Return the highest mean of a metric over a watch, among the pods of a group."""
    looks = reading.looks(evidence, sample)
    label = evidence.system.labels["pod"]
    by_pod: dict[str, array.array[float]] = {pod.current_name: array.array("d") for pod in reading.pods_of(evidence, group)}
    for look in looks:
        for entry in reading.entries(evidence, look, name):
            if entry.labels.get(label) in by_pod:
                by_pod[entry.labels[label]].append(entry.value)
    if not all(by_pod.values()):
        raise Absent(f"watch {sample}: {evidence.system.metrics}{name} has no series of every pod of {group}")
    return max(statistics.fmean(values) for values in by_pod.values())


@word(SAMPLE, METRIC)
def peak(evidence: CaseEvidence, sample: str, name: str) -> Value:
    """Return the highest value of any series of a metric in a watch."""
    maximum = max(
        (entry.value for look in reading.looks(evidence, sample) for entry in reading.entries(evidence, look, name)), default=None
    )
    if maximum is None:
        raise Absent(f"watch {sample}: no scheduler had {evidence.system.metrics}{name}")
    return maximum


@word(SAMPLE, METRIC, GROUP)
def peak_of_gpus(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """Return the highest value of a metric in a watch among the GPUs of a group's pods."""
    gpus = {
        gpu
        for look in reading.looks(evidence, sample)
        for pod_gpus in reading.gpus_by_pod(evidence, look, group).values()
        for gpu in pod_gpus
    }
    label = evidence.system.labels["gpu"]
    series = (entry for look in reading.looks(evidence, sample) for entry in reading.entries(evidence, look, name))
    maximum = max((entry.value for entry in series if entry.labels.get(label) in gpus), default=None)
    if maximum is None:
        raise Absent(f"watch {sample}: no {evidence.system.metrics}{name} of the GPUs of {group}")
    return maximum


@word(SAMPLE, SAMPLE, METRIC, GROUP)
def rise_of_gpus(evidence: CaseEvidence, first_sample: str, sample: str, name: str, group: str) -> Value:
    """Return by how much the highest value of a metric in a watch is above that of an earlier sample: the least rise among the GPUs of a
    group's pods."""
    label = evidence.system.labels["gpu"]
    before = {entry.labels.get(label): entry.value for entry in reading.entries(evidence, reading.last(evidence, first_sample), name)}
    highest_values: dict[str, float] = {}
    for look in reading.looks(evidence, sample):
        gpus_of_group = {gpu for pod_gpus in reading.gpus_by_pod(evidence, look, group).values() for gpu in pod_gpus}
        for entry in reading.entries(evidence, look, name):
            gpu = entry.labels.get(label, "")
            if gpu in gpus_of_group:
                highest_values[gpu] = max(entry.value, highest_values.get(gpu, -math.inf))
    if not highest_values:
        raise Absent(f"watch {sample}: no {evidence.system.metrics}{name} of the GPUs of {group}")
    if unknown := sorted(set(highest_values) - set(before)):
        raise Absent(f"sample {first_sample}: no {evidence.system.metrics}{name} of GPU {unknown[0]}")
    return min(value - before[gpu] for gpu, value in highest_values.items())


@word(SAMPLE, METRIC, GROUP, unit="percent")
def driver_gap(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """Return the greatest difference, in percentage points, between the medians of a utilisation metric and of nvidia-smi dmon in a watch,
    over the GPUs of a group's pods."""
    label, busy = evidence.system.labels, evidence.busy.get(sample, {})
    gpus = {
        gpu
        for look in reading.looks(evidence, sample)
        for pod_gpus in reading.gpus_by_pod(evidence, look, group).values()
        for gpu in pod_gpus
    }
    by_gpu: dict[tuple[str, str], array.array[float]] = {}
    for look in reading.looks(evidence, sample):
        reading.entries(evidence, look, name)  # all of them are numbers
        for scrape in look.scrapes:
            for entry in scrape.exposition.of(name) if reading.readable(scrape) and scrape.exposition else ():
                if entry.labels.get(label["gpu"]) in gpus:
                    by_gpu.setdefault((scrape.node, entry.labels.get(label["index"], "")), array.array("d")).append(entry.value)
    if not by_gpu:
        raise Absent(f"watch {sample}: no {evidence.system.metrics}{name} of the GPUs of {group}")
    for node, index in by_gpu:
        if not busy.get(node, {}).get(index):
            raise Absent(f"watch {sample}: nvidia-smi dmon beside the scheduler on {node} has no values of GPU {index}")
    return max(abs(100 * statistics.median(values) - statistics.median(busy[node][index])) for (node, index), values in by_gpu.items())


@word(SAMPLE, METRIC, METRIC, GROUP, optional=1, unit="ratio")
def peak_ratio(evidence: CaseEvidence, sample: str, name: str, denominator: str, group: str = "") -> Value:
    """Return the highest ratio of two metrics of one GPU in a watch, among the GPUs of a group's pods if a group is given."""
    label = evidence.system.labels["gpu"]
    ratios = array.array("d")
    looks = reading.looks(evidence, sample)
    group_gpus = {
        gpu for look in looks for pod_gpus in (reading.gpus_by_pod(evidence, look, group).values() if group else ()) for gpu in pod_gpus
    }
    for look in looks:
        denominators = {
            entry.labels.get(label): entry.value
            for entry in reading.entries(evidence, look, denominator)
            if not group or entry.labels.get(label) in group_gpus
        }
        ratios.extend(
            entry.value / denominators[entry.labels.get(label)]
            for entry in reading.entries(evidence, look, name)
            if denominators.get(entry.labels.get(label))
        )
    if not ratios:
        raise Absent(f"watch {sample}: {name} and {denominator} are not there together for any GPU")
    return max(ratios)


@word(SAMPLE, METRIC, METRIC, unit="ratio")
def peak_of_sums(evidence: CaseEvidence, sample: str, name: str, denominator: str) -> Value:
    """Return the highest ratio of the sums of two metrics over all GPUs in a watch."""
    ratios = []
    for look in reading.looks(evidence, sample):
        denominator_sum = sum(entry.value for entry in reading.entries(evidence, look, denominator))
        ratios += [sum(entry.value for entry in reading.entries(evidence, look, name)) / denominator_sum] if denominator_sum else []
    if not ratios:
        raise Absent(f"watch {sample}: no scheduler had {evidence.system.metrics}{denominator}")
    return max(ratios)
