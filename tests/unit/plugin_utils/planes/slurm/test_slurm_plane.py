# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plane as shared code sees it."""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry as stages


def test_what_the_plane_takes_and_refuses() -> None:
    plane = registry.shipped()["slurm"]
    assert registry.unsupported_variables(plane, ["acceptance_nodes", "acceptance_slurm_qos", "acceptance_kube_image"]) == [
        "acceptance_kube_image"
    ]
    kubernetes = registry.shipped()["kubernetes"]
    assert registry.unsupported_variables(kubernetes, ["acceptance_nodes", "acceptance_slurm_qos"]) == ["acceptance_slurm_qos"]
    refused = {name for name, stage in stages.shipped().items() if plane.refuses(stage)}
    assert refused == {"gpu_sharing"}
    of = stages.shipped()
    assert plane.why_not_detachable("lab", {}, [of["gemm"], of["soak"]]) is None
    assert "stage rdma runs between nodes and needs its controller" in (plane.why_not_detachable("lab", {}, [of["gemm"], of["rdma"]]) or "")
    assert plane.problem("lab", {"acceptance_slurm_extra": ["-w"]}, []) and plane.problem("lab", {}, []) is None
