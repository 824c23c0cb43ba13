# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_tests
short_description: Measure NCCL between the GPUs of one node with nccl-tests
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Runs the programs of nccl-tests over the GPUs of this node and returns every row they printed, with the state of the GPUs
    before, during and after.
  - A slow result is a result. The module fails only where it was called wrongly.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.gpus
  - gpufleet.acceptance.gpus.mig
  - gpufleet.acceptance.nccl
options:
  gpus:
    description: How many GPUs take part, V(all) or a number, where O(checks) is not given.
    type: str
    default: all
  sizes:
    description:
      - Smallest and largest message, V(8M:1G) for example, where O(checks) is not given.
      - V(auto) as largest is the largest power of two that fits, 16 GiB at most.
    type: str
    default: 8M:auto
  iterations:
    description: Timed iterations per message size.
    type: int
    default: 20
  warmup:
    description: Iterations before the clock starts.
    type: int
    default: 5
  binary_dir:
    description: Folder of the nccl-tests programs; empty to look them up in C(PATH).
    type: str
    default: ""
  binary_suffix:
    description: What stands behind C(_perf) in their names, V(_mpi) for example.
    type: str
    default: ""
  env:
    description: Environment variables, C(NCCL_ALGO) for example.
    type: dict
    default: {}
  test_timeout:
    description: Deadline of one test in seconds.
    type: float
    default: 300.0
"""

EXAMPLES = r"""
- name: Measure all-reduce between all GPUs
  gpufleet.acceptance.nccl_tests:
    sizes: 8M:1G
  register: nccl

- name: Show the peak
  ansible.builtin.debug:
    msg: "{{ nccl.observations[0].metrics.busbw.value }} GB/s"
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nccl_node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "nccl_node"
OPTIONS = {
    "checks": runner.CHECKS,
    **nccl_node.OPTIONS,
    "env": {"type": "dict", "default": {}},
    "gpu_count": {"type": "int"},
    "mig": {"type": "str", "choices": ["refused", "allowed"], "default": "refused"},
    "test_timeout": {"type": "float", "default": 300.0},
}


def main() -> None:
    runner.main(nccl_node.probe, OPTIONS, "nccl_node", default_checks=nccl_node.default_checks)


if __name__ == "__main__":
    main()
