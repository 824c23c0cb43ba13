# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage over pairs of nodes of one Slurm cluster: one job over all nodes, in which each walks its timetable.

Nobody's job comes between two rounds, since the job holds its nodes from the first to the last. The addresses of the nodes are known
before it begins, so its tasks need no meeting: each gets its timetable with its request.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.answers import with_observations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.behind import with_context
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.rounds_behind import RoundsBehindHost
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import jobs
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.together import StageTogether, not_enough
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer, NodeWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import TIMETABLE


class RoundsOnSlurm(RoundsBehindHost, StageTogether):
    """Runs the timetables of the nodes in one job over them."""

    least = 1  # a node may be its own partner

    def measure(self) -> None:
        args = self.args()
        if not self.begin(args):
            return
        self.read_cluster()
        refused = self.obstacles(self.nodes().values())
        walkers = self.walkers(refused)
        self.absent = {name: node_messages.refused(*why) for name, why in refused.items()}
        request = self.request({**args, "rounds": [], "absent": [], "checks": [{"check": TIMETABLE, "variant": ""}]})
        answered = self.launched_over(self.stage, walkers, lambda able: self._launched(request, able))
        if isinstance(answered, jobs.Answered):
            facts = answered.job.facts()
            for name, answer in answered.answers.items():
                self.note(f"{self.host}/{name}", answer)
            self.record_all([self._answer(name, answer, facts) for name, answer in answered.answers.items()])
        self.pairs_without_an_answer()

    def leave_out(self, name: str, answer: NodeAnswer) -> None:
        self.note(f"{self.host}/{name}", answer)
        super().leave_out(name, answer)

    def _launched(self, request: NodeWork, able: list[str]) -> jobs.Answered | NodeAnswer:
        """Return the answers of the job over the nodes of `able` that still have a partner. The others are recorded."""
        rounds = {name: self._rounds(name, able) for name in able}
        walkers = [name for name in able if rounds[name]]
        nobody = not_enough(walkers, self.absent)
        for name in able:
            if not rounds[name]:
                words = "; ".join(f"{other}: {answer['reason']}" for other, answer in self.absent.items())
                self.leave_out(name, node_messages.refused("partner", f"no node with which it is to be tested can take part: {words}"))
        if not walkers:
            return nobody
        requests: dict[str, NodeWork] = {name: {**request, "params": {**request["params"], "rounds": rounds[name]}} for name in walkers}
        return self.run_job(walkers, self.common_gpus(walkers) or "", float(request["params"]["timeout"]), requests)

    def _rounds(self, name: str, able: list[str]) -> list[PlainData]:
        """Return the rounds of a node, of its tests those whose partner takes part, each with the address of its server."""
        subjects = {f"{self.host}/{other}": other for other in able}
        rounds: list[PlainData] = []
        for planned in self.timetables[f"{self.host}/{name}"]["rounds"]:
            tests = [test for test in planned["tests"] if test.get("partner") in subjects]
            if tests:
                rounds.append({**planned, "tests": [{**test, "peer": self.address(subjects[test["peer"]])} for test in tests]})
        return rounds

    def _answer(self, name: str, answer: NodeAnswer, facts: PlainData) -> tuple[str, NodeAnswer]:
        """Return the subject of a node and its answer as it is recorded: a node speaks for itself, and for a pair as its client. Of a pair
        no number is used if the other end was, for example, taken out of service meanwhile; what it did before it was lost stays."""
        subject = f"{self.host}/{name}"
        of_node = with_observations(answer, lambda item: {**item, "subject": self.pair_of(subject, item)})
        observations = of_node.get("observations")
        if isinstance(observations, list):
            of_node["observations"] = [item for item in observations if not self._is_void(item)]
        return subject, {**with_context(of_node, lambda _context: facts), "ran": facts}

    def _is_void(self, item: t.Any) -> bool:
        """Return True if this is an observation of a pair of which an end was refused."""
        pair = item.get("subject") if isinstance(item, dict) else None
        ends = pair["id"].split("|") if pair else ()
        return any(end in self.refused and self.refused[end][0] != "job_ended" for end in ends)
