# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A history that is brought up to date, made smaller, and written for other programs."""

from __future__ import annotations

import csv
import json
import pathlib
import sys
import typing as t

import pytest
import sqlalchemy as sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import exporting, folders, pruning, schema, searching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.searching import Query
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store, url_of
from harness import history_runs as runs


@pytest.fixture
def results(tmp_path: pathlib.Path) -> pathlib.Path:
    for day, value in ((1, 660.0), (2, 670.0), (3, 674.0)):
        runs.judged(tmp_path, day, runs.fleet(a=value))
    later = runs.measured(tmp_path, 4, runs.fleet(a=690.0), created_at="2026-02-01T00:00:00Z")
    runs.judge(later)
    with Store(url_of(tmp_path), make=True) as store:
        assert folders.bring(store, str(tmp_path)).left_out == []
    return tmp_path


def tables(store: Store) -> dict[str, t.Any]:
    found = sa.inspect(store.engine)
    return {
        name: (
            [(c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(name)],
            found.get_pk_constraint(name)["constrained_columns"],
            sorted((str(index["name"]), str(index["column_names"])) for index in found.get_indexes(name)),
        )
        for name in sorted(found.get_table_names())
    }


def test_an_older_history_is_brought_up_to_date_and_is_then_as_a_new_one(results: pathlib.Path) -> None:
    with Store(url_of(results)) as store, store.writing() as connection:
        schema.month.drop(connection)
        schema.hardware.drop(connection)
        schema.part_name.drop(connection)
        connection.exec_driver_sql("DROP INDEX verdict_worse")
        connection.exec_driver_sql("ALTER TABLE verdict DROP COLUMN regressed")
        connection.exec_driver_sql("ALTER TABLE judgement DROP COLUMN word")
        connection.exec_driver_sql("ALTER TABLE run DROP COLUMN inventory")
        connection.exec_driver_sql(f"UPDATE run SET mode = 'quick' WHERE name = '{runs.run_id(2)}'")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    with Store(url_of(results)) as store, Store(f"sqlite:///{results}/new.db", make=True) as new:
        assert tables(store) == tables(new)
        assert len(searching.search(store, Query()).runs) == 4
        words = {run["run"]: (run["accepted"], run["word"]) for run in searching.runs(store)}
        assert words[runs.run_id(2)] == (False, "QUICK TEST PASSED") and words[runs.run_id(3)] == (True, "ACCEPTED")
        with store.reading() as connection:
            assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == schema.REVISIONS[-1]


def test_what_passed_and_was_not_proven_is_not_accepted_after_an_upgrade(results: pathlib.Path) -> None:
    fine, gates = "all 49 planned checks on 2 nodes are acceptable", "; gates of GPU sharing: P0 not proven, P1 proven"
    kept = [(True, fine + gates), (False, fine + gates), (False, "1 FAIL" + gates), (True, fine)]
    with Store(url_of(results)) as store, store.writing() as connection:
        schema.hardware.drop(connection)
        schema.part_name.drop(connection)
        connection.exec_driver_sql("DROP INDEX verdict_worse")
        connection.exec_driver_sql("ALTER TABLE judgement DROP COLUMN word")
        connection.exec_driver_sql("ALTER TABLE run DROP COLUMN inventory")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0003'")
        for day, (accepted, why) in enumerate(kept, 1):
            connection.exec_driver_sql(
                "UPDATE judgement SET accepted = ?, why = ? WHERE run_id = (SELECT id FROM run WHERE name = ?)",
                (accepted, why, runs.run_id(day)),
            )
    with Store(url_of(results)) as store:
        found = {run["run"]: (run["accepted"], run["word"]) for run in searching.runs(store)}
    unproven = (False, "PASSED, NOT PROVEN")
    assert [found[runs.run_id(day)] for day in (1, 2, 3, 4)] == [unproven, unproven, (False, "NOT ACCEPTED"), (True, "ACCEPTED")]


def test_every_migration_is_known_in_its_order() -> None:
    from alembic.script import ScriptDirectory
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import MIGRATIONS

    scripts = ScriptDirectory(str(MIGRATIONS), version_locations=[str(MIGRATIONS)])
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == schema.REVISIONS


def test_pruning_removes_whole_months_and_keeps_their_medians(results: pathlib.Path) -> None:
    with Store(url_of(results)) as store:
        would = pruning.prune(store, "2026-02-15")
        assert would == ([runs.run_id(day) for day in (1, 2, 3)], 12, 0) and len(searching.search(store, Query()).runs) == 4
        done = pruning.prune(store, "2026-02-15", really=True)
        assert done == (would.runs, 12, 4)
        assert [run["run"] for run in searching.search(store, Query()).runs] == [runs.run_id(4)]
        with store.reading() as connection:
            kept = connection.execute(
                sa.select(schema.month.c.month, schema.month.c.median, schema.month.c.least, schema.month.c.most, schema.month.c.runs)
                .join(schema.quantity, schema.quantity.c.id == schema.month.c.quantity_id)
                .where(schema.quantity.c.metric == "tflops")
            ).all()
            assert {tuple(row) for row in kept} == {("2026-01", 670.0, 660.0, 674.0, 3)}
            assert connection.execute(sa.select(sa.func.count()).select_from(schema.judgement)).scalar() == 4
        assert folders.bring(store, str(results)).new == [] and pruning.prune(store, "2026-02-15", really=True).runs == []
        with pytest.raises(HistoryError, match="older_than: found nothing"):
            pruning.prune(store, "")


def test_files_for_other_programs_have_every_number(results: pathlib.Path) -> None:
    with Store(url_of(results)) as store:
        assert exporting.export(store, Query(check="gemm"), str(results / "all.csv")) == 16
        assert exporting.export(store, Query(check="gemm"), str(results / "all.json")) == 16
        lines = list(csv.DictReader((results / "all.csv").read_text(encoding="utf-8").splitlines()))
        rows = [json.loads(line) for line in (results / "all.json").read_text().splitlines()]
        assert [(row["run"], row["metric"], float(row["value"])) for row in lines] == [
            (row["run"], row["metric"], row["value"]) for row in rows
        ]
        of = next(row for row in rows if row["metric"] == "tflops" and row["run"] == runs.run_id(1) and row["kind"] == "node")
        assert (of["subject"], of["value"], of["unit"], of["floor"], of["verdict"]) == ("a", 660.0, "TFLOPS", 636.5, "PASS")
        assert all(row["floor"] is None for row in rows if row["metric"] == "time_ms")
        with pytest.raises(HistoryError, match=r"file: found x.xls, expected a name that ends with .csv, .json, .parquet"):
            exporting.export(store, Query(), "x.xls")
        with pytest.raises(HistoryError, match="No such file or directory"):
            exporting.export(store, Query(), str(results / "no" / "x.csv"))
        with pytest.raises(HistoryError, match="node x is not in the history"):
            exporting.export(store, Query(node="x"), str(results / "x.csv"))
        assert not list(results.glob(".new-*")) and not (results / "x.csv").exists()


def test_a_parquet_file_is_read_by_others(results: pathlib.Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")  # not where only requirements.txt is
    with Store(url_of(results)) as store:
        count = exporting.export(store, Query(), str(results / "all.parquet"))
        exporting.export(store, Query(), str(results / "all.json"))
    table = parquet.read_table(results / "all.parquet")
    rows = [json.loads(line) for line in (results / "all.json").read_text().splitlines()]
    assert table.num_rows == len(rows) == count and table.column_names == list(exporting.COLUMNS)
    assert str(table.schema.field("value").type) == "double" and str(table.schema.field("simulated").type) == "bool"
    assert table.to_pylist() == [{name: row.get(name) for name in exporting.COLUMNS} for row in rows]
    whole = parquet.ParquetFile(results / "all.parquet").metadata
    assert whole.num_row_groups == len({row["run"] for row in rows}), "the rows of one run are held at a time"


def test_a_parquet_file_needs_its_package(results: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with Store(url_of(results)) as store, pytest.raises(HistoryError, match="needs the Python package pyarrow"):
        exporting.export(store, Query(), str(results / "x.parquet"))
    assert not (results / "x.parquet").exists()
