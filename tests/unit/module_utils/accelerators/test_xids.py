# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of Xids, and how strictly a line of the kernel's log is read."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import xids
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons

PLACE = "NVRM: Xid (PCI:0000:1a:00): "
DOC = pathlib.Path(__file__).resolve().parents[4] / "docs/xids.md"


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ((48, 64, 94, 95, 140, 161, 171, 172), "ecc"),
        ((79,), "gpu_lost"),
        ((46, 54, 56, 57, 58, 61, 62, 80, 109, 110, 119, 120, 122, 123, 124, 125, 143, 151, 156, 157, 158, 159, 167, 169,
          173, 175), "gpu_fault"),
        ((74, 136, 144, 145, 146, 149, 150, 166, 170), "nvlink"),
        ((11, 13, 31, 32, 38, 43, 44, 45, 65, 66, 68, 69, 92, 93, 121, 126, 137, 139, 141, 147, 148), "xid"),
        ((63, 160), "ecc_past"),
        ((154, 155, 168), "gpu_reset"),
        ((1, 174, 176, 177, 999), "xid_unknown"),
    ],
)  # fmt: skip
def test_classes(numbers: tuple[int, ...], code: str) -> None:
    for number in numbers:
        found = xids.read(f"{PLACE}{number}, pid=77, name=python3, what happened")
        assert found and found.of.code == code and found.where == "0000:1a:00" and found.pid == 77, number
        assert xids.code_in(found.line) == code and xids.code_in(f"Xid {number}: it happened") == code


def test_every_row_has_a_code_that_a_verdict_knows() -> None:
    rows = [row for row in xids.ROWS for _number in range(row[0], row[1] + 1)]
    assert len(xids.TABLE) == len(rows), "a number stands twice"
    for of, _meaning in xids.TABLE.values():
        assert {of.code, of.own_code} <= set(reasons.ALL)
        assert of.code in reasons.MILD or of.code in reasons.FATAL or of.code in reasons.DEFECTS or of is xids.UNLISTED


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("NVRM: Xid (0000:03:00): 31, Ch 00000010, intr 00000000", "xid"),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=5, Contained", "ecc"),
        ("NVRM: Xid (PCI:0008:01:00.0): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "gpu_lost"),
        (f"{PLACE}149, NETIR_LINK_EVT  Nonfatal  XC0  i0  Link 04 (0x004c1d48 0x00000000)", "xid"),
        (f"{PLACE}149, NETIR_LINK_EVT  Fatal  XC0  i0  Link 04 (0x004c1d48 0x00000000)", "nvlink"),
        (f"{PLACE}154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "gpu_reset"),
        (f"{PLACE}154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", "xid"),
        (f"{PLACE}154, GPU recovery action changed", "gpu_reset"),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)", "xid"),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 44 sourcetrack timeout error", "nvlink"),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 19084, Non-fatal, Link 44", "nvlink"),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007", "nvlink"),
        ("NVRM: GPU 0000:1a:00.0: GPU has fallen off the bus.", "gpu_lost"),
        ("NVRM: GPU at PCI:0000:1a:00 has fallen off the bus.", "gpu_lost"),
        (r"NVRM: The NVIDIA GPU 0000:1a:00.0\x0aNVRM: (PCI ID: 10de:2335) installed has\x0aNVRM: fallen off the bus and is", "gpu_lost"),
        ("NVRM: GPU 0000:1a:00.0: RmInitAdapter failed! (0x26:0x56:1474)", "gpu_lost"),
        ("NVRM: GPU 0000:1a:00.0: rm_init_adapter failed, device minor number 3", "gpu_lost"),
        ("NVRM: RmInitAdapter failed! (0x26:0xffff:1096)", "gpu_lost"),
        # Cut lines are errors that nobody knows.
        (f"{PLACE}7", "xid_unknown"),
        (PLACE, "xid_unknown"),
        ("NVRM: Xid (PCI:0000:1a", "xid_unknown"),
    ],
)
def test_each_form_of_an_xid_line_is_read(line: str, code: str) -> None:
    found = xids.read(line)
    assert found and found.of.code == code, found


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: new device",
        "NVRM: GPU at PCI:0000:06:00: GPU-0d1e",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Severity 1 Engine instance 44 Sub-engine instance 00",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Data {0x00000004, 0x00000004}",
        f"oom-kill: task=python, said {PLACE}79, GPU has fallen off the bus",
        "NVRM: GPU 0000:1a:00.0: RmInitAdapter succeeded",
        "audit: NVRM: GPU 0000:1a:00.0: GPU has fallen off the bus.",
        f"python3[12]: {PLACE}79, GPU has fallen off the bus",
    ],
)
def test_lines_that_tell_of_no_error(line: str) -> None:
    assert xids.read(line) is None


def test_words_without_a_number_are_noted() -> None:
    assert xids.code_in("something happened") == xids.code_in("Xid on GPU 2") == "xid"


def documented() -> str:
    """The table of docs/xids.md, as the rows say it."""
    lines = ["| Xid | class | what happened | immediate action | investigatory action |", "|---|---|---|---|---|"]
    for first, last, of, meaning, immediate, investigatory in xids.ROWS:
        number = str(first) if first == last else f"{first}-{last}"
        lines.append(f"| {number} | {of.name} | {meaning.replace('*', chr(92) + '*')} | {immediate} | {investigatory} |")
    return "\n".join(lines)


def test_the_documented_table_is_this_one() -> None:
    assert documented() in DOC.read_text()


@pytest.mark.parametrize("prefix", ["", "[   12.345678] ", "<3>", "Nov 24 03:12:45 gpu-01 kernel: "])
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.", "gpu_reset"),
        ("NVRM: GPU0 nvGpuOpsReportFatalError: uvm encountered global fatal error 0x1f, requiring OS reboot to recover.", "gpu_reset"),
        ("NVRM: uvm encountered global fatal error 0x60, requiring os reboot to recover.", "gpu_reset"),
        ("NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7", "xid"),
        ("NVRM: GPU3 krcWatchdog_IMPL: RC watchdog: GPU is probably locked! Notify Timeout Seconds: 7", "xid"),
        ("NVRM: Going over RM unhandled interrupt threshold for irq 153", "xid"),
    ],
)
def test_errors_of_the_driver_without_a_number(line: str, code: str, prefix: str) -> None:
    event = xids.read(prefix + line)
    assert event and event.of.code == code and event.where is None
    assert xids.read(f"python3: {line}") is None and xids.takes_back(line) is None
