# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All loads at once on all GPUs of a node for hours, in legs: compute, memory, copies.

A leg is one run of the workload inside an evidence window. Behind each leg the probe leaves a checkpoint with what the leg has shown, so
that a soak that was interrupted, by a reboot too, goes on behind its last whole leg. Hours count in which the GPUs were loaded; what lies
between two legs is told as a gap.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import jsonlines, observation, reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import loaded_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import checkpoints, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import (
    host_memory,
    packing,
    tested_gpu,
)
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import soak as workload

# Read at import: a detached probe outlives the archive that Ansible runs it from.
SOURCES = {
    kind: packing.packed(*of.driver.memory, *of.driver.products, host_memory, *of.driver.api, tested_gpu, workload)
    for kind, of in registry.KINDS.items()
    if of.driver and of.driver.products
}
# The kinds of accelerators that are loaded.
KINDS = tuple(SOURCES)

LOAD, STEADINESS, COOLING, POWER, LOOPBACK = "load", "steadiness", "cooling", "power", "loopback"
CHECKS = (LOAD, STEADINESS, COOLING, POWER, LOOPBACK)
# Criteria that travel with the numbers, {option: unit}.
CRITERIA = {
    "jitter_percent": "percent", "temperature_spread": "C", "temperature_slots": "C", "temperature_fleet": "C",
    "throttled_percent": "percent", "power_percent": "percent", "errors": "errors", "reboots": "reboots",
}  # fmt: skip
# Rates of the samples, {name: unit}.
RATES = {"tflops": "TFLOPS", "memory": "GB/s", "h2d": "GB/s", "d2h": "GB/s", "peer": "GB/s"}
# Samples of the first seconds, in which GPUs heat up, say nothing of steadiness; of a short soak the first fifth.
WARM_UP_S, WARM_UP_SHARE = 300.0, 0.2
LEAST_SAMPLES = 5
# Samples, and those of them that have a value, must cover this share of the time under load: a part of it would stand for the rest.
COVERED_SHARE = 0.9
# GPUs heat up and cool down at different speeds: their temperatures are compared as means of ten minutes.
SPREAD_S = 600.0
# A curve has so many points at most, whatever the hours.
POINTS = 144
# A longer pause between two legs is a gap.
GAP_S = 60.0
# What a leg may take besides its load: contexts, patterns, data.
START_S = 300.0
# How much less than the hours asked for is enough: a lap ends when it ends.
SLACK_S, SLACK_SHARE = 5.0, 0.01

Record = t.Dict[str, t.Any]
Problem = t.Tuple[str, str, str]


def probe(params: Record, node: Node) -> t.Iterator[Record]:
    """Yield checkpoints, and for each check {"check": one of CHECKS, "variant": "hours=72"} an observation of the node and one of each
    GPU."""
    checks = [(c["check"], c["variant"]) for c in params["checks"]]
    snapshot = gpu.snapshot(node)
    simulated = bool(snapshot.get("simulated"))
    refusal = gpu.refusal(snapshot, params["gpu_count"], "load", params["mig"], KINDS, partial=True)
    if refusal:
        outcome, code, reason = refusal
        gpu_context = {"gpu": gpu.model(snapshot), "gpus": len(snapshot["gpus"])} if snapshot["gpus"] else {}
        for check, variant in checks:
            yield observation.failed(check, code, reason, outcome=outcome, variant=variant, simulated=simulated, context=gpu_context)
        return
    unpartitioned, aside = gpu.without_mig(snapshot)
    used = unpartitioned["gpus"]
    soak = Soak(params, used, gpu.kind(snapshot), checkpoints.name_of({"check": checks[0][0], "variant": checks[0][1]}))
    soak.take(node.checkpoints or [])
    ports = loaded_ports.LoadedPorts(params, node) if any(check == LOOPBACK for check, _variant in checks) else None
    soak.no_ports = ports.problem if ports else None
    while soak.unfinished():
        leg, snapshot = soak.leg(node, snapshot, ports)
        if node.checkpoints is not None:
            yield checkpoints.checkpoint(soak.name, len(soak.legs) - 1, leg=leg)
    for check, variant in checks:
        context = {
            "gpu": gpu.model({"gpus": used}), "gpus": len(used), "gpu_uuids": [g["uuid"] for g in used], "driver": snapshot.get("driver"),
            "machine": node.product(), "backend": soak.driver.library, "hours": params["hours"],
            "criteria": {name: params[name] for name in CRITERIA}, **({"set_aside": aside} if aside else {}),
        }  # fmt: skip
        common = {
            "variant": variant, "command": soak.argv, "tool_version": soak.version, "simulated": simulated or soak.simulated,
            "context": context, "started_at": observation.utc(soak.legs[0]["began"]), "duration_s": round(soak.span_s, 3),
        }  # fmt: skip
        yield from _READERS[check](soak, check, common)


