# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for perftest (ib_{read,write,send,atomic}_{bw,lat}, raw_ethernet_*) of every version since 4.4, on either side.

Formats, formulas and messages were read in the sources of tags 4.4-0.3 to 26.04 (src/perftest_parameters.[ch]). The unit is
read from the table's header: perftest's MB/sec is 2^20 bytes (spelt MiB/sec from 24.07), Gb/sec 10^9 bits. perftest computes
bandwidth and message rate from the same counters, so each row proves its own unit; that finds the row of a side that was
given another --report_gbits than its partner, and gives the JSON (--out_json), which names no unit, the only one it can have.
A peak that was not measured is printed as 0 and read as None.

What perftest prints twice must agree: bandwidth, rate and size, both directions and their sum, the title and the lines under it,
the quantiles of a latency and its mean. What it prints once only, such as the size of a latency test or the iterations of a
bandwidth, nobody can check who does not say what was asked for: that is what the `expect_` arguments of parse() are for.

Pure functions; nothing here raises for bad text. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError

Parsed = t.Dict[str, t.Any]
Row = t.Dict[str, t.Any]
Words = t.Dict[str, str]

LIMIT = 16 << 20
UNITS = {"Gb/sec": "Gb/s", "MB/sec": "MiB/s", "MiB/sec": "MiB/s"}
# Bandwidth of one million messages of one byte a second.
PER_MPPS = {"Gb/s": 8e-3, "MiB/s": 1e6 / 2**20}
OPS = {"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send", "Atomic": "atomic"}
LATENCIES = ("t_min", "t_max", "t_typical", "t_avg", "t_stdev")
ATOMIC_BYTES = 8
# A frame of raw Ethernet is at least so long.
FRAME_BYTES = 64
# Of more iterations on a QP no peak is measured.
PEAK_ITERATIONS = 20000
# A latency's samples: the times between the iterations, less two that are dropped.
NO_SAMPLES = 3
# perftest squares deviations in 32 bits; above this one overflows.
LARGEST_DEVIATION_US = 46340
# How exactly a test by duration keeps to its seconds: the alarm comes late, the clock's rate is known to 2 %.
LATE_S, CLOCK = 0.5, 0.02
# -a runs 2^1 to 2^23 bytes; datagrams end at the MTU.
LARGEST = 2**23
STREAMS = ("RC", "UC", "XRC", "DC")

# In text with blanks, in JSON with underscores.
_TITLE = re.compile(
    r"(?m)^[ \t]*(Send|RDMA_Write|RDMA_Read|Atomic)(?:_imm)?(?:[ _](?:CMP_AND_SWAP|FETCH_AND_ADD))?([ _]Bidirectional)?"
    r"(?:[ _]Post[ _]List)?[ _](BW|Latency)(?:[ _]forwarding)?(?:[ _]Multicast)?[ _]Test[ \t]*$"
)
# Two fields of a line stand apart by tabs, or by the blanks that a terminal made of them.
_FIELD = re.compile(r"([A-Za-z](?:[\w*.]| (?! )){1,30}?)[ \t]*: (\S(?:\S| (?! )){0,63})")
_GID = re.compile(r"M?GID: (\d{1,3}(?::\d{1,3}){15})$")
_LINE = re.compile(r"-{80,}")
_COLUMN = re.compile(
    r"#(?P<count>bytes|sl|iterations)|BW (?P<bw>peak|average|Port[12])\[(?P<unit>[\w/]{1,9})\]|MsgRate ?(?P<rate>Port[12])?\[Mpps\]"
    r"|(?P<time>t_[a-z]{1,9})\[usec\]|(?P<percentile>\d[\d.]{0,7})% percentile\[usec\]|(?P<tps>tps average)|(?P<cpu>CPU_Util)\[%{1,2}\]"
)
_NUMBER = re.compile(r"\d{1,25}(?:\.\d{1,9})?")
_STATUS = re.compile(r"Failed status[ -](?:.{1,60}\()?(\d{1,3})")
_ADDRESS = re.compile(r"(?m)^[ \t]*(local|remote) address:[^\n]*")
_STATES = re.compile(r"Port number \d+ state is (\w+)")

