# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight of a sharing system: a table that compares the installation with the system's description, before anything is made.

A known deviation refuses the run. A fact that could not be read is listed and refuses nothing: the cases measure it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

OK, WRONG, NOT_KNOWN, NOTED = "ok", "refuses the run", "not known", "noted"
COLUMNS = ["what", "found", "expected", "means"]
# Allowed relative difference between the memory that a scheduler assumes and the GPU's. Quotas hold at a tenth, not at half or twice.
MEMORY_TOLERANCE = 0.1


@dataclasses.dataclass(frozen=True)
class SharedNode:
    """A node of the plan: the shared devices it offers, and the number and product of its GPUs (None and empty if unknown). `replicas` is
    the number of devices per GPU that the node's own label says, None without one."""

    name: str
    offered: int
    gpus: int | None = None
    product: str = ""
    replicas: int | None = None


@dataclasses.dataclass(frozen=True)
class SystemPod:
    """A pod of the sharing system. `env` has None for a variable whose value is not in the pod's spec."""

    name: str
    node: str
    ready: bool
    host_pid: bool
    env: t.Mapping[str, str | None]
    images: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Draining:
    """A node that a case will cordon and drain. `lacking` has the rights that we lack. `account` is "namespace/name" of the service account
    whose pod uncordons the node if the run is killed, empty for no such pod. `refused` says what that pod could not do, `unknown` why that
    is not known."""

    node: str
    lacking: t.Sequence[str] = ()
    account: str = ""
    refused: str = ""
    unknown: str = ""


@dataclasses.dataclass(frozen=True)
class ClusterFacts:
    """The facts of a cluster that the preflight checks. `memory_gib` is {node: memory of its largest GPU, read from the driver};
    `answering` has the schedulers whose metrics could be read, and `reading` those that read the memory of their GPUs from the driver;
    `named_nodes` is {variable: the node that it names}; `draining` has the nodes that chosen cases will drain."""

    nodes: t.Sequence[SharedNode]
    schedulers: t.Sequence[SystemPod]
    plugins: t.Sequence[SystemPod]
    memory_gib: t.Mapping[str, float]
    answering: t.Collection[str]
    named_nodes: t.Mapping[str, str]
    draining: t.Sequence[Draining] = ()
    reading: t.Collection[str] = ()

    @property
    def products(self) -> list[str]:
        """Return the GPU products of the cluster."""
        return sorted({place.product for place in self.nodes if place.product})


@dataclasses.dataclass(frozen=True)
class PreflightRow:
    topic: str
    actual: str
    expected: str
    means: str

    @property
    def cells(self) -> list[str]:
        return [self.topic, self.actual, self.expected, self.means]


def rows(system: System, facts: ClusterFacts) -> list[PreflightRow]:
    """Return the rows of the table."""
    table = [_nodes(facts)]
    if system.scheduler:
        table.append(_everywhere("schedulers", str(system.scheduler["daemonset"]), facts.schedulers, facts))
    if system.plugin:
        table.append(_everywhere("device plugins", str(system.plugin["daemonset"]), facts.plugins, facts))
    table.append(_parts(system, facts))
    for name, value in (system.expects.get("scheduler_env") or {}).items():
        table.append(_environment(name, value, facts))
    if system.expects.get("host_pid"):
        table.append(_host_pid(facts))
    if "memory_env" in system.expects:
        table.append(_memory(system, facts))
    if "debug_env" in system.expects:
        table.append(_debug(str(system.expects["debug_env"]), facts))
    if "metrics" in system.has:
        table.append(_answering(facts))
    table += [_named_node(name, node, facts) for name, node in facts.named_nodes.items() if node]
    for draining in facts.draining:
        table += [_drains(draining), _guardian(draining)]
    table.append(PreflightRow("images", _short_list(images(facts)) or "none", "", NOTED))
    return table


def images(facts: ClusterFacts) -> list[str]:
    """Return the images of the system under test."""
    return sorted({image for pod in (*facts.schedulers, *facts.plugins) for image in pod.images})


_COMMIT = re.compile(r"(?:^|[-_.g])([0-9a-f]{7,40})$")


