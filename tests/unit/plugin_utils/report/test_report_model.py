# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The model of a report: nothing is lost, nothing is said twice, and nothing is judged anew."""

from __future__ import annotations

import hashlib
import json
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import causes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import files, formats, page, terminal
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import model as report
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged
from harness import records
from harness import report_samples as samples


def build(verdicts: list[dict[str, t.Any]], measurements: t.Any = (), **plan: t.Any) -> dict[str, t.Any]:
    names = sorted({v["subject"]["id"].split("/")[0] for v in verdicts})
    stages = sorted({v["stage"] for v in verdicts})
    return report.build(samples.plan(names, stages, **plan), samples.judgement(verdicts, measurements))


def written(folder: pathlib.Path, made: dict[str, t.Any]) -> list[pathlib.Path]:
    paths, notes = files.write(Judged(samples.RUN, folder, samples.plan([], []), t.cast(t.Any, None), made), folder)
    assert not notes
    return paths


def test_the_worst_nodes_come_first_and_show_their_worst_stage() -> None:
    made = build(
        [
            samples.verdict("a", "stack", "facts"),
            samples.verdict("b", "stack", "facts", "WARN"),
            samples.verdict("c", "stack", "facts", "UNKNOWN"),
            samples.verdict("d", "stack", "facts"),
            samples.verdict("d", "gemm", "bf16", "FAIL", part="GPU-1"),
            samples.verdict("e", "stack", "facts"),
            samples.verdict("e", "nccl_node", "all_reduce", "SKIPPED"),
        ]
    )
    assert [(n["name"], n["verdict"]) for n in made["nodes"]] == [
        ("d", "FAIL"), ("c", "UNKNOWN"), ("b", "WARN"), ("a", "PASS"), ("e", "PASS"),
    ]  # fmt: skip
    assert made["nodes"][0]["stages"] == {"gemm": "FAIL", "nccl_node": "", "stack": "PASS"}


def test_a_node_says_the_reason_of_its_gpu_once_with_the_tools_output() -> None:
    reason = "a/gpu/G1: too slow"
    verdicts = [
        samples.verdict("a", "gemm", "bf16", "FAIL", part="G1", reason=reason),
        samples.verdict("a", "gemm", "bf16", "FAIL", reason=reason, findings=["xid 79"]),
    ]
    findings = build(verdicts, [samples.measurement("a", "gemm", "bf16")])["nodes"][0]["findings"]
    assert [(f["reason"], f["raw"], f["evidence"]) for f in findings] == [(reason, "raw/a/gemm-bf16-1.txt", ["xid 79"])]


def test_a_pair_and_a_group_convict_no_node() -> None:
    pair = samples.verdict("a/nic/m0/1|b/nic/m0/1", "rdma", "read_bw", "FAIL")
    pair["subject"]["kind"] = "pair"
    made = build([samples.verdict("a", "rdma", "ports"), samples.verdict("b", "rdma", "ports"), pair])
    assert [(n["name"], n["verdict"]) for n in made["nodes"]] == [
        ("a/nic/m0/1|b/nic/m0/1", "FAIL"), ("a", "PASS"), ("b", "PASS"),
    ]  # fmt: skip


def test_a_group_shows_what_it_measured_at_each_size(tmp_path: pathlib.Path) -> None:
    row = {"size": 8388608, "time_us": 98.53, "algbw": 85.14, "busbw": 159.64, "redop": "sum"}
    measured = samples.measurement("nccl_fabric", "nccl_fabric", "all_reduce", series=[row, {**row, "algbw": None}])
    measured["context"]["world_size"] = 16
    verdict = samples.verdict("nccl_fabric", "nccl_fabric", "all_reduce")
    verdict["subject"]["kind"] = "group"
    verdict.update(value=159.64, unit="GB/s")
    made = build([verdict], [measured])
    (shown,) = made["stages"][0]["checks"][0]["rows"]
    assert shown["sweep"] == {"world_size": 16, "rows": [{"size": 8388608, "time_us": 98.53, "algbw": 85.14, "busbw": 159.64}]}
    written(tmp_path, made)
    text = (tmp_path / "report.md").read_text()
    assert "| world size | message size (B) | time (us) | algbw (GB/s) | busbw (GB/s) |" in text
    assert "| 16 | 8388608 | 98.53 | 85.14 | 159.6 |" in text
    page = (tmp_path / "report.html").read_text()
    assert "algbw (GB/s)" in page and '<td class="n">8388608</td>' in page


