# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The output of healthy ranks of the stage ddp, changed in one thing or another, as the head of their group reads it."""

from __future__ import annotations

import json
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.modules.ddp import OPTIONS

WORLD = 4
MEMBERS = [{"name": f"gpu-0{n}", "address": f"10.0.0.{n}", "hostname": f"gpu-0{n}", "gpus": 2, "local": n == 1} for n in (1, 2)]
GIVEN = {
    "members": MEMBERS, "collectives": ["all_reduce", "all_gather"], "types": ["int32", "bfloat16"], "elements": 4096, "rounds": 3,
    "sizes": "1M:4M", "steps": 30, "backend": "nccl", "straggler_percent": 10.0,
}  # fmt: skip
CHECKS = ("collectives", "all_reduce", "training", "pace")
Record = t.Dict[str, t.Any]
Change = t.Callable[[Record], "Record | list[Record] | None"]


def records() -> list[Record]:
    """As four healthy ranks on two nodes print it."""
    where = [{"rank": n, "node": f"gpu-0{n // 2 + 1}"} for n in range(WORLD)]
    said: list[Record] = [{"kind": "node", "node": f"gpu-0{n}", "torch": "2.11.0", "nccl": "2.28.9"} for n in (1, 2)]
    said += [{"kind": "rank", **one, "world": WORLD, "local": one["rank"] % 2, "uuid": "", "device": "NVIDIA H200"} for one in where]
    for op in ("all_reduce", "all_gather"):
        for kind in ("int32", "bfloat16"):
            said.append({"kind": "checked", "op": op, "type": kind, "elements": 4096 * WORLD * 3, "wrong": 0, "ranks": [], "senders": {},
                         "example": "", "unsupported": ""})  # fmt: skip
    for size in (1 << 20, 1 << 22):
        row = {"op": "all_reduce", "type": "float32", "size": size, "time_us": size / 1e5, "algbw": 100.0, "busbw": 150.0}
        said.append({"kind": "bandwidth", **row})
    said.append({"kind": "training", "steps": 30, "finite": True, "identical": True, "repeatable": True, "odd": [], "first": 1.0,
                 "last": 0.2, "ratio": 0.2, "seed": 1})  # fmt: skip
    said += [{"kind": "pace", **one, "compute_ms": 30.0, "step_ms": 40.0, "communication_ms": 10.0} for one in where]
    return said + [{"kind": "end", **one} for one in where]


def told(change: Change | None = None, given: Record | None = None, rc: int = 0, **of_job: t.Any) -> ddp.LaunchReport:
    """`change` is shown each record, and says what stands in its place; nothing for the record itself."""
    validated = ArgumentSpecValidator(OPTIONS).validate({**GIVEN, **(given or {})})
    assert not validated.error_messages, validated.error_messages
    params = validated.validated_parameters
    head = ddp.Trainer(params, Node(60), None)
    head.group.folder, head.group.ssh = "/nonexistent/folder", ["ssh"]
    job = head.launch_of(ddp.default_checks(params), head.group.members, [0, 1], 60)
    lines = []
    for record in records():
        new = change(record) if change else None
        lines += [record] if new is None else new if isinstance(new, list) else [new]
    job.out, job.rc = "".join(json.dumps(line) + "\n" for line in lines), rc
    for name, value in of_job.items():
        setattr(job, name, value)
    return ddp.LaunchReport(head, job)


def on_another_node(one: Record) -> Record | None:
    return {**one, "node": "gpu-07"} if one.get("rank") == 3 else None


def slow_from(first: int) -> Change:
    """Return a change by which this rank and all after it compute a fifth slower."""
    return lambda one: {**one, "compute_ms": 36.0} if one["kind"] == "pace" and one["rank"] >= first else None


def of_another_world(one: Record) -> Record | None:
    return {**one, "world": 2} if one["kind"] == "rank" else None


def twice(one: Record) -> list[Record] | None:
    return [one, one] if one["kind"] == "rank" and one["rank"] == 1 else None


def on_one_gpu(one: Record) -> Record | None:
    return {**one, "uuid": "GPU-0" if one["rank"] < 2 else f"GPU-{one['rank']}"} if one["kind"] == "rank" else None


def killed_later(one: Record) -> list[Record] | None:
    if one["kind"] == "end" and one["rank"] == 3:
        return [{"kind": "ended", "node": "gpu-02", "rank": 3, "local": 1, "exitcode": -9}]
    return None


def one_of(kind: str, number: int, **new: t.Any) -> Change:
    """The so manieth record of a kind is another, or, with nothing new, is not there."""
    seen = iter(range(99))
    return lambda one: ({**one, **new} if new else []) if one["kind"] == kind and next(seen) == number else None
