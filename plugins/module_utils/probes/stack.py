# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Software stack, firmware and health of the accelerators of a node, and whether their runtime (CUDA, ACL) starts.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, on_bus
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import findings, observation, reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import is_absent, plain_tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import facts, gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import interfaces, kernel_log
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

START_TIMEOUT_S = 90.0


def default_checks(_params: dict[str, t.Any]) -> list[dict[str, str]]:
    """Return the default checks, for a call that names none."""
    return [{"check": name, "variant": ""} for name in ("facts", "gpu_health", "cuda")]


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Observations of `facts`, `gpu_health` (the node and each GPU) and `cuda`, whichever `params["checks"]` names."""
    variants = {c["check"]: c["variant"] for c in params["checks"]}
    snapshot = gpu.snapshot(node)
    accelerator = gpu.accelerator(node, snapshot)
    links = accelerator.links(snapshot) if snapshot["gpus"] else {}
    domain = accelerator.link_domain(snapshot, params.get("imex") or "auto") if snapshot["gpus"] and variants.keys() - {"cuda"} else None
    identity = {
        "machine_id": node.identity().get("machine_id"),
        "gpu": gpu.model(snapshot) if snapshot["gpus"] else None,
        "gpus": len(snapshot["gpus"]),
        "gpu_uuids": [g["uuid"] for g in snapshot["gpus"] if g["uuid"]],
    }
    common: dict[str, t.Any] = {"simulated": bool(snapshot["simulated"])}
    if "facts" in variants:
        collected = facts.collect(params, node, snapshot, links, domain)
        context = {**identity, "addresses": interfaces.addresses(), "facts": collected}
        if domain is not None:
            context["link_domain"] = domain.context
            context["not_looked_for"] = domain.not_looked_for
        yield observation.measured("facts", variant=variants["facts"], context=context, **common)
    if "gpu_health" in variants:
        common["variant"] = variants["gpu_health"]
        health = _Health(snapshot, links, accelerator)
        health.unassigned += domain.problems if domain is not None else []
        yield from health.observed(params["gpu_count"], {**common, "context": identity})
    if "cuda" in variants:
        common["variant"] = variants["cuda"]
        yield _cuda(snapshot, params, accelerator, {**common, "context": identity})


def _absent(
    check: str, snapshot: dict[str, t.Any], expected: int | None, fields: dict[str, t.Any]
) -> dict[str, t.Any] | None:
    """Return the observation of a node whose GPUs do not answer; None if all do."""
    if snapshot["outcome"] == "measured":
        return None
    none = gpu.not_expected(snapshot, expected)
    if none is not None:
        outcome, code, reason = none
        return observation.failed(check, code, reason, outcome, **fields)
    return observation.failed(check, snapshot["reason_code"], snapshot["reason"], **fields)


# GPU health ------------------------------------------------------------------------------------------------------


class _Health:
    """Return the defects of the accelerators of a node, each by itself, and of the node: by their tool, their links and the
    kernel's log."""

    def __init__(self, snapshot: dict[str, t.Any], links: base.Links | None, accelerator: base.Accelerator) -> None:
        self.snapshot = snapshot
        self.accelerator = accelerator
        self.parts = {_part(g): (g, accelerator.health(g)) for g in snapshot["gpus"]}
        # What no GPU that the tool shows is to blame for.
        self.unassigned: list[base.Problem] = []
        self.unreadable: list[str] = []
        self.log: dict[str, t.Any] = {}
        # links_failed() and siblings() judge the counters that are read here.
        if snapshot["gpus"] and accelerator.link_errors(snapshot) is None:
            self.unreadable.append(accelerator.link_code)
        for uuid, problem in (accelerator.links_failed(snapshot) if snapshot["gpus"] else {}).items():
            if f"gpu/{uuid}" in self.parts:
                self.parts[f"gpu/{uuid}"][1].append(problem)
        if links is None:
            down = accelerator.links_unreadable(snapshot)
        else:
            down = accelerator.links_down(snapshot, links) if snapshot["gpus"] else {}
        for uuid, problem in down.items():
            if f"gpu/{uuid}" in self.parts:
                self.parts[f"gpu/{uuid}"][1].append(problem)
        for uuid, problems in accelerator.siblings(snapshot).items():
            self.parts[f"gpu/{uuid}"][1].extend(problems)
        if links is None:
            self.unreadable.append(accelerator.links_code)
        if any(g["ecc_mode"] == "Enabled" and is_absent(g["ecc"]["volatile_uncorrected"]) for g in snapshot["gpus"]):
            self.unreadable.append("ecc")
        self.bus = on_bus.Bus([], {})
        if snapshot["outcome"] == "measured" or snapshot["reason_code"] in ("no_gpu", "gpu_lost"):
            self.bus = accelerator.bus(snapshot)
            self.unassigned += self.bus.problems
        self.places = accelerator.places(snapshot) if snapshot["gpus"] else None
        # The log may say why the driver shows no GPU at all.
        if accelerator.log_code and (snapshot["gpus"] or snapshot["reason_code"] == "no_gpu"):
            self._read_log()

    def _read_log(self) -> None:
        """The errors that the driver has logged since boot, as far back as the log goes."""
        boot = since_boot(self.accelerator)
        if boot is None:
            self.unreadable.append(self.accelerator.log_code)
            return
        if not boot.complete:
            self.unreadable.append(f"{self.accelerator.log_code}_since_boot")
        self.log = {"kernel_log": {"since": boot.since, "whole": boot.complete}}
        slots = {gpu.slot(g["bdf"] or ""): problems for g, problems in self.parts.values()}
        for where, problem in boot.problems:
            slots.get(gpu.slot(where) if where else None, self.unassigned).append(problem)

    def observed(self, expected: int | None, common: dict[str, t.Any]) -> t.Iterator[dict[str, t.Any]]:
        defects = [(part, code, f"{gpu.name(g)}: {words}") for part, (g, problems) in self.parts.items() for code, words in problems]
        defects += [("", code, words) for code, words in self.unassigned]
        if self.snapshot["outcome"] == "measured":
            for where in self.accelerator.unseen(self.snapshot):
                word, tool = gpu.word(self.snapshot["gpus"][0]), os.path.basename(self.accelerator.program)
                words = f"the driver has {self.accelerator.article} {word} at {where} and {tool} does not show it"
                defects.append(("", "gpu_lost", words))
        if expected is not None and expected != len(self.snapshot["gpus"]):
            words = f"{len(self.snapshot['gpus'])} GPUs found, acceptance_gpu_count says {expected}"
            defects.append(("", "gpu_count", words))
        context = {**common["context"], **self.log, "gpu_table": [_row(g) for g in self.snapshot["gpus"]]}
        if self.bus.context:
            context["gpu_bus"] = self.bus.context
        if self.places:
            context["gpu_places"] = self.places._asdict()
        evidence = {"window": {}, "changes": [], "unreadable": sorted(self.unreadable)} if self.unreadable else {}
        fields = {**common, "context": context, "members": sorted(self.parts), "evidence": evidence}
        absent = _absent("gpu_health", self.snapshot, expected, fields)
        lost = not self.snapshot["gpus"] and expected != 0 and any(code in reasons.FATAL for code, _words in self.unassigned)
        yield absent if absent and not lost else findings.observed("gpu_health", defects, fields)
        for part, (g, problems) in self.parts.items():
            gpu_context = {"gpu": g["name"], "gpu_uuids": [g["uuid"]] if g["uuid"] else []}
            named_problems = [("", *problem) for problem in problems]
            yield findings.observed("gpu_health", named_problems, {**common, "part": part, "context": gpu_context})


