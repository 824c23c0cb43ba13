# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every row of a run is in the page, packed by node, and the page of a large run stays small."""

from __future__ import annotations

import base64
import collections
import json
import typing as t
import zlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import by_node, formats, model, page
from harness import report_samples as samples


def unpacked(packed: by_node.Packed) -> dict[str, list[dict[str, t.Any]]]:
    """Return {node: rows} as the page's script reads them."""
    found: dict[str, list[dict[str, t.Any]]] = collections.defaultdict(list)
    for start, chunk in zip(packed.starts, packed.chunks, strict=True):
        content = json.loads(zlib.decompress(base64.b64decode(chunk)))
        for of in content["checks"]:
            for place, subject in enumerate(content["sets"][of["set"]]):
                node, part, kind = content["subjects"][subject]
                cells = {name: of[name][place] if isinstance(of[name], list) else of[name] for name in COLUMNS}
                shown = {
                    name: {metric: values[place] if isinstance(values, list) else values for metric, _units, values in of[name]}
                    for name in ("other", "ungated")
                }
                row = {"check": tuple(packed.checks[of["check"]]), "part": part, "kind": kind, **cells, **shown}
                found[packed.nodes[start + node][0]].append(row)
    return found


COLUMNS = ("verdict", "value", "unit", "floor", "layer", "reason", "seconds", "simulated", "evidence", "unreadable")


RUNS = {"small": samples.fleet(14, 3), "several chunks": samples.fleet(700, 20), "hostile": samples.hostile()}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
def test_each_node_has_all_of_its_rows_as_the_report_shows_them(run: t.Any) -> None:
    made = model.build(*run)
    packed = by_node.pack(made)
    found = unpacked(packed)
    assert not packed.left_out and packed.rows == sum(map(len, found.values()))
    expected = collections.Counter()
    for stage in made["stages"]:
        for group in stage["checks"]:
            for row in group["rows"]:
                check = (stage["name"], group["check"], group["variant"])
                values = (formats.number(row["value"]), row["unit"] or "", formats.number(row["floor"]), row["simulated"])
                expected[row["node"], check, formats.plain(row["part"]), row["verdict"], *map(str, values)] += 1
    got = collections.Counter(
        (node, row["check"], row["part"], WORST_FIRST[row["verdict"]], row["value"], row["unit"], row["floor"], str(bool(row["simulated"])))
        for node, rows in found.items()
        for row in rows
    )
    plain = {key: count for key, count in expected.items() if formats.plain(key[5]) == key[5]}
    assert {key: got[key] for key in plain} == plain and got.total() == expected.total()


def test_a_pair_is_at_both_of_its_nodes_and_a_group_is_by_itself() -> None:
    pair = {"kind": "pair", "id": "a/nic/m0/1|b/nic/m0/1", "members": []}
    group = {"kind": "group", "id": "nccl_fabric", "members": ["a", "b"]}
    verdicts = [
        samples.verdict("a", "rdma", "ports"), samples.verdict("b", "rdma", "ports"),
        samples.verdict("x", "rdma", "read_bw", "FAIL", subject=pair), samples.verdict("x", "nccl_fabric", "all_reduce", subject=group),
    ]  # fmt: skip
    made = model.build(samples.plan(["a", "b"], ["rdma", "nccl_fabric"]), samples.judgement(verdicts))
    found = {node: sorted((row["check"][1], row["part"]) for row in rows) for node, rows in unpacked(by_node.pack(made)).items()}
    assert found == {
        "a": [("ports", ""), ("read_bw", pair["id"])],
        "b": [("ports", ""), ("read_bw", pair["id"])],
        "nccl_fabric": [("all_reduce", "")],
    }


def test_a_reason_stands_where_there_is_no_number_or_no_pass() -> None:
    verdicts = [
        samples.verdict("a", "gemm", "bf16", value=700.0, unit="TFLOPS", reason="a: fine"),
        samples.verdict("b", "gemm", "bf16", "FAIL", value=500.0, unit="TFLOPS", reason="b: slow"),
        samples.verdict("c", "gemm", "bf16", reason="c: looked at"),
    ]
    found = unpacked(by_node.pack(model.build(samples.plan(["a", "b", "c"], ["gemm"]), samples.judgement(verdicts))))
    assert {node: rows[0]["reason"] for node, rows in found.items()} == {"a": "", "b": "slow", "c": "looked at"}


def test_if_there_is_no_room_for_all_nodes_the_worst_are_there_and_the_page_says_how_many_are_not() -> None:
    made = model.build(*samples.fleet(2000, 20))
    whole = by_node.pack(made)
    assert len(whole.chunks) > 2
    packed = by_node.pack(made, most=len(whole.chunks[0]) + 10)
    assert packed.chunks == whole.chunks[:1] and packed.rows == whole.rows
    assert [name for name, _verdict in packed.nodes] == [node["name"] for node in made["nodes"]][: len(packed.nodes)]
    assert len(packed.nodes) + len(packed.left_out) == 2000 and made["nodes"][0]["verdict"] == "FAIL"


def test_no_text_of_a_node_ends_a_script_of_the_page() -> None:
    made = model.build(*samples.hostile())
    packed = by_node.pack(made)
    index = str(page.figure(packed.contents()))
    assert "<" not in index and json.loads(index)["nodes"]
    for rows in unpacked(packed).values():
        assert all(text == formats.plain(text) for row in rows for text in (row["part"], row["reason"], row["evidence"]))


def test_all_findings_of_a_large_fleet_stand_in_the_page() -> None:
    verdicts = [samples.verdict(f"n{n:04}", "stack", "facts", "FAIL", reason=f"n{n:04}: fault number {n}") for n in range(1500)]
    text = page.render(model.build(samples.plan([f"n{n:04}" for n in range(1500)], ["stack"]), samples.judgement(verdicts)))
    assert all(f"fault number {n}<" in text or f"fault number {n}\n" in text for n in range(1500))
    assert text.count('<section class="card') == text.count(">all rows of n") == page.LIMITS["abnormal"]


def test_an_empty_run_has_no_nodes_to_open() -> None:
    text = page.render(model.build(samples.plan([], []), samples.judgement([], why="the plan is empty")))
    assert "one-node" not in text.partition("</style>")[2] and "packed-nodes" not in text


def test_a_node_without_room_in_the_page_has_no_link_and_is_named_as_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model.build(*samples.fleet(700, 20))
    whole = by_node.pack(made)
    monkeypatch.setattr(by_node.pack, "__defaults__", (len(whole.chunks[0]) + 10,))
    text = page.render(made)
    left_out = 700 - whole.starts[1]
    assert f"There is no room for {left_out} of the nodes, from {whole.nodes[whole.starts[1]][0]} on: verdicts.jsonl" in text
    assert text.count("packed-nodes\">") == 1 and f"#node={whole.nodes[whole.starts[1]][0]}\"" not in text