def test_a_target_without_any_check_is_named() -> None:
    plan = samples.plan(["a", "b", "cluster"], ["stack"])
    verdicts = [samples.verdict("a", "stack", "facts"), samples.verdict("cluster/n1", "stack", "facts")]
    assert report.build(plan, samples.judgement(verdicts))["not_measured_by_plan"] == ["b"]


def test_the_report_shows_the_judged_verdicts_and_makes_none() -> None:
    verdicts = [samples.verdict("a", "stack", "facts", "WARN"), samples.verdict("a", "gemm", "bf16", "KNOWN_FAIL", attempt=1)]
    judged = samples.judgement(verdicts, [samples.measurement("a", "gemm", "bf16", duration_s=1.0)])
    made = report.build(samples.plan(["a"], ["stack", "gemm"]), judged)
    assert made["nodes"][0]["verdict"] == "KNOWN_FAIL"
    judged.nodes[0]["verdict"], judged.nodes[0]["stages"] = "PASS", {"stack": "FAIL"}
    (shown,) = report.build(samples.plan(["a"], ["stack", "gemm"]), judged)["nodes"]
    assert (shown["verdict"], shown["stages"]) == ("PASS", {"stack": "FAIL", "gemm": ""})


def test_the_attempt_that_counts_is_shown_and_all_raw_files_are_bound() -> None:
    second = samples.measurement("a", "gemm", "bf16", duration_s=2.0, raw="raw/2.txt", raw_sha256="2" * 64, attempt=2)
    # What lies there now, not what the measurements say of it.
    listed = [{"path": path, "bytes": None, "sha256": n * 64} for path, n in (("plan.json", "0"), ("raw/1.txt", "3"), ("raw/2.txt", "2"))]
    verdicts = [samples.verdict("a", "gemm", "bf16")]
    made = {**report.build(samples.plan(["a"], ["gemm"]), samples.judgement(verdicts, [second])), **report.evidence(listed)}
    assert made["stages"][0]["checks"][0]["rows"][0]["duration_s"] == 2.0
    lines = f"{'0' * 64}  plan.json\n{'3' * 64}  raw/1.txt\n{'2' * 64}  raw/2.txt\n"
    assert made["fingerprint"] == hashlib.sha256(lines.encode()).hexdigest()
    assert [f["path"] for f in made["files"]] == ["plan.json"] and [f["path"] for f in made["raw"]] == ["raw/1.txt", "raw/2.txt"]


def test_drift_is_one_row_for_each_deviating_value_with_both_sides() -> None:
    item = {"item": "driver", "found": "570", "expected": "580", "basis": "majority", "agree": 5, "of": 7, "severity": "fail"}
    drift = {n: [{**item, "agreeing": ["c", "d"], "differing": ["a", "b"]}] for n in ("a", "b")}
    verdicts = [samples.verdict("a", "stack", "facts", "FAIL", simulated=True)]
    made = report.build(samples.plan(["a"], ["stack"]), samples.judgement(verdicts, drift=drift))
    assert [(d["item"], d["differing"], d["agreeing"], d["simulated"]) for d in made["drift"]] == [("driver", ["a", "b"], ["c", "d"], True)]


def test_average_bandwidth_is_shown_apart_from_what_is_gated_on() -> None:
    metrics = {name: {"value": 1.0, "unit": "GB/s"} for name in ("busbw", "avg_busbw", "out_of_bounds", "algbw")}
    verdict = samples.verdict("a", "nccl_node", "all_reduce", value=1.0, unit="GB/s", metric="busbw")
    row = build([verdict], [samples.measurement("a", "nccl_node", "all_reduce", metrics=metrics)])["stages"][0]["checks"][0]["rows"][0]
    assert (set(row["ungated"]), set(row["other"])) == ({"avg_busbw", "out_of_bounds"}, {"algbw"})


