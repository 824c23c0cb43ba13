# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The verdict engine: what is never a PASS, bands, neighbours, siblings, attempts, evidence, waivers, acceptance."""

from __future__ import annotations

import copy
import datetime
import itertools
import random
import typing as t

import jsonschema
import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, verdict, waivers, waiving
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations, resolve
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import model
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import parsed, problem, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness.records import judge as judge_run
from harness.records import make_plan
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

RUN = "20261121T000000Z-0a1b2c"
TODAY = datetime.date(2026, 11, 21)
GIB = 1 << 30
NCCL = {"gpu": "NVIDIA H200", "gpus": 4, "nvls": False, "algorithm": "auto", "series_units": {"busbw": "GB/s"}}
GEMM = {"gpu": "NVIDIA H200", "gpus": 4, "shape": "8192x8192x8192", "type": "bf16"}
SHIPPED = resolve([("run", {"h200-gemm-bf16": {"value": 700}})])
VERDICT = jsonschema.Draft202012Validator(schema("verdict-v1"))
MEASUREMENT = jsonschema.Draft202012Validator(schema("measurement-v1"))
Record = dict[str, t.Any]


def record(subject: str = "n1", stage: str = "nccl_node", check: str = "all_reduce", **fields: t.Any) -> Record:
    kind = "gpu" if "/gpu/" in subject else "node"
    base = {
        "schema": "measurement/v1", "run_id": RUN, "stage": stage, "check": check, "variant": "", "plane": "ssh",
        "subject": {"kind": kind, "id": subject, "members": fields.pop("members", [])}, "target": subject.split("/", maxsplit=1)[0],
        "attempt": 1, "outcome": "measured", "reason_code": None, "reason": None, "metrics": {}, "series": [],
        "context": {}, "evidence": {}, "command": [], "tool_version": None, "started_at": "2026-11-21T00:00:00Z",
        "duration_s": 1.0, "raw": None, "raw_sha256": None, "simulated": False,
    }  # fmt: skip
    return {**base, **fields}


def nccl(subject: str = "n1", busbw: t.Any = 354.0, size: int = GIB, **fields: t.Any) -> Record:
    fields.setdefault("context", NCCL)
    metrics = {"busbw": {"value": busbw, "unit": "GB/s"}}
    return record(subject, metrics=metrics, series=[{"size": size, "busbw": busbw}], **fields)


def gemm(subject: str, tflops: float, **fields: t.Any) -> Record:
    metrics = {"tflops": {"value": tflops, "unit": "TFLOPS"}}
    return record(subject, "gemm", "bf16", metrics=metrics, context=fields.pop("context", GEMM), **fields)


def failed(subject: str, code: str, outcome: str = "error", **fields: t.Any) -> Record:
    return record(subject, outcome=outcome, reason_code=code, reason=f"because of {code}", **fields)


def item(subject: str = "n1", stage: str = "nccl_node", check: str = "all_reduce", **fields: t.Any) -> Record:
    about = {"kind": "node", "id": subject, "members": fields.pop("members", [])}
    return {"stage": stage, "check": check, "variant": "", "subject": about, "target": subject, **fields}


def plan_of(*items: Record, **fields: t.Any) -> Plan:
    return make_plan({"run_id": RUN, "items": list(items), **fields})


def judge(items: list[Record], records: list[t.Any], **options: t.Any) -> verdict.Judgement:
    options.setdefault("today", TODAY)
    fields = {"partial": options.pop("partial", False), "mode": options.pop("mode", "run"), **options.pop("plan", {})}
    expected = options.pop("expected", lambda _node, _target: SHIPPED)
    found = judge_run(plan_of(*items, **fields), records, expected, stages=registry.shipped().values(), **options)
    for v in found.verdicts:
        assert not list(VERDICT.iter_errors(v.as_dict())), v
        assert v["reason_code"] is None or v["reason_code"] in reasons.ALL
        assert v["verdict"] == "PASS" or v["reason_code"]
    assert len(found.planned) == len({(i["stage"], i["check"], i["subject"]["id"]) for i in items})
    return found


def one(*records: t.Any, **options: t.Any) -> Record:
    """The verdict of the plan's one check."""
    first = options.pop("item", None) or item()
    return judge([first], list(records), **options).planned[0]


# Bands ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("busbw", "word", "code"),
    [
        (354, "PASS", None),
        (336.3, "PASS", None),
        (336.29, "WARN", "below_warn"),
        (318.6, "WARN", "below_warn"),
        (318.59, "FAIL", "below_floor"),
        (27.4, "FAIL", "below_floor"),
        (0, "FAIL", "below_floor"),
    ],
)
def test_bands(busbw: float, word: str, code: str | None) -> None:
    found = one(nccl(busbw=float(busbw)))
    assert (found["verdict"], found["reason_code"]) == (word, code)
    assert found["floor"] == pytest.approx(336.3) and found["layer"] == "shipped" and found["unit"] == "GB/s"
    assert found["expectation"] == "h200-4-all_reduce-1g" and found["confidence"] == "measured" and found["source"]


def test_a_soft_expectation_that_names_no_hardware_is_not_believed_where_it_displaces_a_shipped_one() -> None:
    wide = {
        "id": "wide", "match": {"stage": "nccl_node", "check": "all_reduce", "size": GIB}, "metric": "busbw", "value": 150.0,
        "unit": "GB/s", "source": "s", "date": "2026-11", "confidence": "measured",
    }  # fmt: skip

    def under(busbw: float, gpu: str = "NVIDIA H200", **changes: t.Any) -> Record:
        own = resolve([("group", [{**wide, **changes}])])
        return one(nccl(busbw=busbw, context={**NCCL, "gpu": gpu}), expected=lambda _node, _target: own)

    soft = under(200.0)
    assert (soft["verdict"], soft["reason_code"]) == ("UNKNOWN", "soft_expectation")
    assert "150 GB/s displaces 354 GB/s of shipped h200-4-all_reduce-1g here" in soft["reason"]
    assert under(200.0, gpu="NVIDIA X1")["verdict"] == "PASS", "nothing is shipped for that"
    assert under(200.0, note="two rails of four are off, OPS-7")["verdict"] == "PASS"
    assert under(340.0, value=350.0)["verdict"] == "PASS" and under(100.0)["verdict"] == "FAIL"


def test_a_latency_above_its_expectation_fails() -> None:
    latency = {
        "id": "lat", "match": {"stage": "own"}, "metric": "latency", "value": 2.0, "unit": "us", "source": "s",
        "date": "2026-11", "confidence": "measured",
    }  # fmt: skip
    own = resolve([("run", [latency])])
    for value, word in ((1.9, "PASS"), (2.1, "PASS"), (2.15, "WARN"), (2.3, "FAIL"), (0, "UNKNOWN"), (-1, "UNKNOWN")):
        seen = record(stage="own", check="ping", metrics={"latency": {"value": value, "unit": "us"}})
        found = one(seen, item=item(stage="own", check="ping"), expected=lambda _node, _target: own)
        assert found["verdict"] == word, value
        assert value <= 0 or found["floor"] == pytest.approx(2 / 0.95)


@pytest.mark.parametrize(("value", "word"), [(1.6, "PASS"), (1.68, "PASS"), (1.75, "WARN"), (1.9, "FAIL"), (2.0, "FAIL")])
def test_the_bands_of_a_small_number_are_as_narrow(value: float, word: str) -> None:
    latency = {
        "id": "lat", "match": {"stage": "own"}, "metric": "latency", "value": 1.6e-6, "unit": "s", "source": "s",
        "date": "2026-11", "confidence": "measured",
    }  # fmt: skip
    own = resolve([("run", [latency])])
    seen = record(stage="own", check="ping", metrics={"latency": {"value": value, "unit": "us"}})
    assert one(seen, item=item(stage="own", check="ping"), expected=lambda _node, _target: own)["verdict"] == word


def test_a_count_of_zero_errors_passes_a_limit_on_errors() -> None:
    errors = {
        "id": "errors", "match": {"stage": "own"}, "metric": "errors", "value": 3, "unit": "count", "better": "lower", "source": "s",
        "date": "2026-11", "confidence": "vendor",
    }  # fmt: skip
    own = resolve([("run", [errors])])
    for value, word in ((0, "PASS"), (3, "PASS"), (4, "FAIL"), (-1, "UNKNOWN")):
        seen = record(stage="own", check="ping", metrics={"errors": {"value": value, "unit": "count"}})
        assert one(seen, item=item(stage="own", check="ping"), expected=lambda _node, _target: own)["verdict"] == word, value


def test_units_are_converted_or_refused() -> None:
    def unit(name: str, value: float) -> Record:
        seen = nccl(busbw=value)
        seen["context"] = {**NCCL, "series_units": {"busbw": name}}
        seen["metrics"]["busbw"]["unit"] = name
        return one(seen)

    assert unit("Gb/s", 8 * 354.0)["verdict"] == "PASS"
    assert unit("Gb/s", 354.0)["verdict"] == "FAIL"
    assert unit("MiB/s", 354e9 / (1 << 20))["value"] == pytest.approx(354)
    assert unit("TFLOPS", 354.0)["reason_code"] == "bad_measurement"
    assert unit("furlongs", 354.0)["verdict"] == "UNKNOWN"


def test_an_expectation_holds_for_its_own_size() -> None:
    plateau = one(nccl(busbw=354.0, size=16 * GIB))
    assert plateau["expectation"] == "h200-4-all_reduce-plateau" and plateau["verdict"] == "PASS"
    small = one(nccl(busbw=0.1, size=1024))
    assert (small["verdict"], small["reason_code"]) == ("UNKNOWN", "no_expectation")
    assert "1 KiB" in small["reason"] and "correctness" in small["reason"]
    assert one(nccl(size=4 * GIB))["verdict"] == "UNKNOWN"


def test_of_several_sizes_the_worst_decides_and_is_named() -> None:
    both = nccl()
    both["series"] = [{"size": GIB, "busbw": 330.0}, {"size": 16 * GIB, "busbw": 367.0}]
    found = one(both)
    assert found["verdict"] == "WARN" and "1 GiB" in found["reason"]
    both["series"][1]["busbw"] = None
    assert one(both)["reason_code"] == "bad_measurement"


def test_no_expectation_says_what_to_do() -> None:
    found = one(nccl(context={**NCCL, "gpu": "NVIDIA X1"}))
    assert (found["verdict"], found["reason_code"], found["value"]) == ("UNKNOWN", "no_expectation", 354)
    assert "4 x NVIDIA X1" in found["reason"] and "acceptance_expectations" in found["reason"]
    assert "gpufleet.acceptance.baseline" in found["reason"]


