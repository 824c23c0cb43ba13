# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a team's own Job or DaemonSet on the nodes of a cluster, and takes its end as the result.

The result is the exit status of the first container, or what it printed in one line of its log:

    gpufleet-result/1 NONCE BYTES SHA256 BASE64

NONCE is the environment variable GPUFLEET_NONCE of that pod; BYTES and SHA256 are of the JSON text that BASE64 holds.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import binascii
import concurrent.futures
import copy
import dataclasses
import hashlib
import json
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, manifests, marks, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects, probe
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import NodeProbe, NodeRequest, NodeResult
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer

TAG = b"gpufleet-result/1 "
# {kind of a manifest: launcher, by its name in access.LAUNCHERS and in the roles of files/rbac}.
LAUNCHER = {manifests.JOB: "job", manifests.DAEMONSET: "daemonset"}
# Exit statuses of a failed test. Higher ones are set by the shell and the kernel.
OWN_STATUS = range(1, 126)


class ManifestProbe(NodeProbe):
    """One manifest on the nodes of one cluster: a Job for each node, or one DaemonSet for all.

    `checks`: the planned (check, variant) of each node. `timeout`: seconds in which a pod must end.
    """

    def __init__(
        self,
        client: Client,
        settings: PodSettings,
        run_id: str,
        stage: str,
        timeout: float,
        manifest: Object,
        checks: dict[str, list[tuple[str, str]]],
        raw: t.Callable[[str], pathlib.Path] | None = None,
    ) -> None:
        own_settings = dataclasses.replace(settings, image=manifests.image(manifest), launcher="pods", keep="never")
        super().__init__(client, own_settings, run_id, stage, timeout, b"", raw)
        self.manifest = manifest
        self.checks = checks
        self.api, self.resource = probe.LAUNCHED_BY[LAUNCHER[manifest["kind"]]][0]
        self._ends: dict[str, int | None] = {}

    def clean(self) -> list[str]:
        remaining = cleanup.remove(self.client, self.launch.selector, [(self.api, self.resource), *cleanup.KINDS_OF_PROBES])
        self.heartbeat.end(self.client)
        return remaining

    def create_pods(self, node_requests: list[NodeRequest], numbers: list[int], makers: concurrent.futures.Executor) -> None:
        for item in node_requests:
            self.followed[item.node] = probe.FollowedNode(item.node, request=item)
        nodes = [item.node for item in node_requests]
        groups = [nodes] if self.manifest["kind"] == manifests.DAEMONSET else [[node] for node in nodes]
        bodies = [body(self.launch, f"{self.launch.name}-{n}", self.manifest, of, self.settings) for n, of in enumerate(groups)]
        # If the first is refused for its spec, all would be.
        where = cleanup.path(self.api, self.client.namespace, self.resource)
        self._makers.append(self.client.post(where, bodies[0], **objects.STRICT)["metadata"]["uid"])
        for node, workload in zip(nodes[1:], bodies[1:], strict=False):
            makers.submit(self._make, where, node, workload)

    def pod_changed(self, pod: Object) -> None:
        pod = first_end(pod, manifests.framed(self.manifest))
        state = states.own_container(pod).get("state") or {}
        if "terminated" in state:
            self._ends.setdefault(pod["metadata"]["uid"], state["terminated"].get("exitCode"))
        super().pod_changed(pod)

    def message_of(self, followed: probe.FollowedNode, pod: Object) -> NodeAnswer | None:
        """Return None: the termination message of a team's own test is no result of ours."""
        return None

    def answer_of(self, followed: probe.FollowedNode) -> NodeResult:
        status = self._ends.get(followed.uid)
        framed, restarts = manifests.framed(self.manifest), self.manifest["kind"] == manifests.DAEMONSET
        nonce = f"{self.launch.secret}-{followed.uid}"
        record, code, reason, last, _foreign = self._log(followed, (lambda: ManifestReader(nonce)) if framed else Unframed, restarts)
        state = followed.state
        failed = status in OWN_STATUS and state.code == "container_failed"
        if state.code and not failed:
            code, reason = state.code, "; ".join(word for word in (state.words, last and f"its last words: {last}") if word)
        elif failed and record is None and framed:
            code, reason = state.code, f"{state.words}; {reason}; its last words: {last}"
        elif record is None and not code and status is None:
            code, reason = "no_result", "its pod has ended, but the cluster reports no exit status"
        if code:
            result = node_messages.refused(code, reason[:1500])
        else:
            result = {"state": "done", "end": "done", "observations": self._observations(followed, record, status, last)}
        return NodeResult(followed.request.node, result, self._pod_facts(followed))

    def _observations(self, followed: probe.FollowedNode, record: NodeAnswer | None, status: int | None, last: str) -> list[Object]:
        container = self.manifest["spec"]["template"]["spec"]["containers"][0]
        common = {"command": [str(word) for word in [*(container.get("command") or []), *(container.get("args") or [])]]}
        if record is None:
            # The exit status is the result; there is no number.
            checks = self.checks[followed.request.node]
            observations = [observation.measured(check, variant=variant, context={"condition": True}) for check, variant in checks]
        else:
            items = [item for item in record["observations"] if isinstance(item, dict)]
            observations = [{**observation.measured(str(item.get("check"))), **item} for item in items]
        for item in observations:
            item.update({name: value for name, value in common.items() if not item.get(name)})
            if isinstance(item.get("context"), dict):
                item["context"]["exit_status"] = status
                if status:
                    text = f"the test ended with exit status {status}" + (f": {last}" if last else "")
                    item["context"]["findings"] = [*(item["context"].get("findings") or []), {"code": "own_test", "text": text[:600]}]
        return observations


