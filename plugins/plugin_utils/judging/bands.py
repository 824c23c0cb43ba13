# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One number of a measurement against one expectation.

This plugin util is PRIVATE to the collection; the filter `bandwidth_verdict` is its public window.
"""

from __future__ import annotations

import functools
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import context_keys, slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected.matching import (
    PASS_FROM,
    PLATEAU,
    WARN_FROM,
    about_usable_nics,
    mismatch,
    row_of,
    seen_by,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Match,
    Measurement,
    PlainData,
    SeriesRow,
    Subject,
    Verdict,
    is_number,
)

# Neighbours: at least this many beside the subject itself; how far out one is by the modified z-score
# 0.6745 (x - median) / MAD (Iglewicz and Hoaglin), in which no MAD is taken for smaller than 1 % of the median. The MAD of n
# values is 1.3 + 14 / n times as wide, so that about one of 1,000 groups of healthy subjects has an outlier (normal scatter, any n).
NEIGHBOURS = 5
OUTLIER_Z = -3.5
MAD_FLOOR = 0.01
MAD_WIDER, MAD_FEW = 1.3, 14.0
SIBLINGS = 2
# Kinds of hardware whose ceilings are remembered.
KINDS = 4096

# The metric that stands for a check where no expectation names one; the first that a measurement has.
PRIMARY = ("busbw", "tflops", "bandwidth", "latency")
SEVERITY = {"PASS": 0, "SKIPPED": 1, "WARN": 2, "KNOWN_FAIL": 3, "UNKNOWN": 4, "FAIL": 5}
WORST_FIRST = tuple(reversed(SEVERITY))


class Opinion(t.NamedTuple):
    """A verdict before it is written down; the fields are those of verdict/v1."""

    verdict: str
    reason: str
    reason_code: str | None = None
    value: float | None = None
    unit: str | None = None
    floor: float | None = None
    layer: str | None = None
    source: str | None = None
    confidence: str | None = None
    metric: str | None = None
    expected: float | None = None
    date: str | None = None
    expectation: str | None = None
    ticket: str | None = None
    expires: str | None = None
    of: str | None = None
    regressed: bool = False
    findings: t.Sequence[str] = ()

    @property
    def severity(self) -> int:
        return SEVERITY[self.verdict]

    @property
    def badness(self) -> tuple[int, float]:
        """Orders opinions; of those with one verdict by how far the value is below the floor, of a time above it."""
        short = 0.0
        if self.value is not None and self.floor:
            lower_is_better = self.expected is not None and self.floor > self.expected
            short = self.value / self.floor if lower_is_better else -self.value / self.floor
        return self.severity, short

    def written(
        self, run_id: str, stage: str, check: str, variant: str, attempt: int | None, simulated: bool, subject: Subject
    ) -> Verdict:
        """Return it as the verdict on a subject."""
        (
            verdict, reason, code, value, unit, floor, layer, source, confidence, metric, expected, date, expectation, ticket, expires, of,
            regressed, findings,
        ) = self  # fmt: skip
        return Verdict(
            "verdict/v1", run_id, stage, check, variant, subject, t.cast(t.Any, verdict), reason, code, value, unit, floor,
            t.cast(t.Any, layer), source, t.cast(t.Any, confidence), attempt, simulated, metric, expected, date, expectation, ticket,
            expires, t.cast(t.Any, of), regressed, list(findings),
        )  # fmt: skip

    def but(self, verdict: str, reason_code: str, reason: str) -> Opinion:
        """The same numbers with another verdict; what it was before stays among the findings."""
        return self._replace(verdict=verdict, reason_code=reason_code, reason=reason, findings=[*self.findings, self.reason])

    def saying(self, reason: str) -> Opinion:
        """The same in other words; `_replace` takes five times as long, of each of hundreds of thousands."""
        return Opinion(self.verdict, reason, *self[2:])


def worst(opinions: t.Sequence[Opinion]) -> Opinion:
    """The one that decides, with the others' reasons among its findings; of equals the one furthest below its floor."""
    if len(opinions) == 1:
        return opinions[0]
    decides = max(opinions, key=lambda opinion: opinion.badness)
    lesser = [o.reason for o in opinions if o is not decides and o.verdict != "PASS"]
    findings = [f for o in opinions for f in o.findings]
    return decides._replace(findings=[*findings, *lesser]) if findings or lesser else decides


