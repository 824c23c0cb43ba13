# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for nvbandwidth, as text and as JSON (`-j`), versions 0.1 to 0.10.

A text counts as measured only if it is whole: each test that began has its matrices with their sums, the sums follow from the matrices,
and the last lines are there (0.6 and later). The program's own traps: an unknown name of a test ends with status 0; a test that the machine
cannot do is not passed, and is told as `Waiving NAME.` up to 0.4 (nvbandwidth.cpp, runTestcase), then as `Waived:` without its name;
without a GPU it ends with status 1 and says nothing on standard output. Whether results were compared (`-s` skips it) the output does not
say.

Pure functions; nothing here raises for bad text. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers.launched import plain

Parsed = t.Dict[str, t.Any]
Matrix = t.List[t.List[t.Optional[float]]]

LIMIT = 16 << 20
MOST = 1024  # GPUs or ranks
# Two decimals of each number are printed, and those of the sum are rounded once more.
STEP = 0.005

_VERSION = re.compile(r"^nvbandwidth Version: (v?[0-9][0-9A-Za-z.+-]{0,30})\s*$", re.MULTILINE)
_WAIVING = re.compile(r"Waiving ([a-z][a-z0-9_]{1,80})\.")
_RUNNING = re.compile(r"Running ([a-z][a-z0-9_]{1,80})\.")
_TITLE = re.compile(r".{3,200}\((GB/s|ns)\)")
_SUM = re.compile(r"SUM ([a-z][a-z0-9_]{1,100}) (\d{1,15}(?:\.\d{1,6})?)")
# Tests with a matrix for each way and one for both.
_BOTH_WAYS = re.compile(r"device_to_device_bidirectional_memcpy_(?:read|write)_(?:ce|sm)$")
_NUMBER = re.compile(r"\d{1,15}\.\d{1,6}")
_DEVICE = re.compile(r"^(?:.{0,200}: )?[Dd]evice (\d{1,4}): (.{1,100}?)(?: \(([0-9a-fA-F:]{5,20})\))?[ \t]*$", re.MULTILINE)
_ERROR = re.compile(r"^(?:ERROR: .*|.*\[CUDA_ERROR_.*|ERROR[ :].*)$", re.MULTILINE)
_WRONG = re.compile(r"^.*Invalid value when checking the pattern.*$", re.MULTILINE)
_LAST = "NOTE: The reported results may not reflect the full capabilities"
_FIRST = "NOTE: This tool reports current measured bandwidth"


def parse(text: t.Any, rc: int = 0, err: str = "", tests: t.Sequence[str] = ()) -> Parsed:
    """Read what nvbandwidth printed on standard output; `rc` is its exit status, `err` its standard error, `tests` must all have passed.

    Returns {"outcome": "measured" or "error", "reason_code", "reason", "version", "devices": [{"index", "name", "bdf"}], "waived": count,
    "tests": {name: {"unit": "GB/s" or "ns", "matrix": rows of numbers, None where there is none, "sum", "title"}}}. A test with several
    matrices has one entry for each, by the name of its sum.
    """
    result: Parsed = {"outcome": "error", "reason_code": None, "reason": None, "version": None, "devices": [], "waived": 0, "tests": {}}
    try:
        if not isinstance(text, str):
            raise ReasonedError("bad_output", f"found {type(text).__name__}, expected the text that nvbandwidth printed")
        if len(text) > LIMIT:
            raise ReasonedError("bad_output", f"{len(text)} characters are no output of nvbandwidth")
        if text.lstrip().startswith("{"):
            _read_json(text, result)
        else:
            _read_text(plain(text, re.compile("nvbandwidth Version:")), result)
        _ended(rc, err, result, tests)
    except ReasonedError as error:
        if rc and error.reason_code in ("bad_output", "incomplete_output"):  # which follows from the end that it came to
            error = _failed(rc, err)
        result.update(reason_code=error.reason_code, reason=error.reason)
        return result
    result["outcome"] = "measured"
    return result


def _failed(rc: int, err: str) -> ReasonedError:
    words = " ".join(err.split())[:300]
    return ReasonedError("tool_failed", f"nvbandwidth ended with status {rc}{f': {words}' if words else ' and said nothing'}")


