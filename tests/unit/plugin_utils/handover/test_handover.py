# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rounds of judged runs are handed over: what holds after a repair, the punch list, blocks, contract and order."""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib
import re
import tarfile
import types
import typing as t

import msgspec
import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import (
    checker,
    next_round,
    printing,
    public_lists,
    punch_list,
    request,
    rounds,
    standing,
    support,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys, model, parts, subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import run as runs_on_disk
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness import history_runs as runs


def gpu(number: int, place: int = 0) -> dict[str, t.Any]:
    """A GPU as the stack stage lists it."""
    return {
        "uuid": runs.uuid(number), "index": place, "name": runs.GPU, "serial": f"S{number}", "bdf": f"0000:{place:02x}:00.0",
        "vbios": "96.00", "board_part_number": "692-1", "place": {"module": place},
    }  # fmt: skip


def machine(name: str, gpus: dict[int, float], **fields: t.Any) -> runs.Machine:
    listed = [gpu(number, place) for place, number in enumerate(gpus)]
    return runs.Machine(name * 32, gpus, lists={"gpu_table": listed, "system": {"serial": f"M-{name}"}}, **fields)


def judged(results: pathlib.Path, day: int, machines: dict[str, runs.Machine], **plan: t.Any) -> str:
    """Judge a run whose folder is whole, and return its id."""
    run = runs.measured(results, day, machines, **plan)
    for record in run.journal.as_data():
        if runs_on_disk.has_facts(record):
            path = run.dir / "nodes" / runs_on_disk.node_file(record["subject"]["id"])
            path.write_text(runs_on_disk.readable(runs_on_disk.facts_of(record)))
    runs.judge(run)
    return run.id


def handed(results: pathlib.Path, *run_ids: str, groups: t.Mapping[str, t.Sequence[str]] | None = None, **options: t.Any) -> request.Made:
    given = {name: spec.get("default") for name, spec in request.OPTIONS.items()}
    asked = {**given, "run_id": list(run_ids), "results_dir": str(results), "pdf": False, **options}
    return request.make(asked, groups or {})


def content(made: request.Made, name: str) -> t.Any:
    with tarfile.open(made.path) as archive:
        text = archive.extractfile(f"{pathlib.Path(made.path).stem}/{name}").read().decode()
    return json.loads(text) if name.endswith(".json") else list(csv.DictReader(text.splitlines())) if name.endswith(".csv") else text


def test_a_fleet_without_faults_is_accepted_and_its_pack_is_whole(tmp_path: pathlib.Path) -> None:
    made = handed(tmp_path, judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 671})}))
    assert made.accepted and checker.check(made.path).manifest["word"] == "ACCEPTED" and not content(made, "punch_list.csv")
    assert content(made, "capacity.json")["total"] == {
        "delivered": {"nodes": 2, "gpus": 2}, "healthy": {"nodes": 2, "gpus": 2}, "reserved_for_repair": {"nodes": 0, "gpus": 0},
        "accepted": {"nodes": 2, "gpus": 2},
    }  # fmt: skip
    (one, *_others) = [row for row in content(made, "inventory.csv") if row["kind"] == "GPU"]
    assert (one["node"], one["serial"], one["firmware"], one["slot"]) == ("a", "S1", "96.00", "module 0")
    assert "switches and their power supplies: no stage looks at them" in content(made, "inventory.json")["not_seen"]


def test_a_slow_gpu_is_a_row_with_its_place_and_its_evidence(tmp_path: pathlib.Path) -> None:
    made = handed(tmp_path, judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 500})}))
    (row,) = content(made, "punch_list.csv")
    assert not made.accepted and (row["state"], row["hardware_id"], row["serial"]) == ("open", f"gpu/{runs.uuid(2)}", "S2")
    assert (row["measured"], row["required"].split()[1], row["category"]) == ("500.0 TFLOPS", "TFLOPS", "part")
    assert "500" in content(made, f"{row['evidence']}01-{runs.run_id(1)}.txt")
    assert content(made, "blocks.json")["fleet"]["state"] == "NOT ACCEPTED"


