# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A probe on nodes of a cluster, for use outside a run."""

from __future__ import annotations

import importlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import probing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access, inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import kube_action, objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import NodeProbe, NodeRequest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import new_run_id


class ActionModule(kube_action.KubeAction):
    options = {
        "probe": {"type": "str", "required": True, "choices": ["stack_facts", "nccl_tests", "gemm", "measure"]},
        "args": {"type": "dict", "default": {}},
        "image": {"type": "str"},
        "nodes": {"type": "list", "elements": "str", "default": []},
        "selector": {"type": "str", "default": inventory.SELECTOR},
        "devices": {"type": "bool", "default": False},
        "pods": {"type": "dict", "default": {}},
    }

    def act(self, client: Client, args: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        pod_variables = {of_variables.PREFIX + name: value for name, value in args["pods"].items()}
        if args["image"]:
            pod_variables[of_variables.PREFIX + "image"] = args["image"]
        pods = of_variables.pods({**variables, **pod_variables})
        inside = {"root": objects.HOST if pods.host_root else "/", "state_dir": f"{objects.WORK}/state"}
        try:
            request = payload.request(args["probe"], payload.options(args["probe"]), {**args["args"], **inside})
        except ValueError as error:
            raise KubeError("bad_spec", f"args: {error}") from error
        if not request["params"].get("checks"):
            request["params"]["checks"] = _default_checks(request)
        if self._task.check_mode:
            return {"nodes": {}, "left": [], "would_run": request["params"]}
        access.require(client, [*access.PROBE, *access.LAUNCHERS[pods.launcher]], access.NODES)
        nodes = list(inventory.nodes(client, "" if args["nodes"] else args["selector"], pods.resource))
        able, refused = inventory.usable(
            args["nodes"] or sorted(node.name for node in nodes), nodes,
            lambda node: inventory.obstacle(node, pods.tolerations, args["devices"], pods.resource),
            lambda _name: ("node_absent", "no such node"),
        )  # fmt: skip
        requests = [NodeRequest(name, request, node.devices if args["devices"] else 0) for name, node in able.items()]
        answers: dict[str, t.Any] = {
            name: {"state": "refused", "reason_code": code, "reason": reason, "observations": []}
            for name, (code, reason) in refused.items()
        }
        if not requests and not answers:
            raise KubeError("node_absent", f"{client.name}: selector {args['selector']} matches no node")
        leftovers: list[str] = []
        if requests:
            probe = NodeProbe(client, pods, new_run_id(), args["probe"], float(request["params"]["timeout"]), payload.archive())
            try:
                for together in probe.run(requests):
                    answers.update({result.node: {"observations": [], **result.result, "pod": result.pod} for result in together})
            finally:
                leftovers = probe.clean()
        return {"nodes": answers, "left": leftovers}


def _default_checks(request: dict[str, t.Any]) -> list[dict[str, str]]:
    """Those of a call of the probe module that names none."""
    probe_module = importlib.import_module(probing.module_of(request["probe"]))
    return list(probe_module.default_checks(request["params"])) if hasattr(probe_module, "default_checks") else []
