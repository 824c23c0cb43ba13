# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: baseline
short_description: Propose expectations from what a run measured
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Writes a file of expectations from the median of identical nodes of a run. The file is ignored until somebody has read it
    and removed its C(proposed).
  - Used by C(playbooks/baseline.yml). Runs on the controller and connects to no host.
options:
  run_id:
    description: The run.
    type: str
    required: true
  results_dir:
    description: Folder of all runs.
    type: str
    required: true
  file:
    description: Where to write; empty for C(expectations.yml) in the run's folder.
    type: str
    default: ""
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
  diff_mode:
    description: Returns what changed.
    support: full
"""

EXAMPLES = r"""
- name: Propose expectations
  gpufleet.acceptance.baseline:
    run_id: 20260101T000000Z-0a1b2c
    results_dir: results
  run_once: true
"""

RETURN = r"""
path:
  description: The file.
  returned: success
  type: str
count:
  description: How many expectations are proposed.
  returned: success
  type: int
"""
