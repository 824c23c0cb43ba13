# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_ports
short_description: RDMA devices, ports and GIDs of a node
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Reads the RDMA devices of a node from sysfs, with or without the tools of rdma-core, and names what is wrong before anything
    is measured, such as a port that is down or slower than its siblings.
  - The order of the devices' names, numbers as numbers, numbers the rails.
  - Changes nothing.
extends_documentation_fragment: gpufleet.acceptance.probe
options:
  devices:
    description: Names of the devices to look at; C(*) stands for any text. Empty for all.
    type: list
    elements: str
    default: []
  port:
    description: The port of each device to look at, where a device has several and not all of them are rails.
    type: int
  network:
    description: Networks as CIDR of which the chosen GID must be. Empty for any.
    type: list
    elements: str
    default: []
  gid_index:
    description: The index of the GID to use, where it is not to be chosen.
    type: int
  roce_version:
    description: The version of RoCE of the chosen GID.
    type: int
    choices: [1, 2]
    default: 2
  address_family:
    description: V(ipv4) or V(ipv6); empty takes IPv4 before IPv6.
    type: str
    choices: ["", ipv4, ipv6]
    default: ""
  link_local:
    description: Whether a link-local GID may be chosen where there is no other.
    type: bool
    default: false
  rails:
    description: How many rails the node should have; another number is a finding.
    type: int
  gbps:
    description:
      - What each rail should run at, in Gb/s, in the order of the rails, or one number for all of them; a slower one is a finding.
      - Without it a port is held against its siblings.
    type: list
    elements: float
    default: []
"""

EXAMPLES = r"""
- name: The RDMA ports of a node, with the GIDs of the storage network left alone
  gpufleet.acceptance.rdma_ports:
    devices: [mlx5_*]
    network: [192.168.0.0/16]
  register: rdma

- name: What ibdev2netdev prints
  ansible.builtin.debug:
    msg: "{{ rdma.observations[0].context.table }}"
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "rdma_ports"
OPTIONS = {
    "checks": runner.CHECKS,
    "devices": {"type": "list", "elements": "str", "default": []},
    "port": {"type": "int"},
    "network": {"type": "list", "elements": "str", "default": []},
    "gid_index": {"type": "int"},
    "roce_version": {"type": "int", "choices": [1, 2], "default": 2},
    "address_family": {"type": "str", "choices": ["", "ipv4", "ipv6"], "default": ""},
    "link_local": {"type": "bool", "default": False},
    "rails": {"type": "int"},
    "gbps": {"type": "list", "elements": "float", "default": []},
}


def main() -> None:
    runner.main(rdma_ports.probe, OPTIONS, "rdma_ports", rdma_ports.default_checks)


if __name__ == "__main__":
    main()
