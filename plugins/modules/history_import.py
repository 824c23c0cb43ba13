# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: history_import
short_description: Bring the runs of a results folder into the history
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Writes every judged run of a results folder that the history does not have, the oldest first; each as a whole or not at all.
    What it has already is left alone. A run whose folder is not what was written is named and left out.
  - Used by C(playbooks/history_import.yml). Runs on the controller and connects to no host.
extends_documentation_fragment:
  - gpufleet.acceptance.history
  - gpufleet.acceptance.reading.acting
"""

EXAMPLES = r"""
- name: Make the history from the folders of all runs
  gpufleet.acceptance.history_import:
    results_dir: results
  run_once: true
"""

RETURN = r"""
runs:
  description: The runs of which something was new.
  returned: success
  type: list
  elements: str
left_out:
  description: Runs that were left out, each with the reason.
  returned: success
  type: list
  elements: str
msg:
  description: What was done, in one line.
  returned: always
  type: str
"""
