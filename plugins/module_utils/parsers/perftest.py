# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What perftest (ib_{read,write,send,atomic}_{bw,lat}) printed, of every version since 4.4, on either side.

The unit is read from the table's header, always: perftest's MB/sec is 2^20 bytes (later spelt MiB/sec), Gb/sec 10^9 bits. A
peak that was not measured is printed as 0 and read as None.

Pure functions; nothing here raises for bad text. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
import typing as t

Parsed = t.Dict[str, t.Any]

LIMIT = 16 << 20
UNITS = {"Gb/sec": "Gb/s", "MB/sec": "MiB/s", "MiB/sec": "MiB/s"}
OPS = {"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send", "Atomic": "atomic"}

_TITLE = re.compile(
    r"(?m)^\s*(Send|RDMA_Write|RDMA_Read|Atomic)((?: Post List)?)((?: Bidirectional)?) (BW|Latency) Test\s*$"
)
_GID = re.compile(r"(?m)^ GID: ([0-9:]{31,63})\s*$")
_ROW = re.compile(r"^\s*\d[\d.\seE+-]*$")
# Lines that mean that the test failed, whatever the exit status says: (text, what a person can do).
_FAILURES = (
    ("Couldn't connect to", "the other side is not listening"),
    ("Couldn't listen to port", "the port is in use"),
    ("accept() failed", "the port is in use, or somebody else took the connection"),
    ("IB device", "the device is not there"),
    ("Did not detect devices", "there is no RDMA device, or its driver is not loaded"),
    ("Unable to find the Infiniband/RoCE device", "the device is not there"),
    ("state is Down", "the port is down"),
    ("Couldn't set the link layer", "the port is down"),
    ("Couldn't read remote address", "the other side died, or somebody else took the connection"),
    ("Failed to exchange data between server and clients", "the other side died"),
    ("not compatible with versions older", "the two sides run different versions of perftest"),
    ("Found Incompatibility issue with GID types", "the two sides use GIDs of different kinds"),
    ("Unable to Connect the HCA's through the link", "the link cannot be made: check GID index, route and MTU"),
    ("to RTR", "the link cannot be made: check GID index, route and MTU"),
    ("Unable to set up socket connection", "the GID index cannot be read"),
    ("Completion with error", "the link was lost"),
    ("Failed status", "the link was lost, or the sides do not run the same test"),
    ("Did not get Message for 120 Seconds", "the transfer stalled"),
    ("Unexpected CM event", "rdma_cm refused the connection"),
    ("Failed to complete", "the test broke off"),
    ("Problem in resolving basic address and port", "the name of the other side cannot be resolved"),
    ("Couldn't allocate MR", "memory cannot be registered: raise the memlock limit"),
    ("Couldn't create", "a resource of the device cannot be made"),
    ("unrecognized option", "this perftest does not know an option"),
    ("Invalid Command or flag", "this perftest does not know an option"),
    ("BW result is below bw limit", "the result is below the tool's own limit"),
    ("Terminated", "it was ended from outside"),
)


class _Bad(Exception):
    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def parse(text: t.Any, rc: int = 0) -> Parsed:
    """{"outcome", "reason_code", "reason", "tool", "test", "rows", "warnings"}; never raises.

    Rows of a bandwidth test: bytes, iterations, bw_peak and bw_average as {value, unit} (`Gb/s` or `MiB/s`), message_rate in
    Mpps. Rows of a latency test, in us: t_min, t_max, t_typical, t_avg, t_stdev and percentiles {"99": .., "99.9": ..}.
    """
    result: Parsed = {
        "outcome": "error", "reason_code": None, "reason": None, "tool": None, "test": None, "rows": [], "warnings": [],
    }  # fmt: skip
    try:
        if not isinstance(text, str) or len(text) > LIMIT:
            raise _Bad("bad_output", "perftest printed no text of a sane size")
        if isinstance(rc, bool) or not isinstance(rc, int):
            raise _Bad("bad_output", f"exit status {rc!r} is not a number")
        if text.lstrip()[:1] == "{":
            _read_json(text, result)
        else:
            _read_text(text, result)
        _judge(text, rc, result)
        result["outcome"] = "measured"
    except _Bad as bad:
        result["reason_code"], result["reason"] = bad.code, str(bad)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError, AttributeError) as error:
        result["reason_code"], result["reason"] = "bad_output", f"not readable: {type(error).__name__}: {error}"[:300]
    return result


