# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for `smartctl -j -a` and `nvme smart-log -o json` of a disk.

Names of the fields: smartctl 7.0 to 7.5 (ataprint.cpp, scsiprint.cpp, nvmeprint.cpp) and nvme-cli 1.x to 2.x (nvme-print-json.c,
json_smart_log). A value that is there and is not understood makes the answer `unread`; it is never the healthy value.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value, is_absent, number

Problem = t.Tuple[str, str]
Object = t.Dict[str, t.Any]

# Parts of smartctl's answer that are objects where they are there.
_OBJECTS = (
    "smart_status", "nvme_smart_health_information_log", "ata_smart_attributes", "scsi_error_counter_log", "endurance_used", "temperature",
    "spare_available", "scsi_pending_defects",
)  # fmt: skip
# Bits of smartctl's exit status (smartctl(8)): nothing was read; what was read says that the disk fails, or did so in the past.
_NOTHING_READ = {0: "its options were not understood", 1: "the disk could not be opened"}
_STATUS_FAILED, _ATTRIBUTE_FAILED = 3, 4
_PAST = {5: "an attribute was at its limit in the past", 6: "its error log has errors"}
_SELF_TEST = 7
# Messages of smartctl and nvme-cli about disks that cannot be asked in this way, and programs that are too old: not a word about the disk.
_NOT_ASKED = re.compile(
    r"permission|not permitted|usb bridge|device type|raid|not supported|unsupported|unable to detect|no such file|invalid argument|"
    r"unrecognized|usage:|command not found|"
    # Status codes of NVMe for a command or log that a virtual disk does not have: invalid opcode, field or log page.
    r"invalid (?:command opcode|opcode|field|log page)|0x[0-9a-f]?(?:001|002|109)\b",
    re.I,
)
# Bits of the critical warning of an NVMe disk (NVM Express Base Specification, SMART / Health Information log), and the names that
# nvme-cli 2.11 and later give them with --verbose.
_CRITICAL = {
    0: "its spare capacity is below the threshold", 2: "its reliability is degraded by media errors", 3: "its media are read-only",
    4: "the backup of its volatile memory failed", 5: "its persistent memory region is read-only or unreliable",
}  # fmt: skip
_HOT = 1
_BIT_NAMES = ("available_spare", "temp_threshold", "reliability_degraded", "ro", "vmbu_failed", "pmr_ro")
# Attributes of a SATA disk whose count precedes failures or names lost data: {id: (beginnings of its names, words)}. A disk whose maker
# uses the number for something else has another name there.
_COUNTS = {
    5: (("reallocat", "retired"), "sectors were replaced"),
    184: (("end-to-end", "end_to_end", "ioedc"), "errors between its interface and its media"),
    187: (("reported_uncorrect", "uncorrect", "report"), "errors that it could not correct"),
    197: (("current_pending", "total_pending", "pending"), "sectors wait to be replaced"),
    198: (("offline_uncorrect", "uncorrect", "total_offl", "off-line"), "sectors cannot be read"),
}
# Attributes whose normalised value is the rated life that is left, in percent: {id: beginnings of its names}.
_LIFE_LEFT = {
    169: ("remaining_life",),
    173: ("wear_level", "media_wearout"),
    177: ("wear_level",),
    202: ("percent_life", "perc_rated_life", "remaining_life", "ssd_life"),
    231: ("ssd_life", "remaining_life", "percent_life"),
    233: ("media_wearout",),
}
_NO_NAME = ("", "unknown_attribute", "unknown_ssd_attribute")
# Results of self-tests that are failures: NVM Express Base Specification, Device Self-test log; SPC, Self-Test Results log page; ATA
# Command Set, self-test execution status.
_NVME_FAILED, _SCSI_FAILED, _ATA_FAILED = (5, 6, 7), (3, 4, 5, 6, 7), (3, 4, 5, 6, 7, 8)
# Additional sense code of a warning of a SCSI disk, which says which; 0x5d is the foretold failure.
_WARNING = 0x0B


