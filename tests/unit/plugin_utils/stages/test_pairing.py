# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rounds: every pair once, nobody twice."""

from __future__ import annotations

import collections
import itertools
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.pairing import pair_rounds
from hypothesis import given
from hypothesis import strategies as st


def names(n: int) -> list[str]:
    return [f"n{i}" for i in range(n)]


def assert_conflict_free(rounds: list[list[list[str]]]) -> None:
    for pairs in rounds:
        flat = [node for pair in pairs for node in pair]
        assert len(flat) == len(set(flat))


# Every small number, where the rounds are few, and large ones on both sides of a power of two.
@pytest.mark.parametrize("n", [*range(2, 130), 255, 256, 257, 511, 512])
def test_all_pairs_meet_once_in_the_fewest_rounds(n: int) -> None:
    rounds = pair_rounds(names(n))
    assert len(rounds) == (n - 1 if n % 2 == 0 else n)
    assert_conflict_free(rounds)
    met = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert len(met) == len(set(met)) == n * (n - 1) // 2
    assert set(met) == {frozenset(p) for p in itertools.combinations(names(n), 2)}


@given(st.integers(min_value=2, max_value=60), st.data(), st.integers())
def test_a_sample_gives_each_node_its_partners_and_repeats_with_its_seed(n: int, data: t.Any, seed: int) -> None:
    k = data.draw(st.integers(min_value=1, max_value=n - 1))
    rounds = pair_rounds(names(n), "sample", k=k, seed=seed)
    assert rounds == pair_rounds(names(n), "sample", k=k, seed=seed)
    assert_conflict_free(rounds)
    partners = collections.defaultdict(set)
    for a, b in itertools.chain(*rounds):
        partners[a].add(b)
        partners[b].add(a)
    assert all(len(partners[node]) >= k for node in names(n))


@given(st.integers(min_value=2, max_value=60))
def test_a_ring_pairs_each_node_with_its_neighbours_in_three_rounds(n: int) -> None:
    rounds = pair_rounds(names(n), "ring")
    assert_conflict_free(rounds)
    assert len(list(itertools.chain(*rounds))) == (n if n > 2 else 1)
    assert len(rounds) <= 3


def test_given_pairs_are_packed_into_rounds() -> None:
    assert pair_rounds([["a", "b"], ["c", "d"], ["a", "c"]], "pairs") == [[["a", "b"], ["c", "d"]], [["a", "c"]]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((["a"],), "at least two"),
        ((["a", "a"],), "listed twice"),
        (("ab",), "expected a list"),
        ((["a", "b"], "star"), "expected one of"),
        ((["a", "b"], "sample"), "k: found None"),
        ((["a", "b"], "sample", 2), "from 1 to 1"),
        ((["a", "b"], "ring", 2), "only there"),
        (([["a", "a"]], "pairs"), "pair of two"),
    ],
)
def test_arguments_that_make_no_pairs_are_refused(arguments: tuple[t.Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pair_rounds(*arguments)
