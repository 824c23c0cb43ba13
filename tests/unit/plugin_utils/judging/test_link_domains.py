# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLink domains are put together from the facts of trays, and judged as subjects of their own."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.judgement import Judgement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.stack import STAGE
from harness import records

CLUSTER, OTHER = "0d1f3c52-9d1b-4a7e-8c35-0a4d9d1b4a7e", "7777aaaa-0000-4000-8000-000000000001"
CHECKS = ("facts", "gpu_health")
Trays = t.Dict[str, t.Dict[str, t.Any]]


def rack(count: int = 18, name: str = "tray-", first: int = 1, **fields: t.Any) -> Trays:
    """What trays say of their domain, {node: context}."""
    return {f"{name}{number:02}": said(number - first, **fields) for number in range(first, first + count)}


def said(index: int, cluster: str | None = CLUSTER, clique: str | None = "1", **fields: t.Any) -> dict[str, t.Any]:
    imex = {"version": "580.159.04", "owner": "host", "daemon": "READY", "domain": "UP", "nodes_config": "aa", "nodes": 18, "not_well": []}
    imex.update(fields.pop("imex", {}))
    return {
        "cluster_uuid": cluster, "clique": clique, "trays_by_design": 18, "chassis": "1821", "tray": str(index), "slot": str(index),
        "driver": "580.159.04", "imex": imex, **fields,
    }  # fmt: skip


def judged(
    trays: Trays, silent: t.Sequence[str] = (), stated: int = 0, findings: t.Mapping[str, t.Any] | None = None, **options: t.Any
) -> Judgement:
    """Judge a run over these trays; `silent` are planned and were never measured, `findings` those of the check of health."""
    nodes = [*trays, *silent]
    plan = records.make_plan(
        {
            "items": [{"stage": "stack", "check": check, "subject": {"id": node}, "target": node} for node in nodes for check in CHECKS],
            "settings": {"sets": [{"acceptance_nvlink_domain_trays": stated or None}], "of": dict.fromkeys(nodes, 0)},
            "left_out": options.pop("left_out", []),
        }
    )
    measured = []
    for number, (node, context) in enumerate(trays.items(), 1):
        about = {"stage": "stack", "subject": {"id": node}, "target": node}
        facts = {"link_domain": context, "addresses": [f"10.0.7.{number}"], "facts": {"driver": context["driver"]}}
        measured.append(records.measurement({**about, "check": "facts", "context": facts}))
        own = (findings or {}).get(node, [])
        if not context["cluster_uuid"]:
            own = [{"code": "nvlink_domain", "part": "", "text": "the GPUs are in no NVLink domain"}]
        measured.append(records.measurement({**about, "check": "gpu_health", "context": {"findings": own}}))
    return records.judge(plan, measured, lambda _node, _target: Expectations.load([]), stages=[STAGE], **options)


def domains(judgement: Judgement) -> dict[str, Verdict]:
    return {v.subject.id: v for v in judgement.verdicts if v.subject.kind == "nvlink_domain"}


def test_a_whole_rack_is_one_subject_that_passes() -> None:
    judgement = judged(rack())
    (verdict,) = domains(judgement).values()
    assert (verdict.verdict, verdict.subject.id) == ("PASS", f"{CLUSTER}.1") and len(verdict.subject.members) == 18
    assert judgement.accepted, judgement.why
    assert judgement.deciding[verdict.key].context["not_looked_for"]["switch_trays"].startswith("the switch trays")


def test_nodes_without_a_domain_make_none() -> None:
    assert domains(judged({})) == {}


def test_a_tray_that_left_its_domain_is_named_once() -> None:
    trays = {**rack(17), "tray-18": said(17, None, None)}
    judgement = judged(trays)
    (verdict,) = domains(judgement).values()
    assert (verdict.verdict, verdict.reason_code) == ("FAIL", "nvlink_domain")
    assert "17 of 18 trays: tray-18 is in no NVLink domain" in verdict.reason
    (cause,) = judgement.causes
    assert (cause["subject"], cause["kind"]) == ("tray-18", "node") and verdict.key in cause["explains"]
    assert not judgement.accepted


def test_a_tray_in_another_partition_or_domain_is_one_finding() -> None:
    for cluster, clique, words in ((CLUSTER, "2", "another partition"), (OTHER, "1", "another NVLink domain")):
        found = domains(judged({**rack(17), "tray-18": said(17, cluster, clique)}))
        assert found[f"{CLUSTER}.1"].verdict == "FAIL" and words in found[f"{CLUSTER}.1"].reason
        assert found[f"{cluster}.{clique}"].verdict == "PASS"


