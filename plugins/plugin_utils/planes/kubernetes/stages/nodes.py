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
from ansible_collections.gpufleet.acceptance.plugins.module_utils import observation, telemetry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.answers import why_nothing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.base import StageOnTarget
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access, cleanup, inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, connect
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.devices import asks_for_devices
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.cleanup_guard import cleanup_guard
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import NodeProbe, NodeRequest, NodeResult
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Check
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer, NodeWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import facts_of, has_facts, node_file, readable

# Reason codes with which the whole cluster is lost. It is not contacted again in this run.
_LOST = ("cluster_unreachable", "credentials")


class StageOnCluster(StageOnTarget):
    """Runs a stage on every planned node of the cluster. Each result is written to the journal as it arrives."""

    def __init__(self, *args: t.Any) -> None:
        super().__init__(*args)
        self._amounts: dict[str, dict[str, int]] = {}
        self._returned = 0

    def run(self) -> PlainData:
        if not self.planned:
            return {"skipped": True, "changed": False, "skip_reason": "not in the plan of this run"}
        if self.phase == "start":
            return {"skipped": True, "changed": False, "skip_reason": "its pods run while it collects"}
        self.checks_of: dict[str, list[Check]] = {}
        for check in self.planned:
            self.checks_of.setdefault(check[2], []).append(check)
        self.unanswered = set(self.checks_of)
        self.outcome_counts: dict[str, int] = {}
        # {subject: the node's identity by the API}.
        self.api_identities: dict[str, PlainData] = {}
        lost = self.acting.mailbox.lost(self.host)
        try:
            if lost:
                self._give_up({"lost": lost})
            else:
                self.measure()
        except KubeError as error:
            if error.reason_code in _LOST:
                self.acting.mailbox.lose(self.host, error.reason_code, error.reason)
                self._give_up({"lost": (error.reason_code, error.reason)})
            self._give_up(node_messages.refused(error.reason_code, error.reason))
        except ValueError as error:
            self._give_up({"failed": True, "msg": f"wrong arguments: {error}"})
        words = "; ".join(f"{reason} ({count})" for reason, count in sorted(self.outcome_counts.items(), key=lambda item: -item[1])[:10])
        return {"changed": False, "msg": f"{len(self.checks_of)} nodes: {words}"}

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
            for _node in self._nodes(client, names, pods.resource):
                pass  # this fills api_identities
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
        return inventory.usable(names, present, lambda node: self._obstacle(client, node, pods), self._absent)

    def node_request(self, checks: t.Iterable[tuple[str, str]], pods: of_variables.PodSettings) -> NodeWork:
        """Return the request to a node's pod."""
        args = {**self.args(), "checks": [{"check": check, "variant": variant} for check, variant in checks]}
        # The tools under test are in the image, the host's files at the pod's mount, our state in the pod.
        args.update(exec={"kind": "host"}, root=objects.HOST if pods.host_root else "/", state_dir=f"{objects.WORK}/state")
        return self.request(args)

    def _nodes(self, client: Client, names: set[str], resource: str) -> t.Iterator[inventory.ClusterNode]:
        """Yield the planned nodes that the cluster has."""
        selection = inventory.selection_of(self.host, self.settings)
        nodes = list(inventory.selected_nodes(client, selection, resource))
        self._returned = len(nodes)
        yield from self._knowing((node for node in nodes if node.name in names), resource)

    def _knowing(self, nodes: t.Iterable[inventory.ClusterNode], resource: str) -> t.Iterator[inventory.ClusterNode]:
        """Yield nodes, and note the API's identity of each."""
        for node in nodes:
            self.api_identities[f"{self.host}/{node.name}"] = node.identity(resource)
            yield node

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

    def subject_of(self, node: str, item: PlainData) -> PlainData | None:
        """Return the subject of an observation from the pod of `node`, a subject id; None if it is about the node itself. A pod may only
        report on its own node, unless the stage overrides this."""
        return None

    def note(self, node: str, result: NodeAnswer, items: list[PlainData]) -> None:
        """Take note of a node's result before it is recorded. `items` are the observations of the probe itself, which may be changed."""

    def _result(self, answer: NodeResult, pods: of_variables.PodSettings) -> tuple[str, NodeAnswer]:
        """Return the subject id of the node that an answer is from, and the answer with what ran it."""
        node = f"{self.host}/{answer.node}"
        observations = answer.result.get("observations")
        items = [item for item in observations if isinstance(item, dict)] if isinstance(observations, list) else []
        for item in items:
            subject = self.subject_of(node, item)
            item.pop("subject", None)
            if subject is not None:
                item["subject"] = subject
        result = with_floating(with_image(answer.result, answer.pod, pods.allow))
        self.note(node, result, items)
        return node, result

    def _record(self, subject: str, result: NodeAnswer) -> None:
        self.record_all([(subject, result)])

    def record_all(self, answers: list[tuple[str, NodeAnswer]]) -> None:
        """Write results to the journal in one append. Every planned check of a subject gets a measurement."""
        measurements: list[PlainData] = []
        for subject, result in answers:
            observations = result.get("observations")
            api_identity = self.api_identities.get(subject, {})
            own_measurements = (
                [self.completer.complete(with_identity(item, api_identity), subject) for item in observations]
                if isinstance(observations, list)
                else []
            )
            have = {(m["check"], m["variant"], m["subject"]["id"]) for m in own_measurements}
            missing = [check for check in self.checks_of.get(subject, []) if check not in have]
            if missing:
                code, reason, outcome = why_nothing(result, subject)
                context = result.get("ran") or {}
                own_measurements += [self.completer.failure(check, code, reason, outcome, context=dict(context)) for check in missing]
            measurements += own_measurements
            words = next((m["reason"] for m in own_measurements if m["reason"]), "measured")
            self.outcome_counts[words] = self.outcome_counts.get(words, 0) + 1
            self.unanswered.discard(subject)
        if measurements:
            self.keep(measurements)
            self.progress.add(measurements)

    def _give_up(self, result: NodeAnswer) -> None:
        self.record_all([(subject, result) for subject in sorted(self.unanswered)])

    def keep_facts(self, measurements: list[PlainData]) -> None:
        """Write the facts of nodes without a sync for each of thousands of files. The journal has the same data and is synced."""
        for m in measurements:
            if has_facts(m):
                path = self.acting.dir / "nodes" / node_file(m["subject"]["id"])
                new = path.with_suffix(".new")
                new.write_text(readable(facts_of(m)), encoding="utf-8")
                new.rename(path)

    def _raw(self, node: str) -> pathlib.Path:
        return self._log_of(f"{self.host}/{node}", "pod")

    def _log_of(self, subject: str, who: str) -> pathlib.Path:
        """Return the file for the log of a pod that measures a subject."""
        folder = self.acting.dir / "raw" / file_name(subject)
        folder.mkdir(parents=True, exist_ok=True)
        attempt = max((item["attempt"] for item in self.planned.values() if item["subject"]["id"] == subject), default=1)
        return folder / f"{self.stage}-{who}-{attempt}.log"


