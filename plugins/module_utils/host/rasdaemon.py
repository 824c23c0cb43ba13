# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Uncorrected errors that rasdaemon wrote down: those before the last boot, which the kernel has forgotten, and those since, of which the
kernel's log may have lost the lines.

Tables as rasdaemon 0.6 to 0.8.4 writes them (ras-record.c; kinds of errors in ras-mc-handler.c, ras-aer-handler.c, ras-mce-handler.c,
ras-extlog-handler.c, ras-arm-handler.c, ras-non-standard-handler.c, ras-memory-failure-handler.c, ras-diskerror-handler.c,
ras-devlink-handler.c, ras-cxl-handler.c, ras-signal-handler.c). A version that lacks a table or a column has nothing there.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import time
import typing as t
import urllib.parse

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, number
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.standing import Event, standing
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree

try:
    import sqlite3
except ImportError:  # a Python may be built without it
    sqlite3 = None  # type: ignore[assignment]

# Where packages have the database, and a build of its source.
DATABASES = ("/var/lib/rasdaemon/ras-mc_event.db", "/usr/local/var/lib/rasdaemon/ras-mc_event.db")
# The checks that ask.
MEMORY, PCIE, PROCESSOR, DISKS = "memory", "pcie", "processor", "disks"
DAY = 86400.0
# Corrected errors of one memory module a day that are worth a look: where rasdaemon itself takes a page out of use (PAGE_CE_THRESHOLD).
CORRECTED_PER_DAY = 50
# A database of more rows than these is read from its end.
MOST_ROWS = 1_000_000
# Bits of the status of a machine check bank: not corrected; the state of the processor is corrupt (Intel SDM volume 3, 16.3.2.2). On AMD,
# by the vendors of arch/x86/include/asm/processor.h, also deferred and poison (AMD PPR, MCA_STATUS). A status of all ones is no status.
_UNCORRECTED, _OF_AMD = 1 << 61 | 1 << 57, 1 << 44 | 1 << 43
_AMD = (2, 9)
_ALL_ONES = (1 << 64) - 1
# Bits of an ARM processor error that say whether it was corrected, and whether that is known; and the same of its context.
_ARM_CORRECTED, _ARM_CORRECTED_KNOWN, _ARM_CORRUPT, _ARM_CORRUPT_KNOWN = 1 << 26, 1 << 4, 1 << 25, 1 << 3
# Errors by which data was lost; the others that are not fatal are answers to requests of software (host/pci.py, LOSES_DATA).
_LOSES_DATA = re.compile(
    r"data link protocol|poisoned tlp|flow control protocol|completion timeout|receiver overflow|malformed tlp|ecrc|"
    r"uncorrected internal|surprise",
    re.I,
)
# What the block layer answers without a fault of the disk (block/blk-core.c, blk_errors), and devices that are no disks of the machine:
# memory, floppy, loop, optical drives and the network (Documentation/admin-guide/devices.txt).
_NO_FAULT = re.compile(r"not supported|space allocation|retry|resource error", re.I)
_NO_DISKS = (1, 2, 7, 11, 43)

Row = t.Dict[str, t.Any]


class Error(t.NamedTuple):
    """An uncorrected error: the part, words, the reason code that it has if it happened since boot, and how often it happened."""

    part: str
    words: str
    code: str
    times: int = 1


class _Unclear(Exception):
    """A row whose severity is not understood."""


class Table(t.NamedTuple):
    """A table of the database: the check that asks it, what a row means, and a condition of SQL that leaves out most rows that mean
    nothing. `read` returns None for an error that was corrected, and raises _Unclear."""

    check: str
    read: t.Callable[[Row], Error | None]
    where: str = ""


def inspect(tree: Tree, report: CheckReport, check: str, days: float, corrected_per_day: float = 100.0) -> None:
    """Look for uncorrected errors of one of the checks MEMORY, PCIE, PROCESSOR and DISKS: of the last `days` before the last boot, and
    since. Those before are worth a look, for the part may have been repaired; a machine is not repaired without a restart.

    A machine without a database has nothing to look at.
    """
    path = next((path for path in DATABASES if tree.exists(path)), None)
    if path is None:
        return
    if sqlite3 is None:
        report.missed("rasdaemon", f"errors by rasdaemon: this Python has no sqlite3 to read {path}")
        return
    boot = re.search(r"(?m)^btime (\d+)$", tree.text("/proc/stat") or "")
    latest = float(boot.group(1)) if boot else None
    tables = {name: table for name, table in TABLES.items() if table.check == check}
    try:
        with contextlib.closing(_opened(tree.path(path))) as database:
            found, unclear = _errors(database, tables, latest, days)
            corrected = _corrected(database, check, latest, days, corrected_per_day)
    except sqlite3.Error as refusal:
        report.missed("rasdaemon", f"errors by rasdaemon: {path} cannot be read: {str(refusal)[:100]}")
        return
    report.saw(f"{', '.join(tables)} of rasdaemon's database, {days:g} days before the last boot and since")
    if unclear:
        report.silent("rasdaemon", f"errors by rasdaemon: {len(unclear)} rows are not understood, such as {unclear[0][:100]}")
    for (error, when), (count, stamp) in found.items():
        times = f", {count} times" if count > 1 else ""
        code = error.code if when == _SINCE else "past_error"
        report.found(code, f"{error.part}: {error.words}{times}, the last on {stamp}, {_WHEN[when]} (rasdaemon)")
    for code, words in corrected:
        report.found(code, f"{words} (rasdaemon)")


