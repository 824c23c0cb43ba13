# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: history_export
short_description: Write the history into a file for other programs
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - A row for each number with its run, subject, check and verdict. Used by C(playbooks/history_export.yml). Runs on the controller and
    connects to no host.
extends_documentation_fragment:
  - gpufleet.acceptance.history
  - gpufleet.acceptance.history.asked
  - gpufleet.acceptance.reading.acting
options:
  file:
    description: The file; its ending says which form, C(.csv), C(.json) with an object in each line, or C(.parquet), which needs pyarrow.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: All numbers of this year
  gpufleet.acceptance.history_export:
    results_dir: results
    since: 2026-01-01
    file: numbers.csv
  run_once: true
"""

RETURN = r"""
file:
  description: The file.
  returned: success
  type: str
count:
  description: How many rows it has.
  returned: success
  type: int
"""
