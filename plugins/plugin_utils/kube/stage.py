# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One stage of a run on the nodes of one cluster.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube import access, cleanup, inventory, objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.client import Client, KubeError, connect
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.held import held
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.probe import Answer, Asked, NodeProbe
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.run import file_name
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stage import StageOnTarget, why_nothing

# These say that nobody knows anything of any node: the cluster is not asked again in this run.
_LOST = ("cluster_unreachable", "credentials")


class StageOnCluster(StageOnTarget):
    """Every node of the cluster that the plan names; what one says is in the journal when it says it."""

    def run(self) -> dict[str, t.Any]:
        if not self.planned:
            return {"skipped": True, "changed": False, "skip_reason": "not in the plan of this run"}
        if self.phase == "start":
            return {"skipped": True, "changed": False, "skip_reason": "its pods run while it collects"}
        self.left = {subject for _check, _variant, subject in self.planned}
        self.outcomes: list[dict[str, t.Any]] = []
        lost = self.acting.lost(self.host)
        try:
            if lost:
                self._give_up({"lost": lost})
            elif self.action._task.check_mode:
                self._give_up({"state": "check_mode"})
            else:
                self._measure()
        except KubeError as error:
            if error.reason_code in _LOST:
                self.acting.lose(self.host, error.reason_code, error.reason)
                self._give_up({"lost": (error.reason_code, error.reason)})
            self._give_up({"state": "refused", "reason_code": error.reason_code, "reason": error.reason})
        except ValueError as error:
            self._give_up({"failed": True, "msg": f"wrong arguments: {error}"})
        return self.result(self.outcomes)

    def _measure(self) -> None:
        pods = of_variables.pods(self.settings)
        client = connect(of_variables.connection(self.host, self.settings))
        access.require(client, [*access.PROBE, *access.LAUNCHERS[pods.launcher]], access.NODES)
        for line in cleanup.janitor(client, self.acting.id, self.stage):
            Display().display(line)
        asked = self._asked(client, pods)
        if not asked:
            return
        probe = NodeProbe(
            client, pods, self.acting.id, self.stage, float(asked[0].request["params"]["timeout"]), payload.archive(), self._raw
        )
        with held(probe, self.controller, f"{self.host}: run {self.acting.id}"):
            for answer in probe.run(asked):
                self._take(answer, pods)

    def _asked(self, client: Client, pods: of_variables.PodSettings) -> list[Asked]:
        """What is asked of which node; nodes that no pod may go to are answered for right away."""
        names = {subject: subject.partition("/")[2] for subject in self.left}
        there = {node.name: node for node in self._nodes(client, set(names.values()), pods.resource)}
        devices = self.stage in pods.gpu_stages
        gpu_expected = self.settings.get("acceptance_gpu_count") != 0
        common = self.args()
        # The tools under test are in the image, the host's files where the pod mounts them, our own in the pod.
        common.update(exec={"kind": "host"}, root=objects.HOST if pods.host_root else "/", state_dir=f"{objects.WORK}/state")
        asked = []
        for subject, name in sorted(names.items()):
            node = there.get(name)
            obstacle = self._absent(name) if node is None else inventory.obstacle(node, pods.tolerations, gpu_expected, pods.resource)
            if obstacle or node is None:
                code, reason = obstacle or ("node_absent", "")
                self._record(subject, {"state": "refused", "reason_code": code, "reason": reason})
                continue
            mine = {**common, "checks": [{"check": c, "variant": v} for c, v, s in self.planned if s == subject]}
            request = payload.request(self.action.module, self.action.spec, mine)
            asked.append(Asked(name, request, node.devices if devices else 0))
        return asked

    def _nodes(self, client: Client, names: set[str], resource: str) -> t.Iterator[inventory.Node]:
        """Those nodes of the plan that the cluster has; by their names where the plan says them."""
        wanted = inventory.wanted(self.host, self.settings)
        return (node for node in inventory.nodes(client, "" if wanted.names else wanted.selector, resource) if node.name in names)

    def _absent(self, name: str) -> tuple[str, str]:
        wanted = inventory.wanted(self.host, self.settings)
        if not name:
            return "node_absent", f"selector {wanted.selector} matches no node, and acceptance_nodes expects none by name"
        if name.startswith(inventory.UNNAMED) and wanted.number:
            return "node_absent", f"{wanted.number} nodes are expected and selector {wanted.selector} returns fewer"
        found = "the cluster has no node of this name" if wanted.names else f"selector {wanted.selector} does not return this node"
        return "node_absent", found

    # Answers -----------------------------------------------------------------------------------------------------

    def _take(self, answer: Answer, pods: of_variables.PodSettings) -> None:
        said = answer.said
        about = {"image": pods.image, **({"image_id": answer.pod["image_id"]} if answer.pod.get("image_id") else {})}
        if pods.allow:
            about["allowed"] = list(pods.allow)
        seen = said.get("observations")
        if isinstance(seen, list):
            for item in seen:
                if isinstance(item, dict):
                    # A pod speaks for its own node only, whatever it says.
                    item.pop("subject", None)
                    if isinstance(item.get("context"), dict):
                        item["context"] = {**item["context"], **about}
        self._record(f"{self.host}/{answer.node}", said)

    def _record(self, subject: str, said: dict[str, t.Any]) -> None:
        """A node's answer into the journal; every check planned for it gets a measurement."""
        seen = said.get("observations")
        measurements = [self.completer.complete(item, subject) for item in seen] if isinstance(seen, list) else []
        have = {(m["check"], m["variant"], m["subject"]["id"]) for m in measurements}
        code, reason, outcome = why_nothing(said, subject)
        for check in self.planned:
            if check[2] == subject and check not in have:
                measurements.append(self.completer.failure(check, code, reason, outcome))
        self.keep(measurements)
        self.left.discard(subject)
        self.outcomes += [{k: m[k] for k in ("reason", "check", "variant", "subject", "outcome")} for m in measurements]
        self.progress(measurements)

    def _give_up(self, said: dict[str, t.Any]) -> None:
        for subject in sorted(self.left):
            self._record(subject, said)

    def _raw(self, node: str) -> pathlib.Path:
        folder = self.acting.dir / "raw" / file_name(f"{self.host}/{node}")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.stage}-pod.log"
