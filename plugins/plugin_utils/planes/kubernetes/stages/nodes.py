# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One stage of a run on the nodes of one cluster.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import live_output, telemetry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.answers import with_observations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.behind import StageBehindHost, with_context
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access, cleanup, inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, connect
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.devices import asks_for_devices
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.cleanup_guard import cleanup_guard
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import NodeProbe, NodeRequest, NodeResult
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer, NodeWork


class StageOnCluster(StageBehindHost):
    """Runs a stage on every planned node of the cluster."""

    lost_codes = ("cluster_unreachable", "credentials")

    def __init__(self, *args: t.Any) -> None:
        super().__init__(*args)
        self._amounts: dict[str, dict[str, int]] = {}
        self._returned = 0
        self._probing: NodeProbe | None = None

    @property
    def output_path(self) -> str:
        return live_output.IN_POD

    def last_output(self, subject: str) -> str | None:
        host, _slash, node = subject.partition("/")
        if host != self.host:
            return None
        return self._probing.last_output(node) if self._probing else ""

    def pod_settings(self) -> of_variables.PodSettings:
        """Return the settings of this stage's pods."""
        pods = of_variables.with_own(of_variables.pods(self.settings), self.description.isolation(self.settings))
        log = {telemetry.LOG: "json"} if self.settings.get("acceptance_log") == "json" else {}
        return dataclasses.replace(pods, env={**pods.env, **log})

    def _obstacle(self, client: Client, node: inventory.ClusterNode, pods: of_variables.PodSettings) -> tuple[str, str] | None:
        """Return (reason code, reason) why no pod of this stage may go to a node, None if one may."""
        needs = self.description.isolation(self.settings)
        need_devices = needs.get("on_gpu_nodes", True) and self.settings.get("acceptance_gpu_count") != 0
        obstacle = inventory.obstacle(node, pods.tolerations, need_devices, pods.resource)
        if obstacle:
            return obstacle
        for resource, count in sorted((needs.get("limits") or {}).items()):
            has = self._allocatable(client, resource).get(node.name, 0)
            if has < int(count):
                words = f"its pod asks for {count}" + ("" if has else ": does the device plugin for it run there?")
                return needs.get("lacks", "no_gpu"), f"node {node.name} has {has} allocatable {resource}, {words}"
        return None

    def _allocatable(self, client: Client, resource: str) -> dict[str, int]:
        """Return {node: its amount of a resource}, which is queried once."""
        if resource not in self._amounts:
            self._amounts[resource] = {node.name: node.devices for node in inventory.nodes(client, "", resource)}
        return self._amounts[resource]

    def _begin(self, rights: t.Iterable[access.Right], pods: of_variables.PodSettings) -> Client:
        """Return a client of the cluster, after checking our rights and removing earlier objects of this stage."""
        client = connect(of_variables.connection(self.host, self.settings))
        access.require(client, rights, access.NODES)
        self._collect(client, pods)
        for line in cleanup.janitor(client, self.acting.id, self.stage):
            Display().display(line)
        return client

    def measure(self) -> None:
        pods = self.pod_settings()
        client = self._begin([*access.PROBE, *access.LAUNCHERS[pods.launcher]], pods)
        node_requests = self._node_requests(client, pods)
        if not node_requests:
            return
        probe = self._probe(client, pods, node_requests)
        if self.detach:
            record, refused = probe.submit(node_requests, float(self.settings["acceptance_detach_keep"]))
            self.acting.save_detached(self.stage, self.host, record)
            self.record_all([self._result(answer, pods) for answer in refused])
            self.outcome_counts["submitted"] = len(record["nodes"])
            return
        self._follow(probe, client, pods, node_requests)

    def _follow(self, probe: NodeProbe, client: Client, pods: of_variables.PodSettings, node_requests: list[NodeRequest]) -> None:
        """Run the probe to its end and record each result as it arrives."""
        self._probing = probe
        with cleanup_guard(probe, self.controller, f"{self.host}: run {self.acting.id}", self.acting.removing):
            for answers in probe.run(node_requests):
                self.record_all([self._result(answer, pods) for answer in answers])
        for pod, node in sorted(probe.kept_pods.items()):
            Display().display(
                f"{self.host}: kept for {pods.keep_seconds:.0f} s on {node}: kubectl exec -n {client.namespace} -it {pod} -- sh"
            )

    def _probe(self, client: Client, pods: of_variables.PodSettings, node_requests: list[NodeRequest]) -> NodeProbe:
        timeout = float(node_requests[0].request["params"]["timeout"])
        return NodeProbe(client, pods, self.acting.id, self.stage, timeout, payload.archive(), self._raw)

    def _collect(self, client: Client, pods: of_variables.PodSettings) -> None:
        """Record the results that a detached run has left on the cluster, and remove its objects. If this is interrupted, they stay for the
        next attempt."""
        record = self.acting.load_detached(self.stage, self.host)
        if record is None:
            return
        names = {subject.partition("/")[2] for subject in self.unanswered} & set(record["nodes"])
        request = self.node_request((), pods)
        node_requests = [NodeRequest(name, request) for name in sorted(names)]
        if node_requests:
            self.api_identities.update(self._identities(self._nodes(client, names, pods.resource), pods.resource))
            probe = self._probe(client, pods, node_requests)
            for answers in probe.collect(record, node_requests):
                self.record_all([self._result(answer, pods) for answer in answers])
            probe.clean()
        self.acting.drop_detached(self.stage, self.host)

    def _node_requests(self, client: Client, pods: of_variables.PodSettings) -> list[NodeRequest]:
        """Return the requests to the nodes. Record a refusal at once for nodes to which no pod may go."""
        names = {subject: subject.partition("/")[2] for subject in sorted(self.unanswered)}
        able, refused = self._usable(client, names.values(), pods)
        self.record_all([(subject, node_messages.refused(*refused[name])) for subject, name in names.items() if name in refused])
        devices = asks_for_devices(self.description, self.settings)
        limit = self.description.isolation(self.settings).get("devices")
        requests: dict[tuple[tuple[str, str], ...], NodeWork] = {}
        node_requests = []
        for subject, name in names.items():
            if name in able:
                checks = tuple((check, variant) for check, variant, _subject in self.checks_of[subject])
                if checks not in requests:
                    requests[checks] = self.node_request(checks, pods)
                node_requests.append(
                    NodeRequest(name, requests[checks], min(able[name].devices, limit or able[name].devices) if devices else 0)
                )
        return node_requests

    def _usable(
        self, client: Client, names: t.Collection[str], pods: of_variables.PodSettings
    ) -> tuple[dict[str, inventory.ClusterNode], dict[str, inventory.Why]]:
        """Return {name: node} of the nodes to which this stage's pods may go, and {name: (reason code, reason)} of the others."""
        present = self._nodes(client, set(names), pods.resource)
        self.api_identities.update(self._identities(present, pods.resource))
        return inventory.usable(names, present, lambda node: self._obstacle(client, node, pods), self._absent)

    def node_request(self, checks: t.Iterable[tuple[str, str]], pods: of_variables.PodSettings) -> NodeWork:
        """Return the request to a node's pod."""
        args = {**self.args(), "checks": [{"check": check, "variant": variant} for check, variant in checks]}
        # The tools under test are in the image, the host's files at the pod's mount, our state in the pod.
        args.update(exec={"kind": "host"}, root=objects.HOST if pods.host_root else "/", state_dir=f"{objects.WORK}/state")
        return self.request(args)

    def _nodes(self, client: Client, names: set[str], resource: str) -> list[inventory.ClusterNode]:
        """Return the planned nodes that the cluster has."""
        selection = inventory.selection_of(self.host, self.settings)
        nodes = list(inventory.selected_nodes(client, selection, resource))
        self._returned = len(nodes)
        return [node for node in nodes if node.name in names]

    def _identities(self, nodes: t.Iterable[inventory.ClusterNode], resource: str) -> dict[str, PlainData]:
        """Return {subject id: the API's identity} of nodes."""
        return {f"{self.host}/{node.name}": node.identity(resource) for node in nodes}

    def _absent(self, name: str) -> tuple[str, str]:
        selection = inventory.selection_of(self.host, self.settings)
        if not name and self._returned:
            words = f"the cluster could not say which nodes it has when the run was planned; selector {selection.selector} returns"
            return "node_absent", f"{words} {self._returned} now: begin a new run"
        if not name:
            return "node_absent", f"selector {selection.selector} matches no node, and acceptance_nodes expects none by name"
        if name.startswith(inventory.UNNAMED) and selection.number:
            return "node_absent", f"{selection.number} nodes are expected and selector {selection.selector} returns fewer"
        words = "the cluster has no node of this name" if selection.names else f"selector {selection.selector} does not return this node"
        return "node_absent", words

    # Answers -----------------------------------------------------------------------------------------------------

    def accepted(self, node: str, item: PlainData) -> PlainData:
        """Return an observation from the pod of `node`, a subject id, as it is recorded. A pod may only report on its own node, unless the
        stage overrides this."""
        return {**item, "subject": None}

    def note(self, node: str, result: NodeAnswer) -> None:
        """Take note of a node's result before it is recorded."""

    def _result(self, answer: NodeResult, pods: of_variables.PodSettings) -> tuple[str, NodeAnswer]:
        """Return the subject id of the node that an answer is from, and the answer with what ran it."""
        node = f"{self.host}/{answer.node}"
        self.note(node, answer.result)
        result = with_observations(answer.result, lambda item: self.accepted(node, item))
        return node, with_floating(with_image(result, answer.pod, pods.allow))

    def _raw(self, node: str) -> pathlib.Path:
        return self._log_of(f"{self.host}/{node}", "pod")


