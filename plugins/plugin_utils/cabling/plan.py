# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the cables, `acceptance_fabric_plan`, and a fabric held to it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import codecs
import collections
import csv
import io
import itertools
import pathlib
import re
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, SWITCH, End, Finding, Map, in_order
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

VARIABLE = "acceptance_fabric_plan"
COLUMNS = ("node", "port", "switch", "switch_port")
SHOWN = 6
# Lines above the heading: titles, and what joins several columns.
MOST_TITLES = 20
_NUMBER = re.compile(r"\d+")
# Columns of sheets of other tools, such as NVIDIA's Cable Validation Tool: `A-Node Name`, `Z-Port`, `Source Port`, `DST_RACK`.
_SIDE = re.compile(r"(?:(a|source|src|from)|(?:z|b|destination|dest|dst|to))(?:_(?:side|end))?(?:_(.+))?")
_OF_NODES = ("node", "node_name", "name", "device", "device_name", "host", "hostname", "switch", "switch_name")
_OF_PORTS = ("port", "port_name", "hca_port", "hca", "interface", "nic")
# The first line of Excel's exports that names their separator.
_SEPARATOR = re.compile(r"sep=(.)[ \t]*\r?\n")


class Cable(t.NamedTuple):
    """A line of the plan: the port of a node (or of a switch, for a cable between switches) and that of a switch, and the rack of the
    latter if it is known."""

    node: str
    port: str
    switch: str
    switch_port: str
    rack: str = ""


def load(path: str) -> list[Cable]:
    """Return the cables of a file, CSV with a heading or a YAML list. Raises RunError with the file, the line and what is wrong."""
    try:
        data = pathlib.Path(path).read_bytes()
        # "Unicode text" of Excel is UTF-16 with tabs.
        text = data.decode("utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        # A relative path is sought in the folder that the run was started in, which need not be that of the inventory.
        raise RunError(f"{VARIABLE}: {pathlib.Path(path).absolute()} cannot be read: {reason}; expected a CSV or YAML file") from error
    return parse(text, path)


def parse(text: str, path: str) -> list[Cable]:
    rows = _of_yaml(text, path) if path.endswith((".yml", ".yaml", ".json")) else _of_csv(text, path)
    cables: list[Cable] = []
    seen: dict[tuple[str, str], str] = {}
    for place, row in rows:
        # YAML reads 1.10 as 1.1, and a GUID as a number.
        wrong = [row[name] for name in (*COLUMNS, "rack") if not _is_name(row.get(name))]
        if wrong:
            raise RunError(f"{VARIABLE}: {path}, {place}: found {wrong[0]!r}, expected a text: put it between quotes")
        values = {name: str(row.get(name) if row.get(name) is not None else "").strip() for name in COLUMNS}
        empty = next((name for name, value in values.items() if not value), None)
        if empty:
            raise RunError(f"{VARIABLE}: {path}, {place}: found no {empty}, expected {', '.join(COLUMNS)}")
        cable = Cable(**values, rack=str(row.get("rack") if row.get("rack") is not None else "").strip())
        for end in (cable[:2], cable[2:4]):
            if seen.setdefault(end, place) != place:
                raise RunError(f"{VARIABLE}: {path}: found {' '.join(end)} in {seen[end]} and {place}, expected each port once")
        cables.append(cable)
    if not cables:
        raise RunError(f"{VARIABLE}: {path}: found no cable, expected {', '.join(COLUMNS)}")
    return cables


def _is_name(value: t.Any) -> bool:
    """Return True for a text, nothing, or a number that is written as it is read."""
    return value is None or isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 100_000)


