# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of a row in the tables of messages that the kernel logs about a machine's hardware.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

# A PCI address as drivers print it; older kernels add the port's service: `0000:00:1c.0:pcie004`.
BDF = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"


class Message(t.NamedTuple):
    """One message of a driver.

    `form` is a regular expression that matches from the beginning of the message, in any case of letters; its groups without a name are
    the part.
    `code` is the reason code, or what returns it for a match; empty for a harmless message and for one that says that a part is good.
    `source` is the file and function of Linux that prints it (or a specification). `state` names a set of states of which one holds at a
    time: a later message with the same state and part ends the one before it. `healed` is the code that stays when the state has ended;
    empty if nothing stays. `code_of_amd` returns the code on a machine with AMD's processors, where it differs.
    """

    form: str
    code: str | t.Callable[[re.Match[str]], str]
    meaning: str
    source: str
    state: str = ""
    healed: str = ""
    code_of_amd: t.Callable[[re.Match[str]], str] | None = None


def harmless(form: str, meaning: str, source: str) -> Message:
    """Return a message that looks like a fault and is none. It stands before the faults that it looks like."""
    return Message(form, "", meaning, source)


def good(form: str, state: str, source: str) -> Message:
    """Return a message that ends a fault of this state."""
    return Message(form, "", "the part is good again", source, state)
