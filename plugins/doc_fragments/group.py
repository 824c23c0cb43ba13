# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of every probe module over a group of nodes, but for what the group is called; where `mpirun` launches, its
    own; and where parts of a group are measured, those of the search (module_utils/groups/membership.py)."""

    DOCUMENTATION = r"""
options:
  members:
    description: The nodes of the group in the order of its ring. Only the head has it.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The name by which the node is told.
        type: str
        required: true
      address:
        description: Where the head finds it.
        type: str
        required: true
      hostname:
        description: What it calls itself, as its ranks print it. Asked of the node over SSH where it is not given.
        type: str
      gpus:
        description: How many GPUs it has, where there is no O(token).
        type: int
      local:
        description: Whether it is the head itself.
        type: bool
        default: false
      problem:
        description: Why it is known not to take part.
        type: str
  env:
    description: Environment variables for every rank.
    type: dict
    default: {}
  ssh_args:
    description: More arguments for the ssh by which nodes are entered.
    type: list
    elements: str
    default: []
  gpu_count:
    description: How many GPUs the node must have. A node with another number takes no part.
    type: int
  join_timeout:
    description: How many seconds head and members wait for one another.
    type: float
    default: 120.0
  floors:
    description: What the result should be, as O(floors[].match), O(floors[].value), O(floors[].rank).
    type: list
    elements: dict
    default: []
    suboptions:
      match:
        description: The keys that select it, among them C(size).
        type: dict
        required: true
      value:
        description: In GB/s.
        type: float
        required: true
      rank:
        description: Of several that match, the one of the highest rank holds.
        type: int
        default: 0
  job_steps:
    description: >-
      Set by the acceptance run for the head of a group within a job. With C(when) V(always), or V(auto) where the head has no sshd, it
      enters the nodes and starts MPI by steps of the job, C(job), which calls the nodes C(nodes) by the names of the members.
    type: dict
  token:
    description: Set by the acceptance run. With it every node runs the module, and lets the head in.
    type: str
    default: ""
  key:
    description: Set by the acceptance run. An SSH key that is good for this group and its time only.
    type: dict
    suboptions:
      public:
        description: The public half, on a member.
        type: str
      private:
        description: The private half, on the head.
        type: str
      from:
        description: Addresses from which it is good.
        type: list
        elements: str
        default: []
      seconds:
        description: How long it is good.
        type: float
        default: 0.0
"""

    MPI = r"""
options:
  mpirun:
    description: The launcher. Its kind and version are found out.
    type: str
    default: mpirun
  mpi_args:
    description: More arguments for the launcher, as it understands them.
    type: list
    elements: str
    default: []
"""

    SEARCH = r"""
options:
  localise:
    description: Whether to search for the cause where the group is slow, or fails and does not say whose fault it is.
    type: bool
    default: true
  repeats:
    description: Launches of each test of the search. Ten find a link that fails every second time.
    type: int
    default: 10
  parallel:
    description: How many launches of the search may run at the same time.
    type: int
    default: 64
  topology:
    description: The leaf switch of each node, by name, as far as known.
    type: dict
    default: {}
"""
