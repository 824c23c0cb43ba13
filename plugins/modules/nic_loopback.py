# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_loopback
short_description: Measure every RDMA port of a node against itself
version_added: 1.0.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Measures every active RDMA port with perftest over the port's own GID, each port alone and all ports at once, with memory of the port's
    NUMA node, and looks at the ports and their PCIe links.
  - Holds a CPU frequency governor meanwhile and gives it back whatever happens.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.perftest
options:
  tests:
    description: The tests, where O(checks) is not given. The check V(ports) is always made.
    type: list
    elements: str
    choices: [read_bw, write_bw, read_lat, write_lat, read_bw_all, write_bw_all]
    default: [read_bw, write_bw, read_lat, write_lat, read_bw_all, write_bw_all]
  gpu:
    description: Whether to measure also V(read_bw_gpu) and V(write_bw_gpu), with buffers in the memory of the GPU nearest to each port.
    type: bool
    default: false
  devices:
    description: Names of the RDMA devices to measure; C(*) stands for any text. Empty for all.
    type: list
    elements: str
    default: []
  port:
    description: The port of each device, where a device has several and not all of them are meant.
    type: int
  ports:
    description: How many ports the node should have. With 0 a node without RDMA devices is skipped, whatever hardware it has.
    type: int
  gbps:
    description:
      - The rate in Gb/s at which each port should run, in the order of the ports, or one number for all; a slower port is a finding.
      - Without it a port is held to the best port of its model.
    type: list
    elements: float
    default: []
  size:
    description: Message size of the bandwidth tests in bytes.
    type: int
    default: 65536
  qps:
    description: Queue pairs of the bandwidth tests.
    type: int
    default: 8
  duration:
    description: Seconds of a bandwidth test of one port; one of all ports lasts twice as long, of which the middle half counts.
    type: int
    default: 2
  tcp_port:
    description: The first of the TCP ports of perftest's own connections, one for each RDMA port.
    type: int
    default: 18515
  governor:
    description: The CPU frequency governor to hold; empty to leave it as it is.
    type: str
    default: performance
  test_timeout:
    description: Seconds after its begin at which a test is ended.
    type: float
    default: 30.0
"""

EXAMPLES = r"""
- name: Measure the InfiniBand ports of this node
  gpufleet.acceptance.nic_loopback:
    devices: ["mlx5_ib*"]
  become: true
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nic_loopback
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import loopback

# The file in probes/ that does the work on a node.
PROBE = "nic_loopback"
OPTIONS = {
    "checks": runner.CHECKS,
    "tests": {"type": "list", "elements": "str", "choices": list(loopback.TESTS), "default": list(loopback.TESTS)},
    "gpu": {"type": "bool", "default": False},
    "devices": {"type": "list", "elements": "str", "default": []},
    "port": {"type": "int"},
    "ports": {"type": "int"},
    "gbps": {"type": "list", "elements": "float", "default": []},
    "size": {"type": "int", "default": 65536},
    "qps": {"type": "int", "default": 8},
    "duration": {"type": "int", "default": 2},
    "binary_dir": {"type": "path", "default": ""},
    "tcp_port": {"type": "int", "default": 18515},
    "governor": {"type": "str", "default": "performance"},
    "test_timeout": {"type": "float", "default": 30.0},
}


def main() -> None:
    runner.main(nic_loopback.probe, OPTIONS, "nic_loopback", default_checks=nic_loopback.default_checks)


if __name__ == "__main__":
    main()
