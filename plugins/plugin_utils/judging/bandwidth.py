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

from ansible_collections.gpufleet.acceptance.plugins.module_utils import matching, reasons
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
    Measurement,
    Metric,
    PlainData,
    SeriesRow,
    Subject,
    is_number,
)

_OUTCOMES = ("measured", "error", "timeout", "missing", "not_applicable")


def bandwidth_verdict(
    measurement: t.Any, expectation: t.Any, alone: t.Collection[str] = (), together: t.Collection[str] = ()
) -> PlainData:
    """A verdict/v1 of one measurement.

    `measurement` is a measurement/v1, an observation, what the filters `nccl_tests`, `perftest` or `hccl_test` return,
    or {"value", "unit"} with `size` (bytes) where it has one. `expectation` is an entry of a table, or {"value",
    "unit"} with `metric`, `size` and `better` where they matter. Whatever is not a number with a unit on both sides is
    UNKNOWN, and so is an expectation for other hardware, another number of GPUs or nodes, or another message size: what nccl-tests
    printed names the GPUs and hosts of its ranks. `alone` and `together` are the stages that measure one node, or several together. What a
    measurement does not tell is let pass. Never raises.
    """
    given, attempt = _measurement(measurement)
    try:
        opinion = _judge(given, _expectation(expectation, given), alone, together)
    except ExpectationError as error:
        opinion = Opinion("UNKNOWN", f"no usable expectation: {error}", "no_expectation")
    return opinion.written(given.run_id, given.stage, given.check, given.variant, attempt, given.simulated, given.subject).as_dict()


def _judge(found: Measurement, expected: Expectation, alone: t.Collection[str], together: t.Collection[str]) -> Opinion:
    outcome, code, reason = found.outcome, found.reason_code, str(found.reason)
    if outcome == "not_applicable" and code in reasons.SKIP_RULES:
        return Opinion("SKIPPED", f"rule {code}: {reason}", code)
    if outcome != "measured":
        fatal = outcome == "error" and code in reasons.FATAL
        return Opinion("FAIL" if fatal else "UNKNOWN", reason, code)
    contradictions = _contradictions(expected, found, alone, together)
    if contradictions:
        expected_words, seen_words = (" and ".join(f"{key} {pair[at]}" for key, pair in contradictions.items()) for at in (0, 1))
        return Opinion("UNKNOWN", f"the expectation is for {expected_words}, not {seen_words}", "no_expectation")
    wrong = bands.impossible(found, expected.match)
    opinions = [wrong] if wrong else []
    for size in expected.sizes:
        try:
            value = bands.reading(found, expected.metric, size)
        except bands.Unusable as error:
            return Opinion("UNKNOWN", str(error), "bad_measurement", metric=expected.metric)
        if value is not None:
            opinions.append(bands.held(value, expected, found.context))
    if not opinions:
        sizes = " or ".join(bands.human(s) if isinstance(s, int) else str(s) for s in expected.sizes)
        return Opinion("UNKNOWN", f"the expectation holds at {sizes}, which was not measured", "no_expectation")
    return bands.worst(opinions)


def _contradictions(
    expected: Expectation, found: Measurement, alone: t.Collection[str], together: t.Collection[str]
) -> dict[str, tuple[t.Any, t.Any]]:
    """Return the expected and the found value of each key in which the two differ."""
    contradictions = {}
    for key, expected_value in expected.match.items():
        if bands.accepts(dataclasses.replace(expected, match={key: expected_value}), found, expected.match) is not None:
            seen = matching.seen_by(expected.match, found.context)
            contradictions[key] = (expected_value, seen.get(key, {"stage": found.stage, "check": found.check}.get(key)))
    nodes, stage = found.context.get("nodes"), expected.match.get("stage")
    elsewhere = is_number(nodes) and (nodes > 1 if stage in alone else nodes == 1 and stage in together)
    if "nodes" not in expected.match and elsewhere:
        contradictions["nodes"] = (1 if stage in alone else "2 or more", nodes)
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


def _of_rows(given: PlainData) -> Context:
    """Operation and type of a table, where it names them."""
    rows = given.get("rows")
    types = {row["type"] for row in rows if isinstance(row, dict) and isinstance(row.get("type"), str)} if isinstance(rows, list) else set()
    op = given.get("op")
    return {**({"op": op} if isinstance(op, str) else {}), **({"type": types.pop()} if len(types) == 1 else {})}


def _expectation(given: t.Any, found: Measurement) -> Expectation:
    if not isinstance(given, dict):
        raise ExpectationError(f"found {given!r:.100}, expected a dictionary with at least value and unit")
    given = dict(given)
    layer = given.pop("layer", "run")
    # An entry as plan.json keeps it has these two besides.
    given.pop("rank", None), given.pop("origin", None)
    size = given.pop("size", None)
    match = given.get("match", {})
    if isinstance(match, dict):
        match = {"stage": found.stage or "any", **({} if size is None else {"size": size}), **match}
    kind = UNITS.get(given["unit"], ("",))[0] if isinstance(given.get("unit"), str) else ""
    alike = [m for m in found.metrics if isinstance(m, str) and METRIC_KINDS.get(m) == kind]
    usual = {
        "id": "given",
        "metric": next((m for m in bands.PRIMARY if m in alike), alike[0] if alike else "busbw"),
        "source": "given by the caller",
        "date": datetime.date.today().isoformat(),
        "confidence": "derived",
    }
    usual.update({k: v for k, v in given.items() if not (k == "note" and v is None)})
    return parse({**usual, "match": match}, "expectation", layer if layer in LAYERS else "run")


