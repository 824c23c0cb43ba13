# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The regression baseline: the numbers of cases that passed in earlier runs, to which the same cases are held.

A number stays the yardstick until somebody begins anew: were each run held to the one before it, a system that becomes a little slower
every time would never be told.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import Case
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import shown

Object = t.Dict[str, t.Any]
# What the archive of a run writes, below its folder.
FILE = "gpu_sharing/baseline.json"
LATEST = "latest"
# A time beyond the reference by so much of itself, else by so much of its unit.
RELATIVE = "_pct"
GATE = "P1"


def problem(wanted: str) -> str | None:
    """Why a snapshot that somebody names cannot be used."""
    try:
        if wanted not in ("", LATEST):
            _read(pathlib.Path(wanted).expanduser())
    except RunError as error:
        return str(error)
    return None


def load(wanted: str, results: pathlib.Path, run_id: str) -> dict[str, Object]:
    """{"HOST CASE": what it measured when it passed}, of a file, or of each case as its newest run before this one has it."""
    if not wanted:
        return {}
    if wanted != LATEST:
        return _read(pathlib.Path(wanted).expanduser())
    found: dict[str, Object] = {}
    for path in sorted(results.glob(f"*/{FILE}"), reverse=True):
        if path.parents[1].name < run_id:
            with contextlib.suppress(RunError):  # what is left of some old run is no trouble of this one
                for key, entry in _read(path).items():
                    found.setdefault(key, entry)
    return found


def _read(path: pathlib.Path) -> dict[str, Object]:
    where = f"gpu_sharing_baseline: {path}"
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{where}: {' '.join(str(error).split())}; expected '', {LATEST!r} or a baseline.json of a run") from error
    cases = given.get("cases") if isinstance(given, dict) else None
    if not isinstance(cases, dict) or not all(isinstance(one, dict) and isinstance(one.get("metrics"), dict) for one in cases.values()):
        raise RunError(f"{where}: found no cases with metrics, expected a baseline.json of a run")
    return cases


def about(context: t.Mapping[str, t.Any], variant: str, simulated: bool) -> Object:
    """Return the key that comparable numbers share."""
    return {"variant": variant, "simulated": simulated, **{name: context.get(name) for name in ("system", "gpus", "image")}}


def expressions(
    case: Case, measured: t.Mapping[str, tuple[float | None, str]], entry: t.Mapping[str, t.Any] | None, mine: Object, scale: float,
    numbers: t.Mapping[str, float],
) -> tuple[list[Object], Object]:
    """The metrics of a case held to the baseline as assertions (conclusion.py), and the baseline's numbers where they are the yardstick.
    None where nothing is to be compared with, or the load was shortened: its start is most of what it takes."""
    limits = {name: one for name, one in case.limits.items() if measured.get(name, (None, ""))[0] is not None}
    if entry is None or scale != 1 or {name: entry.get(name) for name in mine} != mine:
        return [], {}
    held: list[Object] = []
    kept: Object = {}
    for name, (better, parameter) in limits.items():
        reference = entry["metrics"].get(name)
        if not isinstance(reference, dict) or not isinstance(reference.get("value"), (int, float)):
            continue
        kept[name] = reference
        value, unit = measured[name]
        by = numbers[parameter] * (reference["value"] / 100 if parameter.endswith(RELATIVE) else 1)
        floor = reference["value"] + by if better == "lower" else reference["value"] - by
        sign, holds = ("<=", value <= floor) if better == "lower" else (">=", value >= floor)
        of = f"{shown(reference['value'])} {unit} of run {reference.get('run_id')}, {parameter}={shown(numbers[parameter])}"
        held.append({
            "that": f"{name} {sign} baseline, {parameter}", "holds": holds, "gates": [GATE], "lacking": [],
            "said": f"{name}={shown(t.cast('float', value))} {unit} {sign} {shown(floor)} {unit} ({of})",
            "cause": "it has become worse than the baseline",
        })  # fmt: skip
    return held, kept
