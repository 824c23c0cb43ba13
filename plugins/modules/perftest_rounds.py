# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: perftest_rounds
short_description: Walk a timetable of RDMA tests with other nodes
version_added: 0.1.0
author: The gpufleet.acceptance team (@gpufleet)
description:
  - Runs perftest against the partners of a timetable, round by round, without the controller. The node serves or asks; the
    connection of perftest itself brings both sides together.
  - A partner that does not come costs its own pair the time until the deadline of that round, and no later round.
  - Within the stage C(rdma) of an acceptance run the timetable is made from the plan and from what M(gpufleet.acceptance.rdma_ports)
    found. Filter P(gpufleet.acceptance.pair_rounds#filter) makes rounds for a timetable of your own.
extends_documentation_fragment:
  - gpufleet.acceptance.probe
  - gpufleet.acceptance.perftest
options:
  kinds:
    description:
      - The kinds of tests, to which the tests of the timetable refer by number.
      - "Each has C(check) and C(variant) for the result; C(tool) like V(ib_write_bw), C(options) as a list of words, the same on both
        sides; C(op), C(kind) (V(bw) or V(lat)), C(bytes), C(iterations) of a QP, C(qps) and C(duration) in seconds as they must stand in
        the output or follow from it, each null where it is not known; and C(context) for the result, whose C(bidirectional) is
        held against the output too."
    type: list
    elements: dict
    default: []
  rounds:
    description:
      - The timetable of this node, each with its number C(round) and C(tests) that run at the same time.
      - "A test has C(kind), C(role) (V(server) or V(client)), C(device), C(port), C(gid_index) and C(gid) (null on InfiniBand),
        C(peer_gid), C(peer) (address of the server), C(tcp_port), C(partner) (a name), C(rail), C(a) and C(b) (names of the two
        ports), C(subject) (name of the pair) and C(context)."
    type: list
    elements: dict
    default: []
  absent:
    description: Pairs that cannot be measured, with C(check), C(variant), C(subject), C(reason_code) and C(reason).
    type: list
    elements: dict
    default: []
  walk:
    description: A name of this timetable, the same on all nodes. What both sides of a test have finished has it.
    type: str
    default: ""
  finished:
    description:
      - Pairs of which tests are not in the timetable because both sides had finished them when a controller was lost.
      - Each has C(check), C(variant), C(subject) and C(tests), how many this node asked.
    type: list
    elements: dict
    default: []
  rounds_before:
    description: So many rounds were walked before this timetable, which goes on counting there.
    type: int
    default: 0
  begins_in:
    description: Seconds from now to the moment by which every node of the timetable has it.
    type: float
    default: 30.0
  slot:
    description: Seconds between the deadlines of two rounds, by which both sides must have come together.
    type: float
    default: 60.0
  test_timeout:
    description: Seconds after its begin at which a test is ended.
    type: float
    default: 45.0
  pause:
    description: Seconds between the first two attempts of a client whose server does not listen yet; later ones come further apart.
    type: float
    default: 0.05
  meeting:
    description: >-
      For nodes whose addresses are known when all of them run: a file C(path), still to come, and C(within) how many seconds it is
      waited for. It holds O(rounds), in which C(peer) is the name of a node, C(addresses) by these names, and C(guardian) where a pod
      beside this one holds the governor, as JSON, zlib and base64. The rounds begin when it is there.
    type: dict
    default: {}
  own_ports:
    description: >-
      Choose device and GID of each rail here, by these options of M(gpufleet.acceptance.rdma_ports), instead of taking those of the
      timetable. For pods that are given other devices than the one that looked.
    type: dict
    default: {}
  governor:
    description: The CPU frequency governor to hold while the rounds last; empty to leave it as it is.
    type: str
    default: performance
"""

EXAMPLES = r"""
- name: One pair, this node asks
  gpufleet.acceptance.perftest_rounds:
    kinds:
      - {check: write_bw, variant: "", tool: ib_write_bw, options: [-s, "65536", --report_gbits], op: write, kind: bw, bytes: 65536,
         iterations: 5000, qps: 1, context: {}}
    rounds:
      - round: 0
        tests:
          - {kind: 0, role: client, device: mlx5_0, port: 1, gid_index: 3, gid: 192.0.2.2, peer_gid: 192.0.2.1, peer: 192.0.2.1,
             tcp_port: 18515, partner: gpu-01, rail: "0", a: gpu-01/nic/mlx5_0/1, b: gpu-02/nic/mlx5_0/1, subject: gpu-01|gpu-02,
             context: {}}
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import perftest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner

# The file in probes/ that does the work on a node.
PROBE = "perftest"
OPTIONS = {
    "checks": runner.CHECKS,
    "kinds": {"type": "list", "elements": "dict", "default": []},
    "rounds": {"type": "list", "elements": "dict", "default": []},
    "absent": {"type": "list", "elements": "dict", "default": []},
    "walk": {"type": "str", "default": ""},
    "finished": {"type": "list", "elements": "dict", "default": []},
    "rounds_before": {"type": "int", "default": 0},
    "begins_in": {"type": "float", "default": 30.0},
    "slot": {"type": "float", "default": 60.0},
    "test_timeout": {"type": "float", "default": 45.0},
    "pause": {"type": "float", "default": 0.05},
    "meeting": {"type": "dict", "default": {}},
    "own_ports": {"type": "dict", "default": {}},
    "governor": {"type": "str", "default": "performance"},
    "binary_dir": {"type": "path", "default": ""},
}


def main() -> None:
    runner.main(perftest.probe, OPTIONS, "rdma", perftest.default_checks)


if __name__ == "__main__":
    main()
