#!/usr/bin/python
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: support_files
short_description: Collect what goes with a GPU that is sent back to its maker
version_added: 1.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Returns the output of the tools of the machine's GPUs and the kernel's log.
  - With O(bug_report) also the archive of the maker's own program, C(nvidia-bug-report.sh) on NVIDIA. It takes minutes, needs root and
    writes to the disk of the machine, in a folder below O(state_dir) that is removed whatever happens. If it hangs, as it may on a GPU that
    is lost, it is ended and tried once more in its safe mode.
  - The machine belongs to no run meanwhile; one that a run holds is left alone.
options:
  bug_report:
    description: Run the maker's own program too. Its archive may hold names of users, hosts and processes.
    type: bool
    default: false
  timeout:
    description: Seconds after which everything is ended.
    type: float
    default: 600
  max_mib:
    description: The largest size of a file, in MiB. One that reaches it is cut, and its name says so.
    type: int
    default: 32
  results_dir:
    description:
      - The folder of results. The files are then collected only if the punch list in its folder C(handover) has an open row of a part of
        this machine, and are kept there for the next hand-over; the result has no contents.
      - Evaluated on the controller.
    type: path
    default: ""
  state_dir:
    description: The state directory of the runs, in which the folder of the bug report is made; by default that of C(acceptance_state_dir).
    type: path
    default: ""
  root:
    description: Where the file system of the machine is.
    type: path
    default: /
  nvidia_smi:
    description: Name or path of nvidia-smi.
    type: str
    default: nvidia-smi
  npu_smi:
    description: Name or path of npu-smi.
    type: str
    default: npu-smi
  amd_smi:
    description: Name or path of amd-smi.
    type: str
    default: amd-smi
attributes:
  check_mode:
    description: Can run in check mode.
    support: full
    details: Nothing is collected.
  diff_mode:
    description: Returns what changed.
    support: none
    details: It changes nothing.
  idempotent:
    description: Whether a second call does nothing.
    support: full
"""

EXAMPLES = r"""
- name: Collect what goes with a GPU that is sent back
  gpufleet.acceptance.support_files:
    bug_report: true
  become: true
"""

RETURN = r"""
files:
  description: >-
    Each file with its C(file), its C(content) in Base64, whether it is C(complete), and C(why) not; what there is none of has
    C(not_collected) and C(why).
  returned: always
  type: list
  elements: dict
end:
  description: How it ended.
  returned: always
  type: str
  sample: done
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import leases, support_files
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.machine import Machine
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import Session

SPEC: dict[str, t.Any] = {
    "bug_report": {"type": "bool", "default": False},
    "timeout": {"type": "float", "default": 600.0},
    "max_mib": {"type": "int", "default": 32},
    "results_dir": {"type": "path", "default": ""},
    "state_dir": {"type": "path", "default": ""},
    "root": {"type": "path", "default": "/"},
    **registry.OPTIONS,
}
leases.register()
# After its deadline, until everything is ended and given back.
GRACE_S = 60.0


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    if module.check_mode:
        module.exit_json(changed=False, files=[], end="check_mode")
    run_id = time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + os.urandom(3).hex()
    session = Session(params["state_dir"], run_id, "support_files", params["timeout"], Machine.of_session(params["root"]))
    node = Node(params["timeout"], session.ledger, params["root"], tools={name: params[name] for name in registry.OPTIONS})
    limit = params["max_mib"] << 20
    try:
        session.start(lambda: support_files.collect(node, params["bug_report"], limit, session.state_dir))
        session.wait(params["timeout"] + GRACE_S)
        result = session.collect()
    except ReasonedError as error:
        module.fail_json(msg=error.reason, reason_code=error.reason_code)
    if result["fault"]:
        result["observations"].append({"not_collected": "the rest", "why": result["fault"]})
    module.exit_json(changed=False, files=result["observations"], end=result["end"] or "")


if __name__ == "__main__":
    main()
