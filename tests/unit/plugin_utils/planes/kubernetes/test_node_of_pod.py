# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects, probe


@pytest.mark.parametrize(
    ("spec", "node"),
    [
        ({"nodeName": "a", "affinity": objects.on_nodes(["b"])}, "a"),
        ({"affinity": objects.on_nodes(["b"])}, "b"),
        # A pod of a Job may come to lie on any of its nodes: taken for the first one, it would hide that node's own pod.
        ({"affinity": objects.on_nodes(["b", "c"])}, ""),
        ({}, ""),
    ],
)
def test_a_pod_is_its_nodes_only_when_that_is_certain(spec: dict[str, t.Any], node: str) -> None:
    assert probe._node({"spec": spec}) == node
