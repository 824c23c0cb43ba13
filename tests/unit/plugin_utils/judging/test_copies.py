# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copies between host and GPU are held to the link of GPU and slot in each of the checks of the default plan, whatever the GPU."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gpu_memory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import shipped

CHECKS = ("h2d", "d2h", "bidirectional")
SUPERCHIPS = [name for name in physics.PRODUCTS if "GH200" in name] + ["NVIDIA GB200", "NVIDIA GB300"]
CARDS = [name for name in physics.PRODUCTS if physics.gpu(name) and name not in SUPERCHIPS]


def expected(check: str, gpu: str, generation: int, lanes: int) -> float | None:
    seen = {"name": gpu, "virtual": False, "pcie": {"gen_max": generation, "width": lanes, "width_max": lanes}}
    context = {**gpu_memory._hardware(check, [seen], nvidia.Nvidia), "gpu": gpu}
    of_check = [one.expectation.value for one in shipped().choose("gpu_memory", check, context) if one.expectation.metric == "bandwidth"]
    return of_check[0] if of_check else None


@pytest.mark.parametrize("gpu", [*CARDS, *SUPERCHIPS, "NVIDIA A100-SXM4-80GB", "NVIDIA B300 SXM6 AC", "NVIDIA L40S", "Tesla T4"])
def test_both_directions_have_a_number_wherever_one_has(gpu: str) -> None:
    for generation, lanes in itertools.product(slots.PCIE, (8, 16)):
        found = {check: expected(check, gpu, generation, lanes) for check in CHECKS}
        assert len({value is None for value in found.values()}) == 1, (gpu, generation, lanes, found)
        spec = t.cast("physics.Gpu", physics.gpu(gpu))
        if (generation, lanes) == (min(spec.pcie[0], 5), 16):
            assert all(found.values()), (gpu, found)
        one_way, both = found["h2d"], found["bidirectional"]
        assert one_way is None or both is None or 0.45 * one_way <= both <= 0.95 * one_way


@pytest.mark.parametrize(("generation", "lanes"), [(5, 16), (4, 16), (3, 16), (5, 8), (4, 8), (3, 8)])
def test_a_link_with_half_of_its_lanes_cannot_reach_the_floor(generation: int, lanes: int) -> None:
    """0.88 of the payload rate is the most that DMA reaches (slots.REACHED)."""
    value = t.cast("float", expected("bidirectional", "NVIDIA H100 PCIe", generation, lanes))
    assert 0.9 * value > 0.88 * slots.rate(generation, lanes // 2)
