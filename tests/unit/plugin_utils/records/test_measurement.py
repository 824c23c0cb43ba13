# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever a node sends, what leaves the controller is a measurement/v1."""

from __future__ import annotations

import base64
import hashlib
import pathlib
import typing as t
import zlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.answers import interpret
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import measurement, model, raw
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from hypothesis import given, settings
from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="session")
def completer(tmp_path_factory: pytest.TempPathFactory) -> measurement.Completer:
    run = Run(tmp_path_factory.mktemp("results"), "20260101T000000Z-0a1b2c")
    run.make()
    return measurement.Completer(run, "nccl_node", "gpu-01", "ssh", {})


def observed(**fields: t.Any) -> dict[str, t.Any]:
    return observation.measured("all_reduce", variant="gpus=all", metrics={"busbw": {"value": 1.5, "unit": "GB/s"}}, **fields)


def test_a_measurement_is_completed(completer: measurement.Completer) -> None:
    seen = observed(part="gpu/GPU-1", members=[])
    seen["raw_z"] = base64.b64encode(zlib.compress(b"what the tool said")).decode()
    found = completer.complete(seen)
    assert measurement.problem(found) is None
    assert found["subject"] == {"kind": "gpu", "id": "gpu-01/gpu/GPU-1", "members": []}
    assert raw.read(completer.run.dir, found["raw"]) == b"what the tool said"
    assert found["raw_sha256"] == hashlib.sha256(b"what the tool said").hexdigest()


def test_a_name_longer_than_that_of_a_file_costs_nobody_his_results(completer: measurement.Completer) -> None:
    seen = {**observed(), "raw_z": base64.b64encode(zlib.compress(b"said")).decode()}
    stored = {completer.complete(seen, "ж" * 250 + end)["raw"] for end in "12"}
    assert len(stored) == 2 and all(raw.read(completer.run.dir, str(path)) == b"said" for path in stored)


def test_every_measurement_says_which_machine_it_was(completer: measurement.Completer, tmp_path: pathlib.Path) -> None:
    own, other = {"machine_id": "a" * 32, "gpu_uuids": ["GPU-1"]}, {"machine_id": "b" * 32}
    found = completer.complete(observed(context={"identity": own, "identities": {"gpu-02": other}, "gpu": "NVIDIA H200"}))
    assert found["context"] == {"identities": {"gpu-01": own}, "gpu": "NVIDIA H200"}, "a node speaks for nobody else"
    assert completer.complete(observed(part="gpu/GPU-1", context={"identity": own}))["context"]["identities"] == {"gpu-01": own}
    assert "identities" not in completer.complete(observed(context={"identities": {"gpu-02": other}}))["context"]
    subject = {"kind": "group", "id": "all", "members": ["gpu-01", "gpu-02"]}
    planned = {("all_reduce", "", "all"): {"check": "all_reduce", "variant": "", "subject": subject, "attempt": 1}}
    run = Run(tmp_path, "20260101T000000Z-0a1b2c")
    head = measurement.Completer(run, "nccl_fabric", "gpu-01", "ssh", planned)
    told = {"gpu-01": own, "gpu-02": other, "gpu-03": other}
    found = head.complete(observed(context={"identity": own, "identities": told}, subject=subject) | {"variant": ""})
    assert found["context"]["identities"] == {"gpu-01": own, "gpu-02": other}, "the head speaks for its members"
    pair = {"kind": "pair", "id": "gpu-01|gpu-02", "members": []}
    walker = measurement.Completer(run, "rdma", "gpu-01", "ssh", {("all_reduce", "gpus=all", pair["id"]): {"subject": pair, "attempt": 1}})
    assert walker.complete(observed(context={"identity": own}, subject=pair))["context"] == {"identities": {"gpu-01": own}}


@settings(max_examples=300)
@given(JSON)
def test_anything_becomes_a_measurement(completer: measurement.Completer, seen: t.Any) -> None:
    found = completer.complete(seen)
    assert measurement.problem(found) is None and found["outcome"] == "error"


@settings(max_examples=300)
@given(st.sampled_from(sorted(observation.FIELDS)), JSON)
def test_one_bad_field_never_passes_for_measured(completer: measurement.Completer, name: str, value: t.Any) -> None:
    found = completer.complete(dict(observed(), **{name: value}))
    assert measurement.problem(found) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "354", [354]])
def test_a_metric_that_is_no_finite_number_is_a_bad_measurement(completer: measurement.Completer, value: t.Any) -> None:
    found = completer.complete(dict(observed(), metrics={"busbw": {"value": value, "unit": "GB/s"}}))
    assert (found["outcome"], found["reason_code"]) == ("error", "bad_measurement")


def test_raw_output_cannot_leave_the_run(completer: measurement.Completer) -> None:
    seen = dict(observed(), raw_z=base64.b64encode(zlib.compress(b"x")).decode())
    seen["check"] = "../../../etc/passwd"
    found = completer.complete(seen)
    assert found["reason_code"] == "bad_measurement" and found["check"] == "unknown"
    outside = [p for p in completer.run.dir.parent.rglob("*passwd*") if not p.is_relative_to(completer.run.dir / "raw")]
    assert not outside


def test_raw_text_that_unpacks_to_more_than_the_limit_is_cut(completer: measurement.Completer) -> None:
    bomb = base64.b64encode(zlib.compress(b"\0" * (64 << 20))).decode()
    found = completer.complete(dict(observed(), raw_z=bomb))
    assert len(raw.read(completer.run.dir, found["raw"])) <= raw.LIMIT


CHECKS = [("all_reduce", "gpus=all"), ("all_gather", "gpus=all")]
NODE = {"kind": "node", "id": "gpu-01", "members": []}


