# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One measurement against one expectation, outside a run: what the filter `bandwidth_verdict` does.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import matching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import (
    LAYERS,
    METRIC_KINDS,
    Expectation,
    ExpectationError,
    parse,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.physics import UNITS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    Context,
    Kind,
    Measurement,
    Metric,
    PlainData,
    SeriesRow,
    Subject,
    is_number,
)

_OUTCOMES = ("measured", "error", "timeout", "missing", "not_applicable")


def bandwidth_verdict(
    measurement: t.Any, expectation: t.Any, single_node_stages: t.Collection[str] = (), multi_node_stages: t.Collection[str] = ()
) -> PlainData:
    """Return a verdict/v1 of one measurement.

    `measurement` is a measurement/v1, an observation, what the filters `nccl_tests`, `perftest` or `hccl_test` return,
    or {"value", "unit"} with `size` (bytes) where it has one. `expectation` is an entry of a table, or {"value",
    "unit"} with `metric`, `size` and `better` where they matter. Whatever is not a number with a unit on both sides is
    UNKNOWN, and so is an expectation for other hardware, another number of GPUs or nodes, or another message size: what nccl-tests
    printed names the GPUs and hosts of its ranks. `single_node_stages` and `multi_node_stages` name the stages that measure
    one node, and several together. What a measurement does not tell is let pass. Never raises.
    """
    record, attempt = _measurement(measurement)
    try:
        opinion = _judge(record, _expectation(expectation, record), single_node_stages, multi_node_stages)
    except ExpectationError as error:
        opinion = Opinion("UNKNOWN", f"no usable expectation: {error}", "no_expectation")
    return opinion.written(record.run_id, record.stage, record.check, record.variant, attempt, record.simulated, record.subject).as_dict()


def _judge(
    record: Measurement, expected: Expectation, single_node_stages: t.Collection[str], multi_node_stages: t.Collection[str]
) -> Opinion:
    outcome, code, reason = record.outcome, record.reason_code, str(record.reason)
    if outcome == "not_applicable" and code in reasons.SKIP_RULES:
        return Opinion("SKIPPED", f"rule {code}: {reason}", code)
    if outcome != "measured":
        fatal = outcome == "error" and code in reasons.FATAL
        return Opinion("FAIL" if fatal else "UNKNOWN", reason, code)
    contradictions = _contradictions(expected, record, single_node_stages, multi_node_stages)
    if contradictions:
        expected_words, seen_words = (" and ".join(f"{key} {pair[at]}" for key, pair in contradictions.items()) for at in (0, 1))
        return Opinion("UNKNOWN", f"the expectation is for {expected_words}, not {seen_words}", "no_expectation")
    wrong = bands.impossible(record, expected.match)
    opinions = [wrong] if wrong else []
    for size in expected.sizes:
        try:
            value = bands.reading(record, expected.metric, size)
        except bands.Unusable as error:
            return Opinion("UNKNOWN", str(error), "bad_measurement", metric=expected.metric)
        if value is not None:
            opinions.append(bands.held(value, expected, record.context))
    if not opinions:
        sizes = " or ".join(bands.human(s) if isinstance(s, int) else str(s) for s in expected.sizes)
        return Opinion("UNKNOWN", f"the expectation holds at {sizes}, which was not measured", "no_expectation")
    return bands.worst(opinions)


def _contradictions(
    expected: Expectation, record: Measurement, single_node_stages: t.Collection[str], multi_node_stages: t.Collection[str]
) -> dict[str, tuple[t.Any, t.Any]]:
    """Return the expected and the found value of each key in which the two differ."""
    contradictions = {}
    for key, expected_value in expected.match.items():
        if bands.accepts(dataclasses.replace(expected, match={key: expected_value}), record, expected.match) is not None:
            context_seen = matching.seen_by(expected.match, record.context)
            contradictions[key] = (expected_value, context_seen.get(key, {"stage": record.stage, "check": record.check}.get(key)))
    nodes, stage = record.context.get("nodes"), expected.match.get("stage")
    elsewhere = is_number(nodes) and (nodes > 1 if stage in single_node_stages else nodes == 1 and stage in multi_node_stages)
    if "nodes" not in expected.match and elsewhere:
        contradictions["nodes"] = (1 if stage in single_node_stages else "2 or more", nodes)
    return contradictions