class Unusable(AcceptanceError, ValueError):
    """A measurement does not have the number that it should have."""


class Reading(t.NamedTuple):
    """One number of a measurement."""

    value: float
    unit: str
    size: int | None = None


def reading(measurement: Measurement, metric: str, size: int | str | None) -> Reading | None:
    """A metric of a measurement, or of the row of its sweep that has `size` (bytes, or `plateau`).

    None where the sweep has no such row; Unusable where the number is missing, or is none.
    """
    metrics = measurement.metrics
    if size is None:
        of_metric = metrics.get(metric)
        if of_metric is None or not is_number(of_metric.value):
            raise Unusable(f"{metric}: found {of_metric and of_metric.value!r}, expected a number")
        return Reading(float(of_metric.value), str(of_metric.unit))
    units = measurement.context.get("series_units")
    unit = units.get(metric) if isinstance(units, dict) else None
    if unit is None and metric in metrics:
        unit = metrics[metric].unit
    return of_sweep(measurement.series, metric, size, str(unit))


def of_sweep(series: t.Iterable[SeriesRow], metric: str, size: int | str, unit: str) -> Reading | None:
    """Return a metric in the row of a sweep that has `size`, the worst if several rows have it; None and Unusable as for `reading`."""
    rows = [row for row in series if is_number(row.get("size"))]
    size_of_row = row_of(size, [row["size"] for row in rows])
    if size_of_row is None:
        return None
    values_at_size = [row.get(metric) for row in rows if row["size"] == size_of_row]
    values = [float(value) for value in values_at_size if is_number(value)]
    if len(values) != len(values_at_size):
        raise Unusable(f"{metric} at {human(int(size_of_row))}: found {values_at_size!r}, expected a number")
    value = max(values) if physics.UNITS.get(unit, ("",))[0] == "time" else min(values)
    return Reading(value, unit, int(size_of_row))


def compare(reading: Reading, expected: Expectation) -> Opinion:
    """The bands: higher is better: PASS from 0.95 of the expected value, WARN from 0.90, FAIL below; lower is better:
    PASS up to the value / 0.95, WARN up to the value / 0.90, FAIL above. An entry may have limits of its own."""
    expected_fields: PlainData = {
        "layer": expected.layer,
        "source": expected.source,
        "confidence": expected.confidence,
        "metric": expected.metric,
        "expected": expected.value,
        "date": expected.date,
        "expectation": expected.id,
    }
    at = f" at {human(reading.size)}" if reading.size else ""
    floor, warn_limit = limits(expected)
    try:
        value = physics.convert(reading.value, reading.unit, expected.unit)
    except ValueError as error:
        reason = f"{expected.metric}{at} cannot be judged: {error}"
        return Opinion("UNKNOWN", reason, "bad_measurement", **expected_fields)
    if value < 0:
        reason = f"{expected.metric}{at}: found {value:g} {expected.unit}, expected a number that is not negative"
        return Opinion("UNKNOWN", reason, "bad_measurement", **expected_fields)
    lower = expected.better == "lower"
    numbers: PlainData = {**expected_fields, "value": value, "unit": expected.unit, "floor": floor}
    sentence = f"{expected.metric} {value:.5g} {expected.unit}{at}"
    if lower and value == 0 and physics.UNITS[expected.unit][0] == "time":
        return Opinion("UNKNOWN", f"{sentence}: a time of 0 is impossible", "above_physics", **numbers)
    share = f"{value / expected.value:.3f} of the expected {expected.value:g} ({expected.layer}, {expected.id})"
    if value <= floor if lower else value >= floor:
        return Opinion("PASS", f"{sentence} is {share}", None, **numbers)
    limit = f"{'limit' if lower else 'floor'} {floor:g} {expected.unit}"
    if value <= warn_limit if lower else value >= warn_limit:
        return Opinion("WARN", f"{sentence} is {share}; {limit}", "below_warn", **numbers)
    return Opinion("FAIL", f"{sentence} is only {share}; {limit}" if not lower else f"{sentence} is {share}; {limit}",
                   "below_floor", **numbers)  # fmt: skip


