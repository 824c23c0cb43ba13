# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: baseline
short_description: Propose expectations from what runs measured
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Writes a file of expectations from the median of identical nodes of a run, or of all accepted runs of some days, of which each
    node counts once, with its own median. The file is ignored until somebody has read it
    and removed its C(proposed).
  - Used by C(playbooks/baseline.yml). Runs on the controller and connects to no host.
extends_documentation_fragment: gpufleet.acceptance.history
options:
  run_id:
    description: The run. Empty where O(since) or O(until) is given.
    type: str
    default: ""
  since:
    description:
      - The first day of a range, as V(2026-08-01), or how long ago, as V(30d), V(8w), V(6m), V(1y). The runs of the range are those that
        the history knows as accepted, what they measured is in their folders.
    type: str
    default: ""
  until:
    description: The last day of a range, as O(since).
    type: str
    default: ""
  file:
    description: Where to write; empty for C(expectations.yml) in the folder of the run, of a range in that of all runs.
    type: str
    default: ""
  unaccepted:
    description:
      - Whether to propose from a run that was not accepted or was a quick test, which is refused otherwise. A run that only lacks
        expectations is no such run.
    type: bool
    default: false
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

- name: Propose expectations from the accepted runs of a month
  gpufleet.acceptance.baseline:
    since: 2026-08-01
    until: 2026-08-31
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
