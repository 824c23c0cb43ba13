# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers for what ibnetdiscover, `iblinkinfo -l`, ibqueryerrors, sminfo, `vendstat -N` and `dump_fts -n` print about an InfiniBand fabric.

Forms: infiniband-diags 44 (recorded from ibsim with OpenSM, vendstat from its source) and the sources of rdma-core 28 to 55. A GUID is 16
hexadecimal digits. A port of an adapter has a GUID of its own beside that of its device; all ports of a switch have the switch's.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

# A port: the GUID of its device, and its number.
End = t.Tuple[str, int]
ADAPTER, SWITCH, ROUTER = "CA", "SW", "RT"
# The state of a subnet manager that manages; others wait, or have stopped (InfiniBand Architecture Specification 1.7, SMInfo).
MASTER = "MASTER"
_KINDS = {"Ca": ADAPTER, "Switch": SWITCH, "Rt": ROUTER}
# Gb/s of one lane by the name of the speed (InfiniBand Architecture Specification 1.7, PortInfo: LinkSpeedActive, LinkSpeedExtActive).
LANE_GBPS = {
    "SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.3125, "FDR": 14.0625, "EDR": 25.78125, "HDR": 53.125, "NDR": 106.25, "XDR": 212.5,
}  # fmt: skip
SHOWN = 100
# Lines that a parser quotes as not understood; more than that say no more.
QUOTED = 5

_HEADER = re.compile(r'(Ca|Switch|Rt)\s+(\d{1,4})\s+"[HSR]-([0-9a-fA-F]{16})"\s*#\s*"(.*)"')
_NO_MANAGER = re.compile(r"(?m)sminfo: iberror: (?:failed: query|query failed)[ \t]*$")
_LID = re.compile(r" port 0 lid (\d{1,5}) lmc \d{1,2}\s*\Z")
_OWN_LID = re.compile(r"#\s*lid (\d{1,5}) lmc \d{1,2} ")
_FIELD = re.compile(r"(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=0x([0-9a-fA-F]{1,16})(?:\(([0-9a-fA-F]{1,16})\))?\s*")
_GUIDS = ("switchguid", "caguid", "rtguid")
_LINK = re.compile(
    r"\[(\d{1,4})\](?:\[ext \d+\])?(?:\(([0-9a-fA-F]{1,16})\))?\s*"
    r'"[HSR]-([0-9a-fA-F]{16})"\[(\d{1,4})\](?:\[ext \d+\])?(?:\s*\(([0-9a-fA-F]{1,16})\))?\s*'
    r"#.*\s(\d{1,2}x|\?\?)([A-Z]+\d{0,2}|\?\?\?)\s*"
)
_STATE = re.compile(
    r'0x([0-9a-fA-F]{16})\s+"(.*?)"\s+\d+\s+(\d{1,4})\[[^\]]*\]\s+==\((.*?)\)==>\s+'
    r'(?:0x([0-9a-fA-F]{16})\s+\d+\s+(\d{1,4}))?\[[^\]]*\]\s+".*"\s*\((.*)\)\s*'
)
# A link of which the tool knows no other end (iblinkinfo.c, print_port).
_NO_END = re.compile(r'0x([0-9a-fA-F]{16})\s+"(.*?)"\s+\d+\s+(\d{1,4})\[[^\]]*\]\s+==\(.*?\)==>\s+"Port not available"\s*')
# A link at FDR10 reads `10.0 Gbps (FDR10)`: the number is that of QDR (iblinkinfo.c, print_port).
_RATE = re.compile(r"\s*(?:(\d{1,2})X\s+(?:(\d{1,3}(?:\.\d{1,6})?) Gbps(?: \((FDR10)\))?|(FDR10))\s+)?([A-Za-z?]+)/\s*([A-Za-z?]+)\s*")
_COULD = re.compile(r"\bCould be (?:(\d{1,3}(?:\.\d{1,6})?) Gbps|(FDR10))")
_WIDER = re.compile(r"\bCould be (\d{1,2})X")
# Lanes of a connector: adapters and switches of old models also say 12, which no cable of theirs has.
CONNECTOR = 4
# A device that did not answer a question about itself, its name or its ports (attributes 0x10 to 0x15), as libibnetdisc says it.
_UNANSWERED = re.compile(r"umad \((.*) Attr 0x1[0-5]:\d+\) bad status (.*)")
_ERRORS = re.compile(r"\s*GUID 0x([0-9a-fA-F]{1,16}) port (\d{1,4}|ALL):\s*((?:\[\w+ == \d{1,20}(?: \([^)\]]*\))?\]\s*)+)")
_COUNTER = re.compile(r"\[(\w+) == (\d{1,20})(?: \([^)\]]*\))?\]")
_NODES = re.compile(r"## Summary: (\d{1,9}) nodes checked, (\d{1,9}) bad nodes found\s*")
_UNASKED = re.compile(r"##\s+(\d{1,9}) PMA query failures\s*")
_PORTS = re.compile(r"##\s+(\d{1,9}) ports checked, (\d{1,9}) ports have errors beyond threshold\s*")
_TABLE = re.compile(r"Unicast lids \[.*\] of switch .* guid 0x([0-9a-fA-F]{1,16}) \(.*\):")
_CUT_TABLE = re.compile(r"SubnGet\(LFT\) failed on switch .* Node GUID 0x([0-9a-fA-F]{1,16}) ")
_ROUTE = re.compile(r"0x([0-9a-f]{1,4}) (\d{1,3})\s*(?::.*)?")
_ROUTES = re.compile(r"(\d{1,6}) (?:valid )?lids dumped\s*")
_VERSION = re.compile(r"(?m)^fw_version:[ \t]*(\d{1,10}\.\d{1,10}\.\d{1,10})[ \t]*$")
_BUILT = re.compile(r"(?m)^fw_date:[ \t]*(\d{1,3}/\d{1,3}/[0-9a-f]{4})[ \t]*$")
_MANAGER = re.compile(
    r"sminfo: sm lid (\d{1,5}) sm guid 0x([0-9a-fA-F]{1,16}), activity count \d+ priority (\d{1,2}) state \d+ SMINFO_(\w+)\s*"
)


