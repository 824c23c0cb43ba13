# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Matrix products and a small training on every GPU of a node, whose bits must be the same on all of them.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import jsonlines, observation, reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import fields
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import majority
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import products as reading
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import left_files
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import packing, products, stacks, training
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import train as workload

# Read at import: a detached probe outlives the archive that Ansible runs it from.
TEXT = packing.packed(stacks, products, training, workload)
SOURCE = f"SOURCE = {TEXT!r}\nexec(compile(SOURCE, 'train.py', 'exec'))\n"
# What the head of the workload needs, besides its own deadline, to end its processes and to say so.
MARGIN_S = 5.0

# What is left in a folder of the user's.
FILES = ("summary.json", "gpu_tests_result.json", "gpu_tests_skipped.json")

# The kinds of accelerators that can be trained on.
KINDS = registry.having("torch")


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Yield the observations of measured(), and write the files that acceptance images leave if `results_dir` is set."""
    ran: list[TrainOutput] = []
    observations = list(measured(params, node, ran))
    if params["results_dir"]:
        problem = left_files.write(params["results_dir"], files(observations, ran), FILES)
        for record in observations if problem else ():
            record["context"] = {**record["context"], "warnings": [problem]}
    yield from observations


def files(observations: list[PlainData], ran: list[TrainOutput]) -> PlainData:
    """Return the files in the form that acceptance images use, {name: content}."""
    if {record["reason_code"] for record in observations} == {"no_gpu_expected"}:
        return {"gpu_tests_skipped.json": {"skipped": True, "reason": "no_gpu"}}
    ok = bool(observations) and all(record["outcome"] == "measured" for record in observations)
    torch = next((r.get("torch") for output in ran for r in output.of(kind="ready")), None)
    out, err = (ran[0].result.out, ran[0].result.err) if ran else ("", "; ".join({str(record["reason"]) for record in observations}))
    tests = [
        {"test": record["check"], "variant": record["variant"], "gpu": record["part"].partition("/")[2] or None,
         "ok": record["outcome"] == "measured", "tflops": (record["metrics"].get("tflops") or {}).get("value"), "reason": record["reason"]}
        for record in observations
    ]  # fmt: skip
    summary = {
        "env": left_files.environment(torch, len(ran[0].used) if ran else 0),
        "gpu_tests": left_files.printed(0 if ok else 2, out, err),
    }
    return {"summary.json": summary, "gpu_tests_result.json": {"ok": ok, "tests": tests}}


def _device(requested: str, kind: type[base.Accelerator]) -> PlainData:
    """Return the type of the devices in PyTorch, the package that adds it, and the variable by which a process sees one of them."""
    accelerator = registry.of_torch(requested, kind) if requested != "auto" else kind
    if accelerator is None:
        return {"kind": requested, "plugin": "", "visible": ""}
    return {"kind": accelerator.torch, "visible": accelerator.visible, **accelerator.torch_order()}


def measured(params: Params, node: Node, ran: list[TrainOutput]) -> t.Iterator[PlainData]:
    """Per check {"check": "compute", "variant": "mode=alone shape=8192x8192x8192 type=bf16"}, {"check": "train", "variant":
    "mode=alone steps=60"} or {"check": "burn_in", "variant": "minutes=30"} one observation of the node and one of each GPU."""
    checks = [(c["check"], c["variant"]) for c in params["checks"]]
    snapshot = gpu.snapshot(node)
    kind = gpu.kind(snapshot)
    # Who asks for some of the GPUs sees no others in a pod.
    expected = params["gpu_count"] if params["gpu_count"] == 0 or not params["gpus"] else None
    refusal = gpu.refusal(snapshot, expected, "training", params["mig"], [kind.kind] if kind.torch else KINDS, partial=True)
    simulated = bool(snapshot.get("simulated"))
    if refusal:
        outcome, code, reason = refusal
        gpu_context = {"gpu": gpu.model(snapshot), "gpus": len(snapshot["gpus"])} if snapshot["gpus"] else {}
        for check, variant in checks:
            yield observation.failed(check, code, reason, outcome=outcome, variant=variant, simulated=simulated, context=gpu_context)
        return
    unparted, aside = gpu.without_mig(snapshot)
    if params["gpus"] > len(unparted["gpus"]):
        reason = f"{params['gpus']} GPUs were asked for and {len(unparted['gpus'])} are here"
        for check, variant in checks:
            yield observation.failed(check, "gpu_count", reason, variant=variant, simulated=simulated)
        return
    used = unparted["gpus"][: params["gpus"] or None]
    orders = [_order(check, fields(variant), params) for check, variant in checks]
    minutes = sum(order.get("minutes", 0) for order in orders)
    timeout = min(params["test_timeout"] + 60 * minutes, node.remaining())
    order = {
        "devices": kind.visible_names(used),
        **_device(params["device"], kind), "checks": orders,
        "deadline": max(1.0, timeout - MARGIN_S), "silence": params["silence_timeout"],
        **{name: params[name] for name in ("seconds", "warmup_seconds", "seed", "width", "batch")},
    }  # fmt: skip
    # The workload travels on standard input; its name in the command line is what a person would type.
    argv = [node.python(params["python"]), "-", json.dumps(order)]
    with Window(node, snapshot) as window:
        result = node.run(argv, timeout=timeout, stdin=SOURCE, env=params["env"], merge=False, contained=True)
    output = TrainOutput(result, used)
    ran.append(output)
    on_cpu = any(record.get("device_kind") == "cpu" for record in output.of(kind="ready"))
    common = {
        "command": argv, "evidence": window.evidence(), "tool_version": output.library,
        # What the CPU computes in a GPU's place says nothing of the GPU.
        "simulated": simulated or on_cpu or observation.SIMULATED_MARK in result.out,
    }  # fmt: skip
    failure = output.failure(params, timeout)
    rulings = Rulings(output, used, orders)
    for number, (check, variant) in enumerate(checks):
        context = {**_context(orders[number], used, output, params), "driver": snapshot.get("driver")}
        if aside:
            context["set_aside"] = aside
        if on_cpu:
            context["comparable"] = False
        check_fields = {**common, "variant": variant, "context": context, **output.when(kind="time", check=number)}
        if failure:
            outcome, code, reason = failure
            yield observation.failed(check, code, reason, outcome, raw=result.raw, **check_fields)
        else:
            yield from _observations(check, number, output, used, rulings, check_fields, result.raw if number == 0 else result.out)


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the default checks, for a call that names none."""
    gpus = params["gpus"] or None
    checks = [
        {"check": "compute", "variant": observation.variant(gpus=gpus, mode=mode, shape=params["shape"], type=dtype)}
        for dtype in params["types"]
        for mode in params["modes"]
    ]
    checks += [{"check": "train", "variant": observation.variant(gpus=gpus, mode=mode, steps=params["steps"])} for mode in params["modes"]]
    if params["minutes"]:
        checks.append({"check": "burn_in", "variant": observation.variant(gpus=gpus, minutes=params["minutes"])})
    return checks