def test_a_row_of_a_node_has_the_parts_that_its_finding_names(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 670, 2: 670}), "b": machine("b", {3: 670, 4: 670})})
    cause = {
        "subject": "a", "name": "a", "verdict": "FAIL", "findings": [], "explains": [], "advice": [], "simulated": False,
        "said": "a: soak cooling: GPU 0 and GPU 1 are warm",
    }  # fmt: skip
    read = rounds.read(str(tmp_path), [first])
    round_ = dataclasses.replace(read[0], report={**read[0].report, "causes": [cause]})
    (row,) = punch_list.rows([round_], [standing.of([round_])], {})
    assert (row.values["part"], row.values["serial"]) == ("a GPU 0, GPU 1", "GPU 0: S1; GPU 1: S2")


def plugged(name: str, gpus: dict[int, float], *serials: str) -> runs.Machine:
    """A machine with a module in the port of each RDMA device, which has this serial number."""
    modules = [
        {"port": f"mlx5_{place}/1", "vendor": "Maker", "part_number": "MMA4Z00", "serial": serial}
        for place, serial in enumerate(serials) if serial
    ]  # fmt: skip
    of = machine(name, gpus)
    return dataclasses.replace(of, lists={**of.lists, "modules": modules})


def test_a_module_is_a_part_with_a_serial_number_and_one_that_was_changed_is_told(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": plugged("a", {1: 670}, "MT1", "MT2"), "b": plugged("b", {2: 670}, "MT3", "MT4")})
    # The module of mlx5_1 of b does not answer this time, which does not mean that it is gone.
    second = judged(tmp_path, 2, {"a": plugged("a", {1: 670}, "MT1", "MT9"), "b": plugged("b", {2: 670}, "MT3", "")})
    made = handed(tmp_path, first, second)
    modules = [row for row in content(made, "inventory.csv") if row["kind"] == parts.PLUGGED]
    assert [(row["node"], row["slot"], row["serial"]) for row in modules] == [
        ("a", "mlx5_0/1", "MT1"), ("a", "mlx5_1/1", "MT9"), ("b", "mlx5_0/1", "MT3"),
    ]  # fmt: skip
    (change,) = content(made, "inventory.json")["changes"]
    assert change["node"] == "a" and "MT2" in change["before"] and "MT9" in change["after"]


def test_a_row_about_a_port_names_the_module_in_it(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": plugged("a", {1: 670}, "MT1", "MT2")})
    said = "a: fabric_map optics: mlx5_1 port 1: module Maker MMA4Z00 MT2 raises rx power low alarm"
    cause = {"name": "a", "verdict": "FAIL", "findings": [], "explains": [], "advice": [], "simulated": False, "said": said}
    read = rounds.read(str(tmp_path), [first])
    for subject in ("a", "a/nic/mlx5_1/1"):
        round_ = dataclasses.replace(read[0], report={**read[0].report, "causes": [{**cause, "subject": subject}]})
        (row,) = punch_list.rows([round_], [standing.of([round_])], {})
        assert (row.values["serial"], row.values["slot"], row.values["part_number"]) == ("MT2", "mlx5_1/1", "MMA4Z00")


def test_a_later_round_closes_a_row_and_a_pass_that_was_there_before_still_counts(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 500})})
    second = judged(tmp_path, 2, {"b": machine("b", {2: 670})}, partial=True, left_out=["a"])
    made = handed(tmp_path, second, first)
    (row,) = content(made, "punch_list.csv")
    assert made.accepted and (row["state"], row["first_run"], row["last_run"]) == ("done", first, second) and row["closed_at"]
    assert content(made, "blocks.json")["fleet"]["accepted_at"] and "2 rounds" in made.lines[0]


