# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that verdicts depend on besides the measurements, as the inventory has it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, references, waivers
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import PlanError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.planner import Planner
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
    return notes


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
