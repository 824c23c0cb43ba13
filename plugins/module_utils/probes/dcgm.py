# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's own diagnostic of its GPUs (DCGM), where it is installed: a witness beside the other stages.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import gpu, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import dcgm
from ansible_collections.gpufleet.acceptance.plugins.module_utils.plain_data import Observation, Params, PlainData

# {test: the lowest level of the diagnostic (`dcgmi diag -r`) that has it} (DCGM user guide, "DCGM Diagnostics").
LEVELS = {
    "software": 1,
    "pcie": 2, "memory": 2,
    "memory_bandwidth": 3, "diagnostic": 3, "targeted_stress": 3, "targeted_power": 3,
    "memtest": 4, "pulse_test": 4,
}  # fmt: skip
# Whatever a version runs besides.
OTHER = "other"
CHECKS = (*LEVELS, OTHER)


class KnownAlarm(t.NamedTuple):
    """Words of a test that say nothing about the GPU. `versions` is a pattern of DCGM's versions. A `mild` one is worth a look, with any
    other nothing was tested."""

    test: str
    words: str
    versions: str
    mild: bool
    why: str


KNOWN_ALARMS = (
    KnownAlarm(
        "software", r"persistence mode .*disabled", r".*", True,
        "a setting, no defect: `nvidia-smi -pm 1`, or nvidia-persistenced",
    ),
    KnownAlarm(
        "nvbandwidth", r"MCUTIL", r"4\.5\.0", False,
        "DCGM 4.5.0 fails it right after the test before it, on idle machines too (github.com/NVIDIA/DCGM issue 272)",
    ),
    KnownAlarm(
        "memory", r"alloc", r".*", False,
        "it could not have the memory that it tests, and may say Pass all the same (github.com/NVIDIA/DCGM issue 284)",
    ),
)  # fmt: skip


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Per check {"check": "memory", "variant": "level=2"} one observation of the node."""
    checks = [(check["check"], check["variant"]) for check in params["checks"]]
    snapshot = gpu.snapshot(node)
    refusal = gpu.refusal(snapshot, params["gpu_count"], "results", params["mig"], nvidia.Nvidia.kind)
    if refusal:
        outcome, code, reason = refusal
        for check, variant in checks:
            yield observation.failed(check, code, reason, outcome=outcome, variant=variant)
        return
    argv = [params["dcgmi"] or "dcgmi", "diag", "-r", str(params["level"]), "-j"]
    with Window(node, snapshot) as window:
        result = node.run(argv, timeout=params["test_timeout"], env=params["env"])
    parsed = dcgm.parse(result.out, result.rc if result.rc is not None else 1, result.err)
    context = {"gpu": gpu.model(snapshot), "gpus": len(snapshot["gpus"]), "level": params["level"], "driver": parsed["driver"]}
    shared = {
        "command": argv, "evidence": window.evidence(), "raw": result.raw, "started_at": observation.utc(result.started_at),
        "tool_version": f"DCGM {parsed['version']}" if parsed["version"] else None,
        "simulated": bool(snapshot.get("simulated")) or observation.SIMULATED_MARK in result.out,
    }  # fmt: skip
    for check, variant in checks:
        # The diagnostic runs as a whole: its time stands with the first check.
        took = {"duration_s": round(result.duration_s, 3) if (check, variant) == checks[0] else 0.0}
        problem = _problem(result, parsed, params) or _unusable(check, parsed, len(snapshot["gpus"]))
        if problem:
            outcome, code, reason = problem
            yield observation.failed(check, code, reason, outcome, variant=variant, context=context, **shared, **took)
        else:
            findings = [{"code": "diagnostic_warned", "text": text} for text in _warnings(check, parsed)]
            extra = {"findings": findings} if findings else {}
            yield observation.measured(check, variant=variant, context={**context, **extra}, **shared, **took)


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the checks of a call that names none."""
    variant = observation.variant(level=params["level"])
    return [{"check": check, "variant": variant} for check in (*_of_level(params["level"]), OTHER)]


def _of_level(level: int) -> list[str]:
    return [check for check, minimum in LEVELS.items() if minimum <= level]


