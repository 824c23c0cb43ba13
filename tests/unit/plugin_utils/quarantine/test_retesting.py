# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured once more before a node is drained for a rate."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.lookup import retested
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import retesting
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.convictions import Conviction, Judged
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key

STAGES = [
    {"name": name, "role": f"gpufleet.acceptance.{name}"} for name in ("stack", "nccl_node", "rdma_ports", "rdma", "rdma_again", "soak")
]


def judged(words: dict[Key, str], *convicted: str, stages: t.Sequence[t.Any] = STAGES) -> Judged:
    members = {key.subject: key.subject.split("|") for key in words}
    found = [Conviction(node, "FAIL", "part", True, node, tuple(k for k in words if words[k] == "FAIL" and node in members[k.subject]))
             for node in convicted]  # fmt: skip
    return Judged("20260101T000000Z-0a1b2c", "", "", found, words, [], {}, {}, members, (), stages)


def node(name: str, word: str = "PASS", stage: str = "nccl_node") -> dict[Key, str]:
    return {Key(stage, "all_reduce", "", name): word}


def chosen(of: Judged, hosts: t.Container[str] = ("lab", "other", "a", "b", "c", "d")) -> retesting.Again:
    return retesting.chosen(of, of.convictions, hosts)


def test_a_slow_node_is_measured_again_alone() -> None:
    of = judged({**node("lab/a", "FAIL"), **node("lab/b"), **node("c")}, "lab/a")
    assert chosen(of) == retesting.Again(["nccl_node"], {"lab": ["a"]}, {})


def test_a_node_of_slow_pairs_gets_two_good_partners_of_its_cluster_others_first() -> None:
    words = {Key("rdma", "bw", "", pair): "FAIL" for pair in ("lab/a|lab/b", "lab/a|lab/c")}
    words |= {Key("rdma", "bw", "", pair): "PASS" for pair in ("lab/b|lab/c", "lab/d|lab/e", "lab/b|lab/d", "other/x|other/y")}
    words |= {Key("rdma_again", "bw", "", "lab/a|lab/b"): "FAIL"}
    again = chosen(judged(words, "lab/a"))
    assert again.stages == ["rdma"], "it brings rdma_ports and rdma_again by itself"
    assert again.nodes == {"lab": ["a", "d", "e"]}


def test_two_nodes_have_partners_of_their_own() -> None:
    words = {Key("rdma", "bw", "", pair): "FAIL" for pair in ("a|b", "b|c")}
    words |= {Key("rdma", "bw", "", f"{one}|{other}"): "PASS" for one, other in ("cd", "de", "ef", "fg")}
    hosts = "abcdefg"
    again = chosen(judged(words, "a", "b"), hosts)
    assert len(again.nodes) == 6 and all(not names for names in again.nodes.values())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (node("lab/a", "FAIL", "soak"), "no playbook measures soak again"),
        (node("lab/a", "FAIL", "gone"), "no playbook measures gone again"),
        ({Key("rdma", "bw", "", "lab/a|lab/b"): "FAIL"}, "no good partner"),
    ],
)
def test_what_cannot_be_measured_again_is_said(words: dict[Key, str], why: str) -> None:
    again = chosen(judged({**words, **node("lab/b", "FAIL")}, "lab/a", "lab/b"))
    assert why in again.why_not["lab/a"] and "a" not in again.nodes.get("lab", [])


def test_a_stage_of_a_team_keeps_its_role() -> None:
    own = {"name": "ours", "role": "team.ours"}
    assert chosen(judged(node("lab/a", "FAIL", "ours"), "lab/a", stages=[own])).stages == [own]


def test_the_play_that_measures_again_has_the_hosts_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retested.context, "CLIARGS", {})
    monkeypatch.setattr(retested.patterns, "hosts", lambda *_given: ["a", "b", "c"])
    lookup = retested.LookupModule(loader=types.SimpleNamespace())

    def hosts(result: t.Any) -> list[str]:
        return lookup.run(["all"], {"hostvars": {name: {"acceptance_quarantined": result} for name in "abc"}})

    assert hosts({"again": {"nodes": {"b": [], "a": []}}}) == ["a", "b"]
    assert (
        hosts({"again": {}}) == hosts({"skipped": True}) == lookup.run(["all"], {"hostvars": {name: {} for name in "abc"}}) == ["all:!all"]
    )
