# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demands of a contract, each with the checks that prove it: which demand is met, and which check no demand asks for.

    - id: PERF-3
      text: all-reduce over a scalable unit within 5 % of 480 GB/s
      actor: vendor
      priority: must
      checks: ["nccl_fabric all_reduce"]          # STAGE, STAGE CHECK or STAGE CHECK VARIANT; * stands for any characters
      target: 480
      tolerance_percent: 5

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import fnmatch
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.standing import KNOWN_FAIL, Deciding, Standing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats

VARIABLE = "acceptance_contract"
MET, NOT_MET, NOT_LOOKED_FOR = "met", "not met", "not looked for"
FIELDS = {
    "id": True,
    "text": True,
    "checks": False,
    "actor": False,
    "priority": False,
    "target": False,
    "at_most": False,
    "tolerance_percent": False,
}
COLUMNS = ("id", "text", "actor", "priority", "state", "checks", "measured", "why")


class Demand(t.NamedTuple):
    """A demand. `checks` are patterns of checks, none for what no run can show. With a `target` the value of each check must be at least
    the target less the tolerance, or at most the target and the tolerance if it `at_most` may reach it, in the unit of the check."""

    id: str
    text: str
    checks: tuple[str, ...]
    actor: str
    priority: str
    target: float | None
    at_most: bool
    tolerance_percent: float

    def asks_for(self, words: str) -> bool:
        """Return True if a check, as `STAGE CHECK VARIANT`, proves this demand."""
        return any(fnmatch.fnmatchcase(words, pattern) or fnmatch.fnmatchcase(words, f"{pattern} *") for pattern in self.checks)


def read(text: str, name: str) -> list[Demand]:
    """Return the demands of a YAML file. Raise RunError that names the demand and the field that is wrong."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RunError(f"{name}: {' '.join(str(error).split())}") from error
    if not isinstance(value, list) or not value:
        raise RunError(f"{name}: expected a list of demands, each with {', '.join(FIELDS)}")
    demands = [_demand(entry, f"{name}: demand {place}") for place, entry in enumerate(value, 1)]
    for demand_id, count in collections.Counter(demand.id for demand in demands).items():
        if count > 1:
            raise RunError(f"{name}: the id {demand_id} is there {count} times")
    return demands


def _demand(entry: t.Any, name: str) -> Demand:
    if not isinstance(entry, dict):
        raise RunError(f"{name}: found {entry!r}, expected its fields {', '.join(FIELDS)}")
    unknown = sorted(map(str, entry.keys() - FIELDS.keys()))
    missing = [field for field, needed in FIELDS.items() if needed and not entry.get(field)]
    if unknown or missing:
        problem = f"unknown field {unknown[0]}" if unknown else f"{missing[0]} is missing"
        raise RunError(f"{name}: {problem}; the fields are {', '.join(FIELDS)}")
    checks = entry.get("checks") or []
    if not isinstance(checks, list) or not all(isinstance(check, str) and check.strip() for check in checks):
        raise RunError(f"{name}: checks: found {checks!r}, expected a list like ['STAGE CHECK', 'STAGE']")
    numbers = {field: entry.get(field) for field in ("target", "tolerance_percent")}
    for field, value in numbers.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0):
            raise RunError(f"{name}: {field}: found {value!r}, expected a number")
    return Demand(
        str(entry["id"]), " ".join(str(entry["text"]).split()), tuple(" ".join(check.split()) for check in checks),
        str(entry.get("actor") or ""), str(entry.get("priority") or ""), numbers["target"],
        bool(entry.get("at_most")), float(numbers["tolerance_percent"] or 0),
    )  # fmt: skip


def words_of(key: Key) -> str:
    """Return a check as demands name it."""
    return f"{key.stage} {key.check} {key.variant}".strip()


def trace(demands: t.Sequence[Demand], standing: Standing) -> tuple[list[PlainData], list[str]]:
    """Return a row for each demand, and the checks, as `STAGE CHECK`, that no demand asks for."""
    by_words: dict[str, list[tuple[Deciding, bool]]] = collections.defaultdict(list)
    for key, deciding in standing.checks.items():
        by_words[words_of(key)].append((deciding, key in standing.bad))
    rows = [_row(demand, {words: found for words, found in by_words.items() if demand.asks_for(words)}) for demand in demands]
    unasked = {" ".join(words.split()[:2]) for words in by_words if not any(demand.asks_for(words) for demand in demands)}
    return rows, sorted(unasked)


def _row(demand: Demand, found: t.Mapping[str, t.Sequence[tuple[Deciding, bool]]]) -> PlainData:
    results = [one for many in found.values() for one in many]
    bad = sum(is_bad for _deciding, is_bad in results)
    waived = sum(deciding.verdict.verdict == KNOWN_FAIL for deciding, _is_bad in results)
    values = [deciding.verdict for deciding, _is_bad in results if deciding.verdict.value is not None]
    state, why = MET, f"{len(results)} checks"
    if not results:
        state, why = NOT_LOOKED_FOR, "no check of these rounds shows it" if demand.checks else "no check is named for it"
    elif bad:
        state, why = NOT_MET, f"{bad} of {len(results)} checks have no valid pass"
    elif waived:
        state, why = NOT_MET, f"{waived} of {len(results)} checks are failures under a waiver"
    elif demand.target is not None:
        state, why = _held(demand, demand.target, len(results), values)
    numbers = [float(verdict.value) for verdict in values if verdict.value is not None]
    units = {verdict.unit or "" for verdict in values}
    spread = (
        f"{formats.number(min(numbers))} to {formats.number(max(numbers))} {units.pop()}".strip() if numbers and len(units) == 1 else ""
    )
    return {
        "id": demand.id, "text": demand.text, "actor": demand.actor, "priority": demand.priority, "state": state,
        "checks": ", ".join(demand.checks), "measured": spread, "why": why,
    }  # fmt: skip


def _held(demand: Demand, target: float, count: int, values: t.Sequence[t.Any]) -> tuple[str, str]:
    """Return the state of a demand with a target, whose checks all passed, and why."""
    if len(values) < count:
        return NOT_MET, f"{count - len(values)} of {count} checks have no number that could be held against the target"
    if len({verdict.unit for verdict in values}) > 1:
        return NOT_MET, "its checks have numbers of several units, which no one target fits"
    share = demand.tolerance_percent / 100
    limit = target * (1 + share if demand.at_most else 1 - share)
    beyond = [verdict for verdict in values if (verdict.value > limit if demand.at_most else verdict.value < limit)]
    if beyond:
        worst = (max if demand.at_most else min)(beyond, key=lambda verdict: verdict.value)
        side = "more" if demand.at_most else "less"
        return (
            NOT_MET,
            f"{len(beyond)} of {len(values)} are {side} than {formats.number(limit)}: {worst.subject.id} {formats.number(worst.value)}",
        )
    return MET, f"{len(values)} numbers, each {'at most' if demand.at_most else 'at least'} {formats.number(limit)}"
