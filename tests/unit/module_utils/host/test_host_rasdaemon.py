# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rasdaemon's database: every table, every severity, before and since boot, with the columns of every version."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import rasdaemon
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from harness.machine_tree import MachineTree

Found = t.Dict[str, t.Any]
BOOT = 1_790_000_000  # 2026-09-21 14:13:20 +0000
DAY = 86400
UC, PCC, VALID, DEFERRED, POISON = 1 << 61, 1 << 57, 1 << 63, 1 << 44, 1 << 43


@pytest.fixture
def machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> MachineTree:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine = MachineTree(tmp_path / "root")
    machine.write("proc/stat", f"cpu 1\nbtime {BOOT}\n")
    return machine


def stamp(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime(at))


def written(machine: MachineTree, table: str, rows: t.Sequence[dict[str, t.Any]]) -> None:
    """Write rows into a table with just their columns."""
    path = machine.path("var/lib/rasdaemon/ras-mc_event.db")
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {', '.join(rows[0])})")
        for row in rows:
            database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
        database.commit()


CHECKS = {rasdaemon.MEMORY: "memory", rasdaemon.PCIE: "pcie", rasdaemon.PROCESSOR: "kernel", rasdaemon.DISKS: "storage"}


def ask(machine: MachineTree, check: str, days: float = 30.0) -> Found:
    params = {"checks": [{"check": CHECKS[check], "variant": ""}], "pcie_corrected": 100.0, "ras_days": days}
    (found,) = host_health.probe(params, Node(60, root=str(machine.root)))
    return found


def codes(found: Found) -> list[str]:
    return [one["code"] for one in found["context"].get("findings", []) if "rasdaemon" in one["text"]]


def signed(status: int) -> int:
    return status - (1 << 64) if status >> 63 else status


