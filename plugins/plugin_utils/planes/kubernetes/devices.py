# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides if the pods of a stage hold the devices of their nodes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage


def asks_for_devices(stage: Stage, settings: t.Mapping[str, t.Any]) -> bool:
    """Return True if the pods of a stage hold the devices of their nodes: by `acceptance_kube_gpu_stages`, else by the stage itself."""
    stages = settings.get("acceptance_kube_gpu_stages")
    return stage.devices if stages is None else stage.name in stages
