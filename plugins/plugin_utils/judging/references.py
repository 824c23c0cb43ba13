# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""New references: from which day on a subject's numbers are what they are meant to be, as after a power limit that was lowered on purpose.

They say what is no past of a number any more. No floor, and no verdict but that of the past, is softer by one.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import entries
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

VARIABLE = "acceptance_new_references"
KEYS = ("subject", "stage", "check", "since", "ticket", "reason")
_TEXTS = ("subject", "stage", "check", "since", "ticket", "reason")


class NewReferenceError(RunError):
    """One that cannot be used: names it, the key, what was found and what is expected."""


@dataclasses.dataclass(frozen=True)
class Reference(entries.About):
    """A new reference: numbers from before the day `since` (YYYY-MM-DD) are not used as the past of what it covers."""

    since: str
    ticket: str
    reason: str


def parse(raw: t.Any, where: str = VARIABLE, subject: str = "") -> list[Reference]:
    """A list of {subject, stage, check, since, ticket, reason} as the user wrote it, of `subject` where one names none."""
    if not isinstance(raw, list):
        raise NewReferenceError(f"{where}: found {raw!r}, expected a list of new references")
    parsed = []
    for number, item in enumerate(raw):
        full_item = {**({"subject": subject} if subject else {}), **item} if isinstance(item, dict) else item
        values, place = entries.read(full_item, f"{where}[{number}]", KEYS, _TEXTS, "since", NewReferenceError)
        # One for a day to come would take today's past away before anything is different.
        if values["since"] > datetime.date.today().isoformat():
            raise NewReferenceError(f"{place}: since: found {values['since']}, expected today or a day before it")
        parsed.append(Reference(**values))
    return parsed


def since(references: t.Iterable[Reference], subject: str, stage: str, check: str) -> Reference | None:
    """The last one that speaks of this check of this subject."""
    covering = [reference for reference in references if reference.covers(subject, stage, check)]
    return max(covering, key=lambda reference: (reference.since, reference.ticket), default=None)