def with_image(result: NodeAnswer, ran: t.Mapping[str, t.Any], allow: t.Sequence[str]) -> NodeAnswer:
    """Return a pod's result with facts about the pod in the context of each observation: from `ran` the image, the digest that the kubelet
    reports and the time until the start, and from `allow` the pod's powers. The key "ran" has the same facts for checks without an
    observation."""
    facts = {name: ran[name] for name in ("image", "image_id", "kube_launcher", "pod_waited_s") if ran.get(name)}
    if allow:
        facts["allowed"] = list(allow)
    observations = result.get("observations")
    for item in observations if isinstance(observations, list) else []:
        if isinstance(item, dict) and isinstance(item.get("context", {}), dict):
            item["context"] = {**(item.get("context") or {}), **facts}
    return {**result, "ran": facts}


def with_identity(item: t.Any, api_identity: PlainData) -> t.Any:
    """Return an observation with the API's identity of its node added to the node's own."""
    if not api_identity or not isinstance(item, dict) or not isinstance(item.get("context", {}), dict):
        return item
    context = item.get("context") or {}
    own_identity = context.get("identity")
    return {**item, "context": {**context, "identity": {**(own_identity if isinstance(own_identity, dict) else {}), **api_identity}}}


def with_floating(result: NodeAnswer) -> NodeAnswer:
    """Return a node's result of with_image(), with an additional observation if the image has no fixed tag. It is a WARN of the node and
    does not affect the other checks."""
    observations, ran = result.get("observations"), result["ran"]
    if not observations or not isinstance(observations, list) or not of_variables.untagged(str(ran.get("image") or "")):
        return result
    words = f"image {ran['image']} has no tag or the tag latest: tomorrow it may be another one; what ran is {ran.get('image_id')}"
    floating = observation.measured("image", context={**ran, "condition": True, "findings": [{"code": "floating_image", "text": words}]})
    return {**result, "observations": [*observations, floating]}
