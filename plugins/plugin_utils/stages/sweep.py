# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sizes of a sweep, as users write them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nccl


def problem(name: str, sizes: t.Iterable[t.Any]) -> str | None:
    """What is wrong with the value of the variable `name`, a list of SMALLEST:LARGEST."""
    for one in sizes or ():
        smallest, _colon, largest = str(one).partition(":")
        try:
            below, above = nccl.size(smallest), None if largest in ("", "auto") else nccl.size(largest)
        except ValueError:
            return f"{name}: found {one!r}, expected SMALLEST:LARGEST, like 8M:1G or 8M:auto"
        if above is not None and below > above:
            return f"{name}: found {one!r}, expected the smaller size first: {largest}:{smallest}"
    return None
