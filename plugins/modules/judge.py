# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: judge
short_description: Judge an acceptance run
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Applies the expectations to everything in a run's journal, writes verdicts and report, and fails unless the run passed.
  - Used by the acceptance playbooks. Runs on the controller and connects to no host.
extends_documentation_fragment: gpufleet.acceptance.runs
options:
  run_id:
    description: The run to judge again; empty for the run of this play.
    type: str
    default: ""
  refuse:
    description:
      - Where a fleet that is not accepted fails. V(here) is this task, and so the first host of the play.
      - With V(play) the task is well, and a play after it over the hosts in RV(refused) must fail them, as the acceptance playbooks do.
    type: str
    choices: [here, play]
    default: here
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
    details: The run is judged and shown, and nothing is written.
  diff_mode:
    description: Returns what changed.
    support: none
"""

EXAMPLES = r"""
- name: Judge an old run with today's expectations
  gpufleet.acceptance.judge:
    run_id: 20260101T000000Z-0a1b2c
    results_dir: results
  run_once: true
"""

RETURN = r"""
passed:
  description: Whether nothing speaks against the fleet. A quick test can pass, and accepts nothing.
  returned: always
  type: bool
accepted:
  description: Whether the fleet is accepted.
  returned: always
  type: bool
why:
  description: The same in one sentence.
  returned: always
  type: str
refused:
  description: The inventory hosts that are not accepted; a cluster is one if any of its nodes is not.
  returned: always
  type: list
  elements: str
last:
  description: What was decided and where the report is, in one line.
  returned: always
  type: str
counts:
  description: Number of verdicts by name.
  returned: always
  type: dict
coverage:
  description: How many of the planned checks were measured.
  returned: always
  type: dict
report:
  description: The files of the report.
  returned: always
  type: list
  elements: str
"""
