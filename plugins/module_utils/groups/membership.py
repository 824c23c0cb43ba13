# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of one node in a stage between nodes: every node runs the same probe, and only the head's launches and measures.

A member lets the head log in, sends its description, watches its own GPUs meanwhile, and ends when the head is gone (member.py). The head
is a member, too. Without a token there are no member processes: the nodes reach one another already, and `members` describes them.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import nic_models
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import member, rails
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import perftest_sides
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import ports as rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import boot_id

# What the head measures of these checks, given what its node says of itself (None without a token).
Measure = t.Callable[[t.Optional[t.Dict[str, t.Any]], t.List[t.Dict[str, str]]], t.Iterator[Observation]]

# Options of the module of every stage whose ranks mpirun starts, and of every one whose head searches for the cause of a failure.
MPI: dict[str, dict[str, t.Any]] = {
    "mpirun": {"type": "str", "default": "mpirun"},
    "mpi_args": {"type": "list", "elements": "str", "default": []},
}
SEARCH: dict[str, dict[str, t.Any]] = {
    "localise": {"type": "bool", "default": True},
    "repeats": {"type": "int", "default": 10},
    "parallel": {"type": "int", "default": 64},
    "topology": {"type": "dict", "default": {}},
}
# What a node is told of its group, whatever is launched over it: options of the module of every stage over groups, which take_part,
# group.Group and launching need.
OPTIONS: dict[str, dict[str, t.Any]] = {
    "members": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "address": {"type": "str", "required": True},
            "hostname": {"type": "str"},
            "gpus": {"type": "int"},
            "local": {"type": "bool", "default": False},
            "problem": {"type": "str"},
        },
    },
    "group": {"type": "str", "default": ""},
    "env": {"type": "dict", "default": {}},
    **MPI,
    "ssh_args": {"type": "list", "elements": "str", "default": []},
    "gpu_count": {"type": "int"},
    "mig": {"type": "str", "choices": ["refused", "allowed"], "default": "refused"},
    "join_timeout": {"type": "float", "default": 120.0},
    "floors": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "match": {"type": "dict", "required": True},
            "value": {"type": "float", "required": True},
            "rank": {"type": "int", "default": 0},
        },
    },
    "job_steps": {"type": "dict"},
    "token": {"type": "str", "default": "", "no_log": True},
    "key": {
        "type": "dict",
        "no_log": False,
        "options": {
            "public": {"type": "str"},
            "private": {"type": "str", "no_log": True},
            "from": {"type": "list", "elements": "str", "default": []},
            "seconds": {"type": "float", "default": 0.0},
        },
    },
}


def take_part(
    params: Params, node: Node, measure: Measure, purpose: str = "numbers of the group", kinds: t.Collection[str] | None = None
) -> t.Iterator[Observation]:
    """Yield the observations of the head, then the node's own as a member. `params`: OPTIONS, and "checks". `purpose` names what is
    measured. `kinds`: the kinds of accelerators that it is measured on, None for every kind."""
    checks = [check for check in params["checks"] if check["check"] != member.CHECK]
    own_check = next((check for check in params["checks"] if check["check"] == member.CHECK), None)
    if not params["token"]:
        yield from measure(None, checks)
        return
    snapshot = gpu.snapshot(node)
    local_facts = describe(snapshot, params, node, purpose, kinds)
    problem = None
    window = Window(node, snapshot, whole=False) if not local_facts["refused"] else None
    counters_before = _counters(node, local_facts)
    key = params["key"] if not checks else None
    with contextlib.ExitStack() as stack:
        me = stack.enter_context(member.Member(node, params["token"], key))
        if window:
            stack.enter_context(window)
        local_facts["state"] = _state(local_facts, window, counters_before) if window else None
        me.greet(local_facts)
        if checks:
            yield from measure(local_facts, checks)
        elif not local_facts["refused"]:
            problem = me.wait(params["join_timeout"])
        else:
            me.wait(params["join_timeout"])  # the head has to hear it from us
    if own_check:
        evidence = window.evidence() if window else {"window": {}, "changes": [], "unreadable": []}
        risen = _risen(counters_before, _counters(node, local_facts))
        evidence["changes"] += [change for change in risen if change not in evidence["changes"]]
        yield _as_member(own_check["variant"], local_facts, problem, evidence)


