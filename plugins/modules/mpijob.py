# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mpijob
short_description: Run a command over nodes of a Kubernetes cluster by an MPIJob
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Makes an MPIJob (C(kubeflow.org/v2beta1) of the mpi-operator) with one worker on each node, runs one command over them, and returns
    what it printed and where it ran.
  - A refusal that the operator tells in an event only, an operator that does not act, a worker that fails, and a launcher that runs
    every rank beside itself are errors with their cause. The task fails where RV(outcome) is not V(measured), also of the
    command itself, with the cause as its message and all that is known beside it.
  - Nothing is run again, and everything that was made is removed before the module returns.
extends_documentation_fragment:
  - gpufleet.acceptance.kube
  - gpufleet.acceptance.kube_group
options:
  mpi_implementation:
    description: What the operator prepares the pods for.
    type: str
    choices: [OpenMPI, Intel, MPICH]
    default: OpenMPI
seealso:
  - module: gpufleet.acceptance.kube_group_job
"""

EXAMPLES = r"""
- name: NCCL over two nodes of a cluster
  gpufleet.acceptance.mpijob:
    namespace: acceptance
    image: registry.example.com/tester:1.0
    node_count: 2
    command: [all_reduce_perf_mpi, -b, 8M, -e, 8G, -f, "2", -g, "1"]
    env: {NCCL_IB_HCA: "^mlx5_8", NCCL_DEBUG: WARN}
    pods:
      capabilities: [IPC_LOCK]
      resources: {limits: {rdma/hca: 1}}
  register: nccl

- name: The same with one process per node, and data of the team's own
  gpufleet.acceptance.mpijob:
    namespace: acceptance
    image: registry.example.com/tester:1.0
    nodes: [node-a, node-b]
    ranks_per_node: 1
    command: [/data/nccl-tests/all_reduce_perf, -b, 32M, -e, 8G, -f, "2", -g, "8"]
    mpi_args: [-mca, btl_tcp_if_include, eth0]
    pods:
      pod_patch:
        spec:
          volumes: [{name: data, persistentVolumeClaim: {claimName: nccl-pvc}}]
        container:
          volumeMounts: [{name: data, mountPath: /data}]
"""

RETURN = r"""
outcome:
  description: V(measured) where the command ran over all nodes and ended well, else V(error) or V(timeout).
  returned: when not in check mode
  type: str
reason_code:
  description: Why it did not, from a closed list.
  returned: when not in check mode
  type: str
reason:
  description: The same as a sentence a person can act on, in the words of the API server where it knows.
  returned: when not in check mode
  type: str
rc:
  description: Exit status of C(mpirun); null where it was not started.
  returned: when not in check mode
  type: int
stdout:
  description: What the ranks printed.
  returned: when not in check mode
  type: str
stderr:
  description: What they printed as errors, and C(mpirun) itself.
  returned: when not in check mode
  type: str
ranks:
  description: How many ranks ran on each node.
  returned: when the group came together
  type: dict
nccl:
  description: What the filter P(gpufleet.acceptance.nccl_tests#filter) makes of the output, where it is of nccl-tests.
  returned: when the command is one of nccl-tests
  type: dict
cmd:
  description: The command line of C(mpirun).
  returned: when it was started
  type: list
  elements: str
mpi:
  description: The MPI library.
  returned: when the group came together
  type: str
launcher:
  description: What started the pods.
  returned: always
  type: str
why:
  description: Why other launchers were not taken.
  returned: always
  type: list
  elements: str
nodes:
  description: The pod on each node.
  returned: when not in check mode
  type: dict
image_id:
  description: Digest of the image that ran.
  returned: when not in check mode
  type: str
left:
  description: Objects that were still being deleted in the end.
  returned: when not in check mode
  type: list
  elements: str
"""
