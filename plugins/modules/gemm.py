# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gemm
short_description: Measure matrix products on every GPU of a node
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Multiplies large random matrices on every GPU, one after the other and all at once, checks every element of every product,
    and returns time and TFLOPS of each GPU.
  - Uses PyTorch where the chosen Python has it, else calls cuBLAS itself.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.gpus
  - gpufleet.acceptance.gpus.mig
  - gpufleet.acceptance.gpus.torch
options:
  types:
    description: Data types, where O(checks) is not given; V(bf16), V(fp16), V(tf32), V(fp32), V(fp64) or V(fp8).
    type: list
    elements: str
    default: [bf16]
  shape:
    description: Sizes m x n x k, where O(checks) is not given.
    type: str
    default: 8192x8192x8192
  seconds:
    description: How long each product is timed, in seconds.
    type: float
    default: 2.0
  test_timeout:
    description: Deadline of all products together in seconds.
    type: float
    default: 300.0
"""

EXAMPLES = r"""
- name: Measure BF16 products on all GPUs
  gpufleet.acceptance.gemm:
    python: /opt/torch/bin/python3
  register: gemm
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gemm
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "gemm"
OPTIONS = {
    "checks": runner.CHECKS,
    "types": {"type": "list", "elements": "str", "default": ["bf16"]},
    "shape": {"type": "str", "default": "8192x8192x8192"},
    "modes": {"type": "list", "elements": "str", "default": ["alone", "together"]},
    "seconds": {"type": "float", "default": 2.0},
    "warmup_seconds": {"type": "float", "default": 1.0},
    "python": {"type": "str", "default": ""},
    "env": {"type": "dict", "default": {}},
    "gpu_count": {"type": "int"},
    "mig": {"type": "str", "choices": ["refused", "allowed"], "default": "refused"},
    "test_timeout": {"type": "float", "default": 300.0},
}


def main() -> None:
    runner.main(gemm.probe, OPTIONS, "gemm", default_checks=gemm.default_checks)


if __name__ == "__main__":
    main()
