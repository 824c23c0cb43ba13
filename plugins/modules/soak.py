# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: soak
short_description: Load all GPUs of a node for hours
version_added: 1.0.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Computes matrix products, tests device memory and copies from and to the host and between GPUs, all at once on all GPUs of a node for
    hours, compares the results of every lap, and takes samples of rates, temperature, power, clocks and errors.
  - Works through NVIDIA's driver alone, or through AMD's runtime (HIP). What was finished before an interruption counts.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.gpus
  - gpufleet.acceptance.gpus.mig
options:
  hours:
    description: How long all GPUs are loaded, in hours.
    type: float
    default: 72.0
  leg_minutes:
    description: How long one leg is, in minutes. What an interruption costs is one leg at most.
    type: float
    default: 10.0
  sample_seconds:
    description: How long one sample is, in seconds.
    type: float
    default: 60.0
  mib:
    description: The size of a copy in MiB. The host needs three times that for each GPU as pinned memory.
    type: int
    default: 256
  memory_percent:
    description: Which share of the free memory of each GPU is tested while it computes.
    type: float
    default: 80.0
  seed:
    description: Seed of the products, the pattern and the copied data.
    type: int
    default: 1
  jitter_percent:
    description: The largest standard deviation of a GPU's TFLOPS between samples, in percent of their mean.
    type: float
    default: 3.0
  temperature_spread:
    description:
      - How far apart the temperatures of the GPUs of a node may be, in C. Each is taken against what is usual in its slot of nodes of the
        same product, if six nodes or more were measured, else as it is.
    type: float
    default: 8.0
  temperature_slots:
    description: How far apart, in C, they may be as they are, if the difference is usual in their slots.
    type: float
    default: 16.0
  temperature_fleet:
    description:
      - How much hotter a GPU may be than the median of the GPUs in its slot of all nodes of the product, in C; judged from six nodes on.
    type: float
    default: 10.0
  throttled_percent:
    description: For which share of the time a GPU may be held back by something else than its power limit.
    type: float
    default: 0.0
  power_percent:
    description: Which share of its power limit a GPU must draw unless its clock is near the highest.
    type: float
    default: 90.0
  errors:
    description: >-
      How many errors of one kind may be counted on a node or a GPU in the whole soak, such as corrected memory errors, PCIe
      replays, errors of links, Xids.
    type: int
    default: 0
  reboots:
    description: How often a node may be started anew while it is loaded.
    type: int
    default: 0
  loopback:
    description: Whether RDMA ports are loaded too, each against itself, by perftest. Nodes without RDMA skip the check.
    type: bool
    default: true
  loopback_devices:
    description: Patterns of the RDMA devices whose ports are loaded; empty for all.
    type: list
    elements: str
    default: []
  loopback_binary_dir:
    description: Where perftest is on the node; empty for that in the path.
    type: str
    default: ""
  loopback_tcp_port:
    description: The first of as many free TCP ports of the node as there are RDMA ports.
    type: int
    default: 18515
  python:
    description: The Python on the node that runs the workload; any from 3.8 on does.
    type: str
    default: ""
  env:
    description: Environment variables for the workload.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Load all GPUs for an hour
  gpufleet.acceptance.soak:
    hours: 1
    timeout: 4500
  register: soak
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import soak
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "soak"
OPTIONS = {
    "checks": runner.CHECKS,
    "hours": {"type": "float", "default": 72.0},
    "leg_minutes": {"type": "float", "default": 10.0},
    "sample_seconds": {"type": "float", "default": 60.0},
    "mib": {"type": "int", "default": 256},
    "memory_percent": {"type": "float", "default": 80.0},
    "seed": {"type": "int", "default": 1},
    "jitter_percent": {"type": "float", "default": 3.0},
    "temperature_spread": {"type": "float", "default": 8.0},
    "temperature_slots": {"type": "float", "default": 16.0},
    "temperature_fleet": {"type": "float", "default": 10.0},
    "throttled_percent": {"type": "float", "default": 0.0},
    "power_percent": {"type": "float", "default": 90.0},
    "errors": {"type": "int", "default": 0},
    "reboots": {"type": "int", "default": 0},
    "loopback": {"type": "bool", "default": True},
    "loopback_devices": {"type": "list", "elements": "str", "default": []},
    "loopback_binary_dir": {"type": "str", "default": ""},
    "loopback_tcp_port": {"type": "int", "default": 18515},
    "python": {"type": "str", "default": ""},
    "env": {"type": "dict", "default": {}},
    "gpu_count": {"type": "int"},
    "mig": {"type": "str", "choices": ["refused", "allowed"], "default": "refused"},
}


def main() -> None:
    runner.main(soak.probe, OPTIONS, "soak", default_checks=soak.default_checks)


if __name__ == "__main__":
    main()