def _measurement(given: t.Any) -> tuple[Measurement, int | None]:
    """Return what was given as a measurement, as far as it says what a measurement has to say, and the number of its attempt."""
    about, fields = _fields(given)
    subject = about["subject"]
    measurement = Measurement(
        schema="measurement/v1", run_id=about["run_id"], stage=about["stage"], check=about["check"], variant=about["variant"],
        subject=Subject(subject["kind"], subject["id"], subject["members"]), plane="", target="", attempt=about["attempt"] or 1,
        outcome=fields["outcome"], reason_code=fields["reason_code"], reason=fields["reason"],
        metrics={name: _metric(metric) for name, metric in fields["metrics"].items()}, series=fields["series"], context=fields["context"],
        evidence={}, command=[], tool_version=None, started_at="", duration_s=0.0, raw=None, raw_sha256=None, simulated=about["simulated"],
    )  # fmt: skip
    return measurement, about["attempt"]


def _metric(given: t.Any) -> Metric:
    """Return a metric; what is no number with a unit is refused when it is read."""
    return Metric(given.get("value"), str(given.get("unit"))) if isinstance(given, dict) else Metric(given, "")


def _fields(given: t.Any) -> tuple[PlainData, PlainData]:
    """Return what a measurement is about, and its numbers with what selects an expectation."""
    about: PlainData = {
        "run_id": "",
        "stage": "",
        "check": "",
        "variant": "",
        "subject": {"kind": "node", "id": "unknown", "members": []},
        "attempt": None,
        "simulated": False,
    }
    fields: PlainData = {"outcome": "error", "reason_code": "bad_measurement", "metrics": {}, "series": []}
    fields.update(stage="", check="", context={}, reason=f"found {given!r:.200}, expected a measurement")
    if not isinstance(given, dict):
        return about, fields
    for key in ("run_id", "stage", "check", "variant"):
        if isinstance(given.get(key), str):
            about[key] = given[key]
    subject = given.get("subject")
    if isinstance(subject, dict) and isinstance(subject.get("id"), str) and subject["id"]:
        kind = subject.get("kind") if subject.get("kind") in ("node", "gpu", "nic", "pair", "group", "switch") else "node"
        members = subject.get("members")
        members = [m for m in members if isinstance(m, str)] if isinstance(members, list) else []
        about["subject"] = {"kind": kind, "id": subject["id"], "members": members}
    if isinstance(given.get("attempt"), int) and not isinstance(given["attempt"], bool):
        about["attempt"] = given["attempt"]
    about["simulated"] = given.get("simulated") is True
    if isinstance(given.get("op"), str) and not about["check"]:
        about["check"] = given["op"]
    fields.update(stage=about["stage"], check=about["check"])
    fields["context"] = {**_of_ranks(given.get("ranks"), given.get("world_size")), **_of_rows(given)}
    if isinstance(given.get("context"), dict):
        fields["context"].update(given["context"])
    _numbers(given, fields)
    _outcome(given, fields)
    return about, fields


def _numbers(given: PlainData, fields: PlainData) -> None:
    metrics = dict(given["metrics"]) if isinstance(given.get("metrics"), dict) else {}
    rows = given.get("series") if isinstance(given.get("series"), list) else given.get("rows")
    if "value" in given and "unit" in given:
        name = given.get("metric")
        kind = UNITS.get(given["unit"], ("",))[0] if isinstance(given["unit"], str) else ""
        usual = {"flops": "tflops", "time": "latency"}.get(kind, "busbw")
        name = name if isinstance(name, str) else usual
        metrics[name] = {"value": given["value"], "unit": given["unit"]}
        if "size" in given:
            rows = [{"size": given["size"], name: given["value"]}]
    peak = given.get("peak_busbw")
    if isinstance(peak, dict):
        metrics.setdefault("busbw", {"value": peak.get("value"), "unit": peak.get("unit")})
    if "rows" in given and "context" not in given:
        unit = given.get("bandwidth_unit")
        usual = unit if isinstance(unit, str) else "GB/s"
        fields["context"]["series_units"] = {"busbw": usual, "algbw": usual, **_units_of(given)}
    fields["metrics"] = metrics
    fields["series"] = [_row(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _units_of(given: PlainData) -> dict[str, str]:
    units = given.get("units")
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


def _outcome(given: PlainData, fields: PlainData) -> None:
    """`measured` where it is said so, or where there are bare numbers and nothing is said."""
    outcome = given.get("outcome", "measured" if fields["metrics"] or fields["series"] else None)
    code, reason = given.get("reason_code"), given.get("reason")
    if outcome == "measured" and code is None:
        fields.update(outcome=outcome, reason_code=None, reason=None)
    elif outcome in _OUTCOMES and outcome != "measured":
        known = code if isinstance(code, str) and code in reasons.ALL else "bad_measurement"
        why = reason if isinstance(reason, str) and reason.strip() else "it was not measured and does not say why"
        fields.update(outcome=outcome, reason_code=known, reason=why)
