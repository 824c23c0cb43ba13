# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight of a sharing system: is it installed as its description expects? One table, before anything is made.

What is known to be otherwise refuses the run. What nobody knows is said, and refuses nothing: the cases measure it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

OK, WRONG, NOT_KNOWN, NOTED = "ok", "refuses the run", "not known", "noted"
COLUMNS = ["what", "found", "expected", "means"]
# A scheduler that believes in a tenth less or more memory than a GPU has still keeps quotas apart; half of it or twice as much does not.
MEMORY_TOLERANCE = 0.1


@dataclasses.dataclass(frozen=True)
class SharedNode:
    """A node of the plan: how many shared devices it offers, and what is known of its GPUs."""

    name: str
    offered: int
    gpus: int | None = None
    product: str = ""


@dataclasses.dataclass(frozen=True)
class SystemPod:
    """A pod of the system. `env` has None for a value that is not in its spec."""

    name: str
    node: str
    ready: bool
    host_pid: bool
    env: t.Mapping[str, str | None]
    images: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Draining:
    """A node that a case will cordon and drain. `lacking`: what of it we may not. `account`: as whom a pod gives the node back, namespace
    and name, or nothing where nobody shall; `refused`: why that pod could not be, or what it might not, `unknown`: why nobody knows."""

    node: str
    lacking: t.Sequence[str] = ()
    account: str = ""
    refused: str = ""
    unknown: str = ""


@dataclasses.dataclass(frozen=True)
class ClusterFacts:
    """`memory_gib`: {node: of its largest GPU, as the schedulers read it from the driver}; `answering`: the schedulers whose metrics came;
    `asked`: {variable: the node that it names}; `draining`: what chosen cases will drain."""

    nodes: t.Sequence[SharedNode]
    schedulers: t.Sequence[SystemPod]
    plugins: t.Sequence[SystemPod]
    memory_gib: t.Mapping[str, float]
    answering: t.Collection[str]
    asked: t.Mapping[str, str]
    draining: t.Sequence[Draining] = ()

    @property
    def products(self) -> list[str]:
        """Return the GPU products of the cluster."""
        return sorted({place.product for place in self.nodes if place.product})


@dataclasses.dataclass(frozen=True)
class Row:
    what: str
    found: str
    expected: str
    means: str

    @property
    def cells(self) -> list[str]:
        return [self.what, self.found, self.expected, self.means]


def rows(system: System, facts: ClusterFacts) -> list[Row]:
    """The whole table."""
    found = [_nodes(facts)]
    if system.scheduler:
        found.append(_everywhere("schedulers", str(system.scheduler["daemonset"]), facts.schedulers, facts))
    if system.plugin:
        found.append(_everywhere("device plugins", str(system.plugin["daemonset"]), facts.plugins, facts))
    found.append(_parts(system, facts))
    for name, value in (system.expects.get("scheduler_env") or {}).items():
        found.append(_environment(name, value, facts))
    if system.expects.get("host_pid"):
        found.append(_host_pid(facts))
    if "memory_env" in system.expects:
        found.append(_memory(system, facts))
    if "debug_env" in system.expects:
        found.append(_debug(str(system.expects["debug_env"]), facts))
    if "metrics" in system.has:
        found.append(_answering(facts))
    found += [_named(name, node, facts) for name, node in facts.asked.items() if node]
    for one in facts.draining:
        found += [_drains(one), _guardian(one)]
    images = sorted({image for one in (*facts.schedulers, *facts.plugins) for image in one.images})
    found.append(Row("images", _some(images) or "none", "", NOTED))
    return found


def refusal(table: t.Iterable[Row]) -> str:
    """Why the run is refused, naming every row; empty where it is not."""
    return "; ".join(f"{row.what}: found {row.found}, expected {row.expected}" for row in table if row.means == WRONG)


