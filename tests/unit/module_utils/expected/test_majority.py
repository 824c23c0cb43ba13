# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The conviction of one of several GPUs that should have computed the same bits."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected.majority import ruling


@pytest.mark.parametrize(
    ("bits", "odd", "resolved"),
    [
        ({"a": "x"}, "", True),
        ({"a": "xx", "b": "xx"}, "", True),
        ({"a": "x", "b": "x", "c": "y"}, "c", True),
        ({"a": "x", "b": "y"}, "", False),  # who is wrong of two?
        ({"a": "xx", "b": "xy"}, "b", True),  # the one that contradicts itself
        ({"a": "xx", "b": "yz"}, "b", True),
        ({"a": "xx", "b": "yy", "c": "xy"}, "", False),
        ({"a": "xy", "b": "xy"}, "", False),  # what computes here promises nothing
        ({"a": "xy"}, "", False),
        ({"a": "xx", "b": "xy", "c": "yx", "d": "zx"}, "", False),  # most contradict themselves
        ({"a": "xx", "b": "xx", "c": "xy", "d": "zx"}, "cd", True),
        ({"a": "x", "b": "x", "c": "y", "d": "y"}, "", False),
        ({"a": "x", "b": "x", "c": "x", "d": "y", "e": "z"}, "de", True),
        ({"a": "x", "b": "x", "c": "y", "d": "z", "e": "u"}, "", False),  # no majority, however many differ
    ],
)
def test_nobody_is_convicted_without_a_majority_or_his_own_contradiction(bits: dict[str, str], odd: str, resolved: bool) -> None:
    found = ruling({name: list(own) for name, own in bits.items()})
    assert "".join(sorted(found.odd)) == odd and (found.unresolved is None) is resolved
    assert all(name in (found.unresolved or "") for name, own in bits.items() if not resolved and "none of" not in (found.unresolved or ""))
