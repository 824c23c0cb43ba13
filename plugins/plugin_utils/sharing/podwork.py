# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods of a case: creation, state, removal, and their logs.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines, loads, quantities
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import FAILED, PENDING, RUNNING, CasePod
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.running import OVER, RunningCase, Stopped

# The last lines of a long log that stay in memory; of earlier lines only those that match a pattern stay.
LAST_LINES = 200


class PodWork:
    """Creates and removes the pods of one case."""

    def __init__(self, run: RunningCase) -> None:
        self.run = run
        self.counted = 0

    def create(self, groups: t.Sequence[t.Any], node: str = "") -> None:
        """Create the pods of some groups at once, on the given node if there is one."""
        run, requests = self.run, []
        for arguments in groups:
            for place in self._places(arguments, node):
                self.counted += 1
                request = loads.request_of(run, arguments, self.counted, place)
                requests.append(request)
                pod = CasePod(request.name, arguments["group"], run.cluster.namespace, arguments["workload"], made_at=run.at())
                pod.core = float(arguments["core"]) if "core" in arguments else None
                pod.memory = _bytes(arguments.get("memory", arguments.get("memory_env")))
                run.evidence.pods.append(pod)
        run.cluster.make(requests)

    def _places(self, arguments: t.Mapping[str, t.Any], node: str) -> list[str]:
        """Return the node of each pod that a step makes, "" if the cluster chooses it."""
        if arguments.get("each_node"):
            return self.run.cluster.sharing_nodes()
        if arguments.get("gather") and not node:
            gpus = {name: len(memory) for name, memory in self.run.gpu_memory().items()}
            largest = max(gpus, key=lambda name: gpus[name], default="")
            node = largest if gpus.get(largest, 0) > 1 else ""
        return [node] * int(arguments.get("pods", 1))

    def refresh(self) -> None:
        """Update the state of the existing pods."""
        states = {state.name: state for state in self.run.cluster.workloads()}
        for pod in self.run.evidence.pods:
            state = states.get(pod.name)
            if pod.removed:
                continue
            if state is None:
                pod.phase, pod.words = FAILED, "somebody else has removed it"
                continue
            pod.phase, pod.words, pod.replaced = state.phase, state.words, state.replaced
            pod.node, pod.pod = state.node or pod.node, state.pod or pod.pod
            if pod.phase in OVER and pod.ended_at is None:
                pod.ended_at = self.run.at()

    def live(self, group: str) -> list[CasePod]:
        """Return the pods of a group that were not removed."""
        return [pod for pod in self.run.evidence.of(group) if not pod.removed]

    def wait(
        self, group: str, running: bool, timeout: float | None = None, meanwhile: t.Callable[[], None] = lambda: None
    ) -> None:  # fmt: skip
        """Wait until the pods of a group run or have ended. Raise Stopped if they do not in time. `meanwhile` is called while pods run."""
        phases = (RUNNING, *OVER) if running else OVER
        if timeout is None:
            timeout = self.run.parameters.numbers["running_timeout_s" if running else "pod_timeout_s"]

        def reached() -> bool:
            self.refresh()
            if any(pod.phase == RUNNING for pod in self.live(group)):
                meanwhile()
            return all(pod.phase in phases for pod in self.live(group))

        if not self.run.until(reached, timeout):
            late = [pod for pod in self.live(group) if pod.phase not in phases]
            words = f": {late[0].words}" if late and late[0].words else ""
            raise Stopped(f"{len(late)} pods of {group} are {late[0].phase if late else '?'} after {timeout:g} s{words}")

    def remove(self, pods: t.Sequence[CasePod]) -> None:
        """Read the logs of pods, remove the pods and wait until they are gone. Raise Stopped if some are not in time."""
        self.read(pods)
        for pod in pods:
            pod.removed = True
        self.remove_names([pod.name for pod in pods])

    def remove_names(self, names: t.Sequence[str]) -> None:
        """Remove pods by their names and wait until they are gone. Raise Stopped if some are not in time."""
        timeout = self.run.parameters.numbers["delete_timeout_s"]
        remaining = self.run.cluster.remove(names, timeout)
        if remaining:
            raise Stopped(f"pods are still there after {timeout:g} s: {', '.join(remaining[:5])}")

    def forget(self, since: int) -> None:
        """Remove the pods from index `since` on from the cluster and from the evidence."""
        if self.run.evidence.pods[since:]:
            self.remove(self.run.evidence.pods[since:])
            del self.run.evidence.pods[since:]

    def read(self, pods: t.Iterable[CasePod]) -> None:
        """Read and store the logs of pods."""
        for pod in pods:
            log = self.run.cluster.log(pod.current_name) if pod.phase != PENDING else []
            self.run.store(f"pods/{pod.name}.log", "".join(f"{line}\n" for line in log or []))
            pod.log = None if log is None else trimmed(self.run, lines.lines_of(log))


def trimmed(run: RunningCase, log: list[lines.LogLine]) -> list[lines.LogLine]:
    """Return a log; of a long one, only lines that match a pattern, probes, run times and the last LAST_LINES. The log of a day does not
    fit into memory."""
    if len(log) <= LAST_LINES:
        return log
    matched = {id(line) for name in run.system.patterns for line in lines.matching(log, _loose(run, name))}
    first = len(log) - LAST_LINES
    return [
        line
        for number, line in enumerate(log)
        if number >= first or id(line) in matched or lines.runtime([line]) is not None or lines.probes([line])
    ]


def _loose(run: RunningCase, name: str) -> str:
    """Return a pattern with a wildcard for each name and number."""
    text = run.system.patterns[name]
    for key in ("namespace", "pod", "before", "value"):
        text = text.replace("{" + key + "}", r"\S+")
    return text


def _bytes(amount: t.Any) -> float | None:
    """Return a memory quota in bytes, None without one or for a text that is no amount (a case may request such a quota on purpose)."""
    try:
        return None if amount is None else quantities.number_of(amount)
    except ValueError:
        return None
