# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the probe modules that work on the GPUs of one node, and of those that do so by PyTorch."""

    DOCUMENTATION = r"""
options:
  gpu_count:
    description: How many GPUs the node must have. A node with another number is an error. V(0) says that it has none.
    type: int
"""

    MIG = r"""
options:
  mig:
    description:
      - Whether GPUs may be partitioned by MIG. Where they may, a node on which it is on is skipped, since there are no whole GPUs to
        measure. Where they may not, it is an error.
    type: str
    choices: [refused, allowed]
    default: refused
"""

    TORCH = r"""
options:
  python:
    description: The Python interpreter that has PyTorch; empty for the one that Ansible uses on the node.
    type: str
    default: ""
  env:
    description: Environment variables for the workload.
    type: dict
    default: {}
  modes:
    description: V(alone) is one GPU after the other, V(together) all at once; where O(checks) is not given.
    type: list
    elements: str
    default: [alone, together]
  warmup_seconds:
    description: How long the GPU is kept busy before, so that clocks and power have settled.
    type: float
    default: 1.0
"""
