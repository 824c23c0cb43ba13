# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a plane that takes nodes out of service and gives them back (Plane.node_control), for playbooks/quarantine.yml.

A plane only does what it is told. Whose node it is, and how many may be taken, is decided by the package `quarantine`, which reads a node
again right before each change.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


class NodeState(t.NamedTuple):
    """The state of a node as it is now. `name` is its subject id.

    `held`: nothing new is started on it, whoever wants that. `reason`: why, in the words that stand at the node. `comment`: a note of ours
    at the node that has no effect. `obstacle`: why the node is in a state that nobody should change now, empty if it is in none.
    `version`: what tells this state from a later one, where the plane has such a thing. `held_at`: when the node was taken out of service,
    in seconds since 1970, where that says more than the reason: giving a node back may leave the reason there; else 0. `since`: since when
    the node is there as it is, the later of its start and its addition to the cluster, in seconds since 1970, 0 if that is not known.
    `boot`: the id of its boot, empty if the plane has none.
    """

    name: str
    held: bool
    reason: str = ""
    comment: str = ""
    partitions: tuple[str, ...] = ()
    obstacle: str = ""
    version: str = ""
    held_at: int = 0
    since: int = 0
    boot: str = ""


class NodeChangedError(RunError):
    """A change was refused because somebody has changed the node since it was read. Nothing was done."""


class NodeControl:
    """The nodes behind one inventory host. Each method raises RunError if the plane refuses or does not answer."""

    def nodes(self) -> list[NodeState]:
        """Return all nodes behind the host, whether a run has measured them or not: caps are counted by them."""
        raise NotImplementedError

    def read(self, name: str) -> NodeState | None:
        """Return the state of one node now, None if there is no such node."""
        raise NotImplementedError

    def drain(self, node: NodeState, reason: str) -> None:
        """Let nothing new be started on a node. What runs there goes on."""
        raise NotImplementedError

    def resume(self, node: NodeState) -> None:
        """Give a node back, and remove its reason."""
        raise NotImplementedError

    def comment(self, node: NodeState, text: str) -> None:
        """Write a note to a node, or remove it if the text is empty."""
        raise NotImplementedError
