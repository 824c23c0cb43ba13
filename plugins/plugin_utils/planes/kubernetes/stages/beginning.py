# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage whose nodes begin together, on the nodes of one cluster: one pod per node, which is told its place when all pods run.

The first node tells the others when the work begins: a kubelet may bring late what its pod is told.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload, together_behind
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import rendezvous
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import NodeProbe, NodeRequest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.nodes import StageOnCluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.rounds import LATE_S
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeWork


class BeginningOnCluster(StageOnCluster):
    """Runs the work of all nodes by pods that begin together."""

    def pod_settings(self) -> PodSettings:
        return rendezvous.told_later(super().pod_settings())

    def measure(self) -> None:
        pods = self.pod_settings()
        client = self._begin([*access.PROBE, *access.RENDEZVOUS, *access.LAUNCHERS[pods.launcher]], pods)
        node_requests = self._node_requests(client, pods)
        if node_requests:
            self._follow(self._probe(client, pods, node_requests), client, pods, node_requests)

    def _probe(self, client: Client, pods: PodSettings, node_requests: list[NodeRequest]) -> NodeProbe:
        timeout = float(node_requests[0].request["params"]["timeout"])

        def parts(addresses: t.Mapping[str, str]) -> dict[str, PlainData]:
            common = together_behind.common(self.description, self.work, addresses)
            return {subject: {**common, **self.work.per_node[subject]} for subject in addresses}

        return rendezvous.Rendezvous(parts, None, client, pods, self.acting.id, self.stage, timeout, payload.archive(), self._raw)

    def node_request(self, checks: t.Iterable[tuple[str, str]], pods: PodSettings) -> NodeWork:
        """Return the request to a node's pod: to wait for its place, and to do what comes with it."""
        # A pod waits for the start of the slowest pod, and for the delivery of its place.
        within = pods.start_timeout + 60.0
        request = super().node_request(checks, pods)
        params = request["params"]
        more = {
            "meeting": {"path": f"{rendezvous.FOLDER}/{rendezvous.FILE}", "within": within},
            "ask_timeout": LATE_S + params["begins_in"], "timeout": float(params["timeout"]) + within + LATE_S,
        }  # fmt: skip
        return {**request, "params": {**params, **more}}