def held(reading: Reading, expected: Expectation, context: t.Mapping[str, t.Any]) -> Opinion:
    """compare(), but UNKNOWN if the value is too low and it is not known whether the hardware of `context` can reach more.

    That is so for an entry whose `missed` is `unknown`, and for one about usable NICs (matching.about_usable_nics) if the value reaches
    what the NICs give that the GPUs can use for certain.
    """
    in_slots = of_ring(context) if expected.layer == "shipped" and about_usable_nics(expected.match) else None
    expected = in_slots or expected
    opinion = compare(reading, expected)
    if opinion.verdict not in ("WARN", "FAIL"):
        return opinion
    unused = _without_unused(opinion, expected, context)
    if unused is not None:
        return unused
    advice = "measure a machine that is known to be good and set acceptance_expectations, or run gpufleet.acceptance.baseline"
    if expected.missed == "unknown":
        reason = f"whether this machine can reach more is not known ({expected.note or expected.source}): {advice}; {opinion.reason}"
        return opinion.but("UNKNOWN", "path_unknown", reason)
    # Who gives a floor of their own knows the machine.
    usable = slots.usable(context) if expected.layer == "shipped" and about_usable_nics(expected.match) else None
    if usable is None or usable.certain >= usable.at_most:
        return opinion
    share = usable.certain / usable.at_most
    if opinion.value is not None and opinion.value < WARN_FROM * share * expected.value:
        return opinion
    hardware = f"{context.get('gpus')} x {context.get('gpu')} with {context.get('nics')} NICs of {context.get('nic_gbps')} Gb/s"
    reason = f"how many of its NICs {hardware} can use is not known, {usable.certain} to {usable.at_most}: {advice}; {opinion.reason}"
    return opinion.but("UNKNOWN", "path_unknown", reason)


def of_ring(context: t.Mapping[str, t.Any]) -> Expectation | None:
    """Return what an all_reduce between nodes gives whose GPUs are in PCIe slots, derived from the PCI tree and the rates of slots and NICs
    (slots.ring); None for other hardware, and where the run asks for an algorithm that makes no ring."""
    ring = slots.ring(context)
    nodes = context.get("nodes")
    if ring is None or not is_number(nodes) or nodes < 2 or str(context.get("algorithm") or "auto").lower() not in ("auto", "ring"):
        return None
    return Expectation(
        id="ring-of-slots-all_reduce", match={"stage": str(context.get("stage") or ""), "gpu": str(context.get("gpu")), "size": PLATEAU},
        metric="busbw", value=float(f"{ring.rate:.4g}"), unit="GB/s", source=ring.how, date="2026-11", confidence="derived",
        missed="fail" if ring.certain else "unknown", note="what GPUs in slots reach depends on switches, sockets and peer access",
    )  # fmt: skip


def _without_unused(opinion: Opinion, expected: Expectation, context: t.Mapping[str, t.Any]) -> Opinion | None:
    """Return UNKNOWN for a number that misses the floor of all NICs that are there, and reaches that of those in use; else None."""
    nics, used = context.get("nics"), context.get("nics_used")
    if "nics" not in expected.match or not is_number(nics) or not is_number(used) or not 0 < used < nics:
        return None
    if opinion.value is None or opinion.value < PASS_FROM * used / nics * expected.value:
        return None
    down = context.get("nics_down")
    why = f"{down} are not active" if down else "settings of the machines leave out the others"
    advice = "bring them up, or leave them out by the settings of the run"
    reason = f"its nodes have {nics} NICs and use {used}, for which the number would do: {why}; {advice}; {opinion.reason}"
    return opinion.but("UNKNOWN", "port_down", reason)


# What of a measurement's context, or of an expectation's match, says what its hardware can give.
_HARDWARE = context_keys.selecting(
    "gpu", "gpus", "nodes", "nics", "nic", "nic_gbps", "link_layer", "bonded", "bidirectional", "nvls", "mnnvl", "algorithm", "op", "type",
    "check", "pcie_gen", "pcie_width", "loopback",
)  # fmt: skip


