# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests that began on accelerators which were not in order, where no health check of the run has found it: it came up between the health
check and the test, or there was no health check.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.single_checks import BROKEN, coded
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement

CHECK = "gpu_health"
# How the reason ends of a defect that came up between the health check of the run and the test.
SINCE = ", which the health check of the run has not found"
UNCHECKED = ", and the run has no health check"


class Known(t.NamedTuple):
    """The reason codes that a health check has found on a node or a device, and all of its words."""

    codes: frozenset[str]
    words: str


def opinions(records: t.Mapping[Key, t.Sequence[Measurement]], deciding: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield an opinion for each such test and problem, with the verdict that a health check would have given.

    `records` are all attempts, `deciding` those that count. What is fatal in an earlier attempt is taken back by none after it.
    """
    began = [(key, record) for key, attempts in records.items() for record in attempts if record.evidence.get("health")]
    known_failures = _findings_of_health_check(deciding) if began else {}
    for key, record in began:
        counts = record.attempt == deciding[key].attempt
        problems = record.evidence["health"]
        for problem in problems if isinstance(problems, list) else [{"text": "the health before the test is not of its form"}]:
            code, text = coded(problem)
            part = problem.get("part") if isinstance(problem, dict) else ""
            part_subject = f"{node_of(key.subject)}/{part}" if part else node_of(key.subject)
            if key.subject not in (node_of(key.subject), part_subject) or not (counts or code in reasons.FATAL):
                continue
            earlier = known_failures.get(part_subject)
            # A defect of the same kind in other words (a higher counter, another Xid) is another one.
            if earlier is None or code not in earlier.codes or _words(text) not in earlier.words:
                sentence = f"as the test began: {text}{SINCE if earlier else UNCHECKED}"
                yield key, _opinion(code, sentence if counts else f"on attempt {record.attempt}, which no other takes back: {sentence}")


def _findings_of_health_check(deciding: t.Mapping[Key, Measurement]) -> dict[str, Known]:
    """Return the findings of the health check by the id of the node or the device."""
    states: dict[str, Known] = {}
    for key, record in deciding.items():
        if key.check == CHECK:
            findings = record.context.get("findings")
            coded_findings = [coded(finding) for finding in (findings if isinstance(findings, list) else ())]
            codes = frozenset((*(code for code, _text in coded_findings), str(record.reason_code)))
            states[key.subject] = Known(codes, "\n".join((str(record.reason), *(text for _code, text in coded_findings))))
    return states


def _words(text: str) -> str:
    """Return the text of a defect without the name of its device, which a test and a health check write differently."""
    return text.partition(": ")[2] or text


def _opinion(code: str, text: str) -> Opinion:
    if code in BROKEN:
        return Opinion("FAIL", text, code)
    if code in reasons.MILD:
        return Opinion("WARN", text, code)
    return Opinion("UNKNOWN", text, code if code in reasons.ALL else "gpu_state")
