# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for nccl-tests and rccl-tests of every version from 1.0 on: rows, ranks, and whether to believe them.

The text has no grammar: columns come and go with version and options, NCCL's own log and launchers' prefixes mix in, and a
failed test can end with status 0. So the layout is read from the header line of the table, and a text counts as measured
only when it is whole: every size of the header's sweep, every rank once, the last lines, and results that were checked. And it must be
of one run: bandwidths follow from sizes, times and the number of ranks (doc/PERFORMANCE.md of nccl-tests has the factors), and
the average of the last lines from the rows, each as far as the printed digits tell.

Pure functions; nothing here raises for bad text. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
import json
import math
import operator
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.launched import plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.reasons import ReasonedError

Row = t.Dict[str, t.Any]
Parsed = t.Dict[str, t.Any]

# No real output is larger: a sweep has some dozens of rows of 130 characters.
LIMIT = 32 << 20
SIZES_LIMIT = 1 << 20

WIDTHS = {
    "int8": 1, "uint8": 1, "char": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "half": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "int": 4, "float": 4, "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip

# busbw / algbw with n ranks (the GetBw function of each test).
FACTORS: dict[str, t.Callable[[int], float]] = {
    "all_reduce": lambda n: 2.0 * (n - 1) / n,
    "all_reduce_bias": lambda n: 2.0 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "alltoallv": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "sendrecv": lambda n: 1.0,
    "hypercube": lambda n: 1.0,
}
# A rank's part is rounded down, so a row's size may be a little under the one that was asked for.
ROUNDED = ("all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter", "hypercube")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
REDUCING = ("all_reduce", "all_reduce_bias", "reduce", "reduce_scatter")
# In place these do not work and are not checked. (Alone of all that do not reduce, sendrecv prints an operation.)
UNCHECKED_IN_PLACE = ("alltoall", "alltoallv", "sendrecv")
# Two cycles (-N) that agree in all times by a chance of 1 in 10**TELLING, if times vary by 1 %, are one that was copied.
TELLING = 6

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
_FAILURES = (
    re.compile(r"Test (?:NCCL|CUDA|HIP|MPI) failure [^\n]{0,300}"),
    re.compile(r"Test timeout [^\n]{0,200}"),
    re.compile(r"Invalid number of GPUs:[^\n]{0,200}"),
    re.compile(r"The number of requested GPUs [^\n]{0,200}"),
    re.compile(r"invalid size[^\n]{0,200}"),
    re.compile(r"(?m)^[^\n]{0,100}(?:mpirun|prterun|orterun)[^\n]{0,100}(?:detected|was unable|noticed|could not)[^\n]{0,200}"),
    re.compile(r"There are not enough slots available[^\n]{0,200}|All nodes which are allocated for this job are already filled"),
    re.compile(r"(?m)^[^\n]{0,200}error while loading shared libraries[^\n]{0,200}"),
    re.compile(r"Segmentation fault[^\n]{0,100}"),
)
# The last warning of the library, which nccl-tests prints after a whole and successful test too.
_WARNED = re.compile(r"# error: ([^\n]{1,300})")
# Why a launcher did not start it. A launcher that tries again leaves such lines in the log of a whole test.
_LAUNCHES = (
    re.compile(r"(?m)^ssh: [^\n]{0,200}|^[^\n]{0,100}: Permission denied \([^\n]{0,100}|^Host key verification failed[^\n]{0,100}"),
    re.compile(r"(?:ORTE|PRTE) (?:was unable|has lost)[^\n]{0,200}"),
    # Container engines: docker, podman, apptainer, enroot; and ourselves where the engine is not there.
    re.compile(r"(?m)^(?:docker|acceptance_exec): [^\n]{1,300}|^(?:Error|FATAL|\[ERROR\]):? [^\n]{1,300}"),
    re.compile(r"(?m)^[^\n]{0,80}(?:Cannot connect to the Docker daemon|permission denied while trying to connect to the)[^\n]{1,200}"),
)
_HALF = {"time", "cputime", "algbw", "busbw", "error", "#wrong", "res", "delta", "i_min", "i_max", "i_p99", "i_cv%", "hipevt"}
_STANDARD_PREFIX = ["size", "count", "type", "redop", "root"]
_STANDARD_HALF = ["time", "algbw", "busbw", "#wrong"]


class _Columns(t.NamedTuple):
    """A table of the layout of nearly every one, by column: a fleet prints many rows, and what is whole is soonest judged as a whole."""

    size: list[int]
    counts: list[int]
    type: list[str]
    redop: list[str]
    root: list[int]
    time: list[float]
    algbw: list[float]
    busbw: list[float]
    wrong: list[int]
    time_in_place: list[float]
    algbw_in_place: list[float]
    busbw_in_place: list[float]
    wrong_in_place: list[int]


class _BadTable(ReasonedError):
    """The text is not a whole and consistent output of the tool."""


def parse(text: t.Any, rc: int = 0, expect_ranks: int | None = None, expect_max_bytes: int | None = None) -> Parsed:
    """Read what one nccl-tests program printed (text, or the JSON of its -J file) and its exit status `rc`.

    `expect_ranks` and `expect_max_bytes` are what the caller asked for; another number is an error. Times are in us,
    bandwidths in GB/s (1e9 bytes/s), sizes in bytes. Never raises.
    """
    result: Parsed = {
        "outcome": "error", "reason": None, "reason_code": None, "op": None, "complete": False, "warnings": [],
        "nccl_version": None, "tool_version": None, "ranks": [], "world_size": None, "rows": [], "peak_busbw": None,
        "avg_busbw": None, "out_of_bounds": None,
    }  # fmt: skip
    try:
        if isinstance(rc, bool) or not isinstance(rc, int):
            raise _BadTable("bad_output", f"exit status {rc!r} is not a number")
        if not isinstance(text, str):
            raise _BadTable("bad_output", f"expected the text that nccl-tests printed, found {type(text).__name__}")
        if len(text) > LIMIT:
            size = f"{len(text) >> 20} MiB, more than the {LIMIT >> 20} that are read"
            raise _BadTable("bad_output", f"it has {size}: switch off debug output (NCCL_DEBUG)")
        if text.lstrip()[:1] == "{":
            _read_json(text, result)
        else:
            _read_text(text, result)
        _judge(result, rc, expect_ranks, expect_max_bytes)
        result["outcome"] = "measured"
    except _BadTable as bad:
        result["reason_code"], result["reason"] = bad.reason_code, bad.reason
        if result.get("_warned"):
            result["reason"] += f"; the last that NCCL said: {result['_warned']}"
    except (RecursionError, OverflowError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        result["reason_code"], result["reason"] = "bad_output", f"not readable: {type(error).__name__}: {error}"[:300]
    for name in [n for n in result if n.startswith("_")]:
        del result[name]
    return result


# Text --------------------------------------------------------------------------------------------------------------


def _read_text(text: str, result: Parsed) -> None:
    text = result["_text"] = _clean(text)
    unknown = None
    try:
        _table(text, result)
    except _BadTable as bad:
        unknown = bad
    text = result["_text"]  # without the rows
    headers = _HEADER.findall(text)
    result["_headers"] = [
        (int(threads), int(gpus) * int(ranks or 1), int(smallest), int(largest), int(step), unit)
        for threads, gpus, ranks, smallest, largest, step, unit, _checks in headers
    ]
    result["_validation"] = [int(checks) for *_rest, checks in headers if checks]
    tool = _TOOL.search(text)
    result["tool_version"] = tool.group(1) if tool else None
    result["nccl_version"] = result.pop("_nccl", None) or _nccl_version(text)
    started = {name for _when, name in _STARTING.findall(text)}
    result["_ops"] = started
    result["op"] = _op(next(iter(started))) if len(started) == 1 else None
    ranks = _RANK.findall(text)
    result["_grouped"] = bool(ranks) and all(rank[1] for rank in ranks)  # since 2.13.4
    result["ranks"] = [
        {
            "rank": int(rank), "group": int(group or 0), "pid": int(pid) if pid else None, "host": host,
            "device": int(device), "bdf": bdf.lower(), "name": name.strip(),
        }
        for rank, group, pid, host, device, bdf, name in ranks
    ]  # fmt: skip
    reduced = [int(n) for n in _REDUCING.findall(text)]
    result["_reduced"] = min(reduced) if reduced else None
    _footer(text, result)
    warned = _WARNED.findall(text)
    result["_warned"] = warned[-1].strip() if warned else None
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


def _footer(text: str, result: Parsed) -> None:
    bounds, averages = _BOUNDS.findall(text), _AVERAGE.findall(text)
    result["_footers"] = [len(bounds), len(averages)]
    if bounds:
        count = sum(int(n) for n, _ok in bounds)
        result["out_of_bounds"] = {"count": count, "ok": all(ok == "OK" for _n, ok in bounds) and count == 0}
    if averages:
        value = _number(averages[-1][0])
        result["avg_busbw"] = {"value": value, "unit": "GB/s"} if value is not None else None
        result["_min_bw_missed"] = any(ok == "FAILED" for _v, ok in averages)


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


def _layout(line: str) -> dict[str, t.Any] | None:
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
    return {
        "prefix": words[: starts[0]],
        "halves": halves,
        "trailing": len(words) - starts[-1] - len(halves[-1]),
        "one_is": "out_of_place",
        "standard": words == _STANDARD_PREFIX + 2 * _STANDARD_HALF,
        "milliseconds": words[0] == "bytes",
        "delta": any(n in ("error", "res", "delta") for n in halves[0]),
        "cputime": "cputime" in words,
    }


def _table(text: str, result: Parsed) -> None:
    layout = None
    rows: list[Row] = []
    row_of: t.Callable[[list[str]], Row] | None = None
    cells: list[t.Any] = []
    caption = ""
    other_lines: list[str] = []
    bad_rows: list[_BadTable] = []
    torn: list[str] = []  # cells of the last bad row; a warning of NCCL, which begins with a new line, may have torn it
    closed: int | None = None  # rows that stand before the last lines
    lines = iter(text.split("\n"))
    while True:
        line = _standard(lines, rows, cells) if layout and layout["standard"] and not torn else next(lines, None)
        if line is None:
            break
        if row_of and (words := line.split()) and (torn or words[0].isdigit()):
            try:
                rows.append(row_of(words))
                if torn:
                    torn = []
                continue
            except _BadTable as bad:
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
                    except _BadTable:
                        pass
        other_lines.append(line)
        if closed is None and (_BOUNDS.search(line) or _AVERAGE.search(line)):
            closed = len(rows)
        head = line[:48].lstrip()
        if head[:1] == "#" or not head:
            if "algbw" in line:
                layout = _layout(line)
                if layout is None:
                    raise _BadTable("bad_output", f"the table's header is not known: {line.strip()[:150]}")
                if len(layout["halves"]) == 1 and "in-place" in caption and "out-of-place" not in caption:
                    layout["one_is"] = "in_place"
                row_of = _reader(layout)
            elif "place" in line:
                caption = line
            continue
        if head.startswith("size ") or head.startswith("bytes "):
            layout = _layout(line)
            row_of = _reader(layout) if layout else None
    result["rows"] = rows
    result["_bad_row"] = bad_rows[0] if bad_rows else None
    result["_early"] = closed is not None and closed < len(rows)
    result["_layout"] = layout
    width = len(_Columns._fields)
    result["_columns"] = _Columns(*(cells[n::width] for n in range(width))) if rows and len(cells) == width * len(rows) else None
    result["_text"] = "\n".join(other_lines)  # no message of a tool stands in a row that could be read


def _reader(layout: dict[str, t.Any]) -> t.Callable[[list[str]], Row]:
    """A function from a row's words to the row; made once per table."""
    prefix, halves = layout["prefix"], layout["halves"]
    width = sum(len(h) for h in halves)
    middle = prefix[3:]
    trailing = layout["trailing"]
    scale = 1000.0 if layout["milliseconds"] else 1.0
    wrong_counts = not layout["delta"]
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
    names_of_halves = ["out_of_place", "in_place"] if len(halves) == 2 else [layout["one_is"]]

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
            raise _BadTable("incomplete_output", f"{cells}: {' '.join(words)[:150]}")
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
            raise _BadTable("bad_output", f"a row holds a cell that is no number: {' '.join(words)[:150]}") from None
        if not has_redop:
            row["redop"] = None
        return row

    def read_standard(words: list[str]) -> Row:
        single: list[Row] = []
        _standard(iter([" ".join(words)]), single, [])
        return single[0] if single else read(words)

    return read_standard if layout["standard"] else read


def _standard(lines: t.Iterator[str], rows: list[Row], cells: list[t.Any]) -> str | None:
    """Reads rows of the layout of nearly every table, without loops, up to the first line that is odd, which it returns.

    `cells` takes those of _Columns.
    """
    line = None
    try:
        for line in lines:
            size, count, kind, redop, root, time, alg, bus, wrong, time_in, alg_in, bus_in, wrong_in = line.split()
            if not size.isdigit():
                return line
            row = a, b, _kind, _redop, c, d, e, f, g, h, i, j, k = (
                int(size), int(count), kind, redop, -1 if root == "-1" else int(root),
                float(time), float(alg), float(bus), 0 if wrong == "0" else int(wrong),
                float(time_in), float(alg_in), float(bus_in), 0 if wrong_in == "0" else int(wrong_in),
            )  # fmt: skip
            cells.extend(row)
            rows.append(
                {
                    "size": a, "count": b, "type": kind, "redop": redop, "root": c,
                    "out_of_place": {"time_us": d, "algbw": e, "busbw": f, "wrong": g},
                    "in_place": {"time_us": h, "algbw": i, "busbw": j, "wrong": k},
                }
            )  # fmt: skip
    except ValueError:
        return line
    return None


# JSON --------------------------------------------------------------------------------------------------------------


def _read_json(text: str, result: Parsed) -> None:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise _BadTable("incomplete_output", f"the JSON is cut or broken: {error}"[:300]) from None
    if not isinstance(document, dict) or not isinstance(document.get("results"), list) or not isinstance(document.get("config"), dict):
        raise _BadTable("bad_output", "the JSON is none that nccl-tests writes: no config and results")
    config = document["config"]
    factor = int(config.get("step_factor") or 0)
    step = factor or int(config.get("step_bytes") or 0)
    result["_headers"] = [
        (
            int(config["nthreads"]), int(config["ngpus"]), int(config["minimum_bytes"]), int(config["maximum_bytes"]),
            step, "factor" if factor else "bytes",
        )
    ]  # fmt: skip
    code = document.get("nccl_version", document.get("rccl_version"))
    result["nccl_version"] = _version_of(code) if isinstance(code, int) else None
    args = document.get("args") or []
    name = str(args[0]).rsplit("/", 1)[-1] if args else ""
    result["op"] = _op(name) if "_perf" in name else None
    result["_ops"] = {name} if name else set()
    # The file has only the first GPU of each process: the list cannot be complete.
    result["_ranks_partial"] = True
    for device in config.get("devices") or []:
        result["ranks"].append(
            {
                "rank": int(device["rank"]), "group": int(device.get("group") or 0), "pid": int(device["pid"]),
                "host": str(device["hostname"]), "device": int(device["device"]),
                "bdf": str(device.get("device_hex", "")).strip("[]").lower(), "name": str(device.get("device_info", "")).strip(),
            }
        )  # fmt: skip
    result["rows"] = [_json_row(row) for row in document["results"]]
    halves = {(row["out_of_place"] is None, row["in_place"] is None) for row in result["rows"]}
    if len(halves) > 1 or (True, True) in halves:
        raise _BadTable("incomplete_output", "results of the JSON lack out_of_place or in_place")
    bounds = document.get("out_of_bounds") or {}
    if "count" in bounds:
        okay = str(bounds.get("okay")).lower()
        count = int(bounds["count"])
        result["out_of_bounds"] = {"count": count, "ok": count == 0 and okay in ("true", "unchecked")}
    average = document.get("average_bus_bandwidth") or document.get("average_bus_bandwidith") or {}
    value = average.get("bandwidth", average.get("bandwidith"))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        result["avg_busbw"] = {"value": float(value), "unit": "GB/s"}
    result["_min_bw_missed"] = str(average.get("okay")).lower() == "false"
    result["_footers"] = [int(bool(result["out_of_bounds"]) and result["avg_busbw"] is not None and "end_time" in document)]
    result["_warned"] = "; ".join(str(e) for e in document.get("errors") or [] if e)[:300]
    result["_validation"] = [int(config["validation"])] if "validation" in config else []
    result["_layout"] = {"delta": False, "exact": True, "cputime": '"cpu_time"' in text}
    result["_text"] = ""


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


# Whether to believe it ---------------------------------------------------------------------------------------------


def _judge(result: Parsed, rc: int, expect_ranks: int | None, expect_max_bytes: int | None) -> None:
    """Raises _BadTable for anything that is not a whole and consistent measurement."""
    text = result["_text"]
    rows, headers = result["rows"], result["_headers"]
    wrong = _wrong_results(result)
    if wrong:
        raise _BadTable("wrong_results", wrong)
    if result.get("_min_bw_missed"):
        raise _BadTable("min_bw", "the average bus bandwidth is below 0.9 of NCCL_TESTS_MIN_BW")
    patterns = _FAILURES if rows and rc == 0 else _FAILURES + _LAUNCHES
    failure = next((m.group(0).strip() for p in patterns if (m := p.search(text))), None)
    if rc != 0:
        if rc in (124, 137, -9, -15, 143):
            raise _BadTable("timeout", f"nccl-tests was ended from outside (status {rc})" + (f": {failure}" if failure else ""))
        raise _BadTable("tool_failed", f"nccl-tests ended with status {rc}" + (f": {failure}" if failure else ""))
    if "USAGE:" in text and not rows:
        raise _BadTable("usage", "nccl-tests printed its usage text: it refused an option")
    if not headers and not rows:
        if failure:
            raise _BadTable("tool_failed", failure)
        raise _BadTable("bad_output", "this is no output of nccl-tests")
    if failure:
        raise _BadTable("tool_failed", failure)
    if result.get("_bad_row"):  # what cut it stands in the same line or after it, and says more
        raise result["_bad_row"]
    replaced = re.search(r"invalid (?:type|op) [^\n]{1,80}, defaulting to \S{1,40}", text)
    if replaced:
        raise _BadTable("usage", f"another test ran than was asked for: {replaced.group(0)}")
    if "is not a power of 2, skipping" in text:
        raise _BadTable("tool_failed", "hypercube needs a number of ranks that is a power of two")
    if not headers:
        raise _BadTable("incomplete_output", "the header line with the message sizes is missing")
    zeros = sum(1 for r in result["ranks"] if r["rank"] == 0)
    if len(headers) > 1 or (zeros > 1 and zeros * headers[0][0] * headers[0][1] == len(result["ranks"])):
        raise _BadTable("not_mpi", f"{max(len(headers), zeros)} tests ran alone and printed a table each: the binary is built without MPI")
    if len(result["_ops"]) > 1:
        raise _BadTable("bad_output", f"outputs of several tests are mixed: {', '.join(sorted(result['_ops']))}")
    if not rows:
        raise _BadTable("incomplete_output", "the table has no rows")
    if 0 in result["_footers"]:
        raise _BadTable("incomplete_output", "the lines after the table (out of bounds, average) are missing: the output is cut")
    if max(result["_footers"]) > 1 or result.get("_early"):
        raise _BadTable("bad_output", "the lines after the table (out of bounds, average) stand twice or before its end: outputs are mixed")
    ranks = _ranks(result, headers[0], expect_ranks)
    result["world_size"] = sum(ranks.values())
    _sweep(result, headers[0], ranks, expect_max_bytes)
    _bandwidths(result, ranks)
    _checked(result)
    result["complete"] = True
    if result["_warned"]:
        result["warnings"].append(f"the last that NCCL said: {result['_warned']}")
    result["peak_busbw"] = _peak(result)


def _wrong_results(result: Parsed) -> str | None:
    """Return a text about the first wrong values, None if there are none. Count the rows with N/A in each half."""
    unknown = {"out_of_place": 0, "in_place": 0}
    of_old = bool(result["_layout"] and result["_layout"]["delta"])
    columns = result.get("_columns")
    for row in result["rows"] if not columns or any(columns.wrong) or any(columns.wrong_in_place) else ():
        out, within = row["out_of_place"], row["in_place"]
        wrong = (out and out["wrong"]) or (within and within["wrong"])
        if wrong and wrong < 0:
            raise _BadTable("bad_output", f"{wrong} wrong values at {row['size']} bytes is no number of them")
        if wrong:
            return f"{wrong} wrong values at {row['size']} bytes"
        for name in unknown:
            half = row[name]
            unknown[name] += bool(half and half.get("delta" if of_old else "wrong") is None)
    result["_unknown"] = unknown
    bounds = result["out_of_bounds"]
    return f"{bounds['count']} values are out of bounds" if bounds and not bounds["ok"] else None


def _checked(result: Parsed) -> None:
    """Raise _BadTable unless the tool verified its results in every row in which this test verifies at all."""
    if 0 in result["_validation"]:
        raise _BadTable("unchecked", "the results were not checked: -c 0 is among the options of nccl-tests; remove it")
    for name, unknown in result["_unknown"].items():
        if unknown:
            count = sum(1 for row in result["rows"] if row[name])
            if unknown == count and name == "in_place" and _unchecked_in_place(result):
                continue
            where = f"{unknown} of {count} rows say N/A where the number of wrong values {name.replace('_', ' ')} belongs"
            advice = "remove -c 0 from the options of nccl-tests if it is there"
            raise _BadTable("unchecked", f"the results were not checked: {where}; {advice}")


def _unchecked_in_place(result: Parsed) -> bool:
    """Return True if the test prints N/A in place, and only there: some tests do so since 2.13.1."""
    may = not result["_layout"]["delta"] and bool(result["_laws"] & set(UNCHECKED_IN_PLACE))
    return may and all(row["out_of_place"] for row in result["rows"])


def _ranks(result: Parsed, header: tuple[int, int, int, int, int, str], expected: int | None) -> dict[int, int]:
    """Return the number of ranks by group. Raise _BadTable unless each rank is there once."""
    listed = result["ranks"]
    numbers = [r["rank"] for r in listed]
    of_one = header[0] * header[1]
    if not of_one:
        raise _BadTable("rank_mismatch", f"the header says {header[0]} threads of {header[1]} GPUs: nothing can have run")
    if result.get("_ranks_partial"):
        count = len(listed) * of_one
        if expected is not None and expected != count:
            raise _BadTable("rank_mismatch", f"{count} ranks took part, {expected} were asked for")
        return {0: count}
    if not numbers:
        raise _BadTable("rank_mismatch", "the list of ranks is missing")
    if len(set(numbers)) != len(numbers):
        raise _BadTable("rank_mismatch", "a rank is twice in the list: the ranks did not run as one job")
    if sorted(numbers) != list(range(len(numbers))) or len(numbers) % of_one:
        raise _BadTable("rank_mismatch", f"the list of ranks is not whole: {len(numbers)} ranks, the last is {max(numbers)}")
    if expected is not None and expected != len(numbers):
        raise _BadTable("rank_mismatch", f"{len(numbers)} ranks took part, {expected} were asked for")
    processes: dict[tuple[str, int | None], int] = {}
    for rank in listed:
        processes[rank["host"], rank["pid"]] = processes.get((rank["host"], rank["pid"]), 0) + 1
    odd = next((process for process, count in processes.items() if process[1] is not None and count % of_one), None)
    if odd:
        sentence = f"process {odd[1]} on {odd[0]} has {processes[odd]} ranks, the header says {of_one}"
        raise _BadTable("rank_mismatch", f"the list of ranks is not that of this test: {sentence}")
    groups: dict[int, int] = {}
    for rank in listed:
        groups[rank["group"]] = groups.get(rank["group"], 0) + 1
    if len(set(groups.values())) != 1:
        raise _BadTable("rank_mismatch", f"the groups have {sorted(set(groups.values()))} ranks: no one number to judge by")
    if expected is not None and len(groups) > 1:
        # NCCL_TESTS_SPLIT is set: the ranks never communicated with other groups, or other nodes.
        raise _BadTable("rank_mismatch", f"{expected} ranks were asked for, they ran as {len(groups)} groups of {groups[min(groups)]} each")
    return groups


def _sizes(smallest: int, largest: int, step: int, unit: str) -> list[int]:
    sizes: list[int] = []
    size = smallest
    while size <= largest and len(sizes) < SIZES_LIMIT:
        sizes.append(size)
        following = size * step if unit == "factor" else size + step
        if following <= size:
            break
        size = following
    return sizes


def _sweep(result: Parsed, header: tuple[int, int, int, int, int, str], groups: dict[int, int], requested_bytes: int | None) -> None:
    """Every size of the header's sweep must have its row, once per type, operation and root."""
    _threads, _gpus, smallest, largest, step, unit = header
    reduced = result.get("_reduced")
    if reduced is not None and reduced < largest:
        result["warnings"].append(f"the largest size was reduced from {largest} to {reduced} bytes: too little memory")
        if requested_bytes is not None and reduced < requested_bytes:
            sizes = f"{requested_bytes} bytes were asked for, the tool reduced the size to {reduced}"
            raise _BadTable("reduced_size", f"{sizes}: too little memory")
        if reduced < smallest:
            raise _BadTable("reduced_size", f"not even the smallest size, {smallest} bytes, fitted into memory: {reduced} bytes ran")
        largest = reduced
    if requested_bytes is not None and largest < requested_bytes:
        raise _BadTable("reduced_size", f"{requested_bytes} bytes were asked for, the largest size of the sweep is {largest}")
    expected = _sizes(smallest, largest, step, unit)
    ranks = next(iter(groups.values()))
    series: dict[tuple[t.Any, ...], list[Row]] = {}
    columns = result.get("_columns")
    if columns and all(column.count(column[0]) == len(column) for column in (columns.type, columns.redop, columns.root)):
        series[columns.type[0], columns.redop[0], columns.root[0]] = result["rows"]
    else:
        columns = None
        for key, of_key in itertools.groupby(result["rows"], operator.itemgetter("type", "redop", "root")):
            if key in series:
                raise _BadTable("bad_output", f"rows of {key[0]} stand in two places: rows were moved or outputs are mixed")
            series[key] = list(of_key)
    ops = [result["op"]] if result["op"] else _candidates(result)
    cycles: dict[int, list[Row]] = {}
    for key, rows in series.items():
        if not expected or len(rows) % len(expected):
            label = " ".join(str(k) for k in key if k not in (None, -1, "none"))
            raise _BadTable("incomplete_output", f"{len(rows)} rows for {label}, the header's sweep has {len(expected)} sizes")
        _columns(result, key, ranks)
        width = WIDTHS.get(key[0], 8)
        if key[0] in WIDTHS:
            ops = [op for op in ops if _counts(rows[-1], op, width, ranks)] or ops
        element = width * ranks if ops[0] in ROUNDED else width
        all_wanted = expected * (len(rows) // len(expected))
        fits = columns and columns.size == all_wanted == [count * element for count in columns.counts]
        for row, size in zip(rows, all_wanted) if not fits else ():
            if row["size"] == size == row["count"] * element:
                continue
            if key[0] in WIDTHS and not any(_counts(row, op, width, ranks) for op in ops):
                raise _BadTable("bad_output", f"{row['count']} elements of {key[0]} are not {row['size']} bytes over {ranks} ranks")
            if row["size"] != size and not any(_rounded(size, row["size"], op, width, ranks) for op in ops):
                raise _BadTable("incomplete_output", f"the row of {size} bytes is missing: {row['size']} stands in its place")
        if len(rows) > len(expected):
            for number, at in enumerate(range(0, len(rows), len(expected)), start=1):
                cycles.setdefault(number, []).extend(rows[at : at + len(expected)])
    result["_possible"] = ops
    if len({len(rows) for rows in series.values()}) > 1:
        fewest, greatest = (of(len(rows) // len(expected) for rows in series.values()) for of in (min, max))
        raise _BadTable("incomplete_output", f"{greatest} cycles of the sweep for one type, operation or root, {fewest} for another")
    if cycles:
        _different(cycles, result["_layout"])


def _counts(row: Row, op: str, width: int, n: int) -> bool:
    """Return True if the row's count fits: that of one rank if each rank has a part, else that of the message."""
    missing = row["count"] * (width * n if op in ROUNDED else width) - row["size"]
    return bool(0 <= missing <= (32 * n if op == "alltoallv" else 0))  # each part of alltoallv is rounded down by itself


def _rounded(size: int, printed: int, op: str, width: int, n: int) -> bool:
    """Return True if `op` rounds `size` to `printed` bytes: whole elements, the same for each rank, aligned by newer versions."""
    grains = [width * n, 4 * width * n, 16 * n] if op in ROUNDED else [width]
    if any(printed == size // grain * grain for grain in grains):
        return True
    # Each part of alltoallv is rounded by itself; that of rccl-tests shares out nothing below so many elements.
    return op == "alltoallv" and (0 <= size - printed < 32 * n or (printed == 0 and 2 * size < n * n * width))


def _columns(result: Parsed, key: tuple[t.Any, ...], ranks: int) -> None:
    """Check the columns: a test that is known by name prints an operation only if it reduces, and a root only if it has one."""
    op, (_type, redop, root) = result["op"], key
    if op not in FACTORS or result["_layout"]["delta"]:
        return
    reduces = redop not in (None, "", "none")
    if (reduces != (op in REDUCING) and op != "sendrecv") or (root not in (None, -1)) != (op in ROOTED) or (root or 0) >= ranks:
        raise _BadTable("bad_output", f"rows of operation {redop} and root {root} are not of {op} over {ranks} ranks: outputs are mixed")


def _different(cycles: dict[int, list[Row]], layout: dict[str, t.Any]) -> None:
    """Two cycles of a sweep never measure the same, if they are long enough to tell."""
    first_cycles: dict[tuple[t.Any, ...], int] = {}
    for number, rows in cycles.items():
        halves = [half for row in rows for half in (row["out_of_place"], row["in_place"]) if half]
        cells = tuple((half["time_us"], half["algbw"], half["busbw"]) for half in halves)
        first = first_cycles.setdefault(cells, number)
        if first != number and sum(_digits(half["time_us"], layout) for half in halves) >= TELLING:
            raise _BadTable("bad_output", f"cycle {number} of the sweep repeats cycle {first} to the last digit: rows stand twice")


def _digits(time_us: float, layout: dict[str, t.Any]) -> float:
    """Return how many decimal digits of a printed time lie within 1 % of it."""
    last = 1e-6 if layout.get("exact") else 1.0 if layout.get("milliseconds") or time_us >= 1e4 else 0.1 if time_us >= 100 else 0.01
    return max(0.0, math.log10(max(time_us, last) * 0.01 / last)) if time_us < math.inf else 0.0


class _Law(t.NamedTuple):
    """The formula for the bandwidths of a test: algbw = share * size / time, busbw = factor * algbw."""

    op: str
    share: float
    factor: float


def _laws(op: str, n: int, old: bool) -> list[_Law]:
    part = (n - 1) / n
    laws = [_Law(op, part if op == "hypercube" else 1.0, FACTORS[op](n))]
    if old and op in ("all_gather", "reduce_scatter"):  # builds of before June 2020 leave out a rank's own part
        laws.append(_Law(op, part, 1.0))
    return laws


def _bandwidths(result: Parsed, groups: dict[int, int]) -> None:
    """Raise _BadTable unless the bandwidths of each row follow from its size, its time and the number of ranks, and the average from all
    rows."""
    n, op, layout = next(iter(groups.values())), result["op"], result["_layout"]
    if op is not None and op not in FACTORS:
        raise _BadTable("bad_output", f"unknown test {op}")
    exact, timed = bool(layout.get("exact")), not layout["cputime"]  # -C prints the CPU's time beside bandwidths of the whole time
    # Half of the last printed digit. Times have fewer decimals where they are wide.
    digit = 1e-6 if exact else 0.0051
    digit_of_time, of_wide = (1e-6, 1e-6) if exact else (0.51, 1e-6) if layout.get("milliseconds") else (0.0051, 6e-4)
    possible = [law for name in result["_possible"] for law in _laws(name, n, layout["delta"])]
    columns: _Columns | None = result.get("_columns")
    certain = columns and len(possible) == 1 and timed
    verified = columns if certain and columns and _follow(columns, possible[0], digit, digit_of_time, of_wide) else None
    total, count = 0.0, 0
    if verified:
        total, count = sum(itertools.chain.from_iterable(zip(verified.busbw, verified.busbw_in_place))), 2 * len(verified.size)
    for row in result["rows"] if not verified else ():
        size = row["size"] / 1e3  # GB/s times us
        for half in (row["out_of_place"], row["in_place"]):
            if half is None:
                continue
            time_us, alg, bus = half["time_us"], half["algbw"], half["busbw"]
            total += bus
            count += 1
            if not (math.isfinite(time_us) and math.isfinite(alg) and math.isfinite(bus)):
                raise _BadTable("bad_output", f"the row of {row['size']} bytes holds a value that is not finite")
            if time_us < 0 or alg < 0 or bus < 0:
                raise _BadTable("bad_output", f"the row of {row['size']} bytes holds a negative value")
            slack = 1e-6 * bus if exact else _coarse(bus)
            follow = [law for law in possible if abs(bus - alg * law.factor) <= slack + digit + (digit + _coarse(alg)) * law.factor]
            if not follow:
                raise _BadTable(
                    "rank_mismatch" if op else "bad_output",
                    f"at {row['size']} bytes the bus bandwidth {bus} GB/s does not follow from {alg} GB/s and {n} ranks",
                )
            wide = of_wide + 0.06 * (time_us >= 1e7)  # 1.2e+07
            times = [time_us, half["hipevt"]] if half.get("hipevt") else [time_us]
            possible = [
                law
                for law in follow
                if not timed
                or any(
                    abs(alg * took - size * law.share)
                    <= (digit + _coarse(alg)) * took + digit_of_time * alg + wide * size + digit * digit_of_time
                    for took in times
                )
            ]
            if not possible:
                numbers = f"at {row['size']} bytes {alg} GB/s do not follow from {time_us} us"
                raise _BadTable("bad_output", f"{numbers}: rows were changed or mixed")
    _average(result, total / count, exact)
    result["_laws"] = {law.op for law in possible}
    if op is None:
        # The column `op` of version 1 says nothing: tests that do not reduce print an operation there too.
        result["op"] = None if layout.get("milliseconds") else _guess(result, {law.factor for law in possible}, n)


def _follow(columns: _Columns, law: _Law, digit: float, digit_of_time: float, of_wide: float) -> bool:
    """Return True if all bandwidths follow, as far as the digits of nearly every value show; otherwise each row is tested by itself."""
    halves = (columns.time, columns.algbw, columns.busbw), (columns.time_in_place, columns.algbw_in_place, columns.busbw_in_place)
    if any(min(column) < 0 for half in halves for column in half) or math.inf in columns.time or math.inf in columns.time_in_place:
        return False
    factor, close = law.factor, digit * (1 + law.factor)
    # (alg +- digit) * (time +- digit_of_time) must enclose what was moved: size * share, GB/s times us.
    slack = 2 * digit * digit_of_time
    lowest = [(law.share - of_wide) * size / 1e3 for size in columns.size]
    highest = [(law.share + of_wide) * size / 1e3 + slack for size in columns.size]
    for half in halves:
        for low, high, time_us, alg, bus in zip(lowest, highest, *half):
            if not (
                low <= (alg + digit) * (time_us + digit_of_time)
                and (alg - digit) * (time_us - digit_of_time) <= high
                and -close <= bus - alg * factor <= close
            ):
                return False  # as for whatever is no number
    return True


def _average(result: Parsed, mean: float, exact: bool) -> None:
    """The last line's average is that over all rows and both halves, rounded to 6 digits.

    Until 2.11 it is over all threads, of which each took its own time: there it must only be of the same order.
    """
    printed = result["avg_busbw"]
    if printed is None:
        raise _BadTable("bad_output", "the average bus bandwidth is not a number")
    off = abs(mean - printed["value"]) - 5.1e-6 * mean
    if result["_layout"]["delta"] and result["_headers"][0][0] > 1:
        off -= 0.5 * mean
    if off <= (2e-6 if exact else 0.0051):
        return
    cells = [half["busbw"] for row in result["rows"] for half in (row["out_of_place"], row["in_place"]) if half]
    if exact or off > 0.0051 + sum(map(_coarse, cells)) / len(cells):
        sentence = f"the rows have an average of {mean:.6g} GB/s, the last line says {printed['value']:g}"
        raise _BadTable("bad_output", f"{sentence}: rows or last lines of another output are mixed in")


def _candidates(result: Parsed) -> list[str]:
    """The tests that the columns of an unnamed one allow."""
    layout, row = result["_layout"], result["rows"][0]
    prefix = layout.get("prefix") or []
    if layout.get("milliseconds"):
        return list(FACTORS)
    if layout["delta"]:  # 2.0 to 2.11 print the columns that a test has
        if "root" in prefix:
            return ["reduce"] if "redop" in prefix else ["broadcast", "gather", "scatter"]
        return ["all_reduce", "reduce_scatter", "alltoall", "alltoallv"] if "redop" in prefix else ["all_gather", "sendrecv", "hypercube"]
    reduces, rooted = row["redop"] not in (None, "", "none"), row["root"] not in (None, -1)
    if rooted:
        return ["reduce"] if reduces else ["broadcast", "gather", "scatter"]
    names = ["all_gather", "hypercube", "alltoall", "alltoallv"]
    if reduces:
        names = ["all_reduce", "all_reduce_bias", "reduce_scatter", "sendrecv"]
    # In 2.13.0 what is not checked in place was counted all the same.
    checked = result.get("_grouped") and any(r["in_place"] and r["in_place"]["wrong"] is not None for r in result["rows"])
    return [name for name in names if not checked or name not in UNCHECKED_IN_PLACE]


def _coarse(value: float) -> float:
    """Return the rounding error of a bandwidth that is too wide for two decimals: 1234.5, 12345, 1e+06."""
    if value < 1000 or round(value, 1) != value:
        return 0.0
    return 0.06 * value if value >= 1e6 else 0.5 if value >= 1e4 and value == int(value) else 0.05


def _guess(result: Parsed, factors: set[float], n: int) -> str | None:
    """Return the test that columns and factors prove, else None. Versions before 2.16.7 do not print their name."""
    if n < 2 or len(factors) != 1:
        return None
    rows, layout, factor = result["rows"], result["_layout"], next(iter(factors))
    row = rows[0]
    reduces, rooted = row["redop"] not in (None, "", "none"), row["root"] not in (None, -1)
    halves = {name: [r[name]["wrong"] is not None for r in rows if r[name]] for name in ("out_of_place", "in_place")}
    part = FACTORS["all_gather"](n)  # (n-1)/n; every other factor is at least 1
    if rooted:
        if reduces:
            return "reduce" if factor == 1.0 else None
        return "broadcast" if factor == 1.0 else None  # gather and scatter look alike
    if not layout["delta"] and any(halves["out_of_place"]) and not any(halves["in_place"]):
        return "sendrecv" if factor == 1.0 else "alltoall"  # alone these two are not checked in place
    if reduces:
        if factor == part:
            return "reduce_scatter"
        # sendrecv prints an operation too and has this factor with two ranks, but from 2.13.4 it is told by its N/A.
        return "all_reduce" if factor > 1.0 or (n == 2 and result.get("_grouped") and all(halves["in_place"])) else None
    if row["redop"] is None and "redop" in layout["prefix"]:
        return "alltoall" if layout["delta"] else "hypercube" if factor == 1.0 else None
    return "all_gather" if factor == part and (layout["delta"] or all(halves["in_place"])) else None


def _peak(result: Parsed) -> dict[str, t.Any]:
    """Best bus bandwidth of the plateau: rows of at least a quarter of the largest size."""
    columns, rows, both = result.get("_columns"), result["rows"], ("out_of_place", "in_place")
    sizes = columns.size if columns else [row["size"] for row in rows]
    best, size = -1.0, max(sizes)
    smallest = size / 4
    if columns:
        top = max(max(bus) for bus in (columns.busbw, columns.busbw_in_place))
        at = min(bus.index(top) for bus in (columns.busbw, columns.busbw_in_place) if top in bus)
        if sizes[at] >= smallest:
            return {"value": top, "unit": "GB/s", "size": sizes[at]}
    for row in rows:
        if row["size"] >= smallest:
            for bus in [row[name]["busbw"] for name in both if row[name]]:
                if bus > best:
                    best, size = bus, row["size"]
    return {"value": best, "unit": "GB/s", "size": size}
