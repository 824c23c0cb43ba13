# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operations on the runs of a machine behind SSH, by modules that run on the machine.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.upkeep import Operation, Upkeep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import sent_back
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData


def _sessions(upkeep: Upkeep, **args: t.Any) -> PlainData:
    return upkeep.module("gpufleet.acceptance.node_sessions", state_dir=upkeep.variable("acceptance_state_dir"), **args)


def _run_ids(upkeep: Upkeep) -> list[str]:
    return [upkeep.run_id] if upkeep.run_id else []


def status(upkeep: Upkeep) -> PlainData:
    """Show what holds the machine."""
    return _sessions(upkeep, run_ids=_run_ids(upkeep))


def stop(upkeep: Upkeep) -> PlainData:
    """End one run or all runs."""
    return _sessions(upkeep, state="ended", run_ids=_run_ids(upkeep), all=not upkeep.run_id)


def restore(upkeep: Upkeep) -> PlainData:
    """End runs whose controller is gone, and undo what killed ones have left."""
    ended = _sessions(upkeep, state="ended", abandoned=True)
    if ended.get("failed"):
        return ended
    undone = upkeep.module(
        "gpufleet.acceptance.cpu_governor",
        state="restored",
        state_dir=upkeep.variable("acceptance_state_dir"),
        root=upkeep.variable("acceptance_root", "/"),
    )
    would_undo = upkeep.check_mode and ended.get("pending")
    return {**ended, **undone, "changed": bool(ended.get("changed") or undone.get("changed") or would_undo)}


def support_files(upkeep: Upkeep) -> PlainData:
    """Collect what goes with a part of the machine that is sent back, if the punch list has one."""
    results_dir = str(upkeep.variable("acceptance_results_dir", "results"))
    if not sent_back.nodes(results_dir, upkeep.host):
        return {"skipped": True, "skip_reason": "the punch list has no open row of a part of it"}
    tools = {name: upkeep.variable(f"acceptance_{name}", spec["default"]) for name, spec in registry.OPTIONS.items()}
    return upkeep.module(
        "gpufleet.acceptance.support_files",
        results_dir=results_dir,
        bug_report=upkeep.variable("acceptance_bug_report", False),
        timeout=upkeep.variable("acceptance_bug_report_timeout", 600),
        max_mib=upkeep.variable("acceptance_bug_report_mib", 32),
        state_dir=upkeep.variable("acceptance_state_dir"),
        root=upkeep.variable("acceptance_root", "/"),
        **tools,
    )


OPERATIONS: dict[str, Operation] = {"status": status, "stop": stop, "restore": restore, "support_files": support_files}