# (table, columns of a row, the code that it has since boot, None for nothing)
CASES: list[tuple[str, dict[str, t.Any], str | None]] = [
    *(("mc_event", {"err_type": kind, "label": "A1"}, "host_memory") for kind in ("Uncorrected", "Fatal", "Deferred", "FATAL")),
    *(("mc_event", {"err_type": kind, "label": "A1", "err_count": 1}, None) for kind in ("Corrected", "Info", "corrected")),
    ("mc_event", {"err_type": "Uncorrected"}, "host_memory"),
    *(("extlog_event", {"severity": severity, "fru_text": "A1"}, "host_memory" if severity < 2 else None) for severity in range(4)),
    ("memory_failure_event", {"pfn": "0x12", "page_type": "dirty LRU page", "action_result": "Recovered"}, "host_memory"),
    ("memory_failure_event", {"pfn": "0x12"}, "host_memory"),
    ("signal_event", {"sig": 7, "code": 4, "comm": "python3"}, "host_memory"),
    ("signal_event", {"sig": 7, "code": 2, "comm": "python3"}, None),
    ("signal_event", {"sig": 11, "code": 4, "comm": "python3"}, None),
    ("cxl_poison_event", {"memdev": "mem0", "trace_type": "List", "dpa": 4096}, "host_memory"),
    ("cxl_poison_event", {"memdev": "mem0", "trace_type": "Clear", "dpa": 4096}, None),
    ("cxl_aer_ue_event", {"memdev": "mem0", "error_status": 1}, "host_memory"),
    ("cxl_aer_ce_event", {"memdev": "mem0", "error_status": 1}, None),
    *(
        (f"cxl_{table}_event", {"memdev": "mem0", "log_type": kind}, code)
        for table in ("generic", "general_media", "dram", "memory_module")
        for kind, code in (("Failure", "host_memory"), ("Fatal", "host_memory"), ("Warning", None), ("Informational", None))
    ),
    ("aer_event", {"dev_name": "0000:17:00.0", "err_type": "Uncorrected (Fatal)", "err_msg": "Surprise Link Down"}, "pcie_error"),
    ("aer_event", {"dev_name": "0000:17:00.0", "err_type": "Uncorrected (Fatal)"}, "pcie_error"),
    *(
        ("aer_event", {"dev_name": "0000:17:00.0", "err_type": "Uncorrected (Non-Fatal)", "err_msg": message}, code)
        for message, code in (
            ("Poisoned TLP", "pcie_error"), ("Completion Timeout", "pcie_error"), ("ECRC", "pcie_error"), ("Malformed TLP", "pcie_error"),
            ("Receiver Overflow", "pcie_error"), ("Uncorrected Internal", "pcie_error"), ("Data Link Protocol", "pcie_error"),
            ("Flow Control Protocol", "pcie_error"), ("Unsupported Request", "pcie_nonfatal"), ("Completer Abort", "pcie_nonfatal"),
            ("Unexpected Completion", "pcie_nonfatal"), ("ACS Violation", "pcie_nonfatal"),
            ("Unsupported Request Poisoned TLP", "pcie_error"),
        )
    ),
    ("aer_event", {"dev_name": "0000:17:00.0", "err_type": "Corrected", "err_msg": "Receiver Error"}, None),
    *(
        ("mce_record", {"status": signed(VALID | bits), "bank": 7, "cpu": 3, "cpuvendor": vendor}, code)
        for bits, vendor, code in (
            (UC, 0, "machine_check"), (PCC, 0, "machine_check"), (UC | PCC, 2, "machine_check"), (0, 0, None), (0, 2, None),
            (DEFERRED, 2, "machine_check"), (POISON, 2, "machine_check"), (DEFERRED, 9, "machine_check"), (DEFERRED | POISON, 0, None),
        )
    ),
    ("mce_record", {"status": -1, "bank": 7, "cpuvendor": 2}, None),
    ("mce_record", {"status": signed(VALID | UC), "bank": 7}, "machine_check"),
    ("mce_record", {"status": signed(VALID | DEFERRED), "bank": 7, "error_msg": "Deferred error, no action required."}, "machine_check"),
    ("mce_record", {"status": str(VALID | UC), "bank": 7}, "machine_check"),
    ("mce_record", {"status": hex(VALID | UC), "bank": 7}, "machine_check"),
    *(
        ("arm_event", {"mpidr": 4, "error_count": 1, "error_info": info}, code)
        for info, code in (
            (1 << 4, "machine_check"), (1 << 4 | 1 << 26, None), (1 << 3 | 1 << 25, "machine_check"), (1 << 3, None), (0, None),
            (1 << 4 | 1 << 26 | 1 << 3 | 1 << 25, "machine_check"),
        )
    ),
    ("arm_event", {"mpidr": 4}, None),
    *(
        ("non_standard_event", {"severity": severity, "fru_text": "CPU0"}, code)
        for severity, code in (("Fatal", "machine_check"), ("Recoverable", "machine_check"), ("Corrected", None), ("Informational", None))
    ),
    ("devlink_event", {"driver_name": "mlx5_core", "dev_name": "0000:31:00.0", "reporter_name": "fw_fatal"}, "nic_fault"),
    ("devlink_event", {"driver_name": "mlx5_core", "dev_name": "0000:31:00.0", "reporter_name": "fw"}, "hardware_corrected"),
    ("devlink_event", {"driver_name": "mlx5_core", "dev_name": "0000:31:00.0", "reporter_name": "tx"}, None),
    *(
        ("disk_errors", {"dev": dev, "error": error, "rwbs": kind, "sector": 1}, code)
        for dev, error, kind, code in (
            ("8:0", "I/O error", "R", "disk"), ("259:0", "critical medium error", "RA", "disk"), ("8:0", "timeout error", "WS", "disk"),
            ("8:0", "critical target error", "R", "disk"), ("8:0", "critical target error", "D", None),
            ("8:0", "critical target error", "DE", None), ("8:0", "critical target error", "N", None), ("8:0", "I/O error", "D", "disk"),
            ("8:0", "protection error", "W", "disk"), ("8:0", "critical nexus error", "R", "disk"),
            ("8:0", "recoverable transport error", "R", "disk"), ("8:0", "operation not supported error", "W", None),
            ("8:0", "critical space allocation error", "W", None), ("8:0", "nonblocking retry error", "R", None),
            ("11:0", "I/O error", "R", None), ("2:0", "I/O error", "R", None), ("7:0", "I/O error", "R", None),
        )
    ),
]  # fmt: skip
WHENS = {"since boot": BOOT + 3 * DAY, "before": BOOT - 3 * DAY, "long ago": BOOT - 60 * DAY, "unreadable": None, "none": 0}
IDS = [f"{table}-{next(iter(row.values()))}-{number}" for number, (table, row, _code) in enumerate(CASES)]


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize(("table", "row", "code"), CASES, ids=IDS)
def test_a_row_of_every_table(machine: MachineTree, table: str, row: dict[str, t.Any], code: str | None, when: str) -> None:
    at = WHENS[when]
    written(machine, table, [{"timestamp": "yesterday" if at is None else stamp(at), **row}])
    check = rasdaemon.TABLES[table].check if table in rasdaemon.TABLES else rasdaemon.MEMORY
    found = ask(machine, check)
    expected = {"since boot": code, "long ago": None}.get(when, code and "past_error")
    assert codes(found) == ([expected] if expected else []), found
    assert "rasdaemon" not in found["context"]["not_looked_for"]