def _order(check: str, keys: dict[str, str], params: Params) -> PlainData:
    """Return the order to the workload for a check."""
    mode = keys.get("mode", "together")
    if check == "compute":
        return {"do": "compute", "mode": mode, "dtype": keys["type"], "shape": [int(n) for n in keys["shape"].split("x")]}
    if check == "burn_in":
        return {"do": "burn", "mode": "together", "minutes": float(keys["minutes"]), "steps": params["steps"]}
    return {"do": "train", "mode": mode, "steps": int(keys["steps"])}


def _context(order: PlainData, used: list[PlainData], output: TrainOutput, params: Params) -> PlainData:
    training_of = {"shape": f"{params['batch']}x{params['width']}", "steps": order.get("steps")}
    product = {"type": order.get("dtype"), "shape": "x".join(map(str, order.get("shape", ())))}
    names = sorted({g["name"] or "unknown" for g in used})
    return {
        "gpu": names[0] if len(names) == 1 else "mixed: " + ", ".join(names),
        "gpus": len(used),
        "gpu_uuids": [g["uuid"] for g in used],
        "library": output.library,
        "backend": "torch",
        "mode": order["mode"],
        "host_cpu": output.host_cpu,
        "seed": params["seed"],
        **(product if order["do"] == "compute" else training_of),
    }


