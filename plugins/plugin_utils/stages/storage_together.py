# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `storage_together`: the shared file systems of `acceptance_storage` from 1, 2, 4 and more nodes at one time, and
whether the nodes see each other's files and locks.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import secrets
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import variant
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import checks, timeline
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    JudgingInputs,
    Measurement,
    Metric,
    PlainData,
    Plan,
    PlanItem,
    Subject,
    Todo,
    Variables,
    Verdict,
    is_number,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Section
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base, storage_coherence, storage_limits
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.storage import VARIABLE, entries_problem
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.storage_coherence import is_of_probe

# The check of all nodes together, which follows from what each has measured.
CURVE = "curve"
WAYS = (checks.WRITE, checks.READ)
# What the patterns are called in the metrics of all nodes: (check, way).
PATTERNS = {
    "checkpoint_write": (checks.CHECKPOINT, checks.WRITE), "checkpoint_read": (checks.CHECKPOINT, checks.READ),
    "model_load": (checks.MODEL_LOAD, checks.READ),
}  # fmt: skip
_PATTERN_WORDS = {
    "checkpoint_write": "each writes its checkpoint and syncs it", "checkpoint_read": "each reads the checkpoint of the next node",
    "model_load": "all read the files of one node",
}  # fmt: skip
# Those that begin together, if no host stands for them.
_MACHINES = "the machines of the inventory"
# Nodes that a finding names.
SHOWN = 4