def test_the_line_about_a_pack_says_simulated_and_what_speaks_against_it_before_its_many_rounds(tmp_path: pathlib.Path) -> None:
    fleet = {name: machine(name, {number: 670}, simulated=True) for number, name in enumerate("ab")}
    of = [judged(tmp_path, day, fleet) for day in range(1, 9)]
    contract = tmp_path / "contract.yml"
    contract.write_text("- {id: DOC-1, text: cables are labelled}\n")
    said = handed(tmp_path, *of, contract=str(contract)).lines[0]
    assert said.startswith("NOT ACCEPTED, SIMULATED: 1 of 1 blocks accepted, 1 more against the whole, 8 rounds (")


def test_a_row_stays_open_that_the_later_round_did_not_measure(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 500}), "b": machine("b", {2: 500})})
    second = judged(tmp_path, 2, {"b": machine("b", {2: 670})}, partial=True, left_out=["a"])
    made = handed(tmp_path, first, second)
    assert {row["node"]: row["state"] for row in content(made, "punch_list.csv")} == {"a": "open", "b": "done"} and not made.accepted


def test_a_gpu_in_the_place_of_another_closes_its_row_by_passing_the_same_checks(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 500})})
    second = judged(tmp_path, 2, {"b": machine("b", {3: 670})}, partial=True, left_out=["a"])
    made = handed(tmp_path, first, second)
    (row,) = content(made, "punch_list.csv")
    (change,) = content(made, "inventory.json")["changes"]
    assert made.accepted and row["state"] == "done" and change["row"] == row["id"] and "S3" in change["after"]
    third = judged(tmp_path, 3, {"b": machine("b", {4: 500})}, partial=True, left_out=["a"])
    worse = handed(tmp_path, first, second, third)
    assert [row["state"] for row in content(worse, "punch_list.csv")] == ["open", "done"] and not worse.accepted


def test_what_was_measured_before_a_part_changed_does_not_hold(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 670, 2: 670})})
    second = judged(tmp_path, 2, {"a": machine("a", {1: 670, 3: 670})}, stages=("stack",))
    made = handed(tmp_path, first, second)
    assert not made.accepted and "1 of 1 nodes have open checks" in made.lines[1]
    assert any("no row of the punch list says why" in line for line in made.lines)


def test_what_was_measured_before_a_node_came_back_does_not_hold(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 500})})
    second = judged(tmp_path, 2, {"b": machine("b", {2: 670})}, partial=True, left_out=["a"])
    assert handed(tmp_path, first, second).accepted
    path = tmp_path / request.FOLDER / request.PUNCH_LIST
    rows = list(csv.DictReader(path.open()))
    rows[0].update(returned_at="2026-01-03T00:00:00Z", owner="Röck", ticket="RMA-7")
    with path.open("w", newline="") as target:
        writer = csv.DictWriter(target, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    made = handed(tmp_path, first, second, name="again")
    (row,) = content(made, "punch_list.csv")
    assert not made.accepted and (row["state"], row["owner"], row["ticket"]) == ("open", "Röck", "RMA-7")
    third = judged(tmp_path, 4, {"b": machine("b", {2: 670})}, partial=True, left_out=["a"])
    assert handed(tmp_path, first, second, third).accepted


def test_what_people_wrote_about_rows_of_other_rounds_is_kept(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 500})})
    handed(tmp_path, first)
    path = tmp_path / request.FOLDER / request.PUNCH_LIST
    path.write_text(path.read_text().replace(",open,,", ",open,Jane,=cmd()"))
    handed(tmp_path, judged(tmp_path, 2, {"b": machine("b", {2: 670})}))
    assert "of other rounds,Jane,'=cmd()" in path.read_text()
    handed(tmp_path, first, name="again")
    assert ",open,Jane,'=cmd()" in path.read_text()


def behind(change: standing.Change, **row: str) -> bool:
    values = {**dict.fromkeys(punch_list.COLUMNS, ""), "node": "a", "category": "part", **row}
    return not punch_list.unexplained([change], [punch_list.Row(values, set(), [], 1)])


