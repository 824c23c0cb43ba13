# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of assertions: each a number, or a yes or no, of what was seen while a case ran.

A word never guesses: where what it needs was not measured, or only in part, it is absent, and the assertion is not known to hold.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import itertools
import math
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    CaseEvidence,
    CasePod,
    QuotaChange,
    Scrape,
    SystemSample,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Call, Value
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.folded import Folded
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.scraped import ExpositionSeries

# What an argument names.
GROUP, SAMPLE, CHANGE, PATTERN, METRIC, NUMBER, ACTION = "group", "sample", "change", "pattern", "metric", "number", "action"
# The samples that every case has: before anything is made, and when all is over.
BASELINE, END = "baseline", "end"
PERCENTILE = 95
# What names of metrics of clients and of GPUs begin with.
CLIENT, GPU = "client_", "gpu_"


@dataclasses.dataclass(frozen=True)
class Word:
    """`kinds`: what each argument names; those from `optional` on may be left out."""

    of: t.Callable[..., Value]
    kinds: tuple[str, ...]
    optional: int


WORDS: dict[str, Word] = {}
_F = t.TypeVar("_F", bound=t.Callable[..., t.Any])


def word(*kinds: str, optional: int = 0) -> t.Callable[[_F], _F]:
    def known(of: _F) -> _F:
        WORDS[of.__name__] = Word(of, kinds, len(kinds) - optional)
        return of

    return known


def ask(evidence: CaseEvidence) -> t.Callable[[str, t.Sequence[str | float]], Value]:
    """Return the value of a name for expressions.evaluate()."""

    def asked(name: str, args: t.Sequence[str | float]) -> Value:
        try:
            return WORDS[name].of(evidence, *args)
        except KeyError as error:  # a case that does not say what it needs, of a system that lacks it
            raise Absent(f"the description of {evidence.system.name} does not say {error}") from error

    return asked


def problem(call: Call) -> str | None:
    """Why a call cannot be asked, whatever was seen."""
    known = WORDS.get(call.word)
    if known is None:
        return f"{call.word} is not known; expected one of {', '.join(sorted(WORDS))}"
    if not known.optional <= len(call.args) <= len(known.kinds):
        return f"{call.word}: found {len(call.args)} arguments, expected {', '.join(known.kinds) or 'none'}"
    return None


# Pods ---------------------------------------------------------------------------------------------------------------


def _pods(evidence: CaseEvidence, group: str) -> list[CasePod]:
    found = evidence.of(group)
    if not found:
        raise Absent(f"no pod of {group} was made")
    return found


def _in(evidence: CaseEvidence, group: str, phase: str) -> float:
    return float(sum(pod.phase == phase for pod in _pods(evidence, group)))


@word(GROUP)
def count(evidence: CaseEvidence, group: str) -> Value:
    return float(len(_pods(evidence, group)))


@word(GROUP)
def succeeded(evidence: CaseEvidence, group: str) -> Value:
    return _in(evidence, group, SUCCEEDED)


@word(GROUP)
def failed(evidence: CaseEvidence, group: str) -> Value:
    return _in(evidence, group, FAILED)


@word(GROUP)
def pending(evidence: CaseEvidence, group: str) -> Value:
    """Those that never started: they are asked when the case is over."""
    return float(sum(pod.phase == PENDING for pod in evidence.of(group)))


@word(GROUP)
def running(evidence: CaseEvidence, group: str) -> Value:
    return _in(evidence, group, RUNNING)


@word(GROUP)
def replaced(evidence: CaseEvidence, group: str) -> Value:
    """How many pods of Jobs ended before those that are there now."""
    return float(sum(pod.replaced for pod in _pods(evidence, group)))


def _logs(evidence: CaseEvidence, group: str) -> list[tuple[CasePod, list[lines.LogLine]]]:
    found = []
    for pod in _pods(evidence, group):
        if pod.log is None:
            raise Absent(f"the log of {pod.name} could not be read")
        found.append((pod, pod.log))
    return found


@word(GROUP)
def runtime(evidence: CaseEvidence, group: str) -> Value:
    """Seconds that the workload says it took; of several pods the median."""
    return float(statistics.median(_runtimes(evidence, group)))


@word(GROUP)
def slowest(evidence: CaseEvidence, group: str) -> Value:
    return max(_runtimes(evidence, group))


