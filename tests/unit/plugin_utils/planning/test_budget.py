# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run with acceptance_budget has the stages that find the most defects in a minute, and says what it left out."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import budget
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import PlanError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import faults, registry
from harness.sites import Site

RUN = "20260101T000000Z-0a1b2c"
FULL = registry.of_level("full")


def chosen(
    seconds: t.Mapping[str, float], budget_s: float, nodes_of: t.Mapping[str, float] | None = None, **shorter: float
) -> budget.Choice:
    """What is chosen of stages that take some seconds each, of which some have a form that takes fewer."""
    forms = {name: [budget.Form({}, takes)] for name, takes in seconds.items()}
    for name, takes in shorter.items():
        forms[name].append(budget.Form({f"{name}_scope": "ring"}, takes))
    stages = [registry.shipped()[name] for name in seconds]
    return budget.choose(stages, forms, faults.shares(nodes_of or {}), budget_s, f"{budget_s:g}s")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", None), ("2h", 7200), ("90min", 5400), ("90m", 5400), ("1h30min", 5400), ("1 h 30 min", 5400), ("5400", 5400), ("0.5h", 1800),
        ("1d", 86400),
    ],
)
def test_a_time_is_read_as_people_write_it(text: str, seconds: float | None) -> None:
    assert budget.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["two hours", "2 weeks", "-1h", "0", "1:30", "2hh", "h"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match=r"acceptance_budget: found .*, expected "):
        budget.seconds_of(text)


def test_the_stages_that_show_the_most_for_their_time_are_taken() -> None:
    choice = chosen({"stack": 5, "nic_loopback": 60, "gpu_memory": 60, "nccl_node": 60, "train": 600}, 200)
    assert choice.stages == ["stack", "nic_loopback", "gpu_memory", "nccl_node"] and choice.left_out == ["train"]
    shown = "GPU that computes wrong or slowly; heat, power and throttling over time"
    assert choice.notes == [f"acceptance_budget 200s: left out train, about 10 min; no stage of this run shows: {shown}"]


def test_a_stage_that_does_not_fit_is_taken_in_a_shorter_form() -> None:
    choice = chosen({"stack": 5, "rdma_ports": 10, "rdma": 30000, "rdma_again": 10}, 100, rdma=60)
    assert choice.stages == ["stack", "rdma_ports", "rdma", "rdma_again"] and choice.variables == {"rdma_scope": "ring"}
    assert choice.notes == ["acceptance_budget 100s: rdma with rdma_scope=ring, about 60 s in place of 8.3 h"]


def test_stages_come_and_go_with_the_one_that_brings_them() -> None:
    choice = chosen({"stack": 5, "rdma_ports": 10, "rdma": 30000, "rdma_again": 10}, 100)
    assert choice.stages == ["stack"] and choice.left_out == ["rdma_ports", "rdma", "rdma_again"]


def test_what_this_fleet_has_met_counts_more_than_what_others_have() -> None:
    seconds = {"stack": 5, "nic_loopback": 100, "nccl_node": 100}
    assert chosen(seconds, 110).stages == ["stack", "nic_loopback"]
    assert chosen(seconds, 110, {"nvlink": 40.0}).stages == ["stack", "nccl_node"]


def test_a_budget_for_everything_leaves_nothing_out() -> None:
    choice = chosen({name: 10.0 for name in FULL}, 10.0 * len(FULL))
    assert (choice.stages, choice.left_out, choice.notes) == (FULL, [], [])


def test_a_budget_is_never_exceeded() -> None:
    seconds = {name: 7.0 * (1 + number) for number, name in enumerate(FULL)}
    for budget_s in range(10, 700, 30):
        choice = chosen(seconds, budget_s, rdma=20)
        spent = sum(20 if name == "rdma" and choice.variables else seconds[name] for name in choice.stages)
        assert spent <= budget_s and sorted(choice.stages + choice.left_out) == sorted(FULL)


def test_a_stage_of_unknown_length_is_named() -> None:
    forms = {"stack": [budget.Form({}, 5)], "gemm": [budget.Form({}, 0.1, is_known=False)]}
    choice = budget.choose([registry.shipped()[name] for name in forms], forms, faults.shares({}), 60, "1min")
    assert choice.notes == ["acceptance_budget 1min: how long gemm measures is not known, and comes on top"]


def test_too_little_time_for_the_facts_is_refused() -> None:
    with pytest.raises(PlanError, match="acceptance_budget: found 1s, expected at least 5 s: stage stack comes first"):
        chosen({"stack": 5, "gemm": 5}, 1)


def test_shares_are_those_of_others_and_of_this_fleet() -> None:
    assert sum(faults.shares({}).values()) == pytest.approx(1) == pytest.approx(sum(faults.shares({"nic": 3.0}).values()))
    found = budget.by_class([registry.shipped()["nic_loopback"], registry.shipped()["rdma"]], {("rdma", "read_bw"): 4, ("other", "x"): 9})
    assert found == {"nic": 2.0, "fabric": 2.0}


def test_a_plan_within_a_budget_is_partial_and_says_what_it_left_out(site: Site) -> None:
    whole, plan = (site.planner({"acceptance_budget": text}).build(RUN, None, "full")[0] for text in ("9d", "60s"))
    everything, names = ([stage["name"] for stage in of["stages"]] for of in (whole, plan))
    assert all("how long" in note for note in whole["notes"] if note.startswith("acceptance_budget")), whole["notes"]
    assert not whole["partial"] and not whole["skipped_stages"]
    assert plan["partial"] and names[0] == "stack" and sorted(names + plan["skipped_stages"]) == sorted(everything)
    assert any(note.startswith("acceptance_budget 60s: left out ") for note in plan["notes"]), plan["notes"]


@pytest.mark.parametrize(("given", "scope"), [({}, "sample"), ({"rdma_scope": "ring"}, "ring")])
def test_a_stage_is_planned_short_unless_its_variable_is_given(site: Site, given: dict[str, str], scope: str) -> None:
    hosts: dict[str, t.Any] = {f"gpu-{number:02d}": {} for number in range(40)}
    plan = site.planner({"acceptance_budget": "4min"}, hosts, extra=given).build(RUN, ["stack", "rdma"])[0]
    assert {settings["rdma_scope"] for settings in plan["settings"]["sets"]} == {scope} and not plan["partial"]
    assert any("rdma with rdma_scope=sample, rdma_partners=" in note for note in plan["notes"]) != bool(given), plan["notes"]