def test_a_change_is_behind_the_row_that_names_its_part_or_is_about_its_node() -> None:
    old, new = parts.Part("gpu/1", "GPU 1", serial="S1", slot="module 1"), parts.Part("gpu/2", "GPU 1", serial="S2", slot="module 1")
    change = standing.Change("a", "module 1", 2, old, new)
    assert behind(change, part="a GPU 1", slot="module 1") and behind(change, part="a GPU 1", hardware_id="gpu/1")
    assert behind(change, part="a GPU 0, GPU 1", slot="GPU 0: module 0; GPU 1: module 1", serial="GPU 0: S0; GPU 1: S1")
    assert behind(change, part="a") and not behind(change, part="a", category="configuration")
    assert not behind(change, part="a GPU 0", slot="module 0", serial="S0") and not behind(change, part="b", node="b")
    assert not behind(change, part="a with b", node="a|b")
    before, after = (parts.Part("nic/mlx5_0", "mlx5_0", serial=serial) for serial in ("N1", "N2"))
    device = standing.Change("b", "mlx5_0", 2, before, after)
    assert behind(device, part="a with b", node="a|b") and not behind(device, part="a with c", node="a|c")


def test_only_partial_rounds_and_quick_tests_are_no_acceptance(tmp_path: pathlib.Path) -> None:
    part = judged(tmp_path, 1, {"a": machine("a", {1: 670})}, partial=True, left_out=["b"])
    quick = judged(tmp_path, 2, {"a": machine("a", {1: 670})}, mode="quick")
    assert "PARTIAL" in " ".join(handed(tmp_path, part).lines) and not handed(tmp_path, part, name="two").accepted
    with pytest.raises(RunError, match="it is a quick test"):
        handed(tmp_path, part, quick, name="three")


def test_simulated_numbers_replace_no_others(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 500})})
    second = judged(tmp_path, 2, {"a": machine("a", {1: 670}, simulated=True)})
    assert not handed(tmp_path, first, second).accepted
    silent = judged(tmp_path, 3, {"b": machine("b", {2: 670}, silent=True)})
    mixed = handed(tmp_path, silent, judged(tmp_path, 4, {"b": machine("b", {2: 670}, simulated=True)}), name="two")
    assert not mixed.accepted and {row["state"] for row in content(mixed, "punch_list.csv")} == {"open"}


def test_one_gpu_that_came_does_not_stand_for_two_that_left(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 500, 2: 500, 3: 670})})
    second = judged(tmp_path, 2, {"a": machine("a", {9: 670})})
    made = handed(tmp_path, first, second)
    states = {row["serial"]: row["state"] for row in content(made, "punch_list.csv")}
    assert not made.accepted and states["S1"] == "done" and states["S2"] == "open"


def test_another_machine_around_a_gpu_opens_its_checks_again(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 670})})
    moved = machine("a", {1: 670})
    moved.lists = {**moved.lists, "system": {"serial": "M-other"}}
    second = judged(tmp_path, 2, {"a": moved}, stages=("stack",))
    assert not handed(tmp_path, first, second).accepted


def test_a_small_whole_round_does_not_complete_a_large_partial_one(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 670})}, partial=True, left_out=["c"])
    second = judged(tmp_path, 2, {"a": machine("a", {1: 670})})
    assert not handed(tmp_path, first, second).accepted


def test_a_round_of_another_fleet_is_named_and_speaks_against_the_whole(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 670})})
    foreign = judged(tmp_path, 2, {"x": machine("f", {7: 670})})
    made = handed(tmp_path, first, foreign)
    assert not made.accepted and any(f"run {first}, the widest, did not have x" in line for line in made.lines)
    with pytest.raises(RunError, match="20260101T000000Z-ffffff"):
        handed(tmp_path, first, "20260101T000000Z-ffffff", name="two")


def test_a_node_with_another_name_is_no_second_node_of_the_fleet(tmp_path: pathlib.Path) -> None:
    first = judged(tmp_path, 1, {"a": machine("a", {1: 500}), "b": machine("b", {2: 670})})
    second = judged(tmp_path, 2, {"a2": machine("a", {1: 670}), "b": machine("b", {2: 670})})
    made = handed(tmp_path, first, second)
    said = f"gpu/{runs.uuid(1)} is listed on a and on a2: a node has another name since"
    assert not made.accepted and any(line.startswith(said) for line in made.lines)
    assert {row["state"] for row in content(made, "punch_list.csv")} == {"open"} and handed(tmp_path, second, name="two").accepted


