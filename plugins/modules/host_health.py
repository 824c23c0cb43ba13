# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_health
short_description: Look for defects of a machine beside its accelerators
version_added: 1.0.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Looks at memory modules and their error counters, at PCIe links and their error counters, at
    disks and file systems, at the management controller, at the kernel's log and at the clock, and measures how
    fast each NUMA node copies memory.
  - Changes nothing. What cannot be seen, as in a container, is named in the result.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
options:
  tests:
    description: The checks, where O(checks) is not given.
    type: list
    elements: str
    default: [memory, pcie, storage, bmc, kernel, clock, bandwidth]
  look:
    description: V(after) is a second look after the tests of a run. It says nothing about the machine that stays the same.
    type: str
    choices: [first, after]
    default: first
  pcie_corrected:
    description: How many corrected PCIe errors a day a device may have counted before it is worth a look.
    type: float
    default: 100.0
  ras_days:
    description: How many days before the last boot an uncorrected error in the database of rasdaemon counts. With 0 only those since boot.
    type: float
    default: 30.0
"""

EXAMPLES = r"""
- name: Look for defects of memory modules
  gpufleet.acceptance.host_health:
    tests: [memory]
  register: host
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "host_health"
OPTIONS = {
    "checks": runner.CHECKS,
    "tests": {"type": "list", "elements": "str", "default": list(host_health.CHECKS)},
    "look": {"type": "str", "choices": ["first", "after"], "default": "first"},
    "pcie_corrected": {"type": "float", "default": 100.0},
    "ras_days": {"type": "float", "default": 30.0},
}


def main() -> None:
    runner.main(host_health.probe, OPTIONS, "host_health", default_checks=host_health.default_checks)


if __name__ == "__main__":
    main()
