# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides if the pods of a stage hold the devices of their nodes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage


def asks_for_devices(stage: Stage, settings: t.Mapping[str, t.Any]) -> bool:
    """Return True if the pods of a stage hold the devices of their nodes: by `acceptance_kube_gpu_stages`, else by the stage itself. A
    stage that only looks at the devices must hold them too where a pod that requests none would see none."""
    stages = settings.get("acceptance_kube_gpu_stages")
    if stages is not None:
        return stage.name in stages
    return stage.devices or (stage.sees_all_gpus and not _shows_devices(settings))


def _shows_devices(settings: t.Mapping[str, t.Any]) -> bool:
    """Return True if a pod that requests no device is shown the devices of its node. A runtime class is taken to do so."""
    resource = str(settings.get("acceptance_kube_resource") or accelerators.DEFAULT.resource)
    return bool(settings.get("acceptance_kube_runtime_class")) or accelerators.of_resource(resource).shown_without_request