def default_checks(params: Record) -> list[dict[str, str]]:
    """Return the checks of a call that names none."""
    checks = [check for check in CHECKS if check != LOOPBACK or params["loopback"]]
    return [{"check": check, "variant": observation.variant(hours=params["hours"])} for check in checks]


class Sample(t.NamedTuple):
    """A sample of one GPU over a minute or so: its time since the soak began, its rates, and the values of its sensors."""

    at_s: float
    took_s: float
    rates: t.Mapping[str, float]
    sensors: t.Mapping[str, t.Any]

    def value(self, name: str) -> float | None:
        """Return a rate or the value of a sensor."""
        value: t.Any = self.rates.get(name, self.sensors.get(name))
        return float(value) if jsonlines.numbers(value) else None


class Soak:
    """The legs of a soak, those of before an interruption too."""

    def __init__(self, params: Record, used: list[Record], kind: type[base.Accelerator], name: str) -> None:
        if kind.driver is None:
            raise ValueError(f"kind: found {kind.kind}, expected one whose driver's library is known")
        self.kind, self.driver = kind, kind.driver
        self.params, self.used, self.name = params, used, name
        self.wanted_s = 3600.0 * float(params["hours"])
        self.legs: list[Record] = []
        self.ended: Problem | None = None
        # Why no RDMA port is loaded.
        self.no_ports: Problem | None = None
        self.argv: list[str] = []
        self.raw = ""

    @property
    def uuids(self) -> list[str]:
        """The UUIDs of the GPUs, in the order of their places."""
        return [str(g["uuid"]) for g in self.used]

    @property
    def loaded_s(self) -> float:
        """Seconds in which all GPUs were loaded."""
        return float(sum(leg["loaded_s"] for leg in self.legs))

    @property
    def span_s(self) -> float:
        """Seconds from the beginning of the first leg to the end of the last one."""
        return self.starts()[-1] + float(self.legs[-1]["took_s"])

    @property
    def version(self) -> str | None:
        """The version of the driver of the GPUs."""
        return next((f"{self.driver.words} {leg['driver']}" for leg in self.legs if leg["driver"]), None)

    @property
    def simulated(self) -> bool:
        """Return True if a leg was simulated."""
        return any(leg["simulated"] for leg in self.legs)

    def take(self, memos: t.Sequence[Record]) -> None:
        """Take the legs of before an interruption, if they are of the same GPUs."""
        legs = [memo["leg"] for memo in memos if isinstance(memo.get("leg"), dict)]
        if legs and all(leg.get("uuids") == self.uuids for leg in legs):
            self.legs = legs
            # What ended the soak ended it: the legs that would follow cannot take it back.
            ended = legs[-1]["ended"]
            self.ended = (ended[0], ended[1], ended[2]) if ended else None

    def unfinished(self) -> bool:
        """Return True if another leg must follow."""
        return self.ended is None and self.loaded_s < self.wanted_s - min(SLACK_S, SLACK_SHARE * self.wanted_s)

    def leg(self, node: Node, snapshot: Record, ports: loaded_ports.LoadedPorts | None) -> tuple[Record, Record]:
        """Run one leg, with a load of the ports beside it; return its record and the state of the GPUs behind it."""
        params = self.params
        seconds = min(60.0 * params["leg_minutes"], self.wanted_s - self.loaded_s)
        options = {name: params[name] for name in ("sample_seconds", "mib", "memory_percent", "seed")}
        order = {"devices": self.uuids, "seconds": seconds, **options}
        # The workload travels on standard input; its name in the command line is what a person would type.
        self.argv = [node.python(params["python"]), "-", json.dumps(order)]
        with Window(node, snapshot) as window, ports.loaded(seconds) if ports else contextlib.nullcontext() as loaded:
            result = node.run(self.argv, timeout=seconds + START_S, stdin=SOURCES[self.kind.kind], env=params["env"], merge=False)
        output = LegOutput(result, self.used)
        self.ended = output.problem(seconds)
        self.raw = result.raw if self.ended else output.without_samples()
        simulated = observation.SIMULATED_MARK in result.out
        # A simulated workload has its own clock.
        last = self.legs[-1] if self.legs else None
        began = last["began"] + last["took_s"] if simulated and last else result.started_at
        leg = {
            "uuids": self.uuids, "began": round(began, 3), "took_s": round(output.loaded_s if simulated else result.duration_s, 3),
            "loaded_s": output.loaded_s, "boot": node.read("/proc/sys/kernel/random/boot_id") or session.boot_id(),
            "driver": output.driver, "simulated": simulated, "samples": output.samples(), "wrong": output.wrong(),
            "results": output.results(), "ended": self.ended, "ports": loaded.rows if loaded else [],
            "evidence": {**window.evidence(), "window": {}},
        }  # fmt: skip
        self.legs.append(leg)
        after = window.after if window.after.get("outcome") == "measured" else snapshot
        return leg, after

    # What the legs show --------------------------------------------------------------------------------------------

    def starts(self) -> list[float]:
        """Return the seconds from the beginning of the first leg to that of each. The clock of a node may be set back between two legs, by
        a reboot with a wrong one: no leg begins before the end of the leg ahead of it."""
        found: list[float] = []
        for number, leg in enumerate(self.legs):
            ended = found[-1] + self.legs[number - 1]["took_s"] if found else 0.0
            found.append(float(max(ended, leg["began"] - self.legs[0]["began"])))
        return found

    def samples(self, place: int) -> list[Sample]:
        """Return the samples of a GPU in the order of their times."""
        return [
            Sample(start + record["at_s"], record["took_s"], record["rates"], record["sensors"])
            for start, leg in zip(self.starts(), self.legs) for record in leg["samples"].get(str(place), [])
        ]  # fmt: skip

    def steady(self, place: int) -> list[Sample]:
        """Return the whole samples of a GPU behind the warm-up."""
        warm_up_s = min(WARM_UP_S, WARM_UP_SHARE * self.span_s)
        whole_s = 0.5 * self.params["sample_seconds"]
        return [sample for sample in self.samples(place) if sample.at_s >= warm_up_s and sample.took_s >= whole_s]

    def sampled_share(self, place: int) -> float:
        """Return the share of the time under load that the samples of a GPU cover."""
        return sum(sample.took_s for sample in self.samples(place)) / self.loaded_s if self.loaded_s else 0.0

    def curves(self, place: int) -> Record:
        """Return the course of a GPU in at most POINTS points: {"step_s", "tflops": [...], "temperature": [...], "power": [...]}, None
        where nothing was measured."""
        step_s = max(float(self.params["sample_seconds"]), self.span_s / POINTS)
        found: Record = {"step_s": round(step_s, 3)}
        by_point: dict[int, list[Sample]] = {}
        for sample in self.samples(place):
            by_point.setdefault(int((sample.at_s + sample.took_s / 2) / step_s), []).append(sample)
        for name, digits in (("tflops", 1), ("temperature", 1), ("power", 0)):
            found[name] = [_mean(by_point.get(point, []), name, digits) for point in range(max(by_point, default=-1) + 1)]
        return found

    def gaps(self) -> list[Record]:
        """Return the gaps between legs: {"at_h": hours since the soak began, "seconds", "rebooted": True if the node was started anew}."""
        found = []
        starts = self.starts()
        for start, before, next_start, behind in zip(starts, self.legs, starts[1:], self.legs[1:]):
            ended, rebooted = start + before["took_s"], before["boot"] != behind["boot"]
            if next_start - ended > GAP_S or rebooted:
                found.append({"at_h": round(ended / 3600, 2), "seconds": round(next_start - ended), "rebooted": rebooted})
        return found

    def evidence(self) -> Record:
        """Return the evidence of all legs as one."""
        unreadable = sorted({code for leg in self.legs for code in leg["evidence"].get("unreadable", [])})
        changes = self.merged([leg["evidence"].get("changes", []) for leg in self.legs])
        record = {"window": {}, "changes": changes, "unreadable": unreadable}
        health = self.legs[0]["evidence"].get("health")
        return {**record, "health": health} if health else record

    def merged(self, of_legs: list[list[Record]]) -> list[Record]:
        """Return the changes of all legs, each kind of a part once, with the first value before it and the last one after it, the hour in
        which it was first seen, in how many legs, and by how much it has grown."""
        changes: dict[tuple[str, str], Record] = {}
        for start, of_leg in zip(self.starts(), of_legs):
            hour = start / 3600
            for change in of_leg:
                key = str(change.get("code")), str(change.get("part"))
                known = changes.setdefault(key, {**change, "legs": 0, "first_h": round(hour, 2), "grown": 0})
                grown = (change.get("after") or 0) - (change.get("before") or 0)
                known.update(legs=known["legs"] + 1, after=change.get("after"), grown=known["grown"] + max(1, grown))
        for change in changes.values():
            change["text"] += f" (first in hour {change['first_h']:.1f}; in {change['legs']} of {len(self.legs)} legs)"
        return list(changes.values())

    def wrong(self, place: int) -> str | None:
        """Return what a GPU computed or copied wrong, in words; None if nothing."""
        count, first = 0, None
        for start, leg in zip(self.starts(), self.legs):
            result = leg["results"].get(str(place)) or {}
            records = leg["wrong"].get(str(place), [])
            count += max(len(records), int(result.get("wrong") or 0))
            if records and first is None:
                hour = start / 3600
                first = f"{records[0]['load']} in lap {records[0]['lap']} of the leg that began in hour {hour:.1f}: {records[0]['reason']}"
        if not count:
            return None
        return f"{count} results differ from those of the other laps; the first: {first or 'not told'}"

    def fingerprints(self, place: int) -> list[str]:
        """Return the results of the products of a GPU, each once."""
        found = {str((leg["results"].get(str(place)) or {}).get("fingerprint")) for leg in self.legs}
        return sorted(found - {"None"})


