# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `nccl_node`: nccl-tests over the GPUs of every node.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_checks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import sweep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage


class NcclNode(Stage):
    name = "nccl_node"
    role = "gpufleet.acceptance.nccl_node"
    place = 20
    level = "quick"
    devices = True
    sees_all_gpus = True
    sees: t.Mapping[str, tuple[str, ...]] = {"nvlink": ()}
    requestable = sweep.REQUESTABLE
    command_axes = sweep.AXES
    library = "NCCL"
    quick = {"ops": ["all_reduce"], "types": ["float"], "gpus": ["all"], "sizes": ["1G:1G"], "test_timeout": 60, "timeout": 75}
    not_proven = "bandwidth at other sizes than 1 GiB and by other operations than all_reduce"

    def problem(self, settings: Variables) -> str | None:
        return sweep.problem(self.name, settings, nccl_checks.WIDTHS, factor=2, iterations=1, warmup=0)

    def command(self, settings: Variables, nodes: int) -> list[str]:
        op, gpus, type_ = sweep.first(self.name, settings)
        words = [f"{op}_perf", *sweep.sizes(self.name, settings), "-g", gpus if gpus.isdigit() else "GPUS"]
        return [*words, *sweep.counts(self.name, settings), "-d", type_, "-c", "1"]


STAGE = NcclNode()
