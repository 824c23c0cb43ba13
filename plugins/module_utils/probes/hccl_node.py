# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HCCL between the NPUs of one node, by hccl_test under mpirun: a group of one (hccl_group.py).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import membership
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import hccl_group
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the default checks of this node or of a group, for a call that names none."""
    variant = observation.variant(gpus=params["gpus"], sizes=params["sizes"], type=params["type"])
    return [{"check": op, "variant": variant} for op in params["ops"]]


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """One observation per check, over the NPUs of this node."""
    snapshot = gpu.snapshot(node)
    local_facts = membership.describe(snapshot, {**params, "mig": "refused"}, node, hccl_group.WHAT, hccl_group.KINDS)
    refusal = local_facts["refused"]
    if not refusal and len(local_facts["gpus"]) == 1:
        refusal = ("not_applicable", "single_gpu", "one NPU: there is no link to measure")
    group_params = {
        **params, "token": "", "key": None, "group": "", "members": [_only_member(local_facts)], "ssh_args": [], "join_timeout": 10.0,
        "floors": [], "localise": False, "parallel": 1,
    }  # fmt: skip
    for check in params["checks"]:
        if refusal:
            outcome, code, reason = refusal
            gpu_context = {"gpu": local_facts["gpu"], "gpus": len(local_facts["gpus"])} if local_facts["gpus"] else {}
            yield observation.failed(
                check["check"], code, reason, outcome, variant=check["variant"], simulated=local_facts["simulated"], context=gpu_context
            )
            continue
        with Window(node, snapshot) as window:
            observations = list(LocalHead(group_params, node, local_facts).measure([check]))
        for record in observations:
            yield {**record, "evidence": window.evidence()}
        if window.after["outcome"] == "measured":
            snapshot = window.after  # what changed during one test must not be held against the next


def _only_member(local_facts: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return this node as the only member of a group. mpirun starts the ranks of `localhost` without ssh."""
    hostname, gpus = local_facts["hostname"], len(local_facts["gpus"])
    return {"name": hostname, "address": "localhost", "hostname": hostname, "local": True, "gpus": gpus}


class LocalHead(hccl_group.HcclHead):
    """Measures one node by itself."""

    stage = "hccl_local"
    min_nodes = 1

    def subject_of(self) -> dict[str, t.Any] | None:
        return None
