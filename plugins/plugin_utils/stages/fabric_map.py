# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `fabric_map`: what is plugged in where. The first node of a run discovers the InfiniBand fabric, the second one is its witness;
every node tells its ports, their neighbours and the modules in them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import judgement, lanes, picture, plan, reading, unseen, walk
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, SWITCH, End, Finding, Map, in_order
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import SEVERITY, Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import (
    JudgingInputs,
    Measurement,
    PlainData,
    Plan,
    PlanItem,
    Subject,
    Variables,
    Verdict,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Section
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base, rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import SECONDS, TIMEOUT, Range

# The check of a switch, which follows from what the nodes have measured.
CABLES = "cables"
# Nodes that discover a fabric: one, and a witness.
DISCOVERERS = 2
# Findings that one verdict tells; the others are counted.
SHOWN = 4
_FOUND, _RACKS = "cabling", "racks"
# Cables that the report lists.
LISTED = 1000


class FabricMap(base.Stage):
    name = "fabric_map"
    role = "gpufleet.acceptance.fabric_map"
    loads = False
    maps = True
    last: tuple[str, ...] = ("fabric_map_after",)
    beside: tuple[str, ...] = ("fabric_map_after",)
    place = 55
    level = "full"
    conditions = frozenset({reading.PORTS, reading.OPTICS, reading.DISCOVERY, CABLES})
    sees: t.Mapping[str, tuple[str, ...]] = {"fabric": (CABLES,)}
    requestable: tuple[str, ...] = ("devices", "watch", "timeout")
    ranges: t.Mapping[str, Range] = {"tool_timeout": TIMEOUT, "watch": SECONDS}

    def isolation(self, settings: Variables) -> base.Isolation:
        return rdma_ports.isolation(settings, STAGE.name)

    def items(self, nodes: base.Nodes, settings: base.Settings) -> tuple[t.Sequence[PlanItem | PlainData], list[str]]:
        """Return the checks of each node: the InfiniBand fabric is discovered by the first nodes of each fabric (`fabric_map_fabric`)."""
        items: list[PlanItem | PlainData] = []
        discovering: collections.Counter[str] = collections.Counter()
        for node, target in nodes.items():
            fabric = str(settings[target]["fabric_map_fabric"])
            for check, variant in settings[target][f"{self.name}_checks"]:
                if check == reading.DISCOVERY:
                    discovering[fabric] += 1
                    if discovering[fabric] > DISCOVERERS:
                        continue
                items.append(PlanItem(self.name, check, variant, Subject(NODE, node, []), target))
        return items, _notes(nodes, settings)

    def problem(self, settings: Variables) -> str | None:
        watch, deadline = float(settings.get("fabric_map_watch", 0)), float(settings.get("fabric_map_timeout", 0))
        if 0 < deadline <= watch:
            return f"fabric_map_timeout: found {deadline:g}, expected more than the {watch:g} s of fabric_map_watch, which are a part of it"
        path = settings.get(plan.VARIABLE)
        try:
            if path:
                plan.load(str(path))
        except RunError as error:
            return str(error)
        return None

    def derived(self, deciding: t.Mapping[Key, Measurement], plan: Plan, inputs: JudgingInputs) -> list[Measurement]:
        """Return a record for each switch of the map; its findings, and those of the nodes and of the fabric, stand in its context."""
        records = {key: record for key, record in deciding.items() if key.stage == self.name}
        measured = next((record for record in records.values() if record.outcome == "measured"), None)
        if measured is None:
            return _planned_and_absent(records, plan)
        fabric, listed, racks = self.looked(deciding, records, plan, inputs)
        borne: dict[tuple[str, str], list[Finding]] = collections.defaultdict(list)
        for finding in listed:
            borne[judgement.bearer(fabric, finding)].append(finding)
        switches = sorted((device.name for device in fabric.devices.values() if device.kind == SWITCH), key=in_order)
        if not switches and borne:
            switches = ["fabric"]
        found = []
        for place, name in enumerate(switches):
            told = {key: findings for key, findings in borne.items() if key == (SWITCH, name) or (place == 0 and key[0] != SWITCH)}
            rows = [
                [*key, finding.verdict, finding.code, finding.words, [list(end) for end in finding.ends]]
                for key, findings in told.items()
                for finding in findings
            ]
            context: PlainData = {"condition": True, _FOUND: rows}
            if place == 0:
                cabled = sorted((node for node, ports in fabric.ports.items() if any(end in fabric.links for end in ports)), key=in_order)
                context.update({_RACKS: racks, "cabled": cabled, "looked_for": [f"where the cables of {len(cabled)} nodes lead"]})
            subject = Subject(SWITCH, name, [])
            blank: PlainData = {"evidence": {}, "series": [], "metrics": {}, "raw": None, "raw_sha256": None, "command": [], "attempt": 1}
            found.append(measured.replaced(check=CABLES, variant="", subject=subject, context=context, **blank))
        return found

    def looked(
        self, deciding: t.Mapping[Key, Measurement], own: t.Mapping[Key, Measurement], plan: Plan, inputs: JudgingInputs
    ) -> tuple[Map, list[Finding], dict[str, str]]:
        """Return the fabric by the stage's `own` records, what is wrong with it, and the racks of nodes and switches."""
        fabric, differing = reading.read(own.values())
        wanted = _wanted(plan, own)
        racks = {**inputs.rack, **{cable.switch: cable.rack for cable in wanted.cables or () if cable.rack}}
        found = [*differing, *judgement.findings(fabric, wanted), *lanes.findings(fabric, own.values())]
        return fabric, found, racks

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: base.Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion]]:
        own = {key: record for key, record in deciding.items() if key.stage == self.name}
        for key, finding in unseen.findings(own):
            yield key, Opinion(finding.verdict, finding.words, finding.code)
        discoveries = [key for key, record in own.items() if key.check == reading.DISCOVERY and record.outcome == "measured"]
        switches = [key for key in own if key.check == CABLES]
        by_bearer: dict[tuple[str, str], list[tuple[str, str, str]]] = collections.defaultdict(list)
        for key in switches:
            for kind, name, verdict, code, words, _ends in own[key].context.get(_FOUND) or ():
                by_bearer[kind, name].append((verdict, code, words))
        for (kind, name), found in by_bearer.items():
            where = [key for key in own if key.subject == name and key.check == (CABLES if kind == SWITCH else reading.PORTS)]
            for key in where or discoveries[:1] or switches[:1]:
                # Of each code one opinion, so that a waiver covers only what it names.
                for code in dict.fromkeys(code for _verdict, code, _words in found):
                    texts = [words for _verdict, each, words in found if each == code]
                    verdict = max((verdict for verdict, each, _words in found if each == code), key=SEVERITY.__getitem__)
                    more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
                    yield key, Opinion(verdict, "; ".join(texts[:SHOWN]) + more, code)

    def sections(self, rows: list[tuple[Verdict, Measurement]]) -> list[Section]:
        """Return the picture of the fabric, the cables to check, and what nodes could not tell."""
        fabric, _differing = reading.read(record for _verdict, record in rows if record.stage == self.name and record.check != CABLES)
        if not fabric.links:
            return []
        shown, racks = _shown(rows)
        stops = walk.stops(fabric, shown, racks)
        table = [[*stop[:4], stop.finding.verdict, stop.finding.words] for stop in stops[:LISTED]]
        telling = {(NODE, end.device) for finding in shown for end in finding.ends[:1]}
        table += [
            ["", verdict.subject.id, "", "", verdict.verdict, verdict.reason]
            for verdict, record in sorted(rows, key=lambda row: in_order(row[0].subject.id))
            if verdict.verdict not in ("PASS", "SKIPPED") and record.check in (reading.PORTS, reading.DISCOVERY)
            and (NODE, verdict.subject.id) not in telling
        ]  # fmt: skip
        said = [_counted(fabric)]
        if len(stops) > LISTED:
            said.append(f"{len(stops) - LISTED} more ports to look at are not listed.")
        columns = ["rack", "switch or node", "port", "other end", "verdict", "what to look at"]
        return [{"title": "Cables", "said": said, "columns": columns, "rows": table, "picture": picture.draw(fabric, shown)}]


