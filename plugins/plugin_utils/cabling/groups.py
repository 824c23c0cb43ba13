# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leaves that serve the same nodes, as the leaves of all rails of a scalable unit do.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import itertools

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import Map, in_order


class Groups:
    """`leaves` has the leaves of each group in the order of their names, `of_leaf` the group of each leaf, `of_node` that of each node.

    Two leaves are in one group if more than half of the nodes at either are at both. A node is in the group of more than half of its ports.
    A group is called by the ids of its leaves.
    """

    def __init__(self, fabric: Map) -> None:
        nodes_at = {leaf: {fabric.links[far].device for far in ends} for leaf, ends in fabric.leaves().items()}
        leaves_of = {
            node: [leaf for end in ends if (leaf := fabric.leaf_of(end)) is not None] for node, ends in fabric.ports.items()
        }  # fmt: skip
        shared = collections.Counter(pair for leaves in leaves_of.values() for pair in itertools.combinations(sorted(set(leaves)), 2))
        self._above = {leaf: leaf for leaf in nodes_at}
        for (a, b), count in sorted(shared.items()):
            if 2 * count > max(len(nodes_at[a]), len(nodes_at[b])):
                self._above[self._top(a)] = self._top(b)
        together: dict[str, list[str]] = collections.defaultdict(list)
        for leaf in sorted(nodes_at, key=lambda each: in_order(fabric.name(each))):
            together[self._top(leaf)].append(leaf)
        self.leaves: dict[tuple[str, ...], list[str]] = {tuple(leaves): leaves for leaves in together.values()}
        self.of_leaf = {leaf: group for group, leaves in self.leaves.items() for leaf in leaves}
        self.of_node: dict[str, tuple[str, ...]] = {}
        for node, leaves in leaves_of.items():
            counts = collections.Counter(self.of_leaf[leaf] for leaf in leaves)
            group, count = max(counts.items(), key=lambda item: item[1], default=((), 0))
            if 2 * count > len(leaves):
                self.of_node[node] = group

    def _top(self, leaf: str) -> str:
        while self._above[leaf] != leaf:
            leaf = self._above[leaf]
        return leaf
