# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of the engine to a cluster. kubernetes/case_pods.py implements it through the API.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import Process

SCHEDULER, PLUGIN = "scheduler", "plugin"


@dataclasses.dataclass(frozen=True)
class PodRequest:
    """A pod that a case requests: its workload with the environment, and its quotas as annotations. `job`: a Job creates and replaces the
    pod. `elsewhere`: `node` is only preferred."""

    name: str
    app: str
    workload: str
    environment: t.Mapping[str, str]
    annotations: t.Mapping[str, str]
    job: bool = False
    node: str = ""
    elsewhere: bool = False


@dataclasses.dataclass(frozen=True)
class WorkloadState:
    """The state of one requested workload. `pod` is its current pod, empty if there is none yet."""

    name: str
    pod: str
    phase: str
    words: str = ""
    node: str = ""
    replaced: int = 0


@dataclasses.dataclass(frozen=True)
class Daemon:
    """A running pod of the sharing system. `address` is its IP address, empty if unknown."""

    name: str
    node: str
    restarts: int
    address: str = ""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The HTTP response of a scheduler; status 0 if none came."""

    status: int
    text: str
    took_s: float
    problem: str = ""


class Cluster(t.Protocol):
    """Every call raises ReasonedError if the cluster refuses or does not answer, unless its docstring says otherwise."""

    namespace: str

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""

    def make(self, requests: t.Sequence[PodRequest]) -> None:
        """Create the requested pods. Each is a lease: it is removed with the run, however the run ends."""

    def workloads(self) -> list[WorkloadState]:
        """Return the state of the workloads that were requested and not removed."""

    def remove(self, names: t.Sequence[str], timeout: float) -> list[str]:
        """Remove workloads and wait at most `timeout` seconds. Return those that are still there."""

    def annotate(self, pods: t.Sequence[str], annotations: t.Mapping[str, str | None]) -> None:
        """Set annotations of pods, and remove those whose value is None."""

    def log(self, pod: str, tail: int | None = None) -> list[str] | None:
        """Return the log lines of a pod of the case with their times; None if they cannot be read."""

    def sharing_nodes(self) -> list[str]:
        """Return the nodes that offer shared GPUs."""

    def daemons(self, kind: str) -> list[Daemon]:
        """Return the running schedulers or device plugins. `kind` is SCHEDULER or PLUGIN."""

    def daemon_log(self, pod: str, since_s: float | None = None, tail: int | None = None) -> list[str] | None:
        """Return the log lines of a scheduler or device plugin with their times; None if they cannot be read."""

    def ask(self, scheduler: str, path: str) -> Answer:
        """Send an HTTP request to a scheduler. Never raises: an Answer with status 0 says that none came."""

    def process(self, scheduler: Daemon) -> Process:
        """Return the process of a scheduler. Never raises."""

    def tool(self, scheduler: str, argv: t.Sequence[str], timeout: float) -> str | None:
        """Return the output of a tool that runs beside a scheduler; None if there is no such tool. Never raises."""

    def restart(self, kind: str, timeout: float) -> bool:
        """Replace every pod of a DaemonSet, one after the other. Return True if all were ready again within `timeout` seconds."""

    def drain(self, node: str, timeout: float) -> bool | None:
        """Cordon a node and evict the case's pods from it. Return True if all were evicted within `timeout` seconds, None if no pod was
        there or all ended before an eviction was granted. Raise ReasonedError if pods of others would have to move."""

    def uncordon(self, node: str) -> bool:
        """Remove our cordon. Return True if the node is schedulable again."""
