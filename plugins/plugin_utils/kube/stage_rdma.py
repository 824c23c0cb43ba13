# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The RDMA stages on the nodes of one cluster: one pod per node looks at its ports, or walks its timetable.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.module_utils import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.fleet import rdma, rdma_again
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube import access, cleanup, guardians, inventory, meeting, objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.client import Client, connect
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.probe import Answer, Asked
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.stage import StageOnCluster

Record = t.Dict[str, t.Any]
DEVICES = "/dev/infiniband"
OPTIONS_OF_PORTS = ("devices", "port", "network", "gid_index", "roce_version", "address_family", "link_local")
NOT_SWITCHED = f"test pods switch no governor, as one that is killed could not give it back; {guardians.SWITCH} lets a pod of its own do it"


class PortsOnCluster(StageOnCluster):
    """Pods as the RDMA stages need them: they see the network of their own pod, and its devices."""

    def __init__(self, *args: t.Any) -> None:
        super().__init__(*args)
        self._known: dict[str, dict[str, int]] = {}

    def _pods(self) -> PodSettings:
        return pods_of(super()._pods(), self.settings)

    def _obstacle(self, client: Client, node: inventory.Node, pods: PodSettings) -> tuple[str, str] | None:
        found = inventory.obstacle(node, pods.tolerations, False, pods.resource)
        if found:
            return found
        for resource, count in sorted((self.settings.get("rdma_kube_resources") or {}).items()):
            has = self._allocatable(client, resource).get(node.name, 0)
            if has < int(count):
                asked = f"its pod asks for {count}" + ("" if has else ": does the RDMA device plugin run there?")
                return "no_rdma", f"node {node.name} has {has} allocatable {resource}, {asked}"
        return None

    def _allocatable(self, client: Client, resource: str) -> dict[str, int]:
        """How much of a resource each node has; asked once."""
        if resource not in self._known:
            self._known[resource] = {node.name: node.devices for node in inventory.nodes(client, "", resource)}
        return self._known[resource]


