# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observations: what a probe yields, before the controller completes them to measurement/v1.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons

# Stand-ins for missing hardware print this in a comment of their format.
SIMULATED_MARK = "simulated by gpufleet.acceptance"

FIELDS: dict[str, t.Any] = {
    "check": None,
    "variant": "",
    "part": "",
    "members": [],
    "subject": None,
    "outcome": None,
    "reason_code": None,
    "reason": None,
    "metrics": {},
    "series": [],
    "context": {},
    "evidence": {},
    "command": [],
    "tool_version": None,
    "started_at": None,
    "duration_s": 0.0,
    "raw": None,
    "simulated": False,
}


def utc(epoch: float | None = None) -> str:
    """Time of day as measurement/v1 writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))


def variant(**keys: t.Any) -> str:
    """Return the canonical variant: `key=value` joined by blanks, keys sorted, without keys whose value is None."""
    return " ".join(f"{k}={keys[k]}" for k in sorted(keys) if keys[k] is not None)


def measured(check: str, **fields: t.Any) -> dict[str, t.Any]:
    """An observation with numbers."""
    return _complete(check, "measured", fields)


def failed(check: str, reason_code: str, reason: str, outcome: str = "error", **fields: t.Any) -> dict[str, t.Any]:
    """Return an observation without usable numbers. `reason` is a sentence that a person can act on.

    Raises ValueError, which quotes `reason`, if `reason_code` is not in reasons.py.
    """
    if reason_code not in reasons.ALL:
        raise ValueError(f"reason code {reason_code!r} is not in module_utils/answer/reasons.py; its reason was: {reason}")
    return _complete(check, outcome, dict(fields, reason_code=reason_code, reason=reason))


def _complete(check: str, outcome: str, fields: dict[str, t.Any]) -> dict[str, t.Any]:
    unknown = set(fields) - set(FIELDS)
    if unknown:
        raise ValueError(f"an observation has no field {sorted(unknown)}")
    record = {name: (default.copy() if isinstance(default, (dict, list)) else default) for name, default in FIELDS.items()}
    record.update(fields, check=check, outcome=outcome)
    record["started_at"] = record["started_at"] or utc()
    record["simulated"] = bool(record["simulated"] or SIMULATED_MARK in (record["raw"] or ""))
    return record


def fields(variant: str) -> dict[str, str]:
    """Return the keys of a variant: `a=1 b=2` -> {"a": "1", "b": "2"}."""
    return dict(word.split("=", 1) for word in variant.split() if "=" in word)
