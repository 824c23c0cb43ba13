# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gates are proven by passes alone, and the archive is a view of what was measured."""

from __future__ import annotations

import json
import typing as t

import msgspec
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import model
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import archive, cases, gates
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.stage import STAGE
from harness import records
from harness import report_samples as samples
from harness.records import make_plan

STRICT = {case.id: case for case in cases.shipped(cases.STRICT)}


def result(
    name: str, verdict: str = "PASS", host: str = "c1", code: str = "", scale: float = 1.0, **wrong: bool | None
) -> gates.CaseResult:
    """A result of which the assertions of some gates, `P1=False`, do not hold or are not known."""
    case = STRICT[name]
    held = []
    for one in case.assertions:
        word = next((wrong[gate] for gate in one.gates if gate in wrong), True)
        held.append({"said": one.expression, "holds": word, "gates": list(one.gates), "cause": one.cause})
    return gates.CaseResult(name, host, verdict, code, "why", scale, case.soak, held if verdict != "SKIPPED" else [])


def gate(name: str, *results: gates.CaseResult, of: t.Iterable[str] = ()) -> gates.Gate:
    wanted = [STRICT[case] for case in (of or {one.id for one in results})]
    return next(one for one in gates.gates(wanted, results) if one.name == name)


def test_a_gate_is_proven_by_all_of_its_cases() -> None:
    assert gate("P0", result("FUNC-001"), result("FUNC-001", host="c2")).state == gates.PROVEN
    assert gate("P0", result("FUNC-001"), of=["FUNC-001", "FUNC-002"]).lacking == {"FUNC-002": "it was not run on a cluster that it is for"}
    assert gate("P0", of=["FUNC-001"]).state == gates.NOT_PROVEN


def test_a_skip_and_what_is_not_known_prove_nothing() -> None:
    for said in ("SKIPPED", "UNKNOWN"):
        found = gate("P0", result("FUNC-002"), result("FUNC-002", said, "c2", "sharing_not_colocated"))
        assert (found.state, list(found.lacking)) == (gates.NOT_PROVEN, ["FUNC-002"])
    assert gate("P0", result("FUNC-002", "UNKNOWN", P0=None)).state == gates.NOT_PROVEN


def test_a_case_for_the_other_cluster_is_asked_of_that_one() -> None:
    elsewhere = result("COMBO-001", "SKIPPED", "c2", gates.ELSEWHERE)
    assert gate("P0", result("COMBO-001"), elsewhere).state == gates.PROVEN
    assert gate("P0", elsewhere).state == gates.NOT_PROVEN


def test_an_assertion_fails_its_own_gate_only() -> None:
    late = result("FUNC-012", "FAIL", P1=False)
    assert gate("P1", late).failed == {"FUNC-012": "c1: the first change took too long: latency(first) <= dynamic_update_expect_s"}
    assert gate("P0", late).state == gates.PROVEN
    assert gate("P0", gates.CaseResult("FUNC-001", "c1", "FAIL", "", "lost", 1, False, [])).failed == {"FUNC-001": "c1: lost"}


def test_what_holds_for_every_case_fails_its_gate_from_any_of_them() -> None:
    """That no scheduler restarts is of P0, whichever case sees one; but a case of P1 alone proves nothing of P0, nor does its skip lack."""
    assert list(gate("P0", result("PERF-001", "FAIL", P0=False), of=["PERF-001"]).failed) == ["PERF-001"]
    assert gate("P0", result("FUNC-001"), result("PERF-001", "SKIPPED"), of=["FUNC-001", "PERF-001"]).state == gates.PROVEN
    assert gate("P0", result("PERF-001")).state == gates.NOT_PROVEN


def test_a_shortened_soak_proves_nothing_of_p2() -> None:
    assert gate("P2", result("STAB-001")).state == gates.PROVEN
    assert "shortened to 0.01" in gate("P2", result("STAB-001", scale=0.01)).lacking["STAB-001"]
    assert gate("P2", result("STAB-001", "FAIL", scale=0.01, P2=False)).state == gates.FAILED


