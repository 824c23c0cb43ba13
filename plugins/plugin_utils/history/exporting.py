# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exports the history to files for other programs: CSV and JSON with one number per row, and Parquet if the package pyarrow is installed.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import tempfile
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import searching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store

# A row of a file: COLUMNS.
ExportedRow = dict[str, t.Any]
COLUMNS = (
    *("run", "planned_at", "subject", "kind", "identity", "simulated", "stage", "check", "variant", "verdict", "floor"),
    *("reason_code", "reason", "metric", "value", "unit"),
)
_NUMBERS, _TRUTHS = ("floor", "value"), ("simulated",)


def export(store: Store, query: searching.Query, path: str) -> int:
    """Write the matches of a query to a file in the format of its suffix: .csv, .json (one object per line) or .parquet. Return the number
    of rows. Only the rows of one run are in memory at a time, and the file appears when it is complete."""
    writers = {".csv": _csv, ".json": _json, ".parquet": _parquet}
    target = pathlib.Path(path)
    if target.suffix not in writers:
        raise HistoryError(f"file: found {path}, expected a name that ends with {', '.join(writers)}")
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".new-")
        os.close(handle)
        count = writers[target.suffix](temporary, (_numbers(rows) for _run, rows in searching.found_in_runs(store, query)))
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}") from error
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
    return count


def _numbers(rows: list[searching.FoundVerdict]) -> list[ExportedRow]:
    """Return a row for each number, and one for a verdict without any."""
    return [
        {
            **{name: value for name, value in row.items() if name in COLUMNS},
            "floor": row["floor"] if number["metric"] == row["metric"] else None, **number,
        }
        for row in rows
        for number in row["numbers"] or [searching.number_of(row)]
    ]  # fmt: skip


def _csv(path: str, runs: t.Iterable[list[ExportedRow]]) -> int:
    with open(path, "w", encoding="utf-8", newline="") as target:
        return write_csv(target, runs)


def as_csv(rows: list[searching.FoundVerdict]) -> str:
    """Return verdicts as CSV, with a row for each number."""
    target = io.StringIO(newline="")
    write_csv(target, [_numbers(rows)])
    return target.getvalue()


def write_csv(target: t.TextIO, runs: t.Iterable[list[ExportedRow]]) -> int:
    count = 0
    writer = csv.DictWriter(target, COLUMNS)
    writer.writeheader()
    for rows in runs:
        # A spreadsheet must not read a text from a node as a formula.
        writer.writerows(
            {name: f"'{of}" if isinstance(of, str) and of[:1] in "=+-@\t\r" and of else of for name, of in row.items()} for row in rows
        )
        count += len(rows)
    return count


def _json(path: str, runs: t.Iterable[list[ExportedRow]]) -> int:
    count = 0
    with open(path, "w", encoding="utf-8") as target:
        for rows in runs:
            target.writelines(json.dumps(row) + "\n" for row in rows)
            count += len(rows)
    return count


def _parquet(path: str, runs: t.Iterable[list[ExportedRow]]) -> int:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise HistoryError(
            "a Parquet file needs the Python package pyarrow on the controller: pip install pyarrow, or take .csv or .json"
        ) from error
    kinds = {**dict.fromkeys(_NUMBERS, pyarrow.float64()), **dict.fromkeys(_TRUTHS, pyarrow.bool_())}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in COLUMNS])
    count = 0
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for rows in runs:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
            count += len(rows)
    return count
