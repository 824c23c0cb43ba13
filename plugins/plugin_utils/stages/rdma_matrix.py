# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Opinions from all measurements of the stages `rdma` and `rdma_again` together, about pairs, ports, nodes and paths.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import CONTEXT_KEYS, Expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import Cell, standing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of, pair_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Context, Measurement, Metric, SeriesRow, is_number
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Better, Round
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import directions, rdma_blames, rdma_rails
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import TIMETABLE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.rdma_rows import Port, RailRow, SideRow

# Of a node or pair, and the inventory host through which it was reached.
Expected = t.Callable[[str, str], Expectations]

# From so many values on their median says what a pair should give, where no expectation does.
ENOUGH = 6


def tables(records: t.Sequence[Measurement], expected: Expected) -> list[Table]:
    """The matrix of each kind of test over all its attempts, with what `rdma_again` added."""
    pairs: dict[tuple[str, str, str], list[Measurement]] = collections.defaultdict(list)
    repeated: dict[tuple[str, str, str], list[tuple[Measurement, SideRow]]] = collections.defaultdict(list)
    for record in records:
        if record.stage == "rdma" and record.subject.kind == "pair":
            pairs[_domain(record), record.check, directions.without_direction(record.variant)].append(record)
        elif record.stage == "rdma_again":
            for row in sides(record, "client"):
                repeated[_domain(record), row["check"], directions.without_direction(row["variant"])].append((record, row))
    ports = _ports_of(records)
    tables_made = [_table(*key, measurements, repeated[key], ports, expected) for key, measurements in sorted(pairs.items())]
    for table in tables_made:
        table.rounds = _rounds(records, table)
    return tables_made


def _ports_of(records: t.Iterable[Measurement]) -> dict[str, Port]:
    """Return each port as the stage `rdma_ports` saw it last, by the id of the port."""
    by_id: dict[str, Port] = {}
    of_nodes = sorted((r for r in records if r.stage == "rdma_ports" and r.outcome == "measured"), key=lambda r: r.attempt)
    held_to = rdma_rails.held_to(of_nodes)
    for record in of_nodes:
        for port in rdma_rails.hardware(record)[1]:
            name = f"{record.subject.id}/nic/{port['device']}/{port.get('port')}"
            by_id[name] = t.cast(Port, {**port, "held_gbps": held_to.get(name)})
    return by_id


def _domain(record: Measurement) -> str:
    """Pairs are measured among machines behind SSH, and among the nodes of one cluster."""
    target = record.target
    return target if record.subject.id.startswith(f"{target}/") else ""


def rails_of(record: Measurement) -> list[RailRow]:
    """Return the rails of a pair's measurement, as far as they have their form and are about this pair."""
    rails = record.context.get("rails")
    valid = [r for r in rails if _is_rail(r)] if isinstance(rails, list) else []
    return [r for r in valid if pair_of(node_of(r["a"]), node_of(r["b"])) == record.subject.id]


def sides(record: Measurement, role: str) -> list[SideRow]:
    """Return the rows of a node's timetable in one role, as far as they have their form."""
    words = ("check", "variant", "subject", "started_at")
    return [
        t.cast(SideRow, row)
        for row in record.series
        if row.get("role") == role
        and _is_rail(row)
        and all(isinstance(row.get(word), str) for word in words)
        and all(isinstance(row.get(name), list) and all(isinstance(r, dict) for r in row[name]) for name in ("rows", "changes"))
        and is_number(row.get("round"))
        and is_number(row.get("duration_s"))
    ]


def _is_rail(row: t.Any) -> bool:
    return (
        isinstance(row, dict)
        and all(isinstance(row.get(name), str) for name in ("rail", "a", "b", "outcome"))
        and row["a"] != row["b"]
        and isinstance(row.get("test") or {}, dict)
    )


