# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: dcgm
short_description: Run NVIDIA's diagnostic (DCGM) on the GPUs of a node
version_added: 1.0.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Runs C(dcgmi diag) where DCGM is installed and reads its JSON, of DCGM 2 to 4. A test that DCGM skipped has not passed.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.gpus
  - gpufleet.acceptance.gpus.mig
options:
  level:
    description: The level of the diagnostic, C(dcgmi diag -r).
    type: int
    choices: [1, 2, 3, 4]
    default: 2
  dcgmi:
    description: Where C(dcgmi) is on the node; empty for that in the path.
    type: str
    default: ""
  env:
    description: Environment variables for C(dcgmi).
    type: dict
    default: {}
  test_timeout:
    description: Deadline of the diagnostic in seconds.
    type: float
    default: 900.0
"""

EXAMPLES = r"""
- name: Run the short diagnostic
  gpufleet.acceptance.dcgm:
    level: 2
  register: diagnostic
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import dcgm
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "dcgm"
OPTIONS = {
    "checks": runner.CHECKS,
    "level": {"type": "int", "choices": [1, 2, 3, 4], "default": 2},
    "dcgmi": {"type": "str", "default": ""},
    "env": {"type": "dict", "default": {}},
    "gpu_count": {"type": "int"},
    "mig": {"type": "str", "choices": ["refused", "allowed"], "default": "refused"},
    "test_timeout": {"type": "float", "default": 900.0},
}


def main() -> None:
    runner.main(dcgm.probe, OPTIONS, "dcgm", default_checks=dcgm.default_checks)


if __name__ == "__main__":
    main()
