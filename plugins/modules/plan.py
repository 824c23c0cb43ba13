# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Write the plan of an acceptance run
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Reads the stages, the hosts within C(--limit) and their variables, refuses what cannot be planned with one clear error, and
    writes C(plan.json) before anything is measured.
  - Used by the acceptance playbooks. Runs on the controller and connects to no host.
extends_documentation_fragment: gpufleet.acceptance.runs
options:
  mode:
    description: Whether to begin a run, a quick test, whose stages measure in small, or to go on with an old one.
    type: str
    choices: [run, quick, resume]
    default: run
  run_id:
    description: The run to resume, or the id of a new run; empty for a generated id.
    type: str
    default: ""
  take_over:
    description: Whether to resume a run that a controller on another machine or in another container began, although that controller may
      still run. A controller on this machine is waited for a short while, and its run is never taken over.
    type: bool
    default: false
  rebooted:
    description: Hosts or nodes of a resumed run that were restarted on purpose since it was begun, as a list or separated by commas, or
      V(true) for all. What was measured on them before is measured again.
    type: raw
    default: []
  stages:
    description: The stages of a new run, in order. Without them the run has the stages of O(level).
    type: list
    elements: raw
  level:
    description: How much a new run measures. V(quick) also measures in small, whichever stages the run has.
    type: str
    choices: [quick, standard, full]
    default: standard
  open_checks:
    description: The file C(next_round.csv) of a hand-over. A new run then measures its checks alone.
    type: path
    default: ""
    version_added: 1.1.0
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
    details: The plan is made and shown as always, and nothing is written; there is no run then.
  diff_mode:
    description: Returns what changed.
    support: partial
    details: In check mode each check that would be measured.
"""

EXAMPLES = r"""
- name: Plan a run of one stage
  gpufleet.acceptance.plan:
    results_dir: results
    stages: [nccl_node]
  run_once: true
  register: acceptance_run
"""

RETURN = r"""
run_id:
  description: The run; empty in check mode.
  returned: success
  type: str
results_dir:
  description: Folder of all runs.
  returned: success
  type: str
tasks:
  description: Path of a file of tasks that run the stages in order; a long one over more hosts than forks is started and then collected.
  returned: success
  type: str
"""