def text(table: t.Sequence[Row]) -> list[str]:
    """The table in lines."""
    cells = [COLUMNS, *(row.cells for row in table)]
    widths = [min(60, max(len(line[place]) for line in cells)) for place in range(len(COLUMNS))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _some(names: t.Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _nodes(facts: ClusterFacts) -> Row:
    found = f"{len(facts.nodes)}" + (f" with {', '.join(facts.products)}" if facts.products else "")
    return Row("nodes of the plan", found, "at least one", OK if facts.nodes else WRONG)


def _everywhere(what: str, daemonset: str, daemons: t.Sequence[SystemPod], facts: ClusterFacts) -> Row:
    ready = {one.node for one in daemons if one.ready}
    without = [place.name for place in facts.nodes if place.name not in ready]
    said = f"ready on {len(facts.nodes) - len(without)} of {len(facts.nodes)} nodes" + (f", not on {_some(without)}" if without else "")
    return Row(f"{what} ({daemonset})", said, "ready on every node", WRONG if without else OK)


def _parts(system: System, facts: ClusterFacts) -> Row:
    wrong, unknown = [], []
    for place in facts.nodes:
        if place.gpus is None:
            unknown.append(place.name)
        if place.offered == 0 or (place.gpus is not None and place.offered != place.gpus * system.devices_per_gpu):
            gpus = "an unknown number of" if place.gpus is None else str(place.gpus)
            wrong.append(f"{place.name} offers {place.offered} with {gpus} GPUs")
    what, expected = f"parts of GPUs ({system.resource})", f"{system.devices_per_gpu} of each GPU"
    if wrong:
        return Row(what, _some(wrong), expected, WRONG)
    if unknown:
        return Row(what, f"the number of GPUs of {_some(unknown)} is not known", expected, NOT_KNOWN)
    return Row(what, f"{sum(place.offered for place in facts.nodes)} of {sum(place.gpus or 0 for place in facts.nodes)} GPUs", expected, OK)


def _of(name: str, facts: ClusterFacts) -> dict[str, str | None]:
    """{scheduler: a variable of it}; no entry where it has none."""
    return {one.name: one.env[name] for one in facts.schedulers if name in one.env}


def _environment(name: str, value: str, facts: ClusterFacts) -> Row:
    has = _of(name, facts)
    wrong = sorted(one.name for one in facts.schedulers if one.name not in has or has[one.name] not in (value, None))
    if wrong:
        said = sorted({has.get(name) or "not set" for name in wrong})
        return Row(name, f"{' and '.join(said)} in {_some(wrong)}", value, WRONG)
    unread = [scheduler for scheduler, told in has.items() if told is None]
    return Row(name, f"not in the spec of {_some(unread)}" if unread else value, value, NOT_KNOWN if unread or not has else OK)


def _host_pid(facts: ClusterFacts) -> Row:
    without = sorted(one.name for one in facts.schedulers if not one.host_pid)
    found = f"not set of {_some(without)}" if without else "set"
    return Row("hostPID of schedulers", found, "set, for its metrics name processes of the node", WRONG if without else OK)


def _memory(system: System, facts: ClusterFacts) -> Row:
    """Compare the memory of each GPU that a scheduler assumes with that of the driver: schedulers do not read it themselves."""
    name, otherwise = str(system.expects["memory_env"]), float(system.expects.get("memory_default_gib", 0))
    has = _of(name, facts)
    wrong, known = [], 0
    for one in facts.schedulers:
        real = facts.memory_gib.get(one.node)
        try:
            believed = float(t.cast("str", has[one.name])) if one.name in has else otherwise
        except (TypeError, ValueError):
            believed = None
        if real is None or not believed:
            continue
        known += 1
        if abs(believed - real) > MEMORY_TOLERANCE * real:
            wrong.append(f"{believed:g} on {one.node}, whose GPU has {real:.4g} GiB" + ("" if one.name in has else " (not set)"))
    expected = f"the memory of a GPU in GiB, to {MEMORY_TOLERANCE:.0%}"
    if wrong:
        return Row(name, _some(wrong), expected, WRONG)
    if known < len(facts.schedulers) or not known:
        return Row(name, f"compared on {known} of {len(facts.schedulers)} nodes", expected, NOT_KNOWN)
    return Row(name, _some(sorted({str(value) for value in has.values()} or {f"{otherwise:g} by default"})), expected, OK)


def _debug(name: str, facts: ClusterFacts) -> Row:
    has = _of(name, facts)
    return Row(name, f"set in {len(has)} of {len(facts.schedulers)} schedulers" if has else "not set", "", NOTED)


def _answering(facts: ClusterFacts) -> Row:
    """Not a reason to refuse: that is what the metrics' own cases are for."""
    return Row("metrics", f"{len(facts.answering)} of {len(facts.schedulers)} schedulers answer", "", NOTED)


def _named(variable: str, node: str, facts: ClusterFacts) -> Row:
    there = {place.name for place in facts.nodes if place.offered}
    return Row(variable, node, "a node of the plan with shared GPUs", OK if node in there else WRONG)


def _drains(of: Draining) -> Row:
    found = f"we may not {', '.join(of.lacking)}" if of.lacking else "we may"
    return Row(f"draining {of.node}", found, "the rights of files/rbac/sharing.yaml and sharing-drain.yaml", WRONG if of.lacking else OK)


def _guardian(of: Draining) -> Row:
    """Check the guardian that returns the node if the run is killed."""
    what = "gpu_sharing_guardian"
    if not of.account:
        return Row(what, f"none: whoever kills the run leaves {of.node} cordoned until playbooks/cleanup.yml or the next run", "", NOTED)
    expected = f"one that may get and patch {of.node}: make it as files/rbac/README.md says, or set {what} to '' and do without"
    if of.refused or of.unknown:
        return Row(what, f"service account {of.account}: {of.refused or of.unknown}", expected, WRONG if of.refused else NOT_KNOWN)
    return Row(what, f"service account {of.account}", expected, OK)
