# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One stage of a run on the nodes of one Slurm cluster: jobs that free nodes share, and a job of its own for each other node.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import keeping
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.answers import with_observations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.behind import StageBehindHost, with_context
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import detached, inventory, jobs
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client, SlurmError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.records import Partition, SlurmNode
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer, NodeWork

# The time of a job that fetches or removes an answer, in seconds.
FETCHING_S = 60.0


class StageOnSlurm(StageBehindHost):
    """Runs a stage on every planned node of the cluster. A node that is busy holds nobody else up."""

    lost_codes = ("slurm_unreachable",)
    _limit_is_said = False
    _last_launch: jobs.Launch | None = None

    def measure(self) -> None:
        settings = of_variables.of(self.host, self.settings)
        client = Client(self.host, settings.ssh)
        self._collect(client, settings)
        if not self.unanswered:
            return
        present = {node.name: node for node in client.nodes()}
        requests = self._asked(present, settings)
        if not requests:
            return
        request = next(iter(requests.values()))
        probe = "" if "source" in request else request["probe"]
        if self.detach:
            self._submit(client, settings, present, requests, payload.unpacking(probe, "job"))
            return
        stage_jobs = self._jobs(present, settings, requests)
        launch = self.launch(client, settings, float(request["params"]["timeout"]))
        with jobs.ended_with(launch, self.controller):
            for answered in launch.run(stage_jobs, payload.unpacking(probe, "job")):
                facts = answered.job.facts()
                self.record_all([(f"{self.host}/{node}", with_facts(answer, facts)) for node, answer in answered.answers.items()])

    def _submit(
        self,
        client: Client,
        settings: of_variables.Settings,
        present: t.Mapping[str, SlurmNode],
        requests: dict[str, NodeWork],
        common: str,
    ) -> None:
        """Leave a job on each node to Slurm. The secrets of their answers are written down before the first one is there."""
        made: dict[str, jobs.Job] = {}
        for name, request in requests.items():
            argv = self.argv_of(settings.detached, settings, name, present[name].gpus, float(request["params"]["timeout"]))
            kept = {"file": keeping.file_name(self.acting.id, self.stage, name), "seconds": float(self.settings["acceptance_detach_keep"])}
            made[name] = jobs.Job((name,), argv, {"": {**request, "keep": kept}})
        record: PlainData = {"nodes": {name: {"nonce": job.nonce, "job": ""} for name, job in made.items()}}
        self.acting.save_detached(self.stage, self.host, record)
        for name, (number, problem) in detached.submitted(client, settings.python, made, common).items():
            if problem:
                del record["nodes"][name]
                self._record(f"{self.host}/{name}", node_messages.refused("job_refused", problem))
            else:
                record["nodes"][name]["job"] = number
        self.acting.save_detached(self.stage, self.host, record)
        self.outcome_counts["submitted"] = len(record["nodes"])

    def _collect(self, client: Client, settings: of_variables.Settings) -> None:
        """Record the answers that the jobs of a detached run have left on their nodes, and wait for those that have not ended. An answer is
        removed on its node when the journal has it. A node that cannot be asked for its answer now has it still at the next attempt."""
        record = self.acting.load_detached(self.stage, self.host)
        if record is None:
            return
        left = {name: of for name, of in record["nodes"].items() if f"{self.host}/{name}" in self.unanswered}
        collected = {name: of for name, of in record["nodes"].items() if name not in left}  # by a resume that was interrupted
        if left:
            detached.wait(client, self.job_name, {of["job"] for of in left.values()}, settings.wait)

        def take(answered: jobs.Answered) -> None:
            for name, answer in answered.answers.items():
                self._record(f"{self.host}/{name}", with_facts(answer, {"slurm_job": left[name]["job"]}))
                if answered.job.begun_at:
                    collected[name] = left[name]

        self._ask_for_kept(keeping.KEPT, client, settings, left, take)
        # What cannot be removed now is when its time is over.
        self._ask_for_kept(keeping.COLLECTED, client, settings, collected, lambda _answered: None)
        if record["nodes"].keys() > collected.keys():
            self.acting.save_detached(self.stage, self.host, {"nodes": {name: left[name] for name in left.keys() - collected.keys()}})
        else:
            self.acting.drop_detached(self.stage, self.host)

    def _ask_for_kept(
        self,
        what: str,
        client: Client,
        settings: of_variables.Settings,
        nodes: t.Mapping[str, PlainData],
        take: t.Callable[[jobs.Answered], None],
    ) -> None:
        """Run a small job on each of these nodes that fetches its kept answer (keeping.KEPT) or removes it (keeping.COLLECTED). Give `take`
        what each answers."""
        comment = f"gpufleet.acceptance run {self.acting.id} stage {self.stage}"
        made = []
        for name, of in nodes.items():
            work: NodeWork = {"probe": what, "params": {
                "state_dir": self.settings.get("acceptance_state_dir") or "", "nonce": of["nonce"], "job": of["job"],
                "file": keeping.file_name(self.acting.id, self.stage, name),
            }}  # fmt: skip
            argv = settings.fetching(self.job_name, comment, name)
            made.append(jobs.Job((name,), [*argv, settings.python, "-c", jobs.READ_EXACTLY], {"": work}))
        if made:
            launch = self.launch(client, settings, FETCHING_S)
            with jobs.ended_with(launch, self.controller):
                for answered in launch.run(made, payload.unpacking("", "job")):
                    take(answered)

    def launch(self, client: Client, settings: of_variables.Settings, timeout: float) -> jobs.Launch:
        """Return a launch of jobs of which each may run for `timeout` seconds and what ending takes."""
        self._last_launch = jobs.Launch(
            client, settings.python, self.job_name, settings.wait, timeout + of_variables.MORE_S, settings.reservation
        )
        return self._last_launch

    def last_output(self, subject: str) -> str | None:
        host, _slash, node = subject.partition("/")
        if host != self.host:
            return None
        return self._last_launch.last_output(node, self.output_path) if self._last_launch else ""

    @property
    def job_name(self) -> str:
        """The name of this stage's jobs, by which they are found and cancelled."""
        return of_variables.jobs_of(self.acting.id, self.stage)

    def _asked(self, present: t.Mapping[str, SlurmNode], settings: of_variables.Settings) -> dict[str, NodeWork]:
        """Return {node: its request}; nodes of which the same is asked have one object. Record a refusal at once for nodes on which no job
        can start."""
        requests: dict[tuple[tuple[str, str], ...], NodeWork] = {}
        asked: dict[str, NodeWork] = {}
        refused: list[tuple[str, NodeAnswer]] = []
        for subject in sorted(self.unanswered):
            name = subject.partition("/")[2]
            why = self.obstacle(name, present, settings)
            if why:
                refused.append((subject, node_messages.refused(*why)))
                continue
            checks = tuple((check, variant) for check, variant, _subject in self.checks_of[subject])
            if checks not in requests:
                args = {**self.args(), "checks": [{"check": check, "variant": variant} for check, variant in checks]}
                requests[checks] = self.request(args)
            asked[name] = requests[checks]
        self.record_all(refused)
        return asked

    def _jobs(
        self, present: t.Mapping[str, SlurmNode], settings: of_variables.Settings, requests: dict[str, NodeWork]
    ) -> list[jobs.Job]:
        """Return the jobs of the nodes. Free nodes of which the same is asked share one; any other has its own, and holds nobody up."""
        sharing: dict[tuple[t.Any, ...], list[str]] = {}
        alone: list[str] = []
        for name, request in requests.items():
            if present[name].is_free:
                sharing.setdefault((id(request), present[name].gpus), []).append(name)
            else:
                alone.append(name)

        def job_of(names: t.Sequence[str]) -> jobs.Job:
            request = requests[names[0]]
            return self.job(settings, names, present[names[0]].gpus, float(request["params"]["timeout"]), {"": request})

        def shared(names: t.Sequence[str]) -> jobs.Job:
            return dataclasses.replace(job_of(names), alone=lambda name: job_of([name])) if len(names) > 1 else job_of(names)

        most = settings.nodes_per_job
        of_several = [shared(names[at : at + most]) for names in sharing.values() for at in range(0, len(names), most)]
        return [*of_several, *(job_of([name]) for name in alone)]

    def job(
        self, settings: of_variables.Settings, nodes: t.Sequence[str], gpus: str, timeout: float, requests: dict[str, NodeWork]
    ) -> jobs.Job:
        """Return the job that asks these nodes."""
        argv = self.argv_of(settings.job, settings, nodes, gpus, timeout)
        return jobs.Job(tuple(nodes), [*argv, settings.python, "-c", jobs.READ_EXACTLY], requests)

    def argv_of(
        self, of: t.Callable[..., list[str]], settings: of_variables.Settings, nodes: t.Any, gpus: str, timeout: float
    ) -> list[str]:
        """Return the arguments of a job of this stage, as a method of the settings makes them."""
        comment = f"gpufleet.acceptance run {self.acting.id} stage {self.stage}"
        return of(self.job_name, comment, nodes, gpus, timeout, self._most_minutes(settings, timeout))

    def _most_minutes(self, settings: of_variables.Settings, timeout: float) -> int:
        """Return the time limit of the jobs' partition in minutes, 0 if it has none. Say it if it is less than the stage may take."""
        if settings.time:
            return 0
        limits = [partition.minutes for partition in self._partitions]
        most = 0 if 0 in limits else max(limits, default=0)
        needed = settings.minutes(timeout)
        if most and most < needed and not self._limit_is_said:
            self._limit_is_said = True
            names = ", ".join(partition.name for partition in self._partitions)
            words = f"{self.host}: partition {names} has a time limit of {most} minutes, and jobs of {self.stage} may take {needed}"
            Display().display(f"{words}: they get {most}, and one that takes longer is UNKNOWN", color="yellow")
        return most

    @functools.cached_property
    def _partitions(self) -> list[Partition]:
        """The partitions in which the jobs may run; none if Slurm does not say."""
        settings = of_variables.of(self.host, self.settings)
        with contextlib.suppress(SlurmError):
            wanted = settings.partition.split(",") if settings.partition else []
            partitions = Client(self.host, settings.ssh).partitions()
            return [partition for partition in partitions if (partition.name in wanted if wanted else partition.is_default)]
        return []

    def obstacle(self, name: str, present: t.Mapping[str, SlurmNode], settings: of_variables.Settings) -> tuple[str, str] | None:
        """Return (reason code, sentence) if no job can start on a node, None if one can."""
        node = present.get(name)
        return node.obstacle(settings.reservation) if node else ("node_absent", self._absent(name))

    def _absent(self, name: str) -> str:
        if not name:
            return "the cluster has no node that the inventory means, or could not say which when the run was planned: begin a new run"
        if name.startswith(inventory.UNNAMED):
            return "more nodes are expected (acceptance_nodes.expected) than the cluster has"
        return f"the cluster has no node {name}"


def with_facts(answer: NodeAnswer, facts: PlainData) -> NodeAnswer:
    """Return an answer with facts about its job in the context of each observation, and as `ran` for checks without one."""
    own = with_observations(answer, lambda item: {**item, "subject": None})  # a job reports on its own node only
    return {**with_context(own, lambda _context: facts), "ran": facts}
