# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `soak`: all loads at once on all GPUs for hours, by name only.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import majority
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import soak as probe
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Measurement,
    PlainData,
    PlanItem,
    Variables,
    Verdict,
    is_number,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Curve, Section, SectionChart
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Expected, Stage, too_short
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import INT_MAX, Range

# Where the default of each criterion comes from.
SOURCES = {
    "jitter_percent": "derived: minutes of a GPU at its power limit differ by less than 1 percent",
    # Identical GPUs differ in temperature under the same load (Sinha et al., Not All GPUs Are Created Equal, SC 2022), those behind
    # others in the stream of air always: two healthy H100 of one node by 7.6 C.
    "temperature_spread": "derived: GPUs with the same load and working fans, against their slots; this project's plan",
    "temperature_slots": "derived: twice the spread; no design of a tray excuses more",
    "temperature_fleet": "derived: identical machines in one hall; a rack's inlet air differs by a few degrees",
    "throttled_percent": "NVIDIA, nvmlClocksEventReasons; AMD, amd-smi: only the power limit belongs to a healthy GPU under full load",
    "power_percent": "derived: a GPU that nothing holds back draws its limit or runs at its highest clock",
    "errors": "none is what a healthy machine counts under load",
    "reboots": "none is what a healthy machine does by itself",
}
# A clock of at least this share of the highest is no clock that is held back.
CLOCK_PERCENT = 90.0
# Codes of evidence that are counted errors. Lower clocks are judged by the check of power, defects by the evidence itself.
COUNTED = frozenset((
    "ecc", "ecc_corrected", "remap", "pcie_replay", "nvlink_error", "link_errors", "host_memory", "host_memory_corrected", "xid", "xid_own",
    "xid_unknown",
))  # fmt: skip
# What decides which bits the products give.
SAME_BITS = ("gpu",)
# How many nodes' charts the report shows, those first that are worst, and how many nodes its table has.
SHOWN_NODES, SHOWN_ROWS = 3, 30
# Hours of shorter soaks, for runs with a time budget.
HOURS = (24, 8, 2, 0.5)
CHARTS = {"temperature": ("Temperature", "C"), "power": ("Power", "W"), "tflops": ("Products", "TFLOPS")}


