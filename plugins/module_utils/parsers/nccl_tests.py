# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for nccl-tests and rccl-tests of every version from 1.0 on: rows, ranks, and whether to believe them (nccl_checks.py).

The text has no grammar: columns come and go with version and options, NCCL's own log and launchers' prefixes mix in, and a
failed test can end with status 0. So the layout is read from the header line of the table.

Pure functions; nothing here raises for bad text. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import math
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.launched import plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.nccl_checks import BadTable, Header, Layout, Output, Row, judge

Parsed = t.Dict[str, t.Any]

# No real output is larger: a sweep has some dozens of rows of 130 characters.
LIMIT = 32 << 20

# rccl-tests of September 2021 to early 2024 (ROCm 4.5 to 6.0) print `nThreads: 1 nGpus: 8 nRanks: 1 minBytes: 8`.
_LANDMARK = re.compile(r"#? ?nThreads?:? \d")
# NCCL puts the time before its warnings since 2.26.
_STAMP = r"(?:\[\d{4}-\d\d-\d\d[^\]\n]{1,40}\] )?"
_DEBUG = re.compile(
    rf"(?m)(?:^|(?<=\s)|(?=\[\d{{4}}-)){_STAMP}\S{{1,255}}?:\d{{1,10}}:\d{{1,10}} (?:\[\S{{1,8}}\] )?\S{{0,160}}? ?"
    r"NCCL (?:INFO|WARN|TRACE|ABORT|VERSION|CALL)[^\n]*\n?"
)
_VERSION_LINE = re.compile(r"NCCL version (\d+\.\d+\.\d+)[^\n]{0,200}\n?")
_HEADER = re.compile(
    r"nThreads?:? (\d{1,6}) nGpus:? (\d{1,6})(?: nRanks: (\d{1,6}))? minBytes:? (\d{1,20}) maxBytes:? (\d{1,20}) "
    r"step: (\d{1,20})\((factor|bytes)\)(?:[^\n]{0,300}? validation:? (\d{1,9}))?"
)
_RANK = re.compile(
    r"#\s{1,8}Rank\s{1,8}(\d{1,7})(?:\s{1,8}Group\s{1,8}(\d{1,7}))?(?:\s{1,8}Pid\s{1,12}(\d{1,10}))? on\s{1,64}(\S{1,255})\s"
    r"{1,4}device\s{1,8}(\d{1,5}) \[([0-9A-Za-z:.]{1,32})\] ?([^\n]*)"
)
_BOUNDS = re.compile(r"Out of bounds values\s{0,20}: (\d{1,20}) (OK|FAILED)")
_AVERAGE = re.compile(r"Avg bus bandwidth\s{0,20}: ([^\s]{1,40})\s?(OK|FAILED)?")
_TOOL = re.compile(r"(?:nccl-tests version|rccl-tests version|rccl-tests: Version) (\S{1,80})")
_LIBRARY = re.compile(r"[nr]ccl-library=(\d{1,7})")
_COMPILED = re.compile(r"(?:compiled with NCCL|RCCL version ?:?) (\d[\d.]{1,12})")
_STARTING = re.compile(r"Collective test (starting|concluded): (\w{1,60})")
_REDUCING = re.compile(r"Reducing maxBytes to (\d{1,20})")
# The last warning of the library, which nccl-tests prints after a whole and successful test too.
_WARNED = re.compile(r"# error: ([^\n]{1,300})")
_HALF = {"time", "cputime", "algbw", "busbw", "error", "#wrong", "res", "delta", "i_min", "i_max", "i_p99", "i_cv%", "hipevt"}


