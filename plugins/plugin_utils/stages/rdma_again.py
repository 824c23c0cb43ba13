# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage `rdma_again`: what the matrix of the stage `rdma` still needs before somebody is convicted.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Measurement,
    Plan,
    PlanItem,
    Subject,
    Todo,
    Variables,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base, directions, rdma, rdma_matrix
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import NONE_OR_MORE, Range
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.rdma_rows import TestKind


def items(nodes: base.Nodes, settings: base.Settings) -> tuple[list[PlanItem], list[str]]:
    """The timetable of each node that can be asked again, which stays empty where nothing is suspicious."""
    if any("rdma_scope" not in settings[target] for target in nodes.values()):
        raise RunError("acceptance_stages: found rdma_again without rdma, expected rdma_ports, rdma and rdma_again in this order")
    return [PlanItem("rdma_again", base.TIMETABLE, "", Subject("node", node, []), target) for node, target in nodes.items()], []


def work(run: Run, plan: Plan, todos: dict[str, Todo]) -> dict[str, base.StageWork]:
    """Return rounds for the tests that the diagnosis still needs, and an answer without contact for all other targets."""
    settings = {target: todo["settings"] for target, todo in todos.items()}
    nodes = {i.subject.id: i.target for i in plan.items if i.stage == "rdma_again" and i.target in settings}
    if not nodes:
        return {}
    records = run.journal.read()[0]
    ports = rdma.ports_of(records)
    works: dict[str, base.StageWork] = {}
    for members in rdma.reachability_domains(nodes, settings):
        variables = settings[nodes[members[0]]]
        book = rdma.Timetable({node: nodes[node] for node in members}, settings, ports, rdma.kinds(variables))
        place = {
            f"{node}/nic/{port['device']}/{port['port']}": (node, rail) for node in members for rail, port in enumerate(ports.get(node, ()))
        }
        for tests in _rounds(_tests_to_repeat(records, plan, book.tests), place)[: variables["rdma_again_limit"]]:
            book.add_round(tests)
        shared = {name: variables[f"rdma_{name}"] for name in ("governor", "binary_dir")}
        for target, timetable in book.write().items():
            if timetable.options.get("rounds") or any(node_options["rounds"] for node_options in timetable.per_node.values()):
                works[target] = dataclasses.replace(timetable, options={**shared, **timetable.options})
            else:
                works[target] = base.StageWork(answer=base.nothing_asked())
    return works


def _tests_to_repeat(records: list[Measurement], plan: Plan, tests: list[TestKind]) -> list[tuple[int, str, str]]:
    """(kind, port of the server, port of the client) of every test that a diagnosis still needs."""
    number = {(kind["check"], directions.without_direction(kind["variant"]), kind["direction"]): place for place, kind in enumerate(tests)}
    needed = []
    for table in rdma_matrix.tables(records, expectations.of_run(plan.judging)):
        diagnosis = table.diagnose()
        for a, b, _rail in diagnosis.again if diagnosis else ():
            direction = directions.direction_of(node_of(a), node_of(b)) if table.directed else None
            kind = number.get((table.check, table.variant, direction))
            if kind is not None:
                needed.append((kind, a, b) if direction is None or directions.server_sends(table.check) else (kind, b, a))
    return needed


def _rounds(needed: list[tuple[int, str, str]], place: dict[str, tuple[str, int]]) -> list[list[tuple[int, str, str, str, rdma.Step]]]:
    """Each test into the first round in which both nodes are free."""
    rounds: list[list[tuple[int, str, str, str, rdma.Step]]] = []
    busy: list[set[str]] = []
    for kind, a, b in needed:
        if a not in place or b not in place:
            continue
        (server, server_rail), (client, client_rail) = place[a], place[b]
        round_nodes = {node_of(a), node_of(b)}
        number = next((i for i, nodes in enumerate(busy) if not nodes & round_nodes), len(rounds))
        if number == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[number].append((kind, server, client, "", [(server_rail, client_rail)]))
        busy[number] |= round_nodes
    return rounds


class RdmaAgain(base.Stage):
    name = "rdma_again"
    role = "gpufleet.acceptance.rdma_again"
    ranges: t.Mapping[str, Range] = {"limit": NONE_OR_MORE}
    topology = base.ROUNDS
    conditions = frozenset({base.TIMETABLE})

    def items(self, nodes: base.Nodes, settings: base.Settings) -> tuple[list[PlanItem], list[str]]:
        return items(nodes, settings)

    def complete(self, items: list[PlanItem], remaining: t.AbstractSet[Key]) -> t.AbstractSet[Key]:
        """Return all items of the stage if pairs of the matrix are measured again, else nothing."""
        return {item.key for item in items} if rdma.pairs_left(remaining) else frozenset()

    def work(self, run: Run, plan: Plan, todos: dict[str, Todo]) -> dict[str, base.StageWork]:
        return work(run, plan, todos)

    def isolation(self, settings: Variables) -> base.Isolation:
        return rdma.STAGE.isolation(settings)


STAGE = RdmaAgain()
