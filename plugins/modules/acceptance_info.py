# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: acceptance_info
short_description: Return runs, verdicts and findings of nodes
version_added: 1.0.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Returns what the judged runs of a results folder say of a node, of some nodes or of the whole fleet, for playbooks of your own.
  - Reads the reports in the folder. No history and no database is needed; M(gpufleet.acceptance.history_info) searches the history.
  - Runs on the controller, connects to no host, and writes nothing.
extends_documentation_fragment:
  - gpufleet.acceptance.reading
  - gpufleet.acceptance.runs
options:
  run_id:
    description: Only this run. Empty for the newest judged runs.
    type: str
    default: ""
  since:
    description: Only runs that were planned on this day or later, as V(2026-08-01). Empty for all.
    type: str
    default: ""
  limit:
    description: How many runs are returned at most, the newest first; V(0) for all. With O(node), the newest that have this node.
    type: int
    default: 1
  node:
    description:
      - A node by its name in the run (for a node of a cluster V(CLUSTER/NODE)), with its GPUs and ports, and the pairs that it is an end
        of. May be a pattern such as V(rack-a-*). Empty for all nodes, pairs, switches and groups.
      - If no run has such a node, all lists are empty; this is no error.
    type: str
    default: ""
  check:
    description: Only this check or stage, V(bf16), V(gemm), V(gemm bf16); may be a pattern. Empty for all.
    type: str
    default: ""
  verdict:
    description: Only these verdicts, V(FAIL), V(UNKNOWN), V(WARN), V(KNOWN_FAIL), V(PASS) or V(SKIPPED). Empty for all.
    type: list
    elements: str
    default: []
  verdicts:
    description:
      - Whether RV(verdicts) is returned, the verdict of each check with its number. A run of thousands of nodes has a hundred thousand of
        them, so set O(node), O(check) or O(verdict) too.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: What the last run that had this node says of it
  gpufleet.acceptance.acceptance_info:
    results_dir: /srv/gpufleet/results
    node: "{{ inventory_hostname }}"
  register: acceptance

- name: Let no job run on a node that is not accepted
  ansible.builtin.assert:
    that:
      - acceptance.nodes | length > 0
      - acceptance.nodes[0].verdict in ['PASS', 'WARN', 'KNOWN_FAIL']
    fail_msg: "{{ acceptance.causes | map(attribute='said') | join('; ') | default('never tested', true) }}"

- name: The BF16 speed of every GPU of a rack in the last five runs
  gpufleet.acceptance.acceptance_info:
    results_dir: /srv/gpufleet/results
    node: rack-a-*
    check: gemm bf16
    limit: 5
    verdicts: true
  register: speed
  run_once: true
"""

RETURN = r"""
runs:
  description: The judged runs, the newest first, each by its last judgement.
  returned: success
  type: list
  elements: dict
  contains:
    run: {description: Id of the run., type: str}
    inventory: {description: Name of the inventory., type: str}
    planned_at: {description: 'Time of the plan, UTC.', type: str}
    judged_at: {description: 'Time of the judgement, UTC.', type: str}
    mode: {description: V(run) or V(quick)., type: str}
    word: {description: 'The result in one word, such as V(ACCEPTED) or V(NOT ACCEPTED).', type: str}
    accepted: {description: Whether the fleet is accepted; a quick test accepts nothing., type: bool}
    why: {description: The reason in one sentence., type: str}
    partial: {description: Whether the run lacked a part of the plan., type: bool}
    simulated: {description: Whether any result came from simulated tools., type: bool}
    counts: {description: Number of verdicts by verdict., type: dict}
    folder: {description: Folder of the report., type: str}
nodes:
  description: A verdict for each node, pair, switch and group in each of these runs, the worst first.
  returned: success
  type: list
  elements: dict
  contains:
    run: {description: Id of the run., type: str}
    node: {description: Name of the node., type: str}
    kind: {description: 'V(node), V(pair), V(switch) or V(group).', type: str}
    verdict: {description: The worst verdict of its checks., type: str}
    stages: {description: Verdict by stage., type: dict}
    simulated: {description: Whether its results came from simulated tools., type: bool}
causes:
  description: What is wrong, each cause once, as the report lists it under "Findings".
  returned: success
  type: list
  elements: dict
  contains:
    run: {description: Id of the run., type: str}
    subject: {description: 'The node, or NODE/gpu/UUID, NODE/nic/DEVICE/PORT, A|B.', type: str}
    kind: {description: Kind of the subject., type: str}
    name: {description: The subject in words., type: str}
    verdict: {description: The verdict., type: str}
    convicted: {description: Whether several tests between nodes agree on this subject., type: bool}
    said: {description: The cause in one sentence., type: str}
    checks: {description: Stage and check of those that found it., type: list, elements: str}
    explains: {description: Number of other checks that are bad because of it., type: int}
    simulated: {description: Whether the results came from simulated tools., type: bool}
findings:
  description: Every reason for a verdict that is neither PASS nor SKIPPED, by node.
  returned: success
  type: list
  elements: dict
  contains:
    run: {description: Id of the run., type: str}
    node: {description: Node of the subject., type: str}
    subject: {description: The node or a part of it., type: str}
    stage: {description: Stage., type: str}
    check: {description: Check., type: str}
    variant: {description: Variant of the check., type: str}
    verdict: {description: The verdict., type: str}
    reason: {description: The reason in one sentence., type: str}
    evidence: {description: Sentences on what happened while it was measured., type: list, elements: str}
    raw: {description: File in the run's folder with the output of the tool., type: str}
    command: {description: Command line of the tool., type: str}
    also: {description: Other checks with the same reason., type: list, elements: str}
    simulated: {description: Whether the results came from simulated tools., type: bool}
verdicts:
  description: The verdict of each check. Empty without O(verdicts).
  returned: success
  type: list
  elements: dict
  contains:
    run: {description: Id of the run., type: str}
    node: {description: Node of the subject., type: str}
    subject: {description: The node or a part of it., type: str}
    kind: {description: Kind of the subject., type: str}
    stage: {description: Stage., type: str}
    check: {description: Check., type: str}
    variant: {description: Variant of the check., type: str}
    verdict: {description: The verdict., type: str}
    value: {description: The number that was judged., type: float}
    unit: {description: Unit of the number and of the floor., type: str}
    floor: {description: 'The least value that passes, of a latency the most.', type: float}
    metric: {description: Name of the number., type: str}
    reason_code: {description: Code of the reason., type: str}
    reason: {description: The reason in one sentence., type: str}
    regressed: {description: Whether the number became worse than its own past., type: bool}
    simulated: {description: Whether it came from simulated tools., type: bool}
unjudged:
  description: Runs that are newer than the last one returned and have no verdict, because they go on or were interrupted.
  returned: success
  type: list
  elements: str
left_out:
  description: Runs whose report cannot be read or was changed after it was written, each with the reason. Nothing of them is returned.
  returned: success
  type: list
  elements: str
"""
