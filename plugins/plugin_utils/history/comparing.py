# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares two runs: numbers, verdicts, subjects that came, went or moved, and facts that changed.

The change of a number is compared with the scatter of its own subject in earlier runs. Simulated and real subjects are different ones.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import importing, part_sheets, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.identity import Identities, who
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store, chunks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import drift
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys, parts
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

# (identity of a subject, True if it is simulated).
Whom = tuple[str, bool]
# (subject, stage, check, variant).
About = tuple[Whom, str, str, str]

# The most and the fewest earlier runs for the scatter of a subject, and the limit in scatters beyond which a change is reported.
PAST, ENOUGH, BEYOND = 30, 5, 3.0
# The least change in percent that is reported, for subjects with nearly constant numbers.
STILL_PCT = 0.5
# The most numbers whose scatter is looked up: those that changed most, evenly over the checks.
MOST = 500


class ComparedVerdict(t.NamedTuple):
    """The verdict and number of one check in one run."""

    name: str
    verdict: str
    value: float | None
    metric: str
    unit: str
    reason: str


class SubjectPlace(t.NamedTuple):
    """The place of a subject: its name, and the identity of its node."""

    name: str
    kind: str
    node: str


class ComparedRun(t.NamedTuple):
    """One of the two runs that are compared. `left_out` are the hosts and nodes that the run was not to measure, `plugged` the module or
    cable in each port of a node, {port: its maker, part number and serial number}."""

    run: str
    accepted: bool
    partial: bool
    targets: frozenset[str]
    left_out: frozenset[str]
    verdicts: dict[About, ComparedVerdict]
    places: dict[Whom, SubjectPlace]
    facts: dict[Whom, Facts]
    plugged: dict[Whom, dict[str, str]]


def of_content(store: Store, content: importing.Content) -> ComparedRun:
    """Return the side of a run that need not be in the history yet."""
    judged = content.judgements[-1]
    with store.reading() as connection:
        identities = importing.identities_of(connection, Identities(content.measurements), [*content.measurements, *judged.verdicts])
    verdicts: dict[About, ComparedVerdict] = {}
    places: dict[Whom, SubjectPlace] = {}
    facts: dict[Whom, Facts] = {}
    plugged: dict[Whom, dict[str, str]] = {}
    for v in judged.verdicts:
        subject_key = who(v)
        whom = (identities[subject_key], subject_key.simulated)
        reason = "" if v.verdict == "PASS" else v.reason
        check_key = (whom, v.stage, v.check, v.variant)
        verdicts.setdefault(check_key, ComparedVerdict(subject_key.id, v.verdict, v.value, v.metric or "", v.unit or "", reason))
        if subject_key.kind in ("node", "gpu", "nic"):
            places[whom] = SubjectPlace(subject_key.id, subject_key.kind, subject_key.nodes[0])
    for m in content.measurements:
        subject_key = who(m)
        if subject_key.kind == "node" and isinstance(m.context.get("facts"), dict):
            facts[identities[subject_key], subject_key.simulated] = importing.lasting(m)
        if subject_key.kind == "node" and m.context.get("modules"):
            record = {"subject": {"id": subject_key.id}, "context": {"modules": m.context["modules"]}}
            for seen in parts.of_records([record]).parts.values():
                plugged[identities[subject_key], subject_key.simulated] = _plugged(seen.values())
    plan = content.plan
    return ComparedRun(
        plan.run_id, judged.accepted, plan.partial, frozenset(plan.targets), frozenset(plan.left_out), verdicts, places, facts, plugged
    )


