# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Expectation tables: strict reading, layers, matching, and the lint against physics."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import (
    ExpectationError,
    Expectations,
    Resolver,
    parse,
    resolve,
    shipped,
)

GIB = 1 << 30
ENTRY: dict[str, t.Any] = {
    "id": "mine",
    "match": {"stage": "nccl_node", "check": "all_reduce", "gpu": "NVIDIA H200", "gpus": 4, "nvls": False, "size": GIB},
    "metric": "busbw",
    "value": 350,
    "unit": "GB/s",
    "source": "somebody",
    "date": "2026-11",
    "confidence": "measured",
}
H200X4 = {"gpu": "NVIDIA H200", "gpus": 4, "nvls": False, "algorithm": "auto", "type": "float", "op": "all_reduce"}


def entry(**changes: t.Any) -> dict[str, t.Any]:
    match = {**ENTRY["match"], **changes.pop("match", {})}
    return {**ENTRY, **changes, "match": {k: v for k, v in match.items() if v is not None}}


def chosen(
    found: Expectations, context: dict[str, t.Any], stage: str = "nccl_node", check: str = "all_reduce"
) -> dict[t.Any, expectations.Expectation]:
    return {c.size: c.expectation for c in found.choose({"stage": stage, "check": check, "context": context})}


def test_shipped_tables_pass_the_lint_and_say_where_they_come_from(root: t.Any) -> None:
    for overlays in ((), ("seed-000",)):
        entries = shipped(overlays).entries
        assert [f for f in physics.lint(entries) if f.level == "error"] == []
        assert all(e.source and e.date and e.confidence for e in entries)
    tool = [sys.executable, str(root / "tests/tools/lint_expectations.py")]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_measured_hardware_is_known() -> None:
    found = chosen(shipped(), H200X4)
    assert (found[GIB].value, found["plateau"].value) == (354, 367)
    gemm = chosen(shipped(), {"gpu": "NVIDIA H200", "shape": "8192x8192x8192", "type": "bf16"}, "gemm", "bf16")
    assert 654 <= gemm[None].value <= 720  # what thirteen healthy H200 gave


def test_nvls_and_gpu_count_are_part_of_the_key() -> None:
    eight = {**H200X4, "gpus": 8}
    assert chosen(shipped(), {**eight, "nvls": True})["plateau"].value == 480
    assert chosen(shipped(), eight)["plateau"].value == 366
    assert chosen(shipped(), {**eight, "gpus": 3}) == {}
    assert chosen(shipped(), {**H200X4, "gpu": "NVIDIA H200 NVL"}) == {}
    # NCCL_ALGO=Ring is judged as ring, one that no entry speaks of by none.
    assert chosen(shipped(), {**eight, "algorithm": "ring"})["plateau"].value == 366
    assert chosen(shipped(), {**eight, "algorithm": "tree"}) == {}


def test_overlay_is_off_by_default() -> None:
    gemm = {"gpu": "NVIDIA H200", "shape": "8192x8192x8192"}
    eight = {**H200X4, "gpus": 8, "nvls": True}
    assert chosen(shipped(), eight)[GIB].value == 460
    assert chosen(shipped(("seed-000",)), eight)[GIB].value == 468
    assert chosen(shipped(("seed-000",)), gemm, "gemm", "bf16")[None].value == 871
    with pytest.raises(ExpectationError, match=r"acceptance_expectation_overlays.*'seed-1'.*seed-000"):
        shipped(("seed-1",))


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"vlaue": 1}, "vlaue"),
        ({"value": True}, "value"),
        ({"value": float("nan")}, "value"),
        ({"value": float("inf")}, "value"),
        ({"value": 0}, "value"),
        ({"value": -1}, "value"),
        ({"value": "354"}, "value"),
        ({"unit": "GBps"}, "unit"),
        ({"unit": "TFLOPS"}, "unit"),
        ({"unit": None}, "unit"),
        ({"unit": ["GB/s"]}, "unit"),
        ({"source": None}, "source"),
        ({"source": " "}, "source"),
        ({"date": None}, "date"),
        ({"date": "yesterday"}, "date"),
        ({"date": 2026}, "date"),
        ({"confidence": None}, "confidence"),
        ({"confidence": "sure"}, "confidence"),
        ({"better": "lower"}, "better"),
        ({"better": "bigger"}, "better"),
        ({"proposed": "yes"}, "proposed"),
        ({"id": "two words"}, "id"),
        ({"match": {"gpuss": 4}}, "match.gpuss"),
        ({"match": {"stage": None}}, "match"),
        ({"match": {"stage": ["nccl_node"]}}, "match"),
        ({"match": {"size": "1G"}}, "match.size"),
        ({"match": {"size": 0}}, "match.size"),
        ({"match": {"size": True}}, "match.size"),
        ({"match": {"gpus": {}}}, "match.gpus"),
        ({"match": {"gpus": []}}, "match.gpus"),
        ({"match": {"gpus": float("nan")}}, "match.gpus"),
    ],
)
def test_refusals_name_where_key_found_and_expected(change: dict[str, t.Any], key: str) -> None:
    with pytest.raises(ExpectationError) as error:
        resolve([("host", [entry(**change)])])
    text = str(error.value)
    assert text.startswith("acceptance_expectations (host)[0]")
    assert key in text and "found" in text and "expected" in text


