# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: history_prune
short_description: Take old runs out of the history
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Takes whole months out, and keeps of each number the median, the least and the most of the month. The folders of the runs are not
    touched, and an import does not bring them back.
  - Used by C(playbooks/history_prune.yml). Runs on the controller and connects to no host.
extends_documentation_fragment:
  - gpufleet.acceptance.history
  - gpufleet.acceptance.reading
options:
  older_than:
    description: Months that ended before this day, as V(2026-01-01), or so long ago, as V(1y), V(6m).
    type: str
    required: true
  really:
    description: Whether they are taken out. Without it only what would be is said.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Keep a year
  gpufleet.acceptance.history_prune:
    results_dir: results
    older_than: 1y
    really: true
  run_once: true
"""

RETURN = r"""
runs:
  description: The runs that were or would be taken out.
  returned: success
  type: list
  elements: str
numbers:
  description: How many numbers these have.
  returned: success
  type: int
msg:
  description: What was done, in one line.
  returned: always
  type: str
"""