@word(GROUP)
def fastest(evidence: CaseEvidence, group: str) -> Value:
    return min(_runtimes(evidence, group))


def _runtimes(evidence: CaseEvidence, group: str) -> list[float]:
    found = []
    for pod, log in _logs(evidence, group):
        seconds = lines.runtime(log)
        if seconds is None or pod.phase != SUCCEEDED:
            raise Absent(f"{pod.name} is {pod.phase} and says {'no runtime' if seconds is None else f'{seconds} s'}")
        if seconds <= 0:
            raise Absent(f"{pod.name} says that it took {seconds} s")
        found.append(seconds)
    return found


@word(GROUP)
def elapsed(evidence: CaseEvidence, group: str) -> Value:
    """Seconds from when the first pod was made until the last was over."""
    pods = _pods(evidence, group)
    ends = [pod.ended_at for pod in pods if pod.ended_at is not None]
    if len(ends) < len(pods):
        raise Absent(f"{len(pods) - len(ends)} pods of {group} did not end")
    return max(ends) - min(pod.made_at for pod in pods)


@word(GROUP, PATTERN)
def logged(evidence: CaseEvidence, group: str, pattern: str) -> Value:
    """How many lines of the pods' logs match."""
    wanted = evidence.system.pattern(pattern)
    return float(sum(len(lines.matching(log, wanted)) for _pod, log in _logs(evidence, group)))


@word(GROUP, PATTERN)
def each_logged(evidence: CaseEvidence, group: str, pattern: str) -> Value:
    """How many of the pods have such a line."""
    wanted = evidence.system.pattern(pattern)
    return float(sum(bool(lines.matching(log, wanted)) for _pod, log in _logs(evidence, group)))


@word(GROUP, CHANGE, CHANGE, optional=2)
def rate(evidence: CaseEvidence, group: str, since: str = "", until: str = "") -> Value:
    """Iterations per second between two changes, by the intervals of the probes from when the metrics showed the first of them; of
    several pods the median."""
    found = []
    for pod, log in _logs(evidence, group):
        begin = _settled(evidence, since, pod) if since else ""
        end = _mark(evidence, until, pod) if until else None
        seen = lines.rate(log, begin, end)
        if seen is None:
            where = f" after {since}" if since else ""
            raise Absent(f"{pod.name} printed no two probes{where}{f' before {until}' if until else ''}")
        found.append(seen)
    return float(statistics.median(found))


@word(GROUP, NUMBER)
def stalls(evidence: CaseEvidence, group: str, seconds: float) -> Value:
    """How many pods made no progress for longer than this between two probes."""
    stalled = 0
    for pod, log in _logs(evidence, group):
        seen = lines.probes(log)
        if len(seen) < 2:
            raise Absent(f"{pod.name} printed fewer than two probes")
        stalled += any(b.elapsed_s - a.elapsed_s > seconds or b.iterations <= a.iterations for a, b in itertools.pairwise(seen))
    return float(stalled)


@word(GROUP, CHANGE)
def refused_after(evidence: CaseEvidence, group: str, change: str) -> Value:
    """How many new allocations pods were refused after a change."""
    wanted = evidence.system.pattern("allocation_refused")
    return float(sum(len(lines.matching(lines.after(log, _mark(evidence, change, pod)), wanted)) for pod, log in _logs(evidence, group)))


@word(GROUP, CHANGE)
def granted_after(evidence: CaseEvidence, group: str, change: str) -> Value:
    wanted = evidence.system.pattern("allocation_granted")
    return float(sum(len(lines.matching(lines.after(log, _mark(evidence, change, pod)), wanted)) for pod, log in _logs(evidence, group)))


# Logs of the system ----------------------------------------------------------------------------------------------------


def _schedulers_logs(evidence: CaseEvidence) -> dict[str, list[lines.LogLine]]:
    found = {}
    for scheduler, log in evidence.logs.items():
        if log is None:
            raise Absent(f"the log of {scheduler} could not be read")
        found[scheduler] = log
    if not found:
        raise Absent("no log of a scheduler was read")
    return found


@word(PATTERN)
def scheduler_logged(evidence: CaseEvidence, pattern: str) -> Value:
    """How many lines of all schedulers' logs match, whenever they were written."""
    wanted = evidence.system.pattern(pattern)
    return float(sum(len(lines.matching(log, wanted)) for log in _schedulers_logs(evidence).values()))