def row(name: str, verdict: str, expressions: list[dict[str, t.Any]]) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    case = STRICT[name]
    about = {
        "id": name, "suite": case.suite, "profile": "strict", "gates": list(case.gates), "soak": case.soak, "operation": ["make 1 pod"],
        "sampling": ["mid: metrics"], "expressions": expressions, "cause": "all is\twell",
    }  # fmt: skip
    record = {
        "target": "lab", "check": case.check, "variant": "profile=strict scale=0.5", "attempt": 1, "simulated": True, "reason_code": None,
        "started_at": "2026-02-17T10:00:00Z", "duration_s": 3.0, "metrics": {"runtime": {"value": 41.5, "unit": "s"}},
        "context": {"case": about, "scale": 0.5, "artifacts": "raw/x"},
    }  # fmt: skip
    judged = samples.verdict("lab", "gpu_sharing", case.check, verdict, reason="all is\twell")
    return records.verdict(judged), records.measurement(record)


def test_the_archive_has_the_names_and_fields_of_the_public_code() -> None:
    held = [{"said": "runtime(main)=41.5 > 0", "holds": True, "gates": ["P0"], "cause": "", "that": "runtime(main) > 0", "lacking": []}]
    rows = [row("FUNC-001", "PASS", held), row("COMBO-001", "SKIPPED", [])]
    found = STAGE.files("20260101T000000Z-0a1b2c", rows)
    assert found["case-summary.tsv"].splitlines() == [
        "cluster\tsuite\tcase_id\tstatus\tsummary\tcase_log_dir",
        "lab\tfunctional\tFUNC-001\tPASS\tall is well\traw/x",
        "lab\tcombination\tCOMBO-001\tSKIP\tall is well\traw/x",
    ]
    assert found["run-summary.tsv"].splitlines()[1:] == ["lab\tfunctional\tall\tPASS", "lab\tcombination\tall\tSKIP"]
    read = json.loads(found["lab/functional/FUNC-001/result.json"])
    assert {"run_id", "cluster", "suite", "case_id", "status", "summary", "start_time", "reason", "metrics"} <= set(read)
    assert read["end_time"] == "2026-02-17T10:00:03Z"
    meta = dict(line.split("=", 1) for line in found["lab/functional/FUNC-001/meta.env"].splitlines())
    assert (meta["START_TIME"], meta["END_TIME"], meta["SUMMARY"]) == ("2026-02-17 10:00:00", "2026-02-17 10:00:03", "all is well")
    assert found["lab/functional/FUNC-001/analysis.env"] == "STATUS=PASS\nSUMMARY=all is well\nDURATION_SEC=3\n"
    assert "runtime(main)=41.5 > 0: holds" in found["lab/functional/FUNC-001/analysis.txt"]
    assert json.loads(found["baseline.json"])["cases"]["lab FUNC-001"]["metrics"]["runtime"]["value"] == 41.5


def test_the_archive_names_what_a_passed_case_saw_and_every_issue() -> None:
    seen = row("FUNC-001", "PASS", [])
    cause = "all 2 assertions hold: runtime(main)=41.5 > 0"
    seen[1].context["case"].update(cause=cause, seen={"runtime_main": {"value": 41.5, "unit": "s"}})
    seen[1].context["commit"] = "f680c69"
    beyond = row("FUNC-004", "FAIL", [])
    beyond[1].context["case"].update(id="ROBUST-001", gates=[])
    skipped, elsewhere = row("FUNC-003", "SKIPPED", []), row("COMBO-001", "SKIPPED", [])
    skipped[1].reason_code, elsewhere[1].reason_code = "sharing_destructive", gates.ELSEWHERE
    found = STAGE.files("20260101T000000Z-0a1b2c", [seen, row("FUNC-002", "UNKNOWN", []), skipped, elsewhere, beyond])
    result = json.loads(found["lab/functional/FUNC-001/result.json"])
    assert result["reason"] == result["summary"] == cause
    assert (result["metrics"], result["units"], result["commit"]) == (
        {"runtime": 41.5, "runtime_main": 41.5}, {"runtime": "s", "runtime_main": "s"}, "f680c69",
    )  # fmt: skip
    assert found["issues.tsv"].splitlines()[1:] == [
        "P0\tFUNC-002\tlab: UNKNOWN: all is well", "P0\tFUNC-003\tlab: SKIP: all is well", "-\tROBUST-001\tlab: FAIL: all is well",
    ]  # fmt: skip
    cases = json.loads(found["baseline.json"])["cases"]
    assert {name: entry["status"] for name, entry in cases.items()} == {
        "lab FUNC-001": "PASS", "lab FUNC-002": "UNKNOWN", "lab FUNC-003": "SKIP", "lab COMBO-001": "SKIP", "lab ROBUST-001": "FAIL",
    }  # fmt: skip
    assert cases["lab FUNC-001"]["metrics"] and not cases["lab FUNC-002"]["metrics"]


