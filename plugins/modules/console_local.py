# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: console_local
short_description: Open the console of a laptop
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Serves the pages of the console at an address of this machine, and carries out what is asked for there over SSH, until it is ended.
  - Prints a link that holds once; whoever opens it is the one person of this console.
  - Used by C(playbooks/console.yml) with C(console_local=true). Runs on the controller.
extends_documentation_fragment:
  - gpufleet.acceptance.history
  - gpufleet.acceptance.reading.acting
  - gpufleet.acceptance.serving
options:
  inventory:
    description: Inventory of the hosts that requests may name.
    type: str
    required: true
  folder:
    description: Where the console keeps what it was asked for. Empty for C(.console) in the results folder.
    type: str
    default: ""
  address:
    description: Address to answer on, one of this machine's own.
    type: str
    default: 127.0.0.1
  port:
    description: Port to answer on.
    type: int
    default: 8470
"""

EXAMPLES = r"""
- name: Open the console
  gpufleet.acceptance.console_local:
    inventory: cluster
    results_dir: results
  run_once: true
"""

RETURN = r"""
msg:
  description: That it has ended.
  returned: always
  type: str
"""
