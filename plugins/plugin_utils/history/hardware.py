# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of nodes in the history: found by any of their names, with the nodes and slots where they were.

Names lead to sheets and these to runs by indexes, so that nothing here reads more than the rows of one part or of one node.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import importing, part_sheets, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store, chunks, clean
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.parts import EMPTY, MACHINE, Part

if t.TYPE_CHECKING:
    import sqlalchemy

# Of a node, the newest runs whose parts are put together.
RUNS = 10
# Of a name that many parts have, the newest sheets that are read, and the most parts that are found: one more than a page shows.
MOST_SHEETS, MOST = 1000, 101
# Of a port, the newest runs whose pairs are looked for.
PAIR_RUNS = 60
# An RDMA device has one or two ports; more are looked for than there are.
PORTS = range(1, 9)
SWITCH = "switch"


class Sighting(t.NamedTuple):
    """A part as one run has seen it. `node` is the name that its node had then."""

    run: str
    planned_at: str
    node: str
    simulated: bool
    part: Part


class Stay(t.NamedTuple):
    """A part at one place, from the first to the last of the runs that saw it there."""

    node: str
    slot: str
    name: str
    pci: str
    simulated: bool
    since: str
    since_at: str
    until: str
    until_at: str


@dataclasses.dataclass(frozen=True)
class FoundPart:
    """A part with its places, the newest first; of a switch the devices that were last connected to it. `address` is a name that leads to
    this part alone, `subjects` are the ids of the subjects whose numbers are its own."""

    kind: str
    address: str
    node: str
    part: Part
    stays: tuple[Stay, ...]
    subjects: frozenset[int] = frozenset()


def of_node(store: Store, node: str) -> list[dict[str, Part]]:
    """Return the parts that the newest runs with a node have seen, {key: part} for each run, the newest first."""
    with store.reading() as connection:
        rows = _rows_of_node(connection, node, RUNS)
        sheets = _sheets(connection, {row.sheet_id for row in rows})
    return [{part.key: part for part in sheets[row.sheet_id]} for row in rows]


def is_node(store: Store, name: str) -> bool:
    """Return True if any run had a node of this name."""
    with store.reading() as connection:
        return bool(_nodes(connection, [name]))


def find(store: Store, text: str) -> list[FoundPart]:
    """Return the parts that have this name: a UUID, GUID, serial number, switch, or a node with a device or slot of it (`NODE mlx5_2`)."""
    with store.reading() as connection:
        return found(connection, text)


def found(connection: sqlalchemy.Connection, text: str) -> list[FoundPart]:
    """Return what `find` does."""
    text = text.strip()
    if not text:
        return []
    sheets = _sheets_with(connection, text)
    seen = _named(connection, text, sheets)
    node = ""
    if not seen:
        node, rest = _node_and_part(connection, text)
        seen = _at_node(connection, node, rest) if rest else {}
    parts = [_found(connection, identity, seen[identity]) for identity in list(seen)[:MOST]]
    switch = _switch(connection, text, sheets)
    # A history of an older version knows parts by their numbers only.
    older = [] if parts or switch else _by_subjects(connection, text, node)
    return sorted([*parts, *switch, *older], key=lambda one: (one.kind, one.node, one.address))[:MOST]


# Sheets ---------------------------------------------------------------------------------------------------------------------------------


def _sheets(connection: sqlalchemy.Connection, ids: t.Iterable[int]) -> dict[int, list[Part]]:
    sheet, sheets = schema.sheet, {}
    for many in chunks(sorted(ids), importing.MANY):
        for row in connection.execute(sa.select(sheet.c.id, sheet.c.facts).where(sheet.c.id.in_(many))):
            sheets[row.id] = part_sheets.unpacked(importing.unpacked(row.facts))
    return sheets


def _sheets_with(connection: sqlalchemy.Connection, name: str) -> dict[int, list[Part]]:
    """Return the newest sheets with a part that has this name, or that is connected to a switch of this name."""
    names, text = schema.part_name, clean(part_sheets.folded(name))
    query = sa.select(names.c.sheet_id).where(names.c.text == text).order_by(names.c.sheet_id.desc()).limit(MOST_SHEETS)
    return _sheets(connection, connection.execute(query).scalars())


def _rows(connection: sqlalchemy.Connection, sheets: t.Iterable[int]) -> t.Iterator[t.Any]:
    """Yield the run, its time, the name of the node and the sheet of each run that has one of these sheets."""
    hardware, placed, word, run, subject = schema.hardware, schema.placement, schema.word, schema.run, schema.subject
    query = (
        sa.select(run.c.name, run.c.planned_at, word.c.text, subject.c.simulated, hardware.c.sheet_id)
        .select_from(hardware)
        .join(placed, sa.and_(
            placed.c.run_id == hardware.c.run_id, placed.c.subject_id == hardware.c.subject_id,
            placed.c.node_id == hardware.c.subject_id,
        ))
        .join(word, word.c.id == placed.c.name_id)
        .join(run, run.c.id == hardware.c.run_id)
        .join(subject, subject.c.id == hardware.c.subject_id)
    )  # fmt: skip
    for many in chunks(sorted(sheets), importing.MANY):
        yield from connection.execute(query.where(hardware.c.sheet_id.in_(many))).all()


