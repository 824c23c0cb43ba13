# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The public filter `bandwidth_verdict`: many forms in, one verdict/v1 out, never a PASS by accident."""

from __future__ import annotations

import typing as t

import jsonschema
import pytest
from ansible_collections.gpufleet.acceptance.plugins.filter.bandwidth_verdict import FilterModule
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import shipped
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import schema
from hypothesis import given, settings
from hypothesis import strategies as st

GIB = 1 << 30
judge = FilterModule().filters()["bandwidth_verdict"]
SCHEMA = jsonschema.Draft202012Validator(schema("verdict-v1"))
EXPECTED = {"value": 360, "unit": "GB/s"}


def word(measurement: t.Any, expectation: t.Any) -> tuple[str, str | None]:
    found = judge(measurement, expectation)
    assert not list(SCHEMA.iter_errors(found)), found
    return found["verdict"], found["reason_code"]


@pytest.mark.parametrize(
    ("value", "unit", "wanted"),
    [
        (354, "GB/s", "PASS"),
        (342, "GB/s", "PASS"),
        (341, "GB/s", "WARN"),
        (323, "GB/s", "FAIL"),
        (354 * 8, "Gb/s", "PASS"),
        (354, "Gb/s", "FAIL"),
        (354e9 / 2**20, "MiB/s", "PASS"),
    ],
)
def test_a_number_with_its_unit_is_judged_by_the_bands(value: float, unit: str, wanted: str) -> None:
    assert word({"value": value, "unit": unit}, EXPECTED)[0] == wanted


@pytest.mark.parametrize(
    "measurement",
    [
        None, "", "354", 354, True, [], {}, [354], {"value": 354}, {"value": "354", "unit": "GB/s"},
        {"value": True, "unit": "GB/s"}, {"value": float("nan"), "unit": "GB/s"}, {"value": None, "unit": "GB/s"},
        {"value": float("inf"), "unit": "GB/s"}, {"value": 354, "unit": None}, {"value": 354, "unit": "TFLOPS"},
        {"value": 354, "unit": "GBps"}, {"value": 354, "unit": ["GB/s"]}, {"value": -354, "unit": "GB/s"},
        {"outcome": "measured"}, {"outcome": "measured", "metrics": {}}, {"outcome": "done", "value": 354, "unit": "GB/s"},
        {"outcome": None, "value": 354, "unit": "GB/s"}, {"outcome": "measured", "metrics": {"busbw": 354}},
        {"outcome": "error", "value": 354, "unit": "GB/s"}, {"outcome": "measured", "reason_code": "timeout",
                                                             "value": 354, "unit": "GB/s"},
    ],
)  # fmt: skip
def test_anything_but_a_measurement_is_unknown(measurement: t.Any) -> None:
    assert word(measurement, EXPECTED)[0] == "UNKNOWN"


@pytest.mark.parametrize(
    "expectation",
    [
        None, "", 360, True, [], {}, {"value": 360}, {"unit": "GB/s"}, {"value": 0, "unit": "GB/s"},
        {"value": True, "unit": "GB/s"}, {"value": "360", "unit": "GB/s"}, {"value": float("nan"), "unit": "GB/s"},
        {"value": 360, "unit": "TFLOPS"}, {"value": 360, "unit": "GBps"}, {"value": -1, "unit": "GB/s"},
        {"value": 360, "unit": "GB/s", "size": "1G"}, {"value": 360, "unit": "GB/s", "matches": {}},
        {"value": 360, "unit": "GB/s", "match": 3}, {"value": 360, "unit": "GB/s", "better": "more"},
        {"value": 360, "unit": "GB/s", "layer": "mine", "id": ""}, {"value": 360, "unit": "GB/s", "size": GIB},
    ],
)  # fmt: skip
def test_anything_but_an_expectation_is_no_expectation(expectation: t.Any) -> None:
    assert word({"value": 354, "unit": "GB/s"}, expectation) == ("UNKNOWN", "no_expectation")


def test_latency_is_better_low() -> None:
    latency = {"value": 2.0, "unit": "us", "metric": "latency"}
    assert word({"value": 2.0, "unit": "us"}, latency)[0] == "PASS"
    assert word({"value": 0.0021, "unit": "ms"}, latency)[0] == "PASS"
    assert word({"value": 2.15, "unit": "us"}, latency)[0] == "WARN"
    assert word({"value": 3.0, "unit": "us"}, latency)[0] == "FAIL"
    assert word({"value": 0, "unit": "us"}, latency)[0] == "UNKNOWN"


