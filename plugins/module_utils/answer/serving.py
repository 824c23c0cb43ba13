# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small HTTP server of a few pages that can only be read.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import http.server
import socket
import socketserver
import threading
import typing as t

# A page: of the Accept header, its type and its content.
Page = t.Callable[[str], t.Tuple[str, bytes]]
# Whoever asks and then says nothing more does not hold a thread for longer.
PATIENCE_S = 10.0


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # HTTPServer would ask the resolver for our own name, which may take long without a resolver.
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "", int(self.server_address[1])

    def handle_error(self, request: t.Any, client_address: t.Any) -> None:
        """Ignore clients that disconnect."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def serve(pages: t.Mapping[str, Page], port: int, address: str = "") -> _Server:
    """Answer in a thread of its own until shutdown(). Port 0 takes a free one. Without an address listen on all of them, by IPv4 and IPv6.
    Raise OSError if the port cannot be had."""

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = PATIENCE_S
        server_version, sys_version = "gpufleet-acceptance", ""

        def do_GET(self) -> None:
            page = pages.get(self.path.split("?", 1)[0])
            if page is None:
                self._answer(404, "text/plain", b"not found\n")
                return
            try:
                kind, content = page(self.headers.get("Accept") or "")
            except Exception as error:  # said to who asks; who asks next may have more luck
                self._answer(503, "text/plain; charset=utf-8", f"{type(error).__name__}: {error}\n".encode())
                return
            self._answer(200, kind, content)

        do_HEAD = do_GET

        def _answer(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, format: str, *args: t.Any) -> None:
            """Log nothing about requests."""

    try:
        server = (_Server6 if ":" in address or not address else _Server)((address or "::", port), Handler)
    except OSError:
        if address:
            raise
        server = _Server(("", port), Handler)  # without IPv6
    threading.Thread(target=server.serve_forever, daemon=True, name="http").start()
    return server