_BEFORE, _SINCE, _SOME_TIME = range(3)
_WHEN = ("before the last boot", "since boot", "at a time that cannot be read")


def _opened(path: str) -> sqlite3.Connection:
    quoted = urllib.parse.quote(path)
    database = sqlite3.connect(f"file:{quoted}?mode=ro", uri=True, timeout=2)
    try:
        database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.OperationalError:  # its log cannot be opened for reading where nothing may be written
        database.close()
        database = sqlite3.connect(f"file:{quoted}?mode=ro&immutable=1", uri=True, timeout=2)
    return database


def _errors(
    database: sqlite3.Connection, tables: dict[str, Table], latest: float | None, days: float
) -> tuple[dict[tuple[Error, int], tuple[int, str]], list[str]]:
    """Return {(error, when): (how often, time of the last)}, and what was not understood of the time since boot."""
    found: dict[tuple[Error, int], tuple[int, str]] = {}
    unclear: list[str] = []
    for name, table in tables.items():
        for row in _rows(database, name, table.where):
            stamp = row.get("timestamp")
            at = _seconds(stamp)
            when = _SOME_TIME if at is None else _SINCE if latest is not None and at >= latest else _BEFORE
            if at is not None and latest is not None and at < latest - DAY * days:
                continue
            try:
                error = table.read(row)
            except _Unclear as why:
                unclear += [f"{name}: {why}"] if when != _BEFORE else []
                continue
            if error is None:
                continue
            key = error._replace(times=1), when
            found[key] = found.get(key, (0, ""))[0] + error.times, str(stamp)[:40]
    return found, unclear