# Work completion statuses (ibv_wc_status), as a person can act on them.
_COMPLETIONS = {
    1: "a message is larger than the buffer of its receiver: the two sides run different sizes",
    4: "the memory of this side cannot be read or written by the device",
    5: "the connection was broken off before",
    9: "the other side refused the request: the two sides run different sizes or options",
    10: "the other side refused the access: the two sides run different sizes or options",
    11: "the other side could not carry out the request",
    12: "the other side no longer answers: link lost, wrong GID, or packets dropped on the way",
    13: "the receiver of the other side was never ready",
}
# Lines that mean that the test failed, whatever the exit status says: (text, what a person can do). The first that is found
# is the reason, so causes stand before their consequences.
_FAILURES = (
    ("Did not detect devices", "there is no RDMA device, or its driver is not loaded"),
    ("No IB devices found", "there is no RDMA device, or its driver is not loaded"),
    (" not found", "the device is not there"),
    ("Unable to find the Infiniband/RoCE device", "the device is not there"),
    ("state is", "the port is not active"),
    ("Unable to query port", "the device has no such port"),
    ("Link layer on port", "the link layer of the port is unknown: is it connected?"),
    ("Couldn't set the link layer", "the port is down"),
    ("Problem in resolving basic address and port", "the name of the other side cannot be resolved"),
    ("Couldn't listen to port", "the port is in use"),
    ("accept() failed", "the port is in use, or somebody else took the connection"),
    ("Couldn't connect to", "the other side is not listening: not started, another port, or a firewall"),
    ("Received 10 times ADDR_ERROR", "rdma_cm finds no way to the address: it must be the address of the RDMA interface"),
    ("Unexpected CM event", "rdma_cm refused the connection: the address must be that of the RDMA interface"),
    ("unexpected CM event", "rdma_cm refused the connection: the address must be that of the RDMA interface"),
    ("bad event waiting for connect request", "rdma_cm got no connection"),
    ("rdma_resolve_", "rdma_cm finds no way to the address: it must be the address of the RDMA interface"),
    ("not compatible with versions older", "the two sides run different versions of perftest"),
    (" mismatch: local=", "the two sides run different options"),
    ("Found Incompatibility issue with GID types", "the two sides use GIDs of different kinds (IPv4 and IPv6)"),
    ("to RTR", "the connection cannot be made: check GID index, route between the two addresses, and MTU"),
    ("Unable to Connect the HCA's through the link", "the connection cannot be made: check GID index, route and MTU"),
    ("Unable to set up socket connection", "the GID index cannot be read on this device"),
    ("Couldn't allocate MR", "memory cannot be registered: raise the memlock limit"),
    ("Failed to create MR", "memory cannot be registered: raise the memlock limit"),
    ("failed to create mr", "memory cannot be registered: raise the memlock limit"),
    ("Completion with wc_flags mismatch", "the two sides run different options"),
    ("Completion with error", "the transfer broke off"),
    ("completion with Error", "the transfer broke off"),
    ("Did not get Message for 120 Seconds", "the transfer stalled: no message for 120 seconds"),
    ("Couldn't read remote address", "the other side died, or somebody else took the connection"),
    ("Failed to exchange", "the other side died"),
    ("Couldn't read reports", "the other side died before its report"),
    ("Failed to sync", "the other side died"),
    ("Failed to close connection", "the other side died at the end"),
    ("Unable to create QP", "a queue pair cannot be made: too many, or a depth or inline size that the device does not take"),
    ("Couldn't create", "a resource of the device cannot be made: memlock limit, or the device's own limits"),
    ("Couldn't allocate", "a resource of the device cannot be had: memlock limit, or the device's own limits"),
    ("Couldn't get context for the device", "the device cannot be opened"),
    ("Couldn't post", "the device refused a request"),
    ("Problems with warm up", "the transfer broke off while warming up"),
    ("Error occurred", "the transfer broke off"),
    ("Failed to complete", "the transfer broke off"),
    ("Failed to modify QP", "the queue pair cannot be set up"),
    ("Failed to negotiate parameters", "the two sides run different options"),
    ("BW result is below bw limit", "the result is below the limit that perftest was given"),
    ("below msg_rate limit", "the result is below the limit that perftest was given"),
    ("Can't produce a report", "perftest could not find the CPU's clock rate"),
    ("cannot produce a report", "perftest could not measure in event mode"),
    ("Terminated", "it was ended from outside"),
)
_USAGE = ("Invalid Command", "unrecognized option", "invalid option", "requires an argument", "Parser function exited with Error")


class _Bad(ReasonedError):
    """The text is not a whole and consistent output of the tool."""


def parse(
    text: t.Any,
    rc: int = 0,
    expect_bytes: int | None = None,
    expect_iterations: int | None = None,
    unit: str | None = None,
    expect_duration: int | None = None,
) -> Parsed:
    """Read what one perftest program printed (text, or the JSON of its --out_json file) and its exit status `rc`.

    Returns {"outcome", "reason_code", "reason", "tool", "test", "rows", "warnings"}. Rows of a bandwidth test: bytes,
    iterations (of all QPs), bw_peak (None where it was not measured) and bw_average as {value, unit} (`Gb/s` of 10^9 bits or
    `MiB/s` of 2^20 bytes), message_rate in Mpps, and where printed cpu_util in percent, sl, ports. Rows of a latency test, in
    us: t_min, t_max, t_typical, t_avg, t_stdev, percentiles {"99", "99.9"}, tps_average; what a duration run does not print
    is None. `side` is local or remote in the extra tables of --report-both. `expect_bytes` and `expect_iterations` (of one
    QP, -n) are what the caller asked for, `expect_duration` the seconds of -D with the margins that perftest takes by itself;
    another number is an error. `unit` is that of the bandwidth in a JSON, which names none, where its text has told it. Never
    raises.
    """
    result: Parsed = {
        "outcome": "error", "reason_code": None, "reason": None, "tool": None, "test": None, "rows": [], "warnings": [],
    }  # fmt: skip
    try:
        if not isinstance(text, str) or len(text) > LIMIT:
            raise _Bad("bad_output", "perftest printed no text of a sane size")
        if isinstance(rc, bool) or not isinstance(rc, int):
            raise _Bad("bad_output", f"exit status {rc!r} is not a number")
        text = text.replace("\r\n", "\n")
        if text.lstrip()[:1] == "{":
            _ended(text, rc)
            _read_json(text, result, unit)
        else:
            try:
                unfinished = _read_text(text, result)
            except _Bad as bad:
                if bad.reason_code != "wrong_results":
                    _ended(text, rc)  # perftest's own words say more than a table that is cut
                raise
            _ended(text, rc)
            _complete(text, result, unfinished)
        _expected(result, expect_bytes, expect_iterations, expect_duration)
        result["outcome"] = "measured"
    except _Bad as bad:
        result["reason_code"], result["reason"] = bad.reason_code, bad.reason
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError, AttributeError) as error:
        result["reason_code"], result["reason"] = "bad_output", f"not readable: {type(error).__name__}: {error}"[:300]
    return result


