# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Proposed expectations: the healthy median, ignored until confirmed, then what judges the next run."""

from __future__ import annotations

import json
import pathlib
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.action import baseline as action
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import baseline, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import resolve
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import parsed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness.records import make_plan

RUN = "20261121T000000Z-0a1b2c"
GIB = 1 << 30
CONTEXT = {"gpu": "NVIDIA X1", "gpus": 2, "nvls": False, "algorithm": "auto", "series_units": {"busbw": "GB/s"}}


def nccl(subject: str, busbw: float, **fields: t.Any) -> dict[str, t.Any]:
    return {
        "schema": "measurement/v1", "run_id": RUN, "stage": "nccl_node", "check": "all_reduce", "variant": "",
        "subject": {"kind": "node", "id": subject, "members": []}, "plane": "ssh", "target": subject, "attempt": 1,
        "outcome": "measured", "reason_code": None, "reason": None,
        "metrics": {"busbw": {"value": busbw, "unit": "GB/s"}},
        "series": [{"size": s, "busbw": busbw} for s in (1 << 23, GIB, 16 * GIB)], "context": CONTEXT, "evidence": {},
        "command": [], "tool_version": None, "started_at": "2026-11-21T00:00:00Z", "duration_s": 1.0, "raw": None,
        "raw_sha256": None, "simulated": False, **fields,
    }  # fmt: skip


def proposal(records: t.Iterable[t.Any], *args: t.Any, **options: t.Any) -> baseline.Proposal:
    found = [measurement for measurement in map(parsed, records) if isinstance(measurement, Measurement)]
    return baseline.propose(found, *args, **options)


def propose(*args: t.Any, **options: t.Any) -> str:
    return proposal(*args, **options).text


def entries(text: str) -> list[dict[str, t.Any]]:
    content = yaml.safe_load(text)
    assert content["proposed"] is True
    return content["expectations"]


def test_the_median_without_outliers_nor_those_with_errors() -> None:
    fleet = [nccl(f"n{i}", 300.0 + i) for i in range(9)] + [nccl("slow", 200.0)]
    fleet.append(nccl("odd", 100.0, evidence={"changes": [{"code": "xid", "text": "Xid 63"}]}))
    found = {e["match"]["size"]: e for e in entries(propose(fleet, RUN, "2026-11-21"))}
    assert set(found) == {GIB, "plateau"}
    assert found[GIB]["value"] == 304 and found[GIB]["confidence"] == "measured"
    assert RUN in found[GIB]["source"] and found[GIB]["date"] == "2026-11-21"


def test_a_proposal_needs_five_nodes_unless_fewer_are_asked_for() -> None:
    text = propose([nccl(f"n{i}", 300.0) for i in range(4)], RUN, "2026-11-21")
    assert entries(text) == [] and "measured on 4, expected at least 5" in text
    assert len(entries(propose([nccl("n1", 300.0)], RUN, "2026-11-21", minimum=1))) == 2


def test_errors_and_broken_records_propose_no_expectation() -> None:
    broken = [nccl(f"n{i}", 300.0, outcome="error", reason_code="timeout", reason="x") for i in range(9)]
    assert entries(propose([*broken, None, {}], RUN, "2026-11-21")) == []


def test_nodes_that_compute_wrong_values_are_no_yardstick_and_no_order_matters() -> None:
    """Wrong results on the first attempt, and more than half of the numbers from such nodes."""
    fleet = [nccl(f"n{i}", 300.0) for i in range(5)]
    fatal = {"outcome": "error", "reason_code": "wrong_results", "reason": "x", "metrics": {}, "series": []}
    for number in range(6):
        fleet += [nccl(f"bad{number}", 200.0, **fatal), nccl(f"bad{number}", 200.0, attempt=2)]
    lost = {"changes": [{"code": "gpu_lost", "part": "", "text": "gone"}]}
    fleet += [nccl("lost", 200.0, check="all_gather", evidence=lost), nccl("lost", 200.0)]
    fleet += [nccl("n0", 290.0, attempt=2), nccl("n0", 280.0, attempt=3), nccl("n0", 200.0)]
    found = propose(fleet, RUN, "2026-11-21")
    assert {e["value"] for e in entries(found)} == {300.0}
    assert propose(fleet[::-1], RUN, "2026-11-21") == found


