# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A line for every change: who did what, from where, and what came of it. Lines of JSON, so that no name can add one.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import sys
import threading
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import utc

LONGEST = 400


class Audit:
    def __init__(self, target: t.TextIO | None = None) -> None:
        self._target = target
        self._lock = threading.Lock()

    def note(self, who: str, event: str, subject: str, origin: str, outcome: str, detail: str = "") -> None:
        """`about` is what was changed, `origin` an address. No token, cookie or link is ever told here."""
        line = {"at": utc(), "audit": "console", "who": who, "what": event, "about": subject, "from": origin, "outcome": outcome}
        if detail:
            line["detail"] = detail
        text = json.dumps({name: of[:LONGEST] for name, of in line.items()})
        with self._lock:
            print(text, file=self._target or sys.stdout, flush=True)