class BootErrors(t.NamedTuple):
    """Return the errors that the driver logged since boot, as (PCI address, problem); whether the log reaches back to the
    boot; its first time."""

    problems: list[tuple[str | None, base.Problem]]
    complete: bool
    since: str | None


def since_boot(accelerator: base.Accelerator) -> BootErrors | None:
    """Return each kind of error once for each device, with its count and the time of the last one; None if the log may not be read. An
    error that holds until the driver is loaded again does not stand behind that."""
    boot = kernel_log.since_boot(accelerator.node.path(kernel_log.PATH), lambda text: _keyed(accelerator, text))
    if boot is None:
        return None
    problems: list[tuple[str | None, base.Problem]] = []
    for logged, (line, count) in base.standing((entry, (line, count)) for entry, line, count in boot.last.values()):
        grave = "" if logged.code in reasons.MILD else "; a reboot, after a repair where one is needed, clears it"
        problems.append((logged.where, (logged.code, f"the kernel's log has, at {kernel_log.times(line, count)}: {logged.words}{grave}")))
    return BootErrors(problems, boot.complete, boot.since)


def _keyed(accelerator: base.Accelerator, text: str) -> tuple[t.Any, base.Logged | base.TakenBack] | None:
    logged = accelerator.logged(text)
    if logged:
        return (logged.where, logged.name), logged
    taken = accelerator.takes_back(text)
    return (taken, taken) if taken else None