def _rows_of_node(connection: sqlalchemy.Connection, node: str, limit: int = 0) -> list[t.Any]:
    """Return the runs with a node that saw parts of it, with their sheets, the newest first."""
    hardware, placed, run = schema.hardware, schema.placement, schema.run
    word_id = connection.execute(sa.select(schema.word.c.id).where(schema.word.c.text == clean(node))).scalar()
    query = (
        sa.select(run.c.name, run.c.planned_at, schema.subject.c.simulated, hardware.c.sheet_id)
        .select_from(placed)
        .join(hardware, sa.and_(hardware.c.run_id == placed.c.run_id, hardware.c.subject_id == placed.c.subject_id))
        .join(run, run.c.id == placed.c.run_id)
        .join(schema.subject, schema.subject.c.id == placed.c.subject_id)
        .where(placed.c.name_id == word_id, placed.c.subject_id == placed.c.node_id)
        .order_by(run.c.name.desc())
    )
    return list(connection.execute(query.limit(limit) if limit else query).all())


# What has a name ------------------------------------------------------------------------------------------------------------------------


def _named(connection: sqlalchemy.Connection, text: str, sheets: t.Mapping[int, list[Part]]) -> dict[str, list[Sighting]]:
    """Return the sightings of the parts with this name of their own, by the identity of each part."""
    name = part_sheets.folded(text)
    matching = {sheet: [part for part in parts if name in part_sheets.own_names(part)] for sheet, parts in sheets.items()}
    return _sightings(_rows(connection, [sheet for sheet, parts in matching.items() if parts]), matching)


def _at_node(connection: sqlalchemy.Connection, node: str, rest: str) -> dict[str, list[Sighting]]:
    """Return the sightings of the part that was last seen at this node under this name, at other nodes too."""
    newest: Part | None = None
    rows = _rows_of_node(connection, node)
    sheets = _sheets(connection, {row.sheet_id for row in rows})
    for row in rows:
        newest = next((part for part in sheets[row.sheet_id] if _is_called(part, rest)), None)
        if newest is not None:
            break
    if newest is None:
        return {}
    identity = part_sheets.identity(newest, node)
    if not identity.startswith(f"{node}/"):
        # The newest sheets with a name that many parts have may lack those of this node.
        everywhere = (
            _named(connection, name, {**_sheets_with(connection, name), **sheets}) for name in sorted(part_sheets.own_names(newest))
        )
        wanted = (identity, part_sheets.at_node(newest, node))
        return next(({one: of[one]} for of in everywhere for one in wanted if one in of), {})
    matching = {
        sheet: [part for part in parts if part_sheets.identity(part, node) == identity] for sheet, parts in sheets.items()
    }
    return _sightings(((row.name, row.planned_at, node, row.simulated, row.sheet_id) for row in rows), matching)


def _sightings(rows: t.Iterable[t.Any], matching: t.Mapping[int, list[Part]]) -> dict[str, list[Sighting]]:
    by_identity: dict[str, list[Sighting]] = collections.defaultdict(list)
    for run, planned_at, node, simulated, sheet in rows:
        for part in matching[sheet]:
            by_identity[part_sheets.identity(part, node)].append(Sighting(run, planned_at, node, bool(simulated), part))
    return _apart(by_identity)


def _apart(by_identity: t.Mapping[str, list[Sighting]]) -> dict[str, list[Sighting]]:
    """Return sightings by the identity of each part. What one run saw at two places is two parts that share a serial number, as disks of
    virtual machines do, so each is known by its node."""
    parts: dict[str, list[Sighting]] = {}
    for identity, seen in by_identity.items():
        if len({sighting.run for sighting in seen}) == len(seen):
            parts[identity] = seen
            continue
        for sighting in seen:
            parts.setdefault(part_sheets.at_node(sighting.part, sighting.node), []).append(sighting)
    return parts


def _is_called(part: Part, rest: str) -> bool:
    """Return True if a text behind the name of its node means this part: `mlx5_2`, `nic/mlx5_2/1`, `GPU 3`, a slot."""
    rest = rest.casefold()
    called = {part.key.casefold(), part.key.partition("/")[2].casefold()} if part.key else set()
    called.add(part.name.casefold())
    return part.model != EMPTY and (rest in called or bool(part.key and rest.startswith(f"{part.key.casefold()}/")))