@pytest.fixture
def asked(completer: measurement.Completer) -> measurement.Completer:
    planned = {(*check, "gpu-01"): {"subject": NODE, "attempt": 1} for check in CHECKS}
    return measurement.Completer(completer.run, "nccl_node", "gpu-01", "ssh", planned)


@pytest.mark.parametrize(
    ("answer", "outcome", "code"),
    [
        ({"lost": ("unreachable", "no route")}, "missing", "unreachable"),
        ({"state": "refused", "reason_code": "busy_run", "reason": "run x holds it"}, "error", "busy_run"),
        ({"state": "refused", "reason_code": "made up", "reason": ""}, "error", "bad_measurement"),
        ({"state": "check_mode"}, "missing", "check_mode"),
        ({"state": "running"}, "timeout", "timeout"),
        ({"state": "done", "end": "timeout"}, "timeout", "timeout"),
        ({"state": "done", "end": "done"}, "error", "bad_measurement"),
        ({"state": "done", "end": None}, "error", "interrupted"),
        ({"state": "done", "end": "done", "fault": "OSError: [Errno 28] No space left on device"}, "error", "disk_full"),
        ({"state": "done", "end": "done", "fault": "ValueError: x"}, "error", "module_failed"),
        ({"failed": True, "msg": "Missing sudo password"}, "error", "no_sudo"),
        ({"failed": True, "module_stderr": "/bin/sh: 1: /usr/bin/python3: not found", "rc": 127}, "error", "no_python"),
        ({"failed": True, "msg": "No start of json char found\npyenv: python3.13: command not found"}, "error", "no_python"),
        ({"failed": True, "msg": "unsupported parameter"}, "error", "module_failed"),
        ({}, "error", "module_failed"),
        ({"observations": "text"}, "error", "module_failed"),
        ({"state": "running", "ran": "text"}, "timeout", "timeout"),
    ],
)
def test_every_planned_check_gets_an_answer(
    asked: measurement.Completer, answer: dict[str, t.Any], outcome: str, code: str
) -> None:
    found = interpret(answer, asked)
    assert {(m["check"], m["outcome"], m["reason_code"]) for m in found} == {(c, outcome, code) for c, _v in CHECKS}
    assert all(measurement.problem(m) is None for m in found)


def test_what_was_measured_before_the_deadline_is_kept(asked: measurement.Completer) -> None:
    found = interpret({"state": "done", "end": "timeout", "observations": [observed()]}, asked)
    assert [(m["check"], m["outcome"]) for m in found] == [("all_reduce", "measured"), ("all_gather", "timeout")]



def test_each_node_behind_a_target_answers_for_its_own_checks(completer: measurement.Completer) -> None:
    subjects = [{"kind": "node", "id": f"lab/{name}", "members": []} for name in ("a", "b")]
    planned = {("all_reduce", "", str(s["id"])): {"subject": s, "attempt": 1} for s in subjects}
    asked = measurement.Completer(completer.run, "nccl_node", "lab", "kubernetes", planned)
    answer = {"state": "done", "end": "timeout", "ran": {"image": "tester:1"}, "observations": []}
    (found,) = interpret(answer, asked, "lab/a", [("all_reduce", "", "lab/a")])
    assert (found["subject"]["id"], found["outcome"], found["context"]) == ("lab/a", "timeout", {"image": "tester:1"})
    assert found["reason"].startswith("lab/a: ")


def test_a_pair_is_taken_only_from_the_node_that_was_asked(completer: measurement.Completer) -> None:
    pair = {"kind": "pair", "id": "gpu-01 - gpu-02", "members": []}
    planned = {("write_bw", "rail=0", pair["id"]): {"subject": pair, "attempt": 2}}
    asked = measurement.Completer(completer.run, "rdma", "gpu-01", "ssh", planned)
    seen = observation.measured("write_bw", variant="rail=0", metrics={"bandwidth": {"value": 1.0, "unit": "Gb/s"}}, subject=pair)
    found = asked.complete(seen)
    assert (found["subject"], found["attempt"], found["outcome"]) == (pair, 2, "measured")
    forged = asked.complete({**seen, "subject": {**pair, "id": "gpu-03 - gpu-04"}})
    assert (forged["outcome"], forged["reason_code"], forged["subject"]["id"]) == ("error", "bad_measurement", "gpu-01")
    (lost,) = interpret({"lost": ("unreachable", "no route")}, asked)
    assert (lost["subject"], lost["outcome"]) == (pair, "missing")


def test_the_head_of_a_group_cannot_do_what_was_asked_of_its_members(completer: measurement.Completer) -> None:
    group = {"kind": "group", "id": "nccl_fabric", "members": ["gpu-01", "gpu-02"]}
    planned = {
        ("all_reduce", "", group["id"]): {"subject": group, "attempt": 1},
        ("member", "", "gpu-01"): {"subject": NODE, "attempt": 1},
    }
    head = measurement.Completer(completer.run, "nccl_fabric", "gpu-01", "ssh", planned)
    other = {"kind": "node", "id": "gpu-02", "members": []}
    finding = head.complete(observation.measured("localise", subject=other))
    assert (finding["outcome"], finding["subject"]["id"]) == ("measured", "gpu-02")
    for check in ("member", "all_reduce"):
        forged = head.complete(observation.measured(check, subject=other))
        assert (forged["outcome"], forged["reason_code"], forged["subject"]["id"]) == ("error", "bad_measurement", "gpu-01")


def test_a_whole_number_of_400_digits_is_no_number() -> None:
    assert not model.is_number(10**400) and not model.is_number(-(10**400)) and model.is_number(10**300) and not model.is_number(True)
