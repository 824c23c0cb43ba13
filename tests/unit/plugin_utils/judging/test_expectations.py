# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Expectation tables: strict reading, layers, matching, and the lint against physics."""

from __future__ import annotations

import importlib.util
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
    return {c.size: c.expectation for c in found.choose(stage, check, context)}


def test_shipped_tables_pass_the_lint_and_say_where_they_come_from(root: t.Any) -> None:
    for overlays in ((), ("operator-targets",)):
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
    assert chosen(shipped(("operator-targets",)), eight)[GIB].value == 468
    assert chosen(shipped(("operator-targets",)), gemm, "gemm", "bf16")[None].value == 871
    with pytest.raises(ExpectationError, match=r"acceptance_expectation_overlays.*'operator-target'.*operator-targets"):
        shipped(("operator-target",))


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
    assert text.startswith("acceptance_expectations (host), entry 1")
    assert key in text and ("found" in text or f"`{key}`" in text) and ("expected" in text or "The keys are" in text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": None}, "acceptance_expectations (group), entry 1 `{id}`: key `unit` is missing; expected one of GB/s, "),
        ({"date": None}, "acceptance_expectations (group), entry 1 `{id}`: key `date` is missing; expected YYYY-MM"),
        ({"vlaue": 1}, "acceptance_expectations (group), entry 1 `{id}`: unknown key `vlaue`; did you mean `value`? The keys are id, "),
    ],
)
def test_a_key_that_is_missing_or_misspelt_says_what_to_write(change: dict[str, t.Any], message: str) -> None:
    with pytest.raises(ExpectationError) as error:
        resolve([("group", [entry(**change)])])
    assert str(error.value).startswith(message.format(id=entry()["id"]))


def test_an_id_with_a_typo_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(ExpectationError, match=r"found id 'h200-4-al_reduce-1g', .*; did you mean h200-4-all_reduce-1g"):
        resolve([("group", {"h200-4-al_reduce-1g": {"value": 1}})])


@pytest.mark.parametrize("raw", [None, 3, "x", [], [1]])
def test_an_entry_that_is_no_mapping_is_refused(raw: t.Any) -> None:
    with pytest.raises(ExpectationError):
        parse(raw, "here")


@pytest.mark.parametrize("value", [3, "text", True, [3], {"unknown-id": {"value": 1}}, {"h200-4-all_reduce-1g": 3}])
def test_a_variable_that_is_no_list_or_mapping_of_entries_is_refused(value: t.Any) -> None:
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


@pytest.mark.parametrize("value", [67, 200, 400])
def test_a_changed_value_stands_for_itself(value: float) -> None:
    """The note of the shipped entry says why its own number is healthy; it excuses nobody else's."""
    with pytest.raises(ExpectationError, match=r"acceptance_expectations \(run\): h200-gemm-bf16: value: found"):
        resolve([("run", {"h200-gemm-bf16": {"value": value}})])
    own = resolve([("run", {"h200-gemm-bf16": {"value": value, "note": "capped at 300 W"}})])
    assert next(e for e in own.entries if e.id == "h200-gemm-bf16").value == value


def test_who_set_a_changed_value_stands_in_its_source() -> None:
    def changed(**change: t.Any) -> expectations.Expectation:
        found = resolve([("host", {"h200-gemm-bf16": change})])
        return next(e for e in found.entries if e.id == "h200-gemm-bf16")

    other = changed(value=690)
    assert other.source == "set in acceptance_expectations (host), in place of 670 TFLOPS of shipped h200-gemm-bf16"
    assert (other.confidence, other.note) == ("derived", "") and other.date > "2026"
    given = changed(value=690, source="contract 4", confidence="vendor", date="2026-12")
    assert (given.source, given.confidence, given.date) == ("contract 4", "vendor", "2026-12")
    assert changed(match={"stage": "gemm", "check": "bf16", "gpu": "NVIDIA H200 NVL"}).note == ""
    shipped_one = next(e for e in shipped().entries if e.id == "h200-gemm-bf16")
    assert changed(date="2026-12").source == shipped_one.source and changed(date="2026-12").note == shipped_one.note


class Text(str):
    """The class that Ansible makes of text."""


