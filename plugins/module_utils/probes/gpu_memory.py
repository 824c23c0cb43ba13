# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies between host and GPUs, between GPUs and inside their memory, and a test of that memory.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, board_memory, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import jsonlines, observation, reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nvbandwidth
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import gpu_memory as workload
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import (
    host_memory,
    packing,
    tested_gpu,
)

# Read at import: a detached probe outlives the archive that Ansible runs it from.
SOURCES = {
    kind: packing.packed(*of.driver.memory, host_memory, *of.driver.api, tested_gpu, workload)
    for kind, of in registry.KINDS.items()
    if of.driver
}
# The kinds of accelerators that are measured.
KINDS = tuple(SOURCES)

BETWEEN = ("h2d", "d2h", "bidirectional")
TOGETHER = tuple(f"{check}_all" for check in BETWEEN)
INSIDE = ("device", "pattern")
# Both directions at once: on healthy machines the one to the GPU differs by 20 to 40 % from call to call and from GPU to GPU (IOMMU, the
# host's memory), so that no GPU is held to another one.
UNSTEADY = ("bidirectional", "bidirectional_all")
# Copies between GPUs.
PEERS = ("peer", "peer_all")
CHECKS = (*BETWEEN, *TOGETHER, "numa", *PEERS, "device", "latency", "pattern")
# Checks that need several GPUs.
SEVERAL = (*TOGETHER, *PEERS)
# Of the memory that a GPU has so much must have been tested (percent). What a driver reserves and the test's own context take 1 to 3 %.
LEAST_TESTED = 95.0