def of_run(store: Store, name: str) -> ComparedRun:
    """Return the side of a run of the history, by its last judgement. Raise HistoryError if the history does not have it."""
    with store.reading() as connection:
        run, judgement = schema.run, schema.judgement
        query = (
            sa.select(run.c.id, run.c.scope, run.c.partial, run.c.pruned, judgement.c.id.label("judgement"), judgement.c.accepted)
            .join(judgement, judgement.c.run_id == run.c.id)
            .where(run.c.name == name)
            .order_by(judgement.c.folder.desc())
            .limit(1)
        )
        row = connection.execute(query).first()
        if row is None:
            raise HistoryError(f"run {name} is not in the history {store.where}; {collection.playbook('history_import')} brings it in")
        if row.pruned:
            raise HistoryError(f"run {name} was taken out of the history by its age; its folder, if it is there still, can be judged")
        places, scope = _places(connection, row.id), json.loads(row.scope)
        return ComparedRun(
            name, bool(row.accepted), bool(row.partial), frozenset(scope["targets"]), frozenset(scope.get("left_out") or ()),
            _verdicts(connection, row.id, row.judgement), places, _facts(connection, row.id), _in_ports(connection, row.id),
        )  # fmt: skip


def _verdicts(connection: sqlalchemy.Connection, run: int, judgement: int) -> dict[About, ComparedVerdict]:
    verdict, basis, check, subject = schema.verdict, schema.basis, schema.check, schema.subject
    placed, word = schema.placement, schema.word
    of = sa.select(sa.func.min(word.c.text)).join(placed, placed.c.name_id == word.c.id)
    name = of.where(placed.c.run_id == run, placed.c.subject_id == verdict.c.subject_id)
    query = (
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
        ((row[0], bool(row[1])), row[2], row[3], row[4]): ComparedVerdict(row[5] or "", row[6], row[7], row[8], row[9], row[10] or "")
        for row in connection.execute(query)
    }


def _places(connection: sqlalchemy.Connection, run: int) -> dict[Whom, SubjectPlace]:
    placed, subject, word = schema.placement, schema.subject, schema.word
    node, node_word, at = schema.subject.alias(), schema.word.alias(), schema.placement.alias()
    query = (
        sa.select(subject.c.identity, subject.c.simulated, word.c.text, subject.c.kind, node_word.c.text)
        .join(placed, placed.c.subject_id == subject.c.id)
        .join(word, word.c.id == placed.c.name_id)
        .join(node, node.c.id == placed.c.node_id)
        .join(at, sa.and_(at.c.run_id == placed.c.run_id, at.c.subject_id == node.c.id, at.c.node_id == node.c.id))
        .join(node_word, node_word.c.id == at.c.name_id)
        .where(placed.c.run_id == run, subject.c.kind.in_(("node", "gpu", "nic")))
    )
    return {(row[0], bool(row[1])): SubjectPlace(*row[2:]) for row in connection.execute(query)}


def _facts(connection: sqlalchemy.Connection, run: int) -> dict[Whom, Facts]:
    return {whom: importing.unpacked(packed) for whom, packed in _sheets(connection, schema.fact, run)}


def _in_ports(connection: sqlalchemy.Connection, run: int) -> dict[Whom, dict[str, str]]:
    sheets = _sheets(connection, schema.hardware, run)
    seen = {whom: _plugged(part_sheets.unpacked(importing.unpacked(packed))) for whom, packed in sheets}
    return {whom: modules for whom, modules in seen.items() if modules}


def _sheets(connection: sqlalchemy.Connection, table: sqlalchemy.Table, run: int) -> t.Iterator[tuple[Whom, bytes]]:
    """Yield the packed sheet that a table has of each subject of a run."""
    sheet, subject = schema.sheet, schema.subject
    query = (
        sa.select(subject.c.identity, subject.c.simulated, sheet.c.facts)
        .join(table, table.c.subject_id == subject.c.id)
        .join(sheet, sheet.c.id == table.c.sheet_id)
        .where(table.c.run_id == run)
    )
    for identity, is_simulated, packed in connection.execute(query):
        yield (identity, bool(is_simulated)), packed


def _plugged(seen: t.Iterable[parts.Part]) -> dict[str, str]:
    """Return the modules and cables with a serial number in the ports of a node, {name of the fact: maker, part number, serial number}."""
    return {
        f"{part.name} in {part.slot}": " ".join(filter(None, (part.model, part.board, part.serial)))
        for part in seen if part.kind == "optic" and part.serial
    }  # fmt: skip


