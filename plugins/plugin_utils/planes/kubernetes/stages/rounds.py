# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The RDMA stages on the nodes of one cluster: one pod per node checks its ports, or runs the tests of its timetable.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import guardians, objects, rendezvous
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import NodeRequest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.nodes import StageOnCluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer, NodeWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import TIMETABLE, nothing_asked

NOT_SWITCHED = "test pods switch no governor, as one that is killed could not give it back; {} lets a pod of its own do it"


class RoundsOnCluster(StageOnCluster):
    """Runs the timetable of every node by pods that first exchange their addresses. The client of a pair reports its result."""

    def pod_settings(self) -> PodSettings:
        pods = super().pod_settings()
        return dataclasses.replace(pods, pod_patch=of_variables.merged(dict(pods.pod_patch), rendezvous.PATCH))

    def measure(self) -> None:
        pods = self.pod_settings()
        # (reason code, reason) of each node without a timetable's result.
        self.refused: dict[str, tuple[str, str]] = {}
        # The tests in which each node is the client: {subject id: {(check, variant, subject id of the pair)}}.
        self.asks: dict[str, set[tuple[str, str, str]]] = {}
        args = self.args()
        self.governor = str(args.get("governor") or "")
        self.guarded = bool(self.governor) and guardians.requested(self._governor_switch, self.settings, pods.allow)
        if self.work.answer is not None:
            self.record_all([(subject, self.work.answer.copy()) for subject in sorted(self.unanswered)])
            return
        client = self._begin([*access.PROBE, *access.RENDEZVOUS, *access.LAUNCHERS[pods.launcher]], pods)
        self.timetables = self.work.per_node
        self.kinds: list[PlainData] = args.get("kinds") or []
        node_requests = self._walkers(client, pods, self._request_of_all(args, pods))
        if node_requests:
            timeout = float(node_requests[0].request["params"]["timeout"])
            parts = {item.node: {"rounds": self.timetables[f"{self.host}/{item.node}"]["rounds"]} for item in node_requests}
            guarding = self._guardians(client) if self.guarded else None
            probe = rendezvous.Rendezvous(parts, guarding, client, pods, self.acting.id, self.stage, timeout, payload.archive(), self._raw)
            self._follow(probe, client, pods, node_requests)
        self._pairs_without_an_answer()

    @property
    def _governor_switch(self) -> str:
        """The variable of the stage that requests guardians of the governor."""
        return self.description.isolation(self.settings).get("governor_switch", "")

    def _guardians(self, client: Client) -> guardians.Guardians:
        pods = of_variables.pods(self.settings)
        folder = self.settings.get("acceptance_state_dir") or ""
        return guardians.Guardians(client, pods, self.acting.id, self.stage, payload.archive(), self.governor, folder)

    def _walkers(self, client: Client, pods: PodSettings, request: NodeWork) -> list[NodeRequest]:
        """Return the requests to the nodes with a timetable. Record results at once for nodes without one and for nodes to which no pod may
        go."""
        nodes = sorted(i["subject"]["id"] for i in self.planned.values() if i["subject"]["kind"] == "node")
        names = {subject: subject.partition("/")[2] for subject in nodes}
        _able, refused = self._usable(client, names.values(), pods)
        node_requests: list[NodeRequest] = []
        answered: list[tuple[str, NodeAnswer]] = []
        absent: dict[str, list[PlainData]] = {}
        for subject, name in names.items():
            timetable = self.timetables.get(subject) or {"rounds": [], "absent": []}
            for pair in timetable["absent"]:
                absent.setdefault(pair["subject"]["id"], []).append(_missing(pair))
            if name in refused:
                code, reason = refused[name]
                answered.append((subject, node_messages.refused(code, reason)))
                self.refused[subject] = refused[name]
            elif timetable["rounds"]:
                node_requests.append(NodeRequest(name, request))
            else:
                answered.append((subject, nothing_asked()))
        answered += [(pair, {"state": "done", "observations": observations}) for pair, observations in absent.items()]
        self.record_all(answered)
        return node_requests

    def _request_of_all(self, args: PlainData, pods: PodSettings) -> NodeWork:
        """Return the request to every pod: to wait for its rendezvous and run the timetable that comes with it."""
        # A pod waits for the start of the slowest pod, and for the delivery of the addresses.
        within = pods.start_timeout + 60.0
        own_ports = {} if pods.host_network else self.description.isolation(self.settings).get("ports", {})
        options = {
            **args, "rounds": [], "absent": [], "checks": [{"check": TIMETABLE, "variant": ""}],
            "exec": {"kind": "host"}, "root": "/", "state_dir": f"{objects.WORK}/state", "governor": "",
            "meeting": {"path": f"{rendezvous.FOLDER}/{rendezvous.FILE}", "within": within}, "own_ports": own_ports,
            "timeout": float(args["timeout"]) + within,
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
        return {**item, "subject": self._pair(node, item), "context": context}

    def _pair(self, node: str, item: PlainData) -> PlainData | None:
        """Return the pair of an observation if the node is the client of that test, else None."""
        if node not in self.asks:
            tests = [x for planned in self.timetables[node]["rounds"] for x in planned["tests"] if x["role"] == "client"]
            self.asks[node] = {(self.kinds[x["kind"]]["check"], self.kinds[x["kind"]]["variant"], x["subject"]) for x in tests}
        pair = item.get("subject")
        if isinstance(pair, dict) and (str(item.get("check")), str(item.get("variant")), str(pair.get("id"))) in self.asks[node]:
            return {"kind": "pair", "id": pair["id"], "members": []}
        return None

    def note(self, node: str, result: NodeAnswer) -> None:
        """Note why a node has no result, for its pairs."""
        if result.get("state") == "refused":
            self.refused[node] = str(result.get("reason_code")), str(result.get("reason"))
        observations = result.get("observations")
        for item in observations if isinstance(observations, list) else ():
            if isinstance(item, dict) and item.get("check") == TIMETABLE and item.get("outcome") != "measured":
                self.refused[node] = str(item.get("reason_code")), str(item.get("reason"))

    def record_all(self, answers: list[tuple[str, NodeAnswer]]) -> None:
        super().record_all(answers)
        for _sender, result in answers:
            for item in result.get("observations") or []:
                subject = item.get("subject") if isinstance(item, dict) else None
                if isinstance(subject, dict):
                    self._have(str(subject.get("id")), (item.get("check"), item.get("variant", "")))

    def _have(self, pair: str, check: tuple[t.Any, t.Any]) -> None:
        """Mark a check of a pair as answered."""
        if pair in self.unanswered:
            self.checks_of[pair] = [planned for planned in self.checks_of[pair] if planned[:2] != check]
            if not self.checks_of[pair]:
                self.unanswered.discard(pair)

    def _pairs_without_an_answer(self) -> None:
        """Record pairs without a result, with the reasons of their ends if there are any."""
        for pair in sorted(self.unanswered):
            ends = [end for end in pair.split("|") if end in self.refused]
            result: NodeAnswer = {"state": "done", "observations": []}
            if ends:
                reasons = "; ".join(f"{end}: {self.refused[end][1]}" for end in ends)
                result = node_messages.refused(self.refused[ends[0]][0], reasons)
            self._record(pair, result)


def _missing(pair: PlainData) -> PlainData:
    return observation.failed(
        pair["check"], pair["reason_code"], pair["reason"], "missing", variant=pair["variant"], subject=pair["subject"]
    )