def test_an_expectation_that_differs_between_hosts_is_two() -> None:
    given = {"expectation": "e", "unit": "GB/s", "metric": "busbw", "layer": "host"}
    verdicts = [samples.verdict(n, "s", "c", expected=v, floor=v * 0.95, **given) for n, v in (("a", 1.0), ("b", 2.0), ("c", 2.0))]
    assert [e["expected"] for e in build(verdicts)["expectations"]] == [1.0, 2.0]


@pytest.mark.parametrize(("accepted", "word"), [(True, "ACCEPTED"), (False, "NOT ACCEPTED")])
def test_every_format_is_written_whole_and_says_the_same(tmp_path: pathlib.Path, accepted: bool, word: str) -> None:
    verdicts = [samples.verdict("a", "stack", "facts", "PASS" if accepted else "FAIL")]
    made = build(verdicts, [samples.measurement("a", "stack", "facts")])
    paths = written(tmp_path, made)
    listed = dict(reversed(line.split("  ")) for line in (tmp_path / "report.sha256").read_text().splitlines())
    assert listed == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in tmp_path.iterdir() if p.name != "report.sha256"}
    assert [p.name for p in paths] == ["report.html", "report.md", "report.json", "report.junit.xml", "report.prom"]
    text = {p.name: p.read_text(encoding="utf-8") for p in paths}
    read = json.loads(text["report.json"])
    assert (read["schema"], read["accepted"], read["counts"]) == ("report/v1", accepted, made["counts"])
    assert f"<strong>{'✓' if accepted else '✕'} {word}</strong>" in text["report.html"]
    assert text["report.md"].startswith(f"# {word}: ")
    assert f'simulated="false",partial="false"}} {int(accepted)}\n' in text["report.prom"]
    assert ('failures="1"' in text["report.junit.xml"]) is not accepted
    assert terminal.coloured(made)[-1] == ("because", "green" if accepted else "red")


def test_a_quick_test_accepts_nothing() -> None:
    verdicts = [samples.verdict("a", "stack", "facts")]
    made = report.build(samples.plan(["a"], ["stack"], mode="quick"), samples.judgement(verdicts, passed=True, accepted=False))
    assert made["word"] == "QUICK TEST PASSED" and formats.markdown(made).startswith("# QUICK TEST PASSED: run ")
    assert "✓ QUICK TEST PASSED" in page.render(made) and "ACCEPTED" not in page.render(made)


def test_what_draws_the_charts_is_what_its_makers_published_with_its_licence() -> None:
    assert hashlib.sha256(page.LIBRARY.read_bytes()).hexdigest() == "79542150855a52c567260e3137095dbe2b744e6d702a5cabe67da246942fba7a"
    assert page.LIBRARY.read_text().startswith("/**\n* plotly.js (cartesian - minified) v4.1.1\n")
    assert (page.LIBRARY.parent / "LICENSE").read_text().startswith("MIT License\n")


def test_an_empty_run_has_a_report() -> None:
    made = report.build(samples.plan([], []), samples.judgement([], why="the plan is empty"))
    assert "NOT ACCEPTED" in page.render(made)


def test_two_thousand_nodes_make_a_page_of_a_few_megabytes(tmp_path: pathlib.Path) -> None:
    run = samples.fleet(2000, 20)
    made = report.build(*run)
    paths = written(tmp_path, made)
    lines = terminal.coloured(made, 120)
    assert paths[0].stat().st_size < 9e6
    assert len(lines) < 500
    assert sum(len(g["rows"]) for s in made["stages"] for g in s["checks"]) == 40_000


def test_nodes_pairs_and_groups_are_counted_as_what_they_are() -> None:
    names = [f"n{i:02}" for i in range(42)]
    group = {"kind": "group", "id": "nccl_fabric", "members": names[:3]}
    pair = {"kind": "pair", "id": "n00|n01", "members": []}
    verdicts = [samples.verdict(n, "gemm", "bf16", part="GPU-1") for n in names]
    verdicts += [samples.verdict("x", "nccl_fabric", "all_reduce", subject=group), samples.verdict("x", "nccl_fabric", "p2p", subject=pair)]
    records = [samples.measurement("x", "nccl_fabric", "all_reduce", subject=group, command=["mpirun"])]
    records += [samples.measurement("x", "nccl_fabric", "p2p", subject=pair, command=["p2p"])]
    made = build(verdicts, records)
    assert made["counted"] == "42 nodes, 1 pair and 1 group"
    assert {c["command"]: (c["nodes"], c["example"]) for c in made["commands"]} == {"mpirun": (3, "n00"), "p2p": (2, "n00")}
    assert [v["nodes"] for v in made["versions"] if v["name"] == "nccl_fabric"] == [3]
    assert "and 42 nodes, 1 pair and 1 group with PASS" in [line for line, _colour in terminal.coloured(made)]
    shown = page.render(made)
    assert "<b>42</b>nodes</div>" in shown and "<b>1</b>group</div>" in shown and "42 nodes, 1 pair and 1 group" in shown
    assert 'node="nccl_fabric",kind="group"' in formats.prometheus(made)


