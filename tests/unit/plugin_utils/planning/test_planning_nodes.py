# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings that hold for some nodes of a cluster only."""

from __future__ import annotations

import datetime
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import inputs as planning
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import PlanError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.planner import Planner
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import JudgingInputs
from harness.records import make_plan

ENTRY = {
    "id": "own", "match": {"stage": "gemm", "check": "bf16"}, "metric": "tflops", "value": 600, "unit": "TFLOPS", "source": "ours",
    "date": "2026-11", "confidence": "measured",
}  # fmt: skip


def inputs(node_vars: t.Any, hosts: t.Sequence[str] = ("lab",), **more: t.Any) -> JudgingInputs:
    values = {
        "acceptance_expectation_overlays": [], "acceptance_expectation_files": [], "acceptance_waivers": [], "acceptance_warn": "accept",
        "acceptance_regression": "warn", "acceptance_new_references": [],
        "acceptance_waiver_days": 90, "acceptance_node_vars": node_vars, "acceptance_plane": "kubernetes", **more,
    }  # fmt: skip
    layers = types.SimpleNamespace(of=lambda _host, _name: [], groups=lambda _host: [])
    planner = types.SimpleNamespace(layers=layers, template=lambda _host, value: value)
    return planning.judging_inputs(t.cast("Planner", planner), dict.fromkeys(hosts, values))


def day(away: int) -> str:
    return (datetime.date.today() + datetime.timedelta(days=away)).isoformat()


@pytest.mark.parametrize(
    ("waiver", "more", "said"),
    [
        ({"subject": "n1", "expires": day(91)}, {}, rf"acceptance_waivers\[0\] \(T-1\): expires: found {day(91)}, .* until {day(90)}"),
        ({"subject": "n1", "expires": "9999-12-31"}, {"acceptance_waiver_days": 10**9}, "until .*acceptance_waiver_days"),
        ({"subject": "*", "expires": day(1)}, {}, r"subject: found '\*', expected one node, or wide: true"),
        ({"subject": "gpu-0[12]", "expires": day(1)}, {}, "subject"),
        ({"subject": "lab/n?/gpu/GPU-1", "expires": day(1)}, {}, "subject"),
        ({"expires": day(1)}, {"hosts": ["a", "b"]}, "subject: found none, for a and b, expected one node, or wide: true"),
    ],
)
def test_a_waiver_reaches_no_further_than_it_says(waiver: t.Any, more: t.Any, said: str) -> None:
    whole = {"ticket": "T-1", **waiver}
    with pytest.raises(RunError, match=said):
        inputs([], acceptance_waivers=[whole], **more)
    farther = {"acceptance_waivers": [{**whole, "wide": True, "expires": day(80)}], **more}
    assert len(inputs([], **farther)["waivers"]) == len(more.get("hosts", [1]))


def test_the_limits_of_waivers_are_raised_on_purpose() -> None:
    long = {"subject": "n1/gpu/*", "ticket": "T-1", "expires": day(300)}
    assert inputs([], acceptance_waivers=[long], acceptance_waiver_days=365)["waivers"] == [long]
    with pytest.raises(RunError, match="wide: true"):
        inputs([{"names": ["a", "b"], "waivers": [{"ticket": "T-1", "expires": day(1)}]}])


def test_a_node_has_its_own_expectations_and_waivers() -> None:
    waiver = {"stage": "gemm", "ticket": "OPS-1", "expires": day(90)}
    made = inputs([{"names": ["a"], "expectations": [ENTRY], "waivers": [waiver]}, {"names": ["b"], "expectations": []}])
    assert made["of"]["lab"] == made["of"]["lab/b"] != made["of"]["lab/a"]
    assert [entry["layer"] for entry in made["sets"][made["of"]["lab/a"]] if entry["id"] == "own"] == ["host"]
    assert made["waivers"] == [{**waiver, "subject": "lab/a"}]