class TrainOutput:
    """The output of the workload, by check and GPU."""

    def __init__(self, result: t.Any, used: list[PlainData]) -> None:
        self.result = result
        self.used = used
        self.records, self.rest = jsonlines.read(result.out)
        self.library = next((str(r["library"]) for r in self.of(kind="ready") if r.get("library")), None)
        self.host_cpu = next((str(r["host_cpu"]) for r in self.of(kind="ready") if r.get("host_cpu")), None)

    def of(self, **values: t.Any) -> list[PlainData]:
        return [r for r in self.records if all(r.get(name) == value for name, value in values.items())]

    def fault(self, number: int, device: int) -> PlainData | None:
        """Return the fault that ended a GPU's process in this check or before it; None if there is none."""
        faults = [r for r in self.of(kind="fault", device=device) if r.get("check") is None or r["check"] <= number]
        return faults[0] if faults else None

    def when(self, **of: t.Any) -> PlainData:
        """Return the start and the duration of a check, or of one GPU in it; empty if the times are not valid."""
        for record in self.of(**of):
            offset_s, took, total_s = record.get("after_s", -1), record.get("took_s", -1), self.result.duration_s
            if jsonlines.numbers(offset_s, took) and 0 <= offset_s <= total_s and 0 <= took <= total_s:
                return {"started_at": observation.utc(self.result.started_at + offset_s), "duration_s": round(took, 3)}
        return {}

    def failure(self, params: Params, timeout: float) -> tuple[str, str, str] | None:
        """Return why no check has a result, as (outcome, reason code, reason); None if some have."""
        result = self.result
        if result.missing:
            return "error", "tool_missing", f"{result.argv[0]}: {result.missing}; set acceptance_python or train_python"
        if result.timed_out:
            return "timeout", "timeout", f"the training did not end within {result.ended_after(timeout)}"
        if result.rc != 0:
            words = " ".join((result.err.split() or self.rest)[-40:])
            return "error", "tool_failed", f"the workload ended with status {result.rc}: {words}"
        if not self.of(kind="end"):
            return "error", "incomplete_output", "the workload's output is cut: its last line is missing"
        # What every process says in the same words is no GPU's own.
        early = [r for r in self.of(kind="fault", check=None) if isinstance(r.get("device"), int)]
        if len({r["device"] for r in early}) == len(self.used) and len({r.get("reason") for r in early}) == 1:
            code, reason = _coded(early[0])
            hint = "; set acceptance_python or train_python" if code == "torch_missing" else ""
            return "timeout" if code == "timeout" else "error", code, f"{reason}{hint}"
        return None


def _coded(record: PlainData) -> tuple[str, str]:
    code = str(record.get("code"))
    return code if code in reasons.ALL else "tool_failed", str(record.get("reason"))


