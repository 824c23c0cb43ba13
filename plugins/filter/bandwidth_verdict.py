# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filter plugin; the documentation stands in bandwidth_verdict.yml."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bandwidth import bandwidth_verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import ALONE, GROUP


def of_stages(measurement: t.Any, expectation: t.Any) -> dict[str, t.Any]:
    """Return the verdict on a measurement; the descriptions of the shipped stages say which of them measure one node, and which several."""
    names: dict[str, set[str]] = {}
    for stage in registry.shipped().values():
        names.setdefault(stage.topology, set()).add(stage.name)
    return bandwidth_verdict(measurement, expectation, single_node_stages=names[ALONE], multi_node_stages=names[GROUP])


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"bandwidth_verdict": of_stages}
