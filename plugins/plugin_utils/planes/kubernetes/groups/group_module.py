# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules mpijob and kube_group_job: one command over nodes of a cluster, by mpirun or by one agent on each node.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import itertools
import re

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access, cleanup, discovery, inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups import group_objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups.group import (
    GroupLaunch,
    GroupResult,
    launched,
    short_name,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import kube_action
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver, node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import new_run_id

OPTIONS: Object = {
    "command": {"type": "list", "elements": "str", "required": True},
    "image": {"type": "str"},
    "name": {"type": "str"},
    "nodes": {"type": "list", "elements": "str", "default": []},
    "selector": {"type": "str", "default": inventory.SELECTOR},
    "node_count": {"type": "int"},
    "world_size": {"type": "int"},
    "gpus_per_node": {"type": "int"},
    "ranks_per_node": {"type": "int"},
    "env": {"type": "dict", "default": {}},
    "mpirun": {"type": "str", "default": "mpirun"},
    "mpi_args": {"type": "list", "elements": "str", "default": []},
    "start": {"type": "str", "choices": ["mpirun", "agents"], "default": "mpirun"},
    "timeout": {"type": "float", "default": 600.0},
    "join_timeout": {"type": "float", "default": 60.0},
    "ssh_port": {"type": "int", "default": group_objects.SSH_PORT},
    "pods": {"type": "dict", "default": {}},
}
# (lowest, highest) allowed value of options that are numbers.
_BOUNDS: dict[str, tuple[float, float]] = {
    "node_count": (1, float("inf")),
    "world_size": (1, float("inf")),
    "gpus_per_node": (0, float("inf")),
    "ranks_per_node": (1, float("inf")),
    "timeout": (1, float("inf")),
    "join_timeout": (1, float("inf")),
    "ssh_port": (1, 65535),
}
_NCCL_TESTS = re.compile(r"^# ?nThread|^# nccl-tests version|out-of-place\s+in-place", re.MULTILINE)


class GroupAction(kube_action.KubeAction):
    """The action of both modules. The launcher is the argument `kind`, else that of the module."""

    kind = discovery.AUTO

    def act(self, client: Client, args: Object, variables: Object) -> Object:
        overrides = {of_variables.PREFIX + name: value for name, value in args["pods"].items()}
        if args["image"]:
            overrides[of_variables.PREFIX + "image"] = args["image"]
        pods = of_variables.pods({**variables, **overrides})
        if not args["command"]:
            raise KubeError("bad_spec", "command: found an empty list, expected a program and its arguments")
        for name, (lowest, highest) in _BOUNDS.items():
            if args[name] is not None and not lowest <= args[name] <= highest:
                raise KubeError(
                    "bad_spec", f"{name}: found {args[name]}, expected at least {lowest:g}" + f" and at most {highest:g}" * (highest < 1e9)
                )
        access.require(client, (), access.NODES)
        choice = discovery.choose(client, args.get("kind") or self.kind)
        nodes, workers, devices = _placement(client, pods, args)
        ranks = args["ranks_per_node"] or max(1, devices)
        shape = group_objects.Shape(
            choice.kinds[0], args["name"] or short_name(new_run_id()), nodes, workers, devices, ranks, args["ssh_port"],
            args.get("queue") or "", args.get("mpi_implementation") or "OpenMPI",
        )  # fmt: skip
        shape.check()
        if self._task.check_mode:
            return {"launcher": shape.kind, "why": choice.why, "would_run": {"nodes": nodes, "workers": workers, "ranks": workers * ranks}}
        cleanup.janitor(client)
        answer, remaining = self._launched(client, pods, shape, choice, args)
        returned = _returned(answer, args["command"], workers * ranks)
        if returned["outcome"] != "measured":
            # Without this, Ansible fails the task for its rc, without a message.
            returned.update(failed=True, msg=returned["reason"])
        return {**returned, "why": choice.why, "left": remaining}

    def _launched(
        self, client: Client, pods: PodSettings, shape: group_objects.Shape, choice: discovery.Choice, args: Object
    ) -> tuple[GroupResult, list[str]]:
        """Return the group's result by the first launcher whose controller acts on it, and the objects that are left."""

        def head(seats: list[Object]) -> Object:
            return {
                "members": [{"name": s["node"], "address": s["address"], "host": s["host"], "gpus": shape.slots} for s in seats],
                "argv": args["command"],
                "env": args["env"],
                "ranks_per_node": shape.slots,
                "launcher": args["start"],
                "mpirun": args["mpirun"],
                "mpi_args": args["mpi_args"],
                "command_timeout": args["timeout"],
                "join_timeout": args["join_timeout"],
            }

        # The group needs time to gather and to start the ranks twice, in addition to the command's own time.
        timeout = args["timeout"] + args["join_timeout"] + 90.0
        stage = self._task.action.rsplit(".", 1)[-1]

        def make(kind: str) -> GroupLaunch:
            return GroupLaunch(
                client, pods, dataclasses.replace(shape, kind=kind), new_run_id(), stage, timeout, payload.archive(), {}, head
            )

        try:
            return launched(choice.kinds, make, driver.parent(), client.name, choice.why.append)
        except KubeError as error:
            if error.reason_code == "bad_spec":  # the arguments are wrong, which fails the task
                raise
            refusal = node_messages.refused(error.reason_code, error.reason)
            return GroupResult(refusal, {"launcher": shape.kind, "name": shape.name}, {}), []


def _placement(client: Client, pods: PodSettings, args: Object) -> tuple[list[str], int, int]:
    """Return the names of usable nodes, the number of workers, and the devices of each. Raise KubeError if the arguments do not fit the
    cluster, also if a named node, or a node of the whole selection, cannot be used."""
    present = {node.name: node for node in inventory.nodes(client, "" if args["nodes"] else args["selector"], pods.resource)}
    names = args["nodes"] or sorted(present)
    min_devices = args["gpus_per_node"] or 0

    def why_not(node: inventory.ClusterNode) -> inventory.Why | None:
        obstacle = inventory.obstacle(node, pods.tolerations, args["gpus_per_node"] != 0, pods.resource)
        if obstacle or min_devices <= node.devices:
            return obstacle
        return "gpu_count", f"node {node.name} has {node.devices} {pods.resource}, gpus_per_node asks for {min_devices}"

    usable, problems = inventory.usable(names, present.values(), why_not, lambda name: ("node_absent", f"the cluster has no node {name}"))
    able = list(usable)
    if not names:
        raise KubeError("node_absent", f"{client.name}: selector {args['selector']} matches no node")
    devices = args["gpus_per_node"]
    if devices is None:
        counts = {present[name].devices for name in able}
        if len(counts) > 1:
            counts_by_node = ", ".join(f"{name}: {present[name].devices}" for name in able[:20])
            raise KubeError(
                "gpu_count", f"{client.name}: the nodes have unlike numbers of {pods.resource}, {counts_by_node}: set gpus_per_node"
            )
        devices = next(iter(counts), 0)
    workers = args["node_count"]
    if args["world_size"]:
        each = args["ranks_per_node"] if args["ranks_per_node"] and args["ranks_per_node"] > 1 else devices
        if not each or args["world_size"] % each:
            raise KubeError("bad_spec", f"world_size: found {args['world_size']}, expected a multiple of the {each} GPUs of a node")
        if workers and workers != args["world_size"] // each:
            raise KubeError("bad_spec", f"world_size {args['world_size']} is {args['world_size'] // each} nodes, node_count is {workers}")
        workers = args["world_size"] // each
    problem_words = "; ".join(f"{name}: {reason}" for name, (_code, reason) in problems.items())
    if problems and (workers is None or args["nodes"]):
        code = next(iter(problems.values()))[0]
        raise KubeError(code, f"{client.name}: {len(problems)} of {len(names)} nodes cannot be used: {problem_words}")
    workers = workers or len(able)
    if workers > len(able):
        suffix = f"; {problem_words}" if problem_words else ""
        raise KubeError("node_absent", f"{client.name}: {workers} nodes were asked for, {len(able)} of {len(names)} can be used{suffix}")
    return able, workers, devices


def _returned(answer: GroupResult, command: list[str], ranks: int) -> Object:
    """Return the result of the module from that of the group."""
    launch_facts = {key: answer.launch_facts.get(key) for key in ("launcher", "name", "nodes", "image", "image_id")}
    result = answer.result
    observation = next((item for item in result.get("observations") or [] if isinstance(item, dict)), None)
    if observation is None:
        code = str(result.get("reason_code") or "no_result")
        reason = str(result.get("reason") or result.get("fault") or result.get("end") or "the head of the group said nothing")
        return {**launch_facts, "outcome": "error", "reason_code": code, "reason": reason, "rc": None, "stdout": "", "stderr": ""}
    context = observation.get("context") or {}
    returned: Object = {
        **launch_facts,
        **{key: observation.get(key) for key in ("outcome", "reason_code", "reason")},
        "rc": context.get("rc"),
        "stdout": str(context.get("stdout") or ""),
        "stderr": str(context.get("stderr") or ""),
        "ranks": context.get("ranks") or context.get("hosts") or {},
        "mpi": context.get("launcher"),
        "cmd": observation.get("command"),
        "duration_s": observation.get("duration_s"),
        "simulated": bool(observation.get("simulated")),
    }
    if returned["rc"] is not None and _NCCL_TESTS.search(returned["stdout"]):
        returned["nccl"] = nccl_tests.parse(returned["stdout"], rc=returned["rc"], expect_ranks=ranks * _gpus_of_a_rank(command))
        if returned["outcome"] == "measured" and returned["nccl"]["outcome"] != "measured":
            returned.update({key: returned["nccl"][key] for key in ("outcome", "reason_code", "reason")})
    if returned["outcome"] == "measured" and context.get("cut"):
        returned.update(outcome="error", reason_code="incomplete_output", reason="the command printed more than comes back")
    return returned


def _gpus_of_a_rank(command: list[str]) -> int:
    """Return the number of GPUs that each rank of nccl-tests drives (its option -g)."""
    for option, value in itertools.pairwise(command):
        if option in ("-g", "--ngpus") and value.isdigit():
            return int(value)
    return 1