def _mean(samples: list[Sample], name: str, digits: int) -> float | None:
    values = [value for sample in samples for value in [sample.value(name)] if value is not None]
    return round(statistics.fmean(values), digits) if values else None


class LegOutput:
    """Records that the workload printed in one leg."""

    def __init__(self, result: t.Any, used: list[Record]) -> None:
        self.result, self.used = result, used
        self.records, self.rest = jsonlines.read(result.out)
        self.driver = next((r.get("driver") for r in self._records_of("ready")), None)
        results = self._records_of("result")
        loaded = [r["loaded_s"] for r in results if jsonlines.numbers(r.get("loaded_s"))]
        self.loaded_s = float(min(loaded)) if len(loaded) == len(used) else 0.0

    def _records_of(self, kind: str) -> list[Record]:
        return [r for r in self.records if r.get("kind") == kind]

    def _by_place(self, kind: str) -> t.Iterator[tuple[str, Record]]:
        for record in self._records_of(kind):
            place = record.get("device")
            if isinstance(place, int) and not isinstance(place, bool) and 0 <= place < len(self.used):
                yield str(place), record

    def samples(self) -> dict[str, list[Record]]:
        """Return {place: its samples}, without those whose numbers are none."""
        found: dict[str, list[Record]] = {}
        for place, record in self._by_place("sample"):
            rates = {name: record[name] for name in RATES if jsonlines.numbers(record.get(name)) and record[name] > 0}
            sensors = record.get("sensors")
            if jsonlines.numbers(record.get("after_s"), record.get("took_s")) and rates and isinstance(sensors, dict):
                one = {"at_s": record["after_s"], "took_s": record["took_s"], "rates": rates, "sensors": sensors}
                found.setdefault(place, []).append(one)
        return found

    def wrong(self) -> dict[str, list[Record]]:
        """Return {place: what was wrong}."""
        found: dict[str, list[Record]] = {}
        for place, record in self._by_place("wrong"):
            one = {"lap": record.get("lap"), "load": str(record.get("load")), "reason": str(record.get("reason"))[:300]}
            found.setdefault(place, []).append(one)
        return found

    def results(self) -> dict[str, Record]:
        """Return {place: its result}."""
        return {place: {name: r.get(name) for name in ("laps", "wrong", "fingerprint")} for place, r in self._by_place("result")}

    def without_samples(self) -> str:
        """Return what was printed besides the samples, which the observations have."""
        return "".join(line + "\n" for line in self.result.out.splitlines() if '"kind": "sample"' not in line)

    def problem(self, seconds: float) -> Problem | None:
        """Return why the leg did not load all GPUs for its time, as (outcome, reason code, reason); None if it did."""
        result = self.result
        if result.missing:
            return "error", "tool_missing", f"{result.argv[0]}: {result.missing}; set acceptance_python or soak_python"
        for fault in self._records_of("fault"):
            code, place = str(fault.get("code")), fault.get("device")
            known = isinstance(place, int) and not isinstance(place, bool) and 0 <= place < len(self.used)
            who = f"GPU {self.used[t.cast(int, place)]['index']}: " if known else ""
            return "error", code if code in reasons.ALL else "tool_failed", f"{who}{fault.get('reason')}"
        if result.timed_out:
            return "timeout", "timeout", f"a leg of {seconds:.0f} s did not end within {result.ended_after(seconds + START_S)}"
        if result.rc != 0:
            words = " ".join((result.err.split() or self.rest)[-40:])
            return "error", "tool_failed", f"the workload ended with status {result.rc}: {words}"
        if not self._records_of("end"):
            return "error", "incomplete_output", "the workload's output is cut: its last line is missing"
        silent = [g["index"] for place, g in enumerate(self.used) if str(place) not in self.results()]
        for place, of_gpu in self.results().items():
            counts = [of_gpu["laps"], of_gpu["wrong"]]
            if not all(isinstance(n, int) and not isinstance(n, bool) for n in counts) or counts[0] < 1 or counts[1] < 0:
                return "error", "bad_output", f"GPU {self.used[int(place)]['index']}: found {counts[0]} laps, {counts[1]} of them wrong"
            if not isinstance(of_gpu["fingerprint"], str):
                return "error", "bad_output", f"GPU {self.used[int(place)]['index']}: the workload did not print the result of its products"
        if silent or self.loaded_s <= 0:
            return "error", "bad_output", f"the workload printed no result of GPU {', '.join(map(str, silent)) or 'any time of load'}"
        if observation.SIMULATED_MARK not in result.out and self.loaded_s > result.duration_s:
            return "error", "bad_output", f"the workload says {self.loaded_s:.0f} s of load in {result.duration_s:.0f} s"
        return None


