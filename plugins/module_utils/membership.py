# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node's part in a stage between nodes, whatever is launched over them: every node runs the same probe, and the head's measures.

A member lets the head in, says what it is, watches its own GPUs meanwhile, and is done when the head is gone (member.py). The head is a
member too. Without a token nodes have no half of their own: they reach one another already, and `members` says what they are.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import gpu, member, observation, rails
from ansible_collections.gpufleet.acceptance.plugins.module_utils.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import perftest, rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.session import boot_id

Observation = t.Dict[str, t.Any]
# What the head measures of these checks, given what its node says of itself (None without a token).
Measure = t.Callable[[t.Optional[t.Dict[str, t.Any]], t.List[t.Dict[str, str]]], t.Iterator[Observation]]

# Options of the module of every stage whose ranks mpirun starts, and of every one whose head searches for whom to blame.
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
    params: dict[str, t.Any], node: Node, measure: Measure, what: str = "numbers of the group", kind: str | None = None
) -> t.Iterator[Observation]:
    """What the head measures, then what this node saw as a member. `params`: OPTIONS, and "checks". `what` is measured, on accelerators
    of this `kind`, None for whichever the node has."""
    checks = [check for check in params["checks"] if check["check"] != member.CHECK]
    asked = next((check for check in params["checks"] if check["check"] == member.CHECK), None)
    if not params["token"]:
        yield from measure(None, checks)
        return
    seen = gpu.snapshot(node)
    here = describe(seen, params, node, what, kind)
    problem = None
    window = Window(node, seen) if not here["refused"] else None
    before = _counters(node, here)
    key = params["key"] if not checks else None
    with contextlib.ExitStack() as stack:
        me = stack.enter_context(member.Member(node, params["token"], key))
        if window:
            stack.enter_context(window)
        here["state"] = _state(here, window, before) if window else None
        me.greet(here)
        if checks:
            yield from measure(here, checks)
        elif not here["refused"]:
            problem = me.wait(params["join_timeout"])
        else:
            me.wait(params["join_timeout"])  # the head has to hear it from us
    if asked:
        evidence = window.evidence() if window else {"window": {}, "changes": [], "unreadable": []}
        evidence["changes"] += _risen(before, _counters(node, here))
        yield _as_member(asked["variant"], here, problem, evidence)


def describe(
    seen: dict[str, t.Any], params: dict[str, t.Any], node: Node, what: str, kind: str | None
) -> dict[str, t.Any]:
    """What a member says of itself: {"hostname", "kind": of its accelerators, "gpu", "gpus": [UUID], "memory_mib", "ports": those that are
    active, "down": the others, "nvlink_domain", "refused": [outcome, code, reason] or None, "simulated", "identity", "nccl": settings that
    are its own}."""
    devices = rdma_ports.read_devices(node)
    ports = [port for device in devices for port in device["ports"]]
    near = rails.near(node, devices, seen["gpus"])
    own = gpu.kind(seen)
    return {
        "hostname": socket.gethostname(),
        "kind": own.kind,
        "gpu": gpu.model(seen) if seen["gpus"] else None,
        "gpus": [g["uuid"] or g["bdf"] for g in seen["gpus"]],
        "memory_mib": min((g.get("memory_total_mib") or 0 for g in seen["gpus"]), default=0),
        "ports": [
            {
                **{key: port[key] for key in ("device", "port", "link_layer", "rate_gbps")},
                "gids": [[g["index"], g["type"], g["address"]] for g in port["gids"]],
                "near": near[port["device"]],
            }
            for port in ports
            if port["state"] == "ACTIVE"
        ],
        "down": [{key: port[key] for key in ("device", "port")} for port in ports if port["state"] != "ACTIVE"],
        "nvlink_domain": own.domain(seen),
        "refused": gpu.refusal(seen, params["gpu_count"], what, params["mig"], kind),
        "simulated": bool(seen.get("simulated")),
        "identity": node.identity(),
        "nccl": own.settings(node, params["env"]),
    }


def _state(here: dict[str, t.Any], window: Window, ports: dict[tuple[str, int], dict[str, int]]) -> dict[str, t.Any] | None:
    """By what a head that comes again sees whether this is the node that it was and nothing has happened on it since (evidence.quiet)."""
    state = window.state()
    if state is None:
        return None
    errors = [[*port, {name: of[name] for name in perftest.COUNTERS["link_errors"] if name in of}] for port, of in ports.items()]
    text = json.dumps([boot_id(), here, state["counters"], errors], sort_keys=True)
    return {"counters": hashlib.sha256(text.encode()).hexdigest(), "log": state["log"]}


def _counters(node: Node, here: dict[str, t.Any]) -> dict[tuple[str, int], dict[str, int]]:
    return {(p["device"], p["port"]): rdma_ports.counters(node, p["device"], p["port"]) for p in here["ports"]}


def _risen(before: dict[tuple[str, int], dict[str, int]], after: dict[tuple[str, int], dict[str, int]]) -> list[dict[str, t.Any]]:
    """Counters of link errors that rose: evidence. Congestion and packets out of order belong to many nodes that talk at once."""
    found = []
    for (device, port), counted in after.items():
        for name in perftest.COUNTERS["link_errors"]:
            was, now = before[device, port].get(name), counted.get(name)
            if was is not None and now is not None and now > was:
                text = f"{device} port {port}: {name} rose from {was} to {now}"
                found.append({"code": "link_errors", "part": f"nic/{device}/{port}", "text": text, "before": was, "after": now})
    return found


def _as_member(variant: str, here: dict[str, t.Any], problem: str | None, evidence: dict[str, t.Any]) -> Observation:
    common: dict[str, t.Any] = {
        "variant": variant,
        "simulated": here["simulated"],
        "evidence": evidence,
        "context": {
            "gpu": here["gpu"],
            "gpus": len(here["gpus"]),
            "gpu_uuids": here["gpus"],
            "hostname": here["hostname"],
            "ports": here["ports"],
        },
    }
    if here["refused"]:
        outcome, code, reason = here["refused"]
        return observation.failed(member.CHECK, code, reason, outcome=outcome, **common)
    if problem:
        return observation.failed(member.CHECK, "partner", problem, **common)
    return observation.measured(member.CHECK, **common)