def _problem(result: t.Any, parsed: PlainData, params: Params) -> tuple[str, str, str] | None:
    """Return why there is no result of any check, as (outcome, reason code, reason)."""
    if result.missing:
        return "error", "tool_missing", f"{result.argv[0]}: {result.missing}; install DCGM, set dcgm_dcgmi, or leave the stage out"
    if result.timed_out:
        waited = result.ended_after(params["test_timeout"])
        reason = f"the diagnostic of level {params['level']} did not end within {waited}; dcgm_test_timeout is its deadline"
        return "timeout", "timeout", reason
    if parsed["outcome"] != "measured":
        return "error", parsed["reason_code"], parsed["reason"]
    return None


def _tests(check: str, parsed: PlainData) -> dict[str, PlainData]:
    """Return the tests that a check is about."""
    tests = parsed["tests"]
    return {name: test for name, test in tests.items() if name == check or (check == OTHER and name not in LEVELS)}


def _unusable(check: str, parsed: PlainData, gpus: int) -> tuple[str, str, str] | None:
    """Return why a check has not passed, as (outcome, reason code, reason)."""
    tests = _tests(check, parsed)
    if not tests and check == OTHER:
        return "not_applicable", "no_other_test", "DCGM ran no test besides those that are checks of their own"
    if not tests:
        return "error", "diagnostic_skipped", f"DCGM {parsed['version'] or ''} ran no test {check}".replace("  ", " ")
    failed = [(name, result) for name, test in tests.items() for result in test["results"] if result["status"] == "fail"]
    real = [(name, result) for name, result in failed if not _alarm(name, result, parsed)]
    if real:
        return "error", "diagnostic_failed", "; ".join(dict.fromkeys(_said(name, result) for name, result in real))[:600]
    for name, test in tests.items():
        for result in test["results"]:
            alarm = _alarm(name, result, parsed)
            if alarm and not alarm.mild:
                return "error", "false_alarm", f"{_said(name, result)}: {alarm.why}"
    for name, test in tests.items():
        skipped = [result for result in test["results"] if result["status"] == "skip"]
        # What a version runs besides may not be for this model.
        if skipped and check != OTHER:
            return "error", "diagnostic_skipped", f"DCGM skipped it: {_said(name, skipped[0])}"
        tested = {number for result in test["results"] if result["entity"] == "GPU" for number in result["gpus"]}
        # Parts of `software` are about the machine, and versions differ in whether they name GPUs.
        if check not in (OTHER, dcgm.SOFTWARE) and len(tested) < gpus:
            return "error", "diagnostic_skipped", f"{name} has results of {len(tested)} of {gpus} GPUs"
    return None


def _alarm(test: str, result: PlainData, parsed: PlainData) -> KnownAlarm | None:
    """Return the known alarm that all warnings of a result are of; None for any other."""
    texts = result["warnings"]
    for alarm in KNOWN_ALARMS:
        of_version = alarm.test == test and re.fullmatch(alarm.versions, parsed["version"] or "")
        if of_version and texts and all(re.search(alarm.words, text, re.IGNORECASE) for text in texts):
            return alarm
    return None


def _warnings(check: str, parsed: PlainData) -> list[str]:
    """Return what a check that passed warns of."""
    texts = []
    for name, test in _tests(check, parsed).items():
        for result in test["results"]:
            if result["warnings"] or result["status"] == "warn":
                alarm = _alarm(name, result, parsed)
                texts.append(f"{_said(name, result)}{f' ({alarm.why})' if alarm else ''}")
            elif result["status"] == "skip":
                texts.append(f"DCGM skipped it: {_said(name, result)}")
    return list(dict.fromkeys(texts))


def _said(name: str, result: PlainData) -> str:
    """Return a result in words, with the numbers that DCGM gives the GPUs."""
    words = "; ".join(result["warnings"] or result["info"]) or f"{result['status'].capitalize()} without a word"
    numbers = ", ".join(map(str, result["gpus"])) if result["entity"] != "all" else ""
    where = f" of {result['entity']} {numbers} (DCGM's number)" if numbers else ""
    return f"{name}{where}: {words}"