def _nodes(connection: sqlalchemy.Connection, names: t.Sequence[str]) -> list[str]:
    """Return those of some names that a node had in any run."""
    placed, word, subject = schema.placement, schema.word, schema.subject
    named = connection.execute(sa.select(word.c.id, word.c.text).where(word.c.text.in_([clean(name) for name in names]))).all()
    is_node = sa.select(subject.c.id).join(placed, placed.c.subject_id == subject.c.id).where(subject.c.kind == "node").limit(1)
    return [row.text for row in named if connection.execute(is_node.where(placed.c.name_id == row.id)).first()]


def _node_and_part(connection: sqlalchemy.Connection, text: str) -> tuple[str, str]:
    """Return the name of a node with which a text begins and what follows; both empty if there is none."""
    cuts = {text[: match.start()]: text[match.end() :].strip() for match in re.finditer(r"[ /]+", text)}
    node = max(_nodes(connection, list(cuts)), key=len, default="") if cuts else ""
    return node, cuts.get(node, "")


# Where it was ---------------------------------------------------------------------------------------------------------------------------


def _found(connection: sqlalchemy.Connection, identity: str, seen: list[Sighting]) -> FoundPart:
    """Return a part by its sightings in sheets, to which those by its numbers are added."""
    newest = max(seen, key=lambda sighting: sighting.run)
    is_of_node = identity == part_sheets.at_node(newest.part, newest.node)
    if is_of_node:  # its UUID or GUID, if it has one, is that of others too
        subjects = _subjects_named(connection, _subject_names(newest.part, newest.node))
    else:
        subjects = _subjects(connection, newest.part, sorted({sighting.node for sighting in seen}))
    known = {(sighting.run, sighting.node) for sighting in seen}
    measured = [] if newest.part.kind == "machine" else _placements(connection, subjects)
    seen = [*seen, *(sighting for sighting in measured if (sighting.run, sighting.node) not in known)]
    newest = max(seen, key=lambda sighting: sighting.run)
    part = next(sighting.part for sighting in sorted(seen, key=lambda one: one.run, reverse=True) if sighting.part.name)
    address = identity if is_of_node else part_sheets.address(part, newest.node)
    return FoundPart(part.kind, address, newest.node, part, tuple(_stays(seen)), frozenset(subjects))


def _stays(seen: t.Iterable[Sighting]) -> list[Stay]:
    """Return the places of a part, the newest first. A run that tells the node only does not end a stay there."""
    stays: list[Stay] = []
    for sighting in sorted(seen, key=lambda one: (one.run, one.node)):
        part = sighting.part
        place = (sighting.node, part.slot, part.name, part.pci)
        if stays and (stays[-1][:4] == place or (stays[-1].node == sighting.node and not part.name)):
            stays[-1] = stays[-1]._replace(until=sighting.run, until_at=sighting.planned_at)
        elif stays and stays[-1].node == sighting.node and not stays[-1].name:
            stays[-1] = Stay(*place, sighting.simulated, stays[-1].since, stays[-1].since_at, sighting.run, sighting.planned_at)
        else:
            stays.append(Stay(*place, sighting.simulated, *(sighting.run, sighting.planned_at) * 2))
    return stays[::-1]


def _subjects(connection: sqlalchemy.Connection, part: Part, nodes: t.Sequence[str]) -> set[int]:
    """Return the ids of the subjects whose numbers are those of a part: the GPU, the ports of a device, the machine."""
    if part.kind == "gpu":
        identities = [f"gpu:{part.key.partition('/')[2]}"]
    elif part.kind == "nic" and part.guid:
        identities = [f"port:{part.guid.lower()}/{port}" for port in PORTS]
    else:
        identities = []
    names = [name for node in nodes for name in _subject_names(part, node)]
    return _subjects_with(connection, identities) or _subjects_named(connection, names)


def _subjects_with(connection: sqlalchemy.Connection, identities: t.Iterable[str]) -> set[int]:
    subject = schema.subject
    return set(connection.execute(sa.select(subject.c.id).where(subject.c.identity.in_(list(map(clean, identities))))).scalars())


def _subject_names(part: Part, node: str) -> list[str]:
    """Return the names that the subjects of a part have at a node."""
    if part.kind == "nic":
        return [f"{node}/{part.key}", *(f"{node}/{part.key}/{port}" for port in PORTS)]
    return [f"{node}/{part.key}"] if part.kind == "gpu" else [node] if part.kind == "machine" else []


def _subjects_named(connection: sqlalchemy.Connection, names: t.Iterable[str]) -> set[int]:
    placed, word, ids = schema.placement, schema.word, set[int]()
    query = sa.select(placed.c.subject_id).join(word, word.c.id == placed.c.name_id).distinct()
    for many in chunks(map(clean, names), importing.MANY):
        ids |= set(connection.execute(query.where(word.c.text.in_(many))).scalars())
    return ids


