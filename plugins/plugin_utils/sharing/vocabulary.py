# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of assertions: each returns a number or a truth value from the evidence of a case.

A word never guesses: it raises Absent if the evidence that it needs is missing or incomplete, and the assertion is then unknown.

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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.scraped import ExpositionSeries, SystemExposition

# Kinds of arguments: what an argument names.
GROUP, SAMPLE, CHANGE, PATTERN, METRIC, NUMBER, ACTION = "group", "sample", "change", "pattern", "metric", "number", "action"
# The samples of every case: before its first step, and after its last.
BASELINE, END = "baseline", "end"
PERCENTILE = 95
# So many looks, at least, say something of a trend.
TREND_LOOKS = 3
# Prefixes of the metrics of clients and of GPUs.
CLIENT, GPU = "client_", "gpu_"
RUNNING_MEMORY = "scheduler_running_memory_bytes"
# The last probes, whose two intervals show the speed that a pod has in the end.
LAST_PROBES = 3
# Of two compute quotas, how many times as large one must be before the speeds of their pods are compared.
TWICE = 2


@dataclasses.dataclass(frozen=True)
class Word:
    """A word: its function, and the kind of each argument. The arguments from index `optional` on may be left out."""

    of: t.Callable[..., Value]
    kinds: tuple[str, ...]
    optional: int


WORDS: dict[str, Word] = {}
_F = t.TypeVar("_F", bound=t.Callable[..., t.Any])


def word(*kinds: str, optional: int = 0) -> t.Callable[[_F], _F]:
    def register(of: _F) -> _F:
        WORDS[of.__name__] = Word(of, kinds, len(kinds) - optional)
        return of

    return register


def ask(evidence: CaseEvidence) -> t.Callable[[str, t.Sequence[str | float]], Value]:
    """Return a function that evaluates words on the evidence, for expressions.evaluate()."""

    def evaluate(name: str, args: t.Sequence[str | float]) -> Value:
        try:
            return WORDS[name].of(evidence, *args)
        except KeyError as error:  # the case has no `needs` for an ability that the system lacks
            raise Absent(f"the description of {evidence.system.name} does not say {error}") from error

    return evaluate


def problem(call: Call) -> str | None:
    """Return why a call is invalid with any evidence, None if it is valid."""
    entry = WORDS.get(call.word)
    if entry is None:
        return f"{call.word} is not known; expected one of {', '.join(sorted(WORDS))}"
    if not entry.optional <= len(call.args) <= len(entry.kinds):
        return f"{call.word}: found {len(call.args)} arguments, expected {', '.join(entry.kinds) or 'none'}"
    return None


# {unit: the words that have it}; a word about a metric has the unit of the metric's name, any other counts.
_UNITS = {
    "s": ("runtime", "slowest", "fastest", "elapsed", "latency", "slowest_change", "refusal_latency", "lag", "scrape_p95"),
    "KiB": ("rss_growth", "rss_slope"),
    "percent": ("share", "greatest_share", "inaccuracy", "rate_inaccuracy", "driver_gap", "effective_gap", "worst_drop"),
    "1/s": ("rate",),
    "B": ("memory_left", "memory_of_nobody"),
    "ratio": ("unfairness", "lead", "unsteady", "peak_ratio", "peak_of_sums"),
}
_SUFFIXES = {"_bytes": "B", "_percent": "percent", "_ms": "ms", "_ratio": "ratio", "_throttled": "ratio"}


def unit_of(name: str, args: t.Sequence[str | float]) -> str:
    """Return the unit of the number that a word returns."""
    unit = next((unit for unit, names in _UNITS.items() if name in names), "")
    if unit or METRIC not in WORDS[name].kinds:
        return unit or "count"
    metric_name = str(args[WORDS[name].kinds.index(METRIC)])
    return next((unit for suffix, unit in _SUFFIXES.items() if metric_name.endswith(suffix)), "count")


# Pods ---------------------------------------------------------------------------------------------------------------


def _pods(evidence: CaseEvidence, group: str) -> list[CasePod]:
    pods = evidence.of(group)
    if not pods:
        raise Absent(f"no pod of {group} was made")
    return pods


def _count_in_phase(evidence: CaseEvidence, group: str, phase: str) -> float:
    return float(sum(pod.phase == phase for pod in _pods(evidence, group)))


@word(GROUP)
def count(evidence: CaseEvidence, group: str) -> Value:
    return float(len(_pods(evidence, group)))


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
    return float(sum(pod.replaced for pod in _pods(evidence, group)))


def _logs(evidence: CaseEvidence, group: str) -> list[tuple[CasePod, list[lines.LogLine]]]:
    pod_logs = []
    for pod in _pods(evidence, group):
        if pod.log is None:
            raise Absent(f"the log of {pod.name} could not be read")
        pod_logs.append((pod, pod.log))
    return pod_logs


@word(GROUP)
def runtime(evidence: CaseEvidence, group: str) -> Value:
    """Return the run time in seconds reported by the workload (median over pods)."""
    return float(statistics.median(_runtimes(evidence, group)))


@word(GROUP)
def slowest(evidence: CaseEvidence, group: str) -> Value:
    return max(_runtimes(evidence, group))


@word(GROUP)
def fastest(evidence: CaseEvidence, group: str) -> Value:
    return min(_runtimes(evidence, group))


def _runtimes(evidence: CaseEvidence, group: str) -> list[float]:
    runtimes = []
    for pod, log in _logs(evidence, group):
        seconds = lines.runtime(log)
        if seconds is None or pod.phase != SUCCEEDED:
            raise Absent(f"{pod.name} is {pod.phase} and says {'no runtime' if seconds is None else f'{seconds} s'}")
        if seconds <= 0:
            raise Absent(f"{pod.name} says that it took {seconds} s")
        runtimes.append(seconds)
    return runtimes


