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
    options = {"run_id": {"type": "str", "default": ""}}

    def act(self, client: Client, args: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        objects_of = cleanup.left_over(client)
        remaining: list[str] = []
        if self._task.check_mode:
            removed = [line for line in cleanup.report(client) if f"run {args['run_id']}" in line]
        elif args["run_id"]:
            count = len(objects_of.get(args["run_id"], []))
            remaining = cleanup.remove(client, cleanup.of_run(args["run_id"]))
            removed = [f"{client.name}: removed {count} objects of run {args['run_id']}"] if count else []
            removed += leases.give_back(client, leases.cordoned(client, args["run_id"]))
            removed += leases.give_back_systems(client, leases.systems(client, args["run_id"]))
        else:
            removed = cleanup.janitor(client)
            removed += leases.give_back_systems(client, filter(marks.abandoned, leases.systems(client)))
        for line in removed or [f"{client.name}: nothing to remove"]:
            Display().display(line)
        return {"changed": bool(removed), "removed": removed, "left": remaining}