def describe(
    snapshot: dict[str, t.Any], params: Params, node: Node, purpose: str, kinds: t.Collection[str] | None
) -> dict[str, t.Any]:
    """Return the description of a node that its member sends to the head: {"hostname", "kind": of its accelerators, "gpu", "gpus": [UUID],
    "memory_mib", "ports": active ones, "down": the other ports, each with its "model", "nvlink_domain", "refused": [outcome, code, reason]
    or None, "simulated", "identity", "nccl": the machine's own settings}."""
    devices = rdma_ports.read_devices(node)
    ports = [port for device in devices for port in device["ports"]]
    near = rails.near(node, devices, snapshot["gpus"])
    models = {device["device"]: nic_models.model(device) for device in devices}
    accelerator = gpu.kind(snapshot)
    return {
        "hostname": socket.gethostname(),
        "kind": accelerator.kind,
        "gpu": gpu.model(snapshot) if snapshot["gpus"] else None,
        "gpus": [g["uuid"] or g["bdf"] for g in snapshot["gpus"]],
        "memory_mib": min((int(plain(g["memory_total_mib"]) or 0) for g in snapshot["gpus"]), default=0),
        "ports": [
            {
                **{key: port[key] for key in ("device", "port", "link_layer", "rate_gbps")},
                "gids": [[g["index"], g["type"], g["address"]] for g in port["gids"]],
                "near": near[port["device"]],
                "model": models[port["device"]],
            }
            for port in ports
            if port["state"] == "ACTIVE"
        ],
        "down": [
            {**{key: port[key] for key in ("device", "port")}, "near": near[port["device"]], "model": models[port["device"]]}
            for port in ports
            if port["state"] != "ACTIVE"
        ],
        "nvlink_domain": accelerator.domain(snapshot),
        "nic_path": rails.path(node, [device for device in devices if near[device["device"]]] or devices, snapshot["gpus"]),
        "refused": gpu.refusal(snapshot, params["gpu_count"], purpose, params["mig"], kinds),
        "simulated": bool(snapshot.get("simulated")),
        "identity": node.identity(),
        "nccl": accelerator.settings(node, params["env"]),
    }


def _state(local_facts: dict[str, t.Any], window: Window, ports: dict[tuple[str, int], dict[str, int]]) -> dict[str, t.Any] | None:
    """Return the state by which a resumed head sees that this is the same node and that nothing has happened on it since (evidence.quiet);
    None if that cannot be known."""
    state = window.state()
    if state is None:
        return None
    errors = [[*port, {name: of[name] for name in perftest_sides.COUNTERS["link_errors"] if name in of}] for port, of in ports.items()]
    text = json.dumps([boot_id(), local_facts, state["counters"], errors], sort_keys=True)
    return {"counters": hashlib.sha256(text.encode()).hexdigest(), "log": state["log"]}


def _counters(node: Node, local_facts: dict[str, t.Any]) -> dict[tuple[str, int], dict[str, int]]:
    return {(p["device"], p["port"]): rdma_ports.counters(node, p["device"], p["port"]) for p in local_facts["ports"]}


def _risen(
    counters_before: dict[tuple[str, int], dict[str, int]], counters_after: dict[tuple[str, int], dict[str, int]]
) -> list[dict[str, t.Any]]:
    """Return a change for each counter of link errors that rose.

    Congestion and packets out of order are left out: they are usual when many nodes talk at once.
    """
    changes = []
    for (device, port), counted in counters_after.items():
        for name in perftest_sides.COUNTERS["link_errors"]:
            first, last = counters_before[device, port].get(name), counted.get(name)
            if first is not None and last is not None and last > first:
                text = f"{device} port {port}: {name} rose from {first} to {last}"
                changes.append({"code": "link_errors", "part": f"nic/{device}/{port}", "text": text, "before": first, "after": last})
    return changes


def _as_member(variant: str, local_facts: dict[str, t.Any], problem: str | None, evidence: dict[str, t.Any]) -> Observation:
    common: dict[str, t.Any] = {
        "variant": variant,
        "simulated": local_facts["simulated"],
        "evidence": evidence,
        "context": {
            "gpu": local_facts["gpu"],
            "gpus": len(local_facts["gpus"]),
            "gpu_uuids": local_facts["gpus"],
            "hostname": local_facts["hostname"],
            "ports": local_facts["ports"],
        },
    }
    if local_facts["refused"]:
        outcome, code, reason = local_facts["refused"]
        return observation.failed(member.CHECK, code, reason, outcome=outcome, **common)
    if problem:
        return observation.failed(member.CHECK, "partner", problem, **common)
    return observation.measured(member.CHECK, **common)