class Soak(Stage):
    name = "soak"
    role = "gpufleet.acceptance.soak"
    place = 90
    # No table has rates of mixed loads: they are held to those of the GPUs of the node and of identical machines, the rest to criteria.
    conditions = frozenset(probe.CHECKS)
    devices = True
    sees_all_gpus = True
    continues = True
    requestable = ("hours", "loopback")
    must_request = ("hours",)
    sees: t.Mapping[str, tuple[str, ...]] = {
        "compute": (probe.LOAD, probe.STEADINESS), "device_memory": (probe.LOAD,), "pcie": (probe.LOAD,),
        "thermal": (probe.COOLING, probe.POWER), "nic": (probe.LOOPBACK,),
    }  # fmt: skip
    ranges: t.Mapping[str, Range] = {
        "hours": Range(0, 8784, "hours", above=True), "leg_minutes": Range(0, 1440, "minutes", above=True),
        "sample_seconds": Range(1, 3600, "seconds"), "mib": Range(16, 4096, "MiB"), "memory_percent": Range(1, 95, "percent"),
        "jitter_percent": Range(0, 100, "percent"), "temperature_spread": Range(0, 100, "C"), "temperature_slots": Range(0, 100, "C"),
        "temperature_fleet": Range(0, 100, "C"), "throttled_percent": Range(0, 100, "percent"), "power_percent": Range(0, 100, "percent"),
        "errors": Range(0, INT_MAX), "reboots": Range(0, INT_MAX),
    }  # fmt: skip

    def lacks(self, fault: str, measurement: Measurement) -> str | None:
        return too_short(fault, measurement.duration_s) or super().lacks(fault, measurement)

    def problem(self, settings: Variables) -> str | None:
        hours, timeout = float(settings["soak_hours"]), float(settings["soak_timeout"])
        if timeout <= 3600 * hours:
            return f"soak_timeout: found {timeout:g}, expected more than {3600 * hours:g}: soak_hours, and time to begin and to end"
        return None

    def seconds(self, settings: Variables, nodes: int, launch_s: float, gbps: float) -> float:
        return 3600 * float(settings["soak_hours"])

    def shorter(self, settings: Variables) -> t.Sequence[t.Mapping[str, t.Any]]:
        return [{"hours": hours} for hours in HOURS if hours < float(settings["soak_hours"])]

    def complete(self, items: list[PlanItem], remaining: t.AbstractSet[Key]) -> t.AbstractSet[Key]:
        """Return all checks of a node of which one is left: they are of the same hours."""
        nodes = {key.subject for key in remaining if key.stage == self.name}
        return {item.key for item in items if item.subject.id in nodes}

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion] | Blame]:
        """Hold the numbers to the criteria that travelled with them, the temperatures to those of identical GPUs, and the products to
        those of all GPUs of the same model."""
        mine = {key: m for key, m in deciding.items() if m.stage == self.name and m.outcome == "measured"}
        for key, m in mine.items():
            if key.check in _JUDGES:
                yield from ((key, one) for one in _JUDGES[key.check](m))
        fleet = _by_slot(mine)
        yield from _apart(mine, fleet)
        yield from _hotter(mine, fleet)
        yield from _odd(mine)

    def sections(self, rows: list[tuple[Verdict, Measurement]]) -> list[Section]:
        """Return a table of the nodes, the worst first, and the courses of the worst ones."""
        by_node: dict[str, list[tuple[Verdict, Measurement]]] = collections.defaultdict(list)
        for verdict, m in rows:
            if m.stage == self.name:
                by_node[node_of(m.subject.id)].append((verdict, m))
        if not by_node:
            return []
        worst = {node: max(bands.SEVERITY[verdict.verdict] for verdict, _m in of_node) for node, of_node in by_node.items()}
        order = sorted(by_node, key=lambda node: (-worst[node], -_spread(by_node[node]), node))
        table = [[node, *_row(by_node[node])] for node in order[:SHOWN_ROWS]]
        said = [f"Nodes under all loads at once, the worst first; the first {SHOWN_ROWS}, and the courses of the first {SHOWN_NODES}."]
        charts = [chart for node in order[:SHOWN_NODES] for chart in _charts(node, by_node[node])]
        columns = ["node", "hours", "gaps", "jitter (%)", "highest (C)", "spread (C)", "power (W)", "held back (%)"]
        return [{"title": "Soak", "said": said, "columns": columns, "rows": table, "charts": charts}]


def _criterion(m: Measurement, name: str) -> float | None:
    criteria = m.context.get("criteria")
    value = criteria.get(name) if isinstance(criteria, dict) else None
    return float(value) if is_number(value) else None


def _number(m: Measurement, metric: str) -> float | None:
    found = m.metrics.get(metric)
    return float(found.value) if found is not None and is_number(found.value) else None


def _above(m: Measurement, metric: str, criterion: str, code: str, words: str, more: str = "") -> t.Iterator[Opinion]:
    """Yield a FAIL if a metric is above a criterion, UNKNOWN if one of the two is missing. `more` ends the sentence of the FAIL."""
    value, most = _number(m, metric), _criterion(m, criterion)
    if value is None or most is None:
        yield Opinion("UNKNOWN", f"{metric} or soak_{criterion} is missing", "no_number", metric=metric)
    elif value > most:
        unit = m.metrics[metric].unit
        reason = f"{words} {value:.4g} {unit}, more than soak_{criterion} {most:g}{more}"
        yield Opinion("FAIL", reason, code, value, unit, most, source=SOURCES[criterion], metric=metric)