def commit(image_names: t.Iterable[str]) -> str:
    """Return the commit with which the tags of images end, empty if they name none or several."""
    tags = (name.partition("@")[0].rpartition("/")[2].partition(":")[2] for name in image_names)
    commits = {match[1] for match in map(_COMMIT.search, tags) if match and not match[1].isdigit()}
    return commits.pop() if len(commits) == 1 else ""


def refusal(table: t.Iterable[PreflightRow]) -> str:
    """Return why the run is refused, naming every wrong row; empty if it is not refused."""
    return "; ".join(f"{row.topic}: found {row.actual}, expected {row.expected}" for row in table if row.means == WRONG)


def text(table: t.Sequence[PreflightRow]) -> list[str]:
    """Return the table as lines of text."""
    cells = [COLUMNS, *(row.cells for row in table)]
    widths = [min(60, max(len(line[place]) for line in cells)) for place in range(len(COLUMNS))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _short_list(names: t.Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _nodes(facts: ClusterFacts) -> PreflightRow:
    actual = f"{len(facts.nodes)}" + (f" with {', '.join(facts.products)}" if facts.products else "")
    return PreflightRow("nodes of the plan", actual, "at least one", OK if facts.nodes else WRONG)


def _everywhere(kind: str, daemonset: str, daemons: t.Sequence[SystemPod], facts: ClusterFacts) -> PreflightRow:
    ready = {pod.node for pod in daemons if pod.ready}
    without = [place.name for place in facts.nodes if place.name not in ready]
    actual = f"ready on {len(facts.nodes) - len(without)} of {len(facts.nodes)} nodes" + (
        f", not on {_short_list(without)}" if without else ""
    )
    return PreflightRow(f"{kind} ({daemonset})", actual, "ready on every node", WRONG if without else OK)


def _parts(system: System, facts: ClusterFacts) -> PreflightRow:
    wrong, unknown = [], []
    for place in facts.nodes:
        if place.gpus is None:
            unknown.append(place.name)
        per_gpu = system.devices_per_gpu if place.replicas is None else place.replicas
        if place.offered == 0 or (place.gpus is not None and place.offered != place.gpus * per_gpu):
            gpus = "an unknown number of" if place.gpus is None else str(place.gpus)
            labelled = "" if place.replicas is None else f" and its label says {place.replicas} of each"
            wrong.append(f"{place.name} offers {place.offered} with {gpus} GPUs{labelled}")
    numbers = sorted({system.devices_per_gpu if place.replicas is None else place.replicas for place in facts.nodes})
    words = " or ".join(map(str, numbers or [system.devices_per_gpu]))
    topic, expected = f"parts of GPUs ({system.resource})", f"{words} of each GPU"
    if wrong:
        return PreflightRow(topic, _short_list(wrong), expected, WRONG)
    if unknown:
        return PreflightRow(topic, f"the number of GPUs of {_short_list(unknown)} is not known", expected, NOT_KNOWN)
    return PreflightRow(
        topic, f"{sum(place.offered for place in facts.nodes)} of {sum(place.gpus or 0 for place in facts.nodes)} GPUs", expected, OK
    )


def _variable_of(name: str, facts: ClusterFacts) -> dict[str, str | None]:
    """Return {scheduler: value of its environment variable}, without the schedulers that do not have it."""
    return {scheduler.name: scheduler.env[name] for scheduler in facts.schedulers if name in scheduler.env}


def _environment(name: str, expected: str | t.Sequence[str], facts: ClusterFacts) -> PreflightRow:
    """Compare a variable of the schedulers with the value, or one of the values, that it must have."""
    allowed = [expected] if isinstance(expected, str) else list(expected)
    has, words = _variable_of(name, facts), " or ".join(allowed)
    wrong = sorted(
        scheduler.name for scheduler in facts.schedulers if scheduler.name not in has or has[scheduler.name] not in (*allowed, None)
    )
    if wrong:
        values = sorted({has.get(scheduler_name) or "not set" for scheduler_name in wrong})
        return PreflightRow(name, f"{' and '.join(values)} in {_short_list(wrong)}", words, WRONG)
    unread = [scheduler for scheduler, setting in has.items() if setting is None]
    values = sorted({setting for setting in has.values() if setting is not None})
    actual = f"not in the spec of {_short_list(unread)}" if unread else " and ".join(values)
    return PreflightRow(name, actual or "not known", words, NOT_KNOWN if unread or not has else OK)


def _host_pid(facts: ClusterFacts) -> PreflightRow:
    without = sorted(scheduler.name for scheduler in facts.schedulers if not scheduler.host_pid)
    actual = f"not set of {_short_list(without)}" if without else "set"
    return PreflightRow("hostPID of schedulers", actual, "set, for its metrics name processes of the node", WRONG if without else OK)


def _memory(system: System, facts: ClusterFacts) -> PreflightRow:
    """Compare the memory of a GPU that each scheduler assumes with the driver's, unless the scheduler reads it itself."""
    name, otherwise = str(system.expects["memory_env"]), float(system.expects.get("memory_default_gib", 0))
    has = _variable_of(name, facts)
    wrong, compared = [], 0
    for scheduler in facts.schedulers:
        if scheduler.name in facts.reading:
            compared += 1
            continue
        real = facts.memory_gib.get(scheduler.node)
        try:
            believed = float(t.cast("str", has[scheduler.name])) if scheduler.name in has else otherwise
        except (TypeError, ValueError):
            believed = None
        if real is None or not believed:
            continue
        compared += 1
        if abs(believed - real) > MEMORY_TOLERANCE * real:
            wrong.append(
                f"{believed:g} on {scheduler.node}, whose GPU has {real:.4g} GiB" + ("" if scheduler.name in has else " (not set)")
            )
    expected = f"the memory of a GPU in GiB, to {MEMORY_TOLERANCE:.0%}"
    if wrong:
        return PreflightRow(name, _short_list(wrong), expected, WRONG)
    if compared < len(facts.schedulers) or not compared:
        return PreflightRow(name, f"compared on {compared} of {len(facts.schedulers)} nodes", expected, NOT_KNOWN)
    if len(facts.reading) == len(facts.schedulers):
        return PreflightRow(name, "not used: the schedulers read the memory from the driver", "", OK)
    return PreflightRow(name, _short_list(sorted({str(value) for value in has.values()} or {f"{otherwise:g} by default"})), expected, OK)


def _debug(name: str, facts: ClusterFacts) -> PreflightRow:
    has = _variable_of(name, facts)
    return PreflightRow(name, f"set in {len(has)} of {len(facts.schedulers)} schedulers" if has else "not set", "", NOTED)


def _answering(facts: ClusterFacts) -> PreflightRow:
    """Count the schedulers whose metrics answer. A silent one does not refuse the run: the cases about metrics judge it."""
    return PreflightRow("metrics", f"{len(facts.answering)} of {len(facts.schedulers)} schedulers answer", "", NOTED)


def _named_node(variable: str, node: str, facts: ClusterFacts) -> PreflightRow:
    sharing_nodes = {place.name for place in facts.nodes if place.offered}
    return PreflightRow(variable, node, "a node of the plan with shared GPUs", OK if node in sharing_nodes else WRONG)


def _drains(draining: Draining) -> PreflightRow:
    actual = f"we may not {', '.join(draining.lacking)}" if draining.lacking else "we may"
    return PreflightRow(
        f"draining {draining.node}",
        actual,
        "the rights of files/rbac/sharing.yaml and sharing-drain.yaml",
        WRONG if draining.lacking else OK,
    )


def _guardian(draining: Draining) -> PreflightRow:
    """Check the service account of the guardian that uncordons the node if the run is killed."""
    variable = "gpu_sharing_guardian"
    if not draining.account:
        words = f"none: whoever kills the run leaves {draining.node} cordoned until gpufleet.acceptance.cleanup or the next run"
        return PreflightRow(variable, words, "", NOTED)
    expected = f"one that may get and patch {draining.node}: make it as files/rbac/README.md says, or set {variable} to '' and do without"
    if draining.refused or draining.unknown:
        return PreflightRow(
            variable,
            f"service account {draining.account}: {draining.refused or draining.unknown}",
            expected,
            WRONG if draining.refused else NOT_KNOWN,
        )
    return PreflightRow(variable, f"service account {draining.account}", expected, OK)
