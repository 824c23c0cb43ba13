# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decoding of NVLink 5 errors, Xids 144 to 150, by the two words that the driver logs behind the link: IntrInfo and ErrorStatus.

Source: NVIDIA's Xid catalogue, sheet "XID 144-150 Decode" (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, 2026-09). The word
of the driver, Fatal or Nonfatal, is not enough: some nonfatal patterns ask for a reset of the GPU, others leave the action to Xid 154.

IntrInfo has two layouts. Before driver R575 bits 9 to 0 name the unit (5 bits) and its group (5 bits), from R575 on bits 6 to 0 name the
unit. Bits 25 to 20 are the reason of the unit in both. No word of one layout is one of the other for the same Xid, so the driver's version
is not needed.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

# A rule for any ErrorStatus.
ANY = None
_V1, _V2 = (1 << 10) - 1, (1 << 7) - 1
# The bit above the unit, by which a rule has a second action.
_ALSO_V1, _ALSO_V2 = 1 << 10, 1 << 7


class Rule(t.NamedTuple):
    """One row: Xid, unit (its names before and from R575), reason, unit in the layouts before and from R575, ErrorStatus, the immediate and
    the investigatory action, whether the catalogue calls it fatal, and the immediate action if the bit above the unit is set."""

    xid: int
    unit: str
    reason: int
    v1: int
    v2: int
    status: int | None
    immediate: str
    investigatory: str
    is_fatal: bool
    also: str = ""


class Decoded(t.NamedTuple):
    """The meaning of an error's words: unit, immediate and investigatory action, whether it is fatal."""

    unit: str
    immediate: str
    investigatory: str
    is_fatal: bool


# The gravest action first.
_GRAVITY = ("RESET_GPU", "XID_154_EVAL", "IGNORE")
# Errors whose ErrorStatus has one bit for each event; that of the others is a number.
_BITS = (144, 145, 146, 147, 148)
_WORDS = re.compile(r"\bLink\s+-?\d{1,3}\s+\((0[xX][0-9a-fA-F]{1,8})[\s,]+(0[xX][0-9a-fA-F]{1,8})\b")

