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

from ansible_collections.gpufleet.acceptance.plugins.module_utils import facts, gpu, interfaces, observation, reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node

START_TIMEOUT_S = 90.0


def default_checks(_params: dict[str, t.Any]) -> list[dict[str, str]]:
    """The checks of a call that names none."""
    return [{"check": name, "variant": ""} for name in ("facts", "gpu_health", "cuda")]


def probe(params: dict[str, t.Any], node: Node) -> t.Iterator[dict[str, t.Any]]:
    """Observations of `facts`, `gpu_health` (the node and each GPU) and `cuda`, whichever `params["checks"]` names."""
    wanted = {c["check"]: c["variant"] for c in params["checks"]}
    seen = gpu.snapshot(node, params["nvidia_smi"])
    accelerator = gpu.accelerator(node, seen, params["nvidia_smi"])
    links = accelerator.links(seen) if seen["gpus"] else {}
    identity = {
        "machine_id": node.identity().get("machine_id"),
        "gpu": gpu.model(seen) if seen["gpus"] else None,
        "gpus": len(seen["gpus"]),
        "gpu_uuids": [g["uuid"] for g in seen["gpus"] if g["uuid"]],
    }
    common: dict[str, t.Any] = {"simulated": bool(seen["simulated"])}
    if "facts" in wanted:
        found = facts.collect(params, node, seen, links)
        context = {**identity, "addresses": interfaces.addresses(), "facts": found}
        yield observation.measured("facts", variant=wanted["facts"], context=context, **common)
    if "gpu_health" in wanted:
        common["variant"] = wanted["gpu_health"]
        yield from _health(seen, links, params["gpu_count"], accelerator, {**common, "context": identity})
    if "cuda" in wanted:
        common["variant"] = wanted["cuda"]
        yield _cuda(seen, params, accelerator, {**common, "context": identity})


def _absent(
    check: str, seen: dict[str, t.Any], expected: int | None, fields: dict[str, t.Any]
) -> dict[str, t.Any] | None:
    """The observation of a node whose GPUs do not answer, None where all do."""
    if seen["outcome"] == "measured":
        return None
    if expected == 0 and seen["reason_code"] in ("no_gpu", "tool_missing"):
        reason = "the inventory says this machine has no GPU"
        return observation.failed(check, "no_gpu_expected", reason, "not_applicable", **fields)
    return observation.failed(check, seen["reason_code"], seen["reason"], **fields)


# GPU health ------------------------------------------------------------------------------------------------------


def _health(
    seen: dict[str, t.Any],
    links: base.Links | None,
    expected: int | None,
    accelerator: base.Accelerator,
    common: dict[str, t.Any],
) -> t.Iterator[dict[str, t.Any]]:
    by_part = {_part(g): (g, accelerator.health(g)) for g in seen["gpus"]}
    for uuid, finding in accelerator.links_down(links or {}).items():
        if f"gpu/{uuid}" in by_part:
            by_part[f"gpu/{uuid}"][1].append(finding)
    findings = [(code, f"{gpu.name(g)}: {words}") for g, found in by_part.values() for code, words in found]
    if seen["outcome"] == "measured":
        for where in accelerator.unseen(seen):
            word, tool = gpu.word(seen["gpus"][0]), os.path.basename(accelerator.program)
            findings.append(("gpu_lost", f"the driver has {'an' if word == 'NPU' else 'a'} {word} at {where} and {tool} does not show it"))
    if expected is not None and expected != len(seen["gpus"]):
        findings.append(("gpu_count", f"{len(seen['gpus'])} GPUs found, acceptance_gpu_count says {expected}"))
    context = {**common["context"], "gpu_table": [_row(g) for g in seen["gpus"]]}
    fields = {**common, "context": context, "members": sorted(by_part)}
    yield _absent("gpu_health", seen, expected, fields) or _found("gpu_health", findings, fields)
    for part, (g, found) in by_part.items():
        yield _found(
            "gpu_health",
            found,
            {**common, "part": part, "context": {"gpu": g["name"], "gpu_uuids": [g["uuid"]] if g["uuid"] else []}},
        )


def _found(check: str, findings: list[tuple[str, str]], fields: dict[str, t.Any]) -> dict[str, t.Any]:
    """Measured where nothing was found, else an error with the gravest code and all of the words."""
    if not findings:
        return observation.measured(check, **fields)
    code = next((code for code, _words in findings if code in reasons.FATAL), findings[0][0])
    said = sorted(findings, key=lambda finding: finding[0] != code)
    return observation.failed(check, code, "; ".join(words for _code, words in said)[:2000], **fields)


def _part(g: dict[str, t.Any]) -> str:
    """A GPU that no longer says who it is goes by its place."""
    return f"gpu/{g['uuid'] or g['bdf'] or g['index']}"


def _row(g: dict[str, t.Any]) -> dict[str, t.Any]:
    names = (
        "index", "uuid", "serial", "name", "bdf", "vbios", "temperature_c", "throttle_reasons",
        "pcie", "ecc", "remapped_rows", "retired_pages", "power", "fabric",
    )  # fmt: skip
    return {name: g[name] for name in names}


# CUDA ------------------------------------------------------------------------------------------------------------


def _cuda(
    seen: dict[str, t.Any], params: dict[str, t.Any], accelerator: base.Accelerator, fields: dict[str, t.Any]
) -> dict[str, t.Any]:
    """Whether the runtime of the accelerators starts: CUDA, or what stands in its place for another kind."""
    absent = _absent("cuda", seen, params["gpu_count"], fields)
    if absent:
        return absent
    node, start = accelerator.node, accelerator.start()
    argv = [node.python(params["python"]), "-c", start.script]
    result = node.run(argv, timeout=START_TIMEOUT_S, env=start.env, contained=True)
    said = _last_words(result.out, start.runtime)
    fields.update(
        command=[argv[0], "-c", f"initialise {start.runtime}"],
        started_at=observation.utc(result.started_at),
        duration_s=result.duration_s,
        raw=result.out + result.err,
        tool_version=f"torch {said['torch']}" if said.get("torch") else None,
        context={**fields["context"], **said},
    )
    if result.missing:
        return observation.failed("cuda", "tool_missing", f"{argv[0]}: {result.missing}; set stack_python", **fields)
    mig = any((g["mig"] or "").lower() == "enabled" for g in seen["gpus"])
    problem = start.problem(said, None if mig else len(seen["gpus"])) if said else None
    if problem:
        return observation.failed("cuda", *problem, **fields)
    if result.timed_out:
        step = "importing torch" if said else f"initialising {start.runtime}"
        reason = f"{step} in {argv[0]} did not end within {START_TIMEOUT_S:.0f} s"
        return observation.failed("cuda", start.code, reason, "timeout", **fields)
    if result.rc != 0 or not said:
        words = " ".join((result.err or result.out).split())[-200:]
        reason = f"initialising {start.runtime} in {argv[0]} ended with status {result.rc}: {words}"
        return observation.failed("cuda", start.code, reason, **fields)
    return observation.measured("cuda", **fields)


def _last_words(text: str, runtime: str) -> dict[str, t.Any]:
    """What the child had said last, {} where it said nothing of its form."""
    for line in reversed(text.splitlines()):
        if line.startswith(f"{runtime} {{"):
            try:
                said = json.loads(line[len(runtime) + 1 :])
            except ValueError:
                continue
            return said if isinstance(said, dict) else {}
    return {}
