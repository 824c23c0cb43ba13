# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the history: its place, the search, and a file for what was found."""

    DOCUMENTATION = r"""
options:
  results_dir:
    description: Folder of all runs; the history is C(history.db) in it.
    type: str
    required: true
  url:
    description: Another database for it, V(postgresql://USER:PASSWORD@HOST/DATABASE).
    type: str
    default: ""
"""

    ASKED = r"""
options:
  node:
    description: A node by any name that it ever had, with its GPUs and ports; may be a pattern. Empty for all.
    type: str
    default: ""
  check:
    description: A check or a stage, V(bf16), V(gemm), V(gemm bf16); may be a pattern. Empty for all.
    type: str
    default: ""
  since:
    description: The first day, as V(2026-08-01), or how long ago, as V(30d), V(8w), V(6m), V(1y). Empty for all.
    type: str
    default: ""
  verdict:
    description: Only these verdicts, as V(FAIL,WARN). Empty for all.
    type: str
    default: ""
  run:
    description: Only this run. Empty for all.
    type: str
    default: ""
"""

    JSON = r"""
options:
  json:
    description: A file for everything that was found.
    type: str
    default: ""
"""
