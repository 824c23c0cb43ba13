# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hccl_local
short_description: Measure HCCL between the NPUs of one node with hccl_test
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Runs CANN's hccl_test with one rank for each NPU of this node, started by mpirun, and returns every row that was printed, with the bus
    bandwidth that follows from it and the state of the NPUs before, during and after.
  - A slow result is a result. The module fails only where it was called wrongly.
extends_documentation_fragment: [gpufleet.acceptance.probe, gpufleet.acceptance.group.mpi, gpufleet.acceptance.hccl]
options:
  env:
    description: Environment variables for every rank.
    type: dict
    default: {}
  gpu_count:
    description: How many NPUs the node must have. A node with another number is an error. V(0) says that it has none.
    type: int
"""

EXAMPLES = r"""
- name: Measure all-reduce between all NPUs
  gpufleet.acceptance.hccl_local:
    binary_dir: /usr/local/Ascend/ascend-toolkit/latest/tools/hccl_test/bin
    mpirun: /usr/local/mpich/bin/mpirun
  register: hccl
"""

RETURN = r"""
observations:
  description: What was measured, or why it was not; one entry per check, and one per GPU where a check has parts.
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description: Name of the check.
      type: str
    variant:
      description: Settings of the check.
      type: str
    part:
      description: Empty for the node itself, else for example C(gpu/UUID).
      type: str
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
      description: The hardware and the settings that the numbers depend on.
      type: dict
    evidence:
      description: What else changed on the node while the test ran.
      type: dict
    command:
      description: The command line.
      type: list
      elements: str
    raw_z:
      description: The output of the tool, zlib and base64.
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
PROBE = "hccl_node"
OPTIONS = {
    "checks": runner.CHECKS,
    **hccl_group.OPTIONS,
    **membership.MPI,
    "env": {"type": "dict", "default": {}},
    "gpu_count": {"type": "int"},
}


def main() -> None:
    runner.main(hccl_node.probe, OPTIONS, "hccl_local", default_checks=hccl_node.default_checks)


if __name__ == "__main__":
    main()