def _notes(nodes: base.Nodes, settings: base.Settings) -> list[str]:
    """Return a note for each plan of cables that has none of a node of the run."""
    targets: dict[str, list[str]] = collections.defaultdict(list)
    for node, target in nodes.items():
        targets[str(settings[target].get(plan.VARIABLE) or "")].append(node)
    notes = []
    for path, names in targets.items():
        cables = plan.load(path) if path else []
        if cables and not plan.ports_of(cables, names):
            found = list(dict.fromkeys(cable.node for cable in cables))
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            words = f"found cables of {', '.join(found[:SHOWN])}{more}, and of no node of this run, {names[0]} for one"
            notes.append(f"{plan.VARIABLE}: {path}: {words}: nodes are judged as without a plan")
    return notes


def _shown(rows: list[tuple[Verdict, Measurement]]) -> tuple[list[Finding], dict[str, str]]:
    """Return the findings of the map, those that are waived as such, and the racks of nodes and switches."""
    waived = {verdict.subject.id for verdict, _record in rows if verdict.verdict == "KNOWN_FAIL"}
    found: list[Finding] = []
    racks: dict[str, str] = {}
    for _verdict, record in rows:
        if record.check == CABLES:
            racks.update(record.context.get(_RACKS) or {})
            for _kind, name, verdict, code, words, ends in record.context.get(_FOUND) or ():
                word = "KNOWN_FAIL" if verdict == "FAIL" and name in waived else verdict
                found.append(Finding(word, code, words, tuple(End(*end) for end in ends)))
    return found, racks


