# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `hccl_local`: hccl_test over the NPUs of every node by itself.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import sweep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Record, Stage


class HcclLocal(Stage):
    name = "hccl_local"
    role = "gpufleet.acceptance.hccl_local"
    primary = ("busbw",)
    devices = True

    def problem(self, settings: Record) -> str | None:
        return sweep.problem(self.name, settings, factor=2, iterations=0, warmup=0)


STAGE = HcclLocal()