def _judge_load(m: Measurement) -> t.Iterator[Opinion]:
    """Judge what a node counted while it was loaded, and its gaps."""
    if m.subject.kind != "node":
        return
    gaps, reboots, errors = m.context.get("gaps"), _criterion(m, "reboots"), _criterion(m, "errors")
    if not isinstance(gaps, list) or reboots is None or errors is None:
        yield Opinion("UNKNOWN", "the gaps of the soak or its criteria are missing", "no_number")
        return
    rebooted = [gap for gap in gaps if gap.get("rebooted")]
    if len(rebooted) > reboots:
        when = ", ".join(f"{gap.get('at_h')}" for gap in rebooted[:5])
        times = f"{len(rebooted)} times" if len(rebooted) > 1 else "once"
        reason = f"the node was started anew {times} (hour {when}), more often than soak_reboots {reboots:g}"
        yield Opinion("FAIL", reason, "rebooted", float(len(rebooted)), "count", reboots, source=SOURCES["reboots"])
    stopped = [f"hour {gap.get('at_h')}: {gap.get('seconds')} s" for gap in gaps if not gap.get("rebooted")]
    if stopped:
        yield Opinion("PASS", "the load paused", findings=[f"the load paused: {', '.join(stopped[:5])}"])
    yield from _counted(m, errors)


def _counted(m: Measurement, errors: float) -> t.Iterator[Opinion]:
    """Yield a FAIL for each kind of errors of which more were counted than the criterion allows."""
    changes = m.evidence.get("changes")
    for change in changes if isinstance(changes, list) else ():
        code, grown = change.get("code"), change.get("grown")
        if code in COUNTED and is_number(grown) and grown > errors:
            reason = f"{change.get('text')}; more than soak_errors {errors:g}"
            yield Opinion("FAIL", reason, "errors_counted", float(grown), "count", errors, source=SOURCES["errors"])


def _judge_steadiness(m: Measurement) -> t.Iterator[Opinion]:
    if m.metrics:
        yield from _above(m, "jitter", "jitter_percent", "unsteady", "the rate of its products varied by")


def _judge_loopback(m: Measurement) -> t.Iterator[Opinion]:
    """Judge the errors that ports counted while they were loaded."""
    errors = _criterion(m, "errors")
    if errors is None:
        yield Opinion("UNKNOWN", "soak_errors is missing", "no_number")
    else:
        yield from _counted(m, errors)


def _judge_power(m: Measurement) -> t.Iterator[Opinion]:
    if not m.metrics:
        return
    yield from _above(m, "throttled", "throttled_percent", "throttled", "it was held back by something else than its power limit for")
    share, clock, least = _number(m, "share"), _number(m, "clock_share"), _criterion(m, "power_percent")
    if share is None or clock is None or least is None:
        yield Opinion("UNKNOWN", "power, clock or soak_power_percent is missing", "no_number", metric="share")
    elif share < least and clock < CLOCK_PERCENT:
        reason = (
            f"it drew {share:.4g} % of its power limit at {clock:.4g} % of its highest clock, and names no reason; "
            f"soak_power_percent is {least:g}"
        )
        yield Opinion("FAIL", reason, "power_unused", share, "percent", least, source=SOURCES["power_percent"], metric="share")


_JUDGES: dict[str, t.Callable[[Measurement], t.Iterator[Opinion]]] = {
    probe.LOAD: _judge_load, probe.STEADINESS: _judge_steadiness, probe.POWER: _judge_power, probe.LOOPBACK: _judge_loopback,
}  # fmt: skip


# Of two GPUs on either side of what is usual none stands out if one is more than this share as far from it as the other.
ALIKE = 0.7

# What nodes have in common whose GPUs are cooled alike, and a slot; None if the node did not tell it.
Slot = t.Tuple[str, t.Any]
# {slot: {GPU: its mean temperature}}
Fleet = t.Dict[Slot, t.Dict[Key, float]]


def _slot(m: Measurement) -> Slot:
    context = m.context
    return str((context.get("machine"), context.get("gpu"), context.get("gpus"), m.simulated)), context.get("slot")