def test_a_verdict_names_the_layer_that_set_its_floor() -> None:
    own = resolve([("host", {"h200-4-all_reduce-1g": {"value": 300}})])
    found = one(nccl(busbw=290.0), expected=lambda _node, _target: own)
    assert (found["verdict"], found["layer"], found["floor"]) == ("PASS", "host", 285)


# What is never a PASS ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(reasons.ALL))
@pytest.mark.parametrize("outcome", ["error", "timeout", "missing", "not_applicable"])
def test_outcomes(code: str, outcome: str) -> None:
    stated = {"n1": {"mig": "allowed", "gpu_count": 0 if code == "no_gpu_expected" else None}}
    found = one(failed("n1", code, outcome), stated=stated)
    wanted = "UNKNOWN"
    if outcome == "error" and code in ("wrong_results", "not_trained", "gpu_lost", "ecc", "diagnostic_failed"):
        wanted = "FAIL"
    rules = (
        "single_gpu", "one_gpu", "one_port", "one_numa_node", "mig_enabled", "no_gpu_expected", "no_rdma_expected",
        "no_reliable_connection", "no_other_test", "not_visible", "no_mnnvl",
    )  # fmt: skip
    if outcome == "not_applicable" and (code in rules or code.startswith("sharing_")):
        wanted = "SKIPPED"
    if outcome == "not_applicable" and code == "mig_partly":
        wanted = "WARN"
    assert found["verdict"] == wanted and found["reason_code"] == code
    # Numbers that come with an error count for nothing.
    numbers = {**nccl(context={}), **{k: failed("n1", code, outcome)[k] for k in ("outcome", "reason_code", "reason")}}
    assert one(numbers, stated=stated)["verdict"] == wanted


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "354", None, [354]])
def test_a_value_that_is_no_finite_number_is_unknown(value: t.Any) -> None:
    assert one(nccl(busbw=value))["verdict"] == "UNKNOWN"
    row = nccl()
    row["series"][0]["busbw"] = value
    assert one(row)["verdict"] == "UNKNOWN"


@pytest.mark.parametrize("stage", ["stack", "nccl_node", "gemm", "rdma", "nccl_fabric", "hccl", "own"])
def test_a_measurement_without_numbers(stage: str) -> None:
    found = one(record(stage=stage, check="x"), item=item(stage=stage, check="x"))
    assert (found["verdict"], found["reason_code"]) == ("UNKNOWN", "no_number")
    assert ("rdma-25g (shipped) expects bandwidth" if stage == "rdma" else "{condition: true}") in found["reason"]


def test_a_check_that_has_no_number_passes_by_being_done() -> None:
    assert one(record(stage="stack", check="cuda"), item=item(stage="stack", check="cuda"))["verdict"] == "PASS"
    own = record(stage="own", check="x", context={"condition": True})
    assert one(own, item=item(stage="own", check="x"))["verdict"] == "PASS"
    for said in (False, "yes", 1):
        assert one({**own, "context": {"condition": said}}, item=item(stage="own", check="x"))["verdict"] == "UNKNOWN"


@pytest.mark.parametrize("match", [{"check": "x"}, {}, {"check": ["x", "y"]}, {"check": "x", "gpu": "NVIDIA H200"}, {"size": 1}])
def test_what_is_expected_to_have_a_number_is_no_condition(match: Record) -> None:
    entry: Record = {"id": "e", "match": {"stage": "own", **match}, "metric": "bandwidth", "value": 2, "unit": "GB/s"}
    own = resolve([("run", [{**entry, "source": "s", "date": "2026-11", "confidence": "vendor"}])])
    options: Record = {"item": item(stage="own", check="x"), "expected": lambda _node, _target: own}
    done = record(stage="own", check="x", context={"condition": True})
    found = one(done, **options)
    assert (found["verdict"], found["reason_code"]) == ("UNKNOWN", "no_number") and "e (run) expects bandwidth" in found["reason"]
    options["item"] = item(stage="own", check="z")
    assert one({**done, "check": "z"}, **options)["verdict"] == ("PASS" if "check" in match else "UNKNOWN")
    image = {**done, "check": "image"}
    found_beside = judge([item(stage="own", check="z")], [{**done, "check": "z"}, image], expected=options["expected"])
    assert [v["verdict"] for v in found_beside.extras] == ["PASS"], "nobody planned a number of it"


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "measurement/v2"}, {"outcome": "fine"}, {"attempt": 0}, {"attempt": True}, {"extra": 1},
        {"metrics": {"busbw": 354}}, {"metrics": {"busbw": {"value": "354", "unit": "GB/s"}}}, {"series": {}},
        {"run_id": "20261121T000000Z-ffffff"}, {"reason_code": "unheard_of", "outcome": "error", "reason": "x"},
        {"reason_code": "ecc"}, {"duration_s": -1}, {"started_at": "now"}, {"simulated": 0}, {"context": None},
        {"evidence": []}, {"raw_sha256": "0"}, {"command": "x"}, {"plane": "Mars Base"}, {"target": ""},
    ],
)  # fmt: skip
def test_a_record_that_breaks_its_schema_is_unknown(change: Record) -> None:
    found = one({**nccl(), **change})
    assert (found["verdict"], found["reason_code"]) == ("UNKNOWN", "bad_measurement")


@pytest.mark.parametrize("junk", [None, 3, "x", [], {}, {"subject": {}}, {"subject": {"id": "n1"}, "stage": 3}])
def test_a_journal_line_that_is_no_record_is_noted_and_measures_nothing(junk: t.Any) -> None:
    found = judge([item()], [junk, nccl()])
    assert found.accepted and found.notes
    assert judge([item()], [junk]).planned[0]["reason_code"] == "not_run"


def test_planned_and_never_measured() -> None:
    found = judge([item("n1"), item("n2")], [nccl("n1")])
    assert [v["verdict"] for v in found.planned] == ["PASS", "UNKNOWN"]
    assert found.planned[1]["reason_code"] == "not_run"
    assert not found.accepted and found.coverage["measured"] == 1 and found.coverage["ratio"] == 0.5


def test_promised_members_must_be_there() -> None:
    whole = gemm("n1", 700.0, members=["n1/gpu/A", "n1/gpu/B"])
    planned = item(stage="gemm", check="bf16")
    assert one(whole, gemm("n1/gpu/A", 700.0), item=planned)["reason_code"] == "incomplete"
    assert one(whole, gemm("n1/gpu/A", 700.0), gemm("n1/gpu/B", 700.0), item=planned)["verdict"] == "PASS"
    lost = failed("n1/gpu/B", "gpu_lost", stage="gemm", check="bf16")
    found = one(whole, gemm("n1/gpu/A", 700.0), lost, item=planned)
    assert (found["verdict"], found["reason_code"]) == ("FAIL", "gpu_lost") and "n1/gpu/B" in found["reason"]
    promised = item(stage="gemm", check="bf16", members=["n1/gpu/C"])
    assert one(gemm("n1", 700.0), item=promised)["reason_code"] == "incomplete"


@pytest.mark.parametrize(("cause", "code"), [("disk_full", "disk_full"), ("interrupted", "interrupted"), ("tool_failed", "incomplete")])
def test_missing_parts_have_the_word_of_what_ended_the_stage(cause: str, code: str) -> None:
    whole = gemm("n1", 700.0, members=["n1/gpu/A", "n1/gpu/B"])
    other = failed("n1", cause, stage="gemm", check="fp8")
    planned = [item(stage="gemm", check="bf16"), item(stage="gemm", check="fp8")]
    found = judge(planned, [whole, gemm("n1/gpu/A", 700.0), other]).planned
    assert [v["reason_code"] for v in found] == [code, cause] and found[0]["verdict"] == "UNKNOWN"


def test_parts_without_their_node_are_no_pass() -> None:
    found = one(gemm("n1/gpu/A", 700.0), item=item(stage="gemm", check="bf16"))
    assert found["reason_code"] == "not_run"


# Neighbours and siblings ---------------------------------------------------------------------------------------------


def fleet(odd: float, others: int = 6, healthy: float = 380.0, **fields: t.Any) -> Record:
    records = [nccl(f"n{i}", healthy + 0.1 * i) for i in range(others)] + [nccl("odd", odd, **fields)]
    return judge([item("odd")], records).planned[0]


def test_far_below_identical_neighbours() -> None:
    found = fleet(340.5)  # passes its expectation (336.3), 0.896 of the median
    assert (found["verdict"], found["reason_code"], found["layer"]) == ("FAIL", "below_neighbours", "fleet")
    assert fleet(355.0)["verdict"] == "WARN"  # 0.934 of the median, z far below -3.5
    assert fleet(365.0)["verdict"] == "PASS"
    assert fleet(340.5, others=4)["verdict"] == "PASS", "four neighbours are too few"
    assert fleet(340.5, others=5)["verdict"] == "FAIL"
    ring = fleet(340.5, context={**NCCL, "algorithm": "ring"})
    assert (ring["verdict"], ring["reason_code"]) == ("WARN", "settings_differ"), "configured otherwise: not compared, and said"


def test_a_wide_fleet_is_no_reason_to_warn() -> None:
    records = [nccl(f"n{i}", 340.0 + 10 * i) for i in range(9)] + [nccl("odd", 355.0)]
    assert judge([item("odd")], records).planned[0]["verdict"] == "PASS"


@pytest.mark.parametrize("scatter", [0.04, 0.06])
def test_a_healthy_fleet_that_scatters_fails_nobody(scatter: float) -> None:
    """Beside a share of the median it takes more than the neighbours scatter: 10 % under it lies within that."""
    words = []
    for count, seed in itertools.product((6, 8, 12, 28), range(60)):
        rng = random.Random(f"{count} {seed}")
        values = [100 * (1 + rng.gauss(0, scatter)) for _unused in range(count)]
        centre = bands.centre(values)
        assert centre
        words += [word for value in values for word in [bands.against_neighbours(value, centre, "higher")] if word]
    assert words in ([], ["WARN"])  # of 240 fleets


def test_one_of_a_tight_fleet_is_not_accepted_by_its_majority() -> None:
    for count in (5, 11, 40):
        records = [nccl(f"n{i}", 380 + 2.0 * (i % 5)) for i in range(count)] + [nccl("odd", 0.85 * 384)]
        found = judge([item(r["subject"]["id"]) for r in records], records)
        assert [v["subject"]["id"] for v in found.planned if v["verdict"] != "PASS"] == ["odd"]
        assert {v["verdict"] for v in found.planned} == {"PASS", "FAIL"}


