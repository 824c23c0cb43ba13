# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console on a port, as uvicorn serves it."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import serving
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route


def test_a_server_that_ends_while_a_page_follows_the_changes_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    async def follow(_request: t.Any) -> StreamingResponse:
        async def told() -> t.AsyncIterator[str]:
            while True:
                yield ": beat\n\n"
                await asyncio.sleep(0.05)

        return StreamingResponse(told(), media_type="text/event-stream")

    server = serving.server(t.cast(t.Any, Starlette(routes=[Route("/", follow)])), "127.0.0.1", 0)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        page = http.client.HTTPConnection("127.0.0.1", listening.getsockname()[1], timeout=60)
        page.request("GET", "/")
        assert page.getresponse().readline() == b": beat\n"
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()
        page.close()
    said = capfd.readouterr()
    assert said.out + said.err == ""