class Rulings:
    """The convicted GPUs of each check: their bits differ from those of the other GPUs of the same model. Results of `alone` and `together`
    are compared with each other: they are the same work."""

    def __init__(self, output: TrainOutput, used: list[PlainData], orders: list[PlainData]) -> None:
        self.bits: dict[int, dict[str, set[str]]] = {}
        self._of: dict[int, list[majority.Ruling]] = {}
        for number, order in enumerate(orders):
            alike = [index for index, candidate in enumerate(orders) if {**candidate, "mode": ""} == {**order, "mode": ""}]
            rulings = self._of[number] = []
            for name in sorted({g["name"] or "" for g in used}):
                bits: dict[str, list[str]] = {}
                check_bits: dict[str, set[str]] = {}
                for device, g in enumerate(used):
                    if (g["name"] or "") == name:
                        results = [r for index in alike for r in output.of(kind="result", check=index, device=device)]
                        gpu_bits = [bit for r in results for bit in _bits(r)]
                        if gpu_bits:
                            bits[_gpu_name(g)] = gpu_bits
                        check_bits[_gpu_name(g)] = {bit for r in output.of(kind="result", check=number, device=device) for bit in _bits(r)}
                if bits:
                    rulings.append(self._here(majority.ruling(bits), check_bits))

    @staticmethod
    def _here(ruling: majority.Ruling, check_bits: dict[str, set[str]]) -> majority.Ruling:
        """Return the ruling for one check: a GPU is convicted only in the check in which its bits differ from those of the GPUs that are
        not convicted. What stays unresolved is so in every check of the same work: a GPU that contradicts itself between two checks
        does not say in which of them it was right."""
        if ruling.unresolved:
            return ruling
        right = {bit for name, bits in check_bits.items() if name not in ruling.odd for bit in bits}
        return majority.Ruling({name: why for name, why in ruling.odd.items() if check_bits[name] - right}, None)

    def odd(self, number: int, g: PlainData) -> str | None:
        """Return why a GPU is convicted in a check; None if it is not."""
        name = _gpu_name(g)
        return next((f"{name} {ruling.odd[name]}" for ruling in self._of[number] if name in ruling.odd), None)

    def unresolved(self, number: int) -> str | None:
        return next((ruling.unresolved for ruling in self._of[number] if ruling.unresolved), None)


def _gpu_name(g: PlainData) -> str:
    return f"{gpu.word(g)} {g['index']}"


def _bits(record: PlainData) -> list[str]:
    """The fingerprints of a result; laps of a burn-in that were not as its first one are another."""
    fingerprints = [str(record.get("fingerprint"))]
    return [*fingerprints, *(["another lap"] if record.get("wrong") and record.get("laps") else [])]


def _observations(
    check: str, number: int, output: TrainOutput, used: list[PlainData], rulings: Rulings, common: PlainData, raw: str
) -> t.Iterator[PlainData]:
    """Yield the observation of the node and those of its GPUs; each has a result, or the reason why it has none."""
    parts, tflops = [], []
    for device, g in enumerate(used):
        gpu_fields = {
            **common, **output.when(kind="result", check=number, device=device), "evidence": {}, "part": f"gpu/{g['uuid']}",
            "context": {**common["context"], "gpu_uuids": [g["uuid"]], "gpu": g["name"]},
        }  # fmt: skip
        results = output.of(kind="result", check=number, device=device)
        odd = rulings.odd(number, g)
        problem = _problem(check, number, device, g, output, results, common["context"].get("steps"))
        if odd and (problem is None or problem[1] not in reasons.FATAL):
            problem = "error", "wrong_results", odd + _laps(results[0])
        if problem:
            outcome, code, reason = problem
            parts.append(observation.failed(check, code, reason, outcome, **gpu_fields))
            continue
        gpu_fields["context"].update(_shown(results[0]))
        metrics = {"tflops": {"value": results[0]["tflops"], "unit": "TFLOPS"}}
        minutes = output.of(kind="minute", check=number, device=device)
        series = [{name: r.get(name) for name in ("minute", "seconds", "tflops", "laps", "wrong")} for r in minutes]
        if series:
            gpu_fields["context"]["series_units"] = {"seconds": "s", "tflops": "TFLOPS"}
        parts.append(observation.measured(check, metrics=metrics, series=series, **gpu_fields))
        tflops.append(float(results[0]["tflops"]))
    unresolved = rulings.unresolved(number)
    members = [f"gpu/{g['uuid']}" for g in used]
    if unresolved:
        yield observation.failed(check, "unresolved", f"the GPUs do not compute the same: {unresolved}", members=members, raw=raw, **common)
    else:
        metrics = {}
        if len(tflops) == len(used):
            metrics = {
                "tflops": {"value": min(tflops), "unit": "TFLOPS"},
                "spread": {"value": 100.0 * (max(tflops) - min(tflops)) / max(tflops), "unit": "percent"},
            }
        yield observation.measured(check, members=members, metrics=metrics, raw=raw, **common)
    yield from parts