RULES: tuple[Rule, ...] = (
    Rule(144, "SAW_MVB", 0, 0b0000100001, 0b0000001, 0x00000001, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(144, "SAW_MVB", 0, 0b0000100001, 0b0000001, 0x00000002, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(144, "SAW_MVB", 0, 0b0000100001, 0b0000001, 0x00000004, "IGNORE", "IGNORE", False),
    Rule(144, "SAW_MVB", 0, 0b0000100001, 0b0000001, 0x00000008, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(144, "SAW_MVB", 0, 0b0000100001, 0b0000001, 0x00000010, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(144, "SAW_MVB", 0, 0b0000100001, 0b0000001, 0x00000020, "IGNORE", "IGNORE", False),
    Rule(145, "RLW_CTRL", 0, 0b0001100010, 0b0000011, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(145, "RLW_REMAP", 0, 0b0010000010, 0b0000100, 0x00000001, "XID_154_EVAL", "CONTACT_SUPPORT", False),
    Rule(145, "RLW_REMAP", 0, 0b0010000010, 0b0000100, 0x00000002, "XID_154_EVAL", "CONTACT_SUPPORT", False),
    Rule(145, "RLW_REMAP", 0, 0b0010000010, 0b0000100, 0x00000004, "XID_154_EVAL", "CHECK_NVLINK_FAILURE_FLOW", False),
    Rule(145, "RLW_REMAP", 0, 0b0010000010, 0b0000100, 0x00000008, "XID_154_EVAL", "CHECK_NVLINK_FAILURE_FLOW", False),
    Rule(145, "RLW_REMAP", 0, 0b0010000010, 0b0000100, 0x00000010, "XID_154_EVAL", "CHECK_NVLINK_FAILURE_FLOW", False),
    Rule(145, "RLW_REMAP", 0, 0b0010000010, 0b0000100, 0x00000020, "XID_154_EVAL", "CHECK_NVLINK_FAILURE_FLOW", False),
    Rule(145, "RLW_REMAP", 0, 0b0010000010, 0b0000100, 0x00000040, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(145, "RLW_REMAP", 0, 0b0010000010, 0b0000100, 0x00000080, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(145, "RLW_REMAP", 0, 0b0010000010, 0b0000100, 0x00000100, "IGNORE", "IGNORE", False),
    Rule(145, "RLW_REMAP", 0, 0b0010000010, 0b0000100, 0x00000200, "IGNORE", "IGNORE", False),
    Rule(145, "RLW_REMAP", 0, 0b0010000010, 0b0000100, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(145, "RLW_RSPCOL", 0, 0b0010100010, 0b0000101, 0x00000001, "IGNORE", "IGNORE", False),
    Rule(145, "RLW_RSPCOL", 0, 0b0010100010, 0b0000101, 0x00000002, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(145, "RLW_RSPCOL", 0, 0b0010100010, 0b0000101, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(145, "RLW_RXPIPE", 0, 0b0011000010, 0b0000110, 0x00000001, "IGNORE", "CONTACT_SUPPORT", False, "RESET_GPU"),
    Rule(145, "RLW_RXPIPE", 0, 0b0011000010, 0b0000110, 0x00000002, "IGNORE", "CONTACT_SUPPORT", False, "RESET_GPU"),
    Rule(145, "RLW_RXPIPE", 0, 0b0011000010, 0b0000110, 0x00000004, "IGNORE", "CONTACT_SUPPORT", False, "RESET_GPU"),
    Rule(145, "RLW_RXPIPE", 0, 0b0011000010, 0b0000110, 0x00000008, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(145, "RLW_RXPIPE", 0, 0b0011000010, 0b0000110, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(145, "RLW_SRC_TRACK", 0, 0b0011100010, 0b0000111, 0x00000001, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(145, "RLW_SRC_TRACK", 0, 0b0011100010, 0b0000111, 0x00000002, "IGNORE", "IGNORE", False),
    Rule(145, "RLW_SRC_TRACK", 0, 0b0011100010, 0b0000111, 0x00000004, "XID_154_EVAL", "IGNORE", False),
    Rule(145, "RLW_SRC_TRACK", 0, 0b0011100010, 0b0000111, 0x00000008, "XID_154_EVAL", "IGNORE", False),
    Rule(145, "RLW_SRC_TRACK", 0, 0b0011100010, 0b0000111, 0x00000010, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(145, "RLW_SRC_TRACK", 0, 0b0011100010, 0b0000111, 0x00000020, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(145, "RLW_SRC_TRACK", 0, 0b0011100010, 0b0000111, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(145, "RLW_TAGSTATE", 0, 0b0100000010, 0b0001000, 0x00000001, "IGNORE", "IGNORE", False),
    Rule(145, "RLW_TAGSTATE", 0, 0b0100000010, 0b0001000, 0x00000002, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(145, "RLW_TAGSTATE", 0, 0b0100000010, 0b0001000, 0x00010000, "IGNORE", "IGNORE", False),
    Rule(145, "RLW_TAGSTATE", 0, 0b0100000010, 0b0001000, 0x00020000, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(145, "RLW_TAGSTATE", 0, 0b0100000010, 0b0001000, 0x00100000, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(145, "RLW_TAGSTATE", 0, 0b0100000010, 0b0001000, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(146, "TLW_CTRL", 0, 0b0100100011, 0b0001001, 0x00000001, "IGNORE", "IGNORE", False),
    Rule(146, "TLW_CTRL", 0, 0b0100100011, 0b0001001, 0x00000002, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(146, "TLW_CTRL", 0, 0b0100100011, 0b0001001, 0x00000004, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(146, "TLW_CTRL", 0, 0b0100100011, 0b0001001, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(146, "TLW_RX/TLW_RX_PIPE0", 0, 0b0101000011, 0b0001010, 0x00000001, "IGNORE", "IGNORE", False),
    Rule(146, "TLW_RX/TLW_RX_PIPE0", 0, 0b0101000011, 0b0001010, 0x00000002, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(146, "TLW_RX/TLW_RX_PIPE0", 0, 0b0101000011, 0b0001010, 0x00000004, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(146, "TLW_RX/TLW_RX_PIPE0", 0, 0b0101000011, 0b0001010, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(146, "TLW_RX/TLW_RX_PIPE1", 0, 0b0101000011, 0b0001011, 0x00000001, "IGNORE", "IGNORE", False),
    Rule(146, "TLW_RX/TLW_RX_PIPE1", 0, 0b0101000011, 0b0001011, 0x00000002, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(146, "TLW_RX/TLW_RX_PIPE1", 0, 0b0101000011, 0b0001011, 0x00000004, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(146, "TLW_RX/TLW_RX_PIPE1", 0, 0b0101000011, 0b0001011, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(146, "TLW_TX/TLW_TX_PIPE0", 0, 0b0101100011, 0b0001100, 0x00000001, "IGNORE", "IGNORE", False),
    Rule(146, "TLW_TX/TLW_TX_PIPE0", 0, 0b0101100011, 0b0001100, 0x00000002, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(146, "TLW_TX/TLW_TX_PIPE0", 0, 0b0101100011, 0b0001100, 0x00000004, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(146, "TLW_TX/TLW_TX_PIPE0", 0, 0b0101100011, 0b0001100, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(146, "TLW_TX/TLW_TX_PIPE1", 0, 0b0101100011, 0b0001101, 0x00000001, "IGNORE", "IGNORE", False),
    Rule(146, "TLW_TX/TLW_TX_PIPE1", 0, 0b0101100011, 0b0001101, 0x00000002, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(146, "TLW_TX/TLW_TX_PIPE1", 0, 0b0101100011, 0b0001101, 0x00000004, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(146, "TLW_TX/TLW_TX_PIPE1", 0, 0b0101100011, 0b0001101, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(147, "TREX", 0, 0b0110000100, 0b0001110, 0x00000001, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(147, "TREX", 0, 0b0110000100, 0b0001110, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(148, "NVLPW_CTRL/NVLPW", 0, 0b0000000101, 0b0001111, 0x80000000, "IGNORE", "CONTACT_SUPPORT", False),
    Rule(149, "NETIR/NETIR_INT", 0, 0b0000000110, 0b0011000, ANY, "RESET_GPU", "SYMPATHETIC_REPORT_SOLO", True),
    Rule(149, "NETIR_BER_EVENT", 0, 0b1000100110, 0b0010011, 0x00000000, "IGNORE", "INVESTIGATE_LINK_SI_AND_CABLES", False),
    Rule(149, "NETIR_BER_EVENT", 0, 0b1000100110, 0b0010011, 0x00000001, "IGNORE", "INVESTIGATE_LINK_SI_AND_CABLES", False),
    Rule(149, "NETIR_BER_EVENT", 0, 0b1000100110, 0b0010011, 0x00000002, "IGNORE", "INVESTIGATE_LINK_SI_AND_CABLES", False),
    Rule(149, "NETIR_BER_EVENT", 0, 0b1000100110, 0b0010011, 0x00000003, "IGNORE", "INVESTIGATE_LINK_SI_AND_CABLES", False),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 0, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "SYMPATHETIC_REPORT_SOLO", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 1, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "REPORT_ISSUE", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 2, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_LINK_SI", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 4, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_LINK_SI", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 10, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_LINK_SI", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 15, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_SW_USER", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 16, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_SW_USER_LINK_SI", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 17, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_SW_USER", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 18, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_SW_USER_LINK_SI", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 21, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_PEER_DEVICE", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 22, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_SW_USER", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 32, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_PEER_DEVICE", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 33, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_PEER_DEVICE", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 34, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_PEER_DEVICE", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 35, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_PEER_DEVICE", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 36, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_PEER_DEVICE", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 37, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_PEER_DEVICE", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 38, 0b0111000110, 0b0010001, ANY, "IGNORE", "INVESTIGATE_SW_USER", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 40, 0b0111000110, 0b0010001, ANY, "IGNORE", "INVESTIGATE_HOST", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 42, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_LINK_SI_AND_CABLES", True),
    Rule(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN", 43, 0b0111000110, 0b0010001, ANY, "RESET_GPU", "INVESTIGATE_LINK_SI_AND_CABLES", True),
    Rule(149, "NETIR_MFDE_EVENT", 0, 0b1001000110, 0b0010100, 0x00000001, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(149, "NETIR_MFDE_EVENT", 0, 0b1001000110, 0b0010100, 0x00000003, "IGNORE", "IGNORE", False),
    Rule(149, "NETIR_MFDE_EVENT", 0, 0b1001000110, 0b0010100, 0x00000004, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(149, "NETIR_MFDE_EVENT", 0, 0b1001000110, 0b0010100, 0x00000005, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(149, "NETIR_MFDE_EVENT", 0, 0b1001000110, 0b0010100, 0x00000007, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(150, "MSE_WATCHDOG", 0, 0b0000000000, 0b0000000, 0x00000000, "RESET_GPU", "CONTACT_SUPPORT", True),
    Rule(150, "MSE_WATCHDOG", 0, 0b0000000000, 0b0000000, 0xFFFFFFFF, "RESET_GPU", "CONTACT_SUPPORT", True),
)


def words_of(message: str) -> tuple[int, int] | None:
    """Return IntrInfo and ErrorStatus of a message, None if it has none. The last pair counts: names of processes stand before it."""
    found = _WORDS.findall(message)
    return (int(found[-1][0], 16), int(found[-1][1], 16)) if found else None


def decode(xid: int, information: int, status: int) -> Decoded | None:
    """Return what an error means; of several events in one status the gravest. None if the catalogue has no rule for one of them."""
    reason = information >> 20 & 0x3F
    rules = [rule for rule in RULES if rule.xid == xid and rule.reason == reason and _is_of(rule, information)]
    exact = [rule for rule in rules if rule.status in (ANY, status)]
    if not exact and xid in _BITS and status:
        bits = [1 << number for number in range(32) if status >> number & 1]
        exact = [rule for rule in rules if rule.status in bits]
        if len(exact) != len(bits) and not any(_decoded(rule, information).immediate == "RESET_GPU" for rule in exact):
            return None
    return min((_decoded(rule, information) for rule in exact), key=lambda found: _GRAVITY.index(found.immediate), default=None)


def _is_of(rule: Rule, information: int) -> bool:
    return information & _V1 == rule.v1 or information & _V2 == rule.v2


def _decoded(rule: Rule, information: int) -> Decoded:
    is_v1 = information & _V1 == rule.v1
    second = bool(rule.also) and bool(information & (_ALSO_V1 if is_v1 else _ALSO_V2))
    names = rule.unit.split("/")
    immediate = rule.also if second else rule.immediate
    return Decoded(names[0] if is_v1 else names[-1], immediate, rule.investigatory, rule.is_fatal)
