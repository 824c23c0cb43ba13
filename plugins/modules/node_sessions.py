#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_sessions
short_description: Show or end what acceptance runs are doing on a machine
version_added: 1.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Shows which run and stage holds a machine, since when, until when at the latest, and who started it.
  - Ends the sessions of given runs. Their guardians end all processes and give back what was changed.
  - Results that a machine still keeps of an ended run are removed; a resume of the run measures those checks again.
options:
  state:
    description:
      - V(listed) shows sessions.
      - V(ended) ends the sessions of O(run_ids).
    type: str
    choices: [listed, ended]
    default: listed
  run_ids:
    description: The runs. All runs if it is empty and O(state=listed); none if it is empty and O(state=ended).
    type: list
    elements: str
    default: []
  all:
    description: End the sessions of all runs.
    type: bool
    default: false
  abandoned:
    description:
      - Take only runs whose controller is gone. This is seen only from the machine on which the controller ran; the others are left alone.
      - Evaluated on the controller.
    type: bool
    default: false
  state_dir:
    description: The state directory of the runs; by default that of C(acceptance_state_dir).
    type: path
    default: ""
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
  diff_mode:
    description: Returns what changed.
    support: none
    details: The rows say what was ended.
  idempotent:
    description: Whether a second call does nothing.
    support: full
"""

EXAMPLES = r"""
- name: Show what runs on the machine
  gpufleet.acceptance.node_sessions:
  become: true

- name: End a run
  gpufleet.acceptance.node_sessions:
    state: ended
    run_ids: [20260101T000000Z-0a1b2c]
  become: true
"""

RETURN = r"""
sessions:
  description: The sessions that were found.
  returned: always
  type: list
  elements: dict
  contains:
    run_id:
      description: The run.
      type: str
    stage:
      description: The stage.
      type: str
    state:
      description: V(running), or V(kept) if only a result is kept for the controller.
      type: str
    since:
      description: When the session began, in seconds since the epoch; V(0) if it is not known.
      type: int
    until:
      description: When it ends at the latest, in seconds since the epoch; V(0) if it is not known.
      type: int
    outlives:
      description: Whether it goes on without its controller.
      type: bool
    by:
      description: The user and the machine that started the run.
      type: str
    ended:
      description: Whether it was ended.
      returned: O(state=ended)
      type: bool
pending:
  description: What runs that have ended have left to give back, such as a folder that could not be removed. C(restore.yml) does it.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import sessions
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import default_state_dir

SPEC = {
    "state": {"type": "str", "choices": ["listed", "ended"], "default": "listed"},
    "run_ids": {"type": "list", "elements": "str", "default": []},
    "all": {"type": "bool", "default": False},
    "abandoned": {"type": "bool", "default": False},
    "state_dir": {"type": "path", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    state_dir = params["state_dir"] or default_state_dir()
    rows = sessions.listed(state_dir)
    if params["run_ids"] or (params["state"] == "ended" and not params["all"]):
        rows = [row for row in rows if row["run_id"] in params["run_ids"]]
    changed = params["state"] == "ended" and bool(rows)
    if changed and not module.check_mode:
        rows = sessions.end(state_dir, {row["run_id"] for row in rows})
    module.exit_json(changed=changed, sessions=rows, pending=sessions.pending(state_dir))


if __name__ == "__main__":
    main()