def latencies(far: int = 0, scatter: float = 0.01, seed: int = 0, slow: float = 0.0, path: float = 0.0) -> dict[str, Record]:
    """Latencies of all pairs of 8 nodes, of which the last `far` are on another leaf; `slow` is added to n0's, `path` to n1|n2."""
    rng = random.Random(seed)
    records = {}
    for a, b in itertools.combinations(range(8), 2):
        value = (1.9 + 0.7 * (a < 8 - far <= b) + slow * (a == 0) + path * ((a, b) == (1, 2))) * (1 + rng.gauss(0, scatter))
        context = {"op": "send", "nic_gbps": 400.0, "series_units": {"latency": "us"}}
        fields = {"metrics": {"latency": {"value": value, "unit": "us"}}, "series": [{"size": 2, "latency": value}], "context": context}
        found = record(f"n{a}|n{b}", "rdma", "send_lat", **fields)
        found["subject"]["kind"] = "pair"
        records[found["subject"]["id"]] = found
    return records


def of_latencies(records: dict[str, Record], **options: t.Any) -> dict[str, str]:
    items = [item(stage="rdma", check="send_lat") | {"subject": found["subject"]} for found in records.values()]
    return {v["subject"]["id"]: v["verdict"] for v in judge(items, list(records.values()), **options).planned}


@pytest.mark.parametrize("far", [0, 1, 2, 4])
@pytest.mark.parametrize("scatter", [0.01, 0.04, 0.06])
def test_latencies_of_a_healthy_fabric_of_two_leaves_are_not_rejected(far: int, scatter: float) -> None:
    for seed in range(30):
        found = of_latencies(latencies(far, scatter, seed))
        assert "FAIL" not in found.values()
        # A node alone on its leaf is not told from a slow port, which is said.
        assert sum(word == "WARN" for word in found.values()) == {1: 7}.get(far, 0) or scatter > 0.01


@pytest.mark.parametrize("far", [0, 1, 2, 4])
def test_a_node_whose_latencies_are_all_high_fails_only_if_its_leaf_is_known(far: int) -> None:
    leaf = {f"n{i}": "b" if i >= 8 - far else "a" for i in range(8)}
    for slow in (0.3 * 1.9, 1.0):
        for known in (None, leaf):
            found = of_latencies(latencies(far, slow=slow), leaf=known)
            assert {word for pair, word in found.items() if "n0" in pair} == {"FAIL" if known else "WARN"}
            assert all(word == "PASS" or "n7" in pair for pair, word in found.items() if "n0" not in pair)
        found = of_latencies(latencies(far, path=slow), leaf=leaf)
        assert {pair: word for pair, word in found.items() if word != "PASS"} == {"n1|n2": "WARN"}
    assert {of_latencies(latencies(far, slow=9.0), leaf=known)["n0|n1"] for known in (None, leaf)} == {"FAIL"}, "an absolute bound"


@pytest.mark.parametrize("name", ["busbw", "tflops", "bandwidth", "latency"])
@pytest.mark.parametrize("more", [{}, {"algbw": {"value": 7.0, "unit": "GB/s"}, "errors": {"value": 0, "unit": "count"}}])
def test_without_an_expectation_a_low_node_fails_by_its_neighbours_and_the_others_are_unknown(name: str, more: Record) -> None:
    """By the number that stands for the check, whatever else was measured beside it."""
    unit, bad = {"busbw": ("GB/s", 50.0), "tflops": ("TFLOPS", 50.0), "bandwidth": ("GB/s", 50.0), "latency": ("us", 200.0)}[name]

    def measured(subject: str, value: float) -> Record:
        return record(subject, context={"gpu": "NVIDIA X1", "gpus": 4}, metrics={**more, name: {"value": value, "unit": unit}})

    records = [*(measured(f"n{i}", 100.0) for i in range(6)), measured("odd", bad)]
    found = judge([item("odd"), item("n1")], records).planned
    assert [(v["verdict"], v["reason_code"]) for v in found] == [
        ("FAIL", "below_neighbours"), ("UNKNOWN", "no_expectation")
    ]  # fmt: skip


def trained(subject: str, tflops: float, **fields: t.Any) -> Record:
    return {**gemm(subject, tflops, **fields), "stage": "train", "check": "train"}


def test_a_quick_test_compares_numbers_without_an_expectation_with_those_of_siblings() -> None:
    planned = item(stage="train", check="train")
    parts = [trained(f"n1/gpu/{i}", 350.0) for i in range(3)]
    found = one(trained("n1", 350.0), *parts, item=planned, mode="quick")
    assert (found["verdict"], found["reason_code"], found["value"]) == ("PASS", None, 350.0)
    assert one(trained("n1", 300.0), *parts, trained("n1/gpu/3", 300.0), item=planned, mode="quick")["reason_code"] == "below_siblings"
    other = {**gemm("n1", 350.0, context={"gpu": "NVIDIA X1", "gpus": 4}), "stage": "other", "check": "train"}
    unknown = one(other, item=item(stage="other", check="train"), mode="quick")  # no stage says that it is a condition
    assert unknown["reason_code"] == "no_expectation"


def test_a_whole_training_needs_an_expectation_and_a_quick_test_names_what_it_lacks() -> None:
    planned = item(stage="train", check="train")
    whole = judge([planned], [trained("n1", 10.0)])
    assert (whole.planned[0]["verdict"], whole.planned[0]["reason_code"]) == ("UNKNOWN", "no_expectation") and not whole.passed
    quick = judge([planned], [trained("n1", 10.0)], mode="quick")
    assert quick.passed and not quick.accepted
    assert quick.speed_not_proven == ["the speed of train train on NVIDIA H200 (no expectation is known)"]


def computed(tflops: float, shape: str = "8192x8192x8192", dtype: str = "bf16", name: str = "NVIDIA H200") -> Record:
    context = {"gpu": name, "gpus": 8, "shape": shape, "type": dtype, "backend": "torch", "mode": "together"}
    return {**gemm("n1", tflops, context=context), "stage": "train", "check": "compute"}


@pytest.mark.parametrize(
    ("record", "mode", "word", "expectation"),
    [
        (computed(690.0), "run", "PASS", "h200-gemm-bf16"),
        (computed(335.0), "run", "FAIL", "h200-gemm-bf16"),
        (computed(325.0, dtype="fp16"), "run", "FAIL", "h200-gemm-fp16"),
        (computed(10.0, name="NVIDIA X1"), "run", "UNKNOWN", None),
        (computed(690.0, "4096x4096x4096"), "quick", "PASS", "h200-train-compute-bf16-4096"),
        (computed(2.4, "4096x4096x4096"), "quick", "FAIL", "h200-train-compute-bf16-4096"),
        (computed(360.0, "4096x4096x4096", name="NVIDIA H100 80GB HBM3"), "quick", "FAIL", "h100-train-compute-bf16-4096"),
    ],
)
def test_the_products_of_a_training_are_held_to_those_of_gemm(record: Record, mode: str, word: str, expectation: str | None) -> None:
    found = one(record, item=item(stage="train", check="compute"), mode=mode)
    assert (found["verdict"], found["expectation"]) == (word, expectation)


def fingerprinted(node: str, bits: str, mode: str = "together", **context: t.Any) -> Record:
    about = {
        "gpu": "NVIDIA H200", "gpus": 8, "shape": "4096x2048", "steps": 60, "fingerprint": bits, "driver": "580.159.04",
        "library": "torch 2.11.0, CUDA 13.0, cuBLAS", "host_cpu": "EPYC 9654", "seed": 1, **context,
    }  # fmt: skip
    return {**trained(f"{node}/gpu/GPU-{node}", 248.0, context=about), "variant": f"mode={mode} steps=60"}


def bits_of_nodes(*records: Record) -> dict[str, tuple[str, str | None]]:
    items = [{**item(r["target"], "train", "train"), "variant": r["variant"]} for r in records]
    nodes = [{**trained(r["target"], 248.0, context={**r["context"], "fingerprint": None}), "variant": r["variant"]} for r in records]
    found = verdict.judge(plan_of(*items), [*nodes, *records], lambda _n, _t: SHIPPED, stages=registry.shipped().values(), today=TODAY)
    return {v["subject"]["id"]: (v["verdict"], v["reason_code"]) for v in found.verdicts if "/gpu/" not in v["subject"]["id"]}


def test_bits_are_compared_across_nodes() -> None:
    nine = [fingerprinted(f"n{i}", "X") for i in range(9)]
    found = bits_of_nodes(*nine, fingerprinted("odd", "Y"))
    assert found.pop("odd") == ("FAIL", "wrong_results") and set(found.values()) == {("PASS", None)}
    assert set(bits_of_nodes(fingerprinted("a", "X"), fingerprinted("b", "Y")).values()) == {("UNKNOWN", "unresolved")}
    assert bits_of_nodes(fingerprinted("a", "X", "alone"), fingerprinted("a", "Y"))["a"] == ("UNKNOWN", "unresolved")


@pytest.mark.parametrize(
    "other", [{"library": "torch 2.10.0"}, {"host_cpu": "Xeon 8480"}, {"driver": "570.86"}, {"seed": 2}, {"gpu": "H20"}]
)
def test_bits_of_other_software_or_other_work_are_not_compared(other: Record) -> None:
    found = bits_of_nodes(*(fingerprinted(f"n{i}", "X") for i in range(3)), fingerprinted("other", "Y", **other))
    assert ("FAIL", "wrong_results") not in found.values() and ("UNKNOWN", "unresolved") not in found.values()


def test_an_expectation_of_a_condition_binds() -> None:
    floor = {
        "id": "ours", "match": {"stage": "train", "check": "train"}, "metric": "tflops", "value": 400, "unit": "TFLOPS", "source": "us",
        "date": "2026-11", "confidence": "measured",
    }  # fmt: skip
    own = resolve([("run", [floor])])
    assert one(trained("n1", 350.0), item=item(stage="train", check="train"), expected=lambda _n, _t: own)["reason_code"] == "below_floor"


def test_siblings_in_a_node() -> None:
    def slow(value: float, gpus: int = 4) -> Record:
        names = [f"n1/gpu/{i}" for i in range(gpus)]
        values = [720.0] * (gpus - 1) + [value]
        parts = [gemm(n, v) for n, v in zip(names, values, strict=True)]
        return one(gemm("n1", min(values), members=names), *parts, item=item(stage="gemm", check="bf16"))

    assert slow(718.0)["verdict"] == "PASS"
    found = slow(680.0)
    assert (found["verdict"], found["reason_code"]) == ("WARN", "below_siblings") and "n1/gpu/3" in found["reason"]
    assert slow(640.0)["verdict"] == "FAIL"
    assert slow(680.0, gpus=2)["verdict"] == "PASS", "one sibling does not say which of the two is wrong"


# Attempts and evidence -----------------------------------------------------------------------------------------------