def test_blocks_are_accepted_each_by_itself(tmp_path: pathlib.Path) -> None:
    run = judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 500}), "c": machine("c", {3: 670})})
    groups = {"left": ["a"], "right": ["b"]}
    made = handed(tmp_path, run, groups=groups, blocks={"su-1": ["left"], "su-2": ["right"], "su-3": ["x*"]})
    found = {name: (block["state"], block["why"][:22]) for name, block in content(made, "blocks.json").items()}
    assert found == {
        "su-1": ("ACCEPTED", ""),
        "su-2": ("NOT ACCEPTED", "1 of 1 nodes have open"),
        "su-3": ("NOT ACCEPTED", "it has no node"),
    }
    assert "in no block: c" in made.lines
    with pytest.raises(RunError, match="a is in su-1 and in su-2; expected each node in one block"):
        handed(tmp_path, run, groups=groups, blocks={"su-1": ["left"], "su-2": ["a"]}, name="two")
    with pytest.raises(RunError, match="acceptance_blocks: su-1: found 7, expected a list"):
        handed(tmp_path, run, blocks={"su-1": 7}, name="two")
    with pytest.raises(RunError, match=r"acceptance_blocks: found the block .su"):
        handed(tmp_path, run, blocks={"su\n1": ["a"]}, name="two")


def test_a_pack_has_what_was_in_force(tmp_path: pathlib.Path) -> None:
    run = judged(tmp_path, 1, {"a": machine("a", {1: 670})})
    made = handed(tmp_path, run)
    listed = {file["path"] for file in checker.check(made.path).manifest["files"]}
    assert {f"runs/{run}/{name}" for name in ("plan.json", "report.html", "report.json", "verdicts.jsonl", "nodes/a.json")} <= listed
    assert any(name.startswith(f"runs/{run}/raw/") for name in listed) and any("journal" in name for name in listed)
    assert {"expectations.json", "waivers.json", "rounds.json", "blocks.json", "coverage.csv", "index.html", "verify.py"} <= listed
    (round_,) = content(made, "rounds.json")
    assert round_["run"] == run and round_["fingerprint"] and set(content(made, "expectations.json")) == {run}


def test_a_file_of_a_run_that_no_pack_can_hold_is_one_error_and_leaves_no_pack(tmp_path: pathlib.Path) -> None:
    run = judged(tmp_path, 1, {"a": machine("a", {1: 670})})
    (tmp_path / run / "nodes/a\nb.txt").write_text("x")
    with pytest.raises(RunError, match="no pack has a file of this name"):
        handed(tmp_path, run)
    assert not list(tmp_path.glob("handover/*.tar"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("id,owner,ticket,note,returned_at\nP-1,,,,2026-99-99T00:00:00Z\n", "line 2: returned_at: found '2026-99-99T00:00:00Z'"),
        ("id,owner\n", "the column ticket is missing"), ("id,owner,ticket,note,returned_at\n" + "x" * 200000, "field larger than"),
    ],
)  # fmt: skip
def test_a_punch_list_that_cannot_be_read_is_one_error(text: str, problem: str) -> None:
    with pytest.raises(RunError, match=problem):
        punch_list.theirs(text, "punch_list.csv")


def test_a_failure_under_a_waiver_is_a_row_with_its_ticket(tmp_path: pathlib.Path) -> None:
    read = rounds.read(str(tmp_path), [judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 500})})])
    key = next(key for key, verdict in read[0].verdicts.items() if verdict.verdict == "FAIL" and key.subject != "b")
    waiver = {**key._asdict(), "reason": "slow", "of": "FAIL", "expires": "2026-06-01", "ticket": "T-7", "simulated": False}
    verdicts = {
        one: msgspec.structs.replace(verdict, verdict="KNOWN_FAIL") if verdict.verdict == "FAIL" else verdict
        for one, verdict in read[0].verdicts.items()
    }
    round_ = dataclasses.replace(read[0], verdicts=verdicts, report={**read[0].report, "causes": [], "waivers": [waiver]})
    (row,) = punch_list.rows([round_], [standing.of([round_])], {})
    assert (row.state, row.values["ticket"], row.values["note"], row.values["node"]) == ("waived", "T-7", "waived until 2026-06-01", "b")


