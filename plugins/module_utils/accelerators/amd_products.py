# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD Instinct GPUs by their PCI device ids: what a healthy one of each model has.

Sources: device ids and host links of AMD's acceptance documents (ROCm/system-acceptance-docs at 23e7312, health-checks); compute units,
memory, power and links of datasheets, collected by stas00/ml-engineering at 744d01e (2026-08). No value was measured by this project.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t


class Product(t.NamedTuple):
    """A model: `name` as its tools print it, compute units, MiB of memory that the driver shows (what the firmware keeps is left out; None
    if nobody has published it), watts of its highest power limit, and how many other GPUs of a board of 8 it has an XGMI link to."""

    name: str
    compute_units: int
    memory_mib: int | None
    power_w: int
    links: int


PRODUCTS: dict[int, Product] = {
    0x74A1: Product("AMD Instinct MI300X", 304, 196592, 750, 7),
    0x74A5: Product("AMD Instinct MI325X", 304, 262128, 1000, 7),
    0x75A0: Product("AMD Instinct MI350X", 256, None, 1000, 7),
    0x75A3: Product("AMD Instinct MI355X", 256, None, 1400, 7),
}
# Models of which less is known for certain: their names only.
NAMES: dict[int, str] = {
    0x74A0: "AMD Instinct MI300A", 0x74A2: "AMD Instinct MI308X", **{number: of.name for number, of in PRODUCTS.items()},
}  # fmt: skip
_BY_NAME = {of.name: of for of in PRODUCTS.values()}
# Partition modes: into how many devices a GPU is divided (TPX is of MI300A).
PARTS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4, "CPX": 8}
# Instinct GPUs on boards and in sockets, whose memory always has ECC, whose PCIe link has 16 lanes, and which count throttling by cause.
INSTINCT = re.compile(r"AMD Instinct MI3\d\d\w?\b.*")


def of_name(name: str | None) -> Product | None:
    """Return the product of a name that a device has while it is not partitioned; None for any other."""
    return _BY_NAME.get(name or "")


def name_of(device_id: int | None, shown: str | None) -> str | None:
    """Return the name of a model by its PCI device id; of an id that is not known, the name that the tool shows. Tools have printed
    several names of one model."""
    return NAMES.get(device_id or 0) or shown


def gfx(version: int) -> str | None:
    """Return the name of a graphics version: 90402 is gfx942."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else None