class Device(t.NamedTuple):
    """A device of the fabric as ibnetdiscover lists it; `ports` is how many it has, `port_guids` are those of its connected ports. `lid` is
    that of a switch, 0 if it has none, `port_lids` are those of an adapter's connected ports."""

    guid: str
    kind: str
    name: str
    ports: int
    system: str
    model: str
    port_guids: t.Dict[int, str]
    lid: int
    port_lids: t.Dict[int, int]


class Far(t.NamedTuple):
    """The other end of a port's link, and the width and the speed (a key of LANE_GBPS) of the link as this end has them."""

    end: End
    width: int
    speed: str


class Discovery(t.NamedTuple):
    """A fabric: its devices by GUID, and the far end of each connected port. `unread` says what makes it no whole fabric."""

    devices: t.Dict[str, Device]
    links: t.Dict[End, Far]
    unread: t.List[str]


class PortState(t.NamedTuple):
    """A port as `iblinkinfo -l` lists it. `width` and `lane_gbps` are None for a port without a link; `could_gbps` is what a lane could
    have by what both ends say they can, and `could_width` how many lanes the link could have;
    None if the link has it."""

    width: int | None
    lane_gbps: float | None
    state: str
    physical: str
    could_gbps: float | None = None
    could_width: int | None = None


class Errors(t.NamedTuple):
    """Counters of errors above their thresholds, {(GUID of the port, its number): {name: count}}, and how many ports were asked. `unread`
    says why this is not all, empty if it is. `unanswered` is how many queries for counters failed: their ports are among those that the
    tool counts as checked, whatever they have counted."""

    counters: t.Dict[End, t.Dict[str, int]]
    ports: int
    unread: str
    unanswered: int = 0


class Manager(t.NamedTuple):
    """The subnet manager that answered: GUID of its port, LID and state (`MASTER`)."""

    guid: str
    lid: int
    state: str


def gbps(width: int, speed: str) -> float:
    """Return the rate of a link as sysfs has it: lanes times Gb/s of a lane."""
    return width * LANE_GBPS.get(speed, 0.0)


