# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who deviates, from what, and who stands on either side."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.drift import drift, severity
from hypothesis import given
from hypothesis import strategies as st


def fleet(*values: t.Any, item: str = "driver") -> dict[str, dict[str, t.Any]]:
    return {f"n{i}": {} if value is None else {item: value} for i, value in enumerate(values)}


def deviating(facts: dict[str, dict[str, t.Any]], **options: t.Any) -> dict[str, t.Any]:
    return {node: items[0] for node, items in drift(facts, **options).items() if items}


def test_a_fleet_whose_facts_agree_has_no_drift() -> None:
    assert drift(fleet("580", "580", "580")) == {"n0": [], "n1": [], "n2": []}
    assert drift({}) == {} and drift(fleet("580")) == {"n0": []}


def test_a_node_with_another_driver_than_the_majority_is_a_deviation() -> None:
    assert drift(fleet("580", "570", "580"))["n1"] == [
        {
            "item": "driver", "found": "570", "expected": "580", "basis": "majority", "agree": 2, "of": 3,
            "agreeing": ["n0", "n2"], "differing": ["n1"],
        }
    ]  # fmt: skip
    assert list(deviating(fleet("580", "570", "580"))) == ["n1"]


def test_a_fact_that_one_node_lacks_is_a_deviation_of_that_node() -> None:
    found = deviating(fleet("a", "a", None))
    assert found["n2"]["found"] == "absent" and found["n2"]["expected"] == "a"
    assert deviating(fleet(None, None, "a"))["n2"]["expected"] == "absent"


@pytest.mark.parametrize("values", [("a", "b"), ("a", "a", "b", "b"), ("a", "a", "b", "c", "d"), ("a", "b", "c")])
def test_without_a_majority_nobody_is_right(values: tuple[str, ...]) -> None:
    found = deviating(fleet(*values))
    assert len(found) == len(values)
    for item in found.values():
        assert (item["basis"], item["agree"], item["of"]) == ("no majority", 0, len(values))
        assert severity(item) == "warn" and "no value has a majority: a on" in item["expected"]


def test_golden_values_hold_whatever_the_majority_has() -> None:
    found = deviating(fleet("570", "570", "580"), golden={"driver": "580"})
    assert list(found) == ["n0", "n1"]
    assert found["n0"]["basis"] == "golden" and found["n0"]["agree"] == 1 and found["n0"]["differing"] == ["n0", "n1"]
    assert severity(found["n0"]) == "fail"


@pytest.mark.parametrize(
    ("golden", "value", "good"),
    [
        ("580.*", "580.159.04", True),
        ("580.*", "570.1", False),
        (["570.1", "580.*"], "570.1", True),
        ("a[1]", "a[1]", True),
        (8, 8, True),
        ("8", 8, True),
        (8, 7, False),
        ("96.00.A5.00.1A", ["96.00.A5.00.1A"], True),
        ("96.*", ["96.1", "95.1"], False),
        (["x", "y"], ["x", "y"], True),
        ({"max": 0.5}, 0.4, True),
        ({"max": 0.5}, -0.6, False),
        ({"min": 10}, 9.5, False),
        ({"min": 10}, "unreadable: no permission", False),
        ({"min": 10}, None, False),
        ("580", None, False),
        ("580", "unreadable: nvidia-smi: not found", False),
    ],
)
def test_a_golden_value_may_be_a_text_a_pattern_or_a_list(golden: t.Any, value: t.Any, good: bool) -> None:
    assert (deviating(fleet(value), golden={"driver": golden}) == {}) is good


def test_a_golden_value_for_a_fact_that_no_node_has() -> None:
    assert deviating(fleet("x", "x"), golden={"ofed": "24.10"})["n1"]["found"] == "absent"


def test_what_belongs_to_one_machine_is_no_drift() -> None:
    for item in ("hostname", "gpu_serials", "machine_id"):
        assert deviating(fleet("a", "b", "c", item=item)) == {}
    assert deviating(fleet("a", "b", item="env_NCCL_DEBUG"), ignore=["env_*"]) == {}
    assert deviating(fleet("a", "b", item="hostname"), golden={"hostname": "a"}) != {}


def test_moving_facts_are_held_to_a_limit() -> None:
    assert deviating(fleet(0.001, -0.05, 0.0, item="clock_offset_s")) == {}
    (item,) = deviating(fleet(0.001, -2.5, 0.0, item="clock_offset_s")).values()
    assert (item["basis"], item["expected"], item["found"]) == ("limit", "at most 0.1", "-2.5")
    assert severity(item) == "warn"
    assert list(deviating(fleet(900.5, 3.0, None, item="free_disk_gib_/tmp"))) == ["n1"]
    assert deviating(fleet(3.0, item="free_disk_gib_/tmp"), golden={"free_disk_gib_/tmp": {"min": 1}}) == {}
    assert deviating(fleet(3.0, item="free_disk_gib_/tmp"), ignore=["free_disk*"]) == {}


def test_what_nobody_can_read_is_no_drift_and_what_one_cannot_is() -> None:
    assert deviating(fleet("unreadable: no permission", "unreadable: status 1")) == {}
    (item,) = deviating(fleet("580", "580", "unreadable: no answer")).values()
    assert severity(item) == "warn" and item["found"] == "unreadable: no answer"


def test_long_lists_show_only_what_differs() -> None:
    packages = [f"p{i}==1" for i in range(300)]
    other = [*packages[:-1], "p299==2", "extra==1"]
    (item,) = deviating(fleet(packages, packages, other, item="pip_freeze")).values()
    assert (item["found"], item["expected"]) == ('["p299==2", "extra==1"]', '["p299==1"]')


@pytest.mark.parametrize(
    ("item", "worth"),
    [
        ("driver", "fail"), ("cuda_driver", "fail"), ("nccl_loaded", "fail"), ("kernel", "fail"), ("gpu_count", "fail"),
        ("nic_firmware_MT_0000000838", "fail"), ("vbios", "fail"), ("bios_version", "fail"), ("ofed", "fail"),
        ("package_torch", "warn"), ("pip_freeze", "warn"), ("kernel_command_line", "warn"), ("gpu_processes", "warn"),
    ],
)  # fmt: skip
def test_a_deviation_has_the_severity_of_its_fact(item: str, worth: str) -> None:
    (found,) = deviating(fleet("a", "a", "b", item=item)).values()
    assert severity(found) == worth
    assert severity(found, {item: "ignore"}) == "ignore" and severity(found, {"*": "fail"}) == "fail"


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.dictionaries(st.sampled_from("xyz"), st.integers(0, 2))))
def test_the_order_of_nodes_does_not_matter(facts: dict[str, dict[str, t.Any]]) -> None:
    backwards = dict(reversed(list(facts.items())))
    assert drift(facts) == drift(backwards)
    for items in drift(facts).values():
        for item in items:
            assert item["basis"] in ("majority", "no majority")
            assert (2 * item["agree"] > item["of"]) == (item["basis"] == "majority")


def test_one_deviating_fact_of_two_thousand_nodes_is_found() -> None:
    facts = {f"n{i:04}": {f"item{j}": "a" for j in range(120)} | {"pip_freeze": ["x"] * 300} for i in range(2000)}
    facts["n0007"]["item3"] = "b"
    assert list(deviating(facts)) == ["n0007"]