@word(GROUP)
def unfairness(evidence: CaseEvidence, group: str) -> Value:
    """Return the greatest ratio of two run times among pods that one `together` step brought onto one GPU."""
    runtimes: dict[tuple[int, str, str | None], list[float]] = collections.defaultdict(list)
    for (pod, log), seconds in zip(_logs(evidence, group), _runtimes(evidence, group), strict=True):
        runtimes[pod.batch, pod.node, lines.gpu(log)].append(seconds)
    ratios = [max(of_gpu) / min(of_gpu) for of_gpu in runtimes.values() if len(of_gpu) > 1]
    if not ratios:
        raise Absent(f"no two pods of {group} were on one GPU")
    return max(ratios)


@word(GROUP)
def elapsed(evidence: CaseEvidence, group: str) -> Value:
    """Return the seconds from the creation of the first pod to the end of the last."""
    pods = _pods(evidence, group)
    ends = [pod.ended_at for pod in pods if pod.ended_at is not None]
    if len(ends) < len(pods):
        raise Absent(f"{len(pods) - len(ends)} pods of {group} did not end")
    return max(ends) - min(pod.made_at for pod in pods)


@word(GROUP, PATTERN, GROUP, optional=1)
def logged(evidence: CaseEvidence, group: str, pattern: str, canary: str = "") -> Value:
    """Return how many lines of the pods' logs match a pattern. `canary` is a group that is made to log it: raise Absent if it did not,
    since the pattern may be that of another version."""
    regex = evidence.system.pattern(pattern)
    if canary and not any(lines.matching(log, regex) for _pod, log in _logs(evidence, canary)):
        raise Absent(f"no pod of {canary} logged a line that matches the pattern {pattern}")
    return float(sum(len(lines.matching(log, regex)) for _pod, log in _logs(evidence, group)))


@word(GROUP, PATTERN)
def each_logged(evidence: CaseEvidence, group: str, pattern: str) -> Value:
    """Return how many pods have a line that matches a pattern."""
    regex = evidence.system.pattern(pattern)
    return float(sum(bool(lines.matching(log, regex)) for _pod, log in _logs(evidence, group)))


@word(GROUP, CHANGE, CHANGE, optional=2)
def rate(evidence: CaseEvidence, group: str, since: str = "", until: str = "") -> Value:
    """Return the iterations per second between two changes (median over pods), from the intervals between probes. The first interval begins
    when the metrics showed the first change."""
    rates = []
    for pod, log in _logs(evidence, group):
        begin = _settled(evidence, since, pod) if since else ""
        end = _mark(evidence, until, pod) if until else None
        pod_rate = lines.rate(log, begin, end)
        if pod_rate is None:
            where = f" after {since}" if since else ""
            raise Absent(f"{pod.name} printed no two probes{where}{f' before {until}' if until else ''}")
        rates.append(pod_rate)
    return float(statistics.median(rates))


@word(GROUP, CHANGE)
def lag(evidence: CaseEvidence, group: str, change: str) -> Value:
    """Return the longest time in seconds for which a pod went on at its old speed after the metrics had shown a change of its compute
    quota: at most the time between two probes too short. The new speed is that of the last two intervals between probes."""
    lags = []
    for pod, log in _logs(evidence, group):
        before = lines.rate(log, "", _mark(evidence, change, pod))
        since = lines.probes(lines.after(log, _settled(evidence, change, pod)))
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


@word(GROUP, NUMBER)
def stalls(evidence: CaseEvidence, group: str, seconds: float) -> Value:
    """Return how many pods made no progress between two probes or had probes more than `seconds` apart."""
    stalled = 0
    for pod, log in _logs(evidence, group):
        readings = lines.probes(log)
        if len(readings) < 2:
            raise Absent(f"{pod.name} printed fewer than two probes")
        stalled += any(b.elapsed_s - a.elapsed_s > seconds or b.iterations <= a.iterations for a, b in itertools.pairwise(readings))
    return float(stalled)


@word(GROUP, CHANGE)
def refused_after(evidence: CaseEvidence, group: str, change: str) -> Value:
    """Return how many new allocations of pods were refused after a change."""
    regex = evidence.system.pattern("allocation_refused")
    return float(sum(len(lines.matching(lines.after(log, _mark(evidence, change, pod)), regex)) for pod, log in _logs(evidence, group)))


@word(GROUP, CHANGE)
def granted_after(evidence: CaseEvidence, group: str, change: str) -> Value:
    regex = evidence.system.pattern("allocation_granted")
    return float(sum(len(lines.matching(lines.after(log, _mark(evidence, change, pod)), regex)) for pod, log in _logs(evidence, group)))


@word(GROUP, CHANGE)
def refused_before(evidence: CaseEvidence, group: str, change: str) -> Value:
    """Return how many new allocations of pods were refused before a change."""
    regex = evidence.system.pattern("allocation_refused")
    return float(sum(len(lines.matching(lines.up_to(log, _mark(evidence, change, pod)), regex)) for pod, log in _logs(evidence, group)))


@word(GROUP, CHANGE)
def granted_before(evidence: CaseEvidence, group: str, change: str) -> Value:
    regex = evidence.system.pattern("allocation_granted")
    return float(sum(len(lines.matching(lines.up_to(log, _mark(evidence, change, pod)), regex)) for pod, log in _logs(evidence, group)))


@word(GROUP, CHANGE, CHANGE, optional=1)
def refused_since(evidence: CaseEvidence, group: str, change: str, until: str = "") -> Value:
    """Return how many new allocations of pods were refused since the metrics showed a change, and before a later change was made."""
    return _allocations_since(evidence, "allocation_refused", group, change, until)


@word(GROUP, CHANGE, CHANGE, optional=1)
def granted_since(evidence: CaseEvidence, group: str, change: str, until: str = "") -> Value:
    return _allocations_since(evidence, "allocation_granted", group, change, until)


def _allocations_since(evidence: CaseEvidence, pattern: str, group: str, change: str, until: str) -> float:
    regex, found = evidence.system.pattern(pattern), 0
    for pod, log in _logs(evidence, group):
        part = lines.between(log, _settled(evidence, change, pod), _mark(evidence, until, pod) if until else None)
        found += len(lines.matching(part, regex))
    return float(found)


