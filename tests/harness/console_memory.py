# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A console over actions that are kept in memory, for tests of its pages and its API: nothing runs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import itertools
import pathlib
import threading
import time
import typing as t

import starlette.testclient
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions as kept
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import request as requests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import app, auth, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import serving as http
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.audit import Audit
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.past import Past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.sessions import Sessions
from cryptography.fernet import Fernet

HOST = "console.test"


class Memory:
    """Actions that stay as they are until a test changes them by `put`."""

    def __init__(self, nodes: t.Sequence[kept.NodeInfo] = ()) -> None:
        self.of: dict[str, kept.Action] = {}
        self.infos = list(nodes)
        self.away = False
        self._count = itertools.count(1)
        self._news: list[tuple[str, kept.Action]] = []
        self._changed = threading.Condition()

    def put(self, action: kept.Action) -> kept.Action:
        with self._changed:
            self.of[action.name] = action
            if action.gone:
                del self.of[action.name]
            self._news.append((str(len(self._news) + 1), action))
            self._changed.notify_all()
        return action

    def create(self, name: str | None, spec: dict[str, t.Any], who: str, namespace: str = "") -> kept.Action:
        self._answers()
        name = name or f"action-{next(self._count)}"
        if name in self.of:
            raise kept.Conflict(f"action {name} is there already")
        status = kept.Status(phase=kept.QUEUED, queue_position=1, waiting_for="b, which has its nodes")
        return self.put(kept.Action(name, namespace, spec, status, "2026-11-22T10:00:00Z", who))

    def get(self, name: str, namespace: str = "") -> kept.Action:
        self._answers()
        if name not in self.of:
            raise kept.NotFound(f"action {name} is not there")
        return self.of[name]

    def list(self, filters: kept.Filters) -> kept.Page:
        self._answers()
        found = [
            one for one in sorted(self.of.values(), key=lambda one: one.name)
            if filters.phase in ("", one.status.phase) and filters.text in one.name and one.name > filters.after
        ]  # fmt: skip
        page = found[: filters.limit]
        return kept.Page(page, page[-1].name if len(found) > len(page) else "")

    def set(self, name: str, *, suspend: bool | None = None, cancel: bool | None = None, namespace: str = "") -> kept.Action:
        of = self.get(name)
        phase = kept.CANCELLED if cancel else kept.SUSPENDED if suspend else kept.QUEUED
        return self.put(dataclasses.replace(of, status=dataclasses.replace(of.status, phase=phase)))

    def delete(self, name: str, namespace: str = "") -> None:
        self.put(dataclasses.replace(self.get(name), gone=True))

    def changes(self, since: str = "") -> t.Iterator[tuple[str, kept.Action]]:
        at = int(since or 0)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._news) > at)
                news = self._news[at:]
            for version, action in news:
                at = int(version)
                yield version, action

    def nodes(self) -> t.Sequence[kept.NodeInfo]:
        self._answers()
        return self.infos

    def _answers(self) -> None:
        if self.away:
            raise kept.Unavailable("nobody answers")


def nodes(count: int) -> list[kept.NodeInfo]:
    return [kept.NodeInfo(f"n{number:04}", 8, number % 9, {"pool": f"p{number % 3}"}) for number in range(count)]


class Opened(t.NamedTuple):
    app: t.Any
    actions: Memory
    auth: t.Any
    audit: io.StringIO
    links: list[str]
    cookie: str

    def client(self, address: str = "192.0.2.1") -> starlette.testclient.TestClient:
        return starlette.testclient.TestClient(
            self.app, base_url=f"http://{HOST}", client=(address, 50000), follow_redirects=False, raise_server_exceptions=True
        )

    def signed_in(self) -> starlette.testclient.TestClient:
        """A browser that has opened the link of the terminal."""
        client = self.client()
        self.auth.new_link(every_s=0.0)
        assert client.get(f"/enter?code={self.links[-1]}").status_code == 303
        return client


def opened(results: pathlib.Path, auth_: auth.Auth | None = None, memory: Memory | None = None, **given: t.Any) -> Opened:
    links: list[str] = []
    memory = memory or Memory(nodes(12))
    auth_ = auth_ or auth.LocalLogin("tester", links.append)
    audit = io.StringIO()
    options = settings.Settings(str(results), **{"hosts": frozenset({HOST}), **given})

    def limits() -> requests.Limits:
        return requests.Limits(plane="ssh", nodes={one.name: one.labels for one in memory.infos}, gpus=kept.known_gpus(memory.infos))

    key = Fernet.generate_key()
    made = app.create_app(memory, Past(str(results)), options, auth_, key, limits, Audit(audit))
    cookie = Sessions(key, options.session_s, options.session_whole_s, options.secure).cookie
    return Opened(made, memory, auth_, audit, links, cookie)


@contextlib.contextmanager
def serving(app: t.Any) -> t.Iterator[int]:
    """Serve an application at a free port of this machine, the number of which it yields."""
    server = http.server(app, "127.0.0.1", 0)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)
