# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removes what runs have left on a cluster."""

from __future__ import annotations

import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, leases, marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import kube_action


class ActionModule(kube_action.KubeAction):
    options = {"run_id": {"type": "str", "default": ""}, "all": {"type": "bool", "default": False}}

    def act(self, client: Client, args: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        objects_of = cleanup.left_over(client)
        systems = list(leases.systems(client))
        cordons = {node["metadata"]["labels"][leases.CORDONED] for node in leases.cordoned(client)}
        held = {lease["metadata"]["labels"][marks.RUN] for lease in systems}
        runs = sorted({*objects_of, *cordons, *held}) if args["all"] else list(filter(None, [args["run_id"]]))
        remaining: list[str] = []
        removed: list[str] = []
        if self._task.check_mode:
            removed = [line for line in cleanup.report(client) if any(f"run {run}:" in line for run in runs)]
        elif args["all"] or args["run_id"]:
            for run in runs:
                count = len(objects_of.get(run, []))
                remaining += cleanup.remove(client, cleanup.of_run(run))
                removed += [f"{client.name}: removed {count} objects of run {run}"] if count else []
                removed += leases.give_back(client, leases.cordoned(client, run))
                removed += leases.give_back_systems(client, leases.systems(client, run))
        else:
            removed = cleanup.janitor(client)
            removed += leases.give_back_systems(client, filter(marks.abandoned, systems))
        for line in removed or [f"{client.name}: nothing to remove"]:
            Display().display(line)
        return {"changed": bool(removed), "removed": removed, "left": remaining, "found": bool(removed)}
