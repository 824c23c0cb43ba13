# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The database of the history: opens, creates and upgrades it. Every error is one sentence.

It is an SQLite file or PostgreSQL. There is one writer at a time, in one transaction; a reader sees the state at its start.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import sqlite3
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

if t.TYPE_CHECKING:
    import sqlalchemy

FILE = "history.db"
MIGRATIONS = pathlib.Path(__file__).resolve().parent / "migrations"
# Seconds to wait for another writer, and for a server that does not answer.
LOCKED_S = 60.0
CONNECT_S = 5
# The key of the advisory lock in PostgreSQL that writers hold: any unique number.
_LOCK = int.from_bytes(hashlib.sha256(b"gpufleet.acceptance history").digest()[:7], "big")
TOGETHER = 5000


class HistoryError(RunError):
    """The history cannot be read or written. The message is one sentence without secrets."""


def url_of(results_dir: str | os.PathLike[str], url: str = "") -> str:
    """Return the URL of the history: the one that was given, else a file in the results folder."""
    return url or f"sqlite:///{pathlib.Path(results_dir).absolute() / FILE}"


def is_there(results_dir: str | os.PathLike[str], url: str = "") -> bool:
    """Return True if there may be something to read, without connecting."""
    return bool(url) or (pathlib.Path(results_dir) / FILE).is_file()


