# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known failures: what may fail for a while, by which ticket, until when.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError

KEYS = ("subject", "stage", "check", "ticket", "expires", "reason")


class WaiverError(RunError):
    """A waiver that cannot be used: names it, the key, what was found and what is expected."""


@dataclasses.dataclass(frozen=True)
class Waiver:
    """`subject`, `stage` and `check` are patterns (`*`, `?`, `[...]`); a node stands for its parts too."""

    subject: str
    stage: str
    check: str
    ticket: str
    expires: str  # YYYY-MM-DD, the last day on which it holds
    reason: str

    def covers(self, subject: str, stage: str, check: str) -> bool:
        """Whether it speaks of this check of this subject."""
        return (
            any(fnmatch.fnmatchcase(name, self.subject) for name in (subject, node_of(subject)))
            and fnmatch.fnmatchcase(stage, self.stage)
            and fnmatch.fnmatchcase(check, self.check)
        )


def parse(raw: t.Any, where: str = "acceptance_waivers") -> list[Waiver]:
    """A list of {subject, stage, check, ticket, expires, reason} as the user wrote it; without stage or check it is for
    all, and a reason is for people only."""
    if not isinstance(raw, list):
        raise WaiverError(f"{where}: found {raw!r}, expected a list of waivers")
    return [_one(item, f"{where}[{number}]") for number, item in enumerate(raw)]


def _one(raw: t.Any, where: str) -> Waiver:
    if not isinstance(raw, dict):
        raise WaiverError(f"{where}: found {raw!r}, expected {{{', '.join(KEYS)}}}")
    if raw.get("ticket"):
        where = f"{where} ({raw['ticket']})"
    unknown = sorted(str(k) for k in raw if k not in KEYS)
    if unknown:
        raise WaiverError(f"{where}: {unknown[0]}: found an unknown key, expected {', '.join(KEYS)}")
    values = {"stage": "*", "check": "*", "reason": "not given", **{k: v for k, v in raw.items() if v is not None}}
    if isinstance(values.get("expires"), datetime.date):
        values["expires"] = values["expires"].strftime("%Y-%m-%d")
    for key in KEYS:
        if not isinstance(values.get(key), str) or not values[key].strip():
            expected = "a date, YYYY-MM-DD" if key == "expires" else "text"
            raise WaiverError(f"{where}: {key}: found {values.get(key)!r}, expected {expected}")
    try:
        if datetime.date.fromisoformat(values["expires"]).isoformat() != values["expires"]:
            raise ValueError
    except ValueError as error:
        raise WaiverError(f"{where}: expires: found {values['expires']!r}, expected a date, YYYY-MM-DD") from error
    return Waiver(**values)
