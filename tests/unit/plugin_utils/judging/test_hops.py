# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Latencies of pairs beside those with as many hops: healthy fabrics of every shape, and slow ports and paths within them."""

from __future__ import annotations

import collections
import itertools
import random

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import hops, peer_comparison
from harness import records

NEAR, SPINE = 1.9, 0.7  # us within a leaf, and what a spine adds
SHAPES = [(8,), (7, 1), (6, 2), (4, 4), (5, 2, 1), (3, 3, 2), (12,), (9, 7), (8, 8, 8, 8), (1,) * 8]


def fabric(sizes, seed=0, scatter=0.01, slow=None, path=None, more=1.0, partners=None):
    """(latency of each pair, leaf of each node); `slow` is a node, `path` a pair, to which `more` us are added."""
    rng = random.Random(seed)
    leaf = {f"n{i:02d}": f"leaf-{which}" for i, which in enumerate(which for which, size in enumerate(sizes) for _ in range(size))}
    values = {}
    for number, (a, b) in enumerate(itertools.combinations(sorted(leaf), 2)):
        if partners is not None and (number * 7) % len(leaf) >= partners:
            continue
        value = NEAR + SPINE * (leaf[a] != leaf[b]) + more * (slow in (a, b)) + more * ((a, b) == path)
        values[a, b] = value * (1 + rng.gauss(0, scatter))
    return values, leaf


def words(values, leaf=None):
    return {pair: word for pair, word, _median, _of in hops.outliers(values, leaf)}


@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("scatter", [0.005, 0.02, 0.04, 0.06])
def test_no_pair_of_a_healthy_fabric_is_rejected(sizes, scatter):
    for seed in range(30):
        values, leaf = fabric(sizes, seed, scatter)
        assert "FAIL" not in words(values).values(), seed
        assert "FAIL" not in words(values, leaf).values(), seed


def test_healthy_fabrics_of_one_leaf_hardly_warn():
    warned = sum(bool(words(fabric((n,), seed, scatter)[0])) for n in (8, 12) for scatter in (0.02, 0.04, 0.06) for seed in range(100))
    assert warned <= 3


@pytest.mark.parametrize("sizes", [(6, 2), (4, 4), (3, 3, 2), (9, 7), (8, 8, 8, 8)])
def test_leaves_are_read_off_the_latencies(sizes):
    for seed in range(20):
        values, leaf = fabric(sizes, seed, 0.03)
        found = hops.levels(values)
        assert found.known and not found.alone
        assert all((level > 0) == (leaf[a] != leaf[b]) for (a, b), level in found.of.items())


def test_latencies_of_three_levels_of_switches_give_three_levels():
    rng = random.Random(1)
    nodes = [(core, pod, n) for core in range(2) for pod in range(4) for n in range(4)]
    names = {node: "n{}{}{}".format(*node) for node in nodes}
    values = {
        (names[a], names[b]): (1.9 + 0.7 * (a[:2] != b[:2]) + 1.2 * (a[0] != b[0])) * (1 + rng.gauss(0, 0.02))
        for a, b in itertools.combinations(nodes, 2)
    }
    found = hops.levels(values)
    assert collections.Counter(found.of.values()) == {0: 48, 1: 192, 2: 256}
    assert not words(values)


@pytest.mark.parametrize("sizes", SHAPES[:-1])
@pytest.mark.parametrize("more", [0.3 * NEAR, 1.0])
def test_a_slow_port_is_never_silent(sizes, more):
    """Of a leaf with others it is rejected where the leaves are known; from latencies alone it is at least said."""
    for seed in range(20):
        for scatter in (0.01, 0.03):
            values, leaf = fabric(sizes, seed, scatter, slow="n00", more=more)
            found = words(values)
            assert any("n00" in pair for pair in found)
            rejected = {pair for told in (found, words(values, leaf)) for pair, word in told.items() if word == "FAIL"}
            assert all("n00" in pair for pair in rejected)
            if scatter < 0.02:
                assert {pair for pair in values if "n00" in pair} == rejected


@pytest.mark.parametrize("sizes", [(8,), (7, 1), (6, 2), (12,), (8, 8, 8, 8)])
def test_a_slow_path_is_a_warning_about_one_test(sizes):
    for seed in range(20):
        values, leaf = fabric(sizes, seed, 0.01, path=("n01", "n03"))
        for found in (words(values), words(values, leaf)):
            assert found.pop(("n01", "n03")) == "WARN"
            assert all("n07" in pair or "n08" in pair for pair in found)  # who is alone on a leaf


def test_who_may_be_alone_on_a_leaf_is_undecided_until_somebody_says_so():
    values, leaf = fabric((7, 1))
    assert words(values) == {pair: "WARN" for pair in values if "n07" in pair}
    assert not words(values, leaf)
    (reason,) = {of for _pair, _word, _median, of in hops.outliers(values)}
    assert "alone on its leaf" in reason and "rdma_leaf" in reason


def test_too_few_pairs_say_nothing_of_hops():
    for sizes in ((4, 4), (7, 1)):
        values, leaf = fabric(sizes, partners=2)
        assert not hops.levels(values).known and "FAIL" not in words(values).values()
        assert hops.levels(values, leaf).known
    ring = [tuple(sorted((f"n{i:02d}", f"n{(i + 1) % 8:02d}"))) for i in range(8)]
    values = {pair: 2.6 if pair in (("n00", "n07"), ("n06", "n07")) else 1.9 for pair in ring}
    assert "FAIL" not in words(values).values()


def test_a_leaf_that_is_known_of_some_nodes_only_is_not_used():
    values, _leaf = fabric((4, 4))
    assert hops.levels(values, {"n00": "leaf-0"}) == hops.levels(values)


def test_the_opinion_on_a_far_pair_is_about_its_neighbours():
    values, leaf = fabric((8,), path=("n01", "n03"))
    fields = {"stage": "rdma", "check": "write_lat"}
    measured = [
        records.measurement(
            {**fields, "subject": {"kind": "pair", "id": f"{a}|{b}"}, "metrics": {"latency": {"value": value, "unit": "us"}}}
        )
        for (a, b), value in values.items()
    ]
    deciding = {m.key: m for m in measured}
    for known in (None, leaf):
        ((key, opinion),) = peer_comparison.opinions(deciding, {key: [] for key in deciding}, known)
        assert key.subject == "n01|n03" and (opinion.verdict, opinion.reason_code) == ("WARN", "below_neighbours")
