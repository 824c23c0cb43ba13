# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Server-sent events: that something changed, and what. A page looks at itself again then; nothing is drawn twice.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import api
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.auth import Away
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.hub import Full
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.lib import starlette
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.request_context import RequestContext

if t.TYPE_CHECKING:
    import starlette.responses

# How often a page is told that the console is there, and its reader's right is asked for again.
BEAT_S = 15.0


def refuse(_ask: RequestContext) -> starlette.responses.Response:
    return api.error(404, "there is nothing")


def changes(ask: RequestContext) -> starlette.responses.Response:
    who = ask.who.name if ask.who else ""
    listening = ask.console.hub.listening(f"{who} {ask.request.scope['origin']}")
    try:
        queue = listening.__enter__()
    except Full:
        return api.error(429, "too many pages follow the changes; close one")

    async def told() -> t.AsyncIterator[str]:
        end = time.monotonic() + ask.console.settings.limits.stream_s
        asked_at = time.monotonic()
        try:
            yield "retry: 2000\nevent: begin\ndata: {}\n\n"
            while time.monotonic() < end:
                action = None
                with contextlib.suppress(TimeoutError):
                    version, action = await asyncio.wait_for(queue.get(), max(0.0, asked_at + BEAT_S - time.monotonic()))
                if time.monotonic() >= asked_at + BEAT_S:  # however much there is to tell
                    if not await starlette.concurrency.run_in_threadpool(_may, ask):
                        return
                    asked_at = time.monotonic()
                    yield ": beat\n\n"
                if action is None:
                    continue
                data = {"name": action.name, "phase": action.status.phase, "verdict": action.status.verdict, "gone": action.gone}
                yield f"id: {_line(version)}\nevent: change\ndata: {json.dumps(data)}\n\n"
        finally:
            listening.__exit__(None, None, None)

    return starlette.responses.StreamingResponse(told(), media_type="text/event-stream", headers={"cache-control": "no-store"})


def _may(ask: RequestContext) -> bool:
    try:
        return ask.may("list")
    except Away:
        return True  # nobody can say; the next page asks again


def _line(text: str) -> str:
    return "".join(character for character in text if character.isprintable())
