# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_group_job
short_description: Run a command over nodes of a Kubernetes cluster
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Starts a pod with C(sshd) on each node and a head that runs one command over them, with C(mpirun) or once on each
    node, and returns what it printed and where it ran. No operator is needed for V(job) and V(statefulset).
  - The task fails where RV(outcome) is not V(measured), also of the command itself, with the cause as its message and all that is
    known beside it.
  - The key by which the head enters the workers is made for this call and removed with everything else.
extends_documentation_fragment:
  - gpufleet.acceptance.kube
  - gpufleet.acceptance.kube_group
options:
  kind:
    description:
      - What makes the pods.
      - V(job), an Indexed Job, and V(statefulset) come with a headless Service and a Secret of the module's making.
      - V(volcano), a Job of Volcano with its plugins C(ssh) and C(svc), starts all pods or none.
      - V(pytorchjob), a PyTorchJob of the training operator (C(kubeflow.org/v1)), makes the pods as it makes those of a training; what it
        tells them of their ranks is kept from the command.
      - V(auto) takes the first of V(mpijob), V(volcano), V(pytorchjob), V(job) and V(statefulset) that the API serves, that we may use,
        and that somebody acts on.
    type: str
    choices: [auto, statefulset, job, pytorchjob, volcano, mpijob]
    default: auto
  queue:
    description: Queue of a Volcano job.
    type: str
seealso:
  - module: gpufleet.acceptance.mpijob
"""

EXAMPLES = r"""
- name: NCCL over sixteen GPUs of a cluster, with whatever it has to start them
  gpufleet.acceptance.kube_group_job:
    namespace: acceptance
    image: registry.example.com/tester:1.0
    world_size: 16
    command: [all_reduce_perf_mpi, -b, 8M, -e, 8G, -f, "2", -g, "1"]
  register: nccl

- name: A training script over all nodes, without MPI
  gpufleet.acceptance.kube_group_job:
    namespace: acceptance
    image: registry.example.com/trainer:1.0
    start: agents
    command: [torchrun, /opt/train.py]
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