def test_a_later_attempt_is_at_best_a_warning() -> None:
    again = nccl(attempt=2)
    for before in (failed("n1", "timeout", "timeout"), nccl(busbw=100.0), failed("n1", "bad_output"), nccl()):
        found = one(before, again)
        assert (found["verdict"], found["reason_code"]) == ("WARN", "later_attempt")
    assert one(again)["verdict"] == "WARN"
    assert one(nccl(), nccl())["verdict"] == "WARN", "twice the same attempt"
    assert one(nccl(busbw=100.0), nccl(busbw=100.0, attempt=2))["verdict"] == "FAIL"
    assert one(nccl(), nccl(busbw=100.0, attempt=2))["verdict"] == "FAIL", "the last measured one counts"
    assert one(again, nccl(busbw=100.0))["verdict"] == "WARN", "by attempt, not by order in the journal"
    assert one(nccl(), failed("n1", "wrong_results", attempt=2))["verdict"] == "FAIL"
    assert one(nccl(), failed("n1", "timeout", "timeout", attempt=2))["verdict"] == "WARN"


ECC = {"changes": [{"code": "ecc", "part": "gpu/A", "text": "GPU 0: ecc rose from 0 to 2", "before": 0, "after": 2}]}


@pytest.mark.parametrize(
    ("before", "code"),
    [
        (failed("n1", "wrong_results"), "wrong_results"),
        (failed("n1", "gpu_lost"), "gpu_lost"),
        (failed("n1", "ecc"), "ecc"),
        (nccl(evidence=ECC), "ecc"),
        (failed("n1", "timeout", "timeout", evidence=ECC), "ecc"),
        (nccl(context={**NCCL, "findings": [{"code": "gpu_lost", "text": "GPU 3 is gone"}]}), "gpu_lost"),
    ],
)
def test_what_is_fatal_is_not_washed_by_another_attempt(before: Record, code: str) -> None:
    again = nccl(attempt=2)
    skipped = failed("n1", "no_gpu_expected", "not_applicable", attempt=2)
    for records in ([before, again], [again, before], [before, skipped], [nccl(), {**before, "attempt": 2}], [before, nccl()]):
        found = judge([item()], records)
        assert (found.planned[0]["verdict"], found.planned[0]["reason_code"]) == ("FAIL", code) and not found.accepted
    assert "on attempt 1, which no other takes back" in one(before, again)["reason"]


def test_a_fatal_code_of_a_gpu_stays_fail_after_a_later_attempt_that_passes() -> None:
    planned = item(stage="gemm", check="bf16")
    whole = [gemm("n1", 700.0, members=["n1/gpu/A"], attempt=n) for n in (1, 2)]
    lost = failed("n1/gpu/A", "gpu_lost", stage="gemm", check="bf16")
    found = one(*whole, lost, gemm("n1/gpu/A", 700.0, attempt=2), item=planned)
    assert (found["verdict"], found["reason_code"]) == ("FAIL", "gpu_lost") and "n1/gpu/A" in found["reason"]
    gone = one(lost, gemm("n1", 700.0, members=["n1/gpu/B"], attempt=2), gemm("n1/gpu/B", 700.0, attempt=2), item=planned)
    assert gone["reason_code"] == "gpu_lost", "a second attempt without the GPU is no better"


def test_of_attempts_with_one_number_the_worst_counts() -> None:
    for records in ([nccl(), nccl(busbw=100.0)], [nccl(busbw=100.0), nccl()]):
        assert (one(*records)["verdict"], one(*records)["value"]) == ("FAIL", 100.0)


def test_the_order_of_the_journal_decides_nothing() -> None:
    """All that one run can hold of the stages on nodes and their groups: parts, attempts, attempts with one number, drift whose
    majority is a tie, neighbours, siblings, one machine under two names, refused records."""
    items, records = [], []
    for n in range(8):
        node, parts = f"n{n}", [f"n{n}/gpu/{g}" for g in range(4)]
        records += [nccl(node, 354.0 - 8 * n, context={**NCCL, "machine_id": f"m{min(n, 6)}"}) for _same in range(1 + n % 2)]
        values = [700.0 - 20 * g * (n == 3) for g in range(4)]
        records += [gemm(node, min(values), members=parts), *(gemm(p, v) for p, v in zip(parts, values, strict=True))]
        facts = {"driver": str(n % 2), "kernel": str(n % 3), "pip.x": str(n == 4)}
        records.append(record(node, "stack", "facts", context={"gpu": "NVIDIA H200", "facts": facts}))
        items += [item(node), item(node, "gemm", "bf16"), item(node, "stack", "facts")]
    records += [
        failed("n1", "wrong_results"), failed("n1", "timeout", "timeout"), nccl("n2", attempt=2), nccl("n2", 340.0, attempt=2),
        failed("n2/gpu/1", "ecc", stage="gemm", check="bf16"), gemm("n2/gpu/1", 650.0), nccl("n5", evidence=ECC), nccl("n5", attempt=3),
        nccl("n6", "x"), {**nccl("n7"), "attempt": 0}, failed("n4", "single_gpu", "not_applicable", attempt=2), nccl("beside", 10.0),
        nccl("n0", context={**NCCL, "findings": [{"code": "pcie_width", "text": "narrow"}]}),
        record("grp", "nccl_fabric", "all_reduce") | {"subject": {"kind": "group", "id": "grp", "members": ["n0", "n1"]}},
    ]  # fmt: skip
    waiver = {"subject": "n1", "ticket": "T-1", "expires": "2026-12-01"}

    def judged() -> list[t.Any]:
        found = judge(items, records, waivers=[waiver])
        return [found.verdicts, found.planned, found.why, found.nodes, found.counts, found.drift, sorted(found.notes), found.coverage]

    first = judged()
    assert {v["verdict"] for v in first[0]} >= {"FAIL", "UNKNOWN", "WARN", "PASS"}
    dice = random.Random(9)
    for _shuffle in range(100):
        dice.shuffle(records)
        assert judged() == first


def test_best_of_five_does_not_hide_a_flapping_link() -> None:
    tries = [nccl(busbw=v, attempt=i) for i, v in enumerate((100.0, 200.0, 300.0, 50.0, 354.0), 1)]
    assert one(*tries)["verdict"] == "WARN"


def test_errors_during_the_test() -> None:
    xid = {"changes": [{"code": "xid", "part": "gpu/A", "text": "Xid 63 on GPU 2", "before": 0, "after": 1}]}
    found = one(nccl(evidence=xid))
    assert (found["verdict"], found["reason_code"]) == ("WARN", "evidence") and "Xid 63" in found["reason"]
    assert one(nccl(busbw=100.0, evidence=xid))["verdict"] == "FAIL"
    fatal = {"changes": [{"code": "ecc", "text": "2 new"}]}
    assert one(nccl(evidence=fatal))["reason_code"] == "ecc"
    assert one(nccl(evidence={"changes": "x"}))["verdict"] == "WARN"
    blind = nccl(evidence={"unreadable": ["xid"], "changes": []})
    assert one(blind)["verdict"] == "PASS" and "xid" in str(one(blind)["findings"])


def test_evidence_that_a_stage_requires() -> None:
    def judged(evidence: Record, required: t.Any = ("xid",), **fields: t.Any) -> tuple[str, str | None]:
        found = one(nccl(evidence=evidence, **fields), required={"n1": {"nccl_node": list(required), "gemm": ["ecc"]}})
        return found["verdict"], found["reason_code"]

    read = {"window": {}, "changes": [], "unreadable": ["nvlink_error"]}
    assert judged(read) == ("PASS", None) and judged(read, ["nvlink_error"]) == ("UNKNOWN", "evidence_unreadable")
    assert judged({**read, "unreadable": ["xid"]}) == ("UNKNOWN", "evidence_unreadable")
    # Nobody looked, or nobody can tell: silence is no evidence.
    for silent in ({}, {"changes": [], "unreadable": []}, {**read, "changes": "x"}, {**read, "unreadable": None}):
        assert judged(silent) == ("UNKNOWN", "evidence_unreadable"), silent
    assert judged({**read, "unreadable": ["xid"]}, busbw=100.0)[0] == "FAIL"
    assert judged({**read, "unreadable": ["xid"]}, ()) == ("PASS", None)


def test_a_finding_of_a_health_check_has_the_verdict_of_its_code() -> None:
    planned = item(stage="stack", check="gpu_health")

    def with_finding(code: str) -> Record:
        context = {"findings": [{"code": code, "text": "something"}]}
        return one(record(stage="stack", check="gpu_health", context=context), item=planned)

    assert with_finding("pcie_width")["verdict"] == "FAIL"
    assert with_finding("unheard_of")["reason_code"] == "health"
    assert with_finding("foreign_process")["verdict"] == "WARN"


# Identity, stack -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", [{"gpu_uuids": ["GPU-1"]}, {"machine_id": "abc"}])
def test_one_machine_under_two_names(identity: Record) -> None:
    records = [nccl(n, context={**NCCL, **identity}) for n in ("n1", "n2")] + [nccl("n3")]
    found = judge([item("n1"), item("n2"), item("n3")], records)
    assert [v["reason_code"] for v in found.planned] == ["duplicate_identity", "duplicate_identity", None]
    records[0] = nccl("n1", 1.0, context={**NCCL, **identity})
    pardon = [{"subject": "n1", "ticket": "T-1", "expires": "2027-01-01"}]
    assert judge([item("n1")], records, waivers=pardon).planned[0]["verdict"] == "UNKNOWN"
    twice = [nccl("n1", context={**NCCL, **identity}, attempt=attempt) for attempt in (1, 2)]
    same = judge([item("n1")], twice, stack={"n1": {"ignore": ["gpu_count"]}})
    assert same.planned[0]["verdict"] == "WARN", "the same node twice is no second machine"


def stack_of(drivers: dict[str, str], **options: t.Any) -> dict[str, str]:
    records = [
        record(n, "stack", "facts", context={"gpu": "NVIDIA H200", "facts": {"driver": d, "pip.x": d}})
        for n, d in drivers.items()
    ]
    found = judge([item(n, "stack", "facts") for n in drivers], records, **options)
    words = {node["name"]: node["verdict"] for node in found.nodes}
    assert set(found.drift) == {n for n, w in words.items() if w != "PASS"}
    return words