# Observations ----------------------------------------------------------------------------------------------------------------------------


def _uncovered(soak: Soak, place: int) -> str:
    """Return the sentence about samples that leave out too much of the time under load."""
    return f"its samples cover {100 * soak.sampled_share(place):.0f} % of the time under load, {100 * COVERED_SHARE:.0f} % are needed"


def _mostly(values: t.Sequence[t.Any], samples: t.Sequence[Sample]) -> bool:
    """Return True if enough of the samples have a value."""
    return len(values) >= max(LEAST_SAMPLES, COVERED_SHARE * len(samples))


def _metric(value: float, unit: str) -> Record:
    return {"value": round(value, 3), "unit": unit}


def _parts(soak: Soak, common: Record) -> t.Iterator[tuple[int, str, Record]]:
    """Yield (place, name in texts, fields of an observation) of each GPU."""
    for place, g in enumerate(soak.used):
        context = {**common["context"], "gpu": gpu.model({"gpus": [g]}), "gpu_uuids": [g["uuid"]]}
        yield place, f"GPU {g['index']}", {**common, "part": f"gpu/{g['uuid']}", "context": context}


def _load(soak: Soak, check: str, common: Record) -> t.Iterator[Record]:
    """Yield the rates of all loads, for how long they lasted, and whose results were not the same in every lap."""
    parts: list[Record] = []
    numbers: list[Record] = []
    for place, name, fields in _parts(soak, common):
        wrong, samples = soak.wrong(place), soak.samples(place)
        fingerprints = soak.fingerprints(place)
        if wrong is None and len(fingerprints) > 1:
            wrong = f"its products differ between legs: {', '.join(fingerprints)}"
        if wrong:
            parts.append(observation.failed(check, "wrong_results", f"{name}: {wrong}", **fields))
        elif not samples:
            parts.append(observation.failed(check, "no_sample", f"{name}: no sample of its rates", **fields))
        elif soak.sampled_share(place) < COVERED_SHARE:
            parts.append(observation.failed(check, "no_sample", f"{name}: {_uncovered(soak, place)}", **fields))
        else:
            rates = {rate: [s.rates[rate] for s in samples if rate in s.rates] for rate in RATES}
            metrics = {rate: _metric(statistics.median(values), RATES[rate]) for rate, values in rates.items() if values}
            fields["context"]["fingerprint"] = fingerprints[0] if fingerprints else None
            parts.append(observation.measured(check, metrics=metrics, **fields))
            numbers.append(metrics)
    gaps = soak.gaps()
    curves = [{"gpu": g["index"], **soak.curves(place)} for place, g in enumerate(soak.used)]
    boots = list(dict.fromkeys(leg["boot"] for leg in soak.legs))
    told = {"legs": len(soak.legs), "gaps": gaps, "loaded_h": round(soak.loaded_s / 3600, 3), "curves": curves}
    if len(boots) > 1:
        told["boots"] = boots  # soak_reboots judges these restarts
    context = {**common["context"], **told}
    fields = {**common, "context": context, "evidence": soak.evidence(), "raw": soak.raw}
    if soak.ended:
        outcome, code, reason = soak.ended
        yield observation.failed(check, code, f"after {soak.loaded_s / 3600:.2f} h under load: {reason}", outcome, **fields)
        yield from (part for part in parts if part["reason_code"] == "wrong_results")
        return
    metrics = {}
    if len(numbers) == len(soak.used):
        names = [name for name in numbers[0] if all(name in of for of in numbers)]
        metrics = {name: _metric(min(of[name]["value"] for of in numbers), RATES[name]) for name in names}
    yield observation.measured(check, members=[f"gpu/{uuid}" for uuid in soak.uuids], metrics=metrics, **fields)
    yield from parts


