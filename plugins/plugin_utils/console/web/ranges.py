# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends of a range of time as Grafana writes them in addresses, so that a link of a dashboard shows the same time here.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import time

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import utc

_AGO = re.compile(r"now-([0-9]{1,4})([smhdwMy])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "M": 30 * 86400, "y": 365 * 86400}
# Milliseconds since 1970.
_EPOCH = re.compile(r"[0-9]{12,13}")


def moment(text: str) -> str:
    """Return `now-7d` or 1767225600000 as a moment of a search, and `now` as an empty text: no end. Other text stays as it is."""
    if ago := _AGO.fullmatch(text):
        return utc(max(0.0, time.time() - int(ago[1]) * _UNITS_S[ago[2]]))
    if _EPOCH.fullmatch(text):
        return utc(int(text) / 1000)
    return "" if text == "now" else text
