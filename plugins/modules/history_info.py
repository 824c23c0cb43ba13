# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: history_info
short_description: Search the history of all runs
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Verdicts and numbers of all runs, by node, check, day and verdict, as a table in the terminal, as data, and as a page with curves.
  - Used by C(playbooks/history.yml). Runs on the controller and connects to no host.
extends_documentation_fragment:
  - gpufleet.acceptance.history
  - gpufleet.acceptance.history.asked
  - gpufleet.acceptance.history.json
  - gpufleet.acceptance.reading
options:
  page:
    description: A file for a page with the curves.
    type: str
    default: ""
  show:
    description: Whether the table is shown.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: What was wrong with a node in the last half year
  gpufleet.acceptance.history_info:
    results_dir: results
    node: gpu-01
    since: 6m
    verdict: FAIL,WARN
  run_once: true
"""

RETURN = r"""
runs:
  description: The runs in which something was found, the newest first.
  returned: success
  type: list
  elements: dict
rows:
  description: A verdict each, with its value, floor, reason and all numbers of its measurement.
  returned: success
  type: list
  elements: dict
cut:
  description: Whether there is more than is returned.
  returned: success
  type: bool
files:
  description: The files that were written.
  returned: success
  type: list
  elements: str
"""