def _of_samples(
    soak: Soak, check: str, common: Record, read: t.Callable[[list[Sample]], Record | str], of_node: t.Callable[[list[Record]], Record]
) -> t.Iterator[Record]:
    """Yield what `read` makes of the steady samples of each GPU, metrics or the reason why there are none, and of the node what `of_node`
    makes of the metrics of all."""
    common = {**common, "context": {**common["context"], "comparable": False}}
    parts: list[Record] = []
    numbers: list[Record] = []
    for place, name, fields in _parts(soak, common):
        samples = soak.steady(place)
        found: Record | str = f"{len(samples)} whole samples behind the warm-up, {LEAST_SAMPLES} are needed: see soak_sample_seconds"
        if soak.sampled_share(place) < COVERED_SHARE:
            found = _uncovered(soak, place)
        elif len(samples) >= LEAST_SAMPLES:
            found = read(samples)
        if isinstance(found, str):
            parts.append(observation.failed(check, "no_sample", f"{name}: {found}", **fields))
        else:
            parts.append(observation.measured(check, metrics=found, **fields))
            numbers.append(found)
    if not numbers:
        yield observation.failed(check, "no_sample", "no GPU has the samples that it needs", **common)
        return
    metrics = of_node(numbers) if len(numbers) == len(soak.used) else {}
    # What was counted meanwhile is told of the load.
    evidence = {"window": {}, "changes": [], "unreadable": soak.evidence()["unreadable"]}
    yield observation.measured(check, members=[f"gpu/{uuid}" for uuid in soak.uuids], metrics=metrics, evidence=evidence, **common)
    yield from parts


