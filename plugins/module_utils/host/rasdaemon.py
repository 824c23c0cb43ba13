# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Uncorrected errors from before the last boot, which the kernel has forgotten and the database of rasdaemon has not.

Tables as rasdaemon 0.6 to 0.8 writes them (ras-record.c). This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.look import Look
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree

try:
    import sqlite3
except ImportError:  # a Python may be built without it
    sqlite3 = None  # type: ignore[assignment]

DATABASE = "/var/lib/rasdaemon/ras-mc_event.db"
# A machine with more events than this has been named long before; the last ones are read.
MOST_EVENTS = 10_000
# Bits of the status of a machine check bank, as a signed number too: not corrected; the state of the processor is corrupt.
_UNCORRECTED = 1 << 61 | 1 << 57

MEMORY, PCIE, PROCESSOR = "mc_event", "aer_event", "mce_record"
# {table: its columns for the part, the kind of error, and how often}
_COLUMNS = {
    MEMORY: ("label", "err_type", "err_count"), PCIE: ("dev_name", "err_type", "1"), PROCESSOR: ("bank", "status", "1"),
}  # fmt: skip


def look(tree: Tree, look: Look, table: str, days: float) -> None:
    """Look for uncorrected errors of the last `days` before the last boot in one of the tables MEMORY, PCIE and PROCESSOR.

    Those since boot are counted by the kernel itself. These are worth a look: the part may have been repaired. A machine without a
    database has nothing to look at.
    """
    if not tree.exists(DATABASE) or not days:
        return
    if sqlite3 is None:
        look.missed("rasdaemon", f"errors before the last boot: this Python has no sqlite3 to read {DATABASE}")
        return
    boot = re.search(r"(?m)^btime (\d+)$", tree.text("/proc/stat") or "")
    latest = float(boot.group(1)) if boot else None
    try:
        rows = _rows(tree.path(DATABASE), table)
    except sqlite3.Error as refusal:
        look.missed("rasdaemon", f"errors before the last boot: {DATABASE} cannot be read: {str(refusal)[:100]}")
        return
    look.saw(f"{table} of rasdaemon's database, {days:g} days before the last boot")
    last: dict[tuple[str, str], tuple[int, str]] = {}
    for stamp, part, kind, count in rows:
        error = _error(table, kind)
        at = _seconds(stamp)
        if error is None or at is None or (latest is not None and not latest - 86400 * days <= at < latest):
            continue
        key = error, str(part)[:100]
        last[key] = last.get(key, (0, ""))[0] + (count if isinstance(count, int) and count > 0 else 1), str(stamp)[:40]
    for (error, part), (count, stamp) in last.items():
        times = f", {count} times" if count > 1 else ""
        look.found("past_error", f"{_PLACES[table]}{part}: {error}{times}, the last on {stamp}, before the last boot (rasdaemon)")


_PLACES = {MEMORY: "memory module ", PCIE: "", PROCESSOR: "bank "}


def _rows(path: str, table: str) -> list[tuple[t.Any, ...]]:
    """Return (timestamp, part, kind, count) of the last events, the oldest first; none if there is no such table."""
    part, kind, count = _COLUMNS[table]
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=2)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone():
            return []
        query = f"SELECT timestamp, {part}, {kind}, {count} FROM {table} ORDER BY id DESC LIMIT ?"  # names are constants of this module
        return database.execute(query, (MOST_EVENTS,)).fetchall()[::-1]


def _error(table: str, kind: t.Any) -> str | None:
    """Return words for a kind of error; None if it was corrected, or only told."""
    if table == MEMORY:
        return "uncorrectable memory error" if kind in ("Uncorrected", "Fatal", "Deferred") else None
    if table == PCIE:
        return {"Uncorrected (Fatal)": "fatal PCIe error", "Uncorrected (Non-Fatal)": "PCIe error that was not fatal"}.get(kind)
    return "uncorrected machine check" if isinstance(kind, int) and kind & _UNCORRECTED else None


def _seconds(stamp: t.Any) -> float | None:
    """Return the time of a timestamp like `2026-11-20 10:11:12 +0000` in seconds since 1970, None if it is none."""
    try:
        return datetime.datetime.strptime(str(stamp), "%Y-%m-%d %H:%M:%S %z").timestamp()
    except ValueError:
        return None
