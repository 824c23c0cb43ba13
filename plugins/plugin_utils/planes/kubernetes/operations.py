# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operations on the runs of a cluster, by modules that ask its API.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.upkeep import Operation, Upkeep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData


def show(upkeep: Upkeep) -> PlainData:
    """Show the pods of runs, and the last lines of their logs."""
    return upkeep.module("gpufleet.acceptance.kube_status", **upkeep.given("run_id", "stage", "node", "tail", "previous", "follow"))


def stop(upkeep: Upkeep) -> PlainData:
    """Remove all objects of one run, or of all runs."""
    return upkeep.module("gpufleet.acceptance.kube_cleanup", run_id=upkeep.run_id, all=not upkeep.run_id)


def restore(upkeep: Upkeep) -> PlainData:
    """Remove what no run will come for."""
    return upkeep.module("gpufleet.acceptance.kube_cleanup")


def cleanup(upkeep: Upkeep) -> PlainData:
    """Remove all objects of one run; if none is named, what no run will come for."""
    return upkeep.module("gpufleet.acceptance.kube_cleanup", run_id=upkeep.run_id)


def observability_preflight(upkeep: Upkeep) -> PlainData:
    """Show what of the storage is in the way of Prometheus."""
    return upkeep.module("gpufleet.acceptance.kube_storage", **upkeep.given("storage_class", "claims_namespace"))


OPERATIONS: dict[str, Operation] = {
    "status": show,
    "stop": stop,
    "logs": show,
    "restore": restore,
    "cleanup": cleanup,
    "observability_preflight": observability_preflight,
}