def _steadiness(soak: Soak, check: str, common: Record) -> t.Iterator[Record]:
    """Yield how much the rate of the products varied from sample to sample."""

    def read(samples: list[Sample]) -> Record | str:
        rates = [sample.rates["tflops"] for sample in samples if "tflops" in sample.rates]
        if not _mostly(rates, samples):
            return f"no rates of its products in {len(samples) - len(rates)} of {len(samples)} samples"
        mean = statistics.fmean(rates)
        return {
            "jitter": _metric(100 * statistics.pstdev(rates) / mean, "percent"), "lowest": _metric(min(rates), "TFLOPS"),
            "mean": _metric(mean, "TFLOPS"),
        }  # fmt: skip

    def of_node(numbers: list[Record]) -> Record:
        return {"jitter": _metric(max(of["jitter"]["value"] for of in numbers), "percent")}

    yield from _of_samples(soak, check, common, read, of_node)


def _cooling(soak: Soak, check: str, common: Record) -> t.Iterator[Record]:
    """Yield how hot the GPUs became, and how far apart they were."""

    def read(samples: list[Sample]) -> Record | str:
        values = [value for sample in samples for value in [sample.value("temperature")] if value is not None]
        if not _mostly(values, samples):
            return f"its temperature cannot be read in {len(samples) - len(values)} of {len(samples)} samples"
        return {"temperature": _metric(statistics.fmean(values), "C"), "highest": _metric(max(values), "C")}

    # Not read before it is known that all GPUs have samples.
    windows: list[dict[int, float]] = []

    def of_node(numbers: list[Record]) -> Record:
        found = {"highest": _metric(max(of["highest"]["value"] for of in numbers), "C")}
        if len(numbers) > 1:
            windows.extend(_windows([soak.steady(place) for place in range(len(soak.used))]))
            found["spread"] = _metric(max(max(means.values()) - min(means.values()) for means in windows), "C")
        return found

    places = {f"gpu/{uuid}": place for place, uuid in enumerate(soak.uuids)}
    for observed in _of_samples(soak, check, common, read, of_node):
        place = places.get(observed["part"])
        if place is not None:
            observed["context"]["slot"] = soak.used[place]["index"]
        if place is not None and windows and observed["outcome"] == "measured":
            offsets = [means[place] - statistics.median(means.values()) for means in windows if place in means]
            observed["metrics"].update(most_above=_metric(max(offsets), "C"), most_below=_metric(min(offsets), "C"))
        yield observed


