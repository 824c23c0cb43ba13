# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL between nodes, with the tool that is there: nccl-tests under mpirun, or PyTorch.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import collective, membership
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

HEADS: dict[str, type[collective.GroupHead]] = {"nccl-tests": collective.GroupHead, "torch": ddp.TorchHead}


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """On the head one observation per check of the group, and one per finding of the search; on every node its own as a member."""
    head = HEADS[params["tool"]]

    def measure(local_facts: dict[str, t.Any] | None, checks: list[dict[str, str]]) -> t.Iterator[Observation]:
        return head(params, node, local_facts).measure(checks)

    yield from membership.take_part(params, node, measure, nccl.WHAT, nccl.KINDS)
