# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage between the nodes of one cluster: a group of pods for each group of the plan.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.answers import with_observations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.groups_behind import GroupsBehindHost
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import discovery
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups import group_objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups.group import (
    GroupLaunch,
    GroupResult,
    launched,
    short_name,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.nodes import (
    StageOnCluster,
    with_floating,
    with_image,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import MEMBER


class GroupsOnCluster(GroupsBehindHost, StageOnCluster):
    """Runs every planned group of the cluster, one after the other. Each of its nodes is a member."""

    def measure(self) -> None:
        pods = self.pod_settings()
        client = self._begin((), pods)
        choice = discovery.choose(client, self.settings.get("acceptance_kube_group_launcher") or discovery.AUTO)
        for line in choice.why:
            Display().vv(f"{self.host}: {line}")
        for subject, members in self.groups().items():
            self._run_group(client, pods, choice, subject, members)

    def _run_group(
        self,
        client: Client,
        pods: PodSettings,
        choice: discovery.Choice,
        subject: str,
        members: list[str],
    ) -> None:
        work = self._work_of_head(subject)
        # A cluster whose nodes the plan does not know is a member itself, so that the API's error about its selector is recorded.
        names = {member: member.partition("/")[2] for member in members}
        usable, unusable = self._usable(client, names.values(), pods)
        problems = {member: unusable[name] for member, name in names.items() if name in unusable}
        for member in set(problems) & self.unanswered:
            code, reason = problems[member]
            self._record(member, node_messages.refused(code, reason))
        able = list(usable)
        refusal = None
        refused = self.why_refused(subject)
        if refused:
            refusal = ("member", refused)
        elif len(able) < 2:
            words = "; ".join(f"{member}: {reason}" for member, (_code, reason) in problems.items())
            refusal = ("member", f"{len(able)} of {len(members)} nodes can take part: {words}")
        devices = self._devices({name: usable[name].devices for name in able}, work["params"])
        if isinstance(devices, str):
            refusal = refusal or ("gpu_count", devices)
        if refusal:
            self.give_up_group(subject, members, node_messages.refused(*refusal))
            return
        absent = [{"name": member, "address": "", "problem": reason} for member, (_code, reason) in problems.items()]
        while True:
            answer = self._launched(client, pods, choice, subject, able, t.cast(int, devices), work, absent)
            # A node whose pod does not start is left out and named, like a cordoned node. The others are measured.
            late = {node: answer.absent[node] for node in able if node in answer.absent}
            if not late or len(able) - len(late) < 2:
                break
            able = [node for node in able if node not in late]
            for name, (code, reason) in late.items():
                Display().display(f"{self.host}: {subject} goes on without {name}: {reason}")
                absent.append({"name": f"{self.host}/{name}", "address": "", "problem": reason})
                if f"{self.host}/{name}" in self.unanswered:
                    self._record(f"{self.host}/{name}", node_messages.refused(code, reason))
        self._tell(subject, members, answer, pods)

    def _work_of_head(self, subject: str) -> NodeWork:
        """Return the request to the stage's probe on the head of a group."""
        return self.request({**self.head_args(subject), "exec": {"kind": "host"}, "root": "/"})

    def _devices(self, has: dict[str, int], options: PlainData) -> int | str:
        """Return the number of devices that each worker requests: that of the checks, else all of a node. Return a sentence if the nodes
        differ."""
        words = [word for c in options["checks"] for word in c["variant"].split()]
        gpu_counts = {word.partition("=")[2] for word in words if word.startswith("gpus=")}
        # With rails, any GPU of the node may be the one closest to a rail.
        if gpu_counts and all(word.isdigit() for word in gpu_counts) and not any(word.startswith("rail=") for word in words):
            return max(map(int, gpu_counts))
        if len(set(has.values())) > 1:
            counts_by_node = ", ".join(f"{name}: {count}" for name, count in sorted(has.items(), key=lambda entry: entry[1]))
            return (
                f"nodes of one group must have equally many GPUs, allocatable are {counts_by_node}: set {self.stage}_gpus, or make two "
                "groups"
            )
        return next(iter(has.values()), 0)

    def _launched(
        self,
        client: Client,
        pods: PodSettings,
        choice: discovery.Choice,
        subject: str,
        nodes: list[str],
        devices: int,
        work: NodeWork,
        absent: list[PlainData],
    ) -> GroupResult:
        """Return the group's result by the first launcher whose controller acts on it."""
        options = work["params"]

        def head(seats: list[PlainData]) -> PlainData:
            members = [{"name": f"{self.host}/{seat['node']}", "address": seat["address"], "host": seat["host"]} for seat in seats]
            return {"members": [*members, *absent], "work": work, "join_timeout": options["join_timeout"]}

        # A member waits for the head as long as the pods live, and measures only itself.
        waits = 2 * pods.start_timeout + options["join_timeout"]
        member = {**options, "checks": [{"check": MEMBER, "variant": ""}], "join_timeout": waits}
        if "floors" in options:
            member["floors"] = []
        raw = functools.partial(self._log_of, subject, "head")

        def make(kind: str) -> GroupLaunch:
            shape = group_objects.Shape(
                kind, short_name(self.acting.id), nodes, len(nodes), devices, max(1, devices),
                int(self.settings.get("acceptance_kube_ssh_port") or group_objects.SSH_PORT),
                str(self.settings.get("acceptance_kube_queue") or ""), workers_answer=True,
            )  # fmt: skip
            return GroupLaunch(
                client, pods, shape, self.acting.id, self.stage, float(options["timeout"]), payload.archive(),
                {"work": {**work, "params": member}}, head, raw,
            )  # fmt: skip

        def instead(why: str) -> None:
            Display().display(f"{self.host}: {why}")

        return launched(choice.kinds, make, self.controller, f"{self.host}: run {self.acting.id}", instead)[0]

    # Answers ---------------------------------------------------------------------------------------------------------

    def _tell(self, subject: str, members: list[str], answer: GroupResult, pods: PodSettings) -> None:
        ran = {**answer.launch_facts, "kube_launcher": answer.launch_facts.get("launcher")}
        for node, result in answer.workers.items():
            if f"{self.host}/{node}" in self.unanswered:
                # A worker speaks for its own node only.
                own_result = with_observations(result, lambda item: {**item, "subject": None})
                self._record(f"{self.host}/{node}", with_floating(with_image(own_result, ran, pods.allow)))
        self.give_up_group(subject, members, with_image(answer.result, ran, pods.allow))
