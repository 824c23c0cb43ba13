# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console on a port: uvicorn, with an end for whoever connects and says nothing.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import asyncio
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import lib
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.guard import App
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

if t.TYPE_CHECKING:
    import uvicorn

CONNECTIONS = 512
# How long an answer may take when the server ends. An open page follows the changes in an answer without an end.
END_S = 1.0
# For the head of a request to come whole, and how long it may be.
HEAD_S, HEAD_BYTES = 10.0, 48 * 1024


def server(app: App, address: str, port: int, certificate: str = "", key: str = "") -> uvicorn.Server:
    """Ready to `run`. `port` 0: any that is free."""
    lib.need()
    try:
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol
    except ImportError as error:
        raise RunError("the console needs the Python package uvicorn; install the collection's requirements.txt") from error

    class Patient(H11Protocol):
        """Closes what does not ask in time: uvicorn itself waits for ever."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > CONNECTIONS:
                transport.close()
                return
            self._wait()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._done()
            super().connection_lost(exc)

        def shutdown(self) -> None:
            super().shutdown()
            self.loop.call_later(END_S, self.transport.close)

        def _wait(self) -> None:
            self._done()
            self._deadline = self.loop.call_later(HEAD_S, self._late)

        def _done(self) -> None:
            if self._deadline:
                self._deadline.cancel()
                self._deadline = None

        def _late(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return uvicorn.Server(
        uvicorn.Config(
            app, host=address, port=port, http=Patient, ws="none", lifespan="off", log_level="warning", access_log=False,
            proxy_headers=False, server_header=False, date_header=True, h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_keep_alive=int(HEAD_S),
            timeout_graceful_shutdown=int(END_S) + 2, ssl_certfile=certificate or None, ssl_keyfile=key or None,
        )
    )  # fmt: skip
