# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts of a case's evidence, thinned out if there are many points. They have no influence on the verdict.

A chart with too few points is left out.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Chart, Curve
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import SUCCEEDED, CaseEvidence, CasePod, QuotaChange

# A chart is stored in the journal: the most points of a curve, curves of a chart, and moments of a chart.
POINTS, CURVES, MOMENTS = 100, 8, 60
# The fewest samples that are drawn as a trend.
ROUNDS = 3
GIB = 1 << 30


def charts(evidence: CaseEvidence) -> list[Chart]:
    candidates = [throughput(evidence), by_quota(evidence), *rounds(evidence), mapping(evidence)]
    return [chart for chart in candidates if chart]


def throughput(evidence: CaseEvidence) -> Chart | None:
    """Return the throughput of each pod over its own time, with a moment for each quota change (at the last probe before the change)."""
    curves, moments = [], {}
    for pod in evidence.pods:
        probes = lines.probes(pod.log or [])
        few = _few(probes)
        rates = lines.rates(few)
        if len(rates) < 2:
            continue
        curves.append(_curve(pod.name, rates))
        for name, change in evidence.changes.items():
            if change.group == pod.group and pod.name in change.marks and name not in moments:
                elapsed = [probe.elapsed_s for probe in probes if probe.stamp <= change.marks[pod.name]]
                moments[name] = [elapsed[-1] if elapsed else 0.0, _quota_text(change)]
    if not curves:
        return None
    return _chart("Throughput over time", "seconds since the pod began", "iterations/s", curves, list(moments.values()))


def _quota_text(change: QuotaChange) -> str:
    return f"{change.value:g} %" if change.kind == "core" else f"{change.value / GIB:g} GiB"


def by_quota(evidence: CaseEvidence) -> Chart | None:
    """Return the run time of pods against their compute quota. If a pod had the whole GPU, a second curve has the times that the quotas
    predict."""
    took: dict[float, list[float]] = collections.defaultdict(list)
    for pod in evidence.pods:
        seconds = lines.runtime(pod.log or [])
        if pod.core and pod.phase == SUCCEEDED and seconds is not None:
            took[pod.core].append(seconds)
    if len(took) < 2 or evidence.changes:
        return None
    points = [(core, seconds) for core in sorted(took) for seconds in took[core]]
    curves: list[Curve] = [{**_curve("measured", points), "dots": True}]
    full_quota = took.get(100.0)
    if full_quota:
        mean = sum(full_quota) / len(full_quota)
        curves.append({**_curve("by the quota", [(core, mean * 100 / core) for core in sorted(took)]), "expected": True})
    return _chart("Duration against quota", "compute quota (%)", "s", curves)


def rounds(evidence: CaseEvidence) -> t.Iterator[Chart]:
    """Yield the charts of the schedulers over time: memory, open files, and series of clients."""
    for name, looks in evidence.samples.items():
        if len(looks) < ROUNDS:
            continue
        rss: _Curves = collections.defaultdict(list)
        fds: _Curves = collections.defaultdict(list)
        series: _Curves = collections.defaultdict(list)
        for number, look in enumerate(looks, 1):
            if not look.processes:
                break
            for process in look.processes:
                rss[process.scheduler].append((number, None if process.rss_kb is None else process.rss_kb / 1024))
                fds[process.scheduler].append((number, process.fds))
            for scrape in look.scrapes:
                exposition = scrape.exposition
                count = (
                    sum(metric.startswith("client_") for metric, _labels in exposition.form.series)
                    if exposition and not exposition.wrong
                    else None
                )
                series[scrape.scheduler].append((number, count))
        for title, unit, points in (("Memory", "MiB", rss), ("Open files", "files", fds), ("Series of clients", "series", series)):
            if chart := _of_schedulers(f"{title} of schedulers over the looks {name}", unit, points):
                yield chart


_Curves = t.Dict[str, t.List[t.Tuple[float, float | None]]]


def _of_schedulers(title: str, unit: str, of: _Curves) -> Chart | None:
    measured = {name: [(x, y) for x, y in points if y is not None] for name, points in of.items()}
    long = {name: points for name, points in measured.items() if len(points) >= ROUNDS}
    # Of many schedulers, draw those that have grown most.
    grown = sorted(long, key=lambda name: long[name][0][1] - long[name][-1][1])[:CURVES]
    curves = [_curve(name, _few(long[name])) for name in sorted(grown)]
    return _chart(title, "look", unit, curves) if curves else None


def mapping(evidence: CaseEvidence) -> Chart | None:
    """Return the number of pods of each group on each GPU, from the sample that knew most of the pods."""
    label = evidence.system.labels
    pods: dict[str, CasePod] = {pod.current_name: pod for pod in evidence.pods}
    best: dict[str, str] = {}
    for looks in evidence.samples.values():
        placed = {}
        for scrape in looks.last.scrapes:
            for series in scrape.exposition.of("client_info") if scrape.exposition else ():
                pod, gpu = series.labels.get(label.get("pod", "")), series.labels.get(label.get("gpu", ""))
                if pod in pods and gpu:
                    placed[str(pod)] = f"{scrape.node} {gpu}"
        best = placed if len(placed) > len(best) else best
    if len(best) < 2:
        return None
    where = sorted(set(best.values()))
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for pod, gpu in best.items():
        counts[pods[pod].group][gpu] += 1
    curves: list[Curve] = [
        {"name": group, "x": where, "y": [of[gpu] for gpu in where], "bars": True} for group, of in sorted(counts.items())
    ]
    return _chart("Pods on GPUs", "GPU", "pods", curves[:CURVES])


def _few(points: t.Sequence[t.Any]) -> list[t.Any]:
    """Return about POINTS of the points, evenly chosen, with the last one."""
    step = max(1, -(-len(points) // POINTS))
    thinned = list(points[::step])
    return thinned if not points or thinned[-1] is points[-1] else [*thinned, points[-1]]


def _curve(name: str, points: t.Sequence[tuple[float, float]]) -> Curve:
    return {"name": name, "x": [_digits(x) for x, _y in points], "y": [_digits(y) for _x, y in points]}


def _digits(value: float) -> float:
    return float(f"{value:.5g}")


def _chart(title: str, x: str, y: str, curves: list[Curve], moments: t.Sequence[t.Any] = ()) -> Chart:
    return {"title": title, "x": x, "y": y, "curves": curves[:CURVES], "moments": list(moments)[:MOMENTS]}
