# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage over groups of nodes of one Slurm cluster: one job over all nodes of a group.

Each node runs the program of a member. The first one is the head, which launches over the others as behind SSH: each of them runs an sshd
within the job, on a port and with a key of this job alone, so that neither logins of users nor MPI of a certain build are needed.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import random
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import steps
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program.runner import COMMON
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import together_behind
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.behind import with_context
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.groups_behind import GroupsBehindHost
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import jobs
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.nodes import with_facts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.together import StageTogether, not_enough
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer, NodeWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import MEMBER
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.grouping import new_key

# When a head uses steps of its job in place of ssh, by acceptance_slurm_launcher; never by "ssh".
STEPS = {"auto": steps.AUTO, "srun": steps.ALWAYS}


class GroupsOnSlurm(GroupsBehindHost, StageTogether):
    """Runs every planned group of the cluster, one after the other."""

    def measure(self) -> None:
        self.read_cluster()
        for subject, members in self.groups().items():
            self._run_group(subject, members)

    def _run_group(self, subject: str, members: list[str]) -> None:
        names = [member.partition("/")[2] for member in members]
        self.absent = {}
        for name, why in self.obstacles(names).items():
            self.leave_out(name, node_messages.refused(*why))
        answered = self.launched_over(subject, names, lambda able: self._launched(subject, able))
        if isinstance(answered, jobs.Answered):
            self._tell(subject, members, answered)
        else:
            self.give_up_group(subject, members, answered)

    def _launched(self, subject: str, able: list[str]) -> jobs.Answered | NodeAnswer:
        """Return the answers of the job of a group, or why it cannot be launched."""
        refused = self.why_refused(subject)
        if refused:
            return node_messages.refused("member", refused)
        if len(able) < self.least:
            return not_enough(able, self.absent)
        gpus = self.common_gpus(able)
        if gpus is None:
            words = ", ".join(f"{name}: {self.present[name].gpus or 'none'}" for name in able)
            hint = "set acceptance_slurm_gres, or make two groups"
            return node_messages.refused("gpu_count", f"nodes of one group must have the same GPUs as gres, they have {words}: {hint}")
        members: list[PlainData] = [
            {"name": f"{self.host}/{name}", "address": self.address(name), "local": name == able[0]} for name in able
        ]
        members += [{"name": f"{self.host}/{name}", "address": "", "problem": answer["reason"]} for name, answer in self.absent.items()]
        head, worker = self._requests(subject, members)
        return self.run_job(able, gpus, float(worker["params"]["timeout"]), {able[0]: head, "": worker})

    def _requests(self, subject: str, members: list[PlainData]) -> tuple[NodeWork, NodeWork]:
        """Return the requests to the head of a group and to its other nodes."""
        args = self.head_args(subject)
        private, public = new_key(self.stage)
        port = random.choice(together_behind.PORTS)
        own_check = {"check": MEMBER, "variant": ""}
        launcher = self.variables.launcher
        nodes = {member["name"]: member["name"].partition("/")[2] for member in members}
        by_steps = {"job_steps": {"when": STEPS[launcher], "nodes": nodes}} if launcher in STEPS else {}
        entry = {"members": members, "key": {"private": private}, "ssh_args": ["-p", str(port)], **by_steps}
        head = self.request({**args, **entry, "checks": [*args["checks"], own_check]})
        options = head["params"]
        # A member outlasts its head, however much later that one begins.
        member = {
            **options, "checks": [own_check], "members": [], "key": None, "job_steps": None,
            "timeout": float(options["timeout"]) + options["join_timeout"],
        }  # fmt: skip
        if "floors" in member:
            member["floors"] = []
        work: NodeWork = {**head, "params": member}
        if by_steps and STEPS[launcher] == steps.ALWAYS:
            return head, work
        sshd = {"port": port, "public_key": public, "work": work, "optional": bool(by_steps)}
        return head, {"probe": "groups.worker", "params": {**{name: member[name] for name in COMMON}, **sshd}}

    def _tell(self, subject: str, members: list[str], answered: jobs.Answered) -> None:
        """Record the answers of a group and of its nodes: each speaks for itself, and the head for the group too."""
        facts = answered.job.facts()
        head = answered.job.nodes[0]
        for name, answer in answered.answers.items():
            own = _of_checks(answer, lambda check: check == MEMBER)
            if f"{self.host}/{name}" in self.unanswered:
                self._record(f"{self.host}/{name}", with_facts(own, facts))
        of_group = _of_checks(answered.answers[head], lambda check: check != MEMBER)
        self.give_up_group(subject, members, {**with_context(of_group, lambda _context: facts), "ran": facts})


def _of_checks(answer: NodeAnswer, chosen: t.Callable[[t.Any], bool]) -> NodeAnswer:
    """Return an answer with those of its observations whose check is chosen."""
    observations = answer.get("observations")
    if not isinstance(observations, list):
        return answer
    return {**answer, "observations": [item for item in observations if isinstance(item, dict) and chosen(item.get("check"))]}
