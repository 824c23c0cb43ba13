# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verdicts: expectations applied to measurements. Pure; runs nothing, reads nothing.

Bands and neighbour rules are those of docs/verdicts.md, with their sources.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import fnmatch
import math
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import drift as drift_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.expectations import (
    PLATEAU_FROM,
    Chosen,
    Expectation,
    ExpectationError,
    Expectations,
    number,
    parse,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.run import RunError

Verdict = t.Dict[str, t.Any]
Measurement = t.Dict[str, t.Any]

PASS, WARN, FAIL, UNKNOWN, SKIPPED, KNOWN_FAIL = "PASS", "WARN", "FAIL", "UNKNOWN", "SKIPPED", "KNOWN_FAIL"
ACCEPTABLE = (PASS, WARN, SKIPPED, KNOWN_FAIL)
# The worse, the higher. FAIL before UNKNOWN: a defect that was seen outranks one that could not be looked for.
BADNESS = {PASS: 0, SKIPPED: 0, KNOWN_FAIL: 1, WARN: 2, UNKNOWN: 3, FAIL: 4}
PASS_BAND, WARN_BAND = 0.95, 0.90
NEIGHBOURS = 5
Z_LIMIT = -3.5
MAD_FLOOR = 0.01
# Evidence that is a defect by itself; every other new error makes a PASS a WARN.
FATAL_EVIDENCE = {"gpu_lost": "gpu_lost", "ecc_uncorrected": "ecc"}
# Findings of the health check that are only worth a look.
MILD_FINDINGS = ("foreign_process",)


@dataclasses.dataclass
class Judgement:
    """What a run is worth. `why` is one sentence; `coverage` is {"planned", "measured", "unknown": [...]}."""

    verdicts: list[Verdict]
    coverage: dict[str, t.Any]
    accepted: bool
    why: str
    counts: dict[str, int]
    notes: list[str]
    drift: dict[str, list[dict[str, t.Any]]]


def key_of(record: dict[str, t.Any]) -> tuple[str, str, str, str]:
    """Stage, check, variant and subject: what a measurement is about."""
    return record["stage"], record["check"], record["variant"], record["subject"]["id"]


def judge(
    plan: dict[str, t.Any],
    measurements: list[Measurement],
    expected: t.Callable[[str], Expectations],
    waivers: list[dict[str, t.Any]] | None = None,
    warn: str = "accept",
    stack: dict[str, dict[str, t.Any]] | None = None,
    today: datetime.date | None = None,
) -> Judgement:
    """Judge a run. `expected(target)` are the expectations of a target; `stack[target]` its golden values, what it ignores
    and what drift is worth there."""
    today = today or datetime.date.today()
    rules = [_waiver(w, n) for n, w in enumerate(waivers or [])]
    history: dict[tuple[str, str, str, str], list[Measurement]] = collections.defaultdict(list)
    for m in measurements:
        history[key_of(m)].append(m)
    latest = {key: sorted(of, key=lambda m: m["attempt"])[-1] for key, of in history.items()}
    verdicts = {key: _single(m, history[key], expected(m["target"])) for key, m in latest.items()}
    deviations = _drift(latest, verdicts, stack or {})
    _neighbours(latest, verdicts)
    _siblings(latest, verdicts)
    _identities(latest, verdicts)
    _members(latest, verdicts)
    missing = []
    for item in plan["items"]:
        if key_of(item) not in verdicts:
            missing.append(key_of(item))
            verdicts[key_of(item)] = _verdict(
                item, plan["run_id"], UNKNOWN, "not_run", f"planned on {item['target']} and never measured; resume the run"
            )
    for verdict in verdicts.values():
        _waive(verdict, rules, today)
    planned = {(i["stage"], i["check"], i["variant"], i["subject"]["id"]) for i in plan["items"]}
    ordered = sorted(verdicts.values(), key=lambda v: (-BADNESS[v["verdict"]], v["stage"], v["subject"]["id"], v["check"]))
    return _conclude(plan, ordered, planned, latest, warn, deviations)


def _conclude(
    plan: dict[str, t.Any], verdicts: list[Verdict], planned: set[tuple[str, str, str, str]],
    latest: dict[tuple[str, str, str, str], Measurement], warn: str, deviations: dict[str, list[dict[str, t.Any]]],
) -> Judgement:  # fmt: skip
    counts = {name: sum(1 for v in verdicts if v["verdict"] == name) for name in BADNESS}
    measured = sum(1 for key in planned if key in latest and latest[key]["outcome"] in ("measured", "not_applicable"))
    unknown = [f"{v['subject']['id']} {v['stage']} {v['check']}" for v in verdicts if v["verdict"] == UNKNOWN]
    bad = [v for v in verdicts if v["verdict"] not in ACCEPTABLE]
    in_plan = [v for v in verdicts if key_of(v) in planned]
    if not planned:
        accepted, why = False, "the plan is empty: nothing was to be measured"
    elif bad:
        subjects = sorted({v["subject"]["id"].split("/gpu/")[0] for v in bad})
        accepted = False
        why = (
            f"{counts[FAIL]} FAIL and {counts[UNKNOWN]} UNKNOWN on {len(subjects)} of {len(plan['targets'])} nodes: "
            + ", ".join(subjects[:5]) + (" ..." if len(subjects) > 5 else "")
        )  # fmt: skip
    elif not any(v["verdict"] == PASS for v in in_plan):
        accepted, why = False, "no planned check is a PASS: nothing was shown to work"
    elif counts[WARN] and warn == "refuse":
        accepted, why = False, f"{counts[WARN]} WARN, and acceptance_warn is refuse"
    else:
        accepted = True
        why = f"all {len(planned)} planned checks on {len(plan['targets'])} nodes are acceptable"
        if counts[WARN]:
            why += f", {counts[WARN]} with a WARN to read"
        if counts[KNOWN_FAIL]:
            why += f", {counts[KNOWN_FAIL]} under a waiver"
        if plan.get("partial"):
            why += "; PARTIAL: this run left parts of the fleet or of the stages out"
    coverage = {"planned": len(planned), "measured": measured, "unknown": unknown}
    return Judgement(verdicts, coverage, accepted, why, counts, list(plan.get("notes") or []), deviations)


# One measurement ---------------------------------------------------------------------------------------------------


def _verdict(about: dict[str, t.Any], run_id: str, verdict: str, code: str | None, reason: str, **more: t.Any) -> Verdict:
    found: Verdict = {
        "schema": "verdict/v1", "run_id": run_id, "stage": about["stage"], "check": about["check"],
        "variant": about["variant"], "subject": about["subject"], "verdict": verdict, "value": None, "unit": None,
        "floor": None, "layer": None, "source": None, "confidence": None, "reason_code": code, "reason": reason,
        "metric": None, "expected": None, "date": None, "expectation": None, "attempt": about.get("attempt"),
        "simulated": bool(about.get("simulated")), "findings": [], "ticket": None, "expires": None, "of": None,
    }  # fmt: skip
    found.update(more)
    return found


def _worsen(verdict: Verdict, to: str, code: str, reason: str, **more: t.Any) -> None:
    """Make a verdict worse, never better; what it said before stays among its findings."""
    if BADNESS[to] > BADNESS[verdict["verdict"]]:
        verdict["findings"].append(verdict["reason"])
        verdict.update(verdict=to, reason_code=code, reason=reason, **more)
    else:
        verdict["findings"].append(reason)


def _single(m: Measurement, attempts: list[Measurement], expected: Expectations) -> Verdict:
    subject = m["subject"]["id"]
    if m["outcome"] == "not_applicable":
        if m["reason_code"] in reasons.SKIP_RULES:
            return _verdict(m, m["run_id"], SKIPPED, m["reason_code"], f"rule {m['reason_code']}: {m['reason']}")
        return _verdict(m, m["run_id"], UNKNOWN, m["reason_code"], f"{m['reason']} (no rule skips this)")
    if m["outcome"] != "measured":
        fatal = m["outcome"] == "error" and m["reason_code"] in reasons.FATAL
        return _verdict(m, m["run_id"], FAIL if fatal else UNKNOWN, m["reason_code"], m["reason"])
    verdict = _bandwidth(m, expected)
    for finding in m["context"].get("findings") or []:
        grave = finding["code"] not in MILD_FINDINGS
        code = finding["code"] if finding["code"] in reasons.ALL else "health"
        _worsen(verdict, FAIL if grave else WARN, code, f"{subject}: {finding['text']}")
    for change in (m["evidence"] or {}).get("changes") or []:
        code = change.get("code")
        if code in FATAL_EVIDENCE:
            _worsen(verdict, FAIL, FATAL_EVIDENCE[code], f"{subject}: {change.get('text')} while the test ran")
        else:
            _worsen(verdict, WARN, "evidence", f"{subject}: {change.get('text')} while the test ran")
    earlier = [a for a in attempts if a["attempt"] < m["attempt"]]
    if earlier:
        how = ", ".join(f"{a['outcome']} ({a['reason_code']})" if a["reason_code"] else a["outcome"] for a in earlier)
        _worsen(verdict, WARN, "later_attempt", f"{subject}: measured only on attempt {m['attempt']}; before: {how}")
    return verdict


def _bandwidth(m: Measurement, expected: Expectations) -> Verdict:
    """The worst of all expectations that hold for this measurement."""
    if not m["metrics"]:
        return _verdict(m, m["run_id"], PASS, None, f"{m['subject']['id']}: {m['check']} was done and is as it should be")
    found = [(c, v) for c in expected.choose(m) if (v := _value(c, m)) is not None]
    if not found:
        return _no_expectation(m, expected)
    judged = [_banded(m, chosen, value) for chosen, value in found]
    return max(judged, key=lambda v: (BADNESS[v["verdict"]], -_ratio(v)))


def _ratio(verdict: Verdict) -> float:
    return float(verdict["value"] / verdict["expected"]) if verdict["floor"] <= verdict["expected"] else float(
        verdict["expected"] / verdict["value"]
    )


def _value(chosen: Chosen, m: Measurement) -> float | None:
    """The number that an expectation is about, in its unit; None where the measurement has none of that size."""
    entry, size = chosen
    if size is None:
        metric = m["metrics"].get(entry.metric)
        return convert(metric["value"], metric["unit"], entry.unit) if isinstance(metric, dict) else None
    rows = [r for r in m["series"] if number(r.get("size"))]
    if size == "plateau":
        size = max((r["size"] for r in rows), default=0)
        if size < PLATEAU_FROM:
            return None
    unit = (m["context"].get("series_units") or {}).get(entry.metric)
    values = [convert(r.get(entry.metric), unit, entry.unit) for r in rows if r["size"] == size]
    # Several rows of one size are several types, roots or cycles: the worst of them counts.
    found = [v for v in values if v is not None]
    if not found or len(found) != len(values):
        return None
    return min(found) if entry.better == "higher" else max(found)


def convert(value: t.Any, unit: t.Any, wanted: str) -> float | None:
    """A number in another unit of the same kind, else None."""
    if not number(value):
        return None
    if unit == wanted:
        return float(value)
    kind, factor = physics.UNITS.get(unit, (None, 1.0)) if isinstance(unit, str) else (None, 1.0)
    wanted_kind, wanted_factor = physics.UNITS[wanted]
    return float(value) * factor / wanted_factor if kind == wanted_kind else None


def _banded(m: Measurement, chosen: Chosen, value: float) -> Verdict:
    """PASS at 0.95 of the expectation and above, WARN at 0.90, FAIL below; for a latency the reciprocals."""
    entry, size = chosen
    at = "" if size is None else f" at {_size(size)}"
    lower = entry.better == "lower"
    floor = entry.value / PASS_BAND if lower else entry.value * PASS_BAND
    ratio = (entry.value / value if value > 0 else math.inf) if lower else value / entry.value
    if lower and value <= 0:
        ratio = 0.0  # a time of nothing was not measured
    said = f"{m['subject']['id']}: {m['check']} {entry.metric}{at} {value:.4g} {entry.unit}"
    expected = f"expected {entry.value:.4g} {entry.unit} ({entry.confidence}: {entry.source}, {entry.date})"
    if ratio >= PASS_BAND:
        verdict, code, reason = PASS, None, f"{said}, {100 * ratio:.1f} % of the {expected}"
    elif ratio >= WARN_BAND:
        verdict, code, reason = WARN, "below_warn", f"{said}, only {100 * ratio:.1f} % of the {expected}"
    else:
        verdict, code, reason = FAIL, "below_floor", f"{said}, only {100 * ratio:.1f} % of the {expected}"
    return _verdict(
        m, m["run_id"], verdict, code, reason, value=value, unit=entry.unit, floor=floor, layer=entry.layer,
        source=entry.source, confidence=entry.confidence, metric=entry.metric, expected=entry.value, date=entry.date,
        expectation=entry.id,
    )  # fmt: skip


def _no_expectation(m: Measurement, expected: Expectations) -> Verdict:
    name, metric = next(iter(m["metrics"].items()))
    context = m["context"]
    hardware = " ".join(f"{k}={context[k]}" for k in ("gpu", "gpus", "nvls", "algorithm", "nodes") if context.get(k) is not None)
    sizes = sorted({_size(c.size) for c in expected.choose(m) if c.size is not None})
    if sizes and m["series"]:
        last = max((r.get("size") or 0) for r in m["series"])
        reason = (
            f"{m['subject']['id']}: the results are right, the bandwidth is not judged: the sweep ends at {_size(last)} and "
            f"expectations for this hardware are known at {', '.join(sizes)}; measure up to there"
        )
    else:
        reason = (
            f"{m['subject']['id']}: no expectation for {m['stage']} {m['check']} {m['variant']} on {hardware or 'this hardware'}; "
            "set it in acceptance_expectations or run playbooks/baseline.yml"
        )
    value = metric["value"]
    return _verdict(m, m["run_id"], UNKNOWN, "no_expectation", reason, value=value, unit=metric["unit"], metric=name)


def _size(size: t.Any) -> str:
    if not isinstance(size, int):
        return str(size)
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


# Many measurements -------------------------------------------------------------------------------------------------


def _neighbours(latest: dict[t.Any, Measurement], verdicts: dict[t.Any, Verdict]) -> None:
    """A node that is far below identical ones is suspect even where the expectation lets it pass.

    Modified z-score after Iglewicz and Hoaglin: 0.6745 (x - median) / MAD.
    """
    groups: dict[t.Any, list[t.Any]] = collections.defaultdict(list)
    for key, m in latest.items():
        v = verdicts[key]
        if m["outcome"] == "measured" and v["value"] is not None and v["metric"]:
            c = m["context"]
            groups[(*key[:3], m["subject"]["kind"], v["metric"], v["unit"], v["expectation"], c.get("gpu"), c.get("gpus"))].append(key)
    for group, keys in groups.items():
        if len(keys) < NEIGHBOURS + 1:
            continue
        lower = any(verdicts[k]["floor"] is not None and verdicts[k]["floor"] > verdicts[k]["expected"] for k in keys)
        values = [verdicts[k]["value"] for k in keys]
        median = statistics.median(values)
        spread = max(statistics.median([abs(v - median) for v in values]), MAD_FLOOR * abs(median))
        if median <= 0 or lower:
            continue
        for key in keys:
            v = verdicts[key]
            ratio = v["value"] / median
            z = 0.6745 * (v["value"] - median) / spread
            said = f"{v['subject']['id']}: {v['value']:.4g} {v['unit']} is {100 * ratio:.1f} % of the median {median:.4g} of {len(keys)} identical neighbours"
            if ratio < WARN_BAND:
                _worsen(v, FAIL, "below_neighbours", said, layer="fleet", floor=WARN_BAND * median)
            elif ratio < PASS_BAND and z < Z_LIMIT:
                _worsen(v, WARN, "below_neighbours", said, layer="fleet", floor=PASS_BAND * median)


def _siblings(latest: dict[t.Any, Measurement], verdicts: dict[t.Any, Verdict]) -> None:
    """A GPU against the other GPUs of its node: 5 % under their median is a WARN, 10 % a FAIL."""
    nodes: dict[t.Any, list[t.Any]] = collections.defaultdict(list)
    for key, m in latest.items():
        if m["subject"]["kind"] == "gpu" and m["outcome"] == "measured" and verdicts[key]["value"] is not None:
            nodes[(*key[:3], m["target"])].append(key)
    for keys in nodes.values():
        for key in keys:
            others = [verdicts[k]["value"] for k in keys if k != key]
            if not others:
                continue
            v, median = verdicts[key], statistics.median(others)
            ratio = v["value"] / median if median > 0 else 1.0
            if ratio < PASS_BAND:
                said = f"{v['subject']['id']}: {v['value']:.4g} {v['unit']} is {100 * ratio:.1f} % of its siblings' median {median:.4g}"
                _worsen(v, FAIL if ratio < WARN_BAND else WARN, "below_siblings", said)


def _members(latest: dict[t.Any, Measurement], verdicts: dict[t.Any, Verdict]) -> None:
    """What a node's check covers must be measured, and a node is no better than its parts."""
    for key, m in latest.items():
        if m["outcome"] != "measured":
            continue
        for member in m["subject"]["members"]:
            part = verdicts.get((*key[:3], member))
            if part is None:
                _worsen(verdicts[key], UNKNOWN, "incomplete", f"{member} was not measured with the other parts of {key[3]}")
            elif part["verdict"] in (FAIL, UNKNOWN, WARN):
                _worsen(verdicts[key], part["verdict"], part["reason_code"], part["reason"])


def _identities(latest: dict[t.Any, Measurement], verdicts: dict[t.Any, Verdict]) -> None:
    """One machine under two names would be accepted twice."""
    owners: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for m in latest.values():
        for uuid in m["context"].get("gpu_uuids") or []:
            owners[("GPU", str(uuid))].add(m["target"])
        if m["context"].get("machine_id"):
            owners[("machine-id", str(m["context"]["machine_id"]))].add(m["target"])
    doubles = {target: (kind, value, names) for (kind, value), names in owners.items() if len(names) > 1 for target in names}
    for key, m in latest.items():
        if m["target"] in doubles:
            kind, value, names = doubles[m["target"]]
            said = f"{m['target']}: {kind} {value} also belongs to {', '.join(sorted(names - {m['target']})[:5])}; one machine stands twice in the inventory"
            _worsen(verdicts[key], UNKNOWN, "duplicate_identity", said)


def _drift(
    latest: dict[t.Any, Measurement], verdicts: dict[t.Any, Verdict], stack: dict[str, dict[str, t.Any]]
) -> dict[str, list[dict[str, t.Any]]]:
    """Facts against golden values and against the majority of nodes with the same GPUs."""
    peers: dict[t.Any, dict[str, t.Any]] = collections.defaultdict(dict)
    for key, m in latest.items():
        if m["outcome"] == "measured" and isinstance(m["context"].get("facts"), dict):
            peers[m["context"].get("gpu")][m["target"]] = key
    found: dict[str, list[dict[str, t.Any]]] = {}
    for nodes in peers.values():
        facts = {target: latest[key]["context"]["facts"] for target, key in nodes.items()}
        options = {target: stack.get(target) or {} for target in facts}
        for chosen in {repr(o): o for o in options.values()}.values():
            mine = {target for target, o in options.items() if o == chosen}
            deviating = drift_of.drift(facts, chosen.get("golden"), chosen.get("ignore") or ())
            for target in mine:
                items = [dict(i, severity=drift_of.severity(i, chosen.get("drift"))) for i in deviating[target]]
                items = [i for i in items if i["severity"] != "ignore"]
                if items:
                    found[target] = items
                for worth, verdict in (("warn", WARN), ("fail", FAIL)):
                    of = [i for i in items if i["severity"] == worth]
                    if of:
                        said = "; ".join(f"{i['item']} is {i['found'][:80]}, {i['basis']} {i['expected'][:80]} ({i['agree']} of {i['of']} nodes)" if i["basis"] == "majority" else f"{i['item']} is {i['found'][:80]}, {i['basis']}: {i['expected'][:80]}" for i in of[:4])
                        more = f" and {len(of) - 4} more" if len(of) > 4 else ""
                        _worsen(verdicts[nodes[target]], verdict, "drift", f"{target}: {said}{more}")
    return found


# Waivers -----------------------------------------------------------------------------------------------------------


def check_waivers(waivers: list[t.Any]) -> None:
    """RunError for the first waiver that cannot be used, before anything is measured."""
    for number_of, given in enumerate(waivers):
        _waiver(given, number_of)


def _waiver(given: t.Any, number: int) -> dict[str, t.Any]:
    where = f"acceptance_waivers[{number}]"
    allowed = {"subject", "stage", "check", "ticket", "expires", "reason"}
    if not isinstance(given, dict) or not set(given) <= allowed:
        raise RunError(f"{where}: found {given!r}, expected {', '.join(sorted(allowed))}")
    for name in ("subject", "ticket", "expires"):
        if not given.get(name):
            raise RunError(f"{where}.{name}: found {given.get(name)!r}, expected a value")
    try:
        expires = given["expires"] if isinstance(given["expires"], datetime.date) else datetime.date.fromisoformat(str(given["expires"]))
    except ValueError:
        raise RunError(f"{where}.expires: found {given['expires']!r}, expected a date like 2026-12-31") from None
    return {**given, "expires": expires}


def _waive(verdict: Verdict, rules: list[dict[str, t.Any]], today: datetime.date) -> None:
    """A FAIL with a ticket is a KNOWN_FAIL until the waiver's last day. Nothing waives what is not known."""
    if verdict["verdict"] != FAIL:
        return
    for rule in rules:
        if (
            fnmatch.fnmatchcase(verdict["subject"]["id"], str(rule["subject"]))
            and rule.get("stage") in (None, verdict["stage"])
            and rule.get("check") in (None, verdict["check"])
        ):
            expires = rule["expires"].isoformat()
            if rule["expires"] < today:
                verdict["findings"].append(f"waiver {rule['ticket']} expired on {expires}")
                verdict["reason"] += f" (waiver {rule['ticket']} expired on {expires})"
                continue
            verdict["findings"].append(verdict["reason"])
            verdict.update(
                verdict=KNOWN_FAIL, of=FAIL, reason_code="waived", ticket=str(rule["ticket"]), expires=expires,
                reason=f"known failure, {rule['ticket']} until {expires}: {verdict['reason']}",
            )  # fmt: skip
            return


# Windows -----------------------------------------------------------------------------------------------------------


def bandwidth_verdict(measurement: t.Any, expectation: t.Any) -> Verdict:
    """One measurement against one expectation, outside a run.

    `measurement`: a measurement/v1, what the `nccl_tests` filter returns, or {"value", "unit"}. `expectation`: an entry of a
    table, or {"value", "unit"}. Anything that is not a number with a unit on both sides is UNKNOWN, never PASS.
    """
    m = _as_measurement(measurement)
    try:
        entry = _as_expectation(expectation)
    except ExpectationError as error:
        return _verdict(m, m["run_id"], UNKNOWN, "no_expectation", str(error))
    if m["outcome"] != "measured":
        return _single(m, [m], Expectations([]))
    judged = []
    for size in entry.sizes:
        chosen = Chosen(entry, size)
        value = _value(chosen, m)
        if value is None:
            units = ", ".join(sorted({str(x.get("unit")) for x in m["metrics"].values() if isinstance(x, dict)})) or "none"
            at = f" at {_size(size)}" if size is not None else ""
            reason = f"no number for {entry.metric}{at} that is in {entry.unit} or can be converted; units found: {units}"
            return _verdict(m, m["run_id"], UNKNOWN, "bad_measurement", reason)
        judged.append(_banded(m, chosen, value))
    return max(judged, key=lambda v: (BADNESS[v["verdict"]], -_ratio(v)))


def _as_expectation(given: t.Any) -> Expectation:
    if not isinstance(given, dict):
        raise ExpectationError(f"expectation: found {given!r:.100}, expected a dictionary with value and unit")
    usual = {
        "id": "given", "match": {"stage": "any"}, "metric": "busbw", "source": "given by the caller",
        "date": datetime.date.today().isoformat(), "confidence": "derived",
    }  # fmt: skip
    return parse({**usual, **{k: v for k, v in given.items() if k != "layer"}}, "expectation", given.get("layer") or "run")


def _as_measurement(given: t.Any) -> Measurement:
    m: Measurement = {
        "run_id": "", "stage": "none", "check": "none", "variant": "", "subject": {"kind": "node", "id": "unknown", "members": []},
        "attempt": 1, "outcome": "error", "reason_code": "bad_measurement", "reason": f"found {given!r:.100}, expected a measurement",
        "metrics": {}, "series": [], "context": {}, "evidence": {}, "simulated": False, "target": "unknown",
    }  # fmt: skip
    if not isinstance(given, dict):
        return m
    if "peak_busbw" in given and "rows" in given:  # what the nccl_tests filter returns
        m.update({k: given[k] for k in ("outcome", "reason_code", "reason") if k in given})
        m["check"] = given.get("op") or "none"
        if isinstance(given["peak_busbw"], dict):
            m["metrics"] = {"busbw": {k: given["peak_busbw"].get(k) for k in ("value", "unit")}}
        m["context"] = {"series_units": {"busbw": "GB/s", "algbw": "GB/s"}}
        for row in given["rows"]:
            halves = [h for h in (row.get("out_of_place"), row.get("in_place")) if h]
            m["series"].append({"size": row["size"], "busbw": max((h["busbw"] for h in halves), default=None)})
    elif set(given) >= {"value", "unit"}:
        m.update(outcome="measured", reason_code=None, reason=None, metrics={"busbw": {"value": given["value"], "unit": given["unit"]}})
    else:
        m.update({k: v for k, v in given.items() if k in m and v is not None})
        if given.get("outcome") == "measured":
            m.update(reason_code=None, reason=None)
    if m["outcome"] not in ("measured", "error", "timeout", "missing", "not_applicable"):
        m.update(outcome="error", reason_code="bad_measurement", reason=f"unknown outcome {m['outcome']!r:.50}")
    if m["outcome"] != "measured" and (m["reason_code"] not in reasons.ALL or not m["reason"]):
        m.update(reason_code="bad_measurement", reason=str(m["reason"] or "it was not measured and does not say why"))
    return m
