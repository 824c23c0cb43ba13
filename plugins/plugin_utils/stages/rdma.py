# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage `rdma`: which pairs are planned, and the timetable that each node walks.

A pair is planned as a whole; the rails that it has are known when the stage `rdma_ports` was measured. Rails are numbered by the
ports of a node in the order of their devices' names. What moves data one way only is planned twice, once for each direction.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import re
import secrets
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import variant
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import gid
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.places import Places
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, ends_of, node_of, pair_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Context,
    Measurement,
    Plan,
    PlanItem,
    Subject,
    Todo,
    Variables,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import (
    base,
    directions,
    fabric_map,
    network,
    rdma_matrix,
    rdma_ports,
    rdma_rails,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import TIMETABLE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.pairing import pair_rounds
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import COUNT, INT_MAX, SECONDS, Range
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.rdma_rows import (
    AbsentTest,
    Gid,
    Port,
    RoundOfNode,
    SideTest,
    TestKind,
    TestOfBoth,
)

SCOPES = ("ring", "sample", "all_pairs", "pairs", "loopback")
# Speeds of links, in Gb/s, for which the plan says how long it takes.
SPEEDS = (400, 200, 100)
# Rails that are measured together: (port of the server, port of the client).
Step = t.List[t.Tuple[int, int]]


# The plan ------------------------------------------------------------------------------------------------------------


def items(nodes: base.Nodes, settings: base.Settings) -> tuple[list[PlanItem], list[str]]:
    """Return the items of the plan, the timetable of each node and each pair with each kind of test, and notes."""
    items_planned: list[PlanItem] = []
    notes: list[str] = []
    for machines, variables, rounds in _plans(nodes, settings, notes):
        taking_part = _taking_part(rounds, machines)
        items_planned += [PlanItem("rdma", TIMETABLE, "", Subject("node", node, []), nodes[node]) for node in taking_part]
        tests = kinds(variables)
        for pairs in rounds:
            for server, client in pairs:
                subject = Subject("pair", pair_of(server, client), [])
                items_planned += [
                    PlanItem("rdma", kind["check"], kind["variant"], subject, nodes[_roles(kind, server, client)[1]]) for kind in tests
                ]
        notes += estimate(rounds, tests, variables)
    return items_planned, notes


def reachability_domains(nodes: base.Nodes, settings: base.Settings) -> list[list[str]]:
    """Nodes among which pairs are measured: the machines that are hosts themselves, and the nodes of each cluster."""
    domains: dict[str, list[str]] = {}
    for node, target in nodes.items():
        domains.setdefault(settings[target].get("acceptance_realm") or "", []).append(node)
    return list(domains.values())


def _plans(nodes: base.Nodes, settings: base.Settings, notes: list[str]) -> t.Iterator[tuple[list[str], Variables, list[t.Any]]]:
    """Yield (nodes, settings, rounds) of each reachability domain that has pairs; adds to `notes` what is left out."""
    several = reachability_domains(nodes, settings)
    if len(several) > 1:
        notes.append("rdma: no pair is measured between two clusters, or between a cluster and a machine that is a host itself")
    for machines in several:
        variables = settings[nodes[machines[0]]]
        if variables["rdma_scope"] == "pairs" and len(several) > 1:
            within = [pair for pair in variables["rdma_pairs"] if any(set(pair) <= set(domain) for domain in several)]
            outside = [pair for pair in variables["rdma_pairs"] if pair not in within]
            notes += [f"rdma: pair {pair} is not measured: no reachability domain has both" for pair in outside]
            variables = {**variables, "rdma_pairs": [pair for pair in within if set(pair) <= set(machines)]}
            if not variables["rdma_pairs"]:
                continue
        without_peer = len(machines) == 1 and variables["rdma_scope"] != "loopback"
        if without_peer and (len(several) > 1 or base.stands_for_nodes(variables)):
            notes.append(f"rdma: no pair is measured with {machines[0]}, which is alone")
            continue
        yield machines, variables, rounds_of(machines, variables)


def _taking_part(rounds: list[t.Any], machines: list[str]) -> list[str]:
    paired_nodes = {node for pairs in rounds for pair in pairs for node in pair}
    return [node for node in machines if node in paired_nodes]


def _roles(kind: TestKind, server: str, client: str) -> tuple[str, str]:
    """Return server and client: as planned, or as the direction requires."""
    if kind["direction"] is None:
        return server, client
    sender, receiver = sorted((server, client), reverse=kind["direction"] == directions.BACK)
    return (sender, receiver) if directions.server_sends(kind["check"]) else (receiver, sender)


def rounds_of(machines: list[str], variables: Variables) -> list[t.Any]:
    """Rounds of [server, client] over the machines; RunError for settings that make none."""
    scope = variables["rdma_scope"]
    if scope == "loopback":
        return [[[node, node] for node in machines]]
    if len(machines) < 2:
        raise RunError(f"rdma_scope {scope}: found {len(machines)} machine, expected at least two, or the scope loopback")
    try:
        if scope == "pairs":
            pairs_given = variables["rdma_pairs"]
            strangers = sorted({str(n) for pair in pairs_given for n in pair} - set(machines))
            if strangers or not pairs_given:
                raise ValueError(f"found {strangers or pairs_given}, expected pairs of hosts of this run")
            return list(pair_rounds(pairs_given, "pairs"))
        count = min(variables["rdma_partners"], len(machines) - 1) if scope == "sample" else None
        return list(pair_rounds(machines, scope, k=count, seed=variables["rdma_seed"]))
    except ValueError as error:
        raise RunError(f"rdma_scope {scope}: {error}") from error


def kinds(variables: Variables) -> list[TestKind]:
    """The kinds of tests: check and variant, the tool and its options, the same on both sides, and what must stand in its output.

    A bandwidth is that of one direction, and each direction is a kind by itself; a latency is that of the way there and back, and an
    atomic operation takes as much one way as the other.
    """
    test_kinds: list[TestKind] = []
    for test in variables["rdma_tests"]:
        op, kind = test.split("_")
        bandwidth = kind == "bw"
        size = variables["rdma_size"] if bandwidth else variables["rdma_latency_size"]
        count = variables["rdma_iterations"] if bandwidth else variables["rdma_latency_iterations"]
        qps = variables["rdma_qps"] if bandwidth else 1
        both = bandwidth and variables["rdma_bidirectional"]
        options = [] if op == "atomic" else ["-s", str(size)]
        options += ["-D", str(variables["rdma_duration"])] if variables["rdma_duration"] else ["-n", str(count)]
        options += ["-q", str(qps), "--noPeak", "--report_gbits"] if bandwidth else []
        options += ["-b"] if both else []
        gpu = bool(variables["rdma_gpu"])
        marks = {name: "true" for name, is_set in (("bidirectional", both), ("gpu", gpu)) if is_set}
        full_variant = variant(size=size, qps=qps if bandwidth else None, **marks)
        test_kinds += [
            {
                "check": test,
                "variant": directions.with_direction(full_variant, direction) if direction else full_variant,
                "direction": direction,
                "tool": f"ib_{test}",
                "options": options + variables["rdma_extra_args"],
                "op": op,
                "kind": kind,
                "bytes": None if op == "atomic" else size,
                "iterations": None if variables["rdma_duration"] else count,
                "duration": None
                if any(word.startswith(("-f", "--margin")) for word in variables["rdma_extra_args"])
                else variables["rdma_duration"] or None,
                "qps": qps if bandwidth else None,
                "gpu": gpu,
                "context": {"op": op, "bidirectional": bool(both), "qps": qps, "direction": direction},
            }
            for direction in ((directions.FORWARD, directions.BACK) if bandwidth and op != "atomic" and not both else (None,))
        ]
    return test_kinds


def of_ports(serving: Port, asking: Port) -> Context:
    """Return the part of a test's context that follows from its two ports."""
    rates = [rate for p in (serving, asking) if (rate := p.get("held_gbps") or p["rate_gbps"])]
    gpus = {serving.get("gpu"), asking.get("gpu")} - {None}
    return {
        # Makers of GPUs have limits of their own for the NICs beside them.
        **({"gpu": gpus.pop()} if len(gpus) == 1 and serving.get("gpu") == asking.get("gpu") else {}),
        "nic_gbps": min(rates) if rates else None,
        "link_layer": serving["link_layer"],
        "nic": serving["nic"],
        # Soft-RoCE is as fast as the processor just lets it be: its neighbours say nothing of it.
        "comparable": "rdma_rxe" not in (serving["nic"], asking["nic"]),
    }


def estimate(rounds: list[t.Any], tests: list[TestKind], variables: Variables) -> list[str]:
    """Return an estimate of the rounds' time, from the bytes that they move, in words."""
    pairs = sum(len(pairs) for pairs in rounds)
    occupied_rounds = [pairs for pairs in rounds if pairs]
    words = {kind["check"]: f"{kind['check']} in both directions" if kind["direction"] else kind["check"] for kind in tests}
    lines = [f"rdma: {len(occupied_rounds)} rounds, {pairs} pairs, {len(tests)} tests of each on every rail: {', '.join(words.values())}"]
    for kind in {kind["check"]: kind for kind in tests}.values():
        moved = _bytes(kind)
        if moved:
            times = ", ".join(f"{_seconds(kind, variables, speed):.3g} s at {speed} Gb/s" for speed in SPEEDS)
            each = " in each direction" if kind["direction"] else ""
            lines.append(f"rdma: {kind['check']} moves {moved / 1e9:.4g} GB on a rail{each}: {times}")
    best_times = ", ".join(f"{_human(expected_seconds(len(occupied_rounds), tests, variables, speed))} at {speed} Gb/s" for speed in SPEEDS)
    slot = variables["rdma_test_timeout"] + variables["rdma_patience"]
    longest = _human(len(occupied_rounds) * len(tests) * slot)
    lines.append(f"rdma: all rounds about {best_times}, for each rail where rails go one by one; {longest} at most")
    return lines


def _bytes(kind: TestKind) -> int:
    """Return the bytes that a bandwidth test moves, 0 if they are not known: each QP does all iterations."""
    return (kind["bytes"] or 0) * (kind["iterations"] or 0) * (kind["qps"] or 0)


def _seconds(kind: TestKind, variables: Variables, speed: float) -> float:
    """Return the seconds of one test on a link of `speed` Gb/s."""
    moved = _bytes(kind)
    return moved * 8 / (speed * 1e9) if moved else float(variables["rdma_duration"] or 2)


def expected_seconds(rounds: int, tests: list[TestKind], variables: Variables, speed: float) -> float:
    """Return the seconds of all rounds, with one second per test for the rendezvous and the start of the tool."""
    return rounds * sum(_seconds(kind, variables, speed) + 1 for kind in tests)


def question(nodes: base.Nodes, settings: base.Settings) -> str | None:
    """Return the question to a person before a run that takes longer than the limit on links of 400 Gb/s."""
    for _machines, variables, rounds in _plans(nodes, settings, []):
        seconds = expected_seconds(sum(map(bool, rounds)), kinds(variables), variables, SPEEDS[0])
        limit = variables["rdma_confirm_above"]
        if limit and seconds > limit:
            return f"The rounds of stage rdma take about {_human(seconds)} or more"
    return None


def _human(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def complete(items: list[PlanItem], remaining: t.AbstractSet[Key]) -> t.AbstractSet[Key]:
    """A pair that is measured again needs both its nodes: whoever only serves gets its timetable too."""
    needed = {node for key in pairs_left(remaining) for node in ends_of(key.subject)}
    return {item.key for item in items if item.check == TIMETABLE and item.subject.id in needed}


def pairs_left(remaining: t.AbstractSet[Key]) -> list[Key]:
    return [key for key in remaining if key.stage == "rdma" and key.check != TIMETABLE]


# The timetable -------------------------------------------------------------------------------------------------------


def work(run: Run, plan: Plan, todos: dict[str, Todo]) -> dict[str, base.StageWork]:
    """Return the timetable of each target for what is left of the plan."""
    settings = {target: todo["settings"] for target, todo in todos.items()}
    remaining = {
        (item["check"], item["variant"], item["subject"]["id"])
        for todo in todos.values()
        for item in todo["stages"].get("rdma", ())
        if item["subject"]["kind"] == "pair"
    }
    nodes = {item.subject.id: item.target for item in plan.items if item.stage == "rdma" and item.check == TIMETABLE}
    nodes = {node: target for node, target in nodes.items() if target in settings}
    pairs = [item for item in plan.items if item.stage == "rdma" and item.subject.kind == "pair"]
    asker = {(item.check, item.variant, item.subject.id): item.target for item in pairs}
    records = run.journal.read()[0]
    ports = ports_of(records)
    mapped = network.of_records([fabric_map.STAGE], records)
    timetables: dict[str, base.StageWork] = {}
    finished = Finished(todos)
    own_measurements = [m for m in records if m.stage == "rdma" and m.outcome == "measured"]
    unchanged = _pairs_to_keep(own_measurements, remaining, nodes, finished)
    remaining -= unchanged
    for members in reachability_domains(nodes, settings):
        tests = kinds(settings[nodes[members[0]]])
        book = Timetable({node: nodes[node] for node in members}, settings, ports, tests, finished, mapped)
        for packed in _rounds_again(list(dict.fromkeys(item.subject.id for item in pairs)), book.nodes):
            for number, kind in enumerate(tests):
                candidates = [(a, b, (kind["check"], kind["variant"], s)) for a, b, s in packed]
                book.add(
                    [(number, *_as_planned(kind, a, b, book.nodes, asker[key]), key[2]) for a, b, key in candidates if key in remaining]
                )
        timetables.update(book.write())
    walked = {m.subject.id for m in own_measurements if m.check == TIMETABLE}
    return {
        target: _without(timetable, target, sorted(key for key in unchanged if asker[key] == target), walked)
        for target, timetable in timetables.items()
    }


def _pairs_to_keep(
    measured: list[Measurement], remaining: t.AbstractSet[tuple[str, str, str]], nodes: t.Collection[str], finished: Finished
) -> set[tuple[str, str, str]]:
    """Return the pairs that are left to do and need no new measurement: their servers' checkpoints say what they saw of the earlier one, or
    their servers are not here to measure again."""
    last = {(m.check, m.variant, m.subject.id): m for m in measured if m.subject.kind == "pair"}
    return {
        key
        for key in remaining & last.keys()
        if all(
            rdma_matrix.test_of(last[key], rail) in finished.served or node_of(rail["a"]) not in nodes
            for rail in rdma_matrix.rails_of(last[key])
        )
    }


def _without(work: base.StageWork, target: str, keep: list[tuple[str, str, str]], walked: t.Collection[str]) -> base.StageWork:
    """Return the work of a target that keeps these pairs. A machine that has nothing else to do keeps its timetable as well."""
    if target in walked and not any(work.options.get(name, True) for name in ("rounds", "absent", "finished")):
        nothing: NodeAnswer = {"state": "done", "end": "done", "observations": []}
        return base.StageWork(answer=nothing, keep=[*keep, (TIMETABLE, "", target)])
    return dataclasses.replace(work, keep=keep)


def _as_planned(kind: TestKind, first: str, second: str, nodes: dict[str, str], target: str) -> tuple[str, str]:
    """Return server and client of a pair of the plan: the target of an item is that of the client."""
    return _roles(kind, second, first) if nodes[first] == target else _roles(kind, first, second)


def _rounds_again(pairs: list[str], nodes: dict[str, str]) -> list[list[tuple[str, str, str]]]:
    """The plan's pairs in its order as rounds of (first, second, subject): each into the first in which both are free."""
    rounds: list[list[tuple[str, str, str]]] = []
    free: dict[str, int] = {}
    for subject in pairs:
        first, second = ends_of(subject)
        if first in nodes and second in nodes:
            number = max(free.get(first, 0), free.get(second, 0))
            while len(rounds) <= number:
                rounds.append([])
            rounds[number].append((first, second, subject))
            free[first] = free[second] = number + 1
    return rounds


def ports_of(records: t.Iterable[Measurement]) -> dict[str, list[Port]]:
    """Return the ports of each node, as the stage `rdma_ports` saw them last: their place in the list is their rail."""
    ports: dict[str, list[Port]] = {}
    records = list(records)
    models = {record.subject.id: record.context["facts"].get("gpu") for record in records if isinstance(record.context.get("facts"), dict)}
    records = [record for record in records if record.stage == "rdma_ports" and record.outcome == "measured"]
    held_to = rdma_rails.held_to(records)
    for record in records:
        node = record.subject.id
        types = {d["device"]: d.get("type") or d.get("driver") for d in record.context["devices"]}
        ports[node] = [
            t.cast(
                Port,
                {
                    **port,
                    "nic": types.get(port["device"]),
                    "gpu": models.get(node),
                    "held_gbps": held_to.get(f"{node}/nic/{port['device']}/{port.get('port')}"),
                },
            )
            for port in record.context["ports"]
        ]
    return ports


class Finished:
    """The tests that both sides had finished when a controller was lost, by their checkpoints. A number counts only if the other side saw
    the same test, so a test that one side alone has is measured again."""

    def __init__(self, todos: t.Mapping[str, Todo]) -> None:
        # By walk, kind, pair, rail and ports the roles in which the nodes at its ends speak of a test.
        sides: dict[tuple[str, ...], set[str]] = {}
        # So many rounds of them were walked.
        self.rounds = 0
        for target, todo in todos.items():
            for place, *test, role in filter(_is_key, todo.get("finished") or ()):
                if node_of(test[-1] if role == "client" else test[-2]) == target:
                    sides.setdefault(tuple(test), set()).add(role)
                    self.rounds = max(self.rounds, place + 1)
        self.tests = {test[1:] for test, roles in sides.items() if roles == {"server", "client"}}
        # What servers have seen, by walk and the rest (rdma_matrix.test_of).
        self.served = {test for test, roles in sides.items() if "server" in roles}


def _is_key(raw_key: t.Any) -> bool:
    """Return True if this is the key of a checkpoint (probes/perftest.py): round, walk, check, variant, pair, rail, both ports, role."""
    if not isinstance(raw_key, list) or len(raw_key) != 9 or not isinstance(raw_key[0], int):
        return False
    return all(isinstance(word, str) for word in raw_key[1:]) and 0 <= raw_key[0] < 1 << 20


class Timetable:
    """Rounds of tests, written down for each node; without those that are finished."""

    def __init__(
        self,
        nodes: dict[str, str],
        settings: dict[str, Variables],
        ports: dict[str, list[Port]],
        tests: list[TestKind],
        finished: Finished | None = None,
        places: Places | None = None,
    ) -> None:
        self.nodes = nodes
        self.settings = settings
        self.ports = ports
        self.tests = tests
        self.variables = settings[next(iter(nodes.values()))]
        # What the inventory says of leaves counts alone: its names are not those of the map.
        self.places = None if any(settings[target].get("rdma_leaf") for target in nodes.values()) else places
        self.number = 0
        self.rounds: dict[str, list[RoundOfNode]] = {node: [] for node in nodes}
        self.absent: dict[str, list[AbsentTest]] = {node: [] for node in nodes}
        self.finished = finished or Finished({})
        # Of each client the tests that are finished, by check, variant and pair.
        self.taken: dict[str, collections.Counter[tuple[str, str, str]]] = {node: collections.Counter() for node in nodes}
        first, last = _tcp_ports(self.variables["rdma_tcp_ports"]) or (0, 0)
        self.first, self.span = first, last - first + 1

    def add(self, pairs: list[tuple[int, str, str, str]]) -> None:
        """One round of (kind, server, client, subject), or as many as it takes where rails go one by one."""
        rounds: list[list[tuple[int, str, str, str, Step]]] = []
        for kind, server, client, subject in pairs:
            refused = self._refused(server, client)
            if refused:
                code, reason = refused
                pair = {"kind": "pair", "id": subject, "members": []}
                self.absent[client].append(
                    {
                        "check": self.tests[kind]["check"], "variant": self.tests[kind]["variant"], "subject": pair, "reason_code": code,
                        "reason": reason,
                    }
                )  # fmt: skip
                continue
            for place, step in enumerate(self._steps(server, client)):
                if server == client and self.tests[kind]["direction"] == directions.BACK:
                    step = [(server_rail, client_rail) for client_rail, server_rail in step]
                while len(rounds) <= place:
                    rounds.append([])
                rounds[place].append((kind, server, client, subject, step))
        for tests in rounds:
            self.add_round(tests)

    def add_round(self, tests: list[tuple[int, str, str, str, Step]]) -> None:
        """One round of (kind, server, client, subject, rails); a test without a subject speaks for no pair."""
        tests_of_node: dict[str, list[SideTest]] = {}
        for kind, server, client, subject, step in tests:
            for place, rails in enumerate(step):
                test_key = (self.tests[kind]["check"], self.tests[kind]["variant"], subject)
                if (*test_key, *self._named(server, client, rails)) in self.finished.tests:
                    self.taken[client][test_key] += 1
                    continue
                for node, test in self._sides(kind, server, client, subject, rails, place):
                    tests_of_node.setdefault(node, []).append(test)
        for node, sides in tests_of_node.items():
            self.rounds[node].append({"round": self.number, "tests": sides})
        self.number += bool(tests_of_node)

    def _named(self, server: str, client: str, rails: tuple[int, int]) -> tuple[str, str, str]:
        """The rail of a test, and its two ports."""
        serving, asking = self.ports[server][rails[0]], self.ports[client][rails[1]]
        rail = str(rails[0]) if rails[0] == rails[1] else f"{rails[0]}-{rails[1]}"
        return rail, f"{server}/nic/{serving['device']}/{serving['port']}", f"{client}/nic/{asking['device']}/{asking['port']}"

    def _refused(self, server: str, client: str) -> tuple[str, str] | None:
        """Return reason code and reason if a pair cannot be tested, else None."""
        for node in (server, client):
            if not self.ports.get(node):
                return "partner", f"{node}: its RDMA ports are not known, see the stage rdma_ports"
        if not any(True for step in self._steps(server, client) for _rails in step):
            states = "; ".join(f"{n}: " + ", ".join(f"{p['device']} {p['state']}" for p in self.ports[n]) for n in (server, client))
            return "port_down", f"no rail has an active port with a GID on both sides ({states})"
        return None

    def _usable(self, node: str, rail: int) -> bool:
        port = self.ports[node][rail]
        return port["state"] == "ACTIVE" and (port["gid"] is not None or port["link_layer"] == "InfiniBand")

    def _steps(self, server: str, client: str) -> list[Step]:
        """Rails (of the server, of the client) of a pair, in steps of what runs together."""
        server_rails, client_rails = (range(len(self.ports[n])) for n in (server, client))
        if server == client:
            steps = [[pair] for pair in itertools.combinations(server_rails, 2)] or [[(rail, rail)] for rail in server_rails]
        elif self.variables["rdma_crossed"]:
            most_rails = max(len(server_rails), len(client_rails))
            steps = [
                [(i, (i + shift) % most_rails) for i in server_rails if (i + shift) % most_rails in client_rails]
                for shift in range(most_rails)
            ]
        else:
            steps = [[(i, i) for i in server_rails if i in client_rails]]
        steps = [[r for r in step if self._usable(server, r[0]) and self._usable(client, r[1])] for step in steps]
        if not self.variables["rdma_rails_together"]:
            steps = [[rails] for step in steps for rails in step]
        return [step for step in steps if step]

    def _sides(
        self, kind: int, server: str, client: str, subject: str, rails: tuple[int, int], place: int
    ) -> t.Iterator[tuple[str, SideTest]]:
        """Yield the two sides of one test, each with the node it belongs to."""
        serving, asking = self.ports[server][rails[0]], self.ports[client][rails[1]]
        gids = self._gids(serving, asking)
        widest = max(len(p) for p in self.ports.values()) ** (2 if self.variables["rdma_crossed"] else 1)
        rail, a, b = self._named(server, client, rails)
        common: TestOfBoth = {
            "kind": kind,
            "subject": subject,
            "rail": rail,
            "a": a,
            "b": b,
            # No round shares a port with its neighbours, in which somebody may still be late.
            "tcp_port": self.first + (self.number * widest + place) % self.span,
            "peer": self.address(server, gids[0].get("address") or serving["address"] or ""),
            "context": {**of_ports(serving, asking), **self._hops(server, client, (a, b))},
        }
        both: tuple[tuple[str, Port, t.Literal["server", "client"], str, tuple[Gid, Gid]], ...] = (
            (server, serving, "server", client, gids),
            (client, asking, "client", server, (gids[1], gids[0])),
        )
        for node, port, role, partner, (own_gid, peer_gid) in both:
            yield (
                node,
                {
                    **common,
                    "role": role,
                    "partner": partner,
                    "device": port["device"],
                    "port": port["port"],
                    "gid_index": own_gid.get("index"),
                    "gid": own_gid.get("address"),
                    "peer_gid": peer_gid.get("address"),
                },
            )

    def _hops(self, server: str, client: str, ports: tuple[str, str]) -> Context:
        """Return {"hops": 1} if both nodes are on one leaf switch by `rdma_leaf`, or both ports are by the map of the run where no host has
        that variable: how many switches lie between leaves is not told."""
        leaves = []
        for node, port in zip((server, client), ports, strict=True):
            leaf = self.settings[self.nodes[node]].get("rdma_leaf")
            given = leaf.get(node) if isinstance(leaf, dict) else leaf
            leaves.append(self.places.leaf_of(port) if self.places else given)
        return {"hops": 1} if leaves[0] and leaves[0] == leaves[1] and server != client else {}

    def _gids(self, serving: Port, asking: Port) -> tuple[Gid, Gid]:
        """Return the GIDs of both sides, in one network where there are such; nothing on InfiniBand."""
        if not serving["gid"] or not asking["gid"]:
            return serving["gid"] or {}, asking["gid"] or {}
        server_gids, client_gids = ([port["gid"], *port.get("gid_others", ())] for port in (serving, asking))
        return t.cast("tuple[Gid, Gid]", gid.of_one_network(server_gids, client_gids, serving.get("prefix")))

    def address(self, node: str, rail_address: str) -> str:
        """Return the address at which a node's servers listen: the given one, else that of the rail itself. A node of a cluster by its
        name: the address of its pod is known, and told, when it runs."""
        variables = self.settings[self.nodes[node]]
        if base.stands_for_nodes(variables):
            return node
        fabric_address = variables.get("acceptance_fabric_address")
        return str(fabric_address or rail_address)

    def write(self) -> dict[str, base.StageWork]:
        """Return the timetable of each target, and for a cluster that of each of its nodes."""
        window = self.variables["rdma_start_window"] or 30 + len(self.nodes)
        slot = self.variables["rdma_test_timeout"] + self.variables["rdma_patience"]
        common = {
            "walk": secrets.token_hex(8),
            "rounds_before": self.finished.rounds,
            "kinds": self.tests,
            "slot": slot,
            "test_timeout": self.variables["rdma_test_timeout"],
            "timeout": window + (self.number + 1) * slot + self.variables["rdma_test_timeout"] + 60,
        }
        names = ("check", "variant", "subject")
        taken_tests = {
            node: [{**dict(zip(names, key, strict=True)), "tests": tests} for key, tests in of.items()] for node, of in self.taken.items()
        }
        node_options = {
            node: {"rounds": self.rounds[node], "absent": self.absent[node], "finished": taken_tests[node]} for node in self.rounds
        }
        if base.stands_for_nodes(self.variables):  # its window begins when all its nodes are there, as its plane knows
            return {self.nodes[next(iter(node_options))]: base.StageWork(common, starts_in=float(window), per_node=node_options)}
        return {self.nodes[node]: base.StageWork({**common, **options}, starts_in=float(window)) for node, options in node_options.items()}


def _tcp_ports(text: t.Any) -> tuple[int, int] | None:
    """Return the first and the last port of `FIRST-LAST`; None where it is no range of ports from 1024 on."""
    ends = re.fullmatch(r"([0-9]{4,5})-([0-9]{4,5})", str(text))
    first, last = map(int, ends.groups()) if ends else (0, 0)
    return (first, last) if 1024 <= first <= last <= 65535 else None


# The description -----------------------------------------------------------------------------------------------------


# Partners of each node in samples of the pairs, for runs with a time budget.
PARTNERS = (24, 6)


class Rdma(base.Stage):
    name = "rdma"
    role = "gpufleet.acceptance.rdma"
    place = 60
    level = "full"
    before = ("rdma_ports",)
    after = ("rdma_again",)
    topology = base.ROUNDS
    saves_checkpoints = queries_checkpoints = True
    conditions = frozenset({TIMETABLE})
    sees: t.Mapping[str, tuple[str, ...]] = {"nic": (), "fabric": ()}
    leaf_rank = 3
    ranges: t.Mapping[str, Range] = {
        "partners": COUNT,
        "size": Range(1, INT_MAX, "bytes"),
        "latency_size": Range(1, INT_MAX, "bytes"),
        "iterations": COUNT,
        "latency_iterations": COUNT,
        "qps": Range(1, 16384),  # MAX_QP_NUM_TO_TEST of perftest
        "duration": SECONDS,
        "patience": SECONDS,
        "start_window": SECONDS,
        "confirm_above": SECONDS,
    }
    requestable = (
        "scope", "partners", "seed", "tests", "rails_together", "crossed", "size", "iterations", "qps", "bidirectional", "latency_size",
        "latency_iterations", "duration",
    )  # fmt: skip
    command_axes = ("tests",)

    def lacks(self, fault: str, measurement: Measurement) -> str | None:
        if fault == "fabric" and len(set(ends_of(measurement.subject.id))) == 1:
            return "a node with itself, over no cable and no switch"
        return super().lacks(fault, measurement)

    def items(self, nodes: base.Nodes, settings: base.Settings) -> tuple[list[PlanItem], list[str]]:
        return items(nodes, settings)

    def problem(self, settings: Variables) -> str | None:
        if _tcp_ports(settings["rdma_tcp_ports"]) is None:
            return f"rdma_tcp_ports: found {settings['rdma_tcp_ports']}, expected FIRST-LAST, two ports from 1024 to 65535"
        return None

    def question(self, nodes: base.Nodes, settings: base.Settings) -> str | None:
        return question(nodes, settings)

    def complete(self, items: list[PlanItem], remaining: t.AbstractSet[Key]) -> t.AbstractSet[Key]:
        return complete(items, remaining)

    def remeasure(self, last: t.Mapping[Key, Measurement], records: t.Sequence[Measurement]) -> t.AbstractSet[Key]:
        return rdma_matrix.unseen(last, records)

    def work(self, run: Run, plan: Plan, todos: dict[str, Todo]) -> dict[str, base.StageWork]:
        return work(run, plan, todos)

    def isolation(self, settings: Variables) -> base.Isolation:
        needs = rdma_ports.isolation(settings)
        return {**needs, "ports": rdma_ports.options(settings), "governor_switch": "rdma_kube_guardian"}

    def judged_contexts(self, settings: Variables) -> list[Variables]:
        contexts = []
        for kind in kinds(settings):
            context = {"check": kind["check"], "op": kind["op"], "size": kind["bytes"], "bidirectional": "bidirectional" in kind["variant"]}
            if context not in contexts:
                contexts.append(context)
        return contexts

    def command(self, settings: Variables, nodes: int) -> list[str]:
        kind = kinds(settings)[0]
        device, port = settings["rdma_ports_devices"], settings["rdma_ports_port"]
        return [kind["tool"], "-d", *(device[:1] or ["DEVICE"]), "-i", str(port or "PORT"), *kind["options"], "PEER"]

    def seconds(self, settings: Variables, nodes: int, launch_s: float, gbps: float) -> float:
        try:
            rounds = len(rounds_of([str(number) for number in range(nodes)], settings))
        except RunError:
            return 0.0
        return expected_seconds(rounds, kinds(settings), settings, gbps)

    def shorter(self, settings: Variables) -> t.Sequence[t.Mapping[str, t.Any]]:
        """Return samples of the pairs, and the ring. Pairs that the inventory names stay as they are."""
        if settings["rdma_scope"] not in ("all_pairs", "sample"):
            return ()
        few = settings["rdma_partners"] if settings["rdma_scope"] == "sample" else math.inf
        return [*({"scope": "sample", "partners": count} for count in PARTNERS if count < few), {"scope": "ring"}]

    def tables(self, records: list[Measurement], expected: base.Expected) -> list[Table]:
        return rdma_matrix.tables(records, expected)

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: base.Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion] | Blame]:
        return rdma_matrix.opinions(deciding, records, expected, tables)


STAGE = Rdma()
