# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model of an RDMA adapter, and the rate that a port of this model can have, whatever it negotiated.

A rate that a port runs at is a state. What the port is held to, and which ports are its peers, follows from its model.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

# What a port of NVIDIA's adapters can do, Gb/s, by the letter behind the hyphen of their part numbers (user manuals of ConnectX-5, 6, 6 Dx
# and 7: MCX75310AAS-NEAT 400, MCX715105AS-WEAT 400, MCX75310AAS-HEAT 200, MCX713106AS-VEAT 200, MCX653105A-ECAT 100, MCX623106AN-CDAT
# 100, MCX516A-CCAT 100, MCX512A-ACAT 25). Part numbers of machine makers tell nothing.
_PART = re.compile(r"MCX[567]\d{2,5}[A-Z]*-([A-Z])")
PART_GBPS = {"N": 400, "W": 400, "H": 200, "V": 200, "E": 100, "C": 100, "G": 50, "A": 25}
# The rate of a port at which the chip of an adapter is sold at most, Gb/s, by its type (`hca_type`, whose number is the PCI device in
# decimal, checked against pci.ids; datasheets of ConnectX-4 to ConnectX-8, BlueField-2 and 3). Adapters with a slower port of the same
# chip are sold too; chips of 25 and 50 Gb/s are left out, which are most often sold with less.
CHIP_GBPS = {
    "MT4115": 100, "MT4119": 100, "MT4121": 100, "MT4123": 200, "MT4125": 200, "MT41686": 200, "MT4129": 400, "MT41692": 400,
    "MT4131": 800,
}  # fmt: skip
# The same by PCI vendor and device, for drivers that give no type. Ids and rates of Broadcom: bnxt_pci_tbl and board_info in
# drivers/net/ethernet/broadcom/bnxt/bnxt.c of Linux 6.12 (BCM57508, 57504, 57608, 57604, 57602, 57601; BCM57502 is one of 50 Gb/s). Ids of
# Intel: ice_devids.h of Linux (E810-C backplane and QSFP, E830-CC QSFP56), rates: their product briefs. The adapters of AMD Pensando have
# one id for all of theirs, from 25 Gb/s (DSC-25) to 400 (Pollara 400), by pci.ids: their peers tell.
PCI_GBPS = {
    "14e4:1750": 200, "14e4:1751": 200, "14e4:1760": 400, "14e4:1761": 200, "14e4:1762": 100, "14e4:1763": 400,
    "8086:1591": 100, "8086:1592": 100, "8086:12d2": 200,
}  # fmt: skip


def model(device: t.Mapping[str, t.Any]) -> str:
    """Return the text by which ports of one model are peers: the board, else the PCI ids with those of the subsystem, else the type of the
    chip or the driver. The part number is no part of it: a broken adapter may not give it."""
    return str(next((device[name] for name in ("board", "pci_id", "type", "driver") if device.get(name)), ""))


def models(devices: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, str]:
    """Return {device: model}. A device that does not give its board, as a broken one, has that of the others of its chip if they have one
    board: what a device does not say makes it no model of its own."""
    known: dict[str, str] = {}
    for device in devices:
        boards = {str(each["board"]) for each in devices if each.get("board") and _chip(each) == _chip(device)}
        known[str(device["device"])] = boards.pop() if not device.get("board") and len(boards) == 1 else model(device)
    return known


def _chip(device: t.Mapping[str, t.Any]) -> str:
    return str(next((device[name] for name in ("type", "pci_id", "driver") if device.get(name)), ""))


def part_gbps(part_number: t.Any) -> int:
    """Return the rate of the ports of an adapter with a part number, Gb/s; 0 if the part number does not tell it."""
    matched = _PART.match(str(part_number))
    return PART_GBPS.get(matched.group(1), 0) if matched else 0


def chip_gbps(device: t.Mapping[str, t.Any], port: t.Mapping[str, t.Any], devices: t.Iterable[t.Mapping[str, t.Any]]) -> int:
    """Return the highest rate of a port by the chip of its adapter, Gb/s; 0 if unknown, and for an adapter with several ports, which are
    sold at half of the rate."""
    slot = str(device.get("pci") or "").rpartition(".")[0]
    shared = [each for each in devices if slot and str(each.get("pci") or "").rpartition(".")[0] == slot]
    if len(shared) > 1 or port.get("port") not in (None, 1):
        return 0
    ids = ":".join(str(device.get("pci_id") or "").split(":")[:2])
    return CHIP_GBPS.get(str(device.get("type")), 0) or PCI_GBPS.get(ids, 0)


class Capable(t.NamedTuple):
    """The rate that a port can have in Gb/s, and the witness in words. `certain`: this very port, not only others of its chip."""

    gbps: float
    witness: str
    certain: bool


def capable(
    device: t.Mapping[str, t.Any], port: t.Mapping[str, t.Any], devices: t.Iterable[t.Mapping[str, t.Any]]
) -> Capable | None:
    """Return what a port can do by the modes that its driver supports, else its part number, else its chip; None if none tells it."""
    most = port.get("most_gbps")
    if isinstance(most, (int, float)) and not isinstance(most, bool) and most > 0:
        return Capable(float(most), "the modes that it supports", True)
    by_part = part_gbps(device.get("part_number"))
    if by_part:
        return Capable(float(by_part), f"part number {device['part_number']}", True)
    by_chip = chip_gbps(device, port, devices)
    if by_chip:
        return Capable(float(by_chip), f"chip {device.get('type') or device.get('pci_id')}", False)
    return None
