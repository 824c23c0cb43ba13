# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The actions of a laptop: one file (SQLite), an inventory, runs over SSH.

People and the controller write other columns, so nobody undoes what the other has done. What is deleted leaves its name for whoever follows
the changes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import secrets
import sqlite3
import threading
import time
import typing as t
import uuid

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, calendar, hosts, request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import Action, Filters, NodeInfo, Page, Status
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.controller import StoredAction
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

# How long somebody waits for another one's write.
BUSY_S = 20.0
FOLLOW_S = 0.5
# How long an inventory that was read holds, and how many times as long as it took to read.
HOSTS_S, HOSTS_SHARE = 5.0, 20.0
MOST_LISTED = 500
# Deleted actions whose names are kept for those who follow.
TOMBSTONES = 10_000

# By what actions are sorted (actions.SORTS), as the table says it.
ORDERS = {
    "name": "name", "phase": "json_extract(status, '$.phase')", "verdict": "json_extract(status, '$.verdict')", "created": "created",
    "who": "who",
}  # fmt: skip

_SCHEMA = """
CREATE TABLE IF NOT EXISTS actions (
    uid TEXT PRIMARY KEY, name TEXT NOT NULL, spec TEXT NOT NULL, status TEXT NOT NULL, created TEXT NOT NULL, number INTEGER NOT NULL,
    who TEXT NOT NULL, schedule TEXT NOT NULL, deleting INTEGER NOT NULL DEFAULT 0, gone INTEGER NOT NULL DEFAULT 0,
    version INTEGER NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS names ON actions (name) WHERE gone = 0;
CREATE INDEX IF NOT EXISTS versions ON actions (version);
CREATE TABLE IF NOT EXISTS counter (only INTEGER PRIMARY KEY CHECK (only = 1), version INTEGER NOT NULL);
INSERT OR IGNORE INTO counter VALUES (1, 0);
"""


