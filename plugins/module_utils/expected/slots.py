# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of NICs of a node that its GPUs can use, from the rates of their PCIe slots and NVLinks.

A number between nodes is bound by the NICs only where the GPUs can fill them. The controller judges by this, and the head of a group of
nodes searches by it (matching.py).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import re
import typing as t


class Slot(t.NamedTuple):
    """The link rates of one GPU: PCIe generation and lanes of its slot, and GB/s of its NVLinks in one direction.

    `linked`: the NVLinks reach every other GPU of the node. Otherwise the slot also carries what goes to the neighbours.
    `proven`: somebody has published that groups of such nodes fill their NICs.
    """

    generation: int
    lanes: int
    links: float = 0.0
    linked: bool = False
    proven: bool = False


# By the product name that nvidia-smi prints; the first pattern that matches the whole name counts (datasheets). Filled NICs are published
# of A100 (4 x 200G 96 GB/s, nccl-tests issue 119; 8 x 200G 191, DeepOps), H100 (8 x 400G 386.6, CoreWeave), and H200, B200 and B300,
# which have the same or faster slots. H20 gave 343 of 384 (nccl issue 1244), V100 about 40 of 48, MI300X 350 of 384.
SLOTS: t.Tuple[t.Tuple[str, Slot], ...] = (
    (r"(Tesla|NVIDIA) V100-SXM.*", Slot(3, 16, 150.0, True)),
    (r"(Tesla|NVIDIA) (V100S?-PCIE.*|T4)", Slot(3, 16)),
    (r"NVIDIA A100-SXM.*", Slot(4, 16, 300.0, True, True)),
    (r"NVIDIA A800-SXM.*", Slot(4, 16, 200.0, True, True)),
    (r"NVIDIA (A100|A800).*|NVIDIA (A10|A10G|A30|A40|L4|L20|L40|L40S)", Slot(4, 16)),
    (r"NVIDIA (H100|H200|H800) (PCIe|NVL)|NVIDIA RTX PRO 6000 Blackwell.*", Slot(5, 16)),
    (r"NVIDIA (H100|H200).*", Slot(5, 16, 450.0, True, True)),
    (r"NVIDIA H800.*", Slot(5, 16, 200.0, True, True)),
    (r"NVIDIA H20(-3e)?", Slot(5, 16, 450.0, True)),
    (r"NVIDIA B200.*", Slot(5, 16, 900.0, True, True)),
    (r"NVIDIA B300.*", Slot(6, 16, 900.0, True, True)),
    (r"AMD Instinct MI3(00|25)X.*", Slot(5, 16, 448.0, True)),
    (r"AMD Instinct MI35[05]X.*", Slot(5, 16, 535.5, True)),
)
# GT/s per lane and the share that is payload (128b/130b, FLIT).
PCIE: t.Dict[int, t.Tuple[float, float]] = {
    3: (8.0, 128 / 130),
    4: (16.0, 128 / 130),
    5: (32.0, 128 / 130),
    6: (64.0, 242 / 256),
}
# Of the payload rate of a slot DMA reaches 0.79 to 0.88: 12.4 to 13.2 of 15.75 GB/s (V100), 25.9 to 26.3 of 31.5 (A100), 51 to 55.4 of
# 63.0 (H100, H200), by SuperBench, Azure and the ml-engineering book.
REACHED = 0.8
# NCCL reaches this share of a NIC's line rate: 24 GB/s of 25 per 200G port, 48 of 50 per 400G port.
NIC_REACHED = 0.96
# Links that carry hardly more than the NICs of the node do bind by themselves: A800 and H800, whose NVLinks are cut.
LINKS_SPARE = 0.9
# Baseboards carry eight GPUs: the NICs of a node belong to so many, however few of them a test uses.
BOARD = 8


# A ring through GPUs in slots passes every slot in both directions at once. Of the payload of PCIe 5.0 x16, 63 GB/s, eight RTX PRO 6000
# gave 37.6 to 41.7, by switches or two sockets (rtx6kpro, 2026), and of PCIe 3.0, 15.75, V100 gave 11.67 (SuperBench): the least of these
# shares is what a healthy ring reaches.
RING_REACHED = 0.597
# How GPUs and NICs of a node are connected, by the PCI tree, the nearest first: below one root port (a switch), below one host bridge, or
# neither.
SWITCH, HOST_BRIDGE, FAR = "switch", "host bridge", "far"
PATHS = (SWITCH, HOST_BRIDGE, FAR)

# What of a measurement's context usable() and ring() read.
KEYS = ("gpu", "gpus", "nics", "nic_gbps", "link_layer", "mnnvl", "nic_path")


class Usable(t.NamedTuple):
    """NICs of each node that a test can use: certainly, and at most. What lies between depends on the PCIe tree of the node."""

    certain: int
    at_most: int


