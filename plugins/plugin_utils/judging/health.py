# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests that began on accelerators which were not in order, where no health check of the run has found it: it came up between the health
check and the test, or there was no health check.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.alone import BROKEN, coded
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of

Record = dict[str, t.Any]
CHECK = "gpu_health"


def opinions(deciding: t.Mapping[Key, Record]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield an opinion for each such test and problem, with the verdict that a health check would have given."""
    began = [(key, record) for key, record in deciding.items() if record["evidence"].get("health")]
    known = _known(deciding) if began else {}
    for key, record in began:
        problems = record["evidence"]["health"]
        for problem in problems if isinstance(problems, list) else [{"text": "the health before the test is not of its form"}]:
            code, text = coded(problem)
            part = f"{node_of(key.subject)}/{problem.get('part')}" if isinstance(problem, dict) else ""
            if key.subject not in (node_of(key.subject), part) or code in known.get(part, ()):
                continue
            yield key, _opinion(code, f"as the test began: {text}, which no health check of the run has found")


def _known(deciding: t.Mapping[Key, Record]) -> dict[str, set[str]]:
    """The codes that the health check has found, by the id of the device."""
    found: dict[str, set[str]] = {}
    for key, record in deciding.items():
        if key.check == CHECK:
            findings = record["context"].get("findings")
            codes = {coded(finding)[0] for finding in (findings if isinstance(findings, list) else ())}
            found[key.subject] = {*codes, str(record["reason_code"])}
    return found


def _opinion(code: str, text: str) -> Opinion:
    if code in BROKEN:
        return Opinion("FAIL", text, code)
    if code in reasons.MILD:
        return Opinion("WARN", text, code)
    return Opinion("UNKNOWN", text, code if code in reasons.ALL else "gpu_state")