def impossible(measurement: Measurement, match: Match | None = None) -> Opinion | None:
    """UNKNOWN where a measurement has a number that its hardware cannot give; `match` is what is known of that besides."""
    if not measurement.metrics and not measurement.series:
        return None
    context = measurement.context
    if match:
        context = {**match, **context}
    hardware = list(map(context.get, _HARDWARE))
    if "check" not in measurement.context:
        hardware[_CHECK] = measurement.check
    rails = context.get("rails")
    rails = [rail for rail in rails if isinstance(rail, dict)] if isinstance(rails, list) else []
    ends = [[str(rail.get(end)) for end in ("a", "b")] for rail in rails]
    if any("bond" in end for both in ends for end in both):
        hardware[_BONDED] = True
    opinions = []
    ceilings = _ceilings(hardware)
    for metric in physics.ABOVE:
        # What a node sends to itself needs no wire; of several rails each has a rate of its own (fleet/rdma_matrix.py).
        if metric == "bandwidth" and (len(ends) > 1 or any(a.split("/nic/")[0] == b.split("/nic/")[0] for a, b in ends)):
            continue
        for reading, row in _all(measurement, metric):
            limit = (ceilings if "nic" not in row else _ceilings(_hardware_of(row, hardware))).get(metric)
            opinions.append(_above(metric, reading, limit) if limit else None)
    if isinstance(context.get("nic_gbps"), (int, float)):
        opinions += [_too_soon(reading) for reading, _row in _all(measurement, "latency")]
    return next((opinion for opinion in opinions if opinion), None)


_BONDED, _CHECK = _HARDWARE.index("bonded"), _HARDWARE.index("check")
# Of a row that is of one NIC of several, which it names by `nic`: the ceiling of its number is that of this NIC.
_OF_NIC = context_keys.selecting("nic", "nic_gbps", "link_layer", "pcie_gen", "pcie_width")


def _hardware_of(row: SeriesRow, hardware: list[t.Any]) -> list[t.Any]:
    """Return the hardware that a row is about which names its own NIC."""
    return [row.get(name) if name in _OF_NIC else value for name, value in zip(_HARDWARE, hardware, strict=True)]


_KNOWN_CEILINGS: dict[str, dict[str, tuple[float, str, str]]] = {}


def _ceilings(hardware: list[t.Any]) -> dict[str, tuple[float, str, str]]:
    """Return the ceilings of measurements on some hardware, by metric. Thousands of nodes are a few kinds; what somebody sends who is new
    each time is not kept for ever."""
    kind = repr(hardware)
    if kind not in _KNOWN_CEILINGS:
        if len(_KNOWN_CEILINGS) >= KINDS:
            _KNOWN_CEILINGS.clear()
        context = {key: value for key, value in zip(_HARDWARE, hardware, strict=True) if value is not None}
        limits = {metric: physics.ceiling(context, metric) for metric in physics.ABOVE}
        _KNOWN_CEILINGS[kind] = {metric: limit for metric, limit in limits.items() if limit is not None}
    return _KNOWN_CEILINGS[kind]


def _all(measurement: Measurement, metric: str) -> list[tuple[Reading, SeriesRow]]:
    """Return every number that a measurement has of a metric, each with its row of the series (empty for the measurement's own number)."""
    single = measurement.metrics.get(metric)
    readings: list[tuple[Reading, SeriesRow]] = []
    rows = [row for row in measurement.series if is_number(row.get(metric))] if measurement.series else []
    if rows:
        units = measurement.context.get("series_units")
        unit = str((units.get(metric) if isinstance(units, dict) else None) or (single and single.unit))
        readings = [
            (Reading(float(row[metric]), unit, int(row["size"]) if is_number(row.get("size")) else None), row) for row in rows
        ]
    if single is not None and is_number(single.value):
        readings.append((Reading(float(single.value), str(single.unit)), {}))
    return readings


