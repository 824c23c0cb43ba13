# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for the summary of `prove` (Test::Harness of Perl 5.36), which runs files of tests such as those of pjdfstest.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

_FILE = re.compile(r"^(\S.*) \(Wstat: (\d+).*? Tests: (\d+) Failed: (\d+)\)$")
_NUMBERS = re.compile(r"^\s+Failed tests?:\s+(.+)$")
# Numbers that did not fit on the line before (TAP::Formatter::Base, _balanced_range).
_MORE = re.compile(r"^\s+(\d[\d, -]*)$")
_ALL = re.compile(r"^Files=(\d+), Tests=(\d+),", re.M)
_RESULT = re.compile(r"^Result: (\w+)\s*$", re.M)


class Proved(t.NamedTuple):
    """The summary of a run. `failed`: {file: the numbers of its failed tests, or why it is not whole}; `not_ok`: how many tests failed;
    `result`: PASS, FAIL, NOTESTS, or empty if the output is cut."""

    files: int
    tests: int
    failed: t.Dict[str, str]
    not_ok: int
    result: str


def parse(text: str) -> Proved:
    """Return the summary in what `prove` printed."""
    failed: dict[str, str] = {}
    count, name = 0, ""
    has_numbers = False
    for line in text.partition("Test Summary Report\n")[2].splitlines():
        head, numbers, more = _FILE.match(line), _NUMBERS.match(line), _MORE.match(line)
        if more and has_numbers:
            failed[name] += f", {more[1]}"
            continue
        has_numbers = bool(numbers and name)
        if head:
            name = head[1]
            count += int(head[4])
            if int(head[2]):
                failed[name] = f"status {head[2]}"
        elif numbers and name:
            failed[name] = numbers[1]
        elif line.startswith("  Parse errors: ") and name:
            failed.setdefault(name, line.strip())
    totals, results = _ALL.findall(text), _RESULT.findall(text)
    files, tests = map(int, totals[-1]) if totals else (0, 0)
    return Proved(files, tests, failed, count, results[-1] if results else "")
