# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage between nodes of one Slurm cluster: one job over all nodes that work together, without those that cannot take part.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import jobs
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.nodes import StageOnSlurm
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.records import SlurmNode
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer, NodeWork

# What launches a job over the nodes of these names, and returns its answers; or one answer in their place if nothing is launched.
Launching = t.Callable[[t.List[str]], jobs.Answered | NodeAnswer]


class StageTogether(StageOnSlurm):
    """Runs the work of several nodes in one job. A node on which it cannot start is named, and the others go on without it."""

    # Fewer nodes than these are not launched again without those that do not become free.
    least = 2

    def read_cluster(self) -> None:
        """Read the variables of the cluster, and its nodes as they are now."""
        self.variables = of_variables.of(self.host, self.settings)
        self.client = Client(self.host, self.variables.ssh)
        self.present: dict[str, SlurmNode] = {node.name: node for node in self.client.nodes()}
        # {name: answer} of the nodes that do not take part in the present job.
        self.absent: dict[str, NodeAnswer] = {}

    def obstacles(self, names: t.Iterable[str]) -> dict[str, tuple[str, str]]:
        """Return {name: (reason code, sentence)} of the nodes on which no job can start."""
        whys = {name: self.obstacle(name, self.present, self.variables) for name in names}
        return {name: why for name, why in whys.items() if why}

    def address(self, name: str) -> str:
        """Return the address at which the other nodes reach this one."""
        return self.present[name].address or name

    def launched_over(self, what: str, names: t.Sequence[str], launching: Launching) -> jobs.Answered | NodeAnswer:
        """Return what `launching` returns for the nodes that are not absent. If some do not become free, launch again without them.
        `what` is launched, for people."""
        while True:
            able = [name for name in names if name not in self.absent]
            answered = launching(able)
            if not isinstance(answered, jobs.Answered):
                return answered
            if not answered.blockers or len(able) - len(answered.blockers) < self.least:
                return answered
            for name, answer in answered.blockers.items():  # the others are measured without it, like without a drained node
                Display().display(f"{self.host}: {what} goes on without {name}: {answer['reason']}")
                self.leave_out(name, answer)

    def leave_out(self, name: str, answer: NodeAnswer) -> None:
        """Record that a node does not take part."""
        self.absent[name] = answer
        if f"{self.host}/{name}" in self.unanswered:
            self._record(f"{self.host}/{name}", answer)

    def common_gpus(self, names: t.Sequence[str]) -> str | None:
        """Return all GPUs of a node as an argument of --gres, None if these nodes differ and the user has not said what is asked for."""
        gpus = {self.present[name].gpus for name in names}
        return gpus.pop() if len(gpus) == 1 else "" if self.variables.gres else None

    def run_job(
        self, names: t.Sequence[str], gpus: str, timeout: float, requests: dict[str, NodeWork], own: t.Mapping[str, PlainData] | None = None
    ) -> jobs.Answered:
        """Return the answers of one job over these nodes. `own` are options of single ones."""
        launch = self.launch(self.client, self.variables, timeout)
        with jobs.ended_with(launch, self.controller):
            job = dataclasses.replace(self.job(self.variables, names, gpus, timeout, requests), own_options=own or {})
            (answered,) = launch.run([job], payload.unpacking("", "job"))
        return answered


def not_enough(able: t.Sequence[str], absent: t.Mapping[str, NodeAnswer]) -> NodeAnswer:
    """Return the answer of nodes that cannot work together because too few of them take part."""
    words = "; ".join(f"{name}: {answer['reason']}" for name, answer in absent.items())
    return node_messages.refused("member", f"{len(able)} of {len(able) + len(absent)} nodes can take part: {words}")