def discovery(text: str) -> Discovery:
    """Return the fabric in ibnetdiscover's output. Each cable stands there twice, once at each end, so a cut or damaged text does not pass
    for a whole one: a link whose other end does not name it, or whose device is missing, is `unread`."""
    devices: t.Dict[str, Device] = {}
    links: t.Dict[End, Far] = {}
    unread: t.List[str] = []
    fields: t.Dict[str, str] = {}
    current: Device | None = None
    declared: t.List[str] = []
    for line in text.splitlines():
        if not line.strip():
            current, fields = None, {}
            continue
        field = _FIELD.fullmatch(line)
        header = _HEADER.match(line)
        link = _LINK.fullmatch(line)
        if field:
            fields[field.group(1)] = field.group(2).lower()
            if field.group(1) in _GUIDS:
                declared.append(field.group(2).lower().zfill(16))
        elif header:
            kind, ports, guid, name = _KINDS[header.group(1)], int(header.group(2)), header.group(3).lower(), header.group(4)[:SHOWN]
            model = f"{fields.get('vendid', '?')}:{fields.get('devid', '?')}"
            lid = _LID.search(line) if kind == SWITCH else None
            system = fields.get("sysimgguid", "").zfill(16)
            current = Device(guid, kind, name, ports, system, model, {}, int(lid.group(1)) if lid else 0, {})
            if guid in devices:
                unread.append(f"device {guid} is listed twice")
            devices[guid] = current
        elif link and current is not None:
            number, far = int(link.group(1)), (link.group(3).lower(), int(link.group(4)))
            if (current.guid, number) in links:
                unread.append(f"port {number} of {current.name} is listed twice")
            width = link.group(6).rstrip("x")
            if link.group(7) not in LANE_GBPS or not width.isdigit():
                # Tools that are older than a speed print `???`, and so it is with a switch that did not tell its own port.
                unread.append(f"port {number} of {current.name} has the rate {link.group(6) + link.group(7)!r}, which is not known")
            links[current.guid, number] = Far(far, int(width) if width.isdigit() else 0, link.group(7))
            if current.kind != SWITCH:
                current.port_guids[number] = (link.group(2) or "").lower().zfill(16)
                own = _OWN_LID.search(line)
                if own:
                    current.port_lids[number] = int(own.group(1))
        elif not line.startswith(("#", "Chassis", "Switch", "Ca", "ChassisNum", "\f")) or '"' in line:
            unread.append(f"the line {line.strip()[:SHOWN]!r} is not understood")
    unread += [f"device {guid} has no entry" for guid in declared if guid not in devices]
    for (guid, number), there in links.items():
        name = devices[guid].name
        if there.end[0] not in devices:
            unread.append(f"port {number} of {name} leads to device {there.end[0]}, which is not listed")
        elif there.end not in links:
            unread.append(f"port {number} of {name} leads to port {there.end[1]} of {devices[there.end[0]].name}, which has no link")
        elif links[there.end].end != (guid, number):
            unread.append(f"port {number} of {name} leads to port {there.end[1]} of {devices[there.end[0]].name}, which leads elsewhere")
    if not links:
        unread.append("there is no cable in it")
    return Discovery(devices, links, _first(unread))


def unanswered(errors: str) -> t.List[str]:
    """Return the devices that did not answer, by what ibnetdiscover prints as errors: each with the way to it, the numbers of ports.
    They and their cables are missing at both ends, so the fabric looks whole without them, and the tool ends with 0."""
    found = (f"the device at {match.group(1).strip()} does not answer ({match.group(2).strip()})" for match in _UNANSWERED.finditer(errors))
    return _first(list(dict.fromkeys(words[: 2 * SHOWN] for words in found)))


def states(text: str) -> t.Tuple[t.Dict[End, PortState], t.List[str]]:
    """Return {(GUID of the port, its number): its state} of what `iblinkinfo -l` prints, and the lines that were not understood. The rate
    of a port without a link, which some of the tools print as SDR, is left out."""
    ports: t.Dict[End, PortState] = {}
    unread: t.List[str] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        match, without_end = _STATE.fullmatch(line), _NO_END.fullmatch(line)
        rate = _RATE.fullmatch(match.group(4)) if match else None
        if without_end:
            unread.append(f"port {without_end.group(3)} of {without_end.group(2).strip()[:SHOWN]} has a link whose other end is not known")
            continue
        if match is None or rate is None:
            unread.append(f"the line {line.strip()[:SHOWN]!r} is not understood")
            continue
        linked = match.group(5) is not None
        lane = LANE_GBPS["FDR10"] if rate.group(3) or rate.group(4) else float(rate.group(2) or 0)
        end = match.group(1).lower(), int(match.group(3))
        if end in ports:
            unread.append(f"port {end[1]} of {match.group(2).strip()[:SHOWN]} is listed twice")
        could = _COULD.search(match.group(7)) if linked and lane else None
        could_gbps = LANE_GBPS["FDR10"] if could and could.group(2) else float(could.group(1)) if could else 0.0
        wider = _WIDER.search(match.group(7)) if linked else None
        width = int(rate.group(1)) if linked and rate.group(1) else None
        most = min(int(wider.group(1)), CONNECTOR) if wider else 0
        ports[end] = PortState(
            width, lane if linked and lane else None, rate.group(5), rate.group(6),
            could_gbps if could_gbps > lane else None,
            most if width is not None and most > width else None,
        )  # fmt: skip
    return ports, _first(unread)