def test_without_a_browser_there_is_no_pdf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "BROWSERS", ())
    assert not list(printing.pdfs({"index.pdf": "<p>fine</p>"}))


@pytest.mark.skipif(printing.browser() is None, reason="there is no Chromium")
def test_a_browser_prints_the_pages() -> None:
    ((name, document),) = printing.pdfs({"index.pdf": "<p>fine</p>"})
    assert name == "index.pdf" and document.startswith(b"%PDF-")


CONTRACT = """\
- {id: P-1, text: every GPU is fast, checks: [gemm bf16], target: 700, tolerance_percent: 5}
- {id: P-2, text: every GPU is very fast, checks: [gemm], target: 700}
- {id: L-1, text: cables have labels}
"""


def test_a_demand_is_met_by_checks_that_reach_its_target_and_one_without_checks_was_not_looked_for(tmp_path: pathlib.Path) -> None:
    (tmp_path / "contract.yml").write_text(CONTRACT)
    run = judged(tmp_path, 1, {"a": machine("a", {1: 670})})
    made = handed(tmp_path, run, contract=str(tmp_path / "contract.yml"))
    traced = content(made, "contract.json")
    assert {row["id"]: row["state"] for row in traced["demands"]} == {"P-1": "met", "P-2": "not met", "L-1": "not looked for"}
    assert traced["checks_without_demand"] == ["stack facts"] and not made.accepted
    assert "2 of 3 demands of the contract are not met (P-2, L-1)" in made.lines


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b", "expected a list of demands"), ("- {id: x, txt: y}", "demand 1: unknown field txt"),
        ("- {id: x}", "demand 1: text is missing"),
        ("- {id: x, text: y, checks: gemm}", "checks: found 'gemm'"), ("- {id: x, text: y, target: fast}", "target: found 'fast'"),
        ("- {id: x, text: y}\n- {id: x, text: z}", "the id x is there 2 times"), ("- [", "contract.yml: "),
    ],
)  # fmt: skip
def test_a_contract_that_cannot_be_read_is_one_error(tmp_path: pathlib.Path, text: str, problem: str) -> None:
    (tmp_path / "contract.yml").write_text(text)
    run = judged(tmp_path, 1, {"a": machine("a", {1: 670})})
    with pytest.raises(RunError, match=problem):
        handed(tmp_path, run, contract=str(tmp_path / "contract.yml"))
    assert not list(tmp_path.glob("handover/*.tar"))


def test_what_was_ordered_is_held_against_what_was_seen(tmp_path: pathlib.Path) -> None:
    (tmp_path / "order.csv").write_text("serial,kind,model,node\nS1,GPU,NVIDIA H200,a\nS2,GPU,NVIDIA H100,b\nS9,GPU,,\n")
    run = judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 670, 3: 670})})
    made = handed(tmp_path, run, order=str(tmp_path / "order.csv"))
    found = {(row["what"], row["serial"]) for row in content(made, "inventory.json")["against_order"]}
    assert found == {("another model", "S2"), ("ordered and not seen", "S9"), ("seen and not ordered", "S3")} and not made.accepted
    (tmp_path / "order.csv").write_text("number\nS1\n")
    with pytest.raises(RunError, match="found the columns number, expected serial"):
        handed(tmp_path, run, order=str(tmp_path / "order.csv"), name="two")


def test_a_run_that_is_not_as_it_was_written_is_not_handed_over(tmp_path: pathlib.Path) -> None:
    run = judged(tmp_path, 1, {"a": machine("a", {1: 500})})
    path = tmp_path / run / "verdicts.jsonl"
    path.write_text(path.read_text().replace("FAIL", "PASS"))
    with pytest.raises(RunError, match=r"not whole|not what was written"):
        handed(tmp_path, run)
    with pytest.raises(RunError, match="found a run twice"):
        handed(tmp_path, run, run)
    with pytest.raises(RunError, match="expected the id of a judged run"):
        handed(tmp_path)


