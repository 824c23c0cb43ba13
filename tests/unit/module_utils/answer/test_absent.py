# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, is_absent, number, plain, total
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (0, 0), (53, 53), (105.0, 105), (1.5, 1.5), ("0000000053", 53), ("0x1f", 31), ("1,234,567", 1234567), ("38 C", 38), ("12 %", 12),
        ("12%", 12), ("-40 °C", -40), ("1.5e3", 1500), ({"value": 4, "available_spare": 0}, 4), ({"value": "105.0"}, 105), (" 7 ", 7),
        ("8,400 RPM", 8400), ("32 GT/s", 32),
    ],
)  # fmt: skip
def test_a_number_is_read_in_each_form_that_tools_print(cell, expected):
    assert number(cell) == expected


@pytest.mark.parametrize(
    "cell", [None, "", "N/A", "[N/A]", "Unknown Error", True, float("nan"), float("inf"), [], {}, "12 of 16", "1,2", "na", "0x", "0xzz"]
)
def test_anything_else_is_absent_with_what_was_found(cell):
    assert is_absent(number(cell, "spare")) and number(cell, "spare").why.startswith("spare ")


def test_an_absent_value_is_no_number_and_no_condition():
    value = Absent("not read")
    for use in (
        lambda: value + 1,
        lambda: value > 0,
        lambda: bool(value),
        lambda: not value,
        lambda: sum([1, value]),
        lambda: max(0, value),
    ):
        with pytest.raises(TypeError):
            use()


def test_a_sum_with_an_absent_value_is_absent():
    assert total([1, 2]) == 3
    assert total([0, Absent("DRAM is N/A"), 0]) == Absent("DRAM is N/A")
    assert is_absent(total([]))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_json_holds_becomes_a_finite_number_or_absent(cell):
    json.dumps(plain(number(cell)), allow_nan=False)