def _table(
    domain: str,
    check: str,
    variant: str,
    pairs: list[Measurement],
    repeated: list[tuple[Measurement, SideRow]],
    ports: dict[str, Port],
    expected: Expected,
) -> Table:
    metric, better, unit = ("bandwidth", "higher", "Gb/s") if check.endswith("_bw") else ("latency", "lower", "us")
    judged_cells: list[tuple[Cell, str]] = []
    of_ports: dict[frozenset[str], Context] = {}
    for record in pairs:
        for rail in rails_of(record):
            of_ports[frozenset((rail["a"], rail["b"]))] = record.context
            # A port within its own node, or with itself, is no path between two.
            if node_of(rail["a"]) != node_of(rail["b"]):
                one_way = record.variant != variant
                judged_cells.append(_judged(_of_rail(record, rail, ports), rail, ports, expected, metric, unit, one_way))
    # What selects an expectation besides the two ports is the same in all pairs of a table.
    first_record = min(pairs, key=lambda r: (not r.context, r.subject.id, r.attempt))
    context = {**first_record.context, "nic_gbps": None}
    for record, row in repeated:
        row_context = _context(of_ports.get(frozenset((row["a"], row["b"])), context), row, ports)
        of = record.replaced(stage="rdma", check=check, context=row_context, series=row["rows"], metrics={})
        cell, alike = _judged(of, row, ports, expected, metric, unit, row["variant"] != variant)
        judged_cells.append((dataclasses.replace(cell, again=True), alike))
    # In an order of their own: what is said of them does not depend on the journal's.
    cells = sorted(_with_usual(judged_cells, better), key=lambda c: (c.a, c.b, c.rail, c.again, c.outcome, c.value or 0.0, c.reason))
    simulated = any(record.simulated for record in pairs)
    directed = any(cell.directed for cell in cells)
    return Table(domain, check, variant, cells, t.cast(Better, better), unit, simulated, directed)


def _of_rail(record: Measurement, rail: RailRow, ports: dict[str, Port]) -> Measurement:
    """Return a pair's measurement reduced to one of its rails: its expectation depends on its own two ports."""
    rows = [row for row in record.series if row.get("rail") == rail["rail"] and row.get("a") == rail["a"]]
    last = {name: Metric(rows[-1].get(name) if rows else None, of.unit) for name, of in record.metrics.items()}
    return record.replaced(context=_context(record.context, rail, ports), series=rows, metrics=last)


def _context(context: Context, rail: RailRow, ports: dict[str, Port]) -> Context:
    """Return the context that selects the expectation of two ports: the rate that the slower one should have; if unknown, that of the
    pair."""
    rates = dict(zip((rail["a"], rail["b"]), _rates(rail, ports), strict=True))
    held_to = [ports[end].get("held_gbps") or rate if end in ports else None for end, rate in rates.items()]
    slower = min((rate for rate in held_to if rate), default=None)
    return {**context, "nic_gbps": slower} if all(held_to) else context


def _rates(rail: RailRow, ports: dict[str, Port]) -> tuple[float | None, float | None]:
    a, b = (port.get("rate_gbps") if (port := ports.get(end)) else None for end in (rail["a"], rail["b"]))
    return (a if is_number(a) else None, b if is_number(b) else None)


def _judged(
    record: Measurement, rail: RailRow, ports: dict[str, Port], expected: Expected, metric: str, unit: str, one_way: bool
) -> tuple[Cell, str]:
    """A cell with the floor of its own ports, in its direction where it has one, and in words what makes others alike."""
    cell = _cell(rail, record.series, metric)
    floor = _floor(record, expected(record.subject.id, record.target), metric, unit)
    rates = _rates(rail, ports) if metric == "bandwidth" else (None, None)
    alike = repr([rail["rail"], *(record.context.get(key) for key in CONTEXT_KEYS)])
    cell = dataclasses.replace(cell, floor=floor, rates=rates, directed=one_way)
    if one_way and not directions.server_sends(record.check):  # the ports of a test are its server's and its client's
        cell = dataclasses.replace(cell, a=cell.b, b=cell.a, rates=rates[::-1])
    return cell, alike


