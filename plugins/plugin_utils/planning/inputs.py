# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that verdicts depend on besides the measurements, as the inventory has it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import difflib
import fnmatch
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import drift, expectations, references, waivers
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import PlanError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.planner import Planner
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    FactRules,
    JudgingInputs,
    PlainData,
    Plan,
    StatedHardware,
    Variables,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry

# The end of the name of a stage's variable.
REQUIRED = "_required_evidence"


def judging_inputs(planner: Planner, settings: dict[str, Variables]) -> JudgingInputs:
    """Return everything that verdicts depend on besides the measurements, as the inventory has it now."""
    resolver = expectations.Resolver()
    sets: list[expectations.Expectations] = []
    of: dict[str, int] = {}
    book = waivers.Book(datetime.date.today())
    begun: dict[references.Reference, None] = {}
    stack: dict[str, FactRules] = {}
    stated: dict[str, StatedHardware] = {}
    own_facts: dict[str, list[str]] = {}
    required: dict[str, dict[str, list[str]]] = {}
    leaf: dict[str, str] = {}
    rack: dict[str, str] = {}
    leaves, facts = registry.leaf_variables(), registry.finding_facts().name
    notes: list[str] = []
    for host, values in settings.items():
        layered = [(layer, planner.template(host, v)) for layer, v in planner.layers.of(host, "acceptance_expectations")]
        resolved = _resolve(resolver, host, layered, values)
        if resolved not in sets:
            sets.append(resolved)
        of[host] = sets.index(resolved)
        days = values["acceptance_waiver_days"]
        book.take(values["acceptance_waivers"] or [], f"{host}: acceptance_waivers", host, days)
        begun.update(dict.fromkeys(references.parse(values[references.VARIABLE] or [], f"{host}: {references.VARIABLE}", host)))
        for node, entry in _of_nodes(host, values, notes):
            resolved = _resolve(resolver, f"{host}: acceptance_node_vars", _and(layered, entry), values)
            if resolved not in sets:
                sets.append(resolved)
            of[node] = sets.index(resolved)
            book.take(entry.get("waivers") or [], f"{host}: acceptance_node_vars: waivers", node, days)
        on: t.Any = next((values[name] for name in leaves if values.get(name)), {})
        leaf.update({str(node): str(name) for node, name in (on.items() if isinstance(on, dict) else [(host, on)]) if name})
        rack.update(_racks(host, values.get("acceptance_rack")))
        rules: FactRules = {
            "golden": values.get(f"{facts}_golden"), "ignore": values.get(f"{facts}_ignore"), "drift": values.get(f"{facts}_drift"),
        }  # fmt: skip
        if any(rules.values()):
            stack[host] = rules
        codes = {name.removesuffix(REQUIRED): value for name, value in values.items() if name.endswith(REQUIRED) and value}
        if codes:
            required[host] = codes
        plane_facts = planes.of(values, host).own_facts(values)
        if plane_facts:
            own_facts[host] = list(plane_facts)
        stated[host] = {"gpu_count": values.get("acceptance_gpu_count"), "mig": values.get("acceptance_mig")}
        if groups := planner.layers.groups(host):
            stated[host]["groups"] = groups
    return JudgingInputs(
        sets=[s.dump() for s in sets],
        of=of,
        waivers=book.raw,
        references=[dataclasses.asdict(reference) for reference in begun],
        warn=next((v["acceptance_warn"] for v in settings.values()), "accept"),
        regression=next((v["acceptance_regression"] for v in settings.values()), "warn"),
        stack=stack,
        stated=stated,
        own_facts=own_facts,
        required=required,
        leaf=leaf,
        rack=rack,
        notes=sorted({line for s in sets for line in s.notes}) + notes,
    )


def _racks(host: str, stated: t.Any) -> dict[str, str]:
    """Return the rack of each node of a host of the inventory: its own, or of a cluster {name of the node: rack}."""
    if isinstance(stated, dict):
        return {f"{host}/{node}": str(name) for node, name in stated.items() if name not in (None, "")}
    return {} if stated in (None, "") else {host: str(stated)}


def without_effect(written: Plan, settings: dict[str, Variables]) -> list[str]:
    """Return the inputs that name nodes or stages that this run does not have: usually misspelt."""
    subjects = {item.subject.id for item in written.items}
    strange = sorted(node for node in written.judging.of if node not in subjects and node not in settings)
    notes = []
    if strange:
        names = f"{', '.join(strange[:10])}{' ...' if len(strange) > 10 else ''}"
        notes.append(f"acceptance_node_vars: not among the nodes of this run: {names}")
    stages = {*registry.shipped(), *(stage["name"] for stage in written.stages)}
    for host, values in sorted(settings.items()):
        notes += planes.of(values, host).notes(host, values, stages)
    notes += _strange_expectations(written, stages)
    return [*notes, *_misspelt_waivers(written, stages, set(settings)), *_misspelt_facts(written)]


