# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `nccl_fabric`: nccl-tests over groups of nodes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.observation import variant
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import grouping

Record = t.Dict[str, t.Any]


class NcclFabric(grouping.Grouped):
    name = "nccl_fabric"
    role = "gpufleet.acceptance.nccl_fabric"
    # A finding of its search is one too.
    conditions = grouping.Grouped.conditions | {"localise"}
    primary = ("busbw",)
    floor = ("busbw", "GB/s")

    def checks(self, wanted: Record) -> list[tuple[str, str]]:
        axes = (wanted["nccl_fabric_ops"], wanted["nccl_fabric_gpus"], wanted["nccl_fabric_sizes"], wanted["nccl_fabric_types"])
        return [(op, variant(gpus=gpus, sizes=sizes, type=type_)) for op, gpus, sizes, type_ in itertools.product(*axes)]

    def for_head(self, members: list[str], known: t.Mapping[str, Record]) -> Record:
        """The leaf switches of the members, for the search."""
        return {"topology": {node: known[node]["nccl_fabric_leaf"] for node in members if known[node].get("nccl_fabric_leaf")}}


STAGE = NcclFabric()
