# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ddp
short_description: Train over nodes with PyTorch
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Run on one node of a group, the head, it starts torchrun on all nodes with a workload of its own that checks collectives, measures their
    bandwidth, trains, and times every rank.
  - Nodes meet before torchrun does, so that one that does not come, a port that is in use and versions that differ are named in seconds.
  - Where the group is slow, or fails and does not say whose fault it is, parts of it are measured, as by
    M(gpufleet.acceptance.nccl_fabric).
  - A slow result is a result. The module fails only where it was called wrongly.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.gpus.mig
  - gpufleet.acceptance.group
  - gpufleet.acceptance.group.search
options:
  group:
    description: What the group is called in the result.
    type: str
    default: ddp
  gpus:
    description: GPUs of each node to train with, one rank each, V(all) or a number, where O(checks) is not given.
    type: str
    default: all
  backend:
    description: >-
      What carries the collectives, V(nccl) of GPUs or V(hccl) of Ascend NPUs with torch_npu; V(auto) is the one of what the nodes have.
      V(gloo) trains on the CPUs.
    type: str
    choices: [nccl, gloo, hccl, auto]
    default: nccl
  python:
    description: The interpreter that has PyTorch, the same path on every node. Empty for C(python3) in the C(PATH).
    type: str
    default: ""
  rendezvous:
    description: How torchrun finds the other nodes. C(c10d) also uses ports that it chooses itself.
    type: str
    choices: [c10d, static]
    default: c10d
  port:
    description: The port of the rendezvous on the first node of a group. Each further launch of a search takes the next one.
    type: int
    default: 29500
  collectives:
    description: Operations whose values are checked, all of them, on fresh tensors.
    type: list
    elements: str
    choices: [all_reduce, all_gather, reduce_scatter, broadcast, all_to_all]
    default: [all_reduce, all_gather, reduce_scatter, broadcast, all_to_all]
  types:
    description: Data types in which they are checked; what the backend does not have is said.
    type: list
    elements: str
    choices: [int32, int64, float32, float64, float16, bfloat16]
    default: [int32, int64, float32, float64, float16, bfloat16]
  elements:
    description: How many elements a tensor of these has.
    type: int
    default: 1048576
  rounds:
    description: How often each of them is checked.
    type: int
    default: 3
  ops:
    description: Operations whose bandwidth is measured, as nccl-tests computes it.
    type: list
    elements: str
    choices: [all_reduce, all_gather, reduce_scatter, broadcast, all_to_all]
    default: [all_reduce]
  type:
    description: Data type in which bandwidth is measured.
    type: str
    choices: [float, double, half, bfloat16]
    default: float
  sizes:
    description: >-
      Smallest and largest message; each is four times the one before. V(auto) is the largest power of two that fits, 16 GiB at
      most.
    type: str
    default: "1M:4G"
  iterations:
    description: Operations in flight of each size, at least.
    type: int
    default: 20
  warmup:
    description: Operations before the clock starts.
    type: int
    default: 5
  fill_seconds:
    description: >-
      So long is each size measured at least, three times, and before that once for nothing: clocks settle.
    type: float
    default: 0.3
  steps:
    description: Steps of the training, which is done twice.
    type: int
    default: 30
  seed:
    description: The seed of weights and data.
    type: int
    default: 1
  width:
    description: Inputs and outputs of the trained network; its hidden layer has four times as many.
    type: int
    default: 1024
  batch:
    description: Samples of a step on each rank.
    type: int
    default: 512
  straggler_percent:
    description: A rank whose computing takes so much longer than the median of the group is a straggler.
    type: float
    default: 10.0
  results_dir:
    description: >-
      A folder on the first node of a group where C(summary.json), C(ddp_tests_result.json) and C(ddp_training_result.json) are
      left, as acceptance images name them. Empty for none.
    type: str
    default: ""
  collective_timeout:
    description: How many seconds an operation may take before it hangs.
    type: float
    default: 60.0
  test_timeout:
    description: Deadline of one launch in seconds.
    type: float
    default: 900.0
"""

EXAMPLES = r"""
- name: Training over two nodes that reach one another by SSH
  gpufleet.acceptance.ddp:
    members:
      - {name: gpu-01, address: 10.1.30.41, gpus: 8, local: true}
      - {name: gpu-02, address: 10.1.30.42, gpus: 8}
    sizes: 8M:4G
    env: {NCCL_IB_HCA: mlx5}
  register: trained

- name: Show how it went
  ansible.builtin.debug:
    msg: "{{ trained.observations | items2dict(key_name='check', value_name='reason') }}"
"""

RETURN = r"""
observations:
  description: What was measured, or why it was not; one entry per check of the group, one per finding of the search, one per member.
  returned: always
  type: list
  elements: dict
  contains:
    check:
      description: V(collectives), V(training), V(pace), an operation for its bandwidth, V(localise) for a finding, V(member) for a node.
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
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "ddp"
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]
TYPES = ["int32", "int64", "float32", "float64", "float16", "bfloat16"]
OPTIONS = {
    **{name: option for name, option in membership.OPTIONS.items() if name not in membership.MPI},
    **membership.SEARCH,
    "checks": runner.CHECKS,
    "group": {"type": "str", "default": "ddp"},
    "gpus": {"type": "str", "default": "all"},
    "backend": {"type": "str", "choices": ["nccl", "gloo", "hccl", "auto"], "default": "nccl"},
    "python": {"type": "str", "default": ""},
    "rendezvous": {"type": "str", "choices": ["c10d", "static"], "default": "c10d"},
    "port": {"type": "int", "default": 29500},
    "collectives": {"type": "list", "elements": "str", "choices": OPS, "default": OPS},
    "types": {"type": "list", "elements": "str", "choices": TYPES, "default": TYPES},
    "elements": {"type": "int", "default": 1048576},
    "rounds": {"type": "int", "default": 3},
    "ops": {"type": "list", "elements": "str", "choices": OPS, "default": ["all_reduce"]},
    "type": {"type": "str", "choices": ["float", "double", "half", "bfloat16"], "default": "float"},
    "sizes": {"type": "str", "default": "1M:4G"},
    "iterations": {"type": "int", "default": 20},
    "warmup": {"type": "int", "default": 5},
    "fill_seconds": {"type": "float", "default": 0.3},
    "steps": {"type": "int", "default": 30},
    "seed": {"type": "int", "default": 1},
    "width": {"type": "int", "default": 1024},
    "batch": {"type": "int", "default": 512},
    "straggler_percent": {"type": "float", "default": 10.0},
    "results_dir": {"type": "str", "default": ""},
    "collective_timeout": {"type": "float", "default": 60.0},
    "test_timeout": {"type": "float", "default": 900.0},
}


def main() -> None:
    runner.main(ddp.probe, OPTIONS, "ddp", default_checks=ddp.default_checks)


if __name__ == "__main__":
    main()
