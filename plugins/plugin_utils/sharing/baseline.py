# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The regression baseline: the numbers of cases that passed in earlier runs, with which the same cases are compared.

A number stays in the baseline until an operator starts a new one. If each run were compared with the run before it, a system that becomes
a little slower every time would never fail.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import Case
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import shown

Object = t.Dict[str, t.Any]
# The snapshot's path below the folder of a run.
FILE = "gpu_sharing/baseline.json"
LATEST = "latest"
# A parameter with this suffix is a percentage of the reference; any other has the unit of the metric.
RELATIVE = "_pct"
GATE = "P1"


def problem(source: str) -> str | None:
    """Return why the named snapshot cannot be used, None if it can."""
    try:
        if source not in ("", LATEST):
            _read(pathlib.Path(source).expanduser())
    except RunError as error:
        return str(error)
    return None


def load(source: str, results: pathlib.Path, run_id: str) -> dict[str, Object]:
    """Return {"HOST CASE": the case's metrics when it passed}, from a file, or for LATEST from the newest earlier run that has the case."""
    if not source:
        return {}
    if source != LATEST:
        return _read(pathlib.Path(source).expanduser())
    newest: dict[str, Object] = {}
    for path in sorted(results.glob(f"*/{FILE}"), reverse=True):
        if path.parents[1].name < run_id:
            with contextlib.suppress(RunError):  # a damaged snapshot of an old run does not stop this run
                for key, entry in _read(path).items():
                    if entry["metrics"]:  # a case that did not pass has none
                        newest.setdefault(key, entry)
    return newest


def _read(path: pathlib.Path) -> dict[str, Object]:
    where = f"gpu_sharing_baseline: {path}"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{where}: {' '.join(str(error).split())}; expected '', {LATEST!r} or a baseline.json of a run") from error
    cases = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(cases, dict) or not all(isinstance(case, dict) and isinstance(case.get("metrics"), dict) for case in cases.values()):
        raise RunError(f"{where}: found no cases with metrics, expected a baseline.json of a run")
    return cases


def comparison_key(context: t.Mapping[str, t.Any], variant: str, simulated: bool) -> Object:
    """Return the key that two records must share if their numbers are to be compared."""
    return {"variant": variant, "simulated": simulated, **{name: context.get(name) for name in ("system", "gpus", "image")}}


def expressions(
    case: Case, measured: t.Mapping[str, tuple[float | None, str]], entry: t.Mapping[str, t.Any] | None, key: Object, scale: float,
    numbers: t.Mapping[str, float],
) -> tuple[list[Object], Object]:
    """Return the comparisons of a case's metrics with the baseline as assertions (conclusion.py), and the reference numbers used. Both are
    empty if there is no comparable entry, or if the load was shortened: its start-up is then most of its time."""
    limits = {name: limit for name, limit in case.limits.items() if measured.get(name, (None, ""))[0] is not None}
    if entry is None or scale != 1 or {name: entry.get(name) for name in key} != key:
        return [], {}
    assertions: list[Object] = []
    references: Object = {}
    for name, (better, parameter) in limits.items():
        reference = entry["metrics"].get(name)
        if not isinstance(reference, dict) or not isinstance(reference.get("value"), (int, float)):
            continue
        references[name] = reference
        value, unit = measured[name]
        allowance = numbers[parameter] * (reference["value"] / 100 if parameter.endswith(RELATIVE) else 1)
        floor = reference["value"] + allowance if better == "lower" else reference["value"] - allowance
        sign, holds = ("<=", value <= floor) if better == "lower" else (">=", value >= floor)
        origin = f"{shown(reference['value'])} {unit} of run {reference.get('run_id')}, {parameter}={shown(numbers[parameter])}"
        assertions.append({
            "that": f"{name} {sign} baseline, {parameter}", "holds": holds, "gates": [GATE], "lacking": [],
            "said": f"{name}={shown(t.cast('float', value))} {unit} {sign} {shown(floor)} {unit} ({origin})",
            "cause": "it has become worse than the baseline",
        })  # fmt: skip
    return assertions, references
