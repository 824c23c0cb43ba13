# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Groups whose NVLink leaves the node: which way a check goes, what NCCL says of it, and what its nodes share."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, mnnvl
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise import search

INIT = "t1:7:7 [0] NCCL INFO MNNVL busId 0x801000 fabric UUID 1f3c52.4a7e cliqueId 0x7ffe state 3 healthMask {}"
BROKEN = "t1:7:7 [0] init.cc:1 NCCL WARN MNNVL (cliqueSize 72) is available but not working on this system. Check the IMEX channel"


def members(*domains: str) -> list[group.GroupMember]:
    made = []
    for number, domain in enumerate(domains):
        member = group.GroupMember(f"t{number}", "", local=number == 0)
        member.nvlink_domain = domain
        made.append(member)
    return made


def test_a_check_over_the_network_turns_mnnvl_off_for_its_ranks_only() -> None:
    assert mnnvl.environment({"mnnvl": "0"}) == {"NCCL_MNNVL_ENABLE": "0"} and mnnvl.environment({"gpus": "all"}) == {}
    assert mnnvl.is_off({"mnnvl": "0"}, {}) and mnnvl.is_off({"rail": "mlx5_0"}, {}) and mnnvl.is_off({}, {"NCCL_MNNVL_ENABLE": "0"})
    assert not mnnvl.is_off({}, {"NCCL_MNNVL_ENABLE": "1"})


def test_gpus_whose_nvlink_ends_in_the_node_skip_the_second_measurement() -> None:
    assert mnnvl.refusal({"mnnvl": "0"}, ["NVIDIA H200"]) is not None
    assert mnnvl.refusal({"mnnvl": "0"}, ["NVIDIA GB200"]) is None and mnnvl.refusal({}, ["NVIDIA H200"]) is None


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (INIT.format("0xaa"), []),
        (INIT.format("0x1aa"), []),
        (INIT.format("0x9a"), ["fabric"]),
        (BROKEN, ["imex"]),
        ("no word of it", []),
    ],
)
def test_what_nccl_says_of_the_domain_is_a_finding_only_if_it_is_a_fault(text: str, codes: list[str]) -> None:
    assert [finding["code"] for finding in mnnvl.findings(text)] == codes


def test_a_route_that_is_unhealthy_is_said_in_words() -> None:
    (finding,) = mnnvl.findings(INIT.format("0x9a"))
    assert "route unhealthy (healthMask 0x9a)" in finding["text"]


def test_a_domain_is_named_if_all_of_its_nodes_but_the_head_are_lost() -> None:
    group_members = members("a/1", "a/1", "a/1", "b/1", "b/1", "b/1")
    assert mnnvl.lost_domains(["t1", "t2"], group_members) == ["a/1"]
    assert mnnvl.lost_domains(["t1", "t3", "t4"], group_members) == []
    assert mnnvl.lost_domains(["t1"], members("a/1", "a/1")) == []


def test_the_search_convicts_the_switch_trays_of_one_rack_of_three() -> None:
    names = [f"t{number:02}" for number in range(54)]
    shared = mnnvl.topology(members(*(f"rack-{number // 18}/1" for number in range(54))))
    topology = {name: shared[f"t{number}"] for number, name in enumerate(names)}
    session = search.Localiser(names, gpus={name: ["g0"] for name in names}, topology=topology)
    while tests := session.next_round():
        bad = {test.id: any(topology[node] == "NVLink domain rack-1/1" for node in test.nodes) for test in tests}
        values = {test.id: tuple([100.0 if bad[test.id] else 800.0] * test.repeats) for test in tests}
        session.record(
            {test.id: search.GroupTestResult("fail" if bad[test.id] else "pass", values[test.id], 720.0) for test in tests}
        )
    assert [(finding.kind, finding.id) for finding in session.findings()] == [("switch", "NVLink domain rack-1/1")]
