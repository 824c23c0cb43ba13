# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: exporter
short_description: Answer Prometheus with the fleet of today
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Serves C(/metrics) and C(/healthz) of what the history says of each node and check last, until it is ended.
  - Used by C(playbooks/exporter.yml). Runs on the controller and connects to no host.
  - As a service of its own it is started without Ansible, see C(docs/observability.md).
extends_documentation_fragment:
  - gpufleet.acceptance.history
  - gpufleet.acceptance.reading.acting
  - gpufleet.acceptance.serving
options:
  address:
    description: Address to answer on. Empty for all.
    type: str
    default: ""
  port:
    description: Port to answer on. V(0) takes one that is free.
    type: int
    default: 9469
"""

EXAMPLES = r"""
- name: Answer Prometheus
  gpufleet.acceptance.exporter:
    results_dir: results
    address: 127.0.0.1
  run_once: true
"""

RETURN = r"""
msg:
  description: That it has ended.
  returned: always
  type: str
"""