def test_outcomes() -> None:
    for code, wanted in (("wrong_results", "FAIL"), ("gpu_lost", "FAIL"), ("ecc", "FAIL"), ("timeout", "UNKNOWN")):
        assert word({"outcome": "error", "reason_code": code, "reason": "x"}, EXPECTED) == (wanted, code)
    skipped = {"outcome": "not_applicable", "reason_code": "single_gpu", "reason": "x"}
    assert word(skipped, EXPECTED) == ("SKIPPED", "single_gpu")
    assert word({**skipped, "reason_code": "unsupported"}, EXPECTED)[0] == "UNKNOWN"
    assert word({"outcome": "error"}, EXPECTED) == ("UNKNOWN", "bad_measurement")


def test_what_the_nccl_tests_filter_returns(fixtures: t.Any) -> None:
    healthy = nccl_tests.parse((fixtures / "h200-x4/nccl-v2.19.6-all_reduce-g4.txt").read_text())
    shipped_entry = next(e for e in shipped().dump() if e["id"] == "h200-4-all_reduce-1g")
    found = judge(healthy, shipped_entry)
    assert (found["verdict"], found["value"], found["layer"]) == ("PASS", 354.06, "shipped")
    assert found["check"] == "all_reduce"
    assert word(healthy, {"value": 354, "unit": "GB/s", "size": GIB})[0] == "PASS"
    assert word(healthy, {"value": 354, "unit": "GB/s"})[0] == "PASS"
    assert word(healthy, {"value": 367, "unit": "GB/s", "size": "plateau"}) == ("UNKNOWN", "no_expectation")
    broken = nccl_tests.parse((fixtures / "h200-x4/nccl-v2.19.6-all_reduce-p2pdisabled-g4.txt").read_text())
    assert word(broken, {"value": 340, "unit": "GB/s", "size": GIB >> 2})[0] == "FAIL"
    wrong = nccl_tests.parse((fixtures / "h200-x4/nccl-v2.19.6-hypercube-g4.txt").read_text(), rc=7)
    assert word(wrong, EXPECTED) == ("FAIL", "wrong_results")
    cut = nccl_tests.parse((fixtures / "h200-x4/nccl-truncated-killed.txt").read_text())
    assert word(cut, EXPECTED)[0] == "UNKNOWN"


def test_all_operations_of_two_h100_are_what_is_shipped(fixtures: t.Any) -> None:
    by_id = {entry["id"]: entry for entry in shipped().dump()}
    recordings = sorted((fixtures / "h100-x2").glob("nccl-*.txt"))
    for path in recordings:
        operation = path.name.split("-")[2]
        found = judge(nccl_tests.parse(path.read_text()), by_id[f"h100-2-{operation}-plateau"])
        assert (found["verdict"], found["check"]) == ("PASS", operation), found["reason"]
    assert len(recordings) == 10


def test_an_expectation_for_other_hardware() -> None:
    seen = {
        "outcome": "measured", "stage": "nccl_node", "check": "all_reduce", "context": {"gpu": "NVIDIA H100"},
        "metrics": {"busbw": {"value": 354, "unit": "GB/s"}},
    }  # fmt: skip
    other = {**EXPECTED, "match": {"stage": "nccl_node", "gpu": "NVIDIA H200"}}
    assert word(seen, other) == ("UNKNOWN", "no_expectation")
    assert word(seen, {**EXPECTED, "match": {"check": "all_gather"}})[0] == "UNKNOWN"
    assert word(seen, {**EXPECTED, "match": {"stage": "nccl_node", "gpu": "NVIDIA H100"}})[0] == "PASS"


def ranked(hosts: list[str], name: str = "NVIDIA H200", each: int = 4) -> dict[str, t.Any]:
    """A reading of nccl-tests with so many ranks on each host."""
    ranks = [
        {"rank": at, "host": host, "device": at % each, "bdf": f"0000:{26 + at % each:02x}:00", "name": name}
        for at, host in enumerate(host for host in hosts for _unused in range(each))
    ]
    return {
        "outcome": "measured", "reason_code": None, "op": "all_reduce", "ranks": ranks, "world_size": len(ranks),
        "peak_busbw": {"value": 354, "unit": "GB/s"}, "rows": [],
    }  # fmt: skip


