# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The records have one definition: schemas, observations of the nodes and classes agree."""

from __future__ import annotations

import copy
import json
import marshal
import pathlib
import sys
import typing as t

import jsonschema
import msgspec
import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import lines, model

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "tests" / "tools"))

import schemas

MEASUREMENT: dict[str, t.Any] = {
    "schema": "measurement/v1",
    "run_id": "20260101T000000Z-0a1b2c",
    "stage": "nccl_node",
    "check": "all_reduce",
    "variant": "gpus=all",
    "subject": {"kind": "node", "id": "gpu-01", "members": ["gpu-01/gpu/GPU-1"]},
    "plane": "ssh",
    "target": "gpu-01",
    "attempt": 1,
    "outcome": "measured",
    "reason_code": None,
    "reason": None,
    "metrics": {"busbw": {"value": 354.06, "unit": "GB/s"}, "wrong": {"value": None, "unit": "count"}},
    "series": [{"size": 8, "busbw": 1.5}],
    "context": {"gpu": "NVIDIA H200"},
    "evidence": {"changes": [], "unreadable": [], "window": {}},
    "command": ["all_reduce_perf"],
    "tool_version": "2.19.6",
    "started_at": "2026-01-01T00:00:00.25Z",
    "duration_s": 12,
    "raw": "raw/gpu-01/x.txt",
    "raw_sha256": "0" * 64,
    "simulated": False,
}
SUBJECT = model.Subject("node", "gpu-01", [])
OPINION = Opinion("FAIL", "too slow", "below_floor", 1.5, "GB/s", 300.0, "shipped", "measured by us", "measured")
VERDICT = OPINION.written("20260101T000000Z-0a1b2c", "nccl_node", "all_reduce", "gpus=all", 1, False, SUBJECT).as_dict()
RECORDS = {"measurement-v1.json": (model.Measurement, MEASUREMENT), "verdict-v1.json": (model.Verdict, VERDICT)}
EXPECTATION = {
    "id": "mine", "match": {"stage": "gemm"}, "metric": "tflops", "value": 700, "unit": "TFLOPS", "source": "runs", "date": "2026-11-01",
    "confidence": "measured",
}  # fmt: skip
PLAN: dict[str, t.Any] = {
    "schema": "plan/v1",
    "run_id": "20260101T000000Z-0a1b2c",
    "created_at": "2026-01-01T00:00:00Z",
    "stages": [{"name": "stack", "role": "gpufleet.acceptance.stack"}, {"name": "ours", "role": "ours", "description": "/a/stage.py"}],
    "targets": {"gpu-01": {"plane": "ssh"}},
    "items": [
        {
            "stage": "stack", "check": "facts", "variant": "", "target": "gpu-01",
            "subject": {"kind": "node", "id": "gpu-01", "members": []},
        },
        {
            "stage": "ddp", "check": "all_reduce", "variant": "gpus=all", "target": "lab", "refused": "ddp: found 1 node",
            "subject": {"kind": "group", "id": "ddp/lab", "members": ["lab/a"]},
        },
    ],
    "sample": {"stack": {"seed": 0, "nodes": ["gpu-01"], "of": 4}},
    "settings": {"sets": [{"stack_drift": {}}], "of": {"gpu-01": 0}},
    "judging": {"sets": [[EXPECTATION]], "of": {"gpu-01": 0}, "waivers": [{"ticket": "A-1"}], "leaf": {"gpu-01": "a"}},
}  # fmt: skip
# A path in a record and a value that is refused there.
REFUSED: dict[str, list[tuple[tuple[str, ...], t.Any]]] = {
    "measurement-v1.json": [
        (("schema",), "measurement/v2"),
        (("run_id",), "20260101T000000Z-0a1b2c\n"),
        (("stage",), "Nccl"),
        (("check",), "c" * 64),
        (("variant",), "v" * 513),
        (("plane",), "p" * 33),
        (("target",), ""),
        (("subject",), "gpu-01"),
        (("subject", "kind"), "rack"),
        (("subject", "id"), ""),
        (("subject", "id"), "n" * 1025),
        (("subject", "members"), [1]),
        (("subject", "name"), "gpu-01"),
        (("attempt",), 0),
        (("attempt",), True),
        (("outcome",), "done"),
        (("outcome",), "error"),  # without a reason
        (("reason_code",), "not_run"),  # of a measured check
        (("reason",), "r" * 2001),
        (("metrics", "busbw"), 354.06),
        (("metrics", "busbw", "value"), "354"),
        (("metrics", "busbw", "value"), True),
        (("metrics", "busbw", "unit"), ""),
        (("metrics", "busbw", "note"), "x"),
        (("series",), [1]),
        (("context",), []),
        (("evidence",), None),
        (("command",), "all_reduce_perf"),
        (("tool_version",), 2),
        (("started_at",), "2026-01-01 00:00:00"),
        (("duration_s",), -1),
        (("raw_sha256",), "0" * 63),
        (("simulated",), 0),
        (("host",), "gpu-01"),
    ],
    "verdict-v1.json": [
        (("verdict",), "GOOD"),
        (("reason",), ""),
        (("reason_code",), "Too slow"),
        (("value",), "1.5"),
        (("layer",), "cluster"),
        (("confidence",), "high"),
        (("findings",), [None]),
        (("of",), ""),
        (("host",), "gpu-01"),
    ],
}