def test_what_a_node_says_is_text_on_the_page(tmp_path: pathlib.Path) -> None:
    evil = machine("a", {1: 500})
    evil.lists["gpu_table"][0]["serial"] = "<script>alert(1)</script>"
    made = handed(tmp_path, judged(tmp_path, 1, {"a": evil}))
    assert "<script>" not in content(made, "index.html") and "&lt;script&gt;" in content(made, "index.html")


def test_no_column_of_the_page_is_as_narrow_as_a_letter(tmp_path: pathlib.Path) -> None:
    """A cell that may break anywhere is narrowed to a letter, and the columns of long texts have a least width."""
    page = content(handed(tmp_path, judged(tmp_path, 1, {"a": machine("a", {1: 500})})), "index.html")
    style, _end, body = page.partition("</style>")
    assert "overflow-wrap: anywhere" not in style and "td.text { min-width" in style and "A4 landscape" in style
    assert len(re.findall(r"<table>", body)) == len(re.findall(r'<div class="wide"><table>', body)) > 3
    assert re.search(r'<td class="text">a GPU 0', body)


def test_the_next_round_is_what_is_open_and_a_sample_that_does_not_change(tmp_path: pathlib.Path) -> None:
    machines = {name: machine(name, {number: 670}) for number, name in enumerate("abcdef0123", 1)}
    machines["c"] = machine("c", {19: 500})
    machines["two"] = runs.Machine("9" * 32, {31: 670, 32: 670}, lists=machine("9", {31: 670, 32: 670}).lists)
    run = judged(tmp_path, 1, machines)
    made = handed(tmp_path, run)
    rows = content(made, "next_round.csv")
    assert {(row["stage"], row["check"]) for row in rows} == {("gemm", "bf16")}
    opened, sample = [row for row in rows if row["node"] == "c"], [row for row in rows if row["node"] != "c"]
    assert {row["subject"] for row in opened} == {"c", f"c/gpu/{runs.uuid(19)}"} and opened[0]["why"].startswith("FAIL in round 1")
    assert len({row["node"] for row in sample} - {"two"}) == 5 and "two" not in {row["node"] for row in sample}, "it has other GPUs"
    assert all(row["why"] == "sample of 5 of 10 nodes without open checks" for row in sample)
    words = "next round: 2 checks on 1 nodes with open ones and a sample of 5 others"
    command = "ansible-playbook playbooks/acceptance.yml -i INVENTORY"
    assert f"{words}: {command} -e acceptance_open_checks={tmp_path}/handover/next_round.csv" in made.lines
    assert content(handed(tmp_path, run, name="again"), "next_round.csv") == rows
    assert list(csv.DictReader((tmp_path / "handover/next_round.csv").open())) == rows


def grouped(number: int, members: list[str], word: str) -> rounds.Round:
    """A round with one check of a group."""
    subject = model.Subject("group", "nccl_fabric", members)
    verdict = t.cast("model.Verdict", types.SimpleNamespace(verdict=word, subject=subject, simulated=False, reason="slow", regressed=False))
    plan = types.SimpleNamespace(judging=types.SimpleNamespace(warn="accept", regression="warn"), items=[])
    report = {
        "planned_at": f"2026-01-0{number}T00:00:00Z", "simulated": False, "causes": [], "partial": False, "not_proven": [],
        "accepted": word == "PASS", "why": "",
    }  # fmt: skip
    run = types.SimpleNamespace(id=runs.run_id(number))
    return rounds.Round(number, t.cast("t.Any", run), t.cast("t.Any", plan), report, {GROUP: verdict}, {}, {})


GROUP = keys.Key("nccl_fabric", "all_reduce", "", "nccl_fabric")


