# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A round measures the checks alone that a hand-over left open."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import open_checks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import PlanError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlanItem, Subject
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness.sites import Site


def test_a_run_of_open_checks_is_partial_and_names_what_it_has_not(site: Site, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "next_round.csv"
    path.write_text(f"{HEADER}gpu-02,stack,gpu_health,,gpu-02/gpu/GPU-1,slow\ngpu-09,stack,gpu_health,,gpu-09,slow\n")
    plan = site.planner().build(RUN, None, "standard", str(path))[0]
    assert {item["subject"]["id"] for item in plan["items"]} == {"gpu-02"} and [stage["name"] for stage in plan["stages"]] == ["stack"]
    assert plan["partial"] and plan["left_out"] == ["gpu-01", "gpu-03"] and plan["level"] == ""
    assert "acceptance_open_checks: not measured: stack gpu_health of gpu-09: it is in no plan of this fleet" in plan["notes"]
    path.write_text(f"{HEADER}gpu-09,stack,gpu_health,,gpu-09,slow\n")
    with pytest.raises(site.of.planner.PlanError, match="expected checks of the nodes of this inventory"):
        site.planner().build(RUN, None, "standard", str(path))


def test_a_pair_of_ports_is_measured_on_its_two_nodes_alone(site: Site, tmp_path: pathlib.Path) -> None:
    hosts: dict[str, t.Any] = {f"gpu-{number:02d}": {} for number in range(1, 6)}
    whole = site.planner({}, hosts).build(RUN, ["stack", "rdma"])[0]
    pair = next(item for item in whole["items"] if item["subject"]["kind"] == "pair")
    first, second = (f"{node}/nic/mlx5_0/1" for node in pair["subject"]["id"].split("|"))
    path = tmp_path / "next_round.csv"
    path.write_text(f"{HEADER}gpu-01,rdma,{pair['check']},{pair['variant']},{first}|{second},slow\n")
    plan = site.planner({}, hosts).build(RUN, None, "standard", str(path))[0]
    assert [item for item in plan["items"] if item["subject"]["kind"] == "pair"] == [pair]
    nodes = {item["subject"]["id"] for item in plan["items"] if item["subject"]["kind"] == "node"}
    assert nodes == set(pair["subject"]["id"].split("|")) and len(plan["left_out"]) == 3
    assert [stage["name"] for stage in plan["stages"]] == ["stack", "rdma_ports", "rdma", "rdma_again"]


RUN = "20260101T000000Z-0a1b2c"
HEADER = "node,stage,check,variant,subject,why\n"


def node(name: str, stage: str, check: str, variant: str = "") -> PlanItem:
    return PlanItem(stage, check, variant, Subject("node", name, []), name)


FLEET = [
    *(
        node(name, stage, check)
        for name in "abc"
        for stage, check in (("stack", "facts"), ("host_health", "pcie"), ("host_health", "memory"))
    ),
    *(node(name, "gemm", "bf16", f"shape={shape}") for name in "abc" for shape in (1, 2)),
    *(node(name, "host_health_after", "pcie") for name in "abc"),
    PlanItem("nccl_fabric", "all_reduce", "", Subject("group", "nccl_fabric", list("abc")), "a"),
    PlanItem("nccl_fabric", "broadcast", "", Subject("group", "nccl_fabric", list("abc")), "a"),
    *(node(name, "nccl_fabric", "member") for name in "abc"),
]


def chosen(*rows: tuple[str, str, str, str, str]) -> tuple[set[tuple[str, str, str, str]], list[str]]:
    stages = [registry.shipped()[name] for name in ("stack", "host_health", "gemm", "nccl_fabric", "host_health_after")]
    items, missing = open_checks.chosen(FLEET, [open_checks.OpenCheck(*row) for row in rows], stages)
    return {(item.stage, item.check, item.variant, item.subject.id) for item in items}, missing


def test_one_check_of_a_gpu_is_measured_on_its_node_with_the_list_of_its_parts() -> None:
    assert chosen(("a", "gemm", "bf16", "shape=2", "a/gpu/GPU-1")) == ({("gemm", "bf16", "shape=2", "a"), ("stack", "facts", "", "a")}, [])


def test_a_variant_that_the_plan_does_not_have_is_every_variant_of_the_check() -> None:
    items, _missing = chosen(("a", "gemm", "bf16", "shape=9", "a"))
    assert {variant for stage, _check, variant, _subject in items if stage == "gemm"} == {"shape=1", "shape=2"}


def test_a_check_of_a_group_brings_the_whole_group() -> None:
    items, _missing = chosen(("b", "nccl_fabric", "all_reduce", "", "nccl_fabric"))
    assert {subject for stage, check, _variant, subject in items if (stage, check) == ("nccl_fabric", "member")} == set("abc")
    assert {subject for stage, _check, _variant, subject in items if stage == "stack"} == set("abc")


def test_a_look_after_a_load_brings_the_look_before_it() -> None:
    items, _missing = chosen(("a", "host_health_after", "pcie", "", "a"), ("a", "gemm", "bf16", "shape=1", "a"))
    assert {stage for stage, _check, _variant, _subject in items} == {"stack", "host_health", "gemm", "host_health_after"}
    assert {subject for _stage, _check, _variant, subject in items} == {"a"}
    items, _missing = chosen(("a", "host_health", "memory", "", "a"), ("b", "gemm", "bf16", "shape=1", "b"))
    assert {subject for stage, _check, _variant, subject in items if stage == "host_health_after"} == {"a"}, "nobody has looked at b before"


def test_a_check_that_no_plan_has_is_named() -> None:
    items, missing = chosen(("x", "gemm", "bf16", "", "x"))
    assert not items and missing == ["gemm bf16 of x: it is in no plan of this fleet"]


def test_the_stages_are_those_of_the_checks_in_the_order_of_a_run() -> None:
    rows = [open_checks.OpenCheck("a", stage, "", "", "a") for stage in ("nccl_fabric", "gemm", "of_a_team")]
    assert open_checks.stages_of(rows) == ["stack", "gemm", "nccl_fabric"]


@pytest.mark.parametrize(
    ("text", "problem"), [("node,stage\n", "the column check is missing"), (HEADER, "found no row"), (None, "No such file")]
)
def test_a_file_that_is_none_of_a_hand_over_is_one_error(tmp_path: pathlib.Path, text: str | None, problem: str) -> None:
    path = tmp_path / "next_round.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(PlanError, match=f"acceptance_open_checks: .*{problem}"):
        open_checks.read(str(path))


def test_rows_are_read_as_they_were_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "n.csv").write_text(f'{HEADER}a,gemm,bf16,"x=1 y=2",a/gpu/GPU-1,slow\n')
    assert open_checks.read(str(tmp_path / "n.csv")) == [open_checks.OpenCheck("a", "gemm", "bf16", "x=1 y=2", "a/gpu/GPU-1")]
