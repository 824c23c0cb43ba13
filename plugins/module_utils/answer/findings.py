# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The observation of a check that looks for defects.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation, reasons

# (part or "", reason code, words)
Finding = t.Tuple[str, str, str]


def observed(check: str, findings: t.Sequence[Finding], fields: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a measured observation if no finding is grave, else an error with the gravest code and the words of all grave findings. Each
    other finding is in the context. `fields` are those of an observation, with a context."""
    grave = [(code, words) for _part, code, words in findings if code not in reasons.MILD]
    code = min((code for code, _words in grave), key=_gravity, default="")
    # Each defect is a finding of its own, so that a waiver covers only one of them; the fatal one is the record's own code.
    listed = [{"code": finding_code, "part": part, "text": words} for part, finding_code, words in findings if _stands(finding_code, code)]
    if listed:
        fields = {**fields, "context": {**fields["context"], "findings": listed}}
    if not grave:
        return observation.measured(check, **fields)
    ordered = sorted(grave, key=lambda finding: finding[0] != code)
    return observation.failed(check, code, "; ".join(words for _code, words in ordered)[:2000], **fields)


def _stands(code: str, of_record: str) -> bool:
    return code in reasons.MILD or code in reasons.DEFECTS or (code in reasons.FATAL and code != of_record)


def _gravity(code: str) -> int:
    """Return 0 for a code that is a FAIL in any attempt, 1 for another defect, 2 for a reason that leaves the state unknown."""
    return 0 if code in reasons.FATAL else 1 if code in reasons.DEFECTS else 2
