# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words about the schedulers themselves: how many run and answer, what they log, and their processes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import statistics

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import BASELINE, END, CaseEvidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words.register import ACTION, PATTERN, SAMPLE, word

# So many looks, at least, say something of a trend.
TREND_LOOKS = 3
PERCENTILE = 95


@word(SAMPLE)
def schedulers(evidence: CaseEvidence, sample: str) -> Value:
    """Return the number of running schedulers."""
    return float(len(reading.last(evidence, sample).schedulers))


@word(SAMPLE)
def fewest_schedulers(evidence: CaseEvidence, sample: str) -> Value:
    """Return the lowest number of running schedulers in a watch."""
    return float(min(len(look.schedulers) for look in reading.looks(evidence, sample)))


@word(SAMPLE)
def expected_schedulers(evidence: CaseEvidence, sample: str) -> Value:
    """Return the number of schedulers that should run: one for each node that shares GPUs."""
    expected = reading.last(evidence, sample).expected
    if not expected:
        raise Absent("no node of the cluster offers shared GPUs")
    return float(expected)


@word(SAMPLE)
def healthy(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many schedulers answer a health request with 200."""
    return float(sum(scrape.health == 200 for scrape in reading.last(evidence, sample).scrapes))


@word(SAMPLE)
def answering(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many schedulers have readable metrics with series of the system."""
    return float(
        sum(
            reading.readable(scrape) and bool(scrape.exposition and scrape.exposition.series)
            for scrape in reading.last(evidence, sample).scrapes
        )
    )


@word(SAMPLE)
def scrapes(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many answers of schedulers a watch should have."""
    return float(sum(max(len(look.scrapes), look.expected) for look in reading.looks(evidence, sample)))


@word(SAMPLE)
def scraped(evidence: CaseEvidence, sample: str) -> Value:
    """Return how many readable answers of schedulers a watch has."""
    return float(sum(reading.readable(scrape) for look in reading.looks(evidence, sample) for scrape in look.scrapes))


@word(SAMPLE, unit="s")
def scrape_p95(evidence: CaseEvidence, sample: str) -> Value:
    """Return the 95th percentile of the seconds that answers took."""
    took = sorted(scrape.took_s for look in reading.looks(evidence, sample) for scrape in look.scrapes if reading.readable(scrape))
    if not took:
        raise Absent(f"watch {sample}: no scheduler answered")
    return took[min(len(took) - 1, len(took) * PERCENTILE // 100)]


@word()
def restarts(evidence: CaseEvidence) -> Value:
    """Return how many schedulers were restarted or replaced since the baseline sample."""
    first, last = reading.last(evidence, BASELINE).schedulers, reading.last(evidence, END).schedulers
    if not first:
        raise Absent("no scheduler ran before the case")
    return float(sum(last.get(pod, -1) != restart_count for pod, restart_count in first.items()))


@word(PATTERN)
def scheduler_logged(evidence: CaseEvidence, pattern: str) -> Value:
    """Return how many lines of all schedulers' logs match a pattern, whenever they were written."""
    regex = evidence.system.pattern(pattern)
    return float(sum(len(lines.matching(log, regex)) for log in reading.schedulers_logs(evidence).values()))


@word(ACTION)
def done(evidence: CaseEvidence, name: str) -> Value:
    """Return True if an action on the system succeeded in time."""
    if name not in evidence.actions:
        raise Absent(f"{name} was not done")
    result = evidence.actions[name]
    if isinstance(result, str):
        raise Absent(result)
    return result


def _process(evidence: CaseEvidence, sample: str, of: str) -> dict[str, list[float]]:
    """Return {scheduler: one number of its process per sample}. Raise Absent if a sample lacks one."""
    by_scheduler: dict[str, list[float]] = {}
    for look in reading.looks(evidence, sample):
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


@word(SAMPLE, unit="KiB")
def rss_growth(evidence: CaseEvidence, sample: str) -> Value:
    """Return the greatest growth of a scheduler's memory from the first sample to the last, in kilobytes."""
    return _growth(evidence, sample, "rss_kb")


@word(SAMPLE)
def fd_growth(evidence: CaseEvidence, sample: str) -> Value:
    return _growth(evidence, sample, "fds")


@word(SAMPLE, unit="KiB")
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
