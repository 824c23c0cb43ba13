# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: measure
short_description: Measure with a tool of your own
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Runs one command line per check and takes numbers from what it prints. With it a team adds a stage without Python.
  - Anything but exactly one number per metric is an error, never a measurement.
extends_documentation_fragment: gpufleet.acceptance.probe
options:
  argv:
    description: The command line. C({check}) and C({key}) of the check's variant are filled in.
    type: list
    elements: str
    required: true
  metrics:
    description:
      - Where the numbers are. Each must be in what the tool prints, once.
      - An empty list says that the check is about a condition and has no number. Its exit status is the result then, 0 is PASS,
        unless an expectation speaks of it.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the metric.
        type: str
        required: true
      unit:
        description: Its unit, V(GB/s) for example.
        type: str
        required: true
      regex:
        description: A regular expression with one group around the number, that matches once.
        type: str
      json:
        description: The key in the one JSON object that the tool prints.
        type: str
  context:
    description: What expectations of this stage may match on.
    type: dict
    default: {}
  env:
    description: Environment variables for the tool.
    type: dict
    default: {}
  test_timeout:
    description: Deadline of one command in seconds.
    type: float
    default: 300.0
"""

EXAMPLES = r"""
- name: Measure the disk
  gpufleet.acceptance.measure:
    checks: "{{ disk_checks }}"
    argv: [fio, "--name={check}", --rw=read, --size=1G]
    metrics:
      - {name: bandwidth, unit: MiB/s, regex: 'READ: bw=([0-9.]+)MiB/s'}
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import tool
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "tool"
OPTIONS = {
    "checks": runner.CHECKS,
    "argv": {"type": "list", "elements": "str", "required": True},
    "metrics": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "unit": {"type": "str", "required": True},
            "regex": {"type": "str"},
            "json": {"type": "str"},
        },
        "required_one_of": [("regex", "json")],
        "mutually_exclusive": [("regex", "json")],
    },
    "context": {"type": "dict", "default": {}},
    "env": {"type": "dict", "default": {}},
    "test_timeout": {"type": "float", "default": 300.0},
}


def main() -> None:
    runner.main(tool.probe, OPTIONS, "measure")


if __name__ == "__main__":
    main()