def test_nothing_above_physics_is_proposed() -> None:
    fleet = [nccl(f"n{i}", 500.0, context={**CONTEXT, "gpu": "NVIDIA H200"}) for i in range(6)]
    text = propose(fleet, RUN, "2026-11-21")
    assert entries(text) == [] and "at most 450" in text


def test_measured_in_one_run_and_judged_in_another(tmp_path: t.Any) -> None:
    path = tmp_path / "fleet.yml"
    path.write_text(propose([nccl(f"n{i}", 300.0) for i in range(5)], RUN, "2026-11-21"))
    items = [{"stage": "nccl_node", "check": "all_reduce", "variant": "", "target": "n9", "subject": nccl("n9", 0)["subject"]}]

    def word(busbw: float) -> str:
        expected = resolve([], files=[str(path)])
        plan = make_plan({"run_id": RUN, "items": items})
        return verdict.judge(plan, [nccl("n9", busbw)], lambda _node, _target: expected).planned[0].verdict

    assert word(300.0) == "UNKNOWN", "a proposal is ignored"
    path.write_text(path.read_text().replace("proposed: true\n", ""))
    assert [word(v) for v in (300.0, 280.0, 200.0)] == ["PASS", "WARN", "FAIL"]


def test_a_proposal_from_simulated_numbers_has_a_simulated_source() -> None:
    found = entries(propose([nccl(f"n{i}", 300.0, simulated=True) for i in range(5)], RUN, "2026-11-21"))
    assert all(e["source"].startswith("SIMULATED") for e in found)


# Groups of nodes -----------------------------------------------------------------------------------------------------


def fabric(busbw: float, name: str = "nccl_fabric", **fields: t.Any) -> dict[str, t.Any]:
    subject = {"kind": "group", "id": name, "members": ["n1", "n2", "n3", "n4"]}
    context = {**CONTEXT, "gpus": 8, "nodes": 4, "nics": 8, "nic_gbps": 400, "mnnvl": False}
    about = {"stage": "nccl_fabric", "subject": subject, "context": context, "target": f"head of {name}"}
    return {**nccl("n1", busbw), **about, **fields}


def test_one_group_is_enough_and_says_what_it_is_worth() -> None:
    found = proposal([fabric(380.0)], RUN, "2026-11-21")
    assert {e["match"]["size"] for e in found.entries} == {GIB, "plateau"} and not found.left_out
    for entry in found.entries:
        assert entry["value"] == 380 and entry["confidence"] == "derived" and entry["match"]["nodes"] == 4
        assert entry["source"] == f"run {RUN}: what one group gave, which nothing was compared with"
    lines = action.said(found, "/x.yml")
    assert "too few groups were measured" in lines[0] and "/x.yml: 2 expectations" in lines[-1]
    six = proposal([fabric(380.0 + n, f"nccl_fabric/{n}") for n in range(6)], RUN, "2026-11-21")
    assert {e["confidence"] for e in six.entries} == {"measured"} and "median of 6 groups" in six.entries[0]["source"]


def test_a_group_in_which_a_search_found_something_is_no_example() -> None:
    finding = fabric(1.0, check="localise", metrics={}, series=[])
    finding["context"] = {"findings": [{"code": "localised", "text": "n3 is slow"}]}
    assert proposal([fabric(300.0), finding], RUN, "2026-11-21").entries == []
    finding["target"] = "head of another"
    assert proposal([fabric(300.0), finding], RUN, "2026-11-21").entries