class Number(int):
    """The same of numbers."""


def test_values_of_ansibles_own_classes_are_what_they_are() -> None:
    """An entry of `-e @file` displaces, overlaps and repeats what one of plain text does."""

    def own(value: t.Any) -> t.Any:
        if isinstance(value, dict):
            return {Text(key): own(one) for key, one in value.items()}
        if isinstance(value, list):
            return [own(one) for one in value]
        return Text(value) if isinstance(value, str) else Number(value) if type(value) is int else value

    forgot = entry(id="forgot", match={"gpu": None}, value=350, note="whatever it is")
    assert resolve([("run", [own(forgot)])]).notes == resolve([("run", [forgot])]).notes != ()
    stated = entry(id="stated", match={"gpu": None, "nvls": "false", "gpus": "4"}, value=350, note="whatever it is")
    assert resolve([("run", [own(stated)])]).entries[-1].match == resolve([("run", [stated])]).entries[-1].match
    twice = [entry(id="one", value=350), entry(id="other", value=351)]
    with pytest.raises(ExpectationError, match="the same as in one"):
        resolve([("run", own(twice))])
    with pytest.raises(ExpectationError, match=r"as specific as|the same as"):
        resolve([("run", [twice[0], own({**twice[1], "match": {**twice[1]["match"], "gpu": ["NVIDIA H200", "NVIDIA H100"]}})])])
    assert own(forgot)["match"]["stage"].__class__ is Text


def test_an_entry_that_is_softer_than_the_shipped_one_is_named() -> None:
    (line,) = resolve([("group", {"h200-gemm-bf16": {"value": 500}})]).notes
    assert line.endswith("h200-gemm-bf16: 500 TFLOPS is softer than shipped, 0.75 of the 670 TFLOPS of shipped h200-gemm-bf16"), line
    (line,) = resolve([("run", [entry(value=300, note="the trays run at 500 W")])]).notes
    assert "300 GB/s is softer than shipped, 0.85 of the 354 GB/s of shipped h200-4-all_reduce-1g" in line
    assert line.endswith(": the trays run at 500 W")
    assert resolve([("run", [entry(value=354)])]).notes == ()


def test_an_entry_that_takes_over_more_than_it_displaces_is_named() -> None:
    forgot = entry(id="forgot", match={"gpu": None}, value=350, note="whatever it is")
    (line,) = resolve([("group", [forgot])]).notes
    assert line.startswith("acceptance_expectations (group), entry 1 `forgot`: 350 GB/s holds for more than what it displaces (any gpu): ")
    assert "h200-4-all_reduce-1g (354 GB/s)" in line and "h100-4-all_reduce-1g (354 GB/s)" in line
    assert "gb200-4-all_reduce-1g (632 GB/s)" in line
    gemm = {"stage": "gemm", "check": None, "gpus": None, "nvls": None, "size": None, "gpu": "NVIDIA H200"}
    every = entry(id="every", match=gemm, metric="tflops", unit="TFLOPS", value=670, note="of bf16")
    (line,) = resolve([("run", [every])]).notes
    assert "(any check, shape)" in line and "h200-gemm-fp8 (1215 TFLOPS)" in line
    assert resolve([("run", [entry()])]).notes == (), "what is as narrow displaces nothing but its like"
    assert resolve([("run", {"h200-gemm-bf16": {"value": 690}})]).notes == ()
    rdma = {"gpu": None, "gpus": None, "nvls": None, "stage": "rdma", "check": "write_bw", "nic_gbps": 400, "bidirectional": False}
    pair = entry(id="pair", match={**rdma, "size": 65536}, metric="bandwidth", unit="Gb/s", value=390)
    assert resolve([("run", [pair])]).notes == ()


@pytest.mark.parametrize(
    ("match", "becomes"),
    [
        ({"gpus": "4"}, ("gpus", 4)),
        ({"nvls": "false"}, ("nvls", False)),
        ({"nvls": "False"}, ("nvls", False)),
        ({"gpus": ["4", 8]}, ("gpus", [4, 8])),
    ],
)
def test_a_template_made_text_of_a_number(match: dict[str, t.Any], becomes: tuple[str, t.Any]) -> None:
    found = resolve([("run", [entry(match=match, value=340)])])
    assert next(e for e in found.entries if e.id == "mine").match[becomes[0]] == becomes[1]
    assert chosen(found, H200X4)[GIB].id == "mine"