Problem = t.Tuple[str, str, str]


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Yield, for each check {"check": one of CHECKS, "variant": ""}, an observation of the node with the number of its slowest GPU, and
    one of each GPU.

    Metrics: `bandwidth` in GB/s of one direction (`device`: bytes read and written), of `bidirectional` that of the slower direction;
    `latency` in us; `tested` in percent of the memory that the GPU has (board_memory.py).
    """
    checks = [(c["check"], c["variant"]) for c in params["checks"]]
    snapshot = gpu.snapshot(node)
    simulated = bool(snapshot.get("simulated"))
    refusal = gpu.refusal(snapshot, params["gpu_count"], "copies", params["mig"], KINDS, partial=True)
    if refusal:
        outcome, code, reason = refusal
        gpu_context = {"gpu": gpu.model(snapshot), "gpus": len(snapshot["gpus"])} if snapshot["gpus"] else {}
        for check, variant in checks:
            yield observation.failed(check, code, reason, outcome=outcome, variant=variant, simulated=simulated, context=gpu_context)
        return
    kind = gpu.kind(snapshot)
    unpartitioned, aside = gpu.without_mig(snapshot)
    used = unpartitioned["gpus"]
    requested = [check for check, _variant in checks if not (check in SEVERAL and len(used) == 1)]
    second = [check for check in requested if check in nvbandwidth.TESTS] if params["tool"] == "nvbandwidth" else []
    order = {
        "devices": [str(g["uuid"]) for g in used],
        "checks": [check for check in requested if check not in second],
        **{name: params[name] for name in ("mib", "copies", "passes", "seed")},
    }
    # The workload travels on standard input; its name in the command line is what a person would type.
    argv = [node.python(params["python"]), "-", json.dumps(order)]
    with Window(node, snapshot) as window:
        result = node.run(argv, timeout=params["test_timeout"], stdin=SOURCES[kind.kind], env=params["env"], merge=False)
        output = MemoryOutput(result, used, kind)
        for place, generation, width in output.links():
            window.under_load(used[place]["uuid"], {"pcie_gen": generation, "pcie_width": width})
        second_tool = nvbandwidth.NvbandwidthRun(node, params, second, used) if second else None
    output.after = {g["uuid"]: g for g in window.after.get("gpus", [])}
    common = {
        "command": argv, "evidence": window.evidence(), "tool_version": output.version,
        "simulated": simulated or observation.SIMULATED_MARK in result.out,
    }  # fmt: skip
    ended = output.ended(params)
    machine = node.product()
    for number, (check, variant) in enumerate(checks):
        context = {
            **_hardware(check, used, kind, machine), "machine": machine, "gpus": len(used), "gpu_uuids": [g["uuid"] for g in used],
            "driver": snapshot.get("driver"), "backend": output.driver.library, **({"set_aside": aside} if aside else {}),
        }  # fmt: skip
        check_fields = {**common, "variant": variant, "context": context, **output.when(kind="time", check=check)}
        if second_tool and check in second:
            check_fields.update(command=second_tool.argv, tool_version=second_tool.version)
            yield from _of_second(check, second_tool, output, used, check_fields, params["test_timeout"])
            continue
        skipped = _skipped(check, output, used)
        raw = result.raw if number == 0 else result.out
        # Results from before a hang or a crash are valid.
        stands = (result.timed_out or result.rc != 0) and output.of(kind="time", check=check)
        problem = skipped or (None if stands else ended)
        if problem:
            outcome, code, reason = problem
            yield observation.failed(check, code, reason, outcome, raw=raw, **check_fields)
            yield from _wrong_parts(check, output, used, check_fields)
        else:
            yield from _observations(check, output, used, check_fields, raw)


def _of_second(
    check: str, second_tool: nvbandwidth.NvbandwidthRun, output: MemoryOutput, used: list[PlainData], common: PlainData, timeout: float
) -> t.Iterator[PlainData]:
    """Yield the observations of a check that nvbandwidth measured."""
    common["context"] = {**common["context"], "backend": "nvbandwidth"}
    problem = second_tool.problem(timeout)
    if problem:
        outcome, code, reason = problem
        yield observation.failed(check, code, reason, outcome, raw=second_tool.result.raw, **common)
        return
    metric, unit = ("latency", "us") if check == "latency" else ("bandwidth", "GB/s")
    parts: list[PlainData] = []
    numbers: list[PlainData] = []
    for place, g in enumerate(used):
        context = {**common["context"], **_hardware(check, [g], output.kind, common["context"]["machine"]), "gpu_uuids": [g["uuid"]]}
        gpu_fields = {**common, "evidence": {}, "part": f"gpu/{g['uuid']}", "context": context}
        values = second_tool.of(check, place)
        if values is None:
            reason = f"nvbandwidth printed no number of {check} for GPU {g['index']}"
            parts.append(observation.failed(check, "bad_output", reason, **gpu_fields))
            continue
        numbers.append({metric: _metric(min(values), unit)})
        parts.append(observation.measured(check, metrics=numbers[-1], **gpu_fields))
    metrics = _slowest(numbers) if len(numbers) == len(used) else {}
    members = [f"gpu/{g['uuid']}" for g in used]
    yield observation.measured(check, members=members, metrics=metrics, raw=second_tool.result.out, **common)
    yield from parts


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the checks of a call that names none."""
    return [{"check": check, "variant": ""} for check in params["tests"]]


def _hardware(check: str, gpus: t.Sequence[PlainData], kind: type[base.Accelerator], machine: str = "") -> PlainData:
    """Return the context that expectations are chosen by: the model, and where the host takes part the PCIe link of GPUs and slots. Which
    link the slowest of them should have its peers show the controller: GPUs of its model, and the same place in machines of the product."""
    context: PlainData = {"gpu": gpu.model({"gpus": gpus})}
    if check in UNSTEADY:
        context["comparable"] = False
    if check in (*INSIDE, *PEERS):
        return context
    links = [kind.host_link(g) for g in gpus]
    generations, widths = ([number for link in links if link for number in [link[at]] if number] for at in (0, 1))
    if len(generations) == len(widths) == len(gpus):
        rates = [width * 2**generation for generation, width in zip(generations, widths)]  # each generation has twice the rate
        slowest = rates.index(min(rates))
        link = {"pcie_gen": generations[slowest], "pcie_width": widths[slowest]}
        of = {"model": context["gpu"], "machine": machine, "place": str(gpus[slowest].get("index"))}
        context.update(link, of_peers={"link": {**of, "now": min(rates), "sets": link}})
    return context


