# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_map
short_description: What a node is plugged into
version_added: 1.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Reads the RDMA ports of a node, their neighbours by LLDP, the modules in them, and the InfiniBand fabric that they are in.
  - Changes nothing. Discovering a fabric takes root and infiniband-diags.
extends_documentation_fragment: gpufleet.acceptance.probe
options:
  devices:
    description: Names of the RDMA devices to look at; C(*) stands for any text. Empty for all.
    type: list
    elements: str
    default: []
  required:
    description: Whether a missing ibnetdiscover is an error in place of a check that does not apply.
    type: bool
    default: false
  optional:
    description: Whether missing tools or rights to discover an InfiniBand fabric make a check that does not apply in place of an error.
    type: bool
    default: false
  watch:
    description: Seconds between the two readings of the counters of errors of the fabric.
    type: float
    default: 10.0
  tool_timeout:
    description: Seconds after which one tool is ended.
    type: float
    default: 60.0
"""

EXAMPLES = r"""
- name: What this node is plugged into
  gpufleet.acceptance.fabric_map:
    devices: [mlx5_*]
  become: true
  register: fabric
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import fabric_map
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "fabric_map"
OPTIONS = {
    "checks": runner.CHECKS,
    "devices": {"type": "list", "elements": "str", "default": []},
    "required": {"type": "bool", "default": False},
    "optional": {"type": "bool", "default": False},
    "watch": {"type": "float", "default": 10.0},
    "tool_timeout": {"type": "float", "default": 60.0},
}


def main() -> None:
    runner.main(fabric_map.probe, OPTIONS, "fabric_map", fabric_map.default_checks)


if __name__ == "__main__":
    main()
