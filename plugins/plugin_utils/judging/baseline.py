# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expectations proposed from what a fleet itself measured.

A median of the fleet cannot tell a healthy fleet from one that is slow as a whole: it stays a proposal, ignored, until
somebody removes its `proposed: true`.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import json
import re
import statistics
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import matching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import CONTEXT_KEYS, ExpectationError, parse, shipped
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.single_checks import better_of, primary
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import ExpectationData, Match, Measurement, is_number

# Sizes that people compare, beside the plateau.
USUAL_SIZE = 1 << 30


class Proposal(t.NamedTuple):
    """A file of expectations as YAML text, the entries in it, and what was left out and why. `under` says of each entry that is commented
    out in the text which shipped floor it is under."""

    text: str
    entries: list[ExpectationData]
    left_out: list[str]
    under: list[str]


class Source(t.NamedTuple):
    """The measurements of a run. `who` returns the identity of a measurement's subject, whatever its name in that run."""

    measurements: t.Iterable[Measurement]
    who: t.Callable[[Measurement], str]


class ProposedKey(t.TypedDict):
    """The key by which values of several subjects are gathered. `better` is that of the metric."""

    match: Match
    metric: str
    unit: str
    better: str
    simulated: bool


# {ProposedKey as JSON: {kind of subject: {what was measured of whom: values, one of each run}}}
Values = t.Dict[str, t.Dict[str, t.Dict[t.Tuple[str, str], t.List[float]]]]


def propose(measurements: t.Iterable[Measurement], run_id: str, date: str, minimum: int = bands.NEIGHBOURS) -> Proposal:
    """Expectations, one for each kind of hardware, check, metric and message size.

    Each value is the median of what was measured there on at least `minimum` subjects, without outliers, without those whose evidence
    shows errors, and without nodes of which anything in the run is fatal (wrong results, a lost GPU, memory errors). Of groups of nodes
    there are seldom that many: one is enough, and what fewer than `minimum` of them say is `derived`. `date` is YYYY-MM-DD.
    """
    return propose_of([Source(measurements, lambda m: str(m.subject.id))], lambda: f"run {run_id}", date, minimum)


def propose_of(runs: t.Iterable[Source], source_text: t.Callable[[], str], date: str, minimum: int = bands.NEIGHBOURS) -> Proposal:
    """Return the proposal of several runs. The value of each subject is the median of its runs, so that a node that was measured often
    counts once. `source_text` is called after all runs are read, and returns how the source of the entries is named."""
    groups: Values = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for run in runs:
        _add(groups, run)
    return _proposal(groups, source_text(), date, minimum)


def _add(groups: Values, run: Source) -> None:
    latest: dict[t.Any, Measurement] = {}
    bad: set[tuple[str, str]] = set()
    for m in sorted(run.measurements, key=lambda m: (m.attempt, m.as_text())):
        if _is_fatal(m):
            bad.add(subjects.bearer(m.subject.kind, m.subject.id))
        if m.outcome == "measured":
            latest[m.stage, m.check, m.variant, m.subject.id] = m
    # Where a search has found something in a group, what the group gave is no example.
    suspect = {(m.stage, m.target) for m in latest.values() if m.context.get("findings") and not m.metrics}
    for m in latest.values():
        # A node that computes wrong values or loses its GPUs is no yardstick.
        concerned = {subjects.bearer(m.subject.kind, m.subject.id), *(("node", node) for node in subjects.nodes_of(m.subject))}
        searched = m.subject.kind == "group" and (m.stage, m.target) in suspect
        if not m.evidence.get("changes") and not concerned & bad and not searched:
            for entry, value in _numbers(m):
                groups[json.dumps(entry, sort_keys=True)][m.subject.kind][run.who(m), m.variant].append(value)


def _proposal(groups: Values, source_text: str, date: str, minimum: int) -> Proposal:
    entries: dict[str, ExpectationData] = {}
    comparisons: dict[str, ShippedComparison] = {}
    left_out = []
    for text, kinds in sorted(groups.items()):
        # A node's number is that of its slowest GPU; where there are the GPUs' own, they are what is typical.
        kind = "gpu" if "gpu" in kinds else max(kinds, key=lambda k: len(kinds[k]))
        entry: ProposedKey = json.loads(text)
        values = _without_outliers([statistics.median(of_one) for of_one in kinds[kind].values()], entry["better"])
        simulated = entry["simulated"]
        name = _id(entry["match"], entries)
        if len(values) < (1 if kind == "group" else minimum):
            left_out.append(f"{name}: measured on {len(values)}, expected at least {minimum}")
            continue
        few = len(values) < minimum
        spread = 100 * (max(values) - min(values)) / statistics.median(values)
        proposed: ExpectationData = {
            "id": name,
            "match": entry["match"],
            "metric": entry["metric"],
            "value": float(f"{statistics.median(values):.5g}"),
            "unit": entry["unit"],
            "better": entry["better"],
            "source": f"{'SIMULATED ' if simulated else ''}{source_text}: "
            + (
                f"what one {kind} gave, which nothing was compared with"
                if len(values) == 1
                else f"median of {len(values)} {kind}s, {spread:.1f} % between lowest and highest"
            ),
            "date": date,
            "confidence": "derived" if few else "measured",
        }
        wrong = _problem(proposed)
        if wrong:
            left_out.append(f"{name}: {wrong}; such a value is no expectation, so measure again or set one by hand")
        else:
            entries[name] = proposed
            comparisons[name] = _compared_with_shipped(proposed)
    head = [
        f"# Proposed from {source_text}. A fleet that is slow as a whole proposes slow values: compare with the shipped",
        "# tables and with what your hardware should give. Ignored until 'proposed: true' is removed; then name this",
        "# file in acceptance_expectation_files.",
        *(f"# Left out: {line}" for line in left_out),
    ]
    return Proposal(
        "---\n" + "\n".join(head) + "\n" + _as_text(entries, comparisons),
        [entry for name, entry in entries.items() if not comparisons[name].under],
        left_out,
        [f"{name}: {comparison.words}" for name, comparison in comparisons.items() if comparison.under],
    )