class StorageTogether(base.Stage):
    name = "storage_together"
    role = "gpufleet.acceptance.storage_together"
    place = 46
    topology = base.TOGETHER
    optional = True
    conditions = frozenset({*checks.OF_MANY, CURVE})
    ranges: t.Mapping[str, Range] = {
        "gib": Range(0.05, 65536, "GiB"), "share": Range(0, 50, "percent", above=True), "seconds": Range(1, 3600, "seconds"),
        "jobs": Range(1, 256), "depth": Range(1, 1024), "patience": Range(0, 600, "seconds"), "window": Range(1, 86400, "seconds"),
    }  # fmt: skip

    def isolation(self, settings: Variables) -> base.Isolation:
        return {"host_root": False, "on_gpu_nodes": False}

    def problem(self, settings: Variables) -> str | None:
        return entries_problem(settings.get(VARIABLE) or [])

    def items(self, nodes: base.Nodes, settings: base.Settings) -> tuple[t.Sequence[PlanItem | PlainData], list[str]]:
        """Return the checks of each node for each file system that at least two nodes share."""
        # {file system: {who begins together: nodes}}
        sharing: dict[str, dict[str, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
        for node, target in nodes.items():
            for entry in _shared(settings[target]):
                sharing[entry["name"]][_group(target, settings[target])].append(node)
        items: list[PlanItem | PlainData] = []
        notes = []
        for name, groups in sharing.items():
            chosen = next((group for group, members in sorted(groups.items()) if len(members) > 1), None)
            if chosen is None:
                notes.append(f"stage {self.name}: {name} is left out: {next(iter(groups.values()))[0]} alone has it")
                continue
            others = sorted(group or _MACHINES for group in groups if group != chosen)
            if others:
                words = f"{name} is measured from {chosen or _MACHINES} only, not from {', '.join(others)}"
                notes.append(f"stage {self.name}: {words}: they begin apart, and would get in each other's way")
            for node in groups[chosen]:
                subject = Subject("node", node, [])
                items += [PlanItem(self.name, check, variant(storage=name), subject, nodes[node]) for check in checks.OF_MANY]
        if not sharing:
            notes.append(f"stage {self.name}: skipped: {VARIABLE} names no shared file system")
        return items, notes

    def complete(self, items: list[PlanItem], remaining: t.AbstractSet[Key]) -> t.AbstractSet[Key]:
        """The nodes of a file system are measured together or not at all."""
        repeated = {item.variant for item in items if item.key in remaining}
        return {item.key for item in items if item.variant in repeated}

    def work(self, run: Run, plan: Plan, todos: dict[str, Todo]) -> dict[str, base.StageWork]:
        """Return the timetables of each target, which are the same for all of its nodes."""
        members: dict[str, list[PlanItem]] = collections.defaultdict(list)
        for item in plan.items:
            if item.stage == self.name and item.check == checks.TOGETHER and item.target in todos:
                members[item.variant].append(item)
        tables: dict[str, dict[str, PlainData]] = collections.defaultdict(dict)
        own_names: dict[str, dict[str, PlainData]] = collections.defaultdict(dict)
        at = 0.0
        settings = {target: todo["settings"] for target, todo in todos.items()}
        for words, items in members.items():
            name = words.partition("=")[2]
            common = {"storage": name, "token": secrets.token_hex(8), "at": at}
            table = timetable(common, [item.subject.id for item in items])
            for item in items:
                tables[item.target][name] = table
                own_names[item.target][item.subject.id] = {"own_name": item.subject.id}
            at += _timeline(settings[items[0].target], len(items)).end
        count = max(map(len, members.values()), default=0)
        works = {}
        for target, by_name in tables.items():
            of_target = settings[target]
            window = float(of_target[f"{self.name}_window"] or 60 + count)
            options = {
                "storage": [entry for entry in _shared(of_target) if entry["name"] in by_name],
                "timetables": list(by_name.values()), "nodes": count,
                "timeout": window + at + float(of_target[f"{self.name}_test_timeout"]) + 60,
            }  # fmt: skip
            if _group(target, of_target):
                works[target] = base.StageWork(options, starts_in=window, per_node=own_names[target])
            else:
                works[target] = base.StageWork({**options, "own_name": target}, starts_in=window)
        return works

    def among(self, work: base.StageWork, able: t.Collection[str]) -> PlainData:
        able = set(able)
        tables = ((table, [node for node in table["nodes"] if node in able]) for table in work.options["timetables"])
        return {"timetables": [timetable(table, names) for table, names in tables if len(names) > 1]}

    def derived(self, deciding: t.Mapping[Key, Measurement], plan: Plan, inputs: JudgingInputs) -> list[Measurement]:
        """Return a record for each file system: the rates of all nodes of each step together."""
        found: list[Measurement] = []
        patterns = {check: _by_variant(self.name, deciding, check) for check, _way in PATTERNS.values()}
        planned = collections.Counter(key.variant for key in deciding if key.stage == self.name and key.check == checks.TOGETHER)
        for words, records in sorted(_by_variant(self.name, deciding, checks.TOGETHER).items()):
            first = min(records.values(), key=lambda record: record.key)
            nodes, sizes = first.context["nodes"], first.context["sizes"]
            rows: list[PlainData] = []
            for size in sizes:
                row: PlainData = {"nodes": size}
                for way in WAYS:
                    rates = [_rate(records.get(node), size, way) for node in nodes[:size]]
                    if all(rate is not None for rate in rates):
                        row[way] = sum(rate or 0.0 for rate in rates)
                        row[f"least_{way}"] = min(rate or 0.0 for rate in rates)
                rows.append(row)
            metrics = {way: Metric(rows[-1][way], "GiB/s") for way in WAYS if way in rows[-1]}
            names = ("storage", "file_system", "stated", "direct")
            context = {name: first.context[name] for name in names if name in first.context}
            units = {name: "GiB/s" for way in WAYS for name in (way, f"least_{way}")}
            unlike = sorted({str(record.context["unlike"]) for record in records.values() if record.context.get("unlike")})
            context.update({"unlike": "; ".join(unlike)} if unlike else {})
            context.update({"condition": True, "series_units": units, "sizes": sizes})
            seen = {node: _seen_of(records.get(node), len(nodes)) for node in nodes}
            limits = storage_limits.limits_of(seen, rows, timeline.few_nodes(len(nodes)))
            found_patterns = {name: _pattern(patterns[check].get(words, {}), nodes, way) for name, (check, way) in PATTERNS.items()}
            of_patterns = {name: row for name, row in found_patterns.items() if row}
            metrics.update({name: Metric(row["rate"], "GiB/s") for name, row in of_patterns.items()})
            context["absent"] = planned[words] - len(nodes)
            context.update({"suspects": limits.suspects, "told": limits.sentences, "patterns": of_patterns})
            context["visible"] = storage_coherence.visible(
                [record for record in deciding.values() if record.check == checks.COHERENT and record.variant == words]
            )
            subject = Subject("group", f"{self.name}/{first.context['storage']}", list(nodes))
            blank: PlainData = {"evidence": {}, "raw": None, "raw_sha256": None, "command": [], "attempt": 1}
            found.append(
                first.replaced(check=CURVE, variant=words, subject=subject, context=context, series=rows, metrics=metrics, **blank)
            )
        return found

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: base.Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield an opinion for each aggregate that is below what the inventory states, or that not all nodes have measured."""
        for key, record in deciding.items():
            if key.stage == self.name and key.check != CURVE and record.outcome == "measured" and not is_of_probe(record.context):
                yield key, Opinion("UNKNOWN", "what the node says has not the form of the probe", "bad_measurement")
        for of_storage in storage_coherence.by_file_system(self.name, deciding):
            yield from storage_coherence.opinions(of_storage)
        yield from _rateless(self.name, deciding)
        for key, record in deciding.items():
            if key.stage != self.name or key.check != CURVE:
                continue
            yield from _suspects(self.name, record, deciding)
            missing = [way for way in WAYS if way not in record.metrics]
            if record.context.get("absent"):
                words = f"{record.context['absent']} of the nodes could not take part: what all of them reach together is not known"
                yield key, Opinion("UNKNOWN", words, "incomplete")
                continue
            if missing:
                words = f"{' and '.join(missing)} of all {len(record.subject.members)} nodes at one time: not all of them have a rate"
                yield key, Opinion("UNKNOWN", words, "incomplete")
            apart = storage_coherence.begun_apart(self.name, record, deciding)
            if apart:
                more = f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
                words = f"{', '.join(apart[:SHOWN])}{more} may have begun at another time than the others: it is not the sum of one moment"
                yield key, Opinion("UNKNOWN", words, "incomplete")
            if record.context.get("unlike"):
                yield key, Opinion("UNKNOWN", f"its rates say nothing of the file system: {record.context['unlike']}", "unchecked")
                continue
            stated = record.context.get("stated") or {}
            for way, value in stated.items():
                if way in record.metrics and is_number(value):
                    reached = float(record.metrics[way].value or 0.0)
                    passes, warns = bands.floors(float(value), "higher")
                    if reached < passes:
                        words = f"{len(record.subject.members)} nodes {way} {reached:.4g} GiB/s together, gibps_{way}_all is {value:g}"
                        low = reached < warns
                        yield key, Opinion("FAIL" if low else "WARN", words, "below_floor" if low else "below_warn", reached, "GiB/s")

    def sections(self, rows: list[tuple[Verdict, Measurement]]) -> list[Section]:
        """Return the curve of each file system."""
        sections = []
        for _verdict, record in rows:
            if record.check != CURVE:
                continue
            table = [
                [str(row["nodes"]), *(f"{row[name]:.4g}" if name in row else "" for way in WAYS for name in (way, f"least_{way}"))]
                for row in record.series
            ]  # fmt: skip
            columns = ["nodes", "write together (GiB/s)", "slowest node", "read together (GiB/s)", "slowest node"]
            said = [words for way in WAYS if (words := storage_limits.knee(record.series, way))]
            said += [*record.context.get("told", ()), *storage_coherence.visible_words(record.context.get("visible") or {})]
            title = f"File system {record.context.get('storage')} from many nodes at one time"
            sections.append(Section(title=title, said=said, columns=columns, rows=table))
            sections += _pattern_section(title, record.context.get("patterns") or {})
        return sections

    def seconds(self, settings: Variables, nodes: int, launch_s: float, gbps: float) -> float:
        return _timeline(settings, nodes).end * len(_shared(settings))


def steps(count: int) -> list[int]:
    """Return how many nodes work together in each step: 1, 2, 4 and so on, and all."""
    return [*(1 << power for power in range(count.bit_length()) if 1 << power < count), count]


def timetable(common: PlainData, names: t.Sequence[str]) -> PlainData:
    """Return the timetable of the nodes that use a file system together."""
    return {**common, "nodes": list(names), "sizes": steps(len(names))}


def _group(target: str, settings: Variables) -> str:
    """Return who begins together: the nodes behind a target, or, if it is empty, all hosts that stand for themselves."""
    return target if base.stands_for_nodes(settings) else ""


def _shared(settings: Variables) -> list[PlainData]:
    return [entry for entry in settings.get(VARIABLE) or () if isinstance(entry, dict) and entry.get("shared")]


def _timeline(settings: Variables, nodes: int) -> timeline.Timeline:
    name = StorageTogether.name
    return timeline.Timeline.of(steps(nodes), float(settings[f"{name}_seconds"]), float(settings[f"{name}_patience"]))


def _by_variant(stage: str, deciding: t.Mapping[Key, Measurement], check: str) -> dict[str, dict[str, Measurement]]:
    """Return the measured ones of a check by variant and node."""
    found: dict[str, dict[str, Measurement]] = collections.defaultdict(dict)
    for key, record in deciding.items():
        is_measured = record.outcome == "measured" and record.context.get("nodes") and is_of_probe(record.context)
        if key.stage == stage and key.check == check and is_measured:
            found[key.variant][key.subject] = record
    return found


def _rateless(stage: str, deciding: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield UNKNOWN for each node that lacks a rate with all nodes or with few: without both nobody knows whether it is slow."""
    for records in _by_variant(stage, deciding, checks.TOGETHER).values():
        for record in records.values():
            few = record.context.get("few") or {}
            lacking = [f"{way} with all" for way in WAYS if _rate(record, len(record.context["nodes"]), way) is None]
            lacking += [f"{way} with few" for way in WAYS if not is_number(few.get(way)) or few[way] <= 0]
            if lacking:
                words = f"{record.context.get('storage')}: no rate of {', '.join(lacking)}: the node was late or failed, so it may be slow"
                yield record.key, Opinion("UNKNOWN", words, "incomplete")


def _suspects(stage: str, curve: Measurement, deciding: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield an opinion on each node that is slow alone and with all: FAIL if bands.NEIGHBOURS others of its product were measured."""
    suspects = curve.context.get("suspects") or {}
    of_storage = _by_variant(stage, deciding, checks.TOGETHER).get(curve.variant, {})
    products = collections.Counter(record.context.get("machine") for node, record in of_storage.items() if node not in suspects)
    for key, record in deciding.items():
        if key.stage == stage and key.check == checks.TOGETHER and key.variant == curve.variant and key.subject in suspects:
            others = products[record.context.get("machine")]
            words = f"{record.context.get('storage')}: {suspects[key.subject]}"
            yield key, Opinion("FAIL" if others >= bands.NEIGHBOURS else "WARN", words, "below_neighbours")


def _seen_of(record: Measurement | None, count: int) -> storage_limits.Seen:
    """Return the numbers of a node that tell what limits it."""
    if record is None:
        return storage_limits.Seen({}, {})
    few, link = record.context.get("few") or {}, record.context.get("link") or {}
    rates = {way: float(few[way]) for way in WAYS if is_number(few.get(way))}
    small, mbps = few.get("small_ms"), link.get("mbps")
    return storage_limits.Seen(
        rates, {way: _rate(record, count, way) for way in WAYS}, float(small) if is_number(small) else None,
        str(link.get("interface") or ""), int(mbps) if is_number(mbps) else None, str(record.context.get("machine") or ""),
    )  # fmt: skip


def _pattern(records: t.Mapping[str, Measurement], nodes: t.Sequence[str], way: str) -> PlainData | None:
    """Return {"rate": the bytes of all nodes in the time of the slowest, "slowest": its name, "least": its rate}; None if a node lacks."""
    rows = {node: next((row for row in records[node].series if row.get("way") == way), None) for node in nodes if node in records}
    if len(rows) < len(nodes) or not all(row and is_number(row.get("rate")) and row["rate"] > 0 for row in rows.values()):
        return None
    known = {node: row for node, row in rows.items() if row}
    seconds = {node: float(row["gib"]) / float(row["rate"]) for node, row in known.items()}
    slowest = max(seconds, key=lambda node: seconds[node])
    return {
        "rate": sum(float(row["gib"]) for row in known.values()) / seconds[slowest],
        "slowest": slowest,
        "least": float(known[slowest]["rate"]),
    }


def _pattern_section(title: str, patterns: t.Mapping[str, PlainData]) -> list[Section]:
    rows = [
        [words, f"{row['rate']:.4g}", row["slowest"], f"{row['least']:.4g}"]
        for name, words in _PATTERN_WORDS.items()
        if (row := patterns.get(name))
    ]
    columns = ["pattern", "all together (GiB/s)", "slowest node", "its rate (GiB/s)"]
    said = ["All together: the bytes of all nodes in the time of the slowest."]
    return [Section(title=f"{title}: as programs use it", said=said, columns=columns, rows=rows)] if rows else []


def _rate(record: Measurement | None, size: int, way: str) -> float | None:
    """Return the rate of a node in a step, None if there is none above 0."""
    for row in record.series if record else ():
        rate = row.get("rate")
        if row.get("nodes") == size and row.get("way") == way and is_number(rate) and rate > 0:
            return float(rate)
    return None


STAGE = StorageTogether()