@word(GROUP, NUMBER)
def refused_at(evidence: CaseEvidence, group: str, value: float) -> Value:
    """Return how many new allocations of pods were refused while their changed memory quota was `value`: each time since the metrics showed
    it, and before the next change was made."""
    return _allocations_at(evidence, "allocation_refused", group, value)


@word(GROUP, NUMBER)
def granted_at(evidence: CaseEvidence, group: str, value: float) -> Value:
    return _allocations_at(evidence, "allocation_granted", group, value)


def _allocations_at(evidence: CaseEvidence, pattern: str, group: str, value: float) -> float:
    phases = [(change.name, until) for change, until in _phases(evidence, group, "memory") if change.value == value]
    if not phases:
        raise Absent(f"the memory quota of {group} was not changed to {value:g}")
    return sum(_allocations_since(evidence, pattern, group, name, until) for name, until in phases)


def _phases(evidence: CaseEvidence, group: str, kind: str) -> list[tuple[QuotaChange, str]]:
    """Return the changes of one quota of a group, each with the name of the next, "" for the last."""
    made = [change for change in evidence.changes.values() if (change.group, change.kind) == (group, kind)]
    return [(change, later.name if later else "") for change, later in itertools.zip_longest(made, made[1:])]


@word(GROUP, CHANGE)
def refusal_latency(evidence: CaseEvidence, group: str, change: str) -> Value:
    """Return the longest time in seconds until a new allocation of a pod was refused, from the last line of its log before a change:
    at most the time between two allocations too long."""
    regex, latencies = evidence.system.pattern("allocation_refused"), []
    for pod, log in _logs(evidence, group):
        mark = _mark(evidence, change, pod)
        refusals = lines.matching(lines.after(log, mark), regex)
        if not refusals or not mark:
            raise Absent(f"{pod.name} was refused nothing after {change}")
        latencies.append(lines.seconds_between(mark, refusals[0].stamp))
    return max(latencies)


# The fewest lines about progress of one pod that show that another one beside it stood still meanwhile; the seconds that a pod has for the
# start of its device; and the part of another pod's lines that is no progress.
MEANWHILE, STARTING_S, STILL = 5, 4.0, 0.1
# The fewest lines of the fastest pod in the time in which the speeds of pods are compared.
COMPARED = 3


def _brought_together(evidence: CaseEvidence, group: str) -> list[list[list[lines.LogLine]]]:
    """Return the logs, lines with a time only, of the pods of a group that one `together` step brought onto one node. A pod that is alone
    there is left out."""
    by_node: dict[tuple[int, str], list[list[lines.LogLine]]] = {}
    for pod, log in _logs(evidence, group):
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


@word(GROUP)
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


# Logs of the system ----------------------------------------------------------------------------------------------------


def _schedulers_logs(evidence: CaseEvidence) -> dict[str, list[lines.LogLine]]:
    logs = {}
    for scheduler, log in evidence.logs.items():
        if log is None:
            raise Absent(f"the log of {scheduler} could not be read")
        logs[scheduler] = log
    if not logs:
        raise Absent("no log of a scheduler was read")
    return logs


@word(PATTERN)
def scheduler_logged(evidence: CaseEvidence, pattern: str) -> Value:
    """Return how many lines of all schedulers' logs match a pattern, whenever they were written."""
    regex = evidence.system.pattern(pattern)
    return float(sum(len(lines.matching(log, regex)) for log in _schedulers_logs(evidence).values()))


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
    settled_at = _change(evidence, change).since(pod.name)
    return _mark(evidence, change, pod) if settled_at is None else settled_at


def _plain(number: float | None) -> str:
    return r"\d+" if number is None else str(int(number))


@word(CHANGE)
def transitions(evidence: CaseEvidence, change: str) -> Value:
    """Return for how many pods a scheduler logged, after the change, that the quota went from the old value to the new one."""
    quota_change = _change(evidence, change)
    pod_names = {pod.name for pod in _pods(evidence, quota_change.group)}
    changed = pod_names & quota_change.written
    if changed != pod_names:
        changed = changed.union(*(written(evidence, quota_change, name, log) for name, log in _schedulers_logs(evidence).items()))
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
    for pod in _pods(evidence, quota_change.group):
        pattern = evidence.system.pattern(
            f"{quota_change.kind}_changed", namespace=pod.namespace, pod=pod.current_name, value=_plain(quota_change.value)
        )
        if lines.matching(behind, pattern.replace("{before}", _plain(quota_change.old_value))):
            pods.add(pod.name)
    return pods


@word(CHANGE)
def told(evidence: CaseEvidence, change: str) -> Value:
    """Return how many pods logged, after the change, that their own limit is the new value."""
    quota_change = _change(evidence, change)
    pattern = evidence.system.pattern(f"{quota_change.kind}_told", value=_plain(quota_change.value)).replace(
        "{before}", _plain(quota_change.old_value)
    )
    logs = [lines.after(log, _mark(evidence, change, pod)) for pod, log in _logs(evidence, quota_change.group)]
    return float(sum(bool(lines.matching(log, pattern)) for log in logs))


@word(CHANGE)
def told_others(evidence: CaseEvidence, change: str) -> Value:
    """Return how many pods of other groups logged, after the change, that a limit of theirs of the same kind was changed."""
    quota_change = _change(evidence, change)
    pattern = evidence.system.patterns[f"{quota_change.kind}_told"].replace("{before}", r"\S+").replace("{value}", r"\S+")
    others = [(pod, log) for pod, log in _logs(evidence, "all") if pod.group != quota_change.group and pod.name in quota_change.marks]
    return float(sum(bool(lines.matching(lines.after(log, quota_change.marks[pod.name]), pattern)) for pod, log in others))


@word(CHANGE)
def latency(evidence: CaseEvidence, change: str) -> Value:
    """Return the seconds until the metrics showed a change for every pod."""
    seconds = _change(evidence, change).seen_s
    if seconds is None:
        raise Absent(f"no metric showed {change} while it was waited for")
    return seconds


@word(CHANGE)
def observed(evidence: CaseEvidence, change: str) -> Value:
    """Return True if the metrics showed a change during the wait for it."""
    return _change(evidence, change).seen_s is not None