def _change(evidence: CaseEvidence, name: str) -> QuotaChange:
    if name not in evidence.changes:
        raise Absent(f"the change {name} was not made")
    return evidence.changes[name]


def _mark(evidence: CaseEvidence, change: str, pod: CasePod) -> str:
    marks = _change(evidence, change).marks
    if pod.name not in marks:
        raise Absent(f"the log of {pod.name} before {change} was not read")
    return marks[pod.name]


def _settled(evidence: CaseEvidence, change: str, pod: CasePod) -> str:
    found = _change(evidence, change).since(pod.name)
    return _mark(evidence, change, pod) if found is None else found


def _plain(number: float | None) -> str:
    return r"\d+" if number is None else str(int(number))


@word(CHANGE)
def transitions(evidence: CaseEvidence, change: str) -> Value:
    """For how many pods a scheduler wrote, after the change, that their quota went from the old value to the new one."""
    made = _change(evidence, change)
    mine = {pod.name for pod in _pods(evidence, made.group)}
    found = mine & made.written
    if found != mine:
        found = found.union(*(written(evidence, made, name, log) for name, log in _schedulers_logs(evidence).items()))
    return float(len(found))


def written(evidence: CaseEvidence, made: QuotaChange, scheduler: str, log: t.Sequence[lines.LogLine]) -> set[str]:
    """The pods of a change of which this scheduler's log says so behind what stood there before it."""
    if scheduler not in made.marks:
        return set()
    behind = lines.after(log, made.marks[scheduler])
    found = set()
    for pod in _pods(evidence, made.group):
        pattern = evidence.system.pattern(f"{made.kind}_changed", namespace=pod.namespace, pod=pod.known, value=_plain(made.value))
        if lines.matching(behind, pattern.replace("{before}", _plain(made.before))):
            found.add(pod.name)
    return found


@word(CHANGE)
def told(evidence: CaseEvidence, change: str) -> Value:
    """How many pods wrote, after the change, that their own limit is the new one."""
    made = _change(evidence, change)
    pattern = evidence.system.pattern(f"{made.kind}_told", value=_plain(made.value)).replace("{before}", _plain(made.before))
    logs = [lines.after(log, _mark(evidence, change, pod)) for pod, log in _logs(evidence, made.group)]
    return float(sum(bool(lines.matching(log, pattern)) for log in logs))


@word(CHANGE)
def latency(evidence: CaseEvidence, change: str) -> Value:
    """Seconds until the metrics said so for every pod."""
    seen = _change(evidence, change).seen_s
    if seen is None:
        raise Absent(f"no metric showed {change} while it was waited for")
    return seen


@word(CHANGE)
def observed(evidence: CaseEvidence, change: str) -> Value:
    """Return True if the metrics showed it at any time during the wait."""
    return _change(evidence, change).seen_s is not None


# Metrics ---------------------------------------------------------------------------------------------------------------


def _samples(evidence: CaseEvidence, name: str) -> Folded[SystemSample]:
    found = evidence.samples.get(name)
    if not found:
        raise Absent(f"sample {name} was not taken")
    return found


def _read(scrape: Scrape) -> bool:
    return scrape.status == 200 and scrape.exposition is not None and not scrape.exposition.wrong


def _some(evidence: CaseEvidence, sample: SystemSample, metric: str) -> list[ExpositionSeries]:
    found = [one for scrape in sample.scrapes if _read(scrape) and scrape.exposition for one in scrape.exposition.of(metric)]
    if any(math.isnan(one.value) for one in found):  # it is neither more nor less than another, so that it would pass for none
        raise Absent(f"sample {sample.name}: {evidence.system.metrics}{metric} is no number")
    return found


def _whole(evidence: CaseEvidence, sample: SystemSample) -> list[Scrape]:
    """The answers of all schedulers: a sum over some of them is no sum."""
    silent = [f"{scrape.scheduler} ({scrape.problem or scrape.status})" for scrape in sample.scrapes if not _read(scrape)]
    if silent or len(sample.scrapes) < max(1, sample.expected):
        lacking = ", ".join(silent) or f"{len(sample.scrapes)} of {sample.expected} schedulers are there"
        raise Absent(f"sample {sample.name}: not every scheduler answered: {lacking}")
    return sample.scrapes


def _last(evidence: CaseEvidence, name: str) -> SystemSample:
    return _samples(evidence, name).last


