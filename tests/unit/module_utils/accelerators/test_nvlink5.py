# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule of NVLink 5 errors in both layouts of IntrInfo, and what a line with its words is worth."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvlink5, xids
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from hypothesis import given
from hypothesis import strategies as st

# Bits that every rule leaves to the reader, in both layouts.
FREE = 0b111111 << 26 | 0b111111111 << 11


def line(xid: int, unit: str, severity: str, information: int, status: int, process: str = "") -> str:
    words = f"0x{information:08x} 0x{status:08x} 0x00000000 0x00000000 0x00000000 0x00000000"
    return f"NVRM: Xid (PCI:0018:01:00): {xid}, {process}{unit} {severity} XC0 i0 Link 08 ({words})"


def informed(rule: nvlink5.Rule, is_v1: bool, noise: int = 0) -> int:
    return rule.reason << 20 | (rule.v1 if is_v1 else rule.v2) | noise & FREE


@given(st.sampled_from(nvlink5.RULES), st.booleans(), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1))
def test_each_rule_in_both_layouts(rule: nvlink5.Rule, is_v1: bool, noise: int, other: int) -> None:
    status = other if rule.status is nvlink5.ANY else rule.status
    found = nvlink5.decode(rule.xid, informed(rule, is_v1, noise), status)
    assert found and found.investigatory == rule.investigatory and found.is_fatal == rule.is_fatal
    # The second action of a rule has its own bit, which is among the free ones of the second layout.
    assert found.immediate == rule.immediate or (rule.also and found.immediate == rule.also)
    event = xids.read(line(rule.xid, found.unit, "Fatal" if rule.is_fatal else "Nonfatal", informed(rule, is_v1, noise), status))
    assert event and (event.of.code in reasons.DEFECTS) == (found.immediate == "RESET_GPU" or rule.is_fatal)


def test_no_word_of_one_layout_is_one_of_the_other() -> None:
    for rule in nvlink5.RULES:
        others = [other for other in nvlink5.RULES if other.xid == rule.xid and other.unit != rule.unit]
        assert not any(rule.v1 & 0x7F == other.v2 for other in others), rule


def test_the_words_of_the_line_decide_and_not_the_word_of_the_driver() -> None:
    """A nonfatal error of RXPIPE asks for a reset if the bit above the unit is set, in either layout."""
    for information, code in ((0x0C2, "xid"), (0x4C2, "nvlink"), (0x006, "xid"), (0x086, "nvlink")):
        event = xids.read(line(145, "RLW_RXPIPE", "Nonfatal", information, 1))
        assert event and event.of.code == code, hex(information)
        assert xids.code_in(f"{event.words()} ({event.line})") == code


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (line(149, "NETIR_LINK_EVT", "Fatal", 0x004505C6, 0), "link"),
        (line(149, "NETIR_LINK_EVT", "Fatal", 0x025001C6, 0), "peer"),
        (line(149, "NETIR_LINK_DOWN", "Fatal", 0x02500011, 0), "peer"),
        (line(149, "NETIR_BER_EVENT", "Nonfatal", 0x00086226, 1), "signal"),
        (line(149, "NETIR", "Fatal", 0x000FE406, 0).replace("Link 08", "Link -1"), "link"),
        (line(145, "RLW_SRC_TRACK", "Nonfatal", 0x040988E2, 8), "application"),
        (line(145, "RLW_RXPIPE", "Nonfatal", 0x0409A0C2, 8, "pid=876767, name=ray::WorkerDict, "), "noted"),
        (line(150, "MSE_WATCHDOG", "Fatal", 0, 0), "link"),
        (line(150, "MSE Degraded", "Fatal", 0, 0xFFFFFFFF), "link"),
        # Two events in one status: the graver one counts; one of them unknown: nobody knows, unless the other one asks for a reset.
        (line(144, "SAW_MVB", "Nonfatal", 0x21, 0x3), "link"),
        (line(144, "SAW_MVB", "Nonfatal", 0x21, 0x5), "noted"),
        (line(144, "SAW_MVB", "Nonfatal", 0x21, 0x40000002), "link"),
        # What the line calls fatal is a defect whatever the words say.
        (line(144, "SAW_MVB", "Fatal", 0x21, 0x1), "link"),
        (line(147, "TREX", "Fatal", 0x184, 0x1), "link"),
    ],
)
def test_each_nvlink_5_line_has_the_class_of_its_words(text: str, name: str) -> None:
    event = xids.read(text)
    assert event and event.of.name == name, event
    assert xids.code_in(f"{event.words()} ({event.line})") == event.of.code


@given(st.sampled_from(sorted(xids.DECODED)), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1))
def test_an_unknown_pattern_is_a_warning_with_its_words(xid: int, information: int, status: int) -> None:
    event = xids.read(line(xid, "NEW_UNIT", "Nonfatal", information, status))
    assert event
    if nvlink5.decode(xid, information, status) is None:
        assert event.of.code == "xid" and f"0x{information:08x} 0x{status:08x}" in event.meaning
    fatal = xids.read(line(xid, "NEW_UNIT", "Fatal", information, status))
    assert fatal and fatal.of.code == "nvlink"


def test_a_name_of_a_process_gives_no_words() -> None:
    event = xids.read(line(145, "RLW_RXPIPE", "Nonfatal", 0x4C2, 1, "pid=7, name=Link 0 (0x000000c2 0x00000001), "))
    assert event and event.of.name == "link"


def test_classes_follow_the_catalogue() -> None:
    """A reset, a restart or a look at the hardware is a defect; a restart of the application or nothing is not, but for marked rows."""
    for first, _last, of, meaning, immediate, _investigatory in xids.ROWS:
        is_defect = of.code in reasons.DEFECTS or of.code in reasons.FATAL
        if immediate in ("RESET_GPU", "RESTART_BM", "RESTART_VM", "CHECK_MECHANICALS", "WORKFLOW_XID_48", "WORKFLOW_NVLINK_ERR", "XID_154"):
            assert is_defect, first
        if immediate in ("RESTART_APP", "IGNORE") and not meaning.startswith("*"):
            assert not is_defect, first
