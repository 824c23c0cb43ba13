# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of check mode about a Slurm cluster: nodes on which no job starts, and whether Slurm would take a job of ours.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client, SlurmError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

SHOWN = 10
# A job of a minute: whether a longer one is refused depends on the stage.
TRIED_S = 0.0


def lines(host: str, variables: t.Mapping[str, t.Any]) -> list[str]:
    """Return a line for each node on which no job starts, at most SHOWN. Raise RunError, in Slurm's words, if it refuses a job on the
    first of the others: `srun --test-only` starts nothing."""
    settings = of_variables.of(host, variables)
    client = Client(host, settings.ssh)
    try:
        nodes = inventory.selected(client.nodes(), settings, of_variables.selection(host, variables))
    except SlurmError as error:
        return [error.reason]
    obstacles = {node.name: node.obstacle(settings.reservation) for node in nodes}
    free = [node for node in nodes if not obstacles[node.name]]
    if free:
        job = settings.job("gpufleet-check", "gpufleet.acceptance check", [free[0].name], free[0].gpus, TRIED_S)
        try:
            client.run(job[0], "--test-only", *job[1:], settings.python)
        except SlurmError as error:
            raise RunError(f"{error.reason}; tried on node {free[0].name} without starting a job") from error
    refused = [f"{host}: {obstacle[1]}" for obstacle in obstacles.values() if obstacle]
    more = [f"{host}: no job starts on {len(refused) - SHOWN} more nodes"] if len(refused) > SHOWN else []
    return [*refused[:SHOWN], *more]