def _skipped(check: str, output: MemoryOutput, used: list[PlainData]) -> Problem | None:
    """Return why a check does not apply to the node, as (outcome, reason code, reason); None if it does."""
    if check in SEVERAL and len(used) == 1:
        return "not_applicable", "one_gpu", f"{check} is of several GPUs, and the node has one"
    if check == "numa" and len(output.numa) == 1:
        return "not_applicable", "one_numa_node", "all memory of the machine is on one NUMA node"
    return None


class MemoryOutput:
    """Records that the workload printed, by check and GPU."""

    def __init__(self, result: t.Any, used: list[PlainData], kind: type[base.Accelerator]) -> None:
        if kind.driver is None:
            raise ValueError(f"kind: found {kind.kind}, expected one whose driver's library is known")
        self.kind, self.driver = kind, kind.driver
        self.result = result
        self.used = used
        # The GPUs as they are behind the test, by UUID.
        self.after: dict[t.Any, PlainData] = {}
        self.records, self.rest = jsonlines.read(result.out)
        ready: PlainData = next(iter(self.of(kind="ready")), {})
        self.version = f"{self.driver.words} {ready['driver']}" if ready.get("driver") else None
        self.numa = ready["numa"] if isinstance(ready.get("numa"), list) else []

    def of(self, **values: t.Any) -> list[PlainData]:
        """Return the records with these values."""
        return [r for r in self.records if all(r.get(name) == value for name, value in values.items())]

    def links(self) -> t.Iterator[tuple[int, float, float]]:
        """Yield (place of a GPU, PCIe generation, width) as read while data was copied."""
        for record in self.of(kind="result"):
            links, place = record.get("links"), record.get("device")
            if isinstance(links, list) and self.known(place):
                for link in links:
                    if isinstance(link, list) and len(link) == 2 and jsonlines.numbers(*link):
                        yield t.cast(int, place), float(link[0]), float(link[1])

    def known(self, place: t.Any) -> bool:
        """Return True if `place` is that of a GPU that was asked for."""
        return isinstance(place, int) and not isinstance(place, bool) and 0 <= place < len(self.used)

    def joined(self, place: int, to: int) -> PlainData:
        """Return how two GPUs are joined by what they are: {"board": True if NVLinks of their board join them for certain, "near": whether
        they are on one NUMA node, None if that cannot be known}."""
        ready: PlainData = next(iter(self.of(kind="ready")), {})
        gpus = ready.get("gpus")
        nodes = [gpu[1] if isinstance(gpu, list) and len(gpu) == 2 else None for gpu in gpus] if isinstance(gpus, list) else []
        near = None
        if len(nodes) == len(self.used) and isinstance(nodes[place], int) and isinstance(nodes[to], int):
            near = nodes[place] == nodes[to]
        on_board = [self.kind.is_on_board(self.used[at], self.used) for at in (place, to)]
        return {"board": all(on_board), "near": near}

    def when(self, **of: t.Any) -> PlainData:
        """Return the start and the duration of a check, or of one GPU in it; empty if the times are not valid."""
        for record in self.of(**of):
            offset_s, took, total_s = record.get("after_s", -1), record.get("took_s", -1), self.result.duration_s
            if jsonlines.numbers(offset_s, took) and 0 <= offset_s <= total_s and 0 <= took <= total_s:
                return {"started_at": observation.utc(self.result.started_at + offset_s), "duration_s": round(took, 3)}
        return {}

    def ended(self, params: Params) -> Problem | None:
        """Return why the workload did not start or finish, as (outcome, reason code, reason); None if it finished."""
        result = self.result
        if result.missing:
            return "error", "tool_missing", f"{result.argv[0]}: {result.missing}; set acceptance_python or gpu_memory_python"
        faults = self.of(kind="fault", check=None)
        if faults:
            return ("error", *_coded(faults[0]))
        if result.timed_out:
            last = next(reversed(self.of(kind="begin")), None)
            where = f"; {last['check']} of {self.who(last['device'])} did not end" if last and self.known(last.get("device")) else ""
            return "timeout", "timeout", f"the copies did not end within {result.ended_after(params['test_timeout'])}{where}"
        if result.rc != 0:
            words = " ".join((result.err.split() or self.rest)[-40:])
            return "error", "tool_failed", f"the workload ended with status {result.rc}: {words}"
        if not self.of(kind="end"):
            return "error", "incomplete_output", "the workload's output is cut: its last line is missing"
        return None

    def who(self, place: int) -> str:
        """Return a GPU's name for people."""
        return f"GPU {self.used[place]['index']}"

    def problem(self, check: str, place: int) -> Problem | None:
        """Return why a GPU has no result of a check, as (outcome, reason code, reason), certain faults first; None if it has one."""
        wrong = self.of(kind="wrong", check=check, device=place)
        if wrong:
            return "error", "wrong_results", f"{self.who(place)}: {_wrong(wrong[0])}"
        faults = self.of(kind="fault", check=check, device=place) or self.of(kind="fault", check=check, device=None)
        if faults:
            code, reason = _coded(faults[0])
            return "error", code, f"{self.who(place)}: {reason}"
        if self.of(kind="wrong", check=check, device=None):
            return "error", "unresolved", f"{self.who(place)}: data was wrong while several GPUs copied, and nobody knows of which of them"
        return None


