# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A command under mpirun over nodes of a cluster, for use outside a run."""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import discovery
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups import group_module


class ActionModule(group_module.GroupAction):
    options = {
        **group_module.OPTIONS,
        "kind": {
            "type": "str",
            "choices": [discovery.AUTO, *reversed(discovery.ORDER)],
            "default": discovery.AUTO,
        },
        "queue": {"type": "str"},
    }