def _of_ranks(ranks: t.Any, world_size: t.Any) -> Context:
    """GPU, GPUs of a node and nodes that the lines of nccl-tests' ranks tell, as a context has them.

    Hosts are counted only where their names tell machines apart: cut at the first dot, several may have one name, and then two ranks
    seem to be on one GPU.
    """
    ranks = [rank for rank in ranks if isinstance(rank, dict)] if isinstance(ranks, list) else []
    context: Context = {}
    if is_number(world_size):
        context["world_size"] = world_size
    names = sorted({rank["name"] for rank in ranks if isinstance(rank.get("name"), str) and rank["name"]})
    if names:
        context["gpu"] = names[0] if len(names) == 1 else "mixed: " + ", ".join(names)
    places = {(str(rank.get("host")), str(rank.get("device")), str(rank.get("bdf"))) for rank in ranks}
    if len(places) != len(ranks) or not is_number(world_size):
        return context
    # Ranks of several groups (NCCL_TESTS_SPLIT) never spoke to those of others: each group is a test of its own.
    groups = collections.Counter(str(rank.get("group")) for rank in ranks)
    hosts = collections.Counter(str(rank.get("host")) for rank in ranks if str(rank.get("group")) == min(groups))
    alike = len(set(groups.values())) == len(set(hosts.values())) == 1
    if alike and world_size % (len(groups) * len(hosts)) == 0:
        context.update(nodes=len(hosts), gpus=world_size // (len(groups) * len(hosts)))
    return context


def _of_rows(raw: PlainData) -> Context:
    """Operation and type of a table, where it names them."""
    rows = raw.get("rows")
    types = {row["type"] for row in rows if isinstance(row, dict) and isinstance(row.get("type"), str)} if isinstance(rows, list) else set()
    op = raw.get("op")
    return {**({"op": op} if isinstance(op, str) else {}), **({"type": types.pop()} if len(types) == 1 else {})}


def _expectation(raw: t.Any, record: Measurement) -> Expectation:
    if not isinstance(raw, dict):
        raise ExpectationError(f"found {raw!r:.100}, expected a dictionary with at least value and unit")
    raw = dict(raw)
    layer = raw.pop("layer", "run")
    # An entry as plan.json keeps it has these two besides.
    raw.pop("rank", None), raw.pop("origin", None)
    size = raw.pop("size", None)
    match = raw.get("match", {})
    if isinstance(match, dict):
        match = {"stage": record.stage or "any", **({} if size is None else {"size": size}), **match}
    kind = UNITS.get(raw["unit"], ("",))[0] if isinstance(raw.get("unit"), str) else ""
    alike = [m for m in record.metrics if isinstance(m, str) and METRIC_KINDS.get(m) == kind]
    usual = {
        "id": "given",
        "metric": next((m for m in bands.PRIMARY if m in alike), alike[0] if alike else "busbw"),
        "source": "given by the caller",
        "date": datetime.date.today().isoformat(),
        "confidence": "derived",
    }
    usual.update({k: v for k, v in raw.items() if not (k == "note" and v is None)})
    return parse({**usual, "match": match}, "expectation", layer if layer in LAYERS else "run")


def _measurement(raw: t.Any) -> tuple[Measurement, int | None]:
    """Return what was given as a measurement, as far as it says what a measurement has to say, and the number of its attempt."""
    header, fields = _fields(raw)
    subject = header["subject"]
    measurement = Measurement(
        schema="measurement/v1", run_id=header["run_id"], stage=header["stage"], check=header["check"], variant=header["variant"],
        subject=Subject(subject["kind"], subject["id"], subject["members"]), plane="", target="", attempt=header["attempt"] or 1,
        outcome=fields["outcome"], reason_code=fields["reason_code"], reason=fields["reason"],
        metrics={name: _metric(metric) for name, metric in fields["metrics"].items()}, series=fields["series"], context=fields["context"],
        evidence={}, command=[], tool_version=None, started_at="", duration_s=0.0, raw=None, raw_sha256=None, simulated=header["simulated"],
    )  # fmt: skip
    return measurement, header["attempt"]


def _metric(raw: t.Any) -> Metric:
    """Return a metric; what is no number with a unit is refused when it is read."""
    return Metric(raw.get("value"), str(raw.get("unit"))) if isinstance(raw, dict) else Metric(raw, "")


def _fields(raw: t.Any) -> tuple[PlainData, PlainData]:
    """Return what a measurement is about, and its numbers with what selects an expectation."""
    header: PlainData = {
        "run_id": "",
        "stage": "",
        "check": "",
        "variant": "",
        "subject": {"kind": "node", "id": "unknown", "members": []},
        "attempt": None,
        "simulated": False,
    }
    fields: PlainData = {"outcome": "error", "reason_code": "bad_measurement", "metrics": {}, "series": []}
    fields.update(stage="", check="", context={}, reason=f"found {raw!r:.200}, expected a measurement")
    if not isinstance(raw, dict):
        return header, fields
    for key in ("run_id", "stage", "check", "variant"):
        if isinstance(raw.get(key), str):
            header[key] = raw[key]
    subject = raw.get("subject")
    if isinstance(subject, dict) and isinstance(subject.get("id"), str) and subject["id"]:
        kind = subject.get("kind") if subject.get("kind") in t.get_args(Kind) else "node"
        members = subject.get("members")
        members = [m for m in members if isinstance(m, str)] if isinstance(members, list) else []
        header["subject"] = {"kind": kind, "id": subject["id"], "members": members}
    if isinstance(raw.get("attempt"), int) and not isinstance(raw["attempt"], bool):
        header["attempt"] = raw["attempt"]
    header["simulated"] = raw.get("simulated") is True
    if isinstance(raw.get("op"), str) and not header["check"]:
        header["check"] = raw["op"]
    fields.update(stage=header["stage"], check=header["check"])
    fields["context"] = {**_of_ranks(raw.get("ranks"), raw.get("world_size")), **_of_rows(raw)}
    if isinstance(raw.get("context"), dict):
        fields["context"].update(raw["context"])
    _numbers(raw, fields)
    _outcome(raw, fields)
    return header, fields


def _numbers(raw: PlainData, fields: PlainData) -> None:
    metrics = dict(raw["metrics"]) if isinstance(raw.get("metrics"), dict) else {}
    rows = raw.get("series") if isinstance(raw.get("series"), list) else raw.get("rows")
    if "value" in raw and "unit" in raw:
        name = raw.get("metric")
        kind = UNITS.get(raw["unit"], ("",))[0] if isinstance(raw["unit"], str) else ""
        usual = {"flops": "tflops", "time": "latency"}.get(kind, "busbw")
        name = name if isinstance(name, str) else usual
        metrics[name] = {"value": raw["value"], "unit": raw["unit"]}
        if "size" in raw:
            rows = [{"size": raw["size"], name: raw["value"]}]
    peak = raw.get("peak_busbw")
    if isinstance(peak, dict):
        metrics.setdefault("busbw", {"value": peak.get("value"), "unit": peak.get("unit")})
    if "rows" in raw and "context" not in raw:
        unit = raw.get("bandwidth_unit")
        usual = unit if isinstance(unit, str) else "GB/s"
        fields["context"]["series_units"] = {"busbw": usual, "algbw": usual, **_units_of(raw)}
    fields["metrics"] = metrics
    fields["series"] = [_row(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _units_of(raw: PlainData) -> dict[str, str]:
    units = raw.get("units")
    return {k: v for k, v in units.items() if isinstance(v, str)} if isinstance(units, dict) else {}


def _row(row: SeriesRow) -> SeriesRow:
    """A row with its numbers flat; of nccl-tests' two halves the better one counts, as for the peak."""
    halves = [row[k] for k in ("out_of_place", "in_place") if isinstance(row.get(k), dict)]
    if not halves:
        return row
    flat = {k: v for k, v in row.items() if k not in ("out_of_place", "in_place")}
    for name in ("algbw", "busbw"):
        values = [half.get(name) for half in halves]
        flat[name] = max(values) if all(is_number(v) for v in values) else None
    return flat


def _outcome(raw: PlainData, fields: PlainData) -> None:
    """`measured` where it is said so, or where there are bare numbers and nothing is said."""
    outcome = raw.get("outcome", "measured" if fields["metrics"] or fields["series"] else None)
    code, reason = raw.get("reason_code"), raw.get("reason")
    if outcome == "measured" and code is None:
        fields.update(outcome=outcome, reason_code=None, reason=None)
    elif outcome in _OUTCOMES and outcome != "measured":
        known_code = code if isinstance(code, str) and code in reasons.ALL else "bad_measurement"
        why = reason if isinstance(reason, str) and reason.strip() else "it was not measured and does not say why"
        fields.update(outcome=outcome, reason_code=known_code, reason=why)