def test_drift_by_majority_and_by_golden_values() -> None:
    drivers = {"n1": "580", "n2": "580", "n3": "580", "n4": "570"}
    assert stack_of(drivers) == {"n1": "PASS", "n2": "PASS", "n3": "PASS", "n4": "FAIL"}
    mild = {n: {"drift": {"driver": "warn"}} for n in drivers}
    assert stack_of(drivers, stack=mild)["n4"] == "WARN"
    none = {n: {"ignore": ["driver", "pip.*"]} for n in drivers}
    assert set(stack_of(drivers, stack=none).values()) == {"PASS"}
    golden = {n: {"golden": {"driver": "570"}, "ignore": ["pip.*"]} for n in drivers}
    assert stack_of(drivers, stack=golden) == {"n1": "FAIL", "n2": "FAIL", "n3": "FAIL", "n4": "PASS"}


def test_a_node_that_is_alone_with_its_rules_is_compared_with_the_others() -> None:
    drivers = {"n1": "580", "n2": "580", "n3": "580", "n4": "570"}
    for rules in ({"ignore": ["kernel"]}, {"drift": {"kernel": "warn"}}):
        assert stack_of(drivers, stack={"n4": rules}) == {"n1": "PASS", "n2": "PASS", "n3": "PASS", "n4": "WARN"}
    meant = {"n4": {"ignore": ["driver", "pip.*"]}}
    assert set(stack_of(drivers, stack=meant).values()) == {"PASS"}
    assert set(stack_of(dict.fromkeys(drivers, "580"), stack={"n4": {"ignore": ["kernel"]}}).values()) == {"PASS"}
    own = {node: {"ignore": [f"x{node}"]} for node in drivers}
    assert stack_of(drivers, stack=own) == {"n1": "PASS", "n2": "PASS", "n3": "PASS", "n4": "WARN"}, "each has its own"


DELL = {
    "machine_vendor": "Dell Inc.", "machine_product": "PowerEdge XE9680", "bios_version": "2.4", "vbios": ["96.00.D0"],
    "nic_firmware_DEL1": ["28"],
}  # fmt: skip
SMC = {
    "machine_vendor": "Supermicro", "machine_product": "SYS-821GE", "bios_version": "3.1", "vbios": ["96.00.A5"],
    "nic_firmware_SMC1": ["28"],
}  # fmt: skip


def of_facts(nodes: dict[str, Record], planes: dict[str, str] | None = None, **options: t.Any) -> verdict.Judgement:
    """Judge a fleet of H200 by the facts of its nodes; `planes` says which nodes are not behind SSH."""
    records = [
        record(n, "stack", "facts", plane=(planes or {}).get(n, "ssh"), context={"gpu": "NVIDIA H200", "facts": facts})
        for n, facts in nodes.items()
    ]
    return judge([item(n, "stack", "facts") for n in nodes], records, **options)


def words_of(found: verdict.Judgement) -> dict[str, str]:
    return {node["name"]: node["verdict"] for node in found.nodes}


def test_machines_of_several_vendors_are_each_held_to_their_own_bios() -> None:
    same = {"driver": "580", "kernel": "6.8"}
    mixed = {f"s{n}": {**SMC, **same} for n in range(10)} | {f"d{n}": {**DELL, **same} for n in range(3)}
    assert set(words_of(of_facts(mixed)).values()) == {"PASS"}
    # A deviation within a product, and one of what all have alike, is found as before.
    other_bios = {**mixed, "d1": {**mixed["d1"], "bios_version": "1.0"}}
    assert words_of(of_facts(other_bios)) == {n: "FAIL" if n == "d1" else "PASS" for n in mixed}
    other_driver = {**mixed, "d2": {**mixed["d2"], "driver": "570"}}
    assert words_of(of_facts(other_driver)) == {n: "FAIL" if n == "d2" else "PASS" for n in mixed}
    old = {**mixed, "d0": {**mixed["d0"], "bios_version": "0"}}
    assert words_of(of_facts(old, stack={"d0": {"golden": {"bios_version": "2.4"}}}))["d0"] == "FAIL"


def test_a_product_that_stands_alone_is_a_warn() -> None:
    """Nobody can say whether its BIOS is as it should be; its driver is still held to that of the others."""
    nodes = {f"s{n}": {**SMC, "driver": "580"} for n in range(4)} | {"d0": {**DELL, "driver": "580"}}
    found = of_facts(nodes)
    assert words_of(found) == {n: "WARN" if n == "d0" else "PASS" for n in nodes}
    assert "machine_product is PowerEdge XE9680, expected a second machine of this product" in found.planned[-1]["reason"]
    assert words_of(of_facts({**nodes, "d0": {**DELL, "driver": "570"}}))["d0"] == "FAIL"
    assert set(words_of(of_facts(nodes, stack={n: {"ignore": ["machine_product"]} for n in nodes})).values()) == {"PASS"}


def test_pods_are_held_against_machines_in_what_both_planes_see() -> None:
    ssh = {"driver": "580", "kernel": "6.8", "container_docker": "27.1", "ofed": "24.10", "package_torch": "2.11", "hostname": "a"}
    pod = {"driver": "580", "kernel": "6.8", "package_torch": "2.9", "hostname": "pod-x"}
    nodes = {f"n{n}": ssh for n in range(4)} | {f"lab/n{n}": pod for n in range(3)}
    planes = {n: "kubernetes" for n in nodes if n.startswith("lab")}
    own = {"lab": ["package_*", "container_*"]}

    def judged(facts: dict[str, Record]) -> dict[str, str]:
        rows = [
            record(n, "stack", "facts", plane=planes.get(n, "ssh"), target=n.split("/")[0], context={"gpu": "NVIDIA H200", "facts": f})
            for n, f in facts.items()
        ]
        items = [item(n, "stack", "facts", target=n.split("/")[0]) for n in facts]
        return words_of(judge(items, rows, own_facts=own))

    assert set(judged(nodes).values()) == {"PASS"}, "neither tools of the host nor packages of the image"
    # What both see is compared across, and what only pods have among pods.
    assert judged({**nodes, "lab/n1": {**pod, "driver": "570"}})["lab/n1"] == "FAIL"
    assert judged({**nodes, "n1": {**ssh, "kernel": "6.5"}})["n1"] == "FAIL"
    assert judged({**nodes, "lab/n1": {**pod, "package_torch": "2.8"}})["lab/n1"] == "WARN"
    assert judged({**nodes, "n2": {k: v for k, v in ssh.items() if k != "ofed"}})["n2"] == "FAIL", "one of those that can see it"
    # Who declares nothing: a fact that no node of a plane has is one that it does not see.
    bare = {n: {k: v for k, v in f.items() if k != "package_torch"} for n, f in nodes.items()}
    assert set(words_of(of_facts(bare, planes)).values()) == {"PASS"}


SLOW_N1 = {"subject": "n1", "stage": "nccl_node", "ticket": "T-1", "expires": "2026-12-01"}


# Waivers -------------------------------------------------------------------------------------------------------------


def test_a_waiver_turns_fail_into_known_fail_until_it_expires() -> None:
    waiver = {"subject": "n1", "stage": "nccl_node", "ticket": "T-1", "expires": "2026-11-21"}
    slow = nccl(busbw=100.0)
    found = one(slow, waivers=[waiver])
    assert (found["verdict"], found["ticket"], found["expires"], found["of"]) == (
        "KNOWN_FAIL", "T-1", "2026-11-21", "FAIL"
    )  # fmt: skip
    late = one(slow, waivers=[waiver], today=datetime.date(2026, 11, 22))
    assert (late["verdict"], late["reason_code"]) == ("FAIL", "expired_waiver") and "T-1" in late["reason"]
    assert one(slow, waivers=[{**waiver, "subject": "n2"}])["verdict"] == "FAIL"
    assert one(slow, waivers=[{**waiver, "check": "all_gather"}])["verdict"] == "FAIL"
    assert one(slow, waivers=[{**waiver, "subject": "n*"}])["verdict"] == "KNOWN_FAIL"
    assert one(failed("n1", "timeout", "timeout"), waivers=[waiver])["verdict"] == "UNKNOWN"
    assert one(nccl(), waivers=[waiver])["verdict"] == "PASS"
    known = judge([item("n1"), item("n2")], [slow, nccl("n2")], waivers=[waiver])
    assert known.accepted
    assert not judge([item("n1")], [slow], waivers=[waiver]).accepted, "nothing passed"


def test_a_fleet_that_is_all_warn_is_accepted_where_warn_is() -> None:
    items, records = [item("n1"), item("n2")], [nccl("n1", 330.0), nccl("n2", 330.0)]
    found = judge(items, records)
    assert [v["verdict"] for v in found.planned] == ["WARN", "WARN"] and found.accepted
    assert "2 with a WARN to read" in found.why
    refused = judge(items, records, warn="refuse")
    assert not refused.accepted and "no planned check is a PASS: nothing was shown to work" in refused.why
    assert judge([item("n1"), item("n2")], [nccl("n1", 100.0), nccl("n2", 330.0)], waivers=[SLOW_N1]).accepted, "a waiver beside a WARN"


def test_a_warn_about_what_was_not_measured_shows_nothing() -> None:
    skipped = failed("n1", "mig_enabled", "not_applicable", evidence={"changes": [{"code": "xid", "part": "", "text": "an Xid"}]})
    for records in ([skipped], [failed("n1", "single_gpu", "not_applicable")]):
        found = judge([item("n1")], records, stated={"n1": {"mig": "allowed", "gpu_count": 1}})
        assert not found.accepted and "nothing was shown to work" in found.why


def test_a_waiver_of_a_node_covers_its_parts() -> None:
    waiver = {"subject": "n1", "ticket": "T-1", "expires": datetime.date(2027, 1, 1)}
    records = [gemm("n1", 500.0, members=["n1/gpu/A"]), gemm("n1/gpu/A", 500.0)]
    found = judge([item(stage="gemm", check="bf16")], records, waivers=[waiver])
    assert {v["verdict"] for v in found.verdicts} == {"KNOWN_FAIL"}


@pytest.mark.parametrize("code", sorted(reasons.FATAL))
def test_a_waiver_for_a_slow_node_covers_nothing_else(code: str) -> None:
    slow = {"subject": "n1", "ticket": "T-1", "expires": "2026-12-01"}
    evidence = {"changes": [{"code": code, "part": "gpu/A", "text": "a new defect"}]}
    for bad in (failed("n1", code), nccl(busbw=100.0, evidence=evidence), nccl(busbw=100.0, attempt=2)):
        found = one(failed("n1", code), bad, waivers=[slow])
        assert (found["verdict"], found["reason_code"]) == ("FAIL", code)
        assert f"waiver T-1 does not name {code}, only below_floor" in str(found["findings"])
    known = waiving.state_of(bands.Opinion("FAIL", "a new defect (seen while the test ran)", code))
    of_code = {**slow, "codes": [code], "state": known}
    both = one(nccl(busbw=100.0, evidence=evidence), waivers=[slow, of_code])
    assert both["verdict"] == "KNOWN_FAIL"
    assert one(nccl(busbw=100.0, evidence=evidence), waivers=[of_code])["reason_code"] == "below_floor"
    of_gpu = {**of_code, "subject": "n1/gpu/A"}
    assert one(nccl(evidence=evidence), waivers=[of_gpu])["verdict"] == "KNOWN_FAIL", "what is a GPU's is waived as the GPU's"
    assert one(nccl(evidence={"changes": [{"code": code, "part": "gpu/B", "text": "x"}]}), waivers=[of_gpu])["verdict"] == "FAIL"