def _strange_expectations(written: Plan, stages: t.Collection[str]) -> t.Iterator[str]:
    """Yield a note for each expectation of the inventory for a stage that is none of the collection's and none of this run's."""
    strange: dict[str, str] = {}
    for dumped in written.judging.sets:
        for entry in expectations.Expectations.load(dumped).entries:
            if entry.layer != "shipped" and str(entry.match["stage"]) not in stages:
                strange.setdefault(str(entry.match["stage"]), entry.origin)
    for stage, origin in sorted(strange.items()):
        yield f"{origin}: match.stage: this run has no stage {stage}{_near(stage, stages)}"


def _misspelt_waivers(written: Plan, stages: t.Collection[str], hosts: t.Collection[str]) -> t.Iterator[str]:
    """Yield a note for each waiver whose subject, stage or check is probably misspelt. A run of a part of the fleet has not all subjects. A
    stage may judge subjects and checks that are not planned, so that these must be near to one that is."""
    nodes = {keys.node_of(item.subject.id) for item in written.items} | set(hosts)
    subjects = {item.subject.id for item in written.items} | nodes
    checks = {item.check for item in written.items}
    for raw in written.judging.waivers:
        where = f"acceptance_waivers ({raw.get('ticket')})"
        subject, stage, check = (str(raw.get(name) or "*") for name in ("subject", "stage", "check"))
        node = keys.node_of(subject)
        if not (written.partial or _is_any(subject, subjects) or _is_any(node, nodes)) and _near(node, nodes):
            yield f"{where}: subject: {node} is not in this run{_near(node, nodes)}"
        if not _is_any(stage, stages):
            yield f"{where}: stage: there is no stage {stage}{_near(stage, stages)}"
        elif not _is_any(check, checks) and _near(check, checks):
            yield f"{where}: check: this run plans no check {check}{_near(check, checks)}"


def _misspelt_facts(written: Plan) -> t.Iterator[str]:
    """Yield a note for each fact of `stack_golden`, `stack_ignore` or `stack_drift` that is nearly called like one that nodes have."""
    hosts_by_name: dict[str, list[str]] = collections.defaultdict(list)
    for host, rules in sorted(written.judging.stack.items()):
        for variable in ("golden", "ignore", "drift"):
            names: t.Iterable[t.Any] = t.cast("t.Any", rules.get(variable)) or ()
            for name in names:
                if near := drift.misspelt(str(name)):
                    hosts_by_name[f"{drift.RULES}_{variable}: found {name!r}, which may be misspelt; did you mean {near}?"].append(host)
    for text, hosts in hosts_by_name.items():
        yield f"{text} ({hosts[0]}{f' and {len(hosts) - 1} more' if len(hosts) > 1 else ''})"


def _is_any(pattern: str, names: t.Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _near(name: str, names: t.Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(names), 1, 0.75)
    return f"; did you mean {near[0]}?" if near else ""


def _resolve(
    resolver: expectations.Resolver, where: str, layered: expectations.Layered, values: Variables
) -> expectations.Expectations:
    overlays, files = values["acceptance_expectation_overlays"] or (), values["acceptance_expectation_files"] or ()
    try:
        return resolver.resolve(layered, overlays, files)
    except expectations.ExpectationError as error:
        raise PlanError(f"{where}: {error}") from error


def _and(layered: expectations.Layered, entry: PlainData) -> expectations.Layered:
    return [*layered, ("host", entry["expectations"])] if entry.get("expectations") else layered


def _of_nodes(host: str, values: Variables, notes: list[str]) -> t.Iterator[tuple[str, PlainData]]:
    """Nodes of a cluster that `acceptance_node_vars` speaks of, each with its entry; where two do, the later one. An entry that speaks
    of none is a note."""
    entries: dict[str, PlainData] = {}
    for number, entry in enumerate(values.get("acceptance_node_vars") or ()):
        if (
            not isinstance(entry, dict)
            or not set(entry) <= {"names", "selector", "expectations", "waivers"}
            or ("names" in entry) == ("selector" in entry)
        ):
            raise PlanError(
                f"{host}: acceptance_node_vars[{number}]: found {entry!r}, expected {{names or selector, expectations, waivers}}"
            )
        names = planes.of(values, host).select(host, values, entry)
        if not names:
            notes.append(f"{host}: acceptance_node_vars[{number}]: no node is known that {entry.get('selector') or 'it names'} matches")
        entries.update(dict.fromkeys(names, entry))
    yield from entries.items()