def _counted(fabric: Map) -> str:
    switches = sum(device.kind == SWITCH for device in fabric.devices.values())
    return (
        f"{len(fabric.links) // 2} links of {len(fabric.ports)} nodes and {switches} switches, of which {len(fabric.leaves())} are leaves."
    )


def _planned_and_absent(records: t.Mapping[Key, Measurement], run: Plan) -> list[Measurement]:
    """Return a record with a finding for each node without RDMA hardware of which the plan has cables. Where no node has any, there is no
    map to hold to the plan, and nothing else would speak of them."""
    absent = {
        key.subject: record for key, record in records.items()
        if key.check == reading.PORTS and (record.outcome, record.reason_code) == ("not_applicable", "no_rdma_expected")
    }  # fmt: skip
    cables = _wanted(run, records).cables if absent else None
    ports = plan.ports_of(cables or (), absent)
    if not ports:
        return []
    rows = []
    for node, names in sorted(ports.items(), key=lambda of: in_order(of[0])):
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        words = f"the plan has cables of {node} at {', '.join(names[:SHOWN])}{more}, and {absent[node].reason}"
        rows.append([NODE, node, "UNKNOWN", "cable_unknown", words, []])
    subject = Subject(SWITCH, "fabric", [])
    return [next(iter(absent.values())).replaced(check=CABLES, variant="", subject=subject, context={_FOUND: rows}, attempt=1)]


def _wanted(run: Plan, records: t.Mapping[Key, Measurement]) -> judgement.Wanted:
    """Return what the plan of the run says of the fabric."""
    nodes = sorted({key.subject for key in records})
    target = next(iter(records.values())).target
    settings = base.settings_of(run, target) if run.settings is not None and target in run.settings.of else {}
    path = settings.get(plan.VARIABLE)
    cables = plan.load(str(path)) if path else None
    return judgement.Wanted(cables, nodes, bool(run.left_out), settings.get("fabric_map_others") or ())


STAGE = FabricMap()
