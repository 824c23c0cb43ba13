# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dips inside a sweep: found whatever the plateau gives, and in no healthy recording."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import sweeps
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from harness.records import measurement
from hypothesis import assume, given
from hypothesis import strategies as st

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "fixtures"
MIB, GIB = 1 << 20, 1 << 30
SIZES = [8 * MIB << step for step in range(12)]  # 8 MiB to 16 GiB


def healthy(size: int, peak: float = 480.0) -> float:
    return peak * size / (size + 12e6)


def found(changes: t.Mapping[int, float], others: int = 0, verdict: str = "FAIL") -> list[str]:
    """The reasons that are said of the first of several nodes, whose sweep has these changes, each with this verdict."""
    sweep = {size: changes.get(size, healthy(size)) for size in SIZES}
    records = [sweep, *({size: healthy(size) * (1 + node / 1000) for size in SIZES} for node in range(others))]
    deciding = {
        Key("nccl_node", "all_reduce", "", f"n{number}"): measurement(
            {"series": [{"size": size, "busbw": value} for size, value in one.items()]}
        )
        for number, one in enumerate(records)
    }  # fmt: skip
    said = list(sweeps.opinions(deciding))
    assert all(key.subject == "n0" and (one.verdict, one.reason_code) == (verdict, "sweep_dip") for key, one in said)
    return [one.reason for _key, one in said]


def test_a_healthy_sweep_has_no_dip() -> None:
    assert found({}) == found({}, others=9) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({16 * MIB << step: 30.0 for step in range(6)}, "6 of 12 sizes dip inside the sweep: 30 at 16 MiB, 30 at 32 MiB"),
        ({16 * MIB << step: 150.0 for step in range(6)}, "7 of 12 sizes dip inside the sweep: 197.5 at 8 MiB, 150 at 16 MiB"),
        ({size: 1 / (1 / healthy(size) + 1.1e6 / size) for size in SIZES}, "at 64 MiB"),
        ({size: healthy(size) * 0.4 for size in SIZES[2:9:2]}, "4 of 12 sizes dip"),
        ({8 * MIB: 20.0, 16 * MIB: 20.0, 512 * MIB: 50.0}, "50 at 512 MiB"),
        ({size: 3.0 for size in SIZES[:7]}, "7 of 12 sizes dip inside the sweep: 3 at 8 MiB"),
    ],
)
def test_sizes_that_the_rest_of_the_sweep_contradicts_are_named(changes: dict[int, float], words: str) -> None:
    (reason,) = found(changes)
    assert words in reason and "other sizes of its sweep" in reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({4 * GIB: 30.0}, "dips inside the sweep: 30 at 4 GiB,"),
        ({16 * GIB: 0.0}, "dips inside the sweep: 0 at 16 GiB,"),
        ({8 * MIB: 1.0, 16 * MIB: 1.0}, "dips inside the sweep: 1 at 8 MiB, 1 at 16 MiB,"),
    ],
)
def test_a_size_that_a_hiccup_may_have_hit_is_a_warning(changes: dict[int, float], words: str) -> None:
    (reason,) = found(changes, verdict="WARN")
    assert words in reason


@given(
    peak=st.floats(5, 900), latency=st.floats(0, 0.1), first=st.integers(0, 8), count=st.integers(3, 11), share=st.floats(0.001, 0.3),
    form=st.sampled_from(["cap", "share", "latency"]),
)  # fmt: skip
def test_several_sizes_far_below_the_plateau_are_refused(
    peak: float, latency: float, first: int, count: int, share: float, form: str
) -> None:
    """Whatever holds back at least three sizes, of which one is of 64 MiB or more, to less than a third of the plateau."""
    sweep = {size: peak * size / (size + latency * 64 * MIB) for size in SIZES}
    hit = [size for size in SIZES[first : first + count] if size < 2 * GIB]
    assume(len(hit) >= 3 and max(hit) >= 256 * MIB)
    for size in hit:
        slow = {"cap": share * peak, "share": share * sweep[size], "latency": peak * size / (size + 16 * GIB)}[form]
        sweep[size] = min(sweep[size], slow)
    record = measurement({"series": [{"size": size, "busbw": value} for size, value in sweep.items()]})
    said = [opinion.verdict for _key, opinion in sweeps.opinions({Key("nccl_node", "all_reduce", "", "n0"): record})]
    assert said == ["FAIL"], sweep


@given(
    peak=st.floats(5, 900), latency=st.floats(0, 0.5), saddle=st.floats(0.78, 1), place=st.integers(0, 11),
    noise=st.lists(st.floats(0.96, 1.04), min_size=12, max_size=12), nodes=st.sampled_from([1, 2, 4, 8, 64]),
)  # fmt: skip
def test_no_healthy_sweep_is_refused(peak: float, latency: float, saddle: float, place: int, noise: list[float], nodes: int) -> None:
    """Any latency and rate, a saddle as deep as the deepest recorded one, and noise; many nodes have more latency."""
    late = latency * (64 if nodes < 5 else 1024) * MIB
    sweep = {
        size: peak * size / (size + late) * (saddle if place <= number < place + 3 else 1) * of
        for number, (size, of) in enumerate(zip(SIZES, noise, strict=True))
    }  # fmt: skip
    record = measurement({"series": [{"size": size, "busbw": value} for size, value in sweep.items()], "context": {"nodes": nodes}})
    assert not list(sweeps.opinions({Key("nccl_fabric", "all_reduce", "", "g"): record})), sweep


def test_a_saddle_where_an_algorithm_changes_is_no_dip() -> None:
    assert found({size: healthy(size) * 0.76 for size in (32 * MIB, 64 * MIB)}) == []


def test_identical_nodes_tell_what_the_sweep_itself_does_not() -> None:
    slow = {size: healthy(size) * 0.6 for size in SIZES[:7]}
    assert found(slow) == found(slow, others=4) == []
    (reason,) = found(slow, others=5)
    (warning,) = found({size: slow[size] for size in SIZES[:2]}, others=5, verdict="WARN")
    assert "at 8 MiB" in warning
    assert "at 8 MiB" in reason and "and 1 more sizes" in reason and "median of 6 identical subjects" in reason


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("h[12]00-x*/nccl-v*.txt")), ids=lambda path: path.name)
def test_no_recording_of_a_healthy_machine_has_one(path: pathlib.Path) -> None:
    read = nccl_tests.parse(path.read_text(errors="replace"), 0)
    assert sweeps.dips(sweeps.bandwidths(nccl.series(read)), few_nodes=True) == []