def errors(text: str, said: str = "") -> Errors:
    """Return the counters in ibqueryerrors' output. Without its summary, or with another number of ports than the summary counts, it is
    not known which ports are clean. `said` are its errors: they tell a query for what a device can count (`classportinfo`), without which
    its counters are read all the same, from one for the counters themselves."""
    counters: t.Dict[End, t.Dict[str, int]] = {}
    nodes = ports = bad = None
    unanswered = 0
    for line in text.splitlines():
        found, summary, ports_line = _ERRORS.fullmatch(line), _NODES.fullmatch(line), _PORTS.fullmatch(line)
        failures = _UNASKED.fullmatch(line)
        if found and found.group(2) != "ALL":
            end = found.group(1).lower().zfill(16), int(found.group(2))
            counters.setdefault(end, {}).update({name: int(count) for name, count in _COUNTER.findall(found.group(3))})
        elif summary:
            nodes = int(summary.group(1))
        elif ports_line:
            ports, bad = int(ports_line.group(1)), int(ports_line.group(2))
        elif failures:
            unanswered = max(0, int(failures.group(1)) - said.count(": classportinfo query failed on "))
    if nodes is None or ports is None:
        return Errors(counters, 0, "the summary of ibqueryerrors is missing")
    if not nodes or not ports:
        return Errors(counters, 0, "ibqueryerrors has asked no port")
    if bad != len(counters):
        return Errors(counters, ports, f"ibqueryerrors counts {bad} ports with errors and lists {len(counters)}")
    if unanswered:
        return Errors(counters, ports, f"{unanswered} queries for counters failed, and their ports are counted as checked", unanswered)
    return Errors(counters, ports, "")


def manager(text: str) -> Manager | None:
    """Return the subnet manager that sminfo prints, None if it prints none."""
    match = next(filter(None, map(_MANAGER.fullmatch, text.splitlines())), None)
    return Manager(match.group(2).lower().zfill(16), int(match.group(1)), match.group(4)) if match else None


def says_no_manager(text: str) -> bool:
    """Return True if sminfo says that its query was not answered (infiniband-diags 44: `failed: query`; OFED 1: `query failed`). It ends in
    other words where it could not ask."""
    return _NO_MANAGER.search(text) is not None


def routes(text: str, said: str = "") -> t.Dict[str, t.Dict[int, int]]:
    """Return {GUID of a switch: {LID: port by which it sends what goes there}} of what `dump_fts -n` prints. A table with another number of
    rows than its last line counts is left out, and so is that of a switch of which a part was not answered, as the errors in `said` have
    it: the tool prints the part before once more in its place (dump_fts.c, dump_unicast_tables)."""
    repeated = {match.group(1).lower().zfill(16) for match in _CUT_TABLE.finditer(said)}
    tables: t.Dict[str, t.Dict[int, int]] = {}
    current: t.Dict[int, int] = {}
    guid = ""
    for line in text.splitlines():
        row = _ROUTE.fullmatch(line)
        if row:
            current[int(row.group(1), 16)] = int(row.group(2))
            continue
        table, end = _TABLE.fullmatch(line), _ROUTES.fullmatch(line)
        if table:
            guid, current = table.group(1).lower().zfill(16), {}
        elif end and guid:
            if int(end.group(1)) == len(current) and guid not in repeated:
                tables[guid] = current
            guid, current = "", {}
    return tables


def firmware(text: str) -> str | None:
    """Return the firmware of a switch that `vendstat -N` prints, its version with the day of its build; None if there is none.

    Of models that vendstat does not know it has the lowest 8 bits of each number of the version: two builds may have the same numbers, and
    then the day tells them apart."""
    version, built = _VERSION.search(text), _BUILT.search(text)
    if version is None or not version.group(1).strip("0."):
        return None
    day = built.group(1) if built and built.group(1).strip("0/") else ""
    return f"{version.group(1)} of {day}" if day else version.group(1)


def _first(unread: t.List[str]) -> t.List[str]:
    return unread[:QUOTED] + ([f"{len(unread) - QUOTED} more"] if len(unread) > QUOTED else [])