def body(launch: objects.Launch, name: str, manifest: Object, nodes: list[str], settings: PodSettings) -> Object:
    """Return the manifest as it is submitted. Number and nodes of the pods, retries and deadlines are set here. Raise KubeError if a pod
    would have a power that acceptance_kube_allow does not name."""
    template = copy.deepcopy(manifest["spec"]["template"])
    spec = template["spec"]
    container = spec["containers"][0]
    container["name"] = marks.CONTAINER
    container["env"] = [
        {"name": "GPUFLEET_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "GPUFLEET_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "GPUFLEET_NONCE", "value": f"{launch.secret}-$(GPUFLEET_POD_UID)"},
        *(container.get("env") or []),
    ]
    spec["affinity"] = {**(spec.get("affinity") or {}), **objects.on_nodes(nodes)}
    spec["tolerations"] = [*(spec.get("tolerations") or []), *(dict(toleration) for toleration in settings.tolerations)]
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("enableServiceLinks", False)
    spec.setdefault("terminationGracePeriodSeconds", 5)
    if settings.image_pull_secrets:
        spec.setdefault("imagePullSecrets", [{"name": secret} for secret in settings.image_pull_secrets])
    if settings.priority_class:
        spec.setdefault("priorityClassName", settings.priority_class)
    for power in objects.powers(spec):
        if power not in settings.allow:
            raise KubeError("bad_spec", f"the manifest's pods would be {power}; acceptance_kube_allow does not name it")
    own_metadata = launch.metadata(name, "probe", settings)
    team_metadata = template.get("metadata") or {}
    template["metadata"] = {kind: {**(team_metadata.get(kind) or {}), **own_metadata[kind]} for kind in ("labels", "annotations")}
    if manifest["kind"] == manifests.DAEMONSET:
        spec["restartPolicy"] = "Always"
        fields = {"selector": {"matchLabels": {marks.LAUNCH: launch.name}}, "updateStrategy": {"type": "OnDelete"}}
    else:
        spec.update(restartPolicy="Never", activeDeadlineSeconds=int(launch.deadline_s))
        fields = {"backoffLimit": 0, "activeDeadlineSeconds": int(launch.deadline_s), "ttlSecondsAfterFinished": int(marks.GRACE_S)}
    of = manifest.get("metadata") or {}
    metadata = launch.metadata(name, "launcher", settings)
    metadata.update({kind: {**(of.get(kind) or {}), **metadata[kind]} for kind in ("labels", "annotations")})
    workload = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": metadata}
    return {**workload, "spec": {**fields, "template": template}}


def first_end(pod: Object, framed: bool) -> Object:
    """Return the pod of a DaemonSet as an ended pod after the first end of its container, which the cluster starts again. A pod that prints
    its result (`framed`) also counts as ended when its own readiness probe succeeds; it then has no exit status."""
    if pod["spec"].get("restartPolicy") != "Always":
        return pod
    container = states.own_container(pod)
    ends = [(container.get(name) or {}).get("terminated") for name in ("lastState", "state")]
    ended = next((end for end in ends if end), None)
    if ended is None and framed and container.get("ready") and pod["spec"]["containers"][0].get("readinessProbe"):
        ended = {"reason": "Ready"}
    if ended is None:
        return pod
    other_statuses = [status for status in pod["status"]["containerStatuses"] if status["name"] != marks.CONTAINER]
    changed = {
        "phase": "Failed" if ended.get("exitCode") else "Succeeded",
        "containerStatuses": [*other_statuses, {**container, "state": {"terminated": ended}}],
    }
    return {**pod, "status": {**pod["status"], **changed}}


class Unframed:
    """A reader that finds no result, because the exit status is the result."""

    foreign = 0

    def feed(self, line: bytes) -> None:
        """Read one line of the log."""

    def result(self) -> None:
        return None


class ManifestReader:
    """Finds the result of one nonce in a log that is fed line by line."""

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce
        self._results: list[list[bytes]] = []
        self.foreign = 0

    def feed(self, line: bytes) -> None:
        """Read one line of the log, with or without its newline."""
        at = line.find(TAG)
        words = line[at + len(TAG) :].split() if at >= 0 else []
        if words and words[0] == self._nonce.encode():
            self._results.append(words[1:])
        else:
            self.foreign += bool(words)

    def result(self) -> Object:
        """Return the record {"observations": [...]}. Raise ReasonedError unless the log holds it whole, and once."""
        if not self._results:
            if self.foreign:
                raise ReasonedError("forged_frame", "the log holds a result that is not this pod's: its nonce is another")
            raise ReasonedError("no_result", "the log holds no result")
        if len(self._results) > 1:
            raise ReasonedError("incomplete_output", "the log holds more than one result")
        (words,) = self._results
        try:
            size, digest, packed = int(words[0]), words[1].decode(), words[2]
            text = base64.b64decode(packed, validate=True)
        except (IndexError, ValueError, binascii.Error):
            raise ReasonedError("incomplete_output", "the result in the log is cut, or not of its form") from None
        if len(text) != size or hashlib.sha256(text).hexdigest() != digest:
            raise ReasonedError("incomplete_output", "the result in the log does not fit its length and checksum")
        try:
            record = json.loads(text)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not isinstance(record.get("observations"), list):
            raise ReasonedError("incomplete_output", 'the result in the log is no JSON object {"observations": [...]}')
        return record
