# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many GPUs a machine has places for, by what it is: its product, its board, its NVSwitches. Never by the GPUs that are there.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

# Products that are made with one number of GPUs only: (pattern of the product name in DMI, number). Sources: data sheets of their makers
# (NVIDIA DGX, Dell PowerEdge XE, Supermicro, Lenovo, HPE, ASUS, Gigabyte, Inspur, Quanta, Cisco); of Amazon, whose machines have the
# instance type as product name, the pages of EC2's accelerated instances. DMI names of DGX as users published them: `DGX-1 with V100`,
# `DGXA100 920-23687-2531-001`.
PRODUCTS: tuple[tuple[str, int], ...] = (
    (r"DGX-?2H?\b", 16),
    (r"DGX-?1\b|DGX[ -]?(?:A100|A800|H100|H200|H800|B200|B300)\b|DGX[ABH]\d00\b", 8),
    (r"PowerEdge XE(?:9680L?|9685L?|9780L?|9785L?)\b", 8),
    (r"PowerEdge XE(?:9640|8640|8545)\b", 4),
    (
        r"(?:SYS|AS|ARS)[ -]+(?:821GE-TNHR|8125GS-TN[HM]R|8126GS-(?:TN|NB)\w+|A21GE-NBRT|A22GA-NBRT|A126GS-\w+|422GA-NBRT|421GE-TNHR2|"
        r"4125GS-TNHR2|4126GS-NBR|420GP-TNAR|4124GO-NART)",
        8,
    ),
    (r"(?:SYS|AS)[ -]+(?:2124GQ-NART|220GQ-TNAR|421GU-TNXR|521GU-TNXR)", 4),
    (r"\bSR(?:680a|685a|780a) V[34]\b", 8),
    (r"Cray XD670\b|ProLiant Compute XD685\b", 8),
    (r"\bESC N8A?-E1[0-9]", 8),
    (r"\bESC N4A?-E1[0-9]", 4),
    (r"\bG[58]93-[A-Z]{2}\d|\bG492-ZD\d", 8),
    (r"\bG262-ZR\d|\bG363-SR\d", 4),
    (r"\bNF5[46][89]8(?:L?[AM][567])\b", 8),
    (r"QuantaGrid D74[AH]-7U", 8),
    (r"UCSC-885A-M8", 8),
    (r"^p(?:3\.16xlarge|3dn\.24xlarge|4de?\.24xlarge|5(?:e|en)?\.48xlarge|6-b[23]00\.48xlarge)$", 8),
    (r"^p(?:3\.8xlarge|6e-gb[23]00\.36xlarge)$", 4),
    (r"^(?:p3\.2xlarge|p5\.4xlarge)$", 1),
    (r"^(?:g4dn\.metal|g5\.48xlarge|g6e?\.48xlarge|g7e?\.48xlarge)$", 8),
    (r"^(?:g4dn\.12xlarge|g5\.(?:12|24)xlarge|g6e?\.(?:12|24)xlarge|g7e?\.24xlarge)$", 4),
    (r"^g7e\.12xlarge$", 2),
)
# PCI devices of class 0680 of NVIDIA that are NVSwitches: {device: (how many a baseboard of 8 GPUs has, what it is)} (NVIDIA Fabric Manager
# user guide, topologies of HGX-2, HGX A100 and HGX H100; the ids: nvswitch_pci_table in src/common/nvswitch/kernel/nvswitch.c and
# g_kernel_nvlink_nvoc.h of its open kernel modules). Baseboards of 4 GPUs have none, those of B200 and B300 show theirs not
# on the bus.
NVSWITCHES = {"0x1ac2": (6, "HGX-2"), "0x1af1": (6, "HGX A100"), "0x22a3": (4, "HGX H100 or H200")}
BOARD = 8
# GPUs on baseboards of 8 or of 4, of which only those of 8 have switches: a fabric that is complete is one of 8.
SWITCHED = re.compile(r"NVIDIA (?:A100-SXM|A800-SXM|H100 80GB HBM3|H200$|H800$|H20\b|B200|B300).*")


class Places(t.NamedTuple):
    """The number of GPUs that a machine has places for, and what tells it."""

    number: int
    why: str


def by_product(product: str) -> Places | None:
    """Return the places of a product, by the name that its firmware has."""
    name = " ".join(product.split())
    count = next((count for pattern, count in PRODUCTS if re.search(pattern, name)), None)
    return Places(count, f"a {name} has {count}") if count else None


def by_board(model: str, switches: t.Sequence[str], fabric: t.Collection[str], modules: t.Collection[int]) -> Places | None:
    """Return the places of the baseboard of a physical machine. `switches`: device ids of its NVSwitches; `fabric`: states of the fabric of
    its GPUs; `modules`: their places on the baseboard, from 1 on. A virtual machine may be given a part of a board."""
    for device, (each, board) in NVSWITCHES.items():
        number = list(switches).count(device)
        if number:
            boards = -(-number // each)
            return Places(BOARD * boards, f"its {number} NVSwitches are those of {board}, with {BOARD * boards}")
    if not SWITCHED.fullmatch(model):
        return None
    if max(modules, default=0) > 4:
        return Places(BOARD, f"a GPU is in place {max(modules)} of its baseboard, which has {BOARD}")
    if "completed" in {state.lower() for state in fabric}:
        return Places(BOARD, f"its GPUs are joined by NVSwitches, which only baseboards of {BOARD} have")
    return None
