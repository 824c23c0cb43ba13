# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that says what an API server says only on a bad day: streams that are cut, versions that are gone."""

from __future__ import annotations

import collections
import http.server
import json
import threading
import typing as t
import urllib.parse

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import heartbeat


@pytest.fixture(autouse=True)
def no_heartbeat(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No launch has a heartbeat, for which the clusters of these tests would need more than they can: test_heartbeat.py tests it."""
    if request.module.__name__.rpartition(".")[2] != "test_heartbeat":
        monkeypatch.setattr(heartbeat.Heartbeat, "start", lambda _self, _settings: None)


Answer = dict[str, t.Any] | bytes | int


class Script:
    """Answers to GET by path, one after the other, the last for ever: an object, the bytes of a stream that then ends, or a status."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: dict[tuple[str, bool], collections.deque[Answer]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []

    def says(self, path: str, *answers: Answer, watch: bool = False) -> None:
        self.answers[path, watch] = collections.deque(answers)

    def client(self) -> client.Client:
        return client.connect(client.Connection("lab", server=self.url, namespace="here"))

    def next(self, path: str, query: dict[str, str]) -> Answer:
        self.asked.append((path, query))
        left = self.answers.get((path, "watch" in query))
        if not left:
            return 404
        return left.popleft() if len(left) > 1 else left[0]


@pytest.fixture
def script() -> t.Iterator[Script]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            answer = said.next(url.path, dict(urllib.parse.parse_qsl(url.query)))
            status = answer if isinstance(answer, int) else 200
            body = answer if isinstance(answer, bytes) else json.dumps({"message": "no"} if isinstance(answer, int) else answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: t.Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        said = Script(f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield said
        server.shutdown()