def test_a_group_of_two_shows_nothing_about_one_of_four(tmp_path: pathlib.Path) -> None:
    slow, few, all_of_them = grouped(1, list("abcd"), "FAIL"), grouped(2, list("ab"), "PASS"), grouped(3, list("abcd"), "PASS")
    assert standing.of([slow, few]).bad and not standing.of([slow, few, all_of_them]).bad
    assert standing.of([all_of_them, few, grouped(3, list("ab"), "FAIL")]).bad
    assert standing.of([all_of_them, grouped(2, list("ab"), "FAIL"), grouped(3, list("ab"), "PASS")]).bad, "four have not passed since"
    assert {row["node"] for row in next_round.of(standing.of([slow, few]), [slow, few], "seed")} == set("abcd")


def test_public_lists_are_held_against_the_rounds_by_their_ids(tmp_path: pathlib.Path) -> None:
    made = handed(tmp_path, judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 671})}))
    rows = {(row["list"].partition(" ")[0], row["id"]): row for row in content(made, "coverage.csv")}
    assert rows["NVIDIA", "CAP03"]["state"] == "yes" and rows["NVIDIA", "CAP03"]["shown_by"] == "MANIFEST.json"
    assert rows["NVIDIA", "BFX03"]["state"] == "in part" and rows["NVIDIA", "BFX03"]["why"].startswith("not shown: ")
    assert rows["NVIDIA", "BM01"]["state"] == "not looked for" and "acceptance_contract" in rows["NVIDIA", "BM01"]["why"]
    assert rows["ClusterMAX", "dcgm-healthchecks"]["state"] == "not looked for", "nothing of it was planned"
    assert "<td>NVIDIA Requirements Guide for AI Clouds 2.3.1</td>" in content(made, "index.html")


def test_what_was_shown_on_some_nodes_is_shown_in_part(tmp_path: pathlib.Path) -> None:
    def state(of: standing.Standing) -> tuple[str, str]:
        listed = public_lists.PublicList("L", "1", "", (public_lists.Entry(("A",), "GEMM", ("gemm",)),))
        (row,) = public_lists.rows([listed], of)
        return row["state"], row["why"]

    both = standing.of(rounds.read(str(tmp_path), [judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 671})})]))
    assert state(both) == ("yes", "")
    of_one = {key: one for key, one in both.checks.items() if key.stage != "gemm" or "a" in subjects.nodes_of(one.verdict.subject)}
    assert len(of_one) < len(both.checks)
    assert state(dataclasses.replace(both, checks=of_one)) == ("in part", "not shown: 1 of 2 nodes")


def test_each_public_list_names_every_id_once_and_only_stages_and_files_that_there_are(tmp_path: pathlib.Path) -> None:
    made = handed(tmp_path, judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 671})}))
    for one in public_lists.shipped():
        ids = [demand_id for entry in one.entries for demand_id in entry.ids]
        assert len(ids) == len(set(ids))
        for entry in one.entries:
            assert {check.split()[0] for check in entry.checks} <= set(registry.shipped())
            assert entry.checks or entry.files or entry.why, f"{entry.ids}: says neither what shows it nor why nothing does"
            assert all(content(made, name) for name in entry.files if name != "punch_list.csv")


def test_support_files_go_into_the_pack_with_the_row_that_they_are_about(tmp_path: pathlib.Path) -> None:
    run = judged(tmp_path, 1, {"a": machine("a", {1: 670}), "b": machine("b", {2: 500})})
    first = handed(tmp_path, run)
    assert "1 open rows of parts without support files: playbooks/support_files.yml collects them" in first.lines
    support.keep(tmp_path / request.FOLDER, "b", [{"file": "smi.xml", "content": "eA==", "why": ""}], 100)
    made = handed(tmp_path, run, name="again")
    (row,) = content(made, "punch_list.csv")
    _texts, folder = row["evidence"].split()
    assert content(made, f"{folder}smi.xml") == "x" and not any("without support files" in line for line in made.lines)
    assert content(made, f"evidence/{row['id']}/row.json")["support_files"] == [folder]
    assert checker.check(made.path)
