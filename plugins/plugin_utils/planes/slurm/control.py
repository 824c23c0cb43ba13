# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of a Slurm cluster out of service: drained with a reason, by scontrol, and resumed. No job is ended.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import time

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeControl, NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client, SlurmError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.records import SlurmNode
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

# scontrol takes it for all nodes of the cluster.
EVERY_NODE = "all"
UNREAD = "not read: this Slurm is built without JSON"


class SlurmControl(NodeControl):
    def __init__(self, client: Client) -> None:
        self.client = client

    @functools.cached_property
    def ahead(self) -> int:
        """Seconds that the clock of slurmctld is ahead of ours. If it does not say its time, its clock is taken for ours, and that is
        said."""
        now, why = 0, "sdiag does not have it"
        began = time.time()
        try:
            now = self.client.now()
        except SlurmError as error:
            why = error.reason
        if now:
            return round(now - (began + time.time()) / 2)
        Display().warning(f"{self.client.host}: the time of slurmctld is not known ({why}); its clock is taken for ours")
        return 0

    def nodes(self) -> list[NodeState]:
        return [self._state(node) for node in self._read("")]

    def read(self, name: str) -> NodeState | None:
        own = self._own(name)
        return next((self._state(node) for node in self._read(own) if node.name == own), None)

    def drain(self, node: NodeState, reason: str) -> None:
        self._update(node, "state=drain", f"reason={reason}")

    def resume(self, node: NodeState) -> None:
        self._update(node, "state=resume")

    def comment(self, node: NodeState, text: str) -> None:
        self._update(node, f"comment={text}")

    def _state(self, node: SlurmNode) -> NodeState:
        return NodeState(
            f"{self.client.host}/{node.name}", node.is_drained, node.reason.text, UNREAD if node.comment is None else node.comment,
            node.partitions, node.not_ready, held_at=self._by_our_clock(node.reason.at), since=node.booted,
        )  # fmt: skip

    def _by_our_clock(self, at: int) -> int:
        """Return a time of slurmctld's by our clock, with which the time in a reason of ours is compared; 0 for none."""
        return max(1, at - self.ahead) if at else 0

    def _own(self, name: str) -> str:
        """Return Slurm's name of a node. Raise RunError for one that scontrol would take for all nodes."""
        own = name.removeprefix(f"{self.client.host}/")
        if own.lower() == EVERY_NODE:
            raise RunError(f"{self.client.host}: a node called {own} cannot be told from all nodes")
        return own

    def _read(self, name: str) -> list[SlurmNode]:
        try:
            return self.client.nodes(*([name] if name else []))
        except SlurmError as error:
            raise RunError(error.reason) from error

    def _update(self, node: NodeState, *words: str) -> None:
        try:
            self.client.run("scontrol", "update", f"nodename={self._own(node.name)}", *words)
        except SlurmError as error:
            raise RunError(error.reason) from error
