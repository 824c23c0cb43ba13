# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparison of numbers with those of identical subjects and of the same node; and the numbers to compare with earlier runs.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import context_keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, hops, past, physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.single_checks import Compared, better_of, primary
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement

# Parts of a node that are compared with each other, in words.
SIBLINGS = {"gpu": "GPUs", "nic": "ports of its kind"}


def opinions(
    deciding: t.Mapping[Key, Measurement], chosen: t.Mapping[Key, Compared], leaf: t.Mapping[str, str]
) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield a WARN or FAIL for each number that is far worse than those of identical subjects, or of the other GPUs or ports of its
    node."""
    alike: dict[t.Any, list[tuple[Key, float]]] = collections.defaultdict(list)
    nodes: dict[t.Any, list[tuple[Key, float]]] = collections.defaultdict(list)
    for key, record in deciding.items():
        if record.outcome != "measured" or record.context.get("comparable") is False:
            continue
        compared = chosen[key]
        if compared is None:  # what cannot be is no yardstick
            continue
        look = hardware(record)
        for metric_name, size, unit, better, value in _comparable(record, compared):
            number_key = (*key[:3], metric_name, size, unit, better)
            alike[(number_key, record.subject.kind, look)].append((key, value))
            if record.subject.kind in SIBLINGS:  # NICs of one node may be of several kinds
                kind = look if record.subject.kind == "nic" else ""
                nodes[(number_key, record.subject.kind, node_of(key[3]), kind)].append((key, value))
    for (number_key, kind, _look), group in alike.items():
        pairs = {hops.nodes_of(key[3]): (key, value) for key, value in group} if kind == "pair" else {}
        if number_key[6] == "lower" and any(a != b for a, b in pairs):  # a latency: pairs with as many hops are its neighbours
            for pair, word, median, compared_with in hops.outliers({p: v for p, (_key, v) in pairs.items()}, leaf):
                yield pairs[pair][0], _outlier(number_key, pairs[pair][1], (word, median), "below_neighbours", compared_with)
            continue
        centre = bands.centre([value for _key, value in group])
        if centre is None:
            continue
        for key, value in group:
            verdict = bands.against_neighbours(value, centre, number_key[6])
            if verdict:
                compared_with = f"the median of {len(group)} identical subjects"
                yield key, _outlier(number_key, value, (verdict, centre.median), "below_neighbours", compared_with)
    for (number_key, kind, _node, _look), group in nodes.items():
        if number_key[6] != "higher":
            continue
        for key, value in group:
            opinion = bands.against_siblings(value, [v for k, v in group if k != key])
            if opinion:
                yield key, _outlier(number_key, value, opinion, "below_siblings", f"the median of its node's other {SIBLINGS[kind]}")


def numbers(deciding: t.Mapping[Key, Measurement], chosen: t.Mapping[Key, Compared]) -> t.Iterator[past.Number]:
    """Yield the numbers to compare with earlier runs: those with an expectation, and the primary number of each check."""
    for key, record in deciding.items():
        compared = chosen[key]
        if record.outcome != "measured" or record.context.get("comparable") is False or compared is None:
            continue
        better = {expectation.metric: expectation.better for expectation, reading in compared if reading.size is None}
        metric = primary(record)
        if metric is not None:
            better.setdefault(metric, better_of(record.metrics[metric].unit))
        for name, better_way in better.items():
            m = record.metrics[name]
            yield past.Number(key, record, name, m.unit, float(t.cast(float, m.value)), better_way)
        for expectation, reading in compared:
            # The largest size is what the check has as its own number, too.
            record_metric = record.metrics.get(expectation.metric)
            if reading.size is not None and (record_metric is None or reading.value != record_metric.value):
                yield past.Number(key, record, expectation.metric, reading.unit, reading.value, expectation.better, reading.size)


# Identities by which NICs are peers: those of slots are not among them, for a slot that is worse than those of the peers is a finding.
_OF_NIC = tuple(name for name in context_keys.MATCHED if name not in context_keys.SLOT)
# Disks are built into machines: those of one product are peers. A file system that all nodes share is the same one for all.
_OF_DISK = (*context_keys.MATCHED, *context_keys.selecting("machine"))


def hardware(record: Measurement) -> str:
    """Return the key of identical subjects: every identity that can select an expectation, and no state (context_keys.KEYS)."""
    names: t.Iterable[str] = context_keys.MATCHED
    if record.subject.kind == "nic" and "nic_model" in record.context:
        names = _OF_NIC
    elif "storage" in record.context and not record.context.get("shared"):
        names = _OF_DISK
    return repr([record.simulated, *map(record.context.get, names)])


def _comparable(
    record: Measurement, compared: list[tuple[Expectation, bands.Reading]]
) -> t.Iterator[tuple[str, int | None, str, str, float]]:
    """Yield the numbers to compare with neighbours: those with an expectation; without one, the primary number of the check."""
    if compared:
        for expectation, reading in compared:
            try:
                value = physics.convert(reading.value, reading.unit, expectation.unit)
            except ValueError:
                continue
            yield expectation.metric, reading.size, expectation.unit, expectation.better, value
        return
    metric = primary(record)
    if metric is not None:
        record_metric = record.metrics[metric]
        yield metric, None, record_metric.unit, better_of(record_metric.unit), float(t.cast(float, record_metric.value))


def _outlier(number_key: tuple[t.Any, ...], value: float, verdict_and_median: tuple[str, float], code: str, compared_with: str) -> Opinion:
    verdict, median = verdict_and_median
    _stage, _check, _variant, metric, size, unit, better = number_key
    at = f" at {bands.human(size)}" if size else ""
    floor = bands.floors(median, better)[0]
    reason = f"{metric} {value:.5g} {unit}{at} is {value / median:.3f} of {compared_with}, {median:.5g}"
    return Opinion(verdict, reason, code, value, unit, floor, "fleet", compared_with, "measured", metric=metric, expected=median)
