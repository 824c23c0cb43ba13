# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Says what of a cluster's storage holds up an installation or upgrade of Prometheus."""

from __future__ import annotations

import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import storage
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import kube_action


class ActionModule(kube_action.KubeAction):
    options = {
        "storage_class": {"type": "str", "default": "csi-s3"},
        "claims_namespace": {"type": "str", "default": "monitoring"},
    }

    def act(self, client: Client, args: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        blocking = storage.blocking(client, args["storage_class"], args["claims_namespace"])
        for line in blocking:
            Display().display(f"{client.name}: {line}", color="yellow")
        if not blocking:
            return {"blocking": blocking, "msg": f"nothing in namespace {args['claims_namespace']} is in the way"}
        advice = "nothing was changed or deleted; what to do: docs/observability.md"
        return {"failed": True, "blocking": blocking, "msg": f"{len(blocking)} in the way, the first: {blocking[0]}; {advice}"}