def test_the_ranks_of_an_output_are_held_against_the_expectation(fixtures: t.Any) -> None:
    found = nccl_tests.parse((fixtures / "h200-x4/nccl-v2.19.6-all_reduce-g4.txt").read_text())
    table = {"stage": "nccl_node", "check": "all_reduce"}
    other = {**EXPECTED, "match": {**table, "gpu": "NVIDIA A100-SXM4-80GB", "gpus": 8}}
    verdict = judge(found, other)
    assert (verdict["verdict"], verdict["reason_code"]) == ("UNKNOWN", "no_expectation")
    assert verdict["reason"] == "the expectation is for gpu NVIDIA A100-SXM4-80GB and gpus 8, not gpu NVIDIA H200 and gpus 4"
    for match, wanted in (
        ({"gpu": "NVIDIA H200", "gpus": 4}, "PASS"),
        ({"gpu": ["NVIDIA H100", "NVIDIA H200"]}, "PASS"),
        ({"gpus": 4, "nodes": 1}, "PASS"),
        ({"nvls": False, "algorithm": "ring"}, "PASS"),  # the text does not tell
        ({"gpus": 8}, "UNKNOWN"),
        ({"gpu": ["NVIDIA H100", "NVIDIA A100-SXM4-80GB"]}, "UNKNOWN"),
        ({"nodes": 2, "gpus": 4}, "UNKNOWN"),
        ({"check": "all_gather"}, "UNKNOWN"),
        ({"stage": "nccl_fabric"}, "UNKNOWN"),
    ):
        assert word(found, {**EXPECTED, "match": {**table, **match}})[0] == wanted, match
    of_json = nccl_tests.parse((fixtures / "h200-x4/nccl-v2.19.6-all_reduce-g4.json").read_text())
    assert word(of_json, other) == ("UNKNOWN", "no_expectation") and word(of_json, {**EXPECTED, "match": {**table, "gpus": 4}})[0] == "PASS"


def test_operation_type_and_unit_of_an_output_are_its_own(fixtures: t.Any) -> None:
    output = nccl_tests.parse((fixtures / "h200-x4/nccl-v2.19.6-all_reduce-g4.txt").read_text())
    expected = {"value": 100, "unit": "GB/s"}
    for match, verdict in (
        ({"op": "all_reduce", "type": "float"}, "PASS"),
        ({"op": "reduce_scatter"}, "UNKNOWN"),
        ({"check": "reduce_scatter"}, "UNKNOWN"),
        ({"type": "half"}, "UNKNOWN"),
    ):
        assert judge(output, {**expected, "match": match})["verdict"] == verdict, match
    # hccl_test counts in units of 2^30 in some versions: 96 of those are 103 of 10^9.
    row = {"size": 1 << 30, "out_of_place": {"time_us": 1.0, "algbw": 55.0, "busbw": 96.0, "wrong": 0}, "in_place": None}
    hccl = {"outcome": "measured", "op": "all_reduce", "rows": [row], "bandwidth_unit": "GiB/s"}
    assert judge(hccl, {**expected, "size": 1 << 30})["value"] == pytest.approx(103.08, abs=0.01)


def test_ranks_on_another_number_of_hosts_than_expected_are_unknown() -> None:
    node, fabric = ({**EXPECTED, "match": {"stage": stage, "gpus": 4}} for stage in ("nccl_node", "nccl_fabric"))
    assert word(ranked(["a", "b"]), fabric)[0] == "PASS" and word(ranked(["a", "b"]), node)[0] == "UNKNOWN"
    assert word(ranked(["a"]), node)[0] == "PASS" and word(ranked(["a"]), fabric)[0] == "UNKNOWN"
    assert word(ranked(["a", "b"]), {**EXPECTED, "match": {"nodes": 3}}) == ("UNKNOWN", "no_expectation")
    assert word(ranked(["a", "a"]), fabric)[0] == "PASS"  # two machines of one name: the text does not tell how many
    split = ranked(["a", "b"])  # by NCCL_TESTS_SPLIT into one group on each host, which the network never saw
    for rank in split["ranks"]:
        rank["group"] = int(rank["host"] == "b")
    assert word(split, fabric)[0] == "UNKNOWN" and word(split, node)[0] == "PASS"
    mixed = ranked(["a", "b"])
    mixed["ranks"][5]["name"] = "NVIDIA H100"
    assert "not gpu mixed: NVIDIA H100, NVIDIA H200" in judge(mixed, {**EXPECTED, "match": {"gpu": "NVIDIA H200"}})["reason"]


anything: st.SearchStrategy[t.Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 500) | st.floats() | st.text(max_size=6) | st.just("GB/s"),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            [
                "value", "unit", "outcome", "metrics", "series", "rows", "peak_busbw", "busbw", "size", "context",
                "subject", "id", "kind", "members", "attempt", "stage", "check", "op", "reason", "reason_code", "metric",
                "match", "gpu", "layer", "better", "ranks", "world_size", "host", "name",
                "out_of_place", "in_place", "units", "note", "date", "source",
            ]
        ),
        inner,
        max_size=6,
    ),
    max_leaves=15,
)


@given(anything, anything)
@settings(max_examples=600, deadline=None)
def test_any_measurement_and_expectation_give_a_valid_verdict(measurement: t.Any, expectation: t.Any) -> None:
    word(measurement, expectation)
    word(measurement, EXPECTED)
    word({"value": 354, "unit": "GB/s"}, expectation)