# Metrics ---------------------------------------------------------------------------------------------------------------


def _samples(evidence: CaseEvidence, name: str) -> Folded[SystemSample]:
    samples = evidence.samples.get(name)
    if not samples:
        raise Absent(f"sample {name} was not taken")
    return samples


def _readable(scrape: Scrape) -> bool:
    return scrape.status == 200 and scrape.exposition is not None and not scrape.exposition.wrong


def _series(evidence: CaseEvidence, sample: SystemSample, metric: str) -> list[ExpositionSeries]:
    series = [entry for scrape in sample.scrapes if _readable(scrape) and scrape.exposition for entry in scrape.exposition.of(metric)]
    if any(math.isnan(entry.value) for entry in series):  # NaN compares as neither more nor less, so a comparison would be wrong
        raise Absent(f"sample {sample.name}: {evidence.system.metrics}{metric} is no number")
    return series


def _all_answers(evidence: CaseEvidence, sample: SystemSample) -> list[Scrape]:
    """Return the answers of all schedulers. Raise Absent if one is missing: a sum over the others would be wrong."""
    silent = [f"{scrape.scheduler} ({scrape.problem or scrape.status})" for scrape in sample.scrapes if not _readable(scrape)]
    if silent or len(sample.scrapes) < max(1, sample.expected):
        lacking = ", ".join(silent) or f"{len(sample.scrapes)} of {sample.expected} schedulers are there"
        raise Absent(f"sample {sample.name}: not every scheduler answered: {lacking}")
    return sample.scrapes


def _last(evidence: CaseEvidence, name: str) -> SystemSample:
    return _samples(evidence, name).last


def _values(evidence: CaseEvidence, sample: SystemSample, metric: str, group: str) -> list[float]:
    """Return one value of a metric for each pod of a group. Raise Absent if a pod has none or several."""
    label = evidence.system.labels
    by_pod: dict[str, set[float]] = {pod.current_name: set() for pod in _pods(evidence, group)}
    spaces = {pod.current_name: pod.namespace for pod in _pods(evidence, group)}
    for entry in _series(evidence, sample, metric):
        pod = entry.labels.get(label["pod"], "")
        if pod in by_pod and entry.labels.get(label["namespace"], spaces[pod]) == spaces[pod]:
            by_pod[pod].add(entry.value)
    for pod, values in by_pod.items():
        if len(values) != 1:
            amount = f"{len(values)} values" if values else "no series"
            raise Absent(f"sample {sample.name}: {evidence.system.metrics}{metric} has {amount} of {pod}")
    return [value for values in by_pod.values() for value in values]