@functools.lru_cache(maxsize=256)
def of(name: str) -> Slot | None:
    """Return the slot of a GPU as known from its product name."""
    return next((slot for pattern, slot in SLOTS if re.fullmatch(pattern, name)), None)


def rate(generation: int, lanes: int) -> float:
    """Payload of a PCIe link in one direction, GB/s: rate x lanes x coding."""
    gigatransfers, coding = PCIE[generation]
    return gigatransfers * lanes * coding / 8


def reached(slot: Slot) -> float:
    """GB/s in one direction that DMA reaches through a slot."""
    return REACHED * rate(slot.generation, slot.lanes)


def usable(context: t.Mapping[str, t.Any]) -> Usable | None:
    """Return how many of the NICs of a node the GPUs of a test can use.

    `context` is that of a measurement: gpu, gpus (of each node), nics, nic_gbps, link_layer, mnnvl. None if there are no NICs in it, or
    if NVLink goes from node to node, so that no NIC is a limit.
    """
    gpus, nics, gbps = (_positive(context.get(key)) for key in ("gpus", "nics", "nic_gbps"))
    if not nics or not gbps or context.get("mnnvl") is True:
        return None
    name = context.get("gpu")
    slot = of(name) if isinstance(name, str) else None
    if slot is None or not gpus:
        return Usable(0, int(nics))
    each = NIC_REACHED * gbps / 8
    fit = int(reached(slot) / each + 1e-9)
    if not slot.linked:
        # The ring passes through every slot, so that the group is no faster than one of them.
        return Usable(0, min(int(nics), fit))
    if fit == 0:
        return Usable(0, 0)
    # With at least as many NICs as GPUs each GPU has the same number of NICs of its own; the rest are for storage.
    upper = int(min(nics, gpus * min(fit, nics // gpus))) if nics >= gpus else int(nics)
    is_certain = slot.proven and upper * each <= LINKS_SPARE * slot.links
    is_certain = is_certain and context.get("link_layer") in (None, "InfiniBand", "Ethernet")
    lower = min(upper, -(-int(gpus) * min(int(nics), BOARD) // BOARD)) if is_certain else 0
    return Usable(lower, upper)


class Ring(t.NamedTuple):
    """The rate of a ring over nodes whose GPUs are in slots, GB/s of each GPU, and how it comes about. `certain`: the way from every GPU
    to a NIC is known to be short, so that a lower number is a fault."""

    rate: float
    how: str
    certain: bool


def ring(context: t.Mapping[str, t.Any]) -> Ring | None:
    """Return what the ring of a group reaches between nodes if its GPUs are in PCIe slots and NVLink does not connect all of them: what the
    slots carry or what the NICs do, the smaller; None for other GPUs, and without NICs. `context` is that of usable() and `nic_path`."""
    nics, gbps = (_positive(context.get(key)) for key in ("nics", "nic_gbps"))
    name = context.get("gpu")
    slot = of(name) if isinstance(name, str) else None
    if slot is None or slot.linked or not nics or not gbps or context.get("mnnvl") is True:
        return None
    if context.get("link_layer") not in (None, "InfiniBand", "Ethernet"):
        return None
    of_slot, of_nics = RING_REACHED * rate(slot.generation, slot.lanes), NIC_REACHED * nics * gbps / 8
    way = context.get("nic_path")
    where = "each GPU below one PCIe switch with a NIC" if way == SWITCH else f"GPU to NIC: {way or 'way unknown'}"
    if of_nics <= of_slot:
        how = f"{nics:g} NICs of {gbps:g} Gb/s x {NIC_REACHED:g}; {where}"
    else:
        how = f"{RING_REACHED:g} of the payload of PCIe {slot.generation}.0 x{slot.lanes}, through which the ring passes; {where}"
    return Ring(min(of_slot, of_nics), how, way == SWITCH)


def path(gpu: str, nic: str) -> str:
    """Return how two devices are connected by their paths in sysfs (/sys/devices/pci0000:00/0000:00:01.0/...): one of PATHS."""
    ways = [re.findall(r"/(pci[0-9a-f]{4,8}:[0-9a-f]{2}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", way) for way in (gpu, nic)]
    common = 0
    for here, there in zip(*ways):
        if here != there:
            break
        common += 1
    return SWITCH if common > 1 else HOST_BRIDGE if common else FAR


def farthest(gpus: t.Iterable[str], nics: t.Collection[str]) -> str | None:
    """Return the way of that GPU which has the farthest one to its nearest NIC, by paths in sysfs; None if there are none to compare."""
    nearest = [min((path(gpu, nic) for nic in nics), key=PATHS.index) for gpu in gpus] if nics else []
    return max(nearest, key=PATHS.index, default=None)


def _positive(value: t.Any) -> float | None:
    """Return a positive finite number, else None."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if number and 0 < value < 1e9 else None
