# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What limits a shared file system, over tables of numbers."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.storage_limits import Seen, limits_of

NODES = [f"n{number}" for number in range(8)]
# 100 Gb/s are 11.6 GiB/s.
LINK = 100_000


def rows(most: float, alone: float = 10.0, sizes: t.Sequence[int] = (1, 2, 4, 8)) -> list[dict[str, float]]:
    """Return a curve of nodes that each can have `alone`, from a server that gives `most`."""
    return [{"nodes": size, "write": min(most, size * alone), "read": min(most, size * alone)} for size in sizes]


def fleet(most: float, alone: float = 10.0, small_ms: float | None = 1.0, **other: Seen) -> dict[str, Seen]:
    part = min(alone, most / len(NODES))
    usual = Seen(dict.fromkeys(("write", "read"), alone), dict.fromkeys(("write", "read"), part), small_ms, "eth0", LINK)
    return {**dict.fromkeys(NODES, usual), **other}


def node(few: float, together: float, small_ms: float | None = 1.0, mbps: int | None = LINK) -> Seen:
    return Seen({"read": few, "write": few}, {"read": together, "write": together}, small_ms, "eth0", mbps)


def test_a_node_that_is_slow_alone_and_with_all_is_the_cause_with_its_link_as_evidence() -> None:
    found = limits_of(fleet(200.0, n3=node(1.0, 1.0, 5.0, 10_000)), rows(200.0), 1)
    assert list(found.suspects) == ["n3"]
    assert found.suspects["n3"] == (
        "write: 1 of 10 GiB/s alone, and 1 of 10 GiB/s with all: the node or its own path is slow; "
        "read: 1 of 10 GiB/s alone, and 1 of 10 GiB/s with all: the node or its own path is slow; "
        "its link eth0 runs at 10 Gb/s, those of others at 100; small operations take 5 ms there, 1 ms elsewhere"
    )
    assert found.sentences[0] == f"n3 is slow. {found.suspects['n3']}."


def test_a_node_whose_link_is_as_fast_as_the_others_or_unknown_says_so() -> None:
    assert "its link eth0 runs at 100 Gb/s, as others do" in limits_of(fleet(200.0, n3=node(1.0, 1.0)), rows(200.0), 1).suspects["n3"]
    unknown = limits_of(fleet(200.0, n3=node(1.0, 1.0, None, None)), rows(200.0), 1).suspects["n3"]
    assert unknown.endswith("the speed of its link is not known")


def test_a_node_of_another_product_is_compared_with_its_own_kind() -> None:
    slower = {f"old{number}": node(1.0, 1.0)._replace(machine="old") for number in range(4)}
    assert not limits_of(fleet(200.0, **slower), rows(200.0), 1).suspects
    slower["old3"] = node(0.2, 0.2, 1.0, 1000)._replace(machine="old")
    assert limits_of(fleet(200.0, **slower), rows(200.0), 1).suspects.keys() == {"old3"}
    assert not limits_of(fleet(200.0, **{"lone": node(1.0, 1.0)._replace(machine="lone")}), rows(200.0), 1).suspects


def test_a_sum_that_is_flat_from_some_nodes_on_is_the_servers_or_its_networks() -> None:
    found = limits_of(fleet(20.0), rows(20.0), 1)
    assert not found.suspects and len([words for words in found.sentences if "from 2 nodes on the sum stays near 20 GiB/s" in words]) == 2
    assert "every node alone is faster than its part: the server or its network is the limit. Which of the two is not told" in "".join(
        found.sentences
    )


def test_a_sum_that_falls_under_load_is_said() -> None:
    curve = [{"nodes": size, "read": value} for size, value in ((1, 10.0), (2, 20.0), (4, 20.0), (8, 9.0))]
    assert any("read: the sum of 8 nodes is less than fewer nodes reach" in words for words in limits_of(fleet(9.0), curve, 1).sentences)


def test_a_sum_that_grows_with_the_nodes_has_no_limit() -> None:
    found = limits_of(fleet(200.0, 5.0), rows(200.0, 5.0), 1)
    assert (found.suspects, found.sentences) == ({}, [])


def test_a_node_that_is_slow_only_alone_or_only_with_all_is_no_suspect_and_said() -> None:
    alone = limits_of(fleet(20.0, n3=node(1.0, 2.5)), rows(20.0), 1)
    assert not alone.suspects and any(
        "n3 has 1 of 10 GiB/s alone and is as fast as the others with all" in words for words in alone.sentences
    )
    late = limits_of(fleet(200.0, n3=node(10.0, 1.0)), rows(200.0), 1)
    assert not late.suspects and any(
        "Not told apart: read: n3 has 1 of 10 GiB/s with all, and it is as fast" in words for words in late.sentences
    )


def test_rounds_of_few_convict_nobody_if_so_few_already_share_what_the_server_gives() -> None:
    slow = fleet(20.0, n3=node(1.0, 1.0))
    assert limits_of(slow, rows(200.0), 4).suspects.keys() == {"n3"}
    found = limits_of(slow, rows(20.0), 4)
    assert not found.suspects and any("in rounds of few the server is the limit already" in words for words in found.sentences)
    assert not limits_of(slow, rows(200.0)[1:], 4).suspects, "what one node has alone is not known"


def test_the_latency_of_a_node_is_told_from_its_bandwidth() -> None:
    found = limits_of(fleet(200.0, n3=node(10.0, 10.0, 12.0)), rows(200.0), 1)
    assert not found.suspects and "n3: small operations take 12 ms, on most nodes 1 ms, and its rates are like theirs" in "".join(
        found.sentences
    )


@pytest.mark.parametrize(
    ("alone", "small_ms", "words"),
    [(10.0, 25.0, "Small operations take 25 ms on most nodes, with good rates"), (1.0, 1.0, "one node reads 9% of its link: not latency")],
)
def test_latency_and_bandwidth_of_all_nodes_are_told_apart(alone: float, small_ms: float, words: str) -> None:
    assert any(words in said for said in limits_of(fleet(200.0, alone, small_ms), rows(200.0, alone), 1).sentences)


def test_a_node_that_fills_its_link_is_said() -> None:
    assert (
        "read: one node alone fills its link (100 Gb/s), so no node can have more."
        in limits_of(fleet(200.0, 11.0), rows(200.0, 11.0), 1).sentences
    )


def test_what_numbers_do_not_tell_is_said() -> None:
    two = limits_of({"n0": node(1.0, 1.0), "n1": node(9.0, 9.0)}, rows(200.0), 1)
    assert two.sentences == ["A slow node, a slow server and a slow network are not told apart with 2 nodes."]
    assert (
        "How long small operations take is not known: latency is not told from bandwidth."
        in limits_of(fleet(200.0, small_ms=None), rows(200.0), 1).sentences
    )
    assert limits_of(dict.fromkeys(NODES, Seen({}, {})), [], 1).suspects == {}
