# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two directions of a test between two nodes, each a check of its own.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

# Of a pair A|B: A sends to B, and B sends to A.
FORWARD, BACK = "forward", "back"


def server_sends(check: str) -> bool:
    """Return True if the server of this test sends the data: the client reads from it."""
    return check.startswith("read_")


def direction_of(sender: str, receiver: str) -> str:
    """Return the direction of data from one node, or port, to another."""
    return FORWARD if sender <= receiver else BACK


def with_direction(variant_: str, direction: str) -> str:
    """The variant of one direction of a test, from that of the test."""
    return " ".join(sorted([*variant_.split(), f"direction={direction}"]))


def without_direction(variant_: str) -> str:
    """The variant of a test, from that of one of its directions, or of itself."""
    return " ".join(word for word in variant_.split() if not word.startswith("direction="))
