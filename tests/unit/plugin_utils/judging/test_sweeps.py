# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dips inside a sweep: found whatever the plateau gives, and in no healthy recording."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import nccl
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import sweeps
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from harness.records import measurement

FIXTURES = pathlib.Path(__file__).resolve().parents[3] / "fixtures"
MIB, GIB = 1 << 20, 1 << 30
SIZES = [8 * MIB << step for step in range(12)]  # 8 MiB to 16 GiB


def healthy(size: int, peak: float = 480.0) -> float:
    return peak * size / (size + 12e6)


def found(changes: t.Mapping[int, float], others: int = 0) -> list[str]:
    """The reasons that are said of the first of several nodes, whose sweep has these changes."""
    sweep = {size: changes.get(size, healthy(size)) for size in SIZES}
    records = [sweep, *({size: healthy(size) * (1 + node / 1000) for size in SIZES} for node in range(others))]
    deciding = {
        Key("nccl_node", "all_reduce", "", f"n{number}"): measurement(
            {"series": [{"size": size, "busbw": value} for size, value in one.items()]}
        )
        for number, one in enumerate(records)
    }  # fmt: skip
    said = list(sweeps.opinions(deciding))
    assert all(key.subject == "n0" and (one.verdict, one.reason_code) == ("WARN", "sweep_dip") for key, one in said)
    return [one.reason for _key, one in said]


def test_a_healthy_sweep_has_no_dip() -> None:
    assert found({}) == found({}, others=9) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({16 * MIB << step: 30.0 for step in range(6)}, "30 at 16 MiB, 30 at 32 MiB"),
        ({4 * GIB: 30.0}, "30 at 4 GiB"),
        ({8 * MIB: 20.0, 16 * MIB: 20.0, 512 * MIB: 50.0}, "50 at 512 MiB"),
        ({size: 3.0 for size in SIZES[:7]}, "3 at 512 MiB"),
        ({16 * GIB: 0.0}, "0 at 16 GiB"),
    ],
)
def test_sizes_that_the_rest_of_the_sweep_contradicts_are_named(changes: dict[int, float], words: str) -> None:
    (reason,) = found(changes)
    assert words in reason and "other sizes of its sweep" in reason


def test_a_saddle_where_an_algorithm_changes_is_no_dip() -> None:
    assert found({size: healthy(size) * 0.76 for size in (32 * MIB, 64 * MIB)}) == []


def test_identical_nodes_tell_what_the_sweep_itself_does_not() -> None:
    slow = {size: healthy(size) * 0.6 for size in SIZES[:7]}
    assert found(slow) == found(slow, others=4) == []
    (reason,) = found(slow, others=5)
    assert "at 8 MiB" in reason and "and 1 more sizes" in reason and "median of 6 identical subjects" in reason


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("h200-x*/nccl-v*.txt")), ids=lambda path: path.name)
def test_no_recording_of_a_healthy_machine_has_one(path: pathlib.Path) -> None:
    read = nccl_tests.parse(path.read_text(errors="replace"), 0)
    assert sweeps.dips(sweeps.bandwidths(nccl.series(read))) == []