def _by_slot(mine: t.Mapping[Key, Measurement]) -> Fleet:
    fleet: Fleet = collections.defaultdict(dict)
    for key, m in mine.items():
        value = _number(m, "temperature")
        if key.check == probe.COOLING and m.subject.kind == "gpu" and value is not None:
            fleet[_slot(m)][key] = value
    return fleet


def _slot_offsets(fleet: Fleet) -> dict[Slot, float]:
    """Return how much warmer than the median of its node a GPU in each slot is, as the median of more than bands.NEIGHBOURS nodes; slots of
    which fewer nodes were measured are missing."""
    by_node: dict[str, list[float]] = collections.defaultdict(list)
    for of_slot in fleet.values():
        for key, value in of_slot.items():
            by_node[node_of(key.subject)].append(value)
    medians = {node: statistics.median(values) for node, values in by_node.items()}
    return {
        slot: statistics.median(value - medians[node_of(key.subject)] for key, value in of_slot.items())
        for slot, of_slot in fleet.items() if slot[1] is not None and len(of_slot) > bands.NEIGHBOURS
    }  # fmt: skip


class _Ends(t.NamedTuple):
    """How much hotter and cooler than usual in its slot a GPU was in any ten minutes, both against the median of its node. If what is usual
    there is not known (`is_usual_known`), nothing is subtracted."""

    above: float
    below: float
    gpu: t.Any
    is_usual_known: bool

    def off(self, centre: float) -> float:
        """Return how far its end that is further from `centre` is from it."""
        above, below = self.above - centre, self.below - centre
        return above if above >= -below else below


def _ends(m: Measurement, offsets: t.Mapping[Slot, float]) -> _Ends | None:
    """Return the ends of a GPU, None if they are not known."""
    above, below, offset = _number(m, "most_above"), _number(m, "most_below"), offsets.get(_slot(m))
    if above is None or below is None:
        return None
    return _Ends(above - (offset or 0.0), below - (offset or 0.0), m.context.get("slot"), offset is not None)


