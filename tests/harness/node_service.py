# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster in memory, which remembers who has done what to its nodes."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeControl, NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


class Cluster(NodeControl):
    """`nodes_by_name` are the nodes now; `before` is called before each change, as another tool that is quicker than we are. `done` are
    our changes: (what, node, its reason before)."""

    def __init__(self, names: t.Iterable[str], **fields: t.Any) -> None:
        self.nodes_by_name = {name: NodeState(name, False, **fields) for name in names}
        self.done: list[tuple[str, str, str]] = []
        self.before: t.Callable[[str], None] = lambda _name: None
        self.silent = False

    def nodes(self) -> list[NodeState]:
        if self.silent:
            raise RunError("lab: does not answer")
        return list(self.nodes_by_name.values())

    def read(self, name: str) -> NodeState | None:
        self.before(name)
        return self.nodes_by_name.get(name)

    def put(self, name: str, **fields: t.Any) -> None:
        """Change a node as somebody else does."""
        self.nodes_by_name[name] = self.nodes_by_name[name]._replace(**fields)

    def drain(self, node: NodeState, reason: str) -> None:
        self._change("drain", node, held=True, reason=reason)

    def resume(self, node: NodeState) -> None:
        self._change("resume", node, held=False, reason="")

    def comment(self, node: NodeState, text: str) -> None:
        self._change("comment", node, comment=text)

    def _change(self, what: str, node: NodeState, **fields: t.Any) -> None:
        self.done.append((what, node.name, self.nodes_by_name[node.name].reason))
        self.put(node.name, **fields)
