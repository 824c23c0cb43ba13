# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shows what runs are doing on a cluster."""

from __future__ import annotations

import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import kube_action


class ActionModule(kube_action.KubeAction):
    options = {
        "run_id": {"type": "str", "default": ""},
        "stage": {"type": "str", "default": ""},
        "node": {"type": "str", "default": ""},
        "tail": {"type": "int", "default": 0},
        "previous": {"type": "bool", "default": False},
        "follow": {"type": "float", "default": 0},
    }

    def act(self, client: Client, args: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        say = Display().display
        runs = [line for line in cleanup.report(client) if args["run_id"] in line]
        for line in runs or [f"{client.name}: no run has anything here"]:
            say(line)
        pods = list(kube_action.pods(client, kube_action.selector(args["run_id"], args["stage"]), args["node"]))
        for pod in pods:
            if args["tail"]:
                pod["log"] = kube_action.last_lines(client, pod, args["tail"], args["previous"])
            advice = f" [{pod['advice']}]" if pod["advice"] else ""
            say(f"  {pod['stage']:12} {pod['node'] or '-':24} {pod['phase']:10} {pod['pod']} {pod['words']}{advice}")
            for line in pod.get("log", []):
                say(f"    | {line}")
        if args["follow"]:
            kube_action.follow(client, pods, args["follow"], say)
        return {"runs": runs, "pods": pods, "found": bool(runs or pods)}