def _apart(mine: t.Mapping[Key, Measurement], fleet: Fleet) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield a FAIL for each node of which a GPU is hotter or cooler than the others, each against what is usual in its slot. If that is not
    known, the whole spread counts."""
    offsets = _slot_offsets(fleet)
    by_node: dict[str, list[_Ends | None]] = collections.defaultdict(list)
    for of_slot in fleet.values():
        for key in of_slot:
            by_node[node_of(key.subject)].append(_ends(mine[key], offsets))
    of_others = _against_others(fleet)
    for key, m in mine.items():
        if key.check == probe.COOLING and m.subject.kind == "node" and "spread" in m.metrics:
            yield from ((key, opinion) for opinion in _judge_spread(m, by_node[key.subject], of_others.get(key.subject, {})))


def _against_others(fleet: Fleet) -> dict[str, dict[t.Any, float]]:
    """Return {node: {slot of a GPU: how much its mean temperature is off the median of that slot in other nodes of the same product}}."""
    found: dict[str, dict[t.Any, float]] = collections.defaultdict(dict)
    for (_product, slot), of_slot in fleet.items():
        for key, value in of_slot.items():
            others = [other for of, other in of_slot.items() if node_of(of.subject) != node_of(key.subject)]
            if others and slot is not None:
                found[node_of(key.subject)][slot] = value - statistics.median(others)
    return found


def _judge_spread(m: Measurement, ends: t.Sequence[_Ends | None], of_others: t.Mapping[t.Any, float]) -> t.Iterator[Opinion]:
    known = [end for end in ends if end is not None]
    most = _criterion(m, "temperature_spread")
    if most is None or len(known) < max(2, len(ends)) or not all(end.is_usual_known for end in known):
        words = "what is usual in its slots is not known, and its GPUs were apart by"
        is_whole = most is not None and len(known) == len(ends) > 1
        odd = f"; {_odd_ones(known, 'the median of its node', of_others, most or 0.0)}" if is_whole else ""
        yield from _above(m, "spread", "temperature_spread", "temperature", words, odd)
        return
    spread = max(end.above for end in known) - min(end.below for end in known)
    if spread > most:
        odd = _odd_ones(known, "what is usual in its slot", of_others, most)
        reason = f"{odd}; {spread:.1f} C apart, more than soak_temperature_spread {most:g}"
        source = SOURCES["temperature_spread"]
        yield Opinion("FAIL", reason, "temperature", round(spread, 3), "C", most, source=source, metric="spread")
    else:
        words = "the same slots are hot in all nodes; its GPUs were apart by"
        yield from _above(m, "spread", "temperature_slots", "temperature", words)


def _odd_ones(ends: t.Sequence[_Ends], usual: str, of_others: t.Mapping[t.Any, float], most: float) -> str:
    """Return which GPUs differ, by the same slots of other nodes if these tell, else by those of their own node. `most` is the criterion:
    half of it is no noise."""
    off = {end.gpu: of_others[end.gpu] for end in ends if end.gpu in of_others}
    largest = max(map(abs, off.values()), default=0.0)
    odd = [gpu for gpu, value in off.items() if abs(value) > ALIKE * largest]
    if len(off) < len(ends) or largest < most / 2 or len(odd) == len(off):
        return _odd_one(ends, usual)
    names = [f"GPU {gpu}" for gpu in sorted(odd, key=str)]
    who = f"{', '.join(names[:-1])} and {names[-1]} were" if len(names) > 1 else f"{names[0]} was"
    good = [value for gpu, value in off.items() if gpu not in odd]
    return f"{who} {_span([off[gpu] for gpu in odd])} C off the same slots of other nodes, the others {_span(good)} C"


def _span(values: t.Sequence[float]) -> str:
    least, largest = (f"{round(value, 1) + 0.0:+.1f}" for value in (min(values), max(values)))
    return least if least == largest else f"{least} to {largest}"


def _odd_one(ends: t.Sequence[_Ends], usual: str) -> str:
    """Return which GPU differs from what is usual, and by how much: the hotter one or the cooler one. The others are not named, since the
    parts that a finding names are where somebody looks. If two GPUs differ about as much, as where there are only two, both are named.

    Where half of the slots are warm, one hot GPU moves the median of its node by some degrees, and all others seem cool. So the GPUs are
    held to the middle of their own differences."""
    centre = statistics.median((end.above + end.below) / 2 for end in ends)
    first = max(ends, key=lambda end: abs(end.off(centre)))
    off, others = first.off(centre), [end for end in ends if end is not first]
    lowest, highest = min(others, key=lambda end: end.below), max(others, key=lambda end: end.above)
    against, other_off = (lowest, lowest.below - centre) if off > 0 else (highest, highest.above - centre)
    if off * other_off < 0 and abs(other_off) > ALIKE * abs(off):
        pair = " and ".join(f"GPU {gpu} was {value:+.1f} C" for gpu, value in ((first.gpu, off), (against.gpu, other_off)))
        return f"{pair} off {usual}, and neither stands out"
    return f"GPU {first.gpu} was {off:+.1f} C off {usual}, the others {lowest.below - centre:+.1f} to {highest.above - centre:+.1f} C"


def _hotter(mine: t.Mapping[Key, Measurement], fleet: Fleet) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield a WARN for each GPU that is hotter than the median of the GPUs in its slot, its own among them, if more than bands.NEIGHBOURS
    nodes were measured."""
    for values in fleet.values():
        if len({node_of(key.subject) for key in values}) <= bands.NEIGHBOURS:
            continue
        median = statistics.median(values.values())
        for key, value in values.items():
            most = _criterion(mine[key], "temperature_fleet")
            if most is not None and value > median + most:
                reason = f"{value:.4g} C, the median of the GPUs in its slot is {median:.4g}; soak_temperature_fleet is {most:g}"
                limit = median + most
                source = SOURCES["temperature_fleet"]
                yield key, Opinion("WARN", reason, "temperature", value, "C", limit, source=source, metric="temperature", expected=median)