def _read_text(text: str, result: Parsed) -> None:
    text = text.replace("\r\n", "\n")
    titles = list(_TITLE.finditer(text))
    if not titles:
        return
    if len(titles) > 1:
        raise _Bad("bad_output", f"{len(titles)} tests are mixed in one output")
    title = titles[0]
    kind = "bw" if title.group(4) == "BW" else "lat"
    op = OPS[title.group(1)]
    result["tool"] = f"ib_{op}_{kind}"
    fields = dict(re.findall(r"([A-Z][A-Za-z_*. ]{1,30}?)\s*: ([^\t\n]{1,60})", text[title.end() :]))
    fields = {k.strip(): v.strip() for k, v in fields.items()}
    gids = [_gid(g) for g in _GID.findall(text)]
    result["test"] = {
        "op": op,
        "kind": kind,
        "bidirectional": bool(title.group(3)),
        "connection": fields.get("Connection type"),
        "device": fields.get("Device"),
        "link": fields.get("Link type"),
        "mtu": _int(fields.get("Mtu")),
        "qps": _int(fields.get("Number of qps")),
        "gid_index": _int(fields.get("GID index")),
        "local_gid": gids[0] if gids else None,
        "remote_gid": gids[1] if len(gids) > 1 else None,
    }
    if "BW peak won't be measured" in text:
        result["warnings"].append("the peak was not measured")
    if "Conflicting CPU frequency" in text:
        result["warnings"].append("CPU frequencies differ: the governor is not performance")
    reader: t.Callable[[list[str]], dict[str, t.Any]] | None = None
    section = None
    for line in text[title.end() :].split("\n"):
        head = line.strip()
        if head.startswith("#bytes"):
            reader = _reader(head, kind, result["test"])
        elif head.startswith(("Local results", "Remote results")):
            section = head.split()[0].lower()
        elif head.startswith("-----"):
            continue
        elif reader and head[:1].isdigit() and _ROW.match(head):
            row = reader(head.split())
            if section:
                row["side"] = section
            result["rows"].append(row)


def _gid(decimal: str) -> str | None:
    """perftest prints the sixteen bytes of a GID in decimal."""
    try:
        return str(ipaddress.IPv6Address(bytes(int(n) for n in decimal.split(":"))))
    except ValueError:
        return None


def _int(text: str | None) -> int | None:
    found = re.match(r"\d{1,9}", text or "")
    return int(found.group(0)) if found else None


def _reader(header: str, kind: str, test: dict[str, t.Any]) -> t.Callable[[list[str]], dict[str, t.Any]]:
    """A function from a row's words to the row, by the columns of the header line."""
    if kind == "bw":
        unit = re.search(r"BW average\[([A-Za-z/]+)\]", header)
        if not unit or unit.group(1) not in UNITS:
            raise _Bad("bad_output", f"the table's header names no unit that is known: {header[:120]}")
        name = UNITS[unit.group(1)]
        names = ["bytes", "iterations", "bw_peak", "bw_average", "message_rate"]
        if "CPU_Util" in header:
            names.append("cpu_util")
        ports = 4 if "Port" in header or "port" in header else 0

        def bandwidth(words: list[str]) -> dict[str, t.Any]:
            if len(words) not in (len(names), len(names) + ports):
                raise _Bad("incomplete_output", f"a row has {len(words)} cells, its header {len(names)}: {' '.join(words)[:100]}")
            cells = dict(zip(names, words))
            peak = _number(cells["bw_peak"])
            row: dict[str, t.Any] = {
                "bytes": int(cells["bytes"]),
                "iterations": int(cells["iterations"]),
                "bw_peak": {"value": peak, "unit": name} if peak else None,
                "bw_average": {"value": _number(cells["bw_average"]), "unit": name},
                "message_rate": {"value": _number(cells["message_rate"]), "unit": "Mpps"},
            }
            if "cpu_util" in cells:
                row["cpu_util"] = _number(cells["cpu_util"])
            return row

        return bandwidth
    if "usec" not in header:
        raise _Bad("bad_output", f"the table's header names no unit that is known: {header[:120]}")
    if "tps average" in header:
        return lambda words: _latency(words, ["t_avg", "tps_average"], [])
    percentiles = re.findall(r"([\d.]+)% percentile", header)
    return lambda words: _latency(words, ["t_min", "t_max", "t_typical", "t_avg", "t_stdev"], percentiles)


