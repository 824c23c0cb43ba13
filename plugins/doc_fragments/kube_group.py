# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules that run one command over a group of nodes of a cluster."""

    DOCUMENTATION = r"""
options:
  command:
    description:
      - The program and its arguments, as a list. It runs once per rank under C(mpirun) over all nodes, or not at all.
      - Before it C(hostname) is run in the same way. A launcher that starts the ranks elsewhere is an error, not a success.
    type: list
    elements: str
    required: true
  image:
    description:
      - Image with the program, the MPI library, C(sshd), C(ssh-keygen) and python3.
      - C(sshd) is started by the module with settings and keys of its own; those of the image are not used.
    type: str
  name:
    description:
      - Name of the objects; one of the module's making where it is not given.
      - Small letters, digits and hyphens, the first a letter, short enough for what a launcher adds to it.
    type: str
  nodes:
    description: Names of nodes. Each of them takes part, or the result is an error.
    type: list
    elements: str
    default: []
  selector:
    description: Label selector of the pool, where O(nodes) is empty.
    type: str
    default: nvidia.com/gpu.present=true
  node_count:
    description: How many nodes of O(selector) take part; all of them, each usable, where it is not given.
    type: int
  world_size:
    description: How many GPUs take part, in place of O(node_count). A multiple of the GPUs of a node.
    type: int
  gpus_per_node:
    description: How many GPUs each worker asks for; all that are allocatable where it is not given. V(0) asks for none.
    type: int
  ranks_per_node:
    description:
      - Ranks on each node; one per GPU where it is not given.
      - V(1) together with C(-g) of nccl-tests gives one process per node.
    type: int
  env:
    description: Environment variables of the ranks, C(NCCL_IB_HCA) for example.
    type: dict
    default: {}
  mpirun:
    description: The launcher in the image, of Open MPI 4 or 5, MPICH or Intel MPI.
    type: str
    default: mpirun
  mpi_args:
    description: More arguments for it. They win over what the module sets.
    type: list
    elements: str
    default: []
  start:
    description:
      - V(mpirun) starts one process for each rank.
      - V(agents) starts the command once on each node, without MPI. It finds C(MASTER_ADDR), C(MASTER_PORT), C(NNODES), C(NODE_RANK) and
        C(NPROC_PER_NODE) in its environment, and the same as C(PET_NNODES) and so on, as C(torchrun) reads its options.
    type: str
    choices: [mpirun, agents]
    default: mpirun
  timeout:
    description: Deadline of the command in seconds.
    type: float
    default: 600.0
  join_timeout:
    description: Seconds in which the head of the group must be able to enter every worker, once all are ready.
    type: float
    default: 60.0
  ssh_port:
    description: Port of the workers' C(sshd). With the node's network it must be free there.
    type: int
    default: 2222
  pods:
    description:
      - More settings of the pods, as the C(acceptance_kube_) variables of role C(common) without their prefix.
      - V(capabilities), V(host_network), V(shm_size), V(resources) and V(pod_patch) are the usual ones.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
    details: Nodes, rights and launcher are looked up; nothing is made on the cluster.
  diff_mode:
    description: Returns what changed.
    support: none
    details: Everything that is made is removed before the module returns.
  idempotent:
    description: Whether a second call does nothing.
    support: none
    details: Every call runs the command again.
"""
