# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One request as the pages and the API see it, and what both stand on.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import request as requests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import Actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.audit import Audit
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.auth import Auth
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.fleet import FleetReader
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.hub import Hub
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.metrics import Metrics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.notes import Notes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.past import Past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.progress import RunProgress
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.saved_forms import SavedForms
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.sessions import Caller, Sessions, WebSession
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.settings import Settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.storage import Storage
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.words import Words
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import WebError

if t.TYPE_CHECKING:
    import starlette.requests
    import starlette.responses


@dataclasses.dataclass(frozen=True)
class Console:
    """The objects that every request is answered from. `limits` are the current limits of requests."""

    actions: Actions
    past: Past
    settings: Settings
    auth: Auth
    sessions: Sessions
    audit: Audit
    metrics: Metrics
    hub: Hub
    limits: t.Callable[[], requests.Limits]
    storage: Storage
    fleet: FleetReader
    progress: RunProgress
    saved_forms: SavedForms
    notes: Notes


@dataclasses.dataclass
class RequestContext:
    """A request whose caller is known and may ask. `fields`: of the address, and of a form that was sent."""

    console: Console
    request: starlette.requests.Request
    who: Caller | None
    session: WebSession | None
    words: Words
    fields: list[tuple[str, str]]
    body: bytes

    def one(self, name: str, default: str = "") -> str:
        return next((value for key, value in self.fields if key == name), default)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key == name]

    def may(self, verb: str, name: str = "") -> bool:
        return self.who is not None and self.console.auth.may(self.who, verb, name)

    def limits(self) -> requests.Limits:
        """Return the limits of a request now, with the RDMA devices that nodes were last seen to have."""
        state, _problem = self.console.fleet.state()
        limits = self.console.limits()
        return dataclasses.replace(limits, devices=state.devices) if state else limits

    @property
    def namespace(self) -> str:
        return self.console.settings.namespace


class RequestRefused(WebError):
    """A request that is answered with a reason; `text` is the name of a text of the pages."""

    def __init__(self, status: int, text: str, **values: t.Any) -> None:
        super().__init__(text)
        self.status, self.text, self.values = status, text, values


Handler = t.Callable[[RequestContext], "starlette.responses.Response"]


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """A way into the console. `right`: the verb that its caller must have; empty: open to everybody. `changes`: it is told in the audit
    by this word. `about`: what the API's document says of it."""

    method: str
    path: str
    handler: Handler
    right: str = "list"
    changes: str = ""
    about: t.Mapping[str, t.Any] | None = None

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/api/")