def validator(name: str) -> t.Any:
    return jsonschema.Draft202012Validator(json.loads((schemas.FOLDER / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", RECORDS)
def test_shipped_schemas_are_generated_from_the_model(name: str) -> None:
    assert (schemas.FOLDER / name).read_text(encoding="utf-8") == schemas.texts()[name], "run `make schemas`"


@pytest.mark.parametrize("name", RECORDS)
def test_class_and_schema_accept_a_record(name: str) -> None:
    record_type, record = RECORDS[name]
    validator(name).validate(record)
    assert msgspec.to_builtins(msgspec.convert(record, record_type)) == record


@pytest.mark.parametrize("name", RECORDS)
def test_class_and_schema_want_the_same_fields(name: str) -> None:
    record_type, record = RECORDS[name]
    for field in record:
        without = {key: value for key, value in record.items() if key != field}
        assert validator(name).is_valid(without) == _fits(without, record_type), field


@pytest.mark.parametrize(("name", "path", "value"), [(name, *one) for name, some in REFUSED.items() for one in some])
def test_class_and_schema_refuse_the_same(name: str, path: tuple[str, ...], value: t.Any) -> None:
    record_type, record = RECORDS[name]
    wrong = copy.deepcopy(record)
    at = wrong
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert not validator(name).is_valid(wrong) and not _fits(wrong, record_type)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400])
@pytest.mark.parametrize("path", [("metrics", "busbw", "value"), ("duration_s",)])
def test_numbers_are_finite(path: tuple[str, ...], value: t.Any) -> None:
    wrong = copy.deepcopy(MEASUREMENT)
    at = wrong
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    assert not _fits(wrong, model.Measurement)


def test_a_reason_code_that_nobody_knows_is_refused() -> None:
    failed = {**MEASUREMENT, "outcome": "error", "reason": "x"}
    assert _fits({**failed, "reason_code": "tool_failed"}, model.Measurement)
    assert not _fits({**failed, "reason_code": "made_up"}, model.Measurement)


def test_an_observation_has_the_fields_of_a_measurement() -> None:
    """A node lists them in answer/observation.py, which needs neither msgspec nor Python 3.10."""
    of_node, of_record = {"part", "members"}, {"schema", "run_id", "stage", "plane", "target", "attempt", "raw_sha256"}
    assert set(observation.FIELDS) - of_node == set(model.Measurement.__struct_fields__) - of_record
    seen = observation.measured("all_reduce")
    assert _fits({**MEASUREMENT, **{name: seen[name] for name in set(seen) - of_node - {"subject"}}}, model.Measurement)


def test_measurements_of_another_process_are_the_same_and_share_their_subject() -> None:
    first = model.measurement_of(copy.deepcopy(MEASUREMENT))
    others = [first.replaced(check="all_gather"), first.replaced(metrics={})]
    packed = marshal.loads(marshal.dumps(lines.pack([first, *others])))
    unpacked = list(lines.unpack(packed))
    assert unpacked == [first, *others] and len({id(one.subject) for one in unpacked}) == 1


def test_a_field_can_be_read_by_its_name() -> None:
    """Stages and sinks of a team's own do."""
    measurement = model.measurement_of(MEASUREMENT)
    assert measurement["metrics"]["busbw"]["value"] == 354.06 and measurement["subject"]["id"] == "gpu-01"
    assert measurement.get("stage") == "nccl_node" and measurement.get("host") is None
    with pytest.raises(KeyError):
        measurement["host"]


def _fits(record: t.Any, record_type: t.Any) -> bool:
    try:
        if record_type is model.Measurement:
            model.measurement_of(record)
        else:
            msgspec.convert(record, record_type)
    except ValueError:
        return False
    return True


class Text(str):
    """As the texts that come through Ansible."""


class Whole(int):
    pass


class Mapping(dict):  # type: ignore[type-arg]
    pass


def wrapped(value: t.Any) -> t.Any:
    """Data as it comes through Ansible, whose texts, numbers and containers are subclasses."""
    if isinstance(value, str):
        return Text(value)
    if isinstance(value, dict):
        return Mapping({Text(name): wrapped(item) for name, item in value.items()})
    if isinstance(value, list):
        return [wrapped(item) for item in value]
    return Whole(value) if type(value) is int else value


def test_data_that_came_through_ansible_is_data() -> None:
    measurement = model.measurement_of(wrapped(copy.deepcopy(MEASUREMENT)))
    assert measurement.as_dict() == model.measurement_of(copy.deepcopy(MEASUREMENT)).as_dict()
    measurement.context["said"] = Text("through Ansible")
    assert type(measurement.as_dict()["context"]["said"]) is str


def test_what_is_no_data_is_refused_as_a_measurement() -> None:
    with pytest.raises(ValueError, match="object is no plain data"):
        model.measurement_of({**MEASUREMENT, "stage": object()})


def test_a_plan_is_read_as_it_was_written_and_fits_its_schema() -> None:
    schema = jsonschema.Draft202012Validator(json.loads(schemas.texts()["plan-v1.json"]))
    plan = model.plan_of(json.dumps(PLAN).encode())
    written = plan.as_dict()
    assert not list(schema.iter_errors(PLAN)) and not list(schema.iter_errors(written))
    assert model.plan_of(json.dumps(written).encode()) == plan
    assert written == {**written, **{name: value for name, value in PLAN.items() if name != "judging"}}
    assert written["judging"] == {**written["judging"], **PLAN["judging"]} and written["judging"]["warn"] == "accept"
    assert plan.items[1].todo(3) == {name: PLAN["items"][1][name] for name in ("check", "variant", "subject", "refused")} | {"attempt": 3}


@pytest.mark.parametrize(
    "change", [{"schema": "plan/v2"}, {"items": [{"stage": "stack"}]}, {"targets": []}, {"judging": {"of": {"a": "b"}}}]
)
def test_what_is_no_plan_is_refused(change: dict[str, t.Any]) -> None:
    with pytest.raises(ValueError, match=r"Expected|Invalid|Object"):
        model.plan_of(json.dumps({**PLAN, **change}).encode())


def test_a_plan_with_numbers_that_python_alone_writes_is_read() -> None:
    settings = {"sets": [{"ours_limit": float("inf"), "ours_name": "\udc80"}], "of": {"gpu-01": 0}}
    plan = model.plan_of(json.dumps({**PLAN, "settings": settings}).encode())
    assert plan.settings is not None and plan.settings.as_dict() == settings


def test_items_of_a_teams_own_stage_are_checked() -> None:
    plain = {name: value for name, value in PLAN["items"][0].items() if name != "stage"}
    assert model.plan_item("stack", plain).as_dict() == PLAN["items"][0]
    for wrong in ({**plain, "rack": "a"}, {**plain, "subject": {"kind": "node", "id": "a"}}, {**plain, "target": None}):
        with pytest.raises(ValueError, match=r"unknown field rack|members|target"):
            model.plan_item("stack", wrong)


def test_a_field_that_is_not_set_is_missing_by_name_too() -> None:
    whole, refused = model.plan_of(json.dumps(PLAN).encode()).items
    assert "refused" not in whole and whole.get("refused", "no") == "no" and "refused" not in {**whole}
    assert refused["refused"] == refused.get("refused") == {**refused}["refused"]
    with pytest.raises(KeyError):
        whole["refused"]