def with_image(result: NodeAnswer, ran: t.Mapping[str, t.Any], allow: t.Sequence[str]) -> NodeAnswer:
    """Return a pod's result with facts about the pod in the context of each observation: from `ran` the image, the digest that the kubelet
    reports and the time until the start, and from `allow` the pod's powers. The key "ran" has the same facts for checks without an
    observation."""
    facts = {name: ran[name] for name in ("image", "image_id", "kube_launcher", "pod_waited_s") if ran.get(name)}
    if allow:
        facts["allowed"] = list(allow)
    return {**with_context(result, lambda _context: facts), "ran": facts}


def with_floating(result: NodeAnswer) -> NodeAnswer:
    """Return a node's result of with_image(), with an additional observation if the image has no fixed tag. It is a WARN of the node and
    does not affect the other checks."""
    observations, ran = result.get("observations"), result["ran"]
    if not observations or not isinstance(observations, list) or not of_variables.untagged(str(ran.get("image") or "")):
        return result
    words = f"image {ran['image']} has no tag or the tag latest: tomorrow it may be another one; what ran is {ran.get('image_id')}"
    floating = observation.measured("image", context={**ran, "condition": True, "findings": [{"code": "floating_image", "text": words}]})
    return {**result, "observations": [*observations, floating]}
