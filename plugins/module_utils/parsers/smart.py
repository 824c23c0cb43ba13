# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for `smartctl -j -a` and `nvme smart-log -o json` of a disk.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t

Problem = t.Tuple[str, str]

# Bits of smartctl's exit status (smartctl(8)): nothing was read; what was read says that the disk fails, or did so in the past.
_NOTHING_READ = {0: "its options were not understood", 1: "the disk could not be opened"}
_FAILING = {3: "its SMART status is FAILED", 4: "an attribute that foretells failure is at its limit"}
_PAST = {5: "an attribute was at its limit in the past", 6: "its error log has errors", 7: "a self-test of it failed"}
# Bits of the critical warning of an NVMe disk (NVM Express Base Specification, SMART / Health Information log).
_CRITICAL = {
    0: "its spare capacity is below the threshold", 2: "its reliability is degraded by media errors", 3: "its media are read-only",
    4: "the backup of its volatile memory failed", 5: "its persistent memory region is read-only or unreliable",
}  # fmt: skip
_HOT = 1
# Attributes of a SATA disk whose count precedes failures: pending and uncorrectable sectors.
_SECTORS = {197: "sectors wait to be replaced", 198: "sectors cannot be read"}


class Smart(t.NamedTuple):
    """The state that a disk reports: problems as (reason code, words), and model and serial number as far as known. `unread` is why nothing
    was read, else ""."""

    problems: list[Problem]
    model: str = ""
    serial: str = ""
    unread: str = ""


def smartctl(text: str, rc: int | None) -> Smart:
    """Read the output of `smartctl -j -a DEVICE` and its exit status."""
    report = _object(text)
    if report is None:
        return Smart([], unread="smartctl gave no JSON")
    for bit, why in _NOTHING_READ.items():
        if rc is None or rc >> bit & 1:
            program = report.get("smartctl")
            messages = program.get("messages") if isinstance(program, dict) else None
            listed = messages if isinstance(messages, list) else []
            words = [str(message.get("string")) for message in listed if isinstance(message, dict)]
            return Smart([], unread="; ".join(words)[:200] or why)
    status = report.get("smart_status")
    passed = status.get("passed") if isinstance(status, dict) else None
    failing = [words for bit, words in _FAILING.items() if (rc or 0) >> bit & 1 or (bit == 3 and passed is False)]
    log = report.get("nvme_smart_health_information_log")
    if isinstance(log, dict):
        problems = _nvme(log)
        failing = [] if any(code == "disk" for code, _words in problems) else failing
    else:
        problems = list(_attributes(report))
        if passed is None and not failing and not problems:
            return Smart([], _text(report, "model_name"), _text(report, "serial_number"), "the disk does not report SMART")
    problems = [*(("disk", words) for words in failing), *problems]
    problems += [("disk_worn", words) for bit, words in _PAST.items() if (rc or 0) >> bit & 1]
    return Smart(problems, _text(report, "model_name"), _text(report, "serial_number"))


def nvme_smart_log(text: str, rc: int | None) -> Smart:
    """Read the output of `nvme smart-log -o json DEVICE` and its exit status, which is 0 for a disk that fails, too."""
    log = _object(text)
    if rc != 0 or log is None or "critical_warning" not in log:
        return Smart([], unread=f"nvme smart-log ended with status {rc} and gave no health log")
    return Smart(_nvme(log))


def _nvme(log: dict[str, t.Any]) -> list[Problem]:
    """Return the problems of a health log. The spare capacity is not judged by itself: some disks report 0 and are well."""
    warning = _number(log, "critical_warning")
    problems = [("disk", words) for bit, words in _CRITICAL.items() if warning >> bit & 1]
    if warning >> _HOT & 1:
        problems.append(("disk_worn", "its temperature is beyond the threshold"))
    if _number(log, "media_errors"):
        problems.append(("disk_worn", f"{_number(log, 'media_errors')} errors of its media could not be corrected in its life"))
    used = max(_number(log, "percentage_used"), _number(log, "percent_used"))
    if used >= 100:
        problems.append(("disk_worn", f"{used} % of its rated life are used"))
    return problems


def _attributes(report: dict[str, t.Any]) -> t.Iterator[Problem]:
    attributes = report.get("ata_smart_attributes")
    table = attributes.get("table") if isinstance(attributes, dict) else None
    for row in table if isinstance(table, list) else ():
        if not isinstance(row, dict) or not isinstance(row.get("raw"), dict):
            continue
        sector_kind, count = _SECTORS.get(_number(row, "id")), _number(row["raw"], "value")
        if sector_kind and count:
            yield "disk_worn", f"{count} {sector_kind}"


def _object(text: str) -> dict[str, t.Any] | None:
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _number(of: dict[str, t.Any], name: str) -> int:
    """Return a whole number, which may be written as text; 0 if there is none."""
    value = of.get(name)
    try:
        return int(value) if isinstance(value, (int, str)) else 0
    except ValueError:
        return 0


def _text(of: dict[str, t.Any], name: str) -> str:
    return str(of.get(name) or "")[:80]
