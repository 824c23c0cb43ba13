# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: stack_facts
short_description: Software stack, firmware and GPU health of a node
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Collects what must be the same on every node of a cluster, initialises CUDA for real (on
    nodes with Ascend NPUs CANN's ACL, with AMD GPUs HIP), and looks at the health of every GPU or NPU.
  - Measures and changes nothing. Whether a fact is right is for the verdict to say.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.gpus
options:
  python:
    description: The Python environment to describe; empty for the one that Ansible uses on the node.
    type: str
    default: ""
  packages:
    description: Python packages whose versions are facts of their own.
    type: list
    elements: str
    default: [python, sglang, torch, torchvision, torchaudio, transformers, triton, flash-attn, xformers]
  environment:
    description: Environment variables of a login shell to record; C(*) stands for any text.
    type: list
    elements: str
    default: [NCCL_*, GLOO_SOCKET_IFNAME, NVSHMEM_*, HCCL_*, RCCL_*, HSA_*, "*_VISIBLE_DEVICES"]
  sysctls:
    description: Kernel settings to record.
    type: list
    elements: str
    default: [vm.nr_hugepages, vm.overcommit_memory, net.core.rmem_max, net.core.wmem_max, kernel.numa_balancing]
  disks:
    description: Mount points whose free space is recorded.
    type: list
    elements: str
    default: [/, /tmp]
  imex:
    description: Who starts IMEX on trays of an NVLink domain; V(auto) finds it out.
    type: str
    choices: [auto, host, slurm, kubernetes, none]
    default: auto
"""

EXAMPLES = r"""
- name: Collect the facts of a node
  gpufleet.acceptance.stack_facts:
    python: /opt/venv/bin/python3
  register: stack
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import stack
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "stack"
OPTIONS = {
    "checks": runner.CHECKS,
    "python": {"type": "str", "default": ""},
    "packages": {
        "type": "list",
        "elements": "str",
        "default": [
            "python", "sglang", "torch", "torchvision", "torchaudio", "transformers", "triton", "flash-attn", "xformers",
        ],
    },
    "environment": {
        "type": "list",
        "elements": "str",
        "default": [
            "NCCL_*", "GLOO_SOCKET_IFNAME", "NVSHMEM_*", "HCCL_*", "RCCL_*", "HSA_*", "*_VISIBLE_DEVICES",
        ],
    },
    "sysctls": {
        "type": "list",
        "elements": "str",
        "default": [
            "vm.nr_hugepages", "vm.overcommit_memory", "net.core.rmem_max", "net.core.wmem_max", "kernel.numa_balancing",
        ],
    },
    "disks": {"type": "list", "elements": "str", "default": ["/", "/tmp"]},
    "imex": {"type": "str", "choices": ["auto", "host", "slurm", "kubernetes", "none"], "default": "auto"},
    "gpu_count": {"type": "int"},
}


def main() -> None:
    runner.main(stack.probe, OPTIONS, "stack", default_checks=stack.default_checks)


if __name__ == "__main__":
    main()
