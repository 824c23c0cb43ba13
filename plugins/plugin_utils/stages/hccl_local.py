# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `hccl_local`: hccl_test over the NPUs of every node by itself.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import hccl_group
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import sweep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage


class HcclLocal(Stage):
    name = "hccl_local"
    role = "gpufleet.acceptance.hccl_local"
    place = 90
    level = ""
    devices = True
    sees_all_gpus = True
    sees: t.Mapping[str, tuple[str, ...]] = {"nvlink": ()}
    requestable = (*sweep.REQUESTABLE, "reduction")
    command_axes = sweep.AXES
    library = "HCCL"

    def problem(self, settings: Variables) -> str | None:
        return sweep.problem(self.name, settings, factor=2, iterations=0, warmup=0)

    def command(self, settings: Variables, nodes: int) -> list[str]:
        return command(self.name, settings, 1)


def command(stage: str, settings: Variables, nodes: int) -> list[str]:
    """Return a command of hccl_test over so many nodes."""
    op, gpus, type_ = sweep.first(stage, settings)
    words = [f"{op}_test", "-p", gpus if gpus.isdigit() else "NPUS", *sweep.sizes(stage, settings), "-d", type_]
    words += ["-o", str(settings[f"{stage}_reduction"])] if op in hccl_group.REDUCING else []
    return [*sweep.mpirun(gpus, nodes), *words, *sweep.counts(stage, settings)]


STAGE = HcclLocal()
