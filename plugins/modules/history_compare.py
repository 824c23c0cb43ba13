# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: history_compare
short_description: Compare two runs of the history
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Verdicts that changed, numbers beyond the scatter of their own subject, nodes and GPUs that came, went or moved, and facts that changed.
    Simulated and real are never compared.
  - Used by C(playbooks/compare.yml). Runs on the controller and connects to no host.
extends_documentation_fragment:
  - gpufleet.acceptance.history
  - gpufleet.acceptance.history.json
  - gpufleet.acceptance.reading
options:
  runs:
    description:
      - Two runs, the older one first. One is compared with the last accepted run before it of the same subjects, and so is the newest
        where none is given.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: What has changed since the last accepted run
  gpufleet.acceptance.history_compare:
    results_dir: results
  run_once: true
"""

RETURN = r"""
before:
  description: The older run.
  returned: success
  type: str
after:
  description: The newer run.
  returned: success
  type: str
values:
  description: Of each check and subject both values, the change in percent, and the subject's own scatter where its history is long enough.
  returned: success
  type: list
  elements: dict
verdicts:
  description: Verdicts that changed.
  returned: success
  type: list
  elements: dict
places:
  description: Nodes, GPUs and ports that came, went, moved or were renamed.
  returned: success
  type: list
  elements: dict
not_in_scope:
  description: Under C(before) and C(after), the nodes of the other run that this one was not to measure.
  returned: success
  type: dict
facts:
  description: Facts that changed, with the nodes.
  returned: success
  type: list
  elements: dict
"""