@word(SAMPLE, METRIC, GROUP)
def lowest(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """Return the lowest value of a metric among the pods of a group."""
    return min(_values(evidence, _last(evidence, sample), name, group))


@word(SAMPLE, METRIC, GROUP)
def highest(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    return max(_values(evidence, _last(evidence, sample), name, group))


@word(SAMPLE, METRIC, GROUP)
def metric(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """Return the value of a metric that all pods of a group share."""
    distinct = set(_values(evidence, _last(evidence, sample), name, group))
    if len(distinct) > 1:
        raise Absent(f"sample {sample}: pods of {group} have {len(distinct)} values of {name}")
    return distinct.pop()


@word(SAMPLE, METRIC, GROUP, NUMBER)
def shown_as(evidence: CaseEvidence, sample: str, name: str, group: str, value: float) -> Value:
    """Return how many pods of a group have a value of a metric."""
    return float(_values(evidence, _last(evidence, sample), name, group).count(value))


@word(SAMPLE, METRIC)
def total(evidence: CaseEvidence, sample: str, name: str) -> Value:
    """Return the sum of a metric over all schedulers."""
    answers = _all_answers(evidence, _last(evidence, sample))
    values = [entry.value for scrape in answers if scrape.exposition for entry in scrape.exposition.of(name)]
    if not values:
        raise Absent(f"sample {sample}: no scheduler has {evidence.system.metrics}{name}")
    return sum(values)


@word(SAMPLE, METRIC)
def present(evidence: CaseEvidence, sample: str, name: str) -> Value:
    """Return the number of series of a metric, over all schedulers that answered."""
    last = _last(evidence, sample)
    if not any(_readable(scrape) for scrape in last.scrapes):
        raise Absent(f"sample {sample}: no scheduler answered")
    return float(len(_series(evidence, last, name)))


@word(SAMPLE)
def missing(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many required metrics no scheduler has. Raise Absent if one is missing and a scheduler did not answer."""
    last = _last(evidence, sample)
    if not any(_readable(scrape) for scrape in last.scrapes):
        raise Absent(f"sample {sample}: no scheduler answered")
    lacking = sum(not _series(evidence, last, name) for name in evidence.system.required_metrics)
    if lacking:
        _all_answers(evidence, last)
    return float(lacking)


@word(SAMPLE)
def missing_somewhere(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many required metrics at least one scheduler lacks. Metrics of clients do not count. Metrics of GPUs are required of every
    scheduler, other metrics only of those that have clients."""
    answers = [
        {entry.name for entry in scrape.exposition.series}
        for scrape in _all_answers(evidence, _last(evidence, sample))
        if scrape.exposition
    ]
    required = [name for name in evidence.system.required_metrics if not name.startswith(CLIENT)]
    served = [names for names in answers if "client_info" in names]
    return float(sum(any(name not in names for names in (answers if name.startswith(GPU) else served)) for name in required))


@word(SAMPLE, METRIC)
def peak(evidence: CaseEvidence, sample: str, name: str) -> Value:
    """Return the highest value of any series of a metric in a watch."""
    maximum = max((entry.value for look in _samples(evidence, sample) for entry in _series(evidence, look, name)), default=None)
    if maximum is None:
        raise Absent(f"watch {sample}: no scheduler had {evidence.system.metrics}{name}")
    return maximum


@word(SAMPLE, METRIC, GROUP)
def peak_of_gpus(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """Return the highest value of a metric in a watch among the GPUs of a group's pods."""
    gpus = {gpu for look in _samples(evidence, sample) for pod_gpus in _gpus_of(evidence, look, group).values() for gpu in pod_gpus}
    label = evidence.system.labels["gpu"]
    series = (entry for look in _samples(evidence, sample) for entry in _series(evidence, look, name))
    maximum = max((entry.value for entry in series if entry.labels.get(label) in gpus), default=None)
    if maximum is None:
        raise Absent(f"watch {sample}: no {evidence.system.metrics}{name} of the GPUs of {group}")
    return maximum


@word(SAMPLE, SAMPLE, METRIC, GROUP)
def rise_of_gpus(evidence: CaseEvidence, first_sample: str, sample: str, name: str, group: str) -> Value:
    """Return by how much the highest value of a metric in a watch is above that of an earlier sample: the least rise among the GPUs of a
    group's pods."""
    label = evidence.system.labels["gpu"]
    before = {entry.labels.get(label): entry.value for entry in _series(evidence, _last(evidence, first_sample), name)}
    highest_values: dict[str, float] = {}
    for look in _samples(evidence, sample):
        gpus_of_group = {gpu for pod_gpus in _gpus_of(evidence, look, group).values() for gpu in pod_gpus}
        for entry in _series(evidence, look, name):
            gpu = entry.labels.get(label, "")
            if gpu in gpus_of_group:
                highest_values[gpu] = max(entry.value, highest_values.get(gpu, -math.inf))
    if not highest_values:
        raise Absent(f"watch {sample}: no {evidence.system.metrics}{name} of the GPUs of {group}")
    if unknown := sorted(set(highest_values) - set(before)):
        raise Absent(f"sample {first_sample}: no {evidence.system.metrics}{name} of GPU {unknown[0]}")
    return min(value - before[gpu] for gpu, value in highest_values.items())


@word(SAMPLE, METRIC, GROUP)
def driver_gap(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """Return the greatest difference, in percentage points, between the medians of a utilisation metric and of nvidia-smi dmon in a watch,
    over the GPUs of a group's pods."""
    label, busy = evidence.system.labels, evidence.busy.get(sample, {})
    gpus = {gpu for look in _samples(evidence, sample) for pod_gpus in _gpus_of(evidence, look, group).values() for gpu in pod_gpus}
    by_gpu: dict[tuple[str, str], array.array[float]] = {}
    for look in _samples(evidence, sample):
        _series(evidence, look, name)  # all of them are numbers
        for scrape in look.scrapes:
            for entry in scrape.exposition.of(name) if _readable(scrape) and scrape.exposition else ():
                if entry.labels.get(label["gpu"]) in gpus:
                    by_gpu.setdefault((scrape.node, entry.labels.get(label["index"], "")), array.array("d")).append(entry.value)
    if not by_gpu:
        raise Absent(f"watch {sample}: no {evidence.system.metrics}{name} of the GPUs of {group}")
    for node, index in by_gpu:
        if not busy.get(node, {}).get(index):
            raise Absent(f"watch {sample}: nvidia-smi dmon beside the scheduler on {node} has no values of GPU {index}")
    return max(abs(100 * statistics.median(values) - statistics.median(busy[node][index])) for (node, index), values in by_gpu.items())


@word(SAMPLE, METRIC, METRIC, GROUP, optional=1)
def peak_ratio(evidence: CaseEvidence, sample: str, name: str, denominator: str, group: str = "") -> Value:
    """Return the highest ratio of two metrics of one GPU in a watch, among the GPUs of a group's pods if a group is given."""
    label = evidence.system.labels["gpu"]
    ratios = array.array("d")
    looks = _samples(evidence, sample)
    group_gpus = {gpu for look in looks for pod_gpus in (_gpus_of(evidence, look, group).values() if group else ()) for gpu in pod_gpus}
    for look in looks:
        denominators = {
            entry.labels.get(label): entry.value
            for entry in _series(evidence, look, denominator)
            if not group or entry.labels.get(label) in group_gpus
        }
        ratios.extend(
            entry.value / denominators[entry.labels.get(label)]
            for entry in _series(evidence, look, name)
            if denominators.get(entry.labels.get(label))
        )
    if not ratios:
        raise Absent(f"watch {sample}: {name} and {denominator} are not there together for any GPU")
    return max(ratios)


@word(SAMPLE, METRIC, METRIC)
def peak_of_sums(evidence: CaseEvidence, sample: str, name: str, denominator: str) -> Value:
    """Return the highest ratio of the sums of two metrics over all GPUs in a watch."""
    ratios = []
    for look in _samples(evidence, sample):
        denominator_sum = sum(entry.value for entry in _series(evidence, look, denominator))
        ratios += [sum(entry.value for entry in _series(evidence, look, name)) / denominator_sum] if denominator_sum else []
    if not ratios:
        raise Absent(f"watch {sample}: no scheduler had {evidence.system.metrics}{denominator}")
    return max(ratios)


@word(SAMPLE, SAMPLE)
def memory_left(evidence: CaseEvidence, first_sample: str, last_sample: str) -> Value:
    """Return the greatest increase of a GPU's used memory between two samples, in bytes."""
    label = evidence.system.labels["gpu"]

    def used(name: str) -> dict[str, float]:
        answers = _all_answers(evidence, _last(evidence, name))
        series = (entry for scrape in answers if scrape.exposition for entry in scrape.exposition.of("gpu_memory_used_bytes"))
        return {entry.labels.get(label, ""): entry.value for entry in series}

    first, last = used(first_sample), used(last_sample)
    if not first or set(first) != set(last):
        raise Absent(f"samples {first_sample} and {last_sample} are not of the same GPUs: {len(first)} and {len(last)}")
    return max(last[gpu] - first[gpu] for gpu in first)


@word(SAMPLE)
def memory_of_nobody(evidence: CaseEvidence, sample: str) -> Value:
    """Return the most memory, in bytes, that a scheduler counts as running on a GPU on which it has no client, 0 if there is none."""
    label, left = evidence.system.labels["gpu"], []
    for scrape in _all_answers(evidence, _last(evidence, sample)):
        exposition = t.cast(SystemExposition, scrape.exposition)
        used = {entry.labels.get(label) for entry in exposition.of("client_info")}
        left += [entry.value for entry in exposition.of(RUNNING_MEMORY) if entry.labels.get(label) not in used]
    if not left and not any(scrape.exposition and scrape.exposition.of(RUNNING_MEMORY) for scrape in _last(evidence, sample).scrapes):
        raise Absent(f"sample {sample}: no scheduler has {evidence.system.metrics}{RUNNING_MEMORY}")
    return max(left, default=0.0)


@word(SAMPLE)
def orphans(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many series of clients are of pods that the same scheduler does not have as clients."""
    label, found = evidence.system.labels["pod"], 0
    for scrape in _all_answers(evidence, _last(evidence, sample)):
        exposition = t.cast(SystemExposition, scrape.exposition)
        known = {entry.labels.get(label) for entry in exposition.of("client_info")}
        found += sum(entry.name.startswith(CLIENT) and entry.labels.get(label) not in known for entry in exposition.series)
    return float(found)


@word(SAMPLE, GROUP)
def effective_gap(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return the greatest difference, in percentage points, between the effective compute quota that is shown of a pod and its own quota
    scaled by those of the group's pods on its GPU: the quotas of one GPU are added up, and of no other."""
    label, effective = evidence.system.labels["pod"], _effective(evidence, sample, group)
    shown = {
        entry.labels.get(label): entry.value
        for entry in _series(evidence, _last(evidence, sample), "client_core_quota_effective_percent")
    }
    if missing_pods := sorted(set(effective) - set(shown)):
        raise Absent(f"sample {sample}: no effective quota of {', '.join(missing_pods[:4])} is shown")
    return max(abs(shown[pod] - quota) for pod, quota in effective.items())


def _effective(evidence: CaseEvidence, sample: str, group: str) -> dict[str, float]:
    """Return {pod: its own compute quota in percent at the time of a sample, scaled by those of the group's pods on its GPU}."""
    look = _last(evidence, sample)
    gpus(evidence, sample, group)  # a scheduler knows each pod
    of_gpu = {pod: min(places) for pod, places in _gpus_of(evidence, look, group).items()}
    quotas = {pod.current_name: _core_at(evidence, pod, look.at) for pod in _pods(evidence, group)}
    sums: dict[str, float] = collections.defaultdict(float)
    for pod, gpu in of_gpu.items():
        sums[gpu] += quotas[pod]
    return {pod: quota * 100 / max(100.0, sums[of_gpu[pod]]) for pod, quota in quotas.items()}


@word(SAMPLE, GROUP)
def unsteady(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return the greatest ratio of two speeds of one pod between changes of the group's compute quota, each relative to the effective quota
    at that time: 1 if speeds always follow the quota. A sample says which pods share a GPU."""
    gpus(evidence, sample, group)  # a scheduler knows each pod
    places = _gpus_of(evidence, _last(evidence, sample), group)
    on_gpu = collections.Counter(min(of_pod) for of_pod in places.values())
    ratios = []
    for pod, log in _logs(evidence, group):
        beside, speeds = on_gpu[min(places[pod.current_name])], []
        for change, until in _phases(evidence, group, "core"):
            speed = lines.rate(log, _settled(evidence, change.name, pod), _mark(evidence, until, pod) if until else None)
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
    for pod, log in _logs(evidence, group):
        speed = lines.rate(log, _settled(evidence, change, pod))
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


@word(SAMPLE, GROUP)
def clients(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return how many clients the schedulers know of pods of a group, including removed pods."""
    label = evidence.system.labels["pod"]
    pod_names = {pod.current_name for pod in _pods(evidence, group)}
    answers = _all_answers(evidence, _last(evidence, sample))
    return float(
        sum(
            entry.labels.get(label) in pod_names for scrape in answers if scrape.exposition for entry in scrape.exposition.of("client_info")
        )
    )


@word(SAMPLE)
def client_series(evidence: CaseEvidence, sample: str) -> Value:
    """Return the number of series of clients, over all schedulers."""
    answers = _all_answers(evidence, _last(evidence, sample))
    client_keys = {
        (scrape.scheduler, entry.name, tuple(sorted(entry.labels.items())))
        for scrape in answers
        if scrape.exposition
        for entry in scrape.exposition.series
        if entry.name.startswith(CLIENT)
    }
    return float(len(client_keys))


def _gpus_of(evidence: CaseEvidence, sample: SystemSample, group: str) -> dict[str, set[str]]:
    """Return {pod: its GPUs} for the pods that a scheduler knows. A GPU for which the scheduler has no metrics of its own is left out."""
    label = evidence.system.labels
    pod_names = {pod.current_name for pod in _pods(evidence, group)}
    by_pod: dict[str, set[str]] = {}
    for series in (scrape.exposition.series for scrape in sample.scrapes if _readable(scrape) and scrape.exposition):
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


@word(SAMPLE, GROUP)
def gpus(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return the number of GPUs on which the pods of a group are. Raise Absent unless a scheduler knows each pod."""
    by_pod = _gpus_of(evidence, _last(evidence, sample), group)
    unknown = {pod.current_name for pod in _pods(evidence, group)} - set(by_pod)
    if unknown:
        raise Absent(f"sample {sample}: no scheduler says on which GPU {', '.join(sorted(unknown)[:4])} is")
    return float(len(set().union(*by_pod.values())))


@word(SAMPLE, GROUP)
def indexed(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return how many pods of a group the schedulers show with the index of their GPU. Raise Absent unless a scheduler knows each pod."""
    gpus(evidence, sample, group)
    label, last = evidence.system.labels, _last(evidence, sample)
    indexes = {entry.labels.get(label["gpu"]): entry.labels.get(label["index"]) for entry in _series(evidence, last, "gpu_info")}
    pod_names = {pod.current_name for pod in _pods(evidence, group)}
    return float(
        len({
            entry.labels[label["pod"]]
            for entry in _series(evidence, last, "client_info")
            if entry.labels.get(label["pod"]) in pod_names
            and entry.labels.get(label["index"]) == indexes.get(entry.labels.get(label["gpu"]), "")
        })
    )  # fmt: skip


@word(SAMPLE, GROUP)
def gpus_known(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return the number of GPUs on which those pods of a group are that a scheduler knows."""
    by_pod = _gpus_of(evidence, _last(evidence, sample), group)
    if not by_pod:
        raise Absent(f"sample {sample}: no scheduler knows a pod of {group}")
    return float(len(set().union(*by_pod.values())))


# Schedulers ------------------------------------------------------------------------------------------------------------


@word(SAMPLE)
def schedulers(evidence: CaseEvidence, sample: str) -> Value:
    """Return the number of running schedulers."""
    return float(len(_last(evidence, sample).schedulers))


@word(SAMPLE)
def fewest_schedulers(evidence: CaseEvidence, sample: str) -> Value:
    """Return the lowest number of running schedulers in a watch."""
    return float(min(len(look.schedulers) for look in _samples(evidence, sample)))


@word(SAMPLE)
def expected_schedulers(evidence: CaseEvidence, sample: str) -> Value:
    """Return the number of schedulers that should run: one for each node that shares GPUs."""
    expected = _last(evidence, sample).expected
    if not expected:
        raise Absent("no node of the cluster offers shared GPUs")
    return float(expected)


@word(SAMPLE)
def healthy(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many schedulers answer a health request with 200."""
    return float(sum(scrape.health == 200 for scrape in _last(evidence, sample).scrapes))


@word(SAMPLE)
def answering(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many schedulers have readable metrics with series of the system."""
    return float(
        sum(_readable(scrape) and bool(scrape.exposition and scrape.exposition.series) for scrape in _last(evidence, sample).scrapes)
    )


@word(SAMPLE)
def scrapes(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many answers of schedulers a watch should have."""
    return float(sum(max(len(look.scrapes), look.expected) for look in _samples(evidence, sample)))


@word(SAMPLE)
def scraped(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many readable answers of schedulers a watch has."""
    return float(sum(_readable(scrape) for look in _samples(evidence, sample) for scrape in look.scrapes))


@word(SAMPLE)
def scrape_p95(evidence: CaseEvidence, sample: str) -> Value:
    """Return the 95th percentile of the seconds that answers took."""
    took = sorted(scrape.took_s for look in _samples(evidence, sample) for scrape in look.scrapes if _readable(scrape))
    if not took:
        raise Absent(f"watch {sample}: no scheduler answered")
    return took[min(len(took) - 1, len(took) * PERCENTILE // 100)]


@word()
def restarts(evidence: CaseEvidence) -> Value:
    """Return how many schedulers were restarted or replaced since the baseline sample."""
    first, last = _last(evidence, BASELINE).schedulers, _last(evidence, END).schedulers
    if not first:
        raise Absent("no scheduler ran before the case")
    return float(sum(last.get(pod, -1) != restart_count for pod, restart_count in first.items()))


@word(ACTION)
def done(evidence: CaseEvidence, name: str) -> Value:
    """Return True if an action on the system succeeded in time."""
    if name not in evidence.actions:
        raise Absent(f"{name} was not done")
    result = evidence.actions[name]
    if isinstance(result, str):
        raise Absent(result)
    return result


# Processes -------------------------------------------------------------------------------------------------------------


def _process(evidence: CaseEvidence, sample: str, of: str) -> dict[str, list[float]]:
    """Return {scheduler: one number of its process per sample}. Raise Absent if a sample lacks one."""
    by_scheduler: dict[str, list[float]] = {}
    for look in _samples(evidence, sample):
        if len(look.processes) < max(1, len(look.schedulers)):
            raise Absent(f"sample {sample}: the processes of {len(look.processes)} of {len(look.schedulers)} schedulers were looked at")
        for process in look.processes:
            value = getattr(process, of)
            if value is None:
                raise Absent(f"sample {sample}: the process of {process.scheduler} could not be read: {process.problem}")
            by_scheduler.setdefault(process.scheduler, []).append(float(value))
    return by_scheduler


def _growth(evidence: CaseEvidence, sample: str, of: str) -> float:
    by_scheduler = _process(evidence, sample, of)
    short = [scheduler for scheduler, values in by_scheduler.items() if len(values) < 2]
    if short:
        raise Absent(f"sample {sample}: {short[0]} was looked at once only")
    return max(values[-1] - values[0] for values in by_scheduler.values())


@word(SAMPLE)
def rss_growth(evidence: CaseEvidence, sample: str) -> Value:
    """Return the greatest growth of a scheduler's memory from the first sample to the last, in kilobytes."""
    return _growth(evidence, sample, "rss_kb")


@word(SAMPLE)
def fd_growth(evidence: CaseEvidence, sample: str) -> Value:
    return _growth(evidence, sample, "fds")


@word(SAMPLE)
def rss_slope(evidence: CaseEvidence, sample: str) -> Value:
    """Return the greatest slope of a scheduler's memory in kilobytes per sample, by linear regression."""
    return max(_slope(values, sample) for values in _process(evidence, sample, "rss_kb").values())


@word(SAMPLE)
def fd_slope(evidence: CaseEvidence, sample: str) -> Value:
    return max(_slope(values, sample) for values in _process(evidence, sample, "fds").values())


def _slope(values: list[float], sample: str) -> float:
    if len(values) < TREND_LOOKS:
        raise Absent(f"sample {sample}: {len(values)} looks say nothing of a trend")
    return statistics.linear_regression(range(len(values)), values).slope


# Numbers ---------------------------------------------------------------------------------------------------------------


@word(GROUP, GROUP)
def share(evidence: CaseEvidence, full: str, limited: str) -> Value:
    """Return the part of a GPU, in percent, that limited pods had: the run time of pods with a whole GPU divided by theirs."""
    return 100.0 * t.cast(float, runtime(evidence, full)) / t.cast(float, runtime(evidence, limited))


@word(GROUP, GROUP)
def greatest_share(evidence: CaseEvidence, full: str, limited: str) -> Value:
    """Return the greatest part of a GPU, in percent, that a limited pod had: its speed relative to that of a pod with a whole GPU that ran
    on the same node before."""
    whole, shares = {}, []
    for pod, log in _logs(evidence, full):
        whole[pod.node] = lines.rate(log)
    for pod, log in _logs(evidence, limited):
        speed, of_node = lines.rate(log), whole.get(pod.node)
        if speed is None or not of_node:
            raise Absent(f"{pod.name} or the pod of {full} on its node printed no two probes")
        shares.append(100.0 * speed / of_node)
    return max(shares)


@word(GROUP, GROUP, NUMBER)
def inaccuracy(evidence: CaseEvidence, full: str, limited: str, target: float) -> Value:
    """Return by how much the share misses its quota: in percentage points, or in percent of the quota if the parameter accuracy_relative is
    set."""
    return _missed(evidence, t.cast(float, share(evidence, full, limited)), target)


def _missed(evidence: CaseEvidence, actual: float, target: float) -> float:
    missed = abs(actual - target)
    return 100.0 * missed / target if evidence.parameters.get("accuracy_relative") else missed


@word(GROUP, NUMBER, CHANGE, CHANGE, CHANGE, optional=1)
def rate_inaccuracy(evidence: CaseEvidence, group: str, target: float, full: str, since: str, until: str = "") -> Value:
    """Return by how much the share of pods misses a changed quota, like inaccuracy(). The share is their throughput between two changes,
    relative to that since the change `full` to the whole GPU."""
    full_rate = t.cast(float, rate(evidence, group, full))
    return _missed(evidence, 100.0 * t.cast(float, rate(evidence, group, since, until)) / full_rate, target)


# Several pods, several changes -----------------------------------------------------------------------------------------


@word(SAMPLE, GROUP, GROUP)
def colocated(evidence: CaseEvidence, sample: str, first: str, second: str) -> Value:
    """Return True if all pods of two groups are on one GPU."""
    look = _last(evidence, sample)
    by_pod = {**_gpus_of(evidence, look, first), **_gpus_of(evidence, look, second)}
    unknown = {pod.current_name for group in (first, second) for pod in _pods(evidence, group)} - set(by_pod)
    if unknown:
        raise Absent(f"sample {sample}: no scheduler says on which GPU {', '.join(sorted(unknown)[:4])} is")
    return len(set().union(*by_pod.values())) == 1


@word(SAMPLE)
def met(evidence: CaseEvidence, sample: str) -> Value:
    """Return in how many samples all pods that were there at that time were on one GPU."""
    label, found = evidence.system.labels, 0
    for look in _samples(evidence, sample):
        places = {entry.labels.get(label["pod"]): entry.labels.get(label["gpu"]) for entry in _series(evidence, look, "client_info")}
        found += bool(look.phases) and all(name in places for name in look.phases) and len({places[name] for name in look.phases}) == 1
    return float(found)


@word(SAMPLE, GROUP)
def series_of(evidence: CaseEvidence, sample: str, group: str) -> Value:
    """Return how many series of pods of a group the schedulers have."""
    label = evidence.system.labels["pod"]
    pod_names = {pod.current_name for pod in _pods(evidence, group)}
    answers = _all_answers(evidence, _last(evidence, sample))
    return float(sum(entry.labels.get(label) in pod_names for scrape in answers if scrape.exposition for entry in scrape.exposition.series))


@word(SAMPLE, METRIC, GROUP)
def mean_of(evidence: CaseEvidence, sample: str, name: str, group: str) -> Value:
    """Return the highest mean of a metric over a watch, among the pods of a group."""
    looks = _samples(evidence, sample)
    label = evidence.system.labels["pod"]
    by_pod: dict[str, array.array[float]] = {pod.current_name: array.array("d") for pod in _pods(evidence, group)}
    for look in looks:
        for entry in _series(evidence, look, name):
            if entry.labels.get(label) in by_pod:
                by_pod[entry.labels[label]].append(entry.value)
    if not all(by_pod.values()):
        raise Absent(f"watch {sample}: {evidence.system.metrics}{name} has no series of every pod of {group}")
    return max(statistics.fmean(values) for values in by_pod.values())


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
            logged += transitions(evidence, change.name) == len(_pods(evidence, change.group))
        except Absent as error:
            lost.append(str(error))
    if lost and logged + len(lost) == len(_all_changes(evidence)):
        raise Absent("; ".join(lost[:3]))
    return float(logged)


@word()
def slowest_change(evidence: CaseEvidence) -> Value:
    """Return the longest time in seconds until the metrics showed a change."""
    return max(t.cast(float, latency(evidence, change.name)) for change in _all_changes(evidence))


# A ladder of more and more pods ----------------------------------------------------------------------------------------


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
    for pod in _pods(evidence, group):
        gpu = lines.gpu(pod.log or ())
        if gpu is None:
            return 0.0
        pods_on_gpu[pod.node, gpu] += 1
    return max(*pods_on_gpu.values(), *(100.0 / (pod.core or 100.0) for pod in _pods(evidence, group)))


def _work_s(evidence: CaseEvidence, group: str) -> float | None:
    """Return the seconds in which at least one pod of a group worked, on the GPU where that took longest. Return None if the run time of a
    pod is missing."""
    by_gpu: dict[tuple[str, str | None], list[tuple[float, float]]] = {}
    for pod in _pods(evidence, group):
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


@word()
def worst_drop(evidence: CaseEvidence) -> Value:
    """Return the greatest fall of throughput from one group to the next in percent, 0 if it never fell. Throughput is that of the GPU with
    most pods of a group if all pods printed their GPU, since the kubelet and not the system spreads the pods; else pods per second.

    Raise Absent if throughput fell by more than `cliff_max_pct` only because pods started later: the start is most of a short load's time.
    """
    groups = _rungs(evidence)
    if len(groups) < 2:
        raise Absent("there is one group of pods only")
    crowds = [_crowd(evidence, group) for group in groups]
    loads = crowds if all(crowds) else [t.cast(float, count(evidence, group)) for group in groups]
    times = [t.cast(float, elapsed(evidence, group)) for group in groups]
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