def _laps(record: PlainData) -> str:
    """Return how many laps of a burn-in differed from the first one, and since when, in words; empty if none did."""
    if not record.get("wrong") or not record.get("laps"):
        return ""
    first = record.get("first_wrong_s")
    when = f", the first of them after {first:.0f} s" if jsonlines.numbers(first) else ""
    return f": {record['wrong']} of {record['laps']} laps of the same training gave another loss{when}"


def _shown(record: PlainData) -> PlainData:
    """Return the fields of a result that belong into the context of its observation."""
    names = ("start", "end", "steps", "step_ms", "laps", "slowest_lap_s", "fingerprint", "error", "tolerance", "iterations")
    return {name: record[name] for name in names if record.get(name) is not None}


def _problem(
    check: str, number: int, device: int, g: PlainData, output: TrainOutput, results: list[PlainData], steps: int | None
) -> tuple[str, str, str] | None:
    """Return why a GPU has no usable result, as (outcome, reason code, reason); None if it has one."""
    who = _gpu_name(g)
    # A result from before the end of the process is valid.
    fault = None if results else output.fault(number, device)
    if fault:
        code, reason = _coded(fault)
        prefix = "" if fault.get("check") in (None, number) else "before this check, "
        begun = output.of(kind="minute", check=number, device=device)
        suffix = f" after {begun[-1].get('minute')} minutes" if begun else ""
        return "timeout" if code == "timeout" else "error", code, f"{who}: {prefix}{reason}{suffix}"
    unsupported = output.of(kind="unsupported", check=number, device=device)
    if unsupported:
        return "error", "unsupported", f"{who}: {unsupported[0].get('reason')}"
    if len(results) != 1:
        return "error", "bad_output", f"the workload printed {len(results)} results for {who}"
    record = results[0]
    if not jsonlines.numbers(record.get("tflops")) or not record["tflops"] > 0 or not isinstance(record.get("fingerprint"), str):
        printed = f"tflops {record.get('tflops')}, fingerprint {record.get('fingerprint')}"
        return "error", "bad_output", f"the workload printed {printed} for {who}"
    if check == "train":
        return _trained(who, record, steps)
    return _product(who, record) if check == "compute" else _burned(who, record)


def _product(who: str, record: PlainData) -> tuple[str, str, str] | None:
    problem = reading.problem(who, record)
    return ("error", *problem) if problem else None


def _trained(who: str, record: PlainData, steps: int | None) -> tuple[str, str, str] | None:
    losses = record.get("losses")
    if not isinstance(losses, list) or len(losses) != steps:
        return "error", "bad_output", f"the workload printed no loss for each of {steps} steps of {who}"
    wrong = next((step for step, loss in enumerate(losses) if not jsonlines.numbers(loss)), None)
    if wrong is not None:
        return "error", "not_trained", f"{who}: the loss of step {wrong + 1} of {len(losses)} is not finite"
    record["start"], record["end"] = training.learnt(losses)
    if min(losses) < 0:
        return "error", "bad_output", f"{who}: a loss of {min(losses):.4g}, expected none below 0"
    if not record["end"] < training.LEARNT * record["start"]:
        sentence = f"{who}: the loss went from {record['start']:.4g} to {record['end']:.4g} in {len(losses)} steps"
        return "error", "not_trained", f"{sentence}, expected less than {training.LEARNT} of its start"
    return None


def _burned(who: str, record: PlainData) -> tuple[str, str, str] | None:
    laps, wrong = record.get("laps"), record.get("wrong")
    if not jsonlines.numbers(laps, wrong) or record["laps"] < 2 or not 0 <= record["wrong"] < record["laps"]:
        return "error", "bad_output", f"the workload printed laps {laps}, wrong {wrong} for {who}"
    return None