# Text --------------------------------------------------------------------------------------------------------------


def _read_text(text: str, result: Parsed) -> str | None:
    """Fills test and rows; returns why the tables are not whole, which says less than perftest's own messages."""
    titles = list(_TITLE.finditer(text))
    if not titles:
        return None
    if len(titles) > 1:
        raise _Bad("bad_output", f"{len(titles)} tests are mixed in one output")
    title = titles[0]
    body = text[title.end() :]
    above = body.split("#bytes")[0]
    fields = {name.strip(): value.strip() for name, value in _FIELD.findall(above[:4096])}
    test = _test(title, fields)
    result["tool"] = _tool(test)
    result["test"] = test
    if "BW peak won't be measured" in text:
        result["warnings"].append("the peak was not measured")
    if "Conflicting CPU frequency" in text:
        result["warnings"].append("CPU frequencies differ: the governor is not performance")
    if "RLIMIT_MEMLOCK" in text:
        result["warnings"].append("the memlock limit is low")
    if "VALIDATION: FAILED" in text:
        raise _Bad("wrong_results", _line(text, "VALIDATION: FAILED"))
    if "\n#, cycles\n" in text:
        raise _Bad("bad_output", "the latencies are in cycles (-C), not in microseconds")
    _heading(title, fields, test)
    _addresses(title, above, fields, test)
    _direction(text, fields, test)
    names: list[str] = []
    unit = ""
    side = section = None
    unfinished = None
    tables: dict[str | None, list[list[Words]]] = {}
    for line in body.split("\n"):
        head = line.strip()
        if _LINE.fullmatch(head):
            names, unfinished = [], None
        elif head.startswith("#bytes"):
            names, unit = _columns(head)
            unfinished = "the line after the table is missing: the output is cut"
            tables.setdefault(section, []).append([])
        elif names and head[:1].isdigit() and not re.match(r"\d+,", head):  # `1, 3.3`: lists of -H and -U
            words = head.split()
            if len(words) != len(names):
                raise _Bad("incomplete_output", f"a row has {len(words)} cells, its header {len(names)}: {head[:120]}")
            cells = dict(zip(names, words))
            row = _row(cells, unit, test, True)
            if section:
                row["side"] = section
            result["rows"].append(row)
            tables[section][-1].append(cells)
        elif head.startswith(("local address:", "remote address:")):
            side = head.split(" ", 1)[0]
        elif side and test[f"{side}_gid"] is None and "GID:" in head:
            gid = _GID.match(head)
            test[f"{side}_gid"] = _gid(gid.group(1)) if gid else None
        elif head in ("Local results:", "Remote results:"):
            section = head.split()[0].lower()
    _tables(tables)
    return unfinished


def _heading(title: t.Any, fields: dict[str, str], test: dict[str, t.Any]) -> None:
    """Raises _Bad where the fields are those of another test than the title's: only what is read from the other side has
    outstanding reads, and only what is not can be inline."""
    strange = "Max inline data" if test["op"] in ("read", "atomic") else "Outstand reads"
    if strange in fields:
        raise _Bad("bad_output", f"the heading is that of another test: {title.group(0).strip()} has no `{strange}`")


def _addresses(title: t.Any, above: str, fields: dict[str, str], test: dict[str, t.Any]) -> None:
    """Raise _Bad if the addresses are those of another test. Expected is one line for each QP of each side, with RKey and VAddr if the
    test reads or writes memory of the other side. With rdma_cm (-R, -z) perftest may print these lines bare, since keys are exchanged
    otherwise."""
    lines = {side: [m.group(0) for m in _ADDRESS.finditer(above) if m.group(1) == side] for side in ("local", "remote")}
    if not lines["local"] or test["connection"] == "RawEth":
        return
    if test["qps"] and {len(lines["local"]), len(lines["remote"])} != {test["qps"]}:
        counts = f"{len(lines['local'])} local and {len(lines['remote'])} remote addresses"
        raise _Bad("bad_output", f"{counts} stand under a heading of {test['qps']} QPs")
    keyed = test["op"] == "read" or (test["op"] == "write" and "_imm" not in title.group(0))
    allowed = [(keyed, test["op"] == "read")]
    if fields.get("rdma_cm QPs") == "ON" or fields.get("Data ex. method") == "rdma_cm":
        allowed.append((False, False))
    forms = {("RKey" in line, " OUT " in line) for line in lines["local"] + lines["remote"]}
    for line in lines["local"] + lines["remote"]:
        if len(forms) > 1 or forms.isdisjoint(allowed):
            raise _Bad("bad_output", f"the addresses are not those of a {title.group(0).strip()}: {line.strip()[:120]}")


