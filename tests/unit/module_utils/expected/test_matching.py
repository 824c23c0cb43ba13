# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One way to find the expectation that holds, for the controller that judges and for the head that searches."""

from __future__ import annotations

import itertools
import random
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import matching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected.matching import Rule
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import collective as fabric
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectation, Expectations

GIB = 1 << 30


@pytest.mark.parametrize(
    ("wanted", "value", "differs"),
    [(8, 8, False), (8, 8.0, False), (8, "8", True), (1, True, True), (True, 1, True), (True, True, False), ([4, 8], 8, False),
     ([], 8, True), (8, None, True)],
)  # fmt: skip
def test_a_value_matches_only_an_equal_one_of_its_type(wanted: t.Any, value: t.Any, differs: bool) -> None:
    found = {} if value is None else {"gpus": value}
    assert matching.mismatch({"gpus": wanted, "size": 7}, found) == ("gpus" if differs else None)


def test_the_strongest_layer_decides_then_the_most_keys_then_the_stricter() -> None:
    plain, more = Rule({"gpu": "x"}, "busbw", 100, 1), Rule({"gpu": "x", "nodes": 2}, "busbw", 90, 1)
    user, stricter = Rule({}, "busbw", 10, 2), Rule({"gpu": "x", "nics": 8}, "busbw", 95, 1)
    lower = [Rule({"gpu": "x"}, "latency", value, 1, "lower") for value in (3.0, 2.0, 4.0)]
    found = {"gpu": "x", "nodes": 2, "nics": 8}
    for rules in itertools.permutations([plain, more, stricter]):
        assert matching.choose(rules, found) == {("busbw", None): stricter}
    assert matching.choose([plain, user, more], found)[("busbw", None)] is user
    assert matching.choose(lower, found)[("latency", None)].value == 2.0
    assert matching.choose([plain], {"gpu": "y"}) == {}


def test_the_plateau_is_the_largest_size_of_at_least_8_gib() -> None:
    both = Rule({"size": [GIB, "plateau"]}, "busbw", 100)
    assert set(matching.choose([both], {})) == {("busbw", GIB), ("busbw", "plateau")}
    assert matching.row_of("plateau", [GIB, 16 * GIB]) == 16 * GIB and matching.row_of("plateau", [GIB, 4 * GIB]) is None
    assert matching.row_of(GIB, [GIB, 16 * GIB]) == GIB and matching.row_of(GIB, []) is None and matching.row_of("plateau", []) is None
    assert list(matching.slots_of(GIB)) == [GIB, None] and list(matching.slots_of(8 * GIB)) == [8 * GIB, "plateau", None]


def test_head_and_judge_choose_the_same_of_any_entries() -> None:
    rng = random.Random(1)
    values: dict[str, list[t.Any]] = {"gpus": [4, 8, [4, 8]], "nvls": [True, False, 1], "gpu": ["a", "b"], "nodes": [2, 4]}
    for _unused in range(300):
        entries = []
        for number in range(8):
            match = {key: rng.choice(values[key]) for key in rng.sample(sorted(values), rng.randint(0, 4))}
            size = rng.choice([None, GIB, "plateau", [GIB, "plateau"]])
            match.update({"size": size} if size else {}, stage="nccl_fabric")
            value, rank = float(rng.randint(1, 5)), rng.randint(0, 2)
            entries.append(Expectation(f"e{number}", match, "busbw", value, "GB/s", "s", "2026", "measured", rank=rank))
        context = {"gpus": rng.choice([4, 8]), "nvls": rng.choice([True, False]), "gpu": rng.choice("ab"), "nodes": 2, "op": "all_reduce"}
        chosen = Expectations(entries).choose("nccl_fabric", "all_reduce", context)
        told = [{"match": {k: v for k, v in e.match.items() if k != "stage"}, "value": e.value, "rank": e.rank} for e in entries]
        assert fabric.Floors(told, "all_reduce", context).expected(2) == {c.size: c.expectation.value for c in chosen}