def _with_usual(judged_cells: list[tuple[Cell, str]], better: str) -> t.Iterator[Cell]:
    """The cells; those without an expectation are held to the median of enough that are alike."""
    values: dict[str, list[float]] = collections.defaultdict(list)
    for cell, alike in judged_cells:
        if cell.floor is None and cell.value:
            values[alike].append(cell.value)
    usual = {alike: bands.floors(statistics.median(of), better)[1] for alike, of in values.items() if len(of) >= ENOUGH}
    for cell, alike in judged_cells:
        yield cell if cell.floor is not None else dataclasses.replace(cell, floor=usual.get(alike))


def _cell(rail: RailRow, rows: list[SeriesRow], metric: str) -> Cell:
    """One rail of a pair. A link that broke in its test is bad; a test that failed otherwise says nothing of the link."""
    value = rows[-1].get(metric) if rows and rail["outcome"] == "measured" else None
    value = float(value) if is_number(value) else None
    outcome = "measured" if value is not None else "failed" if rail.get("broke") and rail["outcome"] != "measured" else "unknown"
    return Cell(rail["a"], rail["b"], rail["rail"], value, t.cast(t.Any, outcome), reason=str(rail.get("reason") or ""))


def _floor(record: Measurement, expected: Expectations, metric: str, unit: str) -> float | None:
    """The least (of a latency the most) that is no FAIL, for the size that was measured."""
    sizes = {row["size"] for row in record.series if is_number(row.get("size"))}
    for entry, size in expected.choose(record.stage, record.check, record.context):
        if entry.metric == metric and (size is None or size in sizes or not sizes):
            return physics.convert(bands.limits(entry)[1], entry.unit, unit)
    return None


def _rounds(records: t.Iterable[Measurement], table: Table) -> list[Round]:
    """Return the timetable as it was walked, by the clocks of the nodes."""
    by_round: dict[int, list[SideRow]] = collections.defaultdict(list)
    for record in records:
        if record.stage == "rdma" and record.check == TIMETABLE and _domain(record) == table.domain:
            for row in sides(record, "client"):
                if (row["check"], directions.without_direction(row["variant"])) == (table.check, table.variant):
                    by_round[row["round"]].append(row)
    return [
        {
            "round": number,
            "pairs": len({row["subject"] for row in rows}),
            "started_at": min(row["started_at"] for row in rows),
            "seconds": max(row["duration_s"] for row in rows),
            "slowest": max(rows, key=lambda row: (row["duration_s"], row["subject"]))["subject"],
        }
        for number, rows in sorted(by_round.items())
    ]


# Opinions ------------------------------------------------------------------------------------------------------------


def opinions(
    deciding: t.Mapping[Key, Measurement], records: t.Sequence[Measurement], expected: Expected, tables_made: t.Iterable[Table]
) -> t.Iterator[tuple[Key, Opinion] | Blame]:
    """Yield the opinions that the verdict engine adds to those on single measurements. `deciding` is the attempt that counts of each key,
    `records` are all, those of one key in the order of their attempts, `tables_made` the tables of them."""
    ports = _ports_of(records)
    yield from _both_sides(deciding, records)
    yield from _unlike_rails(deciding, ports, expected)
    yield from _unmeasured_ports(deciding, records, ports)
    for table in tables_made:
        diagnosis = table.diagnose()
        findings = diagnosis.findings if diagnosis else ()
        for finding in findings:
            yield from _finding(table, finding, deciding)
        yield from rdma_blames.convicted(table, findings)
    yield from rdma_blames.counted(deciding, rails_of, sides)


