# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The history in a real PostgreSQL: the same as in SQLite, two at once, killed in the middle of a run, away."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
import sqlalchemy as sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparing, folders, importing, searching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store
from harness import history_runs as runs
from harness.history_runs import Machine
from rigs.postgres import postgres

pytestmark = pytest.mark.skipif(
    postgres.programs() is None or os.geteuid() != 0,
    reason="needs root and the Debian package postgresql (tests/rigs/packages.py installs it)",
)


@pytest.fixture(scope="module")
def server() -> t.Iterator[postgres.Postgres]:
    with postgres.running() as made:
        yield made


@pytest.fixture
def url(server: postgres.Postgres) -> str:
    """An empty database."""
    with sa.create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("DROP DATABASE IF EXISTS history WITH (FORCE)")
        connection.exec_driver_sql("CREATE DATABASE history")
    return server.url.replace("/postgres", "/history")


@pytest.fixture
def results(tmp_path: pathlib.Path) -> pathlib.Path:
    for day in range(1, 4):
        runs.judged(tmp_path, day, runs.fleet(a=670.0 + day, b=660.0 + day))
    runs.judged(tmp_path, 4, {"a": Machine("a\0\ud800", {97: 671.0}), "new": Machine("b" * 32, {98: 500.0})})
    return tmp_path


def answers(store: Store) -> tuple[t.Any, ...]:
    found = searching.search(store, searching.Query())
    compared = comparing.compare(store, comparing.of_run(store, runs.run_id(3)), comparing.of_run(store, runs.run_id(4)))
    return found.runs, found.rows, compared, list(searching.all_series(store, runs.run_id(9)))


def test_it_says_what_sqlite_says(url: str, results: pathlib.Path) -> None:
    with Store(url, make=True) as ours, Store(f"sqlite:///{results}/same.db", make=True) as same:
        assert folders.bring(ours, str(results)) == folders.bring(same, str(results))
        assert folders.bring(ours, str(results)).new == []
        assert answers(ours) == answers(same)
        whom, what, points = next(iter(searching.all_series(ours, runs.run_id(3))))
        assert searching.series(ours, whom, what, before_run=runs.run_id(3)) == points


def test_two_at_once_and_one_that_is_killed_leave_everything_once(url: str, results: pathlib.Path) -> None:
    killed = os.fork()
    if not killed:
        insert = importing.insert

        def dies(connection: t.Any, table: t.Any, of: t.Any) -> int:
            count = insert(connection, table, of)
            if table.name == "metric":
                os._exit(9)
            return count

        importing.insert = dies
        with Store(url, make=True) as store:
            folders.bring(store, str(results))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == 9
    both = []
    for _ in range(3):
        child = os.fork()
        if not child:
            try:
                with Store(url, make=True) as store:
                    folders.bring(store, str(results))
                os._exit(0)
            finally:
                os._exit(1)
        both.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in both] == [0, 0, 0]
    with Store(url) as ours, Store(f"sqlite:///{results}/same.db", make=True) as same:
        folders.bring(same, str(results))
        assert answers(ours) == answers(same)


def test_a_server_that_is_away_is_a_note_and_what_is_missing_comes_later(
    server: postgres.Postgres, url: str, tmp_path: pathlib.Path
) -> None:
    wanted = {"acceptance_history": True, "acceptance_history_url": url}
    runs.judged(tmp_path, 1, runs.fleet(a=670.0), **wanted)
    with Store(url) as held:
        assert len(searching.search(held, searching.Query()).runs) == 1
        server.stop()
        with pytest.raises(HistoryError) as error:
            searching.search(held, searching.Query())
        assert postgres.PASSWORD not in str(error.value)
    done = runs.judge(runs.measured(tmp_path, 2, runs.fleet(a=670.0)), **wanted)
    assert done["accepted"] and any("sink history was not told of the judgement" in line for line in done["said"])
    assert postgres.PASSWORD not in str(done["said"])
    server.start()
    with Store(url) as store:
        assert folders.bring(store, str(tmp_path)).new == [runs.run_id(2)]


def test_what_somebody_may_not_is_said_without_the_password(url: str) -> None:
    with pytest.raises(HistoryError, match="password authentication failed") as error:
        Store(url.replace(postgres.PASSWORD, "wr0ng"), make=True)
    assert "wr0ng" not in str(error.value)
