# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_memory
short_description: Measure copies and memory of every GPU of a node
version_added: 1.0.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Measures copies between the host and every GPU, between GPUs and inside their memory, compares every byte that was copied, and tests
    nearly all free memory of the GPUs with patterns.
  - Works through NVIDIA's driver alone.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.gpus
  - gpufleet.acceptance.gpus.mig
options:
  tests:
    description: The checks, where O(checks) is not given.
    type: list
    elements: str
    default: [h2d, d2h, bidirectional, h2d_all, d2h_all, bidirectional_all, numa, peer, peer_all, device, latency, pattern]
  mib:
    description: The size of a copy in MiB.
    type: int
    default: 256
  copies:
    description: How many copies each check times on each GPU.
    type: int
    default: 16
  passes:
    description: How often the memory is tested with all patterns.
    type: int
    default: 1
  seed:
    description: Seed of the random data.
    type: int
    default: 1
  tool:
    description:
      - V(driver) measures by the driver alone. V(nvbandwidth) measures copies and latency by NVIDIA's nvbandwidth as a second opinion;
        V(numa) and V(pattern), which it does not have, stay as they are.
    type: str
    choices: [driver, nvbandwidth]
    default: driver
  nvbandwidth:
    description: Where nvbandwidth is on the node; empty for that in the path.
    type: str
    default: ""
  python:
    description: The Python on the node that runs the copies.
    type: str
    default: ""
  env:
    description: Environment variables for the copies.
    type: dict
    default: {}
  test_timeout:
    description: Deadline of all checks together in seconds.
    type: float
    default: 300.0
"""

EXAMPLES = r"""
- name: Test the memory of all GPUs
  gpufleet.acceptance.gpu_memory:
    tests: [pattern]
  register: memory
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gpu_memory
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "gpu_memory"
OPTIONS = {
    "checks": runner.CHECKS,
    "tests": {"type": "list", "elements": "str", "default": list(gpu_memory.CHECKS)},
    "mib": {"type": "int", "default": 256},
    "copies": {"type": "int", "default": 16},
    "passes": {"type": "int", "default": 1, "no_log": False},
    "seed": {"type": "int", "default": 1},
    "tool": {"type": "str", "choices": ["driver", "nvbandwidth"], "default": "driver"},
    "nvbandwidth": {"type": "str", "default": ""},
    "python": {"type": "str", "default": ""},
    "env": {"type": "dict", "default": {}},
    "gpu_count": {"type": "int"},
    "mig": {"type": "str", "choices": ["refused", "allowed"], "default": "refused"},
    "test_timeout": {"type": "float", "default": 300.0},
}


def main() -> None:
    runner.main(gpu_memory.probe, OPTIONS, "gpu_memory", default_checks=gpu_memory.default_checks)


if __name__ == "__main__":
    main()
