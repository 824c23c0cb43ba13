# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console as one ASGI application. Every request comes the same way: who asks, may they, is it from our own page; then one handler.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import logging
import pathlib
import typing as t
import urllib.parse

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import request as requests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import (
    ActionError,
    Actions,
    Conflict,
    Denied,
    NotFound,
    Unavailable,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import api, lib, pages, streams
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.audit import Audit
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.auth import Auth, Away, bearer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.fleet import FleetReader
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.guard import CHANGING, App, Guard
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.hub import Hub
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.lib import starlette
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.metrics import Metrics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.notes import Notes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.past import Past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.progress import RunProgress
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.request_context import (
    Console,
    Endpoint,
    RequestContext,
    RequestRefused,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.saved_forms import SavedForms
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.sessions import Sessions, WebSession, same
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.settings import Settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.storage import Storage
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.words import Words, chosen
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

if t.TYPE_CHECKING:
    import starlette.requests
    import starlette.responses

FORM = "application/x-www-form-urlencoded"
FIELDS = 10_000
LOG = logging.getLogger("gpufleet.acceptance.console")
STATUS: tuple[tuple[type[Exception], int], ...] = ((NotFound, 404), (Conflict, 409), (Denied, 403), (Unavailable, 503), (ActionError, 400))


def create_app(
    actions: Actions,
    past: Past,
    settings: Settings,
    auth: Auth,
    key: bytes,
    limits: t.Callable[[], requests.Limits],
    audit: Audit | None = None,
) -> App:
    """`key`: that of the sessions; `limits`: what requests may ask for here, as of now."""
    lib.need()
    metrics = Metrics()
    sessions = Sessions(key, settings.session_s, settings.session_whole_s, settings.secure)
    hub = Hub(actions, settings.limits)
    console = Console(
        actions, past, settings, auth, sessions, audit or Audit(), metrics, hub, limits, Storage(settings.results_dir, past),
        FleetReader(past, actions.nodes),
        RunProgress(pathlib.Path(settings.results_dir), pathlib.Path(settings.logs) if settings.logs else None),
        SavedForms(pathlib.Path(settings.results_dir)),
        Notes(pathlib.Path(settings.results_dir)),
    )  # fmt: skip
    metrics.streams.set_function(lambda: hub.open)
    endpoints = [*api.ENDPOINTS, *pages.ENDPOINTS]
    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, []).append(endpoint)
    routes = [
        starlette.routing.Route(path, _endpoint(console, {way.method: way for way in of}), methods=[way.method for way in of])
        for path, of in by_path.items()
    ]
    routes.append(starlette.routing.Route("/api/v1/changes", _stream(console), methods=["GET"]))
    application = starlette.applications.Starlette(routes=routes, exception_handlers={404: _no_such(console), 405: _no_such(console)})
    return Guard(application, settings, metrics, auth.origin, _proven(sessions, auth))


def _proven(sessions: Sessions, auth: Auth) -> t.Callable[[str, t.Mapping[str, str], str], str]:
    def name(peer: str, headers: t.Mapping[str, str], code: str) -> str:
        if code:
            return auth.opens(code)
        cookie = starlette.requests.cookie_parser(headers.get("cookie", "")).get(sessions.cookie, "")
        return auth.proven(peer, headers, sessions.opened(cookie) if cookie else None)

    return name


def _endpoint(console: Console, endpoints: t.Mapping[str, Endpoint]) -> t.Any:
    async def endpoint(request: starlette.requests.Request) -> starlette.responses.Response:
        endpoint = endpoints["GET" if request.method == "HEAD" else request.method]
        request.scope["way"] = endpoint.path
        body = await request.body()
        response = await starlette.concurrency.run_in_threadpool(_answer, console, request, endpoint, body)
        return response

    return endpoint


def _stream(console: Console) -> t.Any:
    async def endpoint(request: starlette.requests.Request) -> starlette.responses.Response:
        request.scope["way"] = "/api/v1/changes"
        endpoint = Endpoint("GET", "/api/v1/changes", streams.refuse)
        try:
            ask = await starlette.concurrency.run_in_threadpool(_asked, console, request, endpoint, b"")
        except RequestRefused as refused:
            return _refusal(console, request, endpoint, None, refused)
        return streams.changes(ask)

    return endpoint


def _no_such(console: Console) -> t.Any:
    async def handler(request: starlette.requests.Request, error: Exception) -> starlette.responses.Response:
        endpoint = Endpoint(request.method, request.url.path, streams.refuse, right="")
        response = _refusal(console, request, endpoint, None, RequestRefused(getattr(error, "status_code", 404), "error_no_page"))
        response.headers.update(getattr(error, "headers", None) or {})  # Allow, where the method is not
        return response

    return handler


def _answer(console: Console, request: starlette.requests.Request, endpoint: Endpoint, body: bytes) -> starlette.responses.Response:
    ask: RequestContext | None = None
    try:
        ask = _asked(console, request, endpoint, body)
        api.known_parameters(request.query_params, endpoint)
        response = endpoint.handler(ask)
    except RequestRefused as refused:
        response = _refusal(console, request, endpoint, ask, refused)
    except requests.RequestError as error:
        response = api.problems(error.problems)
    except Away as error:
        response = _refusal(console, request, endpoint, ask, RequestRefused(503, "error_said", said=str(error)))
    except ActionError as error:
        status = next(status for kind, status in STATUS if isinstance(error, kind))
        response = _refusal(console, request, endpoint, ask, RequestRefused(status, "error_said", said=str(error)))
    except RunError as error:
        response = _refusal(console, request, endpoint, ask, RequestRefused(404, "error_said", said=str(error)))
    except Exception:
        LOG.exception("%s %s", endpoint.method, endpoint.path)
        response = _refusal(console, request, endpoint, ask, RequestRefused(500, "error_ours"))
    if endpoint.changes:
        name = request.path_params.get("name", "") or response.headers.get("x-about", "")
        who = ask.who.name if ask and ask.who else ""
        if "x-about" in response.headers:
            del response.headers["x-about"]
        outcome = "done" if response.status_code < 400 else "refused"
        console.audit.note(who, endpoint.changes, name, request.scope["origin"], outcome, str(response.status_code))
    if ask is not None:
        _keep(ask, response)
    return response


def _asked(console: Console, request: starlette.requests.Request, endpoint: Endpoint, body: bytes) -> RequestContext:
    """The request with its caller; Refused where they are not known or may not."""
    peer = request.client.host if request.client else ""
    cookie = request.cookies.get(console.sessions.cookie, "")
    session = console.sessions.opened(cookie) if cookie else None
    who = console.auth.who(peer, request.headers, session)
    if session is not None and (who is None or (who.name, who.groups) != (session.who.name, session.who.groups)):
        session = None  # another one's, or of groups that have changed
    if session is None and who is not None and not bearer(request.headers):
        session = console.sessions.begin(who)
    ask = RequestContext(console, request, who, session, _words(request), _fields(request, body), body)
    if endpoint.right and who is None:
        raise RequestRefused(401, "error_who")
    if request.method in CHANGING:
        _ours(ask, endpoint)
    if endpoint.right and not ask.may(endpoint.right, request.path_params.get("name", "")):
        raise RequestRefused(403, "error_right", verb=endpoint.right)
    return ask


def _words(request: starlette.requests.Request) -> Words:
    requested, remembered = request.query_params.get("lang", ""), request.cookies.get("language", "")
    return Words(chosen(requested, remembered, request.headers.get("accept-language", "")))


def _fields(request: starlette.requests.Request, body: bytes) -> list[tuple[str, str]]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    fields = list(request.query_params.multi_items())
    if body and kind == FORM:
        try:
            text = body.decode("utf-8")
            fields = urllib.parse.parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS, encoding="utf-8", errors="strict")
        except ValueError:
            raise RequestRefused(400, "error_form") from None
    # Browsers send the lines of a text field with CRLF, which a page would show as a control character.
    return [(name, value.replace("\r\n", "\n")) for name, value in fields]


