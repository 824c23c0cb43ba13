# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of the form of plain data that a node has sent: each takes a value and returns True if it has the form.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

Test = t.Callable[[t.Any], bool]


def is_text(value: t.Any) -> bool:
    return isinstance(value, str)


def is_count(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def perhaps(test: Test) -> Test:
    """Return the test of a value that may be None."""
    return lambda value: value is None or test(value)


def list_of(test: Test) -> Test:
    return lambda value: isinstance(value, (list, tuple)) and all(map(test, value))


def row(*tests: Test) -> Test:
    """Return the test of a list with as many values as there are tests, each of which passes its own."""
    return lambda value: (
        isinstance(value, (list, tuple)) and len(value) == len(tests) and all(test(v) for test, v in zip(tests, value, strict=True))
    )


def object_of(test: Test) -> Test:
    """Return the test of an object, each value of which passes a test, whatever its key."""
    return lambda value: isinstance(value, dict) and all(isinstance(name, str) and test(each) for name, each in value.items())


def with_keys(**tests: Test) -> Test:
    """Return the test of an object: each of these keys that it has passes its own test."""
    return lambda value: isinstance(value, dict) and all(test(value[name]) for name, test in tests.items() if name in value)