class LocalActions:
    """Keeps actions in a folder, for whoever shows them and for the controller."""

    def __init__(self, folder: pathlib.Path, inventory: str, clock: t.Callable[[], float] = time.time) -> None:
        self.file = folder / "console.db"
        self.inventory = inventory
        self.clock = clock
        self._mine = threading.local()
        self._changed = threading.Event()
        # Until when it holds, and what it says.
        self._hosts: t.Tuple[float, t.Sequence[NodeInfo]] = (0.0, ())
        self._reading = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        with self._db() as db:
            db.executescript(_SCHEMA)

    # The file ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _db(self) -> t.Iterator[sqlite3.Connection]:
        """A connection of this thread; every trouble is one sentence."""
        try:
            if not hasattr(self._mine, "db"):
                self._mine.db = sqlite3.connect(self.file, timeout=BUSY_S, isolation_level=None)
                self._mine.db.row_factory = sqlite3.Row
                self._mine.db.execute("PRAGMA journal_mode = WAL")
            yield self._mine.db
        except sqlite3.Error as error:
            raise actions.Unavailable(f"{self.file}: {error}") from error

    @contextlib.contextmanager
    def _write(self) -> t.Iterator[sqlite3.Connection]:
        """All of it or nothing."""
        with self._db() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                db.execute("ROLLBACK")
                raise
        self._changed.set()

    def _version(self, db: sqlite3.Connection) -> int:
        db.execute("UPDATE counter SET version = version + 1")
        return int(db.execute("SELECT version FROM counter").fetchone()[0])

    def _row(self, db: sqlite3.Connection, name: str) -> sqlite3.Row:
        row: sqlite3.Row | None = db.execute("SELECT * FROM actions WHERE name = ? AND gone = 0", (name,)).fetchone()
        if row is None:
            raise actions.NotFound(f"action {ascii(name)[:80]} does not exist")
        return row

    # For people: actions.Actions ----------------------------------------------------------------------------------------

    def create(self, name: str | None, spec: PlainData, who: str, namespace: str = "") -> Action:
        checked = request.read(spec, self.limits(self.known()), namespace)
        if name is None:
            name = f"{checked.kind}-{secrets.token_hex(4)}"
        elif not actions.NAME.match(name):
            expected = "up to 63 small letters, digits and dashes, none at its ends"
            raise request.RequestError([request.Problem("metadata.name", request.shown(name), expected)])
        with self._write() as db:
            self._insert(db, name, spec, who, "")
            return _action(self._row(db, name))

    def _insert(self, db: sqlite3.Connection, name: str, spec: t.Mapping[str, t.Any], who: str, schedule: str) -> None:
        if db.execute("SELECT 1 FROM actions WHERE name = ? AND gone = 0", (name,)).fetchone():
            raise actions.Conflict(f"action {name} exists already")
        version = self._version(db)
        values = (uuid.uuid4().hex, name, json.dumps(spec), json.dumps(_told(Status())), calendar.text(self.clock()), version)
        columns = "uid, name, spec, status, created, number, who, schedule, version"
        db.execute(f"INSERT INTO actions ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (*values, who, schedule, version))

    def get(self, name: str, namespace: str = "") -> Action:
        with self._db() as db:
            return _action(self._row(db, name))

    def list(self, filters: Filters) -> Page:
        where = ["gone = 0"]
        values: t.List[str | int] = []
        for column, required in (("phase", filters.phase), ("verdict", filters.verdict)):
            if required:
                where.append(f"json_extract(status, '$.{column}') = ?")
                values.append(required)
        if filters.kind:
            where.append("json_type(spec, '$.' || ?) = 'object'")
            values.append(filters.kind if filters.kind in request.KINDS else "none")
        if filters.text:
            part = filters.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            where.append("(name LIKE ? ESCAPE '\\' OR who LIKE ? ESCAPE '\\' OR spec LIKE ? ESCAPE '\\')")
            values += [f"%{part}%"] * 3
        name, down = actions.ordered(filters.sort)
        by, order = ORDERS[name], "DESC" if down else "ASC"
        if filters.after:
            value, place = actions.marked(filters.after)
            where.append(f"({by}, number) {'<' if down else '>'} (?, ?)")
            values += [value, _number(place)]
        limit = max(1, min(filters.limit, MOST_LISTED))
        with self._db() as db:
            query = f"SELECT * FROM actions WHERE {' AND '.join(where)} ORDER BY {by} {order}, number {order} LIMIT {limit + 1}"
            rows = db.execute(query, values).fetchall()
        listed = [_action(row) for row in rows[:limit]]
        return Page(listed, actions.mark(actions.SORTS[name](listed[-1]), str(rows[limit - 1]["number"])) if len(rows) > limit else "")

    def set(self, name: str, *, suspend: bool | None = None, cancel: bool | None = None, namespace: str = "") -> Action:
        with self._write() as db:
            row = self._row(db, name)
            spec = json.loads(row["spec"])
            if cancel is False and spec.get("cancel"):
                raise actions.Conflict(f"action {name} is cancelled and stays so")
            spec.update({key: value for key, value in (("suspend", suspend), ("cancel", cancel)) if value is not None})
            change = (json.dumps(spec), self._version(db), row["uid"])
            db.execute("UPDATE actions SET spec = ?, version = ? WHERE uid = ?", change)
            return _action(self._row(db, name))

    def delete(self, name: str, namespace: str = "") -> None:
        with self._write() as db:
            row = self._row(db, name)
            children = db.execute("SELECT uid FROM actions WHERE schedule = ? AND gone = 0", (name,)).fetchall()
            for uid in (row["uid"], *(child["uid"] for child in children)):
                db.execute("UPDATE actions SET deleting = 1, version = ? WHERE uid = ?", (self._version(db), uid))

    def changes(self, since: str = "") -> t.Iterator[t.Tuple[str, Action]]:
        version = _number(since)
        while True:
            with self._db() as db:
                newest = db.execute("SELECT version FROM counter").fetchone()[0]
                rows = db.execute("SELECT * FROM actions WHERE version > ? ORDER BY version", (version,)).fetchall()
            if since and not newest - TOMBSTONES <= version <= newest:
                return
            for row in rows:
                version = int(row["version"])
                yield str(version), _action(row)
            time.sleep(FOLLOW_S)

    def nodes(self) -> t.Sequence[NodeInfo]:
        used: t.Dict[str, t.List[str]] = {}
        with self._db() as db:
            rows = db.execute("SELECT * FROM actions WHERE gone = 0 AND json_extract(status, '$.phase') = ?", (actions.RUNNING,)).fetchall()
        infos = self.known()
        labels = {node.name: node.labels for node in infos}
        for action in map(_action, rows):
            with contextlib.suppress(request.RequestError):
                for name in request.read(action.spec, self.limits(infos)).chosen(labels):
                    used.setdefault(name, []).append(action.name)
        return [dataclasses.replace(node, used_by=used[node.name]) if node.name in used else node for node in infos]

    # For the controller: controller.ActionStore --------------------------------------------------------------------------------

    def stored(self) -> t.Sequence[StoredAction]:
        with self._db() as db:
            rows = db.execute("SELECT * FROM actions WHERE gone = 0 ORDER BY number").fetchall()
        return [StoredAction(_action(row), bool(row["deleting"])) for row in rows]

    def say(self, stored: StoredAction, status: Status) -> None:
        with self._write() as db:
            change = (json.dumps(_told(status)), self._version(db), stored.action.uid)
            db.execute("UPDATE actions SET status = ?, version = ? WHERE uid = ? AND gone = 0", change)

    def spawn(self, parent: StoredAction, name: str, spec: t.Mapping[str, t.Any]) -> None:
        with contextlib.suppress(actions.Conflict), self._write() as db:
            self._insert(db, name, spec, parent.action.who, parent.action.name)

    def forget(self, stored: StoredAction) -> None:
        with contextlib.suppress(actions.NotFound):
            self.delete(stored.action.name)

    def release(self, stored: StoredAction) -> None:
        with self._write() as db:
            version = self._version(db)
            db.execute("UPDATE actions SET gone = 1, version = ? WHERE uid = ?", (version, stored.action.uid))
            db.execute("DELETE FROM actions WHERE gone = 1 AND version < ?", (version - TOMBSTONES,))

    def known(self) -> t.Sequence[NodeInfo]:
        until, infos = self._hosts
        if not infos:
            return self._read()
        if time.monotonic() > until and self._reading.acquire(blocking=False):
            threading.Thread(target=self._read_again, name="console-hosts", daemon=True).start()
        return infos

    def _read(self) -> t.Sequence[NodeInfo]:
        began = time.monotonic()
        infos = hosts.of(self.inventory)
        took = time.monotonic() - began
        self._hosts = (time.monotonic() + max(HOSTS_S, HOSTS_SHARE * took), infos)
        return infos

    def _read_again(self) -> None:
        """Thousands of hosts take seconds, which nobody waits for."""
        try:
            self._read()
        except actions.ActionError:
            self._hosts = (0.0, ())  # whoever asks next is told
        finally:
            self._reading.release()

    def limits(self, nodes: t.Sequence[NodeInfo]) -> request.Limits:
        return request.Limits(
            plane=planes.DEFAULT, nodes={node.name: node.labels for node in nodes if not node.problem}, gpus=actions.known_gpus(nodes),
            expectations=actions.known_expectations(nodes),
        )  # fmt: skip

    def swept(self, stored: StoredAction, run_id: str) -> bool:
        """The guardians on the machines give everything back when nobody holds them any more."""
        return True

    def wait(self, seconds: float) -> None:
        self._changed.wait(seconds)
        self._changed.clear()

    def leading(self) -> bool:
        return True


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _told(status: Status) -> PlainData:
    return dataclasses.asdict(status)


def _action(row: sqlite3.Row) -> Action:
    return Action(
        name=row["name"], namespace="", spec=json.loads(row["spec"]), status=Status(**json.loads(row["status"])), created=row["created"],
        who=row["who"], uid=row["uid"], schedule=row["schedule"], gone=bool(row["gone"]),
    )  # fmt: skip