def _rows(database: sqlite3.Connection, table: str, where: str) -> list[Row]:
    """Return the rows of a table, the oldest first; none if there is no such table. Names are constants of this module."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone():
        return []
    for condition in (where, "") if where else ("",):
        query = f"SELECT * FROM {table} {f'WHERE {condition} ' if condition else ''}ORDER BY id DESC LIMIT ?"
        try:
            cursor = database.execute(query, (MOST_ROWS,))
            columns = [str(column[0]).lower() for column in cursor.description]
            rows = [dict(zip(columns, row)) for row in cursor]
        except sqlite3.OperationalError:
            if condition:
                continue  # a version without one of the columns: read all
            raise
        if table == "cxl_poison_event":
            rows.reverse()
            events = [Event((row.get("memdev"), row.get("dpa")), "poison", row.get("trace_type") != "Clear", row) for row in rows]
            return [event.data for event in standing(events)]
        return rows[::-1]
    return []


def _corrected(
    database: sqlite3.Connection, check: str, latest: float | None, days: float, pcie_per_day: float
) -> list[tuple[str, str]]:
    """Return findings of days on which a part had many corrected errors: the kernel's counters begin anew at boot, and a rate since a boot
    of long ago hides a day."""
    queries = {
        MEMORY: ("label", "SUM(err_count)", "mc_event", "err_type = 'Corrected'", CORRECTED_PER_DAY, "host_memory_corrected", "memory"),
        PCIE: (
            "dev_name", "COUNT(*)", "aer_event", "err_type = 'Corrected' AND err_msg NOT LIKE '%Advisory Non-Fatal%'", pcie_per_day,
            "pcie_corrected", "PCIe",
        ),
    }  # fmt: skip
    if check not in queries:
        return []
    part, count, table, where, most, code, kind = queries[check]
    query = (
        f"SELECT {part} AS part, substr(timestamp, 1, 10) AS day, {count} AS n FROM {table} WHERE {where} GROUP BY 1, 2 HAVING n > ? "
        "ORDER BY day"
    )
    try:
        rows = database.execute(query, (most,)).fetchall()
    except sqlite3.OperationalError:
        return []  # no such table or column
    first = (latest if latest is not None else time.time()) - DAY * (days + 1)
    worst: dict[str, tuple[int, str]] = {}
    for row in rows:
        name, date, n = str(row[0])[:100], str(row[1]), row[2]
        day = _seconds(f"{date} 23:59:59 +0000")
        if (day is None or day >= first) and isinstance(n, int):
            worst[name] = max(worst.get(name, (0, "")), (n, date))
    place = "memory module " if check == MEMORY else ""
    return [(code, f"{place}{name}: {n} corrected {kind} errors on {date}") for name, (n, date) in worst.items()]


def _seconds(stamp: t.Any) -> float | None:
    """Return the time of a timestamp like `2026-11-20 10:11:12 +0000` in seconds since 1970, None if it is none. The year 1970 is what
    rasdaemon writes where it has no time."""
    text = str(stamp).strip()
    for form in ("%Y-%m-%d %H:%M:%S %z", "%Y-%m-%d %H:%M:%S.%f %z", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d %H:%M:%S"):
        with contextlib.suppress(ValueError, OverflowError):
            at = datetime.datetime.strptime(text, form).timestamp()
            return at if at > 366 * DAY else None
    return None


# What the rows of each table mean --------------------------------------------------------------------------------------------


def _whole_number(row: Row, column: str) -> int | None:
    """Return the whole number in a column; None if it is missing or no number."""
    read = number(row.get(column), column)
    return None if isinstance(read, Absent) else int(read)


def _words(row: Row, *columns: str) -> str:
    texts = [str(row[column]).strip() for column in columns if row.get(column) not in (None, "")]
    return " ".join(dict.fromkeys(filter(None, texts)))[:100]


def _count(row: Row, column: str) -> int:
    return max(_whole_number(row, column) or 1, 1)


def _severity(kind: t.Any, bad: t.Sequence[str], good: t.Sequence[str]) -> bool:
    """Return True for a severity of uncorrected errors. Raise _Unclear for one that is not known."""
    word = str(kind or "").strip().lower()
    if word not in (*bad, *good):
        raise _Unclear(f"severity {str(kind)[:40]!r}")
    return word in bad


def _memory_controller(row: Row) -> Error | None:
    bad = ("uncorrected", "uncorrectable", "fatal", "deferred")
    if not _severity(row.get("err_type"), bad, ("corrected", "info", "corrected error", "correctable")):
        return None
    return Error(f"memory module {_words(row, 'label') or '?'}", "uncorrectable memory error", "host_memory", _count(row, "err_count"))


def _aer(row: Row) -> Error | None:
    kind = str(row.get("err_type") or "").strip().lower()
    fatal, nonfatal = ("uncorrected (fatal)", "fatal"), ("uncorrected (non-fatal)", "non-fatal", "nonfatal", "uncorrected")
    if not _severity(kind, (*fatal, *nonfatal), ("corrected", "corrected error")):
        return None
    part = _words(row, "dev_name") or "a device"
    if kind in fatal:
        return Error(part, "fatal PCIe error", "pcie_error")
    text = str(row.get("err_msg") or "")
    is_lost = bool(_LOSES_DATA.search(text))
    return Error(part, f"PCIe error that was not fatal{f' ({text[:60]})' if text else ''}", "pcie_error" if is_lost else "pcie_nonfatal")


def _machine_check(row: Row) -> Error | None:
    status = _whole_number(row, "status")
    if status is None:
        raise _Unclear(f"status {str(row.get('status'))[:40]!r}")
    status &= _ALL_ONES
    texts = _words(row, "error_msg", "mcistatus_msg").lower()
    is_amd = _whole_number(row, "cpuvendor") in _AMD or "deferred error" in texts
    if status == _ALL_ONES or not status & (_UNCORRECTED | (_OF_AMD if is_amd else 0)):
        return None
    cpu = f" of CPU {row['cpu']}" if row.get("cpu") is not None else ""
    name = _words(row, "bank_name", "mc_location")
    return Error(f"bank {row.get('bank')}{cpu}{f' ({name})' if name else ''}", "uncorrected machine check", "machine_check")


def _extlog(row: Row) -> Error | None:
    # Severities of UEFI: recoverable, fatal, corrected, informational.
    severity = _whole_number(row, "severity")
    if severity not in (0, 1, 2, 3):
        raise _Unclear(f"severity {str(row.get('severity'))[:40]!r}")
    part = f"memory module {_words(row, 'fru_text') or '?'}"
    return Error(part, "uncorrectable memory error", "host_memory", _count(row, "error_count")) if severity in (0, 1) else None


def _page(row: Row) -> Error | None:
    words = f"an uncorrectable memory error took the page out of use ({_words(row, 'page_type', 'action_result') or 'no result'})"
    return Error("memory", words, "host_memory")


def _firmware(row: Row) -> Error | None:
    if not _severity(row.get("severity"), ("fatal", "recoverable"), ("corrected", "informational")):
        return None
    return Error(_words(row, "fru_text") or "a part that the firmware does not name", "uncorrected hardware error", "machine_check")


def _arm(row: Row) -> Error | None:
    info = _whole_number(row, "error_info")
    if info is None or not info & (_ARM_CORRECTED_KNOWN | _ARM_CORRUPT_KNOWN):
        return None  # neither table nor firmware tells whether it was corrected
    is_corrected = not info & _ARM_CORRECTED_KNOWN or bool(info & _ARM_CORRECTED)
    if is_corrected and not (info & _ARM_CORRUPT_KNOWN and info & _ARM_CORRUPT):
        return None
    part = f"processor {row.get('mpidr')}" if row.get("mpidr") is not None else "a processor"
    return Error(part, "uncorrected processor error", "machine_check", _count(row, "error_count"))


def _program(row: Row) -> Error | None:
    # SIGBUS for memory that was consumed, or found, with an error (BUS_MCEERR_AR, BUS_MCEERR_AO).
    is_memory = _whole_number(row, "sig") == 7 and _whole_number(row, "code") in (4, 5)
    return Error("memory", f"an uncorrectable error hit the program {_words(row, 'comm') or '?'}", "host_memory") if is_memory else None


def _device(row: Row) -> Error | None:
    # drivers/net/ethernet/mellanox/mlx5/core/health.c has the reporters fw (a syndrome) and fw_fatal (its firmware stopped).
    reporter = _words(row, "reporter_name")
    if reporter not in ("fw", "fw_fatal"):
        return None
    part = f"{_words(row, 'driver_name') or 'device'} {_words(row, 'dev_name')}"
    return Error(part, f"error of its firmware ({reporter})", "nic_fault" if reporter == "fw_fatal" else "hardware_corrected")


def _disk(row: Row) -> Error | None:
    dev, error, kind = _words(row, "dev"), _words(row, "error"), str(row.get("rwbs") or "")
    major = _whole_number({"major": dev.partition(":")[0]}, "major")
    # A disk refuses a discard (D), or an operation without a letter of its own such as writing zeros (N), that it does not have.
    is_refusal = error.lower() == "critical target error" and bool(re.match(r"F?[DN]|.*Z", kind))
    if major in _NO_DISKS or _NO_FAULT.search(error) or is_refusal:
        return None
    return Error(f"disk {dev}", f"{error or 'error'} ({kind or 'unknown operation'})", "disk")


def _poison(row: Row) -> Error | None:
    return Error(f"CXL memory {_words(row, 'memdev', 'host')}", "poisoned memory", "host_memory")


def _cxl_error(row: Row) -> Error | None:
    return Error(f"CXL memory {_words(row, 'memdev', 'host')}", "uncorrectable error of its link or data", "host_memory")


def _cxl_log(row: Row) -> Error | None:
    if not _severity(row.get("log_type"), ("failure", "fatal"), ("informational", "warning", "unknown")):
        return None
    return Error(f"CXL memory {_words(row, 'memdev', 'host')}", f"event of its log of {_words(row, 'log_type').lower()}s", "host_memory")


# Tables of makers (hip08_..., amp_..., nvidia_ns_event ...) decode rows that stand in non_standard_event, too.
TABLES: dict[str, Table] = {
    "mc_event": Table(MEMORY, _memory_controller, "err_type IS NOT 'Corrected'"),
    "extlog_event": Table(MEMORY, _extlog, "severity IS NOT 2"),
    "memory_failure_event": Table(MEMORY, _page),
    "signal_event": Table(MEMORY, _program),
    "cxl_poison_event": Table(MEMORY, _poison),
    "cxl_aer_ue_event": Table(MEMORY, _cxl_error),
    "cxl_generic_event": Table(MEMORY, _cxl_log),
    "cxl_general_media_event": Table(MEMORY, _cxl_log),
    "cxl_dram_event": Table(MEMORY, _cxl_log),
    "cxl_memory_module_event": Table(MEMORY, _cxl_log),
    "aer_event": Table(PCIE, _aer, "err_type IS NOT 'Corrected'"),
    "mce_record": Table(
        PROCESSOR,
        _machine_check,
        f"typeof(status) <> 'integer' OR (status & {_UNCORRECTED | _OF_AMD}) <> 0",
    ),
    "arm_event": Table(PROCESSOR, _arm),
    "non_standard_event": Table(PROCESSOR, _firmware, "severity IS NOT 'Corrected'"),
    "devlink_event": Table(PROCESSOR, _device),
    "disk_errors": Table(DISKS, _disk),
}