# Which run to compare with --------------------------------------------------------------------------------------------------------------


def last_accepted(store: Store, side: ComparedRun) -> str | None:
    """Return the last accepted earlier run with the same nodes: the newest with all of them, else the newest with most of them; None if no
    run has any. A quick test does not count."""
    return last_accepted_with(store, side.run, _nodes(side))


def last_accepted_with(store: Store, before: str, nodes: t.AbstractSet[Whom]) -> str | None:
    """Return the last accepted run before a run, with all or most of these nodes, as `last_accepted` does."""
    run, judgement = schema.run, schema.judgement
    best: tuple[int, str] | None = None
    with store.reading() as connection:
        run_ids = _runs_of(connection, nodes)
        last = sa.select(judgement.c.run_id, sa.func.max(judgement.c.folder).label("folder")).group_by(judgement.c.run_id).subquery()
        query = (
            sa.select(run.c.id, run.c.name)
            .join(judgement, judgement.c.run_id == run.c.id)
            .join(last, sa.and_(last.c.run_id == judgement.c.run_id, last.c.folder == judgement.c.folder))
            .where(run.c.name < before, ~run.c.pruned, judgement.c.accepted)
            .order_by(run.c.name.desc())
        )
        for row in [row for row in connection.execute(query) if row.id in run_ids][:PAST]:
            shared = len(nodes & nodes_of(connection, row.id))
            if shared == len(nodes) and shared:
                return str(row.name)
            if shared and (best is None or shared > best[0]):
                best = (shared, str(row.name))
    return best[1] if best else None


def nodes_of(connection: sqlalchemy.Connection, run: int) -> set[Whom]:
    """Return the nodes of a run, by its id."""
    placed, subject = schema.placement, schema.subject
    query = (
        sa.select(subject.c.identity, subject.c.simulated)
        .join(placed, placed.c.subject_id == subject.c.id)
        .where(placed.c.run_id == run, subject.c.kind == "node")
    )
    return {(row.identity, bool(row.simulated)) for row in connection.execute(query)}


def _nodes(side: ComparedRun) -> set[Whom]:
    return {whom for whom, place in side.places.items() if place.kind == "node"}


def _runs_of(connection: sqlalchemy.Connection, nodes: t.Collection[Whom]) -> set[int]:
    """Return the ids of the runs that had any of these nodes. A history may have runs of several clusters."""
    placed, subject = schema.placement, schema.subject
    run_ids: set[int] = set()
    for identities in chunks(sorted({whom[0] for whom in nodes}), importing.MANY):
        query = sa.select(placed.c.run_id).join(subject, subject.c.id == placed.c.subject_id).where(subject.c.identity.in_(identities))
        run_ids.update(connection.execute(query.distinct()).scalars())
    return run_ids


# Comparing ------------------------------------------------------------------------------------------------------------------------------


