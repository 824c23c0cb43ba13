# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for what gdsio prints, and for the counters of the kernel's module nvidia-fs.

Forms: NVIDIA's "Getting Started with GPUDirect Storage", Demonstrating GDS with gdsio, and the GPUDirect Storage Troubleshooting Guide,
Displaying GDS NVIDIA FS Driver Statistics. gdsio prints the transfer that was asked for (`XferType: GPUD`), also where its library copied
all data through the memory of the machine: only the counters tell.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

# Where its packages install it, and where the kernel's module counts what went past the memory of the machine.
TOOL, COUNTERS = "/usr/local/cuda/gds/tools/gdsio", "/proc/driver/nvidia-fs/stats"
_LINE = re.compile(
    r"IoType:\s*(?P<way>[A-Z]+)\s+XferType:\s*(?P<transfer>\w+)\s+Threads:\s*(?P<threads>\d+)\s+DataSetSize:\s*(?P<moved>\d+)/\d+\(KiB\)\s+"
    r"IOSize:\s*[\d-]+\(KiB\)\s+Throughput:\s*(?P<rate>\d+(?:\.\d+)?)\s*GiB/sec,?\s+Avg_Latency:\s*(?P<latency>\d+(?:\.\d+)?)\s*usecs"
)
_COUNTED = re.compile(r"^\s*(Reads|Writes)\s*:\s*n=(\d+)\s+ok=(\d+)", re.M)


class Transfer(t.NamedTuple):
    """A line of gdsio: `way` is "read" or "write", `rate` in GiB/s, `moved` in bytes, `latency_us` the mean of a request."""

    way: str
    transfer: str
    moved: int
    rate: float
    latency_us: float


def transfers(text: str) -> list[Transfer]:
    """Return the transfers in the order in which they were printed. A line may be broken between its parts."""
    found = []
    for match in _LINE.finditer(text):
        way = match["way"].lower()
        if way in ("read", "write"):
            found.append(Transfer(way, match["transfer"], int(match["moved"]) << 10, float(match["rate"]), float(match["latency"])))
    return found


def counted(text: str | None) -> dict[str, int]:
    """Return how many reads and writes nvidia-fs has done, {"read", "write"}; empty if it does not count them (`rw_stats_enabled` is 0)."""
    return {name.lower()[:-1]: int(ok) for name, _number, ok in _COUNTED.findall(text or "")}