def _windows(of_gpus: list[list[Sample]]) -> list[dict[int, float]]:
    """Return the mean temperatures of the GPUs, by their places, in each SPREAD_S seconds of their steady samples."""
    begin, end = min(samples[0].at_s for samples in of_gpus), max(samples[-1].at_s for samples in of_gpus)
    last = max(1, int((end - begin) / SPREAD_S)) - 1
    windows: dict[int, dict[int, float]] = {}
    for place, samples in enumerate(of_gpus):
        values: dict[int, list[float]] = {}
        for sample in samples:
            value = sample.value("temperature")
            if value is not None:
                values.setdefault(min(last, int((sample.at_s - begin) / SPREAD_S)), []).append(value)
        for window, of_gpu in values.items():
            windows.setdefault(window, {})[place] = statistics.fmean(of_gpu)
    return list(windows.values())


def _power(soak: Soak, check: str, common: Record) -> t.Iterator[Record]:
    """Yield how much of their power limit the GPUs drew, how fast their clocks were, and how long they were held back."""

    def read(samples: list[Sample]) -> Record | str:
        values = {name: [s.value(name) for s in samples] for name in ("power", "power_limit", "sm_clock", "sm_clock_max")}
        means = {name: statistics.fmean([v for v in of if v is not None]) for name, of in values.items() if any(v is not None for v in of)}
        missing = [name for name, of in values.items() if not means.get(name) or not _mostly([v for v in of if v is not None], samples)]
        throttle = [sample.sensors.get("throttle") for sample in samples]
        if missing or not all(isinstance(of, dict) for of in throttle):
            return f"it does not tell its {', '.join(missing or ['reasons for lower clocks'])}"
        held = [_held(t.cast(Record, of), soak.driver.bad_throttle) for of in throttle]
        total_s = sum(sample.took_s for sample in samples)
        return {
            "power": _metric(means["power"], "W"), "share": _metric(100 * means["power"] / means["power_limit"], "percent"),
            "clock": _metric(means["sm_clock"], "MHz"), "clock_share": _metric(100 * means["sm_clock"] / means["sm_clock_max"], "percent"),
            "throttled": _metric(100 * sum(share * s.took_s for share, s in zip(held, samples)) / total_s, "percent"),
        }  # fmt: skip

    def of_node(numbers: list[Record]) -> Record:
        lowest = min(numbers, key=lambda of: float(of["share"]["value"]))
        return {**lowest, "throttled": _metric(max(of["throttled"]["value"] for of in numbers), "percent")}

    yield from _of_samples(soak, check, common, read, of_node)


