# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plane `slurm`: an inventory host is a Slurm cluster, its nodes are found by its client commands, and a stage is jobs on
them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import base
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeControl
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import operations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlannedRun, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import (
    ALONE,
    CLUSTER,
    GROUP,
    MANIFEST,
    ROUNDS,
    TOGETHER,
    Stage,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range


class Slurm(base.Plane):
    name = "slurm"
    connection_variables = frozenset({"acceptance_slurm_ssh"})
    variables = ("acceptance_slurm_", "acceptance_nodes", "acceptance_node_vars")
    ranges: t.Mapping[str, Range] = {
        "acceptance_slurm_time": Range(0, 525600),
        "acceptance_slurm_wait": Range(1, 2592000),
        "acceptance_slurm_nodes_per_job": Range(1, 65533),
    }
    nodes_behind = True
    operations = operations.OPERATIONS

    def subjects(self, host: str, settings: Variables) -> base.Subjects:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import inventory

        names, notes = inventory.subjects(host, settings)
        return base.Subjects([f"{host}/{name}" for name in names], notes)

    def reachability_domain(self, host: str) -> str:
        return host

    def select(self, host: str, settings: Variables, entry: t.Mapping[str, t.Any]) -> list[str]:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import inventory

        return [f"{host}/{name}" for name in inventory.select(host, settings, entry)]

    def problem(self, host: str, settings: Variables, stages: t.Sequence[Stage]) -> str | None:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import settings as of_variables

        try:
            of_variables.of(host, settings)
            of_variables.selection(host, settings)
        except RunError as error:
            return str(error)
        return None

    def chosen(self, nodes: t.Sequence[str]) -> Variables:
        return {"acceptance_nodes": {"names": list(nodes), "expected": list(nodes)}}

    def refuses(self, stage: Stage) -> str | None:
        return "it is made of objects of a Kubernetes API" if stage.topology in (MANIFEST, CLUSTER) else None

    def why_not_detachable(self, host: str, settings: Variables, stages: t.Sequence[Stage]) -> str | None:
        between = [stage.name for stage in stages if stage.topology != ALONE]
        if between:
            return f"stage {between[0]} runs between nodes and needs its controller; leave it out, by --skip-tags for example"
        return None

    def node_control(self, host: str, variable: t.Callable[[str], t.Any]) -> NodeControl:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import client, control
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import settings as of_variables

        settings = of_variables.of(host, {name: variable(name) for name in self.connection_variables})
        return control.SlurmControl(client.Client(host, settings.ssh))

    def preflight(self, host: str, settings: Variables, stages: t.Sequence[Stage]) -> list[str]:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import preflight

        return preflight.lines(host, settings) if any(not self.refuses(stage) for stage in stages) else []

    def on(self, action: t.Any, planned: PlannedRun, task_vars: Variables) -> base.StageOnTarget:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import beginning, groups, nodes, rounds

        how: dict[str, type[nodes.StageOnSlurm]] = {
            ALONE: nodes.StageOnSlurm,
            ROUNDS: rounds.RoundsOnSlurm,
            TOGETHER: beginning.BeginningOnSlurm,
            GROUP: groups.GroupsOnSlurm,
        }
        return how[registry.of(task_vars["acceptance_stage"]).topology](action, planned, task_vars, self.name)


PLANE = Slurm()
