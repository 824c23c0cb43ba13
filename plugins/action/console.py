# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Puts the console on a cluster, or takes it away."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.installing import Installer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import kube_action


class ActionModule(kube_action.KubeAction):
    options = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "manifests": {"type": "list", "elements": "dict", "required": True},
        "wait": {"type": "float", "default": 300.0},
    }

    def act(self, client: Client, args: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        installer = Installer(client, dry_run=bool(self._task.check_mode))
        if args["state"] == "absent":
            installer.absent(args["manifests"])
        else:
            installer.present(args["manifests"])
            installer.ready(args["manifests"], args["wait"])
        changes = installer.changed
        return {"changed": bool(changes), "done": changes, "msg": "; ".join(changes) or "nothing had to be changed"}
