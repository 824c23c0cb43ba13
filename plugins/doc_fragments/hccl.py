# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """How hccl_test is called, over one node or over many (probes/hccl_group.py)."""

    DOCUMENTATION = r"""
options:
  ops:
    description: Collectives to measure, where O(checks) is not given.
    type: list
    elements: str
    choices:
      [all_gather, all_gatherv, all_reduce, alltoall, alltoallv, alltoallvc, broadcast, reduce, reduce_scatter, reduce_scatterv, scatter]
    default: [all_reduce]
  gpus:
    description: How many NPUs of a node take part, V(all) or a number, where O(checks) is not given.
    type: str
    default: all
  sizes:
    description:
      - Smallest and largest message, V(8K:64M) for example, where O(checks) is not given.
      - V(auto) as largest is the largest power of two that fits, 16 GiB at most.
    type: str
    default: 8K:64M
  type:
    description: Data type, as hccl_test names it, where O(checks) is not given.
    type: str
    default: fp32
  reduction:
    description: What the collectives compute that compute anything.
    type: str
    choices: [sum, prod, max, min]
    default: sum
  factor:
    description: Each message is this many times the one before.
    type: int
    default: 2
  iterations:
    description: Timed iterations per message size. V(0) leaves it to hccl_test.
    type: int
    default: 20
  warmup:
    description: Iterations before the clock starts. V(0) leaves it to hccl_test.
    type: int
    default: 5
  binary_dir:
    description: Folder of the hccl_test programs; empty to look them up in C(PATH).
    type: str
    default: ""
  extra_args:
    description: More arguments for hccl_test. With C(-c 0) nothing is checked, and the result is V(unchecked).
    type: list
    elements: str
    default: []
  test_timeout:
    description: Deadline of one launch in seconds.
    type: float
    default: 600.0
"""