def _placements(connection: sqlalchemy.Connection, subjects: t.Iterable[int]) -> list[Sighting]:
    """Return the runs and nodes in which subjects were, which tell nothing of the slot."""
    placed, word, run, subject = schema.placement, schema.word, schema.run, schema.subject
    query = (
        sa.select(run.c.name, run.c.planned_at, word.c.text, subject.c.simulated)
        .select_from(placed)
        .join(word, word.c.id == placed.c.name_id)
        .join(run, run.c.id == placed.c.run_id)
        .join(subject, subject.c.id == placed.c.subject_id)
    )
    found_placements = []
    for many in chunks(sorted(subjects), importing.MANY):
        for row in connection.execute(query.where(placed.c.subject_id.in_(many))).all():
            node = keys.node_of(row.text)
            part = Part("/".join(row.text[len(node) + 1 :].split("/")[:2]), "")
            found_placements.append(Sighting(row.name, row.planned_at, node, bool(row.simulated), part))
    return list({(one.run, one.node): one for one in found_placements}.values())


def _by_subjects(connection: sqlalchemy.Connection, text: str, node: str) -> list[FoundPart]:
    """Return the part of a history without sheets that has this UUID or GUID, or that the rest of the text names at the node."""
    if node:
        name = re.sub(r"(gpu|nic)/", "", text[len(node) + 1 :].strip())
        candidates = [Part(f"gpu/{name}", ""), Part(f"nic/{name.partition('/')[0]}", "")]
    else:
        candidates = [Part(f"gpu/{text}", ""), Part("nic/", "", guid=text)]
    for candidate in candidates:
        subjects = _subjects(connection, candidate, [node] if node else [])
        seen = _placements(connection, subjects)
        if seen:
            newest = max(seen, key=lambda sighting: sighting.run)
            part = newest.part._replace(name=newest.part.key.partition("/")[2])
            address = part_sheets.address(part, newest.node)
            return [FoundPart(part.kind, address, newest.node, part, tuple(_stays(seen)), frozenset(subjects))]
    return []


def with_pairs(connection: sqlalchemy.Connection, subjects: t.Collection[int]) -> set[int]:
    """Return subjects and the pairs of which one is an end, of the newest runs with them."""
    placed, subject = schema.placement, schema.subject
    ids = sorted(subjects)
    ports = sa.select(subject.c.identity).where(subject.c.id.in_(ids), subject.c.kind == "nic")
    ends = set(connection.execute(ports).scalars())
    if not ends:
        return set(ids)
    at = sa.select(placed.c.run_id, placed.c.node_id).where(placed.c.subject_id.in_(ids)).distinct()
    rows = connection.execute(at.order_by(placed.c.run_id.desc()).limit(PAIR_RUNS)).all()
    pairs = (
        sa.select(subject.c.id, subject.c.identity)
        .join(placed, placed.c.subject_id == subject.c.id)
        .where(placed.c.node_id.in_({row.node_id for row in rows}), placed.c.run_id.in_({row.run_id for row in rows}))
        .where(subject.c.kind == "pair")
        .distinct()
    )
    is_end = (row.id for row in connection.execute(pairs).all() if ends & set(str(row.identity).removeprefix("pair:").split("|")))
    return {*ids, *is_end}


def _switch(connection: sqlalchemy.Connection, text: str, seen: t.Mapping[int, list[Part]]) -> list[FoundPart]:
    """Return the switch of this name, with the devices that were last connected to it."""
    name = part_sheets.folded(text)
    sheets = {sheet: [part for part in parts if name in map(part_sheets.folded, part.switches)] for sheet, parts in seen.items()}
    rows = sorted(_rows(connection, [sheet for sheet, parts in sheets.items() if parts]), key=lambda row: str(row.name))
    # Of each device the last run that saw it there.
    last = {(row.text, part.key): (row, part) for row in rows for part in sheets[row.sheet_id]}
    first = {(row.text, part.key): row for row in reversed(rows) for part in sheets[row.sheet_id]}
    if not last:
        # Of a fabric without LLDP the inventory names the switches.
        ids = _subjects_with(connection, [f"switch:{text}"])
        return [FoundPart(SWITCH, text, "", Part(MACHINE, text), (), frozenset(ids))] if ids else []
    stays = [
        Stay(node, part.connected, part.name, part.pci, bool(row.simulated), first[node, key].name, first[node, key].planned_at, row.name,
             row.planned_at)
        for (node, key), (row, part) in sorted(last.items())
    ]  # fmt: skip
    called = next(switch for _row, part in last.values() for switch in part.switches if part_sheets.folded(switch) == name)
    subjects = _subjects_with(connection, [f"switch:{called}"])
    return [FoundPart(SWITCH, called, "", Part(MACHINE, called), tuple(stays), frozenset(subjects))]