def _finding(table: Table, finding: t.Any, deciding: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    convicted = finding.confidence == "convicted"
    sentence = f"{finding.id}: {finding.reason} ({table.check}, {finding.confidence})"
    if finding.confidence == "suspected":
        sentence += "; more tests would tell: rdma_again did not run, or stopped at rdma_again_limit"
    if finding.not_looked_at:
        sentence += f"; {len(finding.not_looked_at)} paths behind it could not be looked at, measure them once it is repaired"
    if finding.kind in ("nic", "node"):
        node = node_of(finding.members[0])
        key = Key("rdma", TIMETABLE, "", node)
        if key in deciding:
            yield key, Opinion("FAIL" if convicted else "UNKNOWN", sentence, "bad_rail")
    elif finding.kind == "pair" or (finding.kind == "switch" and convicted):
        missed = [e for e in finding.evidence if standing(e["outcome"], e["value"], e["floor"], table.better) == "bad"]
        bad = {tuple(map(node_of, (e["a"], e["b"]))) for e in missed}
        for a, b in sorted(bad):
            variant = directions.with_direction(table.variant, directions.direction_of(a, b)) if table.directed else table.variant
            key = Key("rdma", table.check, variant, pair_of(a, b))
            if key in deciding:
                yield key, Opinion("FAIL" if convicted else "UNKNOWN", sentence, "bad_rail")


def _both_sides(deciding: t.Mapping[Key, Measurement], records: t.Iterable[Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """A number counts where the server saw the same test: it stands in the timetable of its node."""
    served = _served(records)
    for key, record in deciding.items():
        if _is_pair(record):
            for rail in rails_of(record):
                yield from ((key, opinion) for opinion in _compare(record, rail, served.get(test_of(record, rail))))


def unseen(last: t.Mapping[Key, Measurement], records: t.Iterable[Measurement]) -> set[Key]:
    """The pairs of which a client has a number that counts for nothing, as no timetable has what its server saw."""
    served = _served(records)
    tests = {key: [served.get(test_of(record, rail)) for rail in rails_of(record)] for key, record in last.items() if _is_pair(record)}
    return {key for key, rows in tests.items() if any(row is None or row["outcome"] != "measured" for row in rows)}


def _served(records: t.Iterable[Measurement]) -> dict[tuple[str, ...], SideRow]:
    """Return the tests that servers saw, from their timetables: a resumed one holds the remaining tests, each attempt its own."""
    served = {}
    for record in records:
        if record.stage == "rdma" and record.check == TIMETABLE:
            for row in sides(record, "server"):
                if node_of(row["a"]) == record.subject.id:
                    served[test_of(row, row)] = row
    return served


def _is_pair(record: Measurement) -> bool:
    return (record.stage, record.subject.kind, record.outcome) == ("rdma", "pair", "measured")


def test_of(record_or_row: Measurement | SideRow, rail: RailRow) -> tuple[str, ...]:
    """Return the key by which both sides know a test: the walk, check, variant, pair, rail and ports. `record_or_row` is the measurement
    of a pair, or a row of a timetable."""
    if isinstance(record_or_row, Measurement):
        check, variant, pair = record_or_row.check, record_or_row.variant, record_or_row.subject.id
    else:
        check, variant, pair = record_or_row["check"], record_or_row["variant"], record_or_row["subject"]
    return str(rail.get("walk") or ""), check, variant, pair, rail["rail"], rail["a"], rail["b"]


def _compare(record: Measurement, rail: RailRow, row: SideRow | None) -> t.Iterator[Opinion]:
    server = node_of(rail["a"])
    where = f"rail {rail['rail']}"
    if row is None or row["outcome"] != "measured":
        why = row.get("reason") if row else "its timetable is missing"
        yield Opinion("UNKNOWN", f"{where}: the client has a number, its server {server} has none: {why}", "incomplete")
        return
    client_test, server_test = rail.get("test"), row.get("test")
    if not (isinstance(client_test, dict) and client_test and isinstance(server_test, dict) and server_test):
        yield Opinion("UNKNOWN", f"{where}: client or server {server} does not say which test it ran", "sides_differ")
        return
    differ = [
        f"{name} {client_test.get(name)} and {server_test.get(name)}"
        for name in ("op", "kind", "qps", "mtu", "connection")
        if client_test.get(name) != server_test.get(name)
    ]
    crossed = (("local_gid", "remote_gid"), ("remote_gid", "local_gid"))
    differ += [f"GIDs {client_test.get(a)} and {server_test.get(b)}" for a, b in crossed if client_test.get(a) != server_test.get(b)]
    rows = [r for r in record.series if r.get("rail") == rail["rail"] and r.get("a") == rail["a"]]
    counts = [[(r.get("size"), r.get("iterations")) for r in side] for side in (rows[-1:], row["rows"][-1:])]
    if counts[0] != counts[1]:
        differ.append(f"sizes and iterations {counts[0]} and {counts[1]}")
    if differ:
        yield Opinion("UNKNOWN", f"{where}: the two sides speak of different tests: {'; '.join(differ)}", "sides_differ")
    if row.get("tool_version") != record.tool_version:
        text = f"{where}: perftest is {record.tool_version} here and {row.get('tool_version')} on {server}"
        yield Opinion("WARN", text, "sides_differ")
    if row["changes"]:
        changes = "; ".join(str(change.get("text")) for change in row["changes"][:4])
        yield Opinion("WARN", f"{where}: during the test, on {server}: {changes}", "evidence")


def _unlike_rails(deciding: t.Mapping[Key, Measurement], ports: dict[str, Port], expected: Expected) -> t.Iterator[tuple[Key, Opinion]]:
    """A pair is held to its slowest rail as a whole; each rail that is faster to its own expectation besides, and each to its own wire."""
    for key, record in deciding.items():
        if key[0] != "rdma" or record.subject.kind != "pair" or record.outcome != "measured":
            continue
        rails = rails_of(record)
        for rail in rails:
            rail_record = _of_rail(record, rail, ports)
            where, opinions_of_rail = f"rail {rail['rail']}", []
            if len(rails) > 1 and all(_rates(rail, ports)):
                wrong = bands.impossible(rail_record.replaced(context={**rail_record.context, "rails": [rail]}))
                if wrong:
                    yield key, wrong._replace(reason=f"{where}: {wrong.reason}")
            if rail_record.context.get("nic_gbps") == record.context.get("nic_gbps"):
                continue
            for entry, size in expected(key[3], record.target).choose(rail_record.stage, rail_record.check, rail_record.context):
                try:
                    value = bands.reading(rail_record, entry.metric, size)
                except bands.Unusable as error:
                    opinions_of_rail.append(Opinion("UNKNOWN", f"{where}: {error}", "bad_measurement"))
                    continue
                if value is not None:
                    opinion = bands.compare(value, entry)
                    opinions_of_rail.append(opinion._replace(reason=f"{where}: {opinion.reason}"))
            if not opinions_of_rail:
                text = f"{where}: no expectation for a rail of {rail_record.context.get('nic_gbps')} Gb/s"
                opinions_of_rail.append(Opinion("UNKNOWN", text, "no_expectation"))
            yield from ((key, opinion) for opinion in opinions_of_rail if opinion.verdict != "PASS")


def _unmeasured_ports(
    deciding: t.Mapping[Key, Measurement], records: t.Iterable[Measurement], ports: dict[str, Port]
) -> t.Iterator[tuple[Key, Opinion]]:
    """Ports that could have been measured and met nobody, as no partner has such a rail, of nodes that were measured at all."""
    pairs = (r for r in records if r.stage == "rdma" and r.subject.kind == "pair")
    met = {end for record in pairs for rail in rails_of(record) for end in (rail["a"], rail["b"])}
    unmet_ports: dict[str, list[str]] = collections.defaultdict(list)
    for name, port in ports.items():
        if port.get("state") == "ACTIVE" and (port.get("gid") or port.get("link_layer") == "InfiniBand") and name not in met:
            unmet_ports[node_of(name)].append(name)
    for node in {node_of(name) for name in met} & set(unmet_ports):
        key = Key("rdma", TIMETABLE, "", node)
        if key in deciding:
            text = f"{len(unmet_ports[node])} of its rails had no partner and were not measured: {', '.join(sorted(unmet_ports[node])[:4])}"
            yield key, Opinion("UNKNOWN", text, "incomplete")