def test_partitions_that_are_wanted_are_no_finding() -> None:
    trays = {**rack(9), **rack(9, first=10, clique="2")}
    assert {v.verdict for v in domains(judged(trays, stated=9)).values()} == {"PASS"}
    assert {v.verdict for v in domains(judged(trays)).values()} == {"FAIL", "PASS"}


def test_a_tray_that_was_not_measured_leaves_the_domain_unknown() -> None:
    (verdict,) = domains(judged(rack(17), silent=["tray-18"])).values()
    assert (verdict.verdict, verdict.reason_code) == ("UNKNOWN", "no_answer") and "tray-18" in verdict.reason


def test_a_part_of_a_rack_in_the_inventory_is_a_warning_until_the_number_is_stated() -> None:
    (verdict,) = domains(judged(rack(17))).values()
    assert (verdict.verdict, verdict.reason_code) == ("WARN", "nvlink_domain_small") and "no tray has index 17" in verdict.reason
    (verdict,) = domains(judged(rack(4), stated=4)).values()
    assert verdict.verdict == "PASS"
    (verdict,) = domains(judged(rack(4), stated=18)).values()
    assert verdict.verdict == "FAIL"
    (verdict,) = domains(judged(rack(4), left_out=["tray-05"])).values()
    assert verdict.verdict == "PASS"


def test_the_trays_of_a_second_whole_rack_are_not_missing_in_the_first() -> None:
    second = rack(18, first=19, cluster=OTHER, chassis="1822")
    found = domains(judged({**rack(17), **second, "tray-18": said(17, None, None)}))
    assert found[f"{OTHER}.1"].verdict == "PASS"
    assert "tray-18" in found[f"{CLUSTER}.1"].reason and "tray-19" not in found[f"{CLUSTER}.1"].reason


def test_the_rack_of_the_inventory_tells_where_a_tray_belongs() -> None:
    trays = {**rack(17), "spare": said(3, None, None, chassis=None)}
    found = domains(judged(trays, rack=dict.fromkeys(trays, "r7")))
    assert "spare is in no NVLink domain" in found[f"{CLUSTER}.1"].reason


def test_trays_that_differ_are_one_finding_of_the_domain() -> None:
    trays = rack()
    trays["tray-03"]["imex"]["version"] = "570.172.08"
    trays["tray-04"]["imex"]["nodes_config"] = "bb"
    (verdict,) = domains(judged(trays)).values()
    text = f"{verdict.reason} {verdict.findings}"
    assert verdict.verdict == "FAIL" and "570.172.08 on tray-03" in text and "bb on tray-04" in text


def test_one_daemon_that_is_lost_is_one_finding_of_the_domain() -> None:
    lost = {"index": 4, "host": "10.0.7.5", "state": "UNAVAILABLE", "broken": {}}
    (verdict,) = domains(judged(rack(imex={"domain": "DEGRADED", "not_well": [lost]}))).values()
    assert (verdict.verdict, verdict.reason_code) == ("FAIL", "imex")
    assert "DEGRADED as 18 of its trays see it; 10.0.7.5 (tray-05) is UNAVAILABLE" in verdict.reason


def test_a_domain_that_a_scheduler_owns_is_not_judged_by_its_state() -> None:
    (verdict,) = domains(judged(rack(imex={"owner": "slurm", "domain": "DOWN"}))).values()
    assert verdict.verdict == "PASS"


def logged(second: int) -> list[dict[str, str]]:
    text = f"the kernel's log has, at 2026-11-27T10:00:{second:02}Z: Xid 145 (NVLink error)"
    return [{"code": "gpu_fault", "part": "", "text": text}]


def test_an_error_of_all_trays_within_a_second_is_one_cause_the_domain() -> None:
    trays = rack()
    judgement = judged(trays, findings={node: logged(12 + number % 2) for number, node in enumerate(trays)})
    (verdict,) = domains(judgement).values()
    assert verdict.verdict == "FAIL" and "18 of its 18 trays logged errors within a second" in verdict.reason
    (cause,) = judgement.causes
    assert (cause["kind"], len(cause["explains"])) == ("nvlink_domain", 18)


def test_errors_of_trays_at_other_times_and_a_fault_of_its_own_stay_with_the_tray() -> None:
    trays = rack()
    judgement = judged(trays, findings={node: logged(3 * number) for number, node in enumerate(trays)})
    assert domains(judgement)[f"{CLUSTER}.1"].verdict == "PASS" and len(judgement.causes) == 18
    own = {node: logged(12) for node in trays}
    own["tray-07"] = [*own["tray-07"], {"code": "nvlink", "part": "", "text": "an NVLink is down"}]
    causes = {cause["subject"] for cause in judged(trays, findings=own).causes}
    assert causes == {f"{CLUSTER}.1", "tray-07"}