def test_an_error_of_last_week_on_a_machine_that_is_up_for_400_days(machine: MachineTree) -> None:
    now = time.time()
    machine.write("proc/stat", f"btime {int(now - 400 * DAY)}\n")
    machine.write("dev/kmsg", "6,90000000,34000000000000,-;usb 1-1: new device\n")  # the ring begins long after boot
    written(machine, "mc_event", [{"timestamp": stamp(now - 7 * DAY), "err_type": "Uncorrected", "label": "P1-DIMMB1", "err_count": 1}])
    found = ask(machine, rasdaemon.MEMORY, days=0)
    assert (found["outcome"], found["reason_code"]) == ("error", "host_memory") and "P1-DIMMB1" in found["reason"]


def test_an_error_before_two_million_corrected_ones(machine: MachineTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rasdaemon, "MOST_ROWS", 100)
    rows = [{"timestamp": stamp(BOOT + DAY), "err_type": "Uncorrected", "label": "A1", "err_count": 1}]
    rows += [{"timestamp": stamp(BOOT + 2 * DAY), "err_type": "Corrected", "label": "A1", "err_count": 1}] * 500
    written(machine, "mc_event", rows)
    assert codes(ask(machine, rasdaemon.MEMORY)) == ["host_memory", "host_memory_corrected"]


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("mc_event", {"err_type": "Terrible"}), ("mc_event", {"err_type": None}), ("mc_event", {"label": "A1"}),
        ("aer_event", {"err_type": "Unknown severity"}), ("mce_record", {"status": "x"}), ("mce_record", {"bank": 1}),
        ("extlog_event", {"severity": 9}), ("extlog_event", {"severity": None}), ("non_standard_event", {"severity": "Odd"}),
        ("cxl_generic_event", {"log_type": "?"}),
    ],
)  # fmt: skip
def test_a_severity_that_is_not_understood(machine: MachineTree, table: str, row: dict[str, t.Any]) -> None:
    written(machine, table, [{"timestamp": stamp(BOOT + DAY), **row}])
    found = ask(machine, rasdaemon.TABLES[table].check)
    assert (found["outcome"], found["reason_code"]) == ("error", "no_answer") and "not understood" in found["reason"]


@pytest.mark.parametrize(
    ("text", "is_time"),
    [
        ("2026-11-20 10:11:12 +0000", True), ("2026-11-20 10:11:12 +0530", True), ("2026-11-20 10:11:12", True),
        ("2026-11-20T10:11:12+0000", True), ("1970-01-01 00:00:00 +0000", False), ("", False), (None, False), (17, False), ("x", False),
    ],
)  # fmt: skip
def test_times_of_rasdaemon_are_read_in_each_form(text: t.Any, is_time: bool) -> None:
    assert (rasdaemon._seconds(text) is not None) == is_time


def test_poison_that_was_cleared_later_is_no_error(machine: MachineTree) -> None:
    rows = [
        {"timestamp": stamp(BOOT + number), "memdev": "mem0", "trace_type": kind, "dpa": dpa}
        for number, (kind, dpa) in enumerate((("List", 1), ("List", 2), ("Clear", 1)))
    ]
    written(machine, "cxl_poison_event", rows)
    assert codes(ask(machine, rasdaemon.MEMORY)) == ["host_memory"]


@pytest.mark.parametrize(
    ("many", "message", "is_found"), [(150, "Receiver Error", True), (99, "Receiver Error", False), (150, "Advisory Non-Fatal", False)]
)
def test_a_day_with_many_corrected_pcie_errors(machine: MachineTree, many: int, message: str, is_found: bool) -> None:
    day = (BOOT // DAY + 200) * DAY
    row = {"timestamp": stamp(day + 3600), "dev_name": "0000:17:00.0", "err_type": "Corrected", "err_msg": message}
    written(machine, "aer_event", [row] * many)
    assert codes(ask(machine, rasdaemon.PCIE)) == (["pcie_corrected"] if is_found else [])


@pytest.mark.parametrize(
    ("count", "at", "is_found"), [(60, -2 * DAY, True), (40, -2 * DAY, False), (6000, -90 * DAY, False), (60, DAY, True)]
)
def test_a_day_with_many_corrected_memory_errors(machine: MachineTree, count: int, at: int, is_found: bool) -> None:
    """The kernel's counters are 0 again after a restart."""
    written(machine, "mc_event", [{"timestamp": stamp(BOOT + at), "err_type": "Corrected", "label": "A1", "err_count": count}])
    assert codes(ask(machine, rasdaemon.MEMORY)) == (["host_memory_corrected"] if is_found else [])


def test_without_the_time_of_the_last_boot_every_error_is_of_the_past(machine: MachineTree) -> None:
    machine.write("proc/stat", "cpu 1\n")
    written(machine, "mc_event", [{"timestamp": stamp(BOOT + DAY), "err_type": "Fatal", "label": "A1"}])
    assert codes(ask(machine, rasdaemon.MEMORY)) == ["past_error"]