def _values(evidence: CaseEvidence, sample: SystemSample, metric: str, group: str) -> list[float]:
    """The value of each pod of a group, one for each."""
    label = evidence.system.labels
    found: dict[str, set[float]] = {pod.known: set() for pod in _pods(evidence, group)}
    spaces = {pod.known: pod.namespace for pod in _pods(evidence, group)}
    for one in _some(evidence, sample, metric):
        pod = one.labels.get(label["pod"], "")
        if pod in found and one.labels.get(label["namespace"], spaces[pod]) == spaces[pod]:
            found[pod].add(one.value)
    for pod, values in found.items():
        if len(values) != 1:
            what = f"{len(values)} values" if values else "no series"
            raise Absent(f"sample {sample.name}: {evidence.system.metrics}{metric} has {what} of {pod}")
    return [value for values in found.values() for value in values]


@word(SAMPLE, METRIC, GROUP)
def lowest(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """A metric of pods, of the pod that has least."""
    return min(_values(evidence, _last(evidence, sample), name, group))


@word(SAMPLE, METRIC, GROUP)
def highest(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    return max(_values(evidence, _last(evidence, sample), name, group))


@word(SAMPLE, METRIC, GROUP)
def metric(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """A metric of pods that all have the same value."""
    found = set(_values(evidence, _last(evidence, sample), name, group))
    if len(found) > 1:
        raise Absent(f"sample {sample}: pods of {group} have {len(found)} values of {name}")
    return found.pop()


@word(SAMPLE, METRIC)
def total(evidence: CaseEvidence, sample: str, name: str) -> Value:
    """The sum over all schedulers."""
    seen = _whole(evidence, _last(evidence, sample))
    found = [one.value for scrape in seen if scrape.exposition for one in scrape.exposition.of(name)]
    if not found:
        raise Absent(f"sample {sample}: no scheduler has {evidence.system.metrics}{name}")
    return sum(found)


@word(SAMPLE, METRIC)
def present(evidence: CaseEvidence, sample: str, name: str) -> Value:
    """How many series there are of a metric, over all schedulers that answered."""
    found = _last(evidence, sample)
    if not any(_read(scrape) for scrape in found.scrapes):
        raise Absent(f"sample {sample}: no scheduler answered")
    return float(len(_some(evidence, found, name)))


@word(SAMPLE)
def missing(evidence: CaseEvidence, sample: str) -> Value:
    """How many of the metrics that the system must have are in no answer of a scheduler. What one that is silent has is not known."""
    found = _last(evidence, sample)
    if not any(_read(scrape) for scrape in found.scrapes):
        raise Absent(f"sample {sample}: no scheduler answered")
    lacking = sum(not _some(evidence, found, name) for name in evidence.system.required_metrics)
    if lacking:
        _whole(evidence, found)
    return float(lacking)


@word(SAMPLE)
def missing_somewhere(evidence: CaseEvidence, sample: str) -> Value:
    """How many of them are missing in the answer of a scheduler, without those of clients: each has GPUs, and need not have clients. What
    it says of itself it may say of GPUs that had a client since it began, and there only."""
    answers = [{one.name for one in scrape.exposition.series} for scrape in _whole(evidence, _last(evidence, sample)) if scrape.exposition]
    wanted = [name for name in evidence.system.required_metrics if not name.startswith(CLIENT)]
    served = [names for names in answers if "client_info" in names]
    return float(sum(any(name not in names for names in (answers if name.startswith(GPU) else served)) for name in wanted))


@word(SAMPLE, METRIC)
def peak(evidence: CaseEvidence, sample: str, name: str) -> Value:
    """The highest value of any series in a watch."""
    found = max((one.value for look in _samples(evidence, sample) for one in _some(evidence, look, name)), default=None)
    if found is None:
        raise Absent(f"watch {sample}: no scheduler had {evidence.system.metrics}{name}")
    return found


@word(SAMPLE, METRIC, GROUP)
def peak_of_gpus(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """The highest value in a watch among the GPUs that pods of a group have."""
    gpus = {gpu for look in _samples(evidence, sample) for seen in _gpus_of(evidence, look, group).values() for gpu in seen}
    label = evidence.system.labels["gpu"]
    series = (one for look in _samples(evidence, sample) for one in _some(evidence, look, name))
    found = max((one.value for one in series if one.labels.get(label) in gpus), default=None)
    if found is None:
        raise Absent(f"watch {sample}: no {evidence.system.metrics}{name} of the GPUs of {group}")
    return found


@word(SAMPLE, METRIC, GROUP)
def driver_gap(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """Percentage points between what a metric and nvidia-smi dmon say in a watch of how busy GPUs of pods of a group are, by their medians:
    of the GPU of which they differ most."""
    label, busy = evidence.system.labels, evidence.busy.get(sample, {})
    gpus = {gpu for look in _samples(evidence, sample) for seen in _gpus_of(evidence, look, group).values() for gpu in seen}
    found: dict[tuple[str, str], array.array[float]] = {}
    for look in _samples(evidence, sample):
        _some(evidence, look, name)  # all of them are numbers
        for scrape in look.scrapes:
            for one in scrape.exposition.of(name) if _read(scrape) and scrape.exposition else ():
                if one.labels.get(label["gpu"]) in gpus:
                    found.setdefault((scrape.node, one.labels.get(label["index"], "")), array.array("d")).append(one.value)
    if not found:
        raise Absent(f"watch {sample}: no {evidence.system.metrics}{name} of the GPUs of {group}")
    for node, index in found:
        if not busy.get(node, {}).get(index):
            raise Absent(f"watch {sample}: nvidia-smi dmon beside the scheduler on {node} has no values of GPU {index}")
    return max(abs(100 * statistics.median(seen) - statistics.median(busy[node][index])) for (node, index), seen in found.items())


@word(SAMPLE, METRIC, METRIC, GROUP, optional=1)
def peak_ratio(evidence: CaseEvidence, sample: str, name: str, whole: str, group: str = "") -> Value:
    """The highest ratio of two metrics on one GPU in a watch; where a group is named, among the GPUs that its pods have."""
    label = evidence.system.labels["gpu"]
    found = array.array("d")
    looks = _samples(evidence, sample)
    mine = {gpu for look in looks for seen in (_gpus_of(evidence, look, group).values() if group else ()) for gpu in seen}
    for look in looks:
        of = {one.labels.get(label): one.value for one in _some(evidence, look, whole) if not group or one.labels.get(label) in mine}
        found.extend(one.value / of[one.labels.get(label)] for one in _some(evidence, look, name) if of.get(one.labels.get(label)))
    if not found:
        raise Absent(f"watch {sample}: {name} and {whole} are not there together for any GPU")
    return max(found)


@word(SAMPLE, METRIC, METRIC)
def peak_of_sums(evidence: CaseEvidence, sample: str, name: str, whole: str) -> Value:
    """The highest ratio of two sums over all GPUs in a watch."""
    found = []
    for look in _samples(evidence, sample):
        of = sum(one.value for one in _some(evidence, look, whole))
        found += [sum(one.value for one in _some(evidence, look, name)) / of] if of else []
    if not found:
        raise Absent(f"watch {sample}: no scheduler had {evidence.system.metrics}{whole}")
    return max(found)


@word(SAMPLE, SAMPLE)
def memory_left(evidence: CaseEvidence, before: str, after: str) -> Value:
    """Bytes that the GPU with most of them still holds of what it did not hold before."""
    label = evidence.system.labels["gpu"]

    def used(name: str) -> dict[str, float]:
        found = _whole(evidence, _last(evidence, name))
        series = (one for scrape in found if scrape.exposition for one in scrape.exposition.of("gpu_memory_used_bytes"))
        return {one.labels.get(label, ""): one.value for one in series}

    first, last = used(before), used(after)
    if not first or set(first) != set(last):
        raise Absent(f"samples {before} and {after} are not of the same GPUs: {len(first)} and {len(last)}")
    return max(last[gpu] - first[gpu] for gpu in first)


@word(SAMPLE, GROUP)
def clients(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """How many clients the schedulers still know of pods of a group, those included whose pods are gone."""
    label = evidence.system.labels["pod"]
    mine = {pod.known for pod in _pods(evidence, group)}
    seen = _whole(evidence, _last(evidence, sample))
    return float(sum(one.labels.get(label) in mine for scrape in seen if scrape.exposition for one in scrape.exposition.of("client_info")))


@word(SAMPLE)
def client_series(evidence: CaseEvidence, sample: str) -> Value:
    """How many series of clients there are, over all schedulers."""
    seen = _whole(evidence, _last(evidence, sample))
    found = {
        (scrape.scheduler, one.name, tuple(sorted(one.labels.items())))
        for scrape in seen
        if scrape.exposition
        for one in scrape.exposition.series
        if one.name.startswith(CLIENT)
    }
    return float(len(found))


def _gpus_of(evidence: CaseEvidence, sample: SystemSample, group: str) -> dict[str, set[str]]:
    """{pod: its GPUs}, of those that a scheduler knows. One that is not among the GPUs that this scheduler has is no GPU at all."""
    label = evidence.system.labels
    mine = {pod.known for pod in _pods(evidence, group)}
    found: dict[str, set[str]] = {}
    for series in (scrape.exposition.series for scrape in sample.scrapes if _read(scrape) and scrape.exposition):
        there = {one.labels.get(label["gpu"]) for one in series if one.name.startswith(GPU)}
        for one in series:
            gpu = one.labels.get(label["gpu"], "")
            if one.name == "client_info" and one.labels.get(label["pod"]) in mine and gpu and (gpu in there or not there):
                found.setdefault(one.labels[label["pod"]], set()).add(gpu)
    return found


@word(SAMPLE, GROUP)
def gpus(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """On how many GPUs the pods of a group are. Each of them must be known to a scheduler."""
    found = _gpus_of(evidence, _last(evidence, sample), group)
    unknown = {pod.known for pod in _pods(evidence, group)} - set(found)
    if unknown:
        raise Absent(f"sample {sample}: no scheduler says on which GPU {', '.join(sorted(unknown)[:4])} is")
    return float(len(set().union(*found.values())))


@word(SAMPLE, GROUP)
def gpus_known(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """On how many GPUs those pods of a group are that a scheduler knows."""
    found = _gpus_of(evidence, _last(evidence, sample), group)
    if not found:
        raise Absent(f"sample {sample}: no scheduler knows a pod of {group}")
    return float(len(set().union(*found.values())))


# Schedulers ------------------------------------------------------------------------------------------------------------


@word(SAMPLE)
def schedulers(evidence: CaseEvidence, sample: str) -> Value:
    """How many schedulers run."""
    return float(len(_last(evidence, sample).schedulers))


@word(SAMPLE)
def fewest_schedulers(evidence: CaseEvidence, sample: str) -> Value:
    """How many ran at the worst moment of several."""
    return float(min(len(look.schedulers) for look in _samples(evidence, sample)))


@word(SAMPLE)
def expected_schedulers(evidence: CaseEvidence, sample: str) -> Value:
    """How many there should be: one for each node that shares GPUs."""
    found = _last(evidence, sample).expected
    if not found:
        raise Absent("no node of the cluster offers shared GPUs")
    return float(found)


@word(SAMPLE)
def healthy(evidence: CaseEvidence, sample: str) -> Value:
    """How many schedulers answer 200 when asked for their health."""
    return float(sum(scrape.health == 200 for scrape in _last(evidence, sample).scrapes))


@word(SAMPLE)
def answering(evidence: CaseEvidence, sample: str) -> Value:
    """How many schedulers' metrics can be read and have series of the system."""
    return float(sum(_read(scrape) and bool(scrape.exposition and scrape.exposition.series) for scrape in _last(evidence, sample).scrapes))


@word(SAMPLE)
def scrapes(evidence: CaseEvidence, sample: str) -> Value:
    """How many answers of schedulers there should have been in a watch."""
    return float(sum(max(len(look.scrapes), look.expected) for look in _samples(evidence, sample)))


@word(SAMPLE)
def scraped(evidence: CaseEvidence, sample: str) -> Value:
    """How many there were."""
    return float(sum(_read(scrape) for look in _samples(evidence, sample) for scrape in look.scrapes))


@word(SAMPLE)
def scrape_p95(evidence: CaseEvidence, sample: str) -> Value:
    """Seconds within which 95 of 100 answers came."""
    took = sorted(scrape.took_s for look in _samples(evidence, sample) for scrape in look.scrapes if _read(scrape))
    if not took:
        raise Absent(f"watch {sample}: no scheduler answered")
    return took[min(len(took) - 1, len(took) * PERCENTILE // 100)]


@word()
def restarts(evidence: CaseEvidence) -> Value:
    """How many schedulers were restarted or replaced since the baseline."""
    first, last = _last(evidence, BASELINE).schedulers, _last(evidence, END).schedulers
    if not first:
        raise Absent("no scheduler ran before the case")
    return float(sum(last.get(pod, -1) != before for pod, before in first.items()))


@word(ACTION)
def done(evidence: CaseEvidence, name: str) -> Value:
    """Return True if an action on the system succeeded in time."""
    if name not in evidence.done:
        raise Absent(f"{name} was not done")
    found = evidence.done[name]
    if isinstance(found, str):
        raise Absent(found)
    return found


# Processes -------------------------------------------------------------------------------------------------------------


def _process(evidence: CaseEvidence, sample: str, of: str) -> dict[str, list[float]]:
    """{scheduler: its numbers in the order of the samples}."""
    found: dict[str, list[float]] = {}
    for look in _samples(evidence, sample):
        if len(look.processes) < max(1, len(look.schedulers)):
            raise Absent(f"sample {sample}: the processes of {len(look.processes)} of {len(look.schedulers)} schedulers were looked at")
        for one in look.processes:
            value = getattr(one, of)
            if value is None:
                raise Absent(f"sample {sample}: the process of {one.scheduler} could not be read: {one.problem}")
            found.setdefault(one.scheduler, []).append(float(value))
    return found


def _growth(evidence: CaseEvidence, sample: str, of: str) -> float:
    found = _process(evidence, sample, of)
    short = [scheduler for scheduler, values in found.items() if len(values) < 2]
    if short:
        raise Absent(f"sample {sample}: {short[0]} was looked at once only")
    return max(values[-1] - values[0] for values in found.values())


@word(SAMPLE)
def rss_growth(evidence: CaseEvidence, sample: str) -> Value:
    """Kilobytes by which the scheduler has grown most from the first look to the last."""
    return _growth(evidence, sample, "rss_kb")


@word(SAMPLE)
def fd_growth(evidence: CaseEvidence, sample: str) -> Value:
    return _growth(evidence, sample, "fds")


@word(SAMPLE)
def rss_slope(evidence: CaseEvidence, sample: str) -> Value:
    """Kilobytes by which it grows from one look to the next, by a line through all."""
    return max(_slope(values, sample) for values in _process(evidence, sample, "rss_kb").values())


@word(SAMPLE)
def fd_slope(evidence: CaseEvidence, sample: str) -> Value:
    return max(_slope(values, sample) for values in _process(evidence, sample, "fds").values())


def _slope(values: list[float], sample: str) -> float:
    if len(values) < 3:
        raise Absent(f"sample {sample}: {len(values)} looks say nothing of a trend")
    return statistics.linear_regression(range(len(values)), values).slope


# Numbers ---------------------------------------------------------------------------------------------------------------


@word(GROUP, GROUP)
def share(evidence: CaseEvidence, full: str, limited: str) -> Value:
    """The part of a GPU that pods had, in percent, by how long they took against those that had all of it in the same run."""
    return 100.0 * t.cast(float, runtime(evidence, full)) / t.cast(float, runtime(evidence, limited))


@word(GROUP, GROUP, NUMBER)
def inaccuracy(evidence: CaseEvidence, full: str, limited: str, target: float) -> Value:
    """By how much that part misses its quota: in percentage points, or in percent of the quota where the parameter accuracy_relative is
    set."""
    return _missed(evidence, t.cast(float, share(evidence, full, limited)), target)


def _missed(evidence: CaseEvidence, had: float, target: float) -> float:
    missed = abs(had - target)
    return 100.0 * missed / target if evidence.parameters.get("accuracy_relative") else missed


@word(GROUP, NUMBER, CHANGE, CHANGE, CHANGE, optional=1)
def rate_inaccuracy(evidence: CaseEvidence, group: str, target: float, full: str, since: str, until: str = "") -> Value:
    """The same by the throughput of pods whose quota changed: what they had between two changes, against what they had since the change
    to the whole GPU."""
    whole = t.cast(float, rate(evidence, group, full))
    return _missed(evidence, 100.0 * t.cast(float, rate(evidence, group, since, until)) / whole, target)


# Several pods, several changes -----------------------------------------------------------------------------------------


@word(SAMPLE, GROUP, GROUP)
def colocated(evidence: CaseEvidence, sample: str, one: str, other: str) -> Value:
    """Return True if all pods of two groups are on one GPU."""
    look = _last(evidence, sample)
    found = {**_gpus_of(evidence, look, one), **_gpus_of(evidence, look, other)}
    unknown = {pod.known for group in (one, other) for pod in _pods(evidence, group)} - set(found)
    if unknown:
        raise Absent(f"sample {sample}: no scheduler says on which GPU {', '.join(sorted(unknown)[:4])} is")
    return len(set().union(*found.values())) == 1


@word(SAMPLE, GROUP)
def series_of(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """How many series the schedulers still have of pods of a group."""
    label = evidence.system.labels["pod"]
    mine = {pod.known for pod in _pods(evidence, group)}
    seen = _whole(evidence, _last(evidence, sample))
    return float(sum(one.labels.get(label) in mine for scrape in seen if scrape.exposition for one in scrape.exposition.series))


@word(SAMPLE, METRIC, GROUP)
def mean_of(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """The mean over a watch of a metric of pods: of the pod with the highest."""
    looks = _samples(evidence, sample)
    label = evidence.system.labels["pod"]
    found: dict[str, array.array[float]] = {pod.known: array.array("d") for pod in _pods(evidence, group)}
    for look in looks:
        for one in _some(evidence, look, name):
            if one.labels.get(label) in found:
                found[one.labels[label]].append(one.value)
    if not all(found.values()):
        raise Absent(f"watch {sample}: {evidence.system.metrics}{name} has no series of every pod of {group}")
    return max(statistics.fmean(values) for values in found.values())


def _made(evidence: CaseEvidence) -> list[QuotaChange]:
    if not evidence.changes:
        raise Absent("no quota was changed")
    return list(evidence.changes.values())


@word()
def changes(evidence: CaseEvidence) -> Value:
    """How many times a quota was changed."""
    return float(len(_made(evidence)))


@word()
def changes_observed(evidence: CaseEvidence) -> Value:
    """How many of these the metrics showed while it was waited for."""
    return float(sum(change.seen_s is not None for change in _made(evidence)))


@word()
def changes_logged(evidence: CaseEvidence) -> Value:
    """How many of these the schedulers wrote for every pod that they are about."""
    return float(sum(transitions(evidence, change.name) == len(_pods(evidence, change.group)) for change in _made(evidence)))


@word()
def slowest_change(evidence: CaseEvidence) -> Value:
    """Seconds until the metrics showed a change, of the one that took longest."""
    return max(t.cast(float, latency(evidence, change.name)) for change in _made(evidence))


# A ladder of more and more pods ----------------------------------------------------------------------------------------


def _rungs(evidence: CaseEvidence) -> list[str]:
    """The groups in the order in which they were made, each a rung."""
    found = list(dict.fromkeys(pod.group for pod in evidence.pods))
    if not found:
        raise Absent("no pod was made")
    return found


@word()
def rungs(evidence: CaseEvidence) -> Value:
    return float(len(_rungs(evidence)))


@word()
def rungs_succeeded(evidence: CaseEvidence) -> Value:
    """How many groups have at least one pod that ended well."""
    return float(sum(any(pod.phase == SUCCEEDED for pod in evidence.of(group)) for group in _rungs(evidence)))


def _crowd(evidence: CaseEvidence, group: str) -> float:
    """How many times what one pod alone takes with the whole GPU the fullest GPU needs for its pods of a group: as many as there are, and
    for few of them as long as their quota makes one; 0 where a pod does not say which GPU it has."""
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    for pod in _pods(evidence, group):
        gpu = lines.gpu(pod.log or ())
        if gpu is None:
            return 0.0
        found[pod.node, gpu] += 1
    return max(*found.values(), *(100.0 / (pod.core or 100.0) for pod in _pods(evidence, group)))


@word()
def worst_drop(evidence: CaseEvidence) -> Value:
    """By how much percent the throughput fell most from one group to the next; 0 where it never did. It is that of the GPU that has most
    pods of a group, where all pods say which they have: how the kubelet spreads them is no doing of the system. Else pods per second."""
    groups = _rungs(evidence)
    if len(groups) < 2:
        raise Absent("there is one group of pods only")
    crowds = [_crowd(evidence, group) for group in groups]
    loads = crowds if all(crowds) else [t.cast(float, count(evidence, group)) for group in groups]
    rates = [load / t.cast(float, elapsed(evidence, group)) for load, group in zip(loads, groups, strict=True)]
    return max(0.0, *(100.0 * (before - now) / before for before, now in itertools.pairwise(rates)))
