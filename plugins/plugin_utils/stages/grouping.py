# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage over groups of nodes: which groups are planned, and what head and members of each are told, whatever is launched over them.

Machines behind SSH with the same `NAME_group` form a group whose first machine is the head; the nodes of a cluster are one. The plan
lists each group with every check, and each machine as a member.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import ipaddress
import secrets
import subprocess
import tempfile
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import rails
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Measurement,
    PlainData,
    Plan,
    PlanItem,
    Subject,
    Todo,
    Variables,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base, fabric_map, network, stack
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import MEMBER

# Nodes named in one reason.
NAMED = 8
CORRECT = "correct the network, or set acceptance_fabric_address of the node"


class Share(t.TypedDict):
    """A part of each node that measures together: so many GPUs, over one RDMA device or all."""

    gpus: t.Any
    rail: t.NotRequired[str]
    mnnvl: t.NotRequired[int]


class Grouped(base.Stage):
    """The description of such a stage says what is checked over a group (`checks`), by which metric parts of it are held to floors
    (`floor`), and what else its head is told (`for_head`).

    It has the variables below without a word of its role; its module is told what module_utils/groups/membership.py needs.
    """

    topology = base.GROUP
    conditions = frozenset({MEMBER})
    devices = True
    variables: t.Mapping[str, PlainData] = {
        "group": {"type": "str", "default": "all"},
        "node_count": {"type": "int", "default": 0},
        "world_size": {"type": "int", "default": 0},
        "gpus": {"type": "list", "elements": "str", "default": ["all"]},
        "ssh": {"type": "str", "choices": ["ephemeral", "existing"], "default": "ephemeral"},
        "timeout": {"type": "float", "default": 3600.0},
        "join_timeout": {"type": "float", "default": 120.0},
    }
    # Metric and unit of the expectations that the head is told, to search for a cause itself; none where it does not.
    floor: tuple[str, str] | None = None

    def lacks(self, fault: str, measurement: Measurement) -> str | None:
        """NICs and the network between nodes take part only where data goes through them."""
        context = measurement.context
        if fault in ("nic", "fabric") and measurement.outcome == "measured":
            if physics.across(context) and "rail" not in context:
                return "NVLink connects its nodes, so that no NIC takes part"
            if context.get("nics_used") == 0 or context.get("nics") == 0:
                return "it went over sockets, and not over the NICs"
        return super().lacks(fault, measurement)

    def checks(self, variables: Variables) -> list[tuple[str, str]]:
        """(check, variant) of everything that is measured over a group."""
        raise NotImplementedError

    def for_head(self, members: list[str], settings: t.Mapping[str, Variables]) -> PlainData:
        """Options of the module for the head alone. `settings`: the settings of each member's target."""
        return {}

    def shares(self, variables: Variables) -> list[Share]:
        """Return the parts of each node that measure together, as words of a variant: so many GPUs with all NICs, and one GPU with each
        of the devices of `NAME_rails` alone, where the stage has that variable. With `NAME_without_mnnvl` the first are measured once more
        without NVLink between nodes."""
        shares: list[Share] = [{"gpus": gpus} for gpus in variables[f"{self.name}_gpus"]]
        if variables.get(f"{self.name}_without_mnnvl"):
            shares += [{"gpus": share["gpus"], "mnnvl": 0} for share in shares]
        return shares + [{"gpus": 1, "rail": rail} for rail in variables.get(f"{self.name}_rails") or ()]

    def problem(self, settings: Variables) -> str | None:
        """Members take part in something, else nobody is measured and all pass."""
        rail_names = settings.get(f"{self.name}_rails") or []
        for rail in rail_names:
            if not rails.NAME.fullmatch(rail) or rail_names.count(rail) > 1:
                return f"{self.name}_rails: found {rail!r}, expected RDMA devices, each once, like mlx5_0, or mlx5_0:2 for a port"
        if not self.checks(settings):
            return f"{self.name}: nothing is measured over its groups: a list that its checks are made of is empty"
        return None

    # The plan --------------------------------------------------------------------------------------------------------

    def items(self, nodes: base.Nodes, settings: base.Settings) -> tuple[list[PlanItem], list[str]]:
        """Return the items of the plan for the nodes ({node: target}), and notes. Raises RunError for settings that make no group."""
        items: list[PlanItem] = []
        notes: list[str] = []
        for name, members in self.groups(nodes, settings).items():
            target = nodes[members[0]]
            variables = settings[target]
            count = self._count(variables, name)
            chosen = members[: count or len(members)]
            problem = _no_group(name, count, members)
            if problem and not base.stands_for_nodes(variables):
                raise RunError(f"{problem}; {self.name}_group '' leaves a host out")
            # Which nodes a cluster has is the matter of a day and not of the inventory: a bad one costs its own nodes only.
            refused = problem if members != [target] else ""
            if refused:
                notes.append(problem)
            elif len(chosen) < len(members):
                notes.append(f"{name}: {len(chosen)} of {len(members)} nodes, from {chosen[0]} to {chosen[-1]}")
            subject = Subject("group", name, chosen)
            for check, variant in self.checks(variables):
                items.append(PlanItem(self.name, check, variant, subject, target))
                if refused:
                    items[-1].refused = refused
            if not base.stands_for_nodes(variables):
                _need_addresses(chosen, nodes, settings)
            items += [PlanItem(self.name, MEMBER, "", Subject("node", node, []), nodes[node]) for node in chosen]
        return items, notes

    def groups(self, nodes: base.Nodes, settings: base.Settings) -> dict[str, list[str]]:
        """{group's subject: its nodes in the inventory's order}; whoever is in none is left out."""
        members_of: dict[str, list[str]] = {}
        for node, target in nodes.items():
            variables = settings[target]
            name = variables[f"{self.name}_group"]
            if name:
                where = [self.name, target] if base.stands_for_nodes(variables) else [self.name]
                members_of.setdefault("/".join(where + ([name] if name != "all" else [])), []).append(node)
        return members_of

    def _count(self, variables: Variables, where: str) -> int:
        """Return how many nodes of a group take part: `NAME_node_count`, or as many as `NAME_world_size` GPUs are in, or 0 for all."""
        stage = self.name
        count, world = variables[f"{stage}_node_count"], variables[f"{stage}_world_size"]
        if world:
            each = variables.get("acceptance_gpu_count") or next((int(g) for g in variables[f"{stage}_gpus"] if str(g).isdigit()), 0)
            if not each:
                raise RunError(f"{where}: {stage}_world_size needs acceptance_gpu_count or a number in {stage}_gpus")
            if world % each or (count and count != world // each):
                raise RunError(f"{where}: {stage}_world_size: found {world}, expected a multiple of the {each} GPUs of a node")
            count = world // each
        if count == 1:
            raise RunError(f"{where}: one node was asked for ({stage}_node_count, {stage}_world_size), expected at least two in a group")
        return int(count)

    def complete(self, items: list[PlanItem], remaining: t.AbstractSet[Key]) -> t.AbstractSet[Key]:
        """Head and members of a group are measured together or not at all: where one is left to do, all are."""
        repeated: set[Key] = set()
        for subject in {item.subject.id: item.subject for item in items if item.subject.kind == "group"}.values():
            group_keys = {item.key for item in items if item.subject.id in (subject.id, *subject.members)}
            if group_keys & remaining:
                repeated |= group_keys
        return repeated

    # What each is told -----------------------------------------------------------------------------------------------

    def work(self, run: Run, plan: Plan, todos: dict[str, Todo]) -> dict[str, base.StageWork]:
        """Return the work of the targets of every group that is left to do."""
        settings = {target: todo["settings"] for target, todo in todos.items()}
        own_items = [item for item in plan.items if item.stage == self.name]
        target_of = {item.subject.id: item.target for item in own_items if item.check == MEMBER}
        records = run.journal.read()[0]
        known_addresses = addresses(records)
        mapped = network.of_records([fabric_map.STAGE], records)
        work: dict[str, base.StageWork] = {}
        for item in own_items:
            head = item.target
            if item.subject.kind == "group" and head in settings and head not in work and not base.stands_for_nodes(settings[head]):
                members = {node: target_of[node] for node in item.subject.members}
                checks = [(planned.check, planned.variant) for planned in own_items if planned.subject.id == item.subject.id]
                work.update(self._of_group(item.subject.id, head, members, settings, known_addresses, run, checks))
                options = work[head].options
                if mapped is not None and options.get("topology") == {}:  # no host says its leaf
                    options["topology"] = {node: mapped.leaf[node] for node in members if node in mapped.leaf}
                floors = self.floors(plan, head)
                work[head].options.update({"floors": floors} if floors else {})
        return work

    def _of_group(
        self, name: str, head: str, target_of: dict[str, str], settings: dict[str, Variables], known_addresses: dict[str, list[str]],
        run: Run, checks: list[tuple[str, str]],
    ) -> dict[str, base.StageWork]:  # fmt: skip
        """Return the work of head and members of one group, by target. `checks` are those that are measured over the group.

        A node whose address is not known has an answer and runs no probe. If that leaves fewer than two nodes, or no head, every node
        has one: the members would wait for a head that cannot come.
        """
        token = secrets.token_hex(16)
        variables = settings[head]
        timeout, joining = variables[f"{self.name}_timeout"], variables[f"{self.name}_join_timeout"]
        private, public = new_key(self.name) if variables[f"{self.name}_ssh"] == "ephemeral" else ("", "")
        seats = []
        unknown: dict[str, str] = {}
        for node, target in target_of.items():
            where, problem = address(settings.get(target, {}), known_addresses.get(node, []))
            if problem:
                unknown[node] = problem
            lost = run.mailbox.lost(target)
            problem = lost[1] if lost else problem
            seats.append({"name": node, "address": where, "local": target == head, "problem": problem})
        usable = [seat for seat in seats if not seat["problem"]]
        if unknown and (len(usable) < 2 or not any(seat["local"] for seat in usable)):
            return _not_begun(name, head, target_of, unknown, checks)
        source = next(seat["address"] for seat in seats if seat["local"])
        key = {"public": public, "from": [source], "seconds": timeout + 120} if public and source else None
        # A member outlasts its head, however much later that one begins.
        member = {"token": token, "key": key, "timeout": timeout + joining}
        work = {target: base.StageWork(dict(member)) for target in target_of.values()}
        head_options = self.for_head(list(target_of), {node: settings.get(target, {}) for node, target in target_of.items()})
        own_key = {"private": private} if private else None
        work[head] = base.StageWork({"group": name, "token": token, "key": own_key, "members": seats, **head_options})
        work.update({target_of[node]: _answered([_member_without_address(node, why)]) for node, why in unknown.items()})
        return work

    def floors(self, plan: Plan, target: str) -> list[base.HeadFloor]:
        """Return the expectations of `floor` that the head needs."""
        if self.floor is None:
            return []
        metric, unit = self.floor
        judging = plan.judging
        entries = Expectations.load(judging.sets[judging.of[target]]).entries
        return [
            {"match": {k: v for k, v in e.match.items() if k != "stage"}, "value": physics.convert(e.value, e.unit, unit), "rank": e.rank}
            for e in entries
            if e.match["stage"] == self.name and e.metric == metric and e.missed == "fail"
        ]


def _no_group(name: str, count: int, members: list[str]) -> str:
    """Return why these nodes make no group; empty if they do."""
    if count > len(members):
        return f"{name}: {count} nodes were asked for and {len(members)} are in the group"
    if len(members) < 2:
        return f"{name}: found {len(members)} node ({', '.join(members)}), expected at least two in a group"
    return ""


def _need_addresses(members: list[str], nodes: base.Nodes, settings: base.Settings) -> None:
    """RunError where a node's address can neither be read in the inventory nor be found by the stage stack."""
    for node in members:
        variables = settings[nodes[node]]
        if not variables.get("acceptance_fabric_address") and f"{stack.STAGE.name}_drift" not in variables:
            raise RunError(f"{node}: set acceptance_fabric_address, or let the stage stack run too: it finds the addresses of nodes")


def _not_begun(
    name: str, head: str, target_of: dict[str, str], unknown: dict[str, str], checks: list[tuple[str, str]]
) -> dict[str, base.StageWork]:
    """Return the answers for the targets of a group that cannot begin because the addresses of some nodes are `unknown`, {node: why}."""
    examples = "; ".join(f"{node}: {why}" for node, why in list(unknown.items())[:NAMED])
    hidden_text = f"; and {len(unknown) - NAMED} more nodes" if len(unknown) > NAMED else ""
    reason = f"group {name} was not begun: {examples}{hidden_text}"
    observations_of: dict[str, list[PlainData]] = {target: [] for target in target_of.values()}
    subject = {"kind": "group", "id": name, "members": list(target_of)}
    observations_of[head] += [
        observation.failed(check, "no_address", reason, variant=variant, subject=subject) for check, variant in checks
    ]
    for node, target in target_of.items():
        why = unknown.get(node)
        observations_of[target].append(_member_without_address(node, why) if why else observation.failed(MEMBER, "partner", reason))
    return {target: _answered(observations) for target, observations in observations_of.items()}


def _member_without_address(node: str, why: str) -> PlainData:
    return observation.failed(MEMBER, "no_address", f"{node}: {why}")


def _answered(observations: list[PlainData]) -> base.StageWork:
    """Return the work of a target whose answer is known without running the module."""
    return base.StageWork(answer={"state": "done", "end": "done", "observations": observations})


def address(settings: Variables, own_addresses: list[str]) -> tuple[str, str | None]:
    """Return the address at which the other nodes of a group reach a node, and an error: the inventory's, else its own address in
    `acceptance_fabric_network`, else that of its default route. Never ansible_host, which is the controller's way to it."""
    fabric_address = settings.get("acceptance_fabric_address")
    if fabric_address:
        return str(fabric_address), None
    network = settings.get("acceptance_fabric_network")
    if not own_addresses:
        return "", "its address between nodes is not known: the stage stack found none; set acceptance_fabric_address of the node"
    if not network:
        return own_addresses[0], None
    within = [
        own_address for own_address in own_addresses if ipaddress.ip_address(own_address) in ipaddress.ip_network(network, strict=False)
    ]
    if within:
        return within[0], None
    return "", f"it has no address in acceptance_fabric_network {network}, only {', '.join(own_addresses)}; {CORRECT}"


def addresses(records: t.Iterable[Measurement]) -> dict[str, list[str]]:
    """Return each node's own addresses, that of its default route first, as the stage that finds facts has measured them."""
    return {
        record.subject.id: record.context["addresses"]
        for record in records
        if record.stage == stack.STAGE.name and record.outcome == "measured" and record.context.get("addresses")
    }


def new_key(stage: str) -> tuple[str, str]:
    """Return a new ed25519 key: (private, public without its comment)."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder:
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", f"{folder}/key"]
        try:
            subprocess.run(argv, check=True, capture_output=True, timeout=30)
            with open(f"{folder}/key", encoding="ascii") as private, open(f"{folder}/key.pub", encoding="ascii") as public:
                return private.read(), " ".join(public.read().split()[:2])
        except (OSError, subprocess.SubprocessError) as error:
            raise RunError(f"ssh-keygen on the controller: {error}; install it, or set {stage}_ssh to existing") from error
