# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes, partitions and jobs as Slurm describes them, in one form for all its versions.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import reasons

# States in which slurmctld starts no job on a node, by what has to be done about them. A node has one base state and any flags.
_NOT_READY = {
    "DOWN": "is down", "ERROR": "is in error", "UNKNOWN": "is in a state that slurmctld does not know yet", "FUTURE": "does not exist yet",
    "DYNAMIC_FUTURE": "does not exist yet",
    "INVALID_REG": "registered with less than slurm.conf says", "INVAL": "registered with less than slurm.conf says",
    "NOT_RESPONDING": "does not answer slurmctld", "REBOOT_ISSUED": "is being rebooted by Slurm", "POWERING_DOWN": "is being powered down",
    "BLOCKED": "is blocked by a job that has all of its topology", "EXTERNAL": "belongs to another system than Slurm",
    "INVALID": "is in a state that slurmctld calls invalid",
}  # fmt: skip
_DRAINED = {"DRAIN": "is drained", "FAIL": "is marked as failing", "POWER_DRAIN": "is drained to be powered down"}
_RESERVED = {"RESERVED": "is reserved", "MAINTENANCE": "is in a maintenance reservation", "MAINT": "is in a maintenance reservation"}
_FREE = frozenset({"IDLE", "COMPLETING", *_RESERVED, "CLOUD", "DYNAMIC_NORM"})
_BUSY = ("ALLOCATED", "MIXED", "COMPLETING")

# A gres of a node, "gpu:h200:8(S:0-1)" or "gpu:8".
_GRES = re.compile(r"gpu(?::(?P<model>[A-Za-z][\w.-]*))?:(?P<count>\d{1,4})(?:\(|$)")


class SlurmNode(t.NamedTuple):
    """A node. `states` are upper-case words, the base state and flags; `gres` is as slurm.conf has it; `address` is that by which nodes
    reach one another, empty if it is not known."""

    name: str
    states: frozenset[str]
    reason: reasons.Reason = reasons.NONE
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    gres: str = ""
    version: str = ""
    address: str = ""
    reservation: str = ""
    # None if the answer of Slurm does not have it.
    comment: str | None = ""
    # Seconds since 1970, by the node; 0 if the answer does not have it.
    booted: int = 0

    @property
    def gpus(self) -> str:
        """All GPUs of the node as an argument of --gres, empty if it has none: `gpu:h200:8`, of several models `gpu:a100:4,gpu:h200:4`."""
        found = (_GRES.match(item) for item in _separate(self.gres))
        return ",".join(":".join(filter(None, ("gpu", match["model"], match["count"]))) for match in found if match)

    @property
    def is_busy(self) -> bool:
        """True if a job of somebody has all or a part of the node."""
        return not self.states.isdisjoint(_BUSY)

    @property
    def is_free(self) -> bool:
        """True if a job can start on the node at once, as far as Slurm says: nothing runs there that does not end just now, and nobody
        else is planned."""
        return "IDLE" in self.states and self.states <= _FREE

    @property
    def is_drained(self) -> bool:
        """True if somebody has taken the node out of service, whatever still runs there."""
        return not self.states.isdisjoint(_DRAINED)

    @property
    def is_out_of_service(self) -> bool:
        """True if it is drained or down, and not only silent for a moment."""
        return self.is_drained or not self.states.isdisjoint(("DOWN", "ERROR"))

    @property
    def not_ready(self) -> str:
        """A sentence that says why the node does not work, drains aside; empty if it works."""
        return next((self._sentence(text) for state, text in _NOT_READY.items() if state in self.states), "")

    def obstacle(self, reservation: str = "") -> tuple[str, str] | None:
        """Return (reason code, sentence) if no job of ours can start on the node, None if one can, perhaps after others. `reservation`:
        that in which our jobs run."""
        for code, states in (("node_down", _NOT_READY), ("node_drained", _DRAINED)):
            words = [text for state, text in states.items() if state in self.states]
            if words:
                return code, self._sentence(words[0])
        words = [text for state, text in _RESERVED.items() if state in self.states]
        if words and not (reservation and self.reservation in ("", reservation)):
            named = f" ({reasons.printable(self.reservation, 64)})" if self.reservation else ""
            return "node_reserved", self._sentence(f"{words[0]}{named}; set acceptance_slurm_reservation where you may use it")
        return None

    def _sentence(self, words: str) -> str:
        state = "+".join(sorted(self.states))
        return f"node {self.name} {words} (state {state}){reasons.explained(self.reason)}"


class Partition(t.NamedTuple):
    """A partition. `state` is UP, DOWN, DRAIN or INACTIVE; `minutes` is the longest time limit of a job there, 0 if it has none."""

    name: str
    state: str
    minutes: int = 0
    is_default: bool = False


class SlurmJob(t.NamedTuple):
    """A job of ours. `reason` is why it is in its state, in Slurm's word; `node` is the one that it asks for."""

    id: str
    name: str
    state: str
    reason: str
    node: str


def _separate(gres: str) -> t.Iterator[str]:
    """Yield the items of a list of gres. Commas within parentheses belong to an item, as in `gpu:h200:8(S:0,1)`."""
    yield from re.findall(r"(?:[^,(]|\([^)]*\)?)+", gres)