ECC = {"subject": "n1", "codes": ["ecc"], "ticket": "T-5", "expires": "2026-12-01"}


def with_ecc(words: str, events: str = "", **waiver: t.Any) -> tuple[list[str], verdict.Judgement]:
    """Verdicts of gpu_health, where a GPU has such words, and of NCCL, during which an event may come, under a waiver for `ecc`."""
    health = failed("n1", "ecc", stage="stack", check="gpu_health")
    health["reason"] = words
    evidence = {"changes": [{"code": "ecc", "part": "gpu/A", "text": events, "before": 1, "after": 5}]} if events else {}
    items = [item("n1", "stack", "gpu_health"), item("n1")]
    found = judge(items, [health, nccl(evidence=evidence)], waivers=[{**ECC, **waiver}], stated={"n1": {"gpu_count": 4}})
    return [v["verdict"] for v in found.planned], found


def test_a_waiver_for_an_old_error_takes_no_new_one_along() -> None:
    old = "GPU 3 (0000:1a:00.0, serial 7): 1 uncorrectable memory errors since the driver was loaded"
    more = old.replace(": 1 ", ": 5 ")
    words, found = with_ecc(old)
    assert words == ["KNOWN_FAIL", "PASS"] and found.accepted
    (warning,) = found.warnings
    assert warning.startswith("waiver T-5 does not say for which state it is") and "add state: [ecc-" in warning
    words, found = with_ecc(old, "GPU 3: ecc rose from 1 to 5")
    assert words == ["KNOWN_FAIL", "FAIL"] and not found.accepted, "four new errors while NCCL ran"
    assert "came up while a test ran: a new failure (ecc-" in str(found.planned[1]["findings"])
    # With its state it holds that and no more, in any later run.
    state = warning.rpartition("[")[2].rstrip("]")
    words, found = with_ecc(old, state=state)
    assert words == ["KNOWN_FAIL", "PASS"] and found.accepted and not found.warnings
    words, found = with_ecc(more, state=state)
    assert words == ["FAIL", "PASS"] and "waiver T-5 was written for" in str(found.planned[0]["findings"])
    assert with_ecc(old, "GPU 3: ecc rose from 1 to 5", state=state)[0] == ["KNOWN_FAIL", "FAIL"]
    assert with_ecc(old, state=[state, "ecc-00000000"])[1].accepted


def test_a_waiver_for_drift_holds_for_the_same_values_of_the_same_facts() -> None:
    def drifting(own: Record, state: str = "", of: int = 4) -> verdict.Judgement:
        nodes = {f"s{n}": {"driver": "580", "vbios": "96"} for n in range(of)} | {"n1": {"driver": "580", "vbios": "96", **own}}
        waiver = {**ECC, "codes": ["drift"], **({"state": state} if state else {})}
        return of_facts(nodes, waivers=[waiver])

    known = drifting({"driver": "570"})
    assert known.accepted and words_of(known)["n1"] == "KNOWN_FAIL"
    state = known.warnings[0].rpartition("[")[2].rstrip("]")
    assert drifting({"driver": "570"}, state, of=9).accepted, "however many neighbours there are"
    assert not drifting({"driver": "565"}, state).accepted and not drifting({"driver": "570", "vbios": "95"}, state).accepted


def test_a_waiver_for_a_number_holds_down_to_that_number() -> None:
    slow = {"subject": "n1", "stage": "nccl_node", "ticket": "T-1", "expires": "2026-12-01"}
    assert one(nccl(busbw=100.0), waivers=[slow])["verdict"] == "KNOWN_FAIL"
    for busbw, word in ((310.0, "KNOWN_FAIL"), (300.0, "KNOWN_FAIL"), (286.0, "KNOWN_FAIL"), (284.0, "FAIL"), (100.0, "FAIL")):
        assert one(nccl(busbw=busbw), waivers=[{**slow, "state": 300}])["verdict"] == word, busbw
    assert "waiver T-1 was written for 300, this is 100 GB/s" in str(one(nccl(busbw=100.0), waivers=[{**slow, "state": 300}])["findings"])


@pytest.mark.parametrize("state", ["ecc", "ecc-xyz", 0, -1.0, True, {"a": 1}, [None], "ECC-0a1b2c3d"])
def test_a_state_that_is_none_is_named(state: t.Any) -> None:
    with pytest.raises(waivers.WaiverError, match="state: found"):
        waivers.parse([{**ECC, "state": state}])


def waived_gpus(values: list[float], waived: t.Sequence[int] = (3,), node: float | None = None, **fields: t.Any) -> verdict.Judgement:
    names = [f"n1/gpu/{i}" for i in range(len(values))]
    tickets = [{"subject": names[i], "stage": "gemm", "ticket": f"T-{i}", "expires": "2026-12-01"} for i in waived]
    parts = [gemm(n, v) for n, v in zip(names, values, strict=True)]
    whole = gemm("n1", min(values) if node is None else node, members=fields.pop("members", names))
    return judge([item(stage="gemm", check="bf16"), item("n2")], [whole, *parts, nccl("n2")], waivers=tickets, **fields)


def test_a_waived_gpu_counts_as_waived_in_its_node() -> None:
    found = waived_gpus([720.0, 715.0, 718.0, 500.0])
    assert found.accepted and (found.planned[0]["verdict"], found.planned[0]["ticket"]) == ("KNOWN_FAIL", "T-3")
    words = {v["subject"]["id"]: v["verdict"] for v in found.extras + found.verdicts}
    assert words == {"n1": "KNOWN_FAIL", "n1/gpu/3": "KNOWN_FAIL", "n2": "PASS", **{f"n1/gpu/{i}": "PASS" for i in range(3)}}
    assert waived_gpus([500.0], waived=[0]).planned[0]["verdict"] == "KNOWN_FAIL"
    assert not waived_gpus([720.0, 715.0, 718.0, 500.0], today=datetime.date(2026, 12, 2)).accepted, "expired"


def test_a_waived_gpu_hides_no_other() -> None:
    for values in ([720.0, 715.0, 600.0, 500.0], [720.0, 715.0, 500.0, 500.0], [720.0, 715.0, 400.0, 500.0], [600.0] * 4):
        assert waived_gpus(values).planned[0]["verdict"] == "FAIL", values
    assert waived_gpus([720.0, 715.0, 500.0, 510.0], waived=[2, 3]).accepted
    lower = waived_gpus([720.0, 715.0, 718.0, 500.0], node=300.0)
    assert lower.planned[0]["verdict"] == "FAIL", "the node's number is not that of the waived GPU"
    some = waived_gpus([720.0, 500.0], waived=[1], members=["n1/gpu/0", "n1/gpu/1", "n1/gpu/2"])
    assert some.planned[0]["verdict"] == "FAIL", "not all of the node was measured"
    assert waived_gpus([720.0, 500.0], waived=[1], members=[]).planned[0]["verdict"] == "FAIL", "nobody says what all of it is"


def test_a_waived_gpu_among_neighbours() -> None:
    nodes = {f"m{i}": [700.0, 702.0] for i in range(6)} | {"n1": [700.0, 560.0]}
    easy = resolve([("run", {"h200-gemm-bf16": {"value": 520}})])
    records = [gemm(n, min(v), members=[f"{n}/gpu/{g}" for g in range(2)]) for n, v in nodes.items()]
    records += [gemm(f"{n}/gpu/{g}", v) for n, values in nodes.items() for g, v in enumerate(values)]
    ticket = {"subject": "n1/gpu/1", "ticket": "T-1", "expires": "2026-12-01"}
    options: Record = {"expected": lambda _node, _target: easy}
    planned = [item(n, "gemm", "bf16") for n in nodes]
    assert judge(planned, records, **options).planned[-1]["reason_code"] == "below_neighbours"
    assert judge(planned, records, waivers=[ticket], **options).planned[-1]["verdict"] == "KNOWN_FAIL"


def test_a_waiver_that_covers_nothing_is_a_note() -> None:
    unused = {"subject": "n9", "stage": "gemm", "ticket": "T-9", "expires": "2026-12-01"}
    wide = [{"subject": n, "ticket": "T-8", "expires": "2026-12-01", "wide": True} for n in ("n1", "n2", "n3")]
    found = judge([item("n1"), item("n2")], [nccl("n1", 100.0), nccl("n2")], waivers=[unused, *wide])
    assert found.accepted and found.notes == [
        "waiver T-9 covers nothing in this run: gemm on n9, below_floor, below_neighbours, below_siblings"
    ]
    assert "T-8" in judge([item("n2")], [nccl("n2")], waivers=wide).notes[0]
    late = judge([item("n1")], [nccl("n1", 100.0)], waivers=wide[:1], today=datetime.date(2027, 1, 1))
    assert late.planned[0]["reason_code"] == "expired_waiver" and not late.notes


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("x", "expected a list"),
        (["x"], "acceptance_waivers[0]"),
        ([{"subject": "n1", "expires": "2027-01-01"}], "ticket"),
        ([{"subject": "n1", "ticket": "T-1"}], "expires"),
        ([{"ticket": "T-1", "expires": "2027-01-01"}], "subject"),
        ([{"subject": "n1", "ticket": "T-1", "expires": "soon"}], "expires"),
        ([{"subject": "n1", "ticket": "T-1", "expires": "2027-13-01"}], "T-1"),
        ([{"subject": "n1", "ticket": "T-1", "expires": "20270101"}], "expires"),
        ([{"subject": "n1", "ticket": "T-1", "expires": "2027-01-01", "until": 1}], "until"),
        ([{"subject": "", "ticket": "T-1", "expires": "2027-01-01"}], "subject"),
        ([{"subject": "n1", "ticket": "T-1", "expires": "2027-01-01", "codes": ["wrong_result"]}], "wrong_results"),
        ([{"subject": "n1", "ticket": "T-1", "expires": "2027-01-01", "codes": "ecc"}], "codes"),
        ([{"subject": "n1", "ticket": "T-1", "expires": "2027-01-01", "codes": []}], "codes"),
        ([{"subject": "n1", "ticket": "T-1", "expires": "2027-01-01", "codes": ["*"]}], "codes"),
        ([{"subject": "n1", "ticket": "T-1", "expires": "2027-01-01", "codes": [["ecc"]]}], "codes"),
        ([{"subject": "n1", "ticket": "T-1", "expires": "2027-01-01", "wide": "yes"}], "wide"),
    ],
)
def test_an_invalid_waiver_is_named(raw: t.Any, said: str) -> None:
    with pytest.raises(waivers.WaiverError) as error:
        waivers.parse(raw)
    assert said in str(error.value) and "found" in str(error.value) and "expected" in str(error.value)


