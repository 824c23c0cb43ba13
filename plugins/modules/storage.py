# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: storage
short_description: Test file systems of a node
version_added: 1.0.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Looks at how file systems are mounted, writes files of its own, reads them back by their checksums, and measures rates by fio with
    direct I/O, and how many files are made, looked at and removed in a second.
  - Writes only into a folder of its own, which is removed whatever happens.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
options:
  storage:
    description:
      - The file systems.
      - Of one that is shared only V(mount), V(verify), V(metadata) and V(posix) are made.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Its name, which the variants of its checks have.
        type: str
        required: true
      path:
        description: A folder on it.
        type: str
        required: true
      shared:
        description: Whether many nodes have it.
        type: bool
        default: false
      mounted:
        description: Whether something must be mounted at the path itself.
        type: bool
        default: false
      gibps_read:
        description: The rate in GiB/s that a node should read. It comes back with what was measured; nothing is judged here.
        type: float
      gibps_write:
        description: The rate in GiB/s that a node should write.
        type: float
      gibps_read_all:
        description: The rate in GiB/s that all nodes of a shared file system together should read.
        type: float
      gibps_write_all:
        description: The rate in GiB/s that all nodes of a shared file system together should write.
        type: float
  tests:
    description: The checks, where O(checks) is not given.
    type: list
    elements: str
    choices: [mount, write, verify, read, random_read, random_write, metadata, gpudirect, posix]
    default: [mount, write, verify, read, random_read, random_write, metadata]
  gib:
    description: The most that is written to a file system, in GiB.
    type: float
    default: 16.0
  share:
    description: The most that is written to a file system, in percent of its size.
    type: float
    default: 5.0
  seconds:
    description: How long each rate is measured, about.
    type: float
    default: 10.0
  jobs:
    description: How many processes write and read, each its own file.
    type: int
    default: 4
  depth:
    description: How many requests each of them has under way.
    type: int
    default: 16
  files:
    description: How many files V(metadata) makes.
    type: int
    default: 1000
  pjdfstest:
    description: The folder of the tests of pjdfstest on the node, where it is not in one of the usual places.
    type: str
    default: ''
  direct:
    description: Whether reads and writes go past the page cache.
    type: bool
    default: true
  nodes:
    description: How many nodes test a shared file system at one time. Each writes its part of what all of them may.
    type: int
    default: 1
  answer_timeout:
    description: Seconds after which a file system does not answer.
    type: float
    default: 15.0
  test_timeout:
    description: Seconds after its begin at which a check is ended.
    type: float
    default: 120.0
  timetables:
    description:
      - What this node does together with others, for each shared file system. With them only the checks V(coherent) and V(together) are
        made.
      - The stage makes them; all nodes of a file system are told the same.
    type: list
    elements: dict
    default: []
    suboptions:
      storage:
        description: The name of the file system.
        type: str
        required: true
      nodes:
        description: The names of all nodes.
        type: list
        elements: str
        required: true
      sizes:
        description: How many of the nodes, from the first on, work together in each step.
        type: list
        elements: int
        required: true
      token:
        description: What the names of the files of this test have in common.
        type: str
        required: true
      at:
        description: When its first step begins, in seconds behind O(begins_in).
        type: float
        required: true
  own_name:
    description: The name of this node in O(timetables).
    type: str
    default: ""
  begins_in:
    description: In how many seconds the nodes begin together.
    type: float
    default: 0.0
  first:
    description: Where nodes whose programs start at different times ask the first of them when they begin.
    type: dict
    suboptions:
      node:
        description: The name of the first node, which answers.
        type: str
        required: true
      address:
        description: Its address.
        type: str
        required: true
      port:
        description: The TCP port on which it answers.
        type: int
        required: true
      token:
        description: A word that only the nodes of this stage know.
        type: str
        required: true
  meeting:
    description: The file by which a pod is told O(timetables), O(first) and O(own_name) after its start.
    type: dict
    suboptions:
      path:
        description: Its path.
        type: str
        required: true
      within:
        description: Seconds for which it is waited.
        type: float
        required: true
  ask_timeout:
    description: Seconds for which a node asks the first one when they begin.
    type: float
    default: 300.0
  patience:
    description: Seconds after which a node must see what another one has written.
    type: float
    default: 65.0
"""

EXAMPLES = r"""
- name: Test the scratch disk of a node
  gpufleet.acceptance.storage:
    storage: [{name: scratch, path: /scratch}]
  become: true
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import storage
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import checks

# The file in probes/ that does the work on a node.
PROBE = "storage"
ENTRY = {
    "name": {"type": "str", "required": True},
    "path": {"type": "str", "required": True},
    "shared": {"type": "bool", "default": False},
    "mounted": {"type": "bool", "default": False},
    "gibps_read": {"type": "float"},
    "gibps_write": {"type": "float"},
    "gibps_read_all": {"type": "float"},
    "gibps_write_all": {"type": "float"},
}
TIMETABLE = {
    "storage": {"type": "str", "required": True},
    "nodes": {"type": "list", "elements": "str", "required": True},
    "sizes": {"type": "list", "elements": "int", "required": True},
    "token": {"type": "str", "required": True, "no_log": False},
    "at": {"type": "float", "required": True},
}
FIRST = {
    "node": {"type": "str", "required": True},
    "address": {"type": "str", "required": True},
    "port": {"type": "int", "required": True},
    "token": {"type": "str", "required": True, "no_log": False},
}
MEETING = {"path": {"type": "str", "required": True}, "within": {"type": "float", "required": True}}
OPTIONS = {
    "checks": runner.CHECKS,
    "storage": {"type": "list", "elements": "dict", "default": [], "options": ENTRY},
    "tests": {"type": "list", "elements": "str", "choices": list(checks.NAMED), "default": list(checks.CHECKS)},
    "gib": {"type": "float", "default": 16.0},
    "share": {"type": "float", "default": 5.0},
    "seconds": {"type": "float", "default": 10.0},
    "jobs": {"type": "int", "default": 4},
    "depth": {"type": "int", "default": 16},
    "files": {"type": "int", "default": 1000},
    "pjdfstest": {"type": "str", "default": ""},
    "direct": {"type": "bool", "default": True},
    "nodes": {"type": "int", "default": 1},
    "answer_timeout": {"type": "float", "default": 15.0},
    "test_timeout": {"type": "float", "default": 120.0},
    "timetables": {"type": "list", "elements": "dict", "default": [], "options": TIMETABLE},
    "own_name": {"type": "str", "default": ""},
    "begins_in": {"type": "float", "default": 0.0},
    "first": {"type": "dict", "options": FIRST},
    "meeting": {"type": "dict", "options": MEETING},
    "ask_timeout": {"type": "float", "default": 300.0},
    "patience": {"type": "float", "default": 65.0},
}


def main() -> None:
    runner.main(storage.probe, OPTIONS, "storage", default_checks=storage.default_checks)


if __name__ == "__main__":
    main()