def _coded(record: PlainData) -> tuple[str, str]:
    code = str(record.get("code"))
    return code if code in reasons.ALL else "tool_failed", str(record.get("reason"))


def _wrong(record: PlainData) -> str:
    """Return a sentence about data that is not what was written."""
    words, offset = record.get("words"), record.get("offset")
    try:
        bits = f"; bits {int(str(record.get('expected')), 16) ^ int(str(record.get('found')), 16):#x} differ"
    except ValueError:
        bits = ""
    count = f"{words} words of 8 bytes are" if words != 1 else "a word of 8 bytes is"
    place = f"the first at byte {offset}" if words != 1 else f"at byte {offset}"
    return f"{record.get('where')}: {count} wrong, {place}: expected {record.get('expected')}, found {record.get('found')}{bits}"


def _wrong_parts(check: str, output: MemoryOutput, used: list[PlainData], common: PlainData) -> t.Iterator[PlainData]:
    """Yield the GPUs whose data was wrong in a check that did not end."""
    for place, g in enumerate(used):
        if output.of(kind="wrong", check=check, device=place):
            outcome, code, reason = t.cast(Problem, output.problem(check, place))
            yield observation.failed(check, code, reason, outcome, **_about(check, output, place, g, common))


def _about(check: str, output: MemoryOutput, place: int, g: PlainData, common: PlainData) -> PlainData:
    """Return the fields of an observation of one GPU."""
    context = {**common["context"], **_hardware(check, [g], output.kind, common["context"]["machine"]), "gpu_uuids": [g["uuid"]]}
    when = output.when(kind="result", check=check, device=place)
    return {**common, **when, "evidence": {}, "part": f"gpu/{g['uuid']}", "context": context}


def _observations(check: str, output: MemoryOutput, used: list[PlainData], common: PlainData, raw: str) -> t.Iterator[PlainData]:
    """Yield the node's own observation and those of its GPUs."""
    parts: list[PlainData] = []
    numbers: list[PlainData] = []
    rows: list[PlainData] = []
    for place, g in enumerate(used):
        gpu_fields = _about(check, output, place, g, common)
        read = output.problem(check, place) or _READERS[check](output, check, place)
        if isinstance(read, tuple):
            outcome, code, reason = read
            parts.append(observation.failed(check, code, reason, outcome, **gpu_fields))
            continue
        gpu_fields["context"].update(read.context)
        parts.append(observation.measured(check, metrics=read.metrics, **gpu_fields))
        rows += [{"gpu": g["index"], **row} for row in read.series]
        numbers.append(read.metrics)
    members = [f"gpu/{g['uuid']}" for g in used]
    metrics = _slowest(numbers) if len(numbers) == len(used) else {}
    if rows:
        units = {name: "GB/s" for name in ("h2d", "d2h", "bandwidth") if name in rows[0]}
        common = {**common, "context": {**common["context"], "series_units": units}}
    yield observation.measured(check, members=members, metrics=metrics, series=rows, raw=raw, **common)
    yield from parts