def test_the_report_has_gates_and_every_case_in_its_four_parts() -> None:
    held = [{"said": "latency(up)=20 <= 15", "holds": False, "gates": ["P1"], "cause": "too late", "that": "", "lacking": []}]
    failed = row("FUNC-010", "FAIL", held)
    failed[1].context["preflight"] = [["hostPID", "set", "set", "ok"]]
    of_gates, of_cases, installed = STAGE.sections([failed])
    assert installed["rows"] == [["lab", "hostPID", "set", "set", "ok"]] and len(installed["columns"]) == 5
    assert [one[:2] for one in of_gates["rows"]] == [["P0", "not proven"], ["P1", "failed"], ["P2", "not proven"]]
    assert "shortened to 0.5" in of_gates["said"][0]
    assert of_cases["rows"] == [
        ["FUNC-010", "lab", "FAIL", "make 1 pod", "mid: metrics", "latency(up)=20 <= 15: does not hold", "all is\twell"]
    ]
    assert all(len(line) == len(of_gates["columns"]) for line in of_gates["rows"])
    assert archive.issues(gates.gates(list(STRICT.values()), []), []) == "gate\tcase_id\tissue\n"


def judged(*rows: tuple[str, str, str]) -> verdict.Judgement:
    """A run of cases (name, verdict, reason code of a skip) on a cluster, as the verdict engine has it."""
    measured, items = [], []
    for name, word, code in rows:
        expressions = [
            {"that": one.expression, "said": one.expression, "holds": True, "gates": list(one.gates), "cause": "", "lacking": []}
            for one in STRICT[name].assertions
        ]  # fmt: skip
        _verdict, record = row(name, word, expressions if word == "PASS" else [])
        record.context.update(condition=True, scale=1)
        subject = {"kind": "group", "id": "gpu_sharing/lab", "members": ["lab/a"]}
        outcome = {"PASS": "measured", "SKIPPED": "not_applicable", "UNKNOWN": "error"}[word]
        more = {
            "schema": "measurement/v1", "run_id": "20260101T000000Z-0a1b2c", "stage": "gpu_sharing", "plane": "kubernetes",
            "subject": subject, "outcome": outcome, "reason_code": code or None, "reason": code or None,
            "series": [], "evidence": {}, "command": [],
            "tool_version": None, "raw": None, "raw_sha256": None,
        }  # fmt: skip
        measured.append({**msgspec.to_builtins(record), **more})
        items.append({"stage": "gpu_sharing", "check": record.check, "variant": record.variant, "subject": subject, "target": "lab"})
    plan = make_plan({"items": items})
    return verdict.judge(plan, measured, lambda _node, _target: expectations.Expectations([]), stages=[STAGE])


def word(of: verdict.Judgement) -> str:
    return model.word("run", of.passed, bool(of.unproven))


def test_a_run_whose_cases_of_p0_were_skipped_is_not_accepted_because_another_passed() -> None:
    """It was, with ACCEPTED above its signature, while its gate said `not proven`."""
    skipped = ("FUNC-002", "SKIPPED", "sharing_not_colocated"), ("FAIL-001", "SKIPPED", "sharing_destructive")
    found = judged(("FUNC-001", "PASS", ""), *skipped)
    assert (found.accepted, word(found)) == (False, "NOT ACCEPTED")
    assert "gate P0 of GPU sharing is not proven, a skipped case is no pass: sharing_not_colocated: FUNC-002" in found.why
    assert "sharing_destructive: FAIL-001" in found.why


def test_some_cases_that_pass_do_not_make_a_run_read_accepted() -> None:
    found = judged(("FUNC-001", "PASS", ""), ("COMBO-001", "SKIPPED", gates.ELSEWHERE))
    assert (found.passed, found.accepted, word(found)) == (True, False, "PASSED, NOT PROVEN")
    assert found.why.endswith("gates of GPU sharing: P0 not proven, P1 not proven, P2 not proven")


def test_a_whole_matrix_that_passes_reads_accepted() -> None:
    found = judged(*((name, "PASS", "") for name in STRICT))
    assert (found.accepted, word(found), found.unproven) == (True, "ACCEPTED", [])


def test_a_skip_of_another_gate_refuses_nothing() -> None:
    rest = [(name, "PASS", "") for name in STRICT if name != "PERF-004"]
    found = judged(*rest, ("PERF-004", "SKIPPED", "sharing_not_colocated"))
    assert (found.accepted, word(found)) == (True, "ACCEPTED")