def _direction(text: str, fields: dict[str, str], test: dict[str, t.Any]) -> None:
    """Raises _Bad where the title is that of one direction and the depths of the queues those of two, or the other way round."""
    if test["connection"] == "RawEth" or test["kind"] != "bw":
        return
    sends, receives = "TX depth" in fields, "RX depth" in fields
    serves = receives or "Waiting for client" in text
    if serves and sends and not test["bidirectional"]:
        raise _Bad("bad_output", "the title is that of one direction, the heading that of two")
    if test["bidirectional"] and serves is not sends and (serves or test["op"] == "send"):
        raise _Bad("bad_output", "the title is that of two directions, the heading that of one")


def _tables(tables: dict[str | None, list[list[Words]]]) -> None:
    """Raises _Bad where there is more than perftest prints: one table, and with --report-both one of each side, which add up to it."""
    filled = {section: [rows for rows in tables_found if rows] for section, tables_found in tables.items()}
    if any(len(tables_found) > 1 for tables_found in filled.values()):
        raise _Bad("bad_output", "there are several tables: outputs of several runs are mixed")
    if not all(len(tables_found[0]) == 1 for section, tables_found in filled.items() if tables_found and section):
        raise _Bad("bad_output", "the table of a side has several rows")
    if all(filled.get(side) for side in ("local", "remote")) and filled.get(None) and len(filled[None][0]) == 1:
        total, local, remote = (filled[side][0][0] for side in (None, "local", "remote"))
        if len({cells["bytes"] for cells in (total, local, remote)}) > 1 or total["iterations"] != local["iterations"]:
            raise _Bad("bad_output", "the tables of both sides are of another size or of other iterations than their sum")
        for name in ("bw_peak", "bw_average", "message_rate_all"):
            _sum(name, total[name], [local[name], remote[name]])


def _sum(name: str, total: str, parts: list[str]) -> None:
    if abs(_number(total) - sum(map(_number, parts))) > 1.02 * sum(map(_half_digit, [total, *parts])) + 1e-6 * _number(total):
        raise _Bad("bad_output", f"{name} {total} is not the sum of {' and '.join(parts)}")