# Acceptance ----------------------------------------------------------------------------------------------------------


def test_acceptance() -> None:
    passed, slow, odd = nccl("n1"), nccl("n2", 330.0), nccl("n2", 100.0)
    items = [item("n1"), item("n2")]
    skipped = failed("n2", "single_gpu", "not_applicable")
    assert judge(items, [passed, nccl("n2")]).accepted
    assert judge(items, [passed, slow]).accepted
    assert not judge(items, [passed, slow], warn="refuse").accepted
    assert judge(items, [passed, skipped]).accepted
    assert not judge(items, [passed, odd]).accepted
    assert not judge([item("n2")], [skipped]).accepted, "nothing but skipped"
    assert judge([item("n2")], [slow]).accepted, "nothing but measured warnings, which acceptance_warn accepts"
    empty = judge([], [passed])
    assert not empty.accepted and "empty" in empty.why and len(empty.extras) == 1
    partial = judge([item("n1")], [passed], partial=True)
    assert partial.accepted and partial.partial and "PARTIAL" in partial.why


def test_what_was_not_planned_is_judged_and_cannot_make_acceptance() -> None:
    found = judge([item("n1")], [failed("n1", "single_gpu", "not_applicable"), nccl("n2")])
    assert not found.accepted and [v["verdict"] for v in found.extras] == ["PASS"]
    assert "not planned" in found.extras[0]["findings"][0]
    assert not judge([item("n1")], [nccl("n1"), nccl("n2", 1.0)]).accepted, "a failure nobody planned is one"
    assert judge([item("n1")], [nccl("n1"), failed("n2", "timeout", "timeout")]).accepted


def about(kind: str, name: str, members: list[str], made: Record) -> Record:
    return {**made, "subject": {"kind": kind, "id": name, "members": members}}


def test_the_headline_names_who_is_to_blame_and_counts_each_kind_as_what_it_is() -> None:
    group = ["n1", "n2", "n3"]
    fabric = about("group", "nccl_fabric", group, item(stage="nccl_fabric"))
    pair = about("pair", "n1|n2", [], item(stage="nccl_fabric", check="sendrecv"))
    slow = about("group", "nccl_fabric", group, failed("x", "timeout", stage="nccl_fabric"))
    blamed = {"condition": True, "findings": [{"code": "localised", "text": "node n3 makes it slow"}]}
    culprit = record("n3", "nccl_fabric", "localise", context=blamed)
    skipped = [failed("x", "single_gpu", "not_applicable", stage="nccl_fabric", check="sendrecv")]
    good = [nccl(n) for n in ("n1", "n2")]
    found = judge([item("n1"), item("n2"), fabric], [*good, slow, culprit])
    assert found.why == (
        "FAIL on 1 node (n3); UNKNOWN on 1 group (nccl_fabric); 0 FAIL and 1 UNKNOWN of 3 planned checks; "
        "1 FAIL of checks that were not planned"
    )
    several = judge([item(f"n{i}") for i in range(9)], [nccl(f"n{i}", 100.0) for i in range(7)])
    assert several.why.startswith("FAIL on 7 nodes (n0, n1, n2, n3, n4 ...); UNKNOWN on 2 nodes (n7, n8); 7 FAIL and 2 UNKNOWN of 9 ")
    stated = {n: {"gpu_count": 4} for n in ("n1", "n2")}
    whole = judge([item("n1"), item("n2"), pair], [*good, about("pair", "n1|n2", [], skipped[0])], stated=stated)
    assert whole.accepted and whole.why == "all 3 planned checks on 2 nodes and 1 pair are acceptable"


def test_verdicts_and_nodes_are_listed_worst_first_and_counted() -> None:
    found = judge([item("n1"), item("n2"), item("n3")], [nccl("n1"), nccl("n2", 100.0)])
    assert [v["verdict"] for v in found.verdicts] == ["FAIL", "UNKNOWN", "PASS"]
    assert [(node["name"], node["verdict"]) for node in found.nodes] == [("n2", "FAIL"), ("n3", "UNKNOWN"), ("n1", "PASS")]
    assert found.counts == {"PASS": 1, "SKIPPED": 0, "WARN": 0, "KNOWN_FAIL": 0, "UNKNOWN": 1, "FAIL": 1}


def test_a_nodes_verdict_is_the_worst_of_all_its_stages_and_parts() -> None:
    waiver = [{"subject": "n1", "stage": "nccl_node", "ticket": "T-1", "expires": "2027-01-01"}]
    health = record("n1", "stack", "health", context={"condition": True, "findings": [{"code": "firmware", "text": "old"}]})
    skipped = failed("n1", "mig_enabled", "not_applicable", stage="gemm", check="bf16")
    items = [item("n1"), item("n1", "stack", "health"), item("n1", "gemm", "bf16"), item("n2")]
    part = gemm("n2/gpu/A", 100.0)
    found = judge(items, [nccl("n1", 100.0), health, skipped, nccl("n2"), part], waivers=waiver, stated={"n1": {"mig": "allowed"}})
    first, second = found.nodes
    assert (first["name"], first["verdict"], first["stages"]) == ("n2", "FAIL", {"gemm": "FAIL", "nccl_node": "PASS"})
    # A known failure outranks a WARN, and what was skipped takes nothing from what passed.
    words = {"nccl_node": "KNOWN_FAIL", "stack": "WARN", "gemm": "SKIPPED"}
    assert (second["name"], second["verdict"], second["stages"]) == ("n1", "KNOWN_FAIL", words)


def test_simulated_is_stamped() -> None:
    assert one(nccl(simulated=True))["simulated"] is True
    whole = gemm("n1", 700.0, members=["n1/gpu/A"])
    found = one(whole, gemm("n1/gpu/A", 700.0, simulated=True), item=item(stage="gemm", check="bf16"))
    assert found["simulated"] is True


# Properties ----------------------------------------------------------------------------------------------------------

SEVERITY = {"PASS": 0, "WARN": 1, "UNKNOWN": 2, "FAIL": 3}
numbers = st.floats(0.5, 600)


@given(st.lists(numbers, min_size=1, max_size=9), st.data())
@settings(max_examples=300, deadline=None)
def test_lowering_a_value_never_improves_its_verdict(values: list[float], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(values) - 1))
    lower = data.draw(st.floats(0, 1)) * values[which]

    def word(of: list[float]) -> int:
        found = judge([item(f"n{which}")], [nccl(f"n{i}", v) for i, v in enumerate(of)])
        return SEVERITY[found.planned[0]["verdict"]]

    assert word([*values[:which], lower, *values[which + 1 :]]) >= word(values)


@given(st.lists(st.floats(400, 800), min_size=1, max_size=6), st.data())
@settings(max_examples=200, deadline=None)
def test_lowering_the_number_of_a_gpu_never_improves_the_verdict_of_its_node(values: list[float], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(values) - 1))
    lower = data.draw(st.floats(0, 1)) * values[which]

    def word(of: list[float]) -> int:
        names = [f"n1/gpu/{i}" for i in range(len(of))]
        parts = [gemm(n, v) for n, v in zip(names, of, strict=True)]
        records = [gemm("n1", min(of), members=names), *parts]
        found = judge([item(stage="gemm", check="bf16")], records)
        mine = next(v for v in found.verdicts if v["subject"]["id"] == names[which])
        return SEVERITY[mine["verdict"]]

    assert word([*values[:which], lower, *values[which + 1 :]]) >= word(values)


junk: st.SearchStrategy[t.Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=4) | st.just("\x00\u2028"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PATHS = [(k,) for k in nccl()] + [
    ("subject", "kind"), ("subject", "id"), ("subject", "members"), ("metrics", "busbw"), ("metrics", "busbw", "value"),
    ("metrics", "busbw", "unit"), ("series", 0), ("series", 0, "busbw"), ("series", 0, "size"), ("context", "gpus"),
    ("context", "series_units"), ("context", "gpu_uuids"), ("context", "findings"), ("context", "facts"),
    ("evidence", "changes"), ("evidence", "unreadable"), ("context", "machine_id"), ("context", "series_units", "busbw"),
]  # fmt: skip


def broken(data: st.DataObject) -> Record:
    bad = copy.deepcopy(nccl())
    for path in data.draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=3)):
        at: t.Any = bad
        try:
            for step in path[:-1]:
                at = at[step]
            at[path[-1]] = data.draw(junk)
        except (TypeError, KeyError, IndexError):
            continue
    return bad


@given(st.data())
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_record_holds_there_is_a_valid_verdict(data: st.DataObject) -> None:
    bad = broken(data)
    # The class is never more lenient than the schema.
    if isinstance(parsed(bad), model.Measurement):
        assert (not list(MEASUREMENT.iter_errors(bad)) and problem(bad) is None) or "JSON" in str(problem(bad))
    found = judge([item()], [bad])
    if found.planned[0]["verdict"] == "PASS":
        assert bad["outcome"] == "measured" and bad["series"][0]["busbw"] >= 336.3


@given(
    st.sampled_from(["error", "timeout", "missing", "not_applicable"]),
    st.sampled_from(sorted(reasons.ALL)),
    st.integers(1, 3),
)
@settings(max_examples=100, deadline=None)
def test_what_was_not_measured_never_passes(outcome: str, code: str, attempt: int) -> None:
    seen = {**nccl(), "outcome": outcome, "reason_code": code, "reason": "x", "attempt": attempt}
    found = judge([item()], [seen])
    assert found.planned[0]["verdict"] not in ("PASS", "WARN") and not found.accepted


def test_worst_prefers_the_one_furthest_below_its_floor() -> None:
    said = [bands.Opinion("FAIL", r, "below_floor", v, "GB/s", 95.0, expected=100.0) for r, v in (("a", 80.0), ("b", 70.0))]
    found = bands.worst(said)
    assert found.reason == "b" and found.findings == ["a"]


def test_eight_thousand_measurements_of_two_thousand_nodes_are_judged() -> None:
    """Speed: 8,000 measurements here; the figure for 40,000 stands in docs."""
    nodes = [f"n{i}" for i in range(2000)]
    records = []
    for node in nodes:
        records.append(nccl(node))
        parts = [f"{node}/gpu/{g}" for g in range(2)]
        records += [gemm(node, 700.0, members=parts), *(gemm(p, 700.0) for p in parts)]
    started = datetime.datetime.now()
    found = judge([item(n) for n in nodes] + [item(n, "gemm", "bf16") for n in nodes], records)
    assert found.accepted and found.coverage["ratio"] == 1
    assert (datetime.datetime.now() - started).total_seconds() < 60


