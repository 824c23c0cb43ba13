# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: quarantine
short_description: Take the nodes that a run convicts out of service, and give them back
version_added: 1.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Nodes of a Slurm cluster are drained, those of a Kubernetes cluster cordoned, machines behind SSH handed to
    O(ignore:acceptance_quarantine_hook). What runs on them goes on.
  - Shows what would be done, and does it only with O(confirm). A node whose reason is not ours, or was changed, is never touched.
  - Used by C(playbooks/quarantine.yml), once for all hosts of the play. See C(docs/quarantine.md).
options:
  run_id:
    description: The judged run. With O(undo) its results need not be here.
    type: str
    required: true
  results_dir:
    description: Folder of all runs.
    type: str
    required: true
  confirm:
    description: Whether to do it.
    type: bool
    default: false
  mode:
    description: V(comment) writes only a note to the node, which has no effect on jobs.
    type: str
    choices: [drain, comment]
    default: drain
  unknown:
    description: Whether to take nodes that are UNKNOWN as well.
    type: bool
    default: false
  second_run:
    description: Another judged run. A node against which nothing but rates speaks is drained only if this run convicts it, too.
    type: str
    default: ""
  undo:
    description: Give back what was taken for this run, and remove its notes.
    type: bool
    default: false
  return:
    description: Give back the nodes in quarantine that pass, in this run, all checks that convicted them.
    type: bool
    default: false
  simulated:
    description: Whether nodes may be taken for numbers of simulated tools.
    type: bool
    default: false
  by_run:
    description:
      - Whether a run of tests asks for it at its end, and no person.
      - Then a node only gets a comment for findings for which no person has had a node drained yet.
    type: bool
    default: false
  retest:
    description:
      - Whether nodes against which nothing but rates speaks are measured again before anything is done.
      - Then, with O(confirm) and without O(second_run), nothing is done if there are such nodes, and RV(again) says what to measure.
    type: bool
    default: false
  hosts:
    description: The inventory hosts whose nodes are meant. Without it, those of the play.
    type: list
    elements: str
  percent:
    description: How many percent of the nodes of a cluster, and of each of its partitions, may be in quarantine. One node always may.
    type: float
    default: 10
  percent_per_hour:
    description: How many percent of the nodes of a cluster may be taken in an hour. One node always may.
    type: float
    default: 5
  per_rack:
    description: How many nodes of a rack, and of an NVLink domain, may be in quarantine at a time, as far as they are known.
    type: int
    default: 1
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
    details: Shows what would be done, as without O(confirm).
  diff_mode:
    description: Returns what changed.
    support: full
    details: The state of each node before and after.
  idempotent:
    description: Whether a second call does nothing.
    support: full
"""

EXAMPLES = r"""
- name: Show what would be done about the nodes that a run convicts
  gpufleet.acceptance.quarantine:
    run_id: 20260101T000000Z-0a1b2c
    results_dir: results
  run_once: true

- name: Do it
  gpufleet.acceptance.quarantine:
    run_id: 20260101T000000Z-0a1b2c
    results_dir: results
    confirm: true
  run_once: true
"""

RETURN = r"""
nodes:
  description: The nodes that were changed, or would be without O(confirm), each with what was done.
  returned: success
  type: dict
  sample: {lab/gpu-03: drained}
again:
  description: What is to be measured again first, the stages and the C(acceptance_nodes) of each inventory host; empty if there is nothing.
  returned: success
  type: dict
  sample: {stages: [nccl_node], nodes: {lab: {names: [gpu-03]}}}
hosts:
  description: The inventory hosts whose nodes are meant.
  returned: success
  type: list
  elements: str
run_id:
  description: The judged run.
  returned: success
  type: str
lines:
  description: What was done, would be done and was left, and why, as it is shown.
  returned: success
  type: list
  elements: str
"""
