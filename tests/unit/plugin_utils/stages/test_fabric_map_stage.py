# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdicts of the stage fabric_map, from measurements of all nodes to those of nodes and switches."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import judgement, picture, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import plan as cabling_plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import JudgingInputs
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, looked_for, model, page
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import fabric_map
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.fabric_map import STAGE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.fabric_map_after import STAGE as AFTER
from harness import records as plain
from harness import report_samples as samples
from harness.fat_tree import FatTree


def judgement_of(tree: FatTree, **inputs: t.Any) -> tuple[t.Any, verdict.Judgement]:
    return of_records(tree, tree.measured(), **inputs)


def of_records(tree: FatTree, records: list[t.Any], **inputs: t.Any) -> tuple[t.Any, verdict.Judgement]:
    items = [{"stage": r.stage, "check": r.check, "variant": r.variant, "subject": r.subject, "target": r.target} for r in records]
    plan: t.Any = samples.plan(tree.hosts, ["fabric_map"], items=items)
    records = [record.replaced(run_id=plan.run_id) for record in records]
    given = JudgingInputs(**inputs)
    return plan, verdict.judge(plan, records, lambda *_who: expectations.shipped(), given, stages=[STAGE])


def judged(tree: FatTree) -> dict[tuple[str, str], tuple[str, str | None]]:
    _plan, found = judgement_of(tree)
    return {(v["subject"]["id"], v["check"]): (v["verdict"], v["reason_code"]) for v in found.verdicts}


def test_a_healthy_fabric_passes_with_each_of_its_switches() -> None:
    found = judged(FatTree(16))
    assert {word for word, _code in found.values()} == {"PASS"} and found["leaf-1", "cables"] and found["spine-2", "cables"]


def test_a_node_or_a_switch_bears_what_is_wrong_with_its_cables() -> None:
    tree = FatTree(16)
    del tree.cables["gpu-0007:1"]
    del tree.cables["leaf-3:6"]
    bad = {who: code for who, (word, code) in judged(tree).items() if word != "PASS"}
    assert bad == {("gpu-0007", "ports"): "cable_missing", ("leaf-3", "cables"): "cable_missing"}