@pytest.mark.parametrize("wrong", ["a", {"names": ["a"], "selector": "x=y"}, {"expectations": []}, {"names": ["a"], "vars": {}}])
def test_what_it_may_not_hold_is_named(wrong: t.Any) -> None:
    with pytest.raises(PlanError, match=r"lab: acceptance_node_vars\[0\]: found .*, expected \{names or selector"):
        inputs([wrong])


def test_nodes_and_stages_that_the_run_does_not_have_are_a_note() -> None:
    made = inputs([{"names": ["a", "b"]}])
    written = make_plan({"items": [{"subject": {"id": "lab/a"}}], "stages": [{"name": "ours"}], "judging": made})
    settings = {"lab": {"acceptance_plane": "kubernetes", "acceptance_kube_gpu_stages": ["gemm", "ours", "gem"]}, "m": {}}
    assert planning.without_effect(written, settings) == [
        "acceptance_node_vars: not among the nodes of this run: lab/b",
        "lab: acceptance_kube_gpu_stages: no stage of this run: gem",
    ]


def test_waivers_and_facts_that_are_misspelt_are_notes_before_anything_is_measured() -> None:
    def notes(waiver: dict[str, t.Any], partial: bool = False, **stack: t.Any) -> list[str]:
        judging = inputs([], acceptance_waivers=[{"subject": "gpu-01", "ticket": "T-1", "expires": day(9), **waiver}])
        judging.stack = {"lab": stack, "lab-2": stack} if stack else {}
        item = {"stage": "gemm", "check": "bf16", "subject": {"id": "gpu-01"}}
        written = make_plan({"items": [item], "stages": [{"name": "gemm"}], "judging": judging, "partial": partial})
        return planning.without_effect(written, {"gpu-01": {"acceptance_plane": "ssh"}, "lab": {"acceptance_plane": "ssh"}})

    where = "acceptance_waivers (T-1)"
    assert notes({"subject": "gpu-0l"}) == [f"{where}: subject: gpu-0l is not in this run; did you mean gpu-01?"]
    assert notes({"subject": "gpu-0l"}, partial=True) == [] == notes({"subject": "switch/leaf7"})
    assert notes({"stage": "gem"}) == [f"{where}: stage: there is no stage gem; did you mean gemm?"]
    assert notes({"stage": "train"}) == []  # of another run
    assert notes({"check": "bf61"}) == [f"{where}: check: this run plans no check bf61; did you mean bf16?"]
    for known in ({"check": "bf*"}, {"check": "timetable"}, {"subject": "gpu-01/gpu/*"}, {"stage": "*"}):
        assert notes(known) == []
    assert notes({}, golden={"drivr": "580.*", "driver": "580.*", "package_torch": "2.9"}, ignore=["kernl", "nic_*"]) == [
        "stack_golden: found 'drivr', which may be misspelt; did you mean driver? (lab and 1 more)",
        "stack_ignore: found 'kernl', which may be misspelt; did you mean kernel? (lab and 1 more)",
    ]


def test_an_entry_that_speaks_of_no_node_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import inventory

    monkeypatch.setattr(inventory, "select", lambda *_given: [])
    assert inputs([{"selector": "rack=9"}])["notes"] == ["lab: acceptance_node_vars[0]: no node is known that rack=9 matches"]


def test_what_a_stage_requires_to_have_been_readable_goes_to_the_judge() -> None:
    found = inputs([], gemm_required_evidence=["ecc"], nccl_node_required_evidence=[])
    assert found["required"] == {"lab": {"gemm": ["ecc"]}} and inputs([])["required"] == {}


def test_the_racks_that_the_inventory_states_go_to_the_judge() -> None:
    assert inputs([], acceptance_rack={"a": "r1", "b": ""})["rack"] == {"lab/a": "r1"}
    assert inputs([], acceptance_rack="r7")["rack"] == {"lab": "r7"} and inputs([], acceptance_rack="")["rack"] == inputs([])["rack"] == {}