@pytest.mark.parametrize("raw", [None, 3, "x", [], [1]])
def test_an_entry_that_is_none(raw: t.Any) -> None:
    with pytest.raises(ExpectationError):
        parse(raw, "here")


@pytest.mark.parametrize("value", [3, "text", True, [3], {"unknown-id": {"value": 1}}, {"h200-4-all_reduce-1g": 3}])
def test_a_variable_of_another_form(value: t.Any) -> None:
    with pytest.raises(ExpectationError, match="found"):
        resolve([("group", value)])


def test_stronger_layers_win_and_say_so() -> None:
    layered = [
        ("group", {"h200-4-all_reduce-1g": {"value": 340}}),
        ("group", {"h200-4-all_reduce-1g": {"value": 342}}),
        ("host", [entry(value=344)]),
    ]
    assert chosen(resolve(layered[:1]), H200X4)[GIB].layer == "group"
    assert chosen(resolve(layered[:2]), H200X4)[GIB].value == 342
    found = chosen(resolve(layered), H200X4)[GIB]
    assert (found.value, found.layer, found.id) == (344, "host", "mine")
    run = chosen(resolve([*layered, ("run", {"mine": {"value": 346}})]), H200X4)
    assert (run[GIB].value, run[GIB].layer) == (346, "run")
    assert run["plateau"].layer == "shipped", "a change of one size leaves the others alone"
    assert GIB not in chosen(resolve([("run", {"h200-4-all_reduce-1g": None})]), H200X4)


def test_more_specific_wins_within_a_layer() -> None:
    general = entry(id="general", match={"gpus": None}, value=300)
    found = resolve([("run", [general, entry(value=340)])])
    assert chosen(found, H200X4)[GIB].id == "mine"
    assert chosen(found, {**H200X4, "gpus": 3})[GIB].id == "general"


def test_lists_are_any_of_and_true_is_not_one() -> None:
    found = resolve([("run", [entry(match={"gpus": [2, 4], "gpu": ["A", "B"]}, id="listed")])])
    assert chosen(found, {**H200X4, "gpu": "B", "gpus": 2})[GIB].id == "listed"
    assert chosen(found, {**H200X4, "gpu": "B", "gpus": 3}) == {}
    assert chosen(found, {**H200X4, "gpu": "B", "nvls": 0}) == {}
    assert chosen(found, {"gpu": "B", "gpus": 2}) == {}, "a key that the measurement does not tell does not match"


def test_two_entries_for_one_thing_are_an_error() -> None:
    with pytest.raises(ExpectationError, match="as specific as"):
        one, two = entry(id="one", match={"nvls": None}), entry(id="two", match={"gpus": None})
        resolve([("run", [one, two])])
    with pytest.raises(ExpectationError, match="the same as in one"):
        resolve([("run", [entry(id="one"), entry(id="two")])])
    with pytest.raises(ExpectationError, match="a second time"):
        resolve([("run", [entry(), entry()])])


def test_physics_refuses_what_cannot_be() -> None:
    def wrong(**changes: t.Any) -> str:
        with pytest.raises(ExpectationError) as error:
            resolve([("run", [entry(**changes)])])
        return str(error.value)

    assert "at most 450 GB/s" in wrong(value=451)
    assert "2(n-1)/n" in wrong(value=800, match={"gpus": 8, "nvls": True})
    assert "at least 135 GB/s" in wrong(value=100)
    assert "at most 450" in wrong(value=460, match={"check": "broadcast", "gpus": 8, "nvls": True})
    assert resolve([("run", [entry(value=100, note="PCIe only")])])
    assert resolve([("run", [entry(value=700, match={"gpus": 8, "nvls": True})])])
    gemm = {"match": {"stage": "gemm", "check": "bf16", "gpu": "NVIDIA H200"}, "metric": "tflops", "unit": "TFLOPS"}
    with pytest.raises(ExpectationError, match="dense bf16 peak"):
        resolve([("run", [{**ENTRY, **gemm, "value": 1200}])])