class Smart(t.NamedTuple):
    """The state that a disk reports: problems as (reason code, words), and model and serial number as far as known. `unread` is why the
    disk, or a value of its answer, was not read, else "". `is_silent`: the disk is there and gave no answer, or one that is not
    understood; False if it was not asked, or has no such state."""

    problems: list[Problem]
    model: str = ""
    serial: str = ""
    unread: str = ""
    is_silent: bool = False


class _Answer:
    """The reading of one answer: problems, and values that are there and are not understood."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.unclear: list[str] = []

    def found(self, code: str, words: str) -> None:
        if (code, words) not in self.problems:
            self.problems.append((code, words))

    def value(self, of: t.Any, *path: str, required: bool = False) -> int | float | None:
        """Return the number at a path of names; None if it is missing, or is not understood, which is told. A missing one is told if it is
        `required`."""
        cell = _at(of, *path)
        if cell is None and not required:
            return None
        read = number(cell, ".".join(path))
        if isinstance(read, Absent) or read < 0:
            self.unclear.append(read.why if isinstance(read, Absent) else f"{'.'.join(path)} reads {read}")
            return None
        return read

    def smart(self, report: Object) -> Smart:
        unread = "; ".join(dict.fromkeys(self.unclear))[:200]
        return Smart(self.problems, _text(report, "model_name"), _text(report, "serial_number"), unread, bool(unread))


def smartctl(text: str, rc: int | None) -> Smart:
    """Read the output of `smartctl -j -a DEVICE` and its exit status."""
    report = _object(text)
    if report is None:
        return Smart([], unread="smartctl gave no JSON", is_silent=not _NOT_ASKED.search(text))
    for bit, why in _NOTHING_READ.items():
        if rc is None or rc >> bit & 1:
            listed = _at(report, "smartctl", "messages")
            unread = "; ".join(str(message.get("string")) for message in _objects(listed))[:200] or why
            return Smart([], unread=unread, is_silent=bit == 1 and not _NOT_ASKED.search(unread))
    answer, bits = _Answer(), rc or 0
    answer.unclear += [f"{name} reads {str(report[name])[:40]!r}" for name in _OBJECTS if not isinstance(report.get(name, {}), dict)]
    passed = _passed(report, answer)
    log = report.get("nvme_smart_health_information_log")
    if isinstance(log, dict):
        warning = _nvme(log, answer, _at(report, "smart_status", "nvme", "value"))
        known = any(code == "disk" for code, _words in answer.problems) or (bool(warning) and not answer.unclear)
    else:
        protocol = _at(report, "device", "protocol")
        # smartctl gives both for each such disk, unless it could not read them (bit 2 of its exit status).
        if passed is not None and protocol == "NVMe":
            answer.unclear.append("its health log is missing")
        elif protocol == "ATA" and bits >> 2 & 1 and "ata_smart_attributes" not in report:
            answer.unclear.append("its table of attributes could not be read")
        known = _is_hot(report, answer)
        _ata(report, answer)
        _scsi(report, answer)
    # A status that the log or the sense code explains is not said twice; for NVMe it is false for heat, too.
    if (passed is False or bits >> _STATUS_FAILED & 1) and not known:
        answer.problems.insert(0, ("disk", "its SMART status is FAILED"))
    if bits >> _ATTRIBUTE_FAILED & 1:
        answer.found("disk", "an attribute that foretells failure is at its limit")
    for bit, words in _PAST.items():
        if bits >> bit & 1:
            answer.found("disk_worn", words)
    _self_tests(report, answer, bool(bits >> _SELF_TEST & 1))
    _wear(report, answer)
    if not isinstance(log, dict) and passed is None and not answer.problems and not answer.unclear:
        return _without_state(report)
    return answer.smart(report)


def nvme_smart_log(text: str, rc: int | None, error: str = "") -> Smart:
    """Read the output of `nvme smart-log -o json DEVICE`, its exit status, which is 0 for a disk that fails, too, and what it wrote to
    standard error."""
    log = _object(text)
    if rc != 0 or log is None or "critical_warning" not in log:
        said = f": {' '.join(error.split())[:120]}" if error.strip() else ""
        is_silent = not _NOT_ASKED.search(f"{text} {error}")
        return Smart([], unread=f"nvme smart-log ended with status {rc} and gave no health log{said}", is_silent=is_silent)
    answer = _Answer()
    _nvme(log, answer)
    return answer.smart({})


def _passed(report: Object, answer: _Answer) -> bool | None:
    """Return whether the disk says that it is well; None if it says nothing."""
    cell = _at(report, "smart_status", "passed")
    words = {"true": True, "1": True, "passed": True, "ok": True, "false": False, "0": False, "failed": False}
    if cell is None:
        return None
    passed = words.get(str(cell).strip().lower())
    if passed is None:
        answer.unclear.append(f"smart_status.passed reads {str(cell)[:40]!r}")
    return passed


def _without_state(report: Object) -> Smart:
    """Return the answer for a disk that reports no state: one that is asked for it and keeps still, or has none."""
    model, serial = _text(report, "model_name"), _text(report, "serial_number")
    messages = "; ".join(str(message.get("string")) for message in _objects(_at(report, "smartctl", "messages")))
    if _NOT_ASKED.search(messages):
        return Smart([], model, serial, messages[:200])
    support = _at(report, "smart_support")
    if isinstance(support, dict) and support.get("available") is True:
        if support.get("enabled") is False:
            return Smart([], model, serial, "SMART is switched off in the disk (smartctl -s on)")
        return Smart([], model, serial, "the disk has SMART and did not report its state", True)
    if _at(report, "device", "protocol") == "NVMe":
        return Smart([], model, serial, "the disk did not give its health log", True)
    return Smart([], model, serial, "the disk does not report SMART")


def _nvme(log: Object, answer: _Answer, status: t.Any = None) -> int:
    """Read a health log and return its critical warning. The spare capacity is judged where the disk has a limit for it: some report 0 of 0
    and are well. `status` is the critical warning as smartctl gives it a second time."""
    warning = _critical_warning(log.get("critical_warning", status), answer)
    for bit, words in _CRITICAL.items():
        if warning >> bit & 1:
            answer.found("disk", words)
    if warning >> _HOT & 1:
        answer.found("disk_worn", "its temperature is beyond the threshold")
    if warning >> len(_BIT_NAMES):
        answer.unclear.append(f"critical_warning is {warning:#x}, with bits that are not known")
    groups = int(answer.value(log, "endurance_grp_critical_warning_summary") or 0)
    for bit, words in {0: "the spare capacity", 2: "the reliability", 3: "the media"}.items():
        if groups >> bit & 1:
            answer.found("disk", f"{words} of one of its endurance groups is critical")
    errors = answer.value(log, "media_errors", required=True)
    if errors:
        answer.found("disk_worn", f"{errors} errors of its media could not be corrected in its life")
    used = answer.value(log, "percentage_used" if "percentage_used" in log else "percent_used", required=True)
    _life(used, answer)
    spare, limit = (
        answer.value(log, *next(((name,) for name in names if name in log), (names[0],)))
        for names in (("available_spare", "avail_spare"), ("available_spare_threshold", "spare_thresh"))
    )
    if spare is not None and limit is not None and spare < limit <= 100 and not warning & 1:
        answer.found("disk_worn", f"{spare} % of its spare capacity is left, below its threshold of {limit} %")
    minutes = answer.value(log, "critical_comp_time")
    if minutes:
        answer.found("disk_worn", f"it was at its critical temperature for {minutes} minutes in its life")
    return warning


def _critical_warning(cell: t.Any, answer: _Answer) -> int:
    """Return the bits of a critical warning: a number, or an object with the number, the bits by name (0 and 1, or false and true), or
    both; of both the worse."""
    read: list[Value] = []
    if isinstance(cell, dict):
        named = {name: _bit(cell[name], f"critical_warning.{name}") for name in _BIT_NAMES if name in cell}
        read += [bit for bit in named.values() if isinstance(bit, Absent)]
        if named:
            read.append(sum(1 << _BIT_NAMES.index(name) for name, bit in named.items() if not isinstance(bit, Absent) and bit))
    if not isinstance(cell, dict) or "value" in cell or not read:
        read.append(number(cell, "critical_warning"))
    answer.unclear += [value.why for value in read if isinstance(value, Absent)]
    whole = [value for value in read if isinstance(value, int) and value >= 0]
    answer.unclear += [f"critical_warning reads {value}" for value in read if not is_absent(value) and value not in whole]
    warning = 0
    for value in whole:
        warning |= value
    return warning


def _bit(cell: t.Any, name: str) -> Value:
    return int(cell) if isinstance(cell, bool) else number(cell, name)


def _life(used: int | float | None, answer: _Answer) -> None:
    if used is not None and used >= 100:
        answer.found("disk_worn", f"{used} % of its rated life are used")


def _ata(report: Object, answer: _Answer) -> None:
    table = _at(report, "ata_smart_attributes", "table")
    if _at(report, "ata_smart_attributes") is not None and not isinstance(table, list):
        answer.unclear.append("ata_smart_attributes has no table")
    for row in _objects(table):
        which = number(row.get("id"))
        name = str(row.get("name") or "").strip().lower()
        if isinstance(which, Absent):
            answer.unclear.append(f"an attribute has no number ({which.why})")
            continue
        counted = _COUNTS.get(int(which))
        if counted and (name in _NO_NAME or name.startswith(counted[0])):
            count = _raw(row, answer)
            if count:
                answer.found("disk_worn", f"{count} {counted[1]}")
        _attribute_life(int(which), name, row, answer)
        if row.get("when_failed") == "now":
            is_foretold = _at(row, "flags", "prefailure") is True
            words = f"its attribute {which}{f' ({name})' if name else ''} is at its limit"
            answer.found("disk" if is_foretold else "disk_worn", words)
    if isinstance(table, list) and not all(isinstance(row, dict) for row in table):
        answer.unclear.append("ata_smart_attributes has rows that are none")


def _raw(row: Object, answer: _Answer) -> int | float | None:
    """Return the count of an attribute. Its raw value may have other counts in its upper bytes; smartctl's text begins with the count
    then, as in `8 (0 2)`."""
    label = f"attribute {row.get('id')}"
    cell = row.get("raw")
    text = _at(cell, "string")
    lead = re.match(r"\s*(\d[\d,]*)(?=\s*(?:\(|$|\s))", text) if isinstance(text, str) else None
    read = number(lead.group(1), label) if lead else number(cell if not isinstance(cell, dict) else cell.get("value"), label)
    if isinstance(read, Absent) or read < 0:
        answer.unclear.append(read.why if isinstance(read, Absent) else f"{label} reads {read}")
        return None
    return read


def _attribute_life(which: int, name: str, row: Object, answer: _Answer) -> None:
    names = _LIFE_LEFT.get(which)
    if names and (name == "" or name.startswith(names)):
        left = answer.value(row, "value", required=name != "")
        # Intel's disks end at 1.
        if left is not None and left <= 1:
            answer.found("disk_worn", f"its rated life is used up (attribute {which}, {name or 'without a name'}: {left} % are left)")


def _scsi(report: Object, answer: _Answer) -> None:
    for what in ("read", "write", "verify"):
        is_there = _at(report, "scsi_error_counter_log", what) is not None
        count = answer.value(report, "scsi_error_counter_log", what, "total_uncorrected_errors", required=is_there)
        if count:
            answer.found("disk_worn", f"{count} errors could not be corrected in its life ({what})")
    defects = answer.value(report, "scsi_grown_defect_list")
    if defects:
        answer.found("disk_worn", f"{defects} defects have grown on its media")
    pending = answer.value(report, "scsi_pending_defects", "count")
    if pending:
        answer.found("disk_worn", f"{pending} sectors wait to be replaced")


def _is_hot(report: Object, answer: _Answer) -> bool:
    """Return True if the status of a SCSI disk is bad only for its temperature, which is told."""
    code = answer.value(report, "smart_status", "scsi", "asc")
    words = str(_at(report, "smart_status", "scsi", "ie_string") or "")
    is_hot = code == _WARNING and "temperature" in words.lower()
    if is_hot:
        answer.found("disk_worn", f"it says: {words[:80].lower()}")
    elif code:
        answer.found("disk", f"it says: {words[:80].lower() or f'sense code {int(code):#04x}'}")
    return bool(code)


def _wear(report: Object, answer: _Answer) -> None:
    """Read what smartctl says of every kind of disk: wear, spare capacity and temperature."""
    for path in (("endurance_used", "current_percent"), ("scsi_percentage_used_endurance_indicator",)):
        _life(answer.value(report, *path), answer)
    spare, limit = (answer.value(report, "spare_available", name) for name in ("current_percent", "threshold_percent"))
    if spare is not None and limit is not None and spare < limit <= 100 and not any("spare" in words for _code, words in answer.problems):
        answer.found("disk_worn", f"{spare} % of its spare capacity is left, below its threshold of {limit} %")
    now = answer.value(report, "temperature", "current")
    paths = (
        ("temperature", "drive_trip"), ("temperature", "critical_limit_max"), ("temperature", "limit_max"),
        ("nvme_composite_temperature_threshold", "critical"),
    )  # fmt: skip
    limits = [limit for limit in (answer.value(report, *path) for path in paths) if limit]
    if now is not None and limits and now >= min(limits) and not any("temperature" in words for _code, words in answer.problems):
        answer.found("disk_worn", f"its temperature is {now} degrees C, and its limit {min(limits)}")


def _self_tests(report: Object, answer: _Answer, failed_once: bool) -> None:
    """Read the logs of self-tests, the newest first. The last word of the disk about itself counts: a test that failed and that no later
    one outdated."""
    last: bool | None = None  # whether the newest test that came to an end failed
    for kind in ("extended", "standard"):
        log = _at(report, "ata_smart_self_test_log", kind)
        total = answer.value(log, "error_count_total")
        if total is not None:
            last = bool(last) or total > (answer.value(log, "error_count_outdated") or 0)
            continue
        for row in _objects(_at(log, "table")):
            status = answer.value(row, "status", "value")
            if status is not None and (int(status) >> 4 == 0 or int(status) >> 4 in _ATA_FAILED):
                last = bool(last) or int(status) >> 4 in _ATA_FAILED
                break
    scsi = [report[name] for name in (f"scsi_self_test_{k}" for k in range(20)) if isinstance(report.get(name), dict)]
    for rows, failures in (
        ([_at(row, "result") for row in scsi], _SCSI_FAILED),
        ([_at(row, "self_test_result") for row in _objects(_at(report, "nvme_self_test_log", "table"))], _NVME_FAILED),
    ):
        for row in rows:
            result = answer.value(row, "value")
            if result is not None and (result == 0 or result in failures):
                last = bool(last) or result in failures
                break
    if last:
        answer.found("disk", "its last self-test failed")
    elif failed_once:
        answer.found("disk_worn", "a self-test of it failed")


def _at(of: t.Any, *path: str) -> t.Any:
    """Return what is at a path of names; None if nothing is."""
    for name in path:
        of = of.get(name) if isinstance(of, dict) else None
    return of


def _objects(rows: t.Any) -> list[Object]:
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _object(text: str) -> Object | None:
    """Return the JSON object in a text, which may have words of the tool before it."""
    for part in (text, text[text.find("{") : text.rfind("}") + 1]):
        try:
            parsed = json.loads(part)
        except (ValueError, RecursionError):
            continue
        return parsed if isinstance(parsed, dict) else None
    return None


def _text(of: Object, name: str) -> str:
    return str(of.get(name) or "")[:80]
