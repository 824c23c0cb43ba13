# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of lists in which users say what holds for some checks of some subjects: waivers, new references.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

# The reason of an entry that has none.
UNSAID = "not given"


@dataclasses.dataclass(frozen=True)
class About:
    """`subject`, `stage` and `check` are patterns (`*`, `?`, `[...]`); a node stands for its parts too."""

    subject: str
    stage: str
    check: str

    def covers(self, subject: str, stage: str, check: str) -> bool:
        """Return True if the entry is about this check of this subject."""
        return (
            any(fnmatch.fnmatchcase(name, self.subject) for name in (subject, node_of(subject)))
            and fnmatch.fnmatchcase(stage, self.stage)
            and fnmatch.fnmatchcase(check, self.check)
        )


def read(
    raw: t.Any, where: str, keys: t.Sequence[str], texts: t.Sequence[str], date: str, error: t.Callable[[str], RunError]
) -> tuple[PlainData, str]:
    """An entry as its user wrote it, with these `keys`, of which `texts` are texts and one a `date`, and how it is called. Without stage or
    check it is for all, and a reason is for people only. `error` makes what is raised: the key, what was found, what is expected."""
    if not isinstance(raw, dict):
        raise error(f"{where}: found {raw!r}, expected {{{', '.join(keys)}}}")
    if raw.get("ticket"):
        where = f"{where} ({raw['ticket']})"
    unknown = sorted(str(k) for k in raw if k not in keys)
    if unknown:
        raise error(f"{where}: {unknown[0]}: found an unknown key, expected {', '.join(keys)}")
    values = {"stage": "*", "check": "*", "reason": UNSAID, **{k: v for k, v in raw.items() if v is not None}}
    if isinstance(values.get(date), datetime.date):
        values[date] = values[date].strftime("%Y-%m-%d")
    for key in texts:
        if not isinstance(values.get(key), str) or not values[key].strip():
            expected = "a date, YYYY-MM-DD" if key == date else "text"
            raise error(f"{where}: {key}: found {values.get(key)!r}, expected {expected}")
    try:
        if datetime.date.fromisoformat(values[date]).isoformat() != values[date]:
            raise ValueError
    except ValueError as wrong:
        raise error(f"{where}: {date}: found {values[date]!r}, expected a date, YYYY-MM-DD") from wrong
    return values, where