def _ended(rc: int, err: str, result: Parsed, tests: t.Sequence[str]) -> None:
    """Raise ReasonedError if the program did not end well, or if a test that is needed did not pass."""
    if rc:
        raise _failed(rc, err)
    if not result["tests"] and not result["waived"]:
        raise ReasonedError("bad_output", "nvbandwidth ran no test")
    for name in tests:
        if name not in result["tests"]:
            raise ReasonedError("unsupported", f"nvbandwidth has no result of {name}: it was waived, or did not run")


def _read_text(text: str, result: Parsed) -> None:
    version = _VERSION.search(text)
    if not version:
        raise ReasonedError("bad_output", "the text does not begin as nvbandwidth does, with its version")
    if len(_VERSION.findall(text)) > 1:
        raise ReasonedError("bad_output", "the text has the outputs of several runs")
    result["version"] = version[1]
    result["devices"] = [{"index": int(index), "name": name, "bdf": bdf.lower()} for index, name, bdf in _DEVICE.findall(text)]
    _refuse(text)
    lines = [line.rstrip() for line in text.split("\n")]
    at, running = 0, ""
    while at < len(lines):
        line = lines[at]
        begun = _RUNNING.fullmatch(line)
        if begun:
            if running:
                raise ReasonedError("incomplete_output", f"{running} began and has no result")
            running, at = begun[1], at + 1
        elif _WAIVING.fullmatch(line):
            if running:
                raise ReasonedError("incomplete_output", f"{running} began and has no result")
            result["waived"] += 1
            at += 1
        elif line.startswith("Waived:"):
            # Some versions print the name before it, as for a test that runs.
            result["waived"] += 1
            running, at = "", at + 1
        elif _TITLE.fullmatch(line) and (running or result["tests"]) and not line.startswith(("\t", " ")):
            at = _read_matrix(lines, at, result)
            running = ""
        else:
            at += 1
    if running:
        raise ReasonedError("incomplete_output", f"{running} began and has no result")
    if _LAST not in text and _FIRST not in text:
        raise ReasonedError("incomplete_output", "the output is cut: its last lines are missing")


def _refuse(text: str) -> None:
    """Raise ReasonedError for what the program says of itself."""
    wrong = _WRONG.search(text)
    if wrong:
        raise ReasonedError("wrong_results", " ".join(wrong[0].split())[:200])
    error = _ERROR.search(text)
    if error:
        words = " ".join(error[0].split())[:300]
        raise ReasonedError("usage" if "not found" in words or "Invalid Arguments" in words else "tool_failed", words)


def _read_matrix(lines: list[str], at: int, result: Parsed) -> int:
    """Take in the matrix whose title is line `at`; return the line behind its sum."""
    title = lines[at]
    unit = t.cast("re.Match[str]", _TITLE.fullmatch(title))[1]
    line_numbers = iter(range(at + 1, len(lines)))
    columns = next((lines[n].split() for n in line_numbers if lines[n].strip()), [])
    if not columns or len(columns) > MOST:
        raise ReasonedError("incomplete_output", f"the matrix of {title[:80]!r} has no columns")
    matrix: Matrix = []
    for n in line_numbers:
        line = lines[n]
        total = _SUM.fullmatch(line)
        if total:
            _add(result, total[1], title, unit, matrix, float(total[2]), STEP * len(columns) * max(len(matrix), 1) + STEP)
            return n + 1
        if line.strip():
            matrix.append(_row(line, len(columns), title))
        if len(matrix) > MOST:
            break
    raise ReasonedError("incomplete_output", f"the matrix of {title[:80]!r} has no sum")


def _row(line: str, columns: int, title: str) -> list[float | None]:
    """Return the numbers of a row; its name may have blanks."""
    cells = line.split()[-columns:] if len(line.split()) > columns else []
    if len(cells) != columns or not all(cell == "N/A" or _NUMBER.fullmatch(cell) for cell in cells):
        raise ReasonedError("bad_output", f"{title[:80]!r} has the row {' '.join(line.split())[:100]!r}, expected {columns} numbers")
    return [None if cell == "N/A" else float(cell) for cell in cells]


