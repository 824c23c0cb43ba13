# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""REST under /api/v1: what the pages do, for programs.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, calendar
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import request as requests
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import one_part, openapi, ranges
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.lib import starlette
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.request_context import (
    Endpoint,
    RequestContext,
    RequestRefused,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.searching import Query
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

if t.TYPE_CHECKING:
    from starlette.responses import Response

MOST = openapi.MOST


# Answers ------------------------------------------------------------------------------------------------------------------------------


def answer(value: t.Any, status: int = 200, headers: t.Mapping[str, str] | None = None) -> Response:
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return starlette.responses.Response(text, status, dict(headers or {}), "application/json")


def error(status: int, message: str) -> Response:
    return answer({"error": message, "problems": []}, status)


def problems(listed: t.Sequence[requests.Problem]) -> Response:
    return answer({"error": "the request cannot be carried out", "problems": [problem._asdict() for problem in listed]}, 422)


def shown(action: actions.Action) -> PlainData:
    """An action as a custom resource says it."""
    of = action.status
    return {
        "name": action.name,
        "namespace": action.namespace,
        "created": action.created,
        "who": action.who,
        "schedule": action.schedule,
        "spec": dict(action.spec),
        "status": {
            "phase": of.phase, "verdict": of.verdict, "runID": of.run_id, "progress": of.progress, "message": of.message,
            "command": list(of.command), "nodes": of.nodes, "counts": dict(of.counts), "link": of.link,
            "queuePosition": of.queue_position, "waitingFor": of.waiting_for, "started": of.started, "ended": of.ended,
            "lastScheduled": of.last_scheduled, "nextScheduled": of.next_scheduled,
            "conditions": [dict(condition) for condition in of.conditions],
        },
    }  # fmt: skip


# Questions ----------------------------------------------------------------------------------------------------------------------------


def sent(ask: RequestContext, names: t.Collection[str]) -> PlainData:
    """The object of a body that may have these names."""
    if ask.request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestRefused(415, "error_json_type")
    try:
        body = json.loads(ask.body)
    except (ValueError, RecursionError):
        raise RequestRefused(400, "error_json") from None
    if not isinstance(body, dict):
        raise RequestRefused(400, "error_json")
    unknown = sorted(set(body) - set(names))[: requests.MOST_OF_FIELD]
    if unknown:
        expected = f"any of {', '.join(names)}"
        raise requests.RequestError([requests.Problem(requests.shown(name)[1:-1], "an unknown field", expected) for name in unknown])
    return body


def limit(ask: RequestContext, default: int = 100) -> int:
    text = ask.one("limit", str(default))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MOST:
        raise requests.RequestError([requests.Problem("limit", requests.shown(text), f"a whole number from 1 to {MOST}")])
    return int(text)


def filters(ask: RequestContext, maximum: int) -> actions.Filters:
    phase = ask.one("phase")
    if phase and phase not in actions.PHASES:
        raise requests.RequestError([requests.Problem("phase", requests.shown(phase), f"one of {', '.join(actions.PHASES)}")])
    sort = ask.one("sort") or "-created"
    if sort.removeprefix("-") not in actions.SORTS:
        expected = f"one of {', '.join(actions.SORTS)}, from the last to the first with a dash before it"
        raise requests.RequestError([requests.Problem("sort", requests.shown(sort), expected)])
    return actions.Filters(
        namespace=ask.namespace, phase=phase, verdict=ask.one("verdict"), kind=ask.one("kind"), text=ask.one("text")[:200],
        limit=maximum, after=ask.one("after")[:1000], sort=sort,
    )  # fmt: skip


def known_parameters(names: t.Iterable[str], endpoint: Endpoint) -> None:
    """Raise RequestError for a parameter that an operation of the API does not have: one with a typo would have no effect."""
    if endpoint.about is None:
        return
    parameters = [parameter if isinstance(parameter, str) else parameter[0] for parameter in endpoint.about["query"]]
    unknown = next((name for name in names if name not in parameters), None)
    if unknown is not None:
        name = requests.shown(unknown)[1:-1]
        raise requests.RequestError([requests.Problem(name, "an unknown parameter", f"any of {', '.join(parameters) or 'none'}")])


def asked(ask: RequestContext) -> Query:
    """Return the search of an address. `from` and `to` are as Grafana writes them, in place of `since` and `until`."""
    query = Query(*(ask.one(name).strip()[:200] for name in Query._fields))
    begin, end = (ranges.moment(ask.one(name).strip()[:200]) for name in ("from", "to"))
    return query._replace(since=query.since or begin, until=query.until or end)


def name_of(raw: t.Any) -> str | None:
    if raw is None or raw == "":
        return None
    if not isinstance(raw, str) or not actions.NAME.match(raw):
        expected = "small letters, digits and dashes, at most 63, a letter or digit at both ends"
        raise requests.RequestError([requests.Problem("metadata.name", requests.shown(raw), expected)])
    return raw


def checked_name(ask: RequestContext, raw: t.Any, spec: t.Any) -> str | None:
    """Return the name of a new action, None if it gets one. Raises RequestError with all that is wrong with its spec and its name."""
    name, wrong = None, []
    try:
        requests.read(spec, ask.limits(), ask.namespace)
    except requests.RequestError as error:
        wrong += error.problems
    try:
        name = name_of(raw)
    except requests.RequestError as error:
        wrong += error.problems
    if wrong:
        raise requests.RequestError(wrong)
    return name


def _list(ask: RequestContext) -> Response:
    page = ask.console.actions.list(filters(ask, limit(ask)))
    return answer({"actions": [shown(action) for action in page.actions], "more": page.more})


def _create(ask: RequestContext) -> Response:
    body = sent(ask, ("name", "spec"))
    who = ask.who.name if ask.who else ""
    spec = body.get("spec")
    name = checked_name(ask, body.get("name"), spec)
    action = ask.console.actions.create(name, t.cast("PlainData", spec), who, ask.namespace)
    return answer(shown(action), 201, {"location": f"/api/v1/actions/{action.name}", "x-about": action.name})


def _get(ask: RequestContext) -> Response:
    return answer(shown(ask.console.actions.get(ask.request.path_params["name"], ask.namespace)))


def _output(ask: RequestContext) -> Response:
    status, node = ask.console.actions.get(ask.request.path_params["name"], ask.namespace).status, ask.one("node")
    if status.phase != actions.RUNNING:
        raise RequestRefused(409, "error_not_running")
    output = ask.console.progress.output(status.run_id, node)
    if output is None:
        raise RequestRefused(404, "error_no_output")
    at = calendar.text(output.at) if output.at else ""
    return answer({"node": node, "stage": output.stage, "at": at, "lines": list(output.lines), "problem": output.problem})


def _set(ask: RequestContext) -> Response:
    body = sent(ask, ("suspend", "cancel"))
    wrong = [requests.Problem(name, requests.shown(value), "true or false") for name, value in body.items() if not isinstance(value, bool)]
    if wrong or not body:
        raise requests.RequestError(wrong or [requests.Problem("body", "nothing", "suspend or cancel")])
    name = ask.request.path_params["name"]
    of = ask.console.actions.set(name, suspend=body.get("suspend"), cancel=body.get("cancel"), namespace=ask.namespace)
    return answer(shown(of))


def _delete(ask: RequestContext) -> Response:
    ask.console.actions.delete(ask.request.path_params["name"], ask.namespace)
    return answer({})


def preview(ask: RequestContext, spec: t.Any) -> PlainData:
    """Return the preview of a request. Raises RequestError that names what is wrong with it."""
    limits = ask.limits()
    request = requests.read(spec, limits, ask.namespace)
    nodes = list(request.chosen(limits.nodes or {}))
    if nodes:
        request = request.on(nodes)
    unknown = [node for node in nodes if node not in limits.devices] if request.device else []
    state, _problem = ask.console.fleet.state()
    shown = request.commands_shown()
    return {
        "command": request.command_shown(), "commands": shown.commands, "commandsMore": shown.more, "withoutCommand": shown.without,
        "seconds": request.estimate(), "nodes": nodes,
        "devicesUnknown": unknown, "withoutExpectation": request.without_expectation(limits, state.models if state else {}),
    }  # fmt: skip


def _preview(ask: RequestContext) -> Response:
    return answer(preview(ask, sent(ask, ("spec",)).get("spec")))


def _nodes(ask: RequestContext) -> Response:
    text, maximum = ask.one("text"), limit(ask)
    matching = [info for info in ask.console.actions.nodes() if text in info.name]
    # Not dataclasses.asdict, which copies deeply: it took most of the time of this answer.
    listed = [
        {
            "name": info.name, "gpus": info.gpus, "free": info.free, "labels": dict(info.labels), "used_by": list(info.used_by),
            "problem": info.problem,
        }
        for info in matching[:maximum]
    ]  # fmt: skip
    return answer({"nodes": listed, "count": len(matching)})


def _parts(ask: RequestContext) -> Response:
    found = one_part.named(ask, ask.one("name").strip()[:200])
    return answer({"parts": one_part.listed(ask.console.past, found), "more": len(found) > one_part.LISTED})


def _runs(ask: RequestContext) -> Response:
    query = asked(ask)
    runs = ask.console.past.runs(ask.one("before"), limit(ask), query.since, query.until)
    noted = ((run, ask.console.notes.last(run["run"])) for run in runs)
    return answer({"runs": [{**run, "note": note._asdict()} if note else run for run, note in noted]})


def _run(ask: RequestContext) -> Response:
    name = ask.request.path_params["run"]
    run, head = ask.console.past.run(name), ask.console.past.head(name)
    if run is None and head is None:
        raise RequestRefused(404, "error_no_run")
    report = {key: value for key, value in (head or {}).items() if key != "raw"}
    return answer({"run": run or {"run": name}, "report": report, "notes": [note._asdict() for note in ask.console.notes.all(name)]})


def _verdicts(ask: RequestContext) -> Response:
    words = [word for word in ask.one("verdict").replace(" ", "").split(",") if word]
    wrong = next((word for word in words if word.upper() not in WORST_FIRST), None)
    if wrong is not None:
        raise requests.RequestError([requests.Problem("verdict", requests.shown(wrong), f"some of {', '.join(WORST_FIRST)}")])
    regressed = ask.one("regressed")
    if regressed not in ("", "true", "false"):
        raise requests.RequestError([requests.Problem("regressed", requests.shown(regressed), "true or false")])
    matches = ask.console.past.search(asked(ask), regressed == "true", limit(ask))
    return answer({"verdicts": matches.rows, "more": matches.cut})


def _compare(ask: RequestContext) -> Response:
    return answer(ask.console.past.compared(ask.one("before"), ask.one("after")))


def _document(ask: RequestContext) -> Response:
    return answer(openapi.document(ENDPOINTS, ask.console.sessions.cookie))


ACTIONS = "/api/v1/actions"
ONE = f"{ACTIONS}/{{name}}"
_RANGE = (
    ("since", "2026-08-01, or 30d, 8w, 6m, 1y ago, or 2026-08-01T10:00:00Z"), ("until", "the last day or moment, in the same forms"),
    ("from", "instead of since, as Grafana has it: now-7d, or milliseconds since 1970"), ("to", "instead of until, in the same forms"),
)  # fmt: skip
_LIMIT = ("limit", "at most so many, up to 500")
ENDPOINTS = (
    Endpoint("GET", ACTIONS, _list, about=openapi.about(
        "Actions, the newest first.", openapi.LISTED,
        ("phase", "verdict", "kind", "text", _LIMIT, ("sort", f"by {', '.join(actions.SORTS)}; with a dash from the last to the first"),
         ("after", "what `more` of the answer before said, of the same sort")))),
    Endpoint("POST", ACTIONS, _create, "create", "create", openapi.about(
        "Ask for a measurement. Without a name it gets one.", openapi.ACTION, body=openapi.WANTED, status=201)),
    Endpoint("GET", ONE, _get, "get", about=openapi.about("One action.", openapi.ACTION)),
    Endpoint("GET", f"{ONE}/output", _output, "get", about=openapi.about(
        "The last lines that the tool on a node of a running action has printed. The first answer has no `at` yet: ask again every few "
        "seconds. `problem` says why there are no lines.", openapi.OUTPUT, (("node", "a node of the action's run"),))),
    Endpoint("PATCH", ONE, _set, "patch", "set", openapi.about("Suspend, go on, or cancel.", openapi.ACTION, body=openapi.SET)),
    Endpoint("DELETE", ONE, _delete, "delete", "delete", openapi.about(
        "Delete; a running one is cancelled first, and the history stays.", openapi.NOTHING)),
    Endpoint("POST", "/api/v1/preview", _preview, "create", about=openapi.about(
        "What a request comes to: the command, about how long, on which nodes. Nothing is begun.", openapi.PREVIEW,
        body=openapi.SPEC_ONLY)),
    Endpoint("GET", "/api/v1/nodes", _nodes, about=openapi.about(
        "Nodes that requests may name.", openapi.NODES, (("text", "a part of the name"), _LIMIT))),
    Endpoint("GET", "/api/v1/parts", _parts, about=openapi.about(
        "Parts of nodes by any of their names, with the places where they were and causes that are about them.", openapi.PARTS,
        (("name", "a UUID, GUID, serial number or switch, or a node with a device or slot of it, as `gpu-01 mlx5_2`"),))),
    Endpoint("GET", "/api/v1/runs", _runs, about=openapi.about(
        "Runs of the history, the newest first, each with the newest note on it.", openapi.RUNS,
        (("before", "those before this run"), *_RANGE, _LIMIT))),
    Endpoint("GET", "/api/v1/runs/{run}", _run, about=openapi.about(
        "A run, the head of its report, and the notes on it, the newest first.", openapi.RUN)),
    Endpoint("GET", "/api/v1/verdicts", _verdicts, about=openapi.about(
        "Verdicts with their numbers.", openapi.VERDICTS,
        ("node", "check", *_RANGE, ("verdict", "some of FAIL,WARN,..."), "run",
         ("part", "a name of a part, at whatever node it was"),
         ("regressed", "true"), _LIMIT))),
    Endpoint("GET", "/api/v1/compare", _compare, about=openapi.about(
        "Two runs side by side.", openapi.COMPARED, (("before", "the last accepted one where it is not said"), "after"))),
    Endpoint("GET", "/api/v1/openapi.json", _document, "", about=openapi.about("This document.", openapi.ANY)),
)  # fmt: skip