@pytest.mark.parametrize(
    ("match", "words"),
    [
        ({"gpus": "eight"}, "match.gpus: found 'eight', expected a whole number"),
        ({"gpus": 7.5}, "match.gpus: found 7.5, expected a whole number"),
        ({"gpus": True}, "match.gpus: found True, expected a whole number"),
        ({"gpus": [4, "x"]}, "match.gpus: found 'x', expected a whole number"),
        ({"nvls": "yes"}, "match.nvls: found 'yes', expected true or false"),
        ({"nvls": 1}, "match.nvls: found 1, expected true or false"),
        ({"gpu": 200}, "match.gpu: found 200, expected text"),
        ({"check": True}, "match.check: found True, expected text"),
    ],
)
def test_values_of_a_match_have_types(match: dict[str, t.Any], words: str) -> None:
    with pytest.raises(ExpectationError) as error:
        resolve([("run", [entry(match=match)])])
    assert words in str(error.value)


def test_a_stage_of_ones_own_has_types_of_its_own() -> None:
    mine = {**entry(), "match": {"stage": "ours", "gpus": "8", "lane": 3}, "metric": "busbw"}
    (found,) = (e for e in resolve([("run", [mine])]).entries if e.id == "mine")
    assert found.match["gpus"] == "8"


def cites(source: str, value: float) -> list[str]:
    one = parse(entry(id="one", value=354, match={"gpus": 8}), "here")
    two = parse(entry(id="two", value=value, source=source), "here")
    return [f.text for f in physics.lint([one, two]) if f.level == "error"]


def test_what_cites_another_entry_says_its_number() -> None:
    assert cites("as [one 354]: same links", 354) == [] == cites("0.96 x [one 354]", 340) == cites("above [one 354] by far", 400)
    assert "found one cited with 360, it has 354" in cites("as [one 360]: same links", 360)[0]
    assert "for the value 300" in cites("as [one 354]: same links", 300)[0]
    assert "which is 339.84, for the value 350" in cites("0.96 x [one 354]", 350)[0]
    assert "it has no such entry" in cites("as [none 354]", 354)[0]