def _test(title: t.Any, fields: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the kind of test. `fields` are those of the heading, with blanks in their names."""
    return {
        "op": OPS[title.group(1)],
        "kind": "bw" if title.group(3) == "BW" else "lat",
        "bidirectional": bool(title.group(2)),
        "connection": fields.get("Connection type"),
        "device": fields.get("Device"),
        "link": fields.get("Link type"),
        "mtu": _int(fields.get("Mtu")),
        "qps": _int(fields.get("Number of qps")),
        "gid_index": _int(fields.get("GID index")),
        "local_gid": None,
        "remote_gid": None,
    }


def _tool(test: dict[str, t.Any]) -> str:
    return f"raw_ethernet_{test['kind']}" if test["connection"] == "RawEth" else f"ib_{test['op']}_{test['kind']}"


def _gid(decimal: str) -> str | None:
    """perftest prints the sixteen bytes of a GID in decimal. An IPv4 address is written `::ffff:10.0.0.1`."""
    try:
        address = ipaddress.IPv6Address(bytes(int(n) for n in decimal.split(":")))
    except ValueError:
        return None
    return f"::ffff:{address.ipv4_mapped}" if address.ipv4_mapped else str(address)


def _int(text: t.Any) -> int | None:
    digits = re.match(r"\d{1,9}", str(text or ""))
    return int(digits.group(0)) if digits else None


def _columns(header: str) -> tuple[list[str], str]:
    """Names of the columns, and the unit of the bandwidths ("" in a table of latencies)."""
    names: list[str] = []
    units: set[str] = set()
    for match in _COLUMN.finditer(header):
        cell = match.groupdict()
        if cell["unit"]:
            units.add(cell["unit"])
        if cell["percentile"]:
            names.append(f"percentile_{cell['percentile']}")
        elif cell["bw"]:
            names.append(f"bw_{cell['bw'].lower()}")
        elif cell["tps"] or cell["cpu"]:
            names.append("tps_average" if cell["tps"] else "cpu_util")
        else:
            names.append(cell["count"] or cell["time"] or f"message_rate_{(cell['rate'] or 'all').lower()}")
    unknown_words = _COLUMN.sub("", header).split()
    if unknown_words or len(set(names)) != len(names) or len(units) > 1 or not units <= set(UNITS):
        raise _Bad("bad_output", f"the table's header names no columns or units that are known: {header[:150]}")
    needed = {"bytes", "iterations", "bw_peak", "bw_average", "message_rate_all"} if units else {"bytes", "iterations", "t_avg"}
    if not needed <= set(names):
        raise _Bad("bad_output", f"the table's header lacks columns: {header[:150]}")
    return names, UNITS[units.pop()] if units else ""


# Rows --------------------------------------------------------------------------------------------------------------


def _row(words: Words, unit: str, test: dict[str, t.Any], exact: bool) -> Row:
    """A row from its words by column; `unit` is that of its bandwidths, whose digits are `exact` in a text."""
    if bool(unit) is not (test["kind"] == "bw"):
        raise _Bad("bad_output", "the table is not that of the test in the heading")
    for name in ("bytes", "iterations"):
        if not words[name].isdigit() or not 0 < int(words[name]) < 1 << 62:
            raise _Bad("bad_output", f"{words[name][:40]} is no number of {name}")
    _size(int(words["bytes"]), test)
    row = _bandwidth(words, unit, test, exact) if unit else _latency(words, test)
    if "cpu_util" in words:
        row["cpu_util"] = _number(words["cpu_util"])
    return row


def _size(size: int, test: dict[str, t.Any]) -> None:
    """Raises _Bad for a size that the test cannot have."""
    smallest, largest = 1, None
    if test["op"] == "atomic":
        smallest = largest = ATOMIC_BYTES
    elif test["connection"] in ("UD", "RawEth"):
        smallest, largest = FRAME_BYTES if test["connection"] == "RawEth" else 1, test["mtu"]
    if size < smallest or (largest and size > largest):
        where = f"with an MTU of {largest}" if largest and largest != smallest else f"of {smallest} bytes at least"
        raise _Bad("bad_output", f"{size} bytes are no message of a test {test['connection'] or ''} {test['op']} {where}")


def _digits(words: Words, unit: str, test: dict[str, t.Any], exact: bool) -> bool:
    """Return True if the bandwidths have the digits that perftest prints in this unit: below 0.1 Gb/s six, else two. In both directions
    this side's half decides for the sum. Not `exact`, for a JSON, they may be more."""
    printed = {len(words[name].partition(".")[2]) for name in ("bw_peak", "bw_average")}
    six = unit == "Gb/s" and not {"sl", "bw_port1"} & set(words)
    small = six and float(words["bw_average"]) < 0.1
    if not exact:
        return not small or printed != {2}
    return printed == {6 if small else 2} or (printed == {6} and six and (test["bidirectional"] or words["bw_average"] == "0.100000"))


def _bandwidth(words: Words, unit: str, test: dict[str, t.Any], exact: bool) -> Row:
    size, peak, average = int(words["bytes"]), _number(words["bw_peak"]), _number(words["bw_average"])
    rate = _number(words["message_rate_all"])
    if average <= 0 and rate <= 0:
        raise _Bad("bad_output", f"the result at {size} bytes is 0: nothing was measured")
    units = _units(words["bw_average"], words["message_rate_all"], size)
    if not _digits(words, unit, test, exact):
        raise _Bad("bad_output", f"perftest prints other digits than {words['bw_average']} {unit}: is the unit another?")
    if unit not in units:
        problem = f"at {size} bytes {words['bw_average']} {unit} does not follow from {words['message_rate_all']} Mpps"
        if units:
            problem += f", {units[0]} would: the two sides ran with different --report_gbits"
        raise _Bad("bad_output", problem)
    if peak and peak < 0.98 * average - _half_digit(words["bw_peak"]):  # the peak is that of the best run of messages, or of all
        raise _Bad("bad_output", f"at {size} bytes the peak {words['bw_peak']} is below the average {words['bw_average']}")
    qps = _sending(test)
    if peak and int(words["iterations"]) % qps:  # a peak is measured in runs by iterations only
        raise _Bad("bad_output", f"{words['iterations']} iterations are no multiple of {qps} QPs")
    if peak and int(words["iterations"]) > PEAK_ITERATIONS * qps:
        raise _Bad("bad_output", f"of {words['iterations']} iterations on {qps} QPs perftest measures no peak")
    row: Row = {
        "bytes": size,
        "iterations": int(words["iterations"]),
        "bw_peak": {"value": peak, "unit": unit} if peak else None,
        # A few small messages a second are less than the two digits of MB/sec; their rate has six.
        "bw_average": {"value": average or round(rate * size * PER_MPPS[unit], 9), "unit": unit},
        "message_rate": rate,
    }
    if "sl" in words:
        row["sl"] = int(words["sl"])
    if "bw_port1" in words:
        for name, total in (("bw", "bw_average"), ("message_rate", "message_rate_all")):
            _sum(name, words[total], [words[f"{name}_port{n}"] for n in (1, 2)])
        if not all(unit in _units(words[f"bw_port{n}"], words[f"message_rate_port{n}"], size) for n in (1, 2)):
            raise _Bad("bad_output", f"at {size} bytes the bandwidth of a port does not follow from its message rate")
        row["ports"] = [
            {
                "bw_average": {"value": _number(words[f"bw_port{n}"]), "unit": unit},
                "message_rate": _number(words[f"message_rate_port{n}"]),
            }
            for n in (1, 2)
        ]
    return row


def _sending(test: dict[str, t.Any]) -> int:
    """QPs whose messages are counted."""
    qps = test["qps"] or 1
    return max(qps // 2, 1) if test["connection"] in ("DC", "XRC") and test["bidirectional"] else qps  # half of them receive


def _units(average: str, rate: str, size: int) -> list[str]:
    """The units in which `average` is the bandwidth of `rate` million messages of `size` bytes a second, both as printed."""
    value, mpps = _number(average), _number(rate)
    fitting = []
    for unit, each in PER_MPPS.items():
        slack = 1.02 * (_half_digit(average) + _half_digit(rate) * size * each) + 1e-6 * value
        if abs(value - mpps * size * each) <= slack:
            fitting.append(unit)
    return fitting


def _latency(words: Words, test: dict[str, t.Any]) -> Row:
    row: Row = {"bytes": int(words["bytes"]), "iterations": int(words["iterations"])}
    row.update({name: _number(words[name]) if name in words else None for name in LATENCIES})
    marks = sorted((float(n.split("_")[1]), n) for n in words if n.startswith("percentile_"))
    row["percentiles"] = {name.split("_")[1]: _number(words[name]) for _mark, name in marks}
    if row["t_avg"] <= 0:
        raise _Bad("bad_output", f"the latency at {row['bytes']} bytes is 0: nothing was measured")
    if "tps_average" in words:
        row["tps_average"] = _number(words["tps_average"])
        messages = 1 if test["op"] in ("read", "atomic") else 2  # write and send report half of a round trip
        product = row["t_avg"] * row["tps_average"] * messages / 1e6
        slack = _half_digit(words["t_avg"]) / row["t_avg"] + _half_digit(words["tps_average"]) / (row["tps_average"] or 1)
        if abs(product - 1) > 1.02 * slack + 1e-3:
            raise _Bad("bad_output", f"{words['t_avg']} us does not follow from {words['tps_average']} transactions a second")
        _whole_seconds(row)
        return row
    missing = [name for name in LATENCIES if row[name] is None]
    if missing or not marks:
        raise _Bad("bad_output", f"the table lacks {', '.join(missing) or 'percentiles'}")
    rising = [row["t_min"], row["t_typical"], *row["percentiles"].values(), row["t_max"]]
    if rising != sorted(rising) or not row["t_min"] <= row["t_avg"] <= row["t_max"]:
        raise _Bad("bad_output", f"the latencies at {row['bytes']} bytes contradict each other")
    _distribution(row)
    return row


def _whole_seconds(row: Row) -> None:
    """Raises _Bad where time and rate of a test by duration changed places, which their product does not tell: a test lasts whole
    seconds. What lasted hours at a latency of milliseconds, and some seconds the other way round, did change places."""
    seconds, swapped = row["iterations"] / (row["tps_average"] or 1e-9), row["iterations"] / row["t_avg"]
    slow = row["t_avg"] > row["tps_average"] and seconds > 600
    if not _lasts(seconds, seconds) or (slow and swapped <= 60 and _lasts(swapped, swapped)):
        raise _Bad("bad_output", f"{row['iterations']} iterations at {row['tps_average']} a second are no test of whole seconds")


def _lasts(shortest: float, longest: float, seconds: int | None = None) -> bool:
    """Return True if a test by duration can have lasted from `shortest` to `longest` seconds: `seconds`, or any whole number of them."""
    seconds = seconds or max(1, math.ceil(shortest / (1 + CLOCK) - LATE_S))
    return shortest <= (1 + CLOCK) * (seconds + LATE_S) and (1 - CLOCK) * seconds - 0.01 <= longest


def _distribution(row: Row) -> None:
    """Raises _Bad where no samples have these quantiles, this mean and this deviation. The samples are sorted; half of them lie
    between t_min and t_typical, and so on. With few samples percentiles fall together with each other and with t_max."""
    count = row["iterations"] - NO_SAMPLES
    if count < 1 or set(row["percentiles"]) != {"99", "99.9"}:
        return
    marks = [count // 2, min(math.ceil(count * 0.99), count), min(math.ceil(count * 0.999), count), count]
    values = [row["t_typical"], *row["percentiles"].values(), row["t_max"]]
    for at in (1, 2):
        if marks[at] == marks[at + 1] and values[at] != values[at + 1]:
            raise _Bad("bad_output", f"of {row['iterations']} iterations no percentile is {values[at]}, below {values[at + 1]}")
    mean, digit = row["t_avg"], 0.011
    parts = [(b - a, low, high) for a, b, low, high in zip([0, *marks], marks, [row["t_min"], *values], values)]
    lowest_mean, highest_mean = (sum(part[0] * part[side] for part in parts) / count for side in (1, 2))
    if not lowest_mean - digit <= mean <= highest_mean + digit:
        raise _Bad("bad_output", f"a mean of {mean} us does not follow from a median of {row['t_typical']} us and its percentiles")
    if row["t_max"] - row["t_min"] > LARGEST_DEVIATION_US:
        return
    # A deviation is cut to whole microseconds before it is squared; no mean is further from the median than one.
    highest_mean = sum(n * max(mean - low, high - mean, 0) ** 2 for n, low, high in parts) / count
    lowest_mean = sum(n * math.floor(max(low - mean, mean - high, digit) - digit) ** 2 for n, low, high in parts) / count
    lowest_mean = max(math.sqrt(lowest_mean), abs(mean - row["t_typical"]) - 1)
    if not lowest_mean - 2 * digit <= row["t_stdev"] <= math.sqrt(highest_mean) + 2 * digit:
        raise _Bad("bad_output", f"a deviation of {row['t_stdev']} us does not follow from the percentiles")


def _number(word: t.Any) -> float:
    if not isinstance(word, str) or not _NUMBER.fullmatch(word):
        raise _Bad("bad_output", f"{str(word)[:40]} is no value of a measurement")
    return float(word)


def _half_digit(word: str) -> float:
    """Half a unit of the last printed digit."""
    return 0.5 * 10.0 ** -len(word.partition(".")[2])


# JSON --------------------------------------------------------------------------------------------------------------


def _read_json(text: str, result: Parsed, known_unit: str | None) -> None:
    """The file of --out_json. It holds the last size only, and after --report-both the other side's result."""
    try:
        document = json.loads(text, parse_float=str, parse_int=str, object_pairs_hook=_once)
    except ValueError:
        document = _loose(text)
    info = {name.strip().replace("_", " "): value for name, value in document["test_info"].items() if isinstance(value, str)}
    title = _TITLE.fullmatch(info["test"].replace(" ", "_"))
    if not title:
        raise _Bad("bad_output", f"unknown test {info['test']!r:.60}")
    test = _test(title, info)
    result["tool"], result["test"] = _tool(test), test
    _heading(title, info, test)
    names = {
        "MsgSize": "bytes", "n_iterations": "iterations", "BW_peak": "bw_peak", "BW_average": "bw_average",
        "MsgRate": "message_rate_all", "CPU_util": "cpu_util",
    }  # fmt: skip
    words = {names.get(name.strip(), name.strip()): value for name, value in document["results"].items()}
    needed = {"bytes", "iterations", *({"bw_peak", "bw_average", "message_rate_all"} if test["kind"] == "bw" else {"t_avg"})}
    if not needed <= set(words):
        raise _Bad("bad_output", "perftest's JSON lacks the results: was it told to print one number only (--output)?")
    unit = (known_unit or "") if test["kind"] == "bw" else ""
    if test["kind"] == "bw" and not known_unit:
        units = _units(words["bw_average"], words["message_rate_all"], int(words["bytes"]))
        units = [unit for unit in units if _digits(words, unit, test, False)]
        if len(units) != 1:
            why = "its numbers are too small to tell which it is" if units else "its numbers fit none"
            raise _Bad("bad_output", f"perftest's JSON names no unit of the bandwidth, and {why}: read the text")
        unit = units[0]
    result["rows"] = [_row(words, unit, test, False)]


def _once(pairs: list[tuple[str, t.Any]]) -> dict[str, t.Any]:
    if len({name for name, _value in pairs}) < len(pairs):
        raise _Bad("bad_output", "perftest's JSON says something twice")
    return dict(pairs)


def _loose(text: str) -> dict[str, dict[str, str]]:
    """Read the JSON of perftest before 24.01, and later with service levels: keys without quotes, commas before brackets."""
    lines = [line.strip().rstrip(",").strip() for line in text.strip().split("\n")]
    sections: dict[str, dict[str, str]] = {}
    depth = 0
    section: dict[str, str] = {}
    for number, line in enumerate(lines):
        opened = re.fullmatch(r'"?(\w{1,40})"?\s{0,4}: ?\{', line)
        pair = re.fullmatch(r'"?([\w. ]{1,60})"?\s{0,4}: ?(.{0,300})', line)
        if opened and depth == 1 and opened.group(1) not in sections:
            section = sections.setdefault(opened.group(1), {})
            depth += 1
        elif line == "{" and number == 0:
            depth += 1
        elif line == "}" and depth:
            depth -= 1
        elif pair and depth == 2 and pair.group(1).strip() not in section:
            section[pair.group(1).strip()] = pair.group(2).strip().strip('"')
        elif line:
            raise _Bad("bad_output", f"line {number + 1} is not of perftest's JSON: {line[:100]}")
    if depth or set(sections) != {"test_info", "results"}:
        raise _Bad("incomplete_output", "perftest's JSON is cut")
    return sections


# Whether to believe it ---------------------------------------------------------------------------------------------


def _line(text: str, mark: str) -> str:
    return next((line.strip() for line in text.split("\n") if mark in line), mark)[:200]


def _ended(text: str, rc: int) -> None:
    """Raises _Bad with the reason in words where perftest failed."""
    failure = _failure(text)
    if rc in (124, 137, 143, -9, -15):
        raise _Bad("timeout", f"perftest was ended from outside (status {rc})" + (f": {failure}" if failure else " before it had a result"))
    if failure:
        raise _Bad("tool_failed", failure)
    if any(mark in text for mark in _USAGE) or ("Usage:" in text and "start a server" in text):
        refused = next((_line(text, mark) for mark in _USAGE[1:4] if mark in text), "")
        raise _Bad("usage", "perftest printed its usage text: it refused an option" + (f": {refused}" if refused else ""))
    if rc != 0:
        messages = [line.strip() for line in text.split("\n") if line.strip() and not _LINE.fullmatch(line.strip())]
        raise _Bad("tool_failed", f"perftest ended with status {rc}" + (f": {messages[-1][:200]}" if messages else " and said nothing"))


def _failure(text: str) -> str | None:
    status = _STATUS.search(text)
    if status and int(status.group(1)) in _COMPLETIONS:
        return f"{_COMPLETIONS[int(status.group(1))]}: {_line(text, status.group(0))}"
    state = _STATES.search(text)
    for mark, advice in _FAILURES:
        if mark == " not found" and not re.search(r"IB device \S{1,64} not found", text):
            continue
        if mark == "state is":
            if state:
                return f"the port is {state.group(1).lower()}: {_line(text, state.group(0))}"
        elif mark in text:
            return f"{advice}: {_line(text, mark)}"
    return None


def _complete(text: str, result: Parsed, unfinished: str | None) -> None:
    test, rows = result["test"], result["rows"]
    if test is None:
        if not text.strip():
            raise _Bad("bad_output", "perftest printed nothing")
        raise _Bad("bad_output", "this is no output of perftest" + (": its heading is missing" if "#bytes" in text else ""))
    if unfinished:
        raise _Bad("incomplete_output", unfinished)
    if not rows:
        server = "Waiting for client to connect" in text
        raise _Bad(
            "incomplete_output",
            "the server ended without a result: its client did not finish, or it is a test of which only the client has results"
            if server
            else "perftest ended without a result",
        )
    sides = {side: [row for row in rows if row.get("side") == side] for side in (None, "local", "remote")}
    if ("Local results:" in text or "Remote results:" in text) and not (
        len(sides[None]) == len(sides["local"]) == len(sides["remote"]) == 1
    ):
        raise _Bad("incomplete_output", "of the tables of both sides one is missing")
    sizes = [row["bytes"] for row in sides[None]]
    if len(sizes) > 1 and len(set(sizes)) == 1 and "User stopped traffic" not in text:  # --run_infinitely repeats one size
        raise _Bad("bad_output", f"{len(sizes)} rows of {sizes[0]} bytes: one run prints one")
    if len(set(sizes)) > 1:  # -a
        counts = sorted({row["iterations"] for row in sides[None]})
        if len(counts) > 1:
            raise _Bad("bad_output", f"the rows are of several runs: of {counts[0]} and of {counts[-1]} iterations")
        all_sizes = [2**n for n in range(1, len(sizes) + 1)]
        missing = next((want for want, size in zip(all_sizes, sizes) if want != size), None)
        largest = LARGEST if test["connection"] in STREAMS else test["mtu"] if test["connection"] == "UD" else None
        if missing is None and largest and sizes[-1] < largest:
            missing = sizes[-1] * 2
        if missing is not None:
            raise _Bad("incomplete_output", f"the row of {missing} bytes is missing")


def _expected(result: Parsed, size: int | None, iterations: int | None, duration: int | None) -> None:
    """Raises _Bad where something else ran than was asked for."""
    sizes = [row["bytes"] for row in result["rows"]]
    if size is not None and size not in sizes:
        raise _Bad("reduced_size", f"{size} bytes were asked for, {', '.join(str(s) for s in sizes[:3])} were measured")
    if duration is not None:
        _lasted(result, duration)
    if iterations is None:
        return
    expected = iterations * _sending(result["test"])
    for row in result["rows"]:
        if row["iterations"] != expected:
            raise _Bad(
                "bad_output",
                f"{row['iterations']} iterations stand in the result, {expected} were asked for ({_sending(result['test'])} QPs)",
            )


def _lasted(result: Parsed, duration: int) -> None:
    """Raises _Bad where a run by duration did not last as long as its margins let it. Rate and iterations tell; a sum of two
    directions has the rate of both and the iterations of one."""
    seconds_expected = duration - 2 * (duration // 4)
    for row in result["rows"]:
        rate = row["message_rate"] * 1e6 if result["test"]["kind"] == "bw" else row.get("tps_average")
        if rate is None:
            raise _Bad("bad_output", "this is no run by duration")
        half_digit = 0.5 if result["test"]["kind"] == "bw" else 0.005  # half a digit of a rate
        if result["test"]["bidirectional"] or rate <= 2 * half_digit:
            continue
        if not _lasts(row["iterations"] / (rate + half_digit), row["iterations"] / (rate - half_digit), seconds_expected):
            seconds = row["iterations"] / rate
            raise _Bad("bad_output", f"{row['iterations']} iterations at that rate last {seconds:.4g} s, expected {seconds_expected} s")
