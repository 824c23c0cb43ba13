# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The RDMA stages on the nodes of one cluster: one pod per node checks its ports, or runs the tests of its timetable.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import guardians, objects, rendezvous
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import NodeRequest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.nodes import StageOnCluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.rounds_behind import RoundsBehindHost
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import TIMETABLE

NOT_SWITCHED = "test pods switch no governor, as one that is killed could not give it back; {} lets a pod of its own do it"
# A kubelet may see late what its pod is told: one that has missed it looks again after so many seconds.
LATE_S = 90.0


class RoundsOnCluster(RoundsBehindHost, StageOnCluster):
    """Runs the timetable of every node by pods that first exchange their addresses. The client of a pair reports its result."""

    def pod_settings(self) -> PodSettings:
        return rendezvous.told_later(super().pod_settings())

    def measure(self) -> None:
        pods = self.pod_settings()
        args = self.args()
        self.governor = str(args.get("governor") or "")
        self.guarded = bool(self.governor) and guardians.requested(self._governor_switch, self.settings, pods.allow)
        if not self.begin(args):
            return
        client = self._begin([*access.PROBE, *access.RENDEZVOUS, *access.LAUNCHERS[pods.launcher]], pods)
        _able, refused = self._usable(client, self.nodes().values(), pods)
        request = self._request_of_all(args, pods)
        node_requests = [NodeRequest(name, request) for name in self.walkers(refused)]
        if node_requests:
            timeout = float(request["params"]["timeout"])
            guarding = self._guardians(client) if self.guarded else None
            launch = (client, pods, self.acting.id, self.stage, timeout, payload.archive(), self._raw)
            probe = rendezvous.Rendezvous(self._rounds, guarding, *launch)
            self._follow(probe, client, pods, node_requests)
        self.pairs_without_an_answer()

    def _rounds(self, addresses: t.Iterable[str]) -> dict[str, PlainData]:
        return {subject: {"rounds": self.timetables[subject]["rounds"]} for subject in addresses}

    @property
    def _governor_switch(self) -> str:
        """The variable of the stage that requests guardians of the governor."""
        return self.description.isolation(self.settings).get("governor_switch", "")

    def _guardians(self, client: Client) -> guardians.Guardians:
        pods = of_variables.pods(self.settings)
        folder = self.settings.get("acceptance_state_dir") or ""
        return guardians.Guardians(client, pods, self.acting.id, self.stage, payload.archive(), self.governor, folder)

    def _request_of_all(self, args: PlainData, pods: PodSettings) -> NodeWork:
        """Return the request to every pod: to wait for its rendezvous and run the timetable that comes with it."""
        # A pod waits for the start of the slowest pod, and for the delivery of the addresses.
        within = pods.start_timeout + 60.0
        own_ports = {} if pods.host_network else self.description.isolation(self.settings).get("ports", {})
        options = {
            **args, "rounds": [], "absent": [], "checks": [{"check": TIMETABLE, "variant": ""}],
            "exec": {"kind": "host"}, "root": "/", "state_dir": f"{objects.WORK}/state", "governor": "",
            "meeting": {"path": f"{rendezvous.FOLDER}/{rendezvous.FILE}", "within": within}, "own_ports": own_ports,
            "begins_in": self.work.starts_in and self.work.starts_in + LATE_S, "timeout": float(args["timeout"]) + within + LATE_S,
        }  # fmt: skip
        return self.request(options)

    # Answers ---------------------------------------------------------------------------------------------------------

    def accepted(self, node: str, item: PlainData) -> PlainData:
        """Return an observation, about a pair only if the node is the client of that test. Without guardians, it says that the governor was
        not switched."""
        context = item.get("context", {})
        if isinstance(context, dict) and self.governor and not self.guarded:
            why = NOT_SWITCHED.format(self._governor_switch)
            context = {**context, "governor": {"wanted": self.governor, "state": "not_switched", "reason": why}}
        return {**item, "subject": self.pair_of(node, item), "context": context}