def _held(shares: Record, bad: t.AbstractSet[str]) -> float:
    """Return the share of a sample in which a GPU was held back by anything but its power limit."""
    return max((float(share) for bit, share in shares.items() if bit in bad and jsonlines.numbers(share)), default=0.0)


def _loopback(soak: Soak, check: str, common: Record) -> t.Iterator[Record]:
    """Yield how fast the RDMA ports of the node reached themselves meanwhile; one that did not in a leg has no number."""
    common = {**common, "context": {**common["context"], "comparable": False}}
    rows = [row for leg in soak.legs for row in leg["ports"]]
    if soak.no_ports or not rows:
        outcome, code, reason = soak.no_ports or ("error", "no_sample", "no leg has loaded the ports")
        yield observation.failed(check, code, reason, outcome, **common)
        return
    names = sorted({row["part"] for row in rows})
    parts: list[Record] = []
    numbers: list[float] = []
    for name in names:
        of_port = [row for row in rows if row["part"] == name]
        bad = next((row for row in of_port if row["problem"]), None)
        fields = {**common, "part": name}
        if bad:
            outcome, code, reason = bad["problem"]
            count = sum(bool(row["problem"]) for row in of_port)
            parts.append(observation.failed(check, code, f"in {count} of {len(of_port)} legs: {reason}", outcome, **fields))
            continue
        if len(of_port) < len(soak.legs):
            reason = f"{name}: it was loaded in {len(of_port)} of {len(soak.legs)} legs"
            parts.append(observation.failed(check, "no_sample", reason, **fields))
            continue
        rates = [row["bandwidth"] for row in of_port]
        numbers.append(statistics.median(rates))
        metrics = {"bandwidth": _metric(numbers[-1], "Gb/s"), "lowest": _metric(min(rates), "Gb/s")}
        parts.append(observation.measured(check, metrics=metrics, **fields))
    metrics = {"bandwidth": _metric(min(numbers), "Gb/s")} if len(numbers) == len(names) else {}
    changes = soak.merged([[{**c, "part": row["part"]} for row in leg["ports"] for c in row["changes"]] for leg in soak.legs])
    evidence = {"evidence": {"window": {}, "changes": changes, "unreadable": []}}
    yield observation.measured(check, members=names, metrics=metrics, **{**common, **evidence})
    yield from parts


_READERS: dict[str, t.Callable[[Soak, str, Record], t.Iterator[Record]]] = {
    LOAD: _load, STEADINESS: _steadiness, COOLING: _cooling, POWER: _power, LOOPBACK: _loopback,
}  # fmt: skip
