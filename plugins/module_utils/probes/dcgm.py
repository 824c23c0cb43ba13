# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's own diagnostic of its GPUs (DCGM), where it is installed: a witness beside the other stages.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import dcgm
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# {test: the lowest level of the diagnostic (`dcgmi diag -r`) that has it} (DCGM user guide, "DCGM Diagnostics").
LEVELS = {
    "software": 1,
    "pcie": 2, "memory": 2,
    "memory_bandwidth": 3, "diagnostic": 3, "targeted_stress": 3, "targeted_power": 3,
    "memtest": 4, "pulse_test": 4,
}  # fmt: skip
# Whatever a version runs besides.
OTHER = "other"
DISCOVERY_S = 60.0
CHECKS = (*LEVELS, OTHER)


class KnownAlarm(t.NamedTuple):
    """Words of a test that say nothing about the GPU. `versions` is a pattern of DCGM's versions. A `mild` one is worth a look, with any
    other nothing was tested. `holds`: of which nodes the words say nothing, by their snapshot."""

    test: str
    words: str
    versions: str
    mild: bool
    why: str
    holds: t.Callable[[PlainData], bool] = lambda _snapshot: True


def _hides_lanes(snapshot: PlainData) -> bool:
    """Return True if the GPUs are those of a virtual machine, and none has fewer lanes than another one of its model."""
    gpus = snapshot["gpus"]
    by_siblings = nvidia.siblings(gpus)
    codes = {code for g in gpus for code, _words in (*nvidia.health(g), *by_siblings.get(g["uuid"], []))}
    return bool(gpus) and all(g["virtual"] for g in gpus) and not codes & {"pcie_width", "pcie_speed"}


KNOWN_ALARMS = (
    KnownAlarm(
        "software", r"persistence mode .*disabled", r".*", True,
        "a setting, no defect: `nvidia-smi -pm 1`, or nvidia-persistenced",
    ),
    # dcgm_errors.h, DCGM_FR_PCIE_WIDTH and DCGM_FR_PCIE_GENERATION.
    KnownAlarm(
        "pcie", r"^(?!.*(?:bandwidth|latency|replay)).*PCI link (?:width \d+X|generation \d+), which is below", r".*", True,
        "a virtual machine hides how many lanes its slots have, and no GPU has fewer than another one of its model", _hides_lanes,
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

# It is the diagnostic of one vendor.
KINDS = (nvidia.Nvidia.kind,)


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Per check {"check": "memory", "variant": "level=2"} one observation of the node."""
    checks = [(check["check"], check["variant"]) for check in params["checks"]]
    snapshot = gpu.snapshot(node)
    refusal = gpu.refusal(snapshot, params["gpu_count"], "results", params["mig"], KINDS, partial=True)
    if refusal:
        outcome, code, reason = refusal
        for check, variant in checks:
            yield observation.failed(check, code, reason, outcome=outcome, variant=variant)
        return
    used, aside = gpu.without_mig(snapshot)
    dcgmi = params["dcgmi"] or "dcgmi"
    argv = [dcgmi, "diag", "-r", str(params["level"]), "-j"]
    if aside:
        numbers = _numbers(node, dcgmi, [str(g["uuid"]) for g in used["gpus"]])
        if isinstance(numbers, str):
            for check, variant in checks:
                yield observation.failed(check, "diagnostic_skipped", numbers, variant=variant)
            return
        argv += ["-i", ",".join(map(str, numbers))]
    with Window(node, snapshot) as window:
        result = node.run(argv, timeout=params["test_timeout"], env=params["env"])
    parsed = dcgm.parse(result.out, result.rc if result.rc is not None else 1, result.err)
    parsed["snapshot"] = used
    context = {
        "gpu": gpu.model(used), "gpus": len(used["gpus"]), "level": params["level"], "driver": parsed["driver"],
        **({"set_aside": aside} if aside else {}),
    }  # fmt: skip
    shared = {
        "command": argv, "evidence": window.evidence(), "raw": result.raw, "started_at": observation.utc(result.started_at),
        "tool_version": f"DCGM {parsed['version']}" if parsed["version"] else None,
        "simulated": bool(snapshot.get("simulated")) or observation.SIMULATED_MARK in result.out,
    }  # fmt: skip
    for check, variant in checks:
        # The diagnostic runs as a whole: its time stands with the first check.
        took = {"duration_s": round(result.duration_s, 3) if (check, variant) == checks[0] else 0.0}
        problem = _problem(result, parsed, params) or _unusable(check, parsed, len(used["gpus"]))
        if problem:
            outcome, code, reason = problem
            yield observation.failed(check, code, reason, outcome, variant=variant, context=context, **shared, **took)
        else:
            findings = [{"code": "diagnostic_warned", "text": text} for text in _warnings(check, parsed)]
            extra = {"findings": findings} if findings else {}
            yield observation.measured(check, variant=variant, context={**context, **extra}, **shared, **took)


def _numbers(node: Node, dcgmi: str, uuids: t.Sequence[str]) -> list[int] | str:
    """Return DCGM's numbers of GPUs, or why they are not known."""
    result = node.run([dcgmi, "discovery", "-l"], timeout=DISCOVERY_S)
    number_of = dcgm.parse_discovery(result.out)
    missing = [uuid for uuid in uuids if uuid not in number_of]
    if missing:
        return f"MIG is on for other GPUs, and `dcgmi discovery -l` does not tell DCGM's number of {', '.join(missing[:3])}"
    return [number_of[uuid] for uuid in uuids]


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
        return "error", "diagnostic_failed", "; ".join(dict.fromkeys(_result_in_words(name, result) for name, result in real))[:600]
    for name, test in tests.items():
        for result in test["results"]:
            alarm = _alarm(name, result, parsed)
            if alarm and not alarm.mild:
                return "error", "false_alarm", f"{_result_in_words(name, result)}: {alarm.why}"
    for name, test in tests.items():
        skipped = [result for result in test["results"] if result["status"] == "skip"]
        # What a version runs besides may not be for this model.
        if skipped and check != OTHER:
            return "error", "diagnostic_skipped", f"DCGM skipped it: {_result_in_words(name, skipped[0])}"
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
        if of_version and alarm.holds(parsed["snapshot"]) and texts and all(re.search(alarm.words, text, re.IGNORECASE) for text in texts):
            return alarm
    return None


def _warnings(check: str, parsed: PlainData) -> list[str]:
    """Return what a check that passed warns of."""
    texts = []
    for name, test in _tests(check, parsed).items():
        for result in test["results"]:
            if result["warnings"] or result["status"] == "warn":
                alarm = _alarm(name, result, parsed)
                texts.append(f"{_result_in_words(name, result)}{f' ({alarm.why})' if alarm else ''}")
            elif result["status"] == "skip":
                texts.append(f"DCGM skipped it: {_result_in_words(name, result)}")
    return list(dict.fromkeys(texts))


def _result_in_words(name: str, result: PlainData) -> str:
    """Return a result in words, with the numbers that DCGM gives the GPUs."""
    words = "; ".join(result["warnings"] or result["info"]) or f"{result['status'].capitalize()} without a word"
    numbers = ", ".join(map(str, result["gpus"])) if result["entity"] != "all" else ""
    where = f" of {result['entity']} {numbers} (DCGM's number)" if numbers else ""
    return f"{name}{where}: {words}"