def _above(metric: str, reading: Reading, ceiling: tuple[float, str, str]) -> Opinion | None:
    limit_value, unit, how = ceiling
    try:
        value = physics.convert(reading.value, reading.unit, unit)
    except ValueError:  # compare() says so
        return None
    if value <= limit_value:
        return None
    at = f" at {human(reading.size)}" if reading.size else ""
    cause = "fewer bytes moved, or fewer operations done, than the tool counted"
    if metric != "tflops" and value / 8 <= limit_value:
        cause = f"bits taken for bytes, or {cause}"
    reason = (
        f"{metric} {value:.5g} {unit}{at} is more than this hardware can give, {limit_value:.5g} ({how}): "
        f"a wrong unit, a run of something else, {cause}"
    )
    return Opinion("UNKNOWN", reason, "above_physics", value, unit, metric=metric)


def _too_soon(reading: Reading) -> Opinion | None:
    try:
        value = physics.convert(reading.value, reading.unit, "us")
    except ValueError:
        return None
    least_us = physics.LEAST_LATENCY_US
    if value >= least_us:
        return None
    reason = f"latency {value:.5g} us is less than a message needs to cross PCIe, {least_us:g} us: a wrong unit, or nothing was sent"
    return Opinion("UNKNOWN", reason, "above_physics", value, "us", metric="latency")


@functools.lru_cache(maxsize=KINDS)
def floors(expected: float, better: str = "higher") -> tuple[float, float]:
    """Return the values at which PASS ends and at which WARN ends."""
    ends = (expected / PASS_FROM, expected / WARN_FROM) if better == "lower" else (expected * PASS_FROM, expected * WARN_FROM)
    # By digits and not by decimals: a latency may be given in seconds.
    return float(f"{ends[0]:.9g}"), float(f"{ends[1]:.9g}")


def limits(expected: Expectation) -> tuple[float, float]:
    """Return the values at which PASS and WARN of an expectation end: its own, else those of its value."""
    usual_pass, usual_warn = floors(expected.value, expected.better)
    passes = usual_pass if expected.passes is None else expected.passes
    # A WARN is never stricter than a PASS.
    softer = max if expected.better == "lower" else min
    return passes, expected.warns if expected.warns is not None else softer(usual_warn, passes)


class Centre(t.NamedTuple):
    """The centre of the values of identical subjects: their median and their scatter around it (their MAD, widened for its error)."""

    median: float
    mad: float


def centre(values: t.Sequence[float]) -> Centre | None:
    """Return the centre of values; None if they are of too few subjects to say anything."""
    if len(values) <= NEIGHBOURS:
        return None
    median = statistics.median(values)
    if median <= 0:
        return None
    mad = statistics.median(abs(v - median) for v in values)
    return Centre(median, max((MAD_WIDER + MAD_FEW / len(values)) * mad, MAD_FLOOR * median))


def against_neighbours(value: float, of: Centre, better: str) -> str | None:
    """WARN or FAIL where `value` is far worse than those of identical subjects (its own is among them): by its share of their
    median, and by more than they scatter."""
    z = 0.6745 * (value - of.median) / of.mad
    share = value / of.median
    if better == "lower":
        share, z = (of.median / value if value > 0 else 0.0), -z
    if share >= PASS_FROM or z >= OUTLIER_Z:
        return None
    return "FAIL" if share < WARN_FROM else "WARN"


def against_siblings(value: float, siblings: t.Sequence[float]) -> tuple[str, float] | None:
    """WARN or FAIL, and the median of the other GPUs of its node, where `value` is 5 or 10 % below that."""
    if len(siblings) < SIBLINGS:
        return None
    median = statistics.median(siblings)
    if median <= 0 or value >= PASS_FROM * median:
        return None
    return ("FAIL" if value < WARN_FROM * median else "WARN"), median


def human(size: int) -> str:
    """1073741824 -> `1 GiB`."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size} B"


def accepts(expected: Expectation, measurement: Measurement, full_match: t.Mapping[str, t.Any] | None = None) -> str | None:
    """Return the first key in which a measurement's hardware contradicts an expectation, or None. What the measurement does not tell
    contradicts nothing. `full_match` is the match of which that of `expected` is a part."""
    context = dict(measurement.context)
    if measurement.stage:
        context["stage"] = measurement.stage
    if measurement.check:
        context["check"] = measurement.check
    usable = seen_by(full_match or expected.match, context)
    return mismatch({k: v for k, v in expected.match.items() if context.get(k) is not None}, usable)
