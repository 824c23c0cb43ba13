# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage whose nodes begin together, on the nodes of one Slurm cluster: one job over all of them.

Its tasks begin when the prologs of their nodes are done. The first node tells the others when the work begins.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import together_behind
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import jobs
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.nodes import with_facts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.together import StageTogether, not_enough
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer

# By how much the prolog of the first node may end later than those of others, in seconds.
LATE_S = 300.0


class BeginningOnSlurm(StageTogether):
    """Runs the work of all nodes in one job."""

    def measure(self) -> None:
        self.read_cluster()
        names = sorted(subject.partition("/")[2] for subject in self.unanswered)
        for name, why in self.obstacles(names).items():
            self.leave_out(name, node_messages.refused(*why))
        answered = self.launched_over(self.stage, names, self._launched)
        if not isinstance(answered, jobs.Answered):
            self.give_up(answered)
            return
        facts = answered.job.facts()
        self.record_all([(f"{self.host}/{name}", with_facts(answer, facts)) for name, answer in answered.answers.items()])

    def _launched(self, able: list[str]) -> jobs.Answered | NodeAnswer:
        if len(able) < self.least:
            return not_enough(able, self.absent)
        common = together_behind.common(self.description, self.work, {f"{self.host}/{name}": self.address(name) for name in able})
        args = self.args()
        # The time of a node that begins early does not pass while it waits for the first one.
        late = {"ask_timeout": LATE_S, "timeout": float(args["timeout"]) + LATE_S}
        request = self.request({**args, **common, **late})
        own = {name: self.work.per_node[f"{self.host}/{name}"] for name in able}
        return self.run_job(able, self.common_gpus(able) or "", float(request["params"]["timeout"]), {"": request}, own)