def test_causes_stand_first_and_pairs_are_no_nodes() -> None:
    pair = {"kind": "pair", "id": "a|b", "members": []}
    key = ("rdma", "write_bw", "", "a|b")
    verdicts = [
        samples.verdict("c", "stack", "facts", "WARN", reason="c: another driver"),
        samples.verdict("x", "rdma", "write_bw", "FAIL", subject=pair, reason="a|b: low", reason_code="below_floor"),
        samples.verdict("b", "rdma", "timetable", "FAIL", reason="b: b/nic/mlx5_0/1: bad row", reason_code="bad_rail"),
    ]
    blame = causes.Blame("b/nic/mlx5_0/1", "nic", "slow", own=(Key("rdma", "timetable", "", "b"),), explains=frozenset({Key(*key)}))
    judged = samples.judgement(verdicts, causes=causes.found(list(map(records.verdict, verdicts)), [blame], {}))
    made = report.build(samples.plan(["a", "b", "c"], ["stack", "rdma"]), judged)
    sentence = "b mlx5_0 port 1: slow; 1 pair is low because of it"
    assert [c["said"] for c in made["causes"]] == [sentence, "c: stack facts: another driver"]
    assert made["causes"][0]["explains"] == [dict(zip(("stage", "check", "variant", "subject"), key, strict=True), verdict="FAIL")]
    assert made["blamed"] == "2 nodes" and [w["text"] for w in made["warnings"]] == ["stack facts: c: another driver"]
    lines = [line for line, _colour in terminal.coloured(made, 120)]
    assert lines[1:4] == [f"FAIL    {sentence}", "        a|b", "WARN    c: stack facts: another driver"]
    assert "and 1 pair with FAIL" in lines and not any(line.startswith("a|b") for line in lines)
    text = formats.markdown(made)
    assert f"**FAIL** {formats.cell(sentence)}" in text and "Pairs, each in its stage below: 1 FAIL." in text
    assert "FAIL: because of b mlx5_0 port 1: slow; 1 pair is low because of it; a|b: low" in formats.junit(made)
    shown = page.render(made)
    assert "2 nodes of 2 nodes and 1 pair" in shown and shown.index("slow; 1 pair is low") < shown.index("another driver")
    assert "<h3>a|b" not in shown


def test_the_title_of_a_finding_about_a_node_names_its_ports_and_gpus() -> None:
    def title(*reasons: str, check: str = "ports") -> str:
        verdicts = [samples.verdict("a", f"rdma_{n}", check, "FAIL", reason=f"a: {text}") for n, text in enumerate(reasons)]
        return str(build(verdicts)["causes"][0]["title"])

    assert title("mlx5_3 port 1: the port is DOWN (Polling)") == "a mlx5_3 port 1"
    assert title("mlx5_3 port 1: the port is DOWN; mlx5_4 port 1: link_downed rose") == "a mlx5_3 port 1, mlx5_4 port 1"
    assert title("; ".join(f"mlx5_{n} port 1: the port is DOWN" for n in range(8))) == "a mlx5_0 port 1, mlx5_1 port 1 and 6 more"
    assert title("GPU 7: the PCIe link is x8 under load") == "a GPU 7"
    assert title("GPU 7 was +9.1 C off what is usual in its slot, the others -0.3 to +0.4 C") == "a GPU 7"
    assert title("GPU 4, GPU 5 and GPU 6 were +7.0 C off the same slots of other nodes") == "a GPU 4, GPU 5 and 1 more"
    # A part that is only compared with is none that the finding is about.
    assert title("slower than GPU 7: 12 GB/s") == title("nothing answers") == "a"
