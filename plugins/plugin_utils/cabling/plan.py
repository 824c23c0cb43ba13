# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the cables, `acceptance_fabric_plan`, and a fabric held to it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import csv
import io
import pathlib
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, End, Finding, Map
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

VARIABLE = "acceptance_fabric_plan"
COLUMNS = ("node", "port", "switch", "switch_port")
SHOWN = 6


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
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RunError(f"{VARIABLE}: {path} cannot be read: {reason}") from error
    return parse(text, path)


def parse(text: str, path: str) -> list[Cable]:
    rows = _of_yaml(text, path) if path.endswith((".yml", ".yaml", ".json")) else _of_csv(text, path)
    cables: list[Cable] = []
    seen: dict[tuple[str, str], int] = {}
    for number, row in rows:
        values = {name: str(row.get(name) if row.get(name) is not None else "").strip() for name in COLUMNS}
        empty = next((name for name, value in values.items() if not value), None)
        if empty:
            raise RunError(f"{VARIABLE}: {path}, entry {number}: found no {empty}, expected {', '.join(COLUMNS)}")
        cable = Cable(**values, rack=str(row.get("rack") if row.get("rack") is not None else "").strip())
        for end in (cable[:2], cable[2:4]):
            if seen.setdefault(end, number) != number:
                raise RunError(
                    f"{VARIABLE}: {path}: found {' '.join(end)} in the entries {seen[end]} and {number}, expected each port once"
                )
        cables.append(cable)
    if not cables:
        raise RunError(f"{VARIABLE}: {path}: found no cable, expected {', '.join(COLUMNS)}")
    return cables


def _of_csv(text: str, path: str) -> t.Iterator[tuple[int, dict[str, t.Any]]]:
    heading = text.lstrip().partition("\n")[0]
    separator = max((",", ";", "\t"), key=heading.count)
    reader = csv.DictReader(io.StringIO(text.lstrip()), delimiter=separator)
    names = [(name or "").strip().lower().replace(" ", "_") for name in reader.fieldnames or ()]
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise RunError(f"{VARIABLE}: {path}: found the columns {', '.join(names)[:200]}, expected {', '.join(COLUMNS)}")
    reader.fieldnames = names
    try:
        yield from ((number, row) for number, row in enumerate(reader, 2) if any(row.get(name) for name in COLUMNS))
    except csv.Error as error:
        raise RunError(f"{VARIABLE}: {path}: {error}") from error


def _of_yaml(text: str, path: str) -> t.Iterator[tuple[int, dict[str, t.Any]]]:
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RunError(f"{VARIABLE}: {path}: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(tree, list) or not all(isinstance(row, dict) for row in tree):
        raise RunError(f"{VARIABLE}: {path}: found {str(tree)[:60]!r}, expected a list of {{{', '.join(COLUMNS)}}}")
    yield from enumerate(tree, 1)


def findings(fabric: Map, cables: t.Sequence[Cable], asked: t.Collection[str]) -> list[Finding]:
    """Return where a fabric is not cabled as planned. Cables of nodes that are not `asked` in this run are left out."""
    return _Held(fabric, cables, asked).findings()


class _Held:
    def __init__(self, fabric: Map, cables: t.Sequence[Cable], asked: t.Collection[str]) -> None:
        self.fabric = fabric
        self.found: list[Finding] = []
        self.planned: dict[End, End] = {}
        switches = fabric.switches()
        short = {name.rpartition("/")[2]: name for name in asked}
        nodes = {*fabric.ports, *asked}
        unknown: list[str] = []
        for cable in cables:
            switch = switches.get(cable.switch)
            name = cable.node if cable.node in nodes else short.get(cable.node)
            if name is None and cable.node not in switches:
                continue  # a node of another part of the plan, which this run does not measure
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
            self.planned[near] = End(switch, cable.switch_port)
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
            if fabric.kind(end.device) == NODE and end not in self.planned and far not in targets:
                words = f"{fabric.spoken(end)} is plugged into {fabric.spoken(far)}, the plan has no cable there"
                self.found.append(Finding("WARN", "cable_unknown", words, (end, far)))
        return self.found


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
