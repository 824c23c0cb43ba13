# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `nccl_node`: nccl-tests over the GPUs of every node.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import sweep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Record, Stage


class NcclNode(Stage):
    name = "nccl_node"
    role = "gpufleet.acceptance.nccl_node"
    primary = ("busbw",)
    devices = True

    def problem(self, settings: Record) -> str | None:
        return sweep.problem("nccl_node_sizes", settings["nccl_node_sizes"])


STAGE = NcclNode()
