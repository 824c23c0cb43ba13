# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""In the report the bandwidth of a training stands beside that of NCCL over the very same nodes and GPUs, and beside no other."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, model
from harness import report_samples as samples

BOTH = ("nccl_fabric", "ddp")
FABRIC, DDP = "gpus=all sizes=8M:16G type=float", "backend=nccl gpus=all sizes=1M:4G type=float"
GIB = 1 << 30


def sections(ours: dict[str, t.Any], theirs: dict[str, t.Any], stages: t.Sequence[str] = BOTH) -> list[dict[str, t.Any]]:
    """Those of a run with a group of each stage."""
    given = {"nccl_fabric": {"variant": FABRIC, **theirs}, "ddp": {"variant": DDP, **ours}}
    verdicts, found = [], []
    for stage, about in given.items():
        members = about.pop("members", ["a", "b"])
        subject = {"kind": "group", "id": stage, "members": members}
        rows = [{"size": size, "busbw": value} for size, value in about.pop("series").items()]
        check = about.pop("check", "all_reduce")
        verdicts.append({**samples.verdict("a", stage, check), "subject": subject, **about})
        found.append(samples.measurement("a", stage, check, subject=subject, series=rows, **about))
    items = [{key: m[key] for key in ("stage", "check", "variant", "subject", "target")} for m in found if m["stage"] in stages]
    plan = samples.plan(["a", "b"], stages, items=items)
    plan.stages = [{"name": stage, "role": f"gpufleet.acceptance.{stage}"} for stage in stages]
    made = model.build(plan, t.cast(t.Any, samples.judgement(verdicts, found)))
    assert all(section["title"] in formats.markdown(made) for section in made["sections"])
    return made["sections"]


def test_the_largest_sizes_of_both_stand_side_by_side() -> None:
    ours = {"series": {1 << 20: 20.0, 256 << 20: 250.0, GIB: 328.0, 4 * GIB: 346.0}}
    (section,) = sections(ours, {"series": {256 << 20: 260.0, GIB: 329.0, 4 * GIB: 346.0, 16 * GIB: 350.0}})
    assert [row[2:] for row in section["rows"]] == [[str(GIB), "328.0", "329.0", "1.00"], [str(4 * GIB), "346.0", "346.0", "1.00"]]


@pytest.mark.parametrize(
    ("other", "stages"),
    [
        ({"members": ["a", "c"]}, BOTH),
        ({"variant": "gpus=1 sizes=8M:16G type=float"}, BOTH),
        ({"variant": "gpus=all sizes=8M:16G type=half"}, BOTH),
        ({"variant": "gpus=1 rail=mlx5_0 sizes=8M:16G type=float"}, BOTH),
        ({"check": "all_gather"}, BOTH),
        ({"series": {8 * GIB: 330.0}}, BOTH),
        ({"series": {GIB: 0.0}}, BOTH),
        ({}, ("ddp",)),
    ],
)
def test_what_is_not_the_same_stands_beside_nothing(other: dict[str, t.Any], stages: tuple[str, ...]) -> None:
    assert sections({"series": {GIB: 328.0}}, {"series": {GIB: 329.0}, **other}, stages) == []
