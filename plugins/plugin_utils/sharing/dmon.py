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
    """{index of a GPU: percent of each second in which it computed}. What a driver does not say, `-`, is nothing, and so is a line that
    does not fit the head above it."""
    found: dict[str, list[float]] = {}
    columns: t.Sequence[str] = ()
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["#", "gpu"]:
            columns = words[1:]
        if not words or words[0].startswith("#") or len(words) != len(columns) or "sm" not in columns:
            continue
        said = words[columns.index("sm")]
        if words[0].isdigit() and said.isdigit():
            found.setdefault(words[0], []).append(float(said))
    return found