def _latency(words: list[str], names: list[str], percentiles: list[str]) -> dict[str, t.Any]:
    if len(words) != 2 + len(names) + len(percentiles):
        raise _Bad("incomplete_output", f"a row has {len(words)} cells: {' '.join(words)[:100]}")
    row: dict[str, t.Any] = {"bytes": int(words[0]), "iterations": int(words[1])}
    row.update({name: _number(word) for name, word in zip(names, words[2:])})
    row["percentiles"] = {p: _number(word) for p, word in zip(percentiles, words[2 + len(names) :])}
    return row


def _number(word: t.Any) -> float:
    value = float(word)
    if not math.isfinite(value) or value < 0:
        raise _Bad("bad_output", f"{word} is no value of a measurement")
    return value


def _read_json(text: str, result: Parsed) -> None:
    """--out_json; before 24.01 its keys have no quotes and its last values a comma."""
    try:
        whole = json.loads(text)
    except ValueError:
        quoted = re.sub(r'(?m)^\s*"?([\w.]{1,40})"?\s{0,4}: ?([^\n{]{0,200}?),?\s*$', _quote, text)
        whole = json.loads(re.sub(r"(?m)^\s*(\w{1,40}): \{", r'"\1": {', re.sub(r",(\s*[}\]])", r"\1", quoted)))
    info, row = whole["test_info"], whole["results"]
    found = re.match(r"(Send|RDMA_Write|RDMA_Read|Atomic).*?(BW|Latency)_Test", str(info["test"]))
    if not found:
        raise _Bad("bad_output", f"unknown test {info['test']!r:.60}")
    op, kind = OPS[found.group(1)], "bw" if found.group(2) == "BW" else "lat"
    result["tool"] = f"ib_{op}_{kind}"
    result["test"] = {
        "op": op, "kind": kind, "bidirectional": "Bidirectional" in str(info["test"]), "connection": info.get("Connection_type"),
        "device": info.get("Device"), "link": info.get("Link_type"), "mtu": _int(str(info.get("Mtu", ""))),
        "qps": _int(str(info.get("Number_of_qps", ""))), "gid_index": _int(str(info.get("GID_index", ""))), "local_gid": None,
        "remote_gid": None,
    }  # fmt: skip
    if kind == "bw":
        raise _Bad("bad_output", "perftest's JSON names no unit for a bandwidth; read the text")
    values = {"bytes": int(row["MsgSize"]), "iterations": int(row["n_iterations"])}
    names = ("t_min", "t_max", "t_typical", "t_avg", "t_stdev", "tps_average")
    result["rows"] = [
        {
            **values,
            **{n: _number(row[n]) for n in names if n in row},
            "percentiles": {k.split("_")[1]: _number(row[k]) for k in row if k.startswith("percentile_")},
        }
    ]


def _quote(found: t.Any) -> str:
    value = found.group(2).strip()
    if not re.fullmatch(r'-?\d+(?:\.\d+)?|".*"', value):
        value = json.dumps(value)
    return f'"{found.group(1)}": {value},'


def _judge(text: str, rc: int, result: Parsed) -> None:
    said = next(((mark, advice) for mark, advice in _FAILURES if mark in text), None)
    line = next((x.strip() for x in text.splitlines() if said and said[0] in x), "")
    if rc in (124, 137, 143, -9, -15):
        raise _Bad("timeout", f"perftest was ended from outside (status {rc})" + (f": {line[:200]}" if line else ""))
    if (said and said[0] != "IB device") or (said and "not found" in text):
        raise _Bad("tool_failed", f"{said[1]}: {line[:200]}")
    if rc != 0:
        raise _Bad("tool_failed", f"perftest ended with status {rc}")
    if result["test"] is None:
        raise _Bad("bad_output", "this is no output of perftest")
    if not result["rows"]:
        raise _Bad("incomplete_output", "perftest ended without a result")
    if "#bytes" in text and not re.search(r"(?m)^-{20,}\s*$", text[text.rindex("#bytes") :]):
        raise _Bad("incomplete_output", "the line after the table is missing: the output is cut")
    qps = result["test"]["qps"]
    for row in result["rows"]:
        if qps and row["iterations"] % qps and result["test"]["kind"] == "bw":
            result["warnings"].append(f"{row['iterations']} iterations are no multiple of {qps} QPs")
        value = row["bw_average"]["value"] if result["test"]["kind"] == "bw" else row["t_avg"]
        if value <= 0:
            raise _Bad("bad_output", f"the result at {row['bytes']} bytes is 0: nothing was measured")
