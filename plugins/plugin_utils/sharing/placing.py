# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings pods onto one GPU.

A device plugin may spread pods: the next pod gets a device of the GPU with the most free devices, so two pods never meet on an empty node.
Idle pods therefore hold devices of the node's other GPUs until the pods of the case are placed.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import contextlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines, loads
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import RUNNING
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.looking import Looking
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.podwork import PodWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.running import OVER, RunningCase


class Placing:
    """Places groups of pods of one case together."""

    def __init__(self, run: RunningCase, pods: PodWork, looking: Looking) -> None:
        self.run, self.pods, self.looking = run, pods, looking
        self.counted = self.batches = 0

    def together(self, groups: t.Sequence[t.Mapping[str, t.Any]], timeout: float | None) -> None:
        """Create the pods of all groups until the metrics show them on one GPU. The first group stays where it was placed while it runs;
        the other groups are created again on its node as long as they are on other GPUs, more often on a node with more GPUs. If they never
        meet, the pods of the last attempt remain, all of them running. Raise Stopped if pods do not start in time."""
        begun = len(self.run.evidence.pods)
        with self._held(sum(int(group.get("pods", 1)) for group in groups)) as node:
            self._meet(groups[:1], groups[1:], node, timeout)
        self.batches += 1
        for pod in self.run.evidence.pods[begun:]:
            pod.batch = self.batches

    def _meet(self, first: t.Sequence[t.Any], following: t.Sequence[t.Any], node: str, timeout: float | None) -> None:
        pods, evidence = self.pods, self.run.evidence
        tries = max(1, int(self.run.parameters.numbers["placement_tries"])) * max([1, *map(len, self.run.gpu_memory().values())])
        begun = split = len(evidence.pods)
        placed_first: dict[str, str] = {}
        for attempt in range(2 * tries):
            if not placed_first or any(pod.phase in OVER for pod in evidence.pods[begun:split]):
                pods.forget(begun)
                pods.create(first, node)
                pods.wait(first[0]["group"], running=True, timeout=timeout)
                split = len(evidence.pods)
                placed_first = self.looking.gpus_of_pods(evidence.pods[begun:], pods.refresh)
            pods.create(following, evidence.pods[begun].node)
            for group in following:
                pods.wait(group["group"], running=True, timeout=timeout)
            placed = {**placed_first, **self.looking.gpus_of_pods(evidence.pods[split:], pods.refresh)}
            met = len(placed) == len(evidence.pods) - begun and len(set(placed.values())) == 1
            over = any(pod.phase in OVER for pod in evidence.pods[begun:])
            if attempt + 1 == 2 * tries or (not over and (met or attempt + 1 >= tries)):
                return
            pods.forget(split)

    @contextlib.contextmanager
    def _held(self, count: int) -> t.Iterator[str]:
        """Hold `count` devices of each GPU of one node but one, which has room for `count` pods. Yield the node, or "" if it is left to the
        cluster: if no node has several GPUs, or if the holders do not start in time."""
        most_gpus = max([1, *map(len, self.run.gpu_memory().values())])
        holders: list[str] = []
        try:
            node = self._hold(count, holders) if most_gpus > 1 else ""
            if not node:
                self._remove(holders, list(holders))
            yield node
        finally:
            self._remove(holders, list(holders))

    def _remove(self, holders: list[str], names: t.Collection[str]) -> None:
        """Remove some of the holders."""
        if names:
            self.pods.remove_names(list(names))
        holders[:] = [name for name in holders if name not in names]

    def _hold(self, count: int, holders: list[str]) -> str:
        """Create the holders and append their names to `holders`. Return their node, "" if they do not start in time."""
        self._create_holders(1, "", holders)
        node = self._node_of(holders)
        if not node:
            return ""
        self._create_holders(len(self.run.gpu_memory().get(node, ())) * count - 1, node, holders)
        if not self._node_of(holders):
            return ""
        by_gpu: dict[str, list[str]] = collections.defaultdict(list)
        for name in holders:
            gpu = lines.gpu(lines.lines_of(self.run.cluster.log(name) or ()))
            if gpu:
                by_gpu[gpu].append(name)
        # The GPU with the most holders had the most free devices before.
        self._remove(holders, max(by_gpu.values(), key=len, default=[]))
        return node

    def _create_holders(self, count: int, node: str, holders: list[str]) -> None:
        requests = [loads.holder(self.run, self.counted + number, node) for number in range(1, count + 1)]
        self.counted += len(requests)
        holders += [request.name for request in requests]
        self.run.cluster.make(requests)

    def _node_of(self, holders: t.Collection[str]) -> str:
        """Wait until all holders run and have printed their GPU. Return their node, "" if they do not in time."""
        nodes: set[str] = set()

        def started() -> bool:
            states = {state.name: state for state in self.run.cluster.workloads()}
            nodes.clear()
            nodes.update(states[name].node for name in holders if name in states)
            running = all(name in states and states[name].phase == RUNNING for name in holders)
            return running and all(self.run.cluster.log(name, 1) for name in holders)

        met = self.run.until(started, self.run.parameters.numbers["running_timeout_s"])
        return nodes.pop() if met and len(nodes) == 1 else ""
