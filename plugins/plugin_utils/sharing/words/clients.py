# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words about the clients that schedulers know: the GPUs of pods, and what is left of those that are gone.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import CaseEvidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.scraped import SystemExposition
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words.register import GROUP, SAMPLE, word

RUNNING_MEMORY = "scheduler_running_memory_bytes"


@word(SAMPLE, GROUP)
def clients(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return how many clients the schedulers know of pods of a group, including removed pods."""
    label = evidence.system.labels["pod"]
    pod_names = {pod.current_name for pod in reading.pods_of(evidence, group)}
    answers = reading.all_answers(evidence, reading.last(evidence, sample))
    return float(
        sum(
            entry.labels.get(label) in pod_names for scrape in answers if scrape.exposition for entry in scrape.exposition.of("client_info")
        )
    )


@word(SAMPLE)
def client_series(evidence: CaseEvidence, sample: str) -> Value:
    """Return the number of series of clients, over all schedulers."""
    answers = reading.all_answers(evidence, reading.last(evidence, sample))
    client_keys = {
        (scrape.scheduler, entry.name, tuple(sorted(entry.labels.items())))
        for scrape in answers
        if scrape.exposition
        for entry in scrape.exposition.series
        if entry.name.startswith(reading.CLIENT)
    }
    return float(len(client_keys))


@word(SAMPLE, GROUP)
def series_of(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return how many series of pods of a group the schedulers have."""
    label = evidence.system.labels["pod"]
    pod_names = {pod.current_name for pod in reading.pods_of(evidence, group)}
    answers = reading.all_answers(evidence, reading.last(evidence, sample))
    return float(sum(entry.labels.get(label) in pod_names for scrape in answers if scrape.exposition for entry in scrape.exposition.series))


@word(SAMPLE)
def orphans(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many series of clients are of pods that the same scheduler does not have as clients."""
    label, found = evidence.system.labels["pod"], 0
    for scrape in reading.all_answers(evidence, reading.last(evidence, sample)):
        exposition = t.cast(SystemExposition, scrape.exposition)
        known = {entry.labels.get(label) for entry in exposition.of("client_info")}
        found += sum(entry.name.startswith(reading.CLIENT) and entry.labels.get(label) not in known for entry in exposition.series)
    return float(found)


@word(SAMPLE, GROUP)
def gpus(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return the number of GPUs on which the pods of a group are. Raise Absent unless a scheduler knows each pod."""
    by_pod = reading.gpus_by_pod(evidence, reading.last(evidence, sample), group)
    unknown = {pod.current_name for pod in reading.pods_of(evidence, group)} - set(by_pod)
    if unknown:
        raise Absent(f"sample {sample}: no scheduler says on which GPU {', '.join(sorted(unknown)[:4])} is")
    return float(len(set().union(*by_pod.values())))


@word(SAMPLE, GROUP)
def gpus_known(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return the number of GPUs on which those pods of a group are that a scheduler knows."""
    by_pod = reading.gpus_by_pod(evidence, reading.last(evidence, sample), group)
    if not by_pod:
        raise Absent(f"sample {sample}: no scheduler knows a pod of {group}")
    return float(len(set().union(*by_pod.values())))


@word(SAMPLE, GROUP)
def indexed(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return how many pods of a group the schedulers show with the index of their GPU. Raise Absent unless a scheduler knows each pod."""
    gpus(evidence, sample, group)
    label, last = evidence.system.labels, reading.last(evidence, sample)
    indexes = {entry.labels.get(label["gpu"]): entry.labels.get(label["index"]) for entry in reading.entries(evidence, last, "gpu_info")}
    pod_names = {pod.current_name for pod in reading.pods_of(evidence, group)}
    return float(
        len({
            entry.labels[label["pod"]]
            for entry in reading.entries(evidence, last, "client_info")
            if entry.labels.get(label["pod"]) in pod_names
            and entry.labels.get(label["index"]) == indexes.get(entry.labels.get(label["gpu"]), "")
        })
    )  # fmt: skip


@word(SAMPLE, GROUP, GROUP)
def colocated(evidence: CaseEvidence, sample: str, first: str, second: str) -> Value:
    """Return True if all pods of two groups are on one GPU."""
    look = reading.last(evidence, sample)
    by_pod = {**reading.gpus_by_pod(evidence, look, first), **reading.gpus_by_pod(evidence, look, second)}
    unknown = {pod.current_name for group in (first, second) for pod in reading.pods_of(evidence, group)} - set(by_pod)
    if unknown:
        raise Absent(f"sample {sample}: no scheduler says on which GPU {', '.join(sorted(unknown)[:4])} is")
    return len(set().union(*by_pod.values())) == 1


@word(SAMPLE)
def met(evidence: CaseEvidence, sample: str) -> Value:
    """Return in how many samples all pods that were there at that time were on one GPU."""
    label, found = evidence.system.labels, 0
    for look in reading.looks(evidence, sample):
        places = {
            entry.labels.get(label["pod"]): entry.labels.get(label["gpu"]) for entry in reading.entries(evidence, look, "client_info")
        }
        found += bool(look.phases) and all(name in places for name in look.phases) and len({places[name] for name in look.phases}) == 1
    return float(found)


@word(SAMPLE, SAMPLE, unit="B")
def memory_left(evidence: CaseEvidence, first_sample: str, last_sample: str) -> Value:
    """Return the greatest increase of a GPU's used memory between two samples, in bytes."""
    label = evidence.system.labels["gpu"]

    def used(name: str) -> dict[str, float]:
        answers = reading.all_answers(evidence, reading.last(evidence, name))
        series = (entry for scrape in answers if scrape.exposition for entry in scrape.exposition.of("gpu_memory_used_bytes"))
        return {entry.labels.get(label, ""): entry.value for entry in series}

    first, last = used(first_sample), used(last_sample)
    if not first or set(first) != set(last):
        raise Absent(f"samples {first_sample} and {last_sample} are not of the same GPUs: {len(first)} and {len(last)}")
    return max(last[gpu] - first[gpu] for gpu in first)


@word(SAMPLE, unit="B")
def memory_of_nobody(evidence: CaseEvidence, sample: str) -> Value:
    """Return the most memory, in bytes, that a scheduler counts as running on a GPU on which it has no client, 0 if there is none."""
    label, left = evidence.system.labels["gpu"], []
    for scrape in reading.all_answers(evidence, reading.last(evidence, sample)):
        exposition = t.cast(SystemExposition, scrape.exposition)
        used = {entry.labels.get(label) for entry in exposition.of("client_info")}
        left += [entry.value for entry in exposition.of(RUNNING_MEMORY) if entry.labels.get(label) not in used]
    if not left and not any(
        scrape.exposition and scrape.exposition.of(RUNNING_MEMORY) for scrape in reading.last(evidence, sample).scrapes
    ):
        raise Absent(f"sample {sample}: no scheduler has {evidence.system.metrics}{RUNNING_MEMORY}")
    return max(left, default=0.0)