def parse(text: t.Any, rc: int = 0, expect_ranks: int | None = None, expect_max_bytes: int | None = None) -> Parsed:
    """Read what one nccl-tests program printed (text, or the JSON of its -J file) and its exit status `rc`.

    `expect_ranks` and `expect_max_bytes` are what the caller asked for; another number is an error. Times are in us,
    bandwidths in GB/s (1e9 bytes/s), sizes in bytes. Never raises.
    """
    output, code, reason = Output(), None, None
    try:
        if isinstance(rc, bool) or not isinstance(rc, int):
            raise BadTable("bad_output", f"exit status {rc!r} is not a number")
        if not isinstance(text, str):
            raise BadTable("bad_output", f"expected the text that nccl-tests printed, found {type(text).__name__}")
        if len(text) > LIMIT:
            size = f"{len(text) >> 20} MiB, more than the {LIMIT >> 20} that are read"
            raise BadTable("bad_output", f"it has {size}: switch off debug output (NCCL_DEBUG)")
        if text.lstrip()[:1] == "{":
            _read_json(text, output)
        else:
            _read_text(text, output)
        judge(output, rc, expect_ranks, expect_max_bytes)
    except BadTable as bad:
        code, reason = bad.reason_code, bad.reason
        if output.warned:
            reason += f"; the last that NCCL said: {output.warned}"
    except (RecursionError, OverflowError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        code, reason = "bad_output", f"not readable: {type(error).__name__}: {error}"[:300]
    return {
        "outcome": "error" if code else "measured", "reason": reason, "reason_code": code, "op": output.op, "complete": output.complete,
        "warnings": output.warnings, "nccl_version": output.nccl_version, "tool_version": output.tool_version, "ranks": output.ranks,
        "world_size": output.world_size, "rows": output.rows, "peak_busbw": output.peak_busbw, "avg_busbw": output.avg_busbw,
        "out_of_bounds": output.out_of_bounds,
    }  # fmt: skip


# Text --------------------------------------------------------------------------------------------------------------


def _read_text(text: str, output: Output) -> None:
    output.text = _clean(text)
    unknown = None
    try:
        _table(output)
    except BadTable as bad:
        unknown = bad
    text = output.text  # without the rows
    headers = _HEADER.findall(text)
    output.headers = [
        Header(int(threads), int(gpus) * int(ranks or 1), int(smallest), int(largest), int(step), unit)
        for threads, gpus, ranks, smallest, largest, step, unit, _checks in headers
    ]
    output.validation = [int(checks) for *_rest, checks in headers if checks]
    tool = _TOOL.search(text)
    output.tool_version = tool.group(1) if tool else None
    output.nccl_version = _nccl_version(text)
    output.names = {name for _when, name in _STARTING.findall(text)}
    output.op = _op(next(iter(output.names))) if len(output.names) == 1 else None
    ranks = _RANK.findall(text)
    output.grouped = bool(ranks) and all(rank[1] for rank in ranks)  # since 2.13.4
    output.ranks = [
        {
            "rank": int(rank), "group": int(group or 0), "pid": int(pid) if pid else None, "host": host,
            "device": int(device), "bdf": bdf.lower(), "name": name.strip(),
        }
        for rank, group, pid, host, device, bdf, name in ranks
    ]  # fmt: skip
    reduced = [int(n) for n in _REDUCING.findall(text)]
    output.reduced = min(reduced) if reduced else None
    _footer(text, output)
    warned = _WARNED.findall(text)
    output.warned = warned[-1].strip() if warned else None
    if unknown:
        raise unknown


def _clean(text: str) -> str:
    """Return the text without control characters, launchers' prefixes and NCCL's own log, which may be in the middle of a row."""
    text = plain(text, _LANDMARK)
    if "NCCL" in text:
        hosts = sorted({m[3] for m in _RANK.findall(text)}, key=len, reverse=True)
        if hosts:  # known names separate a log line even from a cell that it touches
            host_names = "|".join(re.escape(h) for h in hosts[:2000])
            text = re.sub(rf"{_STAMP}(?:{host_names}):\d{{1,10}}:\d{{1,10}} (?:\[\S{{1,8}}\] )?[^\n]{{0,160}}?NCCL [^\n]*\n?", "", text)
        text = _DEBUG.sub("", text)
        versions = _VERSION_LINE.findall(text)
        if versions:
            text = _VERSION_LINE.sub("", text) + f"\n# ncclversion {versions[0]}\n"
    return text


def _nccl_version(text: str) -> str | None:
    match = _LIBRARY.search(text)
    if match:
        return _version_of(int(match.group(1)))
    match = re.search(r"# ncclversion (\S{1,20})", text) or _COMPILED.search(text)
    return match.group(1) if match else None


def _version_of(code: int) -> str:
    """22809 -> 2.28.9; up to 2.8 the code had one digit less for each part: 2708 -> 2.7.8."""
    if code >= 10000:
        return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    return f"{code // 1000}.{code // 100 % 10}.{code % 100}"


def _op(name: str) -> str:
    """`all_reduce_perf_mpi` -> `all_reduce`."""
    return name.split("_perf", maxsplit=1)[0]


def _footer(text: str, output: Output) -> None:
    bounds, averages = _BOUNDS.findall(text), _AVERAGE.findall(text)
    output.footers = [len(bounds), len(averages)]
    if bounds:
        count = sum(int(n) for n, _ok in bounds)
        output.out_of_bounds = {"count": count, "ok": all(ok == "OK" for _n, ok in bounds) and count == 0}
    if averages:
        value = _number(averages[-1][0])
        output.avg_busbw = {"value": value, "unit": "GB/s"} if value is not None else None
        output.min_bw_missed = any(ok == "FAILED" for _v, ok in averages)


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(count: float) -> int:
    """A number of wrong values, which large ones print as 1e+06; ValueError for what cannot be one."""
    if count < 0 or count != int(count):
        raise ValueError(f"{count} is no number of wrong values")
    return int(count)


def _layout(line: str) -> Layout | None:
    """Columns of the table from its header line."""
    words = line.strip().lstrip("#").split()
    if "algbw" not in words or words[:1] not in (["size"], ["bytes"]):
        return None
    starts = [i for i, word in enumerate(words) if word in ("time", "cputime")]
    if not starts or len(starts) > 2 or starts[0] < 3:
        return None
    halves = []
    for at, start in enumerate(starts):
        end = starts[at + 1] if at + 1 < len(starts) else len(words)
        names = words[start:end]
        while names and names[-1] not in _HALF:
            names = names[:-1]
        if "algbw" not in names or "busbw" not in names or any(n not in _HALF for n in names):
            return None
        halves.append(names)
    return Layout(
        prefix=words[: starts[0]],
        halves=halves,
        trailing=len(words) - starts[-1] - len(halves[-1]),
        milliseconds=words[0] == "bytes",
        delta=any(n in ("error", "res", "delta") for n in halves[0]),
        cputime="cputime" in words,
    )


def _table(output: Output) -> None:
    """Read the rows of a text and take them out of it."""
    layout = None
    rows: list[Row] = []
    row_of: t.Callable[[list[str]], Row] | None = None
    caption = ""
    other_lines: list[str] = []
    bad_rows: list[BadTable] = []
    torn: list[str] = []  # cells of the last bad row; a warning of NCCL, which begins with a new line, may have torn it
    closed: int | None = None  # rows that stand before the last lines
    for line in output.text.split("\n"):
        if row_of and (words := line.split()) and (torn or words[0].isdigit()):
            try:
                rows.append(row_of(words))
                if torn:
                    torn = []
                continue
            except BadTable as bad:
                if words[0].isdigit() and len(words) > 1 and words[1].isdigit():  # else a line of others, or the end of a row
                    bad_rows.append(bad)
                    torn = words
                elif torn:
                    torn = torn + words
                    try:
                        rows.append(row_of(torn))
                        bad_rows.pop()
                        torn = []
                        continue
                    except BadTable:
                        pass
        other_lines.append(line)
        if closed is None and (_BOUNDS.search(line) or _AVERAGE.search(line)):
            closed = len(rows)
        head = line[:48].lstrip()
        if head[:1] == "#" or not head:
            if "algbw" in line:
                layout = _layout(line)
                if layout is None:
                    raise BadTable("bad_output", f"the table's header is not known: {line.strip()[:150]}")
                if len(layout.halves) == 1 and "in-place" in caption and "out-of-place" not in caption:
                    layout.one_is = "in_place"
                row_of = _reader(layout)
            elif "place" in line:
                caption = line
            continue
        if head.startswith("size ") or head.startswith("bytes "):
            layout = _layout(line)
            row_of = _reader(layout) if layout else None
    output.rows, output.layout = rows, layout or Layout()
    output.bad_row = bad_rows[0] if bad_rows else None
    output.early = closed is not None and closed < len(rows)
    output.text = "\n".join(other_lines)  # no message of a tool stands in a row that could be read


def _reader(layout: Layout) -> t.Callable[[list[str]], Row]:
    """Return a function from a row's words to the row; made once per table."""
    prefix, halves = layout.prefix, layout.halves
    width = sum(len(h) for h in halves)
    middle = prefix[3:]
    trailing = layout.trailing
    scale = 1000.0 if layout.milliseconds else 1.0
    wrong_counts = not layout.delta
    row_width = len(prefix) + width
    columns = []
    at = len(prefix)
    for names in halves:
        place = {name: at + i for i, name in enumerate(names)}
        extra = {n: i for n, i in place.items() if n not in ("time", "cputime", "algbw", "busbw", "#wrong", "error", "res", "delta")}
        time_at = place.get("time", place.get("cputime", 0))
        wrong_at = place.get("#wrong", place.get("error", place.get("res", place.get("delta"))))
        columns.append((time_at, place["algbw"], place["busbw"], wrong_at, extra))
        at += len(names)
    names_of_halves = ["out_of_place", "in_place"] if len(halves) == 2 else [layout.one_is]

    def half(words: list[str], column: tuple[int, int, int, int | None, dict[str, int]]) -> Row:
        time_at, alg_at, bus_at, wrong_at, extra = column
        values: Row = {
            "time_us": float(words[time_at]) * scale,
            "algbw": float(words[alg_at]),
            "busbw": float(words[bus_at]),
            "wrong": None,
        }
        if wrong_at is not None:
            word = words[wrong_at]
            if word != "N/A":
                value = float(word)
                if wrong_counts:
                    values["wrong"] = _whole(value)
                else:
                    values["delta"] = value
        for name, index in extra.items():
            values[name] = float(words[index]) if words[index] != "N/A" else None
        return values

    def read(words: list[str]) -> Row:
        has_redop = not ("redop" in middle and len(words) > 3 and _number(words[3]) is not None)
        if not has_redop:  # hypercube, and alltoall up to 2.13.0, print no operation
            words = [*words[:3], "", *words[3:]]
        # After the halves come date and time under one heading (-S), or what rccl-tests chose (-A), or neither in spite of it.
        if not row_width <= len(words) <= row_width + (trailing + 1 if trailing else 0):
            cells = f"a row has {len(words)} cells, its header {row_width + trailing}"
            raise BadTable("incomplete_output", f"{cells}: {' '.join(words)[:150]}")
        try:
            row: Row = {"size": int(words[0]), "count": int(words[1]), "type": words[2], "redop": None, "root": None}
            for offset, name in enumerate(middle):
                word = words[3 + offset]
                if name == "root":
                    row["root"] = int(word)
                else:
                    row["redop"] = word
            row["out_of_place"] = row["in_place"] = None
            for name, column in zip(names_of_halves, columns):
                row[name] = half(words, column)
        except (ValueError, OverflowError):
            raise BadTable("bad_output", f"a row holds a cell that is no number: {' '.join(words)[:150]}") from None
        if not has_redop:
            row["redop"] = None
        return row

    return read


# JSON --------------------------------------------------------------------------------------------------------------


def _read_json(text: str, output: Output) -> None:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadTable("incomplete_output", f"the JSON is cut or broken: {error}"[:300]) from None
    if not isinstance(document, dict) or not isinstance(document.get("results"), list) or not isinstance(document.get("config"), dict):
        raise BadTable("bad_output", "the JSON is none that nccl-tests writes: no config and results")
    config = document["config"]
    factor = int(config.get("step_factor") or 0)
    step = factor or int(config.get("step_bytes") or 0)
    sizes = int(config["minimum_bytes"]), int(config["maximum_bytes"]), step, "factor" if factor else "bytes"
    output.headers = [Header(int(config["nthreads"]), int(config["ngpus"]), *sizes)]
    code = document.get("nccl_version", document.get("rccl_version"))
    output.nccl_version = _version_of(code) if isinstance(code, int) else None
    args = document.get("args") or []
    name = str(args[0]).rsplit("/", 1)[-1] if args else ""
    output.op = _op(name) if "_perf" in name else None
    output.names = {name} if name else set()
    output.ranks_partial = True
    for device in config.get("devices") or []:
        output.ranks.append(
            {
                "rank": int(device["rank"]), "group": int(device.get("group") or 0), "pid": int(device["pid"]),
                "host": str(device["hostname"]), "device": int(device["device"]),
                "bdf": str(device.get("device_hex", "")).strip("[]").lower(), "name": str(device.get("device_info", "")).strip(),
            }
        )  # fmt: skip
    output.rows = [_json_row(row) for row in document["results"]]
    halves = {(row["out_of_place"] is None, row["in_place"] is None) for row in output.rows}
    if len(halves) > 1 or (True, True) in halves:
        raise BadTable("incomplete_output", "results of the JSON lack out_of_place or in_place")
    bounds = document.get("out_of_bounds") or {}
    if "count" in bounds:
        okay = str(bounds.get("okay")).lower()
        count = int(bounds["count"])
        output.out_of_bounds = {"count": count, "ok": count == 0 and okay in ("true", "unchecked")}
    average = document.get("average_bus_bandwidth") or document.get("average_bus_bandwidith") or {}
    value = average.get("bandwidth", average.get("bandwidith"))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        output.avg_busbw = {"value": float(value), "unit": "GB/s"}
    output.min_bw_missed = str(average.get("okay")).lower() == "false"
    output.footers = [int(bool(output.out_of_bounds) and output.avg_busbw is not None and "end_time" in document)]
    output.warned = "; ".join(str(e) for e in document.get("errors") or [] if e)[:300]
    output.validation = [int(config["validation"])] if "validation" in config else []
    output.layout = Layout(exact=True, cputime='"cpu_time"' in text)


def _json_row(row: dict[str, t.Any]) -> Row:
    def half(name: str) -> Row | None:
        values = row.get(name)
        if not isinstance(values, dict):
            return None
        wrong = values.get("nwrong")
        return {
            "time_us": float(values.get("time", values.get("cpu_time"))),  # type: ignore[arg-type]
            "algbw": float(values["alg_bw"]),
            "busbw": float(values["bus_bw"]),
            "wrong": _whole(float(wrong)) if wrong is not None else None,
        }

    return {
        "size": int(row["size"]), "count": int(row["count"]), "type": str(row["type"]),
        "redop": str(row.get("redop") or "") or None, "root": int(str(row.get("root", "-1")).strip()),
        "out_of_place": half("out_of_place"), "in_place": half("in_place"),
    }  # fmt: skip
