# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: train
short_description: Matrix products and a small training on every GPU of a node
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Multiplies matrices and trains a small network on every GPU, one after the other and all at once, in a process for each GPU, and returns
    whether products are right, the loss falls, and all GPUs give the same bits for the same seed.
  - A GPU that gives other bits than most is named. Where two differ and nothing says which of them is wrong, none is.
  - Needs PyTorch, 1.13 or later, in the chosen Python; for NPUs torch_npu.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.gpus
  - gpufleet.acceptance.gpus.mig
  - gpufleet.acceptance.gpus.torch
options:
  types:
    description: Data types of the products, where O(checks) is not given; V(bf16), V(fp16), V(tf32), V(fp32), V(fp64) or V(fp8).
    type: list
    elements: str
    default: [bf16]
  shape:
    description: Sizes m x n x k of the products, where O(checks) is not given.
    type: str
    default: 8192x8192x8192
  seconds:
    description: How long each product is timed, in seconds.
    type: float
    default: 1.0
  steps:
    description: How many steps a training has.
    type: int
    default: 60
  width:
    description: How wide the trained network is; it has 8 times the square of that in weights.
    type: int
    default: 2048
  batch:
    description: How many samples a step has.
    type: int
    default: 4096
  seed:
    description: What the weights and the data are drawn from.
    type: int
    default: 1
  minutes:
    description: How long all GPUs together repeat the same training, where O(checks) is not given. V(0) is not at all.
    type: float
    default: 0.0
  gpus:
    description: How many GPUs, the first ones. V(0) is all.
    type: int
    default: 0
  device:
    description:
      - Which devices PyTorch uses; V(auto) is what the node has. V(cpu) computes on the CPU in place of each GPU, and its results are
        stamped as simulated.
    type: str
    choices: [auto, cuda, npu, cpu]
    default: auto
  results_dir:
    description: >-
      A folder on the node where C(summary.json) and C(gpu_tests_result.json), or C(gpu_tests_skipped.json), are left, as acceptance
      images name them. Empty for none.
    type: str
    default: ""
  silence_timeout:
    description: How long the process of a GPU may say nothing before it is ended, in seconds.
    type: float
    default: 120.0
  test_timeout:
    description: Deadline of everything but the minutes of the burn-in, in seconds.
    type: float
    default: 300.0
"""

EXAMPLES = r"""
- name: Train on all GPUs of a node
  gpufleet.acceptance.train:
    python: /opt/torch/bin/python3
  register: trained

- name: An hour of it
  gpufleet.acceptance.train:
    minutes: 60
    timeout: 4200
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import train
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "train"
OPTIONS = {
    "checks": runner.CHECKS,
    "types": {"type": "list", "elements": "str", "default": ["bf16"]},
    "shape": {"type": "str", "default": "8192x8192x8192"},
    "modes": {"type": "list", "elements": "str", "default": ["alone", "together"]},
    "seconds": {"type": "float", "default": 1.0},
    "warmup_seconds": {"type": "float", "default": 1.0},
    "steps": {"type": "int", "default": 60},
    "width": {"type": "int", "default": 2048},
    "batch": {"type": "int", "default": 4096},
    "seed": {"type": "int", "default": 1},
    "minutes": {"type": "float", "default": 0.0},
    "gpus": {"type": "int", "default": 0},
    "device": {"type": "str", "choices": ["auto", "cuda", "npu", "cpu"], "default": "auto"},
    "python": {"type": "str", "default": ""},
    "env": {"type": "dict", "default": {}},
    "gpu_count": {"type": "int"},
    "mig": {"type": "str", "choices": ["refused", "allowed"], "default": "refused"},
    "results_dir": {"type": "str", "default": ""},
    "silence_timeout": {"type": "float", "default": 120.0},
    "test_timeout": {"type": "float", "default": 300.0},
}


def main() -> None:
    runner.main(train.probe, OPTIONS, "train", default_checks=train.default_checks)


if __name__ == "__main__":
    main()