def _add(result: Parsed, name: str, title: str, unit: str, matrix: Matrix, total: float, slack: float) -> None:
    """Keep a matrix if its sum follows from it."""
    numbers = [cell for row in matrix for cell in row if cell is not None]
    if name in result["tests"]:
        raise ReasonedError("bad_output", f"{name} stands twice")
    if not numbers or min(numbers) <= 0:
        raise ReasonedError("bad_output", f"{name} has no number above 0" if not numbers else f"{name} has the number {min(numbers):g}")
    if abs(sum(numbers) - total) > slack:
        raise ReasonedError("bad_output", f"the sum of {name} is {total:g}, its numbers give {sum(numbers):.2f}")
    result["tests"][name] = {"unit": unit, "matrix": matrix, "sum": total, "title": title}


def _read_json(text: str, result: Parsed) -> None:
    try:
        root = json.loads(text)
    except ValueError as error:
        raise ReasonedError("incomplete_output", f"the text is no whole JSON: {error}") from None
    output = root.get("nvbandwidth") if isinstance(root, dict) else None
    if not isinstance(output, dict) or not isinstance(output.get("version"), str):
        raise ReasonedError("bad_output", "the JSON has no nvbandwidth with a version")
    result["version"] = output["version"]
    devices = output.get("GPU Device list")
    for words in devices if isinstance(devices, list) else []:
        match = re.match(r"(\d{1,4}): (.{1,100}?) \(([0-9a-fA-F:]{5,20})\)", str(words))
        if match:
            result["devices"].append({"index": int(match[1]), "name": match[2], "bdf": match[3].lower()})
    if output.get("error"):
        _refuse(f"ERROR: {output['error']}")
    tests = output.get("testcases")
    for test in tests if isinstance(tests, list) else []:
        _read_test(test, result)


def _read_test(test: t.Any, result: Parsed) -> None:
    """Take in one test of the JSON."""
    name, status = (test.get(key) for key in ("name", "status")) if isinstance(test, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(status, str):
        raise ReasonedError("bad_output", f"a test case has the name {name!r} and the status {status!r}")
    if test.get("error"):
        _refuse(f"ERROR: {test['error']}")
    if status == "Waived":
        result["waived"] += 1
        return
    if status != "Passed":
        code = {"Not Found": "usage", "Running": "incomplete_output"}.get(status, "tool_failed")
        raise ReasonedError(code, f"{name} has the status {status[:80]!r}, expected 'Passed' or 'Waived'")
    rows, title = test.get("bandwidth_matrix"), str(test.get("bandwidth_description") or "")
    unit = _TITLE.fullmatch(title)
    if not unit or not isinstance(rows, list) or not rows or not all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows):
        raise ReasonedError("bad_output", f"{name} has no matrix of numbers with a unit")
    matrix: Matrix = []
    for row in rows:
        if not all(cell == "N/A" or re.fullmatch(r"\d{1,15}(\.\d{1,9})?", str(cell)) for cell in row):
            raise ReasonedError("bad_output", f"{name} has the row {str(row)[:100]}")
        matrix.append([None if cell == "N/A" else float(cell) for cell in row])
    total = test.get("sum")
    if not isinstance(total, (int, float)) or isinstance(total, bool):
        raise ReasonedError("bad_output", f"{name} has no sum")
    columns = len(matrix[0])
    if _BOTH_WAYS.match(name) and len(matrix) == 3 * columns:
        _add_both_ways(result, name, title, unit[1], [matrix[at : at + columns] for at in range(0, 3 * columns, columns)])
        name = f"{name}_total"
        matrix = matrix[2 * columns :]
    # Six digits of each number are printed.
    _add(result, name, title, unit[1], matrix, float(total), 1e-5 * abs(float(total)) + STEP)


def _add_both_ways(result: Parsed, name: str, title: str, unit: str, parts: t.Sequence[Matrix]) -> None:
    """Keep the two ways of a test of both, whose matrices the JSON has one below the other, with the sum of the last alone: what both
    ways give together must be the third."""
    for one_way, other_way, both in zip(*parts):
        for first, second, together in zip(one_way, other_way, both):
            values = [value for value in (first, second, together) if value is not None]
            if len(values) not in (0, 3) or (values and abs(values[0] + values[1] - values[2]) > 1e-5 * values[2] + STEP):
                raise ReasonedError("bad_output", f"{name} has {first} and {second} GB/s of two ways, and {together} of both")
    way = "read" if "_read_" in name else "write"
    for number, matrix in enumerate(parts[:2], 1):
        total = sum(cell for row in matrix for cell in row if cell is not None)
        _add(result, f"{name}_{way}{number}", title.replace("Total", f"{way.title()}{number}"), unit, matrix, total, STEP)