def compare(store: Store, old: ComparedRun, new: ComparedRun) -> Comparison:
    """Return the differences of `new` from `old`. `values` has both numbers and the change in percent, those beyond the subject's own
    scatter first; the scatter is None without enough earlier runs."""
    values: list[ValueChange] = []
    verdicts: list[VerdictChange] = []
    for check_key, new_verdict in sorted(new.verdicts.items()):  # no database says in which order they come
        old_verdict = old.verdicts.get(check_key)
        whom, stage, check, variant = check_key
        head: CheckOfSubject = {
            "subject": new_verdict.name, "identity": whom[0], "simulated": whom[1], "stage": stage, "check": check, "variant": variant,
        }  # fmt: skip
        if old_verdict and old_verdict.verdict != new_verdict.verdict:
            verdicts.append(
                {**head, "before": old_verdict.verdict, "after": new_verdict.verdict, "reason": new_verdict.reason or old_verdict.reason}
            )
        if (
            old_verdict
            and old_verdict.value is not None
            and new_verdict.value is not None
            and (old_verdict.metric, old_verdict.unit) == (new_verdict.metric, new_verdict.unit)
        ):
            change = 100 * (new_verdict.value - old_verdict.value) / abs(old_verdict.value) if old_verdict.value else None
            values.append(
                {
                    **head, "metric": new_verdict.metric, "unit": new_verdict.unit, "before": old_verdict.value,
                    "after": new_verdict.value, "change_pct": change, "scatter_pct": None, "beyond": None,
                }
            )  # fmt: skip
    values.sort(key=lambda row: -abs(row["change_pct"] or 0.0))
    looked_up = _most_changed(values)
    _scattered(store, looked_up, new)
    values.sort(key=lambda row: (row["beyond"] is not True, -abs(row["change_pct"] or 0.0)))
    return {
        "before": old.run,
        "after": new.run,
        "before_accepted": old.accepted,
        "after_accepted": new.accepted,
        "before_partial": old.partial,
        "after_partial": new.partial,
        "not_in_scope": _not_in_scope(old, new),
        "in_common": len(old.verdicts.keys() & new.verdicts.keys()),
        "compared": len(values),
        "not_looked_up": len(values) - len(looked_up),
        "values": values,
        "verdicts": sorted(verdicts, key=lambda row: (row["subject"], row["stage"], row["check"], row["variant"])),
        "places": _moved(old, new),
        "facts": _facts_changed(old, new),
    }


