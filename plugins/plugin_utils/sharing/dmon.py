# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser of `nvidia-smi dmon`: the utilisation of each GPU second by second, as the driver reports it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t


def command(seconds: int) -> tuple[str, ...]:
    return "nvidia-smi", "dmon", "-s", "u", "-d", "1", "-c", str(seconds)


def busy(text: str) -> dict[str, list[float]]:
    """Return {index of a GPU: its utilisation in percent, one number per second}. A value `-` and a line that does not fit the header above
    it are left out."""
    percents: dict[str, list[float]] = {}
    columns: t.Sequence[str] = ()
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["#", "gpu"]:
            columns = words[1:]
        if not words or words[0].startswith("#") or len(words) != len(columns) or "sm" not in columns:
            continue
        percent = words[columns.index("sm")]
        if words[0].isdigit() and percent.isdigit():
            percents.setdefault(words[0], []).append(float(percent))
    return percents
