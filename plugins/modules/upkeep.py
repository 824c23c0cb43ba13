# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: upkeep
short_description: Show, end or remove what runs have on a host
version_added: 1.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Does one operation on runs as the plane of the host does it, whether the host is a machine behind SSH, a cluster, or of a plane of
    your own.
  - A host whose plane does not have the operation is skipped.
  - Used by the playbooks of the same names as the operations.
options:
  operation:
    description:
      - V(status) shows what runs are doing, V(logs) what their tests have printed.
      - V(stop) ends the run O(run_id), or all runs, whoever started them.
      - V(restore) gives back what killed runs have left, and leaves runs that live alone. It does not keep to O(run_id).
      - V(cleanup) removes all of the run O(run_id); without it, what no run will come for.
      - V(support_files) collects what goes with the parts that are sent back, where the punch list of a hand-over has an open row of one.
      - V(observability_preflight) shows what of a cluster's storage is in the way of Prometheus.
    type: str
    choices: [status, stop, logs, restore, cleanup, support_files, observability_preflight]
    required: true
  run_id:
    description: The run; all runs if it is empty.
    type: str
    default: ""
  stage:
    description: Only what belongs to this stage, where the plane can tell.
    type: str
    default: ""
  node:
    description: Only what runs on this node, where the plane can tell.
    type: str
    default: ""
  tail:
    description: The number of last lines of each log that are shown; V(0) for none.
    type: int
    default: 0
  previous:
    description: Show the log of what ran before the present attempt.
    type: bool
    default: false
  follow:
    description: For how many seconds logs are followed on the terminal.
    type: float
    default: 0
  storage_class:
    description: The class of storage that the claims of Prometheus are to have.
    type: str
    default: csi-s3
  claims_namespace:
    description: The namespace of Prometheus.
    type: str
    default: monitoring
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
    details: Shows what would be ended or removed.
  diff_mode:
    description: Returns what changed.
    support: none
    details: The result lists what was ended or removed.
  idempotent:
    description: Whether a second call does nothing.
    support: full
seealso:
  - module: gpufleet.acceptance.node_sessions
  - module: gpufleet.acceptance.cpu_governor
  - module: gpufleet.acceptance.kube_status
  - module: gpufleet.acceptance.kube_cleanup
  - module: gpufleet.acceptance.kube_storage
  - module: gpufleet.acceptance.support_files
"""

EXAMPLES = r"""
- name: Show what runs are doing
  gpufleet.acceptance.upkeep:
    operation: status
  become: true

- name: End a run
  gpufleet.acceptance.upkeep:
    operation: stop
    run_id: 20260101T000000Z-0a1b2c
  become: true
"""

RETURN = r"""
found:
  description:
    - Whether the host has something of the run, or of any run if none is named.
    - The other values are those of the module by which the plane does the operation.
  returned: if the operation looks for runs
  type: bool
"""