def _ours(ask: RequestContext, endpoint: Endpoint) -> None:
    """Refuse a changing request that comes neither from the console's own page nor with a token that no other page has."""
    headers = ask.request.headers
    if bearer(headers):
        return
    origin = headers.get("origin")
    if headers.get("sec-fetch-site", "same-origin") != "same-origin" or (
        origin is not None and urllib.parse.urlsplit(origin).netloc != headers.get("host", "")
    ):
        raise RequestRefused(403, "error_elsewhere")
    if not endpoint.right and ask.session is None:
        if origin is None:
            raise RequestRefused(403, "error_elsewhere")
        return
    token = headers.get("x-csrf-token") or ask.one("csrf")
    if ask.session is None or not same(token, ask.session.csrf):
        raise RequestRefused(403, "error_form_old")


def _keep(ask: RequestContext, response: starlette.responses.Response) -> None:
    """Cookies: a session that is new or getting old, and the language that was chosen."""
    console, request = ask.console, ask.request
    if ask.session is not None and "set-cookie" not in response.headers:
        is_new = not request.cookies.get(console.sessions.cookie) or console.sessions.opened(
            request.cookies[console.sessions.cookie]
        ) != ask.session
        if is_new or console.sessions.is_old(ask.session):
            _sign_in(console, response, ask.session if is_new else console.sessions.begin(ask.session.who, ask.session))
    if request.query_params.get("lang") == ask.words.language:
        secure = "; Secure" if console.settings.secure else ""
        response.headers.append("set-cookie", f"language={ask.words.language}; Path=/; SameSite=Lax; Max-Age=31536000{secure}")


def _sign_in(console: Console, response: starlette.responses.Response, session: WebSession) -> None:
    response.headers.append("set-cookie", console.sessions.header(console.sessions.sealed(session)))


def _refusal(
    console: Console, request: starlette.requests.Request, endpoint: Endpoint, ask: RequestContext | None, refused: RequestRefused
) -> starlette.responses.Response:
    words = ask.words if ask else _words(request)
    console.metrics.refused.labels(refused.text).inc()
    if endpoint.is_api:
        message = refused.values.get("said") or Words("en")(refused.text, **refused.values)
        return api.error(refused.status, message)
    context = ask or RequestContext(console, request, None, None, words, list(request.query_params.multi_items()), b"")
    return pages.refused(context, refused)
