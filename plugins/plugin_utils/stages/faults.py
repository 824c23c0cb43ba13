# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The classes of faults that stages can show, with the share of defects in the field that others published.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage

# Microsoft, SuperBench (USENIX ATC 2024): share of the defective nodes (10.36 % of 24,000 A100) that a benchmark found; one node can have
# several. Meta, The Llama 3 Herd of Models (2024), table 5: share of the 419 unexpected interruptions of 16,384 H100 in 54 days.
SUPERBENCH, LLAMA = "of defective nodes (SuperBench)", "of interruptions (Llama 3)"


class Fault(t.NamedTuple):
    """A class of faults in words, how often it is met in the field, and the first of these shares in percent."""

    words: str
    field: str
    percent: float


# Stage.sees has these names.
CLASSES: dict[str, Fault] = {
    "nic": Fault("NIC or its slot", f"58 % {SUPERBENCH}, 1.7 % {LLAMA}", 58),
    "pcie": Fault("GPU's PCIe link", f"20 % {SUPERBENCH}", 20),
    "compute": Fault(
        "GPU that computes wrong or slowly",
        f"15 % by training, 2 % by GEMM {SUPERBENCH}; 30.1 % faulty GPU, 1.4 % silent corruption {LLAMA}",
        15,
    ),
    "device_memory": Fault("GPU memory", f"17.2 % {LLAMA}", 17.2),
    "host_memory": Fault("host memory and CPU", f"13 % {SUPERBENCH}", 13),
    "fabric": Fault("cable, switch, path between nodes", f"8.4 % {LLAMA}", 8.4),
    "nvlink": Fault("links between the GPUs of a node", f"3 % {SUPERBENCH}", 3),
    "thermal": Fault("heat, power and throttling over time", f"1.4 % {LLAMA}", 1.4),
    "power": Fault("power supplies, fans and sensors of the machine", f"0.7 % {LLAMA}", 0.7),
    "storage": Fault("disks and file systems", f"0.7 % {LLAMA}", 0.7),
    "software": Fault("software, settings and firmware that differ", f"12.9 % {LLAMA}", 12.9),
}


def shown(stage: Stage | None, check: str) -> tuple[str, ...]:
    """Return the classes of faults that a check can show. That a node took part, or walked its timetable, shows none by itself."""
    if stage is None:
        return ()
    counts = not stage.is_condition(check, False)
    return tuple(fault for fault, checks in stage.sees.items() if fault in CLASSES and (check in checks if checks else counts))


def shares(nodes_of: t.Mapping[str, float], weight: float = 20.0) -> dict[str, float]:
    """Return {class: share of the defects to be expected}, 1 in all. `nodes_of` is the number of nodes on which this fleet's own runs found
    each class; the published shares count as much as `weight` such nodes."""
    published = sum(fault.percent for fault in CLASSES.values())
    total = weight + sum(nodes_of.values())
    return {name: (weight * fault.percent / published + nodes_of.get(name, 0.0)) / total for name, fault in CLASSES.items()}
