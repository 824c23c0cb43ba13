# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Log lines for collectors: one JSON object a line, of controller and pods alike.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import datetime
import json
import typing as t

INFO, WARN, ERROR = "info", "warn", "error"
APP = "gpufleet-acceptance"
# Container runtimes cut lines of more than 16 KiB; what is cut is no JSON.
TEXT = 1000


def line(event: str, level: str, message: str, **fields: t.Any) -> str:
    """One event. A field without a value is left out; nothing in a text ends the line or steers a terminal."""
    record: dict[str, t.Any] = {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level,
        "app": APP,
        "event": event,
        "message": message[:TEXT],
    }
    for name, value in fields.items():
        if value is not None and value != "":
            record[name] = value[:TEXT] if isinstance(value, str) else value
    return json.dumps(record, default=str)


def of_outcome(outcome: str) -> str:
    """The level of what a check ended with."""
    return INFO if outcome in ("measured", "not_applicable") else WARN