def test_an_unknown_target_has_no_expectations() -> None:
    assert one(nccl(), expected=lambda _node, _target: Expectations(()))["reason_code"] == "no_expectation"


# Health after a test, and what the driver logged -----------------------------------------------------------------------


def changed(code: str, text: str = "GPU 0: it is so") -> Record:
    return {"changes": [{"code": code, "part": "gpu/A", "text": text, "before": None, "after": None}]}


@pytest.mark.parametrize("code", sorted({*reasons.FATAL, *reasons.DEFECTS, "remap"}))
def test_a_defect_that_comes_up_under_a_passing_test_stays(code: str) -> None:
    found = one(nccl(evidence=changed(code)))
    assert found["verdict"] == "FAIL" and found["reason_code"] == ("ecc" if code == "remap" else code)
    assert one(nccl(evidence=changed(code)), nccl(attempt=2))["verdict"] == "FAIL", "a later test begins with it"
    waiver = {"subject": "n1", "codes": [found["reason_code"]], "ticket": "T-1", "expires": "2026-12-01"}
    without = "FAIL" if found["reason_code"] in waiving.STATES else "KNOWN_FAIL"
    assert one(nccl(evidence=changed(code)), waivers=[waiver])["verdict"] == without, "it is new"
    state = waiving.state_of(bands.Opinion("FAIL", "GPU 0: it is so (seen while the test ran)", found["reason_code"]))
    assert one(nccl(evidence=changed(code)), waivers=[{**waiver, "state": state}])["verdict"] == "KNOWN_FAIL", "it was known"


@pytest.mark.parametrize(("time", "word"), [("12:00:58", "KNOWN_FAIL"), ("12:01:02", "KNOWN_FAIL"), ("12:09:00", "FAIL")])
def test_a_waiver_holds_although_two_runs_read_the_clock_differently(time: str, word: str) -> None:
    """The time of a line of the kernel's log comes from two clocks, and differs by a second or two from run to run."""

    def opinion(clock: str) -> bands.Opinion:
        return bands.Opinion("FAIL", f"the kernel's log has, at 2026-11-24T{clock}Z: Xid 79", "gpu_lost")

    state = waiving.state_of(opinion("12:00:59"))
    known = {"subject": "n1", "codes": ["gpu_lost"], "ticket": "T-1", "expires": "2026-12-01", "state": state}
    book = waiving.Waiving(waivers.parse([known]), "2026-11-24")
    assert book.waive(Key("stack", "health", "", "n1"), opinion(time)).verdict == word


@pytest.mark.parametrize("code", ["gpu_state", "xid_own", "xid_unknown", "cuda_failed"])
def test_a_pass_after_which_the_state_of_the_gpu_is_unknown_is_unknown(code: str) -> None:
    found = one(nccl(evidence=changed(code)))
    assert (found["verdict"], found["reason_code"]) == ("UNKNOWN", code)


@pytest.mark.parametrize("code", [*reasons.MILD, "ecc_corrected", "pcie_replay", "nvlink_error"])
def test_a_mild_finding_after_a_passing_test_is_a_warning(code: str) -> None:
    text = "NVRM: Xid (PCI:0000:1a:00): 31, pid=5, name=x, y"
    assert one(nccl(evidence=changed(code, text)))["verdict"] == "WARN"


@pytest.mark.parametrize(
    ("number", "word"),
    [*((n, "FAIL") for n in (48, 64, 74, 79, 95, 119, 140)), *((n, "WARN") for n in (13, 31, 43, 45, 63)), (4711, "UNKNOWN")],
)
def test_an_xid_in_older_evidence_is_read_by_its_number(number: int, word: str) -> None:
    place = "SXid" if number == 4711 else "Xid"
    text = f"{place} (PCI:0000:1a:00): {number}, pid=5"
    assert one(nccl(evidence=changed("xid", text)))["verdict"] == word


@pytest.mark.parametrize("code", sorted(reasons.DEFECTS))
def test_a_defect_that_a_health_check_has_found(code: str) -> None:
    found = {"findings": [{"code": code, "part": "gpu/A", "text": "it is so"}]}
    seen = failed("n1", code, stage="stack", check="gpu_health", context=found)
    here = item(stage="stack", check="gpu_health")
    assert one(seen, item=here)["verdict"] == "FAIL"
    waiver = [{"subject": "n1", "codes": [code], "ticket": "T-1", "expires": "2026-12-01"}]
    assert one(seen, item=here, waivers=waiver)["verdict"] == "KNOWN_FAIL"
    healthy = record(stage="stack", check="gpu_health", attempt=2)
    assert one(seen, healthy, item=here)["verdict"] == "WARN", "it was looked at again"


@pytest.mark.parametrize("code", ["not_repeatable", "no_answer"])
def test_a_second_training_with_other_bits_is_unknown(code: str) -> None:
    """Whether the machine or a library of it computes otherwise is open, and so is what a part would have said that does not answer."""
    finding = {"code": code, "text": "the loss of step 7 was 1.25 and then 1.26", "part": ""}
    bad = nccl(context={**NCCL, "findings": [finding]})
    found = judge([item()], [bad])
    assert (found.planned[0]["verdict"], found.planned[0]["reason_code"]) == ("UNKNOWN", code) and not found.accepted
    assert finding["text"] in found.planned[0]["reason"]
    waiver = {"subject": "n1", "stage": "nccl_node", "codes": [code], "ticket": "T-1", "expires": "2026-11-21"}
    assert one(bad, waivers=[waiver])["verdict"] == "UNKNOWN", "no waiver accepts what is not known"


@pytest.mark.parametrize("code", sorted(reasons.MILD))
def test_a_health_check_that_found_what_is_worth_a_look(code: str) -> None:
    found = {"findings": [{"code": code, "part": "gpu/A", "text": "it is so"}]}
    seen = record(stage="stack", check="gpu_health", context=found)
    assert one(seen, item=item(stage="stack", check="gpu_health"))["verdict"] == "WARN"


def began(code: str) -> Record:
    return {"health": [{"code": code, "part": "gpu/A", "text": "GPU 0: it is so"}], "changes": [], "unreadable": [], "window": {}}


@pytest.mark.parametrize(
    ("code", "word"), [("ecc", "FAIL"), ("fabric", "FAIL"), ("ecc_off", "WARN"), ("unsupported", "UNKNOWN"), ("x", "UNKNOWN")]
)
def test_a_test_that_begins_with_what_no_health_check_has_found(code: str, word: str) -> None:
    assert one(nccl(evidence=began(code)))["verdict"] == word
    clean = record("n1/gpu/A", "stack", "gpu_health")
    assert one(nccl(evidence=began(code)), clean)["verdict"] == word
    found = {"findings": [{"code": code, "part": "gpu/A", "text": "it is so"}]}
    knows = record("n1/gpu/A", "stack", "gpu_health", context=found)
    assert one(nccl(evidence=began(code)), knows)["verdict"] == "PASS", "the health check has said it"
    other = record("n1/gpu/B", "stack", "gpu_health", context=found)
    assert one(nccl(evidence=began(code)), other)["verdict"] == word


def test_a_defect_of_a_known_kind_in_other_words_is_another_one() -> None:
    known = {"findings": [{"code": "ecc", "part": "", "text": "1 uncorrectable memory errors"}]}
    found = record("n1/gpu/A", "stack", "gpu_health", context=known)
    for text, word in (("1 uncorrectable memory errors", "PASS"), ("5 uncorrectable memory errors", "FAIL")):
        problem = {"code": "ecc", "part": "gpu/A", "text": f"GPU 0: {text}"}
        assert one(nccl(evidence={"health": [problem], "changes": [], "unreadable": []}), found)["verdict"] == word
    logged = {"findings": [{"code": "gpu_fault", "part": "", "text": "the kernel's log has, at 3: Xid 62, a halt (x); a reboot clears it"}]}
    node = record(stage="stack", check="gpu_health", context=logged)
    for text, word in (("Xid 62, a halt (x)", "PASS"), ("Xid 119, no answer (x)", "FAIL")):
        problem = {"code": "gpu_fault", "part": "", "text": text}
        assert one(nccl(evidence={"health": [problem], "changes": [], "unreadable": []}), node)["verdict"] == word


@pytest.mark.parametrize(("code", "word"), [("ecc", "FAIL"), ("gpu_lost", "FAIL"), ("nvlink", "WARN"), ("ecc_past", "WARN")])
def test_what_an_earlier_attempt_began_with(code: str, word: str) -> None:
    clean = nccl(attempt=2)
    assert one(nccl(evidence=began(code)), clean)["verdict"] == word
    late = failed("n1", "timeout", "timeout", evidence=began(code))
    found = one(late, clean)
    assert found["verdict"] == word and (word == "WARN" or found["reason"].startswith("n1: on attempt 1, which no other takes back: "))


def test_of_two_records_of_one_attempt_the_worse_counts() -> None:
    assert one(nccl(evidence=began("nvlink")), nccl())["verdict"] == "FAIL"
    defect = {"findings": [{"code": "nvlink", "part": "gpu/A", "text": "it is so"}]}
    bad = failed("n1", "nvlink", stage="stack", check="gpu_health", context=defect)
    good = record(stage="stack", check="gpu_health")
    for records in ([bad, good], [good, bad]):
        assert one(*records, item=item(stage="stack", check="gpu_health"))["verdict"] == "FAIL"
    assert one(failed("n1", "timeout", "timeout"), nccl())["verdict"] == "WARN"


def test_a_waiver_without_a_state_does_not_cover_what_came_up_after_the_health_check() -> None:
    waivers = [{"subject": "n1", "codes": ["ecc"], "ticket": "T-1", "expires": "2026-12-01"}]
    assert one(nccl(evidence=began("ecc")), waivers=waivers)["verdict"] == "KNOWN_FAIL", "nobody looked before"
    clean = record("n1/gpu/A", "stack", "gpu_health")
    found = one(nccl(evidence=began("ecc")), clean, waivers=waivers)
    assert found["verdict"] == "FAIL" and "came up after the health check: a new failure (ecc-" in str(found["findings"])


def test_a_health_before_a_test_that_is_not_of_its_form() -> None:
    for wrong in ("x", ["x"], [{}], {"a": 1}):
        assert one(nccl(evidence={"health": wrong, "changes": [], "unreadable": []}))["verdict"] == "UNKNOWN"
