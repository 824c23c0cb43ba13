# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HCCL between the NPUs of one node, by hccl_test under mpirun: a group of one (probes/hccl.py).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import gpu, membership, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import hccl

Observation = t.Dict[str, t.Any]


def default_checks(params: dict[str, t.Any]) -> list[dict[str, str]]:
    """The checks of a call that names none, here and over a group."""
    variant = observation.variant(gpus=params["gpus"], sizes=params["sizes"], type=params["type"])
    return [{"check": op, "variant": variant} for op in params["ops"]]


def probe(params: dict[str, t.Any], node: Node) -> t.Iterator[Observation]:
    """One observation per check, over the NPUs of this node."""
    seen = gpu.snapshot(node)
    here = membership.describe(seen, {**params, "mig": "refused"}, node, hccl.WHAT, hccl.KIND)
    refusal = here["refused"]
    if not refusal and len(here["gpus"]) == 1:
        refusal = ("not_applicable", "single_gpu", "one NPU: there is no link to measure")
    told = {
        **params, "token": "", "key": None, "group": "", "members": [_seat(here)], "ssh_args": [], "join_timeout": 10.0, "floors": [],
        "localise": False, "parallel": 1,
    }  # fmt: skip
    for check in params["checks"]:
        if refusal:
            outcome, code, reason = refusal
            about = {"gpu": here["gpu"], "gpus": len(here["gpus"])} if here["gpus"] else {}
            yield observation.failed(
                check["check"], code, reason, outcome, variant=check["variant"], simulated=here["simulated"], context=about
            )
            continue
        with Window(node, seen) as window:
            found = list(Alone(told, node, here).measure([check]))
        for one in found:
            yield {**one, "evidence": window.evidence()}
        if window.after["outcome"] == "measured":
            seen = window.after  # what changed during one test must not be held against the next


def _seat(here: dict[str, t.Any]) -> dict[str, t.Any]:
    """This node as the one member of a group; mpirun starts what is for `localhost` without ssh."""
    return {"name": here["hostname"], "address": "localhost", "hostname": here["hostname"], "local": True, "gpus": len(here["gpus"])}


class Alone(hccl.Head):
    """Measures one node by itself."""

    stage = "hccl_local"
    least = 1

    def _subject(self) -> dict[str, t.Any] | None:
        return None