def _slowest(numbers: list[PlainData]) -> PlainData:
    """Return each metric of the GPU that has the worst one."""
    slowest = {}
    for name, first in numbers[0].items():
        values = [metrics[name]["value"] for metrics in numbers if name in metrics]
        slowest[name] = {**first, "value": max(values) if first["unit"] == "us" else min(values)}
    return slowest


def _metric(value: float, unit: str = "GB/s") -> PlainData:
    return {"value": value, "unit": unit}


@dataclasses.dataclass
class GpuResult:
    """The result of one GPU in a check: metrics, additional context, and rows for the node's observation."""

    metrics: PlainData
    context: PlainData = dataclasses.field(default_factory=dict)
    series: list[PlainData] = dataclasses.field(default_factory=list)


def _one(output: MemoryOutput, check: str, place: int, *names: str) -> PlainData | Problem:
    """Return the one result of a GPU, whose values of these names are positive numbers."""
    results = output.of(kind="result", check=check, device=place)
    if len(results) != 1:
        return "error", "bad_output", f"the workload printed {len(results)} results of {output.who(place)}"
    values = [results[0].get(name) for name in names]
    if not jsonlines.numbers(*values) or min(t.cast("list[float]", values)) <= 0:
        printed = ", ".join(f"{name} {value}" for name, value in zip(names, values))
        return "error", "bad_output", f"the workload printed {printed} of {output.who(place)}"
    return results[0]


def _of_host(output: MemoryOutput, check: str, place: int) -> GpuResult | Problem:
    directions = {"h2d": ["h2d"], "d2h": ["d2h"]}.get(check.partition("_")[0], ["h2d", "d2h"])
    record = _one(output, check, place, *directions)
    if isinstance(record, tuple):
        return record
    metrics = {"bandwidth": _metric(min(record[direction] for direction in directions))}
    lowest = record.get("lowest")
    if isinstance(lowest, dict) and jsonlines.numbers(*(lowest.get(direction) for direction in directions)):
        metrics["lowest"] = _metric(min(lowest[direction] for direction in directions))
    if len(directions) == 2:
        metrics.update({direction: _metric(record[direction]) for direction in directions})
    context = {"numa": record.get("numa"), "numa_of_memory": record.get("numa_of_memory")}
    return GpuResult(metrics, {**context, **_link_seen(record)})


def _link_seen(record: PlainData) -> PlainData:
    """Return the PCIe links that were seen while data was copied, `5 x16`, each once."""
    links = record.get("links")
    pairs = {tuple(link) for link in links if isinstance(link, list) and len(link) == 2} if isinstance(links, list) else set()
    return {"links_under_load": sorted(f"{generation} x{width}" for generation, width in pairs)} if pairs else {}


def _of_numa(output: MemoryOutput, check: str, place: int) -> GpuResult | Problem:
    rows = []
    for record in output.of(kind="result", check=check, device=place):
        if not jsonlines.numbers(record.get("node"), record.get("h2d"), record.get("d2h")) or min(record["h2d"], record["d2h"]) <= 0:
            return "error", "bad_output", f"the workload printed {record} of {output.who(place)}"
        if record.get("numa_of_memory") not in (None, record["node"]):
            return "error", "no_permission", f"memory on NUMA node {record['node']} cannot be had: see cpuset and mbind of the container"
        rows.append({"node": record["node"], "h2d": record["h2d"], "d2h": record["d2h"]})
    local_node = next((r.get("numa") for r in output.of(kind="result", check=check, device=place)), None)
    missing = [node for node in output.numa if node != local_node and node not in [row["node"] for row in rows]]
    if missing or not rows:
        node = missing[0] if missing else "that is not its own"
        return "error", "incomplete_output", f"{output.who(place)} has no result for a NUMA node, {node}"
    worst = min(rows, key=lambda row: min(row["h2d"], row["d2h"]))
    rate = min(worst["h2d"], worst["d2h"])
    direction = "from" if worst["h2d"] == rate else "to"
    context = {"worst": f"{output.who(place)} {direction} NUMA node {worst['node']}: {rate:.4g} GB/s"}
    return GpuResult({"bandwidth": _metric(rate)}, {**context, "numa": local_node}, rows)


