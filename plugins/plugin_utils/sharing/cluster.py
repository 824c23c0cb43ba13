# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of the engine to a cluster. planes/kubernetes/stages/sharing.py implements it through the API.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import Process

SCHEDULER, PLUGIN = "scheduler", "plugin"


@dataclasses.dataclass(frozen=True)
class PodRequest:
    """A pod that a case asks for: its name, its workload and what that is told, its quotas. `job`: a Job makes it, and makes it again.
    `elsewhere`: where its node does not take it, another may."""

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
    """A pod of the system that runs."""

    name: str
    node: str
    restarts: int


@dataclasses.dataclass(frozen=True)
class Answer:
    """The HTTP response of a scheduler; status 0 if none came. `ahead_s`: seconds that its clock is ahead of the API server's, None if
    unknown."""

    status: int
    text: str
    took_s: float
    problem: str = ""
    ahead_s: float | None = None


class Cluster(t.Protocol):
    """Every call raises ReasonedError if the cluster refuses or does not answer, unless its docstring says otherwise."""

    namespace: str

    def now(self) -> float:
        """A clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def make(self, wanted: t.Sequence[PodRequest]) -> None:
        """Ask for pods. Each is a lease: it goes with the run, whatever ends that."""

    def seen(self) -> list[WorkloadState]:
        """Return the state of the workloads that were requested and not removed."""

    def remove(self, names: t.Sequence[str], timeout: float) -> list[str]:
        """Remove some and wait until they are gone; which are not."""

    def annotate(self, pods: t.Sequence[str], annotations: t.Mapping[str, str]) -> None:
        """Set annotations of pods."""

    def log(self, pod: str, tail: int | None = None) -> list[str] | None:
        """The lines of a pod of ours with their times; None where they cannot be read."""

    def sharing_nodes(self) -> list[str]:
        """The nodes that offer shared GPUs."""

    def daemons(self, what: str) -> list[Daemon]:
        """The schedulers or device plugins that run."""

    def daemon_log(self, pod: str, since_s: float | None = None, tail: int | None = None) -> list[str] | None:
        """The lines of one of them with their times; None where they cannot be read."""

    def ask(self, scheduler: str, path: str) -> Answer:
        """Ask a scheduler over HTTP. Never raises: that nothing came is an answer."""

    def process(self, scheduler: Daemon) -> Process:
        """Its own process. Never raises."""

    def tool(self, scheduler: str, argv: t.Sequence[str], timeout: float) -> str | None:
        """Return the output of a tool that runs beside a scheduler; None if there is no such tool. Never raises."""

    def restart(self, what: str, timeout: float) -> bool:
        """Replace every pod of a DaemonSet, one after the other; whether all were ready again in time."""

    def drain(self, node: str, timeout: float) -> bool | None:
        """Cordon a node and evict our pods from it; whether they were gone in time, and not because they had ended while nobody let them
        go; None where none was there. Refused where others would have to move."""

    def uncordon(self, node: str) -> bool:
        """Take our cordon back; whether the node takes pods again."""