class Store:
    """An open history. `make`: create it if it does not exist; without it, raise HistoryError then."""

    def __init__(self, url: str, make: bool = False, locked_s: float = LOCKED_S) -> None:
        if sa is None:
            raise HistoryError(
                "the history needs the Python package SQLAlchemy on the controller; install the collection's requirements.txt"
            )
        self.url = _parsed(url)
        self.locked_s = locked_s
        # The query part of a URL may hold secrets too.
        self.where = self.url.database if self._is_file else self.url.set(query={}).render_as_string(hide_password=True)
        with self._one_sentence():
            if self._is_file and not make and not pathlib.Path(str(self.url.database)).is_file():
                importer = collection.playbook("history_import")
                raise HistoryError(f"{self.where}: there is no history yet; {importer} makes it from the results folder")
            self.engine = self._engine()
            try:
                self._prepare()
            except BaseException:
                self.engine.dispose()
                raise

    @contextlib.contextmanager
    def reading(self) -> t.Iterator[sqlalchemy.Connection]:
        with self._one_sentence(), self.engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> t.Iterator[sqlalchemy.Connection]:
        """Open the only write transaction. It is committed as a whole, or not at all."""
        with self._one_sentence(), self.engine.connect().execution_options(writes=True) as connection, connection.begin():
            if not self._is_file:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            yield connection

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> t.Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def _is_file(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    def _engine(self) -> sqlalchemy.Engine:
        if not self._is_file:
            return sa.create_engine(
                self.url, connect_args={"connect_timeout": CONNECT_S, "options": f"-c lock_timeout={int(self.locked_s * 1000)}"}
            )
        engine = sa.create_engine(self.url, connect_args={"timeout": self.locked_s})

        @sa.event.listens_for(engine, "connect")
        def _connected(connection: t.Any, _record: t.Any) -> None:
            connection.isolation_level = None  # BEGIN is sent below: sqlite3 would send it too late, and without the lock
            _write_ahead(connection, self.locked_s)
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA cache_size=-16384")

        @sa.event.listens_for(engine, "begin")
        def _begun(connection: sqlalchemy.Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")

        return engine

    def _prepare(self) -> None:
        """Create the tables, or upgrade them."""
        with self.engine.connect() as connection:
            revision = _revision(connection)
        if revision == schema.REVISIONS[-1]:
            return
        with self.writing() as connection:
            revision = _revision(connection)  # somebody may have been faster
            if revision is None:
                schema.METADATA.create_all(connection)
                connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
                connection.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{schema.REVISIONS[-1]}')")
            elif revision not in schema.REVISIONS:
                raise HistoryError(
                    f"{self.where}: found schema {revision}, expected at most {schema.REVISIONS[-1]}: a newer version made it"
                )
            elif revision != schema.REVISIONS[-1]:
                _upgrade(connection)

    @contextlib.contextmanager
    def _one_sentence(self) -> t.Iterator[None]:
        """Turn an error of the database into a HistoryError of one sentence."""
        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            message = " ".join(str(getattr(error, "orig", None) or error).split())
            for secret in sorted(_secrets(self.url), key=len, reverse=True):
                message = message.replace(secret, "***")
            if "locked" in message or "lock timeout" in message:
                message = f"another process has been writing for more than {self.locked_s:g} s ({message})"
            raise HistoryError(f"history {self.where}: {message[:400]}") from error


def insert(connection: sqlalchemy.Connection, table: sqlalchemy.Table, rows: t.Iterable[t.Sequence[t.Any]]) -> int:
    """Insert rows with values in the order of the table's columns. Return their number. At most TOGETHER rows are in memory at a time."""
    names = [column.name for column in table.columns]
    count = 0
    if connection.dialect.name == "postgresql":
        cursor = t.cast("t.Any", connection.connection.driver_connection).cursor()
        quote = connection.dialect.identifier_preparer.quote
        with cursor.copy(f"COPY {quote(table.name)} ({', '.join(map(quote, names))}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
                count += 1
        return count
    quote = connection.dialect.identifier_preparer.quote
    text = f"INSERT INTO {quote(table.name)} ({', '.join(map(quote, names))}) VALUES ({', '.join('?' * len(names))})"
    for chunk in chunks(rows):
        connection.exec_driver_sql(text, t.cast("t.Any", [tuple(row) for row in chunk]))
        count += len(chunk)
    return count


T = t.TypeVar("T")


def chunks(items: t.Iterable[T], size: int = TOGETHER) -> t.Iterator[list[T]]:
    chunk: list[T] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def clean(text: t.Any) -> str:
    """Return a text that every database accepts. A node may send zero bytes and lone surrogates."""
    cleaned = str(text)
    if cleaned.isascii() and "\0" not in cleaned:
        return cleaned
    return cleaned.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def _secrets(url: sqlalchemy.URL) -> set[str]:
    """Return the secrets of a URL: the password, and the values after a ?, some of which are passwords too."""
    values = [of if isinstance(of, str) else " ".join(of) for name, of in url.query.items() if "pass" in name or name == "options"]
    return {text for text in (str(url.password or ""), *values) if text}


def _parsed(url: str) -> sqlalchemy.URL:
    expected = "acceptance_history_url: expected postgresql://USER:PASSWORD@HOST/DATABASE"
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError, TypeError):
        raise HistoryError(f"{expected}; what was found is no URL") from None
    name = parsed.get_backend_name()
    if name == "postgresql":
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            raise HistoryError(
                "acceptance_history_url: PostgreSQL needs the Python package psycopg on the controller; "
                "install the collection's requirements.txt"
            ) from error
        if "@" in (parsed.host or ""):  # a part of the password would be shown with the server's name
            raise HistoryError(f"{expected}; @ and / in a password are written as %40 and %2F")
        return parsed.set(drivername="postgresql+psycopg")
    if name != "sqlite" or not parsed.database or parsed.database == ":memory:":
        raise HistoryError(f"{expected}; found a URL of {name}")
    return parsed


def _write_ahead(connection: t.Any, seconds: float) -> None:
    """Switch SQLite to write-ahead logging, so that readers do not wait for a writer. Retry here, because SQLite does not wait for a
    lock."""
    end = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.05)


def _revision(connection: sqlalchemy.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return str(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar())


def _upgrade(connection: sqlalchemy.Connection) -> None:
    """Upgrade the tables by Alembic, which is imported only here."""
    try:
        from alembic.config import Config
        from alembic.runtime.environment import EnvironmentContext
        from alembic.script import ScriptDirectory
    except ImportError as error:
        raise HistoryError(
            "the history is of an older version, and bringing it up to date needs the Python package alembic on the controller; "
            "install the collection's requirements.txt"
        ) from error
    config = Config()
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory(str(MIGRATIONS), version_locations=[str(MIGRATIONS)])
    with EnvironmentContext(config, scripts, fn=lambda revision, _context: scripts._upgrade_revs("head", revision)) as environment:
        environment.configure(connection=connection, target_metadata=schema.METADATA)
        environment.run_migrations()
