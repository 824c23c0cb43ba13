# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two runs side by side: numbers, verdicts, who came, went or moved, and facts that changed.

A number is held against the scatter of its own subject in the runs before. Simulated and real are other subjects, and never meet here.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import importing, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.identity import Identities, who
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store, chunks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import drift
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Facts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import (
    CheckOfSubject,
    Comparison,
    FactChange,
    PlaceChange,
    ValueChange,
    VerdictChange,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.subjects import spoken
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import number

if t.TYPE_CHECKING:
    import sqlalchemy

# Who, whether simulated.
Whom = tuple[str, bool]
# Whom, stage, check, variant.
About = tuple[Whom, str, str, str]

# Runs from which the scatter of a subject is taken, the fewest that say something of it, and how far out is beyond it.
PAST, ENOUGH, BEYOND = 30, 5, 3.0
# Where a subject always gave nearly the same, a change in percent that is still none.
STILL_PCT = 0.5
# Numbers whose scatter is looked up: those of each check that changed most.
MOST = 500


class Judged(t.NamedTuple):
    """The verdict and number of one check in one run."""

    name: str
    verdict: str
    value: float | None
    metric: str
    unit: str
    reason: str


class Place(t.NamedTuple):
    """The place of a subject: its name, and the identity of its node."""

    name: str
    kind: str
    node: str


class Side(t.NamedTuple):
    """A run as it is compared."""

    run: str
    accepted: bool
    targets: frozenset[str]
    verdicts: dict[About, Judged]
    places: dict[Whom, Place]
    facts: dict[Whom, Facts]


def of_content(store: Store, content: importing.Content) -> Side:
    """A run that need not be in the history yet."""
    judged = content.judgements[-1]
    with store.reading() as connection:
        identities = importing.identities_of(connection, Identities(content.measurements), [*content.measurements, *judged.verdicts])
    verdicts: dict[About, Judged] = {}
    places: dict[Whom, Place] = {}
    facts: dict[Whom, Facts] = {}
    for v in judged.verdicts:
        one = who(v)
        whom = (identities[one], one.simulated)
        reason = "" if v.verdict == "PASS" else v.reason
        about = (whom, v.stage, v.check, v.variant)
        verdicts.setdefault(about, Judged(one.id, v.verdict, v.value, v.metric or "", v.unit or "", reason))
        if one.kind in ("node", "gpu", "nic"):
            places[whom] = Place(one.id, one.kind, one.nodes[0])
    for m in content.measurements:
        one = who(m)
        if one.kind == "node" and isinstance(m.context.get("facts"), dict):
            facts[identities[one], one.simulated] = importing.lasting(m)
    return Side(content.plan.run_id, judged.accepted, frozenset(content.plan.targets), verdicts, places, facts)


def of_run(store: Store, name: str) -> Side:
    """A run of the history, by its last judgement."""
    with store.reading() as connection:
        run, judgement = schema.run, schema.judgement
        asked = (
            sa.select(run.c.id, run.c.scope, run.c.pruned, judgement.c.id.label("judgement"), judgement.c.accepted)
            .join(judgement, judgement.c.run_id == run.c.id)
            .where(run.c.name == name)
            .order_by(judgement.c.folder.desc())
            .limit(1)
        )
        found = connection.execute(asked).first()
        if found is None:
            raise HistoryError(f"run {name} is not in the history {store.where}; playbooks/history_import.yml brings it in")
        if found.pruned:
            raise HistoryError(f"run {name} was taken out of the history by its age; its folder, if it is there still, can be judged")
        places = _places(connection, found.id)
        return Side(
            name, bool(found.accepted), frozenset(json.loads(found.scope)["targets"]), _verdicts(connection, found.id, found.judgement),
            places, _facts(connection, found.id),
        )  # fmt: skip


def _verdicts(connection: sqlalchemy.Connection, run: int, judgement: int) -> dict[About, Judged]:
    verdict, basis, check, subject = schema.verdict, schema.basis, schema.check, schema.subject
    placed, word = schema.placement, schema.word
    of = sa.select(sa.func.min(word.c.text)).join(placed, placed.c.name_id == word.c.id)
    name = of.where(placed.c.run_id == run, placed.c.subject_id == verdict.c.subject_id)
    asked = (
        sa.select(
            subject.c.identity, subject.c.simulated, check.c.stage, check.c.check, check.c.variant, name.scalar_subquery().label("name"),
            verdict.c.verdict, verdict.c.value, basis.c.metric, basis.c.unit, verdict.c.reason,
        )
        .join(basis, basis.c.id == verdict.c.basis_id)
        .join(check, check.c.id == verdict.c.check_id)
        .join(subject, subject.c.id == verdict.c.subject_id)
        .where(verdict.c.judgement_id == judgement)
    )  # fmt: skip
    return {
        ((row[0], bool(row[1])), row[2], row[3], row[4]): Judged(row[5] or "", row[6], row[7], row[8], row[9], row[10] or "")
        for row in connection.execute(asked)
    }


def _places(connection: sqlalchemy.Connection, run: int) -> dict[Whom, Place]:
    placed, subject, word = schema.placement, schema.subject, schema.word
    node, node_word, at = schema.subject.alias(), schema.word.alias(), schema.placement.alias()
    asked = (
        sa.select(subject.c.identity, subject.c.simulated, word.c.text, subject.c.kind, node_word.c.text)
        .join(placed, placed.c.subject_id == subject.c.id)
        .join(word, word.c.id == placed.c.name_id)
        .join(node, node.c.id == placed.c.node_id)
        .join(at, sa.and_(at.c.run_id == placed.c.run_id, at.c.subject_id == node.c.id, at.c.node_id == node.c.id))
        .join(node_word, node_word.c.id == at.c.name_id)
        .where(placed.c.run_id == run, subject.c.kind.in_(("node", "gpu", "nic")))
    )
    return {(row[0], bool(row[1])): Place(*row[2:]) for row in connection.execute(asked)}


def _facts(connection: sqlalchemy.Connection, run: int) -> dict[Whom, Facts]:
    fact, sheet, subject = schema.fact, schema.sheet, schema.subject
    asked = (
        sa.select(subject.c.identity, subject.c.simulated, sheet.c.facts)
        .join(fact, fact.c.subject_id == subject.c.id)
        .join(sheet, sheet.c.id == fact.c.sheet_id)
        .where(fact.c.run_id == run)
    )
    return {(row[0], bool(row[1])): importing.unpacked(row[2]) for row in connection.execute(asked)}


# Which run to compare with --------------------------------------------------------------------------------------------------------------


def last_accepted(store: Store, side: Side) -> str | None:
    """The last accepted run before it of the same subjects: of those with any node of it the newest that has all, else the newest that
    has most. A quick test is none."""
    nodes = _nodes(side)
    run, judgement, placed, subject = schema.run, schema.judgement, schema.placement, schema.subject
    best: tuple[int, str] | None = None
    with store.reading() as connection:
        mine = _runs_of(connection, nodes)
        last = sa.select(judgement.c.run_id, sa.func.max(judgement.c.folder).label("folder")).group_by(judgement.c.run_id).subquery()
        asked = (
            sa.select(run.c.id, run.c.name)
            .join(judgement, judgement.c.run_id == run.c.id)
            .join(last, sa.and_(last.c.run_id == judgement.c.run_id, last.c.folder == judgement.c.folder))
            .where(run.c.name < side.run, ~run.c.pruned, judgement.c.accepted)
            .order_by(run.c.name.desc())
        )
        for row in [row for row in connection.execute(asked) if row.id in mine][:PAST]:
            of = (
                sa.select(subject.c.identity, subject.c.simulated)
                .join(placed, placed.c.subject_id == subject.c.id)
                .where(placed.c.run_id == row.id, subject.c.kind == "node")
            )
            shared = len(nodes & {(one.identity, bool(one.simulated)) for one in connection.execute(of)})
            if shared == len(nodes) and shared:
                return str(row.name)
            if shared and (best is None or shared > best[0]):
                best = (shared, str(row.name))
    return best[1] if best else None


def _nodes(side: Side) -> set[Whom]:
    return {whom for whom, place in side.places.items() if place.kind == "node"}


def _runs_of(connection: sqlalchemy.Connection, nodes: t.Collection[Whom]) -> set[int]:
    """Runs that had any of these nodes: a history may hold those of many clusters."""
    placed, subject = schema.placement, schema.subject
    found: set[int] = set()
    for some in chunks(sorted({whom[0] for whom in nodes}), importing.MANY):
        asked = sa.select(placed.c.run_id).join(subject, subject.c.id == placed.c.subject_id).where(subject.c.identity.in_(some))
        found.update(connection.execute(asked.distinct()).scalars())
    return found


# Comparing ------------------------------------------------------------------------------------------------------------------------------


def compare(store: Store, old: Side, new: Side) -> Comparison:
    """Return the differences of `new`. `values` are ordered by how far out they are, each with both values, the change in percent and,
    where enough runs were before, in units of the subject's own scatter."""
    values: list[ValueChange] = []
    verdicts: list[VerdictChange] = []
    for about, now in sorted(new.verdicts.items()):  # no database says in which order they come
        before = old.verdicts.get(about)
        whom, stage, check, variant = about
        head: CheckOfSubject = {
            "subject": now.name, "identity": whom[0], "simulated": whom[1], "stage": stage, "check": check, "variant": variant,
        }  # fmt: skip
        if before and before.verdict != now.verdict:
            verdicts.append({**head, "before": before.verdict, "after": now.verdict, "reason": now.reason or before.reason})
        if before and before.value is not None and now.value is not None and (before.metric, before.unit) == (now.metric, now.unit):
            change = 100 * (now.value - before.value) / abs(before.value) if before.value else None
            values.append(
                {
                    **head, "metric": now.metric, "unit": now.unit, "before": before.value, "after": now.value, "change_pct": change,
                    "scatter_pct": None, "beyond": None,
                }
            )  # fmt: skip
    values.sort(key=lambda one: -abs(one["change_pct"] or 0.0))
    looked_up = _most_changed(values)
    _scattered(store, looked_up, new)
    values.sort(key=lambda one: (one["beyond"] is not True, -abs(one["change_pct"] or 0.0)))
    return {
        "before": old.run,
        "after": new.run,
        "before_accepted": old.accepted,
        "after_accepted": new.accepted,
        "compared": len(values),
        "not_looked_up": len(values) - len(looked_up),
        "values": values,
        "verdicts": sorted(verdicts, key=lambda one: (one["subject"], one["stage"], one["check"], one["variant"])),
        "places": _moved(old, new),
        "facts": _facts_changed(old, new),
    }


def _most_changed(values: list[ValueChange]) -> list[ValueChange]:
    """Return the MOST most changed values, the same share of each check, so that a noisy check does not hide what another lost."""
    of_check: dict[tuple[str, str, str], list[ValueChange]] = {}
    for one in values:
        of_check.setdefault((one["stage"], one["check"], one["metric"]), []).append(one)
    return [one for some in of_check.values() for one in some[: max(1, MOST // len(of_check))]]


def _scattered(store: Store, values: list[ValueChange], new: Side) -> None:
    """Add to values how far their subject's numbers lay apart before, in percent of their median, and whether the change is beyond that."""
    run, metric, quantity, check, subject = schema.run, schema.metric, schema.quantity, schema.check, schema.subject
    with store.reading() as connection:
        past: dict[tuple[t.Any, ...], list[float]] = {}
        mine = _runs_of(connection, _nodes(new))
        earlier_runs = sa.select(run.c.id).where(run.c.name < new.run, ~run.c.pruned).order_by(run.c.name.desc())
        latest = [one for one in connection.execute(earlier_runs).scalars() if one in mine][:PAST]
        for some in chunks(sorted({one["identity"] for one in values}), importing.MANY):
            asked = (
                sa.select(subject.c.identity, subject.c.simulated, check.c.stage, check.c.check, check.c.variant)
                .add_columns(quantity.c.metric, quantity.c.unit, metric.c.value)
                .select_from(subject)
                .join(metric, metric.c.subject_id == subject.c.id)
                .join(quantity, quantity.c.id == metric.c.quantity_id)
                .join(check, check.c.id == quantity.c.check_id)
                .where(subject.c.identity.in_(some), metric.c.run_id.in_(latest))
            )
            for row in connection.execute(asked):
                past.setdefault((row[0], bool(row[1]), *row[2:7]), []).append(row[7])
    for one in values:
        key = (one["identity"], one["simulated"], one["stage"], one["check"], one["variant"], one["metric"], one["unit"])
        earlier = past.get(key, [])
        if len(earlier) < ENOUGH or one["change_pct"] is None:
            continue
        middle = statistics.median(earlier)
        if not middle:
            continue
        apart = statistics.median(abs(value - middle) for value in earlier)
        scatter_pct = 100 * 1.4826 * apart / abs(middle)
        one["scatter_pct"] = scatter_pct
        one["beyond"] = abs(one["change_pct"]) > max(BEYOND * scatter_pct, STILL_PCT)


def _moved(old: Side, new: Side) -> list[PlaceChange]:
    """Return the subjects that came, went, moved to another node or have another name. A subject of a target that the new run does not
    have did not go."""
    was = {place.name: whom for whom, place in old.places.items() if place.kind == "node"}
    changes: list[PlaceChange] = []
    for whom in sorted({*old.places, *new.places}):
        before, after = old.places.get(whom), new.places.get(whom)
        if before and after:
            node = new.places.get(was.get(before.node, whom))  # where its node is now, whatever it is called
            what: t.Literal["came", "went", "moved", "renamed"]
            if before.kind != "node" and before.node != after.node and not (node and node.name == after.node):
                what = "moved"
            elif before.kind == "node" and before.name != after.name:
                what = "renamed"
            else:
                continue
        elif after:
            what = "came"
        elif before and keys.target_of(before.node) in new.targets:
            what = "went"
        else:
            continue
        one = t.cast(Place, after or before)
        changes.append(
            {
                "what": what, "kind": one.kind, "subject": one.name, "identity": whom[0], "simulated": whom[1],
                "before": before.node if before else None, "after": after.node if after else None,
            }
        )  # fmt: skip
    return changes


def _facts_changed(old: Side, new: Side) -> list[FactChange]:
    """Return each change of a fact once, with the nodes that have it."""
    changes: dict[tuple[str, str, str], list[str]] = {}
    for whom, now in new.facts.items():
        before = old.facts.get(whom)
        if before is None:
            continue
        for item in sorted({*before, *now}):
            if before.get(item) != now.get(item):
                name = new.places[whom].name if whom in new.places else whom[0]
                changes.setdefault((item, drift.text(before.get(item)), drift.text(now.get(item))), []).append(name)
    return [{"item": item, "before": was, "after": now, "nodes": sorted(nodes)} for (item, was, now), nodes in sorted(changes.items())]


# In words -------------------------------------------------------------------------------------------------------------------------------


def latest(store: Store) -> str:
    """The newest run."""
    with store.reading() as connection:
        found = connection.execute(sa.select(sa.func.max(schema.run.c.name)).where(~schema.run.c.pruned)).scalar()
    if not found:
        raise HistoryError(f"history {store.where} is empty")
    return str(found)


def sentences(comparison: Comparison, most: int = 20) -> list[str]:
    """Return the differences as sentences, the most important first; at most `most` of each kind."""
    sections = [
        [
            f"{_of(one)}: {one['before']} before, {one['after']} now{': ' + one['reason'] if one['reason'] else ''}"
            for one in comparison["verdicts"]
        ]
    ]
    beyond = [one for one in comparison["values"] if one["beyond"]]
    sections.append(
        [
            f"{_of(one)}: {one['metric']} {number(one['after'])} {one['unit']}, {number(one['before'])} before, {one['change_pct']:+.1f} % "
            f"where it lay within {one['scatter_pct']:.1f} %"
            for one in beyond
        ]
    )
    words = {"came": "came", "went": "is gone from {before}", "moved": "moved from {before} to {after}", "renamed": "was {before} before"}
    whole = {(one["what"], one["subject"]) for one in comparison["places"] if one["kind"] == "node"}  # its parts come and go with a node
    sections.append(
        [
            f"{_spoken(one)} {words[one['what']].format(**one)}"
            for one in comparison["places"]
            if one["kind"] == "node" or (one["what"], one["after"] or one["before"]) not in whole
        ]
    )
    sections.append(
        [
            f"{one['item']} is {one['after'][:120]}, {one['before'][:120]} before, on {', '.join(one['nodes'][:5])}"
            + (f" and {len(one['nodes']) - 5} more" if len(one["nodes"]) > 5 else "")
            for one in comparison["facts"]
        ]
    )
    lines = []
    for section in sections:
        lines += section[:most] + ([f"and {len(section) - most} more like these"] if len(section) > most else [])
    unchanged = f"{comparison['compared']} numbers compared, {len(beyond)} beyond the scatter of their own subject"
    left = comparison["not_looked_up"]
    young = sum(one["beyond"] is None for one in comparison["values"]) - left
    unchanged += f"; {young} have too short a history to say" if young else ""
    return [*lines, unchanged + (f"; {left} changed less than others of their check and were not held against it" if left else "")]


def _of(change: CheckOfSubject) -> str:
    return f"{spoken(change['subject'])} {change['stage']} {change['check']}{' (simulated)' if change['simulated'] else ''}"


def _spoken(one: PlaceChange) -> str:
    return spoken(one["subject"]) + (" (simulated)" if one["simulated"] else "")


def since_accepted(store: Store, content: importing.Content) -> Comparison | None:
    """Return the comparison of a run with the last accepted run of the same subjects; None if there is none."""
    side = of_content(store, content)
    before = last_accepted(store, side)
    return compare(store, of_run(store, before), side) if before else None