def _most_changed(values: list[ValueChange]) -> list[ValueChange]:
    """Return the MOST most changed values, the same share of each check, so that a noisy check does not hide what another lost."""
    of_check: dict[tuple[str, str, str], list[ValueChange]] = {}
    for value in values:
        of_check.setdefault((value["stage"], value["check"], value["metric"]), []).append(value)
    return [value for of_one_check in of_check.values() for value in of_one_check[: max(1, MOST // len(of_check))]]


def _scattered(store: Store, values: list[ValueChange], new: ComparedRun) -> None:
    """Set in each value the scatter of the subject's earlier numbers, in percent of their median, and if the change is beyond it."""
    run, metric, quantity, check, subject = schema.run, schema.metric, schema.quantity, schema.check, schema.subject
    with store.reading() as connection:
        past: dict[tuple[t.Any, ...], list[float]] = {}
        run_ids = _runs_of(connection, _nodes(new))
        earlier_runs = sa.select(run.c.id).where(run.c.name < new.run, ~run.c.pruned).order_by(run.c.name.desc())
        latest = [run_id for run_id in connection.execute(earlier_runs).scalars() if run_id in run_ids][:PAST]
        for identities in chunks(sorted({value["identity"] for value in values}), importing.MANY):
            query = (
                sa.select(subject.c.identity, subject.c.simulated, check.c.stage, check.c.check, check.c.variant)
                .add_columns(quantity.c.metric, quantity.c.unit, metric.c.value)
                .select_from(subject)
                .join(metric, metric.c.subject_id == subject.c.id)
                .join(quantity, quantity.c.id == metric.c.quantity_id)
                .join(check, check.c.id == quantity.c.check_id)
                .where(subject.c.identity.in_(identities), metric.c.run_id.in_(latest))
            )
            for row in connection.execute(query):
                past.setdefault((row[0], bool(row[1]), *row[2:7]), []).append(row[7])
    for value in values:
        key = (value["identity"], value["simulated"], value["stage"], value["check"], value["variant"], value["metric"], value["unit"])
        earlier = past.get(key, [])
        if len(earlier) < ENOUGH or value["change_pct"] is None:
            continue
        middle = statistics.median(earlier)
        if not middle:
            continue
        apart = statistics.median(abs(value - middle) for value in earlier)
        scatter_pct = 100 * 1.4826 * apart / abs(middle)
        value["scatter_pct"] = scatter_pct
        value["beyond"] = abs(value["change_pct"]) > max(BEYOND * scatter_pct, STILL_PCT)


def _moved(old: ComparedRun, new: ComparedRun) -> list[PlaceChange]:
    """Return the subjects that came, went, moved to another node or have another name. What the other run was not to measure neither came
    nor went, and a part did neither if the other run did not measure any stage that measured it."""
    old_nodes = {place.name: whom for whom, place in old.places.items() if place.kind == "node"}
    old_stages, new_stages = _stages(old), _stages(new)

    def is_known(of: t.Mapping[Whom, set[str]], whom: Whom, other: t.Mapping[Whom, set[str]]) -> bool:
        """Return True if the other run would have seen a part that only one run has."""
        stages = of.get(whom)
        return not stages or any(stages & others for others in other.values())

    changes: list[PlaceChange] = []
    for whom in sorted({*old.places, *new.places}):
        old_place, new_place = old.places.get(whom), new.places.get(whom)
        if old_place and new_place:
            node = new.places.get(old_nodes.get(old_place.node, whom))  # where its node is now, whatever it is called
            kind: t.Literal["came", "went", "moved", "renamed"]
            if old_place.kind != "node" and old_place.node != new_place.node and not (node and node.name == new_place.node):
                kind = "moved"
            elif old_place.kind == "node" and old_place.name != new_place.name:
                kind = "renamed"
            else:
                continue
        elif new_place and _names(new_place.node) & old.left_out:
            continue
        elif new_place and (new_place.kind == "node" or is_known(new_stages, whom, old_stages)):
            kind = "came"
        elif not old_place or not _has_in_scope(new, old_place.node):
            continue
        elif old_place.kind == "node" or is_known(old_stages, whom, new_stages):
            kind = "went"
        else:
            continue
        place = t.cast(SubjectPlace, new_place or old_place)
        changes.append(
            {
                "what": kind, "kind": place.kind, "subject": place.name, "identity": whom[0], "simulated": whom[1],
                "before": old_place.node if old_place else None, "after": new_place.node if new_place else None,
            }
        )  # fmt: skip
    return changes


def _names(node: str) -> set[str]:
    """Return the names under which a run can leave a node out: its own, that of its target, and that of requests (NODE of CLUSTER/NODE)."""
    return {node, keys.target_of(node), node.rpartition("/")[2]}


def _has_in_scope(run: ComparedRun, node: str) -> bool:
    """Return True if a run was to measure a node, as far as it was there."""
    return keys.target_of(node) in run.targets and not _names(node) & run.left_out


def _not_in_scope(old: ComparedRun, new: ComparedRun) -> dict[t.Literal["before", "after"], list[str]]:
    """Return the nodes of each run that the other one was not to measure. A node that the older run does not name as left out was not known
    to it, and came."""

    def only_in(run: ComparedRun, other: ComparedRun) -> set[str]:
        return {place.name for whom, place in run.places.items() if place.kind == "node" and whom not in other.places}

    return {
        "before": sorted(node for node in only_in(new, old) if _names(node) & old.left_out),
        "after": sorted(node for node in only_in(old, new) if not _has_in_scope(new, node)),
    }


def _stages(of: ComparedRun) -> dict[Whom, set[str]]:
    """Return the stages by which a run judged each subject."""
    stages: dict[Whom, set[str]] = {}
    for whom, stage, _check, _variant in of.verdicts:
        stages.setdefault(whom, set()).add(stage)
    return stages


def _facts_changed(old: ComparedRun, new: ComparedRun) -> list[FactChange]:
    """Return each change of a fact once, with the nodes that have it."""
    changes: dict[tuple[str, str, str], list[str]] = {}
    for whom, new_facts in new.facts.items():
        old_facts = old.facts.get(whom)
        if old_facts is None:
            continue
        for item in sorted({*old_facts, *new_facts}):
            if old_facts.get(item) != new_facts.get(item):
                name = new.places[whom].name if whom in new.places else whom[0]
                changes.setdefault((item, drift.text(old_facts.get(item)), drift.text(new_facts.get(item))), []).append(name)
    for whom, new_modules in new.plugged.items():
        old_modules = old.plugged.get(whom, {})
        # A port of which one run read nothing says nothing of a change.
        for item in sorted(old_modules.keys() & new_modules.keys()):
            if old_modules[item] != new_modules[item]:
                name = new.places[whom].name if whom in new.places else whom[0]
                changes.setdefault((item, old_modules[item], new_modules[item]), []).append(name)
    return [
        {"item": item, "before": old_text, "after": new_text, "nodes": sorted(nodes)}
        for (item, old_text, new_text), nodes in sorted(changes.items())
    ]


# In words -------------------------------------------------------------------------------------------------------------------------------


def latest(store: Store) -> str:
    """Return the name of the newest run. Raise HistoryError if the history is empty."""
    with store.reading() as connection:
        name = connection.execute(sa.select(sa.func.max(schema.run.c.name)).where(~schema.run.c.pruned)).scalar()
    if not name:
        raise HistoryError(f"history {store.where} is empty")
    return str(name)


def sentences(comparison: Comparison, limit: int = 20) -> list[str]:
    """Return the differences as sentences, the most important first; at most `most` of each kind."""
    sections = [
        [
            f"{_check_text(row)}: {row['before']} before, {row['after']} now{': ' + row['reason'] if row['reason'] else ''}"
            for row in comparison["verdicts"]
        ]
    ]
    beyond = [row for row in comparison["values"] if row["beyond"]]
    sections.append(
        [
            f"{_check_text(row)}: {row['metric']} {number(row['after'])} {row['unit']}, {number(row['before'])} before, "
            f"{row['change_pct']:+.1f} % where it lay within {row['scatter_pct']:.1f} %"
            for row in beyond
        ]
    )
    words = {"came": "came", "went": "is gone from {before}", "moved": "moved from {before} to {after}", "renamed": "was {before} before"}
    whole_nodes = {
        (row["what"], row["subject"]) for row in comparison["places"] if row["kind"] == "node"
    }  # its parts come and go with a node
    sections.append(
        [
            f"{_spoken(row)} {words[row['what']].format(**row)}"
            for row in comparison["places"]
            if row["kind"] == "node" or (row["what"], row["after"] or row["before"]) not in whole_nodes
        ]
    )
    sections.append(
        [
            f"{row['item']} is {row['after'][:120]}, {row['before'][:120]} before, on {', '.join(row['nodes'][:5])}"
            + (f" and {len(row['nodes']) - 5} more" if len(row["nodes"]) > 5 else "")
            for row in comparison["facts"]
        ]
    )
    for run, nodes in ((comparison[side], comparison["not_in_scope"][side]) for side in ("before", "after")):
        other = comparison["after" if run == comparison["before"] else "before"]
        more = f" and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        sections.append([f"not in scope of {run}, only of {other}: {', '.join(map(spoken, nodes[:5]))}{more}"] if nodes else [])
    lines = []
    for section in sections:
        lines += section[:limit] + ([f"and {len(section) - limit} more like these"] if len(section) > limit else [])
    if not comparison["in_common"]:
        return [*lines, "no check in common: no verdict and no number could be compared"]
    unchanged = f"{comparison['compared']} numbers compared, {len(beyond)} beyond the scatter of their own subject"
    not_looked_up = comparison["not_looked_up"]
    young = sum(row["beyond"] is None for row in comparison["values"]) - not_looked_up
    unchanged += f"; {young} have too short a history to say" if young else ""
    return [
        *lines,
        unchanged + (f"; {not_looked_up} changed less than others of their check and were not held against it" if not_looked_up else ""),
    ]


def _check_text(change: CheckOfSubject) -> str:
    return f"{spoken(change['subject'])} {change['stage']} {change['check']}{' (simulated)' if change['simulated'] else ''}"


def _spoken(change: PlaceChange) -> str:
    return spoken(change["subject"]) + (" (simulated)" if change["simulated"] else "")


def since_accepted(store: Store, content: importing.Content) -> Comparison | None:
    """Return the comparison of a run with the last accepted run of the same subjects; None if there is none."""
    side = of_content(store, content)
    accepted_run = last_accepted(store, side)
    return compare(store, of_run(store, accepted_run), side) if accepted_run else None
