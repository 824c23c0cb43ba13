# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_probe
short_description: Run a probe on nodes of a Kubernetes cluster
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Starts one pod on each node with the code of a probe module, and returns what each node saw or why it did not.
  - Everything that it makes is removed before it returns.
extends_documentation_fragment: gpufleet.acceptance.kube
options:
  probe:
    description: The probe module whose work is done in the pods.
    type: str
    choices: [stack_facts, nccl_tests, gemm, measure]
    required: true
  args:
    description: Options of that module.
    type: dict
    default: {}
  image:
    description: Image with the tools under test and python3.
    type: str
  nodes:
    description: Names of nodes; without them O(selector) chooses.
    type: list
    elements: str
    default: []
  selector:
    description: Label selector of nodes.
    type: str
    default: nvidia.com/gpu.present=true
  devices:
    description: Whether each pod asks for all GPUs of its node, and so waits until they are free.
    type: bool
    default: false
  pods:
    description:
      - More settings of the pods, as the C(acceptance_kube_) variables of role C(common) without their prefix,
        V(tolerations) for example.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
    details: The options are validated; nothing is made on the cluster.
  diff_mode:
    description: Returns what changed.
    support: none
    details: A measurement changes nothing.
  idempotent:
    description: Whether a second call does nothing.
    support: none
    details: Every call measures again.
"""

EXAMPLES = r"""
- name: Look at the software stack of every GPU node of a cluster
  gpufleet.acceptance.kube_probe:
    kubeconfig: ~/.kube/config
    namespace: acceptance
    probe: stack_facts
    image: registry.example.com/tester:1.0
  register: stack
"""

RETURN = r"""
nodes:
  description: What each node answered, by its name, as the probe module returns it.
  returned: always
  type: dict
  contains:
    state:
      description: V(done), or V(refused) with C(reason_code) and C(reason).
      type: str
    observations:
      description: What was measured.
      type: list
      elements: dict
    pod:
      description: Name of the pod, its image and the digest of the image that ran.
      type: dict
left:
  description: Objects that were still being deleted in the end.
  returned: always
  type: list
  elements: str
"""