class RoundsOnCluster(PortsOnCluster):
    """The timetable of every node of the cluster, walked by pods that meet first; who asks speaks for a pair."""

    def _pods(self) -> PodSettings:
        pods = super()._pods()
        return dataclasses.replace(pods, pod_patch=objects.merged(dict(pods.pod_patch), meeting.PATCH))

    def _measure(self) -> None:
        pods = self._pods()
        self.guarded = guardians.wanted(self.settings, pods.allow)
        self.refused: dict[str, Record] = {}
        args = self.args()
        if "answer" in args:  # it is known without asking
            self._record_all([(subject, dict(args["answer"])) for subject in sorted(self.left)])
            return
        client = connect(of_variables.connection(self.host, self.settings))
        access.require(client, [*access.PROBE, *access.MEETING, *access.LAUNCHERS[pods.launcher]], access.NODES)
        for line in cleanup.janitor(client, self.acting.id, self.stage):
            Display().display(line)
        self.timetables: dict[str, Record] = args.pop("nodes", {})
        self.kinds: list[Record] = args.get("kinds") or []
        asked = self._walkers(client, pods, self._request_of_all(args, pods))
        if asked:
            timeout = float(asked[0].request["params"]["timeout"])
            parts = {item.node: {"rounds": self.timetables[f"{self.host}/{item.node}"]["rounds"]} for item in asked}
            guarding = self._guardians(client) if self.guarded else None
            probe = meeting.Meeting(parts, guarding, client, pods, self.acting.id, self.stage, timeout, payload.archive(), self._raw)
            self._follow(probe, client, pods, asked)
        self._pairs_without_an_answer()

    def _guardians(self, client: Client) -> guardians.Guardians:
        pods, wanted = of_variables.pods(self.settings), self.settings["rdma_governor"]
        folder = self.settings.get("acceptance_state_dir") or ""
        return guardians.Guardians(client, pods, self.acting.id, self.stage, payload.archive(), wanted, folder)

    def _walkers(self, client: Client, pods: PodSettings, request: Record) -> list[Asked]:
        """Who walks which timetable; those that have none, and nodes that no pod may go to, are answered for right away."""
        nodes = sorted(i["subject"]["id"] for i in self.planned.values() if i["subject"]["kind"] == "node")
        names = {subject: subject.partition("/")[2] for subject in nodes}
        there = {node.name: node for node in self._nodes(client, set(names.values()), pods.resource)}
        asked, known = [], []
        absent: dict[str, list[Record]] = {}
        for subject, name in names.items():
            own = self.timetables.get(subject) or {"rounds": [], "absent": []}
            node = there.get(name)
            obstacle = self._obstacle(client, node, pods) if node else self._absent(name)
            for pair in own["absent"]:
                absent.setdefault(pair["subject"]["id"], []).append(_missing(pair))
            if obstacle:
                known.append((subject, {"state": "refused", "reason_code": obstacle[0], "reason": obstacle[1]}))
                self.refused[subject] = known[-1][1]
            elif own["rounds"]:
                asked.append(Asked(name, request))
            else:
                known.append((subject, rdma_again.nothing()))
        self._record_all([*known, *((pair, {"state": "done", "observations": seen}) for pair, seen in absent.items())])
        return asked

    def _request_of_all(self, args: Record, pods: PodSettings) -> Record:
        """What every pod is asked: to do as it is told when all are there."""
        # It waits for the slowest of the others, and the cluster is given a moment to tell it.
        within = pods.start_timeout + 60.0
        own_ports = {} if pods.host_network else {name: self.settings.get(f"rdma_ports_{name}") for name in OPTIONS_OF_PORTS}
        mine = {
            **args, "rounds": [], "absent": [], "checks": [{"check": rdma.TIMETABLE, "variant": ""}],
            "exec": {"kind": "host"}, "root": "/", "state_dir": f"{objects.WORK}/state", "governor": "",
            "meeting": {"path": f"{meeting.FOLDER}/{meeting.FILE}", "within": within}, "own_ports": own_ports,
            "timeout": float(args["timeout"]) + within,
        }  # fmt: skip
        return payload.request(self.action.module, self.action.spec, mine)

    # Answers ---------------------------------------------------------------------------------------------------------

    def _taken(self, answer: Answer, pods: PodSettings) -> tuple[str, Record]:
        """Whose answer it is; of pairs it may speak where it asks. Without guardians nobody has switched a governor."""
        node = f"{self.host}/{answer.node}"
        tests = [x for planned in self.timetables[node]["rounds"] for x in planned["tests"] if x["role"] == "client"]
        asks = {(self.kinds[x["kind"]]["check"], self.kinds[x["kind"]]["variant"], x["subject"]) for x in tests}
        seen = answer.said.get("observations")
        sound = [item for item in seen if isinstance(item, dict)] if isinstance(seen, list) else []
        pairs = [item.get("subject") for item in sound]
        subject, said = super()._taken(answer, pods)
        if said.get("state") == "refused":
            self.refused[node] = said
        for item, pair in zip(sound, pairs, strict=True):
            if isinstance(pair, dict) and (str(item.get("check")), str(item.get("variant")), str(pair.get("id"))) in asks:
                item["subject"] = {"kind": "pair", "id": pair["id"], "members": []}
            context = item.get("context")
            if isinstance(context, dict) and self.settings.get("rdma_governor") and not self.guarded:
                context["governor"] = {"wanted": self.settings["rdma_governor"], "state": "not_switched", "reason": NOT_SWITCHED}
            if item.get("check") == rdma.TIMETABLE and item.get("outcome") != "measured":
                self.refused[node] = item
        return subject, said

    def _record_all(self, answers: list[tuple[str, Record]]) -> None:
        super()._record_all(answers)
        for _sender, said in answers:
            for item in said.get("observations") or []:
                about = item.get("subject") if isinstance(item, dict) else None
                if isinstance(about, dict):
                    self._have(str(about.get("id")), (item.get("check"), item.get("variant", "")))

    def _have(self, pair: str, check: tuple[t.Any, t.Any]) -> None:
        """A check of a pair that was answered."""
        if pair in self.left:
            self.checks_of[pair] = [one for one in self.checks_of[pair] if one[:2] != check]
            if not self.checks_of[pair]:
                self.left.discard(pair)

    def _pairs_without_an_answer(self) -> None:
        """Pairs of which nobody spoke: as good as the reason of whichever end has one."""
        for pair in sorted(self.left):
            ends = [end for end in pair.split("|") if end in self.refused]
            said: Record = {"state": "done", "observations": []}
            if ends:
                reasons = "; ".join(f"{end}: {self.refused[end]['reason']}" for end in ends)
                said = {"state": "refused", "reason_code": self.refused[ends[0]]["reason_code"], "reason": reasons}
            self._record(pair, said)


def _missing(pair: Record) -> Record:
    return observation.failed(
        pair["check"], pair["reason_code"], pair["reason"], "missing", variant=pair["variant"], subject=pair["subject"]
    )


def pods_of(pods: PodSettings, variables: t.Mapping[str, t.Any]) -> PodSettings:
    """What the pods of the RDMA stages are and have besides, of the role's variables `rdma_kube_*`."""
    limits = {**(pods.resources.get("limits") or {}), **{k: str(v) for k, v in (variables.get("rdma_kube_resources") or {}).items()}}
    devices = _WITH_DEVICES if variables.get("rdma_kube_host_devices") else {}
    return dataclasses.replace(
        pods,
        # What the pod itself sees of /sys is what its tests can use.
        host_root=False,
        host_network=bool(variables.get("rdma_kube_host_network", True)),
        capabilities=list(dict.fromkeys([*pods.capabilities, *(variables.get("rdma_kube_capabilities") or ())])),
        annotations={**pods.annotations, **(variables.get("rdma_kube_annotations") or {})},
        resources={**pods.resources, **({"limits": limits} if limits else {})},
        pod_patch=objects.merged(dict(pods.pod_patch), devices),
    )


_WITH_DEVICES: Record = {
    "spec": {"volumes": [{"name": "infiniband", "hostPath": {"path": DEVICES, "type": "Directory"}}]},
    "container": {
        "volumeMounts": [{"name": "infiniband", "mountPath": DEVICES}],
        # The cgroup of a container lets it use no device of the host otherwise.
        "securityContext": {"privileged": True, "allowPrivilegeEscalation": True},
    },
}

# By the module of the stage.
MODULES: dict[str, type[StageOnCluster]] = {"rdma_ports": PortsOnCluster, "perftest_rounds": RoundsOnCluster}
