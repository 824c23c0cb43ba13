# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hccl
short_description: Measure HCCL between nodes with hccl_test under mpirun
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Run on one node of a group, the head, it launches CANN's hccl_test over all nodes by mpirun of MPICH (Hydra) or Open MPI, and returns
    every row that was printed, with the bus bandwidth that follows from it. hccl_test does not say which ranks took part; each rank says so
    itself, and a table counts only where all of them ended well and there is one table.
  - Where the group misses the floor that O(floors) gives it, hangs or breaks, parts of it are measured, many at the same time, until
    it is known which node, NPU, path or switch is to blame.
  - A slow result is a result. The module fails only where it was called wrongly.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.gpus.mig
  - gpufleet.acceptance.group
  - gpufleet.acceptance.group.mpi
  - gpufleet.acceptance.group.search
  - gpufleet.acceptance.hccl
options:
  group:
    description: What the group is called in the result.
    type: str
    default: hccl
"""

EXAMPLES = r"""
- name: HCCL between two nodes that reach one another by SSH
  gpufleet.acceptance.hccl:
    members:
      - {name: npu-01, address: 10.1.30.41, gpus: 8, local: true}
      - {name: npu-02, address: 10.1.30.42, gpus: 8}
    binary_dir: /usr/local/Ascend/ascend-toolkit/latest/tools/hccl_test/bin
    mpirun: /usr/local/mpich/bin/mpirun
    env: {HCCL_SOCKET_IFNAME: bond0}
  register: hccl

- name: Show the peak
  ansible.builtin.debug:
    msg: "{{ hccl.observations[0].metrics.busbw.value }} GB/s"
"""

RETURN = r"""
observations:
  description: What was measured, or why it was not; one entry per check of the group, one per finding of the search, one per member.
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description: The collective, V(localise) for a finding, V(member) for the node's own part.
      type: str
    variant:
      description: Settings of the check.
      type: str
    subject:
      description: What it is about, as C(kind), C(id) and C(members).
      type: dict
    outcome:
      description: V(measured), V(error), V(timeout), V(missing) or V(not_applicable).
      type: str
    reason_code:
      description: Why it is not measured, from a closed list.
      type: str
    reason:
      description: The same as a sentence a person can act on.
      type: str
    metrics:
      description: Numbers with their units.
      type: dict
    series:
      description: Rows of a sweep.
      type: list
      elements: dict
    context:
      description: The hardware and the settings that the numbers depend on; of a finding, the tests that speak for it.
      type: dict
    evidence:
      description: What else changed on the node while the group ran.
      type: dict
    command:
      description: The command line.
      type: list
      elements: str
    raw_z:
      description: The output, zlib and base64.
      type: str
state:
  description: V(done), V(running), V(refused) or V(check_mode).
  returned: always
  type: str
undone:
  description: What an earlier session that was killed had left on the node and this one put right.
  returned: when not in check mode
  type: list
  elements: str
"""

from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import membership
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import hccl_group, hccl_node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "hccl_group"
OPTIONS = {
    **membership.OPTIONS,
    "checks": runner.CHECKS,
    **hccl_group.OPTIONS,
    **membership.SEARCH,
    "group": {"type": "str", "default": "hccl"},
}


def main() -> None:
    runner.main(hccl_group.probe, OPTIONS, "hccl", default_checks=hccl_node.default_checks)


if __name__ == "__main__":
    main()