@pytest.mark.parametrize(("node", "verdict_and_code"), [("gpu-0002", ("UNKNOWN", "cable_unknown")), ("gpu-9", ("SKIPPED", None))])
def test_a_node_without_rdma_hardware_of_which_the_plan_has_cables_is_unknown(
    node: str, verdict_and_code: tuple[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = judgement.Wanted([cabling_plan.Cable(node, "mlx5_0", "leaf-1", "1")])
    monkeypatch.setattr(fabric_map, "_wanted", lambda *_of: wanted)
    tree = FatTree(2)
    absent = {"outcome": "not_applicable", "reason_code": "no_rdma_expected", "reason": "the node has no RDMA device", "metrics": {}}
    records = [record.replaced(context={}, **absent) for record in tree.measured()]
    _plan, found = of_records(tree, records)
    verdicts = {(v["subject"]["id"], v["check"]): v for v in found.verdicts}
    seen = verdicts["gpu-0002", "ports"]
    assert seen["verdict"] == verdict_and_code[0] and verdicts["gpu-0001", "ports"]["verdict"] == "SKIPPED"
    if verdict_and_code[1]:
        assert seen["reason_code"] == verdict_and_code[1]
        assert "the plan has cables of gpu-0002 at mlx5_0, and the node has no RDMA device" in seen["reason"]


def test_a_fabric_cannot_be_watched_until_the_deadline() -> None:
    words = "fabric_map_timeout: found 300, expected more than the 300 s of fabric_map_watch, which are a part of it"
    assert STAGE.problem({"fabric_map_watch": 300, "fabric_map_timeout": 300}) == words
    assert STAGE.problem({"fabric_map_watch": 10, "fabric_map_timeout": 300}) is None


def test_a_slow_cable_between_switches_is_not_blamed_on_a_node() -> None:
    tree = FatTree(16)
    tree.rates["leaf-2:5"] = "1xHDR"
    assert {who for who, (word, _code) in judged(tree).items() if word != "PASS"} <= {("leaf-2", "cables"), ("spine-1", "cables")}


def test_the_report_has_a_picture_and_the_ports_in_the_order_of_a_walk() -> None:
    tree = FatTree(16)
    tree.swap("gpu-0003:1", "gpu-0009:1")
    del tree.cables["leaf-1:6"]
    racks = {f"gpu-{number:04d}": f"R{12 - (number - 1) // 4}" for number in range(1, 17)}
    plan, found = judgement_of(tree, rack={**racks, "gpu-0003": "R12", "gpu-0009": "R10"})
    plan.stages = [{"name": "fabric_map", "role": STAGE.role}]
    made = model.build(plan, found, {})
    (section,) = [section for section in made["sections"] if section["title"] == "Cables"]
    # Nodes of one port are as well connected at either leaf: what is wrong is the uplink, in the rack of the nodes of its leaf.
    assert [row[:3] for row in section["rows"]] == [["", "leaf-1", "6"]]
    assert section["picture"].startswith("<svg") and "leaf-1" in section["picture"]
    html = page.render(made)
    assert section["picture"] in html and "picture" not in json.loads(formats.as_json(made))["sections"][0]


def test_a_name_out_of_the_fabric_is_no_markup_in_the_report() -> None:
    tree = FatTree(16)
    del tree.cables["leaf-1:6"]
    records = tree.measured()
    for device in records[-1].context["fabrics"][0]["devices"]:
        device[2] = device[2].replace("leaf-1", "<script>alert(1)</script>")
    fabric = reading.read(records).fabric
    drawn = picture.draw(fabric, judgement.findings(fabric, judgement.Wanted(nodes=tree.hosts)))
    assert "<script" not in drawn and "&lt;script&gt;" in drawn


def test_cables_are_looked_for_on_the_nodes_that_the_map_has() -> None:
    tree = FatTree(16)
    plan, found = judgement_of(tree)
    plan.stages = [{"name": "fabric_map", "role": STAGE.role}]
    (row,) = [row for row in looked_for.build(plan, found)["rows"] if row["fault"].startswith("cable")]
    assert (row["nodes"], row["of"], row["checks"]) == (16, 16, ["fabric_map cables"])


def test_a_plan_with_cables_of_no_node_of_the_run_is_told(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plan.csv"
    settings: t.Any = {"n1": {"fabric_map_fabric": "", "fabric_map_checks": [], "acceptance_fabric_plan": str(path)}}
    for node, notes in (("onne", 1), ("n1.example.com", 0)):
        path.write_text(f"node,port,switch,switch_port\n{node},mlx5_0,leaf-1,1\n")
        said = STAGE.items({"n1": "n1"}, settings)[1]
        assert len(said) == notes and all("found cables of onne" in each and "n1 for one" in each for each in said)


def test_two_nodes_of_a_fabric_discover_it() -> None:
    checks = [(check, "") for check in ("ports", "optics", "discovery")]
    names = [f"gpu-{number}" for number in range(4)]
    settings = {name: {"fabric_map_fabric": "all", "fabric_map_checks": checks} for name in names}
    items, _notes = STAGE.items({name: name for name in names}, settings)
    assert [item.target for item in items if item.check == "discovery"] == names[:2]  # type: ignore[union-attr]
    assert len(items) == 10


def test_a_witness_without_tools_is_unknown_although_a_level_would_leave_it_out() -> None:
    tree = FatTree(16)
    records = tree.measured(witness=tree)
    lacking = {"outcome": "not_applicable", "reason_code": "not_visible", "reason": "ibnetdiscover is not installed", "context": {}}
    looks = [place for place, record in enumerate(records) if record.check == "discovery"]
    for without, word in ((looks[1:], "UNKNOWN"), (looks, "SKIPPED")):
        changed = [record.replaced(**lacking) if place in without else record for place, record in enumerate(records)]
        verdicts = of_records(tree, changed)[1].verdicts
        assert [v["verdict"] for v in verdicts if v["check"] == "discovery" and v["subject"]["id"] == tree.hosts[1]] == [word]


def test_errors_counted_and_links_lost_or_slower_during_the_run_are_findings_of_their_switches() -> None:
    tree, later = FatTree(16), FatTree(16)
    tree.errors[("leaf-1", 2)] = later.errors[("leaf-1", 2)] = {"SymbolErrorCounter": 40}
    tree.errors[("leaf-2", 5)] = {"SymbolErrorCounter": 20}
    later.errors[("leaf-2", 5)] = {"SymbolErrorCounter": 1220, "LinkDownedCounter": 12}
    later.rates["leaf-3:5"] = "1xHDR"
    del later.cables["leaf-4:6"]
    records = tree.measured()
    second = [r.replaced(stage=AFTER.name) for r in later.measured() if r.check == "discovery"]
    found = after([*records, *second])
    assert found["leaf-2"][:2] == ("WARN", "port_errors") and "SymbolErrorCounter by 1200 to 1220" in found["leaf-2"][2]
    assert found["leaf-3"][:2] == ("FAIL", "link_slow") and found["leaf-4"][:2] == ("FAIL", "cable_missing")
    assert {name: word for name, (word, _code, _why) in found.items() if word != "PASS"}.keys() == {"leaf-2", "leaf-3", "leaf-4"}
    for record in second:  # where one look could not read the counters, nothing rose
        record.context["fabrics"][0]["not_looked_for"] = {"ibqueryerrors": "it is not installed"}
    assert after([*records, *second])["leaf-2"][0] == "PASS"


def test_a_look_at_the_end_without_one_at_the_beginning_shows_nothing() -> None:
    second = [r.replaced(stage=AFTER.name) for r in FatTree(16).measured() if r.check == "discovery"]
    assert {word[:2] for word in after(second, "discovery").values()} == {("UNKNOWN", "incomplete")}
    assert {word[:2] for word in after([*FatTree(16).measured(), *second], "discovery").values()} == {("PASS", None)}


def test_a_cable_that_was_moved_during_the_run_is_found() -> None:
    moved = FatTree(16)
    moved.swap("gpu-0003:1", "gpu-0009:1")
    second = [r.replaced(stage=AFTER.name) for r in moved.measured() if r.check == "discovery"]
    found = after([*FatTree(16).measured(), *second])
    bad = {name: word[:2] for name, word in found.items() if word[0] != "PASS"}
    assert bad and set(bad.values()) == {("FAIL", "cable_wrong")}


def after(records: list[t.Any], check: str = "cables") -> dict[str, tuple[str, str | None, str]]:
    items = [{"stage": r.stage, "check": r.check, "variant": r.variant, "subject": r.subject, "target": r.target} for r in records]
    plan: t.Any = samples.plan(["gpu-0001"], [STAGE.name, "rdma", AFTER.name], items=items)
    records = [record.replaced(run_id=plan.run_id) for record in records]
    found = verdict.judge(plan, records, lambda *_who: expectations.shipped(), stages=[STAGE, AFTER])
    listed = [v for v in found.verdicts if v["stage"] == AFTER.name and v["check"] == check]
    return {v["subject"]["id"]: (v["verdict"], v["reason_code"], v["reason"]) for v in listed}


def test_a_switch_of_which_nobody_can_tell_what_is_plugged_in_refuses_the_run() -> None:
    records = []
    for number, heard in enumerate(([["leaf-1", "swp1"]], [["leaf-1", "swp2"], ["desk", "1"]]), 1):
        port = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "link_layer": "Ethernet", "netdev": "eth0", "heard": heard}
        subject = {"kind": "node", "id": f"gpu-{number}", "members": []}
        fields = {"stage": STAGE.name, "check": "ports", "subject": subject, "target": f"gpu-{number}"}
        records.append(plain.measurement({**fields, "context": {"ports": [port], "condition": True}}))
    _plan, found = of_records(FatTree(2), records)
    assert [(v["subject"]["id"], v["verdict"]) for v in found.verdicts if v["verdict"] != "PASS"] == [("leaf-1", "UNKNOWN")]
    assert not found.accepted and found.why.startswith("UNKNOWN on 1 switch (leaf-1)") and not found.extras
