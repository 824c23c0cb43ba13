# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks before every request: host name, rate, size and speed; and headers of every response that say what it
forbids the browser.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import typing as t
import urllib.parse

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.metrics import Metrics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.settings import CallLimits, Settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import WebError

Scope = t.MutableMapping[str, t.Any]
Message = t.MutableMapping[str, t.Any]
Receive = t.Callable[[], t.Awaitable[Message]]
Send = t.Callable[[Message], t.Awaitable[None]]
App = t.Callable[[Scope, Receive, Send], t.Awaitable[None]]

# Nothing from elsewhere, and no script but our file.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "cache-control": "private, no-cache",
}
CHANGING = ("POST", "PUT", "PATCH", "DELETE")
# The page to sign in.
ENTER = "/enter"


class _TooMuch(WebError):
    pass


class Rates:
    """How often each may ask: so many at once, and so many a second after that."""

    def __init__(self, rate: float, burst: int, limit: int) -> None:
        self._rate, self._burst, self._most = rate, burst, limit
        self._left: dict[str, tuple[float, float]] = {}

    def takes(self, who: str) -> bool:
        now = time.monotonic()
        tokens, at = self._left.get(who, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        if len(self._left) >= self._most and who not in self._left:
            self._left.clear()
        self._left[who] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens >= 1


class _CallerRates:
    """The rates of one kind of callers: of all their requests, and of those that change something."""

    def __init__(self, limits: CallLimits) -> None:
        self._all = Rates(limits.rate, limits.burst, limits.callers)
        self._changes = Rates(limits.changes, limits.changes_burst, limits.callers)

    def take(self, who: str, method: str) -> bool:
        return self._all.takes(who) and (method not in CHANGING or self._changes.takes(who))


class Guard:
    """`origin` says of a peer and its headers where a request comes from, `proven` who sends it, of its code too, which is empty unless the
    request opens a link to sign in; empty if nobody is proven.

    Whoever has signed in, or opens a link that holds, has limits of their own: strangers behind the same address cannot use them up. Other
    attempts to sign in have limits by address, apart from the other requests of strangers."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        metrics: Metrics,
        origin: t.Callable[[str, t.Mapping[str, str]], str],
        proven: t.Callable[[str, t.Mapping[str, str], str], str],
    ) -> None:
        self._app, self._settings, self._metrics, self._origin, self._proven = app, settings, metrics, origin, proven
        self._signed_in, self._entering, self._strangers = (_CallerRates(settings.limits) for _kind in range(3))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        peer = scope["client"][0] if scope.get("client") else ""
        scope["origin"] = self._origin(peer, headers)
        began = time.monotonic()
        state = {"status": 0}
        method = scope["method"]

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
                self._metrics.seconds.labels(scope.get("way", "other")).observe(time.monotonic() - began)
                names = {name for name, _value in message.get("headers", [])}
                missing_headers = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in names]
                if self._settings.secure:
                    missing_headers.append((b"strict-transport-security", b"max-age=31536000"))
                message = {**message, "headers": [*message.get("headers", []), *missing_headers]}
            await send(message)

        try:
            why = self._refused(scope, peer, headers)
            if why:
                if why[1] != "body":  # a connection that is closed before its request was read loses the answer
                    with contextlib.suppress(_TooMuch, TimeoutError):
                        await self._body(headers, receive)
                await self._refuse(told, scope["path"], *why)
                return
            try:
                body = await self._body(headers, receive)
            except _TooMuch:
                await self._refuse(told, scope["path"], 413, "body")
            except TimeoutError:
                await self._refuse(told, scope["path"], 408, "slow")
            else:
                await self._app(scope, body, told)
        finally:
            method_label = method if method in (*CHANGING, "GET", "HEAD") else "other"
            self._metrics.requests.labels(method_label, scope.get("way", "other"), str(state["status"])).inc()

    def _refused(self, scope: Scope, peer: str, headers: t.Mapping[str, str]) -> tuple[int, str] | None:
        limits = self._settings.limits
        enters = scope["path"] == ENTER
        if self._settings.hosts and headers.get("host", "").lower() not in self._settings.hosts:
            return 421, "host"
        code = dict(urllib.parse.parse_qsl(scope["query_string"].decode("latin-1"))).get("code", "") if enters else ""
        who = self._proven(peer, headers, code)
        rates = self._signed_in if who else self._entering if enters else self._strangers
        if not rates.take(who or scope["origin"], scope["method"]):
            return 429, "rate"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > limits.body:
            return 413, "body"
        return None

    async def _refuse(self, send: Send, path: str, status: int, why: str) -> None:
        self._metrics.refused.labels(why).inc()
        reason_text = {
            "host": "This console is not known by that name.", "rate": "Too many requests; wait a moment.",
            "body": f"Expected at most {self._settings.limits.body} bytes.", "slow": "The request took too long to arrive.",
        }  # fmt: skip
        body, kind = reason_text[why].encode() + b"\n", b"text/plain; charset=utf-8"
        if path.startswith("/api/"):  # the API's errors have one form
            body, kind = json.dumps({"error": reason_text[why], "problems": []}).encode(), b"application/json"
        headers = [(b"content-type", kind), (b"connection", b"close"), (b"content-length", str(len(body)).encode())]
        if why == "rate":
            headers.append((b"retry-after", b"2"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _body(self, headers: t.Mapping[str, str], receive: Receive) -> Receive:
        """The whole body before anybody is asked for an answer: what never ends holds nothing else."""
        if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
            return receive
        limits = self._settings.limits
        pieces, size, is_open = [], 0, True
        async with asyncio.timeout(limits.body_s):
            while is_open:
                message = await receive()
                if message["type"] != "http.request":
                    return _first(message, receive)
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                is_open = message.get("more_body", False)
                if size > limits.body:
                    raise _TooMuch
        return _first({"type": "http.request", "body": b"".join(pieces), "more_body": False}, receive)


def _first(message: Message, rest_of: Receive) -> Receive:
    waiting = [message]

    async def receive() -> Message:
        return waiting.pop() if waiting else await rest_of()

    return receive