def test_a_gate_far_under_the_shipped_value_is_absurd() -> None:
    b200 = {"gpu": "NVIDIA B200", "gpus": 8, "nvls": True, "algorithm": ["auto", "nvls"], "size": "plateau"}
    with pytest.raises(ExpectationError, match=r"at least 472\.5"):
        resolve([("run", [entry(value=440, match=b200)])])  # 0.53 of a healthy node, a gate that is in use elsewhere
    with pytest.raises(ExpectationError, match=r"0\.57 of the 838 of b200-8-all_reduce-nvls-plateau"):
        resolve([("run", [entry(value=480, match=b200)])])


def test_wire_rates_count_nics_and_directions() -> None:
    def limit(metric: str, **match: t.Any) -> float:
        found = physics.limits(match, metric)
        assert found is not None
        return found[0]

    assert limit("bandwidth", stage="rdma", nic_gbps=400) == 400
    assert limit("bandwidth", stage="rdma", nic_gbps=400, bidirectional=True) == 800
    fabric = {"stage": "nccl_fabric", "check": "all_reduce", "gpus": 8, "nodes": 2, "nics": 8, "nic_gbps": 400}
    assert limit("busbw", **fabric, algorithm="ring") == 400
    assert limit("busbw", **fabric, algorithm="nvlstree") == 750
    assert limit("busbw", **fabric, algorithm="sharp") == 750
    assert limit("busbw", stage="nccl_node", check="all_reduce", gpu="NVIDIA H200", gpus=8, nvls=True) == 787.5
    assert limit("busbw", stage="nccl_node", check="all_reduce", gpu="NVIDIA L40S") == pytest.approx(31.5, abs=0.1)
    assert physics.limits({"stage": "nccl_node", "check": "all_reduce", "gpu": "Unheard of"}, "busbw") is None


def test_units_are_exact() -> None:
    assert physics.convert(1.0, "GB/s", "Gb/s") == 8.0
    assert physics.convert(400.0, "Gb/s", "GB/s") == 50.0
    assert physics.convert(1024.0, "MiB/s", "GB/s") == pytest.approx(1.073741824)
    for unit in ("TFLOPS", "us", "GBs", ""):
        with pytest.raises(ValueError):
            physics.convert(1.0, unit, "GB/s")


def test_proposals_are_ignored_and_reported(tmp_path: t.Any) -> None:
    path = tmp_path / "proposed.yml"
    path.write_text(yaml.safe_dump({"proposed": True, "expectations": [entry(value=300)]}))
    found = resolve([], files=[str(path)])
    assert chosen(found, H200X4)[GIB].value == 354
    assert [line for line in found.ignored if "proposed.yml" in line]
    path.write_text(yaml.safe_dump({"expectations": [entry(value=300)]}))
    assert chosen(resolve([], files=[str(path)]), H200X4)[GIB].layer == "group"
    inline = resolve([("host", [entry(value=300, proposed=True)])])
    assert chosen(inline, H200X4)[GIB].value == 354 and inline.ignored


@pytest.mark.parametrize(
    "text", ["{", "text", "3", "{expectation: []}", "{expectations: 3}", "{proposed: 1, expectations: []}", "\x00"]
)
def test_files_that_are_none(tmp_path: t.Any, text: str) -> None:
    path = tmp_path / "bad.yml"
    path.write_text(text)
    with pytest.raises(ExpectationError, match=r"bad\.yml"):
        expectations.read(path)
    with pytest.raises(ExpectationError, match=r"none\.yml"):
        expectations.read(tmp_path / "none.yml")


def test_a_set_is_resolved_once_and_survives_the_plan() -> None:
    resolver = Resolver()
    overrides = [("run", {"h200-4-all_reduce-1g": {"value": 340}})]
    one, two = resolver.resolve(overrides), resolver.resolve(json.loads(json.dumps(overrides)))
    assert one is two
    back = Expectations.load(json.loads(json.dumps(one.dump())))
    assert back.entries == one.entries


def test_lint_command_fails_on_a_bad_file(root: t.Any, tmp_path: t.Any) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(yaml.safe_dump([entry(value=460)]))
    tool = [sys.executable, str(root / "tests/tools/lint_expectations.py"), str(path)]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "at most 450" in done.stdout