def _odd(mine: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield a FAIL for each GPU whose products differ from those of the majority of its model."""
    alike: dict[tuple[str, ...], dict[Key, str]] = collections.defaultdict(dict)
    for key, m in mine.items():
        bits = m.context.get("fingerprint")
        if key.check == probe.LOAD and m.subject.kind == "gpu" and isinstance(bits, str):
            alike[(str(m.simulated), *(str(m.context.get(name)) for name in SAME_BITS))][key] = bits
    for results in alike.values():
        ruling = majority.ruling({key.subject: [bits] for key, bits in results.items()})
        for key in results:
            if ruling.unresolved:
                yield key, Opinion("UNKNOWN", f"GPUs of this run do not compute the same: {ruling.unresolved[:600]}", "unresolved")
            elif key.subject in ruling.odd:
                yield key, Opinion("FAIL", ruling.odd[key.subject], "wrong_results")


# The report ------------------------------------------------------------------------------------------------------------------------------


def _spread(rows: list[tuple[Verdict, Measurement]]) -> float:
    return max((value for _v, m in rows for value in [_number(m, "spread")] if value is not None), default=0.0)


def _row(rows: list[tuple[Verdict, Measurement]]) -> list[str]:
    """Return the cells of a node."""
    of_node = {m.check: m for _verdict, m in rows if m.subject.kind == "node"}

    def cell(check: str, metric: str, digits: int) -> str:
        value = _number(of_node[check], metric) if check in of_node else None
        return "" if value is None else f"{value:.{digits}f}"

    load = of_node.get(probe.LOAD)
    hours, gaps = (load.context.get("loaded_h"), load.context.get("gaps")) if load else (None, None)
    return [
        f"{hours:.2f}" if is_number(hours) else "", str(len(gaps)) if isinstance(gaps, list) else "",
        cell(probe.STEADINESS, "jitter", 2), cell(probe.COOLING, "highest", 0), cell(probe.COOLING, "spread", 1),
        cell(probe.POWER, "power", 0), cell(probe.POWER, "throttled", 2),
    ]  # fmt: skip


def _charts(node: str, rows: list[tuple[Verdict, Measurement]]) -> t.Iterator[SectionChart]:
    """Yield the courses of temperature, power and TFLOPS of a node's GPUs."""
    load = next((m for _verdict, m in rows if m.check == probe.LOAD and m.subject.kind == "node"), None)
    if load is None:
        return
    gaps, courses = load.context.get("gaps"), load.context.get("curves")
    moments = [
        [gap.get("at_h"), "rebooted" if gap.get("rebooted") else "paused"]
        for gap in (gaps if isinstance(gaps, list) else []) if is_number(gap.get("at_h"))
    ]  # fmt: skip
    worst = max((verdict.verdict for verdict, _m in rows), key=lambda verdict: bands.SEVERITY[verdict])
    for name, (title, unit) in CHARTS.items():
        curves = [curve for course in (courses if isinstance(courses, list) else []) for curve in _curve(course, name)]
        if curves:
            yield {
                "title": title, "x": "hours", "y": unit, "curves": curves, "moments": moments, "of": node, "verdict": worst,
                "simulated": load.simulated,
            }  # fmt: skip


def _curve(course: PlainData, name: str) -> t.Iterator[Curve]:
    """Yield the curve of a GPU, if it has numbers of this name."""
    step_s, values = course.get("step_s"), course.get(name)
    if not is_number(step_s) or not isinstance(values, list):
        return
    points = [(round(step_s * (at + 0.5) / 3600, 4), value) for at, value in enumerate(values) if is_number(value)]
    if points:
        yield {"name": f"GPU {course.get('gpu')}", "x": [x for x, _y in points], "y": [y for _x, y in points]}


STAGE = Soak()
