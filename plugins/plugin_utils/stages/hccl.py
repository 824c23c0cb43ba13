# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `hccl`: hccl_test over groups of nodes with Ascend NPUs, after each of them by itself.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import hccl_local, sweep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.nccl_fabric import NcclFabric


class Hccl(NcclFabric):
    """As the other stage of collectives between nodes, by another tool."""

    name = "hccl"
    role = "gpufleet.acceptance.hccl"
    place = 95
    level = ""
    types = ()
    before = (hccl_local.STAGE.name,)
    leaf_rank = 1
    requestable = (*sweep.REQUESTABLE, "reduction", "localise", "repeats")
    requested_before = ()
    library = "HCCL"

    def command(self, settings: Variables, nodes: int) -> list[str]:
        return hccl_local.command(self.name, settings, nodes)


STAGE = Hccl()