def _of_peers(output: MemoryOutput, check: str, place: int) -> GpuResult | Problem:
    rows = []
    for record in output.of(kind="result", check=check, device=place):
        to, direct = record.get("to"), record.get("direct")
        if not output.known(to) or not jsonlines.numbers(record.get("rate")) or record["rate"] <= 0 or not isinstance(direct, bool):
            return "error", "bad_output", f"the workload printed {record} of {output.who(place)}"
        row = {"to": output.used[t.cast(int, to)]["index"], "bandwidth": record["rate"], "direct": direct}
        rows.append({**row, **output.joined(place, t.cast(int, to))})
    if sorted(row["to"] for row in rows) != sorted(g["index"] for at, g in enumerate(output.used) if at != place):
        return "error", "incomplete_output", f"{output.who(place)} has results with {len(rows)} of {len(output.used) - 1} other GPUs"
    worst = min(rows, key=lambda row: row["bandwidth"])
    how = "directly" if worst["direct"] else "through the host's memory"
    context = {
        "worst": f"{output.who(place)} to GPU {worst['to']}: {worst['bandwidth']:.4g} GB/s {how}",
        "direct": all(row["direct"] for row in rows),
    }  # fmt: skip
    return GpuResult({"bandwidth": _metric(worst["bandwidth"])}, context, rows)


def _of_device(output: MemoryOutput, check: str, place: int) -> GpuResult | Problem:
    record = _one(output, check, place, "copy", "read")
    if isinstance(record, tuple):
        return record
    return GpuResult({"bandwidth": _metric(record["copy"]), "read": _metric(record["read"])})


def _of_latency(output: MemoryOutput, check: str, place: int) -> GpuResult | Problem:
    record = _one(output, check, place, "read_us", "copy_us")
    if isinstance(record, tuple):
        return record
    return GpuResult({"latency": _metric(record["read_us"], "us"), "small_copy": _metric(record["copy_us"], "us")})


def _of_pattern(output: MemoryOutput, check: str, place: int) -> GpuResult | Problem:
    record = _one(output, check, place, "bytes", "planted")
    if isinstance(record, tuple):
        return record
    g, tested_mib = output.used[place], record["bytes"] / 2**20
    board_mib = board_memory.of_board(g, output.kind.memory_of_model(g["name"] or ""), output.kind.tool)
    if isinstance(board_mib, Absent):
        return "error", "gpu_state", f"{output.who(place)}: {board_mib.why}, so which share was tested is not known"
    share = 100 * tested_mib / board_mib
    if share < LEAST_TESTED:
        free_words = [f"{record['free'] / 2**30:.1f} GiB were free as the driver says"] if jsonlines.numbers(record.get("free")) else []
        after = output.after.get(g["uuid"])
        rest = "; ".join([*free_words, *board_memory.holders(g, *([after] if after else []))] or ["nothing is known to hold the rest"])
        words = f"{tested_mib / 1024:.1f} of {board_mib / 1024:.1f} GiB of memory could be tested, {share:.1f} %"
        return "error", "out_of_memory", f"{output.who(place)}: {words}, and at least {LEAST_TESTED:g} % is needed: {rest}"
    context = {"tested_gib": round(tested_mib / 1024, 2), "board_gib": round(board_mib / 1024, 2), "planted": record["planted"]}
    return GpuResult({"tested": _metric(round(share, 2), "percent")}, context)


_READERS: dict[str, t.Callable[[MemoryOutput, str, int], GpuResult | Problem]] = {
    **dict.fromkeys((*BETWEEN, *TOGETHER), _of_host), **dict.fromkeys(PEERS, _of_peers),
    "numa": _of_numa, "device": _of_device, "latency": _of_latency, "pattern": _of_pattern,
}  # fmt: skip