class ShippedComparison(t.NamedTuple):
    """The shipped value beside a proposed entry in words, and whether the entry is under the shipped floor."""

    words: str
    under: bool


def _compared_with_shipped(entry: ExpectationData) -> ShippedComparison:
    """Hold a proposed entry against the shipped one that the same measurement would be judged by."""
    match, size = entry["match"], entry["match"].get("size")
    chosen = shipped().choose(match["stage"], match["check"], match)
    expected = next((choice.expectation for choice in chosen if choice.expectation.metric == entry["metric"] and choice.size == size), None)
    if expected is None:
        return ShippedComparison("nothing is shipped for it", False)
    value, floor = physics.convert(entry["value"], entry["unit"], expected.unit), bands.limits(expected)[0]
    lower = expected.better == "lower"
    under = value > floor if lower else value < floor
    sentence = f"shipped: {expected.value:g} {expected.unit} ({expected.id}), of which this is {value / expected.value:.2f}"
    if under:
        sentence += f"; the {'most' if lower else 'least'} that passes is {floor:g}: "
        sentence += "find out why these machines are slower before you lower it"
    return ShippedComparison(sentence, under)


def _as_text(entries: dict[str, ExpectationData], comparisons: dict[str, ShippedComparison]) -> str:
    """The entries as YAML, each under a comment with the shipped value; one under the shipped floor is commented out."""
    live = any(not comparison.under for comparison in comparisons.values())
    lines = ["proposed: true", "expectations:" if live else "expectations: []"]
    for name, entry in entries.items():
        body = yaml.safe_dump([entry], sort_keys=False, width=120, allow_unicode=True).rstrip("\n").split("\n")
        lines.append(f"# {comparisons[name].words}")
        lines += [f"# {line}" for line in body] if comparisons[name].under else body
    return "\n".join(lines) + "\n"


def _is_fatal(m: Measurement) -> bool:
    """Return True if a measurement has a finding that no other attempt takes back."""
    findings, changed = m.context.get("findings"), m.evidence.get("changes")
    coded = [item for items in (findings, changed) for item in (items if isinstance(items, list) else ())]
    codes = [m.reason_code, *(item.get("code") for item in coded if isinstance(item, dict))]
    return any(isinstance(code, str) and code in reasons.FATAL for code in codes)


def _numbers(m: Measurement) -> t.Iterator[tuple[ProposedKey, float]]:
    """Yield what the measurement proposes a value for, with its value."""
    metric = primary(m)
    if metric is None:
        return
    context = m.context
    match: Match = {"stage": m.stage, "check": m.check}
    match.update({k: context[k] for k in CONTEXT_KEYS if isinstance(context.get(k), (str, int, float, bool))})
    sizes = [row["size"] for row in m.series if is_number(row.get("size")) and is_number(row.get(metric))]
    proposed_sizes: list[int | str | None] = [None]
    if sizes:
        proposed_sizes = [matching.PLATEAU] if max(sizes) >= matching.PLATEAU_FROM else [max(sizes)]
        proposed_sizes += [USUAL_SIZE] if USUAL_SIZE in sizes and USUAL_SIZE not in proposed_sizes else []
    for size in proposed_sizes:
        try:
            reading = bands.reading(m, metric, size)
        except bands.Unusable:
            continue
        if reading is not None and reading.unit in physics.UNITS:
            entry: ProposedKey = {
                "match": match if size is None else {**match, "size": size},
                "metric": metric,
                "unit": reading.unit,
                "better": better_of(reading.unit),
                "simulated": m.simulated,
            }
            yield entry, reading.value


def _without_outliers(values: list[float], better: str) -> list[float]:
    centre = bands.centre(values)
    if centre is None:
        return values
    return [v for v in values if bands.against_neighbours(v, centre, better) is None]


def _id(match: Match, used_names: t.Container[str]) -> str:
    """A name that people can tell apart, which no other entry has."""
    words = [match[k] for k in ("stage", "gpu", "gpus", "nodes", "check", "shape", "mode", "size") if k in match]
    name = re.sub(r"[^a-z0-9_.]+", "-", "-".join(map(str, words)).lower())[:110].strip("-")
    return next(n for n in (name, *(f"{name}-{i}" for i in range(2, 10000))) if n not in used_names)


def _problem(entry: ExpectationData) -> str | None:
    """Return why a median is no expectation, or None."""
    try:
        parsed = parse(entry, "run")
    except ExpectationError as error:
        return str(error).removeprefix(f"run `{entry['id']}`: ")
    above = [f.text for f in physics.lint([parsed]) if f.level == "error"]
    return above[0] if above else None