def test_same_chip_clock_and_power_class_have_the_same_number() -> None:
    classes = [("NVIDIA H200", "NVIDIA H100 80GB HBM3"), ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB"), ("NVIDIA H200", "NVIDIA H800")]
    for one, other in classes:
        for kind in ("bf16", "fp16", "tf32", "fp8", "fp32", "fp64"):
            for backend in ("torch", "cublas"):
                context = {"shape": "8192x8192x8192", "type": kind, "backend": backend}
                values = [[e.value for e in chosen(shipped(), {**context, "gpu": gpu}, "gemm", kind).values()] for gpu in (one, other)]
                assert values[0] == values[1] or (other == "NVIDIA H800" and kind == "fp64" and not values[1]), (other, kind)


def test_fp64_is_held_to_the_library_that_ran() -> None:
    def value(kind: str, **context: t.Any) -> float:
        return chosen(shipped(), {"gpu": "NVIDIA H200", "shape": "8192x8192x8192", **context}, "gemm", kind)[None].value

    assert 52.9 <= value("fp64", backend="cublas") <= 53.7 and 59.6 <= value("fp64", backend="torch") <= 60.1
    assert 51.2 <= value("fp32", backend="torch") <= 51.3 and 343 <= value("tf32", backend="cublas") <= 352


@pytest.fixture(scope="module")
def linter(root: t.Any) -> t.Any:
    spec = importlib.util.spec_from_file_location("lint_expectations", root / "tests/tools/lint_expectations.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_shipped_entry_can_be_reached(linter: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linter.nccl_node.nccl_settings, "of_machine", lambda _node, _env: {})
    entries = shipped().entries
    assert linter.unreachable(entries, entries) == []
    # With the rule that compared the GPUs of a tray: the rack's numbers stood in the table for nobody.
    monkeypatch.setattr(linter.nccl, "mnnvl", lambda _names: False)
    lost = linter.unreachable(entries, [e for e in entries if e.match["stage"] == "nccl_fabric"])
    assert {"gb200-nvl72-all_reduce", "gb300-nvl72-all_reduce"} <= set(lost) and all(name.startswith("gb") for name in lost)


@pytest.mark.parametrize(
    "match",
    [{"gpus": 4, "nvls": True}, {"gpus": 8, "nvls": True, "algorithm": "ring"}, {"mnnvl": True}, {"type": "float", "mode": "alone"}],
)
def test_an_entry_that_no_probe_can_reach_is_found(linter: t.Any, monkeypatch: pytest.MonkeyPatch, match: dict[str, t.Any]) -> None:
    monkeypatch.setattr(linter.nccl_node.nccl_settings, "of_machine", lambda _node, _env: {})
    own = parse(entry(match={"nvls": None, **match}), "here", rank=1)
    assert linter.unreachable([*shipped().entries, own], [own]) == ["mine"]


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


def test_units_are_converted_exactly_or_refused() -> None:
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
    assert [line for line in found.notes if "proposed.yml" in line]
    path.write_text(yaml.safe_dump({"expectations": [entry(value=300)]}))
    assert chosen(resolve([], files=[str(path)]), H200X4)[GIB].layer == "group"
    inline = resolve([("host", [entry(value=300, proposed=True)])])
    assert chosen(inline, H200X4)[GIB].value == 354 and inline.notes


@pytest.mark.parametrize(
    "text", ["{", "text", "3", "{expectation: []}", "{expectations: 3}", "{proposed: 1, expectations: []}", "\x00"]
)
def test_a_file_that_is_no_table_of_expectations_is_refused_by_name(tmp_path: t.Any, text: str) -> None:
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


EIGHT = {"stage": "nccl_node", "check": "all_reduce", "gpu": "NVIDIA H200", "gpus": 8, "nvls": True, "size": "plateau"}


@pytest.mark.parametrize("more", [{}, {"type": "float"}, {"op": "all_reduce"}, {"nodes": 1}, {"gpus": [8]}, {"gpus": [4, 8]},
                                  {"check": ["all_reduce", "all_gather"]}, {"size": ["plateau", 1 << 30]}])  # fmt: skip
@pytest.mark.parametrize("without", [(), ("nvls",), ("gpus",), ("check",), ("check", "gpus", "nvls")])
def test_what_would_win_over_a_shipped_entry_may_not_be_far_softer(more: dict[str, t.Any], without: tuple[str, ...]) -> None:
    """Overlap decides, not equality: one key more or less makes it about the same machines all the same."""
    match = {key: value for key, value in {**EIGHT, **more}.items() if key not in without or key in more}
    soft = {**ENTRY, "id": "soft", "match": match, "value": 250}
    with pytest.raises(ExpectationError, match=r"`soft`: value: found 250 GB/s, (0\.\d+ of the |expected at least 270)"):
        resolve([("group", [soft])])
    assert resolve([("group", [{**soft, "note": "two of eight switches are off, OPS-7"}])])
    with pytest.raises(ExpectationError, match=r"value: found 250 GB/s, (0\.\d+ of the |expected at least 270)"):
        resolve([("run", {"h200-8-all_reduce-nvls-plateau": {"match": match, "value": 250}})])


def test_what_displaces_nothing_may_be_as_soft_as_it_likes() -> None:
    def refused(**changes: t.Any) -> bool:
        try:
            resolve([("run", [{**ENTRY, "id": "own", "value": 250, **changes}])])
        except ExpectationError:
            return True
        return False

    assert refused(match=EIGHT)
    for other in ({"size": 12345}, {"gpu": "NVIDIA X1"}, {"check": "alltoall"}, {"stage": "own"}):
        assert not refused(match={**EIGHT, **other}), other
    there = next(e for e in shipped().entries if e.id == "rdma-latency-leaf-infiniband")
    latency = {"metric": "latency", "unit": "us", "better": "lower", "match": {**there.match, "check": "write_lat"}}
    assert refused(**latency, value=2 * there.value) and not refused(**latency, value=1.5 * there.value), "a time that is far longer"