def test_what_is_left_out_is_said_on_the_terminal() -> None:
    lines = action.said(proposal([nccl("n1", 300.0)], RUN, "2026-11-21"), "/x.yml")
    assert len(lines) == 3 and all("measured on 1, expected at least 5" in line for line in lines[:2])
    assert lines[-1] == "/x.yml: nothing can be proposed"


# Beside the shipped tables -------------------------------------------------------------------------------------------


def of_h200(busbw: float) -> list[dict[str, t.Any]]:
    context = {**CONTEXT, "gpu": "NVIDIA H200", "gpus": 8, "nvls": True}
    return [nccl(f"n{i}", busbw, context=context) for i in range(6)]


def test_the_shipped_value_stands_beside_each_proposal() -> None:
    found = proposal(of_h200(470.0), RUN, "2026-11-21")
    assert "# shipped: 480 GB/s (h200-8-all_reduce-nvls-plateau), of which this is 0.98" in found.text
    assert [e["match"]["size"] for e in found.entries] == [e["match"]["size"] for e in entries(found.text)] and not found.under
    assert "# nothing is shipped for it" in propose([nccl(f"n{i}", 300.0) for i in range(6)], RUN, "2026-11-21")


def test_what_is_under_the_shipped_floor_is_commented_out() -> None:
    """Six machines at half speed agree with each other, and are no yardstick."""
    found = proposal(of_h200(440.0), RUN, "2026-11-21")
    assert "plateau" not in {e["match"]["size"] for e in entries(found.text)} and found.entries == entries(found.text)
    assert "#   size: plateau" in found.text.replace("#     size", "#   size") and "# - id: nccl_node-nvidia-h200-8" in found.text
    (line,) = [line for line in found.under if "plateau" in line]
    assert "480 GB/s" in line and "the least that passes is 456" in line
    assert any(line.startswith("commented out: ") for line in action.said(found, "/x.yml"))
    slow = proposal(of_h200(250.0), RUN, "2026-11-21")
    text = slow.text.replace("proposed: true\n", "")
    assert all(e["match"]["size"] != "plateau" for e in yaml.safe_load(text)["expectations"] or [])


def judged_run(folder: pathlib.Path, accepted: bool, verdicts: list[dict[str, t.Any]], mode: str = "run", judged: str = "") -> Run:
    run = Run(folder, RUN)
    place = run.dir / judged
    place.mkdir(parents=True, exist_ok=True)
    (place / "report.json").write_text(json.dumps({"accepted": accepted, "mode": mode}))
    (place / "verdicts.jsonl").write_text("".join(json.dumps(v) + "\n" for v in verdicts))
    return run


def test_a_run_that_was_not_accepted_is_no_yardstick(tmp_path: pathlib.Path) -> None:
    good, slow = {"verdict": "PASS", "reason_code": None}, {"verdict": "FAIL", "reason_code": "below_floor"}
    unknown = {"verdict": "UNKNOWN", "reason_code": "no_expectation"}

    def doubt(name: str, *rows: dict[str, t.Any], accepted: bool = False, mode: str = "run") -> str:
        return action._doubt(judged_run(tmp_path / name, accepted, list(rows), mode), make_plan({"mode": mode}))

    assert doubt("accepted", good, accepted=True) == ""
    assert doubt("slow", good, slow) == doubt("both", unknown, slow) == doubt("refused for its warnings", good) == "was not accepted"
    assert doubt("new hardware", good, unknown) == "", "expectations are all that it lacks"
    assert doubt("quick", good, accepted=True, mode="quick") == "is a quick test"
    later = judged_run(tmp_path / "slow", True, [good], judged="judged/20261122T000000Z")
    assert action._doubt(later, make_plan({})) == "", "it was judged again, and accepted"
    assert action._doubt(Run(tmp_path / "nowhere", RUN), make_plan({})) == "was not judged"
    (tmp_path / "accepted" / RUN / "report.json").write_text("{")
    unread = action._doubt(Run(tmp_path / "accepted", RUN), make_plan({}))
    assert "cannot" not in unread and "no judgement that can be read" in unread
