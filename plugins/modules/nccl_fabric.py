# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_fabric
short_description: Measure NCCL between nodes with nccl-tests under mpirun, or with PyTorch
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Run on one node of a group, the head, it launches nccl-tests over all nodes by mpirun of Open MPI 4, Open MPI 5 or Hydra (MPICH,
    Intel MPI), and returns every row that was printed. Hosts and ranks of the output have to be those that were asked for.
  - Where the group misses the floor that O(floors) gives it, hangs or breaks, parts of it are measured, many at the same time, until
    it is known which node, GPU, path or switch is to blame.
  - A slow result is a result. The module fails only where it was called wrongly.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.gpus.mig
  - gpufleet.acceptance.group
  - gpufleet.acceptance.group.mpi
  - gpufleet.acceptance.group.search
  - gpufleet.acceptance.nccl
options:
  group:
    description: What the group is called in the result.
    type: str
    default: nccl_fabric
  gpus:
    description: How many GPUs of each node take part, V(all) or a number, where O(checks) is not given.
    type: str
    default: all
  sizes:
    description:
      - Smallest and largest message, V(8M:16G) for example, where O(checks) is not given.
      - V(auto) as largest is the largest power of two that fits, 16 GiB at most.
    type: str
    default: 8M:auto
  iterations:
    description: Timed iterations per message size. V(0) leaves it to nccl-tests.
    type: int
    default: 20
  warmup:
    description: Iterations before the clock starts. V(0) leaves it to nccl-tests.
    type: int
    default: 5
  tool:
    description: V(torch) measures with PyTorch, as the stage C(ddp) does, where nccl-tests or MPI is not installed; one rank for each GPU.
    type: str
    choices: [nccl-tests, torch]
    default: nccl-tests
  python:
    description: With O(tool=torch) the interpreter that has PyTorch, the same path on every node. Empty for C(python3) in the C(PATH).
    type: str
    default: ""
  port:
    description: With O(tool=torch) the port where agents meet. Each further launch of a search takes the next one.
    type: int
    default: 29500
  binary_dir:
    description: Folder of the nccl-tests programs, the same on every node; empty to look them up in C(PATH).
    type: str
    default: ""
  binary_suffix:
    description: What stands behind C(_perf) in their names, V(_mpi) for example. They have to be built with MPI.
    type: str
    default: ""
  layout:
    description: One rank for each GPU, or one process for each node with all its GPUs.
    type: str
    choices: [gpu, node]
    default: gpu
  test_timeout:
    description: Deadline of one launch in seconds.
    type: float
    default: 600.0
"""

EXAMPLES = r"""
- name: NCCL between two nodes that reach one another by SSH
  gpufleet.acceptance.nccl_fabric:
    members:
      - {name: gpu-01, address: 10.1.30.41, gpus: 8, local: true}
      - {name: gpu-02, address: 10.1.30.42, gpus: 8}
    binary_dir: /opt/nccl-tests/build
    sizes: 32M:8G
    layout: node
    mpi_args: [-mca, btl_tcp_if_include, bond0]
    env: {NCCL_SOCKET_IFNAME: bond0, NCCL_IB_HCA: ^mlx5_8}
  register: fabric

- name: Show the peak
  ansible.builtin.debug:
    msg: "{{ fabric.observations[0].metrics.busbw.value }} GB/s"
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
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nccl_group, nccl_node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "nccl_group"
OPTIONS = {
    **membership.OPTIONS,
    **membership.SEARCH,
    "checks": runner.CHECKS,
    **nccl_node.OPTIONS,
    "group": {"type": "str", "default": "nccl_fabric"},
    "tool": {"type": "str", "choices": ["nccl-tests", "torch"], "default": "nccl-tests"},
    "python": {"type": "str", "default": ""},
    "port": {"type": "int", "default": 29500},
    "layout": {"type": "str", "choices": ["gpu", "node"], "default": "gpu"},
    "test_timeout": {"type": "float", "default": 600.0},
}


def main() -> None:
    runner.main(nccl_group.probe, OPTIONS, "nccl_fabric", default_checks=nccl_node.default_checks)


if __name__ == "__main__":
    main()