def _of_csv(text: str, path: str) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """Yield the place of each row as an editor counts the lines, and the row. Empty lines are left out, and so are a heading that is
    there once more, as between sheets, and what stands above the first one."""
    named = _SEPARATOR.match(text)
    table = text[named.end() if named else 0 :].lstrip()
    above = text[: len(text) - len(table)].count("\n")
    first_lines = table.splitlines()[:MOST_TITLES]
    separator = named[1] if named else max((",", ";", "\t"), key=lambda each: max((line.count(each) for line in first_lines), default=0))
    reader = csv.reader(io.StringIO(table, newline=""), delimiter=separator)
    try:
        rows = [(above + reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise RunError(f"{VARIABLE}: {path}: {error}") from error
    place, names = _heading([row for _line, row in rows[: MOST_TITLES + 1]])
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        columns = f"the columns {', '.join(names)[:200]}" if names else "an empty file"
        raise RunError(f"{VARIABLE}: {path}: found {columns}, expected a heading with the columns {', '.join(COLUMNS)}")
    for line, row in rows[place + 1 :]:
        cells = {name: cell for name, cell in zip(names, row, strict=False) if name}
        if row != rows[place][1] and any(cells.get(name, "").strip() for name in COLUMNS):
            yield f"line {line}", _from_node(cells)


def _heading(rows: t.Sequence[t.Sequence[str]]) -> tuple[int, list[str]]:
    """Return the place and the names of the first row that is a heading, alone or below one that joins several columns; else those of the
    first row."""
    for place, row in enumerate(rows):
        plain = list(map(_plain, row))
        group, joined = "", []
        for over, name in itertools.zip_longest(rows[place - 1] if place else (), plain, fillvalue=""):
            group = _plain(over) or group
            joined.append(f"{group}_{name}".strip("_"))
        for names in (plain, list(map(_column, plain)), list(map(_column, joined)), _by_order(plain)):
            if all(name in names for name in COLUMNS):
                return place, names
    return 0, list(map(_plain, rows[0])) if rows else []


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _column(name: str) -> str:
    """Return our name of a column, itself if it is not known: what is at the first side is the node."""
    side = _SIDE.fullmatch(name)
    if side is None:
        return name
    is_near, of = bool(side[1]), side[2] or "node"
    if of in _OF_NODES:
        return "node" if is_near else "switch"
    if of in _OF_PORTS:
        return "port" if is_near else "switch_port"
    return {"rack": "node_rack" if is_near else "rack", "type": "node_type" if is_near else "switch_type"}.get(of, name)


def _by_order(names: t.Sequence[str]) -> list[str]:
    """Return our names of columns that have one name at both sides, as `Rack, U, Name, HCA/Port, Rack, U, Name, Port`."""
    found = ["" for _name in names]
    for of, (first, second) in ((_OF_NODES, COLUMNS[::2]), (_OF_PORTS, COLUMNS[1::2]), (("rack",), ("node_rack", "rack"))):
        places = [place for place, name in enumerate(names) if name in of]
        if len(places) == 2:
            found[places[0]], found[places[1]] = first, second
    return found


def _from_node(cells: dict[str, str]) -> dict[str, str]:
    """Return a row as seen from its node, if it says which of its sides is a switch and that is the first."""
    types = [cells.get(name, "").strip().lower() for name in ("node_type", "switch_type")]
    if not types[0].startswith("switch") or not types[1] or types[1].startswith("switch"):
        return cells
    turned = {"node": "switch", "port": "switch_port", "switch": "node", "switch_port": "port", "rack": "node_rack"}
    return {name: cells.get(other, "") for name, other in turned.items()}


def _of_yaml(text: str, path: str) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RunError(f"{VARIABLE}: {path}: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(tree, list) or not all(isinstance(row, dict) for row in tree):
        raise RunError(f"{VARIABLE}: {path}: found {str(tree)[:60]!r}, expected a list of {{{', '.join(COLUMNS)}}}")
    yield from ((f"entry {number}", row) for number, row in enumerate(tree, 1))


def ports_of(cables: t.Iterable[Cable], nodes: t.Collection[str]) -> dict[str, list[str]]:
    """Return {node: names of its ports in the plan} for those of the nodes of which the plan has a cable."""
    short = _short(nodes)
    found: dict[str, list[str]] = collections.defaultdict(list)
    for cable in cables:
        for node, port in (cable[:2], cable[2:4]):
            name = _name_in_run(node, nodes, short)
            if name is not None:
                found[name].append(port)
    return dict(found)


def findings(fabric: Map, cables: t.Sequence[Cable], asked: t.Collection[str]) -> list[Finding]:
    """Return where a fabric is not cabled as planned. Cables of nodes that are not `asked` in this run are left out."""
    return _Held(fabric, cables, asked).findings()


class _Held:
    def __init__(self, fabric: Map, cables: t.Sequence[Cable], asked: t.Collection[str]) -> None:
        self.fabric = fabric
        self.found: list[Finding] = []
        self.planned: dict[End, End] = {}
        switches = fabric.switches()
        nodes = {*fabric.ports, *asked}
        short = _short(nodes)
        unknown: list[str] = []
        named: set[str] = set()
        elsewhere: dict[End, str] = {}
        # Ports of nodes whose line of the plan was passed over.
        self.passed: set[End] = set()
        forms = _forms(fabric)
        for written in cables:
            cable = written
            if written.node in switches and written.switch not in switches and _name_in_run(written.switch, nodes, short) is not None:
                cable = Cable(written.switch, written.switch_port, written.node, written.port)
            switch = switches.get(cable.switch) or switches.get(_guid(cable.switch))
            name = _name_in_run(cable.node, nodes, short)
            if name is None and cable.node not in switches:
                if switch is not None:
                    elsewhere[End(switch, cable.switch_port)] = cable.node
                continue  # a node of another part of the plan, which this run does not measure
            named.add(name or "")
            near = self._end(name, cable.port) if name else End(switches[cable.node], cable.port)
            if near is None and switch is not None and End(switch, cable.switch_port) in fabric.down:
                far = End(switch, cable.switch_port)
                words = f"{fabric.spoken(far)} has no link ({fabric.down[far]}), the plan has a cable to {cable.node} {cable.port}"
                self.found.append(Finding("FAIL", "cable_missing", words, (far,)))
                continue
            if near is None or switch is None:
                missing = f"the switch {cable.switch}" if switch is None else f"a port {cable.port} of {cable.node}"
                unknown.append(missing)
                continue
            # Labels of the front (1/2), and numbers or names of the tools: what is called otherwise is no other port.
            ends = [End(switch, cable.switch_port), *([near] if near.device in forms else [])]
            strange = next((end for end in ends if _form(end.port) not in forms.get(end.device, {_form(end.port): ""})), None)
            if strange is not None:
                self.passed.add(near)
                example = next(iter(forms[strange.device].values()))
                unknown.append(f"a port {strange.port} of {fabric.name(strange.device)}, whose ports have names as {example}")
                continue
            if self.planned.setdefault(near, End(switch, cable.switch_port)) != End(switch, cable.switch_port):
                unknown.append(f"one cable of {fabric.spoken(near)}, which has two in it")
        by_nodes = any(cable.node not in switches or _name_in_run(cable.switch, nodes, short) is not None for cable in cables)
        self.unnamed = set() if by_nodes else set(fabric.ports)
        # A plan of the nodes by other names than those of the run would be no plan, and each of its faults a cable that is in no plan.
        for node in sorted(fabric.ports.keys() - named, key=in_order):
            plugged_in = [(end, fabric.links[end]) for end in fabric.ports[node] if end in fabric.links]
            taken = next((ends for ends in plugged_in if ends[1] in elsewhere), None)
            if taken is not None:
                self.unnamed.add(node)
                words = f"the plan names no cable of {node}, and has {elsewhere[taken[1]]}, which is no node of this run, where "
                words += f"{fabric.spoken(taken[0])} is plugged in ({fabric.spoken(taken[1])}): is it another name of {node}?"
                self.found.append(Finding("UNKNOWN", "cable_unknown", words, taken))
        if unknown:
            words = ", ".join(list(dict.fromkeys(unknown))[:SHOWN])
            more = f" and {len(set(unknown)) - SHOWN} more" if len(set(unknown)) > SHOWN else ""
            said = f"the plan names what was not seen: {words}{more}; its cables were not compared"
            self.found.append(Finding("UNKNOWN", "cable_unknown", said))

    def _end(self, node: str, port: str) -> End | None:
        """Return a node's port by the name that the plan has for it: `mlx5_0`, `mlx5_0/1`, the network device, or its number."""
        ports = self.fabric.ports.get(node, [])
        for end in (End(node, port), End(node, f"{port}/1")):
            if end in ports:
                return end
        alias = self.fabric.aliases.get(End(node, port))
        if alias is not None:
            return alias
        return ports[int(port) - 1] if port.isdigit() and 0 < int(port) <= len(ports) else None

    def findings(self) -> list[Finding]:
        fabric = self.fabric
        wrong = {end: far for end, far in self.planned.items() if fabric.links.get(end) not in (None, far)}
        plugged = {far: end for end, far in fabric.links.items()}
        told: set[End] = set()
        for end, far in self.planned.items():
            if end not in fabric.links and end not in fabric.down and far not in fabric.down:
                words = f"{fabric.spoken(end)}: nobody says where it leads, the plan has {fabric.spoken(far)}"
                self.found.append(Finding("UNKNOWN", "cable_unknown", words, (end, far)))
            elif end not in fabric.links:
                here = f"{fabric.spoken(end)} has no link{_state(fabric, end)}, the plan has a cable to {fabric.spoken(far)}"
                there = plugged.get(far)
                taken = f"; there is {fabric.spoken(there)}" if there is not None else ""
                self.found.append(Finding("FAIL", "cable_missing", here + taken, (end, far)))
        for end, far in wrong.items():
            if end in told:
                continue
            now = fabric.links[end]
            other = next((each for each, planned in wrong.items() if planned == now and each != end), None)
            if other is not None and fabric.links[other] == far:
                told |= {end, other}
                self.found.append(swapped(fabric, end, other, "by the plan"))
            else:
                words = f"{fabric.spoken(end)} is plugged into {fabric.spoken(now)}, the plan has {fabric.spoken(far)}"
                self.found.append(Finding("FAIL", "cable_wrong", words, (end, now, far)))
        targets = set(self.planned.values())
        for end, far in fabric.links.items():
            is_asked = fabric.kind(end.device) == NODE and end.device not in self.unnamed and end not in self.passed
            if is_asked and end not in self.planned and far not in targets:
                words = f"{fabric.spoken(end)} is plugged into {fabric.spoken(far)}, the plan has no cable there"
                self.found.append(Finding("WARN", "cable_unknown", words, (end, far)))
        return self.found


def _forms(fabric: Map) -> dict[str, dict[str, str]]:
    """Return {switch: {form of the name of a port: such a name}} of all ports that somebody has named."""
    found: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for end in (*fabric.links, *fabric.down):
        if fabric.kind(end.device) == SWITCH:
            found[end.device].setdefault(_form(end.port), end.port)
    return dict(found)


def _form(port: str) -> str:
    return _NUMBER.sub("#", port)


def _guid(name: str) -> str:
    """Return a name as the map has GUIDs."""
    return name.lower().replace(":", "").removeprefix("0x").zfill(16)


def label(name: str) -> str:
    """Return a name without its domain; an address is no name with one."""
    label = name.rpartition("/")[2].partition(".")[0]
    return name if label.isdigit() else label


def _name_in_run(planned: str, nodes: t.Collection[str], short: t.Mapping[str, str]) -> str | None:
    """Return the run's name of a node of the plan, None if it is no node of the run."""
    return planned if planned in nodes else short.get(planned) or short.get(label(planned))


def _short(nodes: t.Collection[str]) -> dict[str, str]:
    """Return {short name: node}: without its cluster, and without its domain if only one node has it."""
    labels = collections.Counter(map(label, nodes))
    found = {label(node): node for node in nodes if labels[label(node)] == 1}
    return {**found, **{node.rpartition("/")[2]: node for node in nodes}}


def swapped(fabric: Map, a: End, b: End, how: str) -> Finding:
    """Return the finding about two ports whose cables are exchanged."""
    now_a, now_b = fabric.links[a], fabric.links[b]
    words = (
        f"the cables of {fabric.spoken(a)} and {fabric.spoken(b)} are exchanged {how}: they are plugged into {fabric.spoken(now_a)} and "
        f"{fabric.spoken(now_b)}"
    )
    return Finding("FAIL", "cable_swapped", words, (a, b, now_a, now_b))


def _state(fabric: Map, end: End) -> str:
    return f" ({fabric.down[end]})" if end in fabric.down else ""
