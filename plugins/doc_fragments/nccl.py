# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules that run nccl-tests."""

    DOCUMENTATION = r"""
options:
  ops:
    description: Collectives to measure, where O(checks) is not given.
    type: list
    elements: str
    default: [all_reduce]
  type:
    description: Data type, as nccl-tests names it, where O(checks) is not given.
    type: str
    default: float
  factor:
    description: Each message is this many times the one before.
    type: int
    default: 2
  extra_args:
    description: More arguments for nccl-tests. With C(-c 0) nothing is checked, and the result is V(unchecked).
    type: list
    elements: str
    default: []
"""