def _part(g: dict[str, t.Any]) -> str:
    """Return the part of a GPU. A GPU that does not report its UUID is named by its place."""
    return f"gpu/{g['uuid'] or g['bdf'] or g['index']}"


def _row(g: dict[str, t.Any]) -> dict[str, t.Any]:
    names = (
        "index", "uuid", "serial", "name", "bdf", "vbios", "temperature_c", "throttle_reasons",
        "pcie", "ecc", "remapped_rows", "retired_pages", "power", "fabric", "board_part_number", "place",
    )  # fmt: skip
    return {name: plain_tree(g.get(name)) for name in names}


# CUDA ------------------------------------------------------------------------------------------------------------


def _cuda(
    snapshot: dict[str, t.Any], params: dict[str, t.Any], accelerator: base.Accelerator, fields: dict[str, t.Any]
) -> dict[str, t.Any]:
    """Return the observation of the start of the accelerators' runtime: CUDA, or that of another kind."""
    absent = _absent("cuda", snapshot, params["gpu_count"], fields)
    if absent:
        return absent
    node, start = accelerator.node, accelerator.start()
    argv = [node.python(params["python"]), "-c", start.script]
    result = node.run(argv, timeout=START_TIMEOUT_S, env=start.env, contained=True)
    printed = _last_words(result.out, start.runtime)
    fields.update(
        command=[argv[0], "-c", f"initialise {start.runtime}"],
        started_at=observation.utc(result.started_at),
        duration_s=result.duration_s,
        raw=result.out + result.err,
        tool_version=f"torch {printed['torch']}" if printed.get("torch") else None,
        context={**fields["context"], **printed},
    )
    if result.missing:
        return observation.failed("cuda", "tool_missing", f"{argv[0]}: {result.missing}; set acceptance_python or stack_python", **fields)
    mig = any((g["mig"] or "").lower() == "enabled" for g in snapshot["gpus"])
    problem = start.problem(printed, None if mig else len(snapshot["gpus"])) if printed else None
    if problem:
        return observation.failed("cuda", *problem, **fields)
    if result.timed_out:
        step = "importing torch" if printed else f"initialising {start.runtime}"
        reason = f"{step} in {argv[0]} did not end within {result.ended_after(START_TIMEOUT_S)}"
        return observation.failed("cuda", start.code, reason, "timeout", **fields)
    if result.rc != 0 or not printed:
        words = " ".join((result.err or result.out).split())[-200:]
        reason = f"initialising {start.runtime} in {argv[0]} ended with status {result.rc}: {words}"
        return observation.failed("cuda", start.code, reason, **fields)
    return observation.measured("cuda", **fields)


def _last_words(text: str, runtime: str) -> dict[str, t.Any]:
    """Return the last report of the child; empty if it printed none."""
    for line in reversed(text.splitlines()):
        if line.startswith(f"{runtime} {{"):
            try:
                values = json.loads(line[len(runtime) + 1 :])
            except ValueError:
                continue
            return values if isinstance(values, dict) else {}
    return {}
